//! The Lease of a host, of whose processes one alone writes it.

use std::sync::atomic::Ordering;

use tokio::sync::watch;

use super::{BEAT, Candidate, LeaderElection, LeasePurpose, LeaseTimings, within};
use crate::{connect::Cluster, watch::host_leases};

impl LeaderElection {
    /// A host's sign of life: as long as it is renewed, what the host holds is believed to be held.
    pub fn start_host_lease(cluster: &Cluster, host: &str, terms: LeaseTimings) -> LeaderElection {
        LeaderElection::start_host_lease_once(cluster, host, terms, watch::channel(true).1)
    }

    /// As above, from when `owns` says that no other process of this host writes it.
    pub fn start_host_lease_once(
        cluster: &Cluster,
        host: &str,
        terms: LeaseTimings,
        owns: watch::Receiver<bool>,
    ) -> LeaderElection {
        let name = format!("{}{host}", host_leases::HOST_LEASE_PREFIX);
        LeaderElection::begin(cluster, (&name, host), terms, LeasePurpose::Lives, owns)
    }

    /// From now on the next process of this host may write it: that one is no rival, and this one does not write it over. Until then it
    /// is renewed.
    pub fn yield_to_next(&self) {
        self.yields.store(true, Ordering::Relaxed);
    }
}

impl Candidate {
    /// Who never begins has nothing to give back.
    pub(super) async fn run_from(self, mut begins: watch::Receiver<bool>, resigned: watch::Receiver<bool>) {
        while !*begins.borrow_and_update() {
            let is_over = matches!(within(BEAT, begins.changed()).await, Some(Err(_)));
            if is_over || *resigned.borrow() {
                return;
            }
        }
        self.run(resigned).await;
    }
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, time::Duration};

    use super::*;
    use crate::{ClusterAccess, CredentialSource};

    #[tokio::test]
    async fn a_process_that_does_not_serve_writes_no_lease_until_it_does() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("it is ours");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config");
        let at = listener.local_addr().expect("it is bound");
        let config = format!(
            "{{apiVersion: v1, kind: Config, current-context: a, contexts: [{{name: a, context: {{cluster: a, user: a}}}}], \
             users: [{{name: a, user: {{token: x}}}}], clusters: [{{name: a, cluster: {{server: 'http://{at}'}}}}]}}"
        );
        std::fs::write(&path, config).expect("is written");
        let credentials = CredentialSource::Kubeconfig { path, context: None };
        let access = ClusterAccess { credentials, ..ClusterAccess::default() };
        let cluster = Cluster::connect(access).await.expect("nobody is asked yet");
        let (_own, owns) = watch::channel(false);
        let lease = LeaderElection::start_host_lease_once(&cluster, "a", LeaseTimings::HOST, owns);
        // One that had begun would ask in order to give it back.
        tokio::time::timeout(Duration::from_secs(60), lease.resign())
            .await
            .expect("there is nothing to give back");
        assert!(listener.accept().is_err(), "it asked nothing");
        let listener = tokio::net::TcpListener::from_std(listener).expect("it is one");
        let (own, owns) = watch::channel(false);
        let _lease = LeaderElection::start_host_lease_once(&cluster, "a", LeaseTimings::HOST, owns);
        own.send_replace(true);
        let asked = tokio::time::timeout(Duration::from_secs(60), listener.accept()).await;
        asked.expect("it begins").expect("a connection");
    }
}
