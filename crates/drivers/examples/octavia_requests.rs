//! Counts what our load balancers in a cloud cost in requests, for `bench/run octavia`.
//!
//!     octavia_requests [--services N] [--out docs/performance.md]
//!
//! Ends with 2 if a target is missed. The cloud is a fake, time is the fake's: the figures are the same on every machine.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::{path::PathBuf, process::ExitCode};

#[path = "../../openstack/tests/client/hurried.rs"]
#[allow(dead_code)]
mod hurried;
#[path = "../tests/octavia/numbers.rs"]
mod numbers;
#[path = "../tests/octavia/scene.rs"]
#[allow(dead_code)]
mod scene;

const BEGIN: &str = "<!-- begin: written by bench/run octavia --out -->";
const END: &str = "<!-- end: written by bench/run octavia --out -->";

fn main() -> ExitCode {
    let mut size = numbers::Size { nodes: 100, services: 1_000, few: 3 };
    let mut out: Option<PathBuf> = None;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match (word.as_str(), words.next()) {
            ("--services", Some(number)) => size.services = number.parse().expect("--services has a number"),
            ("--out", Some(path)) => out = Some(path.into()),
            _ => {
                println!("bench/run octavia [--services N] [--out FILE]");
                return ExitCode::FAILURE;
            }
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let rows = runtime.block_on(numbers::rows(size));
    let table = numbers::markdown(size, &rows);
    print!("{table}");
    if let Some(path) = out {
        let old = std::fs::read_to_string(&path).expect("--out names a page with its markers");
        let (before, rest) = old.split_once(BEGIN).expect("the page has the marker of the beginning");
        let (_, after) = rest.split_once(END).expect("the page has the marker of the end");
        std::fs::write(&path, format!("{before}{BEGIN}\n{table}{END}{after}")).expect("the page is ours");
    }
    if rows.iter().all(numbers::Row::is_met) { ExitCode::SUCCESS } else { ExitCode::from(2) }
}
