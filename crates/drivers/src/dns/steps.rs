//! What must change at a name: pure.
//!
//! One step has all of it, with what it presupposes, so that the name server does all or nothing. Of what is at a name, only
//! addresses that our own marker lists are ever removed.

use std::{collections::BTreeSet, fmt, net::IpAddr};

use seaway_engine::{Effect, Effects};
use seaway_model::{
    Name,
    dns::{DnsName, marker_name},
};

use super::marker::Marker;

/// What is there now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Observed {
    /// All TXT records where markers are, in their order.
    pub(super) texts: Vec<String>,
    /// At the name; empty where that is not ours, for a wildcard may have answered.
    pub(super) addresses: BTreeSet<IpAddr>,
    /// What is at the name that nobody of us made: `A 192.0.2.9`, `an alias (CNAME) for b.example`.
    pub(super) others: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub name: String,
    pub presupposes: Precondition,
    pub adds_marker: Option<String>,
    pub removes_markers: Vec<String>,
    pub adds: BTreeSet<IpAddr>,
    pub removes: BTreeSet<IpAddr>,
    pub ttl: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// Nothing is at the name, nor where its marker is to be.
    Unused,
    /// These markers, and no other.
    Markers(Vec<String>),
}

impl Effects for Step {
    fn effect(&self) -> Effect {
        let ends = self.adds_marker.is_none() && !self.removes_markers.is_empty();
        Effect { deletes: ends || !self.removes.is_empty(), exposes: !self.adds.is_empty() }
    }
}

/// Why a name is left as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NameConflict {
    /// Records that we did not write.
    Others(String),
    /// Another Service's, or another installation's.
    Marker(String),
    /// Addresses beside those of ours.
    Beside(BTreeSet<IpAddr>),
}

/// `is_wanted`: a Service still asks for the name.
pub(super) fn steps(it: &DnsName, is_wanted: bool, observed: &Observed) -> Vec<Step> {
    let markers = Markers::of(it, observed);
    let obstacle = obstacle(it, observed);
    let before = markers.own_addresses();
    // That a name has no address is remembered for long by those who ask: the last host that drains leaves its own.
    let is_last = || markers.of_peers.is_disjoint(&observed.addresses);
    let mut wanted = match is_wanted {
        false => BTreeSet::new(),
        true if it.addresses.is_empty() && !it.withdraws => &before & &it.keeps,
        // What somebody removed does not come back for a host that leaves.
        true if it.addresses.is_empty() && is_last() => &(&before & &it.keeps) & &observed.addresses,
        true => it.addresses.clone(),
    };
    if observed.texts.is_empty() {
        if wanted.is_empty() || obstacle.is_some() {
            return Vec::new();
        }
        let marker = Marker::of(it, wanted.clone());
        return vec![Step {
            name: it.name.to_string(),
            presupposes: Precondition::Unused,
            adds_marker: Some(marker.to_string()),
            removes_markers: Vec::new(),
            adds: wanted,
            removes: BTreeSet::new(),
            ttl: it.ttl,
        }];
    }
    if is_wanted && holder(it, observed).is_some() {
        // Planning hears of it, and asks for what that one needs.
        return Vec::new();
    }
    if obstacle.is_some() {
        // What is ours may go; nothing comes.
        wanted.retain(|ip| before.contains(ip));
    }
    let marker = match (&obstacle, wanted.is_empty()) {
        (_, true) => None,
        // It says what it said of whose it is.
        (Some(_), false) => {
            let own = markers.own.first().map(|(_, own)| own.clone());
            own.map(|own| Marker { addresses: wanted.clone(), ..own })
        }
        (None, false) => Some(Marker::of(it, wanted.clone())),
    };
    let marker = marker.map(|it| it.to_string());
    let has_marker = |text: &&String| Some(*text) != marker.as_ref();
    let removes_markers: Vec<String> =
        markers.own.iter().map(|(text, _)| *text).filter(has_marker).cloned().collect();
    let adds_marker = marker.clone().filter(|it| !observed.texts.contains(it));
    // With another TTL, all are written again.
    let is_new_ttl = markers.own.iter().any(|(_, own)| own.ttl != it.ttl) && obstacle.is_none();
    let is_missing = |ip: &&IpAddr| is_new_ttl || !observed.addresses.contains(*ip);
    let adds: BTreeSet<IpAddr> = match obstacle {
        None => wanted.iter().filter(is_missing).copied().collect(),
        Some(_) => BTreeSet::new(),
    };
    let is_to_go = |ip: &&IpAddr| {
        !wanted.contains(*ip) && !markers.of_peers.contains(*ip) && observed.addresses.contains(*ip)
    };
    let removes: BTreeSet<IpAddr> = before.iter().filter(is_to_go).copied().collect();
    if adds_marker.is_none() && removes_markers.is_empty() && adds.is_empty() && removes.is_empty() {
        return Vec::new();
    }
    vec![Step {
        name: it.name.to_string(),
        presupposes: Precondition::Markers(observed.texts.clone()),
        adds_marker,
        removes_markers,
        adds,
        removes,
        ttl: it.ttl,
    }]
}

/// What keeps a name from being as it is wanted.
pub(super) fn obstacle(it: &DnsName, observed: &Observed) -> Option<NameConflict> {
    let markers = Markers::of(it, observed);
    if let Some(other) = markers.others.first() {
        return Some(NameConflict::Marker(other.clone()));
    }
    if let Some(others) = &observed.others {
        return Some(NameConflict::Others(others.clone()));
    }
    let known = |ip: &IpAddr| markers.of_peers.contains(ip) || markers.own_addresses().contains(ip);
    let beside: BTreeSet<IpAddr> = observed.addresses.iter().filter(|ip| !known(ip)).copied().collect();
    (!beside.is_empty()).then_some(NameConflict::Beside(beside))
}

/// Another Service that also asks for this name, and has it: it keeps it.
pub(super) fn holder(it: &DnsName, observed: &Observed) -> Option<Name> {
    let markers = Markers::of(it, observed);
    let is_own = markers.own.iter().any(|(_, own)| own.service == it.service());
    let services = markers.own.iter().map(|(_, own)| Name::from(own.service.as_str()));
    services.filter(|_| !is_own).find(|service| it.rivals.contains(service))
}

/// What is there after it.
pub(super) fn after(step: &Step, before: &Observed) -> Observed {
    let mut observed = before.clone();
    observed.texts.retain(|it| !step.removes_markers.contains(it));
    observed.texts.extend(step.adds_marker.clone().filter(|it| !before.texts.contains(it)));
    observed.addresses.retain(|ip| !step.removes.contains(ip));
    observed.addresses.extend(&step.adds);
    if observed.texts.is_empty() && !observed.addresses.is_empty() {
        // Nobody's any more: who looks sees that the name is used, and not by whom.
        let left: Vec<String> = observed.addresses.iter().map(ToString::to_string).collect();
        observed.others = Some(left.join(", "));
        observed.addresses.clear();
    }
    observed
}

struct Markers<'o> {
    own: Vec<(&'o String, Marker)>,
    of_peers: BTreeSet<IpAddr>,
    /// Whose the others are, for people.
    others: Vec<String>,
}

impl<'o> Markers<'o> {
    fn of(it: &DnsName, observed: &'o Observed) -> Markers<'o> {
        let mut markers = Markers { own: Vec::new(), of_peers: BTreeSet::new(), others: Vec::new() };
        for text in &observed.texts {
            match Marker::read(text) {
                Some(marker) if marker.is_mine(it) => markers.own.push((text, marker)),
                Some(marker) if marker.is_of_peer(it) => markers.of_peers.extend(marker.addresses),
                // What they list is theirs, too.
                Some(marker) => {
                    markers.others.push(marker.description());
                    markers.of_peers.extend(marker.addresses);
                }
                None => {
                    markers.others.push(format!("the TXT record {text:?} at {}", marker_name(&it.name)));
                }
            }
        }
        markers
    }

    fn own_addresses(&self) -> BTreeSet<IpAddr> {
        self.own.iter().flat_map(|(_, it)| &it.addresses).copied().collect()
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let listed =
            |all: &BTreeSet<IpAddr>| all.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        write!(f, "update {} in DNS:", self.name)?;
        if !self.adds.is_empty() {
            write!(f, " add {}", listed(&self.adds))?;
        }
        if !self.removes.is_empty() {
            write!(f, " remove {}", listed(&self.removes))?;
        }
        match (&self.adds_marker, self.removes_markers.is_empty()) {
            (Some(_), true) => f.write_str(" add the marker"),
            (Some(_), false) => f.write_str(" replace the marker"),
            (None, false) => f.write_str(" remove the marker"),
            (None, true) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
