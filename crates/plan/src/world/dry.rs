//! What would be, without doing it: for `seaway plan`, `check` and `explain`.

use std::sync::Arc;

use seaway_model::{Change, Desired, Fact, Outcome, WorkItem, outcome::UnitState, unit::Unit};

use super::World;

/// Feeds all `changes`, and answers each claim of an address as if it had been written.
pub fn dry_run(world: &mut World, changes: impl IntoIterator<Item = Change>) {
    let mut waiting: Vec<WorkItem> = changes.into_iter().flat_map(|change| world.apply(change)).collect();
    // Each round can only free or grant addresses; the bound is for the reader's peace, and the loop ends long before.
    for _ in 0..1_000 {
        let claims: Vec<Unit> = waiting
            .drain(..)
            .map(|it| it.unit().clone())
            .filter(|it| matches!(it, Unit::Address(_)))
            .collect();
        if claims.is_empty() {
            return;
        }
        for unit in claims {
            let (state, facts) = match world.desire(&unit) {
                Desired::Address(address) => (UnitState::Done, vec![Fact::Address(Arc::clone(&address))]),
                _ => (UnitState::Absent, Vec::new()),
            };
            let outcome = Outcome { unit, state, facts, problems: Vec::new(), serving: Vec::new() };
            waiting.extend(world.apply(Change::Outcome(outcome)));
        }
    }
}
