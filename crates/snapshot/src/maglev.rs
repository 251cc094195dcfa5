//! The table that sends a client's hash to a member: after Google's Maglev (NSDI 2016, section 3.4), with weights.
//!
//! Every member has its own permutation of the slots and takes its next free one in turn, so that shares are almost
//! exactly its weight, and a change of one member leaves nearly all other slots where they were. Nearly: at ten
//! members about 0.5 % of the slots move needlessly, whatever the size. Small pools can have none of that for the
//! price of slightly less even shares: there every slot is raced for by all members, and who joins or leaves changes
//! only what it wins or has won.

use crate::hash::{exponential, mix};

/// Primes, each about twice the one before.
const SIZES: [u32; 9] = [32_749, 65_521, 131_071, 262_139, 524_287, 1_048_573, 2_097_143, 4_194_301, LARGEST];
const LARGEST: u32 = 8_388_593;

/// Slots per member, at least.
const FINENESS: usize = 100;

/// A race costs slots times members; above this many members turns are taken instead.
const RACERS: usize = 64;

#[derive(Debug)]
pub struct Maglev {
    slots: Box<[u16]>,
}

impl Maglev {
    /// `members` are (hash, weight); who weighs nothing gets no slot. `None` where nobody weighs anything.
    pub fn new(members: &[(u64, u32)]) -> Option<Maglev> {
        let heaviest = members.iter().map(|(_, weight)| *weight).max().filter(|weight| *weight > 0)?;
        let size = size_for(members.len());
        // More members than a slot can tell apart would get none.
        let members = (0_u16..FREE).zip(members).filter(|(_, (_, weight))| *weight > 0);
        let members: Vec<(u16, u64, u32)> =
            members.map(|(index, (hash, weight))| (index, *hash, *weight)).collect();
        let slots =
            if members.len() <= RACERS { race(&members, size) } else { take_turns(&members, heaviest, size) };
        Some(Maglev { slots })
    }

    pub fn member(&self, hash: u64) -> usize {
        // A multiplication instead of a division: the high bits of the hash choose the slot, which is always there.
        let slot = u128::from(hash).wrapping_mul(self.slots.len() as u128) >> 64;
        usize::from(self.slots.get(slot as usize).copied().unwrap_or(FREE))
    }

    pub fn slots(&self) -> &[u16] {
        &self.slots
    }
}

const FREE: u16 = u16::MAX;

fn size_for(members: usize) -> u32 {
    let wanted = members.saturating_mul(FINENESS);
    SIZES.into_iter().find(|size| *size as usize >= wanted).unwrap_or(LARGEST)
}

/// Each slot to the member with the best draw for it: an exponential race, which each wins by its weight.
fn race(members: &[(u16, u64, u32)], size: u32) -> Box<[u16]> {
    let equal = members.windows(2).all(|two| matches!(two, [one, other] if one.2 == other.2));
    let winner = |slot: u32| {
        let salt = mix(u64::from(slot));
        let draw = |hash: u64| mix(hash ^ salt);
        let best = if equal {
            members.iter().min_by_key(|(_, hash, _)| (draw(*hash), *hash))
        } else {
            let time = |(_, hash, weight): &(u16, u64, u32)| exponential(draw(*hash)) / f64::from(*weight);
            members.iter().min_by(|a, b| time(a).total_cmp(&time(b)).then(a.1.cmp(&b.1)))
        };
        best.map_or(FREE, |(index, ..)| *index)
    };
    (0..size).map(winner).collect()
}

fn take_turns(members: &[(u16, u64, u32)], heaviest: u32, size: u32) -> Box<[u16]> {
    let mut walks: Vec<Permutation> =
        members.iter().map(|(index, hash, weight)| Permutation::new(*index, *hash, *weight, size)).collect();
    // The order of turns must not depend on who else is there: each by its own hash.
    walks.sort_by_key(|walk| (walk.order, walk.member));
    let mut slots = vec![FREE; size as usize].into_boxed_slice();
    let mut free = size;
    loop {
        for walk in &mut walks {
            let credit = walk.credit.saturating_add(u64::from(walk.weight));
            let Some(left) = credit.checked_sub(u64::from(heaviest)) else {
                walk.credit = credit;
                continue;
            };
            walk.credit = left;
            walk.take_next_free(&mut slots, size);
            free = free.saturating_sub(1);
            if free == 0 {
                return slots;
            }
        }
    }
}

/// One member's way through the slots.
struct Permutation {
    member: u16,
    weight: u32,
    order: u64,
    credit: u64,
    at: u32,
    skip: u32,
}

impl Permutation {
    fn new(member: u16, hash: u64, weight: u32, size: u32) -> Permutation {
        // No size is 0.
        let below = |hash: u64, end: u32| hash.checked_rem(end.into()).unwrap_or_default() as u32;
        let at = below(mix(hash), size);
        // From 1 to size - 1: with a prime size every skip visits every slot.
        let skip = below(mix(hash ^ 0xdead_beef), size.saturating_sub(1)).saturating_add(1);
        Permutation { member, weight, order: hash, credit: 0, at, skip }
    }

    fn take_next_free(&mut self, slots: &mut [u16], size: u32) {
        loop {
            let slot = slots.get_mut(self.at as usize);
            // Both are below the size, the largest of which is far below half of what the type holds.
            let next = self.at.wrapping_add(self.skip);
            self.at = next.checked_sub(size).unwrap_or(next);
            if let Some(slot) = slot.filter(|it| **it == FREE) {
                *slot = self.member;
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shares(table: &Maglev, members: usize) -> Vec<f64> {
        let mut counts = vec![0_u32; members];
        for slot in table.slots() {
            counts[usize::from(*slot)] += 1;
        }
        counts.into_iter().map(|count| f64::from(count) / table.slots().len() as f64).collect()
    }

    fn hashes(seed: u64, count: usize) -> Vec<u64> {
        (0..count as u64).map(|index| mix(seed ^ mix(index))).collect()
    }

    fn all_equal(hashes: &[u64]) -> Vec<(u64, u32)> {
        hashes.iter().map(|hash| (*hash, 1)).collect()
    }

    /// Slots whose member of before is still there, and has lost them.
    fn needless(before: &Maglev, old: &[u64], after: &Maglev, new: &[u64]) -> f64 {
        let moved = before
            .slots()
            .iter()
            .zip(after.slots())
            .filter(|(was, is)| {
                let (was, is) = (old[usize::from(**was)], new[usize::from(**is)]);
                was != is && new.contains(&was) && old.contains(&is)
            })
            .count();
        moved as f64 / before.slots().len() as f64
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: seaway_testkit::properties::cases(48), ..ProptestConfig::default() })]

        #[test]
        fn taking_one_of_ten_members_moves_hardly_anybody_else(seed: u64, gone in 0_usize..10) {
            let old = hashes(seed, 10);
            let mut new = old.clone();
            new.remove(gone);
            let before = Maglev::new(&all_equal(&old)).unwrap();
            let after = Maglev::new(&all_equal(&new)).unwrap();
            let excess = needless(&before, &old, &after, &new);
            prop_assert!(excess <= 0.003, "{excess}");
        }

        #[test]
        fn replacing_one_of_ten_members_moves_hardly_anybody_else(seed: u64, gone in 0_usize..10) {
            let old = hashes(seed, 10);
            let mut new = old.clone();
            new[gone] = mix(!seed);
            let before = Maglev::new(&all_equal(&old)).unwrap();
            let after = Maglev::new(&all_equal(&new)).unwrap();
            let excess = needless(&before, &old, &after, &new);
            prop_assert!(excess <= 0.003, "{excess}");
        }

        /// Smaller pools are raced for; with more, the table becomes a larger one.
        #[test]
        fn taking_one_of_many_members_moves_few_others(seed: u64, members in RACERS + 2..328, gone: prop::sample::Index) {
            let old = hashes(seed, members);
            let mut new = old.clone();
            new.remove(gone.index(members));
            let before = Maglev::new(&all_equal(&old)).unwrap();
            let after = Maglev::new(&all_equal(&new)).unwrap();
            let excess = needless(&before, &old, &after, &new);
            prop_assert!(excess <= 0.02, "{excess} of {members}");
        }

        #[test]
        fn shares_follow_weights(seed: u64, weights in proptest::collection::vec(0_u32..20, 1..30)) {
            let members: Vec<(u64, u32)> = hashes(seed, weights.len()).into_iter().zip(weights.clone()).collect();
            let total: u32 = weights.iter().sum();
            let Some(table) = Maglev::new(&members) else {
                prop_assert_eq!(total, 0);
                return Ok(());
            };
            for (share, weight) in shares(&table, members.len()).into_iter().zip(&weights) {
                let due = f64::from(*weight) / f64::from(total);
                prop_assert!((share - due).abs() <= 0.018, "{share} instead of {due}");
            }
        }

        #[test]
        fn the_order_of_members_does_not_matter(seed: u64, turn in 1_usize..12) {
            let forth = hashes(seed, 12);
            let mut back = forth.clone();
            back.rotate_left(turn);
            let one = Maglev::new(&all_equal(&forth)).unwrap();
            let two = Maglev::new(&all_equal(&back)).unwrap();
            for (a, b) in one.slots().iter().zip(two.slots()) {
                prop_assert_eq!(forth[usize::from(*a)], back[usize::from(*b)]);
            }
        }
    }

    #[test]
    fn large_pools_move_little_too() {
        let old = hashes(1, 200);
        let before = Maglev::new(&all_equal(&old)).unwrap();
        let new = &old[..199];
        let after = Maglev::new(&all_equal(new)).unwrap();
        let excess = needless(&before, &old, &after, new);
        assert!(excess < 0.02, "{excess}");
        assert!(shares(&before, 200).into_iter().all(|share| (share * 200.0 - 1.0).abs() < 0.01));
    }

    #[test]
    fn there_are_a_hundred_slots_for_each_member() {
        for members in [1, 10, 327, 328, 1000, 5000, 65_000] {
            assert!(size_for(members) as usize >= 100 * members, "{members}");
        }
    }

    #[test]
    fn sizes_are_primes() {
        for size in SIZES {
            let root = f64::from(size).sqrt() as u32 + 1;
            assert!((2..root).all(|divisor| size % divisor != 0), "{size}");
        }
    }

    #[test]
    fn nobody_with_weight_means_no_table() {
        assert!(Maglev::new(&[]).is_none());
        assert!(Maglev::new(&[(1, 0), (2, 0)]).is_none());
    }
}
