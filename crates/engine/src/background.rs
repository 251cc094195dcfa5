//! What drivers do beside Units: they compare a place with what is known of it, try again what it refused, say that they are there.
//! The engine starts that with itself, watches it, and hears what it tells as one stream of events.

use std::{future::pending, sync::Arc};

use seaway_model::{Change, ObjectRef, Problem, Unit};
use seaway_watchdog::{Heartbeat, WatchedPart};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};

use crate::{context::Context, execute::DynDriver};

/// Who tells more than the engine takes waits for it.
const EVENTS: usize = 1_024;

/// What a driver tells beside the reports of its Units.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// All of ours that a place has: what is not here is not there.
    Listed(Vec<Unit>),
    /// Something of ours is there: if nothing asks for it, it is an orphan.
    Found(Unit),
    /// It is not as it was left, or what was refused may be granted now: it is looked at again.
    Drifted(Unit),
    /// What is wrong with something that is no Unit: replaces what was told of it. None: nothing is.
    Troubled(ObjectRef, Vec<Problem>),
}

impl From<Event> for Change {
    fn from(event: Event) -> Change {
        match event {
            Event::Listed(units) => Change::CloudInventory(units),
            Event::Found(unit) => Change::FoundInCloud(unit),
            Event::Drifted(unit) => Change::Drifted(unit),
            Event::Troubled(object, problems) => Change::Reported(object, problems),
        }
    }
}

/// Whether this process leads, and how often that has changed: one that lost the lead and has it again leads for another time.
#[derive(Clone, Copy, Debug, Default)]
struct Lead {
    is: bool,
    number: u64,
}

/// What background work has of the engine.
#[derive(Clone)]
pub struct Background {
    context: Context,
    lead: watch::Receiver<Lead>,
    /// The lead that was waited for last.
    number: u64,
    events: mpsc::Sender<Event>,
}

impl Background {
    /// For what it does at its place.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Whether this process leads now, and may write.
    pub fn leads(&self) -> bool {
        self.lead.borrow().is && self.context.fence().is_open()
    }

    /// Returns once this process leads.
    pub async fn until_leading(&mut self) {
        self.number = self.until(|it| it.is).await.number;
    }

    /// Returns once the lead that was waited for is over.
    pub async fn until_deposed(&mut self) {
        let number = self.number;
        self.until(|it| it.number != number).await;
    }

    async fn until(&mut self, met: impl FnMut(&Lead) -> bool + Send) -> Lead {
        let lead = self.lead.wait_for(met).await.map(|it| *it);
        match lead {
            Ok(lead) => lead,
            // The engine has ended.
            Err(_) => pending().await,
        }
    }

    /// Once the engine has ended, this never returns: the work ends with it.
    pub async fn tell(&self, event: Event) {
        if self.events.send(event).await.is_err() {
            pending().await
        }
    }
}

/// The engine's side of it.
pub(crate) struct Backgrounds {
    /// For each driver.
    heartbeats: Vec<Heartbeat>,
    parts: Vec<WatchedPart>,
    lead: watch::Sender<Lead>,
    events: (mpsc::Sender<Event>, mpsc::Receiver<Event>),
    tasks: JoinSet<()>,
}

impl Backgrounds {
    pub(crate) fn new(drivers: &[Arc<dyn DynDriver>]) -> Backgrounds {
        let part = |it: &Arc<dyn DynDriver>| {
            Heartbeat::new(format!("the background work of the driver {}", it.name()))
        };
        let (heartbeats, parts) = drivers.iter().map(part).unzip();
        let (lead, events) = (watch::Sender::default(), mpsc::channel(EVENTS));
        Backgrounds { heartbeats, parts, lead, events, tasks: JoinSet::new() }
    }

    pub(crate) fn parts(&self) -> &[WatchedPart] {
        &self.parts
    }

    /// They end when this is dropped.
    pub(crate) fn start(&mut self, drivers: &[Arc<dyn DynDriver>], context: &Context) {
        for (driver, heartbeat) in drivers.iter().zip(self.heartbeats.drain(..)) {
            let (lead, events) = (self.lead.subscribe(), self.events.0.clone());
            let background = Background { context: context.clone(), lead, number: 0, events };
            self.tasks.spawn(heartbeat.watch(Arc::clone(driver).run(background)));
        }
    }

    pub(crate) fn note_lead(&self, leads: bool) {
        self.lead.send_modify(|it| *it = Lead { is: leads, number: it.number.wrapping_add(1) });
    }

    /// The next event.
    pub(crate) async fn next(&mut self) -> Event {
        match self.events.1.recv().await {
            Some(event) => event,
            // This holds a sender itself.
            None => pending().await,
        }
    }
}
