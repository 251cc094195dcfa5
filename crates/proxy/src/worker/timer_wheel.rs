//! Coarse deadlines: a ring of slots, each a doubly linked list through the links of the entries themselves.
//!
//! Nothing is allocated, and setting or dropping a deadline touches two neighbours. An entry that was active since
//! only notes when; it is looked at when its old deadline comes, and set again.

use std::cell::Cell;

/// Of milliseconds per slot, as a power of two.
const TICK_BITS: u32 = 5;
const SLOTS: usize = 2048;
const NONE: u32 = u32::MAX;

/// Where an entry hangs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimerLink {
    slot: u32,
    before: u32,
    after: u32,
}

impl Default for TimerLink {
    fn default() -> TimerLink {
        TimerLink { slot: NONE, before: NONE, after: NONE }
    }
}

pub(crate) struct TimerWheel {
    heads: Box<[u32]>,
    occupied: [u64; SLOTS / 64],
    /// The tick up to which all deadlines have been handed out.
    done: u64,
    entries: usize,
    /// No slot before this tick has an entry. It lags behind when entries are dropped; then somebody looks in vain.
    next: Cell<u64>,
}

#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a slot is a remainder by SLOTS; ticks are milliseconds since the machine began, cut by five bits; each entry is \
              counted once, for its link tells whether it is here"
)]
impl TimerWheel {
    pub(crate) fn new(now: u64) -> TimerWheel {
        TimerWheel {
            heads: vec![NONE; SLOTS].into(),
            occupied: [0; SLOTS / 64],
            done: now >> TICK_BITS,
            entries: 0,
            next: Cell::new(0),
        }
    }

    /// `link` gives the link of an entry by its index. A deadline beyond the wheel comes round early.
    pub(crate) fn set(
        &mut self,
        index: u32,
        deadline: u64,
        mut link: impl FnMut(u32, &mut dyn FnMut(&mut TimerLink)),
    ) {
        self.drop(index, &mut link);
        // The slot after the deadline, so that nothing is early by rounding.
        let tick = ((deadline >> TICK_BITS) + 1).clamp(self.done + 1, self.done + SLOTS as u64 - 1);
        let slot = (tick % SLOTS as u64) as u32;
        let after = self.heads[slot as usize];
        if after != NONE {
            link(after, &mut |link| link.before = index);
        }
        link(index, &mut |link| *link = TimerLink { slot, before: NONE, after });
        self.heads[slot as usize] = index;
        self.occupied[slot as usize / 64] |= 1 << (slot % 64);
        self.next.set(if self.entries == 0 { tick } else { self.next.get().min(tick) });
        self.entries += 1;
    }

    pub(crate) fn drop(&mut self, index: u32, mut link: impl FnMut(u32, &mut dyn FnMut(&mut TimerLink))) {
        let mut was = TimerLink::default();
        link(index, &mut |link| was = std::mem::take(link));
        let TimerLink { slot, before, after } = was;
        if slot == NONE {
            return;
        }
        if after != NONE {
            link(after, &mut |link| link.before = before);
        }
        if before != NONE {
            link(before, &mut |link| link.after = after);
        } else {
            self.heads[slot as usize] = after;
            if after == NONE {
                self.occupied[slot as usize / 64] &= !(1 << (slot % 64));
            }
        }
        self.entries -= 1;
    }

    /// The first entry of a slot whose time has come; it stays until it is set anew or dropped.
    pub(crate) fn due(&mut self, now: u64) -> Option<u32> {
        let today = now >> TICK_BITS;
        if self.entries == 0 {
            self.done = today;
            return None;
        }
        while self.done < today {
            let slot = ((self.done + 1) % SLOTS as u64) as usize;
            if self.heads[slot] != NONE {
                return Some(self.heads[slot]);
            }
            self.done += 1;
        }
        None
    }

    /// Milliseconds until something may be due.
    pub(crate) fn next_timeout(&self, now: u64) -> Option<u64> {
        if self.entries == 0 {
            return None;
        }
        // Asked in every turn, so the slots are looked through only when the answer of before has passed.
        if self.next.get() <= self.done {
            self.next.set(self.first_occupied()?);
        }
        Some((self.next.get() << TICK_BITS).saturating_sub(now))
    }

    fn first_occupied(&self) -> Option<u64> {
        let first = self.done + 1;
        let start = (first % SLOTS as u64) as usize;
        let ahead = (0..=SLOTS / 64).find_map(|step| {
            let word = (start / 64 + step) % (SLOTS / 64);
            let mut bits = self.occupied[word];
            if step == 0 {
                bits &= u64::MAX << (start % 64);
            }
            (bits != 0).then(|| (word * 64 + bits.trailing_zeros() as usize + SLOTS - start) % SLOTS)
        })?;
        Some(first + ahead as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Clock {
        wheel: TimerWheel,
        links: Vec<TimerLink>,
    }

    impl Clock {
        fn new(entries: usize) -> Clock {
            Clock { wheel: TimerWheel::new(1000), links: vec![TimerLink::default(); entries] }
        }

        fn set(&mut self, index: u32, deadline: u64) {
            let links = &mut self.links;
            self.wheel.set(index, deadline, |at, change| change(&mut links[at as usize]));
        }

        fn drop(&mut self, index: u32) {
            let links = &mut self.links;
            self.wheel.drop(index, |at, change| change(&mut links[at as usize]));
        }

        fn fired(&mut self, now: u64) -> Vec<u32> {
            let mut fired = Vec::new();
            while let Some(index) = self.wheel.due(now) {
                self.drop(index);
                fired.push(index);
            }
            fired
        }
    }

    #[test]
    fn deadlines_come_in_order_and_never_early() {
        let mut clock = Clock::new(3);
        clock.set(0, 3000);
        clock.set(1, 2000);
        clock.set(2, 2000);
        assert_eq!(clock.fired(1999), Vec::<u32>::new());
        assert_eq!(clock.fired(2064), [2, 1]);
        assert_eq!(clock.fired(2999), Vec::<u32>::new());
        assert_eq!(clock.fired(3064), [0]);
        assert_eq!(clock.wheel.next_timeout(3064), None);
    }

    #[test]
    fn the_next_timeout_is_when_the_next_one_is_due() {
        let mut clock = Clock::new(2);
        for deadline in [1001, 1500, 40_000, 66_000] {
            clock.set(0, deadline);
            let patience = clock.wheel.next_timeout(1000).unwrap();
            assert!(
                1000 + patience >= deadline.min(66_000) && 1000 + patience <= deadline + 64,
                "{patience}"
            );
            assert_eq!(clock.fired(1000 + patience), [0]);
            clock = Clock::new(2);
        }
    }

    #[test]
    fn a_dropped_deadline_does_not_come() {
        let mut clock = Clock::new(3);
        for index in 0..3 {
            clock.set(index, 2000);
        }
        clock.drop(1);
        clock.drop(1);
        assert_eq!(clock.fired(5000), [2, 0]);
        clock.set(0, 6000);
        clock.drop(0);
        assert_eq!(clock.wheel.next_timeout(5000), None);
    }

    #[test]
    fn what_lies_beyond_the_wheel_comes_round_early_and_is_set_again() {
        let mut clock = Clock::new(1);
        clock.set(0, 1000 + 100_000);
        let fired = clock.fired(1000 + 70_000);
        assert_eq!(fired, [0]);
        clock.set(0, 1000 + 100_000);
        assert_eq!(clock.fired(1000 + 99_999), Vec::<u32>::new());
        assert_eq!(clock.fired(1000 + 100_064), [0]);
    }

    #[test]
    fn a_long_sleep_loses_nothing() {
        let mut clock = Clock::new(2);
        clock.set(0, 1500);
        clock.set(1, 60_000);
        assert_eq!(clock.fired(10_000_000), [0, 1]);
        clock.set(0, 10_000_100);
        assert_eq!(clock.fired(10_000_200), [0]);
    }
}
