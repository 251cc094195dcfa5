//! Whoever asks is answered, whatever is restarted behind it.

use std::{collections::BTreeSet, time::Instant};

use crate::{
    load::Load,
    scene::{Scene, deployment, service},
};

#[test]
fn a_rolling_restart_of_ten_pods_costs_no_request() {
    let Some(scene) = Scene::up(2) else { return };
    scene.cluster.apply(&deployment("shop", 10));
    scene.cluster.apply(&service("shop", "selector: {app: shop}"));
    let at = scene.answering("shop");
    scene.cluster.kubectl(&["rollout", "status", "deployment/shop", "--timeout", "180s"]);
    let pods = || -> BTreeSet<String> {
        let names = ["get", "pods", "-l", "app=shop", "-o", "jsonpath={.items[*].metadata.name}"];
        scene.cluster.kubectl(&names).split_whitespace().map(str::to_owned).collect()
    };
    let old = pods();
    assert_eq!(old.len(), 10);
    let (began, rate) = (Instant::now(), 500);
    let load = Load::start(&scene.outside, at, rate);
    load.goes_on("the old pods answer", 500);
    scene.cluster.kubectl(&["rollout", "restart", "deployment/shop"]);
    scene.cluster.kubectl(&["rollout", "status", "deployment/shop", "--timeout", "300s"]);
    load.goes_on("the new pods answer", 1_000);
    let heard = load.end();
    heard.was_always_answered();
    let (asked, wanted) = (heard.answered(), began.elapsed().as_secs_f64() * f64::from(rate));
    assert!(asked as f64 > wanted / 2.0, "this machine is too slow to ask so often: {asked} of {wanted}");
    let answered: BTreeSet<String> = heard.answers.into_keys().collect();
    assert!(answered.difference(&old).count() >= 9, "{answered:?} after {old:?}");
}
