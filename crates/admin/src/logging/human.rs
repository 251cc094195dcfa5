//! The time of a line for people.

use std::fmt;

use jiff::Timestamp;
use tracing_subscriber::fmt::{format::Writer, time::FormatTime};

/// `2026-11-22T12:34:56.789Z`.
pub(super) struct Utc;

impl FormatTime for Utc {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        writer.write_str(&text(Timestamp::now()))
    }
}

fn text(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_its_day_and_three_digits_of_its_second() {
        let text = |at: &str| text(at.parse().expect("a time"));
        assert_eq!(text("2026-12-31T23:59:59.999999Z"), "2026-12-31T23:59:59.999Z");
        assert_eq!(text("2027-01-01T00:00:00Z"), "2027-01-01T00:00:00.000Z");
    }
}
