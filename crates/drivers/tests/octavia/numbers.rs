//! How many requests of HTTP each change of a Service costs, and how long it waits, against what the cloud provider's
//! controller takes. Nothing here looks at a real clock: requests are counted, and time is the fake's.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    fmt::{self, Write as _},
    sync::Arc,
    time::{Duration, Instant},
};

use seaway_drivers::octavia::groups::Groups;
use seaway_engine::{Driver, Failure, Gate, Report, Until, work_once};
use seaway_model::{
    Desired, Kind, L4, LoadBalancer, NodeSecurityGroup, ObjectRef, Owner, Unit,
    group::{CloudNode, NodeAccess, SourceNetwork},
    load_balancer::{Family, HealthCheck, Rule},
};
use seaway_openstack::{
    Clock as _,
    neutron::{FixedIp, NewPort, Port, Subnet},
    resource::Query,
};
use seaway_testkit::cloud::{ChangeDuration, Recorded};

use crate::scene::{Scene, unit_of};

/// How large it is measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Nodes of the one Service that is looked at closely.
    pub(crate) nodes: u8,
    pub(crate) services: u16,
    /// Nodes of each of the many.
    pub(crate) few: u8,
}

/// One figure beside its target.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    case: &'static str,
    what: &'static str,
    theirs: Option<f64>,
    ours: f64,
    must: f64,
    /// Lists that all that is pending shares; they are not in the figure, nor in the target.
    polls: Option<usize>,
}

impl Row {
    pub(crate) fn is_met(&self) -> bool {
        self.ours <= self.must
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row { case, what, ours, must, .. } = self;
        let (theirs, ratio) = match self.theirs {
            // What the other controller asks meanwhile is in its figure.
            Some(theirs) => {
                let all = ours + self.polls.map_or(0.0, |it| it as f64);
                (number(theirs), format!("{:.3}", all / theirs))
            }
            None => (String::new(), String::new()),
        };
        let polls = self.polls.map_or(String::new(), |it| it.to_string());
        let met = if self.is_met() { "met" } else { "**not met**" };
        let (ours, must) = (number(*ours), number(*must));
        write!(f, "| {case} | {what} | {theirs} | {ours} | {polls} | {must} | {ratio} | {met} |")
    }
}

fn number(it: f64) -> String {
    if it.fract() == 0.0 { format!("{it:.0}") } else { format!("{it:.1}") }
}

/// As it stands in `docs/performance.md`.
pub(crate) fn markdown(size: Size, rows: &[Row]) -> String {
    let Size { nodes, services, few } = size;
    let mut text = format!(
        "{nodes} Nodes, 2 ports, security groups and monitors on; {services} Services have {few} Nodes each. \"Polls\" are lists \
         that all pending load balancers share, one every two seconds, sooner after a write; they are in the ratio, not in the \
         target.\n\n\
         | case | figure | OCCM | Seaway | polls | must reach | ratio | |\n|---|---|--:|--:|--:|--:|--:|---|\n"
    );
    for row in rows {
        _ = writeln!(text, "{row}");
    }
    text
}

pub(crate) async fn rows(size: Size) -> Vec<Row> {
    let mut rows = one(size).await;
    rows.extend(many(size).await);
    rows.push(waiting().await);
    rows.push(quick().await);
    rows
}

/// One Service, from its first day to its last. Another has the Nodes opened already.
async fn one(size: Size) -> Vec<Row> {
    let mut scene = Scene::set().await;
    let all: Vec<u8> = (FIRST..FIRST + size.nodes).collect();
    let most = &all[1..];
    plug(&scene, &all).await;
    let mut rows = Vec::new();
    let mut figure = |case, what, theirs, ours: usize, polls: usize, must| {
        rows.push(Row { case, what, theirs, ours: ours as f64, must, polls: Some(polls) });
    };
    let other = (1, &[80][..]);
    worked(&scene, vec![opened(&scene, &[other], most)]).await;
    let at = |ports, nodes: &[u8]| {
        let it = wished(&scene, &(0, ports, nodes));
        (it, opened(&scene, &[other, (0, ports)], nodes))
    };
    scene.fake.pace(ChangeDuration::Time(Duration::from_secs(60)));
    let (it, group) = at(&[80, 443], most);
    let first = worked(&scene, vec![it, group]).await;
    figure("create, 2 ports", "calls", Some(230.0), first.calls, first.polls, 12.0);
    scene.fake.pace(ChangeDuration::Time(Duration::from_secs(3)));
    let (it, group) = at(&[80, 443], most);
    let same = worked(&scene, vec![it, group]).await;
    figure("nothing changed", "calls", Some(112.0), same.calls, same.polls, 0.0);
    let fresh = wished(&scene, &(0, &[80, 443], most));
    scene.restarted();
    let fresh = worked(&scene, vec![fresh]).await;
    assert_eq!(fresh.writes, 0, "a restart changes nothing");
    let at = |ports, nodes: &[u8]| {
        let it = wished(&scene, &(0, ports, nodes));
        (it, opened(&scene, &[other, (0, ports)], nodes))
    };
    let (_, group) = at(&[80, 443], most);
    assert_eq!(worked(&scene, vec![group]).await.writes, 0, "nor of the group");
    let (it, group) = at(&[80, 443], &all);
    let node = worked(&scene, vec![it]).await;
    figure("one node added, 2 ports", "calls", Some(123.0), node.calls, node.polls, 2.0);
    let its_group = worked(&scene, vec![group]).await;
    let case = "its security group, once for all Services";
    figure(case, "writes", None, its_group.writes, 0, 1.0);
    let (it, group) = at(&[80, 443, 8443], &all);
    let appended = worked(&scene, vec![it, group]).await;
    figure("one port appended", "writes", Some(136.0), appended.writes, appended.polls, 8.0);
    let (it, group) = at(&[25, 80, 443, 8443], &all);
    let inserted = worked(&scene, vec![it, group]).await;
    figure("one port inserted first", "writes", Some(136.0), inserted.writes, inserted.polls, 8.0);
    let renames = appended.renames + inserted.renames;
    figure("ports appended and inserted", "renames", None, renames, 0, 0.0);
    let (it, group) = at(&[80, 443], &all);
    worked(&scene, vec![it, group]).await;
    scene.fake.pace(ChangeDuration::Time(Duration::from_secs(10)));
    let gone = (unit_of(&owner(0)), Desired::Absent);
    let gone = worked(&scene, vec![gone, opened(&scene, &[other], &all)]).await;
    figure("delete, 2 ports", "calls", Some(118.0), gone.calls, gone.polls, 5.0);
    rows
}

/// Many Services: what a restart costs, an audit, and another Node.
async fn many(size: Size) -> Vec<Row> {
    let mut scene = Scene::crowded().await;
    let all: Vec<u8> = (FIRST..FIRST + size.few).collect();
    let most = &all[1..];
    plug(&scene, &all).await;
    let wishes = |scene: &Scene, nodes: &[u8]| {
        let each = (1..=size.services).map(|it| wished(scene, &(it, &[80, 443], nodes)));
        let opened = (1..=size.services).map(|it| (it, &[80, 443][..])).collect::<Vec<_>>();
        each.chain([self::opened(scene, &opened, nodes)]).collect::<Vec<_>>()
    };
    worked(&scene, wishes(&scene, most)).await;
    scene.restarted();
    let restart = worked(&scene, wishes(&scene, most)).await;
    pass(&scene, Duration::from_secs(300));
    let audit = audited(&scene, wishes(&scene, most)).await;
    scene.fake.pace(ChangeDuration::Workers { each: Duration::from_secs(3), workers: 32 });
    let node = worked(&scene, wishes(&scene, &all)).await;
    let services = f64::from(size.services);
    let row = |case, what, theirs: f64, ours, must, polls| Row {
        case,
        what,
        theirs: (theirs > 0.0).then_some(theirs * services / 1000.0),
        ours,
        must,
        polls,
    };
    let (restarts, audits) = ("restart of the controller, all Services", "audit of all Services");
    let added = "one node added, all Services, 3 s an update, 32 at a time";
    let most = (300.0 * services / 1000.0).max(20.0);
    vec![
        row(restarts, "calls", 112_000.0, restart.calls as f64, 40.0 + services, Some(restart.polls)),
        row(restarts, "writes", 0.0, restart.writes as f64, 0.0, None),
        row(audits, "calls", 0.0, (audit.calls + audit.polls) as f64, 40.0, None),
        row(audits, "writes", 0.0, audit.writes as f64, 0.0, None),
        row(added, "calls", 123_000.0, (node.calls + node.polls) as f64, 4.0 * services, None),
        row(added, "seconds", 1.9 * 3600.0, node.took.as_secs_f64(), most, None),
    ]
}

/// How much longer than a change itself it takes until it is seen to be done, at the worst.
async fn waiting() -> Row {
    let mut most = Duration::ZERO;
    for millis in [3_000, 7_300, 60_100, 89_900] {
        let scene = Scene::set().await;
        let takes = Duration::from_millis(millis);
        scene.fake.pace(ChangeDuration::Time(takes));
        // Others at other times, whose lists are shared.
        let mut nodes = vec![1];
        for turn in 2..5 {
            let took = changed(&scene, &[(turn, &[80], &nodes)]).await.took;
            most = most.max(took.saturating_sub(takes));
            nodes.push(u8::try_from(turn).unwrap_or(u8::MAX));
            pass(&scene, Duration::from_millis(700));
        }
    }
    // OCCM saw at 106 s what was done at 90.
    let (theirs, ours) = (Some(16.0), most.as_secs_f64());
    let case = "waiting longer than needed, at most";
    Row { case, what: "seconds", theirs, ours, must: 2.0, polls: None }
}

/// A port takes several writes, one after the other, and a cloud is done with each in a moment.
async fn quick() -> Row {
    let scene = Scene::set().await;
    scene.fake.pace(ChangeDuration::Time(Duration::from_millis(300)));
    changed(&scene, &[(1, &[80], &[1, 2])]).await;
    let ours = changed(&scene, &[(1, &[80, 443], &[1, 2])]).await.took.as_secs_f64();
    let case = "one port appended, 0.3 s for each write";
    Row { case, what: "seconds", theirs: None, ours, must: 2.5, polls: None }
}

/// What it cost.
#[derive(Clone, Debug, Default)]
struct Spent {
    calls: usize,
    polls: usize,
    writes: usize,
    renames: usize,
    took: Duration,
}

type Wished<'a> = (u16, &'a [u16], &'a [u8]);

/// What it costs to make these Services so.
async fn changed(scene: &Scene, wishes: &[Wished<'_>]) -> Spent {
    worked(scene, wishes.iter().map(|it| wished(scene, it)).collect()).await
}

fn wished(scene: &Scene, (number, ports, nodes): &Wished<'_>) -> (Unit, Desired) {
    let wish = wish(scene, *number, ports, nodes);
    (unit_of(&owner(*number)), Desired::LoadBalancer(Arc::new(wish)))
}

/// Before it are a network's own addresses.
const FIRST: u8 = 10;

fn server(number: u8) -> String {
    format!("00000000-0000-4000-8000-000000000{number:03}")
}

/// Machines of these numbers, each with a port.
async fn plug(scene: &Scene, nodes: &[u8]) {
    let query = Query::all().with("cidr", "10.0.0.0/24");
    let subnet = scene.cloud.all::<Subnet>().list::<Subnet>(query).await.unwrap().remove(0);
    for number in nodes {
        let fixed =
            FixedIp { ip_address: Some([10, 0, 0, *number].into()), ..FixedIp::on(subnet.id.clone()) };
        let new = NewPort {
            fixed_ips: vec![fixed].into(),
            device_id: server(*number).into(),
            device_owner: "compute:nova".into(),
            ..NewPort::new(subnet.network_id.clone())
        };
        scene.cloud.all::<Port>().create(&new).await.unwrap();
    }
}

/// The group of Nodes, for the ports of these Services.
fn opened(scene: &Scene, services: &[(u16, &[u16])], nodes: &[u8]) -> (Unit, Desired) {
    let openings = services.iter().map(|(number, ports)| {
        let openings = NodeAccess {
            ports: ports.iter().map(|it| (L4::Tcp, 30_000 + it + 3 * number)).collect(),
            families: vec![Family::V4],
            provider: Some("amphora".into()),
            from: SourceNetwork::Subnet(scene.subnet.as_str().into()),
            ..NodeAccess::default()
        };
        (owner(*number), Arc::new(openings))
    });
    let node = |number: &u8| CloudNode {
        name: format!("node-{number}").into(),
        addresses: vec![[10, 0, 0, *number].into()],
        provider_id: Some(format!("openstack:///{}", server(*number)).into()),
    };
    let group = NodeSecurityGroup {
        openings: openings.collect(),
        nodes: nodes.iter().map(node).collect(),
        ..NodeSecurityGroup::default()
    };
    let unit = Unit::SecurityGroup { cloud: "openstack".into(), class: "seaway.dev/octavia".into() };
    (unit, Desired::SecurityGroup(Arc::new(group)))
}

/// As a controller audits: all lists, and then a look at what rests, the group of Nodes as well.
async fn audited(scene: &Scene, wishes: Vec<(Unit, Desired)>) -> Spent {
    listed(scene).await;
    let start = scene.clock.now();
    let lists = spent(scene, start, start);
    let looks = worked(scene, wishes).await;
    Spent { calls: lists.calls + looks.calls, polls: lists.polls + looks.polls, ..looks }
}

async fn listed(scene: &Scene) {
    scene.fake.forget_requests();
    let found = scene.driver.audit(&"openstack".into()).await.unwrap();
    assert!(found.again.is_empty() && found.found.is_empty(), "nothing happened");
    let groups = Groups::new(scene.driver.clone());
    groups.survey(&"openstack".into(), &"seaway.dev/octavia".into()).await.unwrap();
}

fn wish(scene: &Scene, number: u16, ports: &[u16], nodes: &[u8]) -> LoadBalancer {
    let owner = owner(number);
    let mut wish = scene.wish(ports, nodes);
    for listener in wish.listeners.values_mut() {
        let it = Arc::make_mut(listener);
        it.owner = owner.clone();
        let pool = format!("{}/TCP", it.port);
        it.rules = vec![Rule::forward_all(owner.clone(), seaway_model::PoolId(pool.as_str().into())).into()];
    }
    for pool in wish.pools.values_mut() {
        let it = Arc::make_mut(pool);
        (it.owner, it.health) = (owner.clone(), Some(HealthCheck::default()));
    }
    // Floating IPs are counted where there is one Service: nobody has a thousand of them.
    if number > 0 {
        wish.options.cloud.iter_mut().for_each(|it| it.internal = true);
    }
    wish
}

fn owner(number: u16) -> Owner {
    let object = ObjectRef::new(Kind::Service, "default", &*format!("service-{number}"));
    Owner::Object { object, uid: format!("uid-{number}").as_str().into() }
}

/// Works on them all until they are at rest, as the engine would: a Unit that waits is looked at when it said.
async fn worked(scene: &Scene, wishes: Vec<(Unit, Desired)>) -> Spent {
    scene.fake.forget_requests();
    let start = scene.clock.now();
    let mut ends = start;
    let mut due: BinaryHeap<Reverse<(Instant, usize)>> =
        (0..wishes.len()).map(|it| Reverse((start, it))).collect();
    while let Some(Reverse((when, at))) = due.pop() {
        let wait = when.saturating_duration_since(scene.clock.now());
        pass(scene, wait);
        let (unit, desired) = &wishes[at];
        let again = turn(scene, unit, desired).await;
        match again {
            Some(after) => due.push(Reverse((scene.clock.now() + after, at))),
            None => ends = ends.max(scene.clock.now()),
        }
        // Each turn takes its time, or all would move in step.
        if wishes.len() > 1 {
            pass(scene, Duration::from_micros(500));
        }
    }
    spent(scene, start, ends)
}

fn spent(scene: &Scene, start: Instant, ends: Instant) -> Spent {
    let requests: Vec<Recorded> =
        scene.fake.requests().into_iter().filter(|it| !it.path.contains("/auth/")).collect();
    let polls = requests.iter().filter(|it| it.is_poll()).count();
    let writes = requests.iter().filter(|it| it.method != "GET");
    Spent {
        calls: requests.len() - polls,
        polls,
        writes: writes.clone().count(),
        renames: writes.filter(|it| it.renames()).count(),
        took: ends.duration_since(start),
    }
}

/// When it is looked at again; nothing once it is at rest.
async fn turn(scene: &Scene, unit: &Unit, desired: &Desired) -> Option<Duration> {
    let work = match unit {
        Unit::SecurityGroup { .. } => work(&Groups::new(scene.driver.clone()), unit, desired).await,
        _ => work(&*scene.driver, unit, desired).await,
    };
    match work {
        Ok(told) => {
            assert!(told.problems.is_empty(), "{:?}", told.problems);
            told.again.filter(|it| *it < Duration::from_secs(60))
        }
        Err(Failure::Wait { until: Until::After(after), .. }) => Some(after),
        Err(other) => panic!("{unit}: {other}"),
    }
}

async fn work<D: Driver>(driver: &D, unit: &Unit, desired: &Desired) -> Result<Report, Failure> {
    let done = work_once(driver, unit, desired, &Gate::default()).await?;
    Ok(done.expect("it is not left alone").report)
}

fn pass(scene: &Scene, time: Duration) {
    scene.fake.advance(time);
    scene.clock.advance(time);
}

/// The same in small. `bench/run octavia` measures it as large as it has to be.
#[cfg(test)]
#[tokio::test]
async fn requests_are_as_few_as_promised() {
    let size = Size { nodes: 10, services: 40, few: 3 };
    let rows = rows(size).await;
    let table = markdown(size, &rows);
    assert!(rows.iter().all(Row::is_met), "{table}");
}

/// What was asked, by kind, without polls: `PUT lbaas/pools/ID/members`. What is not a write is asked once for all.
#[cfg(test)]
fn kinds(scene: &Scene) -> std::collections::BTreeMap<String, usize> {
    let is_id = |part: &&str| part.len() >= 32 && part.chars().all(|it| it.is_ascii_hexdigit() || it == '-');
    let mut kinds = std::collections::BTreeMap::new();
    for it in scene.fake.requests().iter().filter(|it| !it.path.contains("/auth/") && !it.is_poll()) {
        let parts = it.path.split('/').filter(|it| !it.is_empty()).skip(2);
        let parts: Vec<&str> = parts.map(|it| if is_id(&it) { "ID" } else { it }).collect();
        *kinds.entry(format!("{} {}", it.method, parts.join("/"))).or_default() += 1;
    }
    kinds
}

/// Each of these is a promise: what the lists say is compared with what was left there, so that what others changed, what came
/// back after it was deleted, and orphans are seen.
#[cfg(test)]
#[tokio::test]
async fn an_audit_asks_for_one_list_of_each_kind_however_many_services_there_are() {
    for services in [2, 7] {
        let scene = Scene::set().await;
        plug(&scene, &[FIRST, FIRST + 1]).await;
        let all: Vec<(u16, &[u16])> = (1..=services).map(|it| (it, &[80, 443][..])).collect();
        let wishes = || {
            let each = all.iter().map(|(it, ports)| wished(&scene, &(*it, ports, &[FIRST, FIRST + 1])));
            each.chain([opened(&scene, &all, &[FIRST, FIRST + 1])]).collect::<Vec<_>>()
        };
        worked(&scene, wishes()).await;
        pass(&scene, Duration::from_secs(60));
        listed(&scene).await;
        let lists = [
            "GET lbaas/healthmonitors",
            "GET lbaas/listeners",
            "GET lbaas/loadbalancers",
            "GET lbaas/pools",
            "GET floatingips",
            "GET security-groups",
            // From where members are reached.
            "GET subnets",
        ];
        assert_eq!(kinds(&scene), lists.map(|it| (it.to_owned(), 1)).into(), "{services} Services");
    }
}

#[cfg(test)]
#[tokio::test]
async fn a_node_that_comes_or_goes_costs_two_writes_for_each_service_and_two_calls_for_all() {
    for services in [2, 7] {
        let scene = Scene::set().await;
        scene.fake.pace(ChangeDuration::Time(Duration::from_secs(1)));
        plug(&scene, &[FIRST, FIRST + 1, FIRST + 2]).await;
        let all: Vec<(u16, &[u16])> = (1..=services).map(|it| (it, &[80, 443][..])).collect();
        let wishes = |nodes: &[u8]| {
            let each = all.iter().map(|(it, ports)| wished(&scene, &(*it, ports, nodes)));
            each.chain([opened(&scene, &all, nodes)]).collect::<Vec<_>>()
        };
        worked(&scene, wishes(&[FIRST, FIRST + 1])).await;
        pass(&scene, Duration::from_secs(60));
        let members = ("PUT lbaas/pools/ID/members".to_owned(), 2 * usize::from(services));
        let port = ("PUT ports/ID".to_owned(), 1);
        for (nodes, reads) in [(&[FIRST, FIRST + 1, FIRST + 2][..], 1), (&[FIRST, FIRST + 1], 0)] {
            let spent = worked(&scene, wishes(nodes)).await;
            let found = ("GET ports".to_owned(), reads);
            let asked = [members.clone(), port.clone(), found].into_iter().filter(|(_, it)| *it > 0);
            assert_eq!(kinds(&scene), asked.collect(), "{services} Services, {nodes:?}");
            // One every 150 ms while something moves, for two changes of a second.
            assert!(spent.polls <= 18, "{services} Services, {nodes:?}: {} polls", spent.polls);
        }
    }
}
