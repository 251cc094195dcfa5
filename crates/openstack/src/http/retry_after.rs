//! `Retry-After`: seconds, or the moment itself (RFC 9110, 10.2.3).

use std::time::{Duration, SystemTime};

use jiff::{Timestamp, fmt::rfc2822::DateTimeParser};

/// Who wants a longer pause than this gets it, a day at a time: nobody adds a number to an instant that it has no room
/// for.
pub(super) const LONGEST: Duration = Duration::from_secs(24 * 3600);

pub(super) fn read(text: &str, now: SystemTime) -> Option<Duration> {
    Some(parse(text, now)?.min(LONGEST))
}

fn parse(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let moment: Timestamp = DateTimeParser::new().parse_timestamp(text).ok()?;
    // What has passed means: now.
    Some(SystemTime::from(moment).duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_dates_are_understood_and_nonsense_is_not() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777); // Sun, 06 Nov 1994 08:49:37 GMT
        for (text, seconds) in [
            ("7", Some(7)),
            (" 0 ", Some(0)),
            ("Sun, 06 Nov 1994 08:49:47 GMT", Some(10)),
            ("Sun, 06 Nov 1994 08:49:00 GMT", Some(0)),
            ("18446744073709551615", Some(86_400)),
            ("Thu, 31 Dec 9998 23:59:59 GMT", Some(86_400)),
            ("soon", None),
            ("-1", None),
            ("", None),
        ] {
            assert_eq!(read(text, now), seconds.map(Duration::from_secs), "{text:?}");
        }
    }
}
