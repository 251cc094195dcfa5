//! Hosts of a cluster that serve by HAProxy.

use std::{
    collections::BTreeSet,
    fs,
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr},
    os::unix::{fs::symlink, net::UnixStream},
    path::Path,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use seaway_testkit::topology::until;

use crate::{
    draining::{ECHO, connect, drain, talk},
    rolling::datagrams,
    scene::{Scene, deployment, service},
};

const PROGRAM: &str = "/usr/sbin/haproxy";
/// The program is a link, so that it can be away.
const HAPROXY: &str = "{defaultDriver: native, admin: {listen: [\"127.0.0.1:0\"]}, dataPlane: {driver: haproxy, \
     haproxy: {program: $FOLDER/haproxy, folder: $FOLDER/of-$HOST}}}";

/// With one node, by this configuration; nothing, and the test is skipped, where HAProxy is not installed.
fn scene(configuration: Option<&'static str>) -> Option<Scene> {
    if !Path::new(PROGRAM).exists() {
        seaway_testkit::skip(None, "HAProxy is not installed: sudo apt-get install haproxy");
        return None;
    }
    let mut scene = Scene::bare()?;
    scene.configuration = configuration.unwrap_or(scene.configuration);
    symlink(PROGRAM, scene.path("haproxy")).expect("a link");
    Scene::of(scene, 1)
}

fn ask(scene: &Scene, host: &str, socket: &str, question: &str) -> Option<String> {
    let mut stream = UnixStream::connect(scene.path(&format!("of-{host}/{socket}.sock"))).ok()?;
    stream.write_all(format!("{question}\n").as_bytes()).ok()?;
    stream.shutdown(Shutdown::Write).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

/// Another one serves after each reload.
fn worker(scene: &Scene, host: &str) -> Option<String> {
    let told = ask(scene, host, "worker", "show info")?;
    told.lines().find_map(|it| it.strip_prefix("Pid: ")).map(str::to_owned)
}

/// It ends with its workers.
fn kill_haproxy(scene: &Scene, host: &str) {
    let told = ask(scene, host, "master", "show proc").expect("HAProxy runs");
    let of = |kind: &str| told.lines().find(|it| it.contains(kind) && !it.starts_with('#'));
    for kind in ["master", "worker"] {
        let id = of(kind).and_then(|it| it.split_whitespace().next()).and_then(|it| it.parse().ok());
        // The worker may have ended with its master.
        let _ = kill(Pid::from_raw(id.expect("a process")), Signal::SIGKILL);
    }
}

/// The pods that answer there now.
fn pods(scene: &Scene, at: SocketAddr) -> BTreeSet<String> {
    let all = (0..12).filter_map(|_| scene.outside.curl(&format!("http://{at}/")).ok());
    all.filter_map(|it| it.split_whitespace().next().map(str::to_owned)).collect()
}

fn scale(scene: &Scene, count: usize) {
    scene.cluster.kubectl(&["scale", "deployment/shop", &format!("--replicas={count}")]);
}

fn not_served(scene: &Scene) -> String {
    scene.field("lbhost/a", "{.status.notServed[*].message}")
}

#[test]
fn a_host_serves_by_haproxy_through_changes_of_endpoints_and_tells_when_it_is_dead() {
    let Some(scene) = scene(Some(HAPROXY)) else { return };
    scene.cluster.apply(&deployment("shop", 2));
    scene.cluster.apply(&service("shop", "selector: {app: shop}"));
    let at = scene.answering("shop");
    let first = worker(&scene, "a").expect("HAProxy serves it");
    let file = fs::read_to_string(scene.path("of-a/haproxy.cfg")).expect("its file");
    assert!(file.contains(&format!("bind {at} transparent")), "{file}");

    // Endpoints come and go without a reload.
    for count in [3, 1, 2] {
        scale(&scene, count);
        until("so many pods answer", || pods(&scene, at).len() == count);
    }
    assert_eq!(worker(&scene, "a").as_ref(), Some(&first), "no reload");

    // What it cannot serve is told by the host, and harms no other.
    scene.cluster.apply(&datagrams("dns"));
    until("the host tells of it", || not_served(&scene).contains("HAProxy does not serve UDP"));
    scene.cluster.apply(
        "apiVersion: v1\nkind: Service\nmetadata: {name: ssh}\nspec: {type: LoadBalancer, ports: [{port: 22, targetPort: 80}], selector: {app: shop}}\n",
    );
    until("and of a port of the machine", || not_served(&scene).contains("reserved for the machine"));
    assert_eq!(pods(&scene, at).len(), 2);

    // Killed, it is started again at once, and its addresses stay.
    let last = worker(&scene, "a").expect("it serves");
    kill_haproxy(&scene, "a");
    until("another one serves", || worker(&scene, "a").is_some_and(|it| it != last));
    until("all is served", || pods(&scene, at).len() == 2);

    // Where it cannot be started, the host says so, and serves again once it can.
    fs::remove_file(scene.path("haproxy")).expect("the link");
    let served = || !scene.field("lbhost/a", "{.status.notServed[*].address}").contains(&at.ip().to_string());
    assert!(served(), "{}", not_served(&scene));
    kill_haproxy(&scene, "a");
    until("the host tells that nothing is served", || !served());
    symlink(PROGRAM, scene.path("haproxy")).expect("a link");
    until("it serves again", || pods(&scene, at).len() == 2);
    until("and says so", served);
}

#[test]
fn a_host_that_drains_leaves_open_connections_to_haproxy() {
    let Some(scene) = scene(Some(HAPROXY)) else { return };
    scene.cluster.apply(ECHO);
    let at = SocketAddr::new(scene.address("echo").parse().expect("an address"), 80);
    until("it answers", || connect(&scene, at).is_ok());
    let mut open = connect(&scene, at).expect("it answers still");
    drain(&scene, true);
    until("no new connection is taken", || {
        connect(&scene, at).is_err_and(|it| it.kind() == std::io::ErrorKind::ConnectionRefused)
    });
    talk(&mut open).expect("the open connection lives");
    drain(&scene, false);
    until("new ones are taken again", || connect(&scene, at).is_ok());
    talk(&mut open).expect("the open connection lives");
}

#[test]
fn a_service_keeps_its_address_from_the_native_data_plane_to_haproxy_and_back() {
    let Some(mut scene) = scene(None) else { return };
    let native = scene.configuration;
    scene.cluster.apply(&deployment("shop", 2));
    scene.cluster.apply(&service("shop", "selector: {app: shop}"));
    let at = scene.answering("shop");
    assert_eq!(worker(&scene, "a"), None);
    for (configuration, is_haproxy) in [(HAPROXY, true), (native, false)] {
        scene.terminate("a");
        let (well, log) = scene.ended("a");
        assert!(well, "{log}");
        assert!(scene.outside.curl(&format!("http://{at}/")).is_err(), "nothing is left of the one before");
        scene.configuration = configuration;
        scene.serve(0);
        until("it serves", || pods(&scene, at).len() == 2);
        assert_eq!(scene.answering("shop"), at, "the address is the same");
        assert_eq!(worker(&scene, "a").is_some(), is_haproxy);
        until("all is served", || not_served(&scene).is_empty());
    }

    // Sockets of HAProxy cannot be passed on, and that is said before anything is touched.
    scene.configuration = HAPROXY;
    scene.is_handed_over = true;
    scene.serve_too(0, "a#2");
    let (well, log) = scene.ended("a#2");
    assert!(!well && log.contains("leave out --handover"), "{log}");
    assert_eq!(pods(&scene, at).len(), 2);
}
