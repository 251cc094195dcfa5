//! Projects with a network that is led outside. Tests use one after the other: making such a project, and taking it apart,
//! is half a minute's work for Neutron.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

use seaway_openstack::{
    Call, Cloud, Credentials, Service, Settings, Source,
    barbican::{Container, Secret},
    neutron::{
        Direction, EtherType, Gateway, Network, NewNetwork, NewRouter, NewSecurityGroup,
        NewSecurityGroupRule, NewSubnet, Port, Router, SecurityGroup, SecurityGroupRule, Subnet,
    },
    resource::{Id, Query},
};
use seaway_testkit::topology::{OpenStack, Project, SHARED};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::stage::{AUTH_URL, BALANCERS};

/// What Neutron has.
const NETWORKS: [&str; 7] =
    ["networks", "subnets", "routers", "ports", "floatingips", "security-groups", "security-group-rules"];

/// Those that no test uses now. What is left of them when the process ends, the next one deletes.
static FREE: Mutex<Vec<CloudProject>> = Mutex::new(Vec::new());

pub(crate) struct CloudProject {
    pub(crate) cloud: Cloud,
    pub(crate) runtime: Runtime,
    pub(crate) network: Id<Network>,
    pub(crate) subnet: Id<Subnet>,
    pub(crate) group: Id<SecurityGroup>,
    pub(crate) project: Project,
    /// What was there before the first test.
    bare: BTreeSet<String>,
}

impl CloudProject {
    pub(crate) fn take(rig: &OpenStack) -> CloudProject {
        let free = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        free.unwrap_or_else(|| CloudProject::make(rig, SHARED))
    }

    /// Another test may have it, if it is empty again. Otherwise it is deleted with all that is in it.
    pub(crate) fn give_back(self) {
        if self.is_emptied() {
            FREE.lock().unwrap_or_else(PoisonError::into_inner).push(self);
        }
    }

    pub(crate) fn make(rig: &OpenStack, role: &str) -> CloudProject {
        let project = rig.project(role);
        let runtime = Runtime::new().expect("a runtime");
        let name = &project.name;
        let source = Source::Given(Credentials::password(AUTH_URL, name, &project.password(), name));
        let (cloud, network, subnet, group) = runtime.block_on(async {
            let cloud = Cloud::connect(source, Settings::default()).await.expect("signed in");
            let network = NewNetwork { name: "nodes".into(), ..NewNetwork::new() };
            let network = cloud.all::<Network>().create(&network).await.expect("a network").id;
            let subnet = NewSubnet {
                cidr: Some("10.0.0.0/24".to_owned()).into(),
                ..NewSubnet::new(network.clone(), 4)
            };
            let subnet = cloud.all::<Subnet>().create(&subnet).await.expect("a subnet").id;
            let outside = Query::all().with("router:external", true);
            let outside = cloud.all::<Network>().list::<Network>(outside).await.expect("networks").remove(0);
            let router = NewRouter {
                external_gateway_info: Some(Gateway::of_network(outside.id)).into(),
                ..NewRouter::new()
            };
            let routers = cloud.all::<Router>();
            let router = routers.create(&router).await.expect("a router").id;
            plug(&cloud, &router, &subnet).await;
            let group = NewSecurityGroup { name: "nodes".into(), ..NewSecurityGroup::new() };
            let group = cloud.all::<SecurityGroup>().create(&group).await.expect("a group").id;
            let all = NewSecurityGroupRule::new(group.clone(), Direction::Ingress, EtherType::V4);
            cloud.all::<SecurityGroupRule>().create(&all).await.expect("a rule");
            (cloud, network, subnet, group)
        });
        let mut made =
            CloudProject { cloud, runtime, network, subnet, group, project, bare: BTreeSet::new() };
        made.bare = made.everything().into_keys().collect();
        made
    }

    /// Ports of machines are deleted; anything else that is left, a test left there.
    fn is_emptied(&self) -> bool {
        let new = |it: &String| !self.bare.contains(it);
        for port in self.told(&["ports"]).into_keys().filter(new) {
            let id = port.trim_start_matches("ports/").parse::<Id<Port>>().expect("an id");
            // Who is gone already is none that is left.
            _ = self.runtime.block_on(self.cloud.all::<Port>().delete(&id));
        }
        let kept = self.runtime.block_on(async {
            let containers = self.cloud.all::<Container>().list::<Container>(Query::all()).await?;
            let secrets = self.cloud.all::<Secret>().list::<Secret>(Query::all()).await?;
            Ok::<_, seaway_openstack::Error>(containers.len() + secrets.len())
        });
        kept.is_ok_and(|it| it == 0) && self.everything().into_keys().collect::<BTreeSet<_>>() == self.bare
    }

    /// All that is in the project.
    pub(crate) fn everything(&self) -> BTreeMap<String, Value> {
        self.told(&[&BALANCERS[..], &NETWORKS[..]].concat())
    }

    /// Whether nothing is there but what was before. The cloud is asked for one kind after the other, and for no more once there is
    /// something: each list costs it more than what is waited for.
    pub(crate) fn has_only(&self, before: &BTreeMap<String, Value>) -> bool {
        let mut kinds = BALANCERS.iter().chain(&NETWORKS);
        kinds.all(|it| self.told(&[it]).keys().all(|it| before.contains_key(it)))
    }

    /// What there is of these kinds, as the cloud tells it: `KIND/ID`, and the whole object.
    pub(crate) fn told(&self, kinds: &[&str]) -> BTreeMap<String, Value> {
        let mut all = BTreeMap::new();
        for kind in kinds {
            match *kind {
                "members" => {
                    for (pool, _) in self.list(Service::LoadBalancer, "/lbaas/pools", "pools") {
                        all.extend(self.list(Service::LoadBalancer, &format!("/lbaas/{pool}/members"), kind));
                    }
                }
                _ if BALANCERS.contains(kind) => {
                    all.extend(self.list(Service::LoadBalancer, &format!("/lbaas/{kind}"), kind));
                }
                _ => all.extend(self.list(Service::Network, &format!("/{kind}"), &kind.replace('-', "_"))),
            }
        }
        all
    }

    /// Those of that kind which such a list tells.
    fn list(&self, service: Service, path: &str, kind: &str) -> Vec<(String, Value)> {
        let told = self.runtime.block_on(self.cloud.call(Call::get(service, "list", path)));
        let told = match told {
            Ok(told) => told,
            // A pool may go between two lists.
            Err(error) if error.is_not_found() => return Vec::new(),
            Err(error) => panic!("{path}: {error}"),
        };
        let Value::Array(listed) = told.body[kind].clone() else { panic!("{path}: {}", told.body) };
        // The network outside is another's.
        let session = self.cloud.session();
        let id = session.project.as_ref().map(|it| it.id.as_str());
        // What is deleted while it is being made may leave such a row, with `ovn`.
        let is_deleted = |it: &Value| it["provisioning_status"] == "DELETED";
        let ours = |it: &Value| it["project_id"].as_str() == id && !is_deleted(it);
        let key = |it: &Value| format!("{kind}/{}", it["id"].as_str().unwrap_or_default());
        listed.into_iter().filter(ours).map(|it| (key(&it), it)).collect()
    }
}

/// Gives the router the subnet's gateway address.
pub(crate) async fn plug(cloud: &Cloud, router: &Id<Router>, subnet: &Id<Subnet>) {
    let path = format!("/routers/{router}/add_router_interface");
    let call = Call::put(Service::Network, "add router interface", path, json!({ "subnet_id": subnet }));
    cloud.call(call).await.expect("plugged in");
}
