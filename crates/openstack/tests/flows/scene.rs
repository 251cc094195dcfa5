//! A project with a network, a way out, and machines that say their names.

use std::{future::Future, net::IpAddr, time::Instant};

use seaway_openstack::{
    Cloud, Environment, Settings, Source,
    neutron::{
        Direction, EtherType, Gateway, Network, NewPort, NewRouter, NewSecurityGroup, NewSecurityGroupRule,
        Port, Router, SecurityGroup, SecurityGroupRule, Subnet,
    },
    octavia::NewMember,
    resource::Id,
};
use seaway_testkit::topology::{Namespace, OpenStack, Project, Web};
use tokio::runtime::Runtime;

use crate::walks::{self, PATIENCE};

/// Fields drop in order: machines unplug before the project is emptied.
pub(crate) struct Scene {
    pub(crate) cloud: Cloud,
    pub(crate) network: Id<Network>,
    pub(crate) subnet: Id<Subnet>,
    group: Id<SecurityGroup>,
    runtime: Runtime,
    _project: Project,
    pub(crate) rig: OpenStack,
}

/// A machine that answers HTTP with its name.
pub(crate) struct Backend {
    pub(crate) name: &'static str,
    pub(crate) address: IpAddr,
    web: Option<Web>,
    _machine: Namespace,
}

const PORT: u16 = 8080;

impl Scene {
    /// None without a rig.
    pub(crate) fn set(role: &str) -> Option<Scene> {
        let rig = OpenStack::up()?;
        let project = rig.project(role);
        let runtime = runtime();
        let (cloud, network, subnet, group) = runtime.block_on(async {
            let cloud = sign_in(&project).await;
            let (network, subnet) = walks::network(&cloud, "flows", "10.30.0.0/24").await;
            let new = NewRouter {
                name: "flows".into(),
                external_gateway_info: Some(Gateway::of_network(walks::outside(&cloud).await)).into(),
                ..NewRouter::new()
            };
            let router = cloud.all::<Router>().create(&new).await.expect("a router").id;
            walks::plug(&cloud, &router, &subnet).await;
            let group = open(&cloud).await;
            (cloud, network, subnet, group)
        });
        Some(Scene { cloud, network, subnet, group, runtime, _project: project, rig })
    }

    pub(crate) fn now<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(work)
    }

    #[track_caller]
    pub(crate) fn until(&self, what: &str, met: impl AsyncFn() -> bool) {
        let start = Instant::now();
        self.now(async {
            while !met().await {
                assert!(start.elapsed() < PATIENCE, "in vain: {what}");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        });
    }

    /// A namespace on a port of its own.
    pub(crate) fn machine(&self, name: &str) -> (Namespace, IpAddr) {
        let new = NewPort {
            name: name.into(),
            security_groups: vec![self.group.clone()].into(),
            ..NewPort::new(self.network.clone())
        };
        let port = self.now(self.cloud.all::<Port>().create(&new)).expect("a port");
        let machine = Namespace::create(name);
        machine.plug(port.id.as_str());
        (machine, port.fixed_ips[0].ip_address.expect("an address"))
    }

    pub(crate) fn backend(&self, name: &'static str) -> Backend {
        let (machine, address) = self.machine(name);
        let web = machine.run(|| Web::start_at(name, format!("0.0.0.0:{PORT}")));
        Backend { name, address, web: Some(web), _machine: machine }
    }
}

impl Backend {
    pub(crate) fn member(&self) -> NewMember {
        NewMember::new(self.address, PORT)
    }

    /// Its port is closed from now on; the machine stays.
    pub(crate) fn die(mut self) -> Backend {
        self.web = None;
        self
    }
}

/// One walk in a project of its own.
pub(crate) fn alone(role: &str, walk: impl AsyncFnOnce(&Cloud)) {
    let Some(rig) = OpenStack::up() else { return };
    // Names of projects are short.
    let project = rig.project(&role.chars().take(24).collect::<String>().replace('_', "-"));
    runtime().block_on(async {
        let cloud = sign_in(&project).await;
        walk(&cloud).await;
    });
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime")
}

async fn sign_in(project: &Project) -> Cloud {
    let file = project.clouds_yaml();
    let around = Environment::in_folder(file.parent().expect("a folder"));
    let source = Source::Client { cloud: Some(project.name.clone()), around };
    Cloud::connect(source, Settings::default()).await.expect("signed in")
}

/// A group that lets HTTP and probes in.
async fn open(cloud: &Cloud) -> Id<SecurityGroup> {
    let new = NewSecurityGroup { name: "flows".into(), ..NewSecurityGroup::new() };
    let group = cloud.all::<SecurityGroup>().create(&new).await.expect("a group").id;
    let rule = NewSecurityGroupRule {
        protocol: Some("tcp".to_owned()).into(),
        ..NewSecurityGroupRule::new(group.clone(), Direction::Ingress, EtherType::V4)
    };
    cloud.all::<SecurityGroupRule>().create(&rule).await.expect("a rule");
    group
}
