//! What a change of members costs, however many load balancers there are.

use std::{net::IpAddr, sync::Arc};

use seaway_drivers::haproxy::HaproxyHost;
use seaway_engine::{Context, Driver as _, Patch};
use seaway_model::{Owner, Pool};
use tokio::{runtime::Builder, task::JoinSet};

use crate::{PATIENCE, ask, desired, host, ip, load_balancer, member, other, place, settle, unit};

const FIRST_PORT: u16 = 20_300;

/// How often memory is asked for, on the one thread that does all, while members of one of so many load balancers are swapped.
fn allocations(test: u8, count: u16) -> Option<u64> {
    let folder = place()?;
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (one, two) = (member("one\n"), member("two\n"));
    let (ip, owners) = (IpAddr::V4(ip(test)), (0..count).map(|it| other(&format!("shop-{it}"))));
    let owners: Vec<Owner> = owners.collect();
    let host = runtime.block_on(async {
        let host = Arc::new(host(folder.path()));
        let mut all = JoinSet::new();
        for (owner, port) in owners.iter().cloned().zip(FIRST_PORT..) {
            let (host, wanted) = (host.clone(), desired(load_balancer(&owner, ip, &[port], &[one])));
            all.spawn(async move { settle(&host, &owner, &wanted).await });
        }
        while let Some(done) = all.join_next().await {
            done.expect("no panic").expect("it is served");
        }
        host
    });
    let owner = &owners[owners.len() / 2];
    let at = (ip, FIRST_PORT + count / 2).into();
    let reloads = host.reloads();
    let swap = |host: &HaproxyHost, to: std::net::SocketAddr| {
        let wanted = load_balancer(owner, ip, &[], &[to]);
        let pool: Arc<Pool> = wanted.pools.values().next().expect("one pool").clone();
        let (context, patch) = (Context::default(), Patch::Members(pool));
        assert!(runtime.block_on(host.patch(&context, &unit(owner), &patch)).expect("it is done"));
    };
    // The first one may make what is kept.
    swap(&host, two);
    assert_eq!(ask(at).as_deref(), Some("two"));
    let measured = allocation_counter::measure(|| swap(&host, one));
    assert_eq!(ask(at).as_deref(), Some("one"));
    swap(&host, two);
    assert_eq!(ask(at).as_deref(), Some("two"));
    assert_eq!(host.reloads(), reloads);

    // What is made of all next has these members.
    runtime.block_on(async {
        let more = load_balancer(owner, ip, &[FIRST_PORT + count / 2, FIRST_PORT + count], &[two]);
        settle(&host, owner, &desired(more)).await.expect("it is served");
    });
    assert_eq!(ask(at).as_deref(), Some("two"));
    assert_eq!(ask((ip, FIRST_PORT + count).into()).as_deref(), Some("two"));
    let first = (ip, FIRST_PORT).into();
    assert_eq!(ask(first).as_deref(), Some("one"), "others have theirs");
    runtime.block_on(host.stop(PATIENCE));
    Some(measured.count_total)
}

#[test]
fn a_change_of_members_costs_the_same_however_many_load_balancers_there_are() {
    let (Some(few), Some(many)) = (allocations(77, 8), allocations(78, 250)) else { return };
    assert!(many < few * 2, "{few} allocations beside 8 load balancers, {many} beside 250");
}
