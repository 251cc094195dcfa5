//! A project that may have no more of a kind: what there is serves on, what is missing is told with what mends it, and made
//! once there may be more.

use crate::{
    operator::Operator,
    scene::{deployment, service},
    stage::{AUTH_URL, Stage, until},
};

const PROBLEMS: &str = "{.status.conditions[?(@.type=='seaway.dev/Problems')].message}";
const OF_OCTAVIA: [&str; 4] = ["listener", "pool", "member", "healthmonitor"];
const OF_NEUTRON: [&str; 3] = ["port", "floatingip", "security_group"];

#[test]
fn each_quota_that_is_used_up_is_told_and_what_is_missing_is_made_once_there_is_more() {
    let Some(mut stage) = Stage::alone("quotas", &[]) else { return };
    stage.land.closed = true;
    stage.land.options = "manage-security-groups=true\n";
    stage.join("a");
    let before = stage.land.everything();
    let operator = Operator::of(&stage.land);
    stage.lead(AUTH_URL);
    let cluster = stage.scene.cluster.clone();
    let problems = || stage.scene.field("service/shop", PROBLEMS);
    let tells = |words: &[&str]| {
        let what = format!("the Service tells {words:?}");
        until(&what, || words.iter().all(|it| problems().contains(it)));
    };
    // What waits for somebody is tried again at each change of its Service.
    let mut second = 8080;
    let mut asks_for_two = || {
        second += 1;
        let before = second - 1;
        let spec = format!(
            r#"{{"spec": {{"ports": [{{"port": 80, "name": "a"}}, {{"port": {before}, "$patch": "delete"}},
                {{"port": {second}, "name": "b", "targetPort": 80}}]}}}}"#
        );
        cluster.kubectl(&["patch", "service", "shop", "--patch", &spec]);
    };

    // Before anything is made, all that is short is told at once.
    OF_OCTAVIA.iter().for_each(|it| operator.limits(it, 0));
    OF_NEUTRON.iter().for_each(|it| operator.stops(it, true));
    cluster.apply(&deployment("shop", 1));
    cluster.apply(&service("shop", "loadBalancerClass: seaway.dev/octavia, selector: {app: shop}"));
    tells(&[
        "quota set --listener 1",
        "--pool 1",
        "--member 1",
        "--healthmonitor 1",
        "--ports",
        "--floating-ips",
    ]);
    let begun = stage.land.told(&["loadbalancers", "listeners", "pools", "floatingips"]);
    assert!(begun.is_empty(), "{begun:?}");
    OF_OCTAVIA.iter().for_each(|it| operator.limits(it, 1));
    ["port", "floatingip"].iter().for_each(|it| operator.stops(it, false));
    // It has its address; that nothing opens its Node is told.
    let address = stage.address("shop");
    tells(&["security group", "openstack quota set"]);
    operator.stops("security_group", false);
    stage.answers(&format!("http://{address}/"), "shop");
    until("nothing is wrong any more", || !problems().contains("quota"));

    // One port more, one kind after the other: each is told, and the port that is there serves on.
    let made = stage.land.told(&["loadbalancers", "floatingips", "listeners"]);
    for (kind, told) in OF_OCTAVIA.iter().zip(["listener", "pool", "member", "health monitor"]) {
        asks_for_two();
        tells(&[told, "quota set"]);
        stage.answers(&format!("http://{address}/"), "shop");
        operator.limits(kind, -1);
    }
    asks_for_two();
    until("both ports are there", || stage.land.told(&["healthmonitors"]).len() == 2);
    until("nothing is wrong any more", || !problems().contains("quota"));
    let now = stage.land.told(&["loadbalancers", "floatingips", "listeners"]);
    assert!(made.keys().all(|it| now.contains_key(it)), "nothing was made anew: {made:?} {now:?}");
    stage.answers(&format!("http://{address}/"), "shop");

    cluster.kubectl(&["delete", "service", "shop", "--wait=false"]);
    until("nothing is left", || stage.land.has_only(&before));
}
