//! Lists: what is asked for, and what one broken object spoils.

use seaway_openstack::{
    Class,
    barbican::SecretRef,
    neutron::{AllocationPool, HostRoute, Route},
    octavia::{LoadBalancer, Pool, PoolMembers},
    resource::{IdOnly, Query, Ref},
};
use seaway_testkit::cloud::Fault;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};

use super::stage::Stage;

#[tokio::test]
async fn only_the_fields_that_are_needed_are_asked_for() {
    let stage = Stage::set().await;
    stage
        .cloud
        .all::<Pool>()
        .list::<PoolMembers>(Query::named("a b&c").tagged(["x", "y"]))
        .await
        .expect("pools");
    let asked =
        stage.fake.requests().into_iter().rev().find(|it| it.fits("GET */lbaas/pools")).expect("a request");
    for part in ["fields=id", "fields=members", "limit=1000", "tags=x%2Cy"] {
        assert!(asked.query.contains(part), "{part}: {}", asked.query);
    }
    assert!(!asked.query.contains("b&c"), "values are one text each: {}", asked.query);
}

#[tokio::test]
async fn a_broken_object_spoils_a_whole_list_but_not_its_pages() {
    let stage = Stage::set().await;
    let told = json!({"loadbalancers": [{"id": "a", "vip_address": "10.0.0"}, {"id": "b"}, 7]});
    stage.fake.fail(Fault::on("GET */lbaas/loadbalancers").times(2).reply(200, told));
    let all = stage.balancers().list::<LoadBalancer>(Query::all()).await.expect_err("one is broken");
    assert_eq!(all.class(), &Class::Strange, "{all}");
    assert!(all.to_string().contains("load balancer a: vip_address"), "{all}");
    let page = stage
        .balancers()
        .pages::<LoadBalancer>(Query::all())
        .next()
        .await
        .expect("a page")
        .expect("the first");
    assert_eq!((page.items.len(), page.broken.len()), (1, 2));
}

/// By links that lead back, and by links that lead on to what was there before.
#[tokio::test]
async fn pages_that_go_round_in_a_circle_are_no_endless_list() {
    for markers in [["b", "a", "b", "a", "b", "a"], ["u", "v", "w", "x", "y", "z"]] {
        let stage = Stage::set().await;
        for (number, marker) in markers.into_iter().enumerate() {
            let link =
                json!([{"rel": "next", "href": format!("http://x/lbaas/loadbalancers?marker={marker}")}]);
            let id = ["a", "b"][number % 2];
            let told = json!({"loadbalancers": [{"id": id}], "loadbalancers_links": link});
            stage.fake.fail(Fault::on("GET */lbaas/loadbalancers").nth(number + 1).reply(200, told));
        }
        let balancers = stage.balancers();
        let error = balancers.list::<IdOnly<LoadBalancer>>(Query::all()).await.expect_err("it never ends");
        assert_eq!(error.class(), &Class::Strange, "{error}");
        assert!(error.to_string().contains("the pages of the list form a loop"), "{error}");
        assert_eq!(stage.fake.count("GET */lbaas/loadbalancers"), 5);
    }
}

#[tokio::test]
async fn a_next_page_that_is_the_same_page_is_no_endless_list() {
    let stage = Stage::set().await;
    let link = json!([{"rel": "next", "href": "http://x/lbaas/loadbalancers?marker=a"}]);
    let told = json!({"loadbalancers": [{"id": "a"}], "loadbalancers_links": link});
    stage.fake.fail(Fault::on("GET */lbaas/loadbalancers").always().reply(200, told));
    let error =
        stage.balancers().list::<IdOnly<LoadBalancer>>(Query::all()).await.expect_err("it never ends");
    assert_eq!(error.class(), &Class::Strange, "{error}");
    assert_eq!(stage.fake.count("GET */lbaas/loadbalancers"), 3);
}

/// As Neutron does when the object is gone after which a page was to begin: all is told, and nothing twice.
#[tokio::test]
async fn pages_that_begin_anew_tell_nothing_twice() {
    let stage = Stage::set().await;
    let pages = [["a", "b"], ["c", "d"], ["a", "b"], ["d", "e"], ["f", "g"]];
    for (number, ids) in pages.into_iter().enumerate() {
        let objects = ids.map(|id| json!({"id": id}));
        let link =
            json!([{"rel": "next", "href": format!("http://x/lbaas/loadbalancers?marker={}", ids[1])}]);
        let links = if number + 1 < pages.len() { link } else { json!([]) };
        let told = json!({"loadbalancers": objects, "loadbalancers_links": links});
        stage.fake.fail(Fault::on("GET */lbaas/loadbalancers").nth(number + 1).reply(200, told));
    }
    let listed = stage.balancers().list::<IdOnly<LoadBalancer>>(Query::all()).await.expect("a list");
    let ids: Vec<String> = listed.iter().map(|it| it.0.to_string()).collect();
    assert_eq!(ids, ["a", "b", "c", "d", "e", "f", "g"]);
}

/// What a newer cloud says is not lost on the way through us.
#[tokio::test]
async fn what_is_nested_keeps_what_this_version_does_not_know() {
    fn kept<T: Serialize + DeserializeOwned>(told: Value) {
        let read: T = serde_json::from_value(told.clone()).expect("it is understood");
        assert_eq!(serde_json::to_value(&read).expect("a body"), told);
    }
    kept::<Ref<Pool>>(json!({"id": "p", "weight": 7}));
    kept::<Route>(json!({"destination": "10.0.0.0/8", "nexthop": "10.0.0.1", "bfd": true}));
    kept::<HostRoute>(json!({"destination": "10.0.0.0/8", "nexthop": "10.0.0.1", "metric": 1}));
    kept::<AllocationPool>(json!({"start": "10.0.0.2", "end": "10.0.0.9", "for": "us"}));
    kept::<SecretRef>(json!({"name": "key", "secret_ref": "http://b/v1/secrets/1", "new": null}));

    let stage = Stage::set().await;
    let member = json!({"id": "m", "new": 5});
    let pool = json!({"id": "p", "new": 4, "members": [member], "health_monitor": {"id": "h", "new": 6}});
    let listener = json!({"id": "l", "new": 3, "pools": [pool]});
    let balancer = json!({"id": "b", "new": 2, "listeners": [listener]});
    let told = json!({"statuses": {"loadbalancer": balancer}});
    stage.fake.fail(Fault::on("GET */status").reply(200, told));
    let tree = stage.balancers().tree(&"b".parse().expect("an id")).await.expect("a tree");
    let pool = &tree.listeners[0].pools[0];
    let monitor = pool.health_monitor.as_ref().expect("a monitor");
    let rests = [&tree.rest, &tree.listeners[0].rest, &pool.rest, &pool.members[0].rest, &monitor.rest];
    assert_eq!(rests.map(|it| it["new"].as_u64()), [2, 3, 4, 5, 6].map(Some));
}
