//! LoadBalancerHost objects: what a host says of itself, read back by whoever plans with it.

use std::sync::Arc;

use seaway_manifests::decode::Field;
use seaway_model::fact::HostReport;

pub(crate) fn read(root: &Field<'_>) -> Option<Arc<HostReport>> {
    let (metadata, status) = (root.child("metadata"), root.child("status"));
    let ips = |key| {
        let list = status.child(key);
        list.items().filter_map(|item| item.ip()).collect::<Vec<_>>()
    };
    Some(Arc::new(HostReport {
        host: metadata.child("name").name()?.into(),
        addresses: ips("addresses"),
        holds: ips("holds").into_iter().collect(),
    }))
}
