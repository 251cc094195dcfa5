//! Targets for fuzzing: plain functions over bytes that panic when an invariant does not hold.

#![allow(clippy::indexing_slicing, reason = "what is wrong ends the fuzz target")]

use seaway_model::{Config, Kind, Name, load_balancer::TlsProfile, name::ObjectRef};

use crate::{
    annotations::{
        BASIC_AUTH, BURST, CLIENT_RATE, FORWARD_AUTHORIZATION, FRONT_DOOR, HOST, INTERNAL, PATH, RATE,
        RATE_KEY, REALM, SOURCE_RANGES, ServiceOptions, TLS_PROFILE, nobody, rows,
    },
    certificates::{passwords, pem, x509},
    http, quantity,
};

/// Whatever is said to be a certificate is one with dates in their order of reading and hosts in one form, or none; and
/// a chain is nothing but certificates.
pub fn certificate(bytes: &[u8]) {
    let signs = x509::signs(bytes);
    let cut = &bytes[..bytes.len().saturating_sub(1)];
    assert!(x509::signs(cut).is_none_or(|it| Some(it) == signs), "less says something else");
    if let Some(seen) = x509::read(bytes) {
        for name in &seen.names {
            assert_eq!(http::host(&name.to_string()).as_ref(), Ok(name), "it is kept in one form");
        }
        assert!(x509::read(cut).is_none_or(|it| it == seen), "less says something else");
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let read = passwords::read(text);
    let told: usize = read.unusable.values().map(Vec::len).sum();
    assert!(read.users.0.len().saturating_add(told) <= text.lines().count(), "a line is one user at most");
    let all: Vec<_> = pem::certificates(text).take_while(Option::is_some).collect();
    let only = pem::only_certificates(text);
    assert_eq!(pem::certificates(&only).take(all.len()).collect::<Vec<_>>(), all);
    all.into_iter().flatten().for_each(|it| drop((x509::read(&it), x509::signs(&it))));
}

/// Whatever an annotation says is heeded, or refused with a Problem that names it and leaves every default; but who
/// may connect is then nobody.
pub fn wish(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let object = ObjectRef::new(Kind::Service, "default", "shop");
    let defaults = ServiceOptions::of(&Config::default().defaults);
    for row in rows() {
        let name = row.name();
        let mut wishes = defaults.clone();
        let problems = wishes.read(&object, &[(Name::from(name), Name::from(text))].into_iter().collect());
        for problem in &problems {
            assert!(problem.field.contains(name), "{name} is blamed as {}", problem.field);
        }
        let mut refused = defaults.clone();
        if name == SOURCE_RANGES {
            // Nobody may connect then.
            (refused.sources, refused.written) = (nobody(), wishes.written.clone());
        }
        if name == INTERNAL {
            // Nothing is published by guess.
            refused.cloud.unclear = true;
        }
        if name == TLS_PROFILE {
            // No version is spoken that was to be forbidden.
            (refused.tls.profile, refused.cloud.unclear) = (Some(TlsProfile::Modern), true);
        }
        if [REALM, FORWARD_AUTHORIZATION].contains(&name) {
            // Who says how a password is asked for means to ask.
            refused.close_for(BASIC_AUTH);
        }
        if [BURST, RATE_KEY].contains(&name) {
            // Who says what a rate is counted by means to limit it.
            refused.close_for(CLIENT_RATE);
        }
        if name == "seaway.dev/max-body-size" {
            // No limit stands in for this one.
            refused.close_for(RATE);
        }
        // It has no place at the front door rather than another one than was meant.
        refused.http.place_unclear = [FRONT_DOOR, HOST, PATH].contains(&name);
        // Nothing listens without what protects.
        refused.close_for(name);
        assert!(problems.is_empty() || wishes == refused, "{name}: {text:?} was refused and heeded");
    }
    if let Some((host, path)) = http::meant_place(text) {
        assert!(host.is_some() || path.is_some());
        assert!(host.is_none_or(|it| http::host(&it.to_string()) == Ok(it)), "it is kept in one form");
        assert!(path.is_none_or(|it| http::path(&it) == Ok(it)), "it is kept in one form");
    }
    if let Ok(range) = quantity::range(text) {
        assert!(range.first() <= range.last());
    }
}
