//! The driver that holds Services until their load balancers in a cloud are gone: by the finalizer that Kubernetes' own
//! controllers use, so that either finds the other's.

use std::{fmt, time::Duration};

use seaway_engine::{Conclusion, Driver, Failure};
use seaway_model::{Desired, Problem, Reason, Unit};
use serde_json::{Value, json};

use crate::{
    answer::{Answer, INSTALL},
    connect::Cluster,
    lease::Leading,
    seen::Published,
};

/// Who serves without a cloud has no right to patch Services.
const BIND: &str =
    "and bind the ClusterRole seaway-cloud to the controller (deploy/kubernetes/openstack.yaml)";

/// Writes the finalizer of Services, while it leads.
pub struct Holds {
    cluster: Cluster,
    leading: Leading,
}

/// Whether a Service is held; nothing, where it is gone.
#[derive(Debug, Default)]
pub struct Held {
    published: Option<Published>,
    trouble: Option<Answer>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldStep {
    Hold,
    Release,
}

impl fmt::Display for HoldStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            HoldStep::Hold => "hold it until its load balancer is gone",
            HoldStep::Release => "let it go: its load balancer is gone",
        })
    }
}

impl HoldStep {
    /// Merged by the API server into what others hold it by; refused if it is another Service of that name by now.
    pub(crate) fn body(self, uid: &str) -> Value {
        let finalizer = json!([seaway_manifests::FINALIZER]);
        match self {
            HoldStep::Hold => json!({ "metadata": { "uid": uid, "finalizers": finalizer } }),
            HoldStep::Release => {
                json!({ "metadata": { "uid": uid, "$deleteFromPrimitiveList/finalizers": finalizer } })
            }
        }
    }
}

impl Holds {
    pub fn new(cluster: Cluster, leading: Leading) -> Holds {
        Holds { cluster, leading }
    }
}

impl Driver for Holds {
    type Observed = Held;
    type Step = HoldStep;

    /// Each question has a limit of its own; a step may ask twice.
    fn patience(&self) -> Duration {
        Duration::from_secs(120)
    }

    fn serves(&self, unit: &Unit) -> bool {
        matches!(unit, Unit::Hold(_))
    }

    fn steps(&self, desired: &Desired, observed: &Held) -> Vec<HoldStep> {
        let Some(published) = &observed.published else { return Vec::new() };
        match (desired, published.held) {
            (Desired::Held, false) => vec![HoldStep::Hold],
            (Desired::Absent, true) => vec![HoldStep::Release],
            _ => Vec::new(),
        }
    }

    async fn observe(&self, unit: &Unit, _desired: &Desired) -> Result<Held, Failure> {
        let Some((object, uid)) = unit.service() else { return Ok(Held::default()) };
        let published = self.cluster.seen().service(&object.namespace, &object.name);
        // One that was made again under its name is another.
        Ok(Held { published: published.filter(|it| *it.uid == *uid), trouble: None })
    }

    async fn apply(&self, unit: &Unit, step: &HoldStep, observed: &mut Held) -> Result<(), Failure> {
        let Some((object, uid)) = unit.service() else { return Ok(()) };
        self.leading.hold()?;
        match self.cluster.merge_service(object, &step.body(uid)).await {
            Ok(published) => {
                observed.published = published;
                Ok(())
            }
            Err(answer @ (Answer::Forbidden(_) | Answer::Invalid(_))) => {
                observed.trouble = Some(answer);
                observed.published = None;
                Ok(())
            }
            Err(answer) => Err(answer.into()),
        }
    }

    fn conclude(&self, unit: &Unit, _desired: &Desired, observed: &Held) -> Conclusion {
        let (Unit::Hold(owner), Some(trouble)) = (unit, &observed.trouble) else {
            return Conclusion::default();
        };
        let message = format!(
            "its finalizer cannot be written, so nothing is made for it in a cloud, nor taken away: {}",
            trouble.why()
        );
        let problem = Problem::new(owner.object(), Reason::NotPermitted, message);
        Conclusion {
            problems: vec![(owner.clone(), problem.fix(format!("As an administrator: {INSTALL}, {BIND}")))],
            again: Some(crate::status::TRY_AGAIN),
            ..Conclusion::default()
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
        let name = "service.kubernetes.io/load-balancer-cleanup";
        assert_eq!(HoldStep::Hold.body("u"), json!({ "metadata": { "uid": "u", "finalizers": [name] } }));
        assert_eq!(
            HoldStep::Release.body("u"),
            json!({ "metadata": { "uid": "u", "$deleteFromPrimitiveList/finalizers": [name] } })
        );
    }
}
