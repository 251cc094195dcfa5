//! The loop under a scripted driver, in paused time: no socket, no sleep that lasts.

mod adoptions;
mod attempts;
mod background;
mod counted;
mod drains;
mod gate;
mod hangs;
mod held;
mod refused;
mod removals;

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use seaway_engine::{
    Context, Driver, Drivers, Effect, Effects, Engine, Failure, Fence, Handle, Patch, Phase, Removal, Report,
    Settings, Until,
};
use seaway_model::{
    Change, Config, Desired, L4, Problem, Reason, Unit,
    outcome::ServingSocket,
    unit::{LbKey, Place},
};
use seaway_plan::{Demand, Placement, Roles, World};
use seaway_testkit::facts::{HOST, endpoint, host, owner, put, put_slice, service, shop, slice, synced};
use tokio::{
    sync::watch,
    task::JoinHandle,
    time::{Instant, timeout},
};

use self::hangs::At;

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
    /// As `wait`, until something changes.
    lack: u32,
    blame: u32,
    panic: u32,
    /// Where the next one never comes back.
    lose: Option<At>,
    /// Where it blocks its thread until this ends.
    block: Option<std::sync::mpsc::Receiver<()>>,
    /// So many times as long as it worked.
    rest: u32,
    /// What is there has our marks.
    ours: bool,
    /// How often it told what came of its work.
    concluded: usize,
    /// Steps at load balancers, beside that which makes or removes them.
    more: Vec<&'static str>,
    /// It does not say what its steps delete.
    is_silent: bool,
    /// Another leads once the next step is done.
    deposes: Option<Arc<AtomicBool>>,
}

/// A step that begins with `remove` deletes, and one that begins with `open` exposes.
struct Said(&'static str);

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Effects for Said {
    fn effect(&self) -> Effect {
        Effect { deletes: self.0.starts_with("remove"), exposes: self.0.starts_with("open") }
    }
}

#[derive(Clone, Default)]
struct Played(Arc<Mutex<Script>>);

impl Played {
    fn with<T>(&self, look: impl FnOnce(&mut Script) -> T) -> T {
        look(&mut self.0.lock().expect("no test panics while it holds this"))
    }
}

impl Driver for Played {
    /// What is looked at is a load balancer.
    type Observed = bool;
    type Step = Said;

    fn serves(&self, unit: &Unit) -> bool {
        matches!(
            unit,
            Unit::LoadBalancer(..)
                | Unit::SecurityGroup { .. }
                | Unit::HostAddresses(_)
                | Unit::Status(_)
                | Unit::DnsName(_)
        )
    }

    fn steps(&self, desired: &Desired, is_balancer: &bool) -> Vec<Said> {
        let first = if *desired == Desired::Absent { "remove" } else { "make" };
        let more = self.with(|it| it.more.clone());
        let more = more.into_iter().filter(|_| *is_balancer);
        [first].into_iter().chain(more).map(Said).collect()
    }

    fn removals(&self, _: &bool, steps: &[Said]) -> Vec<Removal> {
        if self.with(|it| it.is_silent) { Vec::new() } else { Removal::each(steps) }
    }

    async fn observe(&self, _: &Context, unit: &Unit, _: &Desired) -> Result<bool, Failure> {
        self.with(|it| {
            let at_work = it.at_work.entry(unit.clone()).or_default();
            *at_work += 1;
            it.most_at_once = it.most_at_once.max(*at_work);
            it.most_in_all = it.most_in_all.max(it.at_work.values().sum());
        });
        if let Some(until) = self.with(|it| it.block.take()) {
            _ = until.recv();
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.may_be_lost(At::Look).await;
        Ok(matches!(unit, Unit::LoadBalancer(..)))
    }

    async fn apply(&self, _: &Context, unit: &Unit, step: &Said, _: &mut bool) -> Result<(), Failure> {
        self.may_be_lost(At::Step).await;
        if matches!(step.0, "make" | "remove") {
            self.with(|it| *it.at_work.entry(unit.clone()).or_default() -= 1);
        }
        if !matches!(unit, Unit::LoadBalancer(..) | Unit::SecurityGroup { .. } | Unit::DnsName(_)) {
            return Ok(());
        }
        let (fail, wait, blame, panic, lack) = self.with(|it| {
            let now = (it.fail > 0, it.wait > 0, it.wait == 0 && it.blame > 0, it.panic > 0, it.lack > 0);
            it.fail = it.fail.saturating_sub(1);
            it.blame = it.blame.saturating_sub(u32::from(now.2));
            it.wait = it.wait.saturating_sub(1);
            it.panic = it.panic.saturating_sub(1);
            it.lack = it.lack.saturating_sub(1);
            it.applied.push((Instant::now(), unit.clone(), step.to_string()));
            it.deposes.take().into_iter().for_each(|leads| leads.store(false, Ordering::Relaxed));
            now
        });
        assert!(!panic, "as the script says");
        if wait {
            return Err(Failure::wait("as the script says".into(), A_WHILE));
        }
        if lack {
            return Err(Failure::Wait { why: "as the script says".into(), until: Until::Marked });
        }
        if blame {
            let problem = Problem::new(owner(&shop()).object(), Reason::Invalid, "as the script says");
            return Err(Failure::User(vec![(owner(&shop()), problem)]));
        }
        if fail { Err(Failure::retry("as the script says".into())) } else { Ok(()) }
    }

    async fn patch(&self, _: &Context, _: &Unit, patch: &Patch) -> Result<bool, Failure> {
        self.may_be_lost(At::Swap).await;
        let Patch::Members(pool) = patch else { return Ok(false) };
        self.with(|it| it.swapped.push(pool.members.len()));
        Ok(true)
    }

    fn conclude(&self, unit: &Unit, _: &Desired, _: &bool) -> Report {
        self.with(|it| it.concluded += usize::from(matches!(unit, Unit::LoadBalancer(..))));
        let is_served = matches!(unit, Unit::LoadBalancer(..) | Unit::HostAddresses(_));
        let serving =
            ServingSocket { ip: [192, 0, 2, 5].into(), protocol: L4::Tcp, port: shop().ports[0].port };
        Report { serving: is_served.then_some(serving).into_iter().collect(), ..Report::default() }
    }

    fn is_ours(&self, _: &Unit, _: &bool) -> bool {
        self.with(|it| it.ours)
    }

    fn rest(&self, _unit: &Unit, took: Duration) -> Duration {
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

struct Running {
    handle: Handle,
    played: Played,
    stop: watch::Sender<bool>,
    task: JoinHandle<World>,
}

impl Running {
    fn start(script: Script) -> Running {
        Running::fenced(script, Fence::default())
    }

    fn fenced(script: Script, fence: Fence) -> Running {
        let played = Played(Arc::new(Mutex::new(script)));
        let roles = Roles { allocate: true, host: Some(HOST.into()) };
        let world = World::new(roles, vec![Arc::new(OnHost)], Arc::new(Config::default()));
        let (engine, handle) =
            Engine::new(world, Drivers::default().with(played.clone()), Settings::default());
        let (stop, stopped) = watch::channel(false);
        Running { handle, played, stop, task: tokio::spawn(engine.fenced(fence).run(stopped)) }
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
async fn a_look_that_fails_does_not_say_that_nobody_serves() {
    let running = Running::start(Script::default());
    running.tell(told().into_iter().chain(synced())).await;
    running.until_serving().await;
    let serving = || async {
        let asked = running.handle.ask(|world| world.status(&owner(&shop())).map(|it| it.serving.len()));
        asked.await.expect("the engine runs")
    };
    assert_eq!(serving().await, Some(1));
    for (fail, wait, blame) in [(1, 0, 0), (0, 1, 0), (0, 0, 1)] {
        let before = running.played.with(|it| {
            (it.fail, it.wait, it.blame) = (fail, wait, blame);
            it.applied.len()
        });
        for looks in 1..=2 {
            // Minutes, in paused time.
            while running.played.with(|it| it.applied.len()) < before + looks {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            assert_eq!(serving().await, Some(1), "fails {fail}, waits {wait}, is refused {blame}");
        }
    }
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
