//! Certificates that come and go among many: names are kept up, not put together anew.

use std::{collections::BTreeMap, sync::Arc};

use seaway_model::{
    Config, Kind, ObjectRef, Time,
    fact::Secret,
    load_balancer::{ClientAuth, Listener, TlsByName},
};

use super::scene::*;
use crate::certificates::tests::{secret, tls_secret};

fn shown(world: &crate::World) -> Vec<Option<TlsByName>> {
    let balancer = load_balancer(world).expect("open");
    let tls = |listener: &Arc<Listener>| listener.tls.as_deref().cloned();
    balancer.listeners.values().map(tls).collect()
}

#[test]
fn certificates_that_come_and_go_come_to_what_they_would_have_come_to_at_once() {
    let named: [&[&str]; 4] = [&["a.example"], &["b.example", "a.example"], &["*.example"], &[]];
    let mut kinds: Vec<Secret> = named.iter().map(|names| tls_secret("x", names)).collect();
    kinds.push(Secret { kind: "Opaque".into(), ..secret("x", &[("ca.crt", CA)]) });
    kinds.push(secret("x", &[("tls.crt", "nothing"), ("tls.key", "")]));
    let mut seed = 11_u64;
    let mut draw = move |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % below
    };
    let object = |name: &str| ObjectRef::new(Kind::Secret, "default", name);
    for authorities in [None, Some("s0")] {
        let mut config = Config::default();
        config.front_door.tls.certificates = vec![object("s3"), object("s1")];
        config.front_door.tls.terms.clients =
            authorities.map(|it| ClientAuth { authorities: object(it), required: true });
        let shop = saying(service("shop", &[80]), &[("seaway.dev/tls", "s4")]);
        let mut late = world(config.clone(), [put(&shop)]);
        let mut now: BTreeMap<String, Secret> = BTreeMap::new();
        for _ in 0..150 {
            let name = format!("s{}", draw(7));
            match draw(3) {
                // One that is named stays in use, which a World that begins cannot know.
                0 if ["s0", "s1", "s3", "s4"].contains(&&*name) => {}
                0 => {
                    if let Some(gone) = now.remove(&name) {
                        late.apply(took(&gone));
                    }
                }
                _ => {
                    // What is broken goes on with what was there before, which a World that begins cannot know.
                    let kinds = &kinds[..if now.contains_key(&name) { 5 } else { 6 }];
                    let created = Some(Time(draw(3) as u64)).filter(|it| it.0 > 0);
                    let one = Secret { object: object(&name), created, ..kinds[draw(kinds.len())].clone() };
                    late.apply(told(&one));
                    now.insert(name, one);
                }
            }
            let fresh = world(config.clone(), now.values().map(told).chain([put(&shop)]));
            assert_eq!(shown(&late), shown(&fresh));
            let certificates = |world| load_balancer(world).expect("open").certificates.clone();
            assert_eq!(certificates(&late), certificates(&fresh));
        }
    }
}

#[test]
fn a_name_that_is_new_among_many_leaves_every_other_the_very_same() {
    let pair = |it: usize| tls_secret(&format!("s{it:03}"), &[&format!("{it}.example")]);
    let all: Vec<Secret> = (0..100).map(pair).collect();
    let mut world = world(Config::default(), all.iter().map(told).chain([put(&service("shop", &[80]))]));
    let tls = |world: &crate::World| shown(world).into_iter().flatten().next().expect("TLS");
    let before = tls(&world);
    world.apply(told(&pair(100)));
    world.apply(took(&all[7]));
    let after = tls(&world);
    let same = |(name, objects): &(_, &Arc<[ObjectRef]>)| {
        before.by_name.get(*name).is_some_and(|it| Arc::ptr_eq(it, objects))
    };
    let made: Vec<String> =
        after.by_name.iter().filter(|it| !same(it)).map(|(name, _)| name.to_string()).collect();
    assert_eq!((after.by_name.len(), made), (100, vec!["100.example".to_owned()]));
}
