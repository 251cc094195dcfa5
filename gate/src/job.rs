//! One run of one test program.

use std::{
    fs::{self, File},
    io,
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tokio::{process::Command, time::timeout};

use crate::{
    cargo::Program,
    libtest::{self, Outcome, Verdict},
    options::Options,
};

const GRACE: Duration = Duration::from_secs(10);

/// What became of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) output: String,
    pub(crate) errors: String,
    pub(crate) outcomes: Vec<Outcome>,
    pub(crate) took: Duration,
    /// Why it did not come to its own end: it crashed, or was stopped after its limit.
    pub(crate) broke: Option<String>,
}

impl Run {
    pub(crate) fn failed(&self) -> impl Iterator<Item = &str> {
        self.outcomes.iter().filter(|it| it.verdict == Verdict::Failed).map(|it| it.test.as_str())
    }
}

/// A process group that ends with its owner.
struct Group(Option<Pid>);

impl Group {
    fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            // It may be gone already.
            let _ = killpg(group, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::SIGKILL);
    }
}

/// Where a run writes: files, so that a process that outlives it never meets a closed pipe.
struct Logs {
    output: PathBuf,
    errors: PathBuf,
}

impl Drop for Logs {
    fn drop(&mut self) {
        for file in [&self.output, &self.errors] {
            let _ = fs::remove_file(file);
        }
    }
}

/// How many tests of a run have ended so far: what is in its log.
#[derive(Clone, Debug)]
pub(crate) struct Progress(PathBuf);

impl Progress {
    pub(crate) fn ended(&self) -> usize {
        // Of a program that has ended meanwhile, the log is gone.
        fs::read(&self.0)
            .map_or(0, |log| String::from_utf8_lossy(&log).lines().filter_map(libtest::outcome).count())
    }
}

pub(crate) struct Job {
    command: Command,
    logs: Logs,
    limit: Duration,
}

impl Job {
    /// `number` tells the runs of this process apart.
    pub(crate) fn new(
        options: &Options,
        program: &Program,
        arguments: &[&str],
        threads: Option<usize>,
        number: usize,
    ) -> Job {
        let mut command = Command::new(&program.path);
        command.args(["-Z", "unstable-options", "--report-time"]).args(arguments);
        if let Some(threads) = threads {
            command.args(["--test-threads", &threads.to_string()]);
            // A test that keeps something for each of them reads it.
            command.env("RUST_TEST_THREADS", threads.to_string());
        }
        command
            .current_dir(&program.folder)
            .env("CARGO_MANIFEST_DIR", &program.folder)
            .env("TMPDIR", &options.files)
            // For --report-time, which libtest has, and calls unstable.
            .env("RUSTC_BOOTSTRAP", "1")
            .stdin(Stdio::null())
            .process_group(0);
        let log = |what| options.totals.join(format!("run-{}-{number}.{what}", std::process::id()));
        Job { command, logs: Logs { output: log("out"), errors: log("err") }, limit: options.limit }
    }

    pub(crate) fn within(mut self, limit: Duration) -> Job {
        self.limit = self.limit.min(limit);
        self
    }

    pub(crate) fn progress(&self) -> Progress {
        Progress(self.logs.output.clone())
    }

    pub(crate) async fn run(mut self) -> Run {
        let began = Instant::now();
        let ended = self.until_its_end().await;
        let read =
            |file| fs::read(file).map(|it| String::from_utf8_lossy(&it).into_owned()).unwrap_or_default();
        let (output, errors) = (read(&self.logs.output), read(&self.logs.errors));
        let outcomes = libtest::outcomes(&output);
        let broke = match ended {
            Err(why) => Some(why),
            Ok(status) if libtest::is_whole(&output, &outcomes) => {
                // libtest's own code for "a test failed" is 101.
                let says_failed = outcomes.iter().any(|it| it.verdict == Verdict::Failed);
                (!status.success() && !says_failed)
                    .then(|| format!("it passed all tests and ended with {status}"))
            }
            Ok(status) => Some(format!("it ended before its last test did, with {status}")),
        };
        Run { output, errors, outcomes, took: began.elapsed(), broke }
    }

    async fn until_its_end(&mut self) -> Result<std::process::ExitStatus, String> {
        let started = self.start();
        let mut child = started.map_err(|error| format!("it could not be started: {error}"))?;
        let group = Group(child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw));
        let cannot_wait = |error| format!("it cannot be waited for: {error}");
        if let Ok(status) = timeout(self.limit, child.wait()).await {
            return status.map_err(cannot_wait);
        }
        group.signal(Signal::SIGTERM);
        if timeout(GRACE, child.wait()).await.is_err() {
            group.signal(Signal::SIGKILL);
            child.wait().await.map_err(cannot_wait)?;
        }
        Err(format!("it was stopped after {} s: it did not end", self.limit.as_secs()))
    }

    fn start(&mut self) -> io::Result<tokio::process::Child> {
        self.command.stdout(File::create(&self.logs.output)?).stderr(File::create(&self.logs.errors)?);
        self.command.spawn()
    }
}
