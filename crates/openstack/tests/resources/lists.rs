//! Lists: what is asked for, and what one broken object spoils.

use seaway_openstack::{
    Class,
    octavia::{LoadBalancer, Pool, PoolMembers},
    resource::{Present, Query},
};
use seaway_testkit::cloud::Fault;
use serde_json::json;

use crate::stage::Stage;

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
    for markers in [["b", "a", "b", "a"], ["w", "x", "y", "z"]] {
        let stage = Stage::set().await;
        for (number, marker) in markers.into_iter().enumerate() {
            let link =
                json!([{"rel": "next", "href": format!("http://x/lbaas/loadbalancers?marker={marker}")}]);
            let id = ["a", "b"][number % 2];
            let told = json!({"loadbalancers": [{"id": id}], "loadbalancers_links": link});
            stage.fake.fail(Fault::on("GET */lbaas/loadbalancers").nth(number + 1).reply(200, told));
        }
        let balancers = stage.balancers();
        let error = balancers.list::<Present<LoadBalancer>>(Query::all()).await.expect_err("it never ends");
        assert_eq!(error.class(), &Class::Strange, "{error}");
        assert!(error.to_string().contains("round in a circle"), "{error}");
        assert_eq!(stage.fake.count("GET */lbaas/loadbalancers"), 3);
    }
}

#[tokio::test]
async fn a_next_page_that_is_the_same_page_is_no_endless_list() {
    let stage = Stage::set().await;
    let link = json!([{"rel": "next", "href": "http://x/lbaas/loadbalancers?marker=a"}]);
    let told = json!({"loadbalancers": [{"id": "a"}], "loadbalancers_links": link});
    stage.fake.fail(Fault::on("GET */lbaas/loadbalancers").always().reply(200, told));
    let error =
        stage.balancers().list::<Present<LoadBalancer>>(Query::all()).await.expect_err("it never ends");
    assert_eq!(error.class(), &Class::Strange, "{error}");
    assert_eq!(stage.fake.count("GET */lbaas/loadbalancers"), 2);
}
