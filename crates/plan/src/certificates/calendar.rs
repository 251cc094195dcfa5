//! Moments as certificates and the API write them, counted by jiff. Not as its `Timestamp`, which ends a day before
//! 9999-12-31T23:59:59Z, when certificates end that do not end (RFC 5280, 4.1.2.5).

use jiff::{SignedDuration, civil::DateTime};
use seaway_model::Time;

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
const LAST: DateTime = DateTime::constant(9999, 12, 31, 23, 59, 59, 0);

/// None if that is no day or no time of day; before 1970 is the beginning of it.
pub(super) fn moment(date: [u64; 3], time: [u64; 3]) -> Option<Time> {
    let ([year, month, day], [hour, minute, second]) = (date, time);
    let small = |number: u64| i8::try_from(number).ok();
    let year = i16::try_from(year).ok()?;
    // A leap second is the first of the next minute.
    let (second, leap) = if second == 60 { (59, 1000) } else { (second, 0) };
    let (month, day, hour, minute, second) =
        (small(month)?, small(day)?, small(hour)?, small(minute)?, small(second)?);
    let at = DateTime::new(year, month, day, hour, minute, second, 0).ok()?;
    let since = u64::try_from(at.duration_since(EPOCH).as_millis());
    Some(since.map_or(Time(0), |since| Time(since.saturating_add(leap))))
}

/// `2026-12-01`
pub(super) fn day(at: Time) -> String {
    civil(at).date().to_string()
}

/// `2026-12-01T13:45:00Z`, as the API writes it.
pub(crate) fn second(at: Time) -> String {
    format!("{}Z", civil(at))
}

/// To the second; the end of the year 9999 for what is later.
fn civil(at: Time) -> DateTime {
    let since = i64::try_from(at.0 / 1000).map(SignedDuration::from_secs);
    since.ok().and_then(|it| EPOCH.checked_add(it).ok()).unwrap_or(LAST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_as_everybody_counts_them() {
        for (text, seconds) in [
            ("1970-01-01", 0),
            ("1972-03-01", 68_256_000),
            ("2000-02-29", 951_782_400),
            ("2026-11-21", 1_795_219_200),
            ("2100-03-01", 4_107_542_400),
            ("9999-12-31", 253_402_214_400),
        ] {
            let parts: Vec<u64> = text.split('-').filter_map(|it| it.parse().ok()).collect();
            let at = moment([parts[0], parts[1], parts[2]], [0, 0, 0]).expect("a day");
            assert_eq!(at, Time(seconds * 1000), "{text}");
            assert_eq!(day(at), text);
        }
        assert_eq!(moment([1950, 1, 1], [3, 0, 0]), Some(Time(0)));
        assert_eq!(moment([1970, 1, 1], [1, 2, 3]), Some(Time(3_723_000)));
        assert_eq!(moment([1972, 6, 30], [23, 59, 60]), moment([1972, 7, 1], [0, 0, 0]));
        let last = moment([9999, 12, 31], [23, 59, 59]).expect("the end of those that do not end");
        assert_eq!(last, Time(253_402_300_799_000));
        assert_eq!(second(last), "9999-12-31T23:59:59Z");
        assert_eq!(
            (day(Time(u64::MAX)), day(Time(u64::MAX / 2))),
            ("9999-12-31".into(), "9999-12-31".into())
        );
        assert_eq!(second(Time(1_795_219_200_000 + 45_296_789)), "2026-11-21T12:34:56Z");
        for date in [[2026, 2, 29], [2100, 2, 29], [2026, 13, 1], [2026, 0, 1], [2026, 1, 0], [2026, 1, 128]]
        {
            assert_eq!(moment(date, [0, 0, 0]), None);
        }
        for time in [[24, 0, 0], [0, 60, 0], [0, 0, 61]] {
            assert_eq!(moment([2026, 1, 1], time), None);
        }
    }
}
