//! How often each client has asked of late: token buckets in one table for all workers, of a size that never changes.
//!
//! A bucket is one moment, `full_at`, at which it would be full again (the generic cell rate algorithm). So in any window of
//! `t` seconds no more than `rate × t + burst` requests of one client are admitted by the whole process, and a bucket whose
//! moment has passed says the same as none: its place is free. A request holds a place for as long as the rate needs to make
//! up for it, at 10 a second for a tenth of a second: all 262,144 places are taken only while 2.6 million requests a second
//! are admitted.
//!
//! * Places are found by a hash with a key of this process, so that clients cannot choose whom they meet. Two clients share
//!   a bucket if 63 bits of their hashes are equal, which is not to be expected.
//! * A newcomer is never refused for what others did. If all places of its set are taken, it gets that of another: of the
//!   namespace that has most of them, the bucket that is nearest to full. Whose place is lost begins with a full bucket, so
//!   only this can have more admitted than its limit allows. While a quarter of all places is taken, that meets about one
//!   newcomer of 4,000; while half are, one of 70.
//! * Who has used its bucket up loses its place last. To have it emptied, a client needs eight others in the same set that
//!   have asked for more; it does not know which those are, so it needs some 200,000 addresses that are over their limits.
//! * A successor process begins with full buckets.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

use std::{
    hash::{BuildHasher, Hash, RandomState},
    net::IpAddr,
    sync::{Mutex, OnceLock, PoisonError},
};

use seaway_model::load_balancer::{ClientKey, RateLimit};

const SETS: usize = 1 << 15;
const WAYS: usize = 8;
/// 4.25 MiB of them, from the first request on that has a limit.
#[cfg(test)]
const PLACES: usize = SETS * WAYS;
const SECOND: u64 = 1_000_000_000;
const CLOCKS_DIFFER: u64 = 2 * SECOND;

/// Of the whole process.
pub(crate) struct ClientRates {
    /// The standard library asks the kernel for the keys of its hash tables.
    keys: RandomState,
    sets: OnceLock<Box<[Mutex<BucketSet>]>>,
}

/// By what a limit tells clients apart.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) enum RateLimitKey<'a> {
    Address(IpAddr),
    /// The value of the header or cookie by which the limit tells clients apart.
    Value(&'a [u8]),
}

#[derive(Default)]
struct BucketSet([Bucket; WAYS]);

#[derive(Clone, Copy, Default)]
struct Bucket {
    /// 48 bits of the hash of limit and client, and 16 of that of their namespace.
    tag: u64,
    /// In nanoseconds of the clock that the caller reads.
    full_at: u64,
}

const NAMESPACE: u64 = 0xffff;

impl ClientRates {
    pub(crate) fn new() -> ClientRates {
        ClientRates { keys: RandomState::new(), sets: OnceLock::new() }
    }

    /// One more request, at this time in milliseconds. If it is beyond the limit: the seconds after which one would not be.
    pub(crate) fn admit(&self, limit: &RateLimit, client: RateLimitKey<'_>, now: u64) -> Result<(), u64> {
        let now = now.saturating_mul(SECOND / 1_000);
        // Rounded up: rather a little less than the rate than more.
        let interval = SECOND.div_ceil(u64::from(limit.rate.per_second.max(1)));
        let spare = interval.saturating_mul(u64::from(limit.rate.burst.saturating_sub(1)));
        let hash = self.keys.hash_one((&limit.of, by(limit, client), network(client)));
        let namespace = self.keys.hash_one(&limit.of.namespace) & NAMESPACE;
        let sets = self.sets.get_or_init(|| (0..SETS).map(|_| Mutex::default()).collect());
        let Some(set) = sets.get((hash & NAMESPACE) as usize % SETS) else { return Ok(()) };
        // Held for some nanoseconds, by a thread that waits for nothing meanwhile.
        let mut set = set.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(bucket) = set.bucket((hash & !NAMESPACE) | namespace, now) else { return Ok(()) };
        // The limit was another one before: no more is made up for than this one allows. (Clocks of workers differ by less.)
        let most = now.saturating_add(spare).saturating_add(interval);
        if bucket.full_at > most.saturating_add(CLOCKS_DIFFER) {
            bucket.full_at = most;
        }
        let full_at = bucket.full_at.max(now);
        match full_at.saturating_sub(now).saturating_sub(spare) {
            0 => {
                bucket.full_at = full_at.saturating_add(interval);
                Ok(())
            }
            early => Err(early.div_ceil(SECOND)),
        }
    }
}

impl BucketSet {
    /// The bucket of this client; a full one, if it has none.
    fn bucket(&mut self, tag: u64, now: u64) -> Option<&mut Bucket> {
        let known = self.0.iter().position(|it| it.tag == tag);
        let place = known.or_else(|| self.place_for(tag, now))?;
        let bucket = self.0.get_mut(place)?;
        if bucket.tag != tag {
            *bucket = Bucket { tag, full_at: now };
        }
        Some(bucket)
    }

    /// One that is full, or else the fullest of the namespace that has most of them. Newcomers count for their own.
    fn place_for(&self, tag: u64, now: u64) -> Option<usize> {
        let full = self.0.iter().position(|it| it.full_at <= now);
        full.or_else(|| {
            let of = |tag: u64| self.0.iter().filter(|it| (it.tag ^ tag) & NAMESPACE == 0).count();
            let more = |it: &Bucket| of(it.tag).saturating_add(usize::from((it.tag ^ tag) & NAMESPACE == 0));
            let places = self.0.iter().enumerate();
            let least = places.max_by_key(|(_, it)| (more(it), u64::MAX.saturating_sub(it.full_at)));
            least.map(|(place, _)| place)
        })
    }
}

/// Only what this limit tells clients apart by is compared.
fn by<'l>(limit: &'l RateLimit, client: RateLimitKey<'_>) -> Option<&'l ClientKey> {
    matches!(client, RateLimitKey::Value(_)).then_some(&limit.rate.key)
}

/// One client of IPv6 has a /64 at least.
fn network(client: RateLimitKey<'_>) -> RateLimitKey<'_> {
    match client {
        RateLimitKey::Address(IpAddr::V6(ip)) => {
            RateLimitKey::Address(IpAddr::V6((u128::from(ip) >> 64 << 64).into()))
        }
        other => other,
    }
}

#[cfg(test)]
mod tests;
