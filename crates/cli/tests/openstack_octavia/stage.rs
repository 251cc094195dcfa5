//! A cluster whose nodes are machines of a project of the cloud.

use std::{
    collections::BTreeMap,
    fs, mem,
    net::{IpAddr, SocketAddr, UdpSocket},
    ops::Deref,
    thread,
    time::Duration,
};

use seaway_openstack::{
    neutron::{
        Direction, EtherType, NewPort, NewSecurityGroupRule, NewSubnet, Port, Router, SecurityGroupRule,
        Subnet,
    },
    resource::{Id, Query},
};
use seaway_testkit::{
    kubernetes::NodeOptions,
    topology::{Namespace, OpenStack, ask, until_within},
};
use serde_json::Value;
use tempfile::NamedTempFile;

use crate::{
    ground::{CloudProject, plug},
    scene::Scene,
};

/// For whatever two control planes and a controller do on a machine that does other things, too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// What Octavia has.
pub(crate) const BALANCERS: [&str; 5] = ["loadbalancers", "listeners", "pools", "healthmonitors", "members"];

const PAUSE: Duration = Duration::from_millis(300);

pub(crate) const AUTH_URL: &str = "http://127.0.0.1:5000/v3";

/// Fields drop in order: machines are unplugged before the project is emptied.
pub(crate) struct Stage {
    pub(crate) scene: Scene,
    pub(crate) land: CloudSetup,
}

/// A project with a network that is led outside, and what cloud.conf says.
pub(crate) struct CloudSetup {
    /// Until it is dropped.
    ground: Option<CloudProject>,
    /// Others use it before and after.
    is_shared: bool,
    pub(crate) conf: NamedTempFile,
    /// What `[LoadBalancer]` says of the provider, and of monitors.
    pub(crate) provider: &'static str,
    pub(crate) monitors: &'static str,
    /// What `[LoadBalancer]` says besides.
    pub(crate) options: &'static str,
    /// Machines from now on let nobody in.
    pub(crate) closed: bool,
    pub(crate) rig: OpenStack,
}

impl Deref for CloudSetup {
    type Target = CloudProject;

    fn deref(&self) -> &CloudProject {
        self.ground.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for CloudSetup {
    fn drop(&mut self) {
        if let Some(ground) = self.ground.take().filter(|_| self.is_shared && !thread::panicking()) {
            ground.give_back();
        }
    }
}

impl Stage {
    /// With nodes of these names, in a project that other tests have used and will use. None where one of the two rigs is
    /// missing.
    pub(crate) fn set(nodes: &[&str]) -> Option<Stage> {
        let rig = OpenStack::up()?;
        let scene = Scene::bare()?;
        let ground = CloudProject::take(&rig);
        Some(Stage { scene, land: CloudSetup::of(rig, ground, true) }.joined(nodes))
    }

    /// The same in a project of its own: what the user of this one may do, or how much, is changed.
    pub(crate) fn alone(role: &str, nodes: &[&str]) -> Option<Stage> {
        let rig = OpenStack::up()?;
        let scene = Scene::bare()?;
        let ground = CloudProject::make(&rig, role);
        Some(Stage { scene, land: CloudSetup::of(rig, ground, false) }.joined(nodes))
    }

    fn joined(mut self, nodes: &[&str]) -> Stage {
        nodes.iter().for_each(|it| self.join(it));
        self
    }

    /// One more node, on a port of its own.
    pub(crate) fn join(&mut self, name: &str) {
        let (namespace, addresses) = self.land.machine(name);
        let options = NodeOptions {
            namespace: Some(namespace),
            addresses: addresses.iter().map(ToString::to_string).collect(),
            ..NodeOptions::default()
        };
        self.scene.nodes.push(self.scene.cluster.node_with(name, options));
    }

    /// What Seaway needs of the cluster, and a controller that signs in at `auth_url`.
    pub(crate) fn lead(&mut self, auth_url: &str) {
        self.lead_with(auth_url, &self.land.project.password());
    }

    /// As above, with a password of its own.
    pub(crate) fn lead_with(&mut self, auth_url: &str, password: &str) {
        self.land.write_conf(auth_url, password);
        self.scene.install();
        // Nobody loses it in the middle of something because his machine is slow.
        // And what OVN loses is found soon.
        self.scene.configuration = "{admin: {listen: [\"127.0.0.1:0\"]}, lease: 30s, cloud: {audit: 15s}}";
        self.scene.cluster_name = "seven";
        self.scene.cloud = Some(self.land.conf.path().to_owned());
        self.scene.lead("controller");
    }

    /// Another controller takes the place of the one that was killed: how long a Lease lasts is of no interest here.
    pub(crate) fn lead_anew(&mut self) {
        self.scene.cluster.kubectl(&["delete", "lease", "seaway-controller", "--ignore-not-found"]);
        self.scene.lead("controller");
    }

    /// The address of a Service, once it has one.
    pub(crate) fn address(&self, service: &str) -> String {
        let path = "{.status.loadBalancer.ingress[0].ip}";
        let address = || self.scene.field(&format!("service/{service}"), path);
        until(&format!("{service} has an address"), || !address().is_empty());
        address()
    }

    /// Whoever asks from outside of the cloud is answered by a pod of that name.
    #[track_caller]
    pub(crate) fn answers(&self, url: &str, pod: &str) {
        let _report = Report(self);
        let outside = self.land.rig.outside();
        let answered = || outside.curl(url).is_ok_and(|it| it.starts_with(&format!("{pod}-")));
        until(&format!("{pod} answers at {url}"), answered);
    }

    /// The same of datagrams.
    #[track_caller]
    pub(crate) fn echoes(&self, address: &str, port: u16, pod: &str) {
        let at = SocketAddr::new(address.parse().expect("an address"), port);
        let outside = self.land.rig.outside();
        let ours: SocketAddr = ([0, 0, 0, 0], 0).into();
        let _report = Report(self);
        let echoed = || outside.run(|| ask(&UdpSocket::bind(ours)?, at, b"well?"));
        let is_its = |it: Vec<u8>| String::from_utf8_lossy(&it).starts_with(&format!("{pod}-"));
        until(&format!("{pod} says back what it hears at {at}"), || echoed().is_ok_and(is_its));
    }
}

/// Prints, if the test fails meanwhile, each place where a packet may have been lost.
struct Report<'a>(&'a Stage);

impl Drop for Report<'_> {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        // The first lines are printed again at the end of a run: what tells most comes first.
        eprintln!("--- OVN's provider, in time:\n{}", self.0.land.rig.provider_log(30));
        eprintln!("--- OVN:\n{}", self.0.land.rig.ovn());
        for (key, object) in self.0.land.told(&[&BALANCERS[..], &["floatingips", "security-groups"]].concat())
        {
            eprintln!("--- {key}: {object}");
        }
        eprintln!("--- outside:\n{}", self.0.land.rig.outside().ip(&["neighbor"]));
        let scene = &self.0.scene;
        for what in ["services", "endpointslices", "pods", "nodes"] {
            let yaml = scene.cluster.try_kubectl(&["get", what, "-o", "yaml"], "");
            eprintln!("--- {what}:\n{}", yaml.unwrap_or_else(|error| error));
        }
    }
}

/// Looks until it is so, now and then: each look costs both control planes more than what is waited for.
#[track_caller]
pub(crate) fn until(what: &str, mut met: impl FnMut() -> bool) {
    until_within(PATIENCE, what, || {
        let is_so = met();
        if !is_so {
            thread::park_timeout(PAUSE);
        }
        is_so
    });
}

impl CloudSetup {
    fn of(rig: OpenStack, ground: CloudProject, is_shared: bool) -> CloudSetup {
        let provider = "lb-provider=ovn\nlb-method=SOURCE_IP_PORT\n";
        let monitors = "create-monitor=yes\nmonitor-delay=1m\nmonitor-timeout=30s\nmonitor-max-retries=3\n";
        CloudSetup {
            ground: Some(ground),
            is_shared,
            conf: NamedTempFile::new().expect("a file"),
            provider,
            monitors,
            options: "",
            closed: false,
            rig,
        }
    }

    /// As it is written for the cloud controller manager, with what A(c) says of load balancers where `ovn` can.
    pub(crate) fn write_conf(&self, auth_url: &str, password: &str) {
        let (name, subnet) = (&self.project.name, &self.subnet);
        let (provider, monitors) = (self.provider, self.monitors);
        let text = format!(
            "[Global]\nauth-url={auth_url}\nusername={name}\npassword={password}\ntenant-name={name}\n\
             domain-id=default\n\
             [LoadBalancer]\n{provider}subnet-id={subnet}\n{monitors}{}",
            self.options
        );
        fs::write(self.conf.path(), text).expect("is written");
    }

    /// Those of these load balancers, and what is below them, once nobody works on them any more: with `ovn`, one is
    /// ACTIVE before what is below it, and told so once more after that.
    pub(crate) fn at_rest(
        &self,
        which: impl Fn(&BTreeMap<String, Value>) -> bool,
    ) -> BTreeMap<String, Value> {
        let mut last = BTreeMap::new();
        until("all is ACTIVE, and stays as it is", || {
            let is_active = |it: &Value| it["provisioning_status"] == "ACTIVE";
            // One list tells that it is too early for all of them.
            if !self.told(&BALANCERS[..1]).values().all(is_active) {
                return false;
            }
            let before = mem::replace(&mut last, self.told(&BALANCERS));
            which(&last) && last == before && last.values().all(is_active)
        });
        last
    }

    /// Machines from now on have an address of IPv6, too, and the router leads there.
    pub(crate) fn add_ipv6(&self) -> Id<Subnet> {
        let cloud = &self.cloud;
        self.runtime.block_on(async {
            let new = NewSubnet {
                cidr: Some("fd00:7::/64".to_owned()).into(),
                ..NewSubnet::new(self.network.clone(), 6)
            };
            let subnet = cloud.all::<Subnet>().create(&new).await.expect("a subnet").id;
            let router =
                cloud.all::<Router>().list::<Router>(Query::all()).await.expect("a list").remove(0).id;
            plug(cloud, &router, &subnet).await;
            let all = NewSecurityGroupRule::new(self.group.clone(), Direction::Ingress, EtherType::V6);
            cloud.all::<SecurityGroupRule>().create(&all).await.expect("a rule");
            subnet
        })
    }

    /// On a port of its own that lets everybody in.
    pub(crate) fn machine(&self, name: &str) -> (Namespace, Vec<IpAddr>) {
        let groups = if self.closed { Vec::new() } else { vec![self.group.clone()] };
        let new = NewPort {
            name: name.into(),
            security_groups: groups.into(),
            ..NewPort::new(self.network.clone())
        };
        let port = self.runtime.block_on(self.cloud.all::<Port>().create(&new)).expect("a port");
        let machine = Namespace::create(name);
        machine.plug(port.id.as_str());
        let mut addresses: Vec<IpAddr> = port.fixed_ips.iter().filter_map(|it| it.ip_address).collect();
        addresses.sort();
        (machine, addresses)
    }
}
