//! Settings that were lost or mistyped, roles that were taken away: what a cloud has for Services that live stays there.

use seaway_testkit::topology::until;

use crate::{looking::Plugin, octavia::in_a_cloud, scene::*};

const FINALIZERS: &str = "{.metadata.finalizers}";
const CLEANUP: &str = "service.kubernetes.io/load-balancer-cleanup";

const PROBLEMS: &str = "{.status.conditions[?(@.type=='seaway.dev/Problems')].message}";
/// As the base manifests have it.
const NATIVE: &str = "{defaultDriver: native, admin: {listen: [\"127.0.0.1:0\"]}, lease: 15s}";
const NONE: &str = "{admin: {listen: [\"127.0.0.1:0\"]}, lease: 15s}";

#[test]
fn a_default_driver_that_was_lost_deletes_no_load_balancer_and_a_deleted_service_still_takes_its_own_along() {
    let Some((mut scene, project)) = in_a_cloud() else { return };
    scene.nodes = vec![scene.cluster.node("a")];
    let names = ["one", "two", "three"];
    for name in names {
        scene.cluster.apply(&service(name, "selector: {app: shop}"));
    }
    scene.lead("begin");
    let before = names.map(|name| scene.address(name));
    scene.until_served(&names);
    assert_eq!((project.balancers().len(), project.floating().len()), (3, 3));
    scene.end("begin");

    for (leader, lost) in [("none", NONE), ("native", NATIVE)] {
        scene.configuration = lost;
        project.fake.forget_requests();
        scene.lead(leader);
        for name in names {
            let told = || scene.field(&format!("service/{name}"), PROBLEMS).contains("left as it is");
            until("it is told", told);
        }
        // Audits begin with a lead: what they find is looked at before what comes next is served.
        until("it was audited", || project.fake.count("GET */lbaas/loadbalancers*") > 0);
        assert_eq!(project.fake.count("DELETE *"), 0, "{}", scene.log(leader));
        assert_eq!(project.fake.count("PUT */lbaas/*") + project.fake.count("POST */lbaas/*"), 0);
        assert_eq!(names.map(|name| scene.address(name)), before, "with {lost}");
        if leader == "none" {
            scene.end(leader);
        }
    }

    // Who is deleted takes along what it had, and nothing else.
    scene.cluster.kubectl(&["delete", "service", "two"]);
    until("its own is gone", || project.balancers().len() == 2 && project.floating().len() == 2);
    assert_eq!([scene.address("one"), scene.address("three")], [before[0].clone(), before[2].clone()]);

    // Somebody gives one up: it is held no longer, and what the cloud has for it stays until it goes.
    let plugin = Plugin::new();
    let admin = scene.cluster.kubeconfig();
    let (would, note) = plugin.run(admin, "release three");
    assert!(would.contains("default/three: its finalizer would be taken away"), "{would}");
    assert!(note.contains("Nothing was written"), "{note}");
    assert!(scene.field("service/three", FINALIZERS).contains(CLEANUP));
    plugin.run(admin, "release three --yes");
    until("it is released", || scene.field("service/three", FINALIZERS).is_empty());
    assert_eq!(project.balancers().len(), 2);

    // The default comes back, and all goes on.
    scene.end("native");
    scene.configuration = crate::octavia::OCTAVIA;
    scene.lead("again");
    until("it is well again", || {
        ["one", "three"].iter().all(|name| scene.field(&format!("service/{name}"), PROBLEMS).is_empty())
    });
    assert_eq!(project.balancers().len(), 2);
}

#[test]
fn a_controller_that_may_not_ask_for_services_deletes_nothing_and_says_which_right_it_lacks() {
    let Some((mut scene, project)) = in_a_cloud() else { return };
    scene.nodes = vec![scene.cluster.node("a")];
    scene.cluster.apply(&service("shop", "selector: {app: shop}"));
    scene.lead("begin");
    scene.address("shop");
    // The roles of the version before.
    let without = r#"[{"op": "test", "path": "/rules/3/resources/0", "value": "services"},
        {"op": "replace", "path": "/rules/3/verbs", "value": ["patch"]}]"#;
    scene.cluster.kubectl(&["patch", "clusterrole", "seaway-controller", "--type=json", "-p", without]);
    scene.cluster.kubectl(&["delete", "service", "shop", "--wait=false"]);
    until("it says what it waits for", || {
        scene.log("begin").contains("is not removed before the API server says")
    });
    assert_eq!((project.balancers().len(), project.floating().len()), (1, 1));
    let back = without.replace(r#"["patch"]"#, r#"["get", "patch"]"#);
    scene.cluster.kubectl(&["patch", "clusterrole", "seaway-controller", "--type=json", "-p", &back]);
    until("nothing is left", || scene.is_gone("service/shop") && project.balancers().is_empty());
}
