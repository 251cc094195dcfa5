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

pub(crate) use address::SubnetInterface;
use address::{AddressEntry, Due, Phase};
use peer::Peer;
use seaway_model::Name;

use super::{
    election::{rank, short},
    heartbeat::{self, AddressClaim, HeartbeatStamp, Message},
    settings::{AddressState, Counters, DesiredAnnouncements, Mac, Timing},
};

/// Since some moment in the past, by a clock that goes on while the machine is suspended.
pub(crate) type Moment = Duration;

/// Announcements at once; what is left follows after [`PACE`], since switches learn slowly.
const AT_ONCE: usize = 64;
const PACE: Duration = Duration::from_millis(5);
/// Parts of claims that are said with one beat to a peer that lacks some.
const PARTS_AT_ONCE: usize = 8;
/// Who is heard, and has not said yet what it claims, is waited for so long.
const PATIENCE: Duration = Duration::from_secs(5);
/// Who was cut off for so long asks again whether another machine has what it takes (RFC 5227, 2.1).
const LONG_APART: Duration = Duration::from_secs(10);
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
pub(crate) struct Layer2StateMachine {
    host: Name,
    timing: Timing,
    has_key: bool,
    boot: u64,
    sequence: u64,
    /// Our messages of the last moments, and when they were sent.
    sent: VecDeque<(u64, Moment)>,
    peers: BTreeMap<Name, Peer>,
    /// By which messages name them.
    shorts: BTreeMap<u64, Name>,
    addresses: BTreeMap<IpAddr, AddressEntry>,
    wanted: DesiredAnnouncements,
    /// What we said last, in parts, and its version.
    said: Vec<AddressClaim>,
    parts: Vec<Vec<AddressClaim>>,
    version: u32,
    /// Bytes of claims in one message.
    room: usize,
    /// The next part to be said.
    turn: usize,
    /// As of which revision that is all.
    said_revision: u64,
    next_beat: Moment,
    macs: Vec<Mac>,
    has_gateway: bool,
    gateway_asked: Option<Moment>,
    gateway_answered: Option<Moment>,
    /// A contact that need not be proven: the start, or the last time without peers.
    granted: Moment,
    last_tick: Moment,
    isolated: bool,
    /// Since when it is, or was last.
    lapsed: Moment,
    /// Peers are only heard, since then, and nothing is begun.
    listening: Option<Moment>,
    /// What the process before us announced: it goes on.
    inherited: BTreeSet<IpAddr>,
    dirty: bool,
    /// When something has to be decided again, though no news comes.
    reconsider: Option<Moment>,
    timer: Option<Moment>,
    counters: Counters,
    /// Of what `states` says.
    revision: u64,
}

impl Layer2StateMachine {
    /// `boot`: another number than that of any life before; not 0.
    pub(crate) fn new(
        host: Name,
        timing: Timing,
        has_key: bool,
        boot: u64,
        now: Moment,
    ) -> Layer2StateMachine {
        Layer2StateMachine {
            host,
            timing,
            has_key,
            boot,
            sequence: 0,
            sent: VecDeque::new(),
            peers: BTreeMap::new(),
            shorts: BTreeMap::new(),
            addresses: BTreeMap::new(),
            wanted: DesiredAnnouncements::default(),
            said: Vec::new(),
            parts: heartbeat::parts(&[], heartbeat::ROOM),
            version: 0,
            room: heartbeat::ROOM,
            turn: 0,
            said_revision: 0,
            next_beat: now,
            macs: Vec::new(),
            has_gateway: false,
            gateway_asked: None,
            gateway_answered: None,
            granted: now,
            last_tick: now,
            isolated: false,
            lapsed: now,
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
    pub(crate) fn set_desired(
        &mut self,
        now: Moment,
        wanted: DesiredAnnouncements,
        place: impl Fn(IpAddr) -> Option<SubnetInterface>,
        actions: &mut Vec<Action>,
    ) {
        if wanted == self.wanted {
            return;
        }
        let names: Vec<&Name> =
            wanted.peers.iter().map(|peer| &peer.name).filter(|name| **name != self.host).collect();
        if self.peers.is_empty() && !names.is_empty() && self.inherited.is_empty() {
            self.granted = now;
            if !self.addresses.values().any(AddressEntry::is_announced) {
                self.listening = Some(now);
            }
        }
        let names: BTreeSet<&Name> = names.into_iter().collect();
        // A host that is no peer any more may go on announcing.
        let (stay, gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.peers).into_iter().partition(|(name, _)| names.contains(name));
        self.peers = stay;
        let left = gone.values().flat_map(|it| &it.claims).filter(|(_, claim)| claim.announcing);
        for (address, _) in left {
            self.addresses.get_mut(address).into_iter().for_each(|held| held.cold = true);
        }
        let new: Vec<&Name> = names.into_iter().filter(|it| !self.peers.contains_key(*it)).collect();
        for name in &new {
            self.peers.insert((*name).clone(), Peer::new(short(name)));
        }
        self.shorts = self.peers.iter().map(|(name, peer)| (peer.short, name.clone())).collect();
        let mut before = std::mem::take(&mut self.addresses);
        for it in &wanted.addresses {
            let address = it.address.to_canonical();
            if self.addresses.contains_key(&address) {
                continue;
            }
            let old = before.remove(&address).filter(|old| old.candidates() == &it.candidates);
            let is_new = old.is_none();
            let mut held = old.unwrap_or_else(|| AddressEntry::new(it.clone(), &self.host));
            held.wanted.address = address;
            let ours = if is_new || !new.is_empty() { rank(&self.host, address) } else { [0; 32] };
            let precedes = |name: &&Name| (rank(name, address), *name) < (ours, &self.host);
            if is_new {
                held.before = self.peers.keys().filter(precedes).cloned().collect();
            } else {
                held.before.retain(|name| self.peers.contains_key(name));
                held.before.extend(new.iter().copied().filter(precedes).cloned());
            }
            held.precede = self.peers.keys().map(|name| held.before.contains(name)).collect();
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
    pub(crate) fn set_places(
        &mut self,
        now: Moment,
        macs: Vec<Mac>,
        place: impl Fn(IpAddr) -> Option<SubnetInterface>,
    ) {
        self.macs = macs;
        for (address, held) in &mut self.addresses {
            let new = place(*address);
            let old = std::mem::replace(&mut held.place, new);
            if old != new && new.is_some() {
                held.repeat(now);
            }
            // Who is on a network that we come to is not known.
            held.cold |= old.is_none() && new.is_some();
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

    pub(crate) fn receive(&mut self, now: Moment, mut message: Message) {
        self.forget_sent(now);
        let acknowledged = message.acknowledged;
        let sent = if acknowledged.boot == self.boot { self.sent_at(acknowledged.sequence) } else { None };
        if message.to != self.host {
            return;
        }
        let Some(peer) = self.peers.get_mut(&message.from) else { return };
        let hears = std::mem::take(&mut message.hears);
        let was_heard = peer.is_heard(now, self.timing.dead);
        let (counts, changed) = peer.receive(now, message, sent, self.timing.dead);
        self.dirty |= changed || counts && !was_heard;
        for (short, age) in hears.into_iter().filter(|_| counts) {
            let at = now.saturating_sub(Duration::from_millis(age.into()));
            let other = self.shorts.get(&short).and_then(|name| self.peers.get_mut(name));
            other.into_iter().for_each(|it| it.told = it.told.max(Some(at)));
        }
    }

    /// Another machine says on this interface that it has the address.
    pub(crate) fn dispute(&mut self, now: Moment, address: IpAddr, link: u32, theirs: Mac) {
        // Once our lease has ended, another one has it by right.
        let has_lease = self.has_lease(now);
        let Some(held) = self.addresses.get_mut(&address) else { return };
        let is_elsewhere = held.place.is_none_or(|place| place.link != link);
        if is_elsewhere || self.macs.contains(&theirs) || held.is_announced() && !has_lease {
            return;
        }
        let mut of_peers = self.peers.values().filter(|peer| peer.macs.contains(&theirs)).peekable();
        if of_peers.peek().is_some() {
            let says_so = of_peers.any(|it| it.claims.get(&address).is_some_and(|it| it.announcing));
            if !says_so && held.contest(now, self.timing.settle) {
                self.counters.overlaps = self.counters.overlaps.saturating_add(1);
                self.dirty = true;
            }
            return;
        }
        // Others that found the same do not ask again at the same time.
        let pause = Duration::from_millis(self.boot.checked_rem(2_000).unwrap_or(0));
        if held.dispute(now, theirs, self.timing.conflict.saturating_add(pause)) {
            self.counters.conflicts = self.counters.conflicts.saturating_add(1);
            self.dirty = true;
        }
    }

    /// Another machine asks on this interface whether it may have the address (RFC 5227, 2.1.1). Of two that ask at once, the one
    /// with the smaller MAC goes on.
    pub(crate) fn rival(&mut self, now: Moment, address: IpAddr, link: u32, theirs: Mac) {
        let is_probed = |held: &AddressEntry| {
            matches!(held.phase, Phase::Probing { .. }) && held.place.is_some_and(|it| theirs < it.mac)
        };
        let is_peer = self.peers.values().any(|peer| peer.macs.contains(&theirs));
        if !is_peer && self.addresses.get(&address).is_some_and(is_probed) {
            self.dispute(now, address, link, theirs);
        }
    }

    /// Our MAC, if we answer for the address on this interface now. Nothing is allocated.
    pub(crate) fn answers(&self, now: Moment, address: IpAddr, link: u32) -> Option<Mac> {
        let held = self.addresses.get(&address)?;
        let place = held.place.filter(|place| place.link == link)?;
        (held.is_announced() && self.has_lease(now)).then_some(place.mac)
    }

    pub(crate) fn place(&self, address: IpAddr) -> Option<SubnetInterface> {
        self.addresses.get(&address)?.place
    }

    pub(crate) fn has_peer(&self, name: &Name) -> bool {
        self.peers.contains_key(name)
    }

    /// Whether a peer was silent for a while, so that other ways to it are tried.
    pub(crate) fn is_quiet(&self, now: Moment, peer: &Name) -> bool {
        let quiet = self.timing.interval.saturating_mul(4);
        self.peers.get(peer).and_then(Peer::last_heard).is_none_or(|heard| now.saturating_sub(heard) > quiet)
    }

    /// Does all that is due.
    pub(crate) fn tick(&mut self, now: Moment, actions: &mut Vec<Action>) {
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
    pub(crate) fn stop(&mut self, now: Moment, actions: &mut Vec<Action>) {
        let wanted = DesiredAnnouncements {
            peers: self.wanted.peers.clone(),
            addresses: Vec::new(),
            ..DesiredAnnouncements::default()
        };
        self.set_desired(now, wanted, |_| None, actions);
        // Also if that was said already.
        self.next_beat = now;
        self.tick(now, actions);
    }

    /// When `tick` is to be called again, at the latest.
    pub(crate) fn next(&self, now: Moment) -> Moment {
        let far = now.saturating_add(Duration::from_secs(1));
        let beat = (!self.peers.is_empty() && self.has_key).then_some(self.next_beat);
        let alive = self.peers.values().filter_map(Peer::alive);
        let gone = alive.map(|at| at.saturating_add(self.timing.dead)).filter(|at| *at > now).min();
        let listening = self.listening.map(|since| since.saturating_add(self.timing.dead));
        let all = [beat, gone, listening.filter(|at| *at > now), self.reconsider, self.timer];
        all.into_iter().flatten().min().map_or(far, |at| at.min(far))
    }

    fn sent_at(&self, sequence: u64) -> Option<Moment> {
        let at = self.sent.binary_search_by_key(&sequence, |(sequence, _)| *sequence).ok()?;
        self.sent.get(at).map(|(_, at)| *at)
    }

    /// What we sent long ago proves nothing any more.
    fn forget_sent(&mut self, now: Moment) {
        while self.sent.front().is_some_and(|(_, at)| now.saturating_sub(*at) >= self.timing.dead) {
            self.sent.pop_front();
        }
    }

    fn beat(&mut self, now: Moment, actions: &mut Vec<Action>) {
        if self.peers.is_empty() || !self.has_key {
            return;
        }
        let changed = self.revision != self.said_revision && self.has_other_claims();
        if !changed && now < self.next_beat {
            return;
        }
        let lacks = |peer: &Peer| peer.knows != Some(self.version);
        let at_once = if self.peers.values().any(lacks) { self.parts.len().min(PARTS_AT_ONCE) } else { 1 };
        for turn in 0..at_once {
            let part = self.turn.checked_rem(self.parts.len()).unwrap_or(0);
            self.turn = part.saturating_add(1);
            self.say(now, part, turn == 0, actions);
        }
        let groups = self.peers.len().div_ceil(FEW_PEERS).clamp(1, 4);
        let pause = self.timing.interval.saturating_mul(u32::try_from(groups).unwrap_or(1));
        self.next_beat = now.saturating_add(pause);
    }

    /// Than were said last. From now on they are said.
    fn has_other_claims(&mut self) -> bool {
        self.said_revision = self.revision;
        let claims = self.claims();
        let changed = claims != self.said;
        if changed {
            self.parts = heartbeat::parts(&claims, self.room);
            self.said = claims;
            self.version = self.version.wrapping_add(1);
        }
        changed
    }

    /// To all, or to those that do not know all parts.
    fn say(&mut self, now: Moment, part: usize, to_all: bool, actions: &mut Vec<Action>) {
        self.sequence = self.sequence.saturating_add(1);
        self.forget_sent(now);
        self.sent.push_back((self.sequence, now));
        let claims = self.parts.get(part).cloned().unwrap_or_default();
        // More than fit one message are said in turn.
        let heard = self.peers.values().filter(|it| it.is_heard(now, self.timing.dead));
        let mut hears: Vec<(u64, u16)> = heard
            .filter_map(|it| {
                let age = now.saturating_sub(it.last_heard()?).as_millis();
                Some((it.short, u16::try_from(age).unwrap_or(u16::MAX)))
            })
            .collect();
        let turn = self.sequence.checked_rem(hears.len().max(1).try_into().unwrap_or(1)).unwrap_or(0);
        hears.rotate_left(usize::try_from(turn).unwrap_or(0));
        let version = self.version;
        for (name, peer) in self.peers.iter().filter(|(_, it)| to_all || it.knows != Some(version)) {
            actions.push(Action::Send(Message {
                from: self.host.clone(),
                to: name.clone(),
                stamp: HeartbeatStamp { boot: self.boot, sequence: self.sequence },
                acknowledged: peer.latest,
                known: peer.known_version(),
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
