//! One process of a host after another, and clients that notice nothing.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use seaway_testkit::{
    topology::{PATIENCE, until},
    traffic::{Clients, Kind, Load, Target},
};

use crate::{
    draining::{ECHO, connect},
    layer2,
    rolling::{DATAGRAMS, datagrams},
    scene::{Scene, deployment, service},
};

/// Each on a new connection.
const RATE: u32 = 1_000;
pub(crate) const IDLE: usize = 500;

/// A web server and one that answers datagrams, asked all the time.
pub(crate) fn load(scene: &Scene, rate: u32) -> (Clients, Load) {
    scene.cluster.apply(&deployment("shop", 2));
    scene.cluster.apply(&service("shop", "selector: {app: shop}"));
    scene.cluster.apply(&datagrams("dns"));
    let (shop, mut dns) = (scene.answering("shop"), scene.answering("shop"));
    dns.set_ip(scene.address("dns").parse().expect("an address"));
    scene.cluster.kubectl(&["rollout", "status", "deployment/dns", "--timeout", "300s"]);
    let clients = scene.outside.run(Clients::here);
    let load = clients.load(vec![
        Target::new("HTTP", Kind::Http, shop).times(rate),
        Target::new("datagrams", Kind::Udp, dns).times(DATAGRAMS),
    ]);
    load.goes_on(200);
    (clients, load)
}

fn holder(scene: &Scene) -> String {
    scene.field("lease/seaway-host-a", "{.spec.holderIdentity}")
}

fn applied(scene: &Scene) -> u64 {
    scene.field("lbhost/a", "{.status.applied}").parse().unwrap_or_default()
}

/// It ends what waits for it also when a test fails.
struct HandoverGuard<'a>(&'a AtomicBool);

impl Drop for HandoverGuard<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// What others read of the host meanwhile never goes backwards.
fn while_applied_is_read(scene: &mut Scene, work: impl FnOnce(&mut Scene)) {
    let (cluster, over) = (scene.cluster.clone(), AtomicBool::new(false));
    thread::scope(|scope| {
        let reads = scope.spawn(|| {
            let mut last = 0;
            while !over.load(Ordering::SeqCst) {
                let read = cluster.field("lbhost/a", "{.status.applied}");
                // The API server may be busy.
                let now: u64 = read.ok().and_then(|it| it.parse().ok()).unwrap_or(last);
                assert!(now >= last, "it had applied {last}, and says {now}");
                last = now;
            }
        });
        let ends = HandoverGuard(&over);
        work(scene);
        drop(ends);
        reads.join().expect("never backwards");
    });
}

/// Whether somebody asks at the host's folder who is not answered yet.
fn is_asked(scene: &Scene) -> bool {
    let sockets = || fs::read_to_string("/proc/thread-self/net/unix").expect("it is told");
    let sockets = scene.nodes[0].namespace().run(sockets);
    // One is where they ask.
    sockets.lines().filter(|it| it.ends_with("handover.sock")).count() > 1
}

pub(crate) fn is_on_lo(scene: &Scene, at: &SocketAddr) -> bool {
    scene.nodes[0].namespace().ip(&["address", "show", "lo"]).contains(&at.ip().to_string())
}

/// What comes later is served by whoever plans now.
fn is_planned(scene: &Scene, name: &str) {
    scene.cluster.apply(&service(name, "selector: {app: shop}"));
    let later = scene.address(name);
    until("what came later is served", || scene.outside.curl(&format!("http://{later}/")).is_ok());
}

pub(crate) fn talk(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"hello\n")?;
    stream.read_exact(&mut [0; 1])
}

#[test]
fn the_next_process_of_a_host_takes_over_and_no_client_notices_before_the_first_one_is_asked_to_end() {
    let Some(mut scene) = Scene::handed_over(1) else { return };
    scene.cluster.apply(ECHO);
    let echo = SocketAddr::new(scene.address("echo").parse().expect("an address"), 80);
    until("it answers", || connect(&scene, echo).is_ok());
    let (_clients, load) = load(&scene, RATE);
    let mut idle: Vec<TcpStream> =
        (0..IDLE).map(|_| connect(&scene, echo).expect("it answers still")).collect();
    until("it says what it has applied", || applied(&scene) > 0);
    let (first, before) = (holder(&scene), applied(&scene));

    while_applied_is_read(&mut scene, |scene| {
        scene.serve_too(0, "a#2");
        until("the next one serves", || scene.log("a#2").contains("ready after="));
        until("the first one is through", || scene.log("a").contains("retired"));
        load.goes_on(300);
        until("the next one speaks for the host", || !holder(scene).is_empty() && holder(scene) != first);
        let log = scene.log("a#2");
        assert!(!log.contains("address added to lo"), "it finds the addresses: {log}");
        is_planned(scene, "later");
    });
    assert!(applied(&scene) >= before, "never backwards");
    for (at, stream) in idle.iter_mut().enumerate() {
        talk(stream).unwrap_or_else(|error| panic!("connection {at} of {IDLE}: {error}"));
    }
    drop(idle);

    // It has nothing left to take away.
    scene.terminate("a");
    let (is_well, log) = scene.ended("a");
    assert!(is_well && !log.contains("address removed from lo"), "{log}");
    load.goes_on(200);

    // Pods are often replaced only once they were asked to end.
    scene.terminate("a#2");
    until("it waits", || scene.log("a#2").contains("can still take over"));
    scene.serve_too(0, "a#3");
    until("the third one serves", || scene.log("a#3").contains("ready after="));
    let (is_well, log) = scene.ended("a#2");
    assert!(is_well && !log.contains("address removed from lo"), "{log}");
    assert!(!log.contains("uses this host's name"), "the next one is no rival: {log}");
    is_planned(&scene, "last");
    load.goes_on(200);
    let heard = load.end();
    eprintln!("{heard}");
    heard.was_always_answered();

    // Nobody follows: what is ours goes.
    scene.terminate("a#3");
    let (is_well, log) = scene.ended("a#3");
    assert!(is_well && !is_on_lo(&scene, &echo), "{log}");
    assert_eq!(holder(&scene), "", "it gives its Lease back");
}

#[test]
fn a_process_that_knows_less_or_dies_on_the_way_leaves_the_host_to_the_one_that_serves() {
    let Some(mut scene) = Scene::handed_over(1) else { return };
    let (_clients, load) = load(&scene, RATE / 4);
    let at = scene.answering("shop");
    // By a snapshot alone none takes over: the one that serves has heard more.
    scene.cluster.kill_api();
    scene.serve_too(0, "a#2");
    until("it waits", || scene.log("a#2").contains("another process of this host serves"));
    until("it cannot read anything", || scene.log("a#2").contains("cannot be reached"));
    load.goes_on(200);
    let ready = scene.nodes[0].namespace().curl(&format!("{}ready", scene.page("a#2")));
    assert!(ready.as_ref().is_err_and(|it| it.contains("503")), "it is not ready: {ready:?}");
    assert!(!scene.log("a").contains("a new process has connected"), "it asks for nothing");
    scene.terminate("a#2");
    let (is_well, log) = scene.ended("a#2");
    let changes = ["added to lo", "removed from lo", "listener opened"];
    assert!(is_well && !changes.iter().any(|it| log.contains(it)), "it has changed nothing: {log}");
    assert!(is_on_lo(&scene, &at));

    // The one that serves is stopped for a moment: the next one has asked, and is killed before it is answered.
    scene.cluster.start_api();
    is_planned(&scene, "later");
    scene.pause("a");
    scene.serve_too(0, "a#3");
    until("it has read all, and asks", || is_asked(&scene));
    scene.kill("a#3");
    scene.resume("a");
    is_planned(&scene, "last");
    load.goes_on(200);
    let heard = load.end();
    eprintln!("{heard}");
    heard.was_always_answered();
}

#[test]
fn whichever_process_dies_the_other_one_serves_and_an_older_pod_that_starts_again_takes_nothing() {
    let Some(mut scene) = Scene::handed_over(1) else { return };
    let (_clients, load) = load(&scene, RATE / 4);
    let at = scene.answering("shop");
    scene.serve_too(0, "a#2");
    until("the next one serves", || scene.log("a#2").contains("ready after="));
    until("the first one is through", || scene.log("a").contains("retired"));
    load.goes_on(200);
    load.end().was_always_answered();

    // Its container crashes and is started again.
    scene.kill("a");
    scene.serve(0);
    until("it is refused", || scene.log("a").contains("of an older pod"));
    is_planned(&scene, "later");
    assert!(!scene.log("a").contains("ready after="), "{}", scene.log("a"));

    // The newer one is gone for good.
    scene.kill("a#2");
    until("it serves after all", || scene.log("a").contains("ready after="));
    until("clients are served", || scene.outside.curl(&format!("http://{at}/")).is_ok());
    is_planned(&scene, "last");
    // Of the pod that was gone, should it come back, it takes no notice but that it is newer.
    scene.serve_too(0, "a#2");
    until("the newer one serves again", || scene.log("a#2").contains("ready after="));
    until("the older one is through", || scene.log("a").contains("retired"));
    is_planned(&scene, "after");
}

/// A move would show in what the other host counts, and end the connection.
#[test]
fn what_a_host_announces_stays_at_the_host_when_its_next_process_takes_over() {
    let Some(mut scene) = layer2::two_hosts(true) else { return };
    let owner = layer2::announcer(&scene);
    let (at, other) = if owner == "a" { (0, "b") } else { (1, "a") };
    let moves = |scene: &Scene| {
        let metrics = scene.nodes[1 - at].namespace().curl(&format!("{}metrics", scene.page(other)));
        let metrics = metrics.expect("it tells");
        let line = metrics.lines().find(|it| it.starts_with("seaway_layer2_moves_total")).map(str::to_owned);
        line.expect("it counts")
    };
    let before = moves(&scene);
    let mut open = layer2::connect(&scene).expect("it answers");
    let next = format!("{owner}#2");
    scene.serve_too(at, &next);
    until("the next one serves", || scene.log(&next).contains("ready after="));
    until("the first one is through", || scene.log(&owner).contains("retired"));
    until("the next one announces it", || scene.log(&next).contains("this host now announces the address"));
    until("a client is served", || layer2::connect(&scene).is_ok());
    assert_eq!(moves(&scene), before, "no other host has announced it meanwhile");
    open.set_read_timeout(Some(PATIENCE)).expect("it is open");
    open.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("it is open");
    open.read_exact(&mut [0; 1]).expect("it is answered");
}
