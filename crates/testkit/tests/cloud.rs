//! The fake cloud as its users meet it: a server that can be told what to do wrong. Whether it says what real services
//! say is asked elsewhere, by the contract suite of `openstack`.

#[path = "cloud/client.rs"]
mod client;

use std::time::Duration;

use client::Client;
use seaway_testkit::cloud::{Cloud, Fault, Pace};
use serde_json::json;

const BALANCERS: &str = "/load-balancer/v2/lbaas/loadbalancers";

#[test]
fn a_created_load_balancer_is_pending_for_one_look_and_then_active() {
    let cloud = Cloud::start();
    let client = Client::signed_in(&cloud, "demo");
    let id = client.create(BALANCERS, json!({"loadbalancer": {"name": "shop"}}), "loadbalancer");
    let url = format!("{BALANCERS}/{id}");
    let states: Vec<_> =
        (0..3).map(|_| client.get(&url)["loadbalancer"]["provisioning_status"].clone()).collect();
    assert_eq!(states, ["PENDING_CREATE", "ACTIVE", "ACTIVE"]);
}

#[test]
fn with_a_pace_of_time_only_the_clock_ends_what_is_pending() {
    let cloud = Cloud::start();
    cloud.pace(Pace::Time(Duration::from_secs(60)));
    let client = Client::signed_in(&cloud, "demo");
    let id = client.create(BALANCERS, json!({"loadbalancer": {"name": "shop"}}), "loadbalancer");
    let url = format!("{BALANCERS}/{id}");
    let state = || client.get(&url)["loadbalancer"]["provisioning_status"].clone();
    assert_eq!([state(), state(), state()], ["PENDING_CREATE"; 3]);
    cloud.advance(Duration::from_secs(60));
    assert_eq!(state(), "ACTIVE");
}

#[test]
fn a_lost_reply_leaves_what_was_made() {
    let cloud = Cloud::start();
    let client = Client::signed_in(&cloud, "demo");
    cloud.fail(Fault::on("POST */loadbalancers").lose_reply());
    let lost = client.send("POST", BALANCERS, Some(json!({"loadbalancer": {"name": "shop"}})));
    assert!(lost.is_err(), "{lost:?}");
    assert_eq!(client.get(BALANCERS)["loadbalancers"][0]["name"], "shop");
}

#[test]
fn a_lost_request_leaves_nothing() {
    let cloud = Cloud::start();
    let client = Client::signed_in(&cloud, "demo");
    cloud.fail(Fault::on("POST */loadbalancers").lose_request());
    assert!(client.send("POST", BALANCERS, Some(json!({"loadbalancer": {"name": "shop"}}))).is_err());
    assert_eq!(client.get(BALANCERS)["loadbalancers"], json!([]));
}

#[test]
fn a_fault_strikes_the_request_that_was_meant() {
    let cloud = Cloud::start();
    let client = Client::signed_in(&cloud, "demo");
    cloud.fail(Fault::on("GET */loadbalancers").nth(2).times(2).status(503).header("Retry-After", "3"));
    let replies: Vec<_> = (0..4).map(|_| client.send("GET", BALANCERS, None).expect("a reply")).collect();
    assert_eq!(replies.iter().map(|it| it.status).collect::<Vec<_>>(), [200, 503, 503, 200]);
    assert_eq!(replies[1].header("retry-after"), Some("3"));
    assert!(replies[1].body["faultstring"].is_string(), "{:?}", replies[1].body);
}

#[test]
fn a_body_cut_short_breaks_its_promise_of_length() {
    let cloud = Cloud::start();
    let client = Client::signed_in(&cloud, "demo");
    cloud.fail(Fault::on("GET */loadbalancers").cut_short());
    let raw = client.raw("GET", BALANCERS, None);
    let (head, body) = raw.split_once("\r\n\r\n").expect("a head");
    let promised = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length");
    assert!(!body.is_empty() && body.len() < promised.parse().expect("a number"), "{raw}");
}

#[test]
fn a_stale_read_does_not_know_what_came_since() {
    let cloud = Cloud::start();
    let client = Client::signed_in(&cloud, "demo");
    cloud.fail(Fault::on("GET */loadbalancers").stale());
    client.create(BALANCERS, json!({"loadbalancer": {"name": "shop"}}), "loadbalancer");
    assert_eq!(client.get(BALANCERS)["loadbalancers"], json!([]));
    assert_eq!(client.get(BALANCERS)["loadbalancers"][0]["name"], "shop");
}

#[test]
fn every_request_is_recorded_with_its_answer() {
    let cloud = Cloud::start();
    let client = Client::signed_in(&cloud, "demo");
    client.get(&format!("{BALANCERS}?limit=7"));
    let last = cloud.requests().pop().expect("a request");
    assert_eq!((last.method.as_str(), last.query.as_str(), last.status), ("GET", "limit=7", Some(200)));
    assert_eq!(cloud.count("POST */auth/tokens"), 1);
}
