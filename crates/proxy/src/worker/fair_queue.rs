//! Work that is too much for one turn: which is next, so that nobody who has a lot of it delays the others.
//!
//! ```text
//!   namespace ──► load balancer ──► client ──► first come, first served
//!   the one that has used the least time         each in turn
//! ```
//! Time counts while there is work: who was idle begins where the others are, and saves nothing up. One who just used a lot
//! and comes back at once does not begin anew.

use std::{
    collections::{BTreeSet, HashMap, VecDeque},
    hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher},
    time::Duration,
};

use seaway_model::{LbKey, Owner};

/// For which namespace and load balancer work is done: those share the time of a worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct FairnessKey {
    namespace: u64,
    load_balancer: u64,
}

impl FairnessKey {
    pub(crate) fn of(key: &LbKey) -> FairnessKey {
        let namespace = match key.owner() {
            Some(Owner::Object { object, .. }) => hash_of(&object.namespace),
            _ => 0,
        };
        FairnessKey { namespace, load_balancer: hash_of(key) }
    }

    /// For the owner of a route, at a listener that belongs to no namespace, as those of the front door do.
    pub(crate) fn of_route_owner(self, owner: &Owner) -> FairnessKey {
        match owner {
            Owner::Object { object, .. } if self.namespace == 0 => {
                FairnessKey { namespace: hash_of(&object.namespace), load_balancer: hash_of(owner) }
            }
            _ => self,
        }
    }
}

fn hash_of(it: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    it.hash(&mut hasher);
    hasher.finish()
}

/// The work that waits.
pub(crate) struct FairQueue<T>(TimeWeightedQueues<TimeWeightedQueues<RoundRobinQueue<T>>>);

impl<T> Default for FairQueue<T> {
    fn default() -> FairQueue<T> {
        FairQueue(TimeWeightedQueues::default())
    }
}

impl<T> FairQueue<T> {
    pub(crate) fn push(&mut self, key: FairnessKey, client: usize, work: T) {
        self.0.entry(key.namespace, |it| it.entry(key.load_balancer, |it| it.push(client, work)));
    }

    /// The next, and whose it is: who takes it charges them.
    pub(crate) fn pop(&mut self) -> Option<(FairnessKey, T)> {
        let (namespace, inner) = self.0.pop(|it| it.pop(RoundRobinQueue::pop))?;
        let (load_balancer, work) = inner;
        Some((FairnessKey { namespace, load_balancer }, work))
    }

    /// They used so much time.
    pub(crate) fn charge(&mut self, key: FairnessKey, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.0.charge(key.namespace, nanos, |it| it.charge(key.load_balancer, nanos, |_| {}));
    }

    /// Whose the next is.
    pub(crate) fn first(&self) -> Option<FairnessKey> {
        let (_, namespace) = *self.0.order.first()?;
        let (_, load_balancer) = *self.0.queues.get(&namespace)?.queue.order.first()?;
        Some(FairnessKey { namespace, load_balancer })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Somebody else than these waits.
    pub(crate) fn has_others_than(&self, key: FairnessKey) -> bool {
        let inner =
            |of: &u64| self.0.queues.get(of).is_some_and(|it| it.queue.has_others_than(key.load_balancer));
        self.0.has_others_than(key.namespace) || self.0.order.first().is_some_and(|(_, of)| inner(of))
    }
}

/// Anything that may have something waiting in it.
trait MaybeEmpty: Default {
    fn is_empty(&self) -> bool;
}

/// Keys are hashes already.
#[derive(Default)]
struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

/// By the time that each has used.
struct TimeWeightedQueues<Q> {
    queues: HashMap<u64, MeteredQueue<Q>, BuildHasherDefault<IdentityHasher>>,
    /// Those that are not empty.
    order: BTreeSet<(u64, u64)>,
    /// What whoever was idle begins at.
    now: u64,
}

#[derive(Default)]
struct MeteredQueue<Q> {
    nanos: u64,
    queue: Q,
}

impl<Q> Default for TimeWeightedQueues<Q> {
    fn default() -> TimeWeightedQueues<Q> {
        TimeWeightedQueues { queues: HashMap::default(), order: BTreeSet::new(), now: 0 }
    }
}

/// Idle ones that are remembered beside those that have work.
const REMEMBERED: usize = 64;
/// Nanoseconds that make no difference.
const SLIGHT: u64 = 1_000;

impl<Q: MaybeEmpty> TimeWeightedQueues<Q> {
    fn entry(&mut self, of: u64, put: impl FnOnce(&mut Q)) {
        let used = self.queues.entry(of).or_default();
        if used.queue.is_empty() {
            used.nanos = used.nanos.max(self.now);
            self.order.insert((used.nanos, of));
        }
        put(&mut used.queue);
    }

    fn pop<T>(&mut self, take: impl FnOnce(&mut Q) -> Option<T>) -> Option<(u64, T)> {
        let (nanos, of) = self.order.pop_first()?;
        self.now = nanos;
        let used = self.queues.get_mut(&of)?;
        let work = take(&mut used.queue);
        // Who takes it may be unable to tell how long it took.
        used.nanos = nanos.saturating_add(1);
        if !used.queue.is_empty() {
            self.order.insert((used.nanos, of));
        } else if self.queues.len() > self.order.len().saturating_add(REMEMBERED) {
            let now = self.now;
            self.queues.retain(|_, it| !it.queue.is_empty() || it.nanos > now.saturating_add(SLIGHT));
        }
        work.map(|work| (of, work))
    }

    fn has_others_than(&self, of: u64) -> bool {
        self.order.iter().take(2).any(|(_, it)| *it != of)
    }

    fn charge(&mut self, of: u64, nanos: u64, within: impl FnOnce(&mut Q)) {
        let Some(used) = self.queues.get_mut(&of) else { return };
        let waits = self.order.remove(&(used.nanos, of));
        used.nanos = used.nanos.saturating_add(nanos);
        if waits {
            self.order.insert((used.nanos, of));
        }
        within(&mut used.queue);
    }
}

impl<Q> MaybeEmpty for TimeWeightedQueues<Q> {
    fn is_empty(&self) -> bool {
        self.order.is_empty()
    }
}

/// One of each client at a time.
struct RoundRobinQueue<T> {
    /// Each client that has any, once.
    clients: VecDeque<usize>,
    waiting: HashMap<usize, VecDeque<T>>,
}

impl<T> Default for RoundRobinQueue<T> {
    fn default() -> RoundRobinQueue<T> {
        RoundRobinQueue { clients: VecDeque::new(), waiting: HashMap::new() }
    }
}

impl<T> RoundRobinQueue<T> {
    fn push(&mut self, client: usize, work: T) {
        let waiting = self.waiting.entry(client).or_default();
        if waiting.is_empty() {
            self.clients.push_back(client);
        }
        waiting.push_back(work);
    }

    fn pop(&mut self) -> Option<T> {
        let client = self.clients.pop_front()?;
        let waiting = self.waiting.get_mut(&client)?;
        let work = waiting.pop_front();
        if waiting.is_empty() {
            self.waiting.remove(&client);
        } else {
            self.clients.push_back(client);
        }
        work
    }
}

impl<T> MaybeEmpty for RoundRobinQueue<T> {
    fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use seaway_model::{Kind, ObjectRef};

    use super::*;

    const fn key(namespace: u64, load_balancer: u64) -> FairnessKey {
        FairnessKey { namespace, load_balancer }
    }

    #[test]
    fn services_of_a_namespace_share_its_time_wherever_they_are_served() {
        let owner = |namespace: &str, name: &str| Owner::Object {
            object: ObjectRef::new(Kind::Service, namespace, name),
            uid: "1".into(),
        };
        let of = |namespace: &str, name: &str| FairnessKey::of(&LbKey::Of(owner(namespace, name)));
        let [web, api, other] = [of("shop", "web"), of("shop", "api"), of("evil", "web")];
        assert_eq!(web.namespace, api.namespace);
        assert_ne!(web.load_balancer, api.load_balancer);
        assert_ne!(web.namespace, other.namespace, "of one name, and another's all the same");
        // At the front door a request belongs to the owner of its route, in the same namespace as what that has elsewhere.
        let listening_socket = FairnessKey::of(&LbKey::Whole);
        let [first, second] = [("evil", "web"), ("evil", "api")]
            .map(|(at, name)| listening_socket.of_route_owner(&owner(at, name)));
        assert_eq!((first.namespace, second.namespace), (other.namespace, other.namespace));
        assert_ne!(first.load_balancer, second.load_balancer);
        // At a listener of a load balancer the key stays, and so it does for an owner without a namespace.
        assert_eq!(web.of_route_owner(&owner("evil", "web")), web);
        assert_eq!(listening_socket.of_route_owner(&Owner::Config("mine".into())), listening_socket);
    }

    #[test]
    fn who_has_more_than_can_be_done_delays_whoever_asks_for_little_by_one_piece_each_time() {
        let mut fair = FairQueue::default();
        let (greedy, modest) = (key(1, 1), key(2, 2));
        (0..512).for_each(|client| fair.push(greedy, client, client));
        let (mut spent, mut longest) = (0_u64, 0);
        // One asks for 30 % of the time, 20 µs at once; pieces of the others take 100 µs, and there are always more.
        for asked in 1..=1_000_u64 {
            let due = asked * 20_000 * 10 / 3;
            let mut next = |fair: &mut FairQueue<usize>| {
                let (key, client) = fair.pop().expect("there is always work");
                let took = if key == greedy { 100_000 } else { 20_000 };
                fair.charge(key, Duration::from_nanos(took));
                spent += took;
                if key == greedy {
                    fair.push(greedy, client, client);
                }
                (key, spent)
            };
            while next(&mut fair).1 < due {}
            fair.push(modest, 9_999, 9_999);
            let waited = (1..).find(|_| next(&mut fair).0 == modest).expect("it is answered");
            longest = longest.max(waited);
        }
        assert!(longest <= 2, "its turn came as the {longest}th");
    }

    #[test]
    fn a_client_with_much_work_delays_others_by_one_piece() {
        let mut fair = FairQueue::default();
        (0..1_000).for_each(|number| fair.push(key(1, 1), 1, (1, number)));
        fair.push(key(1, 1), 2, (2, 0));
        fair.push(key(1, 1), 2, (2, 1));
        fair.push(key(1, 1), 3, (3, 0));
        let first: Vec<_> = std::iter::from_fn(|| fair.pop()).map(|it| it.1).take(7).collect();
        assert_eq!(first, [(1, 0), (2, 0), (3, 0), (1, 1), (2, 1), (1, 2), (1, 3)]);
        assert!(!fair.is_empty());
        assert_eq!(std::iter::from_fn(|| fair.pop()).count(), 996);
        assert!(fair.is_empty());
    }

    /// What each got of the time, where a piece of its work takes so long.
    fn shares(pieces: &[(FairnessKey, usize, u64)], total: u64) -> Vec<u64> {
        let mut fair = FairQueue::default();
        let mut got = vec![0; pieces.len()];
        for (index, (key, clients, _)) in pieces.iter().enumerate() {
            (0..*clients).for_each(|client| fair.push(*key, client, (index, client)));
        }
        let mut spent = 0;
        while spent < total {
            let (key, (index, client)) = fair.pop().expect("there is always work");
            let took = pieces[index].2;
            fair.charge(key, Duration::from_nanos(took));
            got[index] += took;
            spent += took;
            fair.push(key, client, (index, client));
        }
        got
    }

    #[test]
    fn each_namespace_has_the_same_time_however_many_clients_it_has_and_whatever_they_ask() {
        // Handshakes beside requests.
        let got = shares(&[(key(1, 1), 4, 20_000), (key(2, 2), 1_000, 1_000_000)], 1_000_000_000);
        assert!(got.iter().all(|it| (480_000_000..=520_000_000).contains(it)), "{got:?}");
        // More load balancers are no more time; those of one namespace share it.
        let pieces: Vec<_> = [(key(1, 1), 4, 20_000)]
            .into_iter()
            .chain((10..14).map(|load_balancer| (key(2, load_balancer), 50, 20_000)))
            .collect();
        let got = shares(&pieces, 1_000_000_000);
        assert!((480_000_000..=520_000_000).contains(&got[0]), "{got:?}");
        assert!(got[1..].iter().all(|it| (120_000_000..=130_000_000).contains(it)), "{got:?}");
    }

    #[test]
    fn one_that_comes_back_at_once_does_not_begin_anew_and_one_that_was_idle_saves_nothing_up() {
        let mut fair = FairQueue::default();
        let (often, seldom) = (key(1, 1), key(2, 2));
        fair.push(seldom, 0, "idle for long");
        assert_eq!(fair.pop().expect("waits").1, "idle for long");
        fair.charge(seldom, Duration::from_nanos(1));
        // One piece at a time, each of them long: whoever has short ones is next until he had as much.
        fair.push(often, 0, "long");
        assert_eq!(fair.pop().expect("waits").1, "long");
        fair.charge(often, Duration::from_millis(1));
        fair.push(often, 0, "long");
        let mut short = 0;
        loop {
            fair.push(seldom, 0, "short");
            let (key, work) = fair.pop().expect("waits");
            if work == "long" {
                break;
            }
            fair.charge(key, Duration::from_micros(20));
            short += 1;
        }
        assert!((49..=51).contains(&short), "{short}");
    }

    #[test]
    fn whether_somebody_else_waits_is_known() {
        let mut fair = FairQueue::default();
        assert!(!fair.has_others_than(key(1, 1)), "nobody waits");
        fair.push(key(1, 1), 0, ());
        assert!(!fair.has_others_than(key(1, 1)));
        assert!(fair.has_others_than(key(1, 2)) && fair.has_others_than(key(2, 1)));
        fair.push(key(1, 2), 0, ());
        assert!(fair.has_others_than(key(1, 1)) && fair.has_others_than(key(1, 2)));
    }

    #[test]
    fn those_that_are_idle_are_forgotten() {
        let mut fair = FairQueue::default();
        for number in 0..10_000 {
            fair.push(key(number, number), 0, ());
            assert!(fair.pop().is_some());
        }
        assert!(fair.0.queues.len() <= REMEMBERED + 1, "{}", fair.0.queues.len());
    }
}
