//! Random walks: Services come, change and go, settings change, controllers die and follow each other, replies are lost,
//! others change what is in the cloud, a copy of the cluster runs beside it. The engine, the plan and the driver are the
//! real ones. Nothing that a living Service uses is ever deleted, members included, and in the end all is as it is wanted.

mod checks;
mod cluster;
mod copies;
mod events;
mod limit;
mod openings;
mod revivals;

use std::{collections::BTreeSet, net::IpAddr, sync::Arc, time::Duration};

use seaway_model::{
    Config, L4,
    config::{CloudDefaults, CloudNetworks},
    fact::{
        Families, FamilyPolicy, FinalizerOwner, Meta, Node, Service, ServiceKind, ServicePort, TargetPort,
    },
    load_balancer::{Balance, Family},
};
use seaway_openstack::{
    neutron::{FloatingIp, FloatingIpChange},
    octavia::{
        Algorithm, HealthMonitor, Listener, LoadBalancer, LoadBalancerChange, Member, Pool, PoolChange,
    },
    resource::{Edit, Query},
};
use seaway_testkit::{
    cloud::{ChangeDuration, Cloud as Fake, Fault, Recorded},
    facts,
    properties::{cases, seed},
};
use tokio::time::sleep;

use self::{
    checks::{both, members_in},
    cluster::{ApiServer, CLASS, Controller},
    events::{Event, Foreign, RequestFault, SeededRandom, Setting},
};
use crate::{scene::Scene, tls};

const NAMES: [&str; 3] = ["shop", "mail", "wiki"];
const PORTS: [u16; 3] = [80, 443, 8443];
const INTERNAL: &str = "service.beta.kubernetes.io/openstack-internal-load-balancer";
const ITS_CLASS: &str = "loadbalancer.openstack.org/class";
/// A class of cloud.conf.
const EDGE: &str = "edge";
/// Has addresses of both families.
const DUAL: &str = "wiki";
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
    let (mut walks, mut failed, mut seen) = (0, Vec::new(), WalkCounts::default());
    for (seed, events) in random.chain(known) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
        let walked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            runtime.unwrap().block_on(Walk::run(seed, events))
        }));
        walks += 1;
        match walked {
            Ok(it) => seen.add(it),
            Err(_) => {
                eprintln!("SEAWAY_WALK={seed} repeats it");
                failed.push(seed);
            }
        }
    }
    let ends = seeds.first().zip(seeds.last());
    eprintln!("{walks} walks, {} failed, seeds {ends:?}, {seen:?}", failed.len());
    assert_eq!(failed, [0; 0], "SEAWAY_WALK repeats one");
    let shows = seen.deleted > 0 && seen.beats > 0 && seen.written > 0;
    assert!(
        shows || first.is_some(),
        "walks on which nothing is deleted, no members are written, or no heartbeat is sent, show nothing"
    );
}

/// What came about on walks: objects that were deleted, members that were written while others served, and heartbeats at a
/// port.
#[derive(Clone, Copy, Debug, Default)]
struct WalkCounts {
    deleted: usize,
    written: usize,
    beats: usize,
}

impl WalkCounts {
    fn add(&mut self, other: WalkCounts) {
        self.deleted += other.deleted;
        self.written += other.written;
        self.beats += other.beats;
    }
}

struct Walk {
    dice: SeededRandom,
    scene: Scene,
    api: ApiServer,
    container: String,
    config: Config,
    controllers: [Option<Controller>; 2],
    leader: usize,
    made: u32,
    seen: WalkCounts,
    /// Addresses that Nodes had before the last event.
    nodes: BTreeSet<IpAddr>,
    happened: Vec<String>,
}

impl Walk {
    async fn run(seed: u64, given: Option<Vec<Event>>) -> WalkCounts {
        let mut walk = Walk::begin(SeededRandom(seed)).await;
        let events = 6 + walk.dice.roll(14);
        if let Some(events) = given {
            for event in events {
                walk.goes_on(event).await;
            }
            return walk.ends().await;
        }
        let setting = walk.dice.one(&[Setting::Usual, Setting::Monitors, Setting::Groups, Setting::Method]);
        for name in walk.dice.some(&NAMES) {
            let ports = walk.dice.some(&PORTS);
            walk.goes_on(Event::Create(name, ports)).await;
        }
        for _ in 0..events {
            let event = Event::random(&mut walk.dice);
            walk.goes_on(event).await;
        }
        walk.ends_with(setting).await
    }

    /// Two controllers, of which one leads, at a cloud where nothing is.
    async fn begin(dice: SeededRandom) -> Walk {
        let scene = Scene::of(Fake::start_here(), "demo", "amphora").await.with_ipv6().await;
        scene.fake.pace(ChangeDuration::Time(Duration::from_millis(700)));
        let container = tls::theirs(&scene).await;
        let config = config(&scene, &container, Setting::Usual);
        let api = ApiServer::default();
        api.set_nodes(nodes(&[11, 12]));
        let mut walk = Walk {
            dice,
            scene,
            api,
            container,
            config,
            controllers: [None, None],
            leader: 0,
            made: 0,
            seen: WalkCounts::default(),
            nodes: BTreeSet::new(),
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
        let (before, wanted) = (self.used().await, self.wanted());
        let now = self.addresses();
        let nodes = std::mem::replace(&mut self.nodes, now);
        let nodes: BTreeSet<IpAddr> = nodes.intersection(&self.nodes).copied().collect();
        self.scene.fake.forget_requests();
        let taken = self.happens(event).await;
        let whiles = [1, 3, 20, 400];
        let seconds = self.dice.one(&whiles);
        self.passes(Duration::from_secs(seconds)).await;
        // What was asked for before that, and still is.
        let wanted = both(&wanted, &self.wanted());
        let nodes = nodes.intersection(&self.addresses()).copied().collect();
        let requests = self.scene.fake.requests();
        let deleted = requests.iter().filter(|it| it.method == "DELETE");
        let deleted: BTreeSet<String> = deleted.map(|it| last(&it.path)).collect();
        self.seen.deleted += deleted.len();
        self.seen.beats += requests.iter().filter(|it| is_heartbeat(it)).count();
        for (id, used) in before.objects.iter().filter(|(id, _)| !taken.contains(*id)) {
            let is_used = used.is_in(&wanted, &nodes);
            assert!(!is_used || !deleted.contains(id), "{used:?} was deleted, {id}: {:#?}", self.happened);
        }
        for (pool, used) in &before.members {
            let written = requests.iter().filter(|it| it.fits(&format!("PUT */pools/{pool}/members")));
            for request in written {
                let there = members_in(request);
                // Of one that another took, its Node may be a member at another of its addresses instead.
                let left_out = used.iter().filter(|(id, it)| {
                    it.is_in(&wanted, &nodes) && !taken.contains(id) && !there.contains(&it.address())
                });
                let left_out: Vec<_> = left_out.collect();
                assert!(left_out.is_empty(), "{left_out:?} left out of {pool}: {:#?}", self.happened);
                self.seen.written += 1;
            }
        }
    }

    async fn passes(&self, time: Duration) {
        // What follows from an event is seen closely; of an hour, so much of a machine's time is not worth it.
        let step = if time < LONG { Duration::from_millis(250) } else { Duration::from_secs(1) };
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
                    it.families = families(name);
                    it.meta.uid = format!("{name}-{}", self.made).into();
                    self.api.write(it);
                }
            }
            Event::Delete(name) => self.api.delete(name),
            Event::Ports(name, ports) => self.edit(name, |it| it.ports = service(name, &ports).ports),
            Event::NoLoadBalancer(name) => self.edit(name, |it| it.kind = ServiceKind::ClusterIp),
            Event::LoadBalancer(name) => self.edit(name, |it| it.kind = ServiceKind::LoadBalancer),
            Event::Internal(name, internal) => {
                self.edit(name, |it| annotate(it, INTERNAL, internal.then_some("true")))
            }
            Event::Class(name, is_named) => {
                self.edit(name, |it| annotate(it, ITS_CLASS, is_named.then_some(EDGE)))
            }
            Event::Nodes(numbers) => self.api.set_nodes(nodes(&numbers)),
            Event::Setting(setting) => {
                self.config = config(&self.scene, &self.container, setting);
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
                    RequestFault::LostRequest => on.lose_request(),
                    RequestFault::LostReply => on.lose_reply(),
                    RequestFault::Refused => on.status(500),
                    RequestFault::Conflict => on.status(409),
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
                vec![member.id.to_string()]
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
            Foreign::RemovesMonitor => {
                let monitors = cloud.all::<HealthMonitor>();
                if let Some(it) =
                    monitors.list::<HealthMonitor>(Query::all()).await.unwrap().into_iter().next()
                {
                    _ = monitors.delete(&it.id).await;
                }
                Vec::new()
            }
            Foreign::ChangesMethod => {
                let Some(it) = self.scene.pools().await.into_iter().next() else { return Vec::new() };
                let change =
                    PoolChange { lb_algorithm: Edit::To(Algorithm::SourceIp), ..PoolChange::default() };
                _ = cloud.all::<Pool>().change(&it.id, &change).await;
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
}

fn is_heartbeat(it: &Recorded) -> bool {
    it.fits("PUT */ports/*/tags")
        && it.body.as_ref().is_some_and(|it| it.to_string().contains("seaway.heartbeat."))
}

fn last(path: &str) -> String {
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

fn annotate(service: &mut Service, key: &str, value: Option<&str>) {
    match value {
        Some(value) => _ = service.meta.annotations.insert(key.into(), value.into()),
        None => _ = service.meta.annotations.remove(key),
    }
}

fn families(name: &str) -> Families {
    let second = (name == DUAL).then_some(Family::V6);
    let policy = if second.is_some() { FamilyPolicy::Prefer } else { FamilyPolicy::Single };
    Families { policy, first: Some(Family::V4), second }
}

fn service(name: &str, ports: &[u16]) -> Service {
    let port = |it: &u16| ServicePort {
        name: format!("p{it}").into(),
        protocol: L4::Tcp,
        port: *it,
        target: TargetPort::Number(*it),
        node_port: Some(node_port(*it)),
        app_protocol: None,
    };
    Service { held: FinalizerOwner::No, ports: ports.iter().map(port).collect(), ..facts::service(name, &[]) }
}

fn node_port(port: u16) -> u16 {
    30_000 + port
}

/// Those with an odd number are at the edge. Each has two addresses of IPv4.
fn nodes(numbers: &[u8]) -> Vec<Node> {
    let node = |it: &u8| Node {
        meta: Meta {
            name: format!("node-{it}").into(),
            labels: (it % 2 == 1).then(|| ("role".into(), "edge".into())).into_iter().collect(),
            ..Meta::default()
        },
        addresses: vec![
            [10, 0, 0, *it].into(),
            [10, 0, 0, 100 + it].into(),
            [0xfd00, 0, 0, 0, 0, 0, 0, u16::from(*it)].into(),
        ],
        external: Vec::new(),
        pod_networks: Vec::new(),
        leaving: false,
        provider_id: None,
        ready: true,
        unschedulable: false,
        without_network: false,
    };
    numbers.iter().map(node).collect()
}

/// `container`: a certificate in the cloud's own store.
fn config(scene: &Scene, container: &str, setting: Setting) -> Config {
    let mut usual = CloudDefaults { classless: true, ..CloudDefaults::default() };
    usual.place.subnet = Some(scene.subnet.as_str().into());
    usual.classes.insert(EDGE.into(), CloudNetworks::default());
    match setting {
        Setting::Usual => {}
        Setting::NotByDefault => usual.classless = false,
        Setting::NoCloud => (usual.absent, usual.enabled) = (true, false),
        Setting::Disabled => usual.enabled = false,
        Setting::Monitors => usual.monitor = true,
        Setting::InternalOnly => usual.internal = true,
        Setting::Groups => usual.groups = true,
        Setting::Method => usual.balance = Some(Balance::LeastConnections),
        Setting::NoClass => usual.classes.clear(),
        Setting::NoIpv6 => usual.networking.no_ipv6 = true,
        Setting::Ovn => usual.provider = "ovn".into(),
        Setting::Selector => usual.nodes = vec![("role".into(), Some("edge".into()))],
        Setting::Order => usual.networking.order = vec!["10.0.0.96/27".parse().unwrap()],
        Setting::Tls => usual.tls_container = Some(container.into()),
    }
    Config { clouds: [(CLASS.into(), Arc::new(usual))].into(), ..Config::default() }
}
