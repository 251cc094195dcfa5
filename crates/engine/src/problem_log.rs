//! Problems in the log: each once when it comes and once when it goes.
//!
//! A source reports what it could not read, and the status of the Service names the same Problem: whoever is first has it
//! logged, and it is over when nobody names it any more.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use seaway_model::Problem;
use tracing::{info, warn};

/// One of these is shared by all who log Problems.
#[derive(Clone, Debug, Default)]
pub struct ProblemLog(Arc<Mutex<BTreeMap<Problem, usize>>>);

impl ProblemLog {
    /// A reporter names a Problem.
    fn came(&self, problem: &Problem) {
        let mut named = self.named();
        let count = named.entry(anywhere(problem)).or_default();
        *count = count.saturating_add(1);
        if *count == 1 {
            warn!(target: "seaway", reason = %problem.reason, "{}", problem.line());
        }
    }

    /// One of its reporters names it no more.
    fn went(&self, problem: &Problem) {
        let (mut named, key) = (self.named(), anywhere(problem));
        let Some(count) = named.get_mut(&key) else { return };
        *count = count.saturating_sub(1);
        if *count == 0 {
            named.remove(&key);
            info!(target: "seaway", reason = %problem.reason, "problem solved: {problem}");
        }
    }

    /// Logs the Problems that came and those that went, of one reporter.
    pub fn log_changes(&self, before: &[Problem], now: &[Problem]) {
        self.log_changes_located(before, now, now);
    }

    /// The same, where the new ones are printed with their places: as many as `now`, in the same order.
    pub fn log_changes_located(&self, before: &[Problem], now: &[Problem], printed: &[Problem]) {
        each_once(now, before).filter_map(|at| printed.get(at)).for_each(|it| self.came(it));
        each_once(before, now).filter_map(|at| before.get(at)).for_each(|it| self.went(it));
    }

    fn named(&self) -> MutexGuard<'_, BTreeMap<Problem, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Those that the other list lacks. A reporter may name a Problem twice, and is one reporter of it nevertheless.
fn each_once<'p>(of: &'p [Problem], others: &'p [Problem]) -> impl Iterator<Item = usize> + 'p {
    of.iter()
        .enumerate()
        .filter(|(at, it)| !others.contains(it) && !of.iter().take(*at).any(|before| before == *it))
        .map(|(at, _)| at)
}

/// A line that is inserted above makes it no other Problem.
fn anywhere(problem: &Problem) -> Problem {
    Problem { place: None, ..problem.clone() }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use seaway_model::{Kind, ObjectRef, Reason};

    use super::*;

    fn count(log: &ProblemLog) -> Vec<usize> {
        log.named().values().copied().collect()
    }

    #[test]
    fn two_who_name_the_same_problem_are_one_until_both_are_done() {
        let log = ProblemLog::default();
        let shop = ObjectRef::new(Kind::Service, "default", "shop");
        let (raw, other) =
            (Problem::new(shop.clone(), Reason::Invalid, "x"), Problem::new(shop, Reason::Invalid, "y"));
        let placed = raw.clone().in_file("shop.yaml", 3, 1);
        log.came(&placed);
        log.log_changes(&[], &[raw.clone(), other.clone()]);
        assert_eq!(count(&log), [2, 1]);
        log.went(&placed);
        log.log_changes(&[raw.clone(), other.clone()], slice::from_ref(&raw));
        assert_eq!(count(&log), [1]);
        // Named twice by one, and then once: it is over with that one.
        log.log_changes(&[], &[other.clone(), other.clone()]);
        log.log_changes(&[other.clone(), other.clone()], slice::from_ref(&other));
        log.log_changes(slice::from_ref(&other), &[]);
        assert_eq!(count(&log), [1]);
        // What was never named cannot go.
        log.went(&other);
        log.log_changes(&[raw], &[]);
        assert_eq!(count(&log), [0; 0]);
    }
}
