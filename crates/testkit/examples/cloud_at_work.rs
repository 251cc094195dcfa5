//! A fake OpenStack in which a controller works, for `bench/`: its clock goes, a change takes a second, and requests are counted.
//!
//!     cloud_at_work NODES
//!
//! Says as one line of JSON where it is, and then, to each line that it reads, what was asked since the line `begin`. It ends
//! with its input.
#![allow(clippy::print_stdout)]

use std::{
    collections::BTreeMap,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use seaway_testkit::cloud::{ChangeDuration, Cloud, Recorded};
use serde_json::{Value, json};

use self::client::Client;

#[path = "fake_cloud/client.rs"]
mod client;

/// What a change of a load balancer takes.
const CHANGE: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(20);

fn main() {
    let nodes = std::env::args().nth(1).and_then(|it| it.parse().ok());
    let nodes: usize = nodes.expect("how many Nodes are machines of the project?");
    let cloud = Arc::new(Cloud::start());
    let subnet = fill(&cloud, nodes);
    cloud.pace(ChangeDuration::Time(CHANGE));
    let ticking = Arc::downgrade(&cloud);
    thread::spawn(move || {
        let mut last = Instant::now();
        while let Some(cloud) = ticking.upgrade() {
            thread::sleep(TICK);
            cloud.advance(last.elapsed());
            last = Instant::now();
        }
    });
    cloud.forget_requests();
    println!("{}", json!({"authUrl": cloud.auth_url(), "subnet": subnet}));
    for line in std::io::stdin().lines().map_while(Result::ok) {
        if line == "begin" {
            cloud.forget_requests();
        }
        println!("{}", told(&cloud));
    }
}

/// What was asked, each kind of request apart from what goes on whatever is done: sign-ins, polls and heartbeats.
fn told(cloud: &Cloud) -> Value {
    let mut requests = cloud.requests();
    requests.retain(|it| !it.path.contains("/auth/"));
    let (beats, requests): (Vec<Recorded>, Vec<Recorded>) = requests.into_iter().partition(is_heartbeat);
    let (polls, requests): (Vec<Recorded>, Vec<Recorded>) = requests.into_iter().partition(Recorded::is_poll);
    let mut kinds = BTreeMap::<String, usize>::new();
    requests.iter().for_each(|it| *kinds.entry(kind(it)).or_default() += 1);
    let silent = requests.last().and_then(|it| cloud.now().duration_since(it.at).ok());
    json!({
        "calls": requests.len(),
        "polls": polls.len(),
        "heartbeats": beats.len(),
        "writes": requests.iter().filter(|it| it.method != "GET").count(),
        "renames": requests.iter().filter(|it| it.renames()).count(),
        "failed": requests.iter().filter(|it| is_failed(it)).count(),
        "silentFor": silent.map(|it| it.as_secs_f64()),
        "kinds": kinds,
    })
}

/// That nothing is there is what somebody wanted to know.
fn is_failed(it: &Recorded) -> bool {
    it.status.is_some_and(|status| status >= 400 && !(it.method == "GET" && status == 404))
}

/// Of the one writer of a cluster: the list that finds its tag, and the tag.
fn is_heartbeat(it: &Recorded) -> bool {
    let is_tag = || it.body.as_ref().is_some_and(|it| it.to_string().contains("seaway.heartbeat."));
    it.query.contains("seaway.writer.") || is_tag()
}

/// `PUT lbaas/pools/ID/members`
fn kind(it: &Recorded) -> String {
    let is_id = |part: &&str| part.len() >= 32 && part.chars().all(|it| it.is_ascii_hexdigit() || it == '-');
    let parts = it.path.split('/').filter(|it| !it.is_empty()).skip(2);
    let parts: Vec<&str> = parts.map(|it| if is_id(&it) { "ID" } else { it }).collect();
    format!("{} {}", it.method, parts.join("/"))
}

/// A project with room for many Services, and machines on a network that is led outside. Tells its subnet.
fn fill(cloud: &Cloud, nodes: usize) -> String {
    let mut admin = Client::sign_in(cloud, "admin", "adminpw");
    let mut demo = Client::sign_in(cloud, "demo", "demopw");
    let unlimited = |kinds: &[&str]| kinds.iter().map(|it| ((*it).to_owned(), json!(-1))).collect::<Value>();
    let octavia = unlimited(&["load_balancer", "listener", "pool", "member", "health_monitor"]);
    let neutron = unlimited(&["port", "security_group", "security_group_rule", "floatingip"]);
    admin.put(&format!("/load-balancer/v2/lbaas/quotas/{}", demo.project), &json!({ "quota": octavia }));
    admin.put(&format!("/network/v2.0/quotas/{}", demo.project), &json!({ "quota": neutron }));
    let mut made = |path: &str, kind: &str, object: Value| {
        let told = demo.post(&format!("/network/v2.0/{path}"), &json!({ kind: object }));
        told[kind]["id"].as_str().expect("what was made has an id").to_owned()
    };
    let network = made("networks", "network", json!({"name": "nodes"}));
    let subnet = json!({"network_id": network, "ip_version": 4, "cidr": "10.0.0.0/16"});
    let subnet = made("subnets", "subnet", subnet);
    for number in 0..nodes {
        let port = json!({
            "network_id": network,
            "fixed_ips": [{"subnet_id": subnet, "ip_address": format!("10.0.200.{}", number + 1)}],
            "device_id": format!("00000000-0000-4000-8000-{number:012}"),
            "device_owner": "compute:nova",
        });
        made("ports", "port", port);
    }
    let outside = admin.get("/network/v2.0/networks?router:external=true")["networks"][0]["id"].clone();
    let router = made("routers", "router", json!({"external_gateway_info": {"network_id": outside}}));
    let plug = format!("/network/v2.0/routers/{router}/add_router_interface");
    demo.put(&plug, &json!({"subnet_id": subnet}));
    subnet
}
