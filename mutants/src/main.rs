//! Changes Seaway's sources one place at a time, and tells which changes no test notices.
//!
//! ```text
//!   a copy of the checkout ─► points ─► the sample ─► one build that holds all mutants ─► which tests reach which
//!           (tree)           (points)    (sample)          (rewrite, programs)                     (judge)
//!                                                                                                     │
//!            survivors.txt ─► report ◄─ the tests that reach a mutant, with it switched on, until one fails
//! ```
//!
//! A mutant is switched on by its number in the environment, so that nothing is built for each one. This program knows
//! Rust's syntax, cargo and libtest. It deliberately does not know what the crates do.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "its output is its purpose")]

mod defaults;
mod judge;
mod options;
mod points;
mod process;
mod programs;
mod report;
mod rewrite;
mod sample;
mod survivors;
mod tree;

use std::{collections::BTreeMap, env, fs, process::ExitCode};

use judge::Verdict;
use options::Options;
use points::Point;
use tree::Tree;

fn main() -> ExitCode {
    let options = match Options::read(env::args().skip(1)) {
        Ok(options) => options,
        Err(fault) => {
            eprintln!("seaway-mutants: {fault}\n\n{}", options::HELP);
            return ExitCode::from(2);
        }
    };
    match carry_out(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(fault) => {
            eprintln!("seaway-mutants: {fault}");
            ExitCode::from(2)
        }
    }
}

/// Whether nothing is at fault.
fn carry_out(options: &Options) -> Result<bool, String> {
    let list = options.checkout.join("mutants/survivors.txt");
    let explained = survivors::read(&fs::read_to_string(&list).unwrap_or_default())
        .map_err(|fault| format!("{}: {fault}", list.display()))?;
    let folder = options.work.join("tree");
    fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut tree = Tree::copy(&options.checkout, folder)?;
    let last = options.work.join("lived.txt");
    let chosen = choose(options, &tree.points()?)?;
    let lived = fs::read_to_string(&last).unwrap_or_default();
    let is_tried = |it: &Point| {
        (options.only.is_empty() || options.only.iter().any(|text| it.name.contains(text)))
            && (!options.lived || lived.lines().any(|name| name == it.name))
    };
    let tried = chosen.iter().filter(|it| is_tried(it)).count();
    println!("{tried} of them are tried");
    if options.list || tried == 0 {
        chosen.iter().filter(|it| is_tried(it)).for_each(|it| println!("{}", it.place()));
        return Ok(true);
    }
    let target = options.target.clone().unwrap_or_else(|| options.work.join("target"));
    let (programs, mut points) = programs::build(&mut tree, chosen, &target)?;
    points.retain(is_tried);
    let programs = programs::asked(programs, &points);
    let traced = judge::trace(&programs, &options.work)?;
    let verdicts = judge::judge(&programs, &traced.tests, &points);
    let mut report = report::report(&points, &verdicts, &explained, options.is_whole());
    report.faults.extend(traced.failed.iter().map(|it| format!("fails without a mutant: {it}")));
    if options.is_whole() && points.len() < sample::LEAST {
        report.faults.push(format!(
            "{} mutants, and the sample has {} at least",
            points.len(),
            sample::LEAST
        ));
    }
    let lived = points.iter().filter(|it| matches!(verdicts.get(&it.number), Some(Verdict::Live(_))));
    let names: String = lived.map(|it| format!("{}\n", it.name)).collect();
    fs::write(&last, names).map_err(|error| format!("{}: {error}", last.display()))?;
    if !traced.slow.is_empty() {
        println!("slow, and not asked: {}", traced.slow.join(", "));
    }
    print!("\n{}", report.text);
    report.faults.iter().for_each(|it| println!("FAULT: {it}"));
    Ok(report.faults.is_empty())
}

fn choose(options: &Options, all: &[Point]) -> Result<Vec<Point>, String> {
    let chosen = match &options.since {
        None => sample::sample(all),
        Some(since) => {
            let diff = ["diff", "-U0", "--no-color", "--no-ext-diff", since, "--", "*.rs"];
            let changed = sample::changed(&tree::git(&options.checkout, &diff)?);
            let (chosen, possible) = sample::of_changes(all, &changed);
            println!("{possible} mutants of lines that changed since {since}");
            chosen
        }
    };
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    all.iter().for_each(|it| *counts.entry(it.crate_name()).or_default() += 1);
    let told: Vec<String> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    println!("{} of {} possible mutants ({})", chosen.len(), all.len(), told.join(", "));
    Ok(chosen)
}
