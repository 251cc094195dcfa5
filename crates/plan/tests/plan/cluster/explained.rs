//! What people are told of who serves a Service: a cloud, hosts, or another controller.

use std::sync::Arc;

use seaway_model::{
    Change, Config,
    config::{CloudDefaults, OpenPolicy},
    fact::{FinalizerOwner, Service, ServiceKind},
};
use seaway_plan::{Roles, ServiceKey, World, dry_run, explain::explain};
use seaway_testkit::facts::{HOST, ip, put, shop, synced};

use super::clouds::{InCloud, clouded, usual, world};

const CLASS: &str = "seaway.dev/somecloud";

/// `cloud`: whether Services without a class are its; `native`: whether they are the hosts'.
fn told(service: &Service, host: Option<&str>, cloud: bool, native: bool) -> String {
    let usual = CloudDefaults { classless: cloud, ..CloudDefaults::default() };
    let clouds = [(CLASS.into(), Arc::new(usual))].into();
    let mut config = Config { classless: native, clouds, ..Config::default() };
    config.front_door.opens = OpenPolicy::Never;
    let roles = Roles { allocate: true, host: host.map(Into::into) };
    let placements: Vec<Arc<dyn seaway_plan::Placement>> = vec![Arc::new(InCloud)];
    let mut world = World::new(roles, placements, Arc::new(config));
    let changes: Vec<Change> = vec![put(service)];
    dry_run(&mut world, changes.into_iter().chain(synced()));
    explain(&world, &ServiceKey::new("default", "shop")).expect("it is there")
}

fn classless() -> Service {
    Service { class: None, ..clouded(&[]) }
}

#[test]
fn a_service_that_a_cloud_serves_is_told_so_with_or_without_a_class() {
    let at = ip("203.0.113.9");
    for service in [clouded(&[]), classless()] {
        let service = Service { published: vec![at], ..service };
        let told = told(&service, None, true, false);
        assert!(told.contains(&format!("served by a load balancer of the cloud ({CLASS})")), "{told}");
        assert!(told.contains("203.0.113.9  given by the cloud"), "{told}");
        assert!(!told.contains("not served") && !told.contains("not of type LoadBalancer"), "{told}");
    }
}

#[test]
fn a_service_that_is_left_as_it_is_in_a_cloud_is_told_so() {
    let service = Service { held: FinalizerOwner::ByUs, ..classless() };
    for native in [false, true] {
        let told = told(&service, None, false, native);
        assert!(told.contains("no setting chooses the cloud") && told.contains("stays as it is"), "{told}");
        assert!(!told.contains("somebody else's") && !told.contains("not served"), "{told}");
    }
    let told = told(&clouded(&[("seaway.dev/released", "true")]), None, true, false);
    assert!(
        told.contains("is left to another controller, and stays as it is") && !told.contains("not served"),
        "{told}"
    );
}

#[test]
fn a_load_balancer_that_is_served_by_none_of_us_is_told_why_and_is_called_one() {
    let leaving = Service { leaving: true, held: FinalizerOwner::ByUs, ..clouded(&[]) };
    let other = Service { class: Some("other/lb".into()), ..shop() };
    let plain = Service { kind: ServiceKind::ClusterIp, ..classless() };
    for (case, told, part) in [
        ("leaving", told(&leaving, None, true, false), "the Service is being deleted, and stays until"),
        ("of nobody", told(&classless(), None, false, false), "the Service has no spec.loadBalancerClass"),
        ("on a host", told(&classless(), Some(HOST), true, false), "a cloud serves the Service"),
        (
            "another's",
            told(&other, None, true, true),
            "the loadBalancerClass of the Service belongs to another controller; Seaway serves seaway.dev/native, ",
        ),
        ("no load balancer", told(&plain, None, true, true), "the Service is not of type LoadBalancer"),
    ] {
        assert!(told.contains(&format!("not served: {part}")), "{case}: {told}");
        assert_eq!(
            told.contains("the Service is not of type LoadBalancer"),
            case == "no load balancer",
            "{case}: {told}"
        );
    }
}

#[test]
fn of_endpoints_whose_nodes_are_the_members_none_is_told_by_itself() {
    let shop = clouded(&[]);
    let world = world(usual(), vec![put(&shop)]);
    let told = explain(&world, &ServiceKey::new("default", "shop")).expect("it is there");
    assert!(told.contains("1 endpoints, not used themselves: Nodes are the members"), "{told}");
    assert!(!told.contains("10.1.0.9"), "{told}");
}
