//! What is counted of the API server for metrics: calls by verb and code, and when each kind was heard of last. By kinds and words
//! of our own, never by an object.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use futures::{Stream, StreamExt};
use kube::api::WatchEvent;
use seaway_model::{Kind, Time, latency::Histogram};

/// Calls with one verb that were answered with codes of one class.
#[derive(Clone, Debug, PartialEq)]
pub struct CallCounts {
    pub verb: &'static str,
    /// `2xx`, `429`; `none` without an answer.
    pub code: &'static str,
    /// How long it took until the answer began.
    pub times: Histogram,
}

/// One kind that is watched.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchCounts {
    pub kind: Kind,
    /// Since its last list, event or bookmark.
    pub age: Duration,
    /// How often all of it was listed.
    pub lists: u64,
}

#[derive(Default)]
pub struct ApiServerMetrics {
    calls: Mutex<BTreeMap<(&'static str, &'static str), Histogram>>,
    watches: Mutex<BTreeMap<Kind, WatchState>>,
    /// When the state was saved that is served though the API server does not confirm it; 0: it does.
    snapshot: AtomicU64,
}

struct WatchState {
    /// Nothing while it is not watched: it is not there, or no one names one.
    heard: Option<Instant>,
    lists: u64,
}

/// A call that is under way. One that is given up was not answered.
pub(crate) struct Call {
    counts: Arc<ApiServerMetrics>,
    verb: &'static str,
    begun: Instant,
    code: &'static str,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ApiServerMetrics {
    pub fn calls(&self) -> Vec<CallCounts> {
        let calls = lock(&self.calls);
        calls.iter().map(|((verb, code), times)| CallCounts { verb, code, times: *times }).collect()
    }

    /// Of kinds that are watched now.
    pub fn watches(&self) -> Vec<WatchCounts> {
        let watches = lock(&self.watches);
        let counts = watches.iter().filter_map(|(kind, it)| {
            Some(WatchCounts { kind: *kind, age: it.heard?.elapsed(), lists: it.lists })
        });
        counts.collect()
    }

    /// When the state was saved that is served instead of that of the API server.
    pub fn snapshot(&self) -> Option<Time> {
        Some(self.snapshot.load(Relaxed)).filter(|it| *it > 0).map(Time)
    }

    pub fn set_snapshot(&self, written: Option<Time>) {
        self.snapshot.store(written.map_or(0, |it| it.0), Relaxed);
    }

    pub(crate) fn begin_call(self: &Arc<ApiServerMetrics>, verb: &'static str) -> Call {
        Call { counts: self.clone(), verb, begun: Instant::now(), code: "none" }
    }

    /// All of that kind was listed.
    pub(crate) fn record_list(&self, kind: Kind) {
        let mut watches = lock(&self.watches);
        let watched = watches.entry(kind).or_insert(WatchState { heard: None, lists: 0 });
        watched.heard = Some(Instant::now());
        watched.lists = watched.lists.saturating_add(1);
    }

    /// That kind is not watched any more.
    pub(crate) fn forget(&self, kind: Kind) {
        lock(&self.watches).get_mut(&kind).into_iter().for_each(|it| it.heard = None);
    }

    /// Each event of that watch is a sign of life, and each bookmark.
    pub(crate) fn count_events<T, E, S: Stream<Item = Result<WatchEvent<T>, E>>>(
        self: &Arc<ApiServerMetrics>,
        kind: Kind,
        events: S,
    ) -> impl Stream<Item = Result<WatchEvent<T>, E>> + use<T, E, S> {
        let counts = self.clone();
        events.inspect(move |event| {
            if event.as_ref().is_ok_and(|it| !matches!(it, WatchEvent::Error(_))) {
                let mut watches = lock(&counts.watches);
                watches.get_mut(&kind).into_iter().for_each(|it| it.heard = Some(Instant::now()));
            }
        })
    }
}

impl Call {
    pub(crate) fn record_response(&mut self, status: http::StatusCode) {
        self.code = match status.as_u16() {
            429 => "429",
            100..200 => "1xx",
            200..300 => "2xx",
            300..400 => "3xx",
            400..500 => "4xx",
            _ => "5xx",
        };
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let micros = u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX);
        let mut calls = lock(&self.counts.calls);
        let times = calls.entry((self.verb, self.code)).or_default();
        times.note(micros);
    }
}

#[cfg(test)]
mod tests {
    use futures::stream;
    use kube::core::{Status, WatchEvent::*};

    use super::*;

    #[test]
    fn calls_are_counted_by_verb_and_class_and_one_that_is_given_up_has_none() {
        let counts = Arc::<ApiServerMetrics>::default();
        for status in [200, 201, 404, 429, 503] {
            counts.begin_call("get").record_response(http::StatusCode::from_u16(status).expect("a status"));
        }
        drop(counts.begin_call("patch"));
        let all = counts.calls().into_iter().map(|it| (it.verb, it.code, it.times.count()));
        let expected = [
            ("get", "2xx", 2),
            ("get", "429", 1),
            ("get", "4xx", 1),
            ("get", "5xx", 1),
            ("patch", "none", 1),
        ];
        assert_eq!(all.collect::<Vec<_>>(), expected);
    }

    #[tokio::test]
    async fn an_event_is_a_sign_of_life_an_error_is_none_and_a_kind_that_is_not_there_has_no_age() {
        let counts = Arc::<ApiServerMetrics>::default();
        assert!(counts.watches().is_empty());
        counts.record_list(Kind::Service);
        counts.record_list(Kind::Node);
        counts.forget(Kind::Node);
        let kinds: Vec<_> = counts.watches().into_iter().map(|it| (it.kind, it.lists)).collect();
        assert_eq!(kinds, [(Kind::Service, 1)]);
        let back = || {
            let long_ago = Instant::now().checked_sub(Duration::from_secs(60));
            lock(&counts.watches).get_mut(&Kind::Service).expect("it is listed").heard = long_ago;
        };
        let age = || counts.watches()[0].age;
        let error = Status::failure("too old", "Expired").with_code(410);
        for (event, is_sign) in [(Added(()), true), (Error(error.boxed()), false)] {
            back();
            let events = stream::iter([Ok::<_, ()>(event)]);
            counts.count_events(Kind::Service, events).collect::<Vec<_>>().await;
            assert_eq!(age() < Duration::from_secs(30), is_sign);
        }
    }
}
