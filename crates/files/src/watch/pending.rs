//! Files with events that nobody looked at yet, and when it is time to.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use nix::sys::inotify::AddWatchFlags;
use seaway_model::Name;

/// Quiet for this long, or this long after the first event.
const QUIET: Duration = Duration::from_millis(5);
const AT_MOST: Duration = Duration::from_millis(40);
/// How long something else may take to get a removed file's name.
const REPLACED: Duration = Duration::from_millis(15);

#[derive(Default)]
pub(super) struct PendingFileEvents {
    files: HashMap<Name, FileEventState>,
    everything: bool,
    first: Option<Instant>,
    last: Option<Instant>,
}

#[derive(Clone, Copy, Default)]
struct FileEventState {
    /// Somebody has written to it and not closed it.
    writing: bool,
    /// Removed; in a moment something else may have its name.
    removed: Option<Instant>,
}

impl PendingFileEvents {
    pub(super) fn note_event(&mut self, file: Name, what: AddWatchFlags, now: Instant) {
        let mark = if what.contains(AddWatchFlags::IN_MODIFY) {
            FileEventState { writing: true, removed: None }
        } else if what.intersects(AddWatchFlags::IN_DELETE | AddWatchFlags::IN_MOVED_FROM) {
            FileEventState { writing: false, removed: Some(now) }
        } else if what.intersects(AddWatchFlags::IN_ATTRIB) && self.is_writing(&file) {
            FileEventState { writing: true, removed: None }
        } else {
            FileEventState::default()
        };
        self.files.insert(file, mark);
        if !mark.writing {
            self.stir(now);
        }
    }

    pub(super) fn note_all(&mut self, now: Instant) {
        self.everything = true;
        self.stir(now);
    }

    /// Events were lost, that of a writer's closing perhaps among them.
    pub(super) fn forget(&mut self) {
        self.files.clear();
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        Some(self.last?.checked_add(QUIET)?.min(self.first?.checked_add(AT_MOST)?))
    }

    pub(super) fn take_everything(&mut self) -> bool {
        std::mem::take(&mut self.everything)
    }

    pub(super) fn files_in_writing(&self) -> HashSet<Name> {
        self.files.iter().filter(|(_, mark)| mark.writing).map(|(file, _)| file.clone()).collect()
    }

    /// The files to look at now; those that are being written, or were removed this very moment, wait.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Name> {
        let waits = |mark: &FileEventState| {
            mark.removed.is_some_and(|at| now.saturating_duration_since(at) < REPLACED)
        };
        let (mut ready, mut wait) = (Vec::new(), false);
        self.files.retain(|file, mark| {
            let stays = mark.writing || waits(mark);
            wait |= waits(mark);
            if !stays {
                ready.push(file.clone());
            }
            stays
        });
        (self.first, self.last) = if wait { (Some(now), Some(now)) } else { (None, None) };
        ready
    }

    fn is_writing(&self, file: &Name) -> bool {
        self.files.get(file).is_some_and(|mark| mark.writing)
    }

    fn stir(&mut self, now: Instant) {
        self.first.get_or_insert(now);
        self.last = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_looked_at_once_its_writer_has_closed_it() {
        let (mut pending, start) = (PendingFileEvents::default(), Instant::now());
        pending.note_event("a".into(), AddWatchFlags::IN_MODIFY, start);
        assert_eq!(pending.next_due(), None);
        pending.note_event("b".into(), AddWatchFlags::IN_MOVED_TO, start);
        assert_eq!(pending.take_due(start + QUIET), [Name::from("b")]);
        assert_eq!(pending.files_in_writing().len(), 1);
        pending.note_event("a".into(), AddWatchFlags::IN_CLOSE_WRITE, start);
        assert_eq!(pending.next_due(), Some(start + QUIET));
        assert_eq!(pending.take_due(start + QUIET), [Name::from("a")]);
    }

    #[test]
    fn a_file_that_is_replaced_is_never_seen_gone() {
        let (mut pending, start) = (PendingFileEvents::default(), Instant::now());
        pending.note_event("a".into(), AddWatchFlags::IN_DELETE, start);
        assert!(pending.take_due(start + REPLACED / 2).is_empty());
        assert!(pending.next_due().is_some(), "it is looked at later");
        assert_eq!(pending.take_due(start + REPLACED), [Name::from("a")]);
    }

    #[test]
    fn endless_events_are_served_all_the_same() {
        let (mut pending, start) = (PendingFileEvents::default(), Instant::now());
        for millis in (0..200).step_by(3) {
            pending.note_event(
                "a".into(),
                AddWatchFlags::IN_CLOSE_WRITE,
                start + Duration::from_millis(millis),
            );
        }
        assert_eq!(pending.next_due(), Some(start + AT_MOST));
    }
}
