//! Each option of the cloud provider's controller, annotations and `cloud.conf`, changes what is planned or is told: none is
//! passed over in silence. (`[Global]` says who we are: `crates/openstack/tests/client/cloud_conf.rs`.)

use std::{path::Path, sync::Arc};

use seaway_drivers::octavia::{
    InCloud, OCTAVIA, conf,
    wanted::{refused, wanted},
};
use seaway_model::{
    Change, Config, Desired, Fact, L4, LbKey, Owner, Unit,
    fact::{Families, FamilyPolicy, Meta, Node, Service, ServicePort},
    load_balancer::Family,
    unit::Place,
};
use seaway_openstack::{credentials::CloudConf, survey::Abilities};
use seaway_plan::{Roles, World};
use seaway_testkit::facts::{ip, owner, put, shop, synced};

use crate::scene::cluster;

const CLASS: &str = "seaway.dev/octavia";
const THEIRS: &str = "loadbalancer.openstack.org/";
const ID: &str = "00000000-0000-4000-8000-000000000001";
const OTHER: &str = "00000000-0000-4000-8000-000000000002";

/// What follows from a file and a Service: all that is done, as text, and all that is said.
struct Meant {
    done: String,
    told: Vec<String>,
}

fn service(annotations: &[(&str, &str)]) -> Service {
    let mut shop = shop();
    shop.class = Some(CLASS.into());
    shop.ports[0].node_port = Some(30_080);
    let udp = ServicePort {
        protocol: L4::Udp,
        port: 53,
        node_port: Some(30_053),
        name: "dns".into(),
        ..shop.ports[0].clone()
    };
    shop.ports.push(udp);
    shop.families =
        Families { first: Some(Family::V4), second: Some(Family::V6), policy: FamilyPolicy::Prefer };
    shop.meta.annotations = annotations.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    shop
}

fn node(name: &str, labels: &[(&str, &str)], addresses: &[&str]) -> Change {
    let labels = labels.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    let meta = Meta { name: name.into(), labels, ..Meta::default() };
    let addresses = addresses.iter().map(|it| ip(it)).collect();
    Change::Put(Fact::Node(Arc::new(Node { meta, addresses, ready: true, ..Node::default() })))
}

fn meant(file: &str, annotations: &[(&str, &str)]) -> Meant {
    let conf = CloudConf::parse(Path::new("cloud.conf"), file).expect("an INI");
    let read = conf::read(&conf);
    let mut told = [read.refused, read.told, conf.unknown()].concat();
    let defaults = Arc::new(read.defaults);
    let config = Config { clouds: [(CLASS.into(), defaults.clone())].into(), ..Config::default() };
    let placement = InCloud { cloud: "openstack".into(), class: CLASS.into() };
    let roles = Roles { allocate: true, host: None };
    let mut world = World::new(roles, vec![Arc::new(placement)], Arc::new(config));
    let service = service(annotations);
    let nodes = [
        node("one", &[("role", "worker")], &["10.0.0.1", "192.168.0.1", "fd00::1"]),
        node("two", &[], &["10.0.0.2", "192.168.0.2"]),
    ];
    for change in nodes.into_iter().chain([put(&service)]).chain(synced()) {
        world.apply(change);
    }
    let place = Place::Cloud { name: "openstack".into(), driver: OCTAVIA.into() };
    let key = LbKey::Of(owner(&service));
    let Desired::LoadBalancer(wish) = world.desire(&Unit::LoadBalancer(place, key.clone())) else {
        panic!("it is planned")
    };
    told.extend(world.problems().iter().map(|it| it.message.clone()));
    let provider = wish.options.outside.as_ref().and_then(|it| it.provider.clone()).expect("one is usual");
    let can = Abilities::of(&provider, None);
    told.extend(refused(&wish, &can).into_iter().map(|(_, it)| it.message));
    let group = world.desire(&Unit::SecurityGroup { cloud: "openstack".into(), class: CLASS.into() });
    let of: &Owner = &owner(&service);
    let asked = wanted(&cluster("6c1d"), &key, of, &wish, &can);
    let status = world.status(of);
    let done = format!("{asked:?} {:?} {group:?} {status:?} {}", wish.options, defaults.cascade);
    Meant { done, told }
}

/// In this file, with these annotations, one more of each.
fn is_heard(file: &str, more: &str, annotations: &[(&str, &str)], one: Option<(&str, &str)>) -> bool {
    let before = meant(file, annotations);
    let both: Vec<(&str, &str)> = annotations.iter().copied().chain(one).collect();
    let after = meant(&format!("{file}{more}"), &both);
    before.done != after.done || after.told.iter().any(|it| !before.told.contains(it))
}

#[test]
fn each_annotation_of_the_other_controller_changes_what_is_planned_or_is_told() {
    const INTERNAL: &str = "service.beta.kubernetes.io/openstack-internal-load-balancer";
    const RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
    let conf = "[LoadBalancer]\nmanage-security-groups=true\n[LoadBalancerClass \"gold\"]\nsubnet-id=s\n";
    for (key, value) in [
        (INTERNAL, "true"),
        (INTERNAL, "ture"),
        (RANGES, "192.0.2.0/24"),
        (RANGES, "somewhere"),
        ("class", "gold"),
        ("class", "silver"),
        ("network-id", ID),
        ("network-id", "dmz"),
        ("subnet-id", ID),
        ("member-subnet-id", ID),
        ("port-id", ID),
        ("load-balancer-id", ID),
        ("floating-network-id", ID),
        ("floating-subnet-id", ID),
        ("floating-subnet", "public-*"),
        ("floating-subnet-tags", "a,b"),
        ("keep-floatingip", "true"),
        ("x-forwarded-for", "true"),
        ("default-tls-container-ref", "http://barbican/v1/containers/00000000-0000-4000-8000-000000000003"),
        ("proxy-protocol", "true"),
        ("proxy-protocol", "v2"),
        ("proxy-protocol", "80:v2"),
        ("proxy-protocol", "81:v2"),
        ("seaway.dev/protocol", "80:http"),
        ("seaway.dev/protocol", "80:http,81:tcp"),
        ("x-forwarded-for", "80:true"),
        ("x-forwarded-for", "80:perhaps"),
        ("seaway.dev/x-forwarded-proto", "true"),
        ("seaway.dev/x-forwarded-port", "80:true"),
        ("seaway.dev/x-forwarded-port", "81:true"),
        ("lb-method", "LEAST_CONNECTIONS"),
        ("lb-method", "SOURCE_IP"),
        ("lb-method", "SOURCE_IP_PORT"),
        ("lb-method", "FASTEST"),
        ("connection-limit", "7"),
        ("flavor-id", ID),
        ("availability-zone", "z"),
        ("timeout-client-data", "1000"),
        ("timeout-member-connect", "1000"),
        ("timeout-member-data", "1000"),
        ("timeout-tcp-inspect", "1000"),
        ("enable-health-monitor", "true"),
        ("node-selector", "role=worker"),
        ("hostname", "shop.example"),
        // Of July 2026, and a typing error.
        ("load-balancer-tags", "a"),
        ("listener-tags", "a"),
        ("pool-tags", "a"),
        ("seaway.dev/floating-ip-tags", "a"),
        ("pool-tags", "seaway.dev/key=x"),
        ("seaway.dev/backend-tls-ca-container", "http://barbican/v1/secrets/x"),
        ("seaway.dev/backend-tls-crl-container", "http://barbican/v1/secrets/x"),
        ("seaway.dev/backend-tls-container", "http://barbican/v1/secrets/x"),
        ("seaway.dev/backend-tls", "true"),
        ("seaway.dev/tls-sni-containers", "http://barbican/v1/secrets/x"),
        ("seaway.dev/client-ca-container", "http://barbican/v1/secrets/x"),
        ("seaway.dev/client-crl-container", "http://barbican/v1/secrets/x"),
        ("seaway.dev/client-authorities", "shop-ca"),
        ("seaway.dev/load-balancer-name", "shared"),
        ("seaway.dev/load-balancer-group", "web"),
        ("seaway.dev/load-balancer-group", "a b"),
        ("seaway.dev/vip-security-groups", ID),
        ("seaway.dev/vip-security-groups", "mine"),
        ("seaway.dev/vip-qos-policy", ID),
        ("seaway.dev/pending-limit", "5m"),
        ("seaway.dev/pending-limit", "5s"),
        ("seaway.dev/rebuild-on-pending", "true"),
        ("floating-ntework-id", ID),
    ] {
        let full = format!("{THEIRS}{key}");
        let key = if key.contains('/') { key } else { full.as_str() };
        assert!(is_heard(conf, "", &[], Some((key, value))), "{key}: {value}");
    }
    let probed = [(&*format!("{THEIRS}enable-health-monitor"), "true")];
    for (key, value) in [
        ("health-monitor-delay", "7"),
        ("health-monitor-timeout", "2"),
        ("health-monitor-max-retries", "4"),
        ("health-monitor-max-retries-down", "5"),
        ("seaway.dev/cloud-monitor-type", "HTTPS"),
        ("seaway.dev/cloud-monitor-type", "PING"),
        ("seaway.dev/cloud-monitor-type", "UDP-CONNECT"),
        ("seaway.dev/cloud-monitor-type", "GRPC"),
        ("seaway.dev/cloud-monitor-path", "/healthz"),
        ("seaway.dev/cloud-monitor-codes", "200,204"),
        ("seaway.dev/cloud-monitor-codes", "fine"),
    ] {
        let full = format!("{THEIRS}{key}");
        let key = if key.contains('/') { key } else { full.as_str() };
        assert!(is_heard(conf, "", &probed, Some((key, value))), "{key}: {value}");
    }
    // One beside another.
    for (first, (key, value)) in [
        (("floating-subnet", "public-*"), ("floating-subnet-tags", "a")),
        (("floating-subnet-tags", "a"), ("floating-subnet", "public-*")),
        (("x-forwarded-for", "true"), ("proxy-protocol", "true")),
        (("proxy-protocol", "true"), ("x-forwarded-for", "true")),
        (("subnet-id", ID), ("network-id", OTHER)),
    ] {
        let (before, key) = (format!("{THEIRS}{}", first.0), format!("{THEIRS}{key}"));
        assert!(is_heard(conf, "", &[(&before, first.1)], Some((&key, value))), "{key}: {value}");
    }
    let with_subnet = format!("[LoadBalancer]\nsubnet-id={ID}\n");
    let network = format!("{THEIRS}network-id");
    assert!(is_heard(&with_subnet, "", &[], Some((&network, OTHER))), "network-id beside subnet-id");
}

#[test]
fn each_key_of_their_file_changes_what_is_planned_or_is_told() {
    let proxied = [(&*format!("{THEIRS}proxy-protocol"), "true")];
    let golden = [(&*format!("{THEIRS}class"), "gold")];
    let by_reference =
        [(&*format!("{THEIRS}default-tls-container-ref"), "http://barbican/v1/containers/nothing")];
    let ref_of_all =
        "default-tls-container-ref=http://barbican/v1/secrets/00000000-0000-4000-8000-000000000003";
    for (line, annotations) in [
        ("enabled=false", &[][..]),
        ("enabled=flase", &[]),
        ("lb-version=v1", &[]),
        ("lb-provider=ovn", &[]),
        ("lb-method=LEAST_CONNECTIONS", &[]),
        ("lb-method=SOURCE_IP_PORT", &[]),
        ("create-monitor=true", &[]),
        ("manage-security-groups=true", &[]),
        ("internal-lb=true", &[]),
        ("internal-lb=ture", &[]),
        ("node-selector=role=worker", &[]),
        ("cascade-delete=false", &[]),
        ("flavor-id=00000000-0000-4000-8000-000000000001", &[]),
        ("availability-zone=z", &[]),
        ("enable-ingress-hostname=true", &proxied),
        ("enable-ingress-hostname=true\ningress-hostname-suffix=example.org", &proxied),
        (ref_of_all, &[]),
        ("container-store=external", &by_reference),
        ("max-shared-lb=5", &[]),
        ("provider-requires-serial-api-calls=true", &[]),
        ("network-id=00000000-0000-4000-8000-000000000001", &[]),
        ("subnet-id=00000000-0000-4000-8000-000000000001", &[]),
        ("member-subnet-id=00000000-0000-4000-8000-000000000001", &[]),
        ("floating-network-id=00000000-0000-4000-8000-000000000001", &[]),
        ("floating-subnet-id=00000000-0000-4000-8000-000000000001", &[]),
        ("floating-subnet=public-*", &[]),
        ("floating-subnet-tags=a,b", &[]),
        ("flotaing-subnet-tags=a,b", &[]),
        ("load-balancer-tags=a", &[]),
        ("listener-tags=a", &[]),
        ("pool-tags=a", &[]),
        ("floating-ip-tags=a", &[]),
        ("floating-ip-tags=kube_service_a", &[]),
        ("pending-limit=5m", &[]),
        ("timeout-client-data=1000", &[]),
        ("timeout-member-connect=1000", &[]),
        ("timeout-member-data=1000", &[]),
        ("timeout-tcp-inspect=1000", &[]),
        ("timeout-tcp-inspect=1s", &[]),
        ("connection-limit=7", &[]),
        ("connection-limit=none", &[]),
        ("vip-security-groups=00000000-0000-4000-8000-000000000001", &[]),
        ("vip-qos-policy=00000000-0000-4000-8000-000000000001", &[]),
        ("pending-limit=soon", &[]),
        ("rebuild-on-pending=true", &[]),
    ] {
        assert!(is_heard("[LoadBalancer]\n", &format!("{line}\n"), annotations, None), "{line}");
    }
    for line in [
        "monitor-delay=7s",
        "monitor-timeout=2s",
        "monitor-max-retries=4",
        "monitor-max-retries-down=5",
        "monitor-type=TLS-HELLO",
        "monitor-type=HELLO",
        "monitor-type=HTTP\nmonitor-path=/healthz",
        "monitor-type=HTTP\nmonitor-codes=200-204",
    ] {
        let conf = "[LoadBalancer]\ncreate-monitor=true\n";
        assert!(is_heard(conf, &format!("{line}\n"), &[], None), "{line}");
    }
    for key in [
        "network-id",
        "subnet-id",
        "member-subnet-id",
        "floating-network-id",
        "floating-subnet-id",
        "floating-subnet",
        "floating-subnet-tags",
        "vip-security-groups",
        "vip-qos-policy",
        "lb-provider",
    ] {
        let conf = "[LoadBalancerClass \"gold\"]\n";
        assert!(is_heard(conf, &format!("{key}={ID}\n"), &golden, None), "class: {key}");
    }
    for line in ["internal-lb=true", "internal-lb=ture"] {
        let conf = "[LoadBalancerClass \"gold\"]\nsubnet-id=s\n";
        assert!(is_heard(conf, &format!("{line}\n"), &golden, None), "class: {line}");
    }
    for line in [
        "ipv6-support-disabled=true",
        "public-network-name=public",
        "internal-network-name=private",
        "address-sort-order=192.168.0.0/16, 10.0.0.0/8",
        "address-sort-order=everywhere",
        "public-netwrok-name=public",
    ] {
        assert!(is_heard("[Networking]\n", &format!("{line}\n"), &[], None), "{line}");
    }
    for text in [
        "[Route]\nrouter-id=r\n",
        "[Metadata]\nsearch-order=configDrive\n",
        // One with a unit is a limit of each request: the client's own tests walk that, and [Global].
        "[Metadata]\nrequest-timeout=45\n",
        "[BlockStorage]\nbs-version=v3\n",
    ] {
        assert!(is_heard("", text, &[], None), "{text}");
    }
}
