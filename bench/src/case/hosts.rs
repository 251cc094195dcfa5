//! A cluster with 1, 10 or 100 hosts: what one more Service costs each part, how soon a change is everywhere, and a minute
//! in which nothing happens.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::kubernetes::{self, AddressesByService, Scene, cpu, node, settle};
use super::{Bench, Metric, Sample, Target};
use crate::contender::Running;
use crate::contender::seaway::member::Part;
use crate::plane::{network, objects};
use crate::statistics::percentile;
use crate::sys;

/// That are there before; so many more are made, one after the other.
const SERVICES: usize = 100;
const NEW: usize = 30;
const APART: Duration = Duration::from_secs(3);
/// That it works shows with a few.
const TRIAL: (usize, usize) = (3, 5);

pub fn targets() -> Vec<Target> {
    vec![
        Target::alone(Metric::MinuteCpu, 0.5),
        Target::alone(Metric::MinuteHostCpu, 0.5),
        Target::alone(Metric::MinuteWrites, 0.0),
    ]
}

pub fn sample(bench: &mut Bench, hosts: usize) -> Result<Sample> {
    let (hosts, new) = if bench.effort.is_a_trial() { (hosts.min(TRIAL.0), TRIAL.1) } else { (hosts, NEW) };
    let mut scene = Scene::up(bench, SERVICES, None)?;
    scene.fill()?;
    let begin = Instant::now();
    let version = scene.version()?;
    let running: Vec<Running> = (0..hosts).map(|host| start(&scene, host)).collect::<Result<_>>()?;
    let controller = scene.start(Part::Controller)?;
    let mut told = AddressesByService::new();
    let all_told = scene.wait_until_told(&mut told, version, begin);
    all_told.with_context(|| kubernetes::words(&controller, &running[0]))?;
    scene.until_silent()?;
    println!("  {hosts} hosts serve after {:.0} s", begin.elapsed().as_secs_f64());
    let all = Processes { controller, hosts: running };

    let mut found = all.make(&mut scene, &mut told, new)?;
    found.extend(scene.change_endpoints_by(&told, |at, change| {
        // Anywhere among them.
        network::lead(*at.ip(), change * 7_919 % hosts)
    })?);
    found.extend(all.rest(&scene)?);
    for (metric, figure) in &found {
        println!("  {} {figure:.2}", metric.label());
    }
    Ok(Sample { figures: found.into_iter().collect(), ..Sample::default() })
}

/// The host `bench` is the Node that has the pods; the others are Nodes without any.
fn start(scene: &Scene<'_>, host: usize) -> Result<Running> {
    let name = host.checked_sub(1).map_or_else(|| objects::HOST.to_owned(), node);
    let (command, folder) = scene.command(Part::Node, &name)?;
    let running = Running::launch_on(None, network::alone(&command, host), Some(folder))?;
    network::plug(running.leader(), host)?;
    Ok(running)
}

struct Processes {
    controller: Running,
    hosts: Vec<Running>,
}

/// Seconds of CPU so far: of the controller, of a host on average, and of the API server.
struct CpuSeconds([f64; 3]);

impl Processes {
    fn spent(&self, scene: &Scene<'_>) -> Result<CpuSeconds> {
        let hosts: f64 = self.hosts.iter().map(cpu).sum::<Result<f64>>()?;
        let server = scene.plane.process("apiserver")?;
        let server = crate::cores::cpu_time(server).context("the API server has ended")?;
        Ok(CpuSeconds([cpu(&self.controller)?, hosts / self.hosts.len() as f64, server]))
    }

    /// One Service after the other. Each comes alone: what hosts and controller still write about the one before is over.
    fn make(
        &self,
        scene: &mut Scene<'_>,
        told: &mut AddressesByService,
        new: usize,
    ) -> Result<Vec<(Metric, f64)>> {
        let (mark, before) = (scene.plane.mark()?, self.spent(scene)?);
        let mut took = Vec::with_capacity(new);
        for _ in 0..new {
            thread::sleep(APART);
            let (version, begin) = (scene.version()?, Instant::now());
            scene.one_more()?;
            scene.wait_until_told(told, version, begin)?;
            took.push(begin.elapsed().as_micros() as u32);
        }
        scene.until_silent()?;
        let after = self.spent(scene)?;
        let each = |part: usize| (after.0[part] - before.0[part]) * 1e3 / new as f64;
        let half = percentile(&mut took, 0.5).context("there are new ones")?;
        Ok(vec![
            (Metric::ServiceTold, f64::from(half) / 1e3),
            (Metric::ServiceWrites, scene.written(mark)?.len() as f64 / new as f64),
            (Metric::ServiceCpu, each(0)),
            (Metric::ServiceHostCpu, each(1)),
            (Metric::ServiceApiCpu, each(2)),
        ])
    }

    fn rest(&self, scene: &Scene<'_>) -> Result<Vec<(Metric, f64)>> {
        // One host is as the others are.
        for running in self.hosts.iter().take(1).chain([&self.controller]) {
            settle(running, scene.bench.effort)?;
        }
        let (mark, before, begin) = (scene.plane.mark()?, self.spent(scene)?, Instant::now());
        while begin.elapsed() < scene.bench.effort.minute() {
            ensure!(!sys::interrupted(), "interrupted");
            thread::sleep(Duration::from_millis(100));
        }
        // Of a minute, however long was measured.
        let scale = 60.0 / begin.elapsed().as_secs_f64();
        let after = self.spent(scene)?;
        let spent = |part: usize| (after.0[part] - before.0[part]) * scale;
        let all = scene.plane.written_since(mark)?.len();
        let others = scene.written(mark)?.len();
        Ok(vec![
            (Metric::MinuteCpu, spent(0)),
            (Metric::MinuteHostCpu, spent(1)),
            (Metric::MinuteApiCpu, spent(2)),
            (Metric::MinuteWrites, others as f64 * scale),
            (Metric::MinuteLeases, (all - others) as f64 * scale),
        ])
    }
}
