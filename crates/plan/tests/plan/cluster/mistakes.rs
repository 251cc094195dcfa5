//! Mistakes in what a Service says of a cloud: what decides who may reach it is never guessed.

use std::sync::Arc;

use seaway_model::{
    Desired, L4, ListenerId, Name, NodeSecurityGroup, Reason,
    config::CloudDefaults,
    fact::ServicePort,
    load_balancer::{Action, CloudOptions, CloudTlsOptions, TlsProfile},
};
use seaway_plan::World;
use seaway_testkit::facts::{owner, put};

use super::clouds::{clouded, group, planned, usual, world};

const INTERNAL: &str = "service.beta.kubernetes.io/openstack-internal-load-balancer";
const CLASS: &str = "loadbalancer.openstack.org/class";

fn outside(usual: CloudDefaults, annotations: &[(&str, &str)]) -> (World, CloudOptions) {
    let shop = clouded(annotations);
    let world = world(usual, vec![put(&shop)]);
    let outside = planned(&world, &shop).options.cloud.clone().expect("a cloud is asked");
    (world, outside)
}

fn opened(world: &World) -> Arc<NodeSecurityGroup> {
    match world.desire(&group()) {
        Desired::SecurityGroup(it) => it,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_unknown_class_and_an_unclear_internal_annotation_create_and_open_nothing() {
    for (key, value) in [
        (CLASS, "silver"),
        (INTERNAL, "ture"),
        ("seaway.dev/internal", "maybe"),
        ("seaway.dev/source-ranges", "10.0.0/8"),
        ("service.beta.kubernetes.io/load-balancer-source-ranges", "192.0.2.0/24,10.0.0/8"),
    ] {
        let (world, it) = outside(CloudDefaults { groups: true, ..usual() }, &[(key, value)]);
        assert!(it.off, "{key}: {value}");
        let problems = world.problems();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert_eq!(problems[0].reason, Reason::BadAnnotation);
        assert!(problems[0].message.contains("nothing is created or changed"), "{}", problems[0].message);
        assert_eq!(problems[0].field, Name::from(format!("metadata.annotations[{key}]")));
        assert!(opened(&world).openings[&owner(&clouded(&[]))].frozen, "{key}: {value}");
    }
    let (world, it) = outside(CloudDefaults { groups: true, ..usual() }, &[(CLASS, "gold")]);
    assert!(!it.off && !opened(&world).openings[&owner(&clouded(&[]))].frozen);
    // The field says it alone: what the annotation says counts for nothing.
    let mut shop = clouded(&[("seaway.dev/source-ranges", "10.0.0/8")]);
    shop.source_ranges = vec!["192.0.2.0/24".parse().expect("a network")];
    let it = super::clouds::world(usual(), vec![put(&shop)]);
    assert!(!planned(&it, &shop).options.cloud.as_ref().expect("a cloud is asked").off);
    let (world, _) = outside(usual(), &[(CLASS, "silver")]);
    assert!(world.problems()[0].fix.contains("gold"), "{:?}", world.problems());
}

#[test]
fn what_no_cloud_asks_of_clients_creates_and_opens_nothing() {
    for (say, asks) in [("seaway.dev/basic-auth", "users"), ("seaway.dev/forward-auth", "auth:80/check")] {
        for more in [&[][..], &[("seaway.dev/protocol", "http")], &[("seaway.dev/front-door", "true")]] {
            let (world, it) =
                outside(CloudDefaults { groups: true, ..usual() }, &[more, &[(say, asks)]].concat());
            assert!(it.off, "{say} {more:?}");
            assert!(opened(&world).openings[&owner(&clouded(&[]))].frozen, "{say} {more:?}");
            let problems = world.problems();
            let is_told = problems.iter().any(|it| {
                it.reason == Reason::Unsupported
                    && it.message.contains("nothing is created or changed")
                    && it.field.contains(say)
            });
            assert!(is_told, "{say} {more:?}: {problems:?}");
        }
    }
}

#[test]
fn a_configuration_that_is_refused_is_told_with_its_line() {
    let why = "cloud.conf:7: [LoadBalancer] internal-lb: \"ture\" is neither true nor false";
    let refused =
        CloudDefaults { absent: true, enabled: false, refused: Some(why.into()), ..CloudDefaults::default() };
    let (world, it) = outside(refused, &[]);
    assert!(it.off);
    let problems = world.problems();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].message.contains(why), "{}", problems[0].message);
}

#[test]
fn what_is_asked_for_and_not_done_in_a_cloud_is_told() {
    for (key, value, expected) in [
        ("seaway.dev/timeout-idle", "5s", "cannot do this"),
        ("seaway.dev/slow-start", "5s", "cannot do this"),
        ("seaway.dev/share", "a", "cannot do this"),
        ("seaway.dev/backend-tls", "true", "cannot do this"),
        ("seaway.dev/address", "192.0.2.1,192.0.2.2", "only the first is requested"),
        ("loadbalancer.openstack.org/lb-method", "SOURCE_IP_PORT", "ROUND_ROBIN is used instead"),
        ("seaway.dev/hsts", "1h", "it is about TLS"),
        ("seaway.dev/tls-profile", "modern", "it is about TLS"),
        ("seaway.dev/https-redirect", "true", "it is about TLS"),
        ("seaway.dev/strip-prefix", "true", "it is about the front door"),
        ("seaway.dev/health-check-send", "ping", "choose what their probes send"),
    ] {
        let (world, _) = outside(usual(), &[(key, value)]);
        let problems = world.problems();
        assert_eq!(problems.len(), 1, "{key}: {problems:?}");
        assert!(problems[0].message.contains(expected), "{key}: {}", problems[0].message);
        assert_eq!(problems[0].field, Name::from(format!("metadata.annotations[{key}]")));
    }
    let ovn = CloudDefaults { provider: "ovn".into(), ..usual() };
    let method = "loadbalancer.openstack.org/lb-method";
    assert!(outside(ovn, &[(method, "SOURCE_IP_PORT")]).0.problems().is_empty());
}

/// Members of a port in plaintext follow, whatever becomes of it: it leads to them as ever.
#[test]
fn how_tls_is_spoken_and_who_is_sent_to_https_is_asked_of_a_cloud() {
    let mut shop = clouded(&[
        ("seaway.dev/tls-container", "443:http://barbican/v1/secrets/x"),
        ("seaway.dev/protocol", "http"),
        ("seaway.dev/https-redirect", "true"),
        ("seaway.dev/tls-profile", "modern"),
        ("seaway.dev/hsts", "1h"),
    ]);
    let https = ServicePort { name: "https".into(), port: 443, ..shop.ports[0].clone() };
    shop.ports.push(https);
    let it = super::clouds::world(usual(), vec![put(&shop)]);
    assert_eq!(it.problems(), []);
    let planned = planned(&it, &shop);
    let outside = planned.options.cloud.as_ref().expect("a cloud is asked");
    assert_eq!(outside.tls_terms, CloudTlsOptions { profile: TlsProfile::Modern, hsts: Some(3_600) });
    let open = ListenerId { l4: L4::Tcp, port: shop.ports[0].port };
    assert_eq!(outside.to_https, [open].into());
    assert!(matches!(planned.listeners[&open].rules[0].action, Action::Forward(_)));
    // In a cloud as elsewhere, where clients are to show certificates, somebody has to vouch for them.
    let (_, it) = self::outside(usual(), &[("seaway.dev/client-certificates", "required")]);
    assert!(it.clients.unvouched);
}

#[test]
fn a_network_beside_a_subnet_of_the_file_is_asked_for_together_with_it() {
    let mut usual = usual();
    (usual.place.network, usual.place.subnet) = (None, Some("s".into()));
    let (_, it) = outside(usual, &[("loadbalancer.openstack.org/network-id", "dmz")]);
    assert_eq!((it.network.as_deref(), it.subnet.as_deref()), (Some("dmz"), Some("s")));
}
