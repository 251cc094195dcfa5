//! `kubectl seaway release`: what Seaway gives up is OCCM's again.

use crate::{
    groups::{closed, kinds, targets},
    migration::{Migration, PROBLEMS, service},
    report::report,
    requests::Target,
    stage::until,
};

const NOBODY: &str = "{defaultDriver: none, admin: {listen: [\"127.0.0.1:0\"]}, lease: 30s}";
const FINALIZERS: &str = "{.metadata.finalizers}";
const CLEANUP: &str = "service.kubernetes.io/load-balancer-cleanup";

#[test]
fn what_is_released_is_occms_again_and_it_deletes_nothing() {
    let Some(mut all) = Migration::set("release", closed) else { return };
    all.serve(&kinds());
    all.come_to_seaway();
    // Those that Seaway makes, too.
    let two = "ports: [{name: a, port: 90, targetPort: 80}, {name: b, port: 9090, targetPort: 80}]";
    let made = ["ours", "stays"];
    all.serve(&[
        service("ours", &[("keep-floatingip", "true")], two),
        service("stays", &[], "externalTrafficPolicy: Local, ports: [{port: 90, targetPort: 80}]"),
        service("classed", &[], "loadBalancerClass: seaway.dev/octavia, ports: [{port: 90, targetPort: 80}]"),
    ]);
    let ours = [("ours", 90), ("ours", 9090), ("stays", 90), ("classed", 90)]
        .map(|(name, port)| Target::Tcp(all.at(name, port)));
    let requests = all.send(&[targets(&all), ours.to_vec()].concat());
    // Of a load balancer that is not there any more: OCCM fails on it.
    let stale = "loadbalancer.openstack.org/load-balancer-id=5e1f0c9e-7a1b-4c62-9a39-6d9d3f5f2b11";
    let groups = |all: &Migration| {
        let there = all.stage.land.told(&["security-groups"]);
        let is_ours = |it: &&serde_json::Value| {
            it["description"].as_str().is_some_and(|it| it.contains("seaway.dev/group="))
        };
        there.values().filter(is_ours).count()
    };

    all.stage.scene.end("controller");
    all.stage.scene.configuration = NOBODY;
    all.stage.scene.lead("controller");
    for name in made {
        until(&format!("{name} is released"), || {
            all.field(name, PROBLEMS).contains("no setting chooses the cloud")
        });
    }
    all.stage.scene.cluster.kubectl(&["annotate", "service", "ours", stale]);
    let conf = all.stage.land.conf.path().display().to_string();
    let published = all.at("classed", 90);
    let (done, told) = all.plugin(&["release", "classed", "--cloud-conf", &conf]);
    assert!(!done && told.contains("cannot be changed"), "its class, beforehand: {told}");
    let (done, told) = all.plugin(&["release", "classed", "--cloud-conf", &conf, "--yes"]);
    assert!(done, "{told}");
    let (done, told) = all.plugin(&["release", "--all", "--cloud-conf", &conf]);
    assert!(done && told.contains("load-balancer-id would be corrected"), "{told}");
    assert!(
        told.contains("create-monitor=false") && told.contains("seaway openstack release-group"),
        "{told}"
    );
    // Nothing else lets the requests through yet.
    let (_, told) = all.openstack(&["release-group"]);
    assert!(told.contains("no other security group of port"), "{told}");
    assert_eq!(groups(&all), 1, "{told}");
    let (done, told) = all.plugin(&["release", "--all", "--cloud-conf", &conf, "--yes"]);
    for name in made {
        assert!(done && told.contains(&format!("default/{name}: released")), "{told}");
        assert!(!all.field(name, FINALIZERS).contains(CLEANUP), "{told}");
    }

    // docs/from-occm-back.md: the class goes with the type.
    let went = all.back_to_occm_after(|all| {
        for kind in ["NodePort", "LoadBalancer"] {
            let change = format!(r#"{{"spec": {{"type": "{kind}"}}}}"#);
            all.stage.scene.cluster.kubectl(&["patch", "service", "classed", "-p", &change]);
        }
        all.stage.scene.cluster.kubectl(&["annotate", "service", "classed", "seaway.dev/released-"]);
    });
    until("it is published at the same address", || {
        !all.field("classed", "{.status.loadBalancer.ingress}").is_empty()
    });
    assert_eq!(all.at("classed", 90), published);
    // OCCM's groups are at the same ports now, and ours goes while requests go on.
    until("OCCM's groups let the same through", || {
        !all.openstack(&["release-group"]).1.contains("no other security group of")
    });
    until("the Lease has run out, and it goes", || all.openstack(&["release-group", "--yes"]).0);
    assert_eq!(groups(&all), 0);
    let answers = requests.stop();
    report("release: requests meanwhile", &answers.to_string());
    assert_eq!(went.deletions(), [""; 0]);
    assert_eq!(went.gone(), [""; 0], "what Seaway made is left there");
    for name in &all.services {
        assert!(all.field(name, FINALIZERS).contains(CLEANUP), "OCCM holds {name}");
    }
    assert!(answers.failed.is_empty(), "{answers}");
    all.delete_all();
}
