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
    api_error::ApiError,
    connect::{Cluster, RequestError},
    kinds::WatchedKind,
    watch::host_leases,
};

impl Cluster {
    /// By its Lease and this machine's clock.
    pub async fn host_liveness(&self, host: &str) -> Result<HostLiveness, RequestError> {
        let name = format!("{}{host}", host_leases::HOST_LEASE_PREFIX);
        match self.within_deadline(self.leases().get_opt(&name)).await {
            Ok(lease) => Ok(HostLiveness::of(lease.as_ref(), Timestamp::now())),
            Err(answer) => Err(RequestError(answer)),
        }
    }

    /// Deletes the LoadBalancerHost of a host, and its Lease, if that may be: it holds nothing without the other.
    ///
    /// Hosts that watch each other do not hear of deletions (`watch/scope.rs`): so it has no address before that. Who may not write that deletes it all
    /// the same, and hosts find out later.
    pub async fn forget_host(&self, host: &str) -> Result<(), RequestError> {
        let of = WatchedKind::known(Kind::LoadBalancerHost);
        let none = json!({ "status": { "addresses": [], "addressesChanged": true } });
        match self
            .within_deadline(self.api(of).patch_status(host, &PatchParams::default(), &Patch::Merge(&none)))
            .await
        {
            Ok(_) | Err(ApiError::NotFound | ApiError::Forbidden(_) | ApiError::Invalid(_)) => {}
            Err(answer) => return Err(RequestError(answer)),
        }
        let object = self.within_deadline(self.api(of).delete(host, &DeleteParams::default())).await;
        // One that never reported has a Lease alone.
        let object = match object {
            Ok(_) => None,
            Err(answer @ ApiError::NotFound) => Some(answer),
            Err(answer) => return Err(RequestError(answer)),
        };
        let name = format!("{}{host}", host_leases::HOST_LEASE_PREFIX);
        match (self.within_deadline(self.leases().delete(&name, &DeleteParams::default())).await, object) {
            (Ok(_), _) | (Err(ApiError::NotFound | ApiError::Forbidden(_)), None) => Ok(()),
            (Err(ApiError::NotFound), Some(answer)) | (Err(answer), _) => Err(RequestError(answer)),
        }
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.client(), self.namespace())
    }
}
