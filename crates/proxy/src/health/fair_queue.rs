//! Checks that are due, and whose turn it is: no namespace makes those of others late, however many members it has, and
//! however long these take to say nothing.
//!
//! ```text
//!   due ──► by namespace, first come first served ──► namespaces in turn, each up to its share of open sockets ──► begun
//! ```
//!
//! Whoever has all members has nearly all sockets. Among several, a namespace has no more than all of them divided by those that
//! check anything at the moment, and one more: so there are some free for one that begins.

use std::collections::{HashMap, VecDeque};

use seaway_model::Name;

/// `T`: one check.
pub(super) struct FairCheckQueue<T> {
    /// Those that have something waiting or open.
    namespaces: HashMap<Name, Checks<T>>,
    /// Those of them that have something waiting; who is first is next.
    turns: VecDeque<Name>,
    open: usize,
    most_open: usize,
}

struct Checks<T> {
    due: VecDeque<T>,
    open: usize,
}

impl<T> FairCheckQueue<T> {
    pub(super) fn new(most_open: usize) -> FairCheckQueue<T> {
        FairCheckQueue {
            namespaces: HashMap::new(),
            turns: VecDeque::new(),
            open: 0,
            most_open: most_open.max(1),
        }
    }

    pub(super) fn push(&mut self, namespace: &Name, check: T) {
        let checks = self.namespaces.entry(namespace.clone());
        let checks = checks.or_insert_with(|| Checks { due: VecDeque::new(), open: 0 });
        if checks.due.is_empty() {
            self.turns.push_back(namespace.clone());
        }
        checks.due.push_back(check);
    }

    /// The next that may begin, and whose it is; its end is told by [`FairCheckQueue::ended`]. `several`: more than one namespace has
    /// members, whether or not they are checked at the moment.
    pub(super) fn next(&mut self, several: bool) -> Option<(Name, T)> {
        if self.open >= self.most_open {
            return None;
        }
        let share = match several {
            true => {
                self.most_open.checked_div(self.namespaces.len().saturating_add(1)).unwrap_or_default().max(1)
            }
            // Some other may come while all of these last.
            false => self.most_open.saturating_sub(self.most_open / 8),
        };
        let namespaces = &self.namespaces;
        let may = |it: &Name| namespaces.get(it).is_some_and(|checks| checks.open < share);
        let turn = self.turns.iter().position(may)?;
        let name = self.turns.remove(turn)?;
        let checks = self.namespaces.get_mut(&name)?;
        let check = checks.due.pop_front()?;
        checks.open = checks.open.saturating_add(1);
        self.open = self.open.saturating_add(1);
        if !checks.due.is_empty() {
            self.turns.push_back(name.clone());
        }
        Some((name, check))
    }

    pub(super) fn ended(&mut self, namespace: &Name) {
        let Some(checks) = self.namespaces.get_mut(namespace) else { return };
        checks.open = checks.open.saturating_sub(1);
        self.open = self.open.saturating_sub(1);
        if checks.open == 0 && checks.due.is_empty() {
            self.namespaces.remove(namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// What a check does: when it is due again after it ended, and how long it takes.
    #[derive(Clone, Copy)]
    struct Kind {
        interval: u64,
        takes: u64,
    }

    /// So many members by namespace, checked for a minute of a clock that is moved. Returns, by namespace, how late the latest
    /// check began, in milliseconds, and how many there were.
    fn late(most_open: usize, members: &[(&str, usize, Kind)]) -> BTreeMap<String, (u64, usize)> {
        let (mut waiting, mut late) =
            (FairCheckQueue::new(most_open), BTreeMap::<String, (u64, usize)>::new());
        let mut due: BTreeMap<u64, Vec<(Name, Kind)>> = BTreeMap::new();
        let mut ends: BTreeMap<u64, Vec<(Name, Kind)>> = BTreeMap::new();
        for (namespace, count, kind) in members {
            for member in 0..*count as u64 {
                due.entry(member % kind.interval).or_default().push((Name::from(*namespace), *kind));
            }
        }
        for now in 0..60_000 {
            for (namespace, kind) in ends.remove(&now).unwrap_or_default() {
                waiting.ended(&namespace);
                due.entry(now + kind.interval).or_default().push((namespace, kind));
            }
            for (namespace, kind) in due.remove(&now).unwrap_or_default() {
                waiting.push(&namespace, (now, kind));
            }
            while let Some((namespace, (since, kind))) = waiting.next(members.len() > 1) {
                let (latest, count) = late.entry(namespace.to_string()).or_default();
                (*latest, *count) = ((*latest).max(now - since), *count + 1);
                ends.entry(now + kind.takes).or_default().push((namespace, kind));
            }
        }
        late
    }

    const SECOND: Kind = Kind { interval: 1_000, takes: 2 };

    #[test]
    fn thousands_of_members_that_say_nothing_make_no_other_check_late() {
        let silent = Kind { interval: 1_000, takes: 30_000 };
        let late = late(512, &[("flood", 5_000, silent), ("shop", 200, SECOND), ("cart", 1, SECOND)]);
        assert!(late["flood"].0 > 10_000, "it waits for itself");
        assert_eq!((late["shop"].0, late["cart"].0), (0, 0));
        assert!(late["shop"].1 >= 200 * 59);
    }

    #[test]
    fn several_that_flood_leave_sockets_for_one_that_begins() {
        let silent = Kind { interval: 1_000, takes: 30_000 };
        let all = [("a", 5_000, silent), ("b", 5_000, silent), ("c", 5_000, silent), ("shop", 20, SECOND)];
        assert_eq!(late(512, &all)["shop"].0, 0);
    }

    #[test]
    fn who_is_alone_has_nearly_all_sockets() {
        let slow = Kind { interval: 1_000, takes: 1_000 };
        assert_eq!(late(512, &[("shop", 448, slow)])["shop"].0, 0);
    }

    #[test]
    fn namespaces_take_turns_however_much_one_has() {
        let mut waiting = FairCheckQueue::new(100);
        (0..50).for_each(|it| waiting.push(&"flood".into(), it));
        (50..53).for_each(|it| waiting.push(&"shop".into(), it));
        let begun: Vec<i32> = std::iter::from_fn(|| waiting.next(true)).map(|(_, it)| it).take(8).collect();
        assert_eq!(begun, [0, 50, 1, 51, 2, 52, 3, 4]);
    }

    #[test]
    fn nothing_is_kept_of_whoever_has_nothing_waiting() {
        let mut waiting = FairCheckQueue::new(1);
        waiting.push(&"shop".into(), 1);
        waiting.push(&"shop".into(), 2);
        assert_eq!((waiting.next(true), waiting.next(true)), (Some(("shop".into(), 1)), None));
        waiting.ended(&"shop".into());
        assert_eq!(waiting.next(true), Some(("shop".into(), 2)));
        waiting.ended(&"shop".into());
        assert!(waiting.namespaces.is_empty() && waiting.turns.is_empty() && waiting.open == 0);
    }
}
