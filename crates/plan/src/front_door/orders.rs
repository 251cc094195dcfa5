//! Certificates that the front door orders: for which host names, and what the authority asks for meanwhile.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
};

use seaway_model::{
    Config, Kind, Name, ObjectRef,
    acme::{Acme, Challenge, ChallengeType, WILDCARD, ordered_certificate, record_name},
    config::FrontDoor as Settings,
    load_balancer::{Action, Certificate, HostPattern, Match, PathMatch, Rule},
};

use super::{FrontDoor, owner};
use crate::index::PlanContext;

/// Where authorities ask (RFC 8555, section 8.3).
const WELL_KNOWN: &str = "/.well-known/acme-challenge/";

/// No public authority certifies names below these (RFC 6761, RFC 6762, RFC 7686, RFC 8375, RFC 9476).
const NOT_PUBLIC: [&str; 7] = ["localhost", "local", "internal", "home.arpa", "onion", "alt", "invalid"];

/// What may be ordered, and what may not.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct OrderableHosts {
    pub(crate) hosts: BTreeMap<Name, ChallengeType>,
    /// Their authority would have to be shown what it cannot be. What was ordered before is shown on.
    pub(crate) unprovable: BTreeMap<Name, ChallengeProblem>,
    /// The entrances of each.
    at: BTreeMap<Name, Entrances>,
}

/// `None` is the main one.
pub(crate) type Entrances = BTreeSet<Option<Name>>;

impl OrderableHosts {
    pub(crate) fn has(&self, host: &str) -> bool {
        self.hosts.contains_key(host) || self.unprovable.contains_key(host)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &Name> {
        self.hosts.keys().chain(self.unprovable.keys())
    }

    pub(crate) fn entrances(&self, host: &str) -> Entrances {
        self.at.get(host).cloned().unwrap_or_default()
    }

    /// Those with a host name whose certificate is ordered.
    pub(crate) fn all_entrances(&self) -> BTreeSet<&Option<Name>> {
        self.hosts.keys().filter_map(|host| self.at.get(host)).flatten().collect()
    }
}

/// What another challenge changes at the front door.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ChallengeEffect {
    Nothing,
    Rules,
    /// Rules, and whether there is one for TLS.
    Listeners,
}

/// Why a name cannot be proven.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ChallengeProblem {
    /// There is no name server that takes a record.
    NoServer,
    OtherZone,
    /// Nothing listens where its authority would ask, and there is no record that could be added instead.
    Unreached(ChallengeType),
}

/// Whether an entrance has only addresses that the world outside does not know: no public log is to show its names because of an
/// upgrade (RFC 9162).
fn is_private(entrance: &Settings) -> bool {
    let is_private = |it: &IpAddr| match it {
        IpAddr::V4(it) => it.is_private() || it.is_loopback() || it.is_link_local(),
        IpAddr::V6(it) => it.is_unique_local() || it.is_loopback() || it.is_unicast_link_local(),
    };
    !entrance.addresses.is_empty() && entrance.addresses.iter().all(is_private)
}

impl FrontDoor {
    /// Host names where TLS is to end here, and that no certificate is for which somebody else provides. Of names at the main
    /// entrance that one decides: what it shows does not go because of another entrance. Others are ordered if they need it at all
    /// of theirs, where what is ordered is shown, and only for entrances that the authority's own network may know of.
    pub(crate) fn orderable(&self, given: PlanContext<'_>) -> OrderableHosts {
        let door = &given.config.front_door;
        let (mut at, mut left) = (BTreeMap::<&HostPattern, Entrances>::new(), BTreeSet::new());
        let owners = self.host_names();
        let acme = door.tls.acme.as_ref();
        let is_own_authority = acme.is_some_and(|it| it.authorities.is_some());
        let may_be_known = |it: &Settings| is_own_authority || !is_private(it);
        let further = door.entrances.iter().filter(|(_, it)| may_be_known(it));
        let further = further.map(|(name, settings)| (Some(name), settings));
        for (entrance, settings) in std::iter::once((None, door)).chain(further) {
            let (provided, passed_on) =
                (self.provided(entrance, settings, given), self.passthrough(entrance));
            for (rank, guest) in self.guests_at(entrance) {
                let its = guest.rules.iter().flat_map(|rule| rule.hosts.iter());
                for host in its.filter(|host| owners.may(rank.namespace(), host)) {
                    let entrances = at.entry(host).or_default();
                    entrances.insert(entrance.cloned());
                    let is_elsewhere = entrance.is_some() && entrances.contains(&None);
                    if !is_elsewhere && (is_covered(host, &provided) || is_passed_on(host, &passed_on)) {
                        left.insert(host);
                    }
                }
            }
        }
        let mut orderable = OrderableHosts::default();
        for (host, entrances) in at.into_iter().filter(|(host, _)| !left.contains(host)) {
            let (HostPattern::Exact(name) | HostPattern::Under(name)) = host;
            let is_certified = is_public(name) || is_own_authority && is_name(name);
            if !is_certified {
                continue;
            }
            let ordered = ordered_name(host);
            let is_reached = |how| self.is_reached(&entrances, how, given.config);
            match acme.map_or(Err(ChallengeProblem::NoServer), |it| challenge(it, &ordered, is_reached)) {
                Ok(challenge) => drop(orderable.hosts.insert(ordered.clone(), challenge)),
                Err(why) => drop(orderable.unprovable.insert(ordered.clone(), why)),
            }
            orderable.at.insert(ordered, entrances);
        }
        orderable
    }

    /// Names of certificates that are shown there and were not ordered.
    fn provided<'g>(
        &self,
        entrance: Option<&Name>,
        settings: &Settings,
        given: PlanContext<'g>,
    ) -> BTreeSet<&'g HostPattern> {
        let named = self.named_at(entrance, &given.config.front_door);
        let shown = given.certificates.at_front_door(&settings.tls, &named);
        let others = shown.into_iter().filter(|it| it.kind != Kind::Certificate);
        others.flat_map(|it| given.certificates.names_of(it)).collect()
    }

    /// Whether an authority that comes to one of their addresses finds somebody who answers: at the port at which all authorities
    /// ask, or at that of the main entrance, to which that one may be forwarded.
    fn is_reached(&self, entrances: &Entrances, how: ChallengeType, config: &Config) -> bool {
        let door = &config.front_door;
        let (port, usual): (fn(&Settings) -> u16, u16) = match how {
            ChallengeType::Http01 => (|it| it.port, 80),
            ChallengeType::TlsAlpn01 => (|it| it.tls.port, 443),
            ChallengeType::Dns01 => return true,
        };
        let beside_main = |it: &Settings| {
            let is_everywhere = door.addresses.is_empty() || it.addresses.is_empty();
            self.is_to_open(config)
                && (is_everywhere || it.addresses.iter().any(|ip| door.addresses.contains(ip)))
        };
        let reached = |it: &Settings| port(it) == usual || port(it) == port(door) || beside_main(it);
        entrances.iter().any(|name| match name {
            None => true,
            Some(name) => door.entrances.get(name).is_some_and(reached),
        })
    }

    /// What authorities are shown there: at the entrances of a name, and at the main one, which may have the port that they ask.
    pub(super) fn validations_at(&self, entrance: Option<&Name>) -> BTreeMap<Name, Arc<Certificate>> {
        let is_there = |host: &Name| {
            let mut its = self.ordered_at.get(host).into_iter().flatten();
            entrance.is_none() || its.any(|it| it.as_ref() == entrance)
        };
        let validations = self.validations.iter().filter(|(host, _)| is_there(host));
        validations.map(|(host, it)| (host.clone(), it.clone())).collect()
    }

    /// The certificates that are ordered.
    pub(crate) fn ordered(&self) -> impl Iterator<Item = &ObjectRef> {
        self.certificates.keys().filter(|it| it.kind == Kind::Certificate)
    }

    /// Whether one of these host names waits for a certificate: who is sent to https there would be refused.
    pub(super) fn awaits_certificate(&self, rules: &[Arc<Rule>], given: PlanContext<'_>) -> bool {
        let mut hosts = rules.iter().flat_map(|rule| rule.hosts.iter());
        hosts.any(|host| {
            let object = ordered_certificate(&ordered_name(host));
            let is_ordered =
                self.certificates.contains_key(&object) && !self.unordered.contains(&object.name);
            is_ordered && given.certificates.held(&object).is_none()
        })
    }

    /// From now on the certificate of that name is shown, once it is there. It may never be, where none is ordered.
    pub(crate) fn expect(&mut self, host: &Name, is_ordered: bool, entrances: Entrances) {
        self.certificates.entry(ordered_certificate(host)).or_default();
        self.ordered_at.insert(host.clone(), entrances);
        match is_ordered {
            true => self.unordered.remove(host),
            false => self.unordered.insert(host.clone()),
        };
        self.forget_certificates();
    }

    /// Whether the listener for TLS may be another now.
    pub(crate) fn expect_no_more(&mut self, host: &Name) -> bool {
        self.certificates.remove(&ordered_certificate(host));
        self.challenges.remove(host);
        self.unordered.remove(host);
        self.ordered_at.remove(host);
        self.forget_certificates();
        self.validations.remove(host).is_some()
    }

    /// What is answered otherwise now.
    pub(crate) fn answer(&mut self, challenge: &Challenge) -> ChallengeEffect {
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
            (true, _) => ChallengeEffect::Listeners,
            (false, true) => ChallengeEffect::Rules,
            (false, false) => return ChallengeEffect::Nothing,
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

/// Whether one of these certificates is for that name.
fn is_covered(host: &HostPattern, provided: &BTreeSet<&HostPattern>) -> bool {
    let wildcard = match host {
        HostPattern::Exact(name) => name.split_once('.').map(|(_, rest)| HostPattern::Under(rest.into())),
        HostPattern::Under(_) => None,
    };
    provided.contains(host) || wildcard.is_some_and(|it| provided.contains(&it))
}

/// Also by a wildcard: a certificate of its own would take the name away from who has that.
fn is_passed_on<T>(host: &HostPattern, passed_on: &BTreeMap<HostPattern, T>) -> bool {
    let (HostPattern::Exact(name) | HostPattern::Under(name)) = host;
    let ends = std::iter::successors(Some(name.as_str()), |name| Some(name.split_once('.')?.1)).skip(1);
    passed_on.contains_key(host)
        || ends.into_iter().any(|end| passed_on.contains_key(&HostPattern::Under(end.into())))
}

/// How that name is proven: as the configuration says, and by DNS what nothing else proves: a wildcard, or a name at whose addresses
/// nobody could answer.
fn challenge(
    acme: &Acme,
    host: &str,
    is_reached: impl Fn(ChallengeType) -> bool,
) -> Result<ChallengeType, ChallengeProblem> {
    let asked = acme.challenge.unwrap_or(ChallengeType::Http01);
    let by_connection = asked != ChallengeType::Dns01 && !host.starts_with(WILDCARD);
    if by_connection && is_reached(asked) {
        return Ok(asked);
    }
    let in_vain = |why| if by_connection { ChallengeProblem::Unreached(asked) } else { why };
    let updates = acme.dns.as_ref().ok_or(in_vain(ChallengeProblem::NoServer))?;
    match updates.may_update_name(&record_name(host)) {
        true => Ok(ChallengeType::Dns01),
        false => Err(in_vain(ChallengeProblem::OtherZone)),
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
