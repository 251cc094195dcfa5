//! The driver that holds Services until their load balancers in a cloud are gone.
//!
//! ```text
//!     no class      service.kubernetes.io/load-balancer-cleanup   that of Kubernetes' own controllers, so that either finds the other's
//!     with a class  seaway.dev/load-balancer-cleanup              ours: a cloud controller manager makes nothing for it, but where it
//!                                                                 finds its own finalizer, it deletes a load balancer of that name
//! ```
//! One with a class that has the common one, which we wrote before there was ours, gets ours instead.

use std::{fmt, time::Duration};

use seaway_engine::{Context, Driver, Effect, Effects, Failure, Report};
use seaway_model::{Desired, Problem, Reason, Unit};
use serde_json::{Value, json};

use crate::{
    api_error::{ApiError, INSTALL},
    connect::Cluster,
    object_cache::{PublishedService, ServiceFinalizers},
};

/// Who serves without a cloud has no right to patch Services.
const BIND: &str =
    "and bind the ClusterRole seaway-cloud to the controller (deploy/kubernetes/openstack/binding.yaml)";

/// Writes the finalizer of Services, while it leads.
pub struct FinalizerDriver {
    cluster: Cluster,
}

/// Whether a Service is held; nothing, where it is gone.
#[derive(Debug, Default)]
pub struct FinalizerState {
    published: Option<PublishedService>,
    trouble: Option<ApiError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinalizerStep {
    /// Adds the common finalizer.
    AddCommon,
    /// Adds our own finalizer, and removes the common one where that is ours, too (`instead`).
    AddOwn {
        instead: bool,
    },
    Remove,
}

impl fmt::Display for FinalizerStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FinalizerStep::AddCommon | FinalizerStep::AddOwn { .. } => {
                "add the finalizer, so that the Service is not deleted before its load balancer"
            }
            FinalizerStep::Remove => "remove the finalizer: the load balancer is deleted",
        })
    }
}

impl Effects for FinalizerStep {
    fn effect(&self) -> Effect {
        match self {
            FinalizerStep::AddCommon | FinalizerStep::AddOwn { .. } => Effect::CHANGES,
            // Without it, the Service is deleted.
            FinalizerStep::Remove => Effect::DELETES,
        }
    }
}

impl FinalizerStep {
    /// Merged by the API server into what others hold it by; refused if it is another Service of that name by now.
    pub(crate) fn body(self, uid: &str) -> Value {
        let (common, own) = (seaway_manifests::FINALIZER, seaway_manifests::OWN_FINALIZER);
        match self {
            FinalizerStep::AddCommon => json!({ "metadata": { "uid": uid, "finalizers": [common] } }),
            FinalizerStep::AddOwn { instead: false } => {
                json!({ "metadata": { "uid": uid, "finalizers": [own] } })
            }
            FinalizerStep::AddOwn { instead: true } => json!({ "metadata": {
                "uid": uid, "finalizers": [own], "$deleteFromPrimitiveList/finalizers": [common]
            } }),
            FinalizerStep::Remove => {
                json!({ "metadata": { "uid": uid, "$deleteFromPrimitiveList/finalizers": [common, own] } })
            }
        }
    }

    /// What is to be written, so that it is held, or is not.
    fn of(wanted: bool, by: ServiceFinalizers) -> Option<FinalizerStep> {
        let held = by.own || by.common;
        let instead = by.common && by.common_is_ours;
        match wanted {
            // Of one that is being deleted no finalizer can be added.
            true if by.class && !by.leaving => {
                (!by.own || instead).then_some(FinalizerStep::AddOwn { instead })
            }
            true => (!held).then_some(FinalizerStep::AddCommon),
            false => held.then_some(FinalizerStep::Remove),
        }
    }
}

impl FinalizerDriver {
    pub fn new(cluster: Cluster) -> FinalizerDriver {
        FinalizerDriver { cluster }
    }
}

impl Driver for FinalizerDriver {
    type Observed = FinalizerState;
    type Step = FinalizerStep;

    /// Each question has a limit of its own; a step may ask twice.
    fn attempt_timeout(&self) -> Duration {
        Duration::from_secs(120)
    }

    fn serves(&self, unit: &Unit) -> bool {
        matches!(unit, Unit::Finalizer(_))
    }

    fn steps(&self, desired: &Desired, observed: &FinalizerState) -> Vec<FinalizerStep> {
        let Some(published) = &observed.published else { return Vec::new() };
        let step = match desired {
            Desired::Finalizer => FinalizerStep::of(true, published.held),
            Desired::Absent => FinalizerStep::of(false, published.held),
            _ => None,
        };
        step.into_iter().collect()
    }

    async fn observe(&self, _: &Context, unit: &Unit, _desired: &Desired) -> Result<FinalizerState, Failure> {
        let Some((object, uid)) = unit.service() else { return Ok(FinalizerState::default()) };
        let published = self.cluster.cache().service(&object.namespace, &object.name);
        // One that was made again under its name is another.
        Ok(FinalizerState { published: published.filter(|it| *it.uid == *uid), trouble: None })
    }

    async fn apply(
        &self,
        context: &Context,
        unit: &Unit,
        step: &FinalizerStep,
        observed: &mut FinalizerState,
    ) -> Result<(), Failure> {
        let Some((object, uid)) = unit.service() else { return Ok(()) };
        context.require_lead()?;
        let mut written = self.cluster.merge_service(object, &step.body(uid)).await;
        // A policy of before there was ours lets the common one be written alone.
        if let (FinalizerStep::AddOwn { .. }, Err(ApiError::Forbidden(_))) = (step, &written) {
            context.require_lead()?;
            written = self.cluster.merge_service(object, &FinalizerStep::AddCommon.body(uid)).await;
        }
        match written {
            Ok(published) => {
                observed.published = published;
                Ok(())
            }
            Err(answer @ (ApiError::Forbidden(_) | ApiError::Invalid(_))) => {
                observed.trouble = Some(answer);
                observed.published = None;
                Ok(())
            }
            Err(answer) => Err(answer.into()),
        }
    }

    fn conclude(&self, unit: &Unit, _desired: &Desired, observed: &FinalizerState) -> Report {
        let (Unit::Finalizer(owner), Some(trouble)) = (unit, &observed.trouble) else {
            return Report::default();
        };
        let message = format!(
            "the finalizer of the Service cannot be written, so Seaway creates and deletes nothing for it \
             in a cloud: {}",
            trouble.why()
        );
        let problem = Problem::new(owner.object(), Reason::NotPermitted, message);
        Report {
            problems: vec![(owner.clone(), problem.fix(format!("As an administrator: {INSTALL}, {BIND}")))],
            again: Some(crate::status::TRY_AGAIN),
            ..Report::default()
        }
    }

    fn width(&self) -> usize {
        32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finalizer_is_merged_into_what_others_wrote_and_taken_out_of_it() {
        let (common, own) =
            ("service.kubernetes.io/load-balancer-cleanup", "seaway.dev/load-balancer-cleanup");
        let delete = "$deleteFromPrimitiveList/finalizers";
        assert_eq!(
            FinalizerStep::AddCommon.body("u"),
            json!({ "metadata": { "uid": "u", "finalizers": [common] } })
        );
        assert_eq!(
            FinalizerStep::AddOwn { instead: false }.body("u"),
            json!({ "metadata": { "uid": "u", "finalizers": [own] } })
        );
        assert_eq!(
            FinalizerStep::AddOwn { instead: true }.body("u"),
            json!({ "metadata": { "uid": "u", "finalizers": [own], delete: [common] } })
        );
        assert_eq!(
            FinalizerStep::Remove.body("u"),
            json!({ "metadata": { "uid": "u", delete: [common, own] } })
        );
    }

    #[test]
    fn services_with_a_class_are_held_by_our_own_finalizer_and_others_by_the_common_one() {
        let by = |own, common, ours, class, leaving| ServiceFinalizers {
            own,
            common,
            common_is_ours: ours,
            class,
            leaving,
        };
        let own = |instead| Some(FinalizerStep::AddOwn { instead });
        for (said, held, let_go) in [
            (by(false, false, false, false, false), Some(FinalizerStep::AddCommon), None),
            (by(false, true, true, false, false), None, Some(FinalizerStep::Remove)),
            (by(false, true, false, false, false), None, Some(FinalizerStep::Remove)),
            // It had a class once.
            (by(true, false, false, false, false), None, Some(FinalizerStep::Remove)),
            (by(false, false, false, true, false), own(false), None),
            (by(true, false, false, true, false), None, Some(FinalizerStep::Remove)),
            // Of a version that knew the common one alone.
            (by(false, true, true, true, false), own(true), Some(FinalizerStep::Remove)),
            (by(true, true, true, true, false), own(true), Some(FinalizerStep::Remove)),
            (by(false, true, true, true, true), None, Some(FinalizerStep::Remove)),
            // Another wrote it, and has something to take away.
            (by(false, true, false, true, false), own(false), Some(FinalizerStep::Remove)),
            (by(true, true, false, true, false), None, Some(FinalizerStep::Remove)),
        ] {
            assert_eq!(
                (FinalizerStep::of(true, said), FinalizerStep::of(false, said)),
                (held, let_go),
                "{said:?}"
            );
        }
    }
}
