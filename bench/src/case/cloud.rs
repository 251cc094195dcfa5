//! What it takes to look at a cloud that has many load balancers: a fake of one, in a process of its own, counts calls.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::{Bench, Metric, Sample};
use crate::contender::seaway;
use crate::cores::{self, CONTENDER};
use crate::sys;

pub fn list(bench: &mut Bench) -> Result<Sample> {
    let wanted = bench.effort.balancers;
    show(bench, "--no-members", |shown| {
        let balancers = shown["loadBalancers"].as_array().map_or(0, Vec::len);
        ensure!(balancers == wanted, "{balancers} of {wanted} load balancers are shown");
        Ok(())
    })
}

pub fn members(bench: &mut Bench) -> Result<Sample> {
    let wanted = bench.effort.members;
    show(bench, "crowded", |shown| {
        let pool = &shown["loadBalancers"][0]["listeners"][0]["pool"];
        let members = pool["members"].as_array().map_or(0, Vec::len);
        ensure!(members == wanted, "{members} of {wanted} members are shown");
        Ok(())
    })
}

/// Runs the command once, and measures it from start to end.
fn show(bench: &mut Bench, what: &str, prove: impl Fn(&serde_json::Value) -> Result<()>) -> Result<Sample> {
    if bench.crowd.is_none() {
        bench.crowd = Some(FullCloud::gather(bench)?);
    }
    let crowd = bench.crowd.as_mut().context("it was gathered just now")?;
    crowd.calls()?;
    let spent = sys::children_time()?;
    let mut command = seaway::show(&bench.programs.seaway, crowd.folder.path(), what);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    sys::confine_child(&mut command, Some(CONTENDER));
    let begin = Instant::now();
    let mut child = command.spawn().context("cannot start seaway openstack show")?;
    let (printed, peak) = follow(&mut child)?;
    let mut words = String::new();
    child.stderr.take().context("it is piped")?.read_to_string(&mut words)?;
    let status = child.wait()?;
    let done = begin.elapsed();
    ensure!(status.success(), "seaway openstack show: {status}: {words}");
    prove(&serde_json::from_slice(&printed).context("seaway openstack show printed no JSON")?)?;
    let figures = [
        (Metric::Calls, crowd.calls()? as f64),
        (Metric::Peak, peak as f64 / (1 << 20) as f64),
        (Metric::CpuTime, (sys::children_time()? - spent) * 1e3),
        (Metric::UntilDone, done.as_secs_f64() * 1e3),
    ];
    Ok(Sample { figures: figures.into(), ..Sample::default() })
}

/// Reads what it prints, and looks meanwhile how much memory it has had at most. It prints at its end, and cannot end
/// before all but the last few pages are read.
fn follow(child: &mut Child) -> Result<(Vec<u8>, u64)> {
    let mut output = child.stdout.take().context("it is piped")?;
    let (mut printed, mut peak) = (Vec::new(), 0);
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = output.read(&mut buffer)?;
        peak = cores::peak_memory(child.id()).unwrap_or(0).max(peak);
        if count == 0 {
            return Ok((printed, peak));
        }
        printed.extend_from_slice(&buffer[..count]);
    }
}

/// A fake cloud that is full.
pub struct FullCloud {
    fake: FakeCloudProcess,
    /// Has the clouds.yaml that leads there.
    folder: tempfile::TempDir,
}

impl FullCloud {
    fn gather(bench: &Bench) -> Result<Self> {
        let size = [bench.effort.balancers, bench.effort.members];
        let mut fake = FakeCloudProcess::start(&bench.programs.seaway, "crowded_cloud", &size)?;
        let folder = tempfile::Builder::new().prefix("seaway-bench-").tempdir()?;
        let url = fake.line().context("the fake cloud did not come up")?;
        let yaml = format!(
            "clouds:\n  crowd:\n    region_name: RegionOne\n    auth:\n      auth_url: {url}\n      username: demo\n      \
             password: demopw\n      project_name: demo\n      user_domain_id: default\n      \
             project_domain_id: default\n"
        );
        fs::write(folder.path().join("clouds.yaml"), yaml)?;
        Ok(Self { fake, folder })
    }

    /// How many came since this was asked last.
    fn calls(&mut self) -> Result<u64> {
        let line = self.fake.ask("")?;
        line.parse().with_context(|| format!("the fake cloud said {line}"))
    }
}

/// A fake cloud in a process of its own, which answers a line by a line. It ends with its input.
pub struct FakeCloudProcess {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl FakeCloudProcess {
    /// An example of `crates/testkit`, which is built beside the program.
    pub fn start(seaway: &Path, example: &str, size: &[usize]) -> Result<Self> {
        let program = seaway.with_file_name("examples").join(example);
        let mut command = Command::new(&program);
        command.args(size.iter().map(ToString::to_string));
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let input = child.stdin.take();
        let output = BufReader::new(child.stdout.take().context("it is piped")?);
        Ok(Self { child, input, output })
    }

    pub fn ask(&mut self, line: &str) -> Result<String> {
        writeln!(self.input.as_mut().context("it is open until the end")?, "{line}")?;
        self.line()
    }

    pub fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.output.read_line(&mut line)? > 0, "the fake cloud has ended");
        Ok(line.trim().to_owned())
    }
}

impl Drop for FakeCloudProcess {
    fn drop(&mut self) {
        self.input = None;
        let _ended = self.child.wait();
    }
}
