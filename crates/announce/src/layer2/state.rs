//! Who announces what: a state machine. Time and messages come in as values, and actions come out.
//!
//! A host *claims* the addresses that it serves and could announce, and says which of them it announces. Of the living hosts that
//! claim an address, the first in the order of [`election`](super::election) announces it; but nobody begins while another one says
//! that it does. So an address moves because its owner lets it go and says so, or because its owner is gone.
//!
//! An owner's *lease* begins when it sends a message, and is renewed when a peer acknowledges that. It ends before that peer gives
//! the owner up, so that an owner that was frozen, or is cut off, has stopped before another begins. Where no peer answers, the
//! gateway does, by ARP. After its lease has ended, a host listens first, as after its start.

mod address;
mod decide;
mod peer;
mod succession;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::IpAddr,
    time::Duration,
};

pub(crate) use address::Place;
use address::{Due, Held, Phase};
use peer::Peer;
use seaway_model::Name;

use super::{
    election::{rank, short},
    heartbeat::{self, Claim, Message, Stamp},
    settings::{Counters, Mac, Timing, Wanted, What},
};

/// Since some moment in the past, by a clock that goes on while the machine is suspended.
pub(crate) type Now = Duration;

/// Announcements at once; what is left follows after [`PACE`], since switches learn slowly.
const AT_ONCE: usize = 64;
const PACE: Duration = Duration::from_millis(5);
/// Larger groups beat less often.
const FEW_PEERS: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Send(Message),
    /// Ask whether another machine has it.
    Probe(IpAddr),
    /// Tell everybody that it is here.
    Announce(IpAddr),
    /// It is no longer announced here.
    LetGo(IpAddr),
    AskGateway,
}

#[derive(Debug)]
pub(crate) struct Machine {
    host: Name,
    timing: Timing,
    has_key: bool,
    boot: u64,
    sequence: u64,
    /// Our messages of the last moments, and when they were sent.
    sent: VecDeque<(u64, Now)>,
    peers: BTreeMap<Name, Peer>,
    addresses: BTreeMap<IpAddr, Held>,
    wanted: Wanted,
    /// What we said last, in parts, and its version.
    said: Vec<Claim>,
    parts: Vec<Vec<Claim>>,
    version: u32,
    next_beat: Now,
    macs: Vec<Mac>,
    has_gateway: bool,
    gateway_asked: Option<Now>,
    gateway_answered: Option<Now>,
    /// A contact that need not be proven: the start, or the last time without peers.
    granted: Now,
    last_tick: Now,
    isolated: bool,
    /// Peers are only heard, since then, and nothing is begun.
    listening: Option<Now>,
    /// What the process before us announced: it goes on.
    inherited: BTreeSet<IpAddr>,
    dirty: bool,
    /// When something has to be decided again, though no news comes.
    reconsider: Option<Now>,
    timer: Option<Now>,
    counters: Counters,
    /// Of what `states` says.
    revision: u64,
}

impl Machine {
    /// `boot`: another number than that of any life before; not 0.
    pub(crate) fn new(host: Name, timing: Timing, has_key: bool, boot: u64, now: Now) -> Machine {
        Machine {
            host,
            timing,
            has_key,
            boot,
            sequence: 0,
            sent: VecDeque::new(),
            peers: BTreeMap::new(),
            addresses: BTreeMap::new(),
            wanted: Wanted::default(),
            said: Vec::new(),
            parts: heartbeat::parts(&[]),
            version: 0,
            next_beat: now,
            macs: Vec::new(),
            has_gateway: false,
            gateway_asked: None,
            gateway_answered: None,
            granted: now,
            last_tick: now,
            isolated: false,
            listening: Some(now),
            inherited: BTreeSet::new(),
            dirty: true,
            reconsider: None,
            timer: None,
            counters: Counters::default(),
            revision: 1,
        }
    }

    pub(crate) fn counters(&self) -> Counters {
        self.counters
    }

    /// Another number after each change of what `states` says, but for disputes that end.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    /// Replaces what was wanted. `place`: the interface whose subnet has an address.
    pub(crate) fn want(
        &mut self,
        now: Now,
        wanted: Wanted,
        place: impl Fn(IpAddr) -> Option<Place>,
        actions: &mut Vec<Action>,
    ) {
        if wanted == self.wanted {
            return;
        }
        let names: Vec<&Name> =
            wanted.peers.iter().map(|peer| &peer.name).filter(|name| **name != self.host).collect();
        let same_peers =
            names.len() == self.peers.len() && names.iter().all(|it| self.peers.contains_key(*it));
        if self.peers.is_empty() && !names.is_empty() && self.inherited.is_empty() {
            self.granted = now;
            if !self.addresses.values().any(Held::is_announced) {
                self.listening = Some(now);
            }
        }
        self.peers.retain(|name, _| names.contains(&name));
        for name in names {
            self.peers.entry(name.clone()).or_insert_with(|| Peer::new(short(name)));
        }
        let mut before = std::mem::take(&mut self.addresses);
        for it in &wanted.addresses {
            let address = it.address.to_canonical();
            if self.addresses.contains_key(&address) {
                continue;
            }
            let old = before.remove(&address).filter(|old| old.candidates() == &it.candidates);
            let is_new = old.is_none();
            let mut held = old.unwrap_or_else(|| Held::new(it.clone(), &self.host));
            held.wanted.address = address;
            if is_new || !same_peers {
                let ours = rank(&self.host, address);
                let precedes = |name: &&Name| (rank(name, address), *name) < (ours, &self.host);
                held.before = self.peers.keys().filter(precedes).cloned().collect();
            }
            if is_new {
                held.place = place(address);
                if self.inherited.remove(&address) && held.ours && held.place.is_some() {
                    held.announce(now);
                }
            }
            self.addresses.insert(address, held);
        }
        // What the next process does not serve ends with the one before.
        if !self.addresses.is_empty() {
            self.inherited.clear();
        }
        for (address, old) in before {
            // One that is wanted of other candidates goes on as it was.
            match self.addresses.get_mut(&address) {
                Some(new) if new.ours => {
                    (new.phase, new.cold, new.was_elsewhere) = (old.phase, old.cold, old.was_elsewhere);
                }
                _ if old.is_announced() => actions.push(Action::LetGo(address)),
                _ => {}
            }
        }
        self.wanted = wanted;
        self.dirty = true;
    }

    /// Interfaces changed: `macs` are those on which we may announce.
    pub(crate) fn set_places(&mut self, now: Now, macs: Vec<Mac>, place: impl Fn(IpAddr) -> Option<Place>) {
        self.macs = macs;
        for (address, held) in &mut self.addresses {
            let new = place(*address);
            if std::mem::replace(&mut held.place, new) != new && new.is_some() {
                held.repeat(now);
            }
        }
        self.dirty = true;
    }

    pub(crate) fn set_gateway(&mut self, known: bool) {
        self.has_gateway = known;
    }

    /// The gateway answered what it was asked last.
    pub(crate) fn gateway_answered(&mut self) {
        self.gateway_answered = self.gateway_asked;
    }

    pub(crate) fn receive(&mut self, now: Now, message: Message) {
        self.forget_sent(now);
        let acknowledged = message.acknowledged;
        let sent = if acknowledged.boot == self.boot { self.sent_at(acknowledged.sequence) } else { None };
        if message.to != self.host {
            return;
        }
        if let Some(peer) = self.peers.get_mut(&message.from) {
            let was_heard = peer.is_heard(now, self.timing.dead);
            let changed = peer.receive(now, message, sent, self.timing.dead);
            self.dirty |= changed || !was_heard;
        }
    }

    /// Another machine says on this interface that it has the address.
    pub(crate) fn dispute(&mut self, now: Now, address: IpAddr, link: u32, theirs: Mac) {
        let is_own = self.macs.contains(&theirs);
        if is_own || self.peers.values().any(|peer| peer.macs.contains(&theirs)) {
            return;
        }
        let Some(held) = self.addresses.get_mut(&address) else { return };
        if held.place.is_some_and(|place| place.link == link)
            && held.dispute(now, theirs, self.timing.conflict)
        {
            self.counters.conflicts = self.counters.conflicts.saturating_add(1);
            self.dirty = true;
        }
    }

    /// Our MAC, if we answer for the address on this interface now. Nothing is allocated.
    pub(crate) fn answers(&self, now: Now, address: IpAddr, link: u32) -> Option<Mac> {
        let held = self.addresses.get(&address)?;
        let place = held.place.filter(|place| place.link == link)?;
        (held.is_announced() && self.has_lease(now)).then_some(place.mac)
    }

    pub(crate) fn place(&self, address: IpAddr) -> Option<Place> {
        self.addresses.get(&address)?.place
    }

    /// Whether a peer was silent for a while, so that other ways to it are tried.
    pub(crate) fn is_quiet(&self, now: Now, peer: &Name) -> bool {
        let quiet = self.timing.interval.saturating_mul(4);
        self.peers.get(peer).and_then(Peer::heard).is_none_or(|heard| now.saturating_sub(heard) > quiet)
    }

    /// Does all that is due.
    pub(crate) fn tick(&mut self, now: Now, actions: &mut Vec<Action>) {
        self.watch_contact(now);
        self.last_tick = now;
        self.watch_peers(now);
        if self.dirty || self.reconsider.is_some_and(|at| now >= at) {
            (self.dirty, self.reconsider) = (false, None);
            self.decide(now, actions);
            self.timer = Some(now);
        }
        if self.timer.is_some_and(|at| now >= at) {
            self.do_due(now, actions);
        }
        self.ask_gateway(now, actions);
        self.beat(now, actions);
    }

    /// Lets everything go, and says so.
    pub(crate) fn stop(&mut self, now: Now, actions: &mut Vec<Action>) {
        let wanted = Wanted { peers: self.wanted.peers.clone(), addresses: Vec::new() };
        self.want(now, wanted, |_| None, actions);
        // Also if that was said already.
        self.next_beat = now;
        self.tick(now, actions);
    }

    /// When `tick` is to be called again, at the latest.
    pub(crate) fn next(&self, now: Now) -> Now {
        let far = now.saturating_add(Duration::from_secs(1));
        let beat = (!self.peers.is_empty() && self.has_key).then_some(self.next_beat);
        let gone = self.peers.values().filter_map(|peer| self.gone_at(peer)).filter(|at| *at > now).min();
        let listening = self.listening.map(|since| since.saturating_add(self.timing.dead));
        let all = [beat, gone, listening.filter(|at| *at > now), self.reconsider, self.timer];
        all.into_iter().flatten().min().map_or(far, |at| at.min(far))
    }

    fn sent_at(&self, sequence: u64) -> Option<Now> {
        let at = self.sent.binary_search_by_key(&sequence, |(sequence, _)| *sequence).ok()?;
        self.sent.get(at).map(|(_, at)| *at)
    }

    /// What we sent long ago proves nothing any more.
    fn forget_sent(&mut self, now: Now) {
        while self.sent.front().is_some_and(|(_, at)| now.saturating_sub(*at) >= self.timing.dead) {
            self.sent.pop_front();
        }
    }

    fn beat(&mut self, now: Now, actions: &mut Vec<Action>) {
        if self.peers.is_empty() || !self.has_key {
            return;
        }
        let claims = self.claims();
        let changed = claims != self.said;
        if changed {
            self.parts = heartbeat::parts(&claims);
            self.said = claims;
            self.version = self.version.wrapping_add(1);
        }
        if changed {
            for part in 0..self.parts.len() {
                self.say(now, part, actions);
            }
        } else if now >= self.next_beat {
            let count = u64::try_from(self.parts.len()).unwrap_or(1).max(1);
            let part = self.sequence.checked_rem(count).unwrap_or(0);
            self.say(now, usize::try_from(part).unwrap_or(0), actions);
        } else {
            return;
        }
        let groups = self.peers.len().div_ceil(FEW_PEERS).clamp(1, 4);
        let pause = self.timing.interval.saturating_mul(u32::try_from(groups).unwrap_or(1));
        self.next_beat = now.saturating_add(pause);
    }

    fn say(&mut self, now: Now, part: usize, actions: &mut Vec<Action>) {
        self.sequence = self.sequence.saturating_add(1);
        self.forget_sent(now);
        self.sent.push_back((self.sequence, now));
        let claims = self.parts.get(part).cloned().unwrap_or_default();
        // More than fit one message are said in turn.
        let heard = self.peers.values().filter(|it| it.is_heard(now, self.timing.dead));
        let mut hears: Vec<(u64, u16)> = heard
            .filter_map(|it| {
                let age = now.saturating_sub(it.heard()?).as_millis();
                Some((it.short, u16::try_from(age).unwrap_or(u16::MAX)))
            })
            .collect();
        let turn = self.sequence.checked_rem(hears.len().max(1).try_into().unwrap_or(1)).unwrap_or(0);
        hears.rotate_left(usize::try_from(turn).unwrap_or(0));
        for (name, peer) in &self.peers {
            actions.push(Action::Send(Message {
                from: self.host.clone(),
                to: name.clone(),
                stamp: Stamp { boot: self.boot, sequence: self.sequence },
                acknowledged: peer.latest,
                macs: self.macs.clone(),
                hears: hears.clone(),
                version: self.version,
                part: u8::try_from(part).unwrap_or(u8::MAX),
                parts: u8::try_from(self.parts.len()).unwrap_or(u8::MAX),
                claims: claims.clone(),
            }));
        }
    }
}
