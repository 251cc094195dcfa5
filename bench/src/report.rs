//! What was measured, as a table for people and as JSON for programs.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::case::{Bench, Case, Effort, Sample};
use crate::contender::Contender;
use crate::metric::Metric;
use crate::rounds::{Measured, Plan};
use crate::statistics::{Ratio, median};
use crate::target::Target;
use crate::tree;
use crate::verdict::{self, Outcome, ROUNDS, Verdict, rounded};

#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    /// How the run was started.
    command: String,
    versions: Vec<(Contender, String)>,
    remarks: Vec<String>,
    /// Of a record: cases that it does not have yet.
    pub missing: Vec<Case>,
    measured: Vec<Measured>,
    verdicts: Vec<Verdict>,
}

impl Report {
    pub fn new(
        bench: &Bench,
        plan: &Plan,
        versions: Vec<(Contender, String)>,
        measured: Vec<Measured>,
    ) -> Result<Self> {
        let verdicts = measured
            .iter()
            .flat_map(|case| case.case.targets().into_iter().map(|target| Verdict::of(case, target)));
        Ok(Self {
            command: format!("bench/run {}", words(std::env::args().skip(1))),
            versions,
            verdicts: verdicts.collect(),
            remarks: remarks(bench, plan),
            missing: vec![],
            measured,
        })
    }

    /// Whether no round of these cases had a wrong answer, or an error that nothing disturbed.
    pub fn is_sound(&self, cases: &[Case]) -> bool {
        let measured = self.measured.iter().filter(|it| cases.contains(&it.case));
        let mut samples = measured.flat_map(|case| case.rounds.values().flatten());
        samples.all(|it| it.wrong == 0 && (it.errors == 0 || it.noise.is_some()))
    }

    /// Whether all targets are met, and none is undecided.
    pub fn is_good(&self) -> bool {
        self.missing.is_empty() && self.verdicts.iter().all(|it| it.outcome == Outcome::Met)
    }

    pub fn json(&self) -> Result<String> {
        serde_json::to_string_pretty(self).context("a report is always JSON")
    }

    pub fn markdown(&self) -> String {
        let mut text = String::new();
        verdict::first_lines(&self.verdicts).iter().for_each(|line| add(&mut text, line));
        if !self.missing.is_empty() {
            let missing: Vec<String> = self.missing.iter().map(Case::to_string).collect();
            add(&mut text, &format!("**Not measured yet: {}.**", missing.join(", ")));
        }
        add(&mut text, &format!("`{}`", self.command));
        for remark in &self.remarks {
            add(&mut text, &format!("**{remark}**"));
        }
        add(
            &mut text,
            "\n| case | figure | Seaway | peer | target | ratio (95 % interval) | | measured before |",
        );
        add(&mut text, "|---|---|--:|--:|--:|--:|---|--:|");
        for case in &self.measured {
            for target in case.case.targets() {
                add(&mut text, &Verdict::of(case, target).row_beside(case.before.as_deref()));
            }
        }
        let earlier: Vec<String> = self.measured.iter().flat_map(against_earlier).collect();
        if !earlier.is_empty() {
            add(&mut text, "\n| case | figure | Seaway | Seaway before | ratio (95 % interval) | |");
            add(&mut text, "|---|---|--:|--:|--:|---|");
            earlier.iter().for_each(|row| add(&mut text, row));
        }
        for case in &self.measured {
            add(&mut text, &details(case));
        }
        text
    }

    /// Replaces what stands between the markers of the file; the words around them stay.
    pub fn write_into(&self, path: &Path) -> Result<()> {
        write_between_markers(path, "Performance", &self.markdown())
    }
}

/// The same for any tables; a file that is not there yet gets this title.
pub fn write_between_markers(path: &Path, title: &str, tables: &str) -> Result<()> {
    let old = fs::read_to_string(path).unwrap_or_default();
    fs::write(path, between_markers(&old, title, tables)).with_context(|| path.display().to_string())
}

const BEGIN: &str = "<!-- begin: written by bench/run --out -->";
const END: &str = "<!-- end: written by bench/run --out -->";

fn between_markers(old: &str, title: &str, tables: &str) -> String {
    let block = format!("{BEGIN}\n{tables}{END}");
    match replaced(old, BEGIN, END, tables) {
        Some(new) => new,
        None if old.is_empty() => format!("# {title}\n\n{block}\n"),
        None => format!("{}\n\n{block}\n", old.trim_end()),
    }
}

/// A page with other words between its two markers; nothing if it has none.
pub fn replaced(old: &str, begin: &str, end: &str, words: &str) -> Option<String> {
    let (before, rest) = old.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    Some(format!("{before}{begin}\n{words}{end}{after}"))
}

/// Figures beside those of an earlier binary in the same rounds: worse only where the whole interval is.
fn against_earlier(case: &Measured) -> Vec<String> {
    const LESS_IS_BETTER: [Metric; 6] = [
        Metric::BusyPerRequest,
        Metric::TaskPerRequest,
        Metric::LatencyHalf,
        Metric::LatencyP99,
        Metric::LatencyP999,
        Metric::MemoryPerConnection,
    ];
    let row = |metric: Metric| {
        let target = Target::beside(metric, Contender::SeawayBefore, 1.0);
        let Verdict { ours, theirs, ratio, outcome, .. } = Verdict::of(case, target);
        let Ratio { median, low, high } = ratio?;
        let words = match outcome {
            Outcome::Failed => "**failed**",
            _ if case.rounds.values().any(|rounds| rounds.len() < 2) => "one round",
            _ if low > 1.0 => "**worse**",
            _ if high < 1.0 => "better",
            _ => "no difference",
        };
        Some(format!(
            "| {} | {} | {} | {} | {median:.3} ({low:.3} to {high:.3}) | {words} |",
            case.case,
            metric.label(),
            rounded(ours?),
            rounded(theirs?)
        ))
    };
    LESS_IS_BETTER.into_iter().filter_map(row).collect()
}

fn add(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// Medians of everything that one case measured, a line for each contender.
fn details(case: &Measured) -> String {
    let mut text = format!("\n**{0}** (`bench/run {0}`): {1}", case.case, case.what);
    let of = format!(
        "{}; {} UTC, {}, by the bench of {}",
        case.versions.join(", "),
        case.at,
        case.machine.join(", "),
        case.bench
    );
    if let Some(rate) = case.rate {
        let _infallible = write!(text, ", {rate:.0} requests/s for all");
    }
    if let Some(from) = &case.rate_from {
        let _infallible = write!(text, " ({from})");
    }
    let _infallible = write!(text, ". Of {of}");
    let metrics: Vec<Metric> = case
        .rounds
        .values()
        .find_map(|rounds| rounds.iter().find(|sample| !sample.figures.is_empty()))
        .map(|sample| sample.figures.keys().copied().collect())
        .unwrap_or_default();
    let heads: String = metrics.iter().map(|metric| format!(" {} |", metric.label())).collect();
    let _infallible =
        write!(text, "\n\n| |{heads} errors | rounds |\n|---|{}--:|--:|", "--:|".repeat(metrics.len()));
    for (contender, rounds) in &case.rounds {
        let _infallible = write!(text, "\n| {contender} |");
        for metric in &metrics {
            let is_quiet = |it: &&Sample| it.noise.is_none();
            let some = rounds.iter().any(|it| is_quiet(&it));
            let chosen = rounds.iter().filter(|it| !some || is_quiet(it));
            let values: Vec<f64> = chosen.filter_map(|it| it.figures.get(metric).copied()).collect();
            let _infallible = write!(text, " {} |", median(&values).map_or_else(|| "–".to_owned(), rounded));
        }
        let errors: u64 = rounds.iter().map(|it| if it.noise.is_none() { it.errors } else { it.wrong }).sum();
        let noisy = rounds.iter().filter(|sample| sample.noise.is_some()).count();
        let noisy = if noisy > 0 { format!(", {noisy} noisy") } else { String::new() };
        let _infallible = write!(text, " {errors} | {}{noisy} |", rounds.len());
        if let Some(words) = rounds.iter().flat_map(|sample| &sample.complaints).next() {
            let words = words.replace('\n', " ").replace('|', "/");
            let _infallible = write!(text, "\n| | {words} |");
        }
    }
    text
}

pub fn machine() -> Result<Vec<String>> {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").context("kernel version")?;
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    // The part after the version names a build of somebody's kernel, which tells nobody anything.
    let kernel = kernel.trim().split('-').next().unwrap_or_default().to_owned();
    Ok(vec![format!("Linux {kernel}"), model.map_or("unknown processor", |(_, model)| model).to_owned()])
}

/// Arguments as a shell takes them, without the paths of the machine: where the binary is, and what is written.
fn words(arguments: impl Iterator<Item = String>) -> String {
    const OF_THE_MACHINE: [&str; 8] =
        ["--seaway", "--before", "--keep", "--rig", "--peers", "--json", "--record", "--out"];
    let mut kept = vec![];
    let mut skip = false;
    for argument in arguments {
        let name = argument.split('=').next().unwrap_or_default();
        let is_path = OF_THE_MACHINE.contains(&name);
        if !is_path && !std::mem::take(&mut skip) {
            kept.push(argument);
        } else {
            skip = is_path && !argument.contains('=');
        }
    }
    kept.join(" ")
}

pub fn time() -> Result<String> {
    let output =
        std::process::Command::new("date").args(["-u", "+%Y-%m-%d %H:%M"]).output().context("date")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// What of a whole run is not as the cases state it: then nothing that it measured is met.
pub fn lacks(bench: &Bench) -> Vec<String> {
    let (stated, effort) = (Effort::FULL, bench.effort);
    let mut lacks = vec![];
    let rate = (effort.rate_scale - stated.rate_scale).abs() > f64::EPSILON;
    if rate || effort.seconds < stated.seconds || effort.services < stated.services {
        lacks.push("not the stated load".to_owned());
    }
    if !bench.own_network {
        lacks.push("in the host's network".to_owned());
    }
    let ours = bench.versions.iter().find(|it| it.0 == Contender::Seaway);
    lacks.extend(ours.and_then(|it| tree::lacks(&it.1)));
    lacks
}

fn remarks(bench: &Bench, plan: &Plan) -> Vec<String> {
    let mut remarks = vec![];
    if plan.rounds < ROUNDS {
        remarks.push(format!("{} rounds: too few for a result.", plan.rounds));
    }
    if bench.effort.is_a_trial() {
        remarks.push("Short rounds at reduced rates: these figures are no measurement.".to_owned());
    }
    if !bench.own_network {
        remarks.push("Measured in the host's network, with its rules and neighbours.".to_owned());
    }
    let idle = crate::case::held::connections(bench, Case::IdleConnections);
    if idle < crate::case::held::WANTED && bench.effort.seconds >= 1.0 {
        let limit = bench.open_files;
        remarks
            .push(format!("{idle} instead of 10,000 idle connections: the limit of open files is {limit}."));
    }
    remarks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::tests::measured;

    #[test]
    fn a_command_is_kept_without_the_paths_of_the_machine() {
        let said = |it: &str| words(it.split(' ').map(str::to_owned));
        assert_eq!(said("--seaway /a/b udp grpc --rounds 5 --out x.md"), "udp grpc --rounds 5");
        assert_eq!(said("--json=x udp --before /c"), "udp");
    }

    #[test]
    fn an_earlier_binary_is_better_only_if_the_whole_interval_says_so() {
        let case = |ours: &[f64], before: &[f64]| {
            let figures = [(Contender::Seaway, ours), (Contender::SeawayBefore, before)];
            against_earlier(&measured(Case::Grpc, Metric::BusyPerRequest, &figures)).concat()
        };
        assert!(case(&[6.0, 6.1, 6.0], &[5.0, 5.0, 5.1]).contains("**worse**"));
        assert!(case(&[6.0, 6.6, 5.5], &[6.0, 6.0, 6.1]).contains("no difference"));
        assert!(case(&[5.0, 5.1, 5.0], &[6.0, 6.0, 6.1]).contains("| better"));
        assert_eq!(case(&[5.0], &[]), "");
    }

    #[test]
    fn tables_replace_the_old_ones_and_leave_the_words_around_them() {
        let first = between_markers("", "Performance", "one\n");
        assert!(first.starts_with("# Performance\n"));
        let worded = first.replace("# Performance", "# Speed\n\nWords.") + "After.\n";
        let second = between_markers(&worded, "", "two\n");
        assert!(second.contains("Words.") && second.contains("two") && second.ends_with("After.\n"));
        assert!(!second.contains("one"));
        assert!(between_markers("No markers.\n", "", "three\n").starts_with("No markers.\n\n<!--"));
    }
}
