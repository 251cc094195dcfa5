//! What is printed, and what is written down for `./test` to add up.

use std::{fs::OpenOptions, io::Write, path::Path, time::Duration};

use crate::options::Options;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
    pub(crate) unsteady: usize,
}

impl Counts {
    pub(crate) fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
        self.unsteady += other.unsteady;
    }
}

/// One line for a program that has ended.
pub(crate) fn row(options: &Options, label: &str, counts: Counts, took: Duration) {
    let part =
        |count: usize, what: &str| if count == 0 { String::new() } else { format!("{count} {what}  ") };
    let mark = if counts.failed == 0 { "ok" } else { "FAILED" };
    clear(options);
    println!(
        "  {label:<44} {:5} passed  {}{}{:4}s  {mark}",
        counts.passed,
        part(counts.failed, "failed"),
        part(counts.skipped, "skipped"),
        took.as_secs(),
    );
}

pub(crate) fn line(options: &Options, text: &str) {
    clear(options);
    println!("{text}");
}

/// Where work stands, on a terminal.
pub(crate) fn standing(text: &str) {
    print!("\r{text}\x1b[K");
    flush();
}

fn clear(options: &Options) {
    if options.live {
        print!("\r\x1b[K");
    }
    flush();
}

fn flush() {
    // A closed terminal stops nothing.
    let _ = std::io::stdout().flush();
}

/// `PASSED FAILED SKIPPED UNSTEADY SECONDS`: the seconds went into repetitions, which no budget is for.
pub(crate) fn counts(options: &Options, counts: Counts, repeated: Duration) -> Result<(), String> {
    let Counts { passed, failed, skipped, unsteady } = counts;
    keep(options, "counts", &format!("{passed} {failed} {skipped} {unsteady} {}\n", repeated.as_secs()))
}

/// Appends to a file of `--totals`, which `./test` reads: `counts`, `failures`, `unsteady`, `skipped`, `tests`.
pub(crate) fn keep(options: &Options, file: &str, text: &str) -> Result<(), String> {
    append(&options.totals.join(file), text)
}

fn append(path: &Path, text: &str) -> Result<(), String> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .map_err(|error| format!("cannot write {}: {error}", path.display()))
}
