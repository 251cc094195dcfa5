//! Whether a Service is to stay until its load balancer is gone, and whether it is about to go.

use seaway_model::fact::Held;

use crate::decode::Field;

/// What keeps a Service until its load balancer is gone, whoever makes that.
pub const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
/// As whom we write fields.
pub const MANAGER: &str = "seaway";

pub(super) fn is_leaving(root: &Field<'_>) -> bool {
    let metadata = root.child("metadata");
    metadata.child("deletionTimestamp").is_set()
}

pub(super) fn held(root: &Field<'_>) -> Held {
    let metadata = root.child("metadata");
    if !metadata.child("finalizers").items().any(|it| it.name() == Some(FINALIZER)) {
        return Held::No;
    }
    let written = format!("v:\"{FINALIZER}\"");
    let by_us = metadata.child("managedFields").items().any(|entry| {
        let fields = entry.child("fieldsV1");
        let metadata = fields.child("f:metadata");
        let finalizers = metadata.child("f:finalizers");
        entry.child("manager").name() == Some(MANAGER) && finalizers.child(&written).is_set()
    });
    if by_us { Held::ByUs } else { Held::ByOthers }
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
        assert_eq!(read(""), (false, Held::No));
        assert_eq!(read("  finalizers: [other.io/x]\n"), (false, Held::No));
        assert_eq!(read(&held), (false, Held::ByOthers));
        assert_eq!(read(&by("openstack-cloud-controller-manager")), (false, Held::ByOthers));
        assert_eq!(read(&by(MANAGER)), (false, Held::ByUs));
        let going = "  deletionTimestamp: '2026-01-01T00:00:00Z'\n";
        assert_eq!(read(&format!("{going}{held}")), (true, Held::ByOthers));
    }
}
