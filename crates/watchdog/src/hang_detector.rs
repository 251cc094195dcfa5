//! Whether a part hangs: pure.

use std::time::Duration;

use crate::threads::{Sample, ThreadState};

/// So much is lost before a part counts as hanging. Netlink and the like answer within 5 seconds or never.
pub const HANG_LIMIT: Duration = Duration::from_secs(7);

/// Delays of a thread that are shorter than this do not show that the machine is overloaded.
pub(crate) const NOTABLE_DELAY: Duration = Duration::from_millis(250);

/// Decides whether a part hangs: what is remembered of it from one observation to the next.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HangDetector {
    beats: u64,
    sample: Option<Sample>,
    lost: Duration,
    silent: Duration,
}

impl HangDetector {
    /// `passed`: since the look before. `fair`: whoever could run in it did. Gives what is lost by now.
    pub(crate) fn observe(
        &mut self,
        beats: u64,
        sample: Option<Sample>,
        passed: Duration,
        fair: bool,
    ) -> Duration {
        let before = std::mem::replace(&mut self.sample, sample);
        let stands_still = std::mem::replace(&mut self.beats, beats) == beats;
        match stands_still {
            true if fair && sample.is_none_or(|it| it.doing == ThreadState::Sleeps) => self.silent += passed,
            true => {}
            false => self.silent = Duration::ZERO,
        }
        match (before, sample) {
            (Some(before), Some(now)) if stands_still && before.thread == now.thread => {
                let ran = now.ran.saturating_sub(before.ran).min(passed);
                self.lost += if fair && now.doing == ThreadState::Sleeps { passed } else { ran };
            }
            // Of several threads another one stands for all of them now.
            (Some(_), Some(_)) if stands_still => {}
            _ => self.lost = Duration::ZERO,
        }
        self.lost
    }

    /// How long it has not beaten, of the time in which whoever could run did.
    pub(crate) fn silent_for(&self) -> Duration {
        self.silent
    }

    /// It waited for a processor for most of the time: then others did, too.
    pub(crate) fn is_starved(&self, now: Option<Sample>, passed: Duration) -> bool {
        match (self.sample, now) {
            (Some(before), Some(now)) if before.thread == now.thread => {
                now.queued.saturating_sub(before.queued) > (passed / 2).max(NOTABLE_DELAY)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// A part that is looked at each second: how much is lost by then.
    fn lost(looks: &[(u64, Option<(ThreadState, u64)>)]) -> Duration {
        let mut judge = HangDetector::default();
        let mut lost = Duration::ZERO;
        for (beats, sample) in looks {
            let sample = sample.map(|(doing, ran)| Sample {
                thread: 7,
                doing,
                ran: millis(ran),
                queued: Duration::ZERO,
            });
            lost = judge.observe(*beats, sample, SECOND, true);
        }
        lost
    }

    #[test]
    fn who_beats_loses_nothing_whatever_its_thread_does() {
        let looks: Vec<_> = (1..20).map(|it| (it, Some((ThreadState::Sleeps, 0)))).collect();
        assert_eq!(lost(&looks), Duration::ZERO);
        let looks: Vec<_> = (1..20).map(|it| (it, Some((ThreadState::Runs, 1_000 * it)))).collect();
        assert_eq!(lost(&looks), Duration::ZERO);
    }

    #[test]
    fn who_sleeps_or_runs_without_a_beat_hangs() {
        let looks: Vec<_> = (0..=7).map(|_| (1, Some((ThreadState::Sleeps, 5)))).collect();
        assert_eq!(lost(&looks), HANG_LIMIT);
        let looks: Vec<_> = (0..=7).map(|it| (1, Some((ThreadState::Runs, 1_000 * it)))).collect();
        assert_eq!(lost(&looks), HANG_LIMIT);
    }

    #[test]
    fn who_gets_no_processor_or_waits_for_a_disk_or_is_stopped_does_not() {
        // A twentieth of a processor: what it ran counts, a minute that passed does not.
        let looks: Vec<_> = (0..=60).map(|it| (1, Some((ThreadState::Runs, 50 * it)))).collect();
        assert_eq!(lost(&looks), 3 * SECOND);
        let looks: Vec<_> = (0..=60).map(|_| (1, Some((ThreadState::Stands, 5)))).collect();
        assert_eq!(lost(&looks), Duration::ZERO);
    }

    #[test]
    fn a_second_in_which_others_got_no_processor_counts_only_what_ran() {
        let mut judge = HangDetector::default();
        let sample = |doing, ran| Some(Sample { thread: 7, doing, ran: millis(ran), queued: Duration::ZERO });
        judge.observe(1, sample(ThreadState::Sleeps, 0), SECOND, true);
        assert_eq!(judge.observe(1, sample(ThreadState::Sleeps, 10), SECOND, false), millis(10));
        assert_eq!(judge.observe(1, sample(ThreadState::Runs, 510), SECOND, false), millis(510));
        assert_eq!(judge.observe(1, sample(ThreadState::Sleeps, 510), SECOND, true), millis(1_510));
    }

    #[test]
    fn a_task_that_waits_is_well_however_long() {
        let mut looks = vec![(1, Some((ThreadState::Sleeps, 5))); 5];
        looks.extend([(1, None); 100]);
        assert_eq!(lost(&looks), Duration::ZERO);
    }

    #[test]
    fn silence_is_counted_while_a_task_waits_and_others_got_a_processor() {
        let mut judge = HangDetector::default();
        let mut silent = |beats, fair| {
            judge.observe(beats, None, SECOND, fair);
            judge.silent_for()
        };
        silent(1, true);
        assert_eq!(silent(1, true), SECOND);
        assert_eq!(silent(1, false), SECOND, "the machine was busy, or the process was stopped");
        assert_eq!(silent(1, true), 2 * SECOND);
        assert_eq!(silent(2, true), Duration::ZERO);
    }

    #[test]
    fn a_thread_that_waits_for_a_processor_tells_that_the_machine_is_starved() {
        let sample = |queued| Sample {
            thread: 7,
            doing: ThreadState::Runs,
            ran: Duration::ZERO,
            queued: millis(queued),
        };
        let mut judge = HangDetector::default();
        judge.observe(1, Some(sample(100)), SECOND, true);
        assert!(!judge.is_starved(Some(sample(500)), SECOND));
        assert!(judge.is_starved(Some(sample(700)), SECOND));
        assert!(!judge.is_starved(Some(Sample { thread: 8, ..sample(9_000) }), SECOND), "another thread");
        assert!(!judge.is_starved(None, SECOND));
    }
}
