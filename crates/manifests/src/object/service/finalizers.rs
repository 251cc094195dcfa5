//! Whether a Service is to stay until its load balancer is gone, whether it is about to go, and who else serves it.

use seaway_model::{
    Time,
    fact::{FinalizerOwner, OtherControllerWrite},
};

use crate::decode::Field;

/// What keeps a Service until its load balancer is gone, whoever makes that.
pub const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// What keeps a Service with a class of ours: a cloud controller manager that finds the other deletes what it has by its name.
pub const OWN_FINALIZER: &str = "seaway.dev/load-balancer-cleanup";
/// As whom we write fields.
pub const MANAGER: &str = "seaway";

pub(super) fn is_being_deleted(root: &Field<'_>) -> bool {
    let metadata = root.child("metadata");
    metadata.child("deletionTimestamp").is_set()
}

pub(super) fn finalizer_owner(root: &Field<'_>) -> FinalizerOwner {
    let metadata = root.child("metadata");
    let holds = |finalizer| metadata.child("finalizers").items().any(|it| it.name() == Some(finalizer));
    if holds(OWN_FINALIZER) {
        return FinalizerOwner::ByUs;
    }
    if !holds(FINALIZER) {
        return FinalizerOwner::No;
    }
    let written = format!("v:\"{FINALIZER}\"");
    let by_us = metadata.child("managedFields").items().any(|entry| {
        let fields = entry.child("fieldsV1");
        let metadata = fields.child("f:metadata");
        let finalizers = metadata.child("f:finalizers");
        entry.child("manager").name() == Some(MANAGER) && finalizers.child(&written).is_set()
    });
    if by_us { FinalizerOwner::ByUs } else { FinalizerOwner::ByOthers }
}

/// Cloud controller managers are called so, whatever their cloud. Of their controllers, only that of Services writes Services.
const CLOUD_CONTROLLER: &str = "cloud-controller-manager";

/// The last write by a cloud controller manager. The time of a field manager does not change when another takes its fields.
pub(super) fn other_write(root: &Field<'_>) -> Option<OtherControllerWrite> {
    let metadata = root.child("metadata");
    let managed = metadata.child("managedFields");
    let writes = managed.items().filter_map(|entry| {
        let (manager, time) = (entry.child("manager"), entry.child("time"));
        let by = manager.name().filter(|it| it.ends_with(CLOUD_CONTROLLER))?.into();
        // The API server wrote it: what cannot be read is not the user's fault.
        let at: jiff::Timestamp = time.name()?.parse().ok()?;
        Some(OtherControllerWrite { by, at: Time(u64::try_from(at.as_millisecond()).ok()?) })
    });
    writes.max_by_key(|it| it.at)
}

#[cfg(test)]
mod tests {
    use seaway_model::Fact;

    use super::*;
    use crate::object::tests::facts;

    #[test]
    fn who_holds_a_service_is_told_by_who_wrote_the_finalizer() {
        let read =
            |metadata: &str| {
                match facts(&format!(
            "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n{metadata}spec: {{ports: [{{port: 80}}]}}"
        ))
        .remove(0)
        {
            Fact::Service(it) => (it.leaving, it.held),
            other => panic!("{other:?}"),
        }
            };
        let held = format!("  finalizers: [other.io/x, {FINALIZER}]\n");
        let by = |manager: &str| {
            let fields = format!("{{'f:metadata': {{'f:finalizers': {{'v:\"{FINALIZER}\"': {{}}}}}}}}");
            format!("{held}  managedFields: [{{manager: {manager}, fieldsV1: {fields}}}]\n")
        };
        assert_eq!(read(""), (false, FinalizerOwner::No));
        assert_eq!(read("  finalizers: [other.io/x]\n"), (false, FinalizerOwner::No));
        assert_eq!(read(&held), (false, FinalizerOwner::ByOthers));
        assert_eq!(read(&by("openstack-cloud-controller-manager")), (false, FinalizerOwner::ByOthers));
        assert_eq!(read(&by(MANAGER)), (false, FinalizerOwner::ByUs));
        let own = format!("  finalizers: [{FINALIZER}, {OWN_FINALIZER}]\n");
        assert_eq!(read(&own), (false, FinalizerOwner::ByUs), "nobody else writes it");
        let going = "  deletionTimestamp: '2026-01-01T00:00:00Z'\n";
        assert_eq!(read(&format!("{going}{held}")), (true, FinalizerOwner::ByOthers));
    }

    #[test]
    fn the_last_write_of_a_cloud_controller_manager_is_told_with_its_time() {
        let read = |entries: &str| {
            let text = format!(
                "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n  managedFields: [{entries}]\nspec: {{ports: [{{port: 80}}]}}"
            );
            match facts(&text).remove(0) {
                Fact::Service(it) => it.other_write.clone(),
                other => panic!("{other:?}"),
            }
        };
        let entry = |manager: &str, time: &str| format!("{{manager: {manager}, time: '{time}'}}");
        let occm = "openstack-cloud-controller-manager";
        let (early, late) = (entry(occm, "1970-01-01T00:00:01Z"), entry(occm, "1970-01-01T00:00:02Z"));
        let write = |at| Some(OtherControllerWrite { by: occm.into(), at: Time(at) });
        assert_eq!(read(&format!("{late}, {early}")), write(2_000));
        assert_eq!(read(&early), write(1_000));
        assert_eq!(read(&entry("kubectl", "1970-01-01T00:00:02Z")), None);
        assert_eq!(read(&entry(MANAGER, "1970-01-01T00:00:02Z")), None);
        assert_eq!(read(&format!("{{manager: {occm}}}")), None, "nobody knows when");
        assert_eq!(read(&entry(occm, "soon")), None);
    }
}
