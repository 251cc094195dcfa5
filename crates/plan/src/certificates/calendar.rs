//! Days, as far as certificates speak of them.

use seaway_model::Time;

const DAY: u64 = 24 * 3600 * 1000;

/// Midnight of a day of the Gregorian calendar; before 1970 is the beginning of it.
#[allow(
    clippy::arithmetic_side_effects,
    reason = "years have four digits, and come after 1969 where they are counted"
)]
pub(super) fn midnight(year: u64, month: u64, day: u64) -> Option<Time> {
    if !(1..=12).contains(&month) || !(1..=length(year, month)).contains(&day) {
        return None;
    }
    if year < 1970 {
        return Some(Time(0));
    }
    // Leap days before the year, counted from the year 0, without those of the years before 1970.
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    let years = (year - 1970) * 365 + leaps(year - 1) - leaps(1969);
    let months: u64 = (1..month).map(|month| length(year, month)).sum();
    Some(Time((years + months + day - 1) * DAY))
}

fn length(year: u64, month: u64) -> u64 {
    match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// `2026-12-01`
#[allow(
    clippy::arithmetic_side_effects,
    reason = "what is taken away was compared before; years end with 9999"
)]
pub(super) fn day(at: Time) -> String {
    let mut days = at.0 / DAY;
    let mut year = 1970;
    loop {
        let in_year = 337 + length(year, 2);
        if days < in_year || year == 9999 {
            break;
        }
        days -= in_year;
        year += 1;
    }
    let mut month = 1;
    while month < 12 && days >= length(year, month) {
        days -= length(year, month);
        month += 1;
    }
    format!("{year:04}-{month:02}-{:02}", days + 1)
}

/// `2026-12-01T13:45:00Z`, as the API writes it.
pub(crate) fn second(at: Time) -> String {
    let seconds = at.0 % DAY / 1000;
    format!("{}T{:02}:{:02}:{:02}Z", day(at), seconds / 3600, seconds / 60 % 60, seconds % 60)
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
            let at = midnight(parts[0], parts[1], parts[2]).expect("a day");
            assert_eq!(at, Time(seconds * 1000), "{text}");
            assert_eq!(day(at), text);
        }
        assert_eq!(midnight(1950, 1, 1), Some(Time(0)));
        assert_eq!(second(Time(1_795_219_200_000 + 45_296_789)), "2026-11-21T12:34:56Z");
        for (year, month, day) in [(2026, 2, 29), (2100, 2, 29), (2026, 13, 1), (2026, 0, 1), (2026, 1, 0)] {
            assert_eq!(midnight(year, month, day), None);
        }
    }
}
