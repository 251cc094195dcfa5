//! Random walks: Services come, change and go, settings change, controllers die and follow each other, replies are lost,
//! others change what is in the cloud, a copy of the cluster runs beside it. The engine, the plan and the driver are the
//! real ones. Nothing that a living Service uses is ever deleted, and in the end all is as it is wanted.

mod cluster;
mod copies;
mod events;
mod limit;
mod revivals;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use seaway_model::{
    Config, L4, Name,
    config::CloudDefaults,
    fact::{Held, Meta, Node, Service, ServiceKind, ServicePort, TargetPort},
    load_balancer::Balance,
};
use seaway_openstack::{
    neutron::{FloatingIp, FloatingIpChange},
    octavia::{Listener, LoadBalancer, LoadBalancerChange, Member, Provisioning},
    resource::{Edit, Query},
};
use seaway_testkit::{
    cloud::{Cloud as Fake, Fault, Pace, Recorded},
    facts,
    properties::{cases, seed},
};
use tokio::time::sleep;

use self::{
    cluster::{ApiServer, CLASS, Controller},
    events::{Dice, Event, Foreign, Setting, Trouble},
};
use crate::scene::Scene;

const NAMES: [&str; 3] = ["shop", "mail", "wiki"];
const PORTS: [u16; 3] = [80, 443, 8443];
const INTERNAL: &str = "service.beta.kubernetes.io/openstack-internal-load-balancer";
/// All that Services want is there by then, whatever went wrong before.
const LONG: Duration = Duration::from_secs(3_600);

/// Those of a run; the second number is what comes of the first, so that one walk can be repeated alone.
const WALKS: u32 = 12;

#[test]
#[allow(clippy::print_stderr, reason = "how many there were is the result of a long run")]
fn whatever_happens_nothing_that_a_living_service_uses_is_deleted() {
    let first: Option<u64> = std::env::var("SEAWAY_WALK").ok().and_then(|it| it.parse().ok());
    let seeds = match first {
        Some(one) => vec![one],
        None => (0..u64::from(cases(WALKS))).map(|it| seed().wrapping_add(it)).collect(),
    };
    let random = seeds.iter().map(|it| (*it, None));
    let known = events::found().into_iter().map(|it| (0, Some(it))).filter(|_| first.is_none());
    let (mut walks, mut failed, mut seen) = (0, Vec::new(), Seen::default());
    for (seed, events) in random.chain(known) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        let walked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            runtime.unwrap().block_on(Walk::run(seed, events))
        }));
        walks += 1;
        match walked {
            Ok(it) => seen = Seen { deleted: seen.deleted + it.deleted, beats: seen.beats + it.beats },
            Err(_) => {
                eprintln!("SEAWAY_WALK={seed} repeats it");
                failed.push(seed);
            }
        }
    }
    let ends = seeds.first().zip(seeds.last());
    eprintln!("{walks} walks, {} failed, seeds {ends:?}, {seen:?}", failed.len());
    assert_eq!(failed, [0; 0], "SEAWAY_WALK repeats one");
    let shows = seen.deleted > 0 && seen.beats > 0;
    assert!(
        shows || first.is_some(),
        "walks on which nothing is deleted, or no heartbeat is sent, show nothing"
    );
}

/// What came about on walks: objects that were deleted, and heartbeats at a port.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    deleted: usize,
    beats: usize,
}

struct Walk {
    dice: Dice,
    scene: Scene,
    api: ApiServer,
    config: Config,
    controllers: [Option<Controller>; 2],
    leader: usize,
    made: u32,
    seen: Seen,
    happened: Vec<String>,
}

impl Walk {
    async fn run(seed: u64, given: Option<Vec<Event>>) -> Seen {
        let mut walk = Walk::begin(Dice(seed)).await;
        let events = 6 + walk.dice.roll(14);
        if let Some(events) = given {
            for event in events {
                walk.goes_on(event).await;
            }
            return walk.ends().await;
        }
        for name in walk.dice.some(&NAMES) {
            let ports = walk.dice.some(&PORTS);
            walk.goes_on(Event::Create(name, ports)).await;
        }
        for _ in 0..events {
            let event = Event::random(&mut walk.dice);
            walk.goes_on(event).await;
        }
        walk.ends().await
    }

    /// Two controllers, of which one leads, at a cloud where nothing is.
    async fn begin(dice: Dice) -> Walk {
        let scene = Scene::of(Fake::start_here(), "demo", "amphora").await;
        scene.fake.pace(Pace::Time(Duration::from_millis(700)));
        let config = config(&scene, Setting::Usual);
        let api = ApiServer::default();
        api.set_nodes(nodes(&[11, 12]));
        let mut walk = Walk {
            dice,
            scene,
            api,
            config,
            controllers: [None, None],
            leader: 0,
            made: 0,
            seen: Seen::default(),
            happened: Vec::new(),
        };
        for at in 0..2 {
            walk.start(at).await;
        }
        walk
    }

    async fn start(&mut self, at: usize) {
        let (auth, leads) = (self.scene.fake.auth_url(), at == self.leader);
        self.controllers[at] = None;
        self.controllers[at] = Some(Controller::start(&auth, &self.api, &self.config, leads));
    }

    async fn restart_both(&mut self) {
        for at in 0..2 {
            self.start(at).await;
        }
    }

    /// One event, and a while after it that is long enough for some of what follows from it.
    async fn goes_on(&mut self, event: Event) {
        self.happened.push(format!("{event:?}"));
        let before = self.used().await;
        self.scene.fake.forget_requests();
        let taken = self.happens(event).await;
        let whiles = [1, 3, 20, 400];
        let seconds = self.dice.one(&whiles);
        self.passes(Duration::from_secs(seconds)).await;
        let wanted = self.wanted();
        let requests = self.scene.fake.requests();
        let deleted = requests.iter().filter(|it| it.method == "DELETE");
        let deleted: BTreeSet<String> = deleted.map(|it| last(&it.path)).collect();
        self.seen.deleted += deleted.len();
        self.seen.beats += requests.iter().filter(|it| is_heartbeat(it)).count();
        for (id, used) in before {
            let is_used = used.is_in(&wanted) && !taken.contains(&id);
            assert!(!is_used || !deleted.contains(&id), "{used:?} was deleted, {id}: {:#?}", self.happened);
        }
    }

    async fn passes(&self, time: Duration) {
        let step = Duration::from_millis(250);
        let mut passed = Duration::ZERO;
        while passed < time {
            sleep(step).await;
            self.scene.fake.advance(step);
            self.scene.clock.advance(step);
            passed += step;
        }
    }

    /// Ids that another deleted.
    async fn happens(&mut self, event: Event) -> BTreeSet<String> {
        let mut taken = BTreeSet::new();
        match event {
            Event::Create(name, ports) => {
                if self.api.service(name).is_none() {
                    self.made += 1;
                    let mut it = service(name, &ports);
                    it.meta.uid = format!("{name}-{}", self.made).into();
                    self.api.write(it);
                }
            }
            Event::Delete(name) => self.api.delete(name),
            Event::Ports(name, ports) => self.edit(name, |it| it.ports = service(name, &ports).ports),
            Event::NoLoadBalancer(name) => self.edit(name, |it| it.kind = ServiceKind::ClusterIp),
            Event::LoadBalancer(name) => self.edit(name, |it| it.kind = ServiceKind::LoadBalancer),
            Event::Internal(name, internal) => self.edit(name, |it| {
                it.meta.annotations = annotations(internal);
            }),
            Event::Nodes(numbers) => self.api.set_nodes(nodes(&numbers)),
            Event::Setting(setting) => {
                self.config = config(&self.scene, setting);
                for it in self.controllers.iter().flatten() {
                    it.configure(&self.config).await;
                }
            }
            Event::Killed => {
                let leader = self.leader;
                self.start(leader).await;
            }
            Event::AnotherLeads => self.another_leads().await,
            Event::Clone(names) => {
                let copy = self.api.copy(|it| names.contains(&it));
                let auth = self.scene.fake.auth_url();
                let beside = Controller::start(&auth, &copy, &self.config, true);
                self.passes(Duration::from_secs(400)).await;
                drop(beside);
            }
            Event::Trouble(pattern, trouble) => {
                let nth = 1 + self.dice.roll(4);
                let on = Fault::on(pattern).nth(nth);
                self.scene.fake.fail(match trouble {
                    Trouble::LostRequest => on.lose_request(),
                    Trouble::LostReply => on.lose_reply(),
                    Trouble::Refused => on.status(500),
                    Trouble::Conflict => on.status(409),
                });
            }
            Event::Foreign(foreign) => taken.extend(self.meddle(foreign).await),
            Event::Revivals => self.scene.fake.revive_after(Some(Duration::from_secs(2))),
            Event::Time => {}
        }
        taken
    }

    fn edit(&self, name: &str, change: impl FnOnce(&mut Service)) {
        if let Some(mut it) = self.api.service(name).filter(|it| !it.leaving) {
            change(&mut it);
            self.api.write(it);
        }
    }

    async fn another_leads(&mut self) {
        if let Some(old) = &self.controllers[self.leader] {
            old.leads(false).await;
        }
        self.leader = 1 - self.leader;
        if let Some(new) = &self.controllers[self.leader] {
            new.leads(true).await;
        }
    }

    async fn meddle(&mut self, foreign: Foreign) -> Vec<String> {
        let cloud = &self.scene.cloud;
        match foreign {
            Foreign::RemovesMember => {
                let pools = self.scene.pools().await;
                let Some(pool) = pools.first() else { return Vec::new() };
                let members = cloud.within::<Member>(&pool.id);
                let Some(member) = members.list::<Member>(Query::all()).await.unwrap().into_iter().next()
                else {
                    return Vec::new();
                };
                _ = members.delete(&member.id).await;
                Vec::new()
            }
            Foreign::RemovesListener => {
                let Some(it) = self.scene.listeners().await.into_iter().next() else { return Vec::new() };
                let pools = it.default_pool_id.iter().map(ToString::to_string);
                let gone = pools.chain([it.id.to_string()]).collect();
                _ = cloud.all::<Listener>().delete(&it.id).await;
                gone
            }
            Foreign::Renames => {
                let Some(it) = self.scene.balancers().await.into_iter().next() else { return Vec::new() };
                let change =
                    LoadBalancerChange { name: "other".to_owned().into(), ..LoadBalancerChange::default() };
                _ = cloud.all::<LoadBalancer>().change(&it.id, &change).await;
                Vec::new()
            }
            Foreign::DetachesFloating => {
                let Some(it) = self.scene.floating().await.into_iter().next() else { return Vec::new() };
                let change = FloatingIpChange { port_id: Edit::To(None), ..FloatingIpChange::default() };
                _ = cloud.all::<FloatingIp>().change(&it.id, &change).await;
                vec![it.id.to_string()]
            }
        }
    }

    /// Which Services want a load balancer, by uid, with the ports and whether it has a floating IP.
    fn wanted(&self) -> BTreeMap<Name, (BTreeSet<u16>, bool)> {
        let all = self.api.services().into_iter();
        all.filter(|it| it.kind == ServiceKind::LoadBalancer && !it.leaving)
            .map(|it| {
                let ports = it.ports.iter().map(|it| it.port).collect();
                (it.meta.uid.clone(), (ports, !it.meta.annotations.contains_key(INTERNAL)))
            })
            .collect()
    }

    /// What is in the cloud for Services that want it, by id.
    async fn used(&self) -> BTreeMap<String, Used> {
        let wanted = self.wanted();
        let (balancers, listeners) = (self.scene.balancers().await, self.scene.listeners().await);
        let floating = self.scene.floating().await;
        let mut used = BTreeMap::new();
        for it in balancers.iter().filter(|it| it.provisioning_status != Provisioning::PendingDelete) {
            let Some(uid) = wanted.keys().find(|uid| is_of(it, uid)) else { continue };
            used.insert(it.id.to_string(), Used::Balancer(uid.clone()));
            for it in listeners.iter().filter(|of| of.loadbalancers.iter().any(|at| at.id == it.id)) {
                used.insert(it.id.to_string(), Used::Listener(uid.clone(), it.protocol_port));
                let pool = it.default_pool_id.as_ref().map(ToString::to_string);
                used.extend(pool.map(|id| (id, Used::Listener(uid.clone(), it.protocol_port))));
            }
            let leads_here = |of: &&FloatingIp| of.port_id.is_some() && of.port_id == it.vip_port_id;
            let leads = floating.iter().filter(leads_here);
            used.extend(leads.map(|of| (of.id.to_string(), Used::Floating(uid.clone()))));
        }
        used
    }

    /// All that went wrong is mended, and then it is as it is wanted.
    async fn ends(mut self) -> Seen {
        self.scene.fake.heal();
        self.config = config(&self.scene, Setting::Usual);
        for it in self.controllers.iter().flatten() {
            it.configure(&self.config).await;
        }
        self.passes(LONG).await;
        let wanted = self.wanted();
        let history = &self.happened;
        assert!(self.api.services().iter().all(|it| !it.leaving), "one that is deleted stays: {history:#?}");
        let (balancers, listeners) = (self.scene.balancers().await, self.scene.listeners().await);
        for (uid, (ports, outside)) in &wanted {
            let its: Vec<_> = balancers.iter().filter(|it| is_of(it, uid)).collect();
            let [it] = &its[..] else { panic!("{uid} has {} load balancers: {history:#?}", its.len()) };
            assert_eq!(it.provisioning_status, Provisioning::Active, "{uid}: {history:#?}");
            let here = listeners.iter().filter(|of| of.loadbalancers.iter().any(|at| at.id == it.id));
            let here: BTreeSet<u16> = here.map(|it| it.protocol_port).collect();
            assert_eq!(here, *ports, "ports of {uid}: {history:#?}");
            let floating = self.scene.floating().await;
            let leads = floating.iter().filter(|of| of.port_id == it.vip_port_id).count();
            assert_eq!(leads, usize::from(*outside), "floating IPs of {uid}: {history:#?}");
        }
        let mut members = BTreeSet::new();
        for pool in self.scene.pools().await {
            let all = self.scene.cloud.within::<Member>(&pool.id).list::<Member>(Query::all()).await.unwrap();
            let addresses: BTreeSet<String> = all.iter().map(|it| it.address.to_string()).collect();
            members.insert(addresses);
        }
        let nodes: BTreeSet<String> =
            self.api.nodes().iter().flat_map(|it| &it.addresses).map(ToString::to_string).collect();
        assert!(members.iter().all(|it| *it == nodes), "members {members:?}, Nodes {nodes:?}: {history:#?}");
        let others: Vec<_> = balancers.iter().filter(|it| !wanted.keys().any(|uid| is_of(it, uid))).collect();
        let leader = self.controllers[self.leader].as_ref().unwrap();
        let orphans = leader.handle.ask(|world| world.orphans().count()).await.unwrap();
        assert!(others.len() <= orphans, "left, and not listed: {others:#?} {history:#?}");
        self.seen
    }
}

/// What a Service that lives uses.
#[derive(Clone, Debug)]
enum Used {
    Balancer(Name),
    Listener(Name, u16),
    Floating(Name),
}

impl Used {
    fn is_in(&self, wanted: &BTreeMap<Name, (BTreeSet<u16>, bool)>) -> bool {
        match self {
            Used::Balancer(uid) => wanted.contains_key(uid),
            Used::Listener(uid, port) => wanted.get(uid).is_some_and(|it| it.0.contains(port)),
            Used::Floating(uid) => wanted.get(uid).is_some_and(|it| it.1),
        }
    }
}

fn is_of(it: &LoadBalancer, uid: &str) -> bool {
    it.tags.iter().any(|tag| tag.starts_with("seaway.dev/key=") && tag.contains(uid))
}

fn is_heartbeat(it: &Recorded) -> bool {
    it.fits("PUT */ports/*/tags")
        && it.body.as_ref().is_some_and(|it| it.to_string().contains("seaway.heartbeat."))
}

fn last(path: &str) -> String {
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

fn annotations(internal: bool) -> BTreeMap<Name, Name> {
    internal.then(|| (INTERNAL.into(), "true".into())).into_iter().collect()
}

fn service(name: &str, ports: &[u16]) -> Service {
    let port = |it: &u16| ServicePort {
        name: format!("p{it}").into(),
        protocol: L4::Tcp,
        port: *it,
        target: TargetPort::Number(*it),
        node_port: Some(30_000 + it),
        app_protocol: None,
    };
    Service { held: Held::No, ports: ports.iter().map(port).collect(), ..facts::service(name, &[]) }
}

fn nodes(numbers: &[u8]) -> Vec<Node> {
    let node = |it: &u8| Node {
        meta: Meta { name: format!("node-{it}").into(), ..Meta::default() },
        addresses: vec![[10, 0, 0, *it].into()],
        external: Vec::new(),
        leaving: false,
        provider_id: None,
        ready: true,
        unschedulable: false,
    };
    numbers.iter().map(node).collect()
}

fn config(scene: &Scene, setting: Setting) -> Config {
    let mut usual = CloudDefaults { classless: true, ..CloudDefaults::default() };
    usual.place.subnet = Some(scene.subnet.as_str().into());
    match setting {
        Setting::Usual => {}
        Setting::NotByDefault => usual.classless = false,
        Setting::NoCloud => (usual.absent, usual.enabled) = (true, false),
        Setting::Disabled => usual.enabled = false,
        Setting::Monitors => usual.monitor = true,
        Setting::InternalOnly => usual.internal = true,
        Setting::Groups => usual.groups = true,
        Setting::Method => usual.balance = Some(Balance::LeastConnections),
    }
    Config { clouds: [(CLASS.into(), Arc::new(usual))].into(), ..Config::default() }
}
