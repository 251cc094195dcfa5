//! What a host says of addresses that it announces by ARP and NDP, in the status of its LoadBalancerHost.

use std::{collections::BTreeMap, net::IpAddr};

use seaway_manifests::decode::Field;
use seaway_model::{
    Time,
    layer2::{Layer2Progress, Layer2State},
};
use serde_json::{Value, json};

use crate::address::{read_time, time_text};

/// So much is told of what is wrong with one of them, and of so many: the object has a bound.
const LONGEST_DETAIL: usize = 200;
const DETAILS: usize = 200;

pub(super) fn write(states: &BTreeMap<IpAddr, Layer2State>) -> Vec<Value> {
    let one = |(at, (ip, it)): (usize, (&IpAddr, &Layer2State))| {
        let mut said = json!({ "address": ip, "state": it.what.as_str(), "since": time_text(it.since) });
        let length = if at < DETAILS { LONGEST_DETAIL } else { 0 };
        let detail: String = it.detail.chars().take(length).collect();
        for (key, text) in [("interface", it.interface.as_str()), ("detail", &detail)] {
            if let Some(said) = said.as_object_mut().filter(|_| !text.is_empty()) {
                said.insert(key.to_owned(), text.into());
            }
        }
        said
    };
    states.iter().enumerate().map(one).collect()
}

pub(super) fn read(list: &Field<'_>) -> BTreeMap<IpAddr, Layer2State> {
    let one = |it: Field<'_>| {
        let text = |key| it.child(key).name().unwrap_or_default().into();
        let state = Layer2State {
            what: Layer2Progress::of(it.child("state").name()?),
            interface: text("interface"),
            since: it.child("since").name().and_then(read_time).unwrap_or(Time(0)),
            detail: text("detail"),
        };
        Some((it.child("address").ip()?, state))
    };
    list.items().filter_map(one).collect()
}
