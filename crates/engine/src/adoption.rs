//! How fast adoptions begin.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// A Service that is not adopted is looked at this often, though nothing changes.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_secs(900);
const MINUTE: Duration = Duration::from_secs(60);

/// When the adoptions of the last minute began.
#[derive(Debug, Default)]
pub(crate) struct Pace(VecDeque<Instant>);

impl Pace {
    /// So many may begin now.
    pub(crate) fn room(&mut self, now: Instant, per_minute: Option<u32>) -> usize {
        while self.0.front().is_some_and(|it| *it + MINUTE <= now) {
            self.0.pop_front();
        }
        per_minute.map_or(usize::MAX, |most| (most as usize).saturating_sub(self.0.len()))
    }

    pub(crate) fn note(&mut self, now: Instant, begun: usize) {
        self.0.extend(std::iter::repeat_n(now, begun));
    }

    /// When there is room again; nothing, where there is some.
    pub(crate) fn next(&mut self, now: Instant, per_minute: Option<u32>) -> Option<Instant> {
        let full = self.room(now, per_minute) == 0;
        self.0.front().filter(|_| full).map(|it| *it + MINUTE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn so_many_begin_in_any_minute() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!((pace.room(start, Some(3)), pace.next(start, Some(3))), (3, None));
        pace.note(start, 2);
        pace.note(after(30), 1);
        assert_eq!((pace.room(after(30), Some(3)), pace.next(after(30), Some(3))), (0, Some(after(60))));
        assert_eq!(pace.room(after(60), Some(3)), 2);
        assert_eq!(pace.room(after(90), Some(3)), 3);
        assert_eq!(pace.room(after(90), None), usize::MAX);
    }
}
