//! etcd is set back to a backup while every process of Seaway runs.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use seaway_testkit::{
    kubernetes::{Backup, Cluster},
    topology::{until, until_within},
};

use crate::{
    scene::{A_TERM, Scene, deployment, service},
    silent::asking,
};

/// By then all is as the restored cluster says.
struct Deadline(Instant);

impl Deadline {
    fn begins() -> Deadline {
        Deadline(Instant::now() + Duration::from_secs(60))
    }

    #[track_caller]
    fn until(&self, what: &str, ready: impl FnMut() -> bool) {
        until_within(self.0.saturating_duration_since(Instant::now()), what, ready);
    }
}

fn owners(scene: &Scene) -> BTreeSet<String> {
    let path = "jsonpath={range .items[*]}{.spec.address}={.spec.owners[*].name} {end}";
    // The API server may be away.
    let told = scene.cluster.try_kubectl(&["get", "addresses", "-o", path], "").unwrap_or_default();
    told.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn an_etcd_set_back_is_survived_without_restarts_and_nothing_is_given_twice() {
    survives(Cluster::set_back);
}

#[test]
fn an_etcd_set_back_with_its_revision_bumped_is_survived_without_restarts_and_nothing_is_given_twice() {
    survives(Cluster::set_back_with_greater_versions);
}

fn survives(set_back: impl FnOnce(&Cluster, &Backup)) {
    let Some(scene) = Scene::up(2) else { return };
    scene.cluster.apply(&deployment("shop", 2));
    let of_shop = "selector: {app: shop}, ipFamilyPolicy: SingleStack, ipFamilies: [IPv4]";
    scene.cluster.apply(&service("shop", of_shop));
    scene.cluster.apply(&service("gone", of_shop));
    scene.cluster.kubectl(&["rollout", "status", "deployment/shop", "--timeout", "180s"]);
    let shop = scene.answering("shop").ip().to_string();
    let gone = scene.address("gone");
    let asked = |at: &str| scene.outside.curl(&format!("http://{at}/"));
    let answers = |at: &str| asked(at).is_ok_and(|it| it.starts_with("shop-"));
    until("both answer", || answers(&shop) && answers(&gone));

    let backup = scene.cluster.back_up();
    // What happens from now on never was: one goes, another has its address, and there are more versions than before.
    scene.cluster.kubectl(&["delete", "service", "gone"]);
    until_within(A_TERM, "its address is free", || {
        scene.is_gone(&format!("address/{}", gone.replace('.', "-")))
    });
    for at in 0..3 {
        scene.cluster.apply(&service(&format!("late-{at}"), of_shop));
    }
    let late: Vec<String> = (0..3).map(|at| scene.address(&format!("late-{at}"))).collect();
    assert!(late.contains(&gone), "the lowest that is free: {late:?}");
    until("all answer", || late.iter().all(|it| answers(it)));

    set_back(&scene.cluster, &backup);
    // It answers again: for all that follows there is one minute.
    let deadline = Deadline::begins();
    let wanted: BTreeSet<String> = [format!("{shop}=shop"), format!("{gone}=gone")].into();
    deadline.until("addresses are whose they were", || owners(&scene) == wanted);
    deadline.until("what was told in time is served", || answers(&shop) && answers(&gone));
    for at in late.iter().filter(|it| **it != gone) {
        deadline.until(&format!("{at} is served no more"), || asked(at).is_err());
    }
    let ready = "{.status.conditions[?(@.type==\"seaway.dev/Ready\")].status}";
    for name in ["shop", "gone"] {
        deadline
            .until(&format!("{name} is ready"), || scene.field(&format!("service/{name}"), ready) == "True");
    }
    // Life goes on: one more has an address of its own, which hosts serve.
    scene.cluster.apply(&service("next", of_shop));
    let next = scene.address("next");
    assert!(next != shop && next != gone, "{next} was given twice");
    // By endpoints that the cluster's own controllers made afterwards, too.
    let slices = "jsonpath={range .items[*]}{.metadata.name}={.endpoints[*].addresses[0]} {end}";
    until_within(A_TERM, "the endpoints of the new one are written", || {
        let told =
            scene.cluster.try_kubectl(&["get", "endpointslices", "-o", slices], "").unwrap_or_default();
        told.split_whitespace().any(|it| it.starts_with("next-") && !it.ends_with('='))
    });
    until_within(A_TERM, "the new one answers", || answers(&next));
    until_within(A_TERM, "hosts say how far they are by the versions of now", || {
        let newest = scene.field("addresses", "{.items[*].metadata.resourceVersion}");
        let newest = newest.split_whitespace().filter_map(|it| it.parse::<u64>().ok()).max();
        let applied = scene.field("loadbalancerhosts", "{.items[*].status.applied}");
        let applied: Vec<u64> = applied.split_whitespace().filter_map(|it| it.parse().ok()).collect();
        applied.len() == 2 && applied.iter().all(|it| Some(*it) == newest)
    });
    let wanted: BTreeSet<String> = wanted.into_iter().chain([format!("{next}=next")]).collect();
    assert_eq!(owners(&scene), wanted, "nothing moved, and nobody has two");
    for process in ["controller", "a", "b"] {
        let log = scene.log(process);
        assert_eq!(log.matches("seaway starts").count(), 1, "{process} was not started again");
        assert!(log.contains("etcd was restored to an older state"), "{process}: {log}");
    }
}

#[test]
fn an_address_of_the_lost_time_is_nobodys_until_a_host_that_was_cut_off_has_let_it_go() {
    let Some(scene) = Scene::up(2) else { return };
    scene.cluster.apply(&deployment("shop", 2));
    let of_shop = "selector: {app: shop}, ipFamilyPolicy: SingleStack, ipFamilies: [IPv4]";
    scene.cluster.apply(&service("shop", of_shop));
    scene.answering("shop");
    let backup = scene.cluster.back_up();
    scene.cluster.apply(&service("late", of_shop));
    let late = scene.address("late");
    let has_it = |host: usize| scene.nodes[host].namespace().ip(&["address", "show", "lo"]).contains(&late);
    until("both hosts have it", || has_it(0) && has_it(1));

    scene.pause("b");
    scene.cluster.set_back(&backup);
    until_within(A_TERM, "the other host has let it go", || !has_it(0));
    // The lowest that is free would be it.
    scene.cluster.apply(&service("next", of_shop));
    assert_ne!(scene.address("next"), late, "b may answer there");
    scene.cluster.apply(&asking("other", &late));
    let problems = "{.status.conditions[?(@.type==\"seaway.dev/Problems\")].message}";
    until_within(A_TERM, "whoever asks for it is told to wait", || {
        scene.field("service/other", problems).contains("is being released")
    });
    assert!(has_it(1) && scene.field("service/other", "{.status.loadBalancer.ingress}").is_empty());

    scene.resume("b");
    until_within(A_TERM, "it is the other's", || {
        scene.field("service/other", "{.status.loadBalancer.ingress[0].ip}") == late
    });
    until("only those have it who serve it", || has_it(0) && has_it(1));
}
