//! What a part of a cluster hears, passed on to its engine with a word in the log on what is wrong.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

use seaway_cluster::HostStatusWriter;
use seaway_model::{Change, Fact, Kind, Name, fact::FactRef};
use tokio::sync::mpsc;
use tracing::{info, warn};

use super::recall::Memory;
use crate::control::ReportedProblems;

/// Runs until nobody tells anything any more.
pub(super) struct ChangeForwarder {
    pub(super) changes: mpsc::Sender<Change>,
    pub(super) own_host: Option<OwnHost>,
    pub(super) memory: Memory,
    pub(super) reported: ReportedProblems,
}

/// A host, of which it knows more than the cluster, but for what people want of it.
pub(super) struct OwnHost {
    host: Name,
    reports: Arc<HostStatusWriter>,
    drains: bool,
    declared: Option<BTreeSet<IpAddr>>,
}

impl ChangeForwarder {
    pub(super) async fn run(mut self, mut heard: mpsc::Receiver<Change>) {
        loop {
            let changes = tokio::select! {
                change = heard.recv() => match change {
                    None => return,
                    Some(change) => match &mut self.own_host {
                        Some(own_host) => own_host.translate_change(change),
                        None => vec![change],
                    },
                },
                () = self.memory.state_cache_is_due() => {
                    let known = self.memory.serve();
                    if !self.pass_on(known).await {
                        return;
                    }
                    continue;
                }
            };
            for change in changes {
                if is_logged(&change) {
                    self.reported.log(&change);
                }
                let beside = self.memory.note(&change);
                if !self.pass_on([Some(change), beside].into_iter().flatten()).await {
                    return;
                }
            }
        }
    }

    /// Whether anybody takes it.
    async fn pass_on(&self, changes: impl IntoIterator<Item = Change>) -> bool {
        for change in changes {
            if self.changes.send(change).await.is_err() {
                return false;
            }
        }
        true
    }
}

impl OwnHost {
    /// `drains`: as it was known last.
    pub(super) fn new(host: Name, reports: Arc<HostStatusWriter>, drains: bool) -> OwnHost {
        OwnHost { host, reports, drains, declared: None }
    }

    fn translate_change(&mut self, change: Change) -> Vec<Change> {
        match &change {
            Change::Put(Fact::Host(report)) if report.host == self.host => {
                let mut changes = self.wish(report.drain);
                changes.extend(self.declare(report.declared.as_ref()));
                changes
            }
            // Nobody's wish is left to heed. One that may not be read is another matter: it stands.
            Change::Gone(FactRef::Host(host)) if *host == self.host => {
                warn!(%host, "LoadBalancerHost deleted; Seaway writes it again");
                self.reports.rewrite();
                self.wish(false)
            }
            Change::SourceRestored => {
                self.reports.rewrite();
                vec![change]
            }
            _ => gone_with_its_node(&change, &self.host).into_iter().chain([change]).collect(),
        }
    }

    /// Of a host whose object is gone nobody takes back what was written down: it is written again.
    fn declare(&mut self, declared: Option<&BTreeSet<IpAddr>>) -> Option<Change> {
        if self.declared.as_ref() == declared {
            return None;
        }
        info!("spec.addresses of this host's LoadBalancerHost changed");
        self.declared = declared.cloned();
        Some(Change::DeclaredAddresses(self.declared.clone()))
    }

    fn wish(&mut self, drains: bool) -> Vec<Change> {
        if drains == self.drains {
            return Vec::new();
        }
        info!(drains, "spec.drain of this host's LoadBalancerHost changed");
        self.drains = drains;
        vec![Change::HostDrains(drains)]
    }
}

/// Of routes the plan knows which are those of other Gateways: only Problems of ours are shown and counted, and none is logged.
fn is_logged(change: &Change) -> bool {
    !matches!(change, Change::Reported(object, _) if object.kind == Kind::HTTPRoute)
}

/// Of a Node that is deleted, the LoadBalancerHost goes, too, and of deletions of these a host does not hear.
fn gone_with_its_node(change: &Change, own: &Name) -> Option<Change> {
    let Change::Gone(FactRef::Object(object)) = change else { return None };
    let is_other = object.kind == Kind::Node && object.name != *own;
    is_other.then(|| Change::Gone(FactRef::Host(object.name.clone())))
}

#[cfg(test)]
mod tests {
    use seaway_model::ObjectRef;

    use super::*;

    #[test]
    fn what_is_wrong_with_a_route_is_not_logged_for_it_may_be_of_another_gateway() {
        let reported = |kind| Change::Reported(ObjectRef::new(kind, "default", "a"), Vec::new());
        assert!(!is_logged(&reported(Kind::HTTPRoute)) && is_logged(&reported(Kind::Service)));
    }

    #[test]
    fn a_host_whose_node_is_deleted_is_gone_for_all_other_hosts() {
        let gone = |kind, name: &str| Change::Gone(FactRef::Object(ObjectRef::new(kind, "", name)));
        let own = Name::from("a");
        let told = gone_with_its_node(&gone(Kind::Node, "b"), &own);
        assert!(matches!(told, Some(Change::Gone(FactRef::Host(host))) if *host == *"b"));
        assert!(gone_with_its_node(&gone(Kind::Node, "a"), &own).is_none(), "it lives, and says so itself");
        assert!(gone_with_its_node(&gone(Kind::AddressPool, "b"), &own).is_none());
    }
}
