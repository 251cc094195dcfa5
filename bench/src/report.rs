//! What was measured, as a table for people and as JSON for programs.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::case::{Bench, Case, Metric, Target};
use crate::contender::Contender;
use crate::rounds::{Measured, Plan};
use crate::statistics::{Ratio, median, paired_ratio};

#[derive(Clone, Debug, serde::Serialize)]
pub struct Report {
    versions: Vec<(Contender, String)>,
    machine: Vec<String>,
    remarks: Vec<String>,
    measured: Vec<Measured>,
    verdicts: Vec<Verdict>,
}

/// One target and what came of it.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
struct Verdict {
    what: String,
    target: Target,
    ours: Option<f64>,
    theirs: Option<f64>,
    ratio: Option<Ratio>,
    outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
    /// The whole interval is at or below the target.
    Met,
    /// The interval reaches the target, but ends above it.
    Reached,
    Missed,
    /// A round had errors: its cost says nothing.
    Failed,
    NotMeasured,
}

impl Report {
    pub fn new(
        bench: &Bench,
        plan: &Plan,
        versions: Vec<(Contender, String)>,
        measured: Vec<Measured>,
    ) -> Result<Self> {
        let verdicts =
            measured.iter().flat_map(|case| case.case.targets().into_iter().map(|t| verdict(case, t)));
        Ok(Self {
            versions,
            machine: machine()?,
            remarks: remarks(bench, plan),
            verdicts: verdicts.collect(),
            measured,
        })
    }

    pub fn is_good(&self) -> bool {
        let errors =
            self.measured.iter().flat_map(|case| case.rounds.values().flatten()).any(|s| s.errors > 0);
        let missed = self.verdicts.iter().any(|v| matches!(v.outcome, Outcome::Missed | Outcome::Failed));
        !errors && !missed
    }

    pub fn json(&self) -> Result<String> {
        serde_json::to_string_pretty(self).context("a report is always JSON")
    }

    pub fn markdown(&self) -> String {
        let mut text = String::new();
        let mut versions: Vec<&str> = self.versions.iter().map(|(_, version)| version.as_str()).collect();
        // One program in several roles is one program.
        versions.sort_unstable_by_key(|version| self.versions.iter().position(|(_, it)| it == version));
        versions.dedup();
        add(&mut text, &format!("{}. {}.", versions.join(", "), self.machine.join(", ")));
        for remark in &self.remarks {
            add(&mut text, &format!("**{remark}**"));
        }
        add(&mut text, "\n| case | figure | Seaway | peer | target | ratio (95 % interval) | |");
        add(&mut text, "|---|---|--:|--:|--:|--:|---|");
        for verdict in &self.verdicts {
            add(&mut text, &verdict.row());
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

fn verdict(case: &Measured, target: Target) -> Verdict {
    let figures = |contender: Contender| -> Vec<Option<f64>> {
        let rounds = case.rounds.get(&contender).map(Vec::as_slice).unwrap_or_default();
        rounds
            .iter()
            .map(|sample| sample.figures.get(&target.metric).copied().filter(|_| sample.errors == 0))
            .collect()
    };
    let ours = figures(Contender::Seaway);
    let theirs = target.against.map(figures).unwrap_or_default();
    let pairs: Vec<(f64, f64)> = ours.iter().zip(&theirs).filter_map(|(a, b)| Some(((*a)?, (*b)?))).collect();
    let ratio = paired_ratio(&pairs);
    let failed = ours.iter().chain(&theirs).any(Option::is_none);
    let middle = |figures: &[Option<f64>]| median(&figures.iter().flatten().copied().collect::<Vec<f64>>());
    let reached = match target.against {
        Some(_) => ratio.map(|ratio| (ratio.low, ratio.high)),
        None => middle(&ours).map(|ours| (ours, ours)),
    };
    let outcome = match reached {
        _ if ours.is_empty() => Outcome::NotMeasured,
        _ if failed => Outcome::Failed,
        None => Outcome::NotMeasured,
        Some((_, high)) if high <= target.at_most => Outcome::Met,
        Some((low, _)) if low <= target.at_most => Outcome::Reached,
        Some(_) => Outcome::Missed,
    };
    Verdict {
        what: case.case.to_string(),
        target,
        ours: middle(&ours),
        theirs: middle(&theirs),
        ratio,
        outcome,
    }
}

/// Figures beside those of an earlier binary in the same rounds: worse only where the whole interval is.
fn against_earlier(case: &Measured) -> Vec<String> {
    const LESS_IS_BETTER: [Metric; 5] = [
        Metric::BusyPerRequest,
        Metric::TaskPerRequest,
        Metric::LatencyHalf,
        Metric::LatencyP99,
        Metric::MemoryPerConnection,
    ];
    let row = |metric: Metric| {
        let target = Target { metric, against: Some(Contender::SeawayBefore), at_most: 1.0 };
        let Verdict { ours, theirs, ratio, outcome, .. } = verdict(case, target);
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

impl Verdict {
    fn row(&self) -> String {
        let figure = |figure: Option<f64>| figure.map_or_else(|| "–".to_owned(), rounded);
        let peer = match self.target.against {
            Some(peer) => format!("{} {peer}", figure(self.theirs)),
            None => String::new(),
        };
        let target = match self.target.against {
            Some(peer) => format!("≤ {} × {peer}", self.target.at_most),
            None => format!("≤ {}", self.target.at_most),
        };
        let ratio = self.ratio.map_or_else(String::new, |Ratio { median, low, high }| {
            format!("{median:.3} ({low:.3} to {high:.3})")
        });
        let outcome = match self.outcome {
            Outcome::Met => "met",
            Outcome::Reached => "met: the interval reaches it",
            Outcome::Missed => "**not met**",
            Outcome::Failed => "**failed**",
            Outcome::NotMeasured => "not measured",
        };
        let label = self.target.metric.label();
        format!(
            "| {} | {label} | {} | {peer} | {target} | {ratio} | {outcome} |",
            self.what,
            figure(self.ours)
        )
    }
}

fn add(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

/// Medians of everything that one case measured, a line for each contender.
fn details(case: &Measured) -> String {
    let mut text = format!("\n**{}**: {}", case.case, case.what);
    if let Some(rate) = case.rate {
        let _infallible = write!(text, ", {rate:.0} requests/s for all");
    }
    if let Some(from) = &case.rate_from {
        let _infallible = write!(text, " ({from})");
    }
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
            let values: Vec<f64> =
                rounds.iter().filter_map(|sample| sample.figures.get(metric).copied()).collect();
            let _infallible = write!(text, " {} |", median(&values).map_or_else(|| "–".to_owned(), rounded));
        }
        let errors: u64 = rounds.iter().map(|sample| sample.errors).sum();
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

/// Three figures that count, and no decimals where they would not.
fn rounded(figure: f64) -> String {
    match figure.abs() {
        large if large >= 100.0 => format!("{figure:.0}"),
        middle if middle >= 10.0 => format!("{figure:.1}"),
        small if small >= 1.0 => format!("{figure:.2}"),
        _ => format!("{figure:.3}"),
    }
}

pub fn machine() -> Result<Vec<String>> {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").context("kernel version")?;
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    // The part after the version names a build of somebody's kernel, which tells nobody anything.
    let kernel = kernel.trim().split('-').next().unwrap_or_default().to_owned();
    Ok(vec![format!("Linux {kernel}"), model.map_or("unknown processor", |(_, model)| model).to_owned()])
}

fn remarks(bench: &Bench, plan: &Plan) -> Vec<String> {
    let mut remarks = vec![];
    if plan.rounds < 5 {
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
    use std::collections::BTreeMap;

    use super::*;
    use crate::case::Sample;

    fn measured(case: Case, metric: Metric, figures: &[(Contender, &[f64])]) -> Measured {
        let sample = |figure: &f64| Sample { figures: [(metric, *figure)].into(), ..Sample::default() };
        let rounds: BTreeMap<_, _> = figures
            .iter()
            .map(|(contender, values)| (*contender, values.iter().map(sample).collect()))
            .collect();
        Measured { case, what: "a case".into(), rate: Some(1_000.0), rate_from: None, rounds }
    }

    fn udp(ours: &[f64], theirs: &[f64]) -> Measured {
        let figures = [(Contender::Seaway, ours), (Contender::Nginx, theirs)];
        measured(Case::Udp, Metric::BusyPerRequest, &figures)
    }

    fn outcome(case: &Measured) -> Outcome {
        verdict(case, case.case.targets()[0]).outcome
    }

    #[test]
    fn a_target_is_met_when_the_interval_of_the_paired_ratios_reaches_it() {
        assert_eq!(outcome(&udp(&[6.0, 6.1, 6.0], &[10.0, 10.0, 10.0])), Outcome::Met);
        assert_eq!(outcome(&udp(&[6.5, 7.6, 7.0], &[10.0, 10.0, 10.0])), Outcome::Reached);
        assert_eq!(outcome(&udp(&[9.0, 9.1, 9.0], &[10.0, 10.0, 10.0])), Outcome::Missed);
        assert_eq!(outcome(&udp(&[], &[10.0])), Outcome::NotMeasured);
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
    fn a_round_with_errors_is_a_failure_whatever_it_cost() {
        let mut case = udp(&[1.0, 1.0, 1.0], &[10.0, 10.0, 10.0]);
        case.rounds.get_mut(&Contender::Seaway).unwrap()[1].errors = 1;
        assert_eq!(outcome(&case), Outcome::Failed);
    }

    #[test]
    fn an_absolute_target_compares_the_median() {
        let case = |values: &[f64]| measured(Case::Idle, Metric::UntilReady, &[(Contender::Seaway, values)]);
        assert_eq!(outcome(&case(&[100.0, 150.0, 900.0])), Outcome::Met);
        assert_eq!(outcome(&case(&[100.0, 250.0, 900.0])), Outcome::Missed);
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

    #[test]
    fn figures_keep_what_counts() {
        assert_eq!(
            ["12346", "12.3", "1.23", "0.012"],
            [12345.6, 12.345, 1.2345, 0.0123].map(rounded).each_ref().map(String::as_str)
        );
    }
}
