//! What the configuration of a cloud says of Services that say nothing.

use seaway_model::{
    config::{CloudDefaults, CloudNetworks},
    load_balancer::{CloudOptions, CloudTimeouts, LoadBalancer},
};
use seaway_testkit::facts::put;
use std::sync::Arc;

use super::clouds::{clouded, planned, usual, world};

fn of(usual: CloudDefaults, annotations: &[(&str, &str)]) -> (Arc<LoadBalancer>, CloudOptions) {
    let service = clouded(annotations);
    let it = planned(&world(usual, vec![put(&service)]), &service);
    let outside = it.options.cloud.clone().expect("a cloud is asked");
    (it, outside)
}

#[test]
fn a_class_may_have_no_floating_ips_unless_its_service_says_otherwise() {
    let inside = CloudNetworks { internal: Some(true), ..CloudNetworks::default() };
    let usual = || CloudDefaults { classes: [("inside".into(), inside.clone())].into(), ..usual() };
    let class = ("loadbalancer.openstack.org/class", "inside");
    assert!(!of(usual(), &[]).1.internal);
    assert!(of(usual(), &[class]).1.internal);
    assert!(!of(usual(), &[class, ("seaway.dev/internal", "false")]).1.internal);
}

#[test]
fn timeouts_and_limits_are_usual_until_a_service_says_its_own() {
    let usual = || CloudDefaults {
        timeouts: CloudTimeouts { client_data: Some(7), member_data: Some(8), ..CloudTimeouts::default() },
        connections: Some(9),
        ..usual()
    };
    let limit = |it: &LoadBalancer| it.listeners.values().next().expect("a listener").limits.connections;
    let (it, outside) = of(usual(), &[("loadbalancer.openstack.org/timeout-client-data", "70")]);
    assert_eq!((outside.timeouts.client_data, outside.timeouts.member_data), (Some(70), Some(8)));
    assert_eq!(limit(&it), Some(9));
    let (it, _) = of(usual(), &[("loadbalancer.openstack.org/connection-limit", "-1")]);
    assert_eq!(limit(&it), None, "none by choice");
}
