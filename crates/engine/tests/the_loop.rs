//! The loop under a scripted driver, in paused time: no socket, no sleep that lasts.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use seaway_engine::{Asked, Conclusion, Driver, Drivers, Engine, Failure, Handle, Owners, Phase, Settings};
use seaway_model::{
    Change, Config, Desired, Owner, Pool, Problem, Reason, Unit,
    config::CloudDefaults,
    fact::{FactRef, Families, FamilyPolicy, Service, ServiceKind},
    load_balancer::Family,
    unit::{LbKey, Place},
};
use seaway_plan::{Demand, Placement, Roles, World};
use seaway_testkit::facts::{HOST, endpoint, host, owner, put, put_slice, service, shop, slice, synced};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, timeout},
};

const A_WHILE: Duration = Duration::from_secs(7);

/// What happened at the place that this driver plays.
#[derive(Default)]
struct Script {
    applied: Vec<(Instant, Unit, String)>,
    swapped: Vec<usize>,
    at_work: HashMap<Unit, usize>,
    most_at_once: usize,
    /// Of all Units together.
    most_in_all: usize,
    fail: u32,
    wait: u32,
    blame: u32,
    panic: u32,
    /// So many times as long as it worked.
    rest: u32,
}

#[derive(Clone, Default)]
struct Played(Arc<Mutex<Script>>);

impl Played {
    fn with<T>(&self, look: impl FnOnce(&mut Script) -> T) -> T {
        look(&mut self.0.lock().expect("no test panics while it holds this"))
    }
}

impl Driver for Played {
    type Observed = ();
    type Step = String;

    fn serves(&self, unit: &Unit) -> bool {
        matches!(
            unit,
            Unit::LoadBalancer(..) | Unit::SecurityGroup { .. } | Unit::Presence(_) | Unit::Status(_)
        )
    }

    fn steps(&self, desired: &Desired, _: &()) -> Vec<String> {
        vec![if *desired == Desired::Absent { "remove".into() } else { "make".into() }]
    }

    async fn observe(&self, unit: &Unit, _: &Desired) -> Result<(), Failure> {
        self.with(|it| {
            let at_work = it.at_work.entry(unit.clone()).or_default();
            *at_work += 1;
            it.most_at_once = it.most_at_once.max(*at_work);
            it.most_in_all = it.most_in_all.max(it.at_work.values().sum());
        });
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(())
    }

    async fn apply(&self, unit: &Unit, step: &String, (): &mut ()) -> Result<(), Failure> {
        self.with(|it| *it.at_work.entry(unit.clone()).or_default() -= 1);
        if !matches!(unit, Unit::LoadBalancer(..) | Unit::SecurityGroup { .. }) {
            return Ok(());
        }
        let (fail, wait, blame, panic) = self.with(|it| {
            let now = (it.fail > 0, it.wait > 0, it.wait == 0 && it.blame > 0, it.panic > 0);
            it.fail = it.fail.saturating_sub(1);
            it.blame = it.blame.saturating_sub(u32::from(now.2));
            it.wait = it.wait.saturating_sub(1);
            it.panic = it.panic.saturating_sub(1);
            it.applied.push((Instant::now(), unit.clone(), step.clone()));
            now
        });
        assert!(!panic, "as the script says");
        if wait {
            return Err(Failure::Wait { why: "as the script says".into(), after: A_WHILE });
        }
        if blame {
            let problem = Problem::new(owner(&shop()).object(), Reason::Invalid, "as the script says");
            return Err(Failure::User(vec![(owner(&shop()), problem)]));
        }
        if fail { Err(Failure::Retry("as the script says".into())) } else { Ok(()) }
    }

    async fn swap(&self, _: &Unit, pool: Arc<Pool>) -> Result<bool, Failure> {
        self.with(|it| it.swapped.push(pool.members.len()));
        Ok(true)
    }

    fn conclude(&self, _: &Unit, _: &Desired, (): &()) -> Conclusion {
        Conclusion::default()
    }

    fn rest(&self, took: Duration) -> Duration {
        took * self.with(|it| it.rest)
    }
}

struct OnHost;

impl Placement for OnHost {
    fn units(&self, demand: &Demand) -> Vec<Unit> {
        let place = Place::Host { name: HOST.into(), driver: "native".into() };
        vec![Unit::LoadBalancer(place, LbKey::Of(demand.owner.clone()))]
    }
}

struct InCloud;

impl Placement for InCloud {
    fn units(&self, demand: &Demand) -> Vec<Unit> {
        let place = || Place::Cloud { name: "somecloud".into(), driver: "somecloud".into() };
        let mut units = vec![Unit::LoadBalancer(place(), LbKey::Of(demand.owner.clone()))];
        let second = |it| Unit::LoadBalancer(place(), LbKey::Second(demand.owner.clone(), it));
        units.extend(demand.second_family().map(second));
        units.extend(
            demand
                .is_opened()
                .then(|| Unit::SecurityGroup { cloud: "somecloud".into(), class: "somecloud".into() }),
        );
        units
    }
}

/// What the API server says, and how often it was asked.
#[derive(Clone)]
struct ApiServer(Arc<Mutex<(Result<Option<Service>, String>, u32)>>);

impl ApiServer {
    fn who_says(answer: Result<Option<Service>, String>) -> ApiServer {
        ApiServer(Arc::new(Mutex::new((answer, 0))))
    }

    fn says(&self, answer: Result<Option<Service>, String>) {
        self.0.lock().expect("no test panics while it holds this").0 = answer;
    }

    fn count(&self) -> u32 {
        self.0.lock().expect("no test panics while it holds this").1
    }

    fn answer(&self) -> Result<Option<Arc<Service>>, String> {
        let mut asked = self.0.lock().expect("no test panics while it holds this");
        asked.1 += 1;
        asked.0.clone().map(|it| it.map(Arc::new))
    }
}

impl Owners for ApiServer {
    fn service<'a>(&'a self, _: &'a Owner) -> Asked<'a, Option<Arc<Service>>> {
        Box::pin(std::future::ready(self.answer()))
    }

    fn services(&self) -> Asked<'_, Vec<Arc<Service>>> {
        Box::pin(std::future::ready(self.answer().map(|it| it.into_iter().collect())))
    }
}

struct Running {
    handle: Handle,
    played: Played,
    stop: watch::Sender<bool>,
    task: JoinHandle<World>,
}

impl Running {
    /// As a controller whose Services are served by a cloud, and whose API server says what `asked` says.
    fn in_a_cloud(asked: &ApiServer) -> Running {
        let played = Played::default();
        let usual = CloudDefaults { classless: true, groups: true, ..CloudDefaults::default() };
        let clouds = [("somecloud".into(), Arc::new(usual))];
        let config = Arc::new(Config { clouds: clouds.into(), ..Config::default() });
        let roles = Roles { allocate: true, host: None };
        let world = World::new(roles, vec![Arc::new(InCloud)], config);
        let (engine, handle) =
            Engine::new(world, Drivers::default().with(played.clone()), Settings::default());
        let (stop, stopped) = watch::channel(false);
        let engine = engine.asking(Arc::new(asked.clone()));
        Running { handle, played, stop, task: tokio::spawn(engine.run(stopped)) }
    }

    fn start(script: Script) -> Running {
        let played = Played(Arc::new(Mutex::new(script)));
        let roles = Roles { allocate: true, host: Some(HOST.into()) };
        let world = World::new(roles, vec![Arc::new(OnHost)], Arc::new(Config::default()));
        let (engine, handle) =
            Engine::new(world, Drivers::default().with(played.clone()), Settings::default());
        let (stop, stopped) = watch::channel(false);
        Running { handle, played, stop, task: tokio::spawn(engine.run(stopped)) }
    }

    async fn tell(&self, changes: impl IntoIterator<Item = seaway_model::Change>) {
        for change in changes {
            self.handle.changes().send(change).await.expect("the engine runs");
        }
    }

    async fn until_serving(&self) {
        let mut phase = self.handle.phase();
        let serving = phase.wait_for(|it| *it == Phase::Serving);
        timeout(Duration::from_secs(60), serving).await.expect("in time").expect("the engine runs");
    }

    /// Waits, in paused time, for a condition.
    async fn until(&self, what: &str, met: impl Fn(&mut Script) -> bool) {
        let met = async {
            while !self.played.with(&met) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(Duration::from_secs(3_600), met).await.unwrap_or_else(|_| panic!("never: {what}"));
    }

    async fn stop(self) -> World {
        self.stop.send(true).expect("the engine runs");
        self.task.await.expect("no panic")
    }
}

fn told() -> Vec<seaway_model::Change> {
    vec![
        put(&shop()),
        put_slice(&slice("shop", ("", 80), vec![endpoint("10.0.0.1")])),
        host(&["192.0.2.5"], &[]),
    ]
}

#[tokio::test(start_paused = true)]
async fn nothing_is_worked_on_before_everything_was_told() {
    let running = Running::start(Script::default());
    running.tell(told()).await;
    running.handle.ask(|_| ()).await.expect("the engine runs");
    assert_eq!(*running.handle.phase().borrow(), Phase::Listening);
    assert_eq!(running.played.with(|it| it.applied.len()), 0);
    running.tell(synced()).await;
    running.until_serving().await;
    assert_eq!(running.played.with(|it| it.applied.len()), 1);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_tried_again_later_and_later() {
    let running = Running::start(Script { fail: 5, ..Script::default() });
    running.tell(told().into_iter().chain(synced())).await;
    running.until("the sixth try", |it| it.applied.len() == 6).await;
    let times = running.played.with(|it| it.applied.iter().map(|it| it.0).collect::<Vec<_>>());
    let waits: Vec<Duration> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(waits.windows(2).all(|pair| pair[1] > pair[0]), "{waits:?}");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_looked_at_again_when_it_said_and_what_only_people_mend_when_they_did() {
    let running = Running::start(Script { wait: 2, blame: 1, ..Script::default() });
    running.tell(told().into_iter().chain(synced())).await;
    running.until("a third try", |it| it.applied.len() == 3).await;
    let times = running.played.with(|it| it.applied.iter().map(|it| it.0).collect::<Vec<_>>());
    for pair in times.windows(2) {
        let apart = pair[1] - pair[0];
        assert!(apart >= A_WHILE && apart < A_WHILE + Duration::from_secs(1), "it is no failure: {apart:?}");
    }
    running.until_serving().await;
    let reasons = running.handle.ask(|world| world.problems().iter().map(|it| it.reason).collect::<Vec<_>>());
    assert!(reasons.await.expect("the engine runs").contains(&Reason::Invalid), "who can mend it is told");
    tokio::time::sleep(Settings::default().resync / 3).await;
    assert_eq!(running.played.with(|it| it.applied.len()), 3, "nobody tries in vain");
    let mended = service("shop", &[("", 8_080, seaway_model::fact::TargetPort::Number(80))]);
    running.tell([put(&mended)]).await;
    running.until("a try at once", |it| it.applied.len() == 4).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_driver_works_on_so_many_units_as_it_wants_and_they_look_again_one_by_one() {
    let running = Running::start(Script::default());
    let names: Vec<String> = (0..60).map(|number| format!("s{number}")).collect();
    let ports = |number: usize| 1_000 + u16::try_from(number).expect("few");
    let services = names.iter().enumerate().map(|(number, name)| {
        put(&service(name, &[("", ports(number), seaway_model::fact::TargetPort::Number(80))]))
    });
    running.tell(services.chain([host(&["192.0.2.5"], &[])]).chain(synced())).await;
    running.until("all are made", |it| it.applied.len() == 60).await;
    assert_eq!(running.played.with(|it| it.most_in_all), running.played.width());
    running.until_serving().await;
    let mut moved = running.handle.moved();
    moved.mark_unchanged();
    tokio::time::sleep(Settings::default().resync + Duration::from_secs(1)).await;
    running.until("all are looked at again", |it| it.applied.len() >= 120).await;
    let again = running.played.with(|it| it.applied[60].0..it.applied[119].0);
    assert!(again.end - again.start > Settings::default().resync / 4, "the audit is spread: {again:?}");
    assert!(!moved.has_changed().expect("the engine runs"), "who finds what it had found tells nobody");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_comes_while_a_driver_rests_is_done_together() {
    let running = Running::start(Script { rest: 1_000, ..Script::default() });
    running.tell(told().into_iter().chain(synced())).await;
    running.until_serving().await;
    let before = running.played.with(|it| it.applied.len());
    for port in 8_081..8_091 {
        running
            .tell([put(&service("shop", &[("", port, seaway_model::fact::TargetPort::Number(80))]))])
            .await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The first may find it rested; all others come while it rests from that.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let times = running.played.with(|it| it.applied.iter().map(|it| it.0).collect::<Vec<_>>());
    assert!((before + 1..=before + 2).contains(&times.len()), "{before} and then {}", times.len());
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= Duration::from_secs(1)), "{times:?}");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_driver_spoils_one_try_of_one_unit() {
    let running = Running::start(Script { panic: 1, ..Script::default() });
    running.tell(told().into_iter().chain(synced())).await;
    running.until("a second try", |it| it.applied.len() == 2).await;
    running.until_serving().await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_endpoint_takes_the_short_way() {
    let running = Running::start(Script::default());
    running.tell(told().into_iter().chain(synced())).await;
    running.until_serving().await;
    running
        .tell([put_slice(&slice("shop", ("", 80), vec![endpoint("10.0.0.1"), endpoint("10.0.0.2")]))])
        .await;
    running.until("the pool swapped", |it| it.swapped == [2]).await;
    assert_eq!(running.played.with(|it| it.applied.len()), 1, "nothing else was touched");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn endpoints_that_change_put_off_no_other_look_at_their_unit() {
    let running = Running::start(Script { wait: 1, ..Script::default() });
    running.tell(told().into_iter().chain(synced())).await;
    running.until("a first try", |it| it.applied.len() == 1).await;
    for members in [vec![endpoint("10.0.0.1"), endpoint("10.0.0.2")], vec![endpoint("10.0.0.3")]] {
        let count = members.len();
        running.tell([put_slice(&slice("shop", ("", 80), members))]).await;
        running.until("the pool swapped", |it| it.swapped.last() == Some(&count)).await;
    }
    running.until("a second try", |it| it.applied.len() == 2).await;
    let times = running.played.with(|it| it.applied.iter().map(|it| it.0).collect::<Vec<_>>());
    let apart = times[1] - times[0];
    assert!(apart >= A_WHILE && apart < A_WHILE + Duration::from_secs(1), "as it was said: {apart:?}");
    // Nor does who changes all the time escape the audit.
    let resync = Settings::default().resync;
    for turn in 0..20 {
        tokio::time::sleep(resync / 10).await;
        let members = if turn % 2 == 0 { vec![endpoint("10.0.0.1")] } else { vec![endpoint("10.0.0.2")] };
        running.tell([put_slice(&slice("shop", ("", 80), members))]).await;
    }
    running.until("an audit", |it| it.applied.len() > 2).await;
    let audited = running.played.with(|it| it.applied[2].0) - times[1];
    assert!(audited <= resync + Duration::from_secs(1), "{audited:?}");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn no_unit_has_two_workers_however_often_it_changes() {
    let running = Running::start(Script::default());
    running.tell(told().into_iter().chain(synced())).await;
    for port in 8081..8181 {
        let changed = service("shop", &[("", port, seaway_model::fact::TargetPort::Number(80))]);
        running.tell([put(&changed)]).await;
    }
    running.until_serving().await;
    running.until("the last port", |it| it.at_work.values().all(|count| *count == 0)).await;
    assert_eq!(running.played.with(|it| it.most_at_once), 1);
    assert!(running.played.with(|it| it.applied.len()) < 101, "what waits is worked on once");
    let world = running.stop().await;
    let ports: Vec<u16> = world.overview()[0].load_balancer.listeners.keys().map(|it| it.port).collect();
    assert_eq!(ports, [8180]);
}

#[tokio::test(start_paused = true)]
async fn a_unit_nobody_wants_is_removed_and_forgotten() {
    let running = Running::start(Script::default());
    running.tell(told().into_iter().chain(synced())).await;
    running.until_serving().await;
    let gone = seaway_model::fact::FactRef::Object(seaway_testkit::facts::owner(&shop()).object());
    running.tell([seaway_model::Change::Gone(gone)]).await;
    running.until("it is removed", |it| it.applied.last().is_some_and(|it| it.2 == "remove")).await;
    let steps = running.played.with(|it| it.applied.len());
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(running.played.with(|it| it.applied.len()), steps, "no audit of what is forgotten");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn the_audit_looks_again_though_nothing_changed() {
    let running = Running::start(Script::default());
    running.tell(told().into_iter().chain(synced())).await;
    running.until_serving().await;
    running.until("a second look", |it| it.applied.len() == 2).await;
    let apart = running.played.with(|it| it.applied[1].0 - it.applied[0].0);
    assert!(
        apart >= Settings::default().resync / 2
            && apart <= Settings::default().resync + Duration::from_secs(1),
        "{apart:?}"
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_removed_from_a_cloud_before_the_api_server_says_that_its_owner_is_gone() {
    let gone = || Change::Gone(FactRef::Object(owner(&shop()).object()));
    let otherwise = Service { kind: ServiceKind::ClusterIp, ..shop() };
    for said in [None, Some(Service { leaving: true, ..shop() }), Some(otherwise)] {
        let asked = ApiServer::who_says(Ok(Some(shop())));
        let running = Running::in_a_cloud(&asked);
        running.tell([put(&shop())].into_iter().chain(synced())).await;
        running.until("it is made", |it| it.applied.iter().any(|it| it.2 == "make")).await;
        assert_eq!(asked.count(), 0, "nobody is asked for what is wanted");
        // A list that failed, a watch that is late.
        running.tell([gone()]).await;
        let removed = |it: &mut Script| {
            let of = |it: &&(Instant, Unit, String)| is_first(&it.1) && it.2 == "remove";
            it.applied.iter().filter(of).count()
        };
        let patience = Duration::from_secs(100);
        tokio::time::sleep(patience).await;
        assert!(asked.count() >= 2, "each time anew");
        assert_eq!(running.played.with(removed), 0, "it lives");
        let told = running.handle.ask(|world| world.problems()).await.expect("the engine runs");
        assert!(told.iter().any(|it| it.reason == Reason::Released), "{told:?}");
        // Who does not know is not asked to guess.
        asked.says(Err("services is forbidden".to_owned()));
        tokio::time::sleep(patience).await;
        assert_eq!(running.played.with(removed), 0, "nobody knows");
        let told = running.handle.ask(|world| world.problems()).await.expect("the engine runs");
        assert!(told.iter().any(|it| it.message.contains("is forbidden")), "{told:?}");
        asked.says(Ok(said));
        running.until("it is removed", |it| removed(it) == 1).await;
        running.stop().await;
    }
}

fn is_first(unit: &Unit) -> bool {
    matches!(unit, Unit::LoadBalancer(_, LbKey::Of(_)))
}

#[tokio::test(start_paused = true)]
async fn nor_is_its_second_load_balancer_or_the_group_of_all_before_that_is_asked_of_the_api_server() {
    let both = Families { policy: FamilyPolicy::Prefer, first: Some(Family::V4), second: Some(Family::V6) };
    let single = Families { policy: FamilyPolicy::Single, first: Some(Family::V4), second: None };
    let mut shop = Service { families: both, ..shop() };
    shop.ports[0].node_port = Some(30_080);
    let asked = ApiServer::who_says(Ok(Some(shop.clone())));
    let running = Running::in_a_cloud(&asked);
    running.tell([put(&shop)].into_iter().chain(synced())).await;
    running.until("all are made", |it| it.applied.iter().filter(|it| it.2 == "make").count() == 3).await;
    let removed = |it: &mut Script| -> Vec<Unit> {
        it.applied.iter().filter(|it| it.2 == "remove").map(|it| it.1.clone()).collect()
    };
    let patience = Duration::from_secs(100);
    // A watch that tells what was long ago; then a list without it.
    running.tell([put(&Service { families: single, ..shop.clone() })]).await;
    tokio::time::sleep(patience).await;
    running.tell([Change::Gone(FactRef::Object(owner(&shop).object()))]).await;
    tokio::time::sleep(patience).await;
    assert_eq!(running.played.with(removed), [], "it wants both, and its ports are opened");
    let told = running.handle.ask(|world| world.problems()).await.expect("the engine runs");
    let of_second = |it: &&Problem| it.message.starts_with("its second load balancer");
    let of_group = |it: &&Problem| it.message.starts_with("the security group");
    assert!(told.iter().any(|it| of_second(&it)) && told.iter().any(|it| of_group(&it)), "{told:?}");
    asked.says(Err("services is forbidden".to_owned()));
    tokio::time::sleep(patience).await;
    assert_eq!(running.played.with(removed), [], "nobody knows");
    asked.says(Ok(Some(Service { families: single, ..shop.clone() })));
    running.until("the second goes", |it| !removed(it).is_empty()).await;
    tokio::time::sleep(patience).await;
    let gone = running.played.with(removed);
    assert!(matches!(gone[..], [Unit::LoadBalancer(_, LbKey::Second(..))]), "{gone:?}");
    asked.says(Ok(None));
    running.until("all of it goes", |it| removed(it).len() == 3).await;
    running.stop().await;
}
