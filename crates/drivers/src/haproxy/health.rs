//! Whether HAProxy serves: what it has open counts only while it does, and addresses are announced only for what is open.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use seaway_haproxy::Report;
use tokio::{sync::watch, time::timeout};

/// An HAProxy that is started again within this time keeps its addresses: other hosts would get them for a moment only.
const MOMENT: Duration = Duration::from_secs(1);

/// Of one HAProxy, from its start to its end.
#[derive(Clone, Debug)]
pub(super) struct Health {
    pub(super) report: watch::Receiver<Report>,
    serves: Arc<AtomicBool>,
}

impl Health {
    /// `changed` is notified whenever it serves no more, or again.
    pub(super) fn follow(report: watch::Receiver<Report>, changed: watch::Sender<()>) -> Health {
        let health = Health { report, serves: Arc::new(AtomicBool::new(true)) };
        tokio::spawn(health.clone().run(changed));
        health
    }

    pub(super) fn serves(&self) -> bool {
        self.serves.load(Relaxed)
    }

    /// Ends with HAProxy's keeper.
    async fn run(mut self, changed: watch::Sender<()>) {
        let serving = self.serves.clone();
        let note = |serves: bool| {
            if serving.swap(serves, Relaxed) != serves {
                changed.send_replace(());
            }
        };
        loop {
            let (is_up, failed) = {
                let it = self.report.borrow_and_update();
                (it.worker.is_some(), it.failed_starts > 0)
            };
            if is_up || failed {
                note(is_up && !failed);
            } else {
                match timeout(MOMENT, self.report.changed()).await {
                    Ok(Ok(())) => continue,
                    Ok(Err(_)) => break,
                    Err(_) => note(false),
                }
            }
            if self.report.changed().await.is_err() {
                break;
            }
        }
        note(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(worker: Option<u32>, failed_starts: u32) -> Report {
        Report { worker, failed_starts, ..Report::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn it_serves_until_it_is_dead_for_a_moment_or_cannot_be_started_and_from_when_it_is_back() {
        let (tell, heard) = watch::channel(report(Some(1), 0));
        let (changed, mut news) = watch::channel(());
        let health = Health::follow(heard, changed);
        assert!(health.serves());

        // Started again at once: nobody hears of it.
        tell.send_replace(report(None, 0));
        tokio::time::sleep(MOMENT / 2).await;
        tell.send_replace(report(Some(2), 0));
        tokio::time::sleep(MOMENT * 2).await;
        assert!(health.serves() && !news.has_changed().expect("it is followed"));

        for (dead, wait) in [(report(None, 0), MOMENT * 2), (report(None, 1), MOMENT / 10)] {
            tell.send_replace(dead);
            timeout(wait, news.changed()).await.expect("soon").expect("it is followed");
            assert!(!health.serves());
            tell.send_replace(report(Some(3), 0));
            timeout(MOMENT, news.changed()).await.expect("soon").expect("it is followed");
            assert!(health.serves());
        }

        drop(tell);
        timeout(MOMENT, news.changed()).await.expect("soon").expect("the last word is heard");
        assert!(!health.serves(), "what has ended serves nothing");
    }
}
