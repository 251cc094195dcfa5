//! A time short enough to read a log by: the day is known to whoever watches, and to journald.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tracing_subscriber::fmt::{format::Writer, time::FormatTime};

/// `12:34:56.789`, in UTC.
pub(super) struct ShortTime;

impl FormatTime for ShortTime {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        writer.write_str(&time_of_day(since))
    }
}

fn time_of_day(since: Duration) -> String {
    let seconds = since.as_secs() % 86_400;
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    format!("{hours:02}:{minutes:02}:{:02}.{:03}", seconds % 60, since.subsec_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_millisecond_of_a_day() {
        assert_eq!(time_of_day(Duration::from_millis(86_400_000 * 3 - 1)), "23:59:59.999");
    }
}
