//! What the machine decides, once all news is in.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use seaway_model::Name;

use super::{
    AT_ONCE, Action, AddressClaim, AddressEntry, AddressState, Due, LONG_APART, Layer2StateMachine, Moment,
    PACE, PATIENCE, Peer, Phase,
};

/// What peers say of an address.
#[derive(Clone, Copy, Default)]
struct PeerClaims {
    is_announced: bool,
    is_announced_by_better: bool,
    /// One that could take it comes before us: since when.
    better: Option<Moment>,
}

impl Layer2StateMachine {
    /// Someone who would take our addresses has heard of us so lately that he does not do so yet.
    pub(super) fn has_lease(&self, now: Moment) -> bool {
        now.saturating_sub(self.contact(now)) <= self.timing.lease
    }

    pub(super) fn contact(&self, now: Moment) -> Moment {
        if self.peers.is_empty() {
            // Nobody would take anything.
            return now;
        }
        // Without a gateway nothing tells of being cut off; that we were frozen, our clock does.
        let unproven = if self.has_gateway { None } else { Some(self.last_tick) };
        let acknowledged = self.acknowledged();
        [acknowledged, self.gateway_answered, unproven]
            .into_iter()
            .flatten()
            .max()
            .unwrap_or(Moment::ZERO)
            .max(self.granted)
    }

    fn acknowledged(&self) -> Option<Moment> {
        self.peers.values().filter_map(|peer| peer.acknowledged).max()
    }

    pub(super) fn watch_contact(&mut self, now: Moment) {
        if self.peers.is_empty() {
            self.granted = now;
        }
        let has_lease = self.has_lease(now);
        if self.isolated == has_lease {
            self.isolated = !has_lease;
            if self.isolated {
                self.lapsed = now;
            }
            self.listening = Some(now);
            self.dirty = true;
        }
        let Some(since) = self.listening.filter(|_| !self.isolated) else { return };
        let all_are_known = self.peers.values().all(|peer| peer.is_known_since(since));
        // One that is heard may announce something, and has not said so yet.
        let lacks = |peer: &Peer| peer.is_heard(now, self.timing.dead) && peer.known_version().is_none();
        let is_any_lacking = self.peers.values().any(lacks);
        let patience = if is_any_lacking { PATIENCE } else { self.timing.dead };
        if all_are_known || now.saturating_sub(since) >= patience {
            self.listening = None;
            self.dirty = true;
            let is_unknown = !all_are_known && since.saturating_sub(self.lapsed) >= LONG_APART;
            let idle = self.addresses.values_mut().filter(|held| is_unknown && !held.is_announced());
            idle.for_each(|held| held.cold = true);
        }
    }

    /// It lives: we hear it, or one whom we hear does.
    fn is_alive(&self, peer: &Peer, now: Moment) -> bool {
        peer.alive().is_some_and(|at| now.saturating_sub(at) < self.timing.dead)
    }

    pub(super) fn watch_peers(&mut self, now: Moment) {
        let gone: Vec<Name> = self
            .peers
            .iter()
            .filter(|(_, peer)| !peer.claims.is_empty() && !self.is_alive(peer, now))
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            self.peers.get_mut(&name).into_iter().for_each(Peer::forget);
            self.dirty = true;
        }
    }

    /// What we serve and could announce.
    pub(super) fn claims(&self) -> Vec<AddressClaim> {
        if self.isolated {
            return Vec::new();
        }
        let able = self.addresses.values().filter(|held| {
            let is_free = self.listening.is_none() || held.is_announced();
            is_free && held.ours && held.place.is_some() && !matches!(held.phase, Phase::Conflict { .. })
        });
        able.map(|held| AddressClaim { address: held.address(), announcing: held.is_announced() }).collect()
    }

    fn lacks_key(&self) -> bool {
        !self.peers.is_empty() && !self.has_key
    }

    pub(super) fn decide(&mut self, now: Moment, actions: &mut Vec<Action>) {
        self.revision = self.revision.wrapping_add(1);
        let mut addresses = std::mem::take(&mut self.addresses);
        let said = self.said_by_peers(&mut addresses);
        for (held, said) in addresses.values_mut().zip(said) {
            let was_announced = held.is_announced();
            self.decide_one(now, held, said);
            if was_announced && !held.is_announced() {
                actions.push(Action::LetGo(held.address()));
            }
        }
        self.addresses = addresses;
    }

    /// What all peers say of each address, in the order of addresses. Both are sorted, so that thousands of each cost no searches.
    fn said_by_peers(&self, addresses: &mut BTreeMap<IpAddr, AddressEntry>) -> Vec<PeerClaims> {
        let mut all = vec![PeerClaims::default(); addresses.len()];
        addresses.values_mut().for_each(|held| held.owner = None);
        for (at, (name, peer)) in self.peers.iter().enumerate() {
            let mut claims = peer.claims.iter().peekable();
            for ((address, held), said) in addresses.iter_mut().zip(&mut all) {
                while claims.next_if(|(claimed, _)| *claimed < address).is_some() {}
                let Some((_, claim)) = claims.next_if(|(claimed, _)| *claimed == address) else { continue };
                let precedes = held.precede.get(at).copied().unwrap_or(false);
                if claim.announcing {
                    said.is_announced = true;
                    said.is_announced_by_better |= precedes;
                    held.passed.remove(name);
                    held.owner.get_or_insert_with(|| name.clone());
                } else if precedes && !held.passed.contains(name) {
                    said.better = Some(said.better.map_or(claim.since, |since| since.min(claim.since)));
                }
            }
        }
        all
    }

    fn decide_one(&mut self, now: Moment, held: &mut AddressEntry, said: PeerClaims) {
        let may = held.ours && held.place.is_some() && !self.lacks_key();
        if !may || self.isolated {
            held.phase = Phase::Idle;
            held.orphaned = None;
            return;
        }
        if self.listening.is_some() {
            // What was inherited goes on; after a lease that ended, there is nothing.
            if !held.is_announced() {
                held.phase = Phase::Idle;
            }
            return;
        }
        if let Phase::Conflict { theirs, .. } = held.phase
            && self.peers.values().any(|peer| peer.macs.contains(&theirs))
        {
            // It was one of our hosts, which was not known yet.
            held.phase = Phase::Idle;
        }
        let PeerClaims { is_announced: announcers, is_announced_by_better: better_announcer, better } = said;
        if !held.passed.is_empty() {
            let address = held.address();
            let claims =
                |name: &Name| self.peers.get(name).is_some_and(|it| it.claims.contains_key(&address));
            held.passed.retain(claims);
        }
        if announcers {
            held.cold = false;
            held.was_elsewhere = true;
            held.orphaned = None;
        }
        match held.phase {
            Phase::Announcing { .. } => {
                if announcers && !std::mem::replace(&mut held.overlaps, true) {
                    self.counters.overlaps = self.counters.overlaps.saturating_add(1);
                    // Some have learnt the other one's MAC.
                    held.repeat(now);
                } else if !announcers && std::mem::take(&mut held.overlaps) {
                    held.repeat(now);
                }
                let settled = better.map(|since| since.saturating_add(self.timing.settle));
                if better_announcer || settled.is_some_and(|at| now >= at) {
                    held.phase = Phase::Idle;
                } else {
                    self.reconsider_at(settled);
                }
            }
            Phase::Idle | Phase::Conflict { .. } if announcers => held.phase = Phase::Idle,
            Phase::Conflict { .. } => {}
            Phase::Probing { .. } if announcers || better.is_some() => held.phase = Phase::Idle,
            Phase::Probing { .. } => {}
            Phase::Idle if better.is_some() => {
                // One that could, and does not for so long, cannot.
                let patience = self.timing.settle.saturating_mul(2);
                let until = held.orphaned.get_or_insert(now).saturating_add(patience);
                if now >= until {
                    held.passed.clone_from(&held.before);
                    self.take(now, held);
                } else {
                    self.reconsider_at(Some(until));
                }
            }
            Phase::Idle => self.take(now, held),
        }
    }

    fn take(&mut self, now: Moment, held: &mut AddressEntry) {
        if held.cold {
            held.probe(now);
            return;
        }
        self.counters.moves = self.counters.moves.saturating_add(held.was_elsewhere.into());
        held.was_elsewhere = false;
        held.announce(now);
    }

    fn reconsider_at(&mut self, at: Option<Moment>) {
        self.reconsider = match (self.reconsider, at) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
    }

    /// Probes, announcements, and addresses that turned out to be free.
    pub(super) fn do_due(&mut self, now: Moment, actions: &mut Vec<Action>) {
        let mut room = AT_ONCE;
        let mut timer: Option<Moment> = None;
        for held in self.addresses.values_mut() {
            let is_due = held.next().is_some_and(|at| now >= at);
            if is_due && room == 0 {
                timer = Some(now.saturating_add(PACE));
                continue;
            }
            let due = if is_due { held.due(now, self.timing.probe) } else { None };
            match due {
                Some(Due::Probe) => actions.push(Action::Probe(held.address())),
                Some(Due::Announcement) => actions.push(Action::Announce(held.address())),
                Some(Due::Free) => {
                    held.announce(now);
                    held.due(now, self.timing.probe);
                    actions.push(Action::Announce(held.address()));
                }
                Some(Due::Again) => {
                    held.probe(now);
                    held.due(now, self.timing.probe);
                    actions.push(Action::Probe(held.address()));
                }
                None => {}
            }
            if matches!(due, Some(Due::Free | Due::Again)) {
                self.revision = self.revision.wrapping_add(1);
            }
            room = room.saturating_sub(due.is_some().into());
            let next = held.next().map(|at| at.max(now));
            timer = [timer, next].into_iter().flatten().min();
        }
        self.timer = timer;
    }

    pub(super) fn ask_gateway(&mut self, now: Moment, actions: &mut Vec<Action>) {
        let is_quiet =
            |at: Option<Moment>, pause: Duration| at.is_none_or(|at| now.saturating_sub(at) >= pause);
        let pause = self.timing.lease.checked_div(8).unwrap_or_default();
        let quiet = self.timing.interval.saturating_mul(4);
        if self.has_gateway
            && !self.peers.is_empty()
            && is_quiet(self.acknowledged(), quiet)
            && is_quiet(self.gateway_asked, pause)
        {
            self.gateway_asked = Some(now);
            actions.push(Action::AskGateway);
        }
    }

    /// What became of each address, and whether we answer for it.
    pub(crate) fn states(&self, now: Moment) -> BTreeMap<IpAddr, (AddressState, bool)> {
        let state = |held: &AddressEntry| (self.state(now, held), held.is_announced() && self.has_lease(now));
        self.addresses.iter().map(|(address, held)| (*address, state(held))).collect()
    }

    fn state(&self, now: Moment, held: &AddressEntry) -> AddressState {
        if !held.ours {
            return AddressState::NotServed;
        }
        if self.lacks_key() {
            return AddressState::NoKey;
        }
        let Some(place) = held.place else { return AddressState::NoInterface };
        if self.isolated {
            return AddressState::Isolated;
        }
        match held.phase {
            Phase::Conflict { theirs, .. } => AddressState::Conflict { ours: place.mac, theirs },
            Phase::Announcing { .. } => match held.disputed_by(now) {
                Some(theirs) => AddressState::Conflict { ours: place.mac, theirs },
                None => AddressState::Announcing,
            },
            Phase::Probing { .. } => AddressState::Probing,
            Phase::Idle => {
                held.owner.clone().map_or(AddressState::Probing, |owner| AddressState::Standby { owner })
            }
        }
    }
}
