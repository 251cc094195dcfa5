//! Lock files against advisories: what fails, and what is only worth a warning.
//!
//! An advisory on a package as it is locked fails, if it is a vulnerability or unsoundness without a written exception.
//! Age never fails: a checkout that passes today passes in ten years.

use std::collections::BTreeSet;

use jiff::civil::Date;

use crate::{
    database::{Advisory, Database, Exception, Kind},
    lock::{CRATES_IO, Lock},
};

/// Days after which our list counts as old.
pub const OLD: i32 = 90;

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub errors: Vec<String>,
    pub warnings: Vec<String>,
}

/// `full` are the advisories of a RustSec database, if there is one at hand. `locks` have the names of their files.
pub fn audit(ours: &Database, full: &[Advisory], locks: &[(&str, Lock)], today: Date) -> Report {
    let mut report = Report::default();
    let age = today.since(ours.date).map_or(0, |it| it.get_days());
    if age > OLD {
        report.warnings.push(format!(
            "the list of advisories is of {}, {age} days ago: docs/supply-chain.md says how to renew it",
            ours.date
        ));
    }
    let mut used = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for (file, lock) in locks {
        for locked in lock.packages.iter().filter(|it| it.source.as_deref() == Some(CRATES_IO)) {
            for advisory in full.iter().chain(&ours.advisories) {
                // What both know is said once.
                let key = (*file, &*locked.name, &locked.version, &*advisory.id);
                if advisory.package != locked.name || !advisory.affects(&locked.version) || !seen.insert(key)
                {
                    continue;
                }
                let excepted = |it: &&Exception| it.id == advisory.id && it.package == locked.name;
                if let Some(exception) = ours.exceptions.iter().find(excepted) {
                    used.insert((&*exception.id, &*exception.package));
                    continue;
                }
                let text = format!(
                    "{file}: {} {} has {} ({}): {}; {}",
                    locked.name,
                    locked.version,
                    advisory.id,
                    advisory.kind.name(),
                    advisory.summary,
                    remedy(advisory),
                );
                match advisory.kind {
                    Kind::Vulnerability | Kind::Unsound => report.errors.push(text),
                    Kind::Unmaintained | Kind::Notice => report.warnings.push(text),
                }
            }
        }
    }
    for it in ours.exceptions.iter().filter(|it| !used.contains(&(&*it.id, &*it.package))) {
        let text =
            format!("the exception for {} of {} ({}) is not needed any more", it.id, it.package, it.date);
        report.warnings.push(text);
    }
    report
}

fn remedy(advisory: &Advisory) -> String {
    if advisory.patched.is_empty() {
        return "no version is patched: replace the package, or write an exception".to_owned();
    }
    let ranges: Vec<String> = advisory.patched.iter().map(ToString::to_string).collect();
    format!("patched: {}. Type: cargo update -p {}", ranges.join("; "), advisory.package)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "date = \"2026-10-08\"\n[[advisory]]\nid = \"X-1\"\npackage = \"boat\"\npatched = [\">= 2.1\"]\n\
                        summary = \"It sinks\"\n";
    const EXCEPTION: &str =
        "[[exception]]\nid = \"X-1\"\npackage = \"boat\"\ndate = \"2026-10-09\"\nreason = \"dry\"\n";

    fn lock(version: &str, source: &str) -> Lock {
        let text = format!("[[package]]\nname = \"boat\"\nversion = \"{version}\"\nsource = \"{source}\"\n");
        Lock::parse(&text).expect("a lock file")
    }

    fn judged(list: &str, version: &str, today: &str) -> Report {
        let list = Database::parse(list).expect("a list");
        audit(&list, &[], &[("Cargo.lock", lock(version, CRATES_IO))], today.parse().expect("a day"))
    }

    #[test]
    fn an_affected_version_fails_and_says_what_to_type() {
        let report = judged(LIST, "2.0.9", "2026-10-08");
        let text = "Cargo.lock: boat 2.0.9 has X-1 (vulnerability): It sinks; patched: >=2.1. Type: cargo update -p boat";
        assert_eq!(report, Report { errors: vec![text.to_owned()], warnings: vec![] });
        assert_eq!(judged(LIST, "2.1.0", "2026-10-08"), Report::default());
    }

    #[test]
    fn unsound_packages_fail_and_unmaintained_ones_warn() {
        for (kind, errors, warnings) in [("unsound", 1, 0), ("unmaintained", 0, 1), ("notice", 0, 1)] {
            let report = judged(&format!("{LIST}kind = \"{kind}\"\n"), "2.0.9", "2026-10-08");
            assert_eq!(
                (report.errors.len(), report.warnings.len()),
                (errors, warnings),
                "{kind}: {report:?}"
            );
        }
    }

    #[test]
    fn an_exception_silences_its_advisory_alone_and_is_told_once_it_is_needless() {
        assert_eq!(judged(&format!("{LIST}{EXCEPTION}"), "2.0.9", "2026-10-09"), Report::default());
        for other in [EXCEPTION.replace("X-1", "X-2"), EXCEPTION.replace("boat", "ship")] {
            let report = judged(&format!("{LIST}{other}"), "2.0.9", "2026-10-09");
            assert_eq!((report.errors.len(), report.warnings.len()), (1, 1), "{other}");
        }
        let report = judged(&format!("{LIST}{EXCEPTION}"), "2.1.0", "2026-10-09");
        assert!(report.errors.is_empty() && report.warnings[0].contains("not needed any more"), "{report:?}");
    }

    #[test]
    fn an_old_list_warns_and_never_fails() {
        assert_eq!(judged(LIST, "2.1.0", "2027-01-06"), Report::default());
        for today in ["2027-01-07", "2036-10-08"] {
            let report = judged(LIST, "2.1.0", today);
            assert!(report.errors.is_empty() && report.warnings.len() == 1, "{today}: {report:?}");
        }
        assert!(judged(LIST, "2.1.0", "2027-01-07").warnings[0].contains("91 days ago"));
        // A clock that is behind.
        assert_eq!(judged(LIST, "2.1.0", "2020-01-01"), Report::default());
    }

    #[test]
    fn a_full_database_adds_to_ours_and_what_both_know_is_said_once() {
        let list = Database::parse(LIST).expect("a list");
        let mut full = list.advisories.clone();
        full.push(Advisory { id: "X-2".to_owned(), ..full[0].clone() });
        let locks = [("Cargo.lock", lock("2.0.9", CRATES_IO)), ("fuzz/Cargo.lock", lock("2.0.9", CRATES_IO))];
        let report = audit(&list, &full, &locks, list.date);
        let ids: Vec<&str> = report.errors.iter().filter_map(|it| it.split(' ').nth(4)).collect();
        assert_eq!(ids, ["X-1", "X-2", "X-1", "X-2"], "{report:?}");
    }

    #[test]
    fn a_crate_of_the_checkout_is_no_package_of_the_registry() {
        let list = Database::parse(LIST).expect("a list");
        assert_eq!(audit(&list, &[], &[("Cargo.lock", lock("2.0.9", ""))], list.date), Report::default());
    }
}
