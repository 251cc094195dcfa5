//! The last question before anything is removed for an owner that the plan has no more.
//!
//! The plan is as good as what was told: a watch that is late, a list that came back empty, a setting that went missing.
//! Whoever keeps the owners is asked by name, right before the first step, each time.

use std::{future::Future, pin::Pin, sync::Arc, time::Duration};

use seaway_model::{
    Desired, Owner, Problem, Reason, Unit,
    unit::{LbKey, Place},
};

use crate::driver::Failure;

/// After an owner was found alive, or could not be asked for.
const ASK_AGAIN: Duration = Duration::from_secs(30);

/// What is there under an owner's name now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is not there, or another is there under its name.
    Gone,
    /// It is being deleted.
    Leaving,
    /// It wants no load balancer any more.
    Otherwise,
    /// It is there, and wants what it has.
    Lives,
}

/// Who keeps the owners, and can be asked for one: an API server. An error says why it did not answer.
pub trait Owners: Send + Sync + 'static {
    fn standing<'a>(
        &'a self,
        owner: &'a Owner,
    ) -> Pin<Box<dyn Future<Output = Result<Standing, String>> + Send + 'a>>;
}

/// Whether what is at this Unit may be removed.
pub(crate) async fn permit(
    owners: Option<&Arc<dyn Owners>>,
    unit: &Unit,
    desired: &Desired,
) -> Result<(), Failure> {
    // A second one goes while its Service lives: it wants one family now.
    let (Some(owners), Unit::LoadBalancer(Place::Cloud { .. }, LbKey::Of(owner)), Desired::Absent) =
        (owners, unit, desired)
    else {
        return Ok(());
    };
    let (reason, message, fix) = match owners.standing(owner).await {
        Ok(Standing::Gone | Standing::Leaving | Standing::Otherwise) => return Ok(()),
        Ok(Standing::Lives) => (
            Reason::Released,
            "its load balancer would have been removed, and the API server says that it is there: nothing is removed"
                .to_owned(),
            "A watch may be late; if this stays, restart the controller and report it.",
        ),
        Err(why) => (
            Reason::Unreachable,
            format!("its load balancer is not removed before the API server says that it is gone: {why}"),
            "The controller must be allowed to get services: install the roles of this version (seaway crds).",
        ),
    };
    let problem = Problem::new(owner.object(), reason, message.clone()).fix(fix);
    Err(Failure::Told { why: message, problems: vec![(owner.clone(), problem)], after: ASK_AGAIN })
}
