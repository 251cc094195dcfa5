//! When a certificate is renewed, and when a failed order is begun again.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use seaway_files::state::FailedOrders;
use seaway_model::Time;
use seaway_plan::CertificateDates;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;

/// Public authorities allow five failed checks of a name in an hour.
const WAITS: [u64; 8] = [MINUTE, 5 * MINUTE, 15 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, 24 * HOUR];

/// An authority may ask for more patience than that, but not for ever.
const LONGEST: u64 = 7 * 24 * HOUR;

pub(super) fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

pub(super) fn millis(at: SystemTime) -> Time {
    Time(u64::try_from(at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()).unwrap_or(u64::MAX))
}

/// After two thirds of its life, and up to a twentieth of it earlier: not all that were ordered together at once.
pub(super) fn due(dates: &CertificateDates, host: &str) -> Time {
    let life = dates.until.0.saturating_sub(dates.from.0);
    let early = spread(host, (life / 20).max(1));
    Time(dates.until.0.saturating_sub(life / 3).saturating_sub(early))
}

/// At a time within the window that the authority suggests, the same one whenever it is asked (RFC 9773, section 4.2). But one that
/// was just issued is not ordered again, and none is left until its end: an order may have to be tried again.
pub(super) fn suggested(window: (Time, Time), dates: &CertificateDates, id: &str) -> Time {
    let life = dates.until.0.saturating_sub(dates.from.0);
    let (Time(start), Time(end)) = window;
    let at = start.saturating_add(spread(id, end.saturating_sub(start).max(1)));
    let first = dates.from.0.saturating_add((life / 12).min(24 * HOUR * 1000));
    Time(at.min(dates.until.0.saturating_sub(life / 4)).max(first))
}

/// Less than `most`, and as different for names as chance would have it: any mixing of their bytes will do (FNV-1a).
pub(super) fn spread(name: &str, most: u64) -> u64 {
    let mixed = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |all, it| (all ^ u64::from(it)).wrapping_mul(0x0100_0000_01b3));
    // The lower bits of short names are too much alike.
    (mixed ^ mixed >> 32).checked_rem(most).unwrap_or(0)
}

/// Before the next attempt, after so many failures in a row.
pub(super) fn delay_after(count: u32) -> Duration {
    let place = usize::try_from(count.saturating_sub(1)).unwrap_or(usize::MAX);
    let seconds = WAITS.get(place).or(WAITS.last()).copied().unwrap_or(HOUR);
    Duration::from_secs(seconds)
}

/// `left`: how long the certificate that is shown is still good for, in seconds. It is not waited for its end.
pub(super) fn after_failure(
    before: FailedOrders,
    asked: Option<Duration>,
    left: Option<u64>,
    now: u64,
) -> FailedOrders {
    let count = before.count.saturating_add(1);
    let asked = asked.map_or(0, |it| it.as_secs()).min(LONGEST);
    let most = left.filter(|it| *it > 0).map_or(u64::MAX, |it| (it / 4).max(HOUR));
    let wait = delay_after(count).as_secs().min(most).max(asked);
    FailedOrders { count, wait_until: now.saturating_add(wait) }
}

/// One that was written by a clock that was wrong keeps nobody waiting for years.
pub(super) fn retry_delay(failed: FailedOrders, now: u64) -> Option<Duration> {
    let wait = failed.wait_until.saturating_sub(now);
    (1..=LONGEST).contains(&wait).then(|| Duration::from_secs(wait))
}

pub(super) fn human(wait: Duration) -> String {
    match wait.as_secs() {
        MINUTE => "a minute".into(),
        HOUR => "an hour".into(),
        0..MINUTE => "a minute".into(),
        seconds @ 0..HOUR => format!("{} minutes", seconds.div_ceil(MINUTE)),
        seconds => format!("{} hours", seconds.div_ceil(HOUR)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * HOUR * 1000;

    #[test]
    fn a_certificate_is_renewed_after_two_thirds_of_its_life_and_not_all_at_once() {
        for life in [90 * DAY, 6 * DAY, DAY / 24] {
            let dates =
                CertificateDates { names: Vec::new(), from: Time(5 * DAY), until: Time(5 * DAY + life) };
            let due: Vec<u64> = (0..100).map(|it| due(&dates, &format!("{it}.example")).0).collect();
            let (first, last) = (due.iter().min().expect("some"), due.iter().max().expect("some"));
            let two_thirds = 5 * DAY + life - life / 3;
            assert!(*last <= two_thirds && *first >= two_thirds - life / 20, "{first} {last} {two_thirds}");
            assert!(last - first > life / 40, "they are spread: {first} {last}");
        }
        // One that says nonsense is due, and not for ever.
        let dates = CertificateDates { names: Vec::new(), from: Time(DAY), until: Time(0) };
        assert_eq!(due(&dates, "a.example"), Time(0));
    }

    #[test]
    fn a_certificate_is_renewed_within_the_window_that_is_suggested() {
        let dates = CertificateDates { names: Vec::new(), from: Time(100 * DAY), until: Time(190 * DAY) };
        let window = (Time(120 * DAY), Time(121 * DAY));
        let all: Vec<u64> = (0..100).map(|it| suggested(window, &dates, &format!("key.{it}")).0).collect();
        assert!(all.iter().all(|it| (120 * DAY..121 * DAY).contains(it)), "{all:?}");
        assert!(all.iter().max().expect("some") - all.iter().min().expect("some") > DAY / 2, "{all:?}");
        assert_eq!(suggested(window, &dates, "key.1"), suggested(window, &dates, "key.1"));
        for (window, at) in [
            // Revoked soon: at once, but not again and again.
            ((0, 1), 101 * DAY),
            ((101 * DAY, 101 * DAY + 1), 101 * DAY),
            // After its end, or for ever.
            ((300 * DAY, 301 * DAY), 190 * DAY - 90 * DAY / 4),
            ((u64::MAX - 1, u64::MAX), 190 * DAY - 90 * DAY / 4),
        ] {
            assert_eq!(suggested((Time(window.0), Time(window.1)), &dates, "key.1"), Time(at), "{window:?}");
        }
        let short = CertificateDates { names: Vec::new(), from: Time(DAY), until: Time(DAY + 1200) };
        assert_eq!(suggested((Time(0), Time(1)), &short, "key.1"), Time(DAY + 100));
    }

    #[test]
    fn failures_wait_longer_each_time_and_stay_within_what_authorities_allow() {
        let mut failed = FailedOrders::default();
        let (mut now, mut at) = (1_000_000, Vec::new());
        for _ in 0..12 {
            at.push(now);
            failed = after_failure(failed, None, None, now);
            assert!(failed.wait_until > now);
            now = failed.wait_until;
        }
        for begin in &at {
            let in_an_hour = at.iter().filter(|it| (*begin..begin + HOUR).contains(it)).count();
            assert!(in_an_hour < 5, "{at:?}");
        }
        assert_eq!(failed.wait_until - at[11], 24 * HOUR);
        let asked = after_failure(FailedOrders::default(), Some(Duration::from_secs(7200)), None, 10);
        assert_eq!(asked, FailedOrders { count: 1, wait_until: 7210 });
        let forever = after_failure(FailedOrders::default(), Some(Duration::MAX), None, 10);
        assert_eq!(forever.wait_until, 10 + LONGEST);
        let many = FailedOrders { count: 9, wait_until: 0 };
        for (left, wait) in
            [(None, 24 * HOUR), (Some(8 * HOUR), 2 * HOUR), (Some(HOUR), HOUR), (Some(0), 24 * HOUR)]
        {
            assert_eq!(after_failure(many, None, left, 10).wait_until, 10 + wait, "{left:?}");
        }
        let at =
            |wait_until| retry_delay(FailedOrders { count: 1, wait_until }, 1_000).map(|it| it.as_secs());
        assert_eq!([at(0), at(1_000), at(1_060), at(1_001 + LONGEST)], [None, None, Some(60), None]);
        assert_eq!(
            ["a minute", "15 minutes", "an hour", "24 hours"],
            [1, 3, 4, 99].map(|it| human(delay_after(it))).each_ref().map(String::as_str)
        );
    }
}
