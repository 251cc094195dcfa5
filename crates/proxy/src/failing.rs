//! Each part of the data plane is made to fail.

use std::{
    net::{IpAddr, Ipv4Addr, TcpListener},
    process::Command as Program,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, channel},
    },
    time::{Duration, Instant},
};

use seaway_model::{
    LbKey,
    load_balancer::{CheckKind, HealthCheck},
};
use seaway_testkit::balancing;
use seaway_watchdog::{PartFailure, Watchdog, WatchdogTimings};

use crate::{Health, Proxy, Settings, worker::WorkerCommand};

const PATIENCE: Duration = Duration::from_secs(120);
const KEY: LbKey = LbKey::Whole;

fn proxy() -> Proxy {
    Proxy::start(Settings { workers: 2, pin: false }).unwrap()
}

/// Looks often; how long anything takes is not asserted.
fn watchdog() -> (Watchdog, Receiver<PartFailure>) {
    watchdog_that_waits(Duration::from_millis(400))
}

fn watchdog_that_waits(limit: Duration) -> (Watchdog, Receiver<PartFailure>) {
    let (tell, told) = channel();
    let pace = WatchdogTimings { look: Duration::from_millis(20), limit };
    (Watchdog::start(pace, move |fault| drop(tell.send(fault.clone()))).unwrap(), told)
}

fn fault(part: &str, hangs: bool) -> PartFailure {
    PartFailure { part: part.into(), hangs }
}

fn until(what: &str, mut met: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !met() {
        assert!(Instant::now() < deadline, "in vain: {what}");
        std::thread::yield_now();
    }
}

/// Has a worker do this in its next turn.
fn order(proxy: &Proxy, worker: usize, order: impl Fn() + Send + Sync + 'static) {
    proxy.shared().workers[worker].post([WorkerCommand::Do(Arc::new(order))]);
}

#[test]
fn a_worker_that_hangs_is_found_while_the_others_serve_on() {
    let proxy = proxy();
    let (watchdog, told) = watchdog();
    let _watching = watchdog.watch(proxy.parts());
    let (release, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    order(&proxy, 0, move || _ = wait.lock().unwrap().recv());
    assert_eq!(told.recv_timeout(PATIENCE), Ok(fault("worker 0 of the data plane", true)));
    let (tell, done) = channel();
    order(&proxy, 1, move || _ = tell.send(()));
    done.recv_timeout(PATIENCE).expect("the other worker has its turns");
    drop(release);
}

#[test]
fn a_worker_that_dies_ends_the_process() {
    let program = std::env::current_exe().unwrap();
    let arguments = ["--ignored", "--exact", "failing::dies_with_its_worker"];
    let output = Program::new(program).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    // It was that test that ran, and it did not come to its end.
    assert!(said.contains("running 1 test") && !output.status.success(), "{output:?}");
    assert_eq!(output.status.code(), None, "by a signal: {output:?}");
}

#[test]
#[ignore = "run by another test, as it ends its process"]
fn dies_with_its_worker() {
    let proxy = proxy();
    order(&proxy, 1, || panic!("a test has this worker die"));
    std::thread::park_timeout(PATIENCE);
}

#[test]
fn a_prober_that_hangs_is_found() {
    let proxy = proxy();
    let (watchdog, told) = watchdog();
    let _watching = watchdog.watch(proxy.parts());
    let (release, wait) = channel::<()>();
    proxy.make_prober(move || _ = wait.recv());
    assert_eq!(told.recv_timeout(PATIENCE), Ok(fault("the prober", true)));
    drop(release);
}

#[test]
fn a_prober_that_dies_begins_again_with_all_pools() {
    let proxy = proxy();
    // What a panic prints may take a while.
    let (watchdog, told) = watchdog_that_waits(PATIENCE);
    let _watching = watchdog.watch(proxy.parts());
    // Its port stays its own when it does not listen any more.
    let member = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    member.bind(&std::net::SocketAddr::from((IpAddr::V4(Ipv4Addr::LOCALHOST), 0)).into()).unwrap();
    member.listen(64).unwrap();
    let listener = TcpListener::from(member);
    let at = listener.local_addr().unwrap();
    let mut pool = balancing::pool(&[at]);
    pool.health = Some(HealthCheck {
        kind: CheckKind::Tcp,
        port: None,
        interval: Duration::from_millis(20),
        timeout: Duration::from_secs(10),
        rise: 1,
        fall: 1,
        while_used: false,
    });
    proxy.put_pool(&KEY, Arc::new(pool));
    let health = |wanted: Health| {
        let statistics = proxy.statistics();
        statistics.pools.iter().flat_map(|it| &it.members).any(|it| it.at == at && it.health == wanted)
    };
    until("it is found to be up", || health(Health::Up));
    for _ in 0..2 {
        proxy.make_prober(|| panic!("a test has the prober die"));
    }
    socket2::SockRef::from(&listener).shutdown(std::net::Shutdown::Both).unwrap();
    until("the next prober finds out", || health(Health::Down));
    assert_eq!((watchdog.failure(), told.try_recv().ok()), (None, None));
}

#[test]
fn a_prober_that_dies_again_and_again_has_ended() {
    let proxy = proxy();
    // What a panic prints may take a while.
    let (watchdog, told) = watchdog_that_waits(PATIENCE);
    let _watching = watchdog.watch(proxy.parts());
    let fault_of = loop {
        proxy.make_prober(|| panic!("a test has the prober die"));
        if let Ok(fault) = told.recv_timeout(Duration::from_millis(10)) {
            break fault;
        }
    };
    assert_eq!(fault_of, fault("the prober", false));
}
