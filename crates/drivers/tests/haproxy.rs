//! The driver for HAProxy, with a real one on loopback.

#[path = "haproxy/counters.rs"]
mod counters;
#[path = "haproxy/faults.rs"]
mod faults;
#[path = "haproxy/members.rs"]
mod members;

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::Arc,
    time::Duration,
};

use seaway_drivers::{
    HostPlacement,
    haproxy::{self, HaproxyHost},
};
use seaway_engine::{Context, Driver as _, Failure, Patch};
use seaway_haproxy::{Global, Options, words::Folder};
use seaway_model::{
    Desired, Kind, LbKey, Listener, LoadBalancer, ObjectRef, Owner, Pool, PoolId, Reason, Unit,
    load_balancer::{BackendTls, Bind, Certificate, ClientAuth, Protocol, Rule, TlsByName, Trust},
    outcome::ServingSocket,
};
use seaway_testkit::{
    balancing::{self, owner},
    conformance::passes,
};
use tempfile::TempDir;

const PROGRAM: &str = "/usr/sbin/haproxy";
const PATIENCE: Duration = Duration::from_secs(10);
/// Each test has an address of its own.
const PORTS: [u16; 3] = [20_111, 20_112, 20_113];

/// `None`, and the test is skipped, without HAProxy.
fn place() -> Option<TempDir> {
    if !Path::new(PROGRAM).exists() {
        seaway_testkit::skip(None, "HAProxy is not installed: sudo apt-get install haproxy");
        return None;
    }
    Some(TempDir::new().expect("a folder"))
}

fn host(folder: &Path) -> HaproxyHost {
    let options = Options {
        // Nothing here is about gathering.
        between_reloads: Duration::from_millis(50),
        ..Options::new(folder.join("haproxy.cfg"))
    };
    let folder = Folder::new(&folder.join("files").display().to_string()).expect("a plain path");
    HaproxyHost::new("edge-1".into(), options, Global { folder, ..Global::default() })
}

fn unit(owner: &Owner) -> Unit {
    Unit::LoadBalancer(HostPlacement::new("edge-1".into(), haproxy::DRIVER).place(), LbKey::Of(owner.clone()))
}

fn other(name: &str) -> Owner {
    Owner::Object {
        object: ObjectRef::new(Kind::Service, "default", name),
        uid: format!("uid-{name}").into(),
    }
}

/// Answers each connection with one line.
fn member(line: &'static str) -> SocketAddr {
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let at = socket.local_addr().expect("bound");
    std::thread::spawn(move || {
        for stream in socket.incoming() {
            // A check that went away is no matter.
            let _ = stream.and_then(|mut it| it.write_all(line.as_bytes()));
        }
    });
    at
}

fn load_balancer(owner: &Owner, ip: IpAddr, ports: &[u16], members: &[SocketAddr]) -> LoadBalancer {
    let pool = Pool { owner: owner.clone(), ..balancing::pool(members) };
    let listener = |port: &u16| Listener {
        name: format!("{owner}:{port}").into(),
        owner: owner.clone(),
        rules: vec![Rule::forward_all(owner.clone(), pool.id.clone()).into()],
        ..balancing::listener(*port)
    };
    let listeners = ports.iter().map(listener).map(|it| (it.id(), Arc::new(it)));
    LoadBalancer {
        binds: vec![Bind::Host(ip)],
        listeners: listeners.collect(),
        pools: [(pool.id.clone(), Arc::new(pool.clone()))].into(),
        ..LoadBalancer::default()
    }
}

fn desired(it: LoadBalancer) -> Desired {
    Desired::LoadBalancer(Arc::new(it))
}

/// The line that a new connection gets; nothing, if nobody listens.
fn ask(at: SocketAddr) -> Option<String> {
    let stream = TcpStream::connect_timeout(&at, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).ok()?;
    Some(line.trim_end().to_owned())
}

async fn settle(host: &HaproxyHost, owner: &Owner, wanted: &Desired) -> Result<(), Failure> {
    let unit = unit(owner);
    let mut observed = host.observe(&Context::default(), &unit, wanted).await?;
    for step in host.steps(wanted, &observed) {
        host.apply(&Context::default(), &unit, &step, &mut observed).await?;
    }
    Ok(())
}

fn ip(test: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, test, (std::process::id() >> 8) as u8, std::process::id() as u8)
}

#[tokio::test(flavor = "multi_thread")]
async fn haproxy_passes_the_suite_of_all_drivers() {
    let Some(folder) = place() else { return };
    let host = host(folder.path());
    let (ip, [a, b, c]) = (IpAddr::V4(ip(70)), PORTS);
    let (one, two) = (member("one\n"), member("two\n"));
    let owner = owner();
    let wanted = [
        load_balancer(&owner, ip, &[a], &[one]),
        load_balancer(&owner, ip, &[a, b], &[one, two]),
        load_balancer(&owner, ip, &[c], &[two]),
        load_balancer(&owner, ip, &[a, b, c], &[]),
    ]
    .map(desired);
    passes(&host, &unit(&owner), &wanted).await;
    assert_eq!(ask((ip, a).into()), None, "nothing is left");
    host.stop(PATIENCE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_serves_what_it_says_and_swaps_members_without_a_reload() {
    let Some(folder) = place() else { return };
    let host = host(folder.path());
    let (ip, [a, ..]) = (IpAddr::V4(ip(71)), PORTS);
    let (one, two) = (member("one\n"), member("two\n"));
    let owner = owner();
    let wanted = load_balancer(&owner, ip, &[a], &[one]);
    settle(&host, &owner, &desired(wanted.clone())).await.expect("it is served");
    let unit = unit(&owner);
    let observed = host.observe(&Context::default(), &unit, &Desired::Absent).await.expect("it is known");
    let told = host.conclude(&unit, &desired(wanted.clone()), &observed);
    assert_eq!(told.serving, [ServingSocket { ip, protocol: seaway_model::L4::Tcp, port: a }]);
    assert_eq!(told.problems, []);
    assert_eq!(ask((ip, a).into()).as_deref(), Some("one"));

    let before = host.reloads();
    let pool = wanted.pools.values().next().expect("one pool");
    let swapped = Pool { members: balancing::pool(&[two]).members, ..(**pool).clone() };
    assert!(
        host.patch(&Context::default(), &unit, &Patch::Members(Arc::new(swapped))).await.expect("it is done")
    );
    assert_eq!(ask((ip, a).into()).as_deref(), Some("two"));
    assert_eq!(host.reloads(), before, "members change without a reload");

    let gone = Pool { id: seaway_model::PoolId("gone".into()), ..(**pool).clone() };
    assert!(
        !host
            .patch(&Context::default(), &unit, &Patch::Members(Arc::new(gone)))
            .await
            .expect("it is no error"),
        "such a pool it does not have"
    );
    host.stop(PATIENCE).await;
    assert_eq!(ask((ip, a).into()), None, "it is stopped");
}

/// Another process has the port of one of many: that one is refused, and all others are served, old and new.
#[tokio::test(flavor = "multi_thread")]
async fn a_part_that_haproxy_refuses_keeps_no_other_from_being_served() {
    let Some(folder) = place() else { return };
    let host = Arc::new(host(folder.path()));
    let ip = ip(72);
    let line = member("here\n");
    let taken = TcpListener::bind((ip, 20_205)).expect("a port of its own");
    let owners: Vec<Owner> = (0..8).map(|number| other(&format!("shop-{number}"))).collect();
    let wanted = |number: usize| {
        desired(load_balancer(&owners[number], ip.into(), &[20_200 + number as u16], &[line]))
    };
    settle(&host, &owners[0], &wanted(0)).await.expect("the first is served");

    let mut all = tokio::task::JoinSet::new();
    for (number, owner) in owners.iter().enumerate().skip(1) {
        let (host, owner, wanted) = (host.clone(), owner.clone(), wanted(number));
        all.spawn(async move { (number, settle(&host, &owner, &wanted).await) });
    }
    while let Some(done) = all.join_next().await {
        let (number, done) = done.expect("no panic");
        match (number, done) {
            (5, Err(Failure::Retry { problems, .. })) => {
                assert_eq!(problems.len(), 1);
                assert_eq!((&problems[0].0, problems[0].1.reason), (&owners[5], Reason::Failed));
                let why = problems[0].1.to_string();
                assert!(why.contains("Address already in use") && why.contains(":20205"), "{why}");
            }
            (5, other) => panic!("the port is another's: {other:?}"),
            (number, done) => done.unwrap_or_else(|error| panic!("{number}: {error}")),
        }
    }
    for number in (0..owners.len()).filter(|it| *it != 5) {
        assert_eq!(ask((ip, 20_200 + number as u16).into()).as_deref(), Some("here"), "{number}");
    }

    drop(taken);
    settle(&host, &owners[5], &wanted(5)).await.expect("now it can have the port");
    assert_eq!(ask((ip, 20_205).into()).as_deref(), Some("here"));
    host.stop(PATIENCE).await;
}

/// HAProxy would refuse the whole file because of it: it is left out, and told.
#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_cannot_be_used_is_told_and_harms_no_other() {
    let Some(folder) = place() else { return };
    let host = host(folder.path());
    let (ip, [a, b, _]) = (IpAddr::V4(ip(73)), PORTS);
    let line = member("here\n");
    let (owner, secured) = (owner(), other("secured"));
    let object = ObjectRef::new(Kind::Secret, "default", "shown");
    let broken = Certificate {
        chain: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".into(),
        key: "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n".to_owned().into(),
        authorities: "".into(),
        staple: None,
        users: String::new().into(),
    };
    let mut with_tls = load_balancer(&secured, ip, &[b], &[line]);
    for listener in with_tls.listeners.values_mut() {
        let listener = Arc::make_mut(listener);
        listener.protocol = Protocol::Http;
        listener.tls = Some(Arc::new(TlsByName { default: vec![object.clone()], ..TlsByName::default() }));
    }
    with_tls.certificates = Arc::new([(object, Arc::new(broken))].into());
    settle(&host, &owner, &desired(load_balancer(&owner, ip, &[a], &[line]))).await.expect("it is served");
    settle(&host, &secured, &desired(with_tls.clone())).await.expect("the rest of it is written");

    let unit = unit(&secured);
    let observed = host.observe(&Context::default(), &unit, &Desired::Absent).await.expect("it is known");
    let told = host.conclude(&unit, &desired(with_tls), &observed);
    let reasons: Vec<Reason> = told.problems.iter().map(|it| it.1.reason).collect();
    assert!(reasons.contains(&Reason::BadCertificate), "{:?}", told.problems);
    assert_eq!(ask((ip, a).into()).as_deref(), Some("here"), "the other is served");
    host.stop(PATIENCE).await;
}

/// As one of a certificate: HAProxy would refuse the whole file, and the Unit of the front door would be told nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn authorities_that_cannot_be_read_close_what_believes_them_and_harm_no_other() {
    let Some(folder) = place() else { return };
    let host = host(folder.path());
    let (ip, [a, b, c]) = (IpAddr::V4(ip(74)), PORTS);
    let line = member("here\n");
    let owner = owner();
    let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let mut wanted = load_balancer(&owner, ip, &[a, b, c], &[line]);
    let pool = wanted.pools.values().next().expect("one pool").clone();
    let trust = Trust::CaBundle(broken.into());
    let tls = Some(Arc::new(BackendTls { name: None, usual: "shop.default".into(), trust }));
    let believing = Pool { id: PoolId("believing".into()), tls, ..(*pool).clone() };
    let at_b = Arc::make_mut(wanted.listeners.values_mut().nth(1).expect("three"));
    at_b.rules = vec![Rule::forward_all(owner.clone(), believing.id.clone()).into()];
    wanted.pools.insert(believing.id.clone(), Arc::new(believing));

    let object = ObjectRef::new(Kind::Secret, "default", "clients");
    let made = rcgen::generate_simple_self_signed(["shop.example".to_owned()]).expect("a certificate");
    let shown = ObjectRef::new(Kind::Secret, "default", "shown");
    let held = |authorities: &str, chain: String, key: String| {
        let users = String::new().into();
        let (chain, authorities, key) = (chain.into(), authorities.into(), key.into());
        Arc::new(Certificate { chain, key, authorities, staple: None, users })
    };
    let at_c = Arc::make_mut(wanted.listeners.values_mut().nth(2).expect("three"));
    at_c.protocol = Protocol::Http;
    let clients = Some(ClientAuth { authorities: object.clone(), required: true });
    at_c.tls = Some(Arc::new(TlsByName { default: vec![shown.clone()], clients, ..TlsByName::default() }));
    wanted.certificates = Arc::new(
        [
            (object, held(broken, String::new(), String::new())),
            (shown, held("", made.cert.pem(), made.signing_key.serialize_pem())),
        ]
        .into(),
    );
    settle(&host, &owner, &desired(wanted.clone())).await.expect("the rest of it is written");

    let unit = unit(&owner);
    let observed = host.observe(&Context::default(), &unit, &Desired::Absent).await.expect("it is known");
    let told = host.conclude(&unit, &desired(wanted), &observed);
    let reasons: Vec<Reason> = told.problems.iter().map(|it| it.1.reason).collect();
    assert_eq!(reasons, [Reason::BadCertificate, Reason::NoSuchSecret], "{:?}", told.problems);
    assert_eq!(ask((ip, a).into()).as_deref(), Some("here"), "the other port is served");
    assert_eq!(ask((ip, b).into()).as_deref(), Some(""), "its members get nothing");
    assert_eq!(ask((ip, c).into()), None, "without authorities no client can be verified");
    host.stop(PATIENCE).await;
}
