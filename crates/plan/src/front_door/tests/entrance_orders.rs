//! Certificates that are ordered for host names at further entrances: how they are proven, where that is answered, and shown.

use std::sync::Arc;

use seaway_model::{
    Change, Config, Desired, Fact, L4, ListenerId, LoadBalancer, Name, Outcome, Unit, WorkItem,
    acme::{Challenge, ChallengeType},
    config::{FrontDoor, TlsSecrets},
    fact::Service,
    load_balancer::{Action, Bind, Certificate, HostPattern},
    outcome::{ServingSocket, UnitState},
};
use seaway_testkit::facts::ip;

use super::{orders::*, scene::*};
use crate::{World, certificates::tests::tls_secret, front_door};

/// With an entrance that listens there, beside a main one that does at another address.
fn beside(mut config: Config, (port, tls): (u16, u16)) -> Config {
    config.front_door.addresses = vec![ip("192.0.2.6")];
    config.front_door.tls.secrets = TlsSecrets::Named;
    let mut own = config.front_door.clone();
    (own.addresses, own.port, own.tls.port) = (vec![ip("192.0.2.5")], port, tls);
    config.front_door.entrances.insert("internal".into(), FrontDoor { entrances: Default::default(), ..own });
    config
}

fn admin(entrance: &str) -> Service {
    saying(
        service("admin", &[80]),
        &[("seaway.dev/host", "admin.example"), ("seaway.dev/entrance", entrance)],
    )
}

fn internal() -> Unit {
    unit(&front_door::owner_of(Some(&"internal".into())))
}

fn at(world: &World) -> Arc<LoadBalancer> {
    match world.desire(&internal()) {
        Desired::LoadBalancer(it) => it,
        other => panic!("it is open: {other:?}"),
    }
}

fn asked(mut config: Config, how: ChallengeType) -> Config {
    config.front_door.tls.acme.as_mut().expect("set").challenge = Some(how);
    config
}

#[test]
fn a_name_is_proven_where_its_entrance_can_answer_and_by_dns_where_it_cannot() {
    let (http, alpn, dns) =
        (Some(ChallengeType::Http01), Some(ChallengeType::TlsAlpn01), Some(ChallengeType::Dns01));
    let by_alpn = || asked(ordering(), ChallengeType::TlsAlpn01);
    let everywhere = |mut config: Config| {
        config.front_door.addresses = Vec::new();
        config
    };
    let web = saying(service("web", &[80]), &[("seaway.dev/host", "web.example")]);
    let main = [put(&web), backed(&web)];
    let none: [Change; 0] = [];
    for (config, beside, expected, told) in [
        (beside(ordering(), (80, 443)), &none[..], http, ""),
        // As at a container whose port 80 is another one outside.
        (beside(asked(ordering(), ChallengeType::Http01), (80, 8443)), &none, http, ""),
        (beside(ordering(), (8080, 443)), &none, None, "port 80"),
        (beside(ordering(), (8080, 443)), &main, None, "port 80"),
        // The main one is at all addresses, so it has port 80 of that one.
        (everywhere(beside(ordering(), (8080, 443))), &main, http, ""),
        (everywhere(beside(ordering(), (8080, 443))), &none, None, "port 80"),
        (beside(by_alpn(), (8080, 443)), &none, alpn, ""),
        (beside(by_alpn(), (80, 8443)), &none, None, "port 443"),
        (beside(by_dns(&[], None), (8080, 443)), &none, dns, ""),
        (beside(by_dns(&["example"], dns), (8080, 443)), &none, dns, ""),
        (beside(by_dns(&["other.example"], None), (8080, 443)), &none, None, "port 80"),
    ] {
        let admin = admin("internal");
        let changes = [put(&admin), backed(&admin)].into_iter().chain(beside.iter().cloned());
        let config_shown = format!("{:?}", config.front_door.entrances);
        let world = world(config, changes);
        let found = wanted(&world, "admin.example").and_then(|it| it.challenge);
        let said: Vec<String> =
            problems(&world).into_iter().filter(|it| it.contains("no certificate is ordered")).collect();
        assert_eq!(found, expected, "{config_shown}: {said:?}");
        assert_eq!(said.is_empty(), told.is_empty(), "{said:?}");
        assert!(said.iter().all(|it| it.contains("admin.example") && it.contains(told)), "{said:?}");
    }
}

#[test]
fn what_is_ordered_for_an_entrance_is_answered_and_shown_there() {
    let admin = admin("internal");
    let mut config = beside(ordering(), (80, 443));
    config.front_door.entrances.get_mut("internal").expect("set").tls.redirect = true;
    let mut world = world(config, [put(&admin), backed(&admin)]);
    assert!(load_balancer(&world).is_none(), "nothing is at the main one");
    assert_eq!(problems(&world), [""; 0], "a certificate is on its way");
    assert_eq!(wanted(&world, "admin.example").expect("it is ordered").answers_at, []);
    let serving = vec![ServingSocket { ip: ip("192.0.2.5"), protocol: L4::Tcp, port: 80 }];
    let (unit, state) = (internal(), UnitState::Done);
    let dirt =
        world.apply(Change::Outcome(Outcome { unit, state, facts: vec![], problems: vec![], serving }));
    assert!(dirt.contains(&WorkItem::Unit(order("admin.example"))), "it can be answered now: {dirt:?}");
    let at_port: Vec<String> =
        wanted(&world, "admin.example").expect("wanted").answers_at.iter().map(ToString::to_string).collect();
    assert_eq!(at_port, ["192.0.2.5:80"]);

    let dirt = conclude(
        &mut world,
        order("admin.example"),
        vec![challenged("admin.example", &[("t0k", "t0k.print")])],
        vec![],
    );
    assert!(dirt.contains(&WorkItem::Unit(internal())), "{dirt:?}");
    let answers = |world: &World| {
        let rules = at(world).listeners.values().flat_map(|it| it.rules.clone()).collect::<Vec<_>>();
        rules.iter().any(|it| matches!(&it.action, Action::Respond { body, .. } if **body == *"t0k.print"))
    };
    assert!(answers(&world));
    let done = vec![Fact::Secret(Arc::new(issued("admin.example"))), challenged("admin.example", &[])];
    conclude(&mut world, order("admin.example"), done, vec![]);
    assert!(!answers(&world));
    let it = at(&world);
    assert_eq!(it.binds, [Bind::Host(ip("192.0.2.5"))]);
    let tls = it.listeners[&ListenerId { l4: L4::Tcp, port: 443 }].tls.clone().expect("TLS ends there");
    assert!(tls.by_name.contains_key(&HostPattern::Exact("admin.example".into())), "{tls:?}");

    // With its Service it leaves, and comes back at another entrance.
    world.apply(put(&self::admin("main")));
    assert!(wanted(&world, "admin.example").is_some());
    world.apply(gone(&admin));
    assert_eq!(wanted(&world, "admin.example"), None);
}

#[test]
fn a_name_at_an_entrance_that_has_a_certificate_for_it_is_not_ordered() {
    for (entrance, shown_at, expected) in [
        ("internal", "internal", false),
        ("internal", "main", true),
        // What the main one shows does not go because another has its own.
        ("internal,main", "internal", true),
        ("internal,main", "main", false),
    ] {
        let mut config = beside(ordering(), (80, 443));
        let object = tls_secret("own", &["*.example"]).object;
        match shown_at {
            "main" => config.front_door.tls.certificates.push(object),
            _ => {
                let internal = config.front_door.entrances.get_mut("internal").expect("set");
                internal.tls.certificates.push(object);
            }
        }
        let admin = admin(entrance);
        let own = told(&tls_secret("own", &["*.example"]));
        let world = world(config, [put(&admin), backed(&admin), own]);
        assert_eq!(wanted(&world, "admin.example").is_some(), expected, "{entrance} {shown_at}");
    }
}

/// A public log would show it to all, and the authority does not reach it.
#[test]
fn names_of_an_entrance_with_private_addresses_are_ordered_of_an_own_authority_alone() {
    for (own, expected) in [(false, false), (true, true)] {
        let mut config = beside(ordering(), (80, 443));
        let internal = config.front_door.entrances.get_mut("internal").expect("set");
        internal.addresses = vec![ip("10.0.0.5"), ip("fd00::5")];
        let acme = config.front_door.tls.acme.as_mut().expect("set");
        acme.authorities = own.then(|| "/etc/ssl/own.pem".into());
        let admin = admin("internal");
        let world = world(config, [put(&admin), backed(&admin)]);
        assert_eq!(wanted(&world, "admin.example").is_some(), expected);
    }
}

#[test]
fn an_entrance_opens_for_tls_while_one_of_its_names_is_checked_and_no_other_does() {
    let admin = admin("internal");
    let mut config = beside(asked(ordering(), ChallengeType::TlsAlpn01), (80, 443));
    let mut other = config.front_door.entrances["internal"].clone();
    (other.addresses, other.port) = (vec![ip("192.0.2.5")], 81);
    other.tls.port = 444;
    config.front_door.entrances.insert("other".into(), other);
    let third = saying(
        service("third", &[80]),
        &[("seaway.dev/host", "third.local"), ("seaway.dev/entrance", "other")],
    );
    let mut world = world(config, [put(&admin), backed(&admin), put(&third), backed(&third)]);
    let proof = Arc::new(Certificate {
        chain: "proof".into(),
        key: secrecy::SecretString::from("key"),
        authorities: "".into(),
        staple: None,
        users: Default::default(),
    });
    let checked = |validation| {
        let (host, answers) = (Name::from("admin.example"), Default::default());
        Fact::Challenge(Arc::new(Challenge { host, answers, validation }))
    };
    conclude(&mut world, order("admin.example"), vec![checked(Some(proof))], vec![]);
    let ports =
        |world: &World, name: &str| match world.desire(&unit(&front_door::owner_of(Some(&name.into())))) {
            Desired::LoadBalancer(it) => it.listeners.keys().map(|it| it.port).collect::<Vec<_>>(),
            other => panic!("{other:?}"),
        };
    assert_eq!((ports(&world, "internal"), ports(&world, "other")), (vec![80, 443], vec![81]));
    conclude(&mut world, order("admin.example"), vec![checked(None)], vec![]);
    assert_eq!(ports(&world, "internal"), [80]);
}
