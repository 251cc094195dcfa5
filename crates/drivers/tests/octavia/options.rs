//! Each option of the cloud provider's controller, annotations and `cloud.conf`, changes what is planned or is told: none is
//! passed over in silence. (`[Global]` says who we are: `crates/openstack/tests/client/cloud_conf.rs`.)

use std::{collections::BTreeSet, path::Path, sync::Arc};

use seaway_drivers::octavia::{
    InCloud, OCTAVIA, conf, unheeded,
    wanted::{refused, wanted},
};
use seaway_model::{
    Change, Config, Desired, Fact, L4, LbKey, Owner, Unit,
    fact::{Families, FamilyPolicy, Meta, Node, Service, ServicePort},
    load_balancer::Family,
    unit::Place,
};
use seaway_openstack::{credentials::CloudConf, survey::Abilities};
use seaway_plan::{Roles, World, annotations::rows};
use seaway_testkit::facts::{ip, owner, put, shop, synced};

use crate::scene::cluster;

const CLASS: &str = "seaway.dev/octavia";
const THEIRS: &str = "loadbalancer.openstack.org/";
const OF_KUBERNETES: &str = "service.beta.kubernetes.io/";
/// What the second cannot do is told.
const PROVIDERS: [&str; 2] = ["amphora", "ovn"];
const ID: &str = "00000000-0000-4000-8000-000000000001";
const OTHER: &str = "00000000-0000-4000-8000-000000000002";

/// What follows from a file and a Service, as text: what the cloud is asked for, what else is done, and what is said.
pub(crate) struct OptionEffects {
    pub(crate) asked: String,
    pub(crate) options: String,
    pub(crate) told: Vec<String>,
}

fn service(annotations: &[(&str, &str)]) -> Service {
    let mut shop = shop();
    shop.class = Some(CLASS.into());
    (shop.ports[0].port, shop.ports[0].node_port) = (80, Some(30_080));
    let tls = ServicePort { port: 443, node_port: Some(30_443), name: "tls".into(), ..shop.ports[0].clone() };
    let udp = ServicePort {
        protocol: L4::Udp,
        port: 53,
        node_port: Some(30_053),
        name: "dns".into(),
        ..shop.ports[0].clone()
    };
    shop.ports.extend([tls, udp]);
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

pub(crate) fn meant(file: &str, annotations: &[(&str, &str)]) -> OptionEffects {
    let conf = CloudConf::parse(Path::new("cloud.conf"), file).expect("an INI");
    let read = conf::read(&conf);
    let mut told = [read.refused, read.told, conf.unknown_keys()].concat();
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
    let provider = wish.options.cloud.as_ref().and_then(|it| it.provider.clone()).expect("one is usual");
    let can = Abilities::of(&provider, None);
    told.extend(refused(&wish, &can).into_iter().map(|(_, it)| it.message));
    told.extend(unheeded(&wish, &can).into_iter().map(|(_, it)| it.message));
    let group = world.desire(&Unit::SecurityGroup { cloud: "openstack".into(), class: CLASS.into() });
    let of: &Owner = &owner(&service);
    let asked = wanted(&cluster("6c1d"), &key, of, &wish, &can);
    let status = world.status(of);
    let asked = format!("{asked:?} {group:?} {status:?}");
    OptionEffects { asked, options: format!("{:?} {}", wish.options, defaults.cascade), told }
}

/// What is done with what is there already, or by the driver itself: the options of the load balancer have it.
const BY_OPTIONS: [&str; 10] = [
    "loadbalancer.openstack.org/load-balancer-id",
    "seaway.dev/load-balancer-name",
    "seaway.dev/pending-limit",
    "seaway.dev/rebuild-on-pending",
    "cascade-delete",
    "ipv6-support-disabled",
    "container-store",
    "max-shared-lb",
    "pending-limit",
    "rebuild-on-pending",
];

/// Octavia takes it, and OVN does nothing by it.
const IGNORED_BY_OVN: [&str; 4] = [
    "loadbalancer.openstack.org/connection-limit",
    "seaway.dev/vip-qos-policy",
    "connection-limit",
    "vip-qos-policy",
];

/// Rows that were passed over in silence.
struct Walk {
    /// What each file begins with.
    file: String,
    silent: Vec<String>,
    keys: BTreeSet<String>,
}

impl Walk {
    fn of(provider: &str) -> Walk {
        let file = format!("[LoadBalancer]\nlb-provider={provider}\n");
        Walk { file, silent: Vec::new(), keys: BTreeSet::new() }
    }

    /// With these lines and annotations, one more of each. `key`: what it is about.
    fn row(&mut self, key: &str, (lines, more): (&str, &str), annotations: [&[(&str, &str)]; 2]) {
        let [first, then] = annotations;
        let both: Vec<(&str, &str)> = first.iter().chain(then).copied().collect();
        let before = meant(&format!("{}{lines}", self.file), first);
        let after = meant(&format!("{}{lines}{more}", self.file), &both);
        let is_ignored = self.is_of_ovn() && IGNORED_BY_OVN.contains(&key);
        let is_heard = before.asked != after.asked && !is_ignored
            || before.told != after.told
            || BY_OPTIONS.contains(&key) && before.options != after.options;
        if !is_heard && !self.is_so_anyway(more, then) {
            self.silent.push(format!("{key}: {more:?} {both:?}"));
        }
        self.keys.insert(key.to_owned());
    }

    fn is_of_ovn(&self) -> bool {
        self.file.contains("ovn")
    }

    /// That is what OVN does, whoever asks.
    fn is_so_anyway(&self, more: &str, then: &[(&str, &str)]) -> bool {
        let value = then.first().map_or(more.trim(), |it| it.1);
        self.is_of_ovn() && value.ends_with("SOURCE_IP_PORT")
    }

    /// An annotation, with others and lines of the file.
    fn annotation(&mut self, lines: &str, first: &[(&str, &str)], (key, value): (&str, &str)) {
        let key = if key.contains('/') { key.to_owned() } else { format!("{THEIRS}{key}") };
        self.row(&key, (lines, ""), [first, &[(&key, value)]]);
    }

    /// A line of a section that begins with these lines.
    fn line(&mut self, lines: &str, line: &str, annotations: &[(&str, &str)]) {
        let key = line.rsplit('\n').next().and_then(|it| it.split_once('=')).expect("a key").0;
        self.row(key, (lines, &format!("{line}\n")), [annotations, &[]]);
    }

    /// Nothing was silent, and no key of this table is missing.
    fn ends(&mut self, of: &str, table: impl IntoIterator<Item = String>) {
        assert_eq!(self.silent, [""; 0], "{of}, {}: {:#?}", self.file, self.silent);
        let missing: Vec<String> = table.into_iter().filter(|it| !self.keys.contains(it)).collect();
        assert_eq!(missing, [""; 0], "{of}: rows without a sample");
        self.keys.clear();
    }
}

#[test]
fn each_annotation_of_the_other_controller_changes_what_is_planned_or_is_told() {
    const INTERNAL: &str = "service.beta.kubernetes.io/openstack-internal-load-balancer";
    const RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";
    const CONTAINER: &str = "http://barbican/v1/containers/00000000-0000-4000-8000-000000000003";
    let lines = "manage-security-groups=true\n[LoadBalancerClass \"gold\"]\nsubnet-id=s\n";
    let all = [
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
        ("default-tls-container-ref", CONTAINER),
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
    ];
    let of_probes = [
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
    ];
    let one_beside_another = [
        (("floating-subnet", "public-*"), ("floating-subnet-tags", "a")),
        (("floating-subnet-tags", "a"), ("floating-subnet", "public-*")),
        (("x-forwarded-for", "true"), ("proxy-protocol", "true")),
        (("proxy-protocol", "true"), ("x-forwarded-for", "true")),
        (("subnet-id", ID), ("network-id", OTHER)),
    ];
    // It is written for people: whoever writes it asks for nothing.
    const FOR_PEOPLE: &str = "loadbalancer.openstack.org/load-balancer-address";
    let theirs = || {
        rows().flat_map(|it| it.names).filter(|it| it.starts_with(THEIRS) || it.starts_with(OF_KUBERNETES))
    };
    for provider in PROVIDERS {
        let mut walk = Walk::of(provider);
        all.iter().for_each(|it| walk.annotation(lines, &[], *it));
        let probed = [(&*format!("{THEIRS}enable-health-monitor"), "true")];
        of_probes.iter().for_each(|it| walk.annotation(lines, &probed, *it));
        for (first, then) in one_beside_another {
            walk.annotation(lines, &[(&format!("{THEIRS}{}", first.0), first.1)], then);
        }
        walk.annotation(&format!("subnet-id={ID}\n"), &[], ("network-id", OTHER));
        walk.ends("annotations", theirs().map(|it| (*it).to_owned()));
        let (before, after) = (meant(&walk.file, &[]), meant(&walk.file, &[(FOR_PEOPLE, "192.0.2.1")]));
        assert_eq!((before.asked, before.options, before.told), (after.asked, after.options, after.told));
    }
}

#[test]
fn each_key_of_their_file_changes_what_is_planned_or_is_told() {
    let proxied = [(&*format!("{THEIRS}proxy-protocol"), "true")];
    let golden = [(&*format!("{THEIRS}class"), "gold")];
    let by_reference =
        [(&*format!("{THEIRS}default-tls-container-ref"), "http://barbican/v1/containers/nothing")];
    let ref_of_all =
        "default-tls-container-ref=http://barbican/v1/secrets/00000000-0000-4000-8000-000000000003";
    let of_all = [
        ("enabled=false", &[][..]),
        ("enabled=flase", &[]),
        ("lb-version=v1", &[]),
        ("lb-provider=other", &[]),
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
    ];
    let of_probes = [
        "monitor-delay=7s",
        "monitor-timeout=2s",
        "monitor-max-retries=4",
        "monitor-max-retries-down=5",
        "monitor-type=TLS-HELLO",
        "monitor-type=HELLO",
        "monitor-type=HTTP\nmonitor-path=/healthz",
        "monitor-type=HTTP\nmonitor-codes=200-204",
    ];
    let of_classes = [
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
    ];
    let of_networking = [
        "ipv6-support-disabled=true",
        "public-network-name=public",
        "internal-network-name=private",
        "address-sort-order=192.168.0.0/16, 10.0.0.0/8",
        "address-sort-order=everywhere",
        "public-netwrok-name=public",
    ];
    let table = |section: &str| conf::keys(section).into_iter().map(str::to_owned).collect::<Vec<_>>();
    for provider in PROVIDERS {
        let mut walk = Walk::of(provider);
        of_all.iter().for_each(|(line, annotations)| walk.line("", line, annotations));
        of_probes.iter().for_each(|line| walk.line("create-monitor=true\n", line, &[]));
        walk.ends("[LoadBalancer]", table("LoadBalancer"));
        let (class, usual) =
            ("[LoadBalancerClass \"gold\"]\n", "[LoadBalancerClass \"gold\"]\nsubnet-id=s\n");
        of_classes.iter().for_each(|key| walk.line(class, &format!("{key}={ID}"), &golden));
        ["internal-lb=true", "internal-lb=ture"].iter().for_each(|line| walk.line(usual, line, &golden));
        walk.ends("[LoadBalancerClass]", table("LoadBalancerClass"));
        of_networking.iter().for_each(|line| walk.line("[Networking]\n", line, &[]));
        walk.ends("[Networking]", table("Networking"));
        walk.line("[Route]\n", "router-id=r", &[]);
        walk.ends("[Route]", table("Route"));
        walk.line("[Metadata]\n", "search-order=configDrive", &[]);
        // One with a unit is a limit of each request: the client's own tests walk that, and [Global].
        walk.line("[Metadata]\n", "request-timeout=45", &[]);
        walk.ends("[Metadata]", table("Metadata"));
        walk.row("bs-version", ("", "[BlockStorage]\nbs-version=v3\n"), [&[], &[]]);
        walk.ends("[BlockStorage]", []);
    }
}
