//! The fake cloud as its users meet it: a server that can be told what to do wrong. Whether it says what real services
//! say is asked elsewhere, by the contract suite of `openstack`.

#[path = "cloud/client.rs"]
mod client;

use std::{thread, time::Duration};

use client::Client;
use seaway_testkit::cloud::{ChangeDuration, Cloud, Fault, IdentityVersions, RequestHold};
use serde_json::{Value, json};

const BALANCERS: &str = "/load-balancer/v2/lbaas/loadbalancers";

/// What a load balancer is asked for with, in a network of its own.
fn shop(client: &Client) -> Value {
    let network = client.create("/network/v2.0/networks", json!({"network": {"name": "vips"}}), "network");
    let subnet = json!({"subnet": {"network_id": network, "ip_version": 4, "cidr": "10.0.0.0/16"}});
    let subnet = client.create("/network/v2.0/subnets", subnet, "subnet");
    json!({"loadbalancer": {"name": "shop", "vip_subnet_id": subnet}})
}

#[test]
fn a_created_load_balancer_is_pending_for_one_look_and_then_active() {
    let cloud = Cloud::start();
    let client = Client::signed_in(&cloud, "demo");
    let id = client.create(BALANCERS, shop(&client), "loadbalancer");
    let url = format!("{BALANCERS}/{id}");
    let states: Vec<_> =
        (0..3).map(|_| client.get(&url)["loadbalancer"]["provisioning_status"].clone()).collect();
    assert_eq!(states, ["PENDING_CREATE", "ACTIVE", "ACTIVE"]);
}

#[test]
fn with_a_pace_of_time_only_the_clock_ends_what_is_pending() {
    let cloud = Cloud::start();
    cloud.pace(ChangeDuration::Time(Duration::from_secs(60)));
    let client = Client::signed_in(&cloud, "demo");
    let id = client.create(BALANCERS, shop(&client), "loadbalancer");
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
    let shop = shop(&client);
    cloud.fail(Fault::on("POST */loadbalancers").lose_reply());
    let lost = client.send("POST", BALANCERS, Some(shop));
    assert!(lost.is_err(), "{lost:?}");
    assert_eq!(client.get(BALANCERS)["loadbalancers"][0]["name"], "shop");
}

#[test]
fn a_lost_request_leaves_nothing() {
    let cloud = Cloud::start();
    let client = Client::signed_in(&cloud, "demo");
    cloud.fail(Fault::on("POST */loadbalancers").lose_request());
    assert!(client.send("POST", BALANCERS, Some(shop(&client))).is_err());
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
    client.create(BALANCERS, shop(&client), "loadbalancer");
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

#[test]
fn a_token_is_good_until_the_clock_or_a_revocation_ends_it() {
    let cloud = Cloud::start();
    cloud.token_lifetime(Duration::from_secs(300));
    let status = |client: &Client| client.send("GET", BALANCERS, None).expect("a reply").status;
    let client = Client::signed_in(&cloud, "demo");
    cloud.advance(Duration::from_secs(299));
    assert_eq!(status(&client), 200);
    cloud.advance(Duration::from_secs(1));
    assert_eq!(status(&client), 401);
    let client = Client::signed_in(&cloud, "demo");
    assert_eq!(status(&client), 200);
    cloud.revoke_tokens();
    assert_eq!(status(&client), 401);
}

#[test]
fn a_changed_password_is_the_one_that_is_asked_for() {
    let cloud = Cloud::start();
    cloud.set_password("demo", "another");
    let sign_in = |password: &str| Client::sign_in(&cloud, "demo", password).status;
    assert_eq!((sign_in("demopw"), sign_in("another")), (401, 201));
}

#[test]
fn a_held_request_waits_for_its_release() {
    let cloud = Cloud::start();
    let client = Client::signed_in(&cloud, "demo");
    let hold = RequestHold::new();
    cloud.fail(Fault::on("GET */loadbalancers").hold(&hold));
    thread::scope(|scope| {
        let reply = scope.spawn(|| client.send("GET", BALANCERS, None).expect("a reply").status);
        assert!(hold.reached_within(1, Duration::from_secs(10)));
        assert_eq!(cloud.requests().pop().expect("a request").status, None);
        hold.release();
        assert_eq!(reply.join().expect("a status"), 200);
    });
}

#[test]
fn a_page_of_html_comes_as_a_proxy_sends_it() {
    let cloud = Cloud::start();
    let client = Client::signed_in(&cloud, "demo");
    cloud.fail(Fault::on("GET */loadbalancers").html(502, "<h1>Bad Gateway</h1>"));
    let got = client.send("GET", BALANCERS, None).expect("a reply");
    assert_eq!((got.status, got.header("content-type")), (502, Some("text/html")));
}

#[test]
fn what_is_to_fail_ends_in_error() {
    let cloud = Cloud::start();
    let client = Client::signed_in(&cloud, "demo");
    cloud.fail_next("loadbalancer");
    let state = |id: &str| {
        client.get(&format!("{BALANCERS}/{id}"));
        client.get(&format!("{BALANCERS}/{id}"))["loadbalancer"]["provisioning_status"].clone()
    };
    let first = client.create(BALANCERS, shop(&client), "loadbalancer");
    let second = client.create(BALANCERS, shop(&client), "loadbalancer");
    assert_eq!((state(&first), state(&second)), (json!("ERROR"), json!("ACTIVE")));
    cloud.set_provisioning_status(&second, "ERROR");
    assert_eq!(state(&second), "ERROR");
}

#[test]
fn the_catalog_lacks_what_the_cloud_is_to_lack() {
    let cloud = Cloud::start();
    cloud.without("load-balancer");
    let catalog = Client::sign_in(&cloud, "demo", "demopw").body["token"]["catalog"].to_string();
    assert!(catalog.contains("key-manager") && !catalog.contains("load-balancer"), "{catalog}");
}

#[test]
fn a_user_without_a_role_for_load_balancers_is_refused() {
    let cloud = Cloud::start();
    cloud.add_project("guest", "demopw", &["reader"]);
    let client = Client::signed_in(&cloud, "guest");
    let got = client.send(
        "POST",
        BALANCERS,
        Some(json!({"loadbalancer": {"vip_network_id": cloud.project_id("guest")}})),
    );
    assert_eq!(got.expect("a reply").status, 403);
}

#[test]
fn an_old_keystone_has_no_version_3() {
    let cloud = Cloud::start();
    cloud.speak(IdentityVersions::V2);
    assert_eq!(Client::sign_in(&cloud, "demo", "demopw").status, 404);
    let client = Client::signed_in_by_v2(&cloud, "demo");
    assert_eq!(client.get(BALANCERS)["loadbalancers"], json!([]));
}

#[test]
fn ten_thousand_members_are_listed_by_pages() {
    let cloud = Cloud::start();
    let client = Client::signed_in(&cloud, "demo");
    let admin = Client::signed_in(&cloud, "admin");
    let quota = format!("/load-balancer/v2/lbaas/quotas/{}", cloud.project_id("demo").expect("a project"));
    admin.send("PUT", &quota, Some(json!({"quota": {"member": -1}}))).expect("a reply");
    let mut shop = shop(&client);
    let member =
        |n: u32| json!({"address": format!("10.0.{}.{}", n / 250, n % 250 + 1), "protocol_port": 80});
    shop["loadbalancer"]["pools"] = json!([{
        "name": "web", "protocol": "TCP", "lb_algorithm": "SOURCE_IP_PORT",
        "members": (0..10_000).map(member).collect::<Vec<_>>(),
    }]);
    client.create(BALANCERS, shop, "loadbalancer");
    let pool = client.get("/load-balancer/v2/lbaas/pools?fields=id")["pools"][0]["id"].clone();
    let mut next =
        format!("/load-balancer/v2/lbaas/pools/{}/members?limit=1000", pool.as_str().expect("an id"));
    let mut pages = Vec::new();
    while !next.is_empty() {
        let page = client.get(&next);
        pages.push(page["members"].as_array().map_or(0, Vec::len));
        let links = page["members_links"].as_array().cloned().unwrap_or_default();
        let link = links.iter().find(|it| it["rel"] == "next").and_then(|it| it["href"].as_str());
        next = link.map(|it| it.trim_start_matches(cloud.url()).to_owned()).unwrap_or_default();
    }
    // Whether a full page is the last one, is not known before the next one is asked for.
    assert_eq!(pages, [1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000, 0]);
}
