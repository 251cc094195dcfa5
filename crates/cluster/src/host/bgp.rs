//! What a host says of its BGP sessions, and of what it announces there, in the status of its LoadBalancerHost.

use std::collections::{BTreeMap, BTreeSet};

use seaway_manifests::decode::Field;
use seaway_model::{
    Name, Time,
    bgp::{BgpReport, BgpSessionState, PeerReport},
};
use serde_json::{Value, json};

use crate::address::{read_time, time_text};

/// So much is told of what is wrong with a session, and of so many sessions: the object has a bound.
const LONGEST_DETAIL: usize = 200;
const MOST_PEERS: usize = 32;

pub(super) fn write(report: &BgpReport) -> Value {
    let peers: Vec<Value> = report.peers.iter().take(MOST_PEERS).map(peer).collect();
    // Most prefixes go to the same peers.
    let mut groups: BTreeMap<&BTreeSet<Name>, Vec<String>> = BTreeMap::new();
    for (prefix, peers) in report.routes.iter().take(BgpReport::MAX_ROUTES) {
        groups.entry(peers).or_default().push(prefix.to_string());
    }
    let group = |(peers, prefixes): (&&BTreeSet<Name>, &Vec<String>)| {
        let peers: Vec<&Name> = peers.iter().take(MOST_PEERS).collect();
        json!({ "peers": peers, "prefixes": prefixes })
    };
    json!({ "peers": peers, "routes": groups.iter().map(group).collect::<Vec<_>>() })
}

fn peer((name, it): (&Name, &PeerReport)) -> Value {
    let mut said = json!({
        "name": name,
        "state": it.what.as_str(),
        "since": time_text(it.since),
        "prefixes": it.sent,
        "resets": it.resets,
    });
    let detail = cut(&it.detail);
    let more = [
        ("peerASN", it.remote_as.map(Value::from)),
        ("bfd", it.bfd_up.map(|is_up| if is_up { "Up" } else { "Down" }.into())),
        ("detail", (!detail.is_empty()).then(|| detail.into())),
    ];
    if let Some(said) = said.as_object_mut() {
        said.extend(more.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))));
    }
    said
}

fn cut(detail: &str) -> String {
    detail.chars().take(LONGEST_DETAIL).collect()
}

pub(super) fn read(bgp: &Field<'_>) -> BgpReport {
    let (peers, routes) = (bgp.child("peers"), bgp.child("routes"));
    let mut report = BgpReport::default();
    for it in peers.items().take(MOST_PEERS) {
        let Some((name, state)) = it.child("name").name().zip(it.child("state").name()) else { continue };
        let count = |key| it.child(key).integer_within(0, i64::MAX).unwrap_or_default();
        let number = |key| it.child(key).integer_within::<u32>(0, u32::MAX.into());
        let read = PeerReport {
            what: BgpSessionState::of(state),
            since: it.child("since").name().and_then(read_time).unwrap_or(Time(0)),
            sent: number("prefixes").unwrap_or_default(),
            resets: count("resets"),
            remote_as: number("peerASN"),
            bfd_up: it.child("bfd").name().map(|it| it == "Up"),
            detail: cut(it.child("detail").name().unwrap_or_default()).into(),
        };
        report.peers.insert(name.into(), read);
    }
    for it in routes.items() {
        let (peers, prefixes) = (it.child("peers"), it.child("prefixes"));
        let peers: BTreeSet<Name> =
            peers.items().filter_map(|it| Some(it.name()?.into())).take(MOST_PEERS).collect();
        for prefix in prefixes.items().filter_map(|it| it.name()?.parse().ok()) {
            if report.routes.len() < BgpReport::MAX_ROUTES {
                report.routes.insert(prefix, peers.clone());
            }
        }
    }
    report
}
