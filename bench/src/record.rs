//! All figures that were kept: of each case what was measured last, and what was measured before it.
//!
//! A whole run takes longer than a machine stays quiet. So cases are measured some at a time, each says of which commit it
//! is and when it was measured, and the tables are of all of them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::case::Case;
use crate::rounds::Measured;

/// What the file holds; nothing, if it is not there yet.
pub fn read(path: &Path) -> Result<Vec<Measured>> {
    let text = match fs::read_to_string(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(vec![]),
        text => text.with_context(|| path.display().to_string())?,
    };
    let mut cases = vec![];
    for (at, line) in text.lines().enumerate() {
        let case = serde_json::from_str(line);
        cases.push(case.with_context(|| {
            format!("{}, line {}: not written by `bench/run --record`", path.display(), at + 1)
        })?);
    }
    Ok(cases)
}

/// A line for each case, so that a diff shows which were measured.
pub fn write(path: &Path, cases: &[Measured]) -> Result<()> {
    let mut text = String::new();
    for case in cases {
        text += &serde_json::to_string(case).context("a case is always JSON")?;
        text.push('\n');
    }
    // Hours of measuring are not lost to a run that is killed while it writes.
    let new = path.with_extension("new");
    fs::write(&new, text).and_then(|()| fs::rename(&new, path)).with_context(|| path.display().to_string())
}

/// What was measured now takes the place of what was measured before, which stays beside it.
pub fn add(cases: &mut Vec<Measured>, mut new: Measured) {
    let old = cases.iter().position(|it| it.case == new.case).map(|at| cases.remove(at));
    new.before = old.map(|old| Box::new(Measured { before: None, ..old }));
    let at = cases.partition_point(|it| it.case < new.case);
    cases.insert(at, new);
}

/// So many cases: first those that were never measured, then those whose figures are oldest.
pub fn oldest(cases: &[Measured], all: &[Case], count: usize) -> Vec<Case> {
    let since = |case: &Case| cases.iter().find(|it| it.case == *case).map(|it| it.at.as_str());
    let mut chosen = all.to_vec();
    chosen.sort_by_key(since);
    chosen.truncate(count);
    chosen.sort_unstable();
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Metric;
    use crate::verdict::tests::measured;

    fn of(case: Case, at: &str) -> Measured {
        Measured { at: at.to_owned(), ..measured(case, Metric::BusyPerRequest, &[]) }
    }

    fn times(cases: &[Measured]) -> Vec<(Case, &str, Option<&str>)> {
        cases.iter().map(|it| (it.case, &*it.at, it.before.as_ref().map(|it| &*it.at))).collect()
    }

    #[test]
    fn a_case_keeps_what_was_measured_last_and_before_it() {
        let mut cases = vec![];
        for (case, at) in [(Case::Udp, "1"), (Case::Grpc, "2"), (Case::Udp, "3"), (Case::Udp, "4")] {
            add(&mut cases, of(case, at));
        }
        assert_eq!(times(&cases), [(Case::Udp, "4", Some("3")), (Case::Grpc, "2", None)]);
    }

    #[test]
    fn cases_without_figures_are_the_oldest() {
        let cases = [of(Case::Udp, "3"), of(Case::Http2, "1"), of(Case::Grpc, "2")];
        let all = [Case::Udp, Case::Idle, Case::Http2, Case::Grpc];
        assert_eq!(oldest(&cases, &all, 2), [Case::Idle, Case::Http2]);
        assert_eq!(oldest(&cases, &all, 9).len(), 4);
    }

    #[test]
    fn what_is_written_is_read_again_and_a_bad_line_is_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("record");
        assert!(read(&path).expect("none is no error").is_empty());
        let mut cases = vec![];
        for at in ["1", "2"] {
            add(&mut cases, of(Case::Udp, at));
        }
        write(&path, &cases).expect("it is written");
        assert_eq!(times(&read(&path).expect("it is read")), times(&cases));
        fs::write(&path, "{}\n").expect("it is written");
        assert!(format!("{:#}", read(&path).expect_err("not a case")).contains("line 1"));
    }
}
