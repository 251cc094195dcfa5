//! Certificates that the front door orders itself, in the World: one Unit for each host name.
//!
//! ```text
//!     front door, certificates, config ─► host names without a certificate ─► Unit::CertificateOrder ─► driver
//!         ▲                                                                                              │
//!         └── Fact::Challenge (a rule in the open), Fact::Secret (shown for its name) ◄──────────────────┘
//! ```

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::Arc,
};

use seaway_model::{
    Desired, Kind, L4, Name, ObjectRef, Problem, Reason, Unit, WorkItem,
    acme::{Acme, CertificateOrder, Challenge, ChallengeType, ordered_certificate},
};

use super::World;
use crate::front_door::{self, ChallengeEffect, ChallengeProblem, OrderableHosts};

/// Host names whose certificates are ordered, and where.
#[derive(Debug, Default)]
pub(super) struct Orders {
    of: OrderableHosts,
    from: Option<Acme>,
    /// What they follow from has changed.
    pub(super) are_stale: bool,
}

impl Orders {
    /// Tells what was ordered before.
    fn replace(&mut self, of: OrderableHosts, from: Option<Acme>) -> OrderableHosts {
        std::mem::replace(self, Orders { of, from, are_stale: false }).of
    }

    /// Nothing is ordered for that entrance.
    pub(super) fn are_none_at(&self, entrance: Option<&Name>) -> bool {
        !self.of.all_entrances().contains(&entrance.cloned())
    }
}

impl World {
    /// What is at the front door may have changed, or which certificates there are. Once for all that is learned together: it is
    /// as long as all host names.
    pub(super) fn refresh_orders(&mut self) {
        if !self.settled || !std::mem::take(&mut self.door.orders.are_stale) {
            return;
        }
        let acme = self.config.front_door.tls.acme.clone();
        // In a cluster, several hosts would order the same; there is cert-manager for that.
        let is_here = self.roles.host.is_some() && !self.config.pools.cluster;
        let is_wanted = acme.is_some() && is_here && self.all_door_units().next().is_some();
        let wanted = match is_wanted {
            true => self.door.guests.orderable(self.given()),
            false => OrderableHosts::default(),
        };
        let known = &self.door.orders;
        let elsewhere = known.from != acme;
        if !elsewhere && known.of == wanted {
            return;
        }
        let owner = front_door::owner();
        let before = self.door.orders.replace(wanted, acme);
        let now = self.door.orders.of.clone();
        let gone: Vec<&Name> = before.names().filter(|it| !now.has(it)).collect();
        for host in now.names() {
            let unit = Unit::CertificateOrder(host.clone());
            if !before.has(host) {
                super::owners::add(self.unit_owners.entry(unit.clone()).or_default(), &owner);
            } else if !elsewhere
                && before.hosts.get(host) == now.hosts.get(host)
                && before.entrances(host) == now.entrances(host)
            {
                continue;
            }
            self.door.guests.expect(host, now.hosts.contains_key(host), now.entrances(host));
            self.dirt.insert(WorkItem::Unit(unit));
        }
        let mut is_other = false;
        for host in &gone {
            is_other |= self.door.guests.expect_no_more(host);
            self.disown(&owner, &Unit::CertificateOrder(Name::clone(host)));
        }
        if !gone.is_empty() {
            self.mark_doors();
        }
        if is_other {
            self.look_at_door();
        }
        // It is asked for at its new place, or is no more anybody's.
        for host in gone {
            self.remove_secret(&ordered_certificate(host));
        }
        if before.all_entrances() != now.all_entrances() {
            // That nothing is redirected yet is a Problem, or none any more.
            if !self.door.units.is_empty() {
                self.replan_door();
            }
            self.replan_entrances();
            self.tell_guests();
        }
        self.mark_door_statuses();
    }

    /// An order that ended when its host name left may tell of it yet.
    pub(super) fn is_of_nobody(&self, object: &ObjectRef) -> bool {
        object.kind == Kind::Certificate && !self.door.orders.of.has(&object.name)
    }

    /// The front door is open where it was not: orders wait for that.
    pub(super) fn resume_orders(&mut self) {
        let units = self.door.orders.of.names().cloned().map(Unit::CertificateOrder);
        self.dirt.extend(units.map(WorkItem::Unit));
    }

    pub(super) fn put_challenge(&mut self, challenge: &Arc<Challenge>) {
        let is_expected = self.door.orders.of.hosts.contains_key(&challenge.host);
        match is_expected.then(|| self.door.guests.answer(challenge)) {
            Some(ChallengeEffect::Rules) => self.mark_doors(),
            Some(ChallengeEffect::Listeners) => self.look_at_door(),
            Some(ChallengeEffect::Nothing) | None => {}
        }
    }

    pub(super) fn order(&self, host: &Name) -> Desired {
        let Orders { of, from: Some(acme), .. } = &self.door.orders else { return Desired::Absent };
        if !of.has(host) {
            return Desired::Absent;
        }
        let challenge = of.hosts.get(host).copied();
        let mut answers_at: BTreeSet<SocketAddr> = BTreeSet::new();
        for entrance in of.entrances(host) {
            let (settings, serving) = match &entrance {
                None => (Some(&self.config.front_door), self.door_serving()),
                Some(name) => (self.config.front_door.entrances.get(name), self.entrance_serving(name)),
            };
            let Some(settings) = settings else { continue };
            let here = serving.iter().filter(|it| it.protocol == L4::Tcp && it.port == settings.port);
            // For TLS it opens once there is something to show.
            let asked_at = match challenge {
                Some(ChallengeType::TlsAlpn01) => settings.tls.port,
                Some(ChallengeType::Http01 | ChallengeType::Dns01) | None => settings.port,
            };
            answers_at.extend(here.map(|it| SocketAddr::new(reachable(it.ip), asked_at)));
        }
        let (host, acme) = (host.clone(), acme.clone());
        Desired::CertificateOrder(Arc::new(CertificateOrder {
            host,
            acme,
            challenge,
            answers_at: answers_at.into_iter().collect(),
        }))
    }

    /// What is wrong with them, as their driver says, and what is not ordered.
    pub(super) fn order_problems(&self) -> Vec<Problem> {
        let of = &self.door.orders.of;
        let units = of.hosts.keys().map(|host| Unit::CertificateOrder(host.clone()));
        let told = units.filter_map(|unit| self.outcomes.get(&unit));
        let mut problems: Vec<Problem> =
            told.flat_map(|it| &it.problems).map(|(_, problem)| problem.clone()).collect();
        problems.extend(of.unprovable.iter().map(|(name, why)| {
            let (place, why, fix) = match why {
                ChallengeProblem::NoServer => (
                    "frontDoor.acme",
                    "that needs a record in DNS (DNS-01), and no name server is configured",
                    "Set frontDoor.acme.dns (docs/acme.md), or list the host names one by one at the Service, or name a \
                     certificate: frontDoor.certificates.",
                ),
                ChallengeProblem::OtherZone => (
                    "frontDoor.acme.dns.zones",
                    "this needs a record in DNS (DNS-01), and none of these zones contains the name",
                    "Add its zone, or name a certificate: frontDoor.certificates.",
                ),
                ChallengeProblem::Unreached(ChallengeType::TlsAlpn01) => (
                    "frontDoor.entrances",
                    "the authority would connect to port 443 of the addresses of this entrance, where the \
                     front door does not listen",
                    UNREACHED,
                ),
                ChallengeProblem::Unreached(_) => (
                    "frontDoor.entrances",
                    "the authority would connect to port 80 of the addresses of this entrance, where the \
                     front door does not listen",
                    UNREACHED,
                ),
            };
            let message = format!("no certificate is ordered for {name}: {why}");
            Problem::new(front_door::owner().object(), Reason::CertificateName, message).at(place).fix(fix)
        }));
        problems
    }
}

const UNREACHED: &str = "Give the entrance that port; or set frontDoor.acme.dns (docs/acme.md), which proves names without a \
                         connection; or name a certificate of the entrance.";

/// All addresses of this host are reached by loopback.
fn reachable(ip: IpAddr) -> IpAddr {
    match ip {
        _ if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    }
}
