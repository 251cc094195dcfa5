//! Rolling restarts of all pods behind a Service, with and without a `preStop` hook.

use std::collections::BTreeSet;

use seaway_testkit::traffic::{Clients, Kind, LoadResults, Target};

use crate::scene::{PRE_STOP, Scene, deployment, service};

/// Each on a new connection.
const RATE: u32 = 500;
/// Each from a new socket.
pub(crate) const DATAGRAMS: u32 = 100;

/// A pod of it answers datagrams. It is ready once it can: the web server beside it may be there before.
pub(crate) fn datagrams(name: &str) -> String {
    let is_bound = "[grep, -qs, ':0007 ', /proc/net/udp, /proc/net/udp6]";
    let probe = format!("        readinessProbe: {{exec: {{command: {is_bound}}}, periodSeconds: 1}}\n");
    let all = deployment(name, 4) + "      - name: udp\n        image: udp\n" + &probe + PRE_STOP;
    let ports = "ports: [{port: 80}]";
    all + "---"
        + &service(name, &format!("selector: {{app: {name}}}"))
            .replace(ports, "ports: [{port: 80, protocol: UDP, targetPort: 7}]")
}

/// Ten pods that answer HTTP, and four that answer datagrams, are all replaced.
fn restart(scene: &Scene, pre_stop: bool) -> LoadResults {
    let of = |manifests: String| if pre_stop { manifests } else { manifests.replace(PRE_STOP, "") };
    scene.cluster.apply(&of(deployment("shop", 10)));
    scene.cluster.apply(&service("shop", "selector: {app: shop}"));
    scene.cluster.apply(&of(datagrams("dns")));
    let (shop, mut dns) = (scene.answering("shop"), scene.answering("shop"));
    dns.set_ip(scene.address("dns").parse().expect("an address"));
    let all = ["deployment/shop", "deployment/dns"];
    let are_up = || {
        all.iter()
            .for_each(|it| drop(scene.cluster.kubectl(&["rollout", "status", it, "--timeout", "300s"])));
    };
    are_up();
    let pods = |app: &str| -> BTreeSet<String> {
        let names = ["get", "pods", "-l", app, "-o", "jsonpath={.items[*].metadata.name}"];
        scene.cluster.kubectl(&names).split_whitespace().map(str::to_owned).collect()
    };
    let old: BTreeSet<String> = ["app=shop", "app=dns"].into_iter().flat_map(pods).collect();
    assert_eq!(old.len(), 14);
    let clients = scene.outside.run(Clients::here);
    let load = clients.load(vec![
        Target::new("HTTP", Kind::Http, shop).times(RATE),
        Target::new("datagrams", Kind::Udp, dns).times(DATAGRAMS),
    ]);
    load.goes_on(100);
    all.iter().for_each(|it| drop(scene.cluster.kubectl(&["rollout", "restart", it])));
    are_up();
    load.goes_on(200);
    let heard = load.end();
    eprintln!("{heard}");
    let answered: BTreeSet<String> = heard.0.values().flat_map(|it| it.answers.keys().cloned()).collect();
    assert!(answered.difference(&old).count() >= 13, "{answered:?} after {old:?}");
    heard
}

#[test]
fn a_rolling_restart_of_pods_that_wait_before_they_stop_costs_no_request() {
    let Some(scene) = Scene::up(2) else { return };
    restart(&scene, true).was_always_answered();
}

#[test]
fn a_rolling_restart_of_pods_that_stop_at_once_costs_what_was_on_its_way_to_them() {
    let Some(scene) = Scene::up(2) else { return };
    let heard = restart(&scene, false);
    let lost = |name: &str| heard.0[name].failures_at_the_rate();
    // A pod that stops resets what its kernel has accepted and it has not; who is refused is sent to another.
    assert!(lost("HTTP") <= 3 * 10, "three for each pod:\n{heard}");
    assert!(
        heard.0["HTTP"].failures.iter().all(|it| it.kind != std::io::ErrorKind::TimedOut),
        "no client waits for a pod that is gone:\n{heard}"
    );
    // Nobody keeps a datagram that was refused: it is lost, until three were or the pod is removed from its slice.
    assert!(lost("datagrams") <= 10 * 4, "ten for each pod:\n{heard}");
    for (name, tally) in &heard.0 {
        assert_eq!(tally.answered() + tally.failures.len(), tally.due, "{name}");
    }
}
