//! Who was not let into a cloud asks again later, and later each time: accounts get locked by those who do not listen.
//! A file that was changed meanwhile is tried at once.

use std::{
    fs,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use seaway_openstack::{Error, Retry};

const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);

/// What came of the last try. All load balancers share it: a thousand of them ask once.
#[derive(Default)]
pub(super) struct Refused(Mutex<Option<Last>>);

struct Last {
    error: Error,
    times: u32,
    until: Instant,
    file: Stamp,
}

/// What tells that a file was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp(Option<(SystemTime, u64)>);

impl Stamp {
    pub(super) fn of(file: &Path) -> Stamp {
        let told = fs::metadata(file).ok();
        Stamp(told.and_then(|it| Some((it.modified().ok()?, it.len()))))
    }
}

impl Refused {
    /// Why it need not be tried now.
    pub(super) fn still(&self, now: Instant, file: Stamp) -> Option<Error> {
        let last = self.last();
        let last = last.as_ref().filter(|it| now < it.until && it.file == file);
        last.map(|it| it.error.clone())
    }

    /// What may pass by itself is tried again by whoever asks.
    pub(super) fn note(&self, error: &Error, now: Instant, file: Stamp) {
        let mut last = self.last();
        if error.retry() != Retry::WhenChanged {
            return *last = None;
        }
        let times = last.as_ref().filter(|it| it.file == file).map_or(0, |it| it.times + 1);
        let pause = FIRST.saturating_mul(2_u32.saturating_pow(times)).min(LONGEST);
        *last = Some(Last { error: error.clone(), times, until: now + pause, file });
    }

    fn last(&self) -> MutexGuard<'_, Option<Last>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use seaway_openstack::Class;

    use super::*;

    const ONE: Stamp = Stamp(None);

    fn another() -> Stamp {
        Stamp(Some((SystemTime::UNIX_EPOCH, 1)))
    }

    #[test]
    fn who_is_refused_asks_again_later_and_later_each_time() {
        let (refused, error) = (Refused::default(), Error::new(Class::Unauthorized, "who?"));
        let mut now = Instant::now();
        assert!(refused.still(now, ONE).is_none(), "nobody was refused yet");
        for pause in [10, 20, 40, 80, 160, 300, 300] {
            refused.note(&error, now, ONE);
            let almost = now + Duration::from_millis(pause * 1_000 - 1);
            assert!(refused.still(almost, ONE).is_some(), "{pause}");
            now += Duration::from_secs(pause);
            assert!(refused.still(now, ONE).is_none(), "{pause}");
        }
    }

    #[test]
    fn a_file_that_was_changed_is_tried_at_once_and_what_passes_by_itself_too() {
        let (refused, now) = (Refused::default(), Instant::now());
        refused.note(&Error::new(Class::Unauthorized, "who?"), now, ONE);
        assert!(refused.still(now, ONE).is_some() && refused.still(now, another()).is_none());
        refused.note(&Error::new(Class::Unreachable, "away"), now, ONE);
        assert!(refused.still(now, ONE).is_none());
    }
}
