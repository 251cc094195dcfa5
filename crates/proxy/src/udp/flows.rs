//! The flows of one worker: found by client, ended by silence, bounded in number. Knows no sockets' calls.

use std::{
    collections::HashMap,
    hash::{BuildHasher, Hash, Hasher, RandomState},
    mem,
};

use crate::{sys::Peer, worker::Token};

/// Length of one tick of the wheel in milliseconds: how late a silent flow may end.
const TICK: u64 = 250;
const SPOKES: usize = 256;
/// How many are compared when one has to go.
const SAMPLE: usize = 16;

/// Which client at which listening socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlowKey {
    pub(super) peer: Peer,
    pub(super) socket: u32,
}

impl Hash for FlowKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u128(self.peer.ip);
        state.write_u64(u64::from(self.peer.port) << 32 | u64::from(self.socket));
    }
}

/// A place in the table, as long as the same flow has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlowId {
    pub(super) slot: u32,
    pub(super) generation: u32,
}

pub(super) struct FlowEntry<T> {
    pub(super) key: FlowKey,
    pub(super) generation: u32,
    pub(super) last: u64,
    /// Silence until then ends it, whatever the timeout says (the drain of its member).
    pub(super) until: u64,
    pub(super) idle: u64,
    /// Somebody answered: it is no garbage.
    pub(super) answered: bool,
    pub(super) flow: T,
}

/// Ticks until a spoke comes again.
const ROUND: u64 = SPOKES as u64;

/// Where a tick is on the wheel.
fn spoke(tick: u64) -> usize {
    (tick % ROUND) as usize
}

pub(super) struct Flows<T> {
    entries: Vec<Option<FlowEntry<T>>>,
    free: Vec<u32>,
    by_key: HashMap<FlowKey, u32, FlowHashSeed>,
    wheel: Vec<Vec<FlowId>>,
    /// The next tick to be looked at.
    tick: u64,
    waiting: usize,
    generation: u32,
    random: u64,
}

impl<T> Flows<T> {
    pub(super) fn new(now: u64) -> Flows<T> {
        let secret = FlowHashSeed::new();
        Flows {
            entries: Vec::new(),
            free: Vec::new(),
            random: secret.0 | 1,
            by_key: HashMap::with_hasher(secret),
            wheel: (0..SPOKES).map(|_| Vec::new()).collect(),
            tick: now / TICK,
            waiting: 0,
            generation: 0,
        }
    }

    pub(super) fn find(&self, key: &FlowKey) -> Option<u32> {
        self.by_key.get(key).copied()
    }

    #[inline]
    pub(super) fn at(&mut self, slot: u32) -> Option<&mut FlowEntry<T>> {
        self.entries.get_mut(slot as usize)?.as_mut()
    }

    #[inline]
    pub(super) fn of(&mut self, id: FlowId) -> Option<&mut FlowEntry<T>> {
        self.at(id.slot).filter(|entry| entry.generation == id.generation)
    }

    /// Everybody, for what concerns many.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (FlowId, &mut FlowEntry<T>)> {
        (0..).zip(&mut self.entries).filter_map(|(slot, entry)| {
            let entry = entry.as_mut()?;
            Some((FlowId { slot, generation: entry.generation }, entry))
        })
    }

    /// Where the next flow will be, so that its socket can be told before it is in.
    pub(super) fn next_id(&self) -> FlowId {
        let slot = self.free.last().copied().unwrap_or(self.entries.len() as u32);
        FlowId { slot, generation: self.generation.wrapping_add(1) & Token::GENERATIONS }
    }

    pub(super) fn insert(&mut self, key: FlowKey, now: u64, idle: u64, flow: T) -> FlowId {
        let id = self.next_id();
        self.generation = id.generation;
        let entry = FlowEntry {
            key,
            generation: id.generation,
            last: now,
            until: u64::MAX,
            idle,
            answered: false,
            flow,
        };
        match self.entries.get_mut(id.slot as usize) {
            Some(free) => {
                self.free.pop();
                *free = Some(entry);
            }
            None => self.entries.push(Some(entry)),
        }
        self.by_key.insert(key, id.slot);
        self.look_again(id, now.saturating_add(idle), now);
        id
    }

    pub(super) fn remove(&mut self, slot: u32) -> Option<FlowEntry<T>> {
        let entry = self.entries.get_mut(slot as usize)?.take()?;
        self.by_key.remove(&entry.key);
        self.free.push(slot);
        // Its place on the wheel stays until its turn; the generation tells that it is nobody's.
        Some(entry)
    }

    /// Ends a flow at `until` at the latest.
    pub(super) fn end_by(&mut self, id: FlowId, until: u64, now: u64) {
        if let Some(entry) = self.of(id)
            && entry.until != until
        {
            entry.until = until;
            self.look_again(id, until, now);
        }
    }

    /// When there is something to look at, if ever.
    pub(super) fn wake_at(&self) -> Option<u64> {
        if self.waiting == 0 {
            return None;
        }
        let is_busy = |tick: &u64| self.wheel.get(spoke(*tick)).is_some_and(|it| !it.is_empty());
        let tick = (self.tick..self.tick.saturating_add(ROUND)).find(is_busy)?;
        Some(tick.saturating_add(1).saturating_mul(TICK))
    }

    /// The flows whose time is over.
    pub(super) fn expired(&mut self, now: u64) -> Vec<u32> {
        let mut over = Vec::new();
        let current = now / TICK;
        // After a long sleep one round sees everybody.
        self.tick = self.tick.max(current.saturating_sub(ROUND));
        while self.tick < current {
            let due = self.wheel.get_mut(spoke(self.tick)).map(mem::take).unwrap_or_default();
            self.tick = self.tick.saturating_add(1);
            self.waiting = self.waiting.saturating_sub(due.len());
            for id in due {
                let Some(entry) = self.of(id) else { continue };
                let ends = entry.last.saturating_add(entry.idle).min(entry.until);
                if ends <= now {
                    over.push(id.slot);
                } else {
                    self.look_again(id, ends, now);
                }
            }
        }
        over
    }

    /// A number as good as random.
    pub(super) fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    /// The one that is missed least among a few: never answered, or silent for longest. Comparing a sample needs no
    /// list that every datagram would have to reorder. Of those that are not `eligible` none is looked for beyond that.
    pub(super) fn dispensable(&mut self, eligible: impl Fn(&T) -> bool) -> Option<u32> {
        let places = self.entries.len() as u64;
        let mut best: Option<(bool, u64, u32)> = None;
        for _ in 0..SAMPLE {
            let slot = self.draw().checked_rem(places)? as u32;
            let entry = self.entries.get(slot as usize).and_then(Option::as_ref);
            if let Some(entry) = entry.filter(|it| eligible(&it.flow)) {
                let rank = (entry.answered, entry.last, slot);
                best = Some(best.map_or(rank, |best| best.min(rank)));
            }
        }
        let any = || {
            let mut all = self.entries.iter().enumerate();
            let (slot, entry) = all.find_map(|(slot, it)| Some((slot, it.as_ref()?)))?;
            eligible(&entry.flow).then_some(slot as u32)
        };
        best.map(|(_, _, slot)| slot).or_else(any)
    }

    fn look_again(&mut self, id: FlowId, at: u64, now: u64) {
        let farthest = (now / TICK).saturating_add(ROUND - 1);
        let tick = (at / TICK).clamp(self.tick.max(now / TICK), farthest.max(self.tick));
        if let Some(spoke) = self.wheel.get_mut(spoke(tick)) {
            spoke.push(id);
            self.waiting = self.waiting.saturating_add(1);
        }
    }
}

/// Clients choose their ports, and liars their addresses: where they fall must not be theirs to know.
#[derive(Clone)]
struct FlowHashSeed(u64);

impl FlowHashSeed {
    fn new() -> FlowHashSeed {
        FlowHashSeed(RandomState::new().build_hasher().finish())
    }
}

impl BuildHasher for FlowHashSeed {
    type Hasher = FlowHasher;

    fn build_hasher(&self) -> FlowHasher {
        FlowHasher(self.0)
    }
}

struct FlowHasher(u64);

impl FlowHasher {
    #[inline]
    fn fold(&mut self, word: u64) {
        let with = u128::from(0x9e37_79b9_7f4a_7c15_u64 ^ self.0.rotate_left(23) | 1);
        // Of two words: it does not wrap.
        let wide = u128::from(self.0 ^ word).wrapping_mul(with);
        self.0 = (wide as u64) ^ (wide >> 64) as u64;
    }
}

impl Hasher for FlowHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
            self.fold(u64::from_le_bytes(word));
        }
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.fold(word);
    }

    #[inline]
    fn write_u128(&mut self, word: u128) {
        self.fold((word >> 64) as u64);
        self.fold(word as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    fn key(port: u16) -> FlowKey {
        FlowKey { peer: SocketAddr::from(([192, 0, 2, 1], port)).into(), socket: 0 }
    }

    #[test]
    fn a_flow_that_speaks_lives_and_a_silent_one_ends() {
        let mut flows = Flows::new(1_000);
        let talker = flows.insert(key(1), 1_000, 2_000, "talker");
        let silent = flows.insert(key(2), 1_000, 2_000, "silent");
        flows.of(talker).unwrap().last = 2_900;
        assert!(flows.expired(2_500).is_empty());
        assert_eq!(flows.expired(3_300), [silent.slot]);
        flows.remove(silent.slot);
        assert!(flows.wake_at().is_some_and(|at| (4_900..=5_300).contains(&at)));
        assert_eq!(flows.expired(5_300), [talker.slot]);
        flows.remove(talker.slot);
        assert_eq!(flows.wake_at(), None);
    }

    #[test]
    fn a_timeout_longer_than_the_wheel_is_kept() {
        let mut flows = Flows::new(0);
        let id = flows.insert(key(1), 0, 1_000_000, ());
        let mut now = 0;
        while now < 999_000 {
            now = flows.wake_at().unwrap();
            if now < 1_000_000 {
                assert!(flows.expired(now).is_empty(), "at {now}");
            }
        }
        assert_eq!(flows.expired(1_000_500), [id.slot]);
    }

    #[test]
    fn a_long_sleep_misses_nobody() {
        let mut flows = Flows::new(0);
        for port in 0..100 {
            flows.insert(key(port), u64::from(port) * 100, 500, ());
        }
        assert_eq!(flows.expired(10_000_000).len(), 100);
    }

    #[test]
    fn a_drain_ends_even_a_flow_that_speaks() {
        let mut flows = Flows::new(0);
        let id = flows.insert(key(1), 0, 60_000, ());
        flows.end_by(id, 3_000, 0);
        flows.of(id).unwrap().last = 2_999;
        assert!(flows.expired(2_990).is_empty());
        assert_eq!(flows.expired(3_500), [id.slot]);
    }

    #[test]
    fn a_place_that_has_another_flow_is_not_found_by_the_old_name() {
        let mut flows = Flows::new(0);
        let id = flows.insert(key(1), 0, 1_000, ());
        flows.remove(id.slot);
        let again = flows.insert(key(2), 0, 1_000, ());
        assert_eq!(again.slot, id.slot);
        assert!(flows.of(id).is_none());
        assert_eq!(flows.find(&key(1)), None);
    }

    #[test]
    fn garbage_goes_before_anybody_who_was_answered() {
        let mut flows = Flows::new(0);
        // Of any other, one in three thousand looks only at who was answered.
        flows.random = 1;
        for port in 0..20 {
            let id = flows.insert(key(port), u64::from(port), 1_000, ());
            flows.of(id).unwrap().answered = port < 10;
        }
        for _ in 0..3 {
            let slot = flows.dispensable(|_| true).unwrap();
            let entry = flows.remove(slot).unwrap();
            assert!(!entry.answered);
        }
    }
}
