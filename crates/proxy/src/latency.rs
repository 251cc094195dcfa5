//! How long it takes until members are reached and answer: histograms with fixed bounds.
//!
//! Each worker has counters of its own, which it alone writes: no locks, no shared cache lines. They are made when a
//! pool is first measured, and never again; while nothing is measured, no clock is read.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

use std::sync::{
    OnceLock,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use seaway_model::latency::{Histogram, LATENCY_BUCKETS, Latencies as Histograms};

use crate::sys;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LatencyKind {
    /// Until a connection to a member is open, TLS and a PROXY header included.
    Connect,
    /// From the end of a request's head until the final head of the answer; of TCP from the client's connection until
    /// the first byte of the member.
    FirstByte,
    /// Of HTTP: until the whole answer was passed on.
    Request,
}

/// When something began that is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stopwatch(u64);

impl Stopwatch {
    /// Nothing is measured.
    pub(crate) const NEVER: Stopwatch = Stopwatch(0);

    pub(crate) fn now() -> Stopwatch {
        Stopwatch(sys::micros())
    }

    /// In microseconds, if it is measured.
    pub(crate) fn took(self) -> Option<u64> {
        (self != Stopwatch::NEVER).then(|| sys::micros().saturating_sub(self.0))
    }
}

/// Of one pool.
#[derive(Default)]
pub(crate) struct Latencies {
    by_worker: OnceLock<Box<[WorkerHistograms]>>,
}

/// Two workers never write to one cache line.
#[derive(Default)]
#[repr(align(64))]
struct WorkerHistograms([AtomicHistogram; 3]);

#[derive(Default)]
struct AtomicHistogram {
    buckets: [AtomicU64; LATENCY_BUCKETS],
    sum: AtomicU64,
}

/// The calling worker, of so many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerNumber {
    pub(crate) index: usize,
    pub(crate) of: usize,
}

impl Latencies {
    pub(crate) fn add(&self, worker: WorkerNumber, span: LatencyKind, micros: u64) {
        let all =
            self.by_worker.get_or_init(|| (0..worker.of).map(|_| WorkerHistograms::default()).collect());
        let Some(cells) = all.get(worker.index).and_then(|it| it.0.get(span as usize)) else { return };
        let bucket = cells.buckets.get(Histogram::bucket_of(micros));
        for (cell, more) in bucket.into_iter().map(|it| (it, 1)).chain([(&cells.sum, micros)]) {
            // This worker is the only one that writes here: nothing has to be locked.
            cell.store(cell.load(Relaxed).wrapping_add(more), Relaxed);
        }
    }

    /// `None`: nothing was measured yet.
    pub(crate) fn histograms(&self) -> Option<Histograms> {
        let all = self.by_worker.get()?;
        let of = |span: LatencyKind| {
            let mut sum = Histogram::default();
            for cells in all.iter().filter_map(|it| it.0.get(span as usize)) {
                sum.sum = sum.sum.wrapping_add(cells.sum.load(Relaxed));
                for (bucket, cell) in sum.buckets.iter_mut().zip(&cells.buckets) {
                    *bucket = bucket.wrapping_add(cell.load(Relaxed));
                }
            }
            sum
        };
        Some(Histograms {
            connect: of(LatencyKind::Connect),
            first_byte: of(LatencyKind::FirstByte),
            request: of(LatencyKind::Request),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_several_workers_measured_is_told_as_one_by_upper_bounds() {
        let latencies = Latencies::default();
        assert_eq!(latencies.histograms(), None);
        for (index, span, micros) in [
            (0, LatencyKind::Connect, 0),
            (1, LatencyKind::Connect, 500),
            (1, LatencyKind::Connect, 501),
            (0, LatencyKind::Request, 60_000_001),
            // Of a worker that cannot be: it counts nowhere.
            (2, LatencyKind::Request, 1),
        ] {
            latencies.add(WorkerNumber { index, of: 2 }, span, micros);
        }
        let told = latencies.histograms().expect("it was measured");
        assert_eq!((told.connect.buckets[..3].to_vec(), told.connect.sum), (vec![2, 1, 0], 1_001));
        assert_eq!(told.first_byte, Histogram::default());
        assert_eq!((told.request.buckets[LATENCY_BUCKETS - 1], told.request.sum), (1, 60_000_001));
    }

    #[test]
    fn nothing_is_measured_that_did_not_begin() {
        assert_eq!(Stopwatch::NEVER.took(), None);
        assert!(Stopwatch::now().took().is_some());
    }
}
