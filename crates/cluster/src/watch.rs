//! Watching: one task for each kind, which lists it whole, page by page, and then hears of every change.
//!
//! ```text
//!     list ─► Put … Put ─► what was known and is not listed: Gone ─► Synced
//!       ▲                                                             │
//!       │  410 Gone, or a version that nobody has                     ▼
//!       └───────────────────────────────────────────────────────── watch ◄─┐
//!                         silent, cut, ended, refused: again from the last ─┘
//! ```
//! Nothing is told as gone but by its deletion or by a whole list without it: hours without an answer change nothing.
//! Nothing is kept of an object but its name; what drivers compare with goes into [`Seen`](crate::seen::Seen).

mod belief;
mod copied;
mod definition;
mod feed;
mod known;
mod namespaces;
pub(crate) mod pulses;
mod retry;
mod secrets;
mod set_back;
mod troubles;

use std::sync::Arc;

use seaway_model::{Change, Fact, Kind};
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};
use tracing::error;

pub use self::secrets::Wanted;
use self::{belief::Belief, feed::Feed, pulses::Hosts, secrets::Secrets};
use crate::{connect::Cluster, kinds::WATCHED};

/// A cluster that is being watched, until this is dropped.
pub struct Watch {
    wanted: watch::Sender<Wanted>,
    tasks: JoinSet<()>,
}

/// Says what is wanted of Secrets.
#[derive(Clone)]
pub struct Wishes(watch::Sender<Wanted>);

impl Wishes {
    /// Which Secrets are told with what they hold; of all others only that they are there. At first those are that
    /// were known before. What becomes wanted is fetched, what no longer is is dropped. While none is wanted, the API server
    /// is not asked for Secrets at all.
    pub fn secrets(&self, wanted: Wanted) {
        self.0.send_if_modified(|before| {
            let changed = *before != wanted;
            *before = wanted;
            changed
        });
    }
}

/// Whether hosts are told as gone when their Leases end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pulses {
    /// For who gives addresses out; it may list Leases.
    Felt,
    /// A host needs to know of no other.
    Unheeded,
}

impl Cluster {
    /// Watches from now on; must be called in a runtime. Whoever reads `changes` may be slow, it is waited for.
    pub fn watch(&self, changes: mpsc::Sender<Change>, pulses: Pulses) -> Watch {
        self.watch_from(std::iter::empty(), changes, pulses)
    }

    /// As above, with what whoever reads `changes` knows already: of that, what is not there any more is told as gone.
    pub fn watch_from<'f>(
        &self,
        known: impl Iterator<Item = &'f Fact> + Clone,
        changes: mpsc::Sender<Change>,
        pulses: Pulses,
    ) -> Watch {
        let (hosts, belief) = (Arc::new(Hosts::default()), Arc::new(Belief::default()));
        // Nobody said yet who is named: those that are known whole go on, and no other key is told.
        let whole = known.clone().filter_map(|fact| match fact {
            Fact::Secret(it) if !it.withheld => Some(it.object.clone()),
            _ => None,
        });
        let (wanted, wishes) = watch::channel(Wanted::These(whole.collect()));
        let (complain, troubles) = mpsc::channel(WATCHED.len());
        let mut tasks = JoinSet::new();
        for watched in &WATCHED {
            let secrets = (watched.kind == Kind::Secret).then(|| Secrets::new(wishes.clone()));
            let shared = (hosts.clone(), belief.clone());
            let mut feed =
                Feed::new(self.clone(), watched, changes.clone(), complain.clone(), secrets, shared);
            known.clone().for_each(|fact| feed.recall(fact));
            tasks.spawn(feed.run());
        }
        if pulses == Pulses::Felt {
            tasks.spawn(pulses::listen(self.clone(), hosts, changes.clone()));
        }
        tasks.spawn(troubles::fold(troubles, changes));
        Watch { wanted, tasks }
    }
}

impl Watch {
    /// What is wanted of Secrets can be said from elsewhere.
    pub fn wishes(&self) -> Wishes {
        Wishes(self.wanted.clone())
    }

    /// Returns when one of the tasks has ended, which none does by itself while somebody listens.
    pub async fn ended(&mut self) {
        match self.tasks.join_next().await {
            Some(Err(error)) => error!(%error, "a watch has died"),
            Some(Ok(())) => {}
            None => std::future::pending().await,
        }
    }

    /// Ends all watches and waits until nothing is told any more.
    pub async fn stop(mut self) {
        self.tasks.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_watch_that_dies_is_noticed_while_the_others_go_on() {
        let mut tasks = JoinSet::new();
        tasks.spawn(std::future::pending());
        tasks.spawn(async { panic!("a test has this watch die") });
        let mut watch = Watch { wanted: watch::channel(Wanted::Every).0, tasks };
        watch.ended().await;
        assert_eq!(watch.tasks.len(), 1);
        watch.stop().await;
    }
}
