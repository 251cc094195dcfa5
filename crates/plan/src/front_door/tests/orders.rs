//! Certificates that the front door orders: which, what is answered for them meanwhile, and that nobody else's suffer.

use std::sync::Arc;

use seaway_model::{
    Change, Config, Desired, Fact, Kind, L4, ListenerId, Name, ObjectRef, Outcome, Problem, Reason, Unit,
    WorkItem,
    acme::{
        Acme, CertificateOrder, Challenge, ChallengeType, DnsKey, DnsKeyAlgorithm, DnsUpdates,
        ordered_certificate,
    },
    config::HostOwners,
    fact::Secret,
    load_balancer::{Action, Certificate, HostPattern, PathMatch, Rule},
    outcome::{ServingSocket, UnitState},
};

use super::scene::*;
use crate::{
    World,
    certificates::tests::{secret, tls_secret},
    front_door,
};

pub(super) fn ordering() -> Config {
    let mut config = Config::default();
    config.front_door.tls.acme = Some(Acme {
        directory: "https://ca.example/dir".into(),
        email: None,
        authorities: None,
        binding: None,
        challenge: None,
        dns: None,
    });
    config
}

fn at_hosts(name: &str, hosts: &str) -> seaway_model::fact::Service {
    saying(service(name, &[80]), &[("seaway.dev/host", hosts)])
}

pub(super) fn order(host: &str) -> Unit {
    Unit::CertificateOrder(host.into())
}

pub(super) fn wanted(world: &World, host: &str) -> Option<Arc<CertificateOrder>> {
    match world.desire(&order(host)) {
        Desired::CertificateOrder(it) => Some(it),
        Desired::Absent => None,
        other => panic!("{other:?}"),
    }
}

fn orders<'h>(world: &World, hosts: &[&'h str]) -> Vec<&'h str> {
    hosts.iter().copied().filter(|host| wanted(world, host).is_some()).collect()
}

/// As its driver tells it.
pub(super) fn issued(host: &str) -> Secret {
    let stored = tls_secret(host, &[host]);
    Secret { object: ordered_certificate(&host.into()), ..stored }
}

pub(super) fn conclude(
    world: &mut World,
    unit: Unit,
    facts: Vec<Fact>,
    problems: Vec<Problem>,
) -> Vec<WorkItem> {
    let problems = problems.into_iter().map(|it| (front_door::owner(), it)).collect();
    let (state, serving) = (UnitState::Done, Vec::new());
    world.apply(Change::Outcome(Outcome { unit, state, facts, problems, serving }))
}

pub(super) fn challenged(host: &str, answers: &[(&str, &str)]) -> Fact {
    let answers = answers.iter().map(|(token, body)| (Name::from(*token), Name::from(*body))).collect();
    Fact::Challenge(Arc::new(Challenge { host: host.into(), answers, validation: None }))
}

fn rules(world: &World, port: u16) -> Vec<Arc<Rule>> {
    let balancer = load_balancer(world).expect("open");
    balancer.listeners.get(&ListenerId { l4: L4::Tcp, port }).map(|it| it.rules.clone()).unwrap_or_default()
}

fn answers(world: &World, port: u16) -> Vec<(String, String, String)> {
    let answer =
        |rule: &Arc<Rule>| match (&rule.action, rule.hosts.first(), rule.matches.first()?.path.as_ref()) {
            (Action::Respond { code: 200, body }, Some(host), Some(PathMatch::Exact(path))) => {
                Some((host.to_string(), path.to_string(), body.to_string()))
            }
            _ => None,
        };
    rules(world, port).iter().filter_map(answer).collect()
}

fn shown(world: &World, host: &str) -> Vec<String> {
    let balancer = load_balancer(world).expect("open");
    let Some(listener) = balancer.listeners.get(&ListenerId { l4: L4::Tcp, port: 443 }) else {
        return Vec::new();
    };
    let tls = listener.tls.as_ref().expect("TLS ends there");
    let objects = tls.by_name.get(&HostPattern::Exact(host.into()));
    objects.into_iter().flat_map(|it| it.iter()).map(ToString::to_string).collect()
}

const ALL: [&str; 6] =
    ["shop.example", "www.shop.example", "pass.example", "localhost", "nas.local", "192.0.2.7"];

#[test]
fn certificates_are_ordered_for_public_names_that_have_none_and_only_where_that_is_asked_for() {
    let shop = at_hosts("shop", "shop.example,www.shop.example,localhost,nas.local");
    let passing = saying(
        service("pass", &[443]),
        &[("seaway.dev/host", "pass.example"), ("seaway.dev/tls-passthrough", "true")],
    );
    let mine = tls_secret("mine", &["*.shop.example"]);
    let all = || [put(&shop), backed(&shop), put(&passing), backed(&passing), told(&mine)];
    assert_eq!(orders(&world(Config::default(), all()), &ALL), [""; 0]);
    let mut cluster = ordering();
    cluster.pools.cluster = true;
    assert_eq!(orders(&world(cluster, all()), &ALL), [""; 0], "several hosts would order the same");
    let mut world = world(ordering(), all());
    assert_eq!(orders(&world, &ALL), ["shop.example"], "the wildcard covers www.shop.example");
    assert_eq!(
        wanted(&world, "shop.example").expect("wanted").answers_at,
        [],
        "the front door serves nothing yet"
    );

    let dirt = world.apply(took(&mine));
    assert!(dirt.contains(&WorkItem::Unit(order("www.shop.example"))), "{dirt:?}");
    assert_eq!(orders(&world, &ALL), ["shop.example", "www.shop.example"]);
    let dirt = world.apply(told(&mine));
    assert!(dirt.contains(&WorkItem::Unit(order("www.shop.example"))), "its driver ends the order: {dirt:?}");
    assert_eq!(orders(&world, &ALL), ["shop.example"]);

    let dirt = world.apply(gone(&shop));
    assert!(dirt.contains(&WorkItem::Unit(order("shop.example"))), "{dirt:?}");
    assert_eq!(orders(&world, &ALL), [""; 0]);
}

#[test]
fn orders_begin_and_end_and_move_with_the_configuration() {
    let shop = at_hosts("shop", "shop.example");
    let mut world = world(Config::default(), [put(&shop), backed(&shop)]);
    let dirt = world.apply(Change::Config(Arc::new(ordering())));
    assert!(dirt.contains(&WorkItem::Unit(order("shop.example"))), "{dirt:?}");
    let mut elsewhere = ordering();
    elsewhere.front_door.tls.acme.as_mut().expect("set").directory = "https://other.example/dir".into();
    let dirt = world.apply(Change::Config(Arc::new(elsewhere)));
    assert!(dirt.contains(&WorkItem::Unit(order("shop.example"))), "{dirt:?}");
    assert_eq!(&*wanted(&world, "shop.example").expect("wanted").acme.directory, "https://other.example/dir");
    conclude(
        &mut world,
        order("shop.example"),
        vec![Fact::Secret(Arc::new(issued("shop.example")))],
        Vec::new(),
    );
    assert_eq!(shown(&world, "shop.example"), ["Certificate shop.example"]);
    world.apply(Change::Config(Arc::new(Config::default())));
    assert_eq!((wanted(&world, "shop.example"), shown(&world, "shop.example")), (None, Vec::new()));
}

#[test]
fn what_the_authority_asks_for_is_answered_in_the_open_for_that_name_alone() {
    let shop = at_hosts("shop", "shop.example");
    let mut config = ordering();
    config.front_door.tls.redirect = true;
    let mut world = world(config, [put(&shop), backed(&shop)]);
    let before = rules(&world, 80);
    let dirt = conclude(
        &mut world,
        order("shop.example"),
        vec![challenged("shop.example", &[("t0k", "t0k.print")])],
        vec![],
    );
    assert!(dirt.contains(&WorkItem::Unit(door())), "{dirt:?}");
    let expected =
        ("shop.example".to_owned(), "/.well-known/acme-challenge/t0k".to_owned(), "t0k.print".to_owned());
    assert_eq!(answers(&world, 80), vec![expected.clone()]);
    assert_eq!(rules(&world, 80).len(), before.len() + 1, "nothing else changes");
    conclude(&mut world, order("other.example"), vec![challenged("other.example", &[("x", "y")])], vec![]);
    assert_eq!(answers(&world, 80), [expected], "one for a name that is not ordered is not answered");

    let done = vec![Fact::Secret(Arc::new(issued("shop.example"))), challenged("shop.example", &[])];
    conclude(&mut world, order("shop.example"), done, vec![]);
    assert_eq!(answers(&world, 80), []);
    assert_eq!(shown(&world, "shop.example"), ["Certificate shop.example"]);
    assert_eq!(answers(&world, 443), []);
}

#[test]
fn where_names_have_owners_an_ordered_certificate_is_shown_for_its_name_all_the_same() {
    let shop = at_hosts("shop/web", "shop.example");
    let mut config = ordering();
    config.front_door.owners = HostOwners {
        names: [(HostPattern::Exact("shop.example".into()), vec!["shop".into()])].into(),
        ..HostOwners::default()
    };
    let mut world = world(config, [put(&shop), backed(&shop)]);
    conclude(
        &mut world,
        order("shop.example"),
        vec![Fact::Secret(Arc::new(issued("shop.example")))],
        Vec::new(),
    );
    assert_eq!(shown(&world, "shop.example"), ["Certificate shop.example"]);
}

#[test]
fn a_certificate_of_ones_own_comes_before_an_ordered_one_and_ends_its_order() {
    let shop = at_hosts("shop", "shop.example");
    let mut world = world(ordering(), [put(&shop), backed(&shop)]);
    conclude(
        &mut world,
        order("shop.example"),
        vec![Fact::Secret(Arc::new(issued("shop.example")))],
        Vec::new(),
    );
    world.apply(told(&tls_secret("mine", &["shop.example"])));
    assert_eq!(shown(&world, "shop.example"), ["Secret default/mine"]);
    assert_eq!(wanted(&world, "shop.example"), None);
    // A Secret that holds none is nobody's certificate.
    world.apply(told(&secret("mine", &[("tls.crt", "no PEM")])));
    assert_eq!(wanted(&world, "shop.example"), None, "what it held before goes on");
}

#[test]
fn where_the_front_door_answers_is_known_once_it_serves() {
    let shop = at_hosts("shop", "shop.example");
    let mut world = world(ordering(), [put(&shop), backed(&shop)]);
    let serving =
        |ip: &str, port| ServingSocket { ip: ip.parse().expect("an address"), protocol: L4::Tcp, port };
    let all =
        vec![serving("0.0.0.0", 80), serving("::", 80), serving("192.0.2.5", 80), serving("192.0.2.5", 443)];
    let (unit, state) = (door(), UnitState::Done);
    world.apply(Change::Outcome(Outcome { unit, state, facts: vec![], problems: vec![], serving: all }));
    let at: Vec<String> =
        wanted(&world, "shop.example").expect("wanted").answers_at.iter().map(ToString::to_string).collect();
    assert_eq!(at, ["127.0.0.1:80", "192.0.2.5:80", "[::1]:80"]);
}

#[test]
fn what_fails_is_told_at_the_front_door_which_stays_ready() {
    let shop = at_hosts("shop", "shop.example,*.shop.example");
    let mut config = ordering();
    config.front_door.tls.redirect = true;
    let mut world = world(config, [put(&shop), backed(&shop)]);
    assert_eq!(
        problems(&world),
        [
            "Config frontDoor.acme: no certificate is ordered for *.shop.example: that needs a record in DNS (DNS-01), and no name server is configured"
        ],
        "that nothing is redirected yet is no Problem while a certificate is on its way"
    );
    let object = ordered_certificate(&"shop.example".into());
    assert_eq!(object, ObjectRef::new(Kind::Certificate, "", "shop.example"));
    let failed = Problem::new(object, Reason::CertificateOrder, "no certificate was issued: no answer");
    let dirt = conclude(&mut world, order("shop.example"), Vec::new(), vec![failed.clone()]);
    assert!(dirt.contains(&WorkItem::Unit(Unit::Status(front_door::owner()))), "{dirt:?}");
    let serving =
        vec![ServingSocket { ip: "192.0.2.5".parse().expect("an address"), protocol: L4::Tcp, port: 80 }];
    let (unit, state) = (door(), UnitState::Done);
    world.apply(Change::Outcome(Outcome { unit, state, facts: vec![], problems: vec![], serving }));
    let Desired::Status(status) = world.desire(&Unit::Status(front_door::owner())) else {
        panic!("a status")
    };
    assert!(status.ready && status.problems.contains(&failed), "{status:?}");
    conclude(&mut world, order("shop.example"), Vec::new(), Vec::new());
    assert!(problems(&world).iter().all(|it| !it.contains("no answer")), "{:?}", problems(&world));
}

#[test]
fn a_name_below_a_wildcard_that_is_passed_on_is_left_to_it() {
    let shop = at_hosts("shop", "a.pass.example,shop.example");
    let passing = saying(
        service("pass", &[443]),
        &[("seaway.dev/host", "*.pass.example"), ("seaway.dev/tls-passthrough", "true")],
    );
    let world = world(ordering(), [put(&shop), backed(&shop), put(&passing), backed(&passing)]);
    assert_eq!(orders(&world, &["a.pass.example", "shop.example"]), ["shop.example"]);
}

#[test]
fn who_waits_for_a_certificate_is_not_sent_to_https_because_others_have_one() {
    let (shop, cart) = (at_hosts("shop", "shop.example"), at_hosts("cart", "cart.example"));
    let mut config = ordering();
    config.front_door.tls.redirect = true;
    let mut world = world(config, [put(&shop), backed(&shop), put(&cart), backed(&cart)]);
    let redirected = |world: &World| {
        let is_sent_on = |rule: &&Arc<Rule>| matches!(rule.action, Action::Redirect(_));
        let all = rules(world, 80);
        let hosts = all.iter().filter(is_sent_on).flat_map(|rule| rule.hosts.iter().map(ToString::to_string));
        hosts.collect::<Vec<_>>()
    };
    conclude(&mut world, order("shop.example"), vec![Fact::Secret(Arc::new(issued("shop.example")))], vec![]);
    assert_eq!(redirected(&world), ["shop.example"]);
    conclude(&mut world, order("cart.example"), vec![Fact::Secret(Arc::new(issued("cart.example")))], vec![]);
    assert_eq!(redirected(&world).len(), 2);
    // Of a name that left, nothing is heard any more.
    world.apply(gone(&cart));
    conclude(&mut world, order("cart.example"), vec![Fact::Secret(Arc::new(issued("cart.example")))], vec![]);
    assert_eq!(shown(&world, "cart.example"), [""; 0]);
    assert_eq!(world.certificates().valid, 1);
}

pub(super) fn by_dns(zones: &[&str], challenge: Option<ChallengeType>) -> Config {
    let mut config = ordering();
    let key = DnsKey {
        name: "seaway".into(),
        algorithm: DnsKeyAlgorithm::HmacSha256,
        secret_file: "tsig.key".into(),
    };
    let (server, zones) = (([192, 0, 2, 53], 53).into(), zones.iter().map(|it| Name::from(*it)).collect());
    let acme = config.front_door.tls.acme.as_mut().expect("set");
    acme.dns = Some(DnsUpdates { server, key, zones, secondaries: Vec::new() });
    acme.challenge = challenge;
    config
}

#[test]
fn a_wildcard_is_proven_by_dns_and_other_names_as_the_configuration_says() {
    let shop = at_hosts("shop", "shop.example,*.shop.example,*.cart.example,cart.example");
    let all = ["shop.example", "*.shop.example", "*.cart.example", "cart.example"];
    let (http, dns) = (Some(ChallengeType::Http01), Some(ChallengeType::Dns01));
    for (zones, asked, expected) in [
        (&[] as &[&str], None, [http, dns, dns, http]),
        (&["shop.example"], None, [http, dns, None, http]),
        (&["shop.example"], dns, [dns, dns, None, None]),
        (&["example"], http, [http, dns, dns, http]),
    ] {
        let world = world(by_dns(zones, asked), [put(&shop), backed(&shop)]);
        let proven = all.map(|host| wanted(&world, host).and_then(|it| it.challenge));
        assert_eq!(proven, expected, "{zones:?} {asked:?}");
        let told = problems(&world);
        let is_left = |host: &&str| wanted(&world, host).is_none_or(|it| it.challenge.is_none());
        let left: Vec<&str> = all.into_iter().filter(is_left).collect();
        assert_eq!(told.len(), left.len(), "{told:?}");
        for host in left {
            let told = told.iter().any(|it| {
                it.contains(&format!("frontDoor.acme.dns.zones: no certificate is ordered for {host}:"))
            });
            assert!(told, "{host}");
        }
    }
}

/// As when `zones` is narrowed: nothing is ordered any more, and what was issued serves until it ends, after a restart as well.
#[test]
fn a_certificate_of_a_name_that_cannot_be_proven_any_more_is_shown_on() {
    let shop = at_hosts("shop", "*.shop.example,cart.example");
    let object = ordered_certificate(&"*.shop.example".into());
    let issued =
        || Fact::Secret(Arc::new(Secret { object: object.clone(), ..tls_secret("x", &["*.shop.example"]) }));
    let shown = |world: &World| {
        let Some(balancer) = load_balancer(world) else { return false };
        let tls =
            balancer.listeners.get(&ListenerId { l4: L4::Tcp, port: 443 }).and_then(|it| it.tls.clone());
        tls.is_some_and(|it| it.by_name.contains_key(&HostPattern::Under("shop.example".into())))
    };
    let is_told = |world: &World| {
        problems(world).iter().any(|it| it.contains("no certificate is ordered for *.shop.example:"))
    };
    let narrowed = || by_dns(&["other.example"], None);
    let mut before = world(by_dns(&[], None), [put(&shop), backed(&shop)]);
    conclude(&mut before, order("*.shop.example"), vec![issued()], vec![]);
    assert!(shown(&before) && !is_told(&before));
    let dirt = before.apply(Change::Config(Arc::new(narrowed())));
    assert!(
        dirt.contains(&WorkItem::Unit(order("*.shop.example"))),
        "its driver has to hear of it: {dirt:?}"
    );
    assert!(shown(&before) && is_told(&before), "{:?}", problems(&before));
    let asked = wanted(&before, "*.shop.example").expect("it stays a Unit");
    assert_eq!(asked.challenge, None, "and nothing is ordered");
    assert!(wanted(&before, "cart.example").is_some_and(|it| it.challenge.is_some()));
    // Provable again.
    before.apply(Change::Config(Arc::new(by_dns(&[], None))));
    assert!(wanted(&before, "*.shop.example").is_some_and(|it| it.challenge.is_some()));
    assert!(shown(&before) && !is_told(&before));

    // What its driver finds in the state folder at the next start is shown, too; without it, nothing waits for it.
    let mut config = narrowed();
    config.front_door.tls.redirect = true;
    let shop = at_hosts("shop", "*.shop.example");
    let mut later = world(config, [put(&shop), backed(&shop), told(&tls_secret("mine", &["mine.example"]))]);
    let is_redirected = |world: &World| {
        let of_wildcard = |it: &&Arc<Rule>| it.hosts.contains(&HostPattern::Under("shop.example".into()));
        rules(world, 80).iter().filter(of_wildcard).all(|it| matches!(it.action, Action::Redirect(_)))
    };
    assert!(!shown(&later) && is_redirected(&later));
    conclude(&mut later, order("*.shop.example"), vec![issued()], vec![]);
    assert!(shown(&later) && is_redirected(&later));
    later.apply(gone(&shop));
    assert!(!shown(&later), "its name has left");
}

#[test]
fn a_certificate_of_a_wildcard_is_shown_for_names_below_it_and_http_waits_for_it() {
    let shop = at_hosts("shop", "*.shop.example");
    let mut config = by_dns(&[], None);
    config.front_door.tls.redirect = true;
    let mut world = world(config, [put(&shop), backed(&shop), told(&tls_secret("mine", &["mine.example"]))]);
    let is_redirected =
        |world: &World| rules(world, 80).iter().any(|rule| matches!(rule.action, Action::Redirect(_)));
    assert!(!is_redirected(&world), "who is sent to https there would be refused");
    let object = ordered_certificate(&"*.shop.example".into());
    let issued = Secret { object: object.clone(), ..tls_secret("x", &["*.shop.example"]) };
    conclude(&mut world, order("*.shop.example"), vec![Fact::Secret(Arc::new(issued))], vec![]);
    let balancer = load_balancer(&world).expect("open");
    let tls = balancer.listeners[&ListenerId { l4: L4::Tcp, port: 443 }].tls.clone().expect("TLS ends there");
    assert_eq!(*tls.by_name[&HostPattern::Under("shop.example".into())], [object]);
    assert!(is_redirected(&world));
}

#[test]
fn a_name_that_is_checked_by_tls_opens_its_listener_for_that_and_for_nothing_else() {
    let shop = at_hosts("shop", "shop.example");
    let mut config = ordering();
    config.front_door.tls.redirect = true;
    config.front_door.tls.acme.as_mut().expect("set").challenge = Some(ChallengeType::TlsAlpn01);
    let mut world = world(config, [put(&shop), backed(&shop)]);
    let serving =
        vec![ServingSocket { ip: "192.0.2.5".parse().expect("an address"), protocol: L4::Tcp, port: 80 }];
    let (unit, state) = (door(), UnitState::Done);
    world.apply(Change::Outcome(Outcome { unit, state, facts: vec![], problems: vec![], serving }));
    let asked = wanted(&world, "shop.example").expect("wanted");
    assert_eq!((asked.challenge, asked.answers_at[0].port()), (Some(ChallengeType::TlsAlpn01), 443));
    let secure = |world: &World| {
        let balancer = load_balancer(world).expect("open");
        balancer.listeners.get(&ListenerId { l4: L4::Tcp, port: 443 }).and_then(|it| it.tls.clone())
    };
    assert_eq!(secure(&world), None);
    let proof = Arc::new(Certificate {
        chain: "proof".into(),
        key: secrecy::SecretString::from("key"),
        authorities: "".into(),
        staple: None,
        users: Default::default(),
    });
    let checked = |host: &str, validation| {
        Fact::Challenge(Arc::new(Challenge { host: host.into(), answers: Default::default(), validation }))
    };
    conclude(&mut world, order("other.example"), vec![checked("other.example", Some(proof.clone()))], vec![]);
    assert_eq!(secure(&world), None, "one for a name that is not ordered is not shown");
    let dirt = conclude(
        &mut world,
        order("shop.example"),
        vec![checked("shop.example", Some(proof.clone()))],
        vec![],
    );
    assert!(dirt.contains(&WorkItem::Unit(door())), "{dirt:?}");
    let tls = secure(&world).expect("it is open");
    assert_eq!(tls.validations, [("shop.example".into(), proof.clone())].into());
    assert!(!tls.terminates_tls(), "nobody is served there yet");
    let is_redirected =
        |world: &World| rules(world, 80).iter().any(|it| matches!(it.action, Action::Redirect(_)));
    assert!(!is_redirected(&world));
    assert!(!format!("{tls:?}").contains("key\""), "its key is never said");

    let done = vec![Fact::Secret(Arc::new(issued("shop.example"))), checked("shop.example", None)];
    conclude(&mut world, order("shop.example"), done, vec![]);
    let tls = secure(&world).expect("it is open");
    assert!(tls.terminates_tls() && tls.validations.is_empty() && is_redirected(&world));

    // It fails, or its name leaves: the listener goes with it.
    let cart = at_hosts("cart", "cart.example");
    world.apply(gone(&shop));
    for change in [put(&cart), backed(&cart)] {
        world.apply(change);
    }
    assert_eq!(secure(&world), None);
    conclude(&mut world, order("cart.example"), vec![checked("cart.example", Some(proof.clone()))], vec![]);
    assert!(secure(&world).is_some());
    conclude(&mut world, order("cart.example"), vec![checked("cart.example", None)], vec![]);
    assert_eq!(secure(&world), None);
    conclude(&mut world, order("cart.example"), vec![checked("cart.example", Some(proof))], vec![]);
    assert!(secure(&world).is_some());
    world.apply(Change::Config(Arc::new(Config::default())));
    assert_eq!(secure(&world), None);
}
