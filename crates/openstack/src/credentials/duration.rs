//! Times as people write them: seconds, or as Go reads them, in which `cloud.conf` is written.

use std::time::Duration;

const UNITS: [(&str, f64); 8] = [
    ("ns", 1e-9),
    ("us", 1e-6),
    ("µs", 1e-6),
    ("μs", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("m", 60.0),
    ("h", 3600.0),
];

/// `30`, `0.5`, `45s`, `1m30s`, `500ms`.
pub(super) fn read(text: &str) -> Option<Duration> {
    let seconds = text.parse::<f64>().ok().or_else(|| sum(text))?;
    Duration::try_from_secs_f64(seconds).ok()
}

fn sum(text: &str) -> Option<f64> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let is_of_number = |c: char| c.is_ascii_digit() || c == '.';
        let (number, after) = rest.split_at(rest.find(|c| !is_of_number(c))?);
        let (unit, after) = after.split_at(after.find(is_of_number).unwrap_or(after.len()));
        let (_, of_one) = UNITS.iter().find(|(name, _)| *name == unit)?;
        seconds += number.parse::<f64>().ok()? * of_one;
        rest = after;
    }
    (!text.is_empty()).then_some(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_durations_of_go_are_understood_and_nonsense_is_not() {
        for (text, milliseconds) in [
            ("30", Some(30_000)),
            ("0.5", Some(500)),
            ("0", Some(0)),
            ("0s", Some(0)),
            ("45s", Some(45_000)),
            ("1m", Some(60_000)),
            ("1m30s", Some(90_000)),
            ("1h0.5m", Some(3_630_000)),
            ("500ms", Some(500)),
            ("+2s", Some(2_000)),
            ("1500µs", Some(1)),
            ("", None),
            ("-1s", None),
            ("-1", None),
            ("s", None),
            ("1", Some(1000)),
            ("1m30", None),
            ("1 m", None),
            ("1d", None),
            (".s", None),
            ("1e400", None),
            ("soon", None),
        ] {
            assert_eq!(read(text).map(|it| it.as_millis()), milliseconds, "{text:?}");
        }
    }
}
