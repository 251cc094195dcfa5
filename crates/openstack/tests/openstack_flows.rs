//! Objects, traffic and credentials on a real cloud: the one of `rig/openstack`, in projects of the test's own.

#[path = "flows/scene.rs"]
mod scene;
#[path = "flows/sign_in.rs"]
mod sign_in;
#[path = "objects/walks.rs"]
#[macro_use]
mod walks;

use std::{collections::BTreeSet, time::Instant};

use scene::{Scene, alone};
use seaway_openstack::{
    neutron::{FloatingIp, FloatingIpChange, NewFloatingIp, Port},
    octavia::{
        Algorithm, LoadBalancer, Member, MonitorType, NewHealthMonitor, NewListener, NewLoadBalancer,
        NewMember, NewPool, Operating, PoolProtocol, Protocol,
    },
    resource::{Query, To},
};
use seaway_testkit::topology::Namespace;
use walks::PATIENCE;

#[test]
fn a_load_balancer_made_whole_is_reached_from_inside_and_outside_and_goes_with_all_it_had() {
    let Some(scene) = Scene::set("flows") else { return };
    let (a, b, c) = (scene.backend("a"), scene.backend("b"), scene.backend("c"));
    let (client, _) = scene.machine("client");
    let cloud = &scene.cloud;
    let balancers = cloud.all::<LoadBalancer>();

    let tcp = |port: u16, pool: NewPool| NewListener {
        name: format!("port-{port}").into(),
        default_pool: pool.into(),
        ..NewListener::new(Protocol::Tcp, port)
    };
    let pool = |name: &str, members: &[&scene::Backend]| NewPool {
        name: name.into(),
        members: members
            .iter()
            .map(|it| NewMember { name: it.name.into(), ..it.member() })
            .collect::<Vec<_>>()
            .into(),
        healthmonitor: NewHealthMonitor {
            name: name.into(),
            ..NewHealthMonitor::new(MonitorType::Tcp, 2u64, 1u64, 1u64)
        }
        .into(),
        ..NewPool::new(PoolProtocol::Tcp, Algorithm::SourceIpPort)
    };
    let new = NewLoadBalancer {
        name: "whole".into(),
        tags: BTreeSet::from(["flows".to_owned()]).into(),
        provider: Some("ovn".to_owned()).into(),
        vip_subnet_id: Some(scene.subnet.clone()).into(),
        listeners: vec![tcp(80, pool("web", &[&a, &b])), tcp(81, pool("other", &[&c]))].into(),
        ..NewLoadBalancer::new()
    };
    let (id, vip, vip_port) = scene.now(async {
        let made = balancers.create(&new).await.expect("a load balancer");
        let it = balancers.until_ready(&made.id, PATIENCE).await.expect("it becomes ACTIVE");
        assert_eq!((it.listeners.len(), it.pools.len()), (2, 2));
        (it.id, it.vip_address.expect("an address"), it.vip_port_id.expect("a port"))
    });

    // From inside, by each listener its own.
    assert_eq!(who_answers(&client, &format!("http://{vip}/"), 2), ["a", "b"].into());
    assert_eq!(who_answers(&client, &format!("http://{vip}:81/"), 1), ["c"].into());

    // From outside, by a floating IP.
    let floating = scene.now(async {
        let new = NewFloatingIp {
            port_id: Some(vip_port.clone()).into(),
            description: "flows".into(),
            ..NewFloatingIp::new(walks::outside(cloud).await)
        };
        cloud.all::<FloatingIp>().create(&new).await.expect("a floating IP")
    });
    let address = floating.floating_ip_address.expect("an address");
    let outside = scene.rig.outside();
    assert_eq!(who_answers(&outside, &format!("http://{address}/"), 2), ["a", "b"].into());
    assert_eq!(who_answers(&outside, &format!("http://{address}:81/"), 1), ["c"].into());

    // All members of a pool at once: a stays, b goes, c comes.
    let (web, kept) = scene.now(async {
        let tree = balancers.tree(&id).await.expect("a tree");
        let pools = tree.listeners.iter().flat_map(|it| &it.pools);
        let web = pools.clone().find(|it| it.name == "web").expect("it was made with the rest").id.clone();
        let members = cloud.within::<Member>(&web);
        let there = members.list::<Member>(Query::all()).await.expect("members");
        let kept = there.iter().find(|it| it.address == a.address).expect("a is a member");
        members.replace(&[NewMember::like(kept), c.member()]).await.expect("replaced");
        balancers.until_ready(&id, PATIENCE).await.expect("it becomes ACTIVE");
        (web, kept.id.clone())
    });
    // With ovn, a member that goes is there a moment longer than its load balancer is PENDING.
    scene.until("b is gone, and a was not made anew", async || {
        let now = cloud.within::<Member>(&web).list::<Member>(Query::all()).await.expect("members");
        now.len() == 2 && now.iter().any(|it| it.id == kept)
    });
    assert_eq!(who_answers(&client, &format!("http://{vip}/"), 2), ["a", "c"].into());
    assert_eq!(who_answers(&outside, &format!("http://{address}/"), 2), ["a", "c"].into());

    // One more beside them, and one that dies is noticed.
    scene.now(async {
        let members = cloud.within::<Member>(&web);
        members.add(&[b.member()]).await.expect("added");
        balancers.until_ready(&id, PATIENCE).await.expect("it becomes ACTIVE");
        assert_eq!(members.list::<Member>(Query::all()).await.expect("members").len(), 3);
    });
    assert_eq!(who_answers(&client, &format!("http://{vip}/"), 3), ["a", "b", "c"].into());
    let _b = b.die();
    scene.until("b counts as dead", async || {
        let members = cloud.within::<Member>(&web).list::<Member>(Query::all()).await.expect("members");
        members.iter().any(|it| it.operating_status == Operating::Error)
    });
    assert_eq!(who_answers(&client, &format!("http://{vip}/"), 2), ["a", "c"].into());

    // Detached, the outside is told nothing; deleted, all is gone.
    scene.now(async {
        let all = cloud.all::<FloatingIp>();
        let change = FloatingIpChange { port_id: To(None), ..Default::default() };
        let detached = all.change(&floating.id, &change).await.expect("changed");
        assert_eq!((detached.port_id, detached.fixed_ip_address), (None, None));
        all.delete(&floating.id).await.expect("deleted");
        balancers.delete_cascade(&id).await.expect("deleted");
        balancers.until_gone(&id, PATIENCE).await.expect("it goes");
        assert_eq!(cloud.all::<Port>().find::<Port>(&vip_port).await.expect("an answer"), None);
        let left =
            balancers.list::<LoadBalancer>(Query::all().tagged(["flows"])).await.expect("load balancers");
        assert_eq!(left, []);
    });
    assert!(outside.curl(&format!("http://{address}/")).is_err());
}

/// The names of those who answer, asked until as many as there should be have done so.
fn who_answers(from: &Namespace, url: &str, number: usize) -> BTreeSet<&'static str> {
    let start = Instant::now();
    let mut names = BTreeSet::new();
    let mut silent = String::new();
    // A few more than needed, so that one who should not answer is heard too.
    let mut more = 12;
    while (names.len() < number || more > 0) && start.elapsed() < PATIENCE {
        match from.curl(url) {
            Ok(name) => {
                names.insert(["a", "b", "c"].into_iter().find(|it| *it == name).unwrap_or("a stranger"));
                if names.len() >= number {
                    more -= 1;
                }
            }
            // OVN learns of a change a moment later than Octavia says ACTIVE.
            Err(why) => {
                silent = why;
                names.clear();
                more = 12;
            }
        }
    }
    assert!(!names.is_empty(), "{url}: nobody answers: {silent}");
    names
}

macro_rules! walk {
    ($($name:ident: $walk:path;)*) => {
        $(#[test]
        fn $name() {
            alone(stringify!($name), async |cloud| $walk(cloud).await);
        })*
    };
}

each_walk!(walk);
