//! A fake OpenStack with many load balancers, one of them with many members, for `bench/`.
//!
//!     crowded_cloud LOAD_BALANCERS MEMBERS
//!
//! Says its URL as soon as it is full. To each line that it reads it says how many requests came since the last one;
//! it ends with its input.
#![allow(clippy::print_stdout)]

use std::time::Duration;

use seaway_testkit::cloud::Cloud;
use serde_json::{Value, json};

use self::client::Client;

#[path = "fake_cloud/client.rs"]
mod client;

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|it| it.parse().ok());
    let (Some(balancers), Some(members)) = (arguments.next(), arguments.next()) else {
        panic!("how many load balancers, and members of one of them, are there to be?");
    };
    let cloud = Cloud::start();
    fill(&cloud, balancers, members);
    cloud.forget_requests();
    println!("{}", cloud.auth_url());
    for _ in std::io::stdin().lines().map_while(Result::ok) {
        println!("{}", cloud.requests().len());
        cloud.forget_requests();
    }
}

fn fill(cloud: &Cloud, balancers: usize, crowd: usize) {
    let mut admin = Client::sign_in(cloud, "admin", "adminpw");
    let mut demo = Client::sign_in(cloud, "demo", "demopw");
    let unlimited = |kinds: &[&str]| kinds.iter().map(|it| ((*it).to_owned(), json!(-1))).collect::<Value>();
    let octavia = unlimited(&["load_balancer", "listener", "pool", "member", "health_monitor"]);
    let neutron = unlimited(&["port", "security_group", "security_group_rule"]);
    admin.put(&format!("/load-balancer/v2/lbaas/quotas/{}", demo.project), &json!({ "quota": octavia }));
    admin.put(&format!("/network/v2.0/quotas/{}", demo.project), &json!({ "quota": neutron }));
    let network = demo.post("/network/v2.0/networks", &json!({"network": {"name": "crowd"}}));
    let network = network["network"]["id"].clone();
    let subnet = demo.post(
        "/network/v2.0/subnets",
        &json!({"subnet": {"network_id": network, "ip_version": 4, "cidr": "10.0.0.0/16"}}),
    );
    let subnet = subnet["subnet"]["id"].clone();
    for number in 0..balancers {
        let members = if number == 0 { crowd } else { 2 };
        let members: Vec<Value> = (0..members)
            .map(|it| {
                let address = format!("10.1.{}.{}", it / 250, it % 250 + 1);
                json!({"address": address, "protocol_port": 30_080, "subnet_id": subnet})
            })
            .collect();
        let pool =
            json!({"name": "web", "protocol": "TCP", "lb_algorithm": "SOURCE_IP_PORT", "members": members});
        let listener = json!({"name": "web", "protocol": "TCP", "protocol_port": 80, "default_pool": pool});
        let name = if number == 0 { "crowded".to_owned() } else { format!("balancer-{number}") };
        let whole = json!({"loadbalancer": {
            "name": name, "description": "made to be many", "vip_subnet_id": subnet, "provider": "ovn",
            "tags": ["seaway"], "listeners": [listener],
        }});
        demo.post("/load-balancer/v2/lbaas/loadbalancers", &whole);
    }
    cloud.advance(Duration::from_secs(60));
}
