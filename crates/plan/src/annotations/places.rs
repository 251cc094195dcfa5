//! Where an annotation does something: one table. What is said elsewhere is a Problem, and a test goes through all of it.

use OptionScope::{FrontDoor, Http, Passthrough, Route, Tcp, Tls};

use super::{
    ADOPT, AUTHORITIES, BACKEND_AUTHORITIES, BASIC_AUTH, BURST, CLIENT_RATE, CLIENTS, COMPRESS,
    COMPRESS_PRIVATE, COMPRESS_TYPES, DENIED, DNS_NAMES, DNS_TTL, ENTRANCE, FORWARD_AUTH,
    FORWARD_AUTHORIZATION, FORWARD_HEADERS, FRONT_DOOR, HOST, HSTS, PASSTHROUGH, PATH, PROTOCOL, PROXY_FROM,
    RATE_KEY, REALM, SOURCE_RANGES, TLS, TLS_PORTS, TLS_PROFILE, TRANSPARENT, of_clouds, table::ADDRESS,
};

/// What of our own data plane serves a Service, or a route. (Of load balancers of clouds, `cloud::remarks` knows.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionScope {
    /// A LoadBalancer's own address, where bytes are passed on.
    Tcp,
    /// The same, where HTTP is spoken.
    Http,
    /// The same, where TLS ends.
    Tls,
    /// The front door, where HTTP of many Services is.
    FrontDoor,
    /// The front door, where TLS goes on to members untouched.
    Passthrough,
    /// A route at the front door.
    Route,
}

const OWN: &[OptionScope] = &[Tcp, Http, Tls];
const OWN_AND_FRONT_DOOR: &[OptionScope] = &[Tcp, Http, Tls, FrontDoor, Passthrough];
const WHERE_HTTP_IS: &[OptionScope] = &[Http, Tls, FrontDoor];

/// Whose `off` asks for something.
const VERIFY: &str = "seaway.dev/backend-tls-verify";

/// Of a LoadBalancer's own listeners. Those that protect keep a Service out of places where they cannot be had.
const OF_LISTENERS: [&str; 10] = [
    DNS_NAMES,
    DNS_TTL,
    ADDRESS,
    "seaway.dev/address-pool",
    "seaway.dev/share",
    "seaway.dev/share-across-namespaces",
    PROXY_FROM,
    PROTOCOL,
    "seaway.dev/timeout-udp",
    // Of UDP, which is nowhere else.
    "seaway.dev/health-check-send",
];

/// Of those where TLS ends; at the front door for the host names of a Service.
const WITH_TLS: [&str; 4] = [AUTHORITIES, CLIENTS, HSTS, TLS_PROFILE];

/// Of requests and answers, and of TLS to members.
const OF_HTTP: [&str; 18] = [
    // Elsewhere nothing is opened.
    BASIC_AUTH,
    REALM,
    FORWARD_AUTHORIZATION,
    FORWARD_AUTH,
    FORWARD_HEADERS,
    COMPRESS,
    COMPRESS_TYPES,
    COMPRESS_PRIVATE,
    "seaway.dev/sticky-cookie",
    "seaway.dev/sticky-cookie-mode",
    "seaway.dev/max-body-size",
    "seaway.dev/timeout-answer",
    "seaway.dev/reuse-connections",
    "seaway.dev/passive-ejection-errors",
    "seaway.dev/backend-tls",
    "seaway.dev/backend-tls-name",
    BACKEND_AUTHORITIES,
    VERIFY,
];

/// Where it does something, by our name for it.
pub fn places(option: &str) -> &'static [OptionScope] {
    match option {
        TLS => &[Tcp, Http, Tls, FrontDoor, Route],
        "seaway.dev/https-redirect" => &[Tls, FrontDoor, Route],
        // Where TLS is passed on, they keep a Service out.
        SOURCE_RANGES | DENIED => &[Tcp, Http, Tls, FrontDoor, Route],
        CLIENT_RATE | BURST | RATE_KEY => &[Http, Tls, FrontDoor, Route],
        TRANSPARENT => &[Tcp],
        // Between two requests nobody knows whose the next one will be.
        "seaway.dev/timeout-keep-alive" => &[Http, Tls],
        // On a LoadBalancer, too, they ask for the front door.
        FRONT_DOOR | HOST => OWN_AND_FRONT_DOOR,
        PATH => &[Tcp, Http, Tls, FrontDoor],
        ENTRANCE => &[FrontDoor, Passthrough, Route],
        "seaway.dev/strip-prefix" => &[FrontDoor],
        PASSTHROUGH => &[FrontDoor, Passthrough],
        _ if of_clouds().any(|it| it == option) => &[],
        TLS_PORTS => &[Tls],
        _ if WITH_TLS.contains(&option) => &[Tls, FrontDoor],
        _ if OF_LISTENERS.contains(&option) => OWN,
        _ if OF_HTTP.contains(&option) => WHERE_HTTP_IS,
        // Of members: who they are, how they are chosen and checked.
        _ => OWN_AND_FRONT_DOOR,
    }
}

/// The same, for people.
pub fn place_names(option: &str) -> String {
    let all = places(option);
    let own = match OWN.iter().filter(|it| all.contains(it)).count() {
        0 => None,
        3 => Some("own address"),
        _ if all.contains(&Http) => Some("own address (HTTP)"),
        _ if all.contains(&Tls) => Some("own address (TLS)"),
        _ => Some("own address (TCP, UDP)"),
    };
    let others = [(FrontDoor, "front door"), (Passthrough, "passthrough"), (Route, "HTTPRoute")];
    let others = others.into_iter().filter(|(place, _)| all.contains(place)).map(|(_, name)| name);
    let names: Vec<&str> = own.into_iter().chain(others).collect();
    match (names.is_empty(), option) {
        // Who adopts a Service decides that, and not what serves it.
        (true, ADOPT) => "own address, clouds".to_owned(),
        (true, _) => "clouds".to_owned(),
        (false, _) => names.join(", "),
    }
}

/// Whether what is written asks for something: `false`, `off` and `0` ask for what is so anyway.
pub(crate) fn asks(option: &str, value: &str) -> bool {
    option == VERIFY || !matches!(value.trim(), "false" | "off" | "no" | "none" | "0")
}
