//! What `./test` asks for.

use std::{path::PathBuf, time::Duration};

pub(crate) const HELP: &str = "\
seaway-gate tier TIER            run all test programs of a tier
seaway-gate again TIER N TEST    run one test N times beside load, and say how often it failed
seaway-gate tiers TEST           name the tiers that have such a test
seaway-gate count TIER           count the tests of a tier
seaway-gate list                 name all test programs with their tiers

  --build-log FILE   what `cargo test --no-run --message-format=json` printed (required)
  --checkout DIR     where Seaway's sources are (default: the current folder)
  --files DIR        where test programs have their temporary files
  --totals DIR       where counts, failures and times are written for ./test
  --times FILE       how long each program took last time: the longest starts first
  --beside N         programs that run at once (default 1)
  --threads N        tests of one program that run at once (default: one for each core)
  --width N          repetitions of a failed test that run at once (default 20)
  --limit SECONDS    after which a program counts as hung (default 2700)
  --live             redraw one line of progress instead of printing one every 30 s";

#[derive(Debug)]
pub(crate) enum Order {
    List,
    Count { tier: String },
    Tiers { test: String },
    Tier { tier: String },
    Again { tier: String, times: u32, test: String },
}

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) order: Order,
    pub(crate) build_log: PathBuf,
    pub(crate) checkout: PathBuf,
    pub(crate) files: PathBuf,
    pub(crate) totals: PathBuf,
    pub(crate) times: Option<PathBuf>,
    pub(crate) beside: usize,
    pub(crate) threads: Option<usize>,
    pub(crate) width: usize,
    pub(crate) limit: Duration,
    pub(crate) live: bool,
}

impl Options {
    pub(crate) fn read(arguments: impl Iterator<Item = String>) -> Result<Options, String> {
        let mut words = Vec::new();
        let mut build_log = None;
        let here = std::env::current_dir().map_err(|error| format!("no current folder: {error}"))?;
        let mut read = Options {
            order: Order::List,
            build_log: PathBuf::new(),
            checkout: here,
            files: std::env::temp_dir(),
            totals: std::env::temp_dir(),
            times: None,
            beside: 1,
            threads: None,
            width: 20,
            limit: Duration::from_secs(2700),
            live: false,
        };
        let mut arguments = arguments.peekable();
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
            match argument.as_str() {
                "--build-log" => build_log = Some(value()?.into()),
                "--checkout" => read.checkout = value()?.into(),
                "--files" => read.files = value()?.into(),
                "--totals" => read.totals = value()?.into(),
                "--times" => read.times = Some(value()?.into()),
                "--beside" => read.beside = number(&argument, &value()?)?,
                "--threads" => read.threads = Some(number(&argument, &value()?)?),
                "--width" => read.width = number(&argument, &value()?)?,
                "--limit" => read.limit = Duration::from_secs(number(&argument, &value()?)? as u64),
                "--live" => read.live = true,
                unknown if unknown.starts_with('-') => return Err(format!("no option is called {unknown}")),
                _ => words.push(argument),
            }
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        read.order = match words[..] {
            ["list"] => Order::List,
            ["count", tier] => Order::Count { tier: tier.to_owned() },
            ["tiers", test] => Order::Tiers { test: test.to_owned() },
            ["tier", tier] => Order::Tier { tier: tier.to_owned() },
            ["again", tier, times, test] => {
                let times = number("N", times)?;
                let times = u32::try_from(times).map_err(|_| format!("{times} repetitions are too many"))?;
                Order::Again { tier: tier.to_owned(), times, test: test.to_owned() }
            }
            _ => return Err(format!("it does not know what to do with {words:?}")),
        };
        read.build_log = build_log.ok_or("--build-log is required")?;
        Ok(read)
    }
}

fn number(option: &str, value: &str) -> Result<usize, String> {
    match value.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("{option}: \"{value}\" is not a number from 1 on")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Options, String> {
        Options::read(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn an_order_and_its_options_are_read_in_any_order() {
        let options = read("--width 3 again unit --build-log x 100 a::b --live").expect("it is well formed");
        assert!(
            matches!(&options.order, Order::Again { tier, times: 100, test } if tier == "unit" && test == "a::b")
        );
        assert!(options.live && options.width == 3);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, part) in [
            ("tier unit", "--build-log is required"),
            ("tier unit --build-log", "--build-log needs a value"),
            ("tier unit --build-log x --beside 0", "--beside: \"0\""),
            ("tier unit --build-log x --bside 1", "--bside"),
            ("tier --build-log x", "tier"),
        ] {
            let fault = read(line).expect_err(line);
            assert!(fault.contains(part), "{line}: {fault}");
        }
    }
}
