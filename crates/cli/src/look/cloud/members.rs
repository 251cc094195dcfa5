//! What becomes of the members of a pool that are written all at once. Pure.

use std::{collections::BTreeMap, net::SocketAddr};

use seaway_drivers::octavia::{steps::ObservedMember, terms_of, wanted::spot};
use seaway_openstack::octavia::{NewMember, Operating};
use serde_json::{Value, json};

use super::diff::FieldChange;

/// Not read: a status tree tells where members are, and neither their weights nor the ports that are probed.
const UNKNOWN: &str = "unknown";

pub(super) fn all(
    wanted: &[NewMember],
    there: Option<&BTreeMap<SocketAddr, ObservedMember>>,
) -> Vec<FieldChange> {
    let nothing = BTreeMap::new();
    let there = there.unwrap_or(&nothing);
    let mut changes = Vec::new();
    for member in wanted {
        let field = format!("members[{}]", spot(member));
        let (weight, port) = terms_of(member);
        let to = json!({ "weight": weight, "monitor_port": port });
        match there.get(&spot(member)) {
            None => changes.push(FieldChange::new(field, Value::Null, to)),
            Some(seat) if is_as_terms_of(seat, weight, port) => {}
            Some(seat) => changes.push(FieldChange::new(field, terms(seat), to)),
        }
    }
    let goes = there.iter().filter(|(at, _)| wanted.iter().all(|it| spot(it) != **at));
    changes
        .extend(goes.map(|(at, seat)| FieldChange::new(format!("members[{at}]"), terms(seat), Value::Null)));
    changes
}

/// Of one that is there.
pub(super) fn terms(seat: &ObservedMember) -> Value {
    match seat.terms {
        Some((weight, port)) => json!({ "weight": weight, "monitor_port": port }),
        None => json!({ "weight": UNKNOWN, "monitor_port": UNKNOWN }),
    }
}

/// What is not known counts as right, unless its status says otherwise.
fn is_as_terms_of(seat: &ObservedMember, weight: u16, port: Option<u16>) -> bool {
    match (seat.terms, &seat.operating) {
        (Some(terms), _) => terms == (weight, port),
        (None, Operating::Draining) => weight == 0,
        (None, Operating::Online) => weight != 0,
        (None, _) => true,
    }
}
