//! What the API server said of tokens, for a while, and how much it may be asked. Time is passed in.

use std::{
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    net::{IpAddr, Ipv6Addr},
    time::{Duration, Instant},
};

use sha2::{Digest as _, Sha256};

use super::ReviewOutcome;

/// So long it is believed that somebody may, …
const ALLOWED: Duration = Duration::from_secs(60);
/// … and that somebody may not.
const REFUSED: Duration = Duration::from_secs(10);
/// Whose token was good is asked for again whatever strangers do. Tokens of pods are others after an hour.
const GOOD: Duration = Duration::from_secs(3_600);
/// Tokens that are remembered, and of these, those that were good.
const KEPT: usize = 256;

/// Questions for tokens that were not good before: so many at once, and so many a second.
const FROM_ALL: (u32, u32) = (20, 10);
/// Of those, from one source.
const FROM_EACH: (u32, u32) = (5, 1);
/// Sources share these; which, nobody can tell beforehand.
const SOURCES: usize = 256;

/// Tokens themselves are not kept.
pub(super) type Digest = [u8; 32];

pub(super) fn digest(token: &str) -> Digest {
    Sha256::digest(token.as_bytes()).into()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CacheLookup {
    Known(ReviewOutcome),
    Review(TokenHistory),
    Refuse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenHistory {
    /// The token was allowed within the hour.
    RecentlyAllowed,
    Unknown,
}

pub(super) struct Cache {
    known: HashMap<Digest, CachedReview>,
    all: TokenBucket,
    sources: Vec<TokenBucket>,
    hasher: RandomState,
}

struct CachedReview {
    review: ReviewOutcome,
    until: Instant,
    good_until: Option<Instant>,
}

/// Full at first; nothing, before anybody took of it.
#[derive(Clone, Copy, Default)]
struct TokenBucket(Option<(f64, Instant)>);

impl Default for Cache {
    fn default() -> Cache {
        Cache {
            known: HashMap::new(),
            all: TokenBucket::default(),
            sources: vec![TokenBucket::default(); SOURCES],
            hasher: RandomState::new(),
        }
    }
}

impl Cache {
    pub(super) fn look_up(&mut self, token: &Digest, from: IpAddr, now: Instant) -> CacheLookup {
        if let Some(known) = self.known.get(token) {
            if now < known.until {
                return CacheLookup::Known(known.review);
            }
            if known.good_until.is_some_and(|it| now < it) {
                return CacheLookup::Review(TokenHistory::RecentlyAllowed);
            }
        }
        let count = self.sources.len().max(1) as u64;
        let at = self.hasher.hash_one(network(from)).checked_rem(count).unwrap_or_default();
        let at = usize::try_from(at).unwrap_or_default();
        let source = self.sources.get_mut(at);
        // Who has taken all of his own takes nothing of what is for all.
        let may = source.is_some_and(|it| it.take(FROM_EACH, now)) && self.all.take(FROM_ALL, now);
        if may { CacheLookup::Review(TokenHistory::Unknown) } else { CacheLookup::Refuse }
    }

    pub(super) fn record(&mut self, token: Digest, review: ReviewOutcome, now: Instant) {
        let (lasts, good) = match review {
            ReviewOutcome::Allowed => (ALLOWED, now.checked_add(GOOD)),
            ReviewOutcome::Unauthenticated | ReviewOutcome::Denied => (REFUSED, None),
            ReviewOutcome::Busy | ReviewOutcome::Unanswered => return,
        };
        if self.known.len() >= KEPT && !self.known.contains_key(&token) {
            self.make_room(now);
        }
        self.known.insert(
            token,
            CachedReview { review, until: now.checked_add(lasts).unwrap_or(now), good_until: good },
        );
    }

    /// Whose token was good goes last.
    fn make_room(&mut self, now: Instant) {
        let is_good = |it: &CachedReview| it.good_until.is_some_and(|until| now < until);
        let first = self.known.iter().min_by_key(|(_, it)| (is_good(it), it.until)).map(|(token, _)| *token);
        if let Some(token) = first {
            self.known.remove(&token);
        }
    }
}

impl TokenBucket {
    fn take(&mut self, (most, each_second): (u32, u32), now: Instant) -> bool {
        let most = f64::from(most);
        let has = self.0.map_or(most, |(had, then)| {
            let came = now.saturating_duration_since(then).as_secs_f64() * f64::from(each_second);
            (had + came).min(most)
        });
        let may = has >= 1.0;
        self.0 = Some((if may { has - 1.0 } else { has }, now));
        may
    }
}

/// A machine of IPv6 has a /64 to choose its addresses from.
fn network(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(it) => Ipv6Addr::from_bits(it.to_bits() >> 64 << 64).into(),
        it => it,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: CacheLookup = CacheLookup::Review(TokenHistory::Unknown);

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    fn after(begin: Instant, seconds: u64) -> Instant {
        begin + Duration::from_secs(seconds)
    }

    #[test]
    fn what_was_said_of_a_token_is_believed_for_a_while() {
        let (mut cache, begin, from) = (Cache::default(), Instant::now(), ip("192.0.2.1"));
        let [good, bad] = ["good", "bad"].map(digest);
        assert_eq!(cache.look_up(&good, from, begin), NEW);
        cache.record(good, ReviewOutcome::Allowed, begin);
        cache.record(bad, ReviewOutcome::Unauthenticated, begin);
        assert_eq!(cache.look_up(&good, from, after(begin, 59)), CacheLookup::Known(ReviewOutcome::Allowed));
        assert_eq!(
            cache.look_up(&bad, from, after(begin, 9)),
            CacheLookup::Known(ReviewOutcome::Unauthenticated)
        );
        assert_eq!(
            cache.look_up(&good, from, after(begin, 61)),
            CacheLookup::Review(TokenHistory::RecentlyAllowed),
            "rights may end"
        );
        assert_eq!(cache.look_up(&bad, from, after(begin, 11)), NEW, "they may begin");
        cache.record(good, ReviewOutcome::Denied, after(begin, 61));
        assert_eq!(cache.look_up(&good, from, after(begin, 62)), CacheLookup::Known(ReviewOutcome::Denied));
        assert_eq!(cache.look_up(&good, from, after(begin, 80)), NEW, "it is like any other now");
        cache.record(good, ReviewOutcome::Unanswered, after(begin, 80));
        assert_eq!(cache.look_up(&good, from, after(begin, 80)), NEW, "nothing is known by silence");
    }

    #[test]
    fn a_stranger_with_many_tokens_costs_few_questions_and_keeps_nobody_else_out() {
        let (mut cache, begin) = (Cache::default(), Instant::now());
        let good = digest("good");
        cache.record(good, ReviewOutcome::Allowed, begin);
        let now = after(begin, 100);
        let flood = |cache: &mut Cache, from: &dyn Fn(u32) -> IpAddr| {
            let ask = |it: u32| cache.look_up(&digest(&it.to_string()), from(it), now);
            (0..10_000).map(ask).filter(|it| *it == NEW).count()
        };
        // The addresses of one /64 are one source.
        let one = flood(&mut cache, &|it| ip(&format!("2001:db8::{it:x}")));
        assert_eq!(one, 5);
        let mut others = (0..64).map(|it| ip(&format!("192.0.2.{it}")));
        let let_in = others.any(|from| cache.look_up(&digest("another"), from, now) == NEW);
        assert!(let_in, "who comes from elsewhere is asked for");
        let many = flood(&mut cache, &|it| IpAddr::V4((it << 8).into()));
        assert!(many <= 20, "{many} questions");
        assert_eq!(cache.look_up(&digest("new"), ip("198.51.100.1"), now), CacheLookup::Refuse);
        assert_eq!(
            cache.look_up(&good, ip("198.51.100.1"), now),
            CacheLookup::Review(TokenHistory::RecentlyAllowed)
        );
        let later = after(now, 2);
        assert!(flood(&mut cache, &|it| IpAddr::V4((it << 8).into())) == 0, "time alone brings more");
        let brought = (0..64).map(|it| ip(&format!("203.0.113.{it}")));
        let brought = brought.filter(|from| cache.look_up(&digest("late"), *from, later) == NEW).count();
        assert!((1..=20).contains(&brought), "{brought}");
    }

    #[test]
    fn tokens_that_were_good_are_remembered_longest_and_no_more_than_so_many() {
        let (mut cache, begin) = (Cache::default(), Instant::now());
        let good = digest("good");
        cache.record(good, ReviewOutcome::Allowed, begin);
        for it in 0..10_000_u32 {
            cache.record(digest(&it.to_string()), ReviewOutcome::Unauthenticated, begin);
        }
        assert_eq!(cache.known.len(), KEPT);
        assert_eq!(cache.look_up(&good, ip("192.0.2.1"), begin), CacheLookup::Known(ReviewOutcome::Allowed));
        // What is known of the others counts for longer now: it is the good one that stays.
        let later = after(begin, 55);
        for it in 0..10_000_u32 {
            cache.record(digest(&format!("later {it}")), ReviewOutcome::Unauthenticated, later);
        }
        assert_eq!(cache.look_up(&good, ip("192.0.2.1"), later), CacheLookup::Known(ReviewOutcome::Allowed));
    }
}
