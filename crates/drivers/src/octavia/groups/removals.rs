//! What steps take away from a group that is wanted: another controller of the same cluster, of which nothing is known yet, may
//! need it (`seaway_engine::Removal`). Pure.
//!
//! A rule goes with the Service that had its node port, and the group goes from a port with that port's Node. Without a change of
//! either that was seen, both wait until it is known that this controller is the only one.

use seaway_engine::Removal;

use super::steps::{Observed, Step};

pub(super) fn removals(there: &Observed, steps: &[Step]) -> Vec<Removal> {
    let removal = |(at, step): (usize, &Step)| {
        let steps = vec![at];
        match step {
            Step::Close(_, rule) => Some(Removal {
                what: format!("rule for {rule}").into(),
                node_port: Some((rule.l4, rule.port)),
                steps,
                ..Removal::default()
            }),
            Step::Detach(id) => {
                let fixed = there.ports.get(id).into_iter().flat_map(|it| &it.fixed_ips);
                let node: Vec<_> = fixed.filter_map(|it| it.ip_address).collect();
                let what = format!("attachment to port {id}").into();
                // A port without an address is no Node's.
                (!node.is_empty()).then_some(Removal { what, node, steps, ..Removal::default() })
            }
            _ => None,
        }
    };
    let mut removals: Vec<Removal> = steps.iter().enumerate().filter_map(removal).collect();
    // Doubles, and what another controller made for a Service that ours serves.
    removals.extend(Removal::of_the_rest(&removals, steps));
    removals
}
