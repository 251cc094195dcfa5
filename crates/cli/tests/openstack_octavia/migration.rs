//! From the real OCCM to Seaway and back, as docs/from-occm.md has it: what each of them writes, and that requests are
//! answered all the while.

use std::{mem, path::PathBuf, time::Duration};

use seaway_testkit::{gate::CloudGate, topology::until_within};
use serde_json::Value;

use crate::{
    occm::Occm,
    requests::{Requests, Target},
    stage::{PATIENCE, Stage, until},
    tree::{Tree, beyond_tags, differences},
};

const PORTS: [u16; 3] = [5000, 9876, 9696];

/// OCCM is gone, and nobody waits until it has been silent for ten minutes.
const SEAWAY: &str =
    "{defaultDriver: octavia, adopt: {besideOccm: true}, admin: {listen: [\"127.0.0.1:0\"]}, lease: 30s}";

const READY: &str = "{.status.conditions[?(@.type=='seaway.dev/Ready')].status}";
const PROBLEMS: &str = "{.status.conditions[?(@.type=='seaway.dev/Problems')].message}";
const BALANCER: &str = r"{.metadata.annotations.loadbalancer\.openstack\.org/load-balancer-id}";

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

fn service(name: &str, annotations: &str, spec: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Service
metadata: {{name: {name}, annotations: {{{annotations}}}}}
spec: {{type: LoadBalancer, selector: {{app: shop}}, {spec}}}
---"
    )
}

/// OCCM, then Seaway, then OCCM, on one cluster and one cloud.
struct Migration {
    occm: Option<Occm>,
    program: PathBuf,
    gate: CloudGate,
    stage: Stage,
    services: Vec<&'static str>,
}

impl Migration {
    fn set(role: &str, prepare: impl FnOnce(&mut Stage)) -> Option<Migration> {
        let program = Occm::program()?;
        let mut stage = Stage::set(role, &[])?;
        prepare(&mut stage);
        // The other controller does not wait for the driver of OVN as Seaway does.
        let gate = CloudGate::paced(&PORTS, Duration::from_secs(2));
        stage.land.write_conf(&gate.auth_url(), &stage.land.project.password());
        stage.scene.install();
        stage.scene.configuration = SEAWAY;
        stage.scene.cluster_name = "seven";
        stage.scene.cloud = Some(stage.land.conf.path().to_owned());
        stage.scene.cluster.apply(PODS);
        Some(Migration { occm: None, program, gate, stage, services: Vec::new() })
    }

    /// Starts OCCM, which serves these as well as those that are there.
    fn occm_serves(&mut self, services: &[(&'static str, String)]) {
        if self.occm.is_none() {
            self.occm = Some(Occm::start(&self.program, &self.stage));
        }
        for (name, manifest) in services {
            self.stage.scene.cluster.apply(manifest);
            self.services.push(name);
        }
        for (name, _) in services {
            self.stage.address(name);
        }
    }

    fn field(&self, service: &str, path: &str) -> String {
        self.stage.scene.field(&format!("service/{service}"), path)
    }

    /// All that there is, once all load balancers are ACTIVE and it stays as it is. With OVN, what is below them may stay
    /// PENDING for long, where the driver's word got lost.
    fn tree(&self) -> Tree {
        let mut last = Tree::new();
        until_within(2 * PATIENCE, "nobody works on it any more", || {
            let before = mem::replace(&mut last, self.stage.land.everything());
            let balancers = last.iter().filter(|(key, _)| key.starts_with("loadbalancers/"));
            let is_active = |(_, it): (&String, &Value)| it["provisioning_status"] == "ACTIVE";
            let is_quiet = differences(&before, &last).is_empty() && balancers.clone().count() > 0;
            is_quiet && balancers.into_iter().all(is_active)
        });
        last
    }

    /// Ends OCCM, and has Seaway serve all of it. Returns what that changed.
    fn to_seaway(&mut self) -> Vec<String> {
        let before = self.tree();
        self.occm = None;
        self.gate.take_writes();
        self.stage.scene.lead("controller");
        for name in &self.services {
            until(&format!("Seaway serves {name}"), || self.field(name, READY) == "True");
        }
        differences(&before, &self.tree())
    }

    /// Ends Seaway, and has OCCM serve all of it. Returns what that changed.
    fn back_to_occm(&mut self) -> Vec<String> {
        self.stage.scene.kill("controller");
        self.occm_takes_over()
    }

    fn occm_takes_over(&mut self) -> Vec<String> {
        let before = self.tree();
        self.gate.take_writes();
        let occm = Occm::start(&self.program, &self.stage);
        for name in &self.services {
            let ensured = format!("object=\"default/{name}\"");
            let is_said = |line: &str| line.contains(&ensured) && line.contains("EnsuredLoadBalancer");
            until(&format!("OCCM serves {name}"), || occm.log().lines().any(is_said));
        }
        self.occm = Some(occm);
        differences(&before, &self.tree())
    }
}

/// What OVN can. Without monitors, but for one: `create-monitor` is off by default.
fn kinds_of_ovn() -> Vec<(&'static str, String)> {
    let of = |name: &'static str, annotation: &str, spec: &str| (name, service(name, annotation, spec));
    let web = "ports: [{port: 80}]";
    vec![
        of(
            "two",
            "loadbalancer.openstack.org/keep-floatingip: 'true'",
            "ports: [{name: a, port: 80}, {name: b, port: 8080, targetPort: 80}]",
        ),
        of("local", "", "externalTrafficPolicy: Local, ports: [{port: 80}]"),
        of(
            "both",
            "",
            "ports: [{name: u, port: 5007, targetPort: 7, protocol: UDP}, {name: t, port: 5007, targetPort: 80}]",
        ),
        of("checked", "loadbalancer.openstack.org/enable-health-monitor: 'true'", web),
        of("internal", "service.beta.kubernetes.io/openstack-internal-load-balancer: 'true'", web),
        of("ranges", "", "loadBalancerSourceRanges: [172.24.4.0/24], ports: [{port: 80}]"),
        of("first", "", web),
    ]
}

#[test]
fn services_of_ovn_go_from_occm_to_seaway_and_back_without_a_lost_request() {
    let prepare = |stage: &mut Stage| {
        ["a", "b"].iter().for_each(|it| stage.join(it));
        stage.land.monitors = "";
    };
    let Some(mut all) = Migration::set("ovn", prepare) else { return };
    all.occm_serves(&kinds_of_ovn());
    let shared = format!("loadbalancer.openstack.org/load-balancer-id: {}", all.field("first", BALANCER));
    all.occm_serves(&[("second", service("second", &shared, "ports: [{port: 81, targetPort: 80}]"))]);

    let at = |service: &str, port: u16| -> std::net::SocketAddr {
        (all.stage.address(service).parse::<std::net::IpAddr>().expect("an address"), port).into()
    };
    let targets = [
        Target::Tcp(at("two", 80)),
        Target::Tcp(at("two", 8080)),
        Target::Tcp(at("local", 80)),
        Target::Tcp(at("both", 5007)),
        Target::Tcp(at("checked", 80)),
        Target::Tcp(at("second", 81)),
        Target::Udp(at("both", 5007)),
    ];
    all.stage.scene.cluster.kubectl(&["rollout", "status", "daemonset/shop", "--timeout", "300s"]);
    for target in &targets {
        let asked = || Requests::send("rig-ext", std::slice::from_ref(target)).stop();
        until(&format!("{target:?} answers"), || asked().failed.is_empty());
    }
    let requests = Requests::send("rig-ext", &targets);

    let came = all.to_seaway();
    let written = all.gate.take_writes();
    eprintln!("coming: {came:#?}\nwritten: {written:#?}");
    for name in &all.services {
        let problems = all.field(name, PROBLEMS);
        assert!(!problems.contains("OtherController"), "OCCM is gone: {problems}");
    }
    let went = all.back_to_occm();
    let written_back = all.gate.take_writes();
    eprintln!("going: {went:#?}\nwritten: {written_back:#?}");
    let answers = requests.stop();
    eprintln!("{} requests, {} failed: {:?}", answers.sent, answers.failed.len(), answers.failed);

    assert_eq!(beyond_tags(&came), [""; 0]);
    assert_eq!(went, [""; 0]);
    assert_eq!(answers.failed, [""; 0], "of {} requests", answers.sent);

    // What Seaway served is OCCM's again, to its end.
    for name in &all.services {
        all.stage.scene.cluster.kubectl(&["delete", "service", name, "--wait=false"]);
    }
    until("OCCM has deleted all load balancers", || all.stage.land.told(&["loadbalancers"]).is_empty());
}
