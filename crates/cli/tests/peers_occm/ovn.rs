//! What load balancers of OVN can do: TCP and UDP, while requests go through all of them.

use crate::{
    migration::{Migration, service},
    report::report,
    requests::Target,
    scene::deployment,
    stage::Stage,
    tree::beyond_tags,
};

const WEB: &str = "ports: [{port: 90, targetPort: 80}]";
const LOCAL: &str = "externalTrafficPolicy: Local, ports: [{port: 90, targetPort: 80}]";

fn kinds() -> Vec<(&'static str, String)> {
    let internal = "service.beta.kubernetes.io/openstack-internal-load-balancer";
    let two = "ports: [{name: a, port: 90, targetPort: 80}, {name: b, port: 9090, targetPort: 80}]";
    let both =
        "ports: [{name: u, port: 5007, targetPort: 7, protocol: UDP}, {name: t, port: 5007, targetPort: 80}]";
    vec![
        service("two", &[("keep-floatingip", "true")], two),
        service("local", &[], LOCAL),
        service("both", &[], both),
        service("other", &[("enable-health-monitor", "true")], WEB),
        service("internal", &[(internal, "true")], WEB),
        service(
            "ranges",
            &[],
            "loadBalancerSourceRanges: [172.24.4.0/24], ports: [{port: 90, targetPort: 80}]",
        ),
        lone(),
        service("requested", &[], WEB),
        service("sticky", &[], WEB),
        service("families", &[], "ipFamilyPolicy: PreferDualStack, ports: [{port: 90, targetPort: 80}]"),
        service("first", &[], WEB),
    ]
}

/// What OCCM does at creation alone, and only once asks for.
const LATER: [(&str, &str); 2] = [
    ("requested", r#"{"spec": {"loadBalancerIP": "172.24.4.99"}}"#),
    ("sticky", r#"{"spec": {"sessionAffinity": "ClientIP"}}"#),
];

/// Its pod is on one of the Nodes, and OCCM has both as members.
fn lone() -> (&'static str, String) {
    let (name, manifest) = service("lone", &[], LOCAL);
    (name, manifest.replace("app: shop", "app: lone"))
}

#[test]
fn services_of_ovn_go_from_occm_to_seaway_and_back_without_a_lost_request() {
    let prepare = |stage: &mut Stage| {
        ["a", "b"].iter().for_each(|it| stage.join(it));
        stage.land.monitors = "";
    };
    walk("ovn", prepare);
}

#[test]
fn with_create_monitor_services_of_ovn_go_there_and_back_without_a_lost_request() {
    walk("ovn-monitors", |stage| ["a", "b"].iter().for_each(|it| stage.join(it)));
}

fn walk(role: &'static str, prepare: impl FnOnce(&mut Stage)) {
    let Some(mut all) = Migration::set(role, prepare) else { return };
    all.stage.scene.cluster.apply(&deployment("lone", 1));
    all.serve(&kinds());
    all.serve_on("first", "second", "ports: [{port: 81, targetPort: 80}]");
    for (name, change) in LATER {
        all.edit(name, change);
    }
    let requests = all.send(&[
        Target::Tcp(all.at("two", 90)),
        Target::Tcp(all.at("two", 9090)),
        Target::Tcp(all.at("local", 90)),
        Target::Tcp(all.at("both", 5007)),
        Target::Tcp(all.at("other", 90)),
        Target::Tcp(all.at("ranges", 90)),
        Target::Tcp(all.at("requested", 90)),
        Target::Tcp(all.at("sticky", 90)),
        Target::Tcp(all.at("families", 90)),
        Target::Tcp(all.at("first", 90)),
        Target::Tcp(all.at("second", 81)),
        Target::Udp(all.at("both", 5007)),
    ]);
    let came = all.come_to_seaway();
    // OCCM comes back to a port with tags that it does not know.
    all.until_a_heartbeat();
    let went = all.back_to_occm();
    let answers = requests.stop();
    report(&format!("{role}: requests meanwhile"), &answers.to_string());

    assert_eq!(beyond_tags(&came.seen), [""; 0]);
    assert_eq!(came.written_beyond(&[]), [""; 0], "nothing is written once more as it is, such as members");
    assert_eq!(went.seen, [""; 0]);
    assert_eq!(went.deletions(), [""; 0]);
    assert!(answers.failed.is_empty(), "{answers}");
    // What Seaway served is OCCM's again, to its end.
    all.delete_all();
}
