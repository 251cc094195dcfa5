//! A pool with everything computed that does not change until the next swap.

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
};

use seaway_model::{
    Member, Pool,
    load_balancer::{Affinity, Balance, MemberState},
};

use crate::{
    hash::member_hash,
    maglev::Maglev,
    member_cookies::{MemberCookie, MemberCookies},
};

/// Immutable; swapped in whole. Members keep the order (and so the indexes) of the pool it was made from.
#[derive(Debug)]
pub struct CompiledPool {
    pool: Arc<Pool>,
    /// Those that get new connections as a rule: ready and of some weight.
    pub(crate) ready: MemberSet,
    /// Ready, and there for when none of the others can serve.
    pub(crate) backup: MemberSet,
    /// Their answer when nobody is ready: terminating, but still serving.
    pub(crate) draining: MemberSet,
    pub(crate) hashes: Box<[u64]>,
    table: OnceLock<Option<Maglev>>,
    /// Where clients keep their member by a cookie; else nobody has one.
    marks: MemberCookies,
}

/// Members that are chosen from together.
#[derive(Debug)]
pub(crate) struct MemberSet {
    /// Indexes in the pool.
    pub(crate) members: Box<[u32]>,
    /// Running sums of their weights, for drawing by weight; empty if all weigh the same.
    pub(crate) sums: Box<[u64]>,
}

impl MemberSet {
    fn of(pool: &Pool, is_in: impl Fn(&Member) -> bool) -> MemberSet {
        let members: Box<[u32]> = (0_u32..)
            .zip(&pool.members)
            .filter(|(_, member)| member.weight > 0 && is_in(member))
            .map(|(index, _)| index)
            .collect();
        let weight = |index: &u32| pool.members.get(*index as usize).map_or(0, |it| it.weight);
        let uniform =
            members.windows(2).all(|two| matches!(two, [one, other] if weight(one) == weight(other)));
        let sums = members.iter().filter(|_| !uniform).scan(0_u64, |sum, index| {
            *sum = sum.saturating_add(weight(index).into());
            Some(*sum)
        });
        MemberSet { sums: sums.collect(), members }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// All weigh the same.
    pub(crate) fn is_uniform(&self) -> bool {
        self.sums.is_empty()
    }
}

impl CompiledPool {
    pub fn compile(pool: Arc<Pool>) -> CompiledPool {
        let is_ready = |member: &Member| member.state == MemberState::Ready;
        let ready = MemberSet::of(&pool, |member| is_ready(member) && !member.backup);
        let backup = MemberSet::of(&pool, |member| is_ready(member) && member.backup);
        let draining = MemberSet::of(&pool, |member| !is_ready(member));
        let hashes = pool.members.iter().map(|member| member_hash(member.at)).collect();
        let marks = match pool.affinity {
            Some(Affinity::Cookie { .. }) => MemberCookies::of(&pool),
            Some(Affinity::ClientIp(_)) | None => MemberCookies::default(),
        };
        CompiledPool { ready, backup, draining, hashes, table: OnceLock::new(), marks, pool }
    }

    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    pub fn members(&self) -> &[Member] {
        &self.pool.members
    }

    /// Where a member stands in this pool. Members are sorted by address.
    pub fn position(&self, at: SocketAddr) -> Option<usize> {
        self.pool.members.binary_search_by(|member| member.at.cmp(&at)).ok()
    }

    /// Who has this mark.
    pub fn marked(&self, mark: MemberCookie) -> Option<usize> {
        self.marks.position(mark)
    }

    pub fn mark_of(&self, at: SocketAddr) -> Option<MemberCookie> {
        self.marks.at(self.position(at)?)
    }

    /// New clients are placed by their address: asked for, or because what sticks to it should fall alike everywhere.
    pub fn hashes_clients(&self) -> bool {
        self.pool.balance == Balance::SourceHash || matches!(self.pool.affinity, Some(Affinity::ClientIp(_)))
    }

    /// Built at the first question, by the thread that asks: most pools never hash.
    pub fn table(&self) -> Option<&Maglev> {
        self.table
            .get_or_init(|| {
                // Indexes of the table are those of the pool, so who is not ready stands in it without weight.
                let mut members: Vec<(u64, u32)> = self.hashes.iter().map(|hash| (*hash, 0)).collect();
                for index in &self.ready.members {
                    let at = *index as usize;
                    if let Some((entry, member)) = members.get_mut(at).zip(self.pool.members.get(at)) {
                        entry.1 = member.weight;
                    }
                }
                Maglev::new(&members)
            })
            .as_ref()
    }

    /// Somebody has asked for the table.
    pub fn table_is_built(&self) -> bool {
        self.table.get().is_some()
    }
}
