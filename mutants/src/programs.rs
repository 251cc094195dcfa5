//! Builds the test programs, once for all mutants. A mutant that does not compile is left out.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::Value;

use crate::{points::Point, rewrite, tree::Tree};

/// Crates whose tests are asked about every mutant: those of the sample, and some that use them at little cost.
const ASKED: [&str; 7] = ["drivers", "engine", "files", "manifests", "plan", "snapshot", "wire"];
/// Names of tests that need more than a machine (CONTRIBUTING.md).
const TIERS: [&str; 7] = ["net", "walk", "browser", "openstack", "kubernetes", "peers", "long"];
/// Of such tiers, and asked all the same: they take seconds, and pass where there is no root, or no name server.
const ASKED_TOO: [&str; 2] = ["net_presence", "walk_dns"];
const ROUNDS: usize = 20;

#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// `plan`.
    pub(crate) of: String,
    pub(crate) path: PathBuf,
    /// Where its tests run.
    pub(crate) folder: PathBuf,
}

/// The programs, and the points that compile.
pub(crate) fn build(
    tree: &mut Tree,
    mut points: Vec<Point>,
    target: &Path,
) -> Result<(Vec<Program>, Vec<Point>), String> {
    let count = points.iter().map(|it| it.number as usize).max().unwrap_or_default();
    let crates: BTreeSet<String> = points.iter().map(|it| it.crate_name().to_owned()).collect();
    let asked = ASKED.iter().map(|it| (*it).to_owned()).chain(crates.iter().cloned());
    let asked: BTreeSet<String> = asked.filter(|it| tree.folder.join("crates").join(it).is_dir()).collect();
    for _ in 0..ROUNDS {
        tree.change(&points, count)?;
        // The libraries first: their errors are told in one go, and soon.
        let mut printed = run(tree, target, &["build", "--keep-going", "--lib"], &packages(&crates))?;
        if printed.good {
            let mut of = packages(&asked);
            of.extend(tests_beside(tree, &asked));
            printed = run(tree, target, &["test", "--no-run", "--lib"], &of)?;
        }
        if printed.good {
            let programs: Vec<Program> = printed.messages.iter().filter_map(program).collect();
            return match programs.is_empty() {
                true => Err("cargo named no test program".to_owned()),
                false => Ok((programs, points)),
            };
        }
        let faulty = faulty(tree, &printed.messages);
        if faulty.is_empty() {
            return Err(format!("the sources do not compile with their mutants:\n{}", printed.errors()));
        }
        for point in points.iter().filter(|it| faulty.contains(&it.number)) {
            println!("  does not compile, and is left out: {}", point.place());
        }
        points.retain(|it| !faulty.contains(&it.number));
    }
    Err(format!("after {ROUNDS} rounds there are still mutants that do not compile"))
}

/// Those that some of these points need. Tests through a whole cloud take minutes: they are asked of their own crate alone.
pub(crate) fn asked(mut programs: Vec<Program>, points: &[Point]) -> Vec<Program> {
    programs.retain(|it| points.iter().any(|point| it.is_asked_about(point)));
    programs
}

impl Program {
    pub(crate) fn is_asked_about(&self, point: &Point) -> bool {
        self.of == point.crate_name() || self.of != "drivers"
    }
}

fn packages(crates: &BTreeSet<String>) -> Vec<String> {
    crates.iter().map(|it| format!("--package=seaway-{it}")).collect()
}

/// Test programs beside the libraries that need nothing but a machine: `tests/plan.rs`, `tests/plan/main.rs`.
fn tests_beside(tree: &Tree, crates: &BTreeSet<String>) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for name in crates.iter().filter(|it| *it != "cli") {
        let folder = tree.folder.join(format!("crates/{name}/tests"));
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_program = path.join("main.rs").is_file() || path.extension().is_some_and(|it| it == "rs");
            let stem = path.file_stem().and_then(|it| it.to_str()).unwrap_or_default().to_owned();
            let needs_more = TIERS.iter().any(|tier| stem.starts_with(tier));
            if is_program && (!needs_more || ASKED_TOO.contains(&stem.as_str())) {
                names.insert(format!("--test={stem}"));
            }
        }
    }
    names
}

/// What cargo printed.
struct Printed {
    good: bool,
    messages: Vec<Value>,
    rest: String,
}

impl Printed {
    fn errors(&self) -> String {
        let errors = self.messages.iter().map(|it| &it["message"]).filter(|it| it["level"] == "error");
        let mut lines: Vec<&str> = errors.filter_map(|it| it["rendered"].as_str()).take(3).collect();
        let rest: Vec<&str> = self.rest.lines().collect();
        lines.extend(&rest[rest.len().saturating_sub(5)..]);
        lines.join("\n")
    }
}

fn run(tree: &Tree, target: &Path, what: &[&str], of: &[String]) -> Result<Printed, String> {
    let mut command = Command::new("cargo");
    command.args(what).args(of).args(["--all-features", "--offline", "--message-format=json"]);
    command.current_dir(&tree.folder).stdin(Stdio::null());
    command.env("CARGO_INCREMENTAL", "0").env("CARGO_TARGET_DIR", target);
    let done = command.output().map_err(|error| format!("cargo does not run: {error}"))?;
    let told = String::from_utf8_lossy(&done.stdout);
    let messages = told.lines().filter_map(|it| serde_json::from_str(it).ok()).collect();
    let rest = String::from_utf8_lossy(&done.stderr).into_owned();
    Ok(Printed { good: done.status.success(), messages, rest })
}

fn program(message: &Value) -> Option<Program> {
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let folder = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_path_buf();
    Some(Program {
        of: folder.file_name()?.to_str()?.to_owned(),
        path: message["executable"].as_str()?.into(),
        folder,
    })
}

/// The mutants that errors are about. An error that is within no other code of one is about the place that it is in.
fn faulty(tree: &Tree, messages: &[Value]) -> BTreeSet<u32> {
    let errors = messages.iter().map(|it| &it["message"]).filter(|it| it["level"] == "error");
    let of_error = |error: &Value| {
        let mut spans = Vec::new();
        gather_spans(error, &mut spans);
        [['<', '>'], ['[', ']']].iter().find_map(|signs| {
            spans.iter().find_map(|(file, at)| rewrite::mutant_at(&tree.read(file)?, *at, *signs))
        })
    };
    errors.filter_map(of_error).collect()
}

/// Those that the error is at, first.
fn gather_spans(message: &Value, spans: &mut Vec<(String, usize)>) {
    let mut told: Vec<&Value> = message["spans"].as_array().into_iter().flatten().collect();
    told.sort_by_key(|it| it["is_primary"] != true);
    for span in told {
        if let (Some(file), Some(start)) = (span["file_name"].as_str(), span["byte_start"].as_u64()) {
            spans.push((file.to_owned(), usize::try_from(start).unwrap_or_default()));
        }
    }
    message["children"].as_array().into_iter().flatten().for_each(|it| gather_spans(it, spans));
}
