//! What came of all attacks, as tables, and where Seaway misses its targets.

use std::fmt::{self, Write as _};

use anyhow::{Context, Result};

use super::catalogue::{Attack, SharedMember};
use super::desync;
use super::honest::RequestStats;
use super::loops::{self, kind};
use super::ports::Loop;
use super::round::{Outcome, Pair};
use super::{HOSTILE, TRIES};
use crate::contender::Contender;
use crate::report::machine;
use crate::statistics::median;
use crate::verdict::ROUNDS;

const MIB: f64 = (1 << 20) as f64;

/// What issue 27 asks for.
const SHARED_RATE: f64 = 90.0;
const SHARED_P99: f64 = 3.0;
const OTHER_RATE: f64 = 97.0;
/// What issue 16 asks for, of one tenant beside another that floods.
const FLOOD_RATE: f64 = 90.0;
const FLOOD_P99: f64 = 2.0;
const MEMORY: f64 = 1.5;
const DESCRIPTORS: u64 = 64;
const FAILED: &str = "failed";
/// A generator that is busier than this may be what slows honest clients down, and so may be a machine on which they
/// wait for a core longer than this.
const GENERATOR: f64 = 80.0;
const QUEUED: f64 = 10.0;
const FOREIGN: f64 = 30.0;

#[derive(Default, serde::Serialize)]
pub struct Table {
    /// Rounds that could not be measured at all.
    errors: usize,
    versions: Vec<String>,
    machine: Vec<String>,
    rounds: usize,
    /// What the whole run lacks: then nothing is met, and nothing missed.
    lacks: Vec<String>,
    attacks: Vec<Row>,
    loops: Vec<(String, Contender, loops::Outcome)>,
    desync: Vec<(&'static str, Contender, desync::Outcome)>,
}

#[derive(serde::Serialize)]
struct Row {
    attack: &'static str,
    what: &'static str,
    /// The attack has honest clients at the same member.
    shares: bool,
    floods: bool,
    contender: Contender,
    outcomes: Vec<Outcome>,
    /// Rounds that could not be measured at all.
    failures: Vec<String>,
}

/// Medians of all rounds; errors are sums.
struct Figures {
    shared: Option<TargetStats>,
    other: TargetStats,
    direct: Option<TargetStats>,
    memory: f64,
    before: f64,
    after: f64,
    ended: f64,
    generator: f64,
    noisy: usize,
}

impl Table {
    pub fn new(versions: Vec<String>, rounds: usize, lacks: Vec<String>) -> Self {
        Self { versions, machine: machine().unwrap_or_default(), rounds, lacks, ..Self::default() }
    }

    pub fn attacked(&mut self, attack: &Attack, contender: Contender, outcome: Result<Outcome, String>) {
        let is_row = |row: &&mut Row| row.attack == attack.name && row.contender == contender;
        if self.attacks.iter_mut().find(is_row).is_none() {
            let floods = attack.is_flood();
            let shares = attack.shared != SharedMember::Failing && !floods;
            let (outcomes, failures) = Default::default();
            let (attack, what) = (attack.name, attack.what);
            self.attacks.push(Row { attack, what, shares, floods, contender, outcomes, failures });
        }
        let Some(row) = self.attacks.iter_mut().find(is_row) else { return };
        match outcome {
            Ok(outcome) => row.outcomes.push(outcome),
            Err(why) => {
                row.failures.push(why);
                self.errors += 1;
            }
        }
    }

    pub fn looped(&mut self, ring: Loop, contender: Contender, outcome: loops::Outcome) {
        self.loops.push((format!("{} of {}", kind(ring), ring.length), contender, outcome));
    }

    pub fn desynchronised(&mut self, class: &'static str, contender: Contender, outcome: desync::Outcome) {
        self.desync.push((class, contender, outcome));
    }

    pub fn json(&self) -> Result<String> {
        serde_json::to_string_pretty(self).context("a table is always JSON")
    }

    /// Whether all that Seaway is to reach is met.
    pub fn is_good(&self) -> bool {
        self.claims().iter().all(|(_, claim)| *claim == Claim::Met)
    }

    /// What may be said of Seaway, of each attack, loop and class.
    fn claims(&self) -> Vec<(String, Claim)> {
        let ours = |contender: Contender| contender == Contender::Seaway;
        let attacks = self.attacks.iter().filter(|it| ours(it.contender));
        let attacks = attacks.map(|it| (it.attack.to_owned(), self.claim_of(it)));
        let loops = self.loops.iter().filter(|it| ours(it.1));
        let loops = loops.map(|it| (format!("loop {}", it.0), self.claim_of_loop(&it.2)));
        let desync = self.desync.iter().filter(|it| ours(it.1));
        let desync = desync.map(|it| (it.0.to_owned(), self.claim_of_class(&it.2)));
        attacks.chain(loops).chain(desync).collect()
    }

    fn claim_of(&self, row: &Row) -> Claim {
        let mut lacks = self.lacks.clone();
        let rounds = row.outcomes.len();
        lacks.extend((rounds < ROUNDS).then(|| format!("{rounds} of {ROUNDS} rounds")));
        let noisy = row.outcomes.iter().filter(|it| is_noisy(it) || it.is_disturbed()).count();
        lacks.extend((noisy > 0).then(|| format!("{noisy} noisy")));
        Claim::of(row.misses(self.quiet_p99(row)), lacks)
    }

    fn claim_of_loop(&self, outcome: &loops::Outcome) -> Claim {
        let loops::Outcome { descriptors, other } = outcome;
        let missed = [(*descriptors > DESCRIPTORS, "descriptors"), (other.lost > 0, "other member")];
        Claim::of(missed.iter().filter(|it| it.0).map(|it| it.1).collect(), self.lacks.clone())
    }

    fn claim_of_class(&self, outcome: &desync::Outcome) -> Claim {
        let misses = (outcome.wrong > 0).then_some("answers to the wrong client");
        Claim::of(misses.into_iter().collect(), self.lacks.clone())
    }

    /// What a reader has to know first.
    fn first_lines(&self) -> String {
        let claims = self.claims();
        let missed: Vec<String> = claims
            .iter()
            .filter(|(_, claim)| matches!(claim, Claim::Missed(_) | Claim::Failed))
            .map(|(what, claim)| format!("{what} ({claim})").replace('*', ""))
            .collect();
        let undecided = claims.iter().filter(|it| matches!(it.1, Claim::Undecided(..))).count();
        let mut text = String::new();
        if !missed.is_empty() {
            let _infallible = writeln!(text, "**Not met: {}.**\n", missed.join("; "));
        }
        if undecided > 0 {
            let all = claims.len();
            let _infallible =
                writeln!(text, "**Undecided: {undecided} of {all}; the last column says why.**\n");
        }
        text
    }

    /// Microseconds: what a quarter of a second without any attack has, whichever attack comes after it. Of one attack
    /// alone these are too few to tell an attack from a stall of the machine.
    fn quiet_p99(&self, of: &Row) -> f64 {
        let same = |it: &&Row| it.contender == of.contender && it.floods == of.floods;
        let rows = self.attacks.iter().filter(same);
        let pairs = rows.flat_map(|it| &it.outcomes).flat_map(|it| it.shared.iter().chain([&it.other]));
        let quarters: Vec<f64> = pairs.flat_map(|it| it.quiet.quarters.iter().copied()).collect();
        median(&quarters).unwrap_or_default()
    }

    pub fn markdown(&self) -> String {
        let mut text = self.first_lines();
        text += &format!(
            "{}. {}. {} rounds.\n\n{HOSTILE} hostile connections. Rates and p99 are of honest clients, relative to the same clients \
             without the attack; \"p99 ×\" compares quarters of seconds with all quiet ones of the same contender, \
             \"p99, ms\" is that of whole phases, without the attack → under it; errors are sums of all rounds. Targets \
             for Seaway: same member ≥ {SHARED_RATE} % of the rate, p99 ≤ {SHARED_P99} ×, no error; other members ≥ \
             {OTHER_RATE} %, no error; ≤ {MEMORY} MiB for each hostile connection.\n\n\
             | attack | contender | same member, rate % | p99 × | p99, ms | errors | other member, rate % | p99 × | p99, ms | errors | \
             MiB each | MiB before → after | ended | generator, % of core 1 | |\n\
             |---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|---|\n",
            self.versions.join(", "),
            self.machine.join(", "),
            self.rounds
        );
        let mut rows: Vec<&Row> = self.attacks.iter().collect();
        let place = |row: &Row| self.attacks.iter().position(|it| it.attack == row.attack);
        rows.sort_by_key(|row| (place(row), row.contender));
        let (floods, single): (Vec<&Row>, Vec<&Row>) = rows.into_iter().partition(|row| row.floods);
        for row in single {
            text += &row.line(self.quiet_p99(row), &self.claim_of(row));
        }
        if !floods.is_empty() {
            let _infallible = write!(
                text,
                "\nFloods: 512 connections ask one Service for more than Seaway can do, while clients of another ask for \
                 about a third of a core. On the core of clients and members, a quarter as many ask the member without Seaway: what their \
                 p99 grows by is what hostile clients take of that core, and \"p99 ×\" is without it. Targets: ≥ {FLOOD_RATE} % of \
                 the rate, p99 ≤ {FLOOD_P99} ×, no error.\n\n\
                 | flood | Seaway's core, quiet → flooded, % | rate % | p99 × | p99, ms | without Seaway, ms | errors | |\n\
                 |---|--:|--:|--:|--:|--:|--:|---|\n"
            );
        }
        for row in floods {
            text += &row.flood_line(self.quiet_p99(row), &self.claim_of(row));
        }
        if !self.loops.is_empty() {
            let _infallible = write!(
                text,
                "\nLoops: what one client takes of the contender's descriptors (at most {DESCRIPTORS} of Seaway's), and \
                 whether clients of another Service are answered.\n\n\
                 | loop | contender | descriptors | other member, answered | |\n|---|---|--:|--:|---|\n"
            );
        }
        for (ring, contender, outcome) in &self.loops {
            let verdict = said_of(*contender, &self.claim_of_loop(outcome));
            let loops::Outcome { descriptors, other } = outcome;
            let _infallible = writeln!(
                text,
                "| {ring} | {contender} | {descriptors} | {} of {} | {verdict} |",
                other.answered, other.due
            );
        }
        if !self.desync.is_empty() {
            let _infallible = write!(
                text,
                "\nDesynchronisation: answers to the wrong client, of at most {TRIES} tries (none of Seaway's). A class \
                 ends earlier where tries wait for answers that never come.\n\n\
                 | class | contender | wrong | no answer | tries | |\n|---|---|--:|--:|--:|---|\n"
            );
        }
        let mut desync: Vec<_> = self.desync.iter().collect();
        let place = |class: &str| self.desync.iter().position(|it| it.0 == class);
        desync.sort_by_key(|it| (place(it.0), it.1));
        for (class, contender, outcome) in desync {
            let verdict = said_of(*contender, &self.claim_of_class(outcome));
            let desync::Outcome { tries, wrong, failed } = outcome;
            let _infallible =
                writeln!(text, "| {class} | {contender} | {wrong} | {failed} | {tries} | {verdict} |");
        }
        text
    }
}

fn is_noisy(outcome: &Outcome) -> bool {
    // What clients wait for on their own core is measured in floods, and taken off.
    let is_busy = outcome.generator > GENERATOR && outcome.direct.is_none();
    is_busy || (outcome.queued > QUEUED && outcome.foreign > FOREIGN)
}

/// What may be said of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Claim {
    Met,
    Missed(Vec<&'static str>),
    /// A round could not be measured.
    Failed,
    /// Why this run does not show it, and what it missed all the same.
    Undecided(Vec<String>, Vec<&'static str>),
}

impl Claim {
    fn of(misses: Vec<&'static str>, lacks: Vec<String>) -> Self {
        match (misses.contains(&FAILED), lacks.is_empty(), misses.is_empty()) {
            (true, _, _) => Self::Failed,
            (_, false, _) => Self::Undecided(lacks, misses),
            (_, true, true) => Self::Met,
            (_, true, false) => Self::Missed(misses),
        }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Met => f.write_str("met"),
            Self::Missed(misses) => write!(f, "**not met: {}**", misses.join(", ")),
            Self::Failed => f.write_str("**failed**"),
            Self::Undecided(lacks, misses) if misses.is_empty() => {
                write!(f, "undecided: {}", lacks.join(", "))
            }
            Self::Undecided(lacks, misses) => {
                write!(f, "undecided: {}; beyond its target: {}", lacks.join(", "), misses.join(", "))
            }
        }
    }
}

fn said_of(contender: Contender, claim: &Claim) -> String {
    if contender == Contender::Seaway { claim.to_string() } else { String::new() }
}

fn relative(of: fn(&Pair) -> (f64, f64), pairs: &[&Pair]) -> f64 {
    let ratios: Vec<f64> =
        pairs.iter().map(|it| of(it)).filter(|it| it.1 > 0.0).map(|(hot, quiet)| hot / quiet).collect();
    median(&ratios).unwrap_or_default()
}

/// What honest clients of one member had.
#[derive(Clone, Copy)]
struct TargetStats {
    /// Percent.
    rate: f64,
    /// Of quarters of seconds: a machine stalls for some milliseconds now and then, whatever runs on it.
    times_p99: f64,
    /// Of quarters of seconds, microseconds: quiet, and under the attack.
    quarters: (f64, f64),
    /// Of whole phases.
    p99: (f64, f64),
    errors: u64,
}

type Phase = fn(&Pair) -> &RequestStats;

fn of_pairs(pairs: &[&Pair], quiet_p99: Option<f64>) -> TargetStats {
    let quarters = |of: Phase| {
        let all: Vec<f64> = pairs.iter().flat_map(|it| of(it).quarters.iter().copied()).collect();
        median(&all).unwrap_or_default()
    };
    let whole =
        |of: Phase| median(&pairs.iter().map(|it| of(it).p99).collect::<Vec<f64>>()).unwrap_or_default();
    let (quiet, attacked): (Phase, Phase) = (|it| &it.quiet, |it| &it.attacked);
    let of_quarters = (quiet_p99.unwrap_or_else(|| quarters(quiet)), quarters(attacked));
    TargetStats {
        rate: relative(|it| (it.attacked.rate, it.quiet.rate), pairs) * 100.0,
        times_p99: of_quarters.1 / of_quarters.0.max(1.0),
        quarters: of_quarters,
        p99: (whole(quiet), whole(attacked)),
        errors: pairs.iter().map(|it| it.lost).sum(),
    }
}

impl Figures {
    /// How many times their quiet p99 clients had while another was flooded, less what clients had more at the same time that asked
    /// the member itself.
    fn flooded_p99(&self) -> f64 {
        let direct = self.direct.map_or(0.0, |it| (it.quarters.1 - it.quarters.0).max(0.0));
        (self.other.quarters.1 - direct).max(0.0) / self.other.quarters.0.max(1.0)
    }
}

impl Row {
    fn figures(&self, quiet_p99: f64) -> Option<Figures> {
        // Rounds in which others had the cores count only where there is no other.
        let mut counted: Vec<&Outcome> = self.outcomes.iter().filter(|it| !it.is_disturbed()).collect();
        if counted.is_empty() {
            counted = self.outcomes.iter().collect();
        }
        let shared: Vec<&Pair> = counted.iter().filter_map(|it| it.shared.as_ref()).collect();
        let other: Vec<&Pair> = counted.iter().map(|it| &it.other).collect();
        let direct: Vec<&Pair> = counted.iter().filter_map(|it| it.direct.as_ref()).collect();
        let middle = |of: fn(&Outcome) -> f64| median(&counted.iter().map(|it| of(it)).collect::<Vec<f64>>());
        Some(Figures {
            shared: (!shared.is_empty()).then(|| of_pairs(&shared, Some(quiet_p99))),
            other: of_pairs(&other, Some(quiet_p99)),
            direct: (!direct.is_empty()).then(|| of_pairs(&direct, None)),
            memory: middle(|it| it.bytes_per_connection() / MIB)?,
            before: middle(|it| it.before as f64 / MIB)?,
            after: middle(|it| it.after as f64 / MIB)?,
            ended: middle(|it| it.ended as f64)?,
            generator: middle(|it| it.generator)?,
            noisy: self.outcomes.iter().filter(|it| is_noisy(it)).count(),
        })
    }

    fn misses(&self, quiet_p99: f64) -> Vec<&'static str> {
        let mut misses = Vec::new();
        if !self.failures.is_empty() {
            misses.push(FAILED);
        }
        let Some(figures) = self.figures(quiet_p99) else { return misses };
        if self.floods {
            misses.extend((figures.other.rate < FLOOD_RATE).then_some("rate"));
            misses.extend((figures.flooded_p99() > FLOOD_P99).then_some("p99"));
            misses.extend((figures.other.errors > 0).then_some("errors"));
            return misses;
        }
        if let Some(it) = figures.shared {
            misses.extend((it.rate < SHARED_RATE).then_some("rate"));
            misses.extend((it.times_p99 > SHARED_P99).then_some("p99"));
            misses.extend((it.errors > 0).then_some("errors"));
        }
        misses.extend((figures.other.rate < OTHER_RATE).then_some("other rate"));
        misses.extend((figures.other.errors > 0).then_some("other errors"));
        misses.extend((figures.memory > MEMORY).then_some("memory"));
        misses
    }

    fn flood_line(&self, quiet_p99: f64, claim: &Claim) -> String {
        let Self { attack, what, failures, .. } = self;
        let Some(figures) = self.figures(quiet_p99) else {
            let why = failures.join("; ").replace(['\n', '|'], " ");
            return format!("| {attack}: {what} | | | | | | | {why} |\n");
        };
        let cores = |of: fn(&Outcome) -> f64| {
            median(&self.outcomes.iter().map(of).collect::<Vec<f64>>()).unwrap_or_default()
        };
        let TargetStats { rate, p99, errors, .. } = figures.other;
        let direct = figures.direct.map_or_else(String::new, |it| milliseconds(it.p99));
        format!(
            "| {attack}: {what} | {:.0} → {:.0} | {rate:.1} | {:.2} | {} | {direct} | {errors} | {claim} |\n",
            cores(|it| it.contender_quiet),
            cores(|it| it.contender),
            figures.flooded_p99(),
            milliseconds(p99)
        )
    }

    fn line(&self, quiet_p99: f64, claim: &Claim) -> String {
        let Self { attack, what, contender, failures, .. } = self;
        let Some(figures) = self.figures(quiet_p99) else {
            return format!(
                "| {attack}: {what} | {contender} | | | | | | | | | | | | | {} |\n",
                failures.join("; ").replace(['\n', '|'], " ")
            );
        };
        let set = |it: Option<TargetStats>| {
            it.map_or_else(
                || "– | – | – | –".to_owned(),
                |TargetStats { rate, times_p99, p99, errors, .. }| {
                    format!("{rate:.1} | {times_p99:.2} | {} | {errors}", milliseconds(p99))
                },
            )
        };
        let mut verdict: String = match contender {
            Contender::Seaway => claim.to_string(),
            _ => failures.iter().take(1).map(|it| it.replace(['\n', '|'], " ")).collect(),
        };
        if figures.noisy > 0 && *contender != Contender::Seaway {
            verdict += &format!(" ({} of {} noisy)", figures.noisy, self.outcomes.len());
        }
        format!(
            "| {attack}: {what} | {contender} | {} | {} | {:.2} | {:.0} → {:.0} | {:.0} | {:.0} | {} |\n",
            set(figures.shared),
            set(Some(figures.other)),
            figures.memory,
            figures.before,
            figures.after,
            figures.ended,
            figures.generator,
            verdict.trim()
        )
    }
}

fn milliseconds((quiet, attacked): (f64, f64)) -> String {
    format!("{:.1} → {:.1}", quiet / 1e3, attacked / 1e3)
}

/// One round, for who watches.
pub fn line(attack: &str, contender: Contender, outcome: &Outcome) -> String {
    let set = |pair: &Pair| {
        let TargetStats { rate, times_p99, p99, errors, .. } = of_pairs(&[pair], None);
        let why = pair.first_error.map(|it| format!(" ({it})")).unwrap_or_default();
        format!("{rate:6.1} % p99 ×{times_p99:<6.2} {:.1} ms {errors} errors{why}", p99.1 / 1e3)
    };
    let direct = outcome
        .direct
        .as_ref()
        .map(|it| format!(" | direct: {} ms", milliseconds((it.quiet.p99, it.attacked.p99))));
    let direct = direct.unwrap_or_default();
    format!(
        "{attack:<18} {:<10} same: {} | other: {}{direct} | {:.2} MiB each, {:.0} → {:.0} → {:.0} | {} ended | cores {:.0} → {:.0} % {:.0} %, queued {:.0} %, others {:.0} %",
        contender.to_string(),
        outcome.shared.as_ref().map_or_else(|| "–".to_owned(), set),
        set(&outcome.other),
        outcome.bytes_per_connection() / MIB,
        outcome.before as f64 / MIB,
        outcome.peak as f64 / MIB,
        outcome.after as f64 / MIB,
        outcome.ended,
        outcome.contender_quiet,
        outcome.contender,
        outcome.generator,
        outcome.queued,
        outcome.foreign
    )
}

#[cfg(test)]
mod tests;
