//! The native driver against the real data plane, on loopback, and its steps against a model of applying them.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    sync::Arc,
    time::{Duration, Instant},
};

use proptest::{prelude::*, test_runner::FileFailurePersistence};
use seaway_announce::Steering;
use seaway_drivers::{
    HostPlacement,
    native::{self, Native, Step, steps},
};
use seaway_engine::{Context, Driver, Patch};
use seaway_model::{
    Desired, Kind, LbKey, Listener, LoadBalancer, ObjectRef, Pool, PoolId, Reason, Unit,
    load_balancer::{Bind, Certificate, Limits, Protocol, Rule, TlsByName},
};
use seaway_proxy::{Proxy, RunningLoadBalancer, Settings};
use seaway_testkit::{
    balancing::{self, owner},
    conformance::{each_walk, passes, wanders},
};

fn listener(port: u16, most: Option<u32>) -> Arc<Listener> {
    Arc::new(Listener {
        name: format!("default/shop:{port}").into(),
        rules: vec![Rule::forward_all(owner(), PoolId("80/TCP".into())).into()],
        limits: Limits { connections: most, new_per_second: None },
        ..balancing::listener(port)
    })
}

fn pool(id: u16, members: u16) -> Arc<Pool> {
    let members: Vec<SocketAddr> = (0..members).map(|i| (Ipv4Addr::LOCALHOST, 1_000 + i).into()).collect();
    Arc::new(Pool { id: PoolId(format!("{id}/TCP").into()), ..balancing::pool(&members) })
}

fn load_balancer(ips: &[IpAddr], ports: &[(u16, Option<u32>)], pools: &[(u16, u16)]) -> LoadBalancer {
    let listeners = ports.iter().map(|(port, most)| listener(*port, *most));
    LoadBalancer {
        binds: ips.iter().copied().map(Bind::Host).collect(),
        listeners: listeners.map(|it| (it.id(), it)).collect(),
        pools: pools.iter().map(|(id, members)| pool(*id, *members)).map(|it| (it.id.clone(), it)).collect(),
        ..LoadBalancer::default()
    }
}

fn secret(name: &str) -> ObjectRef {
    ObjectRef::new(Kind::Secret, "default", name)
}

fn certificate(chain: &str, key: &str) -> Arc<Certificate> {
    Arc::new(Certificate {
        chain: chain.into(),
        key: key.to_owned().into(),
        authorities: "".into(),
        staple: None,
        users: String::new().into(),
    })
}

/// A listener that speaks HTTP in TLS, and what it shows.
fn secured(ip: IpAddr, port: u16, certificate: &Arc<Certificate>) -> LoadBalancer {
    let mut all = load_balancer(&[ip], &[(port, None)], &[(80, 1)]);
    for listener in all.listeners.values_mut() {
        let listener = Arc::make_mut(listener);
        listener.protocol = Protocol::Http;
        listener.tls = Some(Arc::new(TlsByName { default: vec![secret("shown")], ..TlsByName::default() }));
    }
    all.certificates = Arc::new([(secret("shown"), certificate.clone())].into());
    all
}

/// Workers end in their turn, on a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(30);
/// Each test has an address of its own; of these, nobody gets one who asks for any port at all addresses.
const PORTS: [u16; 3] = [20_101, 20_102, 20_103];

#[tokio::test]
async fn native_passes_the_suite_of_all_drivers() {
    let ip = Ipv4Addr::new(127, 60, (std::process::id() >> 8) as u8, std::process::id() as u8);
    let [a, b, c] = PORTS;
    let proxy = Proxy::start(Settings { workers: 2, pin: false }).expect("a data plane");
    let driver = Native::new(proxy.clone(), "edge-1".into());
    let unit =
        Unit::LoadBalancer(HostPlacement::new("edge-1".into(), native::DRIVER).place(), LbKey::Of(owner()));
    let ips = [IpAddr::V4(ip)];
    let wanted = [
        load_balancer(&ips, &[(a, None)], &[(80, 1)]),
        load_balancer(&ips, &[(a, Some(5)), (b, None)], &[(80, 2), (81, 1)]),
        load_balancer(&ips, &[(c, None)], &[(80, 2)]),
        load_balancer(&[], &[(c, None)], &[(80, 2)]),
        load_balancer(&ips, &[(a, None), (b, None), (c, None)], &[(80, 0)]),
        secured(ips[0], a, &made()),
        secured(ips[0], a, &made()),
    ]
    .map(|it| Desired::LoadBalancer(Arc::new(it)));
    passes(&driver, &unit, &wanted).await;
    assert_eq!(proxy.keys(), [], "nothing is left");
}

/// Whatever is cut off and started again, at each rest the listeners that are desired are open, and no other one is.
#[test]
fn native_survives_cuts_and_restarts_at_any_step() {
    let ip = Ipv4Addr::new(127, 64, (std::process::id() >> 8) as u8, std::process::id() as u8).into();
    let [a, b, c] = PORTS;
    let unit =
        Unit::LoadBalancer(HostPlacement::new("edge-1".into(), native::DRIVER).place(), LbKey::Of(owner()));
    let wanted = [
        load_balancer(&[ip], &[(a, None)], &[(80, 1)]),
        load_balancer(&[ip], &[(a, Some(5)), (b, None)], &[(80, 2), (81, 1)]),
        load_balancer(&[ip], &[(b, None), (c, None)], &[(80, 0)]),
        load_balancer(&[], &[(c, None)], &[(80, 2)]),
        secured(ip, a, &made()),
        secured(ip, a, &made()),
    ]
    .map(|it| Desired::LoadBalancer(Arc::new(it)));
    each_walk(24, wanted.len(), async |turns| {
        let running: RefCell<Option<Proxy>> = RefCell::default();
        let start = async || {
            let proxy = Proxy::start(Settings { workers: 1, pin: false }).expect("a data plane");
            // With a process all of its sockets end.
            running.replace(Some(proxy.clone())).inspect(Proxy::stop_accepting);
            Native::new(proxy, "edge-1".into())
        };
        let open = async |_: &Native, desired: &Desired| {
            let wanted = |port| {
                let Desired::LoadBalancer(it) = desired else { return false };
                !it.binds.is_empty() && it.listeners.values().any(|listener| listener.port == port)
            };
            for port in PORTS {
                // Workers close their sockets in their turn.
                let began = Instant::now();
                while TcpStream::connect((ip, port)).is_ok() != wanted(port) {
                    assert!(began.elapsed() < PATIENCE, "port {port} is to be open: {}", wanted(port));
                }
            }
        };
        wanders(start, &unit, &wanted, &turns, open).await;
        assert_eq!(running.into_inner().map(|it| it.keys()), Some(Vec::new()), "nothing is left");
    });
}

fn made() -> Arc<Certificate> {
    let made = rcgen::generate_simple_self_signed(["a.example".to_owned()]).expect("a certificate");
    certificate(&made.cert.pem(), &made.signing_key.serialize_pem())
}

#[tokio::test]
async fn ports_that_the_machine_needs_are_left_alone_at_addresses_of_pools_where_nothing_can_be_steered() {
    let ip = Ipv4Addr::new(127, 62, (std::process::id() >> 8) as u8, std::process::id() as u8);
    let [reserved, other, _] = PORTS;
    let proxy = Proxy::start(Settings { workers: 1, pin: false }).expect("a data plane");
    proxy.steer_by(Arc::new(Steering::unavailable(|port| port == PORTS[0], "it is a test")));
    let driver = Native::new(proxy.clone(), "edge-1".into());
    let unit =
        Unit::LoadBalancer(HostPlacement::new("edge-1".into(), native::DRIVER).place(), LbKey::Of(owner()));
    for (bind, served) in [(Bind::Ledger(ip.into()), 1), (Bind::Host(ip.into()), 2)] {
        let mut wanted = load_balancer(&[], &[(reserved, None), (other, None)], &[(80, 1)]);
        wanted.binds = vec![bind];
        let desired = Desired::LoadBalancer(Arc::new(wanted));
        let mut observed = driver.observe(&Context::default(), &unit, &desired).await.expect("observed");
        for step in driver.steps(&desired, &observed) {
            driver.apply(&Context::default(), &unit, &step, &mut observed).await.expect("applied");
        }
        let told = driver.conclude(&unit, &desired, &observed);
        assert_eq!((told.serving.len(), told.problems.len()), (served, 2 - served), "{:?}", told.problems);
        let reasons = told.problems.iter().map(|(_, it)| it.reason);
        assert!(reasons.into_iter().all(|it| it == Reason::NotPermitted), "{:?}", told.problems);
        assert!(told.problems.iter().all(|(_, it)| it.message.contains("reserved for the machine itself")));
    }
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_is_told_to_whom_it_was_for_and_the_last_one_stays() {
    let ip = Ipv4Addr::new(127, 61, (std::process::id() >> 8) as u8, std::process::id() as u8);
    let [port, ..] = PORTS;
    let proxy = Proxy::start(Settings { workers: 1, pin: false }).expect("a data plane");
    let driver = Native::new(proxy.clone(), "edge-1".into());
    let key = LbKey::Of(owner());
    let unit = Unit::LoadBalancer(HostPlacement::new("edge-1".into(), native::DRIVER).place(), key.clone());
    let (good, broken) = (made(), certificate("nonsense", "nonsense"));
    for (wanted, problems) in [(&good, 0), (&broken, 1), (&broken, 1), (&good, 0)] {
        let desired = Desired::LoadBalancer(Arc::new(secured(ip.into(), port, wanted)));
        let mut observed = driver.observe(&Context::default(), &unit, &desired).await.expect("observed");
        for step in driver.steps(&desired, &observed) {
            driver.apply(&Context::default(), &unit, &step, &mut observed).await.expect("applied");
        }
        let told = driver.conclude(&unit, &desired, &observed).problems;
        assert_eq!(told.len(), problems, "{told:?}");
        assert!(
            told.iter().all(|(whose, it)| *whose == owner() && it.reason == Reason::BadCertificate),
            "{told:?}"
        );
        let running = proxy.running(&key).expect("it runs");
        assert_eq!(*running.certificates, [(secret("shown"), good.clone())].into());
    }
}

#[tokio::test]
async fn a_renewed_certificate_is_taken_over_alone_and_a_wrong_one_is_not() {
    let ip = Ipv4Addr::new(127, 62, (std::process::id() >> 8) as u8, std::process::id() as u8);
    let [port, ..] = PORTS;
    let proxy = Proxy::start(Settings { workers: 1, pin: false }).expect("a data plane");
    let driver = Native::new(proxy.clone(), "edge-1".into());
    let key = LbKey::Of(owner());
    let unit = Unit::LoadBalancer(HostPlacement::new("edge-1".into(), native::DRIVER).place(), key.clone());
    let desired = Desired::LoadBalancer(Arc::new(secured(ip.into(), port, &made())));
    let mut observed = driver.observe(&Context::default(), &unit, &desired).await.expect("observed");
    for step in driver.steps(&desired, &observed) {
        driver.apply(&Context::default(), &unit, &step, &mut observed).await.expect("applied");
    }
    let renewed = made();
    let patched =
        async |it| driver.patch(&Context::default(), &unit, &Patch::Certificate(secret("shown"), it)).await;
    assert!(patched(renewed.clone()).await.expect("renewed"));
    assert!(!patched(certificate("nonsense", "x")).await.expect("looked at"));
    let running = proxy.running(&key).expect("it runs");
    assert_eq!(*running.certificates, [(secret("shown"), renewed)].into());
}

/// What applying a step makes of what runs.
fn applied(running: &mut RunningLoadBalancer, step: &Step) {
    match step {
        Step::PutPool(pool) => drop(running.pools.insert(pool.id.clone(), pool.clone())),
        Step::RemovePool(id) => drop(running.pools.remove(id)),
        Step::PutCertificate(name, it) => {
            drop(Arc::make_mut(&mut running.certificates).insert(name.clone(), it.clone()))
        }
        Step::RemoveCertificate(name) => drop(Arc::make_mut(&mut running.certificates).remove(name)),
        Step::Open(ip, it) | Step::Retune(ip, it) => drop(running.sockets.insert((*ip, it.id()), it.clone())),
        Step::Close(ip, id) => drop(running.sockets.remove(&(*ip, *id))),
    }
}

fn any_load_balancer() -> impl Strategy<Value = LoadBalancer> {
    let ips = prop::collection::btree_set(1_u8..4, 0..3);
    let ports = prop::collection::btree_map(1_u16..5, prop::option::of(1_u32..3), 0..4);
    let pools = prop::collection::btree_map(80_u16..83, 0_u16..3, 0..3);
    let certificates = prop::collection::btree_map(1_u8..4, 1_u8..3, 0..3);
    let parts = (ips, ports, pools, certificates, any::<bool>());
    parts.prop_map(
        |(ips, ports, pools, certificates, http): (_, BTreeMap<_, _>, BTreeMap<_, _>, BTreeMap<_, _>, _)| {
            let ips: Vec<IpAddr> =
                ips.into_iter().map(|last| Ipv4Addr::new(192, 0, 2, last).into()).collect();
            let ports: Vec<_> = ports.into_iter().collect();
            let mut all = load_balancer(&ips, &ports, &pools.into_iter().collect::<Vec<_>>());
            for (name, text) in certificates {
                Arc::make_mut(&mut all.certificates)
                    .insert(secret(&name.to_string()), certificate(&text.to_string(), ""));
            }
            if http {
                for listener in all.listeners.values_mut() {
                    Arc::make_mut(listener).protocol = Protocol::Http;
                }
            }
            all
        },
    )
}

proptest! {
    // What failed is kept beside this file, and tried first.
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn applying_the_steps_yields_what_is_wanted_and_asking_again_yields_none(
        wanted in prop::collection::vec(prop::option::of(any_load_balancer()), 1..6)
    ) {
        let mut running = RunningLoadBalancer::default();
        for wanted in &wanted {
            for step in steps(wanted.as_ref(), &running) {
                applied(&mut running, &step);
            }
            prop_assert_eq!(steps(wanted.as_ref(), &running), vec![]);
            let listeners = wanted.as_ref().map_or(0, |it| it.binds.len() * it.listeners.len());
            prop_assert_eq!(running.sockets.len(), listeners);
        }
    }
}
