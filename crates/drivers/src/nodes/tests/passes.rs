//! Whole passes, against the fake OpenStack and Nodes in memory.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use seaway_engine::{Counted, OwnersFuture};
use seaway_openstack::{
    Cloud, Credentials, Settings, Source,
    neutron::{Network, NewNetwork, NewSubnet, Subnet},
    nova::{Attachment, NewServer, Server as NovaServer},
    resource::Id,
};
use seaway_testkit::cloud as fake;

use super::*;

type Change = fn(&mut NodeObject);

/// How writes of a Node fail.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WriteFault {
    Changed,
    Unreachable,
}

/// An API server with nothing but Nodes.
#[derive(Default)]
pub(crate) struct InMemoryNodes {
    nodes: Mutex<BTreeMap<Name, NodeObject>>,
    /// Each write and deletion.
    written: Mutex<Vec<String>>,
    trouble: Mutex<BTreeMap<Name, WriteFault>>,
    /// So many milliseconds pass on this clock while a Node is read.
    pub(crate) slow: Mutex<Option<(Arc<AtomicU64>, u64)>>,
    events: Mutex<Vec<(Name, &'static str)>>,
    pub(crate) occm: Mutex<Option<Name>>,
    /// Not in lists, though they are there.
    hidden: Mutex<BTreeSet<Name>>,
    /// What a kubelet or another process does to the Node right before it is read alone.
    meanwhile: Mutex<BTreeMap<Name, Change>>,
}

impl InMemoryNodes {
    pub(crate) fn with(nodes: impl IntoIterator<Item = NodeObject>) -> Arc<InMemoryNodes> {
        let nodes = nodes.into_iter().map(|it| (it.name.clone(), it)).collect();
        Arc::new(InMemoryNodes { nodes: Mutex::new(nodes), ..InMemoryNodes::default() })
    }

    pub(crate) fn fail(&self, name: &str, trouble: Option<WriteFault>) {
        let mut all = self.trouble.lock().unwrap();
        all.remove(name);
        all.extend(trouble.map(|it| (name.into(), it)));
    }

    pub(crate) fn add(&self, node: NodeObject) {
        self.nodes.lock().unwrap().insert(node.name.clone(), node);
    }

    pub(crate) fn remove(&self, name: &str) {
        self.nodes.lock().unwrap().remove(name);
    }

    pub(crate) fn hide(&self, name: &str, hidden: bool) {
        let mut all = self.hidden.lock().unwrap();
        match hidden {
            true => all.insert(name.into()),
            false => all.remove(name),
        };
    }

    pub(crate) fn node(&self, name: &str) -> Option<NodeObject> {
        self.nodes.lock().unwrap().get(name).cloned()
    }

    pub(crate) fn change(&self, name: &str, change: impl FnOnce(&mut NodeObject)) {
        let mut nodes = self.nodes.lock().unwrap();
        let node = nodes.get_mut(name).expect("it is there");
        change(node);
        node.version.push('x');
    }

    pub(crate) fn writes(&self) -> usize {
        self.written.lock().unwrap().len()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.nodes.lock().unwrap().keys().map(ToString::to_string).collect()
    }

    /// As the API server merges it.
    fn merge(node: &mut NodeObject, patch: &NodePatch) {
        match patch {
            NodePatch::Object(change) => {
                node.labels.extend(change.labels.clone());
                node.annotations.extend(change.annotations.clone());
                node.taints = change.taints.clone().unwrap_or_else(|| node.taints.clone());
                if let Some(id) = &change.provider_id {
                    assert_eq!(node.provider_id, None, "it can be written once");
                    node.provider_id = Some(id.clone());
                }
            }
            NodePatch::Addresses(all) => node.addresses.clone_from(all),
            NodePatch::Condition { kind, status, reason, .. } => {
                let status = if *status { "True" } else { "False" };
                node.conditions.insert((*kind).to_owned(), (status.to_owned(), (*reason).to_owned()));
            }
        }
        node.version.push('+');
    }
}

impl NodeApi for Arc<InMemoryNodes> {
    async fn list(&self) -> Result<Vec<NodeObject>, RequestError> {
        let hidden = self.hidden.lock().unwrap();
        let nodes = self.nodes.lock().unwrap();
        Ok(nodes.values().filter(|it| !hidden.contains(&it.name)).cloned().collect())
    }

    async fn read(&self, name: &str) -> Result<Option<NodeObject>, RequestError> {
        if let Some((clock, time)) = &*self.slow.lock().unwrap() {
            clock.fetch_add(*time, Ordering::Relaxed);
        }
        if let Some(change) = self.meanwhile.lock().unwrap().get(name) {
            self.change(name, change);
        }
        Ok(self.node(name))
    }

    async fn write(&self, node: &NodeObject, patch: &NodePatch) -> Result<NodeWrite, RequestError> {
        match self.trouble.lock().unwrap().get(&node.name) {
            None => {}
            Some(WriteFault::Changed) => return Ok(NodeWrite::Changed),
            Some(WriteFault::Unreachable) => return Err(RequestError::unreachable("timed out")),
        }
        let mut nodes = self.nodes.lock().unwrap();
        match nodes.get_mut(&node.name) {
            None => Ok(NodeWrite::Gone),
            Some(it) if it.version != node.version || it.uid != node.uid => Ok(NodeWrite::Changed),
            Some(it) => {
                InMemoryNodes::merge(it, patch);
                self.written.lock().unwrap().push(format!("{} {patch:?}", node.name));
                Ok(NodeWrite::Done)
            }
        }
    }

    async fn delete(&self, node: &NodeObject) -> Result<NodeWrite, RequestError> {
        let mut nodes = self.nodes.lock().unwrap();
        match nodes.get(&node.name) {
            None => Ok(NodeWrite::Gone),
            Some(it) if it.version != node.version || it.uid != node.uid => Ok(NodeWrite::Changed),
            Some(_) => {
                nodes.remove(&node.name);
                self.written.lock().unwrap().push(format!("delete {}", node.name));
                Ok(NodeWrite::Done)
            }
        }
    }

    async fn record(&self, node: &NodeObject, event: NodeEvent) {
        self.events.lock().unwrap().push((node.name.clone(), event.reason));
    }

    async fn running_cloud_controller(&self) -> Result<Option<Name>, RequestError> {
        Ok(self.occm.lock().unwrap().clone())
    }

    async fn running_route_controller(&self) -> Result<Option<Name>, RequestError> {
        self.running_cloud_controller().await
    }
}

/// Counts as the records do.
#[derive(Default)]
struct Counter(Mutex<BTreeSet<String>>);

impl DeletionLimit for Counter {
    fn count<'a>(&'a self, what: &'a str, _: &'a ObjectRef, all: usize) -> OwnersFuture<'a, Counted> {
        let mut went = self.0.lock().unwrap();
        let limit = seaway_engine::deletion_limit(all, went.len());
        let counted = match went.contains(what) || went.len() < limit {
            true => {
                went.insert(what.to_owned());
                Counted::Within
            }
            false => Counted::Beyond { limit },
        };
        Box::pin(std::future::ready(Ok(counted)))
    }
}

/// A project with servers, and Nodes of the same names.
pub(super) struct Stage {
    pub(super) fake: fake::Cloud,
    pub(super) cloud: Cloud,
    network: Id<Network>,
    pub(super) memory: Arc<InMemoryNodes>,
    controllers: NodeControllers<Arc<InMemoryNodes>>,
    pub(super) now: Arc<AtomicU64>,
    leads: Arc<AtomicBool>,
    pub(super) servers: BTreeMap<String, Id<NovaServer>>,
}

impl Stage {
    pub(super) async fn of(nodes: impl IntoIterator<Item = NodeObject>) -> Stage {
        let fake = fake::Cloud::start();
        let credentials =
            Credentials::password(&fake.auth_url(), "demo", "demopw", "demo").with_region("RegionOne");
        let source = Source::Given(credentials);
        let limits = seaway_openstack::Limits { per_second: 1_000, in_flight: 100 };
        let cloud =
            Cloud::connect(source, Settings { limits, ..Settings::default() }).await.expect("signed in");
        let admin = Source::Given(Credentials::password(&fake.auth_url(), "admin", "adminpw", "admin"));
        let admin = Cloud::connect(admin, Settings::default()).await.expect("signed in");
        let project = fake.project_id("demo").expect("it is there");
        let quota = seaway_openstack::Call::put(
            seaway_openstack::Service::Compute,
            "change quota",
            format!("/os-quota-sets/{project}"),
            json!({"quota_set": {"instances": 5_000}}),
        );
        admin.call(quota).await.expect("it may");
        let quota = seaway_openstack::Call::put(
            seaway_openstack::Service::Network,
            "change quota",
            format!("/quotas/{project}"),
            json!({"quota": {"port": 5_000}}),
        );
        admin.call(quota).await.expect("it may");
        let new = NewNetwork { name: "nodes".into(), ..NewNetwork::new() };
        let network = cloud.all::<Network>().create(&new).await.expect("a network").id;
        let new =
            NewSubnet { cidr: Some("10.0.0.0/8".to_owned()).into(), ..NewSubnet::new(network.clone(), 4) };
        cloud.all::<Subnet>().create(&new).await.expect("a subnet");
        let memory = InMemoryNodes::with(nodes);
        let (now, leads) = (Arc::new(AtomicU64::new(1_000_000)), Arc::new(AtomicBool::new(true)));
        let fence = || {
            let leads = leads.clone();
            Fence::new(move || leads.load(Ordering::Relaxed))
        };
        let join = {
            let cloud = cloud.clone();
            Box::new(move || -> ConnectFuture {
                let cloud = cloud.clone();
                Box::pin(async move { Ok(cloud) })
            })
        };
        let clock = {
            let now = now.clone();
            Box::new(move || Time(now.load(Ordering::Relaxed)))
        };
        let limit = Arc::new(Counter::default());
        let controllers = NodeControllers::new(memory.clone(), join, (fence(), fence()), limit, clock);
        let mut stage =
            Stage { fake, cloud, network, memory, controllers, now, leads, servers: BTreeMap::new() };
        for name in stage.memory.names() {
            stage.boot(&name).await;
        }
        stage
    }

    pub(super) async fn boot(&mut self, name: &str) {
        let new = NewServer {
            flavor_id: "2".to_owned().into(),
            image_id: "c3b1a5e0-2f5b-4d55-9a0b-8f1b0c0e0001".to_owned().into(),
            networks: vec![Attachment::Network(self.network.clone())].into(),
            ..NewServer::new(name.to_owned())
        };
        let made = self.cloud.all::<NovaServer>().create(&new).await.expect("a server");
        self.servers.insert(name.to_owned(), made.id);
    }

    /// Its server is deleted, and its kubelet silent.
    pub(super) async fn lose(&mut self, name: &str) {
        let id = self.servers.get(name).expect("it was made");
        self.cloud.all::<NovaServer>().delete(id).await.expect("it goes");
        self.fake.settle("demo");
        // The fake deletes it when it was looked at.
        let mut looks = 0;
        while self.cloud.all::<NovaServer>().find::<NovaServer>(id).await.expect("an answer").is_some() {
            looks += 1;
            assert!(looks < 100, "the server {name} stays");
        }
        self.silence(name);
    }

    fn silence(&self, name: &str) {
        self.memory.change(name, |it| {
            it.conditions.insert("Ready".to_owned(), ("Unknown".to_owned(), String::new()));
        });
    }

    pub(super) async fn pass(&mut self) -> PassResult {
        self.controllers.pass(&NodeSettings::default()).await
    }

    fn wait(&self, seconds: u64) {
        self.now.fetch_add(seconds * 1_000, Ordering::Relaxed);
    }

    /// Initialised, and Ready.
    async fn running(names: &[&str]) -> Stage {
        let mut stage = Stage::of(names.iter().map(|it| new_node(it))).await;
        let pass = stage.pass().await;
        assert_eq!(pass.problems, []);
        for name in names {
            stage.memory.change(name, |it| it.conditions = node(name, None, true).conditions);
        }
        assert_eq!(stage.pass().await.problems, []);
        stage.memory.written.lock().unwrap().clear();
        stage
    }
}

#[tokio::test]
async fn a_thousand_nodes_are_two_lists() {
    let mut stage = Stage::of((0..1_000).map(|it| new_node(&format!("n{it:03}")))).await;
    let reads = |stage: &Stage| {
        let count = |of| stage.fake.count(of);
        (count("GET */servers/detail*"), count("GET */ports*"), count("GET */flavors/*"), count("GET *"))
    };
    let before = reads(&stage);
    assert_eq!(stage.pass().await.problems, []);
    let after = reads(&stage);
    // The page after a full one is asked for, too.
    assert!(after.0 - before.0 <= 2 && after.1 - before.1 <= 2, "{before:?} {after:?}");
    assert_eq!(after.2 - before.2, 1, "a flavor has its name for ever");
    assert!(after.3 - before.3 <= 5, "and nothing else is read: {before:?} {after:?}");
    assert_eq!(stage.memory.writes(), 2_000, "one for the addresses, one for the rest");
    for name in ["n000", "n777"] {
        let node = stage.memory.node(name).expect("it is there");
        let id = &stage.servers[name];
        assert_eq!(node.provider_id, Some(format!("openstack:///{id}")));
        assert_eq!(node.taints, [taint("other")]);
        assert_eq!(node.labels["node.kubernetes.io/instance-type"], "m1.small");
        assert_eq!(node.labels["topology.kubernetes.io/region"], "RegionOne");
        assert_eq!(node.labels["topology.kubernetes.io/zone"], "nova");
        assert!(node.addresses[0].kind == "InternalIP" && node.addresses[0].address.starts_with("10."));
    }
    assert!(stage.memory.events.lock().unwrap().contains(&("n777".into(), "NodeInitialized")));
    for name in stage.memory.names() {
        stage.memory.change(&name, |it| it.conditions = node("x", None, true).conditions);
    }
    let before = reads(&stage);
    let pass = stage.pass().await;
    assert_eq!((pass.problems.len(), pass.next), (0, Duration::from_secs(300)));
    let after = reads(&stage);
    assert!(after.3 - before.3 <= 4, "{before:?} {after:?}");
    assert_eq!(stage.memory.writes(), 2_000, "nothing changed, nothing is written");
}

#[tokio::test]
async fn nodes_of_servers_that_are_gone_go_and_no_more_than_the_limit() {
    let names = ["a", "b", "c", "d", "e", "f"];
    let mut stage = Stage::running(&names).await;
    // Silent, with a server that runs: a network that is cut.
    stage.silence("f");
    for name in &names[..4] {
        stage.lose(name).await;
    }
    let gets = |stage: &Stage| {
        stage.servers.values().map(|id| stage.fake.count(&format!("GET */servers/{id}"))).sum::<usize>()
    };
    let before = gets(&stage);
    let pass = stage.pass().await;
    assert_eq!(
        (gets(&stage) - before, pass.next),
        (4, Duration::from_secs(60)),
        "those alone that are not listed"
    );
    assert_eq!(stage.memory.writes(), 0, "not at the first answer");
    stage.wait(30);
    assert_eq!(stage.pass().await.problems, []);
    assert_eq!(stage.memory.writes(), 0, "not before the grace period is over");
    stage.wait(30);
    // One comes back while it is decided.
    stage
        .memory
        .meanwhile
        .lock()
        .unwrap()
        .insert("a".into(), |it| it.conditions = node("a", None, true).conditions);
    stage.pass().await;
    assert_eq!(stage.memory.names(), ["a", "e", "f"], "{:?}", stage.memory.written);
    stage.memory.meanwhile.lock().unwrap().clear();
    // The limit of this hour is reached.
    stage.silence("a");
    stage.pass().await;
    stage.wait(60);
    let pass = stage.pass().await;
    assert_eq!(stage.memory.names(), ["a", "e", "f"]);
    assert_eq!(pass.problems[0].reason, Reason::DeletionLimit, "{:?}", pass.problems);
    assert!(pass.problems[0].fix.contains("approved-deletions=/a until"), "{}", pass.problems[0].fix);
    assert_eq!(pass.next, SILENT, "what is due already does not begin a pass after the other");
    assert_eq!(stage.memory.events.lock().unwrap().iter().filter(|it| it.1 == "NodeDeleted").count(), 3);
}

#[tokio::test]
async fn a_list_that_fails_or_is_empty_and_who_does_not_lead_delete_nothing() {
    let mut stage = Stage::running(&["a", "b", "c"]).await;
    stage.silence("a");
    // Servers are not listed, though they are there.
    let all = fake::Fault::on("GET */servers/detail*").always().reply(200, json!({"servers": []}));
    stage.fake.fail(all);
    for _ in 0..3 {
        let pass = stage.pass().await;
        assert!(pass.problems.iter().all(|it| it.reason == Reason::NodeKept), "{:?}", pass.problems);
        stage.wait(60);
    }
    stage.fake.heal();
    stage.fake.fail(fake::Fault::on("GET */servers/detail*").always().status(403));
    let pass = stage.pass().await;
    assert_eq!(pass.problems[0].reason, Reason::Unreachable, "{:?}", pass.problems);
    stage.fake.heal();
    assert_eq!(stage.memory.writes(), 0);

    stage.lose("a").await;
    stage.pass().await;
    stage.wait(60);
    stage.leads.store(false, Ordering::Relaxed);
    assert_eq!(stage.pass().await.problems, []);
    stage.leads.store(true, Ordering::Relaxed);
    // It knows nothing of before: another led.
    stage.pass().await;
    assert_eq!(stage.memory.writes(), 0);
    stage.wait(60);
    *stage.memory.occm.lock().unwrap() = Some("occm-x_1".into());
    let pass = stage.pass().await;
    assert_eq!(pass.problems[0].reason, Reason::OtherController);
    assert!(pass.problems[0].message.contains("occm-x_1"), "{:?}", pass.problems);
    assert_eq!(stage.memory.writes(), 0, "beside OCCM nothing is written");
    *stage.memory.occm.lock().unwrap() = None;
    stage.pass().await;
    assert_eq!(stage.memory.names(), ["b", "c"]);
}

#[tokio::test]
async fn what_others_write_at_the_same_time_is_kept() {
    let mut stage = Stage::of([new_node("a"), node("b", Some("aws:///i-1"), false)]).await;
    stage.memory.meanwhile.lock().unwrap().insert("a".into(), |it| {
        if !it.has_taint("late") {
            it.taints.push(taint("late"));
        }
    });
    assert_eq!(stage.pass().await.problems, []);
    let node = stage.memory.node("a").expect("it is there");
    assert_eq!(node.taints, [taint("other"), taint("late")]);
    assert_eq!(stage.memory.node("b").expect("it is there").version, "1", "it is another provider's");
}
