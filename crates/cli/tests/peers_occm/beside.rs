//! A Service with a class of ours, beside a running OCCM: that has nothing to do with it, also when it is deleted.

use crate::{
    occm::Occm,
    stage::{AUTH_URL, Stage, until},
};

const CONFIGURATION: &str = "{adopt: {besideOccm: true}, admin: {listen: [\"127.0.0.1:0\"]}, lease: 30s}";
const FINALIZERS: &str = "{.metadata.finalizers[*]}";
const ADDRESS: &str = "{.status.loadBalancer.ingress[0].ip}";

#[test]
fn occm_deletes_nothing_of_a_service_with_a_class_and_does_not_let_it_go() {
    let Some(program) = Occm::program() else { return };
    let Some(mut stage) = Stage::set(&["a"]) else { return };
    stage.scene.install();
    stage.scene.configuration = CONFIGURATION;
    stage.scene.cluster_name = "seven";
    stage.land.provider = "lb-provider=ovn\nlb-method=SOURCE_IP_PORT\n";
    stage.land.write_conf(AUTH_URL, &stage.land.project.password());
    stage.scene.cloud = Some(stage.land.conf.path().to_owned());
    let _occm = Occm::start(&program, &stage);
    stage.scene.lead("controller");
    for (name, class) in [("theirs", ""), ("shop", "loadBalancerClass: seaway.dev/octavia, ")] {
        stage.scene.cluster.apply(&format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\n\
             spec: {{type: LoadBalancer, {class}selector: {{app: shop}}, ports: [{{port: 80}}]}}\n"
        ));
    }
    for (name, finalizer) in [
        ("theirs", "service.kubernetes.io/load-balancer-cleanup"),
        ("shop", "seaway.dev/load-balancer-cleanup"),
    ] {
        until(&format!("{name} has an address"), || {
            !stage.scene.field(&format!("service/{name}"), ADDRESS).is_empty()
        });
        assert_eq!(stage.scene.field(&format!("service/{name}"), FINALIZERS), finalizer);
    }
    stage.land.at_rest(|all| !all.is_empty());

    // Nobody of us runs, and OCCM has done with what was deleted after it.
    stage.scene.end("controller");
    stage.scene.cluster.kubectl(&["delete", "service", "shop", "--wait=false"]);
    stage.scene.cluster.kubectl(&["delete", "service", "theirs"]);
    assert_eq!(stage.scene.field("service/shop", FINALIZERS), "seaway.dev/load-balancer-cleanup");
    assert_eq!(stage.land.told(&["loadbalancers"]).len(), 1, "that of shop");

    stage.scene.lead("controller");
    until("its load balancer and the Service are gone", || {
        stage.scene.is_gone("service/shop") && stage.land.told(&["loadbalancers"]).is_empty()
    });
}
