//! What Owners are told whose Address could not be stored, wherever it is stored.

use seaway_model::{Address, Desired, Owner, Problem, Reason};

/// Who shared the address before goes on; only a newcomer is kept waiting.
pub fn unwritten(
    desired: &Desired,
    written: Option<&Address>,
    why: &str,
    fix: &str,
) -> Vec<(Owner, Problem)> {
    let Desired::Address(wanted) = desired else { return Vec::new() };
    let known = written.map_or(&[][..], |it| &it.owners);
    let message =
        format!("the address of the Service cannot be recorded, so the Service does not get it: {why}");
    let told = |owner: &Owner| {
        let problem = Problem::new(owner.object(), Reason::StateUnwritable, message.clone());
        (owner.clone(), problem.fix(fix))
    };
    wanted.owners.iter().filter(|owner| !known.contains(owner)).map(told).collect()
}
