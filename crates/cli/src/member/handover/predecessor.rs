//! The process that serves, and passes that on.

use std::{
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use seaway_cluster::HostStatusWriter;
use seaway_engine::Handle;
use seaway_files::state_cache::StateCacheWriter;
use seaway_node::Host;
use seaway_proxy::{HandoverListener, HandoverPhase, Introduction, Predecessor};
use tokio::{runtime, sync::mpsc, time::timeout};

use super::Folder;

/// What drivers are at, and what is being written of this host, is waited for so long; else the next process asks again. It is
/// to hear the reason while it waits for an answer.
pub(super) const RESTS: Duration = Duration::from_secs(8);
/// For the next process, from the lock until it serves.
pub(super) const SERVES: Duration = Duration::from_secs(60);
/// What this process has to end is ended within this.
pub(super) const RETIRES: Duration = Duration::from_secs(8);

/// Dropped once the process has ended what only one may do.
pub(in crate::member) type Retired = std::sync::mpsc::Sender<()>;

/// Waits for the next process.
pub(in crate::member) struct Retiring {
    waiting: HandoverListener,
    is_asked: Arc<AtomicBool>,
    admits_older: Arc<AtomicBool>,
}

impl Retiring {
    /// `over`: told when the next process serves, and this one is to end what only one may do.
    pub(in crate::member) fn begin(
        folder: &Folder,
        engine: &Handle,
        host: &Arc<Host>,
        reports: Arc<HostStatusWriter>,
        snapshot: Option<Arc<StateCacheWriter>>,
        over: mpsc::Sender<Retired>,
    ) -> std::io::Result<Retiring> {
        let [is_asked, admits_older] = [(); 2].map(|()| Arc::<AtomicBool>::default());
        let server = Server {
            runtime: runtime::Handle::current(),
            folder: folder.clone(),
            engine: engine.clone(),
            host: host.clone(),
            reports,
            snapshot,
            over,
            is_asked: is_asked.clone(),
            admits_older: admits_older.clone(),
        };
        let waiting = host.proxy.hand_over(&folder.socket(), server)?;
        Ok(Retiring { waiting, is_asked, admits_older })
    }

    /// A next process is about to serve.
    pub(in crate::member) fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::SeqCst)
    }

    /// This process is asked to end: a process of an older pod serves better than none.
    pub(in crate::member) fn admit_older(&self) {
        self.admits_older.store(true, Ordering::SeqCst);
    }

    /// From now on none can begin. Blocks until one that did is through.
    pub(in crate::member) fn end(self) {
        drop(self.waiting);
    }
}

struct Server {
    runtime: runtime::Handle,
    folder: Folder,
    engine: Handle,
    host: Arc<Host>,
    reports: Arc<HostStatusWriter>,
    snapshot: Option<Arc<StateCacheWriter>>,
    over: mpsc::Sender<Retired>,
    is_asked: Arc<AtomicBool>,
    admits_older: Arc<AtomicBool>,
}

impl Predecessor for Server {
    fn admit(&mut self, who: Option<&Introduction>) -> Result<(), String> {
        let oldest = if self.admits_older.load(Ordering::SeqCst) { 0 } else { self.folder.generation };
        admit(&self.folder.of, oldest, who)?;
        // Nothing rests for one that could not have it.
        self.judge(who)
    }

    fn lock_for(&mut self, who: Option<&Introduction>) -> Result<Option<OwnedFd>, String> {
        let rests = async {
            self.engine.hold().await;
            self.reports.pause().await;
        };
        if self.runtime.block_on(async { timeout(RESTS, rests).await }).is_err() {
            return Err(format!("this process has not applied all changes within {RESTS:?}"));
        }
        // What was under way may have been heard of since.
        self.judge(who)?;
        self.folder.lend().map(Some).map_err(|error| error.to_string())
    }

    fn tell(&mut self, turn: HandoverPhase) {
        match turn {
            HandoverPhase::Asked => self.is_asked.store(true, Ordering::SeqCst),
            HandoverPhase::Resumed => {
                self.engine.release();
                self.reports.resume();
                self.is_asked.store(false, Ordering::SeqCst);
            }
            HandoverPhase::Over => {
                self.snapshot.iter().for_each(|it| it.pause());
                let (tell, told) = std::sync::mpsc::channel();
                // Who is ending does not hear it, and has ended all that in another way.
                if self.over.blocking_send(tell).is_ok() {
                    // An error is what is waited for.
                    let _ = told.recv_timeout(RETIRES);
                }
                self.folder.let_go();
            }
        }
    }

    fn patience(&self) -> Duration {
        SERVES
    }
}

impl Server {
    fn judge(&self, who: Option<&Introduction>) -> Result<(), String> {
        let report = self.host.report().map_err(|error| seaway_engine::chain(&error))?;
        judge(report.applied, who)
    }
}

fn admit(of: &str, oldest: u64, who: Option<&Introduction>) -> Result<(), String> {
    match who {
        None => Err("the new process does not say which host it serves".into()),
        Some(who) if who.of != of => Err(format!("the new process serves {}, this one serves {of}", who.of)),
        Some(who) if who.generation < oldest => {
            Err("the new process is of an older pod than this one".into())
        }
        Some(_) => Ok(()),
    }
}

/// One that knows less could bring an address back that is another host's by now.
fn judge(applied: u64, who: Option<&Introduction>) -> Result<(), String> {
    match who.map(|it| it.knows) {
        Some(knows) if knows >= applied => Ok(()),
        knows => {
            let knows = knows.unwrap_or_default();
            Err(format!(
                "the new process knows Addresses up to version {knows}, and this process has applied {applied}"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_host_may_take_over_and_only_if_it_is_no_older_and_knows_as_much() {
        let who = |of: &str, generation, knows| Introduction { of: of.into(), generation, knows };
        let admitted = |it: Introduction| admit("a@b", 4, Some(&it)).is_ok();
        assert!(admitted(who("a@b", 4, 0)) && admitted(who("a@b", 5, 0)));
        assert!(!admitted(who("a@b", 3, 9)), "a pod that was retired and started again");
        assert!(!admitted(who("a@c", 9, 9)), "of another cluster");
        assert!(admit("a@b", 0, Some(&who("a@b", 3, 0))).is_ok(), "once this process is asked to end");
        assert!(admit("a@b", 0, Some(&who("a@c", 3, 0))).is_err() && admit("a@b", 0, None).is_err());
        assert!(judge(7, Some(&who("a@b", 4, 7))).is_ok() && judge(0, Some(&who("a@b", 4, 0))).is_ok());
        assert!(judge(7, Some(&who("a@b", 4, 6))).is_err() && judge(7, None).is_err());
    }
}
