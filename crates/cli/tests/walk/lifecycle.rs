//! Start, reload, stop, take-over.

use std::{
    io::Read,
    net::TcpStream,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use seaway_testkit::traffic::{Clients, Kind, Target};

use crate::{
    backends::{Backend, Datagrams, Talk, manifest, slices},
    harness::{Setup, seaway, until},
};

/// One after the other takes over.
const SUCCESSORS: usize = 3;

#[test]
fn a_clean_stop_lets_connections_finish_and_refuses_new_ones() {
    let backend = Backend::start("a");
    let mut seaway = Setup::new().write("shop.yaml", &manifest("shop", 8080, &[], &[backend.at])).start();
    let mut talk = Talk::open(seaway.at(8080)).expect("served");
    seaway.signal(Signal::SIGTERM);
    until("new connections are refused", || TcpStream::connect(seaway.at(8080)).is_err());
    talk.echo(b"still here").expect("what was open goes on");
    assert!(matches!(seaway.child.try_wait(), Ok(None)), "it drains");
    drop(talk);
    assert!(seaway.wait().success());
}

#[test]
fn the_drain_has_a_deadline_and_a_second_signal_does_not_wait_for_it() {
    let backend = Backend::start("a");
    let manifests = manifest("shop", 8080, &[], &[backend.at]);
    let mut patient = Setup::new().config("drain: 200ms\n").write("shop.yaml", &manifests).start();
    let mut open = Talk::open(patient.at(8080)).expect("served");
    let asked = Instant::now();
    patient.signal(Signal::SIGTERM);
    assert!(patient.wait().success());
    assert!(asked.elapsed() >= Duration::from_millis(200), "{:?}", asked.elapsed());
    let log = patient.log();
    assert!(log.contains("the drain deadline closed connections") && log.contains("cut=1"), "{log}");
    assert!(open.echo(b"too late").is_err());

    let mut hurried = Setup::new().config("drain: 1h\n").write("shop.yaml", &manifests).start();
    let mut open = Talk::open(hurried.at(8080)).expect("served");
    hurried.signal(Signal::SIGTERM);
    until("it stops accepting", || TcpStream::connect(hurried.at(8080)).is_err());
    open.echo(b"still here").expect("an hour is not over");
    assert!(matches!(hurried.child.try_wait(), Ok(None)), "it drains");
    hurried.signal(Signal::SIGTERM);
    assert_eq!(hurried.wait().code(), Some(1), "connections were open");
    assert!(hurried.log().contains("stopped without draining"), "{}", hurried.log());
}

#[test]
fn a_state_folder_has_one_process() {
    let first = Setup::new().start();
    let output = seaway()
        .args(["run", "--manifests"])
        .arg(first.folder.manifests())
        .arg("--state-dir")
        .arg(first.folder.state())
        .arg("--config")
        .arg(first.folder.0.path().join("seaway.yaml"))
        .output()
        .expect("it starts");
    assert!(!output.status.success());
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains(&first.child.id().to_string()), "{told}");
}

#[test]
fn a_hang_up_reads_the_configuration_again_and_a_wrong_one_changes_nothing() {
    let backend = Backend::start("db");
    let text = manifest("db", 5432, &[], &[backend.at]).replace("type: LoadBalancer", "type: ClusterIP");
    let seaway = Setup::new().write("db.yaml", &text).start();
    assert!(TcpStream::connect(seaway.at(5432)).is_err());
    let head = std::fs::read_to_string(seaway.folder.0.path().join("seaway.yaml")).expect("it was written");
    seaway.folder.config(&format!("{head}tcpServices: [db:5432]\n"));
    seaway.signal(Signal::SIGHUP);
    until("it is served", || Talk::open(seaway.at(5432)).is_ok());
    seaway.folder.config(&format!("{head}tcpService: []\n"));
    seaway.signal(Signal::SIGHUP);
    until("the mistake is told", || seaway.log().contains("did you mean \"tcpServices\"?"));
    let log = seaway.log();
    let told = log.lines().find(|it| it.contains("cannot be used")).expect("it is told");
    assert!(!told.contains("\\n"), "{told}");
    assert!(Talk::open(seaway.at(5432)).is_ok(), "what was right goes on");
}

#[test]
fn a_successor_takes_over_without_a_refused_connection_or_a_lost_flow() {
    let (tcp, udp) = (Backend::start("a"), Datagrams::start("u"));
    let dns = "---\napiVersion: v1\nkind: Service\nmetadata: {name: dns}\nspec:\n  type: LoadBalancer\n  ports:\n  - {name: main, port: 5353, protocol: UDP}\n";
    let text = manifest("shop", 8080, &[], &[tcp.at]) + dns + &slices("dns", "UDP", &[udp.at]);
    let setup = Setup::new().write("all.yaml", &text);
    let (folder, ip) = (setup.folder.clone(), setup.ip);
    let mut old = setup.start();
    let at = old.at(8080);
    let dns = old.at(5353);
    let mut long = Talk::open(at).expect("served");
    let clients = Clients::here();
    // A request is due at its time, and so many are before, during and after each turn.
    let load = clients.load(vec![
        Target::new("new connections", Kind::Tcp, at).times(500),
        Target::new("a flow", Kind::Udp, dns).times(100).keep_alive(),
        Target::new("new flows", Kind::Udp, dns).times(100),
    ]);
    load.goes_on(50);
    let mut processes = 0;
    let last = loop {
        let new = Setup::again(folder.clone(), ip).argument("--take-over").start();
        long.echo(b"the old one drains").expect("old connections go on");
        drop(long);
        assert!(old.wait().success(), "the old one drained and went");
        load.goes_on(50);
        processes += 1;
        if processes == SUCCESSORS {
            break new;
        }
        long = Talk::open(at).expect("served");
        old = new;
    };
    load.end().was_always_answered();
    assert!(last.stop().success());
}

#[test]
fn ready_comes_after_the_first_plan_is_served() {
    let backend = Backend::start("a");
    let seaway = Setup::new().write("shop.yaml", &manifest("shop", 8080, &[], &[backend.at])).start();
    // `start` waited for /ready; from then on nobody is refused.
    let mut stream = TcpStream::connect(seaway.at(8080)).expect("it is served");
    let mut byte = [0];
    stream.read_exact(&mut byte).expect("somebody answers");
    assert_eq!(seaway.get("/live").expect("it lives").0, 200);
}
