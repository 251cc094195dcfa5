//! Which Services and which steps are shown.

use anyhow::{Result, bail};
use seaway_model::{Kind, LbKey, ObjectRef, Unit};
use seaway_plan::{ServiceKey, World};

use super::{PlannedObject, diff::Diff};
use crate::args::plan::{Action, Plan};

pub(super) struct Filter<'a>(&'a Plan);

impl<'a> Filter<'a> {
    /// A Service that is named and is not there is an error: that nothing would be changed would say nothing.
    pub(super) fn of(arguments: &'a Plan, world: &World) -> Result<Filter<'a>> {
        let filter = Filter(arguments);
        for named in &arguments.service {
            let is_it =
                |(key, _): (&ServiceKey, _)| filter.is_in(&key.namespace) && is_named(named, &key.object());
            if !world.index().services().any(is_it) {
                bail!("Service {named} does not exist");
            }
        }
        Ok(filter)
    }

    pub(super) fn admits_unit(&self, unit: &Unit) -> bool {
        self.admits(object_of(unit).as_ref())
    }

    pub(super) fn admits(&self, object: Option<&ObjectRef>) -> bool {
        if self.0.namespace.is_none() && self.0.service.is_empty() {
            return true;
        }
        let Some(object) = object.filter(|it| it.kind == Kind::Service) else { return false };
        let services = &self.0.service;
        self.is_in(&object.namespace)
            && (services.is_empty() || services.iter().any(|it| is_named(it, object)))
    }

    /// Problems stay, whatever is to be seen of the steps.
    pub(super) fn retain(&self, prospect: &mut PlannedObject) {
        let is_meant = |it: &Diff| self.0.action.is_empty() || self.0.action.contains(&it.action);
        prospect.steps.retain(is_meant);
        if !self.0.action.is_empty() && !self.0.action.contains(&Action::Delete) {
            prospect.later.clear();
        }
    }

    fn is_in(&self, namespace: &str) -> bool {
        self.0.namespace.as_deref().is_none_or(|it| it == namespace)
    }
}

fn is_named(named: &str, object: &ObjectRef) -> bool {
    match named.split_once('/') {
        Some((namespace, name)) => *object.namespace == *namespace && *object.name == *name,
        None => *object.name == *named,
    }
}

/// The Service that a Unit is for, if it is for one alone.
pub(super) fn object_of(unit: &Unit) -> Option<ObjectRef> {
    match unit {
        Unit::LoadBalancer(_, key @ (LbKey::Of(_) | LbKey::Second(..))) => key.owner().map(|it| it.object()),
        _ => None,
    }
}
