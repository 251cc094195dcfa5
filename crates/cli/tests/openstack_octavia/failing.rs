//! A service of the cloud that answers 500.

use seaway_testkit::{faults::Fault, gate::CloudGate};

use crate::{
    scene::{deployment, service},
    stage::{Stage, until},
};

const PROBLEMS: &str = "{.status.conditions[?(@.type=='seaway.dev/Problems')].message}";
const OURS: &str = "loadBalancerClass: seaway.dev/octavia, selector: {app: shop}";

#[test]
fn what_neutron_answers_500_to_is_told_and_done_once_it_answers_and_all_else_goes_on() {
    let Some(mut stage) = Stage::set(&[]) else { return };
    stage.land.closed = true;
    stage.land.options = "manage-security-groups=true\n";
    stage.join("a");
    let before = stage.land.everything();
    let gate = CloudGate::before(&[5000, 9876, 9696]);
    stage.lead(&gate.auth_url());
    let cluster = stage.scene.cluster.clone();
    let problems = |of: &str| stage.scene.field(&format!("service/{of}"), PROBLEMS);
    cluster.apply(&deployment("shop", 1));
    cluster.apply(&service("shop", OURS));
    let address = stage.address("shop");
    stage.answers(&format!("http://{address}/"), "shop");

    gate.fail(Fault::on("* */v2.0/*").always().status(500));
    // One more port, and all of another Service, waits for Neutron. (Whether Octavia is told of the port before Neutron is
    // known to be away is up to chance: Octavia itself needs Neutron, so it is not asked to change anything from then on.)
    let port = r#"[{"op": "add", "path": "/spec/ports/-", "value": {"name": "more", "port": 8080, "targetPort": 80}},
        {"op": "add", "path": "/spec/ports/0/name", "value": "web"}]"#;
    cluster.kubectl(&["patch", "service", "shop", "--type", "json", "-p", port]);
    cluster.apply(&service("other", OURS));
    for it in ["shop", "other"] {
        until(&format!("{it} tells of it"), || problems(it).contains("Neutron fails on requests"));
    }
    assert_eq!(stage.scene.field("service/shop", "{.status.loadBalancer.ingress[0].ip}"), address);
    // (For a moment, OVN may have no backend of a load balancer that gets a port.)
    stage.answers(&format!("http://{address}/"), "shop");

    gate.heal();
    stage.answers(&format!("http://{address}:8080/"), "shop");
    let other = stage.address("other");
    stage.answers(&format!("http://{other}/"), "shop");
    until("each port has a monitor", || stage.land.told(&["healthmonitors"]).len() == 3);
    for it in ["shop", "other"] {
        until(&format!("{it} tells of it no more"), || !problems(it).contains("Neutron fails on requests"));
    }
    assert_eq!(stage.land.told(&["floatingips"]).len(), 2, "nothing was made twice");

    cluster.kubectl(&["delete", "service", "shop", "other", "--wait=false"]);
    until("nothing is left", || stage.land.has_only(&before));
}
