//! Who is not let into the cloud.

use crate::{
    operator::Operator,
    scene::service,
    stage::{AUTH_URL, Stage, until},
};

/// What the Service says of what is wrong with it.
const CONDITION: &str = "{.status.conditions[?(@.type=='seaway.dev/Problems')].message}";

#[test]
fn a_wrong_password_is_told_with_what_mends_it_and_all_goes_on_once_that_is_done() {
    let Some(mut stage) = Stage::set(&[]) else { return };
    let before = stage.land.everything();
    stage.lead_with(AUTH_URL, "wrong");
    let ours = "loadBalancerClass: seaway.dev/octavia, selector: {app: shop}";
    stage.scene.cluster.apply(&service("shop", ours));
    let events = "{.items[?(@.involvedObject.name=='shop')].message}";
    let place = format!("{}:", stage.land.conf.path().display());
    for (object, path) in [("service/shop", CONDITION), ("events", events)] {
        let told = || stage.scene.field(object, path);
        let helps =
            |it: &str| it.contains("Check user, password and the user's domain") && it.contains(&place);
        until(&format!("{object} tells of it, and where it is written"), || helps(&told()));
        assert_eq!(told().matches("heck user").count(), 1, "{}", told());
    }
    assert!(stage.scene.field("service/shop", "{.status.loadBalancer.ingress}").is_empty());

    stage.land.write_conf(AUTH_URL, &stage.land.project.password());
    // What waits for its user is looked at when he changes it, and every few minutes.
    let other = r#"[{"op": "replace", "path": "/spec/ports/0/port", "value": 81}]"#;
    stage.scene.cluster.kubectl(&["patch", "service", "shop", "--type", "json", "-p", other]);
    stage.address("shop");
    until("it is told no more", || !stage.scene.field("service/shop", CONDITION).contains("password"));
    stage.scene.cluster.kubectl(&["delete", "service", "shop", "--wait=false"]);
    until("nothing is left", || stage.land.has_only(&before));
}

/// What only operators of the cloud can mend: each is told once, with what to do, and no load balancer is begun.
#[test]
fn a_missing_role_and_a_quota_of_nothing_are_told_once_each_and_all_goes_on_once_they_are_mended() {
    let Some(mut stage) = Stage::alone("rights", &[]) else { return };
    let before = stage.land.everything();
    let operator = Operator::of(&stage.land);
    operator.lets_it_balance(false);
    stage.lead(AUTH_URL);
    let cluster = stage.scene.cluster.clone();
    cluster.apply(&service("shop", "loadBalancerClass: seaway.dev/octavia, selector: {app: shop}"));
    tells(&stage, "Give the user of cloud.conf a role that may do it");

    operator.limits("loadbalancer", 0);
    operator.lets_it_balance(true);
    // Octavia keeps for five minutes what Keystone said of a token.
    stage.scene.kill("controller");
    stage.lead_anew();
    tells(&stage, "openstack loadbalancer quota set --loadbalancer 1");
    assert!(stage.scene.field("service/shop", "{.status.loadBalancer.ingress}").is_empty());
    assert_eq!(stage.land.everything().len(), before.len(), "nothing was begun");

    operator.limits("loadbalancer", 1);
    let other = r#"[{"op": "replace", "path": "/spec/ports/0/port", "value": 81}]"#;
    cluster.kubectl(&["patch", "service", "shop", "--type", "json", "-p", other]);
    stage.address("shop");
    until("it is told no more", || !stage.scene.field("service/shop", CONDITION).contains("may have 0"));
    cluster.kubectl(&["delete", "service", "shop", "--wait=false"]);
    until("nothing is left", || stage.land.has_only(&before));
}

/// In a condition of the Service and in one event.
fn tells(stage: &Stage, what: &str) {
    let events = "{.items[?(@.involvedObject.name=='shop')].message}";
    for (object, path) in [("service/shop", CONDITION), ("events", events)] {
        let told = || stage.scene.field(object, path);
        until(&format!("{object} tells: {what}"), || told().contains(what));
        assert_eq!(told().matches(what).count(), 1, "{}", told());
    }
}
