//! The DaemonSet as it is shipped: each pod of a host takes over from the one before, and clients notice nothing.

use std::{
    collections::BTreeMap,
    net::{SocketAddr, TcpStream, UdpSocket},
    time::{Duration, Instant},
};

use seaway_testkit::topology::{PATIENCE, until, until_within};

use crate::{
    draining::{ECHO, connect},
    handing_over::{IDLE, is_on_lo, load, talk},
    kustomize::{Own, deploy},
    pods::{SYSTEM, in_system},
    rolling::DATAGRAMS,
    scene::{A_TERM, POOL, Scene},
};

/// Each on a new connection.
const RATE: u32 = 500;
/// For what includes a drain, 30 s, on a machine that is busy.
const LONG: Duration = A_TERM.saturating_mul(2);
const FLOWS: usize = 50;

/// How a pod of a host stands.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Standing {
    is_ready: bool,
    is_ending: bool,
}

/// Pods of hosts, by their names.
fn pods(scene: &Scene) -> BTreeMap<String, Standing> {
    let each =
        "{.metadata.name} {.status.conditions[?(@.type=='Ready')].status} {.metadata.deletionTimestamp}";
    let path = format!("jsonpath={{range .items[*]}}{each}{{\"\\n\"}}{{end}}");
    let list = ["get", "pods", "-n", SYSTEM, "-l", "app.kubernetes.io/component=node", "-o", path.as_str()];
    let mut told = Err(String::new());
    // An API server that is busy has not said that there are none.
    until("pods are listed", || {
        told = scene.cluster.try_kubectl(&list, "");
        told.is_ok()
    });
    let told = told.unwrap_or_default();
    let lines = told.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let standing = |words: &[&str]| Standing {
        is_ready: words.get(1) == Some(&"True"),
        is_ending: words.get(2).is_some_and(|it| !it.is_empty()),
    };
    lines.filter_map(|words| Some(((*words.first()?).to_owned(), standing(&words)))).collect()
}

/// A pod that is ready and not asked to end, and is none of these.
fn serving(scene: &Scene, not: &[&str]) -> String {
    let mut found = String::new();
    until_within(LONG, "the next pod is ready", || {
        let pods = pods(scene);
        let ready = pods.iter().find(|(name, it)| it.is_ready && !it.is_ending && !not.contains(&&***name));
        found = ready.map(|(name, _)| name.clone()).unwrap_or_default();
        !found.is_empty()
    });
    found
}

/// Each pod says something: an empty log is one that could not be read.
fn log(scene: &Scene, pod: &str) -> String {
    let mut log = String::new();
    until("its log can be read", || {
        log = in_system(scene, &["logs", pod, "-c", "node"]);
        !log.is_empty()
    });
    log
}

fn says(scene: &Scene, pod: &str, what: &str) {
    until(what, || log(scene, pod).contains(what));
}

fn is_asked_to_end(scene: &Scene, pod: &str) {
    until_within(LONG, "it is asked to end", || pods(scene).get(pod).is_none_or(|it| it.is_ending));
}

fn roll(scene: &Scene) {
    in_system(scene, &["rollout", "restart", "daemonset/seaway-node"]);
}

/// One Node with the DaemonSet of that kustomization, and one that is told on failure what its pods said.
fn installed(kustomization: &str) -> Option<Scene> {
    let mut scene = Scene::bare()?;
    scene.nodes = vec![scene.cluster.node("a")];
    scene.cluster.kubectl(&["apply", "-k", kustomization]);
    scene.cluster.apply(POOL);
    scene.lead_to(0);
    serving(&scene, &[]);
    Some(scene)
}

fn as_shipped() -> Option<Scene> {
    installed(&deploy().join("bare-metal").to_string_lossy())
}

/// Connections that say nothing most of the time, and sockets of UDP that stay with the member that they have.
struct Clients {
    idle: Vec<TcpStream>,
    flows: Vec<Flow>,
}

/// With what was answered last, and when.
struct Flow {
    socket: UdpSocket,
    answer: String,
    at: Instant,
}

/// One that was silent for longer may have ended, and begin with another member.
const LIVES: Duration = Duration::from_secs(20);

fn ask(flow: &UdpSocket) -> std::io::Result<String> {
    flow.send(b"who")?;
    let mut answer = [0; 256];
    let length = flow.recv(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
}

impl Clients {
    fn connected(scene: &Scene, echo: SocketAddr, dns: SocketAddr) -> Clients {
        let idle = (0..IDLE).map(|_| connect(scene, echo).expect("it answers")).collect();
        let flows = scene.outside.run(|| {
            let open = (0..FLOWS).map(|_| {
                let flow = UdpSocket::bind("0.0.0.0:0").expect("a port is free");
                flow.set_read_timeout(Some(PATIENCE)).expect("it is open");
                flow.connect(dns).expect("there is a way");
                let answer = ask(&flow).expect("it is answered");
                Flow { socket: flow, answer, at: Instant::now() }
            });
            open.collect()
        });
        Clients { idle, flows }
    }

    fn are_served(&mut self) {
        for (at, stream) in self.idle.iter_mut().enumerate() {
            talk(stream).unwrap_or_else(|error| panic!("connection {at} of {IDLE}: {error}"));
        }
        self.flows_are_served();
    }

    fn flows_are_served(&mut self) {
        for flow in &mut self.flows {
            let answer = ask(&flow.socket).expect("it is answered");
            assert!(flow.at.elapsed() > LIVES || answer == flow.answer, "{answer} after {}", flow.answer);
            (flow.answer, flow.at) = (answer, Instant::now());
        }
    }
}

fn echo(scene: &Scene) -> SocketAddr {
    scene.cluster.apply(ECHO);
    let at = SocketAddr::new(scene.address("echo").parse().expect("an address"), 80);
    until("it answers", || connect(scene, at).is_ok());
    at
}

fn dns(scene: &Scene) -> SocketAddr {
    SocketAddr::new(scene.address("dns").parse().expect("an address"), 80)
}

const LONG_DRAIN: &str = "
patches:
- target: {kind: ConfigMap, name: seaway}
  patch: |
    - {op: replace, path: /data/seaway.yaml, value: '{defaultDriver: native, drain: 10m}'}
- target: {kind: DaemonSet, name: seaway-node}
  patch: |
    - {op: replace, path: /spec/template/spec/terminationGracePeriodSeconds, value: 630}
    - {op: replace, path: /spec/minReadySeconds, value: 0}
";

#[test]
fn pods_of_a_host_that_are_replaced_refuse_and_reset_nobody_and_three_generations_live_side_by_side() {
    // On a busy machine two rollouts take longer than the usual drain. It ends as soon as no connection is open.
    let Some(scene) = installed(&Own::of("bare-metal", &[], LONG_DRAIN).path()) else { return };
    let echo = echo(&scene);
    let (_clients, load) = load(&scene, RATE);
    let mut clients = Clients::connected(&scene, echo, dns(&scene));
    let first = serving(&scene, &[]);

    clients.flows_are_served();
    roll(&scene);
    let second = serving(&scene, &[&first]);
    clients.are_served();
    // One of the second pod's own keeps that until it has drained.
    let mut of_second = connect(&scene, echo).expect("it answers");
    is_asked_to_end(&scene, &first);
    load.goes_on(200);

    clients.flows_are_served();
    roll(&scene);
    let third = serving(&scene, &[&first, &second]);
    let all = pods(&scene);
    assert_eq!(all.len(), 3, "the first one has connections still: {all:?}");
    assert!(all[&first].is_ending, "{all:?}");
    clients.are_served();
    talk(&mut of_second).expect("it is open");
    says(&scene, &second, "retired");
    for (pod, before) in [(&first, None), (&second, Some(&first)), (&third, Some(&second))] {
        let log = log(&scene, pod);
        assert_eq!(log.contains("handover done"), before.is_some(), "{pod} after {before:?}: {log}");
        assert!(!log.contains("address removed from lo"), "{pod}: {log}");
        assert!(before.is_none() || !log.contains("address added to lo"), "it finds the addresses: {log}");
        assert_eq!(log.contains("retired"), pod != &third, "{pod}: {log}");
    }
    drop((std::mem::take(&mut clients.idle), of_second));
    is_asked_to_end(&scene, &second);
    until_within(LONG, "the others are gone, for no connection is left", || pods(&scene).len() == 1);
    clients.flows_are_served();
    assert!(is_on_lo(&scene, &echo) && connect(&scene, echo).is_ok());
    load.goes_on(200);
    let heard = load.end();
    eprintln!("{heard}");
    heard.was_always_answered();
}

#[test]
fn a_pod_of_a_host_that_is_deleted_hands_over_to_the_one_that_replaces_it() {
    let Some(scene) = as_shipped() else { return };
    let echo = echo(&scene);
    let (_clients, load) = load(&scene, RATE);
    let mut clients = Clients::connected(&scene, echo, dns(&scene));
    let first = serving(&scene, &[]);
    in_system(&scene, &["delete", "pod", &first, "--wait=false"]);
    let second = serving(&scene, &[&first]);
    clients.are_served();
    let log = log(&scene, &second);
    assert!(log.contains("handover done") && !log.contains("address added to lo"), "{log}");
    until_within(LONG, "the first one is gone", || pods(&scene).len() == 1);
    clients.flows_are_served();
    load.goes_on(200);
    let heard = load.end();
    eprintln!("{heard}");
    heard.was_always_answered();
    assert!(is_on_lo(&scene, &echo));
}

/// The DaemonSet of before had no folder, probes at a port of the machine, and no second pod.
const BEFORE: &str = "
patches:
- target: {kind: DaemonSet, name: seaway-node}
  patch: |
    - {op: replace, path: /spec/updateStrategy, value: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1}}}
    - {op: remove, path: /spec/minReadySeconds}
    - {op: replace, path: /spec/template/spec/terminationGracePeriodSeconds, value: 45}
    - op: replace
      path: /spec/template/spec/containers/0/args
      value: [node, --config, /etc/seaway/seaway.yaml, --snapshot, /run/seaway/node.snapshot, --probe-port, '19361']
    - {op: remove, path: /spec/template/spec/containers/0/startupProbe}
    - op: replace
      path: /spec/template/spec/containers/0/livenessProbe
      value: {httpGet: {host: 127.0.0.1, path: /live, port: 19361}, periodSeconds: 10}
    - op: replace
      path: /spec/template/spec/containers/0/readinessProbe
      value: {httpGet: {host: 127.0.0.1, path: /ready, port: 19361}, periodSeconds: 2}
    - {op: remove, path: /spec/template/spec/containers/0/volumeMounts/2}
    - {op: remove, path: /spec/template/spec/volumes/2}
";

#[test]
fn the_first_pod_with_a_folder_serves_beside_the_one_without_and_keeps_its_addresses() {
    let own = Own::of("bare-metal", &[], BEFORE);
    let Some(scene) = installed(&own.path()) else { return };
    let echo = echo(&scene);
    let (_clients, load) = load(&scene, RATE);
    let mut open = connect(&scene, echo).expect("it answers");
    let first = serving(&scene, &[]);
    scene.cluster.kubectl(&["apply", "-k", &deploy().join("bare-metal").to_string_lossy()]);
    let second = serving(&scene, &[&first]);
    talk(&mut open).expect("both serve");
    is_asked_to_end(&scene, &first);
    let asked = Instant::now();
    until_within(LONG, "the first one is gone", || pods(&scene).len() == 1);
    until("its addresses are there", || is_on_lo(&scene, &echo));
    until("clients are served", || connect(&scene, echo).is_ok());
    let replaced = asked.elapsed();
    load.goes_on(1_000);
    let heard = load.end();
    eprintln!("{heard}\n{}", log(&scene, &second));
    // What the old process had not read yet is reset, and at its end it removes addresses that it takes for its own alone; the new one
    // adds them again at once: two seconds in all, and the time for which the machine stood still. Ports of UDP are the old one's until
    // its end, and it answers no new client while it drains; a lost datagram is given up only later.
    let lost = |name: &str| heard.0[name].failures.len() as f64;
    let still = heard.latest();
    let http = Duration::from_secs(2) + still;
    assert!(lost("HTTP") <= f64::from(RATE) * http.as_secs_f64(), "in more than {http:?}:\n{heard}");
    let udp = replaced + PATIENCE + still;
    assert!(lost("datagrams") <= f64::from(DATAGRAMS) * udp.as_secs_f64(), "in more than {udp:?}:\n{heard}");
    // And from then on there is a lock.
    roll(&scene);
    let third = serving(&scene, &[&second]);
    says(&scene, &third, "handover done");
}
