//! Which tests reach which mutants, and whether one of these fails when the mutant is switched on.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    points::Point,
    process::{self, Ended},
    programs::Program,
};

/// How many programs run at once.
const AT_ONCE: usize = 2;
/// A test that takes longer is not asked: there are others.
const SLOW: Duration = Duration::from_secs(20);
/// So many tests of other crates are asked about a mutant, the fastest ones. A crate's own tests are asked all.
const OTHERS: usize = 30;

#[derive(Clone, Debug)]
pub(crate) struct Test {
    program: usize,
    name: String,
    took: Duration,
    reaches: BTreeSet<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Killed,
    Timeout,
    /// So many tests were asked and passed.
    Live(usize),
}

#[derive(Default)]
pub(crate) struct Traced {
    /// The fastest first.
    pub(crate) tests: Vec<Test>,
    /// Tests that fail without a mutant, and slow ones: nothing is asked of them.
    pub(crate) failed: Vec<String>,
    pub(crate) slow: Vec<String>,
}

/// Runs each test alone, without a mutant.
pub(crate) fn trace(programs: &[Program], work: &Path) -> Result<Traced, String> {
    let mut names = Vec::new();
    for (at, program) in programs.iter().enumerate() {
        names.extend(process::list(program)?.into_iter().map(|name| (at, name)));
    }
    println!("  {} tests of {} programs, each alone, without a mutant", names.len(), programs.len());
    let traced = Mutex::new(Traced::default());
    side_by_side(names.len(), |at| {
        let (number, name) = &names[at];
        let program = &programs[*number];
        let file = work.join(format!("trace-{}-{at}", std::process::id()));
        let mut start = Instant::now();
        let mut ended = process::run(program, &[name], 0, Some(&file), SLOW);
        // Once more, as a busy machine may make it fail.
        if ended == Ended::Bad {
            start = Instant::now();
            ended = process::run(program, &[name], 0, Some(&file), SLOW);
        }
        let took = start.elapsed();
        let reached = fs::read_to_string(&file).unwrap_or_default();
        let reaches = reached.lines().filter_map(|it| it.parse().ok()).collect();
        let _ = fs::remove_file(&file);
        let shown = format!("{}: {name}", program.of);
        let mut traced = traced.lock().unwrap_or_else(PoisonError::into_inner);
        match ended {
            Ended::Good => traced.tests.push(Test { program: *number, name: name.clone(), took, reaches }),
            Ended::Bad => traced.failed.push(shown),
            Ended::Late => traced.slow.push(shown),
        }
    });
    let mut traced = traced.into_inner().unwrap_or_else(PoisonError::into_inner);
    traced.tests.sort_by(|a, b| (a.took, &a.name).cmp(&(b.took, &b.name)));
    Ok(traced)
}

/// The verdict on each point, by its number.
pub(crate) fn judge(programs: &[Program], tests: &[Test], points: &[Point]) -> BTreeMap<u32, Verdict> {
    let verdicts = Mutex::new(BTreeMap::new());
    side_by_side(points.len(), |at| {
        let point = &points[at];
        let verdict = judge_one(programs, tests, point);
        if let Verdict::Live(count) = verdict {
            println!("  lives, {count} tests reach it: {}", point.place());
        }
        let mut verdicts = verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        verdicts.insert(point.number, verdict);
        if verdicts.len().is_multiple_of(25) {
            println!("  {} of {}", verdicts.len(), points.len());
        }
    });
    verdicts.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// The fastest test first, alone; then more and more at once, for starting a program takes time, too.
fn judge_one(programs: &[Program], tests: &[Test], point: &Point) -> Verdict {
    let reaching = tests
        .iter()
        .filter(|it| it.reaches.contains(&point.number) && programs[it.program].is_asked_about(point));
    let (own, others): (Vec<&Test>, Vec<&Test>) =
        reaching.partition(|it| programs[it.program].of == point.crate_name());
    let asked: Vec<&Test> = own.into_iter().chain(others.into_iter().take(OTHERS)).collect();
    let (mut rest, mut size) = (asked.as_slice(), 1);
    while !rest.is_empty() {
        let (batch, later) = rest.split_at(size.min(rest.len()));
        let mut by_program: BTreeMap<usize, Vec<&Test>> = BTreeMap::new();
        batch.iter().for_each(|it| by_program.entry(it.program).or_default().push(it));
        for (program, tests) in by_program {
            let names: Vec<&str> = tests.iter().map(|it| it.name.as_str()).collect();
            let limit = Duration::from_secs(20) + tests.iter().map(|it| it.took).sum::<Duration>() * 10;
            match process::run(&programs[program], &names, point.number, None, limit) {
                Ended::Good => {}
                Ended::Bad => return Verdict::Killed,
                Ended::Late => return Verdict::Timeout,
            }
        }
        (rest, size) = (later, (size * 3).min(60));
    }
    Verdict::Live(asked.len())
}

fn side_by_side(count: usize, each: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    let take_turns = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            if at >= count {
                return;
            }
            each(at);
        }
    };
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(take_turns);
        }
    });
}
