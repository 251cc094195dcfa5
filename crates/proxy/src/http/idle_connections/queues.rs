//! Idle connections in queues, by member and by who may use them next, and each found by its stream.
//!
//! Where a connection is kept is noted by its stream (`places`). Positions in a queue move; the order in which connections
//! were kept does not, so that is noted, and a queue is sorted by it.

use std::collections::VecDeque;

use crate::by_address::ByAddress;

/// `T`: what is kept of each connection.
pub(super) struct IdleQueues<T> {
    of_member: ByAddress<[VecDeque<IdleEntry<T>>; ReuseClass::ALL.len()]>,
    /// By the indexes of streams, which are dense.
    places: Vec<Option<Position>>,
    /// So many were kept until now.
    order: u64,
    len: usize,
}

/// Which clients may use a connection next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReuseClass {
    ForAnyone,
    /// Each belongs to one client.
    ForOne,
    /// No client: the member was asked to close these.
    Closing,
}

struct IdleEntry<T> {
    stream: u32,
    order: u64,
    what: T,
}

#[derive(Clone, Copy)]
struct Position {
    member: usize,
    queue: ReuseClass,
    order: u64,
}

impl ReuseClass {
    const ALL: [ReuseClass; 3] = [ReuseClass::ForAnyone, ReuseClass::ForOne, ReuseClass::Closing];

    fn of<Q>(self, [for_anyone, for_one, closing]: &[Q; 3]) -> &Q {
        match self {
            ReuseClass::ForAnyone => for_anyone,
            ReuseClass::ForOne => for_one,
            ReuseClass::Closing => closing,
        }
    }

    fn of_mut<Q>(self, [for_anyone, for_one, closing]: &mut [Q; 3]) -> &mut Q {
        match self {
            ReuseClass::ForAnyone => for_anyone,
            ReuseClass::ForOne => for_one,
            ReuseClass::Closing => closing,
        }
    }
}

impl<T> Default for IdleQueues<T> {
    fn default() -> IdleQueues<T> {
        IdleQueues { of_member: ByAddress::default(), places: Vec::new(), order: 0, len: 0 }
    }
}

impl<T> IdleQueues<T> {
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn len_of(&self, member: usize, queue: ReuseClass) -> usize {
        self.of_member.get(&member).map_or(0, |it| queue.of(it).len())
    }

    /// As the newest one of its queue. A stream is kept once: it is owned by what is kept.
    pub(super) fn push(&mut self, member: usize, queue: ReuseClass, stream: u32, what: T) {
        self.order = self.order.saturating_add(1);
        let order = self.order;
        let index = stream as usize;
        if self.places.len() <= index {
            self.places.resize(index.saturating_add(1), None);
        }
        if let Some(place) = self.places.get_mut(index) {
            *place = Some(Position { member, queue, order });
        }
        let queues = self.of_member.entry(member).or_default();
        queue.of_mut(queues).push_back(IdleEntry { stream, order, what });
        self.len = self.len.saturating_add(1);
    }

    pub(super) fn pop_newest(&mut self, member: usize, queue: ReuseClass) -> Option<T> {
        let kept = queue.of_mut(self.of_member.get_mut(&member)?).pop_back();
        self.forget(kept)
    }

    /// Of those that are meant.
    pub(super) fn remove_newest(
        &mut self,
        member: usize,
        queue: ReuseClass,
        which: impl Fn(&T) -> bool,
    ) -> Option<T> {
        let all = queue.of_mut(self.of_member.get_mut(&member)?);
        let at = all.iter().rposition(|it| which(&it.what))?;
        let kept = all.remove(at);
        self.forget(kept)
    }

    pub(super) fn pop_oldest(&mut self, member: usize, queue: ReuseClass) -> Option<T> {
        let kept = queue.of_mut(self.of_member.get_mut(&member)?).pop_front();
        self.forget(kept)
    }

    /// Takes it out of its queue, if it is kept and meant.
    pub(super) fn remove(&mut self, stream: u32, is_meant: impl FnOnce(&T) -> bool) -> Option<T> {
        let place = (*self.places.get(stream as usize)?)?;
        let all = place.queue.of_mut(self.of_member.get_mut(&place.member)?);
        let at = all.binary_search_by_key(&place.order, IdleEntry::order).ok()?;
        all.get(at).filter(|it| is_meant(&it.what))?;
        let kept = all.remove(at);
        self.forget(kept)
    }

    /// All that are meant; and queues of members that have none any more go, too.
    pub(super) fn remove_all(&mut self, which: impl Fn(&T) -> bool) -> Vec<T> {
        let mut gone = Vec::new();
        self.of_member.retain(|_, queues| {
            for all in queues.iter_mut().filter(|all| all.iter().any(|it| which(&it.what))) {
                let (these, others) = std::mem::take(all).into_iter().partition(|it| which(&it.what));
                *all = others;
                gone.extend::<VecDeque<_>>(these);
            }
            queues.iter().any(|all| !all.is_empty())
        });
        gone.into_iter().filter_map(|it| self.forget(Some(it))).collect()
    }

    pub(super) fn connections_in(&self, queue: ReuseClass) -> impl Iterator<Item = &T> {
        self.of_member.values().flat_map(move |it| queue.of(it)).map(|it| &it.what)
    }

    /// The first of each queue.
    pub(super) fn oldest(&self) -> impl Iterator<Item = &T> {
        self.of_member.values().flatten().filter_map(VecDeque::front).map(|it| &it.what)
    }

    pub(super) fn clear(&mut self) {
        *self = IdleQueues { order: self.order, ..IdleQueues::default() };
    }

    /// Whatever leaves a queue leaves its place here.
    fn forget(&mut self, kept: Option<IdleEntry<T>>) -> Option<T> {
        let kept = kept?;
        if let Some(place) = self.places.get_mut(kept.stream as usize) {
            *place = None;
        }
        self.len = self.len.saturating_sub(1);
        Some(kept.what)
    }
}

impl<T> IdleEntry<T> {
    fn order(&self) -> u64 {
        #[cfg(test)]
        tests::STEPS.set(tests::STEPS.get().saturating_add(1));
        self.order
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    std::thread_local! {
        /// How many connections were looked at to find one.
        pub(super) static STEPS: Cell<u64> = const { Cell::new(0) };
    }

    const MEMBERS: usize = 3;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Keep(usize, ReuseClass),
        Newest(usize, ReuseClass),
        Oldest(usize, ReuseClass),
        NewestOdd(usize, ReuseClass),
        /// Of all streams that ever were, this part.
        Event(f64, bool),
        RemoveMember(usize),
        Clear,
    }

    fn any_queue() -> impl Strategy<Value = ReuseClass> {
        prop::sample::select(&ReuseClass::ALL[..])
    }

    fn any_step() -> impl Strategy<Value = Step> {
        let of = || (0..MEMBERS, any_queue());
        prop_oneof![
            8 => of().prop_map(|(member, queue)| Step::Keep(member, queue)),
            2 => of().prop_map(|(member, queue)| Step::Newest(member, queue)),
            1 => of().prop_map(|(member, queue)| Step::Oldest(member, queue)),
            1 => of().prop_map(|(member, queue)| Step::NewestOdd(member, queue)),
            4 => (0.0..1.0, prop::bool::weighted(0.8)).prop_map(|(part, meant)| Step::Event(part, meant)),
            1 => (0..MEMBERS).prop_map(Step::RemoveMember),
            1 => prop::bool::weighted(0.1).prop_map(|it| if it { Step::Clear } else { Step::RemoveMember(0) }),
        ]
    }

    type Plain = Vec<(usize, ReuseClass, u32)>;

    fn taken(plain: &mut Plain, at: Option<usize>) -> Option<u32> {
        at.map(|at| plain.remove(at).2)
    }

    fn step(
        queues: &mut IdleQueues<(usize, u32)>,
        plain: &mut Plain,
        step: Step,
    ) -> Result<(), TestCaseError> {
        let is_of = |member, queue| move |it: &(usize, ReuseClass, u32)| (it.0, it.1) == (member, queue);
        let stream = |it: Option<(usize, u32)>| it.map(|it| it.1);
        match step {
            Step::Keep(member, queue) => {
                // The lowest that is free, as a slab gives them.
                let free = (0..).find(|it| plain.iter().all(|kept| kept.2 != *it)).expect("one is free");
                queues.push(member, queue, free, (member, free));
                plain.push((member, queue, free));
            }
            Step::Newest(member, queue) => {
                let at = plain.iter().rposition(is_of(member, queue));
                prop_assert_eq!(stream(queues.pop_newest(member, queue)), taken(plain, at));
            }
            Step::Oldest(member, queue) => {
                let at = plain.iter().position(is_of(member, queue));
                prop_assert_eq!(stream(queues.pop_oldest(member, queue)), taken(plain, at));
            }
            Step::NewestOdd(member, queue) => {
                let at = plain.iter().rposition(|it| is_of(member, queue)(it) && it.2 % 2 == 1);
                let removed = queues.remove_newest(member, queue, |it| it.1 % 2 == 1);
                prop_assert_eq!(stream(removed), taken(plain, at));
            }
            Step::Event(part, meant) => {
                let index = (part * (plain.len() + 2) as f64) as u32;
                let at = plain.iter().position(|it| meant && it.2 == index);
                prop_assert_eq!(stream(queues.remove(index, |_| meant)), taken(plain, at));
            }
            Step::RemoveMember(member) => {
                let mut gone: Vec<u32> =
                    queues.remove_all(|it| it.0 == member).iter().map(|it| it.1).collect();
                let mut should: Vec<u32> = plain.extract_if(.., |it| it.0 == member).map(|it| it.2).collect();
                gone.sort_unstable();
                should.sort_unstable();
                prop_assert_eq!(gone, should);
            }
            Step::Clear => {
                queues.clear();
                plain.clear();
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn each_that_is_kept_is_found_by_its_stream_and_nothing_else_is(
            steps in prop::collection::vec(any_step(), 0..80),
        ) {
            let (mut queues, mut plain) = (IdleQueues::default(), Plain::new());
            for it in steps {
                step(&mut queues, &mut plain, it)?;
                prop_assert_eq!((queues.len, queues.is_empty()), (plain.len(), plain.is_empty()));
                let places = queues.places.iter().flatten().count();
                prop_assert_eq!(places, plain.len(), "a place for each, and no other");
                for member in 0..MEMBERS {
                    for queue in ReuseClass::ALL {
                        let of = |it: &&(usize, ReuseClass, u32)| (it.0, it.1) == (member, queue);
                        prop_assert_eq!(queues.len_of(member, queue), plain.iter().filter(of).count());
                        let oldest = plain.iter().find(of).map(|it| it.2);
                        prop_assert_eq!(queues.oldest().any(|it| Some(it.1) == oldest), oldest.is_some());
                    }
                }
                for (stream, place) in (0..).zip(&queues.places) {
                    let kept = plain.iter().find(|it| it.2 == stream).map(|it| (it.0, it.1));
                    prop_assert_eq!(place.as_ref().map(|it| (it.member, it.queue)), kept);
                }
            }
            for (.., stream) in plain {
                prop_assert_eq!(queues.remove(stream, |_| true).map(|it| it.1), Some(stream));
            }
            prop_assert!(queues.is_empty());
        }
    }

    #[test]
    fn of_a_thousand_members_that_close_all_each_event_looks_at_a_few_connections() {
        const EACH: u32 = 512;
        let mut queues = IdleQueues::default();
        let streams = 0..1_000 * EACH;
        for stream in streams.clone() {
            queues.push((stream % 1_000) as usize, ReuseClass::ForAnyone, stream, ());
        }
        STEPS.set(0);
        // In no order: 7,919 is prime.
        for turn in streams.clone().map(u64::from) {
            let stream = (turn * 7_919 % u64::from(streams.end)) as u32;
            assert!(queues.remove(stream, |()| true).is_some());
        }
        assert!(queues.is_empty());
        let each = STEPS.get() / u64::from(streams.end);
        assert!(each <= 10, "{each} for each event");
    }
}
