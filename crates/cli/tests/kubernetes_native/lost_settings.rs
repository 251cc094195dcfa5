//! Settings that were lost or mistyped, roles that were taken away: what a cloud has for Services that live stays there.

use seaway_testkit::topology::until;

use crate::{leavings::Seaway, looking::Plugin, octavia::in_a_cloud, scene::*};

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
    // The last was another controller's, whose finalizer it has: its status says nothing of a default that is lost.
    let all = ["one", "two", "three", "adopted"];
    for name in all {
        scene.cluster.apply(&service(name, "selector: {app: shop}"));
    }
    let held = format!(r#"{{"metadata": {{"finalizers": ["{CLEANUP}"]}}}}"#);
    let as_whom = "--field-manager=openstack-cloud";
    scene.cluster.kubectl(&["patch", "service", "adopted", "--type=merge", as_whom, "-p", &held]);
    scene.lead("begin");
    let before = all.map(|name| scene.address(name));
    scene.until_served(&all);
    assert_eq!((project.balancers().len(), project.floating().len()), (4, 4));
    scene.end("begin");
    let plugin = Plugin::new();

    for (leader, lost) in [("none", NONE), ("native", NATIVE)] {
        scene.configuration = lost;
        project.fake.forget_requests();
        scene.lead(leader);
        for name in names {
            let told = || {
                scene
                    .field(&format!("service/{name}"), PROBLEMS)
                    .contains("leaves that load balancer as it is")
            };
            until("it is told", told);
        }
        // Audits begin with a lead: what they find is looked at before what comes next is served.
        until("it was audited", || project.fake.count("GET */lbaas/loadbalancers*") > 0);
        assert_eq!(project.fake.count("DELETE *"), 0, "{}", scene.log(leader));
        assert_eq!(project.fake.count("PUT */lbaas/*") + project.fake.count("POST */lbaas/*"), 0);
        assert_eq!(names.map(|name| scene.address(name)), before[..3], "with {lost}");
        if lost == NONE {
            assert_eq!(scene.address("adopted"), before[3]);
        }
        let status = || plugin.run(scene.cluster.kubeconfig(), "status").0;
        let line = |name: &str| format!("  load balancer of Service default/{name}\n");
        until("all are listed", || all.iter().all(|it| status().contains(&line(it))));
        assert!(status().contains("\nReleased in the cloud: "), "{}", status());
        for words in ["gc", "gc --delete"] {
            let (listed, noted) = Seaway(&scene, &project).run(words);
            for name in all {
                let its = |line: &&str| line.ends_with("  released") && line.contains(&format!("_{name}  "));
                let its: Vec<&str> = listed.lines().filter(its).collect();
                assert_eq!(its.len(), 1, "the load balancer of {name}: {listed}{noted}");
            }
            let addresses =
                listed.lines().filter(|it| it.starts_with("floating IP") && it.ends_with("  released"));
            assert_eq!(addresses.count(), 4, "{listed}");
            assert!(
                noted.contains("8 objects are released: ") && noted.contains("there is nothing to remove"),
                "{noted}"
            );
        }
        assert_eq!(project.fake.count("DELETE *"), 0);
        if leader == "none" {
            scene.end(leader);
        }
    }

    // Who is deleted takes along what it had, and nothing else.
    scene.cluster.kubectl(&["delete", "service", "two"]);
    until("its own is gone", || project.balancers().len() == 3 && project.floating().len() == 3);
    assert_eq!([scene.address("one"), scene.address("three")], [before[0].clone(), before[2].clone()]);

    // Somebody gives one up: it is held no longer, and what the cloud has for it stays until it goes.
    let admin = scene.cluster.kubeconfig();
    let annotate = |what: &str| _ = scene.cluster.kubectl(&["annotate", "service", "three", what]);
    annotate("loadbalancer.openstack.org/load-balancer-id=5e1f0c9e-7a1b-4c62-9a39-6d9d3f5f2b11");
    annotate("seaway.dev/tls=shop-tls");
    let (would, note) = plugin.run(admin, "release three");
    assert!(would.contains("default/three: Seaway would remove the finalizer"), "{would}");
    assert!(
        would.contains("Octavia answers 409") && note.contains("The cloud was not asked"),
        "{would}{note}"
    );
    assert!(note.contains("Nothing was written"), "{note}");
    let its = |name: &str| {
        let all = project.balancers();
        let found = all.iter().find(|it| it.name.ends_with(&format!("_{name}"))).map(|it| it.id.to_string());
        found.expect("it is there")
    };
    let in_cloud = format!("release three --cloud-config {}", project.conf.path().display());
    let (would, _) = plugin.run(admin, &in_cloud);
    let corrected = format!("load-balancer-id would be corrected: {} instead of 5e1f0c9e", its("three"));
    assert!(would.contains(&corrected), "{would}");
    assert!(scene.field("service/three", FINALIZERS).contains(CLEANUP));
    plugin.run(admin, &format!("{in_cloud} --yes"));
    until("it is released", || scene.field("service/three", FINALIZERS).is_empty());
    let named = r"{.metadata.annotations.loadbalancer\.openstack\.org/load-balancer-id}";
    assert_eq!(scene.field("service/three", named), its("three"));
    assert_eq!(project.balancers().len(), 3);
    annotate("seaway.dev/tls-");

    // The default comes back, and all goes on.
    scene.end("native");
    scene.configuration = crate::octavia::OCTAVIA;
    scene.lead("again");
    until("it is well again", || {
        ["one", "three"].iter().all(|name| scene.field(&format!("service/{name}"), PROBLEMS).is_empty())
    });
    assert_eq!(project.balancers().len(), 3);
    let released = || scene.field("configmap/seaway-deletions", "{.data.released}");
    until("nothing is released any more", || released() == "{}");
}

#[test]
fn a_controller_that_may_not_ask_for_services_deletes_nothing_and_says_which_right_it_lacks() {
    let Some((mut scene, project)) = in_a_cloud() else { return };
    scene.nodes = vec![scene.cluster.node("a")];
    scene.cluster.apply(&service("shop", "selector: {app: shop}"));
    scene.lead("begin");
    scene.address("shop");
    // The roles of the version before.
    let without = r#"[{"op": "test", "path": "/rules/0/resources/0", "value": "services"},
        {"op": "replace", "path": "/rules/0/verbs", "value": ["patch"]}]"#;
    scene.cluster.kubectl(&["patch", "clusterrole", "seaway-cloud", "--type=json", "-p", without]);
    scene.cluster.kubectl(&["delete", "service", "shop", "--wait=false"]);
    until("it says what it waits for", || {
        scene.log("begin").contains("is not deleted until the API server confirms")
    });
    assert_eq!((project.balancers().len(), project.floating().len()), (1, 1));
    let back = without.replace(r#"["patch"]"#, r#"["get", "patch"]"#);
    scene.cluster.kubectl(&["patch", "clusterrole", "seaway-cloud", "--type=json", "-p", &back]);
    until("nothing is left", || scene.is_gone("service/shop") && project.balancers().is_empty());
}

/// A copy of a cluster that was made from an old backup has its namespaces, so it tags and finds what the original does.
#[test]
fn a_cluster_restored_from_a_backup_without_a_service_deletes_nothing_of_it_and_says_so() {
    let Some((mut scene, project)) = in_a_cloud() else { return };
    scene.nodes = vec![scene.cluster.node("a")];
    let names = ["one", "two"];
    for name in names {
        scene.cluster.apply(&service(name, "selector: {app: shop}"));
    }
    scene.lead("original");
    let before = names.map(|name| scene.address(name));
    scene.until_served(&names);
    scene.end("original");

    // As if it had never been: nobody of us sees a deletion.
    let free = r#"[{"op": "remove", "path": "/metadata/finalizers"}]"#;
    scene.cluster.kubectl(&["patch", "service", "two", "--type=json", "-p", free]);
    scene.cluster.kubectl(&["delete", "service", "two"]);
    project.fake.forget_requests();
    scene.lead("copy");
    let recorded = |scene: &Scene| {
        let fields = "jsonpath={.data.deletions}{.data.orphans}";
        scene.cluster.kubectl(&["get", "configmap", "seaway-deletions", "--ignore-not-found", "-o", fields])
    };
    until("it is recorded", || recorded(&scene).contains("load balancer of Service default/two"));
    let events = ["get", "events.v1.events.k8s.io", "-o", "jsonpath={.items[*].reason}"];
    until("an event says so", || scene.cluster.kubectl(&events).contains("Orphan"));
    let plugin = Plugin::new();
    let (status, _) = plugin.run(scene.cluster.kubeconfig(), "status");
    assert!(status.contains("Orphans in the cloud") && status.contains("default/two"), "{status}");
    assert_eq!(project.fake.count("DELETE *"), 0, "{}", scene.log("copy"));
    assert_eq!(project.balancers().len(), 2);
    // So that a copy which runs beside it writes nothing.
    until("its heartbeat is at a port", || project.fake.count("PUT */ports/*/tags") > 0);
    let heartbeats = ["get", "configmap", "seaway-deletions", "-o", "jsonpath={.data.heartbeats}"];
    until("it is recorded", || scene.cluster.kubectl(&heartbeats).contains(".1\""));
    assert_eq!(scene.address("one"), before[0]);

    // Whose deletion is seen goes, and is remembered by who leads next.
    let uid = scene.field("service/one", "{.metadata.uid}");
    scene.cluster.kubectl(&["delete", "service", "one"]);
    until("its own is gone", || project.balancers().len() == 1);
    until("it is remembered", || recorded(&scene).contains(&uid));
    scene.end("copy");

    // Somebody says that orphans go.
    scene.configuration = crate::octavia::DELETING;
    scene.lead("next");
    until("nothing is left", || project.balancers().is_empty() && project.floating().is_empty());
    until("nor reported", || !recorded(&scene).contains("default/two"));
    assert!(recorded(&scene).contains(&uid), "over a restart: {}", recorded(&scene));
}

#[test]
fn what_is_deleted_though_no_service_was_stops_at_a_limit_over_restarts_until_somebody_says_yes() {
    let Some((mut scene, project)) = in_a_cloud() else { return };
    let names = ["one", "two", "three", "four", "five"];
    for name in names {
        scene.cluster.apply(&service(name, "selector: {app: shop}"));
    }
    scene.lead("begin");
    names.iter().for_each(|name| _ = scene.address(name));
    // Somebody's tool makes all of them another type.
    for name in names {
        scene.cluster.kubectl(&["patch", "service", name, "-p", r#"{"spec": {"type": "ClusterIP"}}"#]);
    }
    let limited = |scene: &Scene, name: &str| {
        let told =
            format!("Service default/{name}: the load balancer is not deleted now: within the last hour");
        let what = ["get", "configmap", "seaway-deletions", "-o", "jsonpath={.data.orphans}"];
        scene.cluster.kubectl(&what).contains(&told)
    };
    let waiting = |scene: &Scene| names.into_iter().filter(|it| limited(scene, it)).collect::<Vec<_>>();
    until("the limit is reached", || project.balancers().len() == 2 && waiting(&scene).len() == 2);
    let events = ["get", "events.v1.events.k8s.io", "-o", "jsonpath={.items[*].reason}"];
    until("an event says so", || scene.cluster.kubectl(&events).contains("DeletionLimit"));
    let conditions = |scene: &Scene| {
        let said = |it: &&str| {
            scene.field(&format!("service/{it}"), PROBLEMS).contains("DeletionLimit: Service default/")
        };
        names.into_iter().filter(said).collect::<Vec<_>>()
    };
    until("a condition says so", || conditions(&scene) == waiting(&scene));
    let counted = |scene: &Scene, leader: &str| {
        let page = format!("{}metrics", scene.page(leader));
        let metrics = std::process::Command::new("curl").args(["-sS", &page]).output().expect("curl");
        let metrics = String::from_utf8_lossy(&metrics.stdout).into_owned();
        metrics.contains("seaway_problems{reason=\"DeletionLimit\"} 2\n")
    };
    until("a metric says so", || counted(&scene, "begin"));

    // Whoever leads next does not begin at nothing.
    scene.end("begin");
    project.fake.forget_requests();
    scene.lead("next");
    until("it is told", || waiting(&scene).len() == 2 && scene.log("next").contains("that is the limit"));
    assert_eq!(project.fake.count("DELETE */lbaas/*"), 0);
    assert_eq!(project.balancers().len(), 2);
    until("a metric says so", || counted(&scene, "next"));
    assert_eq!(conditions(&scene), waiting(&scene));

    // An operator's yes names what may go.
    let [yes, no] = waiting(&scene)[..] else { panic!("two wait") };
    let soon = std::time::SystemTime::now() + std::time::Duration::from_secs(3_600);
    let soon = jiff::Timestamp::try_from(soon).expect("a time");
    let approval = format!("seaway.dev/approved-deletions=default/{yes} until {soon}");
    scene.cluster.kubectl(&["annotate", "configmap", "seaway-deletions", &approval]);
    until("it goes", || project.balancers().len() == 1);
    assert!(project.balancers()[0].name.ends_with(no), "{:?}", project.balancers()[0].name);
    until("it says so no more", || conditions(&scene) == [no]);
}
