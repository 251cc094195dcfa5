//! Whatever goes wrong at whichever request: what is wanted comes to be, once, and of what is not wanted nothing stays.

use std::{collections::BTreeMap, sync::Arc};

use seaway_engine::{Context, Driver, Failure, Until};
use seaway_model::{
    Desired, L4, Listener, LoadBalancer, Unit,
    load_balancer::{CheckKind, HealthCheck, Protocol},
};
use seaway_openstack::{
    neutron::{FloatingIp, Port},
    octavia::{HealthMonitor, Member, Pool},
    resource::Query,
};
use seaway_testkit::cloud::{Fault, RequestHold};

use crate::{scene::*, tls::secured};

/// What happens to one request that changes something.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum RequestFault {
    /// The cloud breaks over it.
    Refused,
    /// The process ends before the request leaves it.
    KilledBefore,
    /// The process ends when all is done, and hears of nothing.
    KilledAfter,
    /// All is done, the reply is lost.
    LostReply,
}

pub(crate) const TROUBLES: [RequestFault; 4] =
    [RequestFault::Refused, RequestFault::KilledBefore, RequestFault::KilledAfter, RequestFault::LostReply];

/// Two ports, of two transports, probed, with a floating IP.
fn plain(scene: &Scene) -> LoadBalancer {
    probed(scene, &[80, 53], &[1, 2])
}

fn probed(scene: &Scene, ports: &[u16], members: &[u8]) -> LoadBalancer {
    let mut wish = scene.wish(ports, members);
    for pool in wish.pools.values_mut() {
        Arc::make_mut(pool).health = Some(HealthCheck::default());
    }
    over_udp(&mut wish, 53);
    wish
}

fn over_udp(wish: &mut LoadBalancer, port: u16) {
    let Some(mut listener) = wish.listeners.remove(&tcp(port)) else { return };
    let it: &mut Listener = Arc::make_mut(&mut listener);
    it.l4 = L4::Udp;
    for pool in wish.pools.values_mut().filter(|it| it.id.0.starts_with(&format!("{port}/"))) {
        let pool = Arc::make_mut(pool);
        pool.l4 = L4::Udp;
        pool.health = Some(HealthCheck { kind: CheckKind::Tcp, ..HealthCheck::default() });
    }
    let id = listener.id();
    if let Some(outside) = &mut wish.options.cloud {
        outside.ports.iter_mut().filter(|it| **it == tcp(port)).for_each(|it| *it = id);
    }
    wish.listeners.insert(id, listener);
}

#[tokio::test]
async fn a_creation_survives_trouble_at_every_request() {
    check(None, Some(plain)).await;
}

#[tokio::test]
async fn another_port_survives_trouble_at_every_request() {
    check(Some(plain), Some(|scene| probed(scene, &[25, 80, 53], &[1, 2]))).await;
}

#[tokio::test]
async fn other_members_survive_trouble_at_every_request() {
    check(Some(plain), Some(|scene| probed(scene, &[80, 53], &[2, 3, 4]))).await;
}

#[tokio::test]
async fn another_protocol_survives_trouble_at_every_request() {
    let web = |scene: &Scene| {
        let mut wish = plain(scene);
        let listener = wish.listeners.get_mut(&tcp(80)).unwrap();
        Arc::make_mut(listener).protocol = Protocol::Http;
        wish
    };
    check(Some(plain), Some(web)).await;
}

#[tokio::test]
async fn a_port_that_goes_survives_trouble_at_every_request() {
    check(Some(plain), Some(|scene| probed(scene, &[53], &[1, 2]))).await;
}

#[tokio::test]
async fn a_deletion_survives_trouble_at_every_request() {
    check(Some(plain), None).await;
}

/// Who is killed may have a request under way, which is done after his successor has looked.
#[tokio::test]
async fn a_creation_that_is_done_late_leaves_one_load_balancer() {
    for goes in [false, true] {
        let mut scene = Scene::set().await;
        let before = inventory(&scene).await;
        let wanted = Desired::LoadBalancer(Arc::new(plain(&scene)));
        let (hold, is_done) = (RequestHold::new(), "POST */lbaas/loadbalancers");
        scene.fake.fail(Fault::on(is_done).hold(&hold));
        let late = tokio::spawn({
            let (driver, wanted) = (driver(&scene.cloud, "amphora"), wanted.clone());
            async move {
                let mut observed = driver.observe(&Context::default(), &unit(), &wanted).await.unwrap();
                let steps = driver.steps(&wanted, &observed);
                driver.apply(&Context::default(), &unit(), &steps[0], &mut observed).await.unwrap();
            }
        });
        hold.reached(1).await;
        strive(&scene, &wanted).await;
        let there = inventory(&scene).await;
        hold.release();
        late.await.unwrap();
        assert_eq!(scene.balancers().await.len(), 2);
        scene.restarted();
        if !goes {
            strive(&scene, &wanted).await;
            scene.restarted();
            strive(&scene, &wanted).await;
            assert_eq!(inventory(&scene).await, there);
        }
        strive(&scene, &Desired::Absent).await;
        assert_eq!(inventory(&scene).await, before);
    }
}

/// With its certificates in Barbican, and those before them gone.
#[tokio::test]
async fn certificates_survive_trouble_at_every_request() {
    let first = |scene: &Scene| secured(plain(scene), &["shop"]);
    let renewed = |scene: &Scene| secured(plain(scene), &["shop-renewed"]);
    check(None, Some(first)).await;
    check(Some(first), Some(renewed)).await;
    check(Some(renewed), None).await;
}

/// Where a load balancer has one address, each family has one of its own; all of it is struck.
#[tokio::test]
async fn two_load_balancers_survive_trouble_at_every_request() {
    let first = |scene: &Scene| scene.wish_of_both(&[80], &[1]);
    let changed = |scene: &Scene| scene.wish_of_both(&[80], &[1, 2]);
    check_both(None, Some(first)).await;
    check_both(Some(first), Some(changed)).await;
    check_both(Some(changed), None).await;
}

type Wish = fn(&Scene) -> LoadBalancer;

/// From one wish to the other, with each trouble at each request that changes something.
async fn check(from: Option<Wish>, to: Option<Wish>) {
    check_of(vec![unit()], from, to).await;
}

async fn check_both(from: Option<Wish>, to: Option<Wish>) {
    check_of(vec![unit(), second_unit()], from, to).await;
}

async fn check_of(units: Vec<Unit>, from: Option<Wish>, to: Option<Wish>) {
    let (clean, writes) = walk(&units, from, to, None).await;
    assert!(!writes.is_empty());
    for at in 0..writes.len() {
        for trouble in TROUBLES {
            let case = format!("{trouble:?} at {}: {}", at + 1, writes[at].0);
            let (there, _) = walk(&units, from, to, Some((trouble, &writes, at, &case))).await;
            assert_eq!(there, clean, "{case}");
        }
    }
}

pub(crate) type Written = (String, String);

/// What is there after all, and which requests changed something. What there was before Seaway is there after it.
async fn walk(
    units: &[Unit],
    from: Option<Wish>,
    to: Option<Wish>,
    trouble: Option<(RequestFault, &[Written], usize, &str)>,
) -> (Inventory, Vec<Written>) {
    let mut scene = if units.len() > 1 { Scene::of_both(25).await } else { Scene::set().await };
    let before = inventory(&scene).await;
    if let Some(from) = from {
        strive_for(&scene, units, &Desired::LoadBalancer(Arc::new(from(&scene)))).await;
    }
    let wanted = to.map_or(Desired::Absent, |to| Desired::LoadBalancer(Arc::new(to(&scene))));
    scene.fake.forget_requests();
    match trouble {
        None => {
            strive_for(&scene, units, &wanted).await;
        }
        Some((trouble, writes, at, case)) => {
            strike(&scene, trouble, &writes[..=at], strive_for(&scene, units, &wanted)).await;
            assert!(written(&scene).len() > at, "{case}: nothing came to be struck");
        }
    }
    let writes = written(&scene);
    scene.restarted();
    strive_for(&scene, units, &wanted).await;
    let there = inventory(&scene).await;
    scene.restarted();
    scene.fake.forget_requests();
    strive_for(&scene, units, &wanted).await;
    assert_eq!(written(&scene), [], "{trouble:?}: fresh eyes see the same");
    strive_for(&scene, units, &Desired::Absent).await;
    assert_eq!(inventory(&scene).await, before, "{trouble:?}: something is left");
    (there, writes)
}

/// Trouble befalls the last of these writes while that is worked on.
pub(crate) async fn strike(
    scene: &Scene,
    trouble: RequestFault,
    writes: &[Written],
    work: impl Future<Output = ()>,
) {
    let (method, _) = writes.last().unwrap();
    let nth = writes.iter().filter(|it| it.0 == *method).count();
    let (on, hold) = (Fault::on(&format!("{method} *")).nth(nth), RequestHold::new());
    scene.fake.fail(match trouble {
        RequestFault::Refused => on.status(500),
        RequestFault::KilledBefore => on.hold(&hold),
        RequestFault::KilledAfter => on.hold_reply(&hold),
        RequestFault::LostReply => on.lose_reply(),
    });
    tokio::select! {
        () = hold.reached(1) => {}
        () = work => {}
    }
}

pub(crate) fn written(scene: &Scene) -> Vec<Written> {
    let changes = |it: &seaway_testkit::cloud::Recorded| it.method != "GET" && !it.path.contains("/auth/");
    scene.fake.requests().into_iter().filter(changes).map(|it| (it.method, it.path)).collect()
}

async fn strive(scene: &Scene, wanted: &Desired) {
    strive_for(scene, &[unit()], wanted).await;
}

/// As an engine would: what fails is tried again.
pub(crate) async fn strive_for(scene: &Scene, units: &[Unit], wanted: &Desired) {
    let pass = |time| {
        scene.fake.advance(time);
        scene.clock.advance(time);
    };
    let soon = std::time::Duration::from_secs(5);
    for _ in 0..100 {
        let mut next = None;
        for unit in units {
            let after = match once(scene, unit, wanted).await {
                Ok(after) => after.filter(|it| *it < 12 * soon),
                Err(
                    Failure::Wait { until: Until::After(after), .. }
                    | Failure::Retry { after: Some(after), .. },
                ) => Some(after),
                Err(Failure::Retry { .. }) => Some(soon),
                Err(error) => panic!("{error:?}"),
            };
            next = next.max(after);
        }
        match next {
            Some(after) => pass(after),
            None => return,
        }
    }
    panic!("it never comes to rest");
}

async fn once(scene: &Scene, unit: &Unit, wanted: &Desired) -> Result<Option<std::time::Duration>, Failure> {
    let mut observed = scene.driver.observe(&Context::default(), unit, wanted).await?;
    for step in scene.driver.steps(wanted, &observed) {
        scene.driver.apply(&Context::default(), unit, &step, &mut observed).await?;
    }
    let told = scene.driver.conclude(unit, wanted, &observed);
    assert!(told.problems.is_empty(), "{:?}", told.problems);
    Ok(told.again)
}

fn last_word(name: &str) -> &str {
    name.rsplit(' ').next().unwrap()
}

/// How many there are of each name.
pub(crate) type Inventory = BTreeMap<String, usize>;

pub(crate) async fn inventory(scene: &Scene) -> Inventory {
    let cloud = &scene.cloud;
    let mut names = Vec::new();
    names.extend(scene.balancers().await.into_iter().map(|it| format!("load balancer {}", it.name)));
    let listeners = scene.listeners().await;
    names.extend(listeners.into_iter().map(|it| format!("{} listener {}", it.protocol, it.protocol_port)));
    for pool in cloud.all::<Pool>().list::<Pool>(Query::all()).await.unwrap() {
        names.push(format!("{} pool of {} listeners", pool.protocol, pool.listeners.len()));
        let members = cloud.within::<Member>(&pool.id).list::<Member>(Query::all()).await.unwrap();
        names.extend(members.into_iter().map(|it| format!("member {}:{}", it.address, it.protocol_port)));
    }
    let monitors = cloud.all::<HealthMonitor>().list::<HealthMonitor>(Query::all()).await.unwrap();
    names.extend(monitors.into_iter().map(|it| format!("{} monitor", it.r#type)));
    let floating = cloud.all::<FloatingIp>().list::<FloatingIp>(Query::all()).await.unwrap();
    let leads = |it: &FloatingIp| if it.port_id.is_some() { "somewhere" } else { "nowhere" };
    names.extend(floating.iter().map(|it| format!("floating IP that leads {}", leads(it))));
    let ports = cloud.all::<Port>().list::<Port>(Query::all()).await.unwrap();
    names.extend(ports.into_iter().map(|it| format!("port of {}", it.device_owner)));
    names.extend(scene.secrets().await.iter().map(|it| format!("secret {}", last_word(&it.name))));
    names.extend(scene.containers().await.iter().map(|it| format!("container {}", last_word(&it.name))));
    let mut all = Inventory::new();
    for name in names {
        *all.entry(name).or_default() += 1;
    }
    all
}
