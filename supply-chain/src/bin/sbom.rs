//! Writes the bill of materials of the program `seaway`.

use std::{
    env,
    error::Error,
    fs,
    io::{self, Write},
    process::ExitCode,
};

use jiff::Timestamp;
use seaway_supply_chain::{bom, checkout};

const HELP: &str = "\
Writes what the program `seaway` is made of, as CycloneDX 1.6 in JSON.

  sbom [--target TRIPLE] [--output FILE]

TRIPLE is x86_64-unknown-linux-gnu, for example; without it, this machine's Linux. Without FILE, it is printed.
The same checkout gives the same text. With SOURCE_DATE_EPOCH in the environment, that time is in it.
";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let mut text = format!("sbom: {error}");
            let mut source = error.source();
            while let Some(cause) = source {
                text += &format!(": {cause}");
                source = cause.source();
            }
            // There is no other place to say it.
            let _ = writeln!(io::stderr(), "{text}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let mut target = format!("{}-unknown-linux-gnu", env::consts::ARCH);
    let mut output = None;
    let mut arguments = env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match &*argument {
            "--target" => target = value()?,
            "--output" => output = Some(value()?),
            "--help" | "-h" => return Ok(io::stdout().write_all(HELP.as_bytes())?),
            other => return Err(format!("there is no argument {other:?}; see --help").into()),
        }
    }
    let bill = bom::describe(&checkout::find()?, &target, time()?.as_deref())?;
    let text = serde_json::to_string_pretty(&bill)? + "\n";
    match output {
        Some(file) => fs::write(&file, text).map_err(|error| format!("cannot write {file}: {error}"))?,
        None => io::stdout().write_all(text.as_bytes())?,
    }
    Ok(())
}

fn time() -> Result<Option<String>, Box<dyn Error>> {
    let Ok(seconds) = env::var("SOURCE_DATE_EPOCH") else { return Ok(None) };
    let seconds = seconds.parse().map_err(|_| "SOURCE_DATE_EPOCH is no number of seconds")?;
    Ok(Some(Timestamp::from_second(seconds)?.to_string()))
}
