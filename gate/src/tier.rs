//! All test programs of one tier, several at once, the slowest of last time first.

use std::{
    collections::{BTreeMap, VecDeque},
    fs,
    time::{Duration, Instant},
};

use tokio::{
    task::JoinSet,
    time::{MissedTickBehavior, interval},
};

use crate::{
    again::{self, Until},
    cargo::Program,
    job::{Job, Progress, Run},
    libtest::{self, Verdict},
    options::Options,
    promises::{self, Promise},
    report::{self, Counts},
};

/// If more tests than this fail in a tier, it is no chance, and none of them is repeated.
const MOST_REPEATED: usize = 5;
/// A fifth of a second on a terminal, half a minute in a log.
const REDRAW: Duration = Duration::from_millis(200);
const LINE: Duration = Duration::from_secs(30);

/// A test that failed in the tier's first run.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) program: Program,
    pub(crate) test: String,
    pub(crate) printed: String,
}

/// Whether all of it passed.
pub(crate) async fn run(options: &Options, tier: &str, programs: Vec<Program>) -> Result<bool, String> {
    let promises = promises::read(options)?;
    let programs: Vec<Program> = programs.into_iter().filter(|it| it.tier() == tier).collect();
    if programs.is_empty() {
        return Err(format!("no test program belongs to the tier {tier}"));
    }
    let mut tier =
        Tier { options, counts: Counts::default(), failures: Vec::new(), times: Times::read(options) };
    let seen = tier.run_all(programs).await?;
    for broken in broken_promises(&promises, &seen) {
        tier.counts.failed += 1;
        report::line(options, &format!("  FAILED: {broken}"));
        report::keep(options, "failures", &format!("\n--- {broken}\n"))?;
    }
    tier.times.write(options)?;
    let began = Instant::now();
    tier.repeat_failures(&promises).await?;
    report::counts(options, tier.counts, began.elapsed())?;
    let failed = tier.counts.failed;
    Ok(failed == 0)
}

struct Tier<'a> {
    options: &'a Options,
    counts: Counts,
    failures: Vec<Failure>,
    times: Times,
}

type TestsByProgram = BTreeMap<String, Vec<String>>;

impl Tier<'_> {
    async fn run_all(&mut self, programs: Vec<Program>) -> Result<TestsByProgram, String> {
        let options = self.options;
        let (mut seen, all, began) = (TestsByProgram::new(), programs.len(), Instant::now());
        let mut waiting: VecDeque<Program> = self.times.slowest_first(programs).into();
        let mut running = JoinSet::new();
        let mut progress: BTreeMap<usize, (String, Progress)> = BTreeMap::new();
        let mut ticks = interval(if options.live { REDRAW } else { LINE });
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ticks.tick().await;
        let mut number = 0;
        loop {
            while running.len() < options.beside
                && let Some(program) = waiting.pop_front()
            {
                number += 1;
                let job = Job::new(options, &program, &[], options.threads, number);
                progress.insert(number, (program.label(), job.progress()));
                let this = number;
                running.spawn(async move { (this, program, job.run().await) });
            }
            tokio::select! {
                ended = running.join_next() => match ended {
                    None => return Ok(seen),
                    Some(Err(error)) => return Err(format!("a run was lost: {error}")),
                    Some(Ok((this, program, run))) => {
                        progress.remove(&this);
                        seen.insert(program.label(), run.outcomes.iter().map(|it| it.test.clone()).collect());
                        self.ended(program, run)?;
                    }
                },
                _ = ticks.tick() => {
                    let under_way: Vec<String> =
                        progress.values().map(|(label, at)| format!("{label}: {} done", at.ended())).collect();
                    let done = all - waiting.len() - running.len();
                    let text = format!(
                        "  … {done} of {all} programs, {} tests passed, {} s; {}",
                        self.counts.passed, began.elapsed().as_secs(), under_way.join("; ")
                    );
                    if options.live { report::standing(&text) } else { report::line(options, &text) }
                }
            }
        }
    }

    fn ended(&mut self, program: Program, run: Run) -> Result<(), String> {
        let label = program.label();
        let skipped = libtest::reported("skipped", &run.errors);
        let mut counts = Counts { skipped: skipped.len(), ..Counts::default() };
        report::keep(self.options, "rigs", &libtest::rigs(&run.errors))?;
        for (test, why) in &skipped {
            report::keep(self.options, "skipped", &format!("{label}: {test}: {why}\n"))?;
        }
        for outcome in &run.outcomes {
            report::keep(
                self.options,
                "tests",
                &format!("{:.3}\t{label}\t{}\n", outcome.seconds, outcome.test),
            )?;
            match outcome.verdict {
                Verdict::Passed => counts.passed += 1,
                Verdict::Failed => counts.failed += 1,
                // Those that another test starts, with what they need.
                Verdict::Ignored => {}
            }
        }
        // A test that skipped itself has returned without a failure.
        counts.passed = counts.passed.saturating_sub(skipped.len());
        if let Some(why) = &run.broke {
            counts.failed += 1;
            let last =
                format!("{}\n{}", libtest::last_lines(&run.output, 40), libtest::last_lines(&run.errors, 20));
            let text = format!("\n--- {label}   ({})\n{why}\n{last}\n", program.command());
            report::keep(self.options, "failures", &text)?;
        }
        self.times.took(&label, run.took);
        if counts.passed + counts.failed + counts.skipped > 0 {
            report::row(self.options, &label, counts, run.took);
        }
        self.counts.add(counts);
        for test in run.failed() {
            let printed = libtest::failures(&run.output, Some(test));
            self.failures.push(Failure { program: program.clone(), test: test.to_owned(), printed });
        }
        Ok(())
    }

    async fn repeat_failures(&mut self, promises: &[Promise]) -> Result<(), String> {
        let failures = std::mem::take(&mut self.failures);
        let too_many = failures.len() > MOST_REPEATED;
        for failure in failures {
            let label = failure.program.label();
            let name = format!("{label}: {}", failure.test);
            let verdict = if promises.iter().any(|it| it.covers(&label, &failure.test)) {
                "a promise is tested: it is not repeated".to_owned()
            } else if too_many {
                format!("more than {MOST_REPEATED} tests failed: none is repeated")
            } else {
                report::line(
                    self.options,
                    &format!("  {name} failed: it is run {} times beside load", again::TIMES),
                );
                let Failure { program, test, .. } = &failure;
                let until = Until::FirstFailure;
                let tries = again::beside_load(self.options, program, test, again::TIMES, until).await;
                let verdict = format!("then {} of {} repetitions failed", tries.failed, tries.made);
                if tries.all_passed(again::TIMES) {
                    self.counts.failed -= 1;
                    self.counts.passed += 1;
                    self.counts.unsteady += 1;
                    report::line(self.options, &format!("  unsteady: {name}: {verdict}"));
                    crate::unsteady::note(self.options, &name, &format!("once in its tier, {verdict}"))?;
                    report::keep(self.options, "unsteady", &text(&failure, &verdict))?;
                    continue;
                }
                verdict
            };
            report::line(self.options, &format!("  FAILED: {name}: {verdict}"));
            report::keep(self.options, "failures", &text(&failure, &verdict))?;
        }
        Ok(())
    }
}

fn text(failure: &Failure, verdict: &str) -> String {
    let Failure { program, test, printed } = failure;
    format!("\n--- {}: {test}: {verdict}   ({} {test})\n{printed}\n", program.label(), program.command())
}

/// Lines of promises.txt whose program has run and that no test of it answers to: a renamed test has lost its protection.
fn broken_promises(promises: &[Promise], seen: &TestsByProgram) -> Vec<String> {
    let is_kept = |promise: &Promise, label: &str, tests: &[String]| {
        tests.iter().any(|test| promise.covers(label, test))
    };
    promises
        .iter()
        .filter(|promise| {
            seen.iter().any(|(label, tests)| promise.is_of(label) && !is_kept(promise, label, tests))
        })
        .map(Promise::place)
        .collect()
}

/// How many seconds each program took last time.
struct Times(BTreeMap<String, u64>);

impl Times {
    fn read(options: &Options) -> Times {
        let text = options.times.as_ref().and_then(|file| fs::read_to_string(file).ok()).unwrap_or_default();
        let time = |line: &str| {
            let (seconds, label) = line.split_once('\t')?;
            Some((label.to_owned(), seconds.parse().ok()?))
        };
        Times(text.lines().filter_map(time).collect())
    }

    /// What is not known may be slow, too.
    fn slowest_first(&self, mut programs: Vec<Program>) -> Vec<Program> {
        programs.sort_by_key(|program| {
            let label = program.label();
            (std::cmp::Reverse(self.0.get(&label).copied().unwrap_or(u64::MAX)), label)
        });
        programs
    }

    fn took(&mut self, label: &str, took: Duration) {
        self.0.insert(label.to_owned(), took.as_secs());
    }

    fn write(&self, options: &Options) -> Result<(), String> {
        let Some(file) = &options.times else { return Ok(()) };
        let text: String = self.0.iter().map(|(label, seconds)| format!("{seconds}\t{label}\n")).collect();
        fs::write(file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))
    }
}
