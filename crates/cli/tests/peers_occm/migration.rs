//! OCCM, then Seaway, then OCCM, on one cluster and one cloud: docs/from-occm.md, walked.

use std::{
    collections::BTreeMap,
    fmt::{self, Write as _},
    mem,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
    process::Command,
    time::{Duration, Instant},
};

use seaway_testkit::{gate::CloudGate, topology::until_within};
use serde_json::Value;

use crate::{
    occm::Occm,
    report::report,
    requests::{Requests, Target},
    scene::SEAWAY,
    stage::{PATIENCE, Stage, until},
    tree::{Tree, differences},
};

const PORTS: [u16; 3] = [5000, 9876, 9696];

/// The other controller does not wait for the driver of OVN as Seaway does.
const PACE: Duration = Duration::from_secs(2);

/// Longer than a change is held.
const QUIET: Duration = Duration::from_secs(4);

/// OCCM is gone, and nobody waits until it has been silent for ten minutes.
const CONFIGURATION: &str = "{defaultDriver: octavia, adopt: {besideOccm: true}, cloud: {audit: 30s}, admin: {listen: [\"127.0.0.1:0\"]}, lease: 30s}";

const READY: &str = "{.status.conditions[?(@.type=='seaway.dev/Ready')].status}";
pub(crate) const PROBLEMS: &str = "{.status.conditions[?(@.type=='seaway.dev/Problems')].message}";
const BALANCER: &str = r"{.metadata.annotations.loadbalancer\.openstack\.org/load-balancer-id}";

const OUTSIDE: &str = "rig-ext";

/// A web server and an echo of datagrams on each Node.
const PODS: &str = "
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: shop}
spec:
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      containers:
      - {name: web, image: web}
      - {name: echo, image: udp}
";

/// A Service with these annotations, as `loadbalancer.openstack.org/` has them, and what else is in its spec.
pub(crate) fn service(
    name: &'static str,
    annotations: &[(&str, &str)],
    spec: &str,
) -> (&'static str, String) {
    let mut all = String::new();
    for (key, value) in annotations {
        let key =
            if key.contains('/') { (*key).to_owned() } else { format!("loadbalancer.openstack.org/{key}") };
        let _ = write!(all, "{key}: '{value}', ");
    }
    let manifest = format!(
        "
apiVersion: v1
kind: Service
metadata: {{name: {name}, annotations: {{{all}}}}}
spec: {{type: LoadBalancer, selector: {{app: shop}}, {spec}}}
---"
    );
    (name, manifest)
}

pub(crate) struct Migration {
    pub(crate) gate: CloudGate,
    pub(crate) stage: Stage,
    pub(crate) services: Vec<&'static str>,
    role: &'static str,
    occm: Option<Occm>,
    program: PathBuf,
}

/// What one of the two changed when it took over.
pub(crate) struct Changes {
    /// What differs, as `tree::differences` has it.
    pub(crate) seen: Vec<String>,
    /// `METHOD PATH` of each request that was to change something.
    pub(crate) written: Vec<String>,
}

impl Migration {
    pub(crate) fn set(role: &'static str, prepare: impl FnOnce(&mut Stage)) -> Option<Migration> {
        let program = Occm::program()?;
        let mut stage = Stage::set(&[])?;
        prepare(&mut stage);
        let gate = CloudGate::paced(&PORTS, PACE);
        stage.land.write_conf(&gate.auth_url(), &stage.land.project.password());
        stage.scene.install();
        stage.scene.configuration = CONFIGURATION;
        stage.scene.cluster_name = "seven";
        stage.scene.cloud = Some(stage.land.conf.path().to_owned());
        stage.scene.cluster.apply(PODS);
        Some(Migration { gate, stage, services: Vec::new(), role, occm: None, program })
    }

    /// Makes these, which whoever runs serves; OCCM, if nobody does.
    pub(crate) fn serve(&mut self, services: &[(&'static str, String)]) {
        if self.services.is_empty() {
            self.occm = Some(Occm::start(&self.program, &self.stage));
        }
        for (name, manifest) in services {
            self.stage.scene.cluster.apply(manifest);
            self.services.push(name);
        }
        for (name, _) in services {
            let is_served = || !self.field(name, "{.status.loadBalancer.ingress}").is_empty();
            until_within(3 * PATIENCE, &format!("{name} has an address"), is_served);
        }
    }

    /// A Service that is on the load balancer of another.
    pub(crate) fn serve_on(&mut self, other: &str, name: &'static str, spec: &str) {
        let id = self.field(other, BALANCER);
        self.serve(&[service(name, &[("load-balancer-id", &id)], spec)]);
    }

    /// Changes a Service, and waits until OCCM, which runs, has done with it.
    pub(crate) fn edit(&self, name: &str, change: &str) {
        let occm = self.occm.as_ref().expect("OCCM runs");
        let before = occm.ensured(name);
        self.stage.scene.cluster.kubectl(&["patch", "service", name, "--patch", change]);
        until(&format!("OCCM has done with {name}"), || occm.ensured(name) > before);
    }

    pub(crate) fn field(&self, service: &str, path: &str) -> String {
        self.stage.scene.field(&format!("service/{service}"), path)
    }

    pub(crate) fn at(&self, service: &str, port: u16) -> SocketAddr {
        let address: IpAddr = self.stage.address(service).parse().expect("an address");
        (address, port).into()
    }

    /// Requests to all of these from now on, once each is answered.
    pub(crate) fn send(&self, targets: &[Target]) -> Requests {
        self.stage.scene.cluster.kubectl(&["rollout", "status", "daemonset/shop", "--timeout", "300s"]);
        for target in targets {
            until(&format!("{target:?} answers"), || target.answers(OUTSIDE));
        }
        Requests::send(OUTSIDE, targets)
    }

    /// All that there is, once all load balancers are ACTIVE and nothing was changed for longer than a change is held. With
    /// OVN, what is below load balancers may stay PENDING for long, where the driver's word got lost.
    pub(crate) fn tree(&self) -> Tree {
        let mut last = Tree::new();
        let mut since = Instant::now();
        until_within(2 * PATIENCE, "nobody works on it any more", || {
            let before = mem::replace(&mut last, self.stage.land.everything());
            let balancers = last.iter().filter(|(key, _)| key.starts_with("loadbalancers/"));
            let is_active = |(_, it): (&String, &Value)| it["provisioning_status"] == "ACTIVE";
            let is_quiet = differences(&before, &last).is_empty() && balancers.clone().count() > 0;
            if !is_quiet || !balancers.into_iter().all(is_active) {
                since = Instant::now();
            }
            since.elapsed() > QUIET
        });
        last
    }

    /// Ends OCCM, and has Seaway serve all of it.
    pub(crate) fn come_to_seaway(&mut self) -> Changes {
        let before = self.tree();
        self.occm = None;
        self.gate.take_writes();
        self.stage.scene.lead("controller");
        for name in &self.services {
            until(&format!("Seaway serves {name}"), || self.field(name, READY) == "True");
        }
        let changes = self.changes("Coming to Seaway", &before);
        for name in &self.services {
            let problems = self.field(name, PROBLEMS);
            assert!(!problems.contains("OtherController"), "OCCM is gone: {problems}");
        }
        changes
    }

    /// Seaway has said at a port that it writes: it looks each minute, and there is nothing of ours when it begins.
    pub(crate) fn until_a_heartbeat(&self) {
        let is_beat = |it: &Value| it.as_str().is_some_and(|it| it.starts_with("seaway.heartbeat."));
        let is_tagged = |it: &Value| it["tags"].as_array().is_some_and(|it| it.iter().any(is_beat));
        until("a port has a heartbeat", || self.stage.land.told(&["ports"]).values().any(is_tagged));
    }

    /// Ends Seaway, and has OCCM serve all of it.
    pub(crate) fn back_to_occm(&mut self) -> Changes {
        self.back_to_occm_after(|_| ())
    }

    /// The same, with something between the two.
    pub(crate) fn back_to_occm_after(&mut self, between: impl FnOnce(&Migration)) -> Changes {
        let before = self.tree();
        self.stage.scene.kill("controller");
        self.gate.take_writes();
        between(self);
        let occm = Occm::start(&self.program, &self.stage);
        for name in &self.services {
            until(&format!("OCCM serves {name}"), || occm.ensured(name) > 0);
        }
        self.occm = Some(occm);
        self.changes("Going back to OCCM", &before)
    }

    /// What is different now, reported under that heading.
    pub(crate) fn changes(&self, what: &str, before: &Tree) -> Changes {
        let changes = Changes { seen: differences(before, &self.tree()), written: self.gate.take_writes() };
        eprintln!("{}: {what}: {:#?}\n{:#?}", self.role, changes.seen, changes.written);
        report(&format!("{}: {what}, {} Services", self.role, self.services.len()), &changes.to_string());
        changes
    }

    /// OCCM serves them, to their end. The one that came last may be on another's load balancer: of two that leave one at the
    /// same time, OCCM writes back the tag of the other, and the load balancer stays.
    pub(crate) fn delete_all(&mut self) {
        let cluster = &self.stage.scene.cluster;
        let delete = |name: &str| cluster.kubectl(&["delete", "service", name, "--wait=false"]);
        let last = self.services.pop().expect("there is one");
        delete(last);
        until(&format!("{last} is deleted"), || cluster.is_gone(&format!("service/{last}")));
        for name in mem::take(&mut self.services) {
            delete(name);
        }
        until("all load balancers are deleted", || self.stage.land.told(&["loadbalancers"]).is_empty());
    }

    /// `seaway openstack …`: whether it is content, and what it says.
    pub(crate) fn openstack(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = Command::new(SEAWAY);
        command.arg("openstack").args(arguments).args(["--system-namespace", "default"]);
        command.arg("--kubeconfig").arg(self.stage.scene.cluster.kubeconfig());
        command.arg("--cloud-conf").arg(self.stage.land.conf.path());
        let done = command.output().expect("it runs");
        let all = [done.stdout, done.stderr].concat();
        (done.status.success(), String::from_utf8_lossy(&all).into_owned())
    }

    /// `kubectl seaway …`: whether it is content, and what it says.
    pub(crate) fn plugin(&self, arguments: &[&str]) -> (bool, String) {
        let mut command = Command::new(SEAWAY);
        command.arg("kubectl").args(arguments);
        command.arg("--kubeconfig").arg(self.stage.scene.cluster.kubeconfig());
        let done = command.output().expect("it runs");
        let all = [done.stdout, done.stderr].concat();
        (done.status.success(), String::from_utf8_lossy(&all).into_owned())
    }
}

impl fmt::Display for Changes {
    /// How many requests of each kind there were, and how many things of each kind are different.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `created KIND …`, `deleted KIND …`, or `KIND FIELD …`.
        let seen = self.seen.iter().map(|it| it.split(' ').take(2).collect::<Vec<_>>().join(" "));
        writeln!(out, "{} writes: {}", self.written.len(), counted(self.written.iter().map(|it| kind(it))))?;
        write!(out, "{} differences: {}", self.seen.len(), counted(seen))
    }
}

/// Of `PUT /v2/lbaas/pools/ID/members`, what is not an id: `PUT lbaas pools members`.
fn kind(written: &str) -> String {
    let is_word = |it: &&str| !it.is_empty() && !it.starts_with("v2") && it.len() < 30;
    written.split(['/', ' ']).filter(is_word).collect::<Vec<_>>().join(" ")
}

fn counted(all: impl Iterator<Item = String>) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    all.for_each(|it| *counts.entry(it).or_default() += 1);
    counts.iter().map(|(it, count)| format!("{count} {it}")).collect::<Vec<_>>().join(", ")
}

/// Writes of tags and descriptions, also of those at a port by which whoever leads says so: what a load balancer does, and where it
/// leads, is as it was.
const NAMES: [&str; 4] =
    ["PUT lbaas loadbalancers", "PUT lbaas listeners", "PUT floatingips", "PUT ports tags"];

impl Changes {
    /// The kind of each write that is neither of tags nor of descriptions, nor of these kinds, sorted.
    pub(crate) fn written_beyond(&self, kinds: &[&str]) -> Vec<String> {
        let written = self.written.iter().map(|it| kind(it));
        let mut beyond: Vec<String> =
            written.filter(|it| !NAMES.iter().chain(kinds).any(|kind| it == kind)).collect();
        beyond.sort();
        beyond
    }

    /// Requests that were to delete something, but for security groups and their rules: OCCM makes groups anew, and takes
    /// the rules out of them that Neutron gave them.
    pub(crate) fn deletions(&self) -> Vec<&String> {
        let is_it = |it: &&String| it.starts_with("DELETE ") && !it.contains("/security-group");
        self.written.iter().filter(is_it).collect()
    }

    /// What was there before and is not any more.
    pub(crate) fn gone(&self) -> Vec<&String> {
        self.seen.iter().filter(|it| it.starts_with("deleted ")).collect()
    }
}
