//! A namespace has no more certificates held than it may have.

use std::sync::Arc;

use seaway_model::{
    Change, Config, Fact, Kind, Name, ObjectRef, Reason,
    config::{FrontDoor, FrontDoorServices, TlsSecrets},
    fact::{FactRef, Secret, Service},
};

use super::scene::*;
use crate::{World, certificates::tests::tls_secret};

fn told(secret: &Secret) -> Change {
    Change::Put(Fact::Secret(Arc::new(secret.clone())))
}

fn size(secret: &Secret) -> u64 {
    use secrecy::ExposeSecret;
    secret.values.values().map(|it| it.expose_secret().len() as u64).sum()
}

fn limited(bytes: u64) -> Config {
    let mut config = with(FrontDoor { services: FrontDoorServices::Annotated, ..FrontDoor::default() });
    config.front_door.tls.secrets = TlsSecrets::Named;
    config.tenants.limits.held_certificate_bytes = Some(bytes);
    config
}

/// At the front door, with a certificate of that name.
fn guest(name: &str) -> Service {
    let host = format!("{name}.example");
    let plain = name.rsplit('/').next().unwrap_or(name);
    let host = host.replace('/', ".");
    saying(service(name, &[80]), &[("seaway.dev/host", &host), ("seaway.dev/tls", plain)])
}

fn wanted(world: &World) -> Vec<Name> {
    world.secrets().expect("those that are named").into_iter().map(|it| it.name).collect()
}

fn held(world: &World, secret: &Secret) -> bool {
    world.named_certificates().expect("they are known").get(&secret.object).is_some_and(Option::is_some)
}

fn beyond(world: &World) -> Vec<Name> {
    let all = world.problems().into_iter().filter(|it| it.reason == Reason::LimitReached);
    all.filter(|it| it.object.kind == Kind::Secret).map(|it| it.object.name).collect()
}

#[test]
fn what_does_not_fit_is_left_out_and_asked_for_again_when_there_is_room() {
    let [one, two] = ["one", "two"].map(|name| tls_secret(name, &["a.example"]));
    let mut other = tls_secret("three", &["b.example"]);
    other.object.namespace = "shop".into();
    let services = [guest("one"), guest("two"), guest("shop/three")];
    let mut world =
        world(limited(size(&one) + 10), services.iter().map(put).chain([&one, &two, &other].map(told)));
    assert_eq!((held(&world, &one), held(&world, &two), held(&world, &other)), (true, false, true));
    assert_eq!((beyond(&world), wanted(&world)), (vec!["two".into()], vec!["one".into(), "three".into()]));
    let of_guest = |world: &World| {
        let status = world.status(&seaway_testkit::facts::owner(&services[1])).expect("it is there");
        status.problems.iter().any(|it| it.reason == Reason::LimitReached)
    };
    assert!(of_guest(&world), "whoever names it is told");
    // As it is told what is not wanted.
    world.apply(told(&Secret::withheld(two.object.clone())));
    assert_eq!((beyond(&world), wanted(&world).len()), (vec!["two".into()], 2));
    // What was deleted and is named stays in use, and so does its place.
    world.apply(Change::Gone(FactRef::Object(one.object.clone())));
    assert_eq!((held(&world, &one), wanted(&world).len()), (true, 3 - 1));
    world.apply(gone(&services[0]));
    assert_eq!(wanted(&world), ["two", "three"].map(Name::from));
    world.apply(told(&two));
    assert!(held(&world, &two) && beyond(&world).is_empty() && !of_guest(&world));
}

#[test]
fn what_is_renewed_is_used_if_it_is_no_larger_or_fits_and_else_what_was_before_stays() {
    let one = tls_secret("one", &["one.example"]);
    let mut larger = tls_secret("one", &["one.example"]);
    let authorities = [CA; 40].concat();
    larger.values.insert("ca.crt".into(), authorities.into());
    let mut smaller = one.clone();
    smaller.values.insert("tls.crt".into(), tls_secret("one", &["a.b"]).values["tls.crt"].clone());
    let mut world = world(limited(size(&one) + 1), [put(&guest("one")), told(&one)]);
    let holds = |world: &World| world.named_certificates().unwrap()[&one.object].clone().expect("it is held");
    let before = holds(&world);
    world.apply(told(&larger));
    assert!(Arc::ptr_eq(&before, &holds(&world)));
    assert_eq!(beyond(&world), ["one".into()]);
    world.apply(told(&smaller));
    assert!(!Arc::ptr_eq(&before, &holds(&world)) && beyond(&world).is_empty());
    // A limit that is lowered takes nothing away; one that is raised has what was left out asked for.
    world.apply(Change::Config(Arc::new(limited(1))));
    assert!(held(&world, &smaller));
    world.apply(told(&larger));
    assert!(wanted(&world).is_empty());
    world.apply(Change::Config(Arc::new(limited(size(&larger)))));
    assert_eq!(wanted(&world), ["one".into()]);
    world.apply(told(&larger));
    assert_eq!((beyond(&world), holds(&world).authorities.len()), (vec![], 40 * CA.len()));
}

#[test]
fn what_the_configuration_names_counts_for_nobody() {
    let (chosen, own) = (tls_secret("chosen", &["a.example"]), tls_secret("own", &["own.example"]));
    let mut config = limited(size(&own));
    config.front_door.tls.certificates = vec![ObjectRef::new(Kind::Secret, "default", "chosen")];
    let world = world(config, [put(&guest("own")), told(&chosen), told(&own)]);
    assert!(held(&world, &chosen) && held(&world, &own) && beyond(&world).is_empty());
}
