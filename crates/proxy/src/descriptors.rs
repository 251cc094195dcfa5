//! Descriptors of the process: some are kept for what must go on, and neither a namespace nor a load balancer takes all of the
//! others.
//!
//! ```text
//!     0 ───────────────────── 4/5 ──────────────── reserve ── limit
//!       for whoever comes      │ who has more than  │ nobody new comes in: the status page, checks, and members of
//!                              │ its share waits    │ those who are in already
//! ```
//!
//! Namespaces have the same share each, their load balancers the same within that, however many they are. What a namespace
//! listens with is a part of its share, and only those that have clients are counted as who shares.
//!
//! The kernel gives the lowest free number, so the number of a new descriptor tells that all below are taken, by
//! whatever: sockets that listen, pipes, files. Nobody has to count how many that are.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

use std::{
    collections::HashMap,
    os::fd::{AsRawFd, BorrowedFd},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

use seaway_model::{LbKey, Name};

use crate::{
    new_connections::{NewConnectionLimiter, PerSecond},
    sys::{self, Waker},
};

/// Where the limit is high, more than so many are not kept.
const MOST_RESERVED: u64 = 512;
/// Where nearly all are taken a few are free at any time, of those who have just left.
const HOLES: usize = 8;
/// Milliseconds without which the next refusal of a load balancer is news.
const EPISODE: u64 = 60_000;

pub(crate) struct Descriptors {
    limit: u64,
    /// The number that would be given after so many others.
    next: fn(&Descriptors, usize) -> u64,
    reserve: u64,
    /// The highest number that somebody new got, until it is found that lower ones are free again.
    last: AtomicU64,
    /// Those of load balancers that listen. What belongs to nobody in particular is one more.
    namespaces: Mutex<HashMap<Name, Weak<Namespace>>>,
    /// How many of these have any.
    holders: AtomicU32,
    /// How many there are.
    all: AtomicU32,
    scarce: AtomicBool,
    reported_at: AtomicU64,
    pub(crate) new_connections: NewConnectionLimiter,
}

/// Counts one descriptor that a load balancer has beside those of its clients, as long as that is open.
pub(crate) struct DescriptorGuard(Arc<DescriptorShare>);

impl Drop for DescriptorGuard {
    fn drop(&mut self) {
        self.0.give_back(1);
    }
}

/// Counts the sockets that a load balancer listens with, as long as they are open.
pub(crate) struct ListeningGuard {
    share: Arc<DescriptorShare>,
    sockets: u32,
}

impl Drop for ListeningGuard {
    fn drop(&mut self) {
        self.share.namespace.listening.fetch_sub(self.sockets, Relaxed);
        self.share.listening.fetch_sub(self.sockets, Relaxed);
    }
}

/// Whose load balancers have a share together.
#[derive(Default)]
struct Namespace {
    held: AtomicU32,
    /// Load balancers that have any.
    holders: AtomicU32,
    /// Load balancers that listen.
    all: AtomicU32,
    /// Sockets that listen.
    listening: AtomicU32,
    new_connections: PerSecond,
}

/// The descriptors of one load balancer.
pub(crate) struct DescriptorShare {
    held: AtomicU32,
    listening: AtomicU32,
    of: Arc<Descriptors>,
    namespace: Arc<Namespace>,
    /// `None`: nobody else's.
    load_balancer: Option<LbKey>,
}

impl Descriptors {
    pub(crate) fn new() -> Descriptors {
        Descriptors::within(sys::descriptor_limit().unwrap_or(u64::MAX), next_number)
    }

    fn within(limit: u64, next: fn(&Descriptors, usize) -> u64) -> Descriptors {
        Descriptors {
            limit,
            next,
            reserve: (limit / 16).min(MOST_RESERVED),
            last: AtomicU64::new(0),
            namespaces: Mutex::default(),
            holders: AtomicU32::new(0),
            all: AtomicU32::new(0),
            scarce: AtomicBool::new(false),
            reported_at: AtomicU64::new(0),
            new_connections: NewConnectionLimiter::default(),
        }
    }

    fn namespace(&self, key: &LbKey) -> Arc<Namespace> {
        let name = key.namespace().cloned().unwrap_or_default();
        let mut namespaces = self.namespaces.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = namespaces.get(&name).and_then(Weak::upgrade) {
            return known;
        }
        namespaces.retain(|_, it| it.strong_count() > 0);
        let new = Arc::new(Namespace::default());
        namespaces.insert(name, Arc::downgrade(&new));
        new
    }

    /// Somebody new has it. `false`: that was the last one for newcomers.
    pub(crate) fn register(&self, fd: BorrowedFd<'_>) -> bool {
        let enough = self.saw(fd) < self.budget();
        if !enough {
            self.scarce.store(true, Relaxed);
        }
        enough
    }

    /// The number of one that was just opened.
    pub(crate) fn saw(&self, fd: BorrowedFd<'_>) -> u64 {
        let number = fd.as_raw_fd() as u64;
        // All workers share it, so it is left alone while it means nothing. A low number tells nothing: of many that
        // are taken one was free.
        if number >= self.budget() / 2 && number > self.last.load(Relaxed) {
            self.last.store(number, Relaxed);
        }
        number
    }

    /// Only those are left that are kept. Looked at again whenever it is asked, which costs two calls.
    pub(crate) fn are_scarce(&self) -> bool {
        if !self.scarce.load(Relaxed) {
            return false;
        }
        let enough = (self.next)(self, 0) < self.budget();
        if enough {
            self.scarce.store(false, Relaxed);
        }
        !enough
    }

    /// Four fifths of what is for newcomers were taken at some time.
    fn were_few(&self) -> bool {
        self.last.load(Relaxed) >= (self.budget() / 5).saturating_mul(4)
    }

    /// They still are.
    fn are_few(&self) -> bool {
        self.last.store((self.next)(self, HOLES), Relaxed);
        self.were_few()
    }

    /// Whether a descriptor may be used for a member. The very last ones are for the status page and for checks.
    pub(crate) fn allow(&self, fd: BorrowedFd<'_>) -> bool {
        let kept = if self.reserve < 16 { 0 } else { self.reserve / 2 };
        self.saw(fd) < self.limit.saturating_sub(kept)
    }

    pub(crate) fn reserve(&self) -> u64 {
        self.reserve
    }

    /// For newcomers.
    fn budget(&self) -> u64 {
        self.limit.saturating_sub(self.reserve)
    }
}

impl DescriptorShare {
    pub(crate) fn new(of: Arc<Descriptors>, load_balancer: LbKey) -> Arc<DescriptorShare> {
        let namespace = of.namespace(&load_balancer);
        if namespace.all.fetch_add(1, Relaxed) == 0 {
            of.all.fetch_add(1, Relaxed);
        }
        Arc::new(DescriptorShare {
            held: AtomicU32::new(0),
            listening: AtomicU32::new(0),
            of,
            namespace,
            load_balancer: Some(load_balancer),
        })
    }

    /// Of whoever has all to itself.
    pub(crate) fn unlimited() -> Arc<DescriptorShare> {
        let of = Arc::new(Descriptors::within(u64::MAX, |_, _| 0));
        Arc::new(DescriptorShare {
            held: AtomicU32::new(0),
            listening: AtomicU32::new(0),
            of,
            namespace: Arc::default(),
            load_balancer: None,
        })
    }

    /// One more client may come in this second. What is nobody's in particular is never refused: others come by it as well.
    pub(crate) fn admits(&self, now: u64) -> bool {
        let admitted = self.of.new_connections.admit(&self.namespace.new_connections, now);
        if admitted || !self.is_owned() {
            return true;
        }
        if self.of.new_connections.should_report(now) {
            tracing::warn!(
                load_balancer = ?self.load_balancer,
                "the namespace of this load balancer has more than its share of the new connections per \
                 second: further ones are refused, so that others are served",
            );
        }
        false
    }

    fn is_owned(&self) -> bool {
        self.load_balancer.as_ref().is_some_and(|it| it.namespace().is_some())
    }

    /// Whether it may listen at one more port, which takes a socket for each worker. What the configuration listens at is
    /// never refused.
    pub(crate) fn may_listen(&self) -> bool {
        !(self.is_owned() && self.of.were_few() && self.has_its_share() && self.of.are_few())
    }

    /// It listens with so many.
    pub(crate) fn listen(self: &Arc<DescriptorShare>, sockets: usize) -> ListeningGuard {
        let sockets = u32::try_from(sockets).unwrap_or(u32::MAX);
        self.namespace.listening.fetch_add(sockets, Relaxed);
        self.listening.fetch_add(sockets, Relaxed);
        ListeningGuard { share: self.clone(), sockets }
    }

    /// Takes so many, unless others need them more; they are given back by [`DescriptorShare::give_back`].
    pub(crate) fn take(&self, count: u32, now: u64) -> bool {
        // Nearly always there is enough.
        if self.of.were_few() && self.has_its_share() && self.of.are_few() {
            self.report(now);
            return false;
        }
        self.take_anyway(count);
        true
    }

    /// One more for a client that is in already.
    pub(crate) fn take_one(self: &Arc<DescriptorShare>, now: u64) -> Option<DescriptorGuard> {
        self.take(1, now).then(|| DescriptorGuard(self.clone()))
    }

    pub(crate) fn take_anyway(&self, count: u32) {
        if self.namespace.held.fetch_add(count, Relaxed) == 0 {
            self.of.holders.fetch_add(1, Relaxed);
        }
        if self.held.fetch_add(count, Relaxed) == 0 {
            self.namespace.holders.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn give_back(&self, count: u32) {
        if self.held.fetch_sub(count, Relaxed) == count {
            self.namespace.holders.fetch_sub(1, Relaxed);
        }
        if self.namespace.held.fetch_sub(count, Relaxed) == count {
            self.of.holders.fetch_sub(1, Relaxed);
        }
    }

    /// As many as others of those who have any, and one who has none yet, could have too: among namespaces, and among the load
    /// balancers of one. Who is alone has all.
    fn has_its_share(&self) -> bool {
        let share = |all: &AtomicU32, holders: &AtomicU32, held: u32, of: u64| match all.load(Relaxed) {
            0 | 1 => None,
            _ => {
                let holders = holders.load(Relaxed).saturating_add(u32::from(held == 0));
                of.checked_div(u64::from(holders).saturating_add(1))
            }
        };
        let Namespace { held: together, holders, all, listening: listens, .. } = &*self.namespace;
        let (held, together) = (self.held.load(Relaxed), together.load(Relaxed));
        let of_namespace = share(&self.of.all, &self.of.holders, together, self.of.budget());
        let own = share(all, holders, held, of_namespace.unwrap_or(self.of.budget()));
        let with =
            |clients: u32, listening: &AtomicU32| u64::from(clients.saturating_add(listening.load(Relaxed)));
        of_namespace.is_some_and(|share| with(together, listens) >= share)
            || own.is_some_and(|share| with(held, &self.listening) >= share)
    }

    /// Once in an episode, however many it turns away.
    fn report(&self, now: u64) {
        let before = self.of.reported_at.swap(now, Relaxed);
        if before == 0 || now.saturating_sub(before) > EPISODE {
            tracing::error!(
                load_balancer = ?self.load_balancer, held = self.held.load(Relaxed),
                listening = self.namespace.listening.load(Relaxed), limit = self.of.limit,
                "few file descriptors are left, and this load balancer has more than its share: it gets \
                 no new connections, so that others are served; raise the limit of open files, or limit \
                 its connections",
            );
        }
    }
}

fn next_number(of: &Descriptors, others: usize) -> u64 {
    let wakers: Vec<_> = (0..=others).map_while(|_| Waker::new().ok()).collect();
    let next = wakers.get(others);
    next.map_or(of.limit, |next| next.fd().as_raw_fd() as u64)
}

impl Drop for DescriptorShare {
    fn drop(&mut self) {
        if self.load_balancer.is_some() && self.namespace.all.fetch_sub(1, Relaxed) == 1 {
            self.of.all.fetch_sub(1, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use seaway_model::{Kind, ObjectRef, Owner};

    use super::*;

    fn within(limit: u64) -> Arc<Descriptors> {
        Arc::new(Descriptors::within(limit, |it, _| it.last.load(Relaxed)))
    }

    fn share(of: &Arc<Descriptors>) -> Arc<DescriptorShare> {
        DescriptorShare::new(of.clone(), LbKey::Whole)
    }

    fn share_of(of: &Arc<Descriptors>, namespace: &str, index: usize) -> Arc<DescriptorShare> {
        let object = ObjectRef::new(Kind::Service, namespace, format!("service-{index}"));
        DescriptorShare::new(of.clone(), LbKey::Of(Owner::Object { object, uid: "1".into() }))
    }

    /// Of so many clients; each takes two descriptors, and nobody leaves.
    fn served(of: &Descriptors, share: &DescriptorShare, clients: u32) -> usize {
        let one = |_: &u32| {
            let served = share.take(2, 1);
            of.last.fetch_add(if served { 2 } else { 0 }, Relaxed);
            served
        };
        (0..clients).filter(one).count()
    }

    #[test]
    fn one_that_is_alone_may_have_all() {
        let of = within(1600);
        let only = share(&of);
        assert_eq!(served(&of, &only, 700), 700);
    }

    #[test]
    fn where_there_are_others_nobody_takes_the_last_ones() {
        let of = within(1600);
        assert_eq!(of.budget(), 1500);
        let (greedy, modest, late) = (share(&of), share(&of), share(&of));
        assert_eq!(served(&of, &greedy, 1000), 600, "four fifths");
        assert_eq!(served(&of, &modest, 100), 100, "it has less than a third");
        assert_eq!(served(&of, &late, 1), 1);
        assert_eq!(served(&of, &greedy, 1), 0);
        // It recovers as soon as there is enough again.
        of.last.store(100, Relaxed);
        assert!(greedy.take(2, 1));
        assert_eq!(late.namespace.holders.load(Relaxed), 3);
        late.give_back(2);
        assert_eq!((late.namespace.holders.load(Relaxed), of.holders.load(Relaxed)), (2, 1));
    }

    #[test]
    fn many_load_balancers_of_one_namespace_take_no_more_than_one() {
        let of = within(1600);
        let many: Vec<_> = (0..50).map(|index| share_of(&of, "crowd", index)).collect();
        let (one, late) = (share_of(&of, "shop", 0), share_of(&of, "late", 0));
        let crowd = |clients| many.iter().map(|share| served(&of, share, clients)).sum::<usize>();
        assert_eq!(served(&of, &one, 50), 50);
        assert_eq!(crowd(40), 550, "four fifths of all are taken now");
        // A third of all for each of the two and one more: 500 descriptors.
        assert_eq!(served(&of, &one, 300), 200, "it has as much as the whole crowd may have");
        assert_eq!(crowd(1), 0);
        assert_eq!(served(&of, &late, 1), 1);
    }

    #[test]
    fn sockets_that_listen_are_a_part_of_the_share_of_a_namespace_for_as_long_as_they_are_open() {
        let of = within(1600);
        let (many, shop) = (share_of(&of, "many", 0), share_of(&of, "shop", 0));
        let front_door = share(&of);
        let listening = many.listen(1000);
        of.last.store(1000, Relaxed);
        assert!(many.may_listen(), "there is enough");
        assert_eq!(served(&of, &shop, 100), 100);
        assert!(of.were_few());
        // A third of all, and half of it for shop: who listens and has no clients makes no share smaller.
        assert!(!many.may_listen() && !share_of(&of, "many", 1).may_listen());
        assert_eq!(served(&of, &many, 1), 0);
        assert!(shop.may_listen() && share_of(&of, "late", 0).may_listen() && front_door.may_listen());
        assert_eq!(served(&of, &shop, 100), 100);
        drop(listening);
        assert!(many.may_listen());
        assert_eq!(served(&of, &many, 1), 1);
    }

    #[test]
    fn a_load_balancer_that_listens_at_very_many_ports_leaves_those_of_its_namespace_theirs() {
        let of = within(1600);
        let (wide, narrow) = (share_of(&of, "shop", 0), share_of(&of, "shop", 1));
        let _listening = wide.listen(1000);
        of.last.store(1300, Relaxed);
        assert_eq!((served(&of, &wide, 1), served(&of, &narrow, 1)), (0, 1));
        assert!(!wide.may_listen() && narrow.may_listen());
    }

    #[test]
    fn load_balancers_of_a_namespace_share_its_new_connections_and_those_of_nobody_are_let_in() {
        let of = within(u64::MAX);
        of.new_connections.set_limit(1_000);
        let flood: Vec<_> = (0..3).map(|index| share_of(&of, "flood", index)).collect();
        let (shop, front_door) = (share_of(&of, "shop", 0), share(&of));
        let come = |share: &DescriptorShare, count: usize| (0..count).filter(|_| share.admits(5_000)).count();
        assert_eq!((come(&front_door, 1), come(&shop, 1)), (1, 1));
        assert_eq!(flood.iter().map(|it| come(it, 10_000)).sum::<usize>(), 798);
        assert_eq!(come(&shop, 1_000), 249, "a quarter, with the one before");
        assert_eq!(come(&front_door, 1_000), 1_000);
    }

    #[test]
    fn namespaces_that_went_take_no_share() {
        let of = within(1600);
        let (one, other) = (share_of(&of, "shop", 0), share_of(&of, "other", 0));
        one.take_anyway(2);
        other.take_anyway(2);
        assert_eq!((of.all.load(Relaxed), of.holders.load(Relaxed)), (2, 2));
        other.give_back(2);
        drop(other);
        assert_eq!((of.all.load(Relaxed), of.holders.load(Relaxed)), (1, 1));
        assert_eq!(served(&of, &one, 700), 700, "it is alone");
        drop(share_of(&of, "third", 0));
        assert_eq!(of.namespaces.lock().unwrap().len(), 2);
    }

    #[test]
    fn the_smallest_limits_leave_something_for_newcomers() {
        for limit in [0, 1, 15, 16, 60, 1024, 1 << 20, u64::MAX] {
            let of = within(limit);
            assert!(of.reserve() <= limit / 16 && of.reserve() <= MOST_RESERVED, "{limit}");
        }
    }
}
