//! What is served in these tests, as values of the model: the same for HAProxy and for our own data plane.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use seaway_haproxy::{ConfigInput, Document, Exclusions, Version, document, document::Global, words::Folder};
use seaway_model::{
    Kind, Listener, LoadBalancer, Name, ObjectRef, Owner, Pool, PoolId, Problem,
    load_balancer::{
        Action, Affinity, Balance, Bind, Certificate, CheckKind, CookieMode, Filter, HeaderChange,
        HealthCheck, HostPattern, HttpLimits, HttpOptions, Match, MemberLimit, PathMatch, Protocol,
        ProxyVersion, Redirect, Rule, TextMatch, TlsByName,
    },
};
use seaway_testkit::balancing;

/// What is served, and members by their names.
pub(crate) type All = BTreeMap<Owner, Arc<LoadBalancer>>;

pub(crate) fn owner(name: &str) -> Owner {
    Owner::Object { object: ObjectRef::new(Kind::Service, "default", name), uid: name.into() }
}

pub(crate) fn id(name: &str) -> PoolId {
    PoolId(name.into())
}

pub(crate) fn pool(name: &str, members: &[SocketAddr]) -> Pool {
    Pool { id: id(name), owner: owner(name), ..balancing::pool(members) }
}

pub(crate) fn to(name: &str) -> Rule {
    Rule::forward_all(owner(name), id(name))
}

pub(crate) fn at(rule: Rule, hosts: &[HostPattern], path: Option<PathMatch>) -> Rule {
    let matches = path.map(|path| Match { path: Some(path), ..Match::default() });
    Rule { hosts: hosts.to_vec(), matches: matches.into_iter().collect(), ..rule }
}

pub(crate) fn exact(host: &str) -> HostPattern {
    HostPattern::Exact(host.into())
}

pub(crate) fn under(host: &str) -> HostPattern {
    HostPattern::Under(host.into())
}

pub(crate) fn prefix(path: &str) -> Option<PathMatch> {
    Some(PathMatch::Prefix(path.into()))
}

pub(crate) fn http(name: &str, port: u16, rules: Vec<Rule>) -> Listener {
    Listener {
        owner: owner(name),
        name: format!("default/{name}:http").into(),
        protocol: Protocol::Http,
        rules: rules.into_iter().map(Arc::new).collect(),
        ..balancing::listener(port)
    }
}

pub(crate) fn load_balancer(ip: IpAddr, listeners: Vec<Listener>, pools: Vec<Pool>) -> LoadBalancer {
    LoadBalancer {
        binds: vec![Bind::Host(ip)],
        listeners: listeners.into_iter().map(|it| (it.id(), Arc::new(it))).collect(),
        pools: pools.into_iter().map(|it| (it.id.clone(), Arc::new(it))).collect(),
        ..LoadBalancer::default()
    }
}

pub(crate) fn secret(name: &str) -> ObjectRef {
    ObjectRef::new(Kind::Secret, "default", name)
}

/// Its chain, its key.
pub(crate) fn made(names: &[&str]) -> (String, String) {
    let names: Vec<String> = names.iter().map(|it| (*it).to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
    (made.cert.pem(), made.signing_key.serialize_pem())
}

pub(crate) fn certificate((chain, key): &(String, String)) -> Arc<Certificate> {
    Arc::new(Certificate {
        chain: chain.as_str().into(),
        key: key.clone().into(),
        authorities: "".into(),
        staple: None,
        users: String::new().into(),
    })
}

pub(crate) fn global(folder: &str) -> Global {
    Global { folder: Folder::new(folder).expect("a folder"), threads: Some(1), ..Global::default() }
}

pub(crate) fn printed(
    all: &All,
    folder: &str,
    before: Option<&Document>,
) -> (Document, Vec<(Owner, Problem)>) {
    let (global, unusable) = (global(folder), Exclusions::default());
    let wanted = ConfigInput {
        load_balancers: all,
        version: Version::V2_6,
        global: &global,
        unusable: &unusable,
        before,
    };
    document(wanted)
}

fn value(name: &str, text: &str) -> (Name, Name) {
    (name.into(), text.into())
}

/// So many ranges, and this one as the last.
pub(crate) fn ranges(count: usize, last: &str) -> Vec<ipnet::IpNet> {
    let others = (0..count).map(|it| format!("10.{}.{}.0/24", it / 256, it % 256));
    others.chain([last.to_owned()]).map(|it| it.parse().expect("a range")).collect()
}

/// So many headers, and as many parameters: `X-0: 0`, `q0=0`.
pub(crate) fn many(path: &str, count: usize) -> Match {
    let all = |name: &str| {
        let one = |it: usize| (format!("{name}{it}").into(), TextMatch::Exact(it.to_string().into()));
        (0..count).map(one).collect()
    };
    Match { path: prefix(path), headers: all("X-"), query: all("q"), method: Some("GET".into()) }
}

/// Rules of each kind that HAProxy serves.
fn rules() -> Vec<Rule> {
    let shop = [exact("shop.example")];
    let change = HeaderChange {
        set: vec![value("X-Set", "100% $HOME ${HOME} %[src] #1 \"two\" ; x")],
        add: vec![value("X-Added", "one")],
        remove: vec!["X-Removed".into()],
    };
    let canary = Match {
        path: prefix("/api"),
        method: Some("POST".into()),
        headers: vec![("X-Canary".into(), TextMatch::Exact("a b'".trim_end_matches('\'').into()))],
        query: vec![("to".into(), TextMatch::Exact("beta c".into()))],
    };
    let redirect = |redirect| Rule { action: Action::Redirect(redirect), ..to("shop") };
    vec![
        at(to("shop"), &shop, None),
        at(to("cart"), &shop, prefix("/cart")),
        at(to("api"), &shop, Some(PathMatch::Exact("/cart/api".into()))),
        at(to("api"), &[exact("api.shop.example")], prefix("/v1/")),
        at(to("cart"), &[under("shop.example")], None),
        at(to("shop"), &[under("deep.shop.example")], prefix("/deep")),
        at(to("api"), &[], prefix("/anywhere")),
        Rule { matches: vec![canary], hosts: shop.to_vec(), ..to("beta") },
        at(to("api"), &shop, prefix("/api")),
        at(
            Rule {
                filters: vec![Filter::RewritePrefix("/new.way".into()), Filter::RewriteHost("inside".into())],
                ..to("api")
            },
            &shop,
            prefix("/old+way"),
        ),
        at(Rule { filters: vec![Filter::RewritePrefix("/".into())], ..to("api") }, &shop, prefix("/strip")),
        at(Rule { filters: vec![Filter::RewritePath("/fixed".into())], ..to("api") }, &shop, prefix("/path")),
        at(
            Rule {
                filters: vec![Filter::RequestHeaders(change.clone()), Filter::ResponseHeaders(change)],
                ..to("api")
            },
            &shop,
            prefix("/headers"),
        ),
        at(
            Rule { sources: vec!["192.0.2.0/24".parse().expect("a range")], ..to("api") },
            &shop,
            prefix("/inside"),
        ),
        at(
            Rule { denied: vec!["127.0.0.0/8".parse().expect("a range")], ..to("api") },
            &shop,
            prefix("/denied"),
        ),
        at(Rule { sources: ranges(60, "127.0.0.0/8"), ..to("api") }, &shop, prefix("/many-inside")),
        at(Rule { denied: ranges(60, "127.0.0.0/8"), ..to("api") }, &shop, prefix("/many-denied")),
        Rule { matches: vec![many("/many", 9)], hosts: shop.to_vec(), ..to("beta") },
        at(
            Rule { rates: Vec::new(), action: Action::Forward(vec![(id("api"), 0)]), ..to("api") },
            &shop,
            prefix("/nobody"),
        ),
        at(
            redirect(Redirect { scheme: Some("https".into()), code: 308, ..Redirect::default() }),
            &shop,
            prefix("/tls"),
        ),
        at(
            redirect(Redirect {
                host: Some("other.example".into()),
                port: Some(8443),
                path: Some(PathMatch::Prefix("/there".into())),
                code: 302,
                ..Redirect::default()
            }),
            &shop,
            prefix("/moved"),
        ),
        at(
            redirect(Redirect {
                path: Some(PathMatch::Exact("/same".into())),
                code: 301,
                ..Redirect::default()
            }),
            &shop,
            prefix("/same-host"),
        ),
        at(
            Rule { action: Action::Respond { code: 410, body: "<p>gone".into() }, ..to("shop") },
            &shop,
            prefix("/gone"),
        ),
        at(
            Rule { action: Action::Respond { code: 503, body: "".into() }, ..to("shop") },
            &shop,
            prefix("/down"),
        ),
    ]
}

/// Where each member is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Members {
    pub(crate) shop: SocketAddr,
    pub(crate) cart: SocketAddr,
    pub(crate) api: SocketAddr,
    pub(crate) beta: SocketAddr,
}

impl Members {
    /// At ports that nobody asks.
    pub(crate) fn written() -> Members {
        let at = |last| SocketAddr::from(([10, 0, 0, last], 8080));
        Members { shop: at(1), cart: at(2), api: at(3), beta: at(4) }
    }
}

/// Three ports: HTTP with all rules, HTTP in TLS, TCP.
pub(crate) fn all(
    ip: IpAddr,
    [plain, secure, tcp]: [u16; 3],
    members: Members,
    pems: &[(String, String); 2],
) -> All {
    let pools = vec![
        pool("shop", &[members.shop]),
        pool("cart", &[members.cart]),
        pool("api", &[members.api]),
        pool("beta", &[members.beta]),
    ];
    let options = HttpOptions {
        pages: [(404, "<h1>nothing here".into()), (503, "nobody serves this".into())].into(),
        via: Some("edge".into()),
        ..HttpOptions::default()
    };
    let web = Listener { http: options, ..http("web", plain, rules()) };
    let tls = TlsByName {
        default: vec![secret("first")],
        by_name: [(exact("second.example"), vec![secret("second")].into())].into(),
        hsts: Some(3600),
        ..TlsByName::default()
    };
    let secured = Listener {
        tls: Some(Arc::new(tls)),
        ..http("web", secure, vec![to("shop"), at(to("cart"), &[exact("second.example")], None)])
    };
    let mut web = load_balancer(ip, vec![web, secured], pools);
    web.certificates = Arc::new(
        [(secret("first"), certificate(&pems[0])), (secret("second"), certificate(&pems[1]))].into(),
    );
    let mut bytes = pool("bytes", &[members.shop, members.cart, members.api]);
    for member in &mut bytes.members {
        member.weight = if member.at == members.shop { 3 } else { 1 };
        member.backup = member.at == members.api;
    }
    let bytes_at = Listener {
        owner: owner("bytes"),
        name: "default/bytes:tcp".into(),
        rules: vec![Arc::new(to("bytes"))],
        denied: vec!["203.0.113.0/24".parse().expect("a range")],
        ..balancing::listener(tcp)
    };
    [
        (owner("web"), Arc::new(web)),
        (owner("bytes"), Arc::new(load_balancer(ip, vec![bytes_at], vec![bytes]))),
    ]
    .into()
}

/// Options of pools that need other members than those of these tests.
pub(crate) fn options(ip: IpAddr) -> All {
    let members = Members::written();
    let check = CheckKind::Http {
        path: "/up?a=1%20".into(),
        host: Some("up.example".into()),
        status: (200, 299),
        expect: Some("well, 100% \"ok\"".into()),
    };
    let mut one = pool("one", &[members.shop, "[2001:db8::1]:80".parse().expect("an address")]);
    one.health = Some(HealthCheck { kind: check, port: Some(81), ..HealthCheck::default() });
    one.passive = Some(Default::default());
    one.affinity = Some(Affinity::Cookie { name: "SERVERID".into(), mode: CookieMode::Insert, key: None });
    one.slow_start = Some(Duration::from_secs(5));
    one.member_limit = Some(MemberLimit { connections: 10, wait: Duration::from_millis(1500) });
    one.http.body = Some(1 << 20);
    one.balance = Balance::LeastConnections;
    let mut two = pool("two", &[members.cart]);
    two.health = Some(HealthCheck::default());
    two.affinity = Some(Affinity::ClientIp(Duration::from_secs(60)));
    two.proxy = Some(ProxyVersion::V2);
    two.balance = Balance::SourceHash;
    let limited = HttpOptions {
        trusted: vec!["10.0.0.0/8".parse().expect("a range")],
        limits: HttpLimits { body: 1000, ..HttpLimits::default() },
        ..HttpOptions::default()
    };
    let first = Listener {
        http: limited,
        proxy_from: vec!["10.1.0.0/16".parse().expect("a range")],
        sources: vec!["10.0.0.0/8".parse().expect("a range")],
        ..http("one", 80, vec![to("one")])
    };
    let split = Rule { action: Action::Forward(vec![(id("one"), 1), (id("two"), 3)]), ..to("one") };
    let split = http("one", 81, vec![split]);
    [(owner("one"), Arc::new(load_balancer(ip, vec![first, split], vec![one, two])))].into()
}
