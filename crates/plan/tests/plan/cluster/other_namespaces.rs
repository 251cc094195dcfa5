//! Who may read one namespace learns no names of what others have.

use std::sync::Arc;

use seaway_model::{
    Config, Reason,
    config::AddressPoolRules,
    fact::{Service, TargetPort},
};
use seaway_plan::{Roles, World, dry_run};
use seaway_testkit::facts::{pool, put, service, synced};

use super::scene::{OnHost, PUBLIC};

fn sharing(namespace: &str, name: &str, ports: &[u16]) -> Service {
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    let ports: Vec<_> =
        ports.iter().map(|it| (it.as_str(), it.parse().expect("a port"), TargetPort::Number(8080))).collect();
    let mut it = service(name, &ports);
    it.meta.namespace = namespace.into();
    for (key, value) in [("seaway.dev/share", "web"), ("seaway.dev/share-across-namespaces", "*")] {
        it.meta.annotations.insert(key.into(), value.into());
    }
    it
}

#[test]
fn whoever_has_a_port_of_a_shared_address_is_named_within_its_namespace_alone() {
    for (pools, namespace, told) in [
        (AddressPoolRules::default(), "other", "Service shop/secret"),
        (AddressPoolRules::CLUSTER, "shop", "Service shop/secret"),
        (AddressPoolRules::CLUSTER, "other", "a Service of another namespace"),
    ] {
        let config = Config { pools, ..Config::default() };
        let mut world =
            World::new(Roles { allocate: true, host: None }, vec![Arc::new(OnHost)], Arc::new(config));
        let first = [pool(PUBLIC), put(&sharing("shop", "secret", &[80]))];
        dry_run(
            &mut world,
            first.into_iter().chain([put(&sharing(namespace, "web", &[81]))]).chain(synced()),
        );
        dry_run(&mut world, vec![put(&sharing(namespace, "web", &[81, 80]))]);
        let problems: Vec<_> =
            world.problems().into_iter().filter(|it| it.reason == Reason::PortConflict).collect();
        let [problem] = &problems[..] else { panic!("{problems:?}") };
        assert_eq!(problem.object.name.as_str(), "web");
        assert_eq!(problem.message, format!("port 80/TCP on 192.0.2.10 is already used by {told}"));
    }
}
