//! Which member gets a new client.
//!
//! Candidates come in tiers; the first that has anybody left decides:
//!
//! 1. ready members that are usable, or all ready ones when fewer than the panic threshold are;
//! 2. ready members that are merely ejected: suspicion must not leave nobody;
//! 3. and 4. the same among backup members, who come first where no other ready member is usable;
//! 5. and 6. the same among draining members: terminating, but still serving.
//!
//! Within a tier the pool's balance chooses, by weights scaled down while a member warms up. Source hash ignores
//! warmth: a client that moves to a member and back would have moved twice for nothing.

use seaway_model::{Member, load_balancer::Balance};

use crate::{
    hash::{client_hash, exponential, mix},
    pool::{CompiledPool, MemberSet},
};

/// What is known about members only where traffic runs; asked during a pick, by index.
pub trait MemberStatusSource {
    fn standing(&self, member: usize) -> MemberAvailability;

    /// Open connections, over all workers.
    fn load(&self, member: usize) -> u32;

    /// Percent of its weight that a member gets yet: 100 unless it has just come.
    fn warmth(&self, member: usize) -> u32;

    /// Did not answer this very client just now.
    fn tried(&self, member: usize) -> bool;

    /// Everybody is usable and warm. May say `false` for want of knowledge; then all are looked at.
    fn all_well(&self) -> bool;
}

/// Whether a member is picked, and when, if others are better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberAvailability {
    Usable,
    /// Failed to serve some clients, but not a health check.
    Ejected,
    Failed,
}

/// Where one worker is in its turns through one pool. It survives swaps of the pool.
#[derive(Clone, Debug, Default)]
pub struct Cursor {
    next: usize,
    credits: Vec<i64>,
    random: u64,
}

impl Cursor {
    /// Workers begin at different members, or all would begin with the first.
    pub fn new(seed: u64) -> Cursor {
        let random = mix(seed);
        Cursor { next: (random >> 33) as usize, credits: Vec::new(), random }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (product(mix(self.random), below) >> 64) as u64
    }
}

/// As exact as it can be: two of 64 bits have 128 at most.
fn product(one: u64, other: u64) -> u128 {
    u128::from(one).wrapping_mul(other.into())
}

impl CompiledPool {
    /// `client` is asked for only where the pool places clients by their address: see [`client_hash`].
    pub fn pick(
        &self,
        client: impl FnOnce() -> std::net::IpAddr,
        cursor: &mut Cursor,
        conditions: &impl MemberStatusSource,
    ) -> Option<usize> {
        let client = if self.hashes_clients() { client_hash(client()) } else { 0 };
        if !self.backup.is_empty() {
            return self.pick_beside_backup(client, cursor, conditions);
        }
        [&self.ready, &self.draining]
            .into_iter()
            .filter(|field| !field.is_empty())
            .find_map(|field| self.pick_from(field, client, cursor, conditions))
    }

    /// Apart, so that pools without a backup, which nearly all are, pay for one comparison.
    #[inline(never)]
    fn pick_beside_backup(
        &self,
        client: u64,
        cursor: &mut Cursor,
        conditions: &impl MemberStatusSource,
    ) -> Option<usize> {
        let [first, second] = match self.needs_backup(conditions) {
            true => [&self.backup, &self.ready],
            false => [&self.ready, &self.backup],
        };
        [first, second, &self.draining]
            .into_iter()
            .filter(|field| !field.is_empty())
            .find_map(|field| self.pick_from(field, client, cursor, conditions))
    }

    #[inline(always)]
    fn pick_from(
        &self,
        field: &MemberSet,
        client: u64,
        cursor: &mut Cursor,
        conditions: &impl MemberStatusSource,
    ) -> Option<usize> {
        let everybody = conditions.all_well() || self.panics(field, conditions);
        let first = Tier {
            pool: self,
            field,
            floor: if everybody { MinAvailability::Any } else { MinAvailability::Usable },
        };
        let second = Tier { floor: MinAvailability::Ejected, ..first };
        first
            .choose(client, cursor, conditions)
            .or_else(|| if everybody { None } else { second.choose(client, cursor, conditions) })
    }

    /// No other ready member can serve this client now, and a backup can.
    fn needs_backup(&self, conditions: &impl MemberStatusSource) -> bool {
        let serves = |index: &u32| {
            let member = *index as usize;
            conditions.standing(member) == MemberAvailability::Usable && !conditions.tried(member)
        };
        !self.ready.members.iter().any(serves) && self.backup.members.iter().any(serves)
    }

    /// Whether a client that has this member may keep it: one that has a backup goes back as soon as another can serve.
    pub fn may_keep(&self, member: usize, conditions: &impl MemberStatusSource) -> bool {
        self.members().get(member).is_some_and(|it| !it.backup || self.needs_backup(conditions))
    }

    /// Fewer are usable than the threshold asks for: then some answer is better than none.
    fn panics(&self, field: &MemberSet, conditions: &impl MemberStatusSource) -> bool {
        let threshold = usize::from(self.pool().panic_threshold);
        if threshold == 0 {
            return false;
        }
        let usable = field
            .members
            .iter()
            .filter(|index| conditions.standing(**index as usize) == MemberAvailability::Usable)
            .count();
        usable.saturating_mul(100) < threshold.saturating_mul(field.members.len())
    }
}

#[derive(Clone, Copy)]
enum MinAvailability {
    Usable,
    Ejected,
    Any,
}

#[derive(Clone, Copy)]
struct Tier<'a> {
    pool: &'a CompiledPool,
    field: &'a MemberSet,
    floor: MinAvailability,
}

impl Tier<'_> {
    fn choose(
        &self,
        client: u64,
        cursor: &mut Cursor,
        conditions: &impl MemberStatusSource,
    ) -> Option<usize> {
        if self.pool.hashes_clients() {
            return self.by_hash(client, conditions);
        }
        match self.pool.pool().balance {
            Balance::RoundRobin if self.field.is_uniform() && conditions.all_well() => {
                self.next_in_turn(cursor, conditions)
            }
            Balance::RoundRobin => self.by_credit(cursor, conditions),
            Balance::LeastConnections => self.least_loaded(cursor, conditions),
            Balance::RandomTwo => self.better_of_two(cursor, conditions),
            Balance::SourceHash => self.by_hash(client, conditions),
            Balance::First => {
                self.rotation(0).map(|(_, member)| member).find(|it| self.admits(*it, conditions))
            }
        }
    }

    fn admits(&self, member: usize, conditions: &impl MemberStatusSource) -> bool {
        if conditions.tried(member) {
            return false;
        }
        match self.floor {
            MinAvailability::Any => true,
            MinAvailability::Usable => conditions.standing(member) == MemberAvailability::Usable,
            MinAvailability::Ejected => conditions.standing(member) != MemberAvailability::Failed,
        }
    }

    fn weight(&self, member: usize, conditions: &impl MemberStatusSource) -> u64 {
        let weight = self.pool.members().get(member).map_or(0, |it| u64::from(it.weight));
        weight.saturating_mul(conditions.warmth(member).clamp(1, 100).into())
    }

    fn next_in_turn(&self, cursor: &mut Cursor, conditions: &impl MemberStatusSource) -> Option<usize> {
        self.rotation(cursor.next).find(|(_, member)| self.admits(*member, conditions)).map(|(at, member)| {
            cursor.next = at.saturating_add(1);
            member
        })
    }

    /// Smooth weighted round robin: everybody earns its weight, the richest serves and pays for all.
    fn by_credit(&self, cursor: &mut Cursor, conditions: &impl MemberStatusSource) -> Option<usize> {
        let Cursor { credits, .. } = cursor;
        if credits.len() != self.pool.members().len() {
            credits.clear();
            credits.resize(self.pool.members().len(), 0);
        }
        let mut total = 0_i64;
        let mut richest: Option<(usize, i64)> = None;
        for member in self.field.members.iter().map(|index| *index as usize) {
            if !self.admits(member, conditions) {
                continue;
            }
            let weight = self.weight(member, conditions) as i64;
            let Some(credit) = credits.get_mut(member) else { continue };
            *credit = credit.saturating_add(weight);
            total = total.saturating_add(weight);
            if richest.is_none_or(|(_, most)| *credit > most) {
                richest = Some((member, *credit));
            }
        }
        let (chosen, credit) = richest?;
        if let Some(left) = credits.get_mut(chosen) {
            *left = credit.saturating_sub(total);
        }
        Some(chosen)
    }

    fn least_loaded(&self, cursor: &mut Cursor, conditions: &impl MemberStatusSource) -> Option<usize> {
        let mut best: Option<(usize, usize, u64, u64)> = None;
        for (at, member) in self.rotation(cursor.next) {
            if !self.admits(member, conditions) {
                continue;
            }
            let load = u64::from(conditions.load(member)).saturating_add(1);
            let weight = self.weight(member, conditions);
            if best.is_none_or(|(_, _, least, of)| product(load, of) < product(least, weight)) {
                best = Some((at, member, load, weight));
            }
        }
        // Equal ones take turns.
        best.map(|(at, member, ..)| {
            cursor.next = at.saturating_add(1);
            member
        })
    }

    fn better_of_two(&self, cursor: &mut Cursor, conditions: &impl MemberStatusSource) -> Option<usize> {
        let one = self.at_random(cursor, conditions)?;
        let other = self.at_random(cursor, conditions)?;
        let load = |member| u64::from(conditions.load(member)).saturating_add(1);
        let better = product(load(other), self.weight(one, conditions))
            < product(load(one), self.weight(other, conditions));
        Some(if better { other } else { one })
    }

    /// Draws by weight and draws again if it must not be; a field where hardly anybody may serve is walked through.
    fn at_random(&self, cursor: &mut Cursor, conditions: &impl MemberStatusSource) -> Option<usize> {
        for _ in 0..8 {
            let sums = &*self.field.sums;
            let at = match sums.last() {
                Some(total) => {
                    let mark = cursor.draw(*total);
                    sums.partition_point(|sum| *sum <= mark)
                }
                None => cursor.draw(self.field.members.len() as u64) as usize,
            };
            let member = *self.field.members.get(at)? as usize;
            let warmth = conditions.warmth(member);
            if self.admits(member, conditions) && (warmth >= 100 || cursor.draw(100) < u64::from(warmth)) {
                return Some(member);
            }
        }
        let start = cursor.draw(self.field.members.len() as u64) as usize;
        self.rotation(start).map(|(_, member)| member).find(|member| self.admits(*member, conditions))
    }

    /// The table's member; without it, the client's flows go to whom the highest of its own hashes says, so that
    /// nobody else's move and the one member's load is spread over all.
    fn by_hash(&self, client: u64, conditions: &impl MemberStatusSource) -> Option<usize> {
        if std::ptr::eq(self.field, &self.pool.ready) {
            let member = self.pool.table()?.member(client);
            if self.admits(member, conditions) {
                return Some(member);
            }
        }
        let mut best: Option<(usize, f64)> = None;
        for member in self.field.members.iter().map(|index| *index as usize) {
            if !self.admits(member, conditions) {
                continue;
            }
            // Weighted rendezvous: an exponential race that each wins by its weight.
            let known = self.pool.hashes.get(member).zip(self.pool.members().get(member));
            let Some((hash, Member { weight, .. })) = known else { continue };
            let score = exponential(mix(client ^ hash)) / f64::from(*weight);
            if best.is_none_or(|(_, lowest)| score < lowest) {
                best = Some((member, score));
            }
        }
        best.map(|(member, _)| member)
    }

    /// Once round the field: (place, member).
    fn rotation(&self, start: usize) -> impl Iterator<Item = (usize, usize)> {
        let start = start.checked_rem(self.field.members.len()).unwrap_or_default();
        let (before, from) = self.field.members.split_at(start);
        (start..).zip(from).chain((0..).zip(before)).map(|(at, member)| (at, *member as usize))
    }
}

#[cfg(test)]
mod tests;
