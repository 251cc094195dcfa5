//! Hosts that serve nobody new because somebody says so.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

use seaway_testkit::topology::{Namespace, PATIENCE, until};

use crate::scene::Scene;

pub(crate) const ECHO: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: echo}
spec:
  replicas: 2
  selector: {matchLabels: {app: echo}}
  template:
    metadata: {labels: {app: echo}}
    spec:
      containers:
      - name: echo
        image: tcp
        ports: [{containerPort: 7}]
        readinessProbe: {tcpSocket: {port: 7}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec:
  type: LoadBalancer
  selector: {app: echo}
  ports: [{port: 80, targetPort: 7}]
";

pub(crate) fn talk(stream: &mut TcpStream) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"hello\n")?;
    stream.read_exact(&mut [0; 1])
}

pub(crate) fn connect(scene: &Scene, at: SocketAddr) -> std::io::Result<TcpStream> {
    connect_from(&scene.outside, at)
}

fn connect_from(outside: &Namespace, at: SocketAddr) -> std::io::Result<TcpStream> {
    outside.run(|| {
        let mut stream = TcpStream::connect_timeout(&at, PATIENCE)?;
        talk(&mut stream).map(|()| stream)
    })
}

pub(crate) fn drain(scene: &Scene, drain: bool) {
    let patch = format!("{{\"spec\":{{\"drain\":{drain}}}}}");
    scene.cluster.kubectl(&["patch", "loadbalancerhost", "a", "--type", "merge", "-p", &patch]);
}

#[test]
fn a_host_that_drains_takes_nobody_new_and_lets_open_connections_be() {
    let Some(mut scene) = Scene::up(2) else { return };
    scene.cluster.apply(ECHO);
    let at = SocketAddr::new(scene.address("echo").parse().expect("an address"), 80);
    until("it answers", || connect(&scene, at).is_ok());
    let mut open = connect(&scene, at).expect("it answers still");
    let path = |path: &str| format!("{{.status.conditions[?(@.type==\"seaway.dev/Ready\")].{path}}}");
    let ready = || scene.field("service/echo", &path("status"));
    until("it is served", || ready() == "True");
    // Served by one is served: here each is to have told that it does.
    let number = |object: &str, path: &str| scene.field(object, path).parse::<u64>().unwrap_or_default();
    let address = format!("address/{}", at.ip().to_string().replace('.', "-"));
    let written = number(&address, "{.metadata.resourceVersion}");
    assert!(written > 0, "it is written down");
    for host in ["lbhost/a", "lbhost/b"] {
        until("both hosts serve it", || number(host, "{.status.applied}") >= written);
    }

    drain(&scene, true);
    until("nobody new is taken", || {
        connect(&scene, at).is_err_and(|it| it.kind() == std::io::ErrorKind::ConnectionRefused)
    });
    talk(&mut open).expect("who was there goes on");
    assert_eq!(ready(), "True", "the other serves it");
    assert_eq!(scene.field("lbhost/a", "{.status.notServed[*].address}"), "", "one word says it for all");
    // Another network, whose way leads through the other host. The way from here must not change: what its clients acknowledge
    // late would reach a host that knows no such connection and resets it.
    let beyond = scene.cluster.neighbour("beyond");
    beyond.route("203.0.113.0/28", &scene.nodes[1].addresses()[0]);
    until("the other takes them", || connect_from(&beyond, at).is_ok());
    assert!(connect(&scene, at).is_err(), "it drains still");
    talk(&mut open).expect("who was there goes on");

    drain(&scene, false);
    until("it takes them again", || connect(&scene, at).is_ok());
    talk(&mut open).expect("who was there goes on");

    drain(&scene, true);
    until("nobody new is taken, again", || connect(&scene, at).is_err());
    scene.kill("a");
    scene.serve(0);
    until("it is there again", || scene.log("a").contains("ready"));
    assert!(!scene.log("a").contains("listener opened listener"), "it drains from the start");
    assert!(connect(&scene, at).is_err());
    drain(&scene, false);
    until("it serves", || connect(&scene, at).is_ok());
}

#[test]
fn a_host_that_drains_starts_without_an_api_server_and_drains_until_nobody_wants_it_to() {
    let Some(mut scene) = Scene::up(1) else { return };
    scene.cluster.apply(ECHO);
    let at = SocketAddr::new(scene.address("echo").parse().expect("an address"), 80);
    until("it answers", || connect(&scene, at).is_ok());
    drain(&scene, true);
    until("nobody new is taken", || connect(&scene, at).is_err());
    let kept = scene.snapshot("a");
    let known = || fs::read_to_string(&kept).unwrap_or_default();
    until("that is kept", || known().contains("\"drains\":true"));

    scene.kill("a");
    scene.cluster.kill_api();
    scene.serve(0);
    let says = "serving the configuration saved at";
    until("it goes by what it knew", || scene.log("a").contains(says));
    until("it says why", || scene.log("a").contains("cannot be reached"));
    until("it is ready", || scene.log("a").contains("ready"));
    assert!(!scene.log("a").contains("listener opened listener"), "it drains from the start");
    assert!(connect(&scene, at).is_err());

    scene.cluster.start_api();
    until("it is as the API server says", || {
        let state = scene.state(&scene.nodes[0]);
        !state.is_empty() && !state.contains(says)
    });
    assert!(connect(&scene, at).is_err(), "it drains still");
    scene.cluster.kubectl(&["delete", "loadbalancerhost", "a"]);
    until("nobody's wish is left", || connect(&scene, at).is_ok());
    until("it tells of itself again", || !scene.field("lbhost/a", "{.status.applied}").is_empty());
}
