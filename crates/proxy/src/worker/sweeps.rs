//! When connections are looked through for those whose time to drain is over.

/// Milliseconds between two looks at all connections, however many drains end meanwhile.
const APART: u64 = 100;

/// One time for all drains: each look finds out when the next one ends. Whatever begins on a member that leaves says so.
#[derive(Debug, Default)]
pub(crate) struct DrainSweeps {
    next: Option<u64>,
    last: Option<u64>,
}

impl DrainSweeps {
    /// A drain ends then.
    pub(crate) fn at(&mut self, at: u64) {
        let at = self.last.map_or(at, |last| at.max(last.saturating_add(APART)));
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    /// If so, whoever asks looks at all of its connections, and says when the others end.
    pub(crate) fn are_due(&mut self, now: u64) -> bool {
        if self.next.is_none_or(|next| next > now) {
            return false;
        }
        (self.next, self.last) = (None, Some(now));
        true
    }

    pub(crate) fn next_timeout(&self, now: u64) -> Option<u64> {
        self.next.map(|next| next.saturating_sub(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_end_is_looked_at_first_and_the_others_when_they_are_due() {
        let mut sweeps = DrainSweeps::default();
        assert!(!sweeps.are_due(u64::MAX), "nothing drains");
        sweeps.at(5_000);
        sweeps.at(1_000);
        assert_eq!(sweeps.next_timeout(400), Some(600));
        assert!(!sweeps.are_due(999));
        assert!(sweeps.are_due(1_000));
        assert_eq!(sweeps.next_timeout(1_000), None, "the look says what is left");
        sweeps.at(5_000);
        assert!(!sweeps.are_due(4_999) && sweeps.are_due(5_000));
    }

    #[test]
    fn drains_that_end_all_the_time_cost_a_look_at_times() {
        let mut sweeps = DrainSweeps::default();
        let mut looks = 0;
        for now in 0..10_000 {
            sweeps.at(now);
            looks += u64::from(sweeps.are_due(now));
        }
        assert_eq!(looks, 10_000 / APART);
        // A day of drains that begin each millisecond is one number.
        (0..10_000).for_each(|now| sweeps.at(86_400_000 + now));
        assert_eq!(
            sweeps.next_timeout(0),
            Some(10_000),
            "of the ones before, the last was not looked at yet"
        );
    }
}
