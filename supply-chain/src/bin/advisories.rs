//! Looks up what is locked in the list of advisories.

use std::{
    env,
    error::Error,
    io::{self, Write},
    path::Path,
    process::ExitCode,
};

use jiff::Zoned;
use seaway_supply_chain::{
    audit::{Report, audit},
    checkout::{self, ADVISORIES, LOCK_FILES},
    database::Database,
    lock::Lock,
    rustsec,
};

const HELP: &str = "\
Compares Cargo.lock and fuzz/Cargo.lock with the advisories in supply-chain/advisories.toml, and, where
SEAWAY_ADVISORY_DB names a folder, with the RustSec database in it. Uses no network.

Exit status 1: a package has a vulnerability, and no exception is written down. An old list only warns.
";

fn main() -> ExitCode {
    if let Some(argument) = env::args().nth(1) {
        let known = matches!(&*argument, "--help" | "-h");
        return finish(if known { HELP } else { "advisories takes no arguments; see --help\n" }, known);
    }
    match run() {
        Ok((report, summary)) => {
            let warnings = report.warnings.iter().map(|it| format!("warning: {it}\n"));
            let errors = report.errors.iter().map(|it| format!("error: {it}\n"));
            let text: String = warnings.chain(errors).chain([summary]).collect();
            finish(&text, report.errors.is_empty())
        }
        Err(error) => {
            let mut text = format!("error: {error}");
            let mut source = error.source();
            while let Some(cause) = source {
                text += &format!(": {cause}");
                source = cause.source();
            }
            finish(&(text + "\n"), false)
        }
    }
}

fn finish(text: &str, good: bool) -> ExitCode {
    let said = io::stdout().write_all(text.as_bytes());
    if good && said.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run() -> Result<(Report, String), Box<dyn Error>> {
    let checkout = checkout::find()?;
    let ours = Database::read(&checkout.join(ADVISORIES)).map_err(|error| named(ADVISORIES, &error))?;
    let mut locks = Vec::new();
    for file in LOCK_FILES {
        locks.push((file, Lock::read(&checkout.join(file)).map_err(|error| named(file, &error))?));
    }
    let mut full = Vec::new();
    if let Some(folder) = env::var_os("SEAWAY_ADVISORY_DB") {
        let mut names: Vec<&str> =
            locks.iter().flat_map(|(_, it)| &it.packages).map(|it| &*it.name).collect();
        names.sort_unstable();
        names.dedup();
        full = rustsec::read(Path::new(&folder), names)?;
    }
    let report = audit(&ours, &full, &locks, Zoned::now().date());
    let counts: Vec<String> =
        locks.iter().map(|(file, it)| format!("{file}: {} packages", it.packages.len())).collect();
    let also = if full.is_empty() { String::new() } else { format!(" and {} of RustSec's", full.len()) };
    let summary = format!(
        "{}; {} advisories as of {}{also}: {} errors, {} warnings\n",
        counts.join(", "),
        ours.advisories.len(),
        ours.date,
        report.errors.len(),
        report.warnings.len(),
    );
    Ok((report, summary))
}

fn named(file: &str, error: &dyn Error) -> String {
    let cause = error.source().map(|it| format!(": {it}")).unwrap_or_default();
    format!("{file}: {error}{cause}")
}
