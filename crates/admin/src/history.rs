//! The last hour, minute by minute: what each Service was asked for, and what of it failed. Filled by one look a minute,
//! and kept in memory alone.

use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasher, RandomState},
    time::{Duration, Instant},
};

use crate::view::{HistoryView, ServiceView, View};

pub(crate) const MINUTE: Duration = Duration::from_secs(60);
const MINUTES: usize = 60;
/// Of more Services than these nothing is kept.
const MOST: usize = 500;

#[derive(Default)]
pub(crate) struct History {
    /// By a hash of the owner.
    services: HashMap<u64, Ring>,
    all: Ring,
    hasher: RandomState,
    turned: Option<Instant>,
}

#[derive(Default)]
struct Ring {
    /// Those that are over, the oldest first.
    minutes: VecDeque<Counts>,
    /// What had been counted when the last of them was over.
    base: Counts,
}

#[derive(Clone, Copy, Default)]
struct Counts {
    requests: u64,
    errors: u64,
}

impl History {
    /// A minute is over.
    pub(crate) fn end_minute(&mut self, view: &View, now: Instant) {
        let passed = self.turned.map_or(MINUTE, |before| now.saturating_duration_since(before));
        self.turned = Some(now);
        // A machine that slept, or was too busy to look, has no bars for that time.
        let minutes = passed.as_secs().saturating_add(30).checked_div(MINUTE.as_secs());
        let missed = minutes.unwrap_or_default().saturating_sub(1);
        let missed = usize::try_from(missed).unwrap_or(MINUTES).min(MINUTES);
        let mut before = std::mem::take(&mut self.services);
        for service in &view.services {
            let key = self.hasher.hash_one(&service.owner);
            let known = before.remove(&key);
            if self.services.len() >= MOST {
                continue;
            }
            let mut ring = known.unwrap_or_default();
            ring.turn(Counts::of(service), missed);
            self.services.insert(key, ring);
        }
        self.all.turn(Counts::of_all(view), missed);
    }

    /// Fills in what is known, with the minute that is not over as the last.
    pub(crate) fn fill(&self, view: &mut View) {
        view.history = self.all.view(Counts::of_all(view));
        for (shown, service) in view.services.iter_mut().enumerate() {
            let ring = self.services.get(&self.hasher.hash_one(&service.owner));
            service.history = match ring {
                Some(ring) => ring.view(Counts::of(service)),
                // It came after the last minute was over.
                None if self.services.len() < MOST && shown < MOST => {
                    Ring::default().view(Counts::of(service))
                }
                None => None,
            };
        }
    }
}

impl Ring {
    fn turn(&mut self, now: Counts, missed: usize) {
        self.minutes.extend((0..missed).map(|_| Counts::default()));
        self.minutes.push_back(now.since(self.base));
        self.base = now;
        while self.minutes.len() >= MINUTES {
            self.minutes.pop_front();
        }
    }

    /// `None`: nothing happened in that hour.
    fn view(&self, now: Counts) -> Option<HistoryView> {
        let known = self.minutes.iter().copied().chain([now.since(self.base)]);
        let missing = MINUTES.saturating_sub(self.minutes.len().saturating_add(1));
        let all: Vec<Counts> = std::iter::repeat_n(Counts::default(), missing).chain(known).collect();
        all.iter().any(|it| it.requests > 0 || it.errors > 0).then(|| HistoryView {
            requests: all.iter().map(|it| it.requests).collect(),
            errors: all.iter().map(|it| it.errors).collect(),
        })
    }
}

impl Counts {
    /// Requests of HTTP, and connections of what is not. Of HTTP, what failed is what was answered by 5xx; else clients
    /// that were not led on, and failures of members.
    fn of(service: &ServiceView) -> Counts {
        let mut counts = Counts::default();
        for listener in &service.listeners {
            let (requests, errors) = match &listener.http {
                Some(http) => (http.requests, http.answers.failed),
                None => (listener.sessions.total, listener.errors),
            };
            counts.add(Counts { requests, errors });
        }
        let members = service.pools.iter().flat_map(|pool| &pool.members).filter(|it| it.http.is_none());
        for member in members {
            let errors = member.connect_errors.saturating_add(member.resets);
            counts.add(Counts { requests: 0, errors });
        }
        counts
    }

    fn of_all(view: &View) -> Counts {
        let mut counts = Counts::default();
        view.services.iter().for_each(|it| counts.add(Counts::of(it)));
        counts
    }

    fn add(&mut self, more: Counts) {
        self.requests = self.requests.saturating_add(more.requests);
        self.errors = self.errors.saturating_add(more.errors);
    }

    /// A listener or a member that is gone takes its counts with it: nothing then, rather than something wrong.
    fn since(self, before: Counts) -> Counts {
        Counts {
            requests: self.requests.saturating_sub(before.requests),
            errors: self.errors.saturating_sub(before.errors),
        }
    }
}

#[cfg(test)]
mod tests {
    use seaway_model::L4;

    use super::*;
    use crate::view::{ByteCounts, HttpCounts, ListenerView, RejectedCounts, ResponsesByClass, Sessions};

    fn view(services: &[(&str, u64, u64)]) -> View {
        let services = services.iter().map(|(name, requests, failed)| ServiceView {
            owner: (*name).to_owned(),
            listeners: vec![ListenerView {
                address: [192, 0, 2, 1].into(),
                port: 80,
                protocol: L4::Tcp,
                name: String::new(),
                serving: true,
                sessions: Sessions::default(),
                bytes: ByteCounts::default(),
                refused: RejectedCounts::default(),
                errors: 0,
                http: Some(HttpCounts {
                    requests: *requests,
                    answers: ResponsesByClass { failed: *failed, ..ResponsesByClass::default() },
                }),
                rate: None,
            }],
            ..ServiceView::default()
        });
        View { services: services.collect(), ..View::default() }
    }

    /// The last requests and errors of the first Service.
    fn last(history: &History, mut now: View, count: usize) -> (Vec<u64>, Vec<u64>) {
        history.fill(&mut now);
        let told = now.services[0].history.clone().expect("something happened");
        assert_eq!((told.requests.len(), told.errors.len()), (MINUTES, MINUTES));
        (told.requests[MINUTES - count..].to_vec(), told.errors[MINUTES - count..].to_vec())
    }

    #[test]
    fn each_minute_has_what_was_counted_in_it_and_the_last_is_the_present() {
        let (mut history, start) = (History::default(), Instant::now());
        history.end_minute(&view(&[("a", 10, 1)]), start);
        history.end_minute(&view(&[("a", 30, 1)]), start + MINUTE);
        assert_eq!(last(&history, view(&[("a", 35, 3)]), 4), (vec![0, 10, 20, 5], vec![0, 1, 0, 2]));
        // Two minutes passed unseen; then it counts anew.
        history.end_minute(&view(&[("a", 40, 3)]), start + 4 * MINUTE);
        assert_eq!(last(&history, view(&[("a", 7, 0)]), 4), (vec![0, 0, 10, 0], vec![0, 0, 2, 0]));
    }

    #[test]
    fn an_hour_and_so_many_services_are_kept_and_what_is_gone_is_forgotten() {
        let (mut history, start) = (History::default(), Instant::now());
        for minute in 0..200_u32 {
            history.end_minute(&view(&[("a", u64::from(minute), 0)]), start + minute * MINUTE);
        }
        assert_eq!(history.services.values().map(|it| it.minutes.len()).max(), Some(MINUTES - 1));
        let names: Vec<String> = (0..2 * MOST).map(|it| it.to_string()).collect();
        let many: Vec<_> = names.iter().map(|it| (it.as_str(), 1, 0)).collect();
        history.end_minute(&view(&many), start + 200 * MINUTE);
        assert_eq!(history.services.len(), MOST);
        let mut now = view(&many);
        history.fill(&mut now);
        assert_eq!(now.services.iter().filter(|it| it.history.is_some()).count(), MOST);
        history.end_minute(&view(&[]), start + 201 * MINUTE);
        assert!(history.services.is_empty());
    }
}
