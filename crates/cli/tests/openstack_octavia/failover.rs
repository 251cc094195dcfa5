//! A load balancer in ERROR whose provider can replace its machines.

use serde_json::Value;

use crate::{
    operator::Operator,
    scene::service,
    stage::{AUTH_URL, Stage, until},
    tree::{Tree, differences},
};

const OURS: &str = "loadBalancerClass: seaway.dev/octavia, selector: {app: shop}";
const PROBLEMS: &str = "{.status.conditions[?(@.type=='seaway.dev/Problems')].message}";
const REFUSED: &str = "{.items[?(@.reason=='FailoverRefused')].message}";

#[test]
fn a_load_balancer_in_error_stays_as_it_is_until_its_user_may_fail_it_over_and_keeps_its_addresses() {
    let Some(mut stage) = Stage::alone("failover", &["a"]) else { return };
    stage.land.provider = "lb-provider=amphora\n";
    stage.lead(AUTH_URL);
    let before = stage.land.everything();
    let operator = Operator::of(&stage.land);
    stage.scene.cluster.apply(&service("shop", OURS));
    let address = stage.address("shop");
    stage.land.at_rest(|all| !all.is_empty());
    let made = all_of_it(&stage);
    let balancer = balancer_of(&made)["id"].as_str().expect("an id").to_owned();
    let machines = operator.amphorae(&balancer);
    assert_eq!(machines.len(), 1, "{machines:?}");

    stage.land.rig.put_in_error(&balancer);
    let problems = |stage: &Stage| stage.scene.field("service/shop", PROBLEMS);
    for words in [&format!("load balancer {balancer} is in ERROR"), "The load balancer cannot be failed over"]
    {
        until(&format!("the Service says: {words}"), || problems(&stage).contains(words));
    }
    until("an event says that it was refused", || !stage.scene.field("events", REFUSED).is_empty());
    assert_eq!(differences(&made, &all_of_it(&stage)), [""; 0], "all stays as it is");
    assert_eq!(operator.amphorae(&balancer), machines);

    operator.lets_it_fail_over();
    // A token has the roles that its user had when he signed in.
    stage.scene.kill("controller");
    stage.lead_anew();
    let is_active = || balancer_of(&all_of_it(&stage))["provisioning_status"] == "ACTIVE";
    until("it is failed over", is_active);
    assert_ne!(operator.amphorae(&balancer), machines, "its machine is another");
    assert_eq!(
        differences(&made, &all_of_it(&stage)),
        [""; 0],
        "it is the same load balancer, at its addresses"
    );
    until("it is said no more", || !problems(&stage).contains("is in ERROR"));
    assert_eq!(stage.address("shop"), address);

    stage.scene.cluster.kubectl(&["delete", "service", "shop", "--wait=false"]);
    until("nothing is left", || stage.land.has_only(&before));
}

/// The load balancer with all that belongs to it.
fn all_of_it(stage: &Stage) -> Tree {
    let kinds = ["loadbalancers", "listeners", "pools", "healthmonitors", "members", "floatingips"];
    stage.land.told(&kinds)
}

fn balancer_of(all: &Tree) -> &Value {
    all.iter().find(|(key, _)| key.starts_with("loadbalancers/")).expect("there is one").1
}
