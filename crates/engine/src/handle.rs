//! What others hold of the engine: they tell it changes, ask its World, and hold it while another process works in its place.

use std::sync::Arc;

use seaway_model::Change;
use seaway_plan::World;
use tokio::sync::{mpsc, oneshot, watch};

use crate::counts::Counts;

/// How far the loop is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Sources have not told everything yet.
    Listening,
    /// The first plan is being made real.
    Converging { left: usize },
    /// It was; later changes are no new start.
    Serving,
}

pub(crate) type Question = Box<dyn FnOnce(&World) + Send>;

/// Tells the engine changes, and asks its World.
#[derive(Clone)]
pub struct Handle {
    pub(crate) changes: mpsc::Sender<Change>,
    pub(crate) questions: mpsc::Sender<Question>,
    pub(crate) phase: watch::Receiver<Phase>,
    pub(crate) moved: watch::Receiver<()>,
    pub(crate) counts: Arc<Counts>,
    pub(crate) holding: Holding,
}

/// How often the engine was held, and whether it is; and of the engine, which of these it obeys and rests.
#[derive(Clone)]
pub(crate) struct Holding {
    wanted: Arc<watch::Sender<HoldWanted>>,
    rests: watch::Receiver<u64>,
}

#[derive(Clone, Copy, Default)]
struct HoldWanted {
    number: u64,
    on: bool,
}

/// The engine's side of it.
pub(crate) struct Hold {
    wanted: watch::Receiver<HoldWanted>,
    rests: watch::Sender<u64>,
    was_on: bool,
}

impl Hold {
    pub(crate) fn new() -> (Hold, Holding) {
        let (wanted, heard) = watch::channel(HoldWanted::default());
        let (rests, told) = watch::channel(0);
        let hold = Hold { wanted: heard, rests, was_on: false };
        (hold, Holding { wanted: Arc::new(wanted), rests: told })
    }

    pub(crate) fn is_on(&self) -> bool {
        self.was_on
    }

    /// Whether it is held from now on, and whether that has just ended. `rests`: no driver is at work.
    pub(crate) fn note(&mut self, rests: bool) -> (bool, bool) {
        let HoldWanted { number, on } = *self.wanted.borrow_and_update();
        let is_over = std::mem::replace(&mut self.was_on, on) && !on;
        if on && rests {
            self.rests.send_if_modified(|it| std::mem::replace(it, number) != number);
        }
        (on, is_over)
    }

    /// Never, once nobody can hold it any more.
    pub(crate) async fn changed(&mut self) {
        if self.wanted.changed().await.is_err() {
            std::future::pending().await
        }
    }
}

impl Handle {
    pub fn changes(&self) -> mpsc::Sender<Change> {
        self.changes.clone()
    }

    /// `None` once the engine has stopped.
    pub async fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&World) -> T + Send + 'static,
    ) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        let question: Question = Box::new(move |world| {
            // Nobody waiting any more is no error.
            let _ = answer.send(question(world));
        });
        self.questions.send(question).await.ok()?;
        answered.await.ok()
    }

    /// From now on no driver begins to work; returns once none is at work. What is told meanwhile is learnt and planned.
    pub async fn hold(&self) {
        let mut number = 0;
        self.holding.wanted.send_modify(|it| {
            it.number = it.number.wrapping_add(1);
            it.on = true;
            number = it.number;
        });
        let mut rests = self.holding.rests.clone();
        // An engine that has ended rests.
        let _ = rests.wait_for(|it| *it == number).await;
    }

    /// Drivers work again, and look at everything.
    pub fn release(&self) {
        self.holding.wanted.send_modify(|it| it.on = false);
    }

    pub fn phase(&self) -> watch::Receiver<Phase> {
        self.phase.clone()
    }

    /// Takes this host's addresses out of DNS, and returns when resolvers have forgotten them. Questions overtake changes: a
    /// World that has not heard of the drain yet says nothing of how far it is.
    pub async fn leave_dns(&self) {
        if self.changes.send(Change::HostDrains(true)).await.is_err() {
            return;
        }
        let mut moved = self.moved();
        while self.ask(World::has_left_dns).await == Some(false) {
            if moved.changed().await.is_err() {
                return;
            }
        }
    }

    /// What was marked, and what drivers do.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Changes whenever something is to be done, or was.
    pub fn moved(&self) -> watch::Receiver<()> {
        self.moved.clone()
    }
}
