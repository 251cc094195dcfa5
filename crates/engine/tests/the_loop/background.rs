//! What drivers do beside their Units: the engine starts it, hears it, tells it who leads, and ends it.

use std::sync::{atomic::AtomicUsize, mpsc::channel};

use seaway_engine::{Background, Event};
use seaway_model::{Kind, ObjectRef};
use seaway_watchdog::{PartFailure, Watchdog, WatchdogTimings};

use super::*;

/// What it does beside its Units.
#[derive(Default)]
struct Busy {
    /// What it heard of leads.
    leads: watch::Sender<Vec<&'static str>>,
    forgot: AtomicUsize,
    /// It ends by itself once a lead is over.
    gives_up: bool,
    looked: watch::Sender<usize>,
}

impl Driver for Busy {
    type Observed = ();
    type Step = Said;

    fn serves(&self, unit: &Unit) -> bool {
        matches!(unit, Unit::HostAddresses(_))
    }

    fn steps(&self, _: &Desired, (): &()) -> Vec<Said> {
        Vec::new()
    }

    async fn observe(&self, _: &Context, _: &Unit, _: &Desired) -> Result<(), Failure> {
        self.looked.send_modify(|it| *it += 1);
        Ok(())
    }

    async fn apply(&self, _: &Context, _: &Unit, _: &Said, (): &mut ()) -> Result<(), Failure> {
        Ok(())
    }

    fn forget(&self) {
        self.forgot.fetch_add(1, Ordering::Relaxed);
    }

    async fn run(self: Arc<Self>, mut background: Background) {
        loop {
            background.until_leading().await;
            assert!(background.leads());
            self.leads.send_modify(|it| it.push("leads"));
            background.tell(Event::Drifted(Unit::HostAddresses(HOST.into()))).await;
            let object = ObjectRef::new(Kind::Config, "", "place");
            let problem = Problem::new(object.clone(), Reason::Failed, "the place is away");
            background.tell(Event::Troubled(object, vec![problem])).await;
            background.until_deposed().await;
            self.leads.send_modify(|it| it.push("is over"));
            if self.gives_up {
                return;
            }
        }
    }

    fn conclude(&self, _: &Unit, _: &Desired, (): &()) -> Report {
        Report::default()
    }
}

fn started(busy: &Arc<Busy>) -> (Engine, Handle) {
    let world = World::new(Roles::default(), Vec::new(), Arc::new(Config::default()));
    Engine::new(world, Drivers::default().with_shared(busy.clone()), Settings::default())
}

#[tokio::test(start_paused = true)]
async fn what_a_driver_tells_beside_its_units_is_heard_and_each_lead_is_another() {
    let busy = Arc::<Busy>::default();
    let (engine, handle) = started(&busy);
    let (stop, stopped) = watch::channel(false);
    let engine = tokio::spawn(engine.run(stopped));
    let changes = handle.changes();
    for change in synced().into_iter().chain([Change::Leads(true)]) {
        changes.send(change).await.expect("the engine runs");
    }
    let (mut looked, mut leads) = (busy.looked.subscribe(), busy.leads.subscribe());
    looked.wait_for(|it| *it > 0).await.expect("its Unit is looked at");
    let told = async {
        while !handle
            .ask(|world| world.problems().iter().any(|it| it.message == "the place is away"))
            .await
            .expect("it runs")
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(10), told).await.expect("its Problem is told");
    // Both come before the driver has a turn.
    for change in [Change::Leads(false), Change::Leads(true)] {
        changes.send(change).await.expect("the engine runs");
    }
    leads.wait_for(|it| **it == ["leads", "is over", "leads"]).await.expect("another lead");
    assert_eq!(busy.forgot.load(Ordering::Relaxed), 3);
    stop.send_replace(true);
    engine.await.expect("no panic");
    assert_eq!(Arc::strong_count(&busy), 1, "nothing of it goes on");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_beside_units_that_ends_by_itself_is_missed() {
    let busy = Arc::new(Busy { gives_up: true, ..Busy::default() });
    let (engine, handle) = started(&busy);
    let (tell, found) = channel();
    let pace = WatchdogTimings { look: Duration::from_millis(20), ..WatchdogTimings::default() };
    let watchdog = Watchdog::start(pace, move |fault| drop(tell.send(fault.clone()))).expect("a thread");
    let _watching = watchdog.watch(engine.parts());
    let (stop, stopped) = watch::channel(false);
    let engine = tokio::spawn(engine.run(stopped));
    for (leads, heard) in [(true, "leads"), (false, "is over")] {
        handle.changes().send(Change::Leads(leads)).await.expect("the engine runs");
        let mut told = busy.leads.subscribe();
        told.wait_for(|it| it.last() == Some(&heard)).await.expect("it hears of it");
    }
    let found = tokio::task::spawn_blocking(move || found.recv_timeout(Duration::from_secs(120)));
    let fault = PartFailure { part: "the background work of the driver Busy".into(), hangs: false };
    assert_eq!(found.await.expect("no panic"), Ok(fault));
    stop.send_replace(true);
    engine.await.expect("no panic");
}
