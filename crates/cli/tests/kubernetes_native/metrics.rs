//! Metrics by TLS: the API server says who may read them.

use std::process::Command;

use seaway_testkit::{
    kubernetes::Node,
    topology::{until, until_within},
};

use crate::scene::{A_TERM, NODE, Scene, service};

const CONFIGURATION: &str =
    "{defaultDriver: native, admin: {listen: [\"127.0.0.1:0\"], metrics: {listen: [\"127.0.0.1:0\"]}}}";

/// The status of an answer to who asks with that token, and what it says.
fn ask(node: &Node, url: &str, token: Option<&str>) -> (String, String) {
    let mut curl = node.namespace().command("curl");
    curl.args(["-sk", "--noproxy", "*", "-m", "20", "-w", "\n%{http_code}"]);
    if let Some(token) = token {
        curl.args(["-H", &format!("Authorization: Bearer {token}")]);
    }
    let output = curl.arg(url).output().expect("curl starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (said, status) = text.rsplit_once('\n').unwrap_or(("", ""));
    (status.to_owned(), said.to_owned())
}

/// Where a process shows its metrics, without the path.
fn shown_at(scene: &Scene, name: &str) -> String {
    let mut at = String::new();
    until(&format!("{name} shows metrics"), || {
        let log = scene.log(name);
        let line = log.lines().find_map(|line| line.split_once("metrics at "));
        let url = line.and_then(|(_, it)| it.split_once("/metrics,"));
        at = url.map(|(url, _)| url.to_owned()).unwrap_or_default();
        !at.is_empty()
    });
    at
}

#[test]
fn metrics_are_read_with_a_token_that_may_and_by_nobody_else() {
    let Some(mut scene) = Scene::bare() else { return };
    scene.configuration = CONFIGURATION;
    scene.nodes = vec![scene.cluster.node("a")];
    scene.install();
    let cluster = scene.cluster.clone();
    scene.lead("controller");
    scene.serve(0);
    scene.lead_to(0);
    for name in ["prometheus", "curious"] {
        cluster.kubectl(&["create", "serviceaccount", name]);
    }
    let bind = |name: &str, role: &str, who: &str| {
        cluster.kubectl(&["create", "clusterrolebinding", name, &format!("--clusterrole={role}"), who]);
    };
    bind("prometheus", "seaway-metrics-reader", "--serviceaccount=default:prometheus");
    let token = |name: &str| cluster.kubectl(&["create", "token", name]).trim().to_owned();
    let (prometheus, curious) = (token("prometheus"), token("curious"));
    let node = &scene.nodes[0];
    let at = shown_at(&scene, node.name());
    let status = |path: &str, token: Option<&str>| ask(node, &format!("{at}{path}"), token).0;
    until("it answers", || status("/metrics", None) == "401");
    assert_eq!(status("/metrics", None), "401");
    // Without the role nobody can be reviewed, and nobody may.
    assert_eq!(status("/metrics", Some(&prometheus)), "503");

    bind("reviewer", "seaway-reviewer", &format!("--user={NODE}"));
    let may = || ask(node, &format!("{at}/metrics"), Some(&prometheus));
    until("who may reads them", || may().0 == "200");
    let (_, said) = may();
    assert!(said.contains("# TYPE seaway_"), "{said}");
    until("who may not is told so", || status("/metrics", Some(&curious)) == "403");
    until("a token of nobody is none", || status("/metrics", Some("a.b.c")) == "401");
    let broken = format!("{}x", prometheus);
    until("nor is a broken one", || status("/metrics", Some(&broken)) == "401");
    for path in ["/", "/state", "/;csv", "/log"] {
        assert_eq!(status(path, Some(&prometheus)), "404", "{path}");
    }
    // A right that is taken away ends within a minute or so.
    cluster.kubectl(&["delete", "clusterrolebinding", "prometheus"]);
    until_within(A_TERM, "it may no longer", || status("/metrics", Some(&prometheus)) == "403");
    assert!(!scene.log(node.name()).contains(&prometheus), "a token is in the log");
    assert!(shown_at(&scene, "controller").starts_with("https://127.0.0.1:"), "controllers show them, too");
}

/// What a process shows at its status page, which is on this machine or on a node.
pub(crate) fn told(scene: &Scene, name: &str) -> String {
    let url = format!("{}metrics", scene.page(name));
    let node = scene.nodes.iter().find(|it| it.name() == name);
    let mut curl = node.map_or_else(|| Command::new("curl"), |it| it.namespace().command("curl"));
    let output = curl.args(["-s", "--noproxy", "*", "-m", "20", &url]).output().expect("curl starts");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_leader_counts_for_all_and_each_process_counts_what_it_does() {
    let Some(mut scene) = Scene::bare() else { return };
    scene.nodes = vec![scene.cluster.node("a")];
    scene.install();
    scene.lead("first");
    until("it leads", || scene.leader().starts_with("first"));
    scene.lead("second");
    scene.serve(0);
    // No pool has it.
    scene.cluster.apply(&service("waits", "loadBalancerIP: 198.18.0.99"));
    let host = scene.nodes[0].name().to_owned();
    let all = [
        "seaway_watch_age_seconds{kind=\"Service\"} ",
        "seaway_watch_lists_total{kind=\"Service\"} 1\n",
        "seaway_api_calls_total{verb=\"watch\",code=\"2xx\"} ",
        "seaway_snapshot_in_use 0\n",
        "seaway_driver_units{",
    ];
    let leader = [
        "seaway_leader 1\n",
        "seaway_leader_changes_total 1\n",
        "seaway_services_without_address 1\n",
        "seaway_services_conditions{condition=\"Ready\",status=\"False\"} 1\n",
        "seaway_problems{reason=",
        "seaway_driver_work_seconds_count{driver=\"status\"} ",
    ];
    let of = |name: &str, expected: &[&str]| {
        let text = told(&scene, name);
        let missing: Vec<&str> = expected.iter().copied().filter(|it| !text.contains(it)).collect();
        (missing.is_empty(), text)
    };
    for (name, own) in [
        ("first", &leader[..]),
        ("second", &["seaway_leader 0\n"]),
        (&host, &["seaway_driver_units{driver=\"native\""]),
    ] {
        until(&format!("{name} tells all"), || of(name, &[&all[..], own].concat()).0);
    }
    for name in ["second", &host] {
        let (_, text) = of(name, &[]);
        for counted_once in ["seaway_problems{", "seaway_services_without_address", "seaway_pool_addresses{"]
        {
            assert!(!text.contains(counted_once), "{name}: {counted_once}: {text}");
        }
    }
    assert!(!of(&host, &[]).1.contains("seaway_leader"), "a host never leads");
}
