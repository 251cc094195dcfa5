//! Runs the test programs of one tier side by side, as `./test` asks for it, and repeats each test that failed.
//!
//! ```text
//!   cargo's messages ─► programs of the tier ─► run side by side ─► outcomes ─┬─► totals, slowest tests
//!      (cargo)                                     (process)       (libtest)  │
//!                                                                             └─► failed: 20 times beside load ─► unsteady.toml
//!                                                                                   (again; never for promises)
//! ```
//!
//! It knows what libtest prints. It deliberately does not know what a tier needs (root, rigs, packages): `./test` does.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "its output is its purpose")]

mod again;
mod cargo;
mod job;
mod libtest;
mod options;
mod promises;
mod report;
mod tier;
mod unsteady;

use std::process::ExitCode;

use options::{Options, Order};

fn main() -> ExitCode {
    let options = match Options::read(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(fault) => {
            eprintln!("seaway-gate: {fault}\n\n{}", options::HELP);
            return ExitCode::from(2);
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("seaway-gate: no runtime: {error}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(unless_stopped(options)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(fault) => {
            eprintln!("seaway-gate: {fault}");
            ExitCode::from(2)
        }
    }
}

/// Test programs have process groups of their own: what is under way is ended with this process, by dropping it.
async fn unless_stopped(options: Options) -> Result<bool, String> {
    use tokio::signal::unix::{SignalKind, signal};
    let listen = |kind| signal(kind).map_err(|error| format!("cannot listen to signals: {error}"));
    let (mut terminate, mut interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
    tokio::select! {
        result = carry_out(&options) => result,
        _ = terminate.recv() => Err("stopped".to_owned()),
        _ = interrupt.recv() => Err("interrupted".to_owned()),
    }
}

async fn carry_out(options: &Options) -> Result<bool, String> {
    let programs = cargo::programs(options)?;
    match &options.order {
        Order::List => {
            for program in &programs {
                println!("{} {}", program.tier(), program.label());
            }
            Ok(true)
        }
        Order::Count { tier } => {
            println!("{}", again::count(options, tier, &programs).await?);
            Ok(true)
        }
        Order::Tiers { test } => {
            let tiers = again::tiers(options, &programs, test).await?;
            tiers.iter().for_each(|tier| println!("{tier}"));
            Ok(true)
        }
        Order::Tier { tier } => tier::run(options, tier, programs).await,
        Order::Again { tier, times, test } => again::on_demand(options, tier, &programs, *times, test).await,
    }
}
