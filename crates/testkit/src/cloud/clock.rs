//! Time, as tests drive it, and ids, the same ones in every run.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use jiff::Timestamp;

/// The fake's time. It stands still unless a test moves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct FakeTime(Timestamp);

impl FakeTime {
    pub(super) fn of(time: SystemTime) -> FakeTime {
        let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        FakeTime(Timestamp::from_second(seconds.cast_signed()).unwrap_or(Timestamp::MAX))
    }

    pub(super) fn parsed(text: &str) -> Option<FakeTime> {
        // Services write UTC with and without saying so.
        text.parse().or_else(|_| format!("{text}Z").parse()).ok().map(FakeTime)
    }

    #[must_use]
    pub(super) fn after(self, time: Duration) -> FakeTime {
        FakeTime(self.0.checked_add(time).unwrap_or(Timestamp::MAX))
    }

    /// `2026-11-21T03:44:00`
    pub(super) fn bare(self) -> String {
        self.0.strftime("%Y-%m-%dT%H:%M:%S").to_string()
    }

    /// `2026-11-21T03:44:00Z`
    pub(super) fn zulu(self) -> String {
        self.0.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// `2026-11-21T03:44:00.000000Z`
    pub(super) fn precise(self) -> String {
        self.0.strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string()
    }

    pub(super) fn time(self) -> SystemTime {
        self.0.into()
    }
}

/// Gives ids that look random and are the same in every run.
#[derive(Clone, Debug, Default)]
pub(super) struct Ids(u64);

impl Ids {
    /// As most services write them: `8c1f7f3e-…`.
    pub(super) fn uuid(&mut self) -> String {
        let hex = self.hex();
        format!("{}-{}-4{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..])
    }

    /// As Keystone writes them: 32 digits.
    pub(super) fn hex(&mut self) -> String {
        format!("{:016x}{:016x}", self.next(), self.next())
    }

    pub(super) fn mac(&mut self) -> String {
        let n = self.next();
        format!("fa:16:3e:{:02x}:{:02x}:{:02x}", n & 255, n >> 8 & 255, n >> 16 & 255)
    }

    /// SplitMix64.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }
}
