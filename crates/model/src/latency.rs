//! How long something takes, as a distribution with fixed bounds.

/// Upper bounds of the buckets in microseconds; one more bucket has what took longer.
pub const LATENCY_BOUNDS: [u64; 14] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000,
    10_000_000, 60_000_000,
];

pub const LATENCY_BUCKETS: usize = LATENCY_BOUNDS.len() + 1;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// How many were in each bucket alone; the last has what was beyond all bounds.
    pub buckets: [u64; LATENCY_BUCKETS],
    /// In microseconds.
    pub sum: u64,
}

/// What is measured of one pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latencies {
    /// Until a connection to a member was open.
    pub connect: Histogram,
    /// Until a member answered.
    pub first_byte: Histogram,
    /// Of HTTP: until the whole answer was passed on.
    pub request: Histogram,
}

impl Histogram {
    pub fn bucket_of(micros: u64) -> usize {
        LATENCY_BOUNDS.iter().position(|bound| micros <= *bound).unwrap_or(LATENCY_BOUNDS.len())
    }

    /// One more took so long.
    pub fn note(&mut self, micros: u64) {
        let bucket = self.buckets.get_mut(Histogram::bucket_of(micros));
        bucket.into_iter().for_each(|it| *it = it.saturating_add(1));
        self.sum = self.sum.saturating_add(micros);
    }

    pub fn count(&self) -> u64 {
        self.buckets.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    pub fn add(&mut self, other: &Histogram) {
        self.sum = self.sum.saturating_add(other.sum);
        for (sum, more) in self.buckets.iter_mut().zip(other.buckets) {
            *sum = sum.saturating_add(more);
        }
    }

    /// What was added after `before`; of one that began anew, all of it.
    pub fn since(&self, before: &Histogram) -> Histogram {
        let mut more = *self;
        for (now, before) in more.buckets.iter_mut().zip(before.buckets) {
            match now.checked_sub(before) {
                Some(difference) => *now = difference,
                None => return *self,
            }
        }
        more.sum = self.sum.saturating_sub(before.sum);
        more
    }

    /// That so many percent took no longer than this, in microseconds: the bound of their bucket, or of the one before
    /// it, by how far into the bucket they reach. `None`: nothing was measured.
    pub fn quantile(&self, percent: u64) -> Option<u64> {
        let count = self.count();
        let rank = count.saturating_mul(percent).div_ceil(100).max(1);
        let (mut below, mut lower) = (0_u64, 0_u64);
        let bounds = LATENCY_BOUNDS.into_iter().chain(LATENCY_BOUNDS.last().copied());
        for (held, upper) in self.buckets.into_iter().zip(bounds) {
            if held > 0 && below.saturating_add(held) >= rank {
                let into = rank.saturating_sub(below);
                let wide = upper.saturating_sub(lower);
                return Some(lower.saturating_add(wide.saturating_mul(into).checked_div(held)?));
            }
            (below, lower) = (below.saturating_add(held), upper);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(all: &[u64]) -> Histogram {
        let mut histogram = Histogram::default();
        for micros in all {
            histogram.buckets[Histogram::bucket_of(*micros)] += 1;
            histogram.sum += micros;
        }
        histogram
    }

    #[test]
    fn a_bucket_has_what_is_no_more_than_its_bound() {
        let found = [0, 500, 501, 60_000_000, 60_000_001, u64::MAX].map(Histogram::bucket_of);
        assert_eq!(found, [0, 0, 1, 13, 14, 14]);
    }

    #[test]
    fn quantiles_are_within_the_bucket_that_has_them() {
        assert_eq!(of(&[]).quantile(50), None);
        let one = of(&[700]);
        assert_eq!((one.quantile(50), one.quantile(99)), (Some(1_000), Some(1_000)));
        let mostly_fast = of(&[[300; 98].as_slice(), &[40_000; 2]].concat());
        assert_eq!(mostly_fast.quantile(99), Some(37_500));
        assert!(mostly_fast.quantile(50).is_some_and(|it| (200..=300).contains(&it)));
        // Nobody knows by how much: the last bound is what can be said.
        assert_eq!(of(&[90_000_000]).quantile(50), Some(60_000_000));
    }

    #[test]
    fn a_difference_is_what_was_added_and_one_that_began_anew_is_whole() {
        let (before, now) = (of(&[300, 700]), of(&[300, 700, 700, 9_000]));
        assert_eq!(now.since(&before), of(&[700, 9_000]));
        assert_eq!(before.since(&now), before);
        let mut sum = before;
        sum.add(&now.since(&before));
        assert_eq!(sum, now);
    }
}
