//! What is worked on of what is desired: what its place can do. A part that is refused is left as it is.

use std::collections::BTreeSet;

use seaway_model::{Desired, Owner, Problem, Unit};

use crate::{
    driver::{Driver, Refused},
    effect::Effects as _,
};

/// What is desired, and what of it is refused.
pub(crate) struct Wanted<'d> {
    whole: &'d Desired,
    refused: Option<Refused>,
}

impl<'d> Wanted<'d> {
    pub(crate) fn of<D: Driver>(
        driver: &D,
        unit: &Unit,
        whole: &'d Desired,
        observed: &D::Observed,
    ) -> Wanted<'d> {
        // Any place can be without something.
        let refused = if whole.is_absent() { None } else { driver.refuse(unit, whole, observed) };
        Wanted { whole, refused }
    }

    pub(crate) fn rest(&self) -> &Desired {
        self.refused.as_ref().map_or(self.whole, |it| &it.rest)
    }

    /// Of steps that delete, none because of what is refused: an older version of it may serve.
    pub(crate) fn steps<D: Driver>(&self, driver: &D, observed: &D::Observed) -> Vec<D::Step> {
        let mut steps = driver.steps(self.rest(), observed);
        if self.refused.is_some() && steps.iter().any(|it| it.effect().deletes) {
            let whole = driver.steps(self.whole, observed);
            let whole: BTreeSet<String> = whole.iter().map(ToString::to_string).collect();
            steps.retain(|it| !it.effect().deletes || whole.contains(&it.to_string()));
        }
        steps
    }

    pub(crate) fn problems(self) -> Vec<(Owner, Problem)> {
        self.refused.map(|it| it.problems).unwrap_or_default()
    }
}
