//! How far pending load balancers are: one list for all of them, whoever asks. One that is slow keeps who asked for it
//! waiting, and nobody else for long.

use std::{
    collections::HashMap,
    sync::{MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use seaway_openstack::{
    Cloud, Error,
    octavia::{BalancerStatus, LoadBalancer},
    resource::{Id, Query},
};
use tokio::{sync::Mutex, time::timeout};

use super::{
    list_request_lock::PATIENCE,
    moment::{half, later},
};

/// The longest time from one list to the next.
pub(super) const APART: Duration = Duration::from_secs(2);
/// The shortest: most writes are done in less than a second, and a deletion of OVN in little more.
pub(super) const SOON: Duration = Duration::from_millis(150);
/// So long lists stay as close as that, after the last that was written or moved.
const BRISK: Duration = Duration::from_secs(1);
/// What each load balancer adds to the shortest time: a list of a hundred is asked for every two seconds.
const EACH: Duration = Duration::from_millis(20);

pub(super) struct Poll {
    cloud: Cloud,
    tag: String,
    last: Mutex<Option<List>>,
    pace: std::sync::Mutex<Pace>,
}

/// When the next list may be asked for. Soon after a write and after progress; later and later while nothing moves.
struct Pace {
    next: Option<Instant>,
    /// When something was written, or moved.
    last: Option<Instant>,
    gap: Duration,
    shortest: Duration,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { next: None, last: None, gap: SOON, shortest: SOON }
    }
}

impl Pace {
    fn wrote(&mut self, now: Instant) {
        (self.gap, self.last) = (self.shortest, Some(now));
        let at = later(now, self.gap);
        self.next = Some(self.next.filter(|it| *it > now).map_or(at, |it| it.min(at)));
    }

    fn listed(&mut self, now: Instant, balancers: usize, moved: bool) {
        let all = u32::try_from(balancers).map_or(APART, |it| EACH.saturating_mul(it));
        self.shortest = all.clamp(SOON, APART);
        if moved {
            self.last = Some(now);
        }
        self.saw(now);
    }

    fn saw(&mut self, now: Instant) {
        let is_brisk = self.last.is_some_and(|it| now.saturating_duration_since(it) < BRISK);
        let next = if is_brisk { self.shortest } else { self.gap.saturating_add(half(self.gap)) };
        self.gap = next.clamp(self.shortest, APART);
        self.next = Some(later(now, self.gap));
    }

    fn is_due(&self, now: Instant) -> bool {
        self.next.is_none_or(|it| it <= now)
    }
}

struct List {
    /// When it was asked for: it knows nothing of what came later.
    at: Instant,
    all: HashMap<Id<LoadBalancer>, BalancerStatus>,
}

impl List {
    /// Whether one was made, is gone, or is in another state.
    fn differs(&self, now: &HashMap<Id<LoadBalancer>, BalancerStatus>) -> bool {
        let same = |id, it: &BalancerStatus| {
            self.all.get(id).is_some_and(|then| then.provisioning_status == it.provisioning_status)
        };
        self.all.len() != now.len() || !now.iter().all(|(id, it)| same(id, it))
    }
}

pub(super) enum PolledStatus {
    There(BalancerStatus),
    Gone,
    /// There is no list yet that is young enough.
    Unknown,
}

impl Poll {
    pub(super) fn new(cloud: Cloud, tag: String) -> Poll {
        Poll { cloud, tag, last: Mutex::default(), pace: std::sync::Mutex::default() }
    }

    /// When to look again: all look at the same list, and none of them at one that is old by then. Who looks at something
    /// pending asks for the list if that is due: after a floating IP was made, it has been for a while.
    pub(super) fn after(&self, is_pending: bool) -> Duration {
        let now = self.cloud.clock().now();
        let next = self.pace().next.map(|it| it.saturating_duration_since(now));
        next.filter(|it| is_pending || !it.is_zero()).unwrap_or(APART)
    }

    /// Something that makes a load balancer pending was written.
    pub(super) fn wrote(&self) {
        self.pace().wrote(self.cloud.clock().now());
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of a load balancer that was changed at `since`.
    pub(super) async fn of(&self, it: &LoadBalancer, since: Instant) -> Result<PolledStatus, Error> {
        if !it.tags.contains(&self.tag) {
            // Another made it, and it is not in our list yet.
            let found = self.cloud.all::<LoadBalancer>().find::<BalancerStatus>(&it.id).await?;
            let now = self.cloud.clock().now();
            let mut pace = self.pace();
            if pace.is_due(now) {
                pace.saw(now);
            }
            return Ok(found.map_or(PolledStatus::Gone, PolledStatus::There));
        }
        let Ok(mut last) = timeout(PATIENCE, self.last.lock()).await else {
            return Ok(PolledStatus::Unknown);
        };
        let now = self.cloud.clock().now();
        let is_due = self.pace().is_due(now);
        let list = match &mut *last {
            Some(list) if !is_due => list,
            last => {
                let query = Query::all().tagged([self.tag.as_str()]);
                let list = self.cloud.all::<LoadBalancer>().list::<BalancerStatus>(query).await?;
                let all: HashMap<_, _> = list.into_iter().map(|it| (it.id.clone(), it)).collect();
                let moved = last.as_ref().is_some_and(|it| it.differs(&all));
                self.pace().listed(now, all.len(), moved);
                last.insert(List { at: now, all })
            }
        };
        Ok(match list.all.get(&it.id) {
            _ if list.at <= since => PolledStatus::Unknown,
            Some(status) => PolledStatus::There(status.clone()),
            None => PolledStatus::Gone,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gap(pace: &Pace, now: Instant) -> u128 {
        pace.next.expect("a list is due").duration_since(now).as_millis()
    }

    #[test]
    fn lists_come_soon_after_a_write_and_later_while_nothing_moves() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        pace.wrote(now);
        let mut gaps = vec![gap(&pace, now)];
        for _ in 0..15 {
            now = pace.next.unwrap();
            pace.listed(now, 3, false);
            gaps.push(gap(&pace, now));
        }
        assert_eq!(gaps[..7], [150; 7]);
        assert_eq!(gaps[7..], [225, 337, 506, 759, 1139, 1708, 2000, 2000, 2000]);
        pace.wrote(now);
        assert_eq!(gap(&pace, now), 150, "sooner than the list that was due");
        now = pace.next.unwrap() + BRISK;
        pace.listed(now, 3, true);
        assert_eq!(gap(&pace, now), 150, "one moved, others may follow");
        pace.listed(now, 3, false);
        let due = pace.next;
        pace.wrote(now + Duration::from_millis(100));
        assert_eq!(pace.next, due, "a list that is due already is not put off by a write");
    }

    #[test]
    fn a_list_of_many_is_asked_for_seldom() {
        let (mut pace, now) = (Pace::default(), Instant::now());
        for (balancers, shortest) in [(0, 150), (10, 200), (40, 800), (100, 2_000), (usize::MAX, 2_000)] {
            pace.listed(now, balancers, true);
            assert_eq!(gap(&pace, now), shortest, "{balancers}");
        }
    }
}
