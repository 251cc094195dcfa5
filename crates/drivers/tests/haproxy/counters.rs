//! What HAProxy counts, and what is told while it is dead.

use std::{
    net::{IpAddr, SocketAddr},
    os::unix::fs::symlink,
    sync::Arc,
};

use seaway_drivers::haproxy::HaproxyHost;
use seaway_engine::{Context, Driver as _, Patch};
use seaway_haproxy::{Global, Options, words::Folder};
use seaway_model::{Desired, Pool, load_balancer::Bind};
use seaway_proxy::{ListenerStatistics, PoolStatistics};
use seaway_testkit::balancing::{self, owner};
use tokio::time::timeout;

use crate::{
    PATIENCE, PORTS, PROGRAM, ask, desired, faults::kill_master, host, ip, load_balancer, member, place,
    settle, unit,
};

type Counted = (Vec<ListenerStatistics>, Vec<PoolStatistics>);

/// HAProxy is asked until it has counted that.
async fn counted(host: &HaproxyHost, is_it: impl Fn(&Counted) -> bool) -> Counted {
    let until = async {
        loop {
            host.read_counters().await;
            let counted = host.statistics();
            if is_it(&counted) {
                return counted;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, until).await.unwrap_or_else(|_| panic!("{:?}", host.statistics()))
}

#[tokio::test(flavor = "multi_thread")]
async fn listeners_and_members_are_counted_through_reloads_and_swaps() {
    let Some(folder) = place() else { return };
    let host = host(folder.path());
    let (ip, [a, b, _]) = (IpAddr::V4(ip(75)), PORTS);
    let (one, two) = (member("one\n"), member("two\n"));
    let owner = owner();
    let wanted = load_balancer(&owner, ip, &[a], &[one]);
    settle(&host, &owner, &desired(wanted.clone())).await.expect("it is served");
    let served = |count: usize, line: &str| {
        (0..count).for_each(|_| assert_eq!(ask((ip, a).into()).as_deref(), Some(line)));
    };
    let total = |it: &Counted, at: SocketAddr| {
        let members = it.1.iter().flat_map(|pool| &pool.members);
        members.filter(|member| member.at == at).map(|it| it.traffic.total).sum::<u64>()
    };
    served(3, "one");
    let (listeners, pools) = counted(&host, |it| total(it, one) == 3 && it.0[0].traffic.total == 3).await;
    assert_eq!((listeners[0].ip, listeners[0].id.port, listeners.len(), pools.len()), (ip, a, 1, 1));
    assert_eq!(
        (listeners[0].key.owner(), &pools[0].id),
        (Some(&owner), wanted.pools.keys().next().expect("one"))
    );
    assert!(listeners[0].traffic.bytes_out >= 3 * 4, "{listeners:?}");

    // Another port is a reload, after which HAProxy counts from zero.
    let both = load_balancer(&owner, ip, &[a, b], &[one]);
    settle(&host, &owner, &desired(both.clone())).await.expect("it is served");
    served(2, "one");
    counted(&host, |it| total(it, one) == 5 && it.0[0].traffic.total == 5).await;

    // Its slot is another member's now.
    let pool = both.pools.values().next().expect("one pool");
    let swapped = Pool { members: balancing::pool(&[two]).members, ..(**pool).clone() };
    assert!(
        host.patch(&Context::default(), &unit(&owner), &Patch::Members(Arc::new(swapped)))
            .await
            .expect("it is done")
    );
    served(4, "two");
    let now = counted(&host, |it| total(it, two) == 4 && it.0[0].traffic.total == 9).await;
    assert_eq!(total(&now, one), 0, "it has left");
    host.stop(PATIENCE).await;
}

/// Nothing is said to be open while HAProxy is dead; and that is told, not found at the next look.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_haproxy_serves_nothing_until_it_can_be_started_again() {
    let Some(folder) = place() else { return };
    let program = folder.path().join("haproxy");
    symlink(PROGRAM, &program).expect("a link");
    let options = Options { program: program.clone(), ..Options::new(folder.path().join("haproxy.cfg")) };
    let files = Folder::new(&folder.path().join("files").display().to_string()).expect("a plain path");
    let host = HaproxyHost::new("edge-1".into(), options, Global { folder: files, ..Global::default() });
    let (ip, [a, ..]) = (IpAddr::V4(ip(76)), PORTS);
    let owner = owner();
    let wanted = desired(load_balancer(&owner, ip, &[a], &[member("here\n")]));
    settle(&host, &owner, &wanted).await.expect("it is served");
    let unit = unit(&owner);
    assert_eq!(host.units(), std::slice::from_ref(&unit));
    let mut news = host.changed();
    for is_dead in [true, false] {
        if is_dead {
            std::fs::remove_file(&program).expect("the link");
            kill_master(folder.path());
        } else {
            symlink(PROGRAM, &program).expect("a link");
        }
        timeout(PATIENCE, news.changed()).await.expect("it is told").expect("it is followed");
        let observed = host.observe(&Context::default(), &unit, &Desired::Absent).await.expect("it is known");
        let told = host.conclude(&unit, &wanted, &observed);
        assert_eq!(
            (told.serving.is_empty(), told.problems.len()),
            (is_dead, usize::from(is_dead)),
            "{told:?}"
        );
        assert_eq!(host.units(), std::slice::from_ref(&unit));
    }
    assert_eq!(ask((ip, a).into()).as_deref(), Some("here"));
    host.stop(PATIENCE).await;
}

/// The machine needs it; and an address of a pool may not be there yet.
#[tokio::test(flavor = "multi_thread")]
async fn a_port_of_the_machine_is_not_taken_at_an_address_of_a_pool() {
    let Some(folder) = place() else { return };
    let host = host(folder.path()).reserving(Default::default());
    let (owner, ip) = (owner(), "203.0.113.77".parse().expect("an address"));
    let mut wanted = load_balancer(&owner, ip, &[22, 20_114], &[]);
    wanted.binds = vec![Bind::Ledger(ip)];
    settle(&host, &owner, &desired(wanted.clone())).await.expect("the rest of it is served");
    let unit = unit(&owner);
    let observed = host.observe(&Context::default(), &unit, &Desired::Absent).await.expect("it is known");
    let told = host.conclude(&unit, &desired(wanted), &observed);
    assert_eq!(told.serving.iter().map(|it| it.port).collect::<Vec<_>>(), [20_114]);
    let why: Vec<String> = told.problems.iter().map(|it| it.1.to_string()).collect();
    assert!(why.len() == 1 && why[0].contains("port 22 is reserved for the machine"), "{why:?}");
    host.stop(PATIENCE).await;
}
