//! Tasks that write for as long as their owner lives. The watchdog looks at each of them.

use std::time::Duration;

use seaway_watchdog::{Heartbeat, WatchedPart};
use tokio::task::JoinHandle;

/// A task that ends with its owner, and before that only by a fault.
pub(crate) struct OwnedTask {
    task: JoinHandle<()>,
    part: WatchedPart,
}

impl OwnedTask {
    /// In a runtime.
    pub(crate) fn spawn(name: &str, task: impl Future<Output = ()> + Send + 'static) -> OwnedTask {
        let (heartbeat, part) = Heartbeat::new(name);
        OwnedTask { task: tokio::spawn(heartbeat.watch(task)), part }
    }

    /// It has timers, by which it is polled at least this often.
    pub(crate) fn with_allowed_silence(mut self, silence: Duration) -> OwnedTask {
        self.part = self.part.clone().with_allowed_silence(silence);
        self
    }

    pub(crate) fn part(&self) -> WatchedPart {
        self.part.clone()
    }

    /// Returns when it has ended.
    pub(crate) async fn ended(&mut self) {
        // It was aborted, or has said itself why it died.
        let _ = (&mut self.task).await;
    }

    #[cfg(test)]
    pub(crate) fn abort(&self) {
        self.task.abort();
    }
}

impl Drop for OwnedTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use seaway_model::Name;
    use seaway_watchdog::{PartFailure, Watchdog, WatchdogTimings};
    use tokio::sync::mpsc;

    use super::*;
    use crate::{
        Cluster, ClusterAccess, CopyTimings, CopyWriter, CredentialSource, HostStatusWriter, LeaderElection,
        Leadership, LeaseTimings, NameOwnerTimings, NameOwnerWriter, PoolStatusWriter, ProgramInfo,
        StatusDriver,
    };

    const PATIENCE: Duration = Duration::from_secs(120);

    /// An API server that takes connections and never answers.
    struct Silent {
        cluster: Cluster,
        _listener: TcpListener,
        _folder: tempfile::TempDir,
    }

    async fn silent() -> Silent {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("kubeconfig");
        let server = format!("http://{}", listener.local_addr().expect("is bound"));
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{{name: x, context: {{cluster: x, user: x}}}}]\n\
             clusters: [{{name: x, cluster: {{server: '{server}'}}}}]\nusers: [{{name: x, user: {{token: x}}}}]\n"
        );
        std::fs::write(&path, kubeconfig).expect("is written");
        let credentials = CredentialSource::Kubeconfig { path, context: None };
        let access = ClusterAccess { credentials, ..ClusterAccess::default() };
        let cluster = Cluster::connect(access).await.expect("a kubeconfig");
        Silent { cluster, _listener: listener, _folder: folder }
    }

    fn watchdog(limit: Duration) -> (Watchdog, mpsc::Receiver<PartFailure>) {
        let (tell, told) = mpsc::channel(1);
        let pace = WatchdogTimings { look: Duration::from_millis(20), limit };
        let watchdog = Watchdog::start(pace, move |fault| drop(tell.blocking_send(fault.clone())));
        (watchdog.expect("a thread"), told)
    }

    async fn found(mut told: mpsc::Receiver<PartFailure>) -> Option<PartFailure> {
        tokio::time::timeout(PATIENCE, told.recv()).await.expect("it is noticed")
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn each_task_that_writes_is_missed_once_it_is_killed() {
        let silent = silent().await;
        let cluster = &silent.cluster;
        let leading = Leadership::always;
        let (changes, _heard) = mpsc::channel(16);
        let campaign = LeaderElection::start(cluster, "leader", "a", LeaseTimings::LEADER);
        let reports = HostStatusWriter::start(cluster, "a", ProgramInfo::default());
        let pools = PoolStatusWriter::start(cluster, leading());
        let statuses = StatusDriver::new(cluster.clone(), leading(), seaway_engine::ProblemLog::default());
        let to = changes.clone();
        let keeper = CopyWriter::start(cluster, leading(), Name::from("copies"), CopyTimings::default(), to);
        let names = NameOwnerWriter::start(cluster, leading(), NameOwnerTimings::default(), changes.clone());
        let writers = [
            ("the Lease leader", &campaign.task),
            ("the report of this host", &reports.writer),
            ("statuses of pools", &pools.writer),
            ("events", statuses.writer()),
            ("copies of certificates", &keeper.writer),
            ("owners of names", &names.writer),
        ];
        for (name, writer) in writers {
            let (watchdog, told) = watchdog(PATIENCE);
            let _watching = watchdog.watch([writer.part()]);
            assert_eq!(watchdog.failure(), None, "{name}");
            writer.abort();
            assert_eq!(found(told).await, Some(PartFailure { part: name.into(), hangs: false }));
        }
    }

    /// Another process of the host writes what is so.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn what_a_host_says_before_it_may_is_written_once_it_may() {
        let silent = silent().await;
        silent._listener.set_nonblocking(true).expect("it is ours");
        let reports = HostStatusWriter::start(&silent.cluster, "a", ProgramInfo::default());
        reports.pause().await;
        reports.publish(seaway_model::fact::HostStatus { applied: 7, ..Default::default() });
        // It has heard what was published, too.
        reports.pause().await;
        assert!(silent._listener.accept().is_err(), "it asks nothing");
        reports.resume();
        let asks = async {
            while silent._listener.accept().is_err() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, asks).await.expect("it writes");
    }

    /// As a process looks.
    async fn is_found_in_time(lease: OwnedTask, hangs: bool) {
        let (tell, mut told) = mpsc::channel(1);
        let watchdog =
            Watchdog::start(WatchdogTimings::default(), move |fault| drop(tell.blocking_send(fault.clone())));
        let watchdog = watchdog.expect("a thread");
        let _watching = watchdog.watch([lease.part()]);
        if !hangs {
            lease.abort();
        }
        let fault = tokio::time::timeout(PATIENCE, told.recv()).await.expect("it is noticed");
        assert_eq!(fault, Some(PartFailure { part: "the Lease leader".into(), hangs }));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_lease_that_is_not_even_tried_is_missed_and_so_is_one_that_is_killed() {
        let never = || crate::lease::spawn_lease_task("the Lease leader", std::future::pending());
        tokio::join!(is_found_in_time(never(), true), is_found_in_time(never(), false));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_lease_that_the_api_server_does_not_answer_for_is_no_fault() {
        let silent = silent().await;
        let terms = LeaseTimings { term: Duration::from_secs(1), renew: Duration::from_millis(300) };
        let campaign = LeaderElection::start(&silent.cluster, "leader", "a", terms);
        let (watchdog, _told) = watchdog(PATIENCE);
        let _watching = watchdog.watch([campaign.part()]);
        // It tries again and again: each connection is a try that nobody answered.
        let listener = silent._listener.try_clone().expect("a socket");
        let tries = tokio::task::spawn_blocking(move || {
            let _kept: Vec<_> = (0..3).map(|_| listener.accept().expect("a connection")).collect();
        });
        tokio::time::timeout(PATIENCE, tries).await.expect("it tries").expect("no panic");
        assert_eq!(watchdog.failure(), None);
    }
}
