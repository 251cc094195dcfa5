//! One run of a test program: some tests by name, with a mutant or without, within a time.

use std::{
    env,
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

use crate::programs::Program;

/// What a mutant may take before it fails, in KiB: some have no end.
const MEMORY: &str = "8000000";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Good,
    Bad,
    Late,
}

/// `mutant` is 0 for the code as it is; into `trace` go the places that are reached.
pub(crate) fn run(
    program: &Program,
    tests: &[&str],
    mutant: u32,
    trace: Option<&Path>,
    limit: Duration,
) -> Ended {
    let mut command = command(program);
    command.args(["--exact", "--test-threads=1", "-q"]).args(tests);
    command.env("SEAWAY_MUTANT", mutant.to_string());
    if let Some(trace) = trace {
        command.env("SEAWAY_MUTANT_TRACE", trace);
    }
    match command.stdout(Stdio::null()).stderr(Stdio::null()).spawn() {
        Ok(child) => wait(child, limit),
        Err(_) => Ended::Bad,
    }
}

pub(crate) fn list(program: &Program) -> Result<Vec<String>, String> {
    let told = command(program).args(["--list", "--format=terse"]).output();
    let told = told.map_err(|error| format!("{}: {error}", program.path.display()))?;
    let text = String::from_utf8_lossy(&told.stdout);
    Ok(text.lines().filter_map(|it| it.strip_suffix(": test")).map(str::to_owned).collect())
}

/// The environment is small, so that a mutant finds its number in it, and the same for all who run it.
fn command(program: &Program) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "ulimit -v $0; exec \"$@\"", MEMORY]).arg(&program.path);
    command.current_dir(&program.folder).stdin(Stdio::null()).process_group(0).env_clear();
    for name in ["PATH", "HOME", "TMPDIR"] {
        if let Some(value) = env::var_os(name) {
            command.env(name, value);
        }
    }
    command.env("CARGO_MANIFEST_DIR", &program.folder);
    // The same cases each time; and a failure is a failure, however large its case.
    command.envs([("PROPTEST_RNG_SEED", "1"), ("PROPTEST_MAX_SHRINK_ITERS", "0")]);
    command
}

fn wait(mut child: Child, limit: Duration) -> Ended {
    let start = Instant::now();
    let mut pause = Duration::from_millis(2);
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ended::Good,
            Ok(Some(_)) | Err(_) => return Ended::Bad,
            Ok(None) if start.elapsed() > limit => {
                if let Ok(group) = i32::try_from(child.id()) {
                    let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
                }
                let _ = child.wait();
                return Ended::Late;
            }
            Ok(None) => thread::sleep(pause),
        }
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}
