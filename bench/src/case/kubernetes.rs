//! A cluster that is full of Services: until all have addresses, a restart, endpoints that change, and a minute in which
//! nothing happens.

use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;

use super::alone::Members;
use super::{Bench, Effort, Metric, Sample, Target};
use crate::contender::Running;
use crate::contender::seaway::{
    self,
    member::{NAMESPACE, Part},
};
use crate::cores;
use crate::plane::{
    Plane, Write,
    api::{self, Api},
    objects,
};
use crate::statistics::percentile;
use crate::sys;

const MIB: f64 = (1 << 20) as f64;
/// An install that takes longer is no install.
const PATIENCE: Duration = Duration::from_secs(900);
/// What a start leaves behind is over when the CPU did less than this in a second.
const REST: f64 = 0.02;
/// Less than this is what the controllers of Kubernetes do when nothing happens.
const RIG_REST: f64 = 0.2;
const NODES: usize = 100;

pub fn targets() -> Vec<Target> {
    vec![
        Target::alone(Metric::Installed, 180.0),
        Target::alone(Metric::RestartCpu, 15.0),
        Target::alone(Metric::RestartWrites, 0.0),
        Target::alone(Metric::RestartPeak, 300.0),
        Target::alone(Metric::EndpointP99, 100.0),
        Target::alone(Metric::MinuteCpu, 0.5),
        Target::alone(Metric::MinuteHostCpu, 0.5),
        Target::alone(Metric::MinuteWrites, 0.0),
        Target::alone(Metric::HeartbeatUnits, 0.0),
    ]
}

pub fn sample(bench: &mut Bench) -> Result<Sample> {
    let services = bench.effort.services;
    let kept = bench.kept.as_ref().map(|it| it.join(format!("services-{services}")));
    let was_kept = kept.as_ref().is_some_and(|it| it.exists());
    let scene = Scene::up(bench, services, kept.as_deref())?;
    if !was_kept {
        scene.fill()?;
        kept.iter().try_for_each(|it| scene.plane.keep_in(it))?;
    }
    // Controllers of Kubernetes, which have just begun, go through all of it first.
    settle_below(RIG_REST, scene.plane.controllers()?, bench.effort)?;
    let mut figures = Vec::new();
    let mut note = |found: MetricValues| {
        let words: Vec<String> =
            found.iter().map(|(it, figure)| format!("{} {figure:.2}", it.label())).collect();
        println!("  {}", words.join(", "));
        figures.extend(found);
    };
    let (controller, host, addresses, found) = scene.install()?;
    note(found);
    let (controller, found) = scene.restart_controller(controller)?;
    note(found);
    let (host, found) = scene.restart_host(host, &addresses)?;
    note(found);
    note(scene.change_endpoints(&addresses)?);
    note(scene.rest(&controller, &host)?);
    note(scene.heartbeats(&controller, &host)?);
    Ok(Sample { figures: figures.into_iter().collect(), ..Sample::default() })
}

pub(super) struct Scene<'a> {
    pub(super) bench: &'a Bench,
    pub(super) plane: Plane,
    members: Members,
    services: usize,
}

type MetricValues = Vec<(Metric, f64)>;

/// The addresses that Services were told, by their names.
pub(super) type AddressesByService = HashMap<String, Ipv4Addr>;

impl<'a> Scene<'a> {
    /// An empty control plane, or one that is as it was kept.
    pub(super) fn up(bench: &'a Bench, services: usize, kept: Option<&Path>) -> Result<Self> {
        ensure!(bench.own_network, "a case with a cluster needs a network of its own (root)");
        let plane = Plane::up(&bench.programs.rig, kept)?;
        Ok(Self { plane, members: Members::start()?, bench, services })
    }

    /// All that is there before Seaway is.
    pub(super) fn fill(&self) -> Result<()> {
        let begin = Instant::now();
        let crds = std::process::Command::new(&self.bench.programs.seaway).arg("crds").output()?;
        self.plane.kubectl(&["apply", "-f", "-"], &String::from_utf8(crds.stdout)?)?;
        self.plane.kubectl(&["wait", "--for=condition=Established", "crd", "--all"], "")?;
        self.plane.kubectl(&["create", "namespace", NAMESPACE], "")?;
        self.plane.kubectl(&["apply", "-f", "-"], objects::POOL)?;
        for part in Part::BOTH {
            let everywhere = [part.user(), "seaway-reader"].map(|it| ("clusterrolebinding", it));
            // As the manifests in deploy/ bind them.
            let beside: &[&str] = match part {
                Part::Controller => &["seaway-leader", "seaway-lease-reader", "seaway-records"],
                Part::Node => &["seaway-leases"],
            };
            let beside = beside.iter().map(|it| ("rolebinding", *it));
            for (kind, role) in everywhere.into_iter().chain(beside) {
                let (role_of, user) = (format!("--clusterrole={role}"), format!("--user={}", part.user()));
                let binding = format!("{}-{role}", part.user());
                let bind = ["create", kind, &binding, &role_of, &user, "--namespace", NAMESPACE];
                self.plane.kubectl(&bind, "")?;
            }
        }
        self.plane.create(1, |_| objects::node(objects::HOST))?;
        self.plane.create(NODES, |index| objects::node(&node(index)))?;
        self.beat(1, NODES + 1)?;
        self.plane.create(self.services, objects::service)?;
        self.plane.create(self.services, objects::slice)?;
        println!("  filled in {:.0} s", begin.elapsed().as_secs_f64());
        Ok(())
    }

    /// One Service more, with its pods.
    pub(super) fn one_more(&mut self) -> Result<()> {
        let mut api = self.plane.api()?;
        for (path, object) in [objects::slice(self.services), objects::service(self.services)] {
            api.ask("POST", &path, Some(&object))?;
        }
        self.services += 1;
        Ok(())
    }

    pub(super) fn start(&self, part: Part) -> Result<Running> {
        let (command, folder) = self.command(part, objects::HOST)?;
        Running::launch_on(None, command, Some(folder))
    }

    /// Of that host, with the folder that it needs.
    pub(super) fn command(&self, part: Part, host: &str) -> Result<(Command, TempDir)> {
        let folder = tempfile::Builder::new().prefix("seaway-bench-").tempdir()?;
        let kubeconfig = self.plane.kubeconfig(part.user())?;
        Ok((part.command(&self.bench.programs, host, folder.path(), &kubeconfig)?, folder))
    }

    /// Of the Services, now.
    pub(super) fn version(&self) -> Result<String> {
        let listed = self.plane.api()?.ask("GET", &format!("{}?limit=1", objects::SERVICES), None)?;
        Ok(listed["metadata"]["resourceVersion"].as_str().context("a list has a version")?.to_owned())
    }

    fn install(&self) -> Result<(Running, Running, AddressesByService, MetricValues)> {
        let version = self.version()?;
        let (mark, begin) = (self.plane.mark()?, Instant::now());
        let host = self.start(Part::Node)?;
        let controller = self.start(Part::Controller)?;
        let mut told = AddressesByService::new();
        self.wait_until_told(&mut told, version, begin).with_context(|| words(&controller, &host))?;
        let installed = begin.elapsed().as_secs_f64();
        let [spent, spent_by_host] = [&controller, &host].map(cpu);
        // The first may have been closed meanwhile.
        let written = api::count(&mut self.plane.api()?, objects::ADDRESSES)?;
        ensure!(written == self.services, "{written} Addresses for {} Services", self.services);
        self.prove(&told)?;
        let each = || Ok::<_, anyhow::Error>(self.written(mark)?.len() as f64 / self.services as f64);
        let by_then = each()?;
        // Events come in their turn, after what all wait for.
        self.until_silent()?;
        let found = vec![
            (Metric::Installed, installed),
            (Metric::InstallCpu, spent?),
            (Metric::InstallHostCpu, spent_by_host?),
            (Metric::InstallWrites, by_then),
            (Metric::AllTold, begin.elapsed().as_secs_f64()),
            (Metric::AllWrites, each()?),
        ];
        Ok((controller, host, told, found))
    }

    /// Until all Services are: those who were told before are among them.
    pub(super) fn wait_until_told(
        &self,
        told: &mut AddressesByService,
        mut version: String,
        begin: Instant,
    ) -> Result<()> {
        let Err(error) = self.hear_all(&self.plane.api()?, told, &mut version, begin) else { return Ok(()) };
        let _kinds = self.written(0)?;
        let untold = (0..self.services).map(objects::name).find(|it| !told.contains_key(it));
        let untold = untold.unwrap_or_default();
        let object = self.plane.api()?.ask("GET", &format!("{}/{untold}", objects::SERVICES), None)?;
        bail!("{} of {}: {error:#}: {untold} has the status {}", told.len(), self.services, object["status"])
    }

    fn hear_all(
        &self,
        api: &Api,
        told: &mut AddressesByService,
        version: &mut String,
        begin: Instant,
    ) -> Result<()> {
        // An API server ends watches that are not read fast enough.
        while begin.elapsed() < PATIENCE {
            let path = format!("{}?watch=true&resourceVersion={version}", objects::SERVICES);
            for event in api.follow(&path)? {
                let event = event?;
                ensure!(event["type"] != "ERROR", "the watch of Services: {event}");
                ensure!(!sys::interrupted(), "interrupted");
                let now = event.pointer("/object/metadata/resourceVersion").and_then(Value::as_str);
                *version = now.context("an object has a version")?.to_owned();
                told.extend(address_in(&event["object"]));
                if told.len() == self.services {
                    return Ok(());
                }
            }
        }
        bail!("{} of {} Services were told an address within {PATIENCE:?}", told.len(), self.services)
    }

    /// Some of all answer, through the data plane, from a pod of their own.
    fn prove(&self, told: &AddressesByService) -> Result<()> {
        for service in (0..self.services).step_by(self.services.div_ceil(50)) {
            let at = door(told, service)?;
            let pod =
                self.members.answers_at(at).with_context(|| format!("{} at {at}", objects::name(service)))?;
            ensure!(objects::endpoints(service).contains(&pod), "{at} leads to {pod}");
        }
        Ok(())
    }

    fn restart_controller(&self, old: Running) -> Result<(Running, MetricValues)> {
        settle(&old, self.bench.effort)?;
        drop(old);
        let mark = self.plane.mark()?;
        let controller = self.start(Part::Controller)?;
        let ready = controller.wait_until(PATIENCE, || seaway::is_ready_at(Part::Controller.admin()))?;
        // Ready is not yet at rest: who leads begins after that.
        settle(&controller, self.bench.effort)?;
        let found = vec![
            (Metric::Restarted, ready.as_secs_f64()),
            (Metric::RestartCpu, cpu(&controller)?),
            (Metric::RestartPeak, peak(&controller)?),
            (Metric::RestartWrites, self.written(mark)?.len() as f64),
        ];
        Ok((controller, found))
    }

    fn restart_host(&self, old: Running, told: &AddressesByService) -> Result<(Running, MetricValues)> {
        drop(old);
        let mark = self.plane.mark()?;
        let host = self.start(Part::Node)?;
        let ready = host.wait_until(PATIENCE, || seaway::is_ready_at(Part::Node.admin()))?;
        settle(&host, self.bench.effort)?;
        self.until_silent()?;
        self.prove(told)?;
        let found = vec![
            (Metric::HostRestartWrites, self.written(mark)?.len() as f64),
            (Metric::HostRestarted, ready.as_secs_f64()),
            (Metric::HostRestartCpu, cpu(&host)?),
            (Metric::HostPeak, peak(&host)?),
        ];
        Ok((host, found))
    }

    /// Waits until nothing more is written, but Leases.
    pub(super) fn until_silent(&self) -> Result<()> {
        let (mark, begin) = (self.plane.mark()?, Instant::now());
        let (mut before, mut silent) = (0, 0);
        while silent < 3 {
            ensure!(!sys::interrupted(), "interrupted");
            ensure!(begin.elapsed() < PATIENCE, "it does not come to rest");
            thread::sleep(Duration::from_secs(1));
            let now = self.plane.written_since(mark)?.iter().filter(|it| it.resource != "leases").count();
            silent = if now == before { silent + 1 } else { 0 };
            before = now;
        }
        Ok(())
    }

    /// What both parts have written since, but Leases.
    pub(super) fn written(&self, mark: u64) -> Result<Vec<Write>> {
        let mut written = self.plane.written_since(mark)?;
        written.retain(|it| it.resource != "leases");
        let mut kinds = BTreeMap::<&Write, usize>::new();
        written.iter().for_each(|it| *kinds.entry(it).or_default() += 1);
        for (write, count) in kinds {
            println!("  {} wrote: {count} × {} {}", write.user, write.verb, write.resource);
        }
        Ok(written)
    }

    /// One Service after the other gets a pod that nobody had.
    fn change_endpoints(&self, told: &AddressesByService) -> Result<MetricValues> {
        self.change_endpoints_by(told, |_, _| Ok(()))
    }

    /// `lead`: what is to be done before the Service at that address is asked.
    pub(super) fn change_endpoints_by(
        &self,
        told: &AddressesByService,
        lead: impl Fn(SocketAddrV4, usize) -> Result<()>,
    ) -> Result<MetricValues> {
        let changes = self.bench.effort.changes();
        let mut api = self.plane.api()?;
        let mut took = Vec::with_capacity(changes);
        for change in 0..changes {
            // Anywhere among them.
            let service = change * 7_919 % self.services;
            let (at, pod) = (door(told, service)?, objects::newcomer(change));
            let (path, patch) = objects::moved(service, &[pod]);
            lead(at, change)?;
            api.ask("PATCH", &path, Some(&patch))?;
            // What the API server has acknowledged is a fact; how long it took for that is not ours.
            let begin = Instant::now();
            while self.members.answers_at(at)? != pod {
                ensure!(!sys::interrupted(), "interrupted");
                ensure!(begin.elapsed() < Duration::from_secs(10), "{at} does not lead to {pod} after 10 s");
                thread::sleep(Duration::from_micros(500));
            }
            took.push(begin.elapsed().as_micros() as u32);
        }
        let share = |took: &mut [u32], of| percentile(took, of).map(|it| f64::from(it) / 1e3);
        Ok(vec![
            (Metric::EndpointHalf, share(&mut took, 0.5).context("something changed")?),
            (Metric::EndpointP99, share(&mut took, 0.99).context("something changed")?),
        ])
    }

    fn rest(&self, controller: &Running, host: &Running) -> Result<MetricValues> {
        for running in [controller, host] {
            settle(running, self.bench.effort)?;
        }
        thread::sleep(self.bench.effort.until_audits());
        let (mark, before) = (self.plane.mark()?, (cpu(controller)?, cpu(host)?));
        let begin = Instant::now();
        let minute = self.bench.effort.minute();
        while begin.elapsed() < minute {
            ensure!(!sys::interrupted(), "interrupted");
            thread::sleep(Duration::from_millis(100));
        }
        // Of a minute, however long was measured.
        let scale = 60.0 / begin.elapsed().as_secs_f64();
        let all = self.plane.written_since(mark)?.len();
        let others = self.written(mark)?.len();
        Ok(vec![
            (Metric::MinuteCpu, (cpu(controller)? - before.0) * scale),
            (Metric::MinuteHostCpu, (cpu(host)? - before.1) * scale),
            (Metric::MinuteWrites, others as f64 * scale),
            (Metric::MinuteLeases, (all - others) as f64 * scale),
        ])
    }

    fn heartbeats(&self, controller: &Running, host: &Running) -> Result<MetricValues> {
        let marked = || -> Result<u64> { Ok(Part::Controller.marked()? + Part::Node.marked()?) };
        let before = marked()?;
        let spent = cpu(controller)? + cpu(host)?;
        self.beat(2, 1_000)?;
        for running in [controller, host] {
            settle(running, self.bench.effort)?;
        }
        let spent = cpu(controller)? + cpu(host)? - spent;
        Ok(vec![(Metric::HeartbeatUnits, (marked()? - before) as f64), (Metric::HeartbeatCpu, spent)])
    }

    /// So many heartbeats, from one Node after the other, the host among them.
    fn beat(&self, first: usize, count: usize) -> Result<()> {
        self.plane.in_parallel(count, |api, index| {
            let name = match index % (NODES + 1) {
                0 => objects::HOST.to_owned(),
                other => node(other - 1),
            };
            let path = format!("{}/{name}/status", objects::NODES);
            api.ask("PATCH", &path, Some(&objects::heartbeat(first * 10_000 + index))).map(drop)
        })
    }
}

pub(super) fn node(index: usize) -> String {
    format!("node-{index:03}")
}

pub(super) fn door(told: &AddressesByService, service: usize) -> Result<SocketAddrV4> {
    let name = objects::name(service);
    Ok(SocketAddrV4::new(*told.get(&name).with_context(|| format!("{name} has no address"))?, 80))
}

fn address_in(service: &Value) -> Option<(String, Ipv4Addr)> {
    let ip = service.pointer("/status/loadBalancer/ingress/0/ip")?.as_str()?.parse().ok()?;
    Some((service.pointer("/metadata/name")?.as_str()?.to_owned(), ip))
}

/// Seconds of CPU since it was started.
pub(super) fn cpu(running: &Running) -> Result<f64> {
    cores::cpu_time(process(running)?).context("it has ended")
}

fn peak(running: &Running) -> Result<f64> {
    Ok(cores::peak_memory(process(running)?).context("it has ended")? as f64 / MIB)
}

fn process(running: &Running) -> Result<u32> {
    running.processes().into_iter().next().context("it has ended")
}

/// Waits until it does nothing more.
pub(super) fn settle(running: &Running, effort: Effort) -> Result<()> {
    settle_below(REST, process(running)?, effort)
}

/// Waits until it takes less of a core than this. A trial, whose figures mean nothing, does not wait.
fn settle_below(rest: f64, process: u32, effort: Effort) -> Result<()> {
    if effort.is_a_trial() {
        return Ok(());
    }
    let cpu = || cores::cpu_time(process).context("it has ended");
    let begin = Instant::now();
    let mut before = cpu()?;
    let mut rested = 0;
    while rested < 3 {
        ensure!(!sys::interrupted(), "interrupted");
        if begin.elapsed() > PATIENCE {
            bail!("it does not come to rest");
        }
        thread::sleep(Duration::from_secs(1));
        let now = cpu()?;
        rested = if now - before < rest { rested + 1 } else { 0 };
        before = now;
    }
    Ok(())
}

pub(super) fn words(controller: &Running, host: &Running) -> String {
    format!("controller: {}\nhost: {}", controller.last_words(), host.last_words())
}
