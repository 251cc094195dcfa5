//! A fake OpenStack with many load balancers, one of them with many members, for `bench/`.
//!
//!     crowded_cloud LOAD_BALANCERS MEMBERS
//!
//! Says its URL as soon as it is full. To each line that it reads it says how many requests came since the last one;
//! it ends with its input.
#![allow(clippy::print_stdout)]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    time::Duration,
};

use seaway_testkit::cloud::Cloud;
use serde_json::{Value, json};

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

/// Speaks HTTP/1.1 over one connection.
struct Client {
    stream: BufReader<TcpStream>,
    token: String,
    project: String,
}

impl Client {
    fn sign_in(cloud: &Cloud, user: &str, password: &str) -> Client {
        let at = cloud.url().trim_start_matches("http://");
        let stream = BufReader::new(TcpStream::connect(at).expect("it listens"));
        let mut client = Client { stream, token: String::new(), project: String::new() };
        let domain = json!({"id": "default"});
        let body = json!({"auth": {
            "identity": {"methods": ["password"],
                "password": {"user": {"name": user, "password": password, "domain": domain}}},
            "scope": {"project": {"name": user, "domain": domain}},
        }});
        let (token, answer) = client.ask("POST", "/identity/v3/auth/tokens", &body);
        client.token = token.expect("a sign-in is answered with a token");
        client.project = answer["token"]["project"]["id"].as_str().expect("it has a project").to_owned();
        client
    }

    fn post(&mut self, path: &str, body: &Value) -> Value {
        self.ask("POST", path, body).1
    }

    fn put(&mut self, path: &str, body: &Value) {
        self.ask("PUT", path, body);
    }

    /// The token in the answer's head, and its body.
    fn ask(&mut self, method: &str, path: &str, body: &Value) -> (Option<String>, Value) {
        let body = body.to_string();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: crowd\r\nX-Auth-Token: {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            self.token,
            body.len()
        );
        self.stream.get_mut().write_all(format!("{head}{body}").as_bytes()).expect("it reads");
        let (mut status, mut length, mut token) = (String::new(), 0, None);
        self.stream.read_line(&mut status).expect("it answers");
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).expect("it answers");
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().expect("a number"),
                "x-subject-token" => token = Some(value.to_owned()),
                _ => {}
            }
        }
        let mut answer = vec![0; length];
        self.stream.read_exact(&mut answer).expect("as long as it said");
        let answer = String::from_utf8(answer).expect("JSON is UTF-8");
        assert!(status.contains(" 20"), "{method} {path}: {status}{answer}");
        (token, serde_json::from_str(&answer).unwrap_or_default())
    }
}
