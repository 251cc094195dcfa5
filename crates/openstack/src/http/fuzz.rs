//! What must hold for whatever a service says of a pause (`fuzz/README.md`).

#![allow(clippy::arithmetic_side_effects, clippy::expect_used, reason = "what is wrong ends the fuzz target")]

use std::time::{Duration, SystemTime};

use jiff::{Timestamp, fmt::rfc2822::DateTimePrinter};

use super::retry_after::{LONGEST, read};

/// A pause is a day at most. A number of seconds is that, whatever the time is; a moment is nearer a second later; and a pause
/// that is written down as the moment when it ends is the same pause.
pub fn retry_after(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    let second = Duration::from_secs(1);
    let pause = read(text, now);
    if let Ok(seconds) = text.trim().parse::<u64>() {
        return assert_eq!(pause, Some(Duration::from_secs(seconds).min(LONGEST)));
    }
    let Some(pause) = pause else { return };
    assert!(pause <= LONGEST, "{text:?} is {pause:?}");
    let later = read(text, now + second).expect("it is the same text");
    assert!(later <= pause && pause - later <= second, "{text:?} is {pause:?}, and then {later:?}");
    let end = Timestamp::try_from(now + pause).expect("it is a moment");
    let written = DateTimePrinter::new().timestamp_to_rfc9110_string(&end).expect("it can be written");
    assert_eq!(read(&written, now), Some(pause), "{written}");
}
