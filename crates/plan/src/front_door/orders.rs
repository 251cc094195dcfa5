//! Certificates that the front door orders: for which host names, and what the authority asks for meanwhile.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use seaway_model::{
    Kind, Name, ObjectRef,
    acme::{Acme, Challenge, ChallengeType, WILDCARD, ordered_certificate, record_name},
    load_balancer::{Action, HostPattern, Match, PathMatch, Rule},
};

use super::{FrontDoor, owner};
use crate::index::Given;

/// Where authorities ask (RFC 8555, section 8.3).
const WELL_KNOWN: &str = "/.well-known/acme-challenge/";

/// No public authority certifies names below these (RFC 6761, RFC 6762, RFC 7686, RFC 8375, RFC 9476).
const NOT_PUBLIC: [&str; 7] = ["localhost", "local", "internal", "home.arpa", "onion", "alt", "invalid"];

/// What may be ordered, and what may not.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Orderable {
    pub(crate) hosts: BTreeMap<Name, ChallengeType>,
    /// Their authority would have to be shown a record in DNS, which may not be added.
    pub(crate) unprovable: BTreeMap<Name, Unprovable>,
}

/// What another challenge changes at the front door.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum AnswerChange {
    Nothing,
    Rules,
    /// Rules, and whether there is one for TLS.
    Listeners,
}

/// Why a record may not be added.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Unprovable {
    NoServer,
    OtherZone,
}

impl FrontDoor {
    /// Host names where TLS is to end here, and that no certificate is for which somebody else provides.
    pub(crate) fn orderable(&self, given: Given<'_>) -> Orderable {
        let mut orderable = Orderable::default();
        let provided: BTreeSet<&HostPattern> = self.provided(given).collect();
        let passed_on = self.through();
        let is_passed_on = |host: &HostPattern| {
            let (HostPattern::Exact(name) | HostPattern::Under(name)) = host;
            let ends =
                std::iter::successors(Some(name.as_str()), |name| Some(name.split_once('.')?.1)).skip(1);
            // Its own certificate would take it away from who has the wildcard.
            passed_on.contains_key(host)
                || ends.into_iter().any(|end| passed_on.contains_key(&HostPattern::Under(end.into())))
        };
        let acme = given.config.front_door.tls.acme.as_ref();
        let is_own_authority = acme.is_some_and(|it| it.authorities.is_some());
        let owners = self.host_names();
        for (rank, guest) in self.within_limits() {
            let its = guest.rules.iter().flat_map(|rule| rule.hosts.iter());
            for host in its.filter(|host| owners.may(rank.namespace(), host) && !is_passed_on(host)) {
                let is_covered = || match host {
                    HostPattern::Exact(name) => name
                        .split_once('.')
                        .is_some_and(|(_, rest)| provided.contains(&HostPattern::Under(rest.into()))),
                    HostPattern::Under(_) => false,
                };
                if provided.contains(host) || is_covered() {
                    continue;
                }
                let (HostPattern::Exact(name) | HostPattern::Under(name)) = host;
                let is_certified = is_public(name) || is_own_authority && is_name(name);
                if !is_certified {
                    continue;
                }
                let ordered = ordered_name(host);
                match acme.map_or(Err(Unprovable::NoServer), |it| challenge(it, &ordered)) {
                    Ok(challenge) => drop(orderable.hosts.insert(ordered, challenge)),
                    Err(why) => drop(orderable.unprovable.insert(ordered, why)),
                }
            }
        }
        orderable
    }

    fn provided<'a>(&'a self, given: Given<'a>) -> impl Iterator<Item = &'a HostPattern> {
        let shown = given.certificates.at_front_door(&given.config.front_door.tls, &self.certificates);
        let others = shown.into_iter().filter(|it| it.kind != Kind::Certificate);
        others.flat_map(|it| given.certificates.names_of(it))
    }

    /// The certificates that are ordered.
    pub(crate) fn ordered(&self) -> impl Iterator<Item = &ObjectRef> {
        self.certificates.keys().filter(|it| it.kind == Kind::Certificate)
    }

    /// Whether one of these host names waits for a certificate: who is sent to https there would be refused.
    pub(super) fn awaits_certificate(&self, rules: &[Arc<Rule>], given: Given<'_>) -> bool {
        let mut hosts = rules.iter().flat_map(|rule| rule.hosts.iter());
        hosts.any(|host| {
            let object = ordered_certificate(&ordered_name(host));
            self.certificates.contains_key(&object) && given.certificates.held(&object).is_none()
        })
    }

    /// From now on the certificate of that name is shown, once it is there.
    pub(crate) fn expect(&mut self, host: &Name) {
        self.certificates.entry(ordered_certificate(host)).or_default();
        self.forget_certificates();
    }

    /// Whether the listener for TLS may be another now.
    pub(crate) fn expect_no_more(&mut self, host: &Name) -> bool {
        self.certificates.remove(&ordered_certificate(host));
        self.challenges.remove(host);
        self.forget_certificates();
        self.validations.remove(host).is_some()
    }

    /// What is answered otherwise now.
    pub(crate) fn answer(&mut self, challenge: &Challenge) -> AnswerChange {
        let rules: Vec<Arc<Rule>> =
            challenge.answers.iter().map(|(token, body)| rule(&challenge.host, token, body)).collect();
        let before = match rules.is_empty() {
            true => self.challenges.remove(&challenge.host).unwrap_or_default(),
            false => self.challenges.insert(challenge.host.clone(), rules.clone()).unwrap_or_default(),
        };
        let validation = match challenge.validation.clone() {
            None => self.validations.remove(&challenge.host),
            Some(it) => self.validations.insert(challenge.host.clone(), it),
        };
        let change = match (validation != challenge.validation, before != rules) {
            (true, _) => AnswerChange::Listeners,
            (false, true) => AnswerChange::Rules,
            (false, false) => return AnswerChange::Nothing,
        };
        self.forget_listeners();
        change
    }
}

/// As an order calls it.
fn ordered_name(host: &HostPattern) -> Name {
    match host {
        HostPattern::Exact(name) => name.clone(),
        HostPattern::Under(name) => format!("{WILDCARD}{name}").into(),
    }
}

/// How that name is proven: as the configuration says, and a wildcard by DNS, for nothing else proves one.
fn challenge(acme: &Acme, host: &str) -> Result<ChallengeType, Unprovable> {
    let asked = acme.challenge.unwrap_or(ChallengeType::Http01);
    if asked != ChallengeType::Dns01 && !host.starts_with(WILDCARD) {
        return Ok(asked);
    }
    let updates = acme.dns.as_ref().ok_or(Unprovable::NoServer)?;
    match updates.may_change(&record_name(host)) {
        true => Ok(ChallengeType::Dns01),
        false => Err(Unprovable::OtherZone),
    }
}

/// For that name and path alone, so that it takes nothing from any other rule.
fn rule(host: &Name, token: &Name, body: &Name) -> Arc<Rule> {
    let path = PathMatch::Exact(format!("{WELL_KNOWN}{token}").into());
    Arc::new(Rule {
        owner: owner(),
        hosts: vec![HostPattern::Exact(host.clone())],
        matches: vec![Match { path: Some(path), ..Match::default() }],
        sources: Vec::new(),
        denied: Vec::new(),
        rates: Vec::new(),
        auth: Vec::new(),
        asks: Vec::new(),
        tls: None,
        filters: Vec::new(),
        action: Action::Respond { code: 200, body: body.clone() },
        timeout: None,
        attempt_timeout: None,
        retries: None,
    })
}

/// Whether an authority of one's own could certify it: it is no address, and not this machine itself.
fn is_name(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    !last.is_empty() && !last.bytes().all(|it| it.is_ascii_digit()) && last != "localhost"
}

/// Whether a public authority could certify it at all. Asking for others would use up how often it may be asked.
fn is_public(name: &str) -> bool {
    let is_below = |end: &str| name == end || name.strip_suffix(end).is_some_and(|it| it.ends_with('.'));
    name.contains('.') && is_name(name) && !NOT_PUBLIC.iter().any(|end| is_below(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_public_authority_certifies_are_not_ordered() {
        for (name, public) in [
            ("shop.example", true),
            ("a.b.shop.example", true),
            ("localhost", false),
            ("shop.localhost", false),
            ("printer.local", false),
            ("notlocal.example", true),
            ("db.internal", false),
            ("nas.home.arpa", false),
            ("shop", false),
            ("192.0.2.7", false),
            ("shop.", false),
        ] {
            assert_eq!(is_public(name), public, "{name}");
        }
        for (name, certified) in
            [("nas.local", true), ("shop", true), ("192.0.2.7", false), ("shop.localhost", false)]
        {
            assert_eq!(is_name(name), certified, "{name}, by an authority of one's own");
        }
    }
}
