//! Which versions of TLS a listener speaks, and for how long browsers are to come by https alone. Pure.
//!
//! Octavia keeps what it was given. So what Seaway gave has a tag, and goes when nobody asks for it any more; what an operator
//! wrote has none, and stays.

use std::collections::BTreeSet;

use seaway_model::{
    Listener as Wished, LoadBalancer as Wish,
    load_balancer::{CloudTlsOptions, TlsProfile},
};
use seaway_openstack::{
    octavia::{Listener, ListenerChange, NewListener},
    resource::Edit,
    survey::{Abilities, Ability},
};

use super::is_ended;
use crate::octavia::adopted;

/// A listener that was given versions of TLS has the first, one that was given HSTS the second.
const VERSIONS: &str = "seaway.dev/tls-profile";
const HSTS: &str = "seaway.dev/hsts";

const MODERN: [&str; 1] = ["TLSv1.3"];
/// As Octavia has them where nobody says otherwise. (Asked for its own by null, it fails where an operator has set a minimum.)
const USUAL: [&str; 2] = ["TLSv1.2", "TLSv1.3"];

/// What is asked of a listener where TLS ends.
pub(in crate::octavia) fn of(wish: &Wish, listener: &Wished) -> CloudTlsOptions {
    match &listener.tls {
        Some(tls) => CloudTlsOptions { profile: tls.profile, hsts: tls.hsts.filter(|it| *it > 0) },
        None => wish.options.cloud.as_ref().map(|it| it.tls_terms).unwrap_or_default(),
    }
}

pub(super) fn needs_versions(wish: &Wish, listener: &Wished) -> bool {
    is_ended(wish, listener) && of(wish, listener).profile == TlsProfile::Modern
}

pub(super) fn put_terms(new: &mut NewListener, terms: CloudTlsOptions, can: &Abilities) {
    if terms.profile == TlsProfile::Modern && can.has(Ability::TlsVersions) {
        new.tls_versions = Edit::To(Some(words(&MODERN)));
    }
    if let Some(seconds) = terms.hsts.filter(|_| can.has(Ability::Hsts)) {
        new.hsts_max_age = Edit::To(Some(u64::from(seconds)));
    }
    let given = given(new);
    if let Edit::To(tags) = &mut new.tags {
        tags.extend(given.iter().filter(|it| it.1).map(|(tag, _)| (*tag).to_owned()));
    }
}

/// TLS does not end there after all.
pub(super) fn clear_terms(new: &mut NewListener) {
    (new.tls_versions, new.hsts_max_age) = (Edit::Leave, Edit::Leave);
    if let Edit::To(tags) = &mut new.tags {
        tags.retain(|it| it != VERSIONS && it != HSTS);
    }
}

/// What was asked for and is not any more. `change`: as the rest of the listener is changed.
pub(in crate::octavia) fn reset(change: &mut ListenerChange, wish: &NewListener, there: &Listener) {
    let is_over = |tag: &str, is_asked: bool| there.tags.contains(tag) && !is_asked;
    let [(_, has_versions), (_, has_hsts)] = given(wish);
    if is_over(VERSIONS, has_versions) {
        change.tls_versions = Edit::To(Some(words(&USUAL))).unless_equal(&there.tls_versions);
    }
    if is_over(HSTS, has_hsts) {
        change.hsts_max_age = Edit::To(None).unless_equal(&there.hsts_max_age);
    }
    let before = match &change.tags {
        Edit::To(tags) => tags.clone(),
        Edit::Leave => there.tags.clone(),
    };
    let mut tags = before.clone();
    for (tag, is_asked) in given(wish) {
        match (&wish.tags, is_asked) {
            (_, false) => _ = tags.remove(tag),
            // With whose it is, as in tags.rs.
            (Edit::To(own), true) if !tags.contains(tag) => {
                adopted::mark(&mut tags, own, &there.tags);
                tags.insert(tag.to_owned());
            }
            _ => {}
        }
    }
    if tags != before {
        change.tags = Edit::To(tags);
    }
}

/// What is asked for, by the tag that says so.
fn given(new: &NewListener) -> [(&'static str, bool); 2] {
    [(VERSIONS, !new.tls_versions.is_left()), (HSTS, !new.hsts_max_age.is_left())]
}

/// Ports where HSTS is asked for, and nobody there has a word for it.
pub(in crate::octavia) fn told(wish: &Wish, can: &Abilities) -> Option<(String, &'static str)> {
    let asked = wish.listeners.values().filter(|it| is_ended(wish, it) && of(wish, it).hsts.is_some());
    let ports: BTreeSet<String> = asked.map(|it| it.id().to_string()).collect();
    if ports.is_empty() || can.has(Ability::Hsts) {
        return None;
    }
    let ports = ports.into_iter().collect::<Vec<_>>().join(", ");
    let what = Ability::Hsts.as_str();
    let message =
        format!("port {ports}: this provider of load balancers has no {what}: this setting is ignored");
    Some((message, "Have members send the header Strict-Transport-Security, or choose another provider."))
}

fn words(all: &[&str]) -> Vec<String> {
    all.iter().map(|it| (*it).to_owned()).collect()
}
