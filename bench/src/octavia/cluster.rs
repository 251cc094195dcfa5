//! A control plane with Nodes that are machines of the fake cloud, and a controller for it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::Size;
use crate::case::cloud::FakeCloudProcess;
use crate::contender::seaway::member::{NAMESPACE, Part};
use crate::contender::{Programs, Running};
use crate::cores;
use crate::plane::{
    Plane,
    objects::{NODES, SERVICES},
};
use crate::sys;

/// What takes longer does not come about at all.
const PATIENCE: Duration = Duration::from_secs(600);
/// Whoever waits for a change looks every two seconds: after so long nobody waits.
const SILENCE: f64 = 5.0;
const ROLES: [(&str, &str); 7] = [
    ("clusterrolebinding", "seaway-controller"),
    ("clusterrolebinding", "seaway-reader"),
    ("clusterrolebinding", "seaway-certificates"),
    ("clusterrolebinding", "seaway-cloud"),
    ("rolebinding", "seaway-lease-reader"),
    ("rolebinding", "seaway-leader"),
    ("rolebinding", "seaway-records"),
];
const INTERNAL: &str = "service.beta.kubernetes.io/openstack-internal-load-balancer";

/// Dropping it ends the controller first.
pub struct Cluster<'a> {
    controller: Option<Running>,
    plane: Plane,
    fake: FakeCloudProcess,
    programs: &'a Programs,
    size: Size,
    conf: PathBuf,
    folder: tempfile::TempDir,
}

/// How often all is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audit {
    /// Not while changes are counted.
    Seldom,
    Often,
}

/// What was asked of the cloud for a change, as the fake tells it.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiUsage {
    pub calls: usize,
    pub polls: usize,
    pub heartbeats: usize,
    pub writes: usize,
    pub renames: usize,
    /// Answered with an error.
    pub failed: usize,
    /// Since the last call.
    pub silent_for: Option<f64>,
    pub kinds: BTreeMap<String, usize>,
    /// Seconds, of the controller.
    #[serde(skip)]
    pub cpu: f64,
}

impl ApiUsage {
    /// What was counted is of the change that was meant.
    pub fn shows(&self, kinds: &[(&str, usize)]) -> Result<()> {
        for (kind, count) in kinds {
            let there = self.kinds.get(*kind).copied().unwrap_or(0);
            ensure!(there == *count, "{there} instead of {count} × {kind} in {:?}", self.kinds);
        }
        Ok(())
    }
}

impl<'a> Cluster<'a> {
    /// With its Nodes and its controller, and no Service.
    pub fn up(programs: &'a Programs, size: Size) -> Result<Self> {
        let mut fake = FakeCloudProcess::start(&programs.seaway, "cloud_at_work", &[size.nodes + 1])?;
        let there: Value = serde_json::from_str(&fake.line().context("the fake cloud did not come up")?)?;
        let text = |field: &str| there[field].as_str().context("the fake cloud says where it is");
        let folder = tempfile::Builder::new().prefix("seaway-bench-").tempdir()?;
        let conf = folder.path().join("cloud.conf");
        let written = format!(
            "[Global]\nauth-url={}\nusername=demo\npassword=demopw\ntenant-name=demo\ndomain-id=default\n\
             [LoadBalancer]\nsubnet-id={}\nlb-provider=amphora\nmanage-security-groups=true\ncreate-monitor=true\n",
            text("authUrl")?,
            text("subnet")?
        );
        fs::write(&conf, written)?;
        fs::set_permissions(&conf, fs::Permissions::from_mode(0o600))?;
        let plane = Plane::up(&programs.rig, None)?;
        let mut cluster = Self { controller: None, plane, fake, programs, size, conf, folder };
        cluster.fill()?;
        cluster.lead(Audit::Seldom)?;
        Ok(cluster)
    }

    fn fill(&self) -> Result<()> {
        let crds = Command::new(&self.programs.seaway).arg("crds").output()?;
        self.plane.kubectl(&["apply", "-f", "-"], &String::from_utf8(crds.stdout)?)?;
        self.plane.kubectl(&["wait", "--for=condition=Established", "crd", "--all"], "")?;
        self.plane.kubectl(&["create", "namespace", NAMESPACE], "")?;
        let user = format!("--user={}", Part::Controller.user());
        for (kind, role) in ROLES {
            let role_of = format!("--clusterrole={role}");
            self.plane.kubectl(&["create", kind, role, &role_of, &user, "--namespace", NAMESPACE], "")?;
        }
        let certificate = &self.programs.certificate;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": { "name": "bench", "namespace": "default" },
            "stringData": { "tls.crt": certificate.chain, "tls.key": certificate.key },
        });
        self.plane.kubectl(&["apply", "-f", "-"], &secret.to_string())?;
        (0..self.size.nodes).try_for_each(|it| self.join(it))
    }

    /// A Node that is Ready, on the machine of that number.
    fn join(&self, number: usize) -> Result<()> {
        let at = "2030-01-01T00:00:00Z";
        let ready = json!({
            "type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": at,
            "lastTransitionTime": at,
        });
        let address = json!({ "type": "InternalIP", "address": format!("10.0.200.{}", number + 1) });
        // As a kubelet registers: with its status.
        let object = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": node(number) },
            "spec": { "providerID": format!("openstack:///00000000-0000-4000-8000-{number:012}") },
            "status": { "conditions": [ready], "addresses": [address] },
        });
        self.plane.api()?.ask("POST", NODES, Some(&object)).map(drop)
    }

    /// A controller begins to lead, and looks at all that is there.
    pub fn lead(&mut self, audit: Audit) -> Result<ApiUsage> {
        let config = self.folder.path().join("seaway.yaml");
        let every = if audit == Audit::Often { "1m" } else { "1h" };
        let admin = Part::Controller.admin();
        let text =
            format!("log: {{level: warn}}\nadmin: {{listen: [\"{admin}\"]}}\ncloud: {{audit: {every}}}\n");
        fs::write(&config, text)?;
        let kubeconfig = self.plane.kubeconfig(Part::Controller.user())?;
        let mut command = Command::new(&self.programs.seaway);
        command.arg("controller").arg("--config").arg(config).arg("--kubeconfig").arg(kubeconfig);
        command.args(["--host", "bench", "--namespace", NAMESPACE, "--cluster-name", "bench"]);
        command.arg("--cloud-config").arg(&self.conf).env("no_proxy", "*");
        self.fake.ask("begin")?;
        let output = tempfile::Builder::new().prefix("seaway-bench-").tempdir()?;
        self.controller = Some(Running::launch_on(None, command, Some(output))?);
        // Whoever leads begins with a heartbeat.
        self.settled("a controller leads", |_, it| Ok(it.heartbeats > 0 && it.calls > 0))
    }

    /// Gives it time to give its Lease back.
    pub fn end(&mut self) {
        self.controller = None;
    }

    /// Services of these names; whether one of their ports ends TLS.
    pub fn create(&mut self, services: &[(&str, bool)]) -> Result<ApiUsage> {
        // Floating IPs are counted where there is one Service: nobody has a hundred of them.
        let is_internal = services.len() > 1;
        self.changed(
            &format!("{} Services have addresses", services.len()),
            |plane| {
                plane.create(services.len(), |at| {
                    let (name, is_secure) = services[at];
                    service(name, is_secure, is_internal)
                })
            },
            |plane| {
                let all = plane.api()?.ask("GET", SERVICES, None)?;
                let is_new = |it: &&Value| services.iter().any(|(name, _)| it["metadata"]["name"] == *name);
                let has_one = |it: &&Value| it.pointer("/status/loadBalancer/ingress/0/ip").is_some();
                let all = all["items"].as_array().context("a list")?;
                Ok(all.iter().filter(is_new).filter(has_one).count() == services.len())
            },
        )
    }

    pub fn append_port(&mut self, service: &str) -> Result<ApiUsage> {
        let at = format!("{SERVICES}/{service}");
        let change = |plane: &Plane| -> Result<()> {
            let mut api = plane.api()?;
            let mut ports = api.ask("GET", &at, None)?["spec"]["ports"].clone();
            ports.as_array_mut().context("ports")?.push(port("more", 8443));
            api.ask("PATCH", &at, Some(&json!({ "spec": { "ports": ports } }))).map(drop)
        };
        self.changed("a port follows", change, |_| Ok(true))
    }

    pub fn add_node(&mut self) -> Result<ApiUsage> {
        let number = self.size.nodes;
        self.fake.ask("begin")?;
        let before = self.spent()?;
        self.join(number)?;
        self.counted("members follow a Node", before, self.pools(), |_| Ok(true))
    }

    /// Two of each Service, at least.
    fn pools(&self) -> usize {
        2 * (self.size.services + 4)
    }

    pub fn remove_node(&mut self) -> Result<ApiUsage> {
        let at = format!("{NODES}/{}", node(self.size.nodes));
        let change = |plane: &Plane| plane.api()?.ask("DELETE", &at, None).map(drop);
        self.fake.ask("begin")?;
        let before = self.spent()?;
        change(&self.plane)?;
        self.counted("members follow a Node", before, self.pools(), |_| Ok(true))
    }

    pub fn delete(&mut self, service: &str) -> Result<ApiUsage> {
        let at = format!("{SERVICES}/{service}");
        self.changed(
            "a Service is gone",
            |plane| plane.api()?.ask("DELETE", &at, None).map(drop),
            |plane| {
                let all = plane.api()?.ask("GET", SERVICES, None)?;
                let all = all["items"].as_array().context("a list")?;
                Ok(all.iter().all(|it| it["metadata"]["name"] != *service))
            },
        )
    }

    /// What is asked while nothing happens.
    pub fn rest(&mut self, time: Duration) -> Result<ApiUsage> {
        self.fake.ask("begin")?;
        let begin = Instant::now();
        while begin.elapsed() < time {
            ensure!(!sys::interrupted(), "interrupted");
            thread::sleep(Duration::from_millis(100));
        }
        let told = self.told()?;
        println!("  {time:?} at rest: {:?}", told.kinds);
        let has_audit = told.kinds.contains_key("GET lbaas/loadbalancers");
        ensure!(has_audit, "no audit came in {time:?}");
        Ok(told)
    }

    /// Seconds of CPU that the controller has taken.
    pub fn spent(&self) -> Result<f64> {
        cores::cpu_time(self.process()?).context("the controller has ended")
    }

    pub fn process(&self) -> Result<u32> {
        let running = self.controller.as_ref().context("no controller runs")?;
        running.processes().into_iter().next().context("the controller has ended")
    }

    pub fn last_words(&self) -> String {
        self.controller.as_ref().map_or(String::new(), Running::last_words)
    }

    fn changed(
        &mut self,
        what: &str,
        change: impl FnOnce(&Plane) -> Result<()>,
        is_so: impl FnMut(&Plane) -> Result<bool>,
    ) -> Result<ApiUsage> {
        self.fake.ask("begin")?;
        let before = self.spent()?;
        change(&self.plane)?;
        self.counted(what, before, 1, is_so)
    }

    /// `writes`: so many come of it at least.
    fn counted(
        &mut self,
        what: &str,
        before: f64,
        writes: usize,
        mut is_so: impl FnMut(&Plane) -> Result<bool>,
    ) -> Result<ApiUsage> {
        let told = self.settled(what, |plane, it| Ok(it.writes >= writes && is_so(plane)?))?;
        ensure!(told.failed == 0, "{what}: {} requests failed: {:?}", told.failed, told.kinds);
        Ok(ApiUsage { cpu: self.spent()? - before, ..told })
    }

    /// Waits until it is so, and the cloud is asked nothing more.
    fn settled(
        &mut self,
        what: &str,
        mut is_so: impl FnMut(&Plane, &ApiUsage) -> Result<bool>,
    ) -> Result<ApiUsage> {
        let begin = Instant::now();
        loop {
            ensure!(!sys::interrupted(), "interrupted");
            let told = self.told()?;
            let is_silent = told.silent_for.is_none_or(|it| it >= SILENCE);
            if is_silent && is_so(&self.plane, &told)? {
                let told_for = begin.elapsed().as_secs_f64() - SILENCE;
                println!("  {what}, the last request after {told_for:.1} s: {:?}", told.kinds);
                return Ok(told);
            }
            if begin.elapsed() > PATIENCE {
                bail!("not within {PATIENCE:?}: {what}; {told:?}");
            }
            thread::sleep(Duration::from_millis(200));
        }
    }

    fn told(&mut self) -> Result<ApiUsage> {
        let line = self.fake.ask("")?;
        serde_json::from_str(&line).with_context(|| format!("the fake cloud said {line}"))
    }
}

fn node(number: usize) -> String {
    format!("node-{number:03}")
}

fn port(name: &str, number: u16) -> Value {
    json!({ "name": name, "port": number })
}

fn service(name: &str, is_secure: bool, is_internal: bool) -> (String, Value) {
    let mut annotations = serde_json::Map::new();
    if is_secure {
        annotations.insert("seaway.dev/tls".to_owned(), "bench".into());
    }
    if is_internal {
        annotations.insert(INTERNAL.to_owned(), "true".into());
    }
    let object = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": { "name": name, "annotations": annotations },
        "spec": {
            "type": "LoadBalancer",
            "loadBalancerClass": "seaway.dev/octavia",
            "selector": { "app": name },
            "ports": [port("web", 80), port("more-web", 443)],
        },
    });
    (SERVICES.to_owned(), object)
}
