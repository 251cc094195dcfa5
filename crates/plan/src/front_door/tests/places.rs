//! Each annotation at each place: it changes what is planned there, or it is a Problem. Nothing is asked for in silence.

use std::{collections::BTreeSet, sync::Arc};

use seaway_model::{
    Change, Config, Desired, Fact, Kind, L4, LoadBalancer, ObjectRef, Owner, Unit,
    config::{FrontDoor, TlsSecrets},
    fact::{ServiceKind, ServicePort},
    load_balancer::{BackendProtocol, PoolHttpOptions, Protocol, Timeouts},
};
use seaway_testkit::facts::{self, ip};

use super::{protected::authorities, routes::route_to, scene::*, services::exposed};
use crate::{
    World,
    annotations::{ADOPT, CLIENTS, OptionScope, TLS, places, protects, rows},
    certificates::tests::tls_secret,
    front_door,
};

/// An annotation, a value of it that is not the default, and what it presupposes.
type Sample = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// Of all but those for clouds alone.
#[rustfmt::skip]
const SAMPLES: &[Sample] = &[
    ("seaway.dev/backends", "10.0.0.1:80", &[]),
    ("seaway.dev/members", "nodes", &[]),
    ("seaway.dev/balance", "source-hash", &[]),
    ("seaway.dev/address", "192.0.2.12", &[]),
    ("seaway.dev/address-pool", "second", &[]),
    ("seaway.dev/share", "key", &[]),
    ("seaway.dev/share-across-namespaces", "*", &[("seaway.dev/share", "peers"), ("seaway.dev/address", "192.0.2.19")]),
    ("seaway.dev/source-ranges", "10.0.0.0/8", &[]),
    ("seaway.dev/denied-source-ranges", "10.0.0.0/8", &[]),
    ("seaway.dev/requests-per-second-per-client", "7", &[]),
    ("seaway.dev/requests-burst-per-client", "9", &[("seaway.dev/requests-per-second-per-client", "7")]),
    ("seaway.dev/rate-limit-key", "cookie:a", &[("seaway.dev/requests-per-second-per-client", "7")]),
    ("seaway.dev/basic-auth", "users", &[]),
    ("seaway.dev/basic-auth-realm", "Shop", &[("seaway.dev/basic-auth", "users")]),
    ("seaway.dev/basic-auth-forward", "true", &[("seaway.dev/basic-auth", "users")]),
    ("seaway.dev/forward-auth", "auth:80", &[]),
    ("seaway.dev/forward-auth-headers", "X-User", &[("seaway.dev/forward-auth", "auth:80")]),
    ("seaway.dev/health-check", "http", &[]),
    ("seaway.dev/health-check-path", "/healthz", &[]),
    ("seaway.dev/health-check-host", "a.example", &[]),
    ("seaway.dev/health-check-status", "200", &[]),
    ("seaway.dev/health-check-service", "a", &[("seaway.dev/health-check", "grpc")]),
    ("seaway.dev/health-check-send", "ping", &[("seaway.dev/health-check", "udp")]),
    ("seaway.dev/health-check-expect", "ok", &[("seaway.dev/health-check", "http")]),
    ("seaway.dev/health-check-port", "9000", &[]),
    ("seaway.dev/health-check-interval", "17s", &[]),
    ("seaway.dev/health-check-timeout", "900ms", &[]),
    ("seaway.dev/health-check-rise", "7", &[]),
    ("seaway.dev/health-check-fall", "8", &[]),
    ("seaway.dev/passive-ejection", "9", &[]),
    ("seaway.dev/passive-ejection-errors", "9", &[]),
    ("seaway.dev/passive-ejection-share", "33", &[]),
    ("seaway.dev/slow-start", "41s", &[]),
    ("seaway.dev/panic-threshold", "43", &[]),
    ("seaway.dev/max-connections-per-member", "5", &[]),
    ("seaway.dev/queue-timeout", "7s", &[("seaway.dev/max-connections-per-member", "5")]),
    ("seaway.dev/proxy-protocol", "v2", &[]),
    ("seaway.dev/transparent", "true", &[]),
    ("seaway.dev/proxy-protocol-from", "10.0.0.0/8", &[]),
    ("seaway.dev/max-connections", "5", &[]),
    ("seaway.dev/max-new-connections-per-second", "5", &[]),
    ("seaway.dev/timeout-connect", "7s", &[]),
    ("seaway.dev/timeout-idle", "7m", &[]),
    ("seaway.dev/timeout-half-closed", "7s", &[]),
    ("seaway.dev/timeout-udp", "7s", &[]),
    ("seaway.dev/drain", "7m", &[]),
    ("seaway.dev/protocol", "http", &[]),
    ("seaway.dev/front-door", "false", &[]),
    ("seaway.dev/dns-names", "shop.example", &[]),
    ("seaway.dev/dns-ttl", "30s", &[]),
    ("seaway.dev/host", "b.example", &[]),
    ("seaway.dev/path", "/over-there", &[]),
    ("seaway.dev/entrance", "internal", &[]),
    ("seaway.dev/strip-prefix", "true", &[]),
    ("seaway.dev/sticky-cookie", "sticky", &[]),
    ("seaway.dev/sticky-cookie-mode", "rewrite", &[("seaway.dev/sticky-cookie", "true")]),
    ("seaway.dev/max-body-size", "7Mi", &[]),
    ("seaway.dev/timeout-answer", "7m", &[]),
    ("seaway.dev/reuse-connections", "never", &[]),
    ("seaway.dev/compress", "gzip", &[]),
    ("seaway.dev/compress-types", "text/html", &[("seaway.dev/compress", "gzip")]),
    ("seaway.dev/compress-private", "true", &[("seaway.dev/compress", "gzip")]),
    ("seaway.dev/timeout-keep-alive", "7m", &[]),
    ("seaway.dev/tls", "other", &[]),
    ("seaway.dev/tls-ports", "80", &[]),
    ("seaway.dev/https-redirect", "true", &[]),
    ("seaway.dev/tls-passthrough", "true", &[]),
    ("seaway.dev/hsts", "9h", &[]),
    ("seaway.dev/tls-profile", "modern", &[]),
    ("seaway.dev/client-authorities", "ca", &[]),
    ("seaway.dev/client-certificates", "optional", &[("seaway.dev/client-authorities", "ca")]),
    ("seaway.dev/backend-tls", "true", &[]),
    ("seaway.dev/backend-tls-name", "in.example", &[("seaway.dev/backend-tls", "true")]),
    ("seaway.dev/backend-tls-authorities", "ca", &[("seaway.dev/backend-tls", "true")]),
    ("seaway.dev/backend-tls-verify", "off", &[("seaway.dev/backend-tls", "true")]),
];

/// Values that are understood, of what only a cloud does.
fn of_a_cloud(name: &str) -> &'static str {
    match name.strip_prefix("seaway.dev/").unwrap_or_default() {
        "cloud-monitor-path" => "/healthz",
        "cloud-monitor-codes" => "200",
        "cloud-monitor-type" => "TCP",
        "metrics-port" => "9000",
        "pending-limit" => "5m",
        "node-selector" | "load-balancer-tags" | "listener-tags" | "pool-tags" | "floating-ip-tags" => "a=b",
        it if it.starts_with("cloud-timeout-") => "7000",
        it if it.starts_with("cloud-monitor-") => "7",
        _ => "true",
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// A LoadBalancer's own address: bytes are passed on.
    Tcp,
    Http,
    Tls,
    FrontDoor,
    /// The same, by a host name: that of a handshake.
    Host,
    Passthrough,
    Route,
    /// A LoadBalancer's own address, where there are datagrams alone.
    Udp,
    /// A port that the configuration serves, in `tcpServices`.
    Exposed,
}

impl At {
    const ALL: [At; 9] = [
        At::Tcp,
        At::Http,
        At::Tls,
        At::FrontDoor,
        At::Host,
        At::Passthrough,
        At::Route,
        At::Udp,
        At::Exposed,
    ];

    /// With what is beside it: the datagrams of a LoadBalancer are passed on, whatever its streams are.
    fn places(self) -> &'static [OptionScope] {
        match self {
            At::Tcp | At::Udp | At::Exposed => &[OptionScope::Tcp],
            At::Http => &[OptionScope::Http, OptionScope::Tcp],
            At::Tls => &[OptionScope::Tls, OptionScope::Tcp],
            At::FrontDoor | At::Host => &[OptionScope::FrontDoor],
            At::Passthrough => &[OptionScope::Passthrough],
            At::Route => &[OptionScope::Route],
        }
    }

    fn is_own(self) -> bool {
        matches!(self, At::Tcp | At::Http | At::Tls | At::Udp | At::Exposed)
    }

    fn says(self) -> &'static [(&'static str, &'static str)] {
        match self {
            At::Tcp | At::FrontDoor | At::Route | At::Udp | At::Exposed => &[],
            At::Http => &[("seaway.dev/protocol", "http")],
            At::Tls => &[("seaway.dev/tls", "own")],
            At::Host => &[("seaway.dev/host", "a.example")],
            At::Passthrough => &[("seaway.dev/host", "a.example"), ("seaway.dev/tls-passthrough", "true")],
        }
    }

    /// Where the sample says what is so anyway.
    fn otherwise(self, name: &str) -> Option<&'static str> {
        match (name, self) {
            ("seaway.dev/front-door", At::Tcp | At::Http | At::Tls | At::Udp | At::Exposed) => Some("true"),
            ("seaway.dev/protocol", At::Http | At::Tls) => Some("tcp"),
            ("seaway.dev/front-door", At::Route) => Some("true"),
            ("seaway.dev/strip-prefix", At::FrontDoor | At::Host) => Some("false"),
            ("seaway.dev/tls-passthrough", At::Passthrough) => Some("false"),
            // What it refines keeps a Service out.
            (CLIENTS, it) if !matches!(it, At::Tls | At::Host) => Some("required"),
            _ => None,
        }
    }

    /// A World with an object at this place that says this.
    fn world(self, say: &[(&str, &str)]) -> World {
        let mut config = Config::default();
        config.front_door.tls.secrets = TlsSecrets::Named;
        let internal = FrontDoor { port: 8080, ..FrontDoor::default() };
        config.front_door.entrances.insert("internal".into(), internal);
        config.front_door.tls.certificates = vec![ObjectRef::new(Kind::Secret, "default", "own")];
        let shop = service("shop", &[80, 443]);
        let mut peer = saying(
            service("elsewhere/peer", &[7]),
            &[
                ("seaway.dev/share", "peers"),
                ("seaway.dev/share-across-namespaces", "*"),
                ("seaway.dev/address", "192.0.2.19"),
            ],
        );
        peer.kind = ServiceKind::LoadBalancer;
        let mut changes: Vec<Change> = vec![
            facts::pool(("192.0.2.10", "192.0.2.19")),
            second_pool(),
            put(&peer),
            backed(&peer),
            told(&tls_secret("own", &["a.example"])),
            told(&tls_secret("other", &["b.example"])),
            told(&authorities("ca")),
        ];
        // What stands in both is said once: the later one.
        let all: Vec<(&str, &str)> = self.says().iter().chain(say).copied().collect();
        match self {
            At::Route => {
                let mut route = route_to("shop", 80);
                route
                    .meta
                    .annotations
                    .extend(all.iter().map(|(name, value)| ((*name).into(), (*value).into())));
                changes.extend([put(&shop), backed(&shop), put_route(&route)]);
            }
            At::Exposed => {
                config.exposed = vec![exposed(L4::Tcp, "shop", 80)];
                let shop = saying(service("shop", &[80]), &all);
                changes.extend([put(&shop), backed(&shop)]);
            }
            At::Udp => {
                let mut shop = saying(service("shop", &[53]), &all);
                shop.kind = ServiceKind::LoadBalancer;
                shop.ports[0].protocol = L4::Udp;
                changes.extend([put(&shop), backed(&shop)]);
            }
            At::FrontDoor | At::Host | At::Passthrough => {
                let shop = saying(shop, &all);
                changes.extend([put(&shop), backed(&shop)]);
            }
            At::Tcp | At::Http | At::Tls => {
                let mut shop = saying(shop, &all);
                shop.kind = ServiceKind::LoadBalancer;
                let plain = shop.ports[0].clone();
                shop.ports.push(ServicePort { name: "dns".into(), protocol: L4::Udp, port: 53, ..plain });
                changes.extend([put(&shop), backed(&shop)]);
            }
        }
        world(config, changes)
    }
}

fn second_pool() -> Change {
    match facts::pool(("192.0.2.20", "192.0.2.29")) {
        Change::Put(Fact::AddressPool(mut pool)) => {
            let its = Arc::make_mut(&mut pool);
            (its.object, its.priority) = (ObjectRef::new(Kind::AddressPool, "", "second"), 9);
            its.auto_assign = false;
            Change::Put(Fact::AddressPool(pool))
        }
        other => panic!("no pool: {other:?}"),
    }
}

/// All that is to be, as text.
fn planned(world: &World) -> String {
    let owners: BTreeSet<Owner> = world.overview().into_iter().map(|it| it.status.owner).collect();
    let mut units: Vec<Unit> = owners.iter().map(unit).chain([door()]).collect();
    units.push(unit(&front_door::owner_of(Some(&"internal".into()))));
    units.extend((10..30).map(|last| Unit::Address(ip(&format!("192.0.2.{last}")))));
    let desired: Vec<Desired> = units.iter().map(|it| in_use(world.desire(it))).collect();
    format!("{desired:?}")
}

/// Without what nothing looks at where bytes are passed on.
fn in_use(desired: Desired) -> Desired {
    let Desired::LoadBalancer(wanted) = desired else { return desired };
    let mut wanted = LoadBalancer::clone(&wanted);
    // Where TLS is passed on, many share the listener, and times are the pool's.
    let passes_tls =
        |it: &Arc<seaway_model::Listener>| it.tls.as_ref().is_some_and(|tls| !tls.through.is_empty());
    let is_passing = wanted.listeners.values().any(passes_tls);
    for pool in wanted.pools.values_mut().filter(|it| it.protocol == BackendProtocol::Opaque) {
        let pool = Arc::make_mut(pool);
        let PoolHttpOptions { connect, idle, half_closed, drain, .. } = pool.http;
        let times = PoolHttpOptions { connect, idle, half_closed, drain, ..PoolHttpOptions::default() };
        pool.http = if is_passing { times } else { PoolHttpOptions::default() };
        pool.passive.iter_mut().for_each(|it| it.errors = None);
    }
    let usual = Timeouts::default();
    for listener in wanted.listeners.values_mut().filter(|it| it.protocol == Protocol::Opaque) {
        let times = &mut Arc::make_mut(listener).timeouts;
        (times.answer, times.keep_alive) = (usual.answer, usual.keep_alive);
    }
    Desired::LoadBalancer(Arc::new(wanted))
}

/// Without these nobody is let in who would not be with them: what members are sent is what clients send, and no PROXY protocol is
/// believed.
const STAYS_OPEN: [&str; 6] = [
    "seaway.dev/backend-tls",
    "seaway.dev/backend-tls-name",
    "seaway.dev/backend-tls-authorities",
    "seaway.dev/backend-tls-verify",
    "seaway.dev/proxy-protocol-from",
    "seaway.dev/tls-passthrough",
];

/// What is about the front door, where the Service has another port, or none; and about datagrams, of which there are none.
const IN_SILENCE: [(&str, At); 2] =
    [("seaway.dev/entrance", At::Exposed), ("seaway.dev/health-check-send", At::Exposed)];

/// Whether a place at the front door leads to it.
fn is_served(world: &World) -> bool {
    served(world).iter().any(|it| !it.ends_with(" -> answer 500"))
}

/// Whether the Service has a listener of its own.
fn listens(world: &World) -> bool {
    let owners = world.overview().into_iter().map(|it| it.status.owner);
    let shop = facts::owner(&service("shop", &[80]));
    let mut its = owners.filter(|it| match it {
        Owner::Config(key) => key.starts_with("tcpServices"),
        it => *it == shop,
    });
    its.any(|owner| match world.desire(&unit(&owner)) {
        Desired::LoadBalancer(it) => !it.listeners.is_empty(),
        _ => false,
    })
}

fn told_of(world: &World, name: &str) -> bool {
    world.problems().iter().any(|it| it.field.contains(&format!("[{name}]")))
}

#[test]
fn what_is_asked_for_is_planned_or_a_problem() {
    let (mut silent, mut open) = (Vec::new(), Vec::new());
    for at in At::ALL {
        let world = at.world(&[]);
        assert!(if at.is_own() { listens(&world) } else { is_served(&world) }, "{at:?}");
    }
    // What serves a Service does not depend on whether it asks for adoption.
    for row in rows().filter(|row| row.names[0] != ADOPT) {
        let name = row.names[0];
        let sample = SAMPLES.iter().find(|it| it.0 == name);
        let (value, first) = sample.map_or((of_a_cloud(name), &[][..]), |it| (it.1, it.2));
        assert_eq!(sample.is_none(), row.help.contains("(Octavia only"), "{name} needs a sample here");
        for at in At::ALL {
            let value = at.otherwise(name).unwrap_or(value);
            let kept_out = name == CLIENTS && at.otherwise(name).is_some();
            let first = if kept_out { &[] } else { first };
            let (before, after) = (at.world(first), at.world(&[first, &[(name, value)]].concat()));
            let here = places(name).iter().any(|it| at.places().contains(it));
            let works = here && planned(&before) != planned(&after);
            // What protects and cannot be had there keeps a Service out.
            let is_there = |world: &World| if at.is_own() { listens(world) } else { is_served(world) };
            let (was_open, is_open) = (is_there(&before), is_there(&after));
            // What it presupposes may have closed it already.
            let is_news = !was_open || problems(&after) != problems(&before);
            let is_told = told_of(&after, name) || !is_open && is_news;
            if !works && !is_told && !IN_SILENCE.contains(&(name, at)) {
                silent.push(format!("{name} {at:?}"));
            }
            let may_be_open = STAYS_OPEN.contains(&name) || (name, at) == (TLS, At::Passthrough);
            if !works && is_open && protects(name) && !may_be_open && !IN_SILENCE.contains(&(name, at)) {
                open.push(format!("{name} {at:?}"));
            }
        }
    }
    assert_eq!((silent, open), (Vec::new(), Vec::new()));
}
