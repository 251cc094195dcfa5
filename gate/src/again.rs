//! One test, many times, beside the load that it had in its tier: all other tests of its program, again and again.

use std::{collections::BTreeSet, time::Duration};

use tokio::task::JoinSet;

use crate::{
    cargo::Program,
    job::Job,
    libtest::{self, Verdict},
    options::Options,
    report::{self, Counts},
};

/// How often a test that failed is run before it may count as unsteady.
pub(crate) const TIMES: u32 = 20;
/// For one repetition. A test alone takes minutes at most.
const LIMIT: Duration = Duration::from_secs(900);

/// When repeating ends before all was repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Whether it ever fails is what is asked: the gate has its answer, and minutes to save.
    FirstFailure,
    /// How often it fails is what is asked.
    AllMade,
}

#[derive(Debug, Default)]
pub(crate) struct Tries {
    pub(crate) made: u32,
    pub(crate) failed: u32,
    /// What the first that failed had printed.
    pub(crate) printed: Option<String>,
}

impl Tries {
    pub(crate) fn all_passed(&self, times: u32) -> bool {
        self.made == times && self.failed == 0
    }
}

pub(crate) async fn beside_load(
    options: &Options,
    program: &Program,
    test: &str,
    times: u32,
    until: Until,
) -> Tries {
    tokio::select! {
        tries = repeat(options, program, test, times, until) => tries,
        () = load(options, program, test) => Tries::default(),
    }
}

/// The program's other tests, without an end: whoever waits for the repetitions drops it.
async fn load(options: &Options, program: &Program, test: &str) {
    let mut turn = 1_000_000;
    loop {
        turn += 1;
        let run = Job::new(options, program, &["--skip", test], options.threads, turn).run().await;
        // A program that has no other test, or that ends at once, loads nothing.
        if run.outcomes.is_empty() || run.took < Duration::from_millis(50) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

async fn repeat(options: &Options, program: &Program, test: &str, times: u32, until: Until) -> Tries {
    let mut tries = Tries::default();
    let mut running = JoinSet::new();
    let mut begun = 0;
    loop {
        while running.len() < options.width && begun < times {
            begun += 1;
            let number = 2_000_000 + begun as usize;
            let job = Job::new(options, program, &["--exact", "--include-ignored", test], Some(1), number);
            running.spawn(job.within(LIMIT).run());
        }
        let run = match running.join_next().await {
            None => return tries,
            Some(Ok(run)) => run,
            // It counts as made by nobody, so that not all have passed.
            Some(Err(_)) => continue,
        };
        tries.made += 1;
        let passed = run.outcomes.iter().filter(|it| it.verdict == Verdict::Passed).count();
        let skipped = libtest::reported("skipped", &run.errors);
        if run.broke.is_some() || passed != 1 || !skipped.is_empty() {
            tries.failed += 1;
            let why = run.broke.unwrap_or_default();
            tries.printed.get_or_insert(format!("{}{why}", libtest::failures(&run.output, None)));
            if until == Until::FirstFailure {
                // What still runs is stopped with its set.
                return tries;
            }
        }
    }
}

/// `./test --again N TEST`: whether all passed.
pub(crate) async fn on_demand(
    options: &Options,
    tier: &str,
    programs: &[Program],
    times: u32,
    test: &str,
) -> Result<bool, String> {
    let mut all_passed = true;
    let mut found = false;
    for program in programs.iter().filter(|it| it.tier() == tier) {
        for name in named(options, program, test).await? {
            found = true;
            let label = program.label();
            report::line(options, &format!("  {label}: {name}: {times} times beside load"));
            let tries = beside_load(options, program, &name, times, Until::AllMade).await;
            report::line(options, &format!("  {label}: {name}: failed {} of {}", tries.failed, tries.made));
            let (passed, failed) = (tries.made - tries.failed, times - (tries.made - tries.failed));
            all_passed &= failed == 0;
            let counts = Counts { passed: passed as usize, failed: failed as usize, ..Counts::default() };
            report::counts(options, counts, Duration::ZERO)?;
            if let Some(printed) = tries.printed {
                let text = format!("\n--- {label}: {name}: the first that failed\n{printed}\n");
                report::keep(options, "failures", &text)?;
            }
        }
    }
    if found { Ok(all_passed) } else { Err(format!("no test of the tier {tier} is called {test}")) }
}

/// The tiers that have such a test.
pub(crate) async fn tiers(
    options: &Options,
    programs: &[Program],
    test: &str,
) -> Result<BTreeSet<String>, String> {
    let mut tiers = BTreeSet::new();
    for program in programs {
        if !named(options, program, test).await?.is_empty() {
            tiers.insert(program.tier().to_owned());
        }
    }
    Ok(tiers)
}

/// How many tests the tier has.
pub(crate) async fn count(options: &Options, tier: &str, programs: &[Program]) -> Result<usize, String> {
    let mut count = 0;
    for program in programs.iter().filter(|it| it.tier() == tier) {
        count += listed(options, program).await?.len();
    }
    Ok(count)
}

/// The tests of that name, or of that last part of a path.
async fn named(options: &Options, program: &Program, test: &str) -> Result<Vec<String>, String> {
    let is_asked_for = |name: &String| *name == test || name.ends_with(&format!("::{test}"));
    Ok(listed(options, program).await?.into_iter().filter(is_asked_for).collect())
}

async fn listed(options: &Options, program: &Program) -> Result<Vec<String>, String> {
    let output = tokio::process::Command::new(&program.path)
        .args(["--list", "--format", "terse"])
        .current_dir(&program.folder)
        .env("TMPDIR", &options.files)
        .output()
        .await
        .map_err(|error| format!("{} cannot list its tests: {error}", program.path.display()))?;
    let listed = String::from_utf8_lossy(&output.stdout);
    Ok(listed.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}
