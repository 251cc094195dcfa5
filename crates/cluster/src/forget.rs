//! A host that is off for good: what it said is deleted, so that what it held may be others'.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use seaway_model::Kind;
use serde_json::json;

use crate::{
    HostLiveness,
    answer::Answer,
    connect::{Cluster, Unanswered},
    kinds::Watched,
    watch::pulses,
};

impl Cluster {
    /// By its Lease and this machine's clock.
    pub async fn pulse(&self, host: &str) -> Result<HostLiveness, Unanswered> {
        let name = format!("{}{host}", pulses::PREFIX);
        match self.ask(self.leases().get_opt(&name)).await {
            Ok(lease) => Ok(HostLiveness::of(lease.as_ref(), Timestamp::now())),
            Err(answer) => Err(Unanswered(answer)),
        }
    }

    /// Deletes the LoadBalancerHost of a host, and its Lease, if that may be: it holds nothing without the other.
    ///
    /// Hosts that watch each other do not hear of deletions (`watch/part.rs`): so it has no address before that. Who may not write that deletes it all
    /// the same, and hosts find out later.
    pub async fn forget_host(&self, host: &str) -> Result<(), Unanswered> {
        let of = Watched::known(Kind::LoadBalancerHost);
        let none = json!({ "status": { "addresses": [], "addressesChanged": true } });
        match self.ask(self.all(of).patch_status(host, &PatchParams::default(), &Patch::Merge(&none))).await {
            Ok(_) | Err(Answer::NotFound | Answer::Forbidden(_) | Answer::Invalid(_)) => {}
            Err(answer) => return Err(Unanswered(answer)),
        }
        let object = self.ask(self.all(of).delete(host, &DeleteParams::default())).await;
        // One that never reported has a Lease alone.
        let object = match object {
            Ok(_) => None,
            Err(answer @ Answer::NotFound) => Some(answer),
            Err(answer) => return Err(Unanswered(answer)),
        };
        let name = format!("{}{host}", pulses::PREFIX);
        match (self.ask(self.leases().delete(&name, &DeleteParams::default())).await, object) {
            (Ok(_), _) | (Err(Answer::NotFound | Answer::Forbidden(_)), None) => Ok(()),
            (Err(Answer::NotFound), Some(answer)) | (Err(answer), _) => Err(Unanswered(answer)),
        }
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client(), self.namespace())
    }
}
