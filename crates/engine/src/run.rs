//! The engine's one task: it owns the World, and nobody else touches it.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use seaway_model::{
    Change, Desired, Name, Outcome, Unit, WorkItem,
    fact::FactRef,
    outcome::{UnfinishedAttempt, UnitState},
};
use seaway_plan::World;
use seaway_watchdog::{HeartbeatHandle, WatchedPart};
use tokio::{
    sync::{mpsc, watch},
    task::{Id, JoinError, JoinSet},
    time::{Instant, sleep_until},
};
use tracing::{error, info, warn};

use crate::{
    adoption::{self, Pace},
    background::Backgrounds,
    context::{Context, Patch},
    counts::Counts,
    driver::{Failure, Until},
    execute::{Drivers, Job, Worked},
    gate::{Deletions, Fence, Gate, Guard},
    handle::{Handle, Hold, Phase, Question},
    queue::{Parts, Queue, Todo, backoff},
    removal::{DeletionLimit, Owners},
    slots::{Slot, Slots},
};

/// What is there is counted this often, where it is only to say how much of it may go.
const COUNT_AGAIN: Duration = Duration::from_secs(1);

/// How the loop behaves.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub first_retry: Duration,
    pub longest_retry: Duration,
    /// Every Unit is looked at again this often, though nothing changed (the audit).
    pub resync: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            first_retry: Duration::from_millis(200),
            longest_retry: Duration::from_secs(60),
            resync: Duration::from_secs(300),
        }
    }
}

/// Which Unit, with what end, and how long it took.
type Done = (Unit, Worked, Duration);

pub struct Engine {
    world: World,
    drivers: Drivers,
    fence: Fence,
    owners: Option<Arc<dyn Owners>>,
    limit: Option<Arc<dyn DeletionLimit>>,
    settings: Settings,
    queue: Queue,
    /// What each driver works on; as many Units at once as it is wide.
    slots: Slots,
    running: JoinSet<Done>,
    /// Whose task is whose, should one panic.
    tasks: HashMap<Id, (Unit, Slot)>,
    changes: mpsc::Receiver<Change>,
    questions: mpsc::Receiver<Question>,
    phase: watch::Sender<Phase>,
    moved: watch::Sender<()>,
    counts: Arc<Counts>,
    hold: Hold,
    adoptions: Pace,
    /// How many load balancers clouds had, and when.
    balancers: Option<(Instant, usize)>,
    pulse: Option<HeartbeatHandle>,
    backgrounds: Backgrounds,
}

impl Engine {
    pub fn new(world: World, drivers: Drivers, settings: Settings) -> (Engine, Handle) {
        let (tell, changes) = mpsc::channel(4_096);
        let (ask, questions) = mpsc::channel(64);
        let (phase, watched) = watch::channel(Phase::Listening);
        let (moved, moves) = watch::channel(());
        let counts = Counts::of(&drivers.0);
        let (hold, holding) = Hold::new();
        let handle = Handle {
            changes: tell,
            questions: ask,
            phase: watched,
            moved: moves,
            counts: counts.clone(),
            holding,
        };
        // The last lane is for Units that no driver serves.
        let hands = drivers.0.clone();
        let nobody = hands.len();
        let lane_of = move |unit: &Unit| hands.iter().position(|it| it.serves(unit)).unwrap_or(nobody);
        let queue = Queue::new(nobody + 1, lane_of).counting(counts.clone());
        let slots = Slots::new(&drivers.0);
        let backgrounds = Backgrounds::new(&drivers.0);
        let engine = Engine {
            world,
            drivers,
            fence: Fence::default(),
            owners: None,
            limit: None,
            settings,
            queue,
            slots,
            running: JoinSet::new(),
            tasks: HashMap::new(),
            changes,
            questions,
            phase,
            moved,
            counts,
            hold,
            adoptions: Pace::default(),
            balancers: None,
            pulse: None,
            backgrounds,
        };
        (engine, handle)
    }

    /// Before each step of each driver this is asked; without it, all may be written.
    #[must_use]
    pub fn fenced(mut self, fence: Fence) -> Engine {
        self.fence = fence;
        self
    }

    /// Before anything is removed for an owner that is gone, these are asked for it.
    #[must_use]
    pub fn asking(mut self, owners: Arc<dyn Owners>) -> Engine {
        self.owners = Some(owners);
        self
    }

    /// Deletions that no Service's deletion asked for are counted by this, and stop where it says so.
    #[must_use]
    pub fn limiting(mut self, limit: Arc<dyn DeletionLimit>) -> Engine {
        self.limit = Some(limit);
        self
    }

    /// Each turn of its loop beats: one poll may have many.
    #[must_use]
    pub fn beating(mut self, pulse: HeartbeatHandle) -> Engine {
        self.pulse = Some(pulse);
        self
    }

    /// For the watchdog: whatever drivers do hangs if one of its polls does, and what they do beside Units may not end.
    pub fn parts(&self) -> Vec<WatchedPart> {
        self.slots.parts().into_iter().chain(self.backgrounds.parts().iter().cloned()).collect()
    }

    /// Runs until `stop` says so or nobody can tell anything any more; then what is being worked on is finished.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) -> World {
        let mut batch = Vec::new();
        self.backgrounds.start(&self.drivers.0, &Context::fenced(self.fence.clone()));
        loop {
            self.pulse.iter().for_each(HeartbeatHandle::beat);
            let adoption = if self.is_held() { None } else { self.adopt_and_dispatch() };
            self.tell_phase();
            let alarm = self.queue.next_alarm().into_iter().chain(adoption).min();
            tokio::select! {
                biased;
                _ = stop.wait_for(|it| *it) => break,
                () = self.hold.changed() => {}
                Some(done) = self.running.join_next_with_id() => self.finish(done),
                event = self.backgrounds.next() => self.learn(event.into()),
                Some(question) = self.questions.recv() => question(&self.world),
                count = self.changes.recv_many(&mut batch, 1_024) => {
                    if count == 0 { break }
                    // One may be a reason to plan thousands of Services again; a thousand of them are no hang.
                    for change in batch.drain(..) {
                        self.pulse.iter().for_each(HeartbeatHandle::beat);
                        self.learn(change);
                    }
                }
                () = sleep_until(alarm.unwrap_or_else(Instant::now)), if alarm.is_some() => self.queue.ring(Instant::now()),
            }
        }
        drop(self.backgrounds);
        while self.running.join_next().await.is_some() {}
        self.world
    }

    fn learn(&mut self, change: Change) {
        // Thousands of Units that look again and find what they had found move nothing.
        let is_news = match &change {
            Change::Outcome(outcome) => !self.world.knows(outcome),
            Change::Unfinished(it) => !self.world.knows(&self.world.outcome_of(it)),
            // Who drains waits to hear that it was learnt.
            Change::Previewed(..) | Change::HostDrains(_) => true,
            // What a host may announce follows from these, and is no Unit.
            Change::Put(fact) => self.world.concerns_announcing(fact),
            Change::Gone(FactRef::Host(_)) => true,
            Change::Gone(FactRef::Object(object)) => object.kind.is_announcing(),
            Change::Synced(kind) | Change::NotWatched(kind) => kind.is_announcing(),
            Change::Reported(object, _) => object.kind.is_announcing(),
            _ => false,
        };
        if let Change::Leads(leads) = change {
            self.begin_lead(leads);
        }
        let dirt = self.world.apply(change);
        self.mark(dirt, is_news);
    }

    /// Who led meanwhile may have changed what is there.
    fn begin_lead(&self, leads: bool) {
        self.drivers.0.iter().for_each(|it| it.forget());
        self.backgrounds.note_lead(leads);
    }

    /// Whether nothing may begin. Once that is over, all is looked at: another process may have changed it.
    fn is_held(&mut self) -> bool {
        let (held, is_over) = self.hold.note(self.running.is_empty());
        if is_over {
            self.drivers.0.iter().for_each(|it| it.forget());
            self.queue.look_again();
        }
        held
    }

    fn adopt_and_dispatch(&mut self) -> Option<Instant> {
        let adoption = self.adopt();
        self.dispatch();
        adoption
    }

    /// Begins adoptions whose turn it is; tells when the next may begin.
    fn adopt(&mut self) -> Option<Instant> {
        if !self.world.has_next_adoption() {
            return None;
        }
        let (now, most) = (Instant::now(), self.world.config().adopt.per_minute);
        let (begun, dirt) = self.world.adopt(self.adoptions.room(now, most));
        self.adoptions.note(now, begun);
        self.mark(dirt, false);
        self.adoptions.next(now, most)
    }

    fn mark(&mut self, dirt: Vec<WorkItem>, is_news: bool) {
        if is_news || !dirt.is_empty() {
            self.moved.send_replace(());
        }
        self.counts.mark(dirt.len());
        for dirt in dirt {
            self.queue.mark(&dirt);
        }
    }

    /// Starts what may be started: each driver has its width.
    fn dispatch(&mut self) {
        if !self.world.is_settled() {
            return;
        }
        while let Some((unit, _)) = self.queue.next(self.drivers.0.len()) {
            warn!(%unit, "no driver is responsible; nothing is changed");
            self.queue.done(&unit, None, true);
        }
        for at in 0..self.drivers.0.len() {
            self.dispatch_to(at);
        }
    }

    fn dispatch_to(&mut self, at: usize) {
        while self.slots.has_one(at) {
            let Some((unit, todo)) = self.queue.next(at) else { return };
            let Some(slot) = self.slots.take(at) else { return };
            let job = self.job(&unit, todo);
            let driver = Arc::clone(&self.drivers.0[at]);
            let whose = unit.clone();
            let gate = self.gate(&unit, &job);
            let beats = slot.beats();
            let task = self.running.spawn(async move {
                let begin = Instant::now();
                let worked = beats.during(driver.work(&unit, job, &gate)).await;
                (unit, worked, begin.elapsed())
            });
            self.tasks.insert(task.id(), (whose, slot));
        }
    }

    /// What every driver passes on its way to a step.
    fn gate(&mut self, unit: &Unit, job: &Job) -> Gate {
        let whole = if let Job::Whole(desired) = job { Some(desired) } else { None };
        let context = Context::fenced(self.fence.clone());
        Gate { context, deletions: whole.and_then(|it| self.deletions(unit, it)) }
    }

    fn deletions(&mut self, unit: &Unit, desired: &Desired) -> Option<Deletions> {
        let owners = self.owners.clone().filter(|_| Guard::of(unit).asks(desired))?;
        let now = Instant::now();
        let recent = self.balancers.filter(|(at, _)| !desired.is_absent() && now - *at < COUNT_AGAIN);
        let balancers = recent.map_or_else(|| self.world.balancers_in_clouds(), |(_, it)| it);
        if recent.is_none() {
            self.balancers = Some((now, balancers));
        }
        Some(Deletions {
            owners,
            uses: self.world.uses(),
            limit: self.limit.clone(),
            seen: self.world.saw_end_of(unit),
            asked: self.world.asked_for(unit),
            balancers,
        })
    }

    fn job(&self, unit: &Unit, todo: Todo) -> Job {
        let parts = match todo {
            Todo::Whole => None,
            // The short way is a write.
            Todo::Parts(_) if self.world.is_awaiting_adoption(unit) => None,
            Todo::Parts(parts) => self.patches(unit, &parts),
        };
        parts.map_or_else(|| Job::Whole(self.world.desire(unit)), Job::Patch)
    }

    /// Nothing, if some of it is not there any more.
    fn patches(&self, unit: &Unit, parts: &Parts) -> Option<Vec<Patch>> {
        let pools = parts.pools.iter().map(|id| Some(Patch::Members(self.world.member_pool(unit, id)?)));
        let certificates = parts.certificates.iter().map(|object| {
            let certificate = self.world.certificate(unit, object)?;
            Some(Patch::Certificate(object.clone(), certificate))
        });
        pools.chain(certificates).collect()
    }

    fn finish(&mut self, done: Result<(Id, Done), JoinError>) {
        let (id, finished) = match done {
            Ok((id, (_, worked, took))) => (id, Some((worked, took))),
            Err(failed) => (failed.id(), None),
        };
        let Some((unit, slot)) = self.tasks.remove(&id) else { return };
        let at = self.slots.give_back(slot);
        let (finished, took) = finished.unzip();
        self.counts.ended(at, finished.as_ref(), took);
        let rest = took.map(|it| self.drivers.0[at].rest(&unit, it)).filter(|it| !it.is_zero());
        if let Some(rest) = rest {
            self.queue.rest(&unit, Instant::now() + rest);
        }
        match finished {
            Some(Worked::Patched) => self.queue.renewed(&unit),
            Some(Worked::PatchImpossible) => {
                self.queue.mark(&WorkItem::Unit(unit.clone()));
                self.queue.done(&unit, None, false);
            }
            Some(Worked::Concluded(outcome, stands, replaced)) => {
                self.learn(Change::Replaced(unit.clone(), replaced));
                self.learn(Change::PendingOn(unit, stands));
                self.conclude(outcome);
            }
            Some(Worked::Previewed { ours: true, .. }) => {
                // That marks it, if it waited.
                self.learn(Change::AdoptedBefore(unit.clone()));
                self.queue.done(&unit, self.audit(&unit), false);
            }
            Some(Worked::Previewed { steps, .. }) => self.previewed(unit, steps),
            Some(Worked::Failed(failure)) => self.fail(unit, failure),
            None => {
                error!(%unit, "a driver panicked; this is a bug in Seaway");
                self.fail(
                    unit,
                    Failure::retry("the driver of this Unit panicked, which is a bug in Seaway".into()),
                );
            }
        }
    }

    fn previewed(&mut self, unit: Unit, steps: Vec<Name>) {
        if !self.world.is_awaiting_adoption(&unit) {
            // Its adoption began meanwhile, which marked it.
            return self.queue.done(&unit, self.audit(&unit), false);
        }
        self.learn(Change::Previewed(unit.clone(), steps));
        let (facts, problems, serving) = (Vec::new(), Vec::new(), Vec::new());
        let state = UnitState::Done;
        self.learn(Change::Outcome(Outcome { unit: unit.clone(), state, facts, problems, serving }));
        // Hundreds may wait for days, and each look costs calls.
        let again = self.audit(&unit).map(|_| Instant::now() + adoption::LOOK_AGAIN);
        self.queue.done(&unit, again, false);
    }

    fn conclude(&mut self, outcome: Outcome) {
        let unit = outcome.unit.clone();
        let again = match &outcome.state {
            UnitState::Pending(after) => Some(Instant::now() + *after),
            UnitState::Absent => None,
            _ => self.audit(&unit),
        };
        let absent = outcome.state == UnitState::Absent;
        self.learn(Change::Outcome(outcome));
        self.queue.done(&unit, again, absent);
    }

    fn fail(&mut self, unit: Unit, failure: Failure) {
        let unfinished = |state, problems| {
            let unit = unit.clone();
            Change::Unfinished(UnfinishedAttempt { unit, state, problems })
        };
        match failure {
            Failure::Retry { why, problems, after } => {
                let Settings { first_retry, longest_retry, .. } = self.settings;
                let mut wait = after.unwrap_or_default();
                match after {
                    Some(after) => self.queue.done(&unit, Some(Instant::now() + after), false),
                    None => self.queue.failed(&unit, |failures| {
                        wait = backoff(failures, first_retry, longest_retry, seed(&unit));
                        Instant::now() + wait
                    }),
                }
                warn!(%unit, %why, retry = ?wait, "attempt failed");
                let state = UnitState::Failed { why: why.into(), retry: wait };
                self.learn(unfinished(state, (!problems.is_empty()).then_some(problems)));
            }
            Failure::Wait { why, until } => {
                info!(%unit, %why, ?until, "waiting");
                let (state, again) = match until {
                    Until::After(after) => (UnitState::Pending(after), Some(Instant::now() + after)),
                    Until::Marked => (UnitState::PendingChange, self.audit(&unit)),
                };
                self.learn(unfinished(state, None));
                self.queue.done(&unit, again, false);
            }
            Failure::User(problems) => {
                // Whatever it waited for before, it waits for its user now.
                self.learn(Change::PendingOn(unit.clone(), None));
                self.learn(unfinished(UnitState::UserMustFix, Some(problems)));
                self.queue.done(&unit, self.audit(&unit), false);
            }
        }
    }

    /// Spread over time, so that not all Units look again together.
    fn audit(&self, unit: &Unit) -> Option<Instant> {
        let spread = self.settings.resync / 2 + self.settings.resync * ((seed(unit) % 1_000) as u32) / 2_000;
        (!self.settings.resync.is_zero()).then(|| Instant::now() + spread)
    }

    fn tell_phase(&mut self) {
        let now = match *self.phase.borrow() {
            Phase::Serving => return,
            _ if !self.world.is_settled() || self.hold.is_on() => Phase::Listening,
            _ if self.queue.is_idle() => Phase::Serving,
            _ => Phase::Converging { left: self.queue.len() },
        };
        self.phase.send_if_modified(|phase| std::mem::replace(phase, now) != now);
    }
}

fn seed(unit: &Unit) -> u64 {
    // DefaultHasher::new() is keyed with zeros: the same Unit has the same seed in every process.
    let mut hasher = DefaultHasher::new();
    unit.hash(&mut hasher);
    hasher.finish()
}
