//! Targets, and whether a run may say that one is met.
//!
//! "met" is a claim that others repeat, and so is "not met". Either is made only of at least five rounds on a quiet machine,
//! at the load that the case states, of a program that was built from a commit, and if the whole 95 % interval is on one side
//! of the target. Everything else is "undecided", with the reasons.

use std::collections::BTreeMap;

use crate::case::Sample;
use crate::contender::Contender;
use crate::metric::Metric;
use crate::rounds::Measured;
use crate::statistics::{Ratio, median, paired_ratio};
use crate::target::{Against, Bound, Target};

/// Rounds that a claim needs.
pub const ROUNDS: usize = 5;

/// Percent of core 0 below which the highest rate is that of the generator, on core 1.
const BUSY: f64 = 90.0;

/// One target and what came of it.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Verdict {
    pub what: String,
    pub target: Target,
    pub ours: Option<f64>,
    pub theirs: Option<f64>,
    pub ratio: Option<Ratio>,
    pub outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// The whole interval is at or below the target.
    Met,
    /// The whole interval is above the target.
    Missed,
    /// Why this run does not show whether the target is met.
    Undecided(Vec<String>),
    /// A round had errors: its cost says nothing.
    Failed,
    NotMeasured,
}

impl Verdict {
    pub fn of(case: &Measured, target: Target) -> Self {
        let (all, case) = (case, &compared(case, target));
        let ours = figures(case, target, Contender::Seaway);
        let theirs = target.against.map(|it| best(case, target, it)).unwrap_or_default();
        let pairs: Vec<(f64, f64)> = match target.against {
            Some(_) => ours.iter().zip(&theirs).filter_map(|(a, b)| Some(((*a)?, (*b)?))).collect(),
            None => ours.iter().flatten().map(|it| (*it, 1.0)).collect(),
        };
        let interval = paired_ratio(&pairs);
        let failed = ours.iter().chain(&theirs).any(Option::is_none);
        let outcome = match interval {
            _ if ours.is_empty() => Outcome::NotMeasured,
            _ if failed || is_wrong(all, target) => Outcome::Failed,
            // Nothing was above zero: what costs nothing is within any target.
            None if target.against.is_none() => decided(Side::Within, all, case, target),
            None => Outcome::NotMeasured,
            Some(Ratio { low, high, .. }) => decided(Side::of(target.bound, low, high), all, case, target),
        };
        let middle =
            |figures: &[Option<f64>]| median(&figures.iter().flatten().copied().collect::<Vec<f64>>());
        Self {
            what: case.case.to_string(),
            target,
            ours: middle(&ours),
            theirs: middle(&theirs),
            ratio: interval.filter(|_| target.against.is_some()),
            outcome,
        }
    }

    pub fn row(&self) -> String {
        let figure = |figure: Option<f64>| figure.map_or_else(|| "–".to_owned(), rounded);
        let peer = match self.target.against {
            Some(peer) => format!("{} {peer}", figure(self.theirs)),
            None => String::new(),
        };
        let ratio = self.ratio.map_or_else(String::new, |Ratio { median, low, high }| {
            format!("{median:.3} ({low:.3} to {high:.3})")
        });
        let outcome = match &self.outcome {
            Outcome::Met => "met".to_owned(),
            Outcome::Missed => "**not met**".to_owned(),
            Outcome::Undecided(reasons) => format!("undecided: {}", reasons.join(", ")),
            Outcome::Failed => "**failed**".to_owned(),
            Outcome::NotMeasured => "not measured".to_owned(),
        };
        format!(
            "| {} | {} | {} | {peer} | {} | {ratio} | {outcome} |",
            self.what,
            self.target.metric.label(),
            figure(self.ours),
            self.target
        )
    }

    /// The row, and what was measured before, which agrees if the intervals meet.
    pub fn row_beside(&self, before: Option<&Measured>) -> String {
        let earlier = before.map(|it| Self::of(it, self.target));
        let words = match earlier.as_ref().map(|it| (self.ratio, it.ratio, it.ours)) {
            None => String::new(),
            Some((Some(now), Some(then), _)) => {
                let agrees = if now.low <= then.high && then.low <= now.high { "" } else { " **differs**" };
                format!("{:.3} ({:.3} to {:.3}){agrees}", then.median, then.low, then.high)
            }
            Some((_, _, ours)) => ours.map_or_else(String::new, rounded),
        };
        format!("{} {words} |", self.row())
    }

    /// Which figure it is, and how far from its target, in a few words.
    fn summary(&self) -> String {
        let found = match (self.ratio, self.target.against) {
            (Some(ratio), Some(peer)) => format!("{:.3} × {peer}", ratio.median),
            _ => self.ours.map_or_else(|| "nothing".to_owned(), rounded),
        };
        format!("{} ({}): {found}, target {}", self.what, self.target.metric.label(), self.target)
    }
}

/// Whether one that is compared gave a wrong answer, in whichever round.
fn is_wrong(case: &Measured, target: Target) -> bool {
    taking_part(case, target).flat_map(|(_, rounds)| rounds).any(|it| it.wrong > 0)
}

fn taking_part(case: &Measured, target: Target) -> impl Iterator<Item = (Contender, &Vec<Sample>)> {
    let peers = target.against.map(Against::contenders).unwrap_or_default();
    let takes_part = move |it: Contender| it == Contender::Seaway || peers.contains(&it);
    case.rounds.iter().map(|(it, rounds)| (*it, rounds)).filter(move |(it, _)| takes_part(*it))
}

/// Only contenders that are compared, and only rounds in which none of them was disturbed, if those are enough.
fn compared(case: &Measured, target: Target) -> Measured {
    let rounds: BTreeMap<_, _> = taking_part(case, target).map(|(it, rounds)| (it, rounds.clone())).collect();
    let is_quiet = |at: &usize| rounds.values().all(|it| it.get(*at).is_some_and(|it| it.noise.is_none()));
    let quiet: Vec<usize> =
        (0..rounds.values().map(Vec::len).min().unwrap_or_default()).filter(is_quiet).collect();
    let chosen = |of: &Vec<Sample>| quiet.iter().filter_map(|at| of.get(*at).cloned()).collect();
    let rounds = match quiet.len() {
        enough if enough >= ROUNDS => rounds.iter().map(|(it, of)| (*it, chosen(of))).collect(),
        _ => rounds,
    };
    Measured { rounds, before: None, ..case.clone() }
}

fn figures(case: &Measured, target: Target, contender: Contender) -> Vec<Option<f64>> {
    let rounds = case.rounds.get(&contender).map(Vec::as_slice).unwrap_or_default();
    rounds
        .iter()
        .map(|sample| sample.figures.get(&target.metric).copied().filter(|_| sample.errors == 0))
        .collect()
}

/// Of each round, the figure of the peer that was better in it; nothing where one of them failed.
fn best(case: &Measured, target: Target, against: Against) -> Vec<Option<f64>> {
    let peers: Vec<_> = against.contenders().into_iter().map(|it| figures(case, target, it)).collect();
    let mut taking_part = peers.into_iter().filter(|it| !it.is_empty());
    let first = taking_part.next().unwrap_or_default();
    taking_part.fold(first, |best, peer| {
        best.into_iter().zip(peer).map(|(one, other)| Some(target.bound.better(one?, other?))).collect()
    })
}

/// Where the interval lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Within,
    Beyond,
    Both,
}

impl Side {
    fn of(bound: Bound, low: f64, high: f64) -> Self {
        match bound {
            _ if bound.holds(low, high) => Self::Within,
            _ if bound.is_missed(low, high) => Self::Beyond,
            _ => Self::Both,
        }
    }
}

fn decided(side: Side, all: &Measured, case: &Measured, target: Target) -> Outcome {
    let rounds = || case.rounds.values();
    let fewest = rounds().map(Vec::len).min().unwrap_or_default();
    let noisy = rounds().flatten().filter(|sample| sample.noise.is_some()).count();
    let mut reasons = case.lacks.clone();
    if side == Side::Both {
        reasons.push("the target is within the interval".to_owned());
    }
    if target.metric == Metric::HighestRate && rounds().flatten().any(|it| !is_the_limit(it)) {
        reasons.push("core 1, of clients and members, was the limit".to_owned());
    }
    if fewest < ROUNDS {
        reasons.push(format!("{fewest} of {ROUNDS} rounds"));
    }
    if noisy > 0 {
        reasons.push(format!("{noisy} noisy"));
    }
    // What is left out of most rounds may be what the contender itself does.
    let made = case.rounds.keys().filter_map(|it| Some(all.rounds.get(it)?.len())).max().unwrap_or_default();
    if noisy == 0 && fewest * 2 < made {
        reasons.push(format!("only {fewest} of {made} rounds were quiet"));
    }
    match side {
        _ if !reasons.is_empty() => Outcome::Undecided(reasons),
        Side::Within => Outcome::Met,
        Side::Beyond | Side::Both => Outcome::Missed,
    }
}

/// Whether it was the contender that could do no more.
fn is_the_limit(sample: &Sample) -> bool {
    sample.figures.get(&Metric::HighestLoad).is_some_and(|busy| *busy >= BUSY)
}

/// What a reader has to know first: what is not met, and how much is undecided.
pub fn first_lines(verdicts: &[Verdict]) -> Vec<String> {
    let all = |is: fn(&Outcome) -> bool| -> Vec<&Verdict> {
        verdicts.iter().filter(|it| is(&it.outcome)).collect()
    };
    let named = |verdicts: &[&Verdict]| verdicts.iter().map(|it| it.summary()).collect::<Vec<_>>().join("; ");
    let (missed, failed) =
        (all(|it| *it == Outcome::Missed), all(|it| matches!(it, Outcome::Failed | Outcome::NotMeasured)));
    let undecided = all(|it| matches!(it, Outcome::Undecided(_)));
    let mut lines = vec![];
    if !missed.is_empty() {
        lines.push(format!("**Not met: {}.**", named(&missed)));
    }
    if !failed.is_empty() {
        lines.push(format!("**Failed or not measured: {}.**", named(&failed)));
    }
    if !undecided.is_empty() {
        let words = "the last column says why";
        lines.push(format!("**Undecided: {} of {} figures; {words}.**", undecided.len(), verdicts.len()));
    }
    lines
}

/// Three figures that count, and no decimals where they would not.
pub fn rounded(figure: f64) -> String {
    match figure.abs() {
        large if large >= 100.0 => format!("{figure:.0}"),
        middle if middle >= 10.0 => format!("{figure:.1}"),
        small if small >= 1.0 => format!("{figure:.2}"),
        _ => format!("{figure:.3}"),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::case::Case;

    pub fn measured(case: Case, metric: Metric, figures: &[(Contender, &[f64])]) -> Measured {
        let sample = |figure: &f64| Sample { figures: [(metric, *figure)].into(), ..Sample::default() };
        let rounds: BTreeMap<_, _> = figures
            .iter()
            .map(|(contender, values)| (*contender, values.iter().map(sample).collect()))
            .collect();
        Measured {
            case,
            what: "a case".into(),
            rate: Some(1_000.0),
            rate_from: None,
            rounds,
            versions: vec!["seaway 0.1.0 (0123456789ab)".into()],
            bench: "0123456789ab".into(),
            machine: vec![],
            at: "2026-11-28 06:00".into(),
            lacks: vec![],
            before: None,
        }
    }

    fn udp(ours: &[f64], theirs: &[f64]) -> Measured {
        let figures = [(Contender::Seaway, ours), (Contender::Nginx, theirs)];
        measured(Case::Udp, Metric::BusyPerRequest, &figures)
    }

    fn verdict(case: &Measured, lacks: &[&str]) -> Verdict {
        let lacks: Vec<String> = lacks.iter().map(|it| (*it).to_owned()).collect();
        Verdict::of(&Measured { lacks, ..case.clone() }, target(case.case))
    }

    /// Of the tests: what is to be reached may change.
    fn target(case: Case) -> Target {
        match case {
            Case::Udp => Target::beside(Metric::BusyPerRequest, Contender::Nginx, 0.7),
            _ => Target::alone(Metric::UntilReady, 200.0),
        }
    }

    fn outcome(case: &Measured) -> Outcome {
        verdict(case, &[]).outcome
    }

    fn undecided(reason: &str) -> Outcome {
        Outcome::Undecided(vec![reason.to_owned()])
    }

    const TENS: [f64; 5] = [10.0; 5];
    const WELL: [f64; 5] = [6.0, 6.1, 6.0, 6.0, 6.1];

    #[test]
    fn a_target_is_met_when_the_whole_interval_is_within_it() {
        assert_eq!(outcome(&udp(&WELL, &TENS)), Outcome::Met);
        let around = udp(&[6.5, 7.6, 7.0, 6.5, 6.9], &TENS);
        assert_eq!(outcome(&around), undecided("the target is within the interval"));
        assert_eq!(outcome(&udp(&[9.0, 9.1, 9.0, 9.0, 9.0], &TENS)), Outcome::Missed);
        assert_eq!(outcome(&udp(&[], &TENS)), Outcome::NotMeasured);
    }

    #[test]
    fn nothing_is_decided_in_fewer_than_five_rounds() {
        assert_eq!(outcome(&udp(&WELL[..4], &TENS[..4])), undecided("4 of 5 rounds"));
        assert_eq!(outcome(&udp(&WELL, &TENS[..3])), undecided("3 of 5 rounds"));
        let one = measured(Case::Idle, Metric::UntilReady, &[(Contender::Seaway, &[1.0])]);
        assert_eq!(outcome(&one), undecided("1 of 5 rounds"));
    }

    #[test]
    fn nothing_is_decided_with_a_noisy_round_of_ours_or_of_the_peer() {
        for contender in [Contender::Seaway, Contender::Nginx] {
            let mut case = udp(&WELL, &TENS);
            case.rounds.get_mut(&contender).unwrap()[2].noise = Some("stolen".to_owned());
            assert_eq!(outcome(&case), undecided("1 noisy"));
        }
        // Rounds that were made for noisy ones are enough.
        let mut case = udp(&[6.0, 6.1, 60.0, 6.0, 6.0, 6.1], &[10.0; 6]);
        case.rounds.get_mut(&Contender::Seaway).unwrap()[2].noise = Some("stolen".to_owned());
        assert_eq!((outcome(&case), verdict(&case, &[]).ours), (Outcome::Met, Some(6.0)));
        // But no noise excuses a wrong answer, nor that most rounds are left out.
        let mut wrong = case.clone();
        wrong.rounds.get_mut(&Contender::Seaway).unwrap()[2].wrong = 1;
        assert_eq!(outcome(&wrong), Outcome::Failed);
        let mut most = udp(&[6.0; 11], &[10.0; 11]);
        most.rounds.get_mut(&Contender::Seaway).unwrap()[..6]
            .iter_mut()
            .for_each(|it| it.noise = Some("stolen".to_owned()));
        assert_eq!(outcome(&most), undecided("only 5 of 11 rounds were quiet"));
        // Whose figure is not compared may be noisy.
        let mut case = udp(&WELL, &TENS);
        let noisy = Sample { noise: Some("stolen".to_owned()), ..Sample::default() };
        case.rounds.insert(Contender::Haproxy, vec![noisy]);
        assert_eq!(outcome(&case), Outcome::Met);
    }

    #[test]
    fn a_run_that_lacks_something_shows_neither_that_a_target_is_met_nor_that_it_is_missed() {
        let lacks = ["uncommitted changes"];
        for ours in [WELL, [9.0; 5]] {
            assert_eq!(verdict(&udp(&ours, &TENS), &lacks).outcome, undecided("uncommitted changes"));
        }
    }

    #[test]
    fn a_round_with_errors_is_a_failure_whatever_it_cost() {
        let mut case = udp(&[1.0; 5], &TENS);
        case.rounds.get_mut(&Contender::Seaway).unwrap()[1].errors = 1;
        assert_eq!(outcome(&case), Outcome::Failed);
    }

    #[test]
    fn an_absolute_target_has_an_interval_too() {
        let case = |values: &[f64]| measured(Case::Idle, Metric::UntilReady, &[(Contender::Seaway, values)]);
        assert_eq!(outcome(&case(&[100.0, 110.0, 105.0, 100.0, 110.0])), Outcome::Met);
        let wide = case(&[100.0, 150.0, 900.0, 100.0, 150.0]);
        assert_eq!(outcome(&wide), undecided("the target is within the interval"));
        assert_eq!(outcome(&case(&[250.0; 5])), Outcome::Missed);
        assert_eq!(outcome(&case(&[0.0; 5])), Outcome::Met);
        assert_eq!(verdict(&wide, &[]).ratio, None);
    }

    #[test]
    fn beside_the_better_peer_each_round_has_the_better_one_of_it() {
        let figures: [(_, &[f64]); 3] = [
            (Contender::Seaway, &[4.0; 5]),
            (Contender::Haproxy, &[5.0, 8.0, 5.0, 8.0, 5.0]),
            (Contender::Nginx, &[8.0, 5.0, 8.0, 5.0, 8.0]),
        ];
        let beside = |metric, bound| {
            let target = Target { metric, against: Some(Against::BetterPeer), bound };
            Verdict::of(&measured(Case::Http1k, metric, &figures), target)
        };
        let cost = beside(Metric::BusyPerRequest, Bound::AtMost(0.8));
        assert_eq!((cost.theirs, cost.outcome), (Some(5.0), Outcome::Met));
        let rate = beside(Metric::RequestsPerSecond, Bound::AtLeast(1.2));
        assert_eq!((rate.theirs, rate.outcome), (Some(8.0), Outcome::Missed));
        // One that does not take part is no peer; one that fails is no worse than the other.
        let of_nginx = udp(&WELL, &TENS);
        let target = Target {
            metric: Metric::BusyPerRequest,
            against: Some(Against::BetterPeer),
            bound: Bound::AtMost(0.7),
        };
        assert_eq!(Verdict::of(&of_nginx, target).outcome, Outcome::Met);
        let mut failed = measured(Case::Http1k, Metric::BusyPerRequest, &figures);
        failed.rounds.get_mut(&Contender::Nginx).unwrap()[0].errors = 1;
        assert_eq!(Verdict::of(&failed, target).outcome, Outcome::Failed);
    }

    #[test]
    fn a_highest_rate_counts_only_if_the_contender_was_the_limit() {
        let figures: [(_, &[f64]); 2] = [(Contender::Seaway, &[30.0; 5]), (Contender::Haproxy, &[20.0; 5])];
        let against = Some(Against::BetterPeer);
        let target = Target { metric: Metric::HighestRate, against, bound: Bound::AtLeast(1.2) };
        let case = |load: f64| {
            let mut case = measured(Case::Http1k, Metric::HighestRate, &figures);
            for sample in case.rounds.values_mut().flatten() {
                sample.figures.insert(Metric::HighestLoad, load);
            }
            case
        };
        assert_eq!(Verdict::of(&case(97.0), target).outcome, Outcome::Met);
        let reason = "core 1, of clients and members, was the limit";
        assert_eq!(Verdict::of(&case(60.0), target).outcome, undecided(reason));
    }

    #[test]
    fn what_was_measured_before_agrees_where_the_intervals_meet() {
        let row = |before: &[f64]| {
            let now = udp(&WELL, &TENS);
            verdict(&now, &[]).row_beside(Some(&udp(before, &TENS)))
        };
        assert!(row(&[6.0, 6.2, 6.1, 6.0, 6.0]).ends_with(") |"), "{}", row(&WELL));
        assert!(row(&[9.0, 9.1, 9.0, 9.0, 9.1]).ends_with(" **differs** |"));
        assert!(verdict(&udp(&WELL, &TENS), &[]).row_beside(None).ends_with("| met |  |"));
    }

    #[test]
    fn the_first_lines_name_what_is_not_met() {
        let lines = |it: &[Measured]| {
            first_lines(&it.iter().map(|case| verdict(case, &[])).collect::<Vec<_>>()).join("\n")
        };
        assert_eq!(lines(&[udp(&WELL, &TENS)]), "");
        let missed = lines(&[udp(&WELL, &TENS), udp(&[9.0; 5], &TENS)]);
        assert_eq!(
            missed,
            "**Not met: udp (core 0 busy, µs/request): 0.900 × nginx, target ≤ 0.7 × nginx.**"
        );
        assert!(lines(&[udp(&WELL[..2], &TENS)]).contains("Undecided: 1 of 1 figures"));
        assert!(lines(&[udp(&[], &TENS)]).contains("not measured: udp"));
    }

    #[test]
    fn figures_keep_what_counts() {
        assert_eq!(
            ["12346", "12.3", "1.23", "0.012"],
            [12345.6, 12.345, 1.2345, 0.0123].map(rounded).each_ref().map(String::as_str)
        );
    }
}
