//! Weights that an operator set, in a running process: stored first, then planned with.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, PoisonError},
};

use seaway_admin::view::ServiceView;
use seaway_files::{StateDir, state::WeightsFile};
use seaway_model::{Change, Kind, MemberWeights, ObjectRef, Problem, Reason, WeightOverride, WeightTarget};
use tracing::info;

use super::{Reply, target::Pools};
use crate::control::now;

pub(crate) struct Weights {
    file: WeightsFile,
    now: Mutex<Arc<MemberWeights>>,
}

/// Whether these words name it, without a look at what is served.
fn is_called(of: &WeightTarget, what: &str, service: Option<&str>) -> bool {
    let is_service = |text: &str| {
        let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
        of.service.as_ref().is_some_and(|(its, called)| *namespace == **its && *name == **called)
    };
    match (of.member, service) {
        (Some(at), None) => of.service.is_none() && at.to_string() == what,
        (Some(at), Some(service)) => at.to_string() == what && is_service(service),
        (None, None) => is_service(what),
        (None, Some(_)) => false,
    }
}

impl Weights {
    /// With what was set before, as it is to be told to the World.
    pub(crate) fn open(state: &StateDir) -> (Arc<Weights>, Vec<Change>) {
        let file = WeightsFile::new(state);
        let path = file.path().display().to_string();
        let object = ObjectRef::new(Kind::File, "", path.clone());
        let (weights, problems) = match file.read() {
            Ok(weights) => (weights, Vec::new()),
            Err(error) => {
                let why = format!(
                    "weights that were set with `seaway drain` or `seaway weight` cannot be read: {error}"
                );
                let problem = Problem::new(object.clone(), Reason::Unreadable, why)
                    .fix("Set them again. Until then, members have the weights of the manifests.")
                    .in_file(path, 0, 0);
                (MemberWeights::default(), vec![problem])
            }
        };
        for set in &weights.0 {
            info!(
                "the weight of {} is {}, as an operator set it (to undo: seaway reset)",
                set.of, set.weight
            );
        }
        let weights = Arc::new(weights);
        let told = vec![Change::Weights(weights.clone()), Change::Reported(object, problems)];
        (Arc::new(Weights { file, now: Mutex::new(weights) }), told)
    }

    pub(super) fn now(&self) -> Arc<MemberWeights> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What is to be told to the World, with what is to be told to the operator.
    pub(super) fn set(
        &self,
        views: &[ServiceView],
        (what, service): (&str, Option<&str>),
        weight: u32,
        force: bool,
    ) -> Result<(Change, Reply), String> {
        let pools = Pools::of(views);
        let of = pools.find(what, service)?;
        let without = pools.pools_without_usable_members(&of);
        // Who names a Service means all of its members.
        if weight == 0 && of.member.is_some() && !force && !without.is_empty() {
            return Err(format!(
                "no other member of {} would get new clients, which would be refused. Nothing was changed; to drain \
                 it anyway, add --force",
                without.join(", ")
            ));
        }
        let members = pools.addresses(&of);
        let shown = of.service.as_ref().map(|(namespace, name)| format!("{namespace}/{name}"));
        let line = match weight {
            0 => format!("{of}: no new clients; existing connections continue (to undo: seaway reset)"),
            weight => format!("{of}: weight {weight} (to undo: seaway reset)"),
        };
        let set = WeightOverride { of, weight, since: now() };
        let weights = self.change(|all| {
            all.set(set);
            true
        })?;
        info!("an operator set a weight: {line}");
        let mut lines = vec![line];
        lines.extend(
            without.iter().filter(|_| weight == 0).map(|it| format!("{it}: new clients are refused now")),
        );
        let reply =
            Reply { error: None, lines, weights: MemberWeights::clone(&weights), members, service: shown };
        Ok((Change::Weights(weights), reply))
    }

    /// Without `what`: all.
    pub(super) fn take_back(
        &self,
        views: &[ServiceView],
        what: Option<&str>,
        service: Option<&str>,
    ) -> Result<(Change, Reply), String> {
        let before = self.now();
        let mut lines = Vec::new();
        let weights = match what {
            None => self.change(|all| {
                all.0.clear();
                true
            })?,
            Some(what) => {
                // What is gone is still found by what was set for it.
                let known = before.0.iter().map(|it| &it.of).find(|it| is_called(it, what, service));
                let of = match known {
                    Some(it) => it.clone(),
                    None => Pools::of(views).find(what, service)?,
                };
                if !before.0.iter().any(|it| it.of == of) {
                    let set: BTreeSet<String> = before.0.iter().map(|it| it.of.to_string()).collect();
                    let set: Vec<String> = set.into_iter().collect();
                    return Err(match set.as_slice() {
                        [] => "no weight or drain is set at run time: there is nothing to reset".to_owned(),
                        all => format!(
                            "{of} has no weight or drain set at run time; these have: {}",
                            all.join(", ")
                        ),
                    });
                }
                self.change(|all| all.clear(&of))?
            }
        };
        let gone = before.0.iter().filter(|it| !weights.0.contains(it));
        lines.extend(gone.map(|it| format!("{}: the weight of the manifests again", it.of)));
        if lines.is_empty() {
            lines.push("nothing was set".to_owned());
        }
        lines.iter().for_each(|line| info!("an operator removed a weight: {line}"));
        let reply = Reply { lines, weights: MemberWeights::clone(&weights), ..Reply::default() };
        Ok((Change::Weights(weights), reply))
    }

    /// What cannot be stored is not done: a restart would not know of it.
    fn change(&self, change: impl FnOnce(&mut MemberWeights) -> bool) -> Result<Arc<MemberWeights>, String> {
        let mut now = self.now.lock().unwrap_or_else(PoisonError::into_inner);
        let mut weights = MemberWeights::clone(&now);
        if change(&mut weights) {
            let written = self.file.write(&weights);
            let path = self.file.path().display();
            written.map_err(|error| format!("{path} cannot be written: {error}. Nothing was changed"))?;
            *now = Arc::new(weights);
        }
        Ok(now.clone())
    }
}
