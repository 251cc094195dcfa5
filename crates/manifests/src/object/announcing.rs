//! Objects that say how addresses are announced: ours, and MetalLB's of the same names, which say the same in slightly different words.
//!
//! ```yaml
//! apiVersion: seaway.dev/v1alpha1                 # MetalLB's: metallb.io/v1beta1
//! kind: BGPAdvertisement
//! metadata: {name: public}
//! spec:
//!   addressPools: [public]                        # ipAddressPools
//!   addressPoolSelectors: []                      # ipAddressPoolSelectors
//!   serviceSelectors: []
//!   hostSelectors: [{matchLabels: {rack: a}}]     # nodeSelectors
//!   peers: [tor-a]
//!   aggregationLength: 32
//!   communities: [no-export, "64512:100", "large:64512:1:2"]
//! ---
//! kind: L2Advertisement                           # the first four, and interfaces
//! kind: BGPPeer                                   # announcing/peer.rs
//! kind: BFDProfile
//! kind: Community
//! ```
//! A field that is not known makes the object broken: without it, more might be announced than was meant.

mod peer;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use seaway_model::{
    Fact, Kind, Name, ObjectRef,
    bgp::Bfd,
    fact::{
        AdvertisementScope, AnnouncementObject, AnnouncementSpec, BgpAdvertisement, CommunityRef,
        CommunityValue, L2Advertisement,
    },
};

pub(super) use self::peer::{bgp_peer, metallb_bgp_peer};
use super::{
    formats,
    known_fields::unknown_fields_at,
    meta::{self, NameRules, check_rule},
    pool::selectors,
};
use crate::decode::{Field, ValidationError, ValidationErrors};

/// Of each list.
const MOST: usize = 256;
const MOST_COMMUNITIES: usize = 64;

pub(super) fn l2_advertisement(root: &Field<'_>) -> Option<Vec<Fact>> {
    read_l2(root, Kind::L2Advertisement)
}

pub(super) fn metallb_l2_advertisement(root: &Field<'_>) -> Option<Vec<Fact>> {
    read_l2(root, Kind::MetallbL2Advertisement)
}

pub(super) fn bgp_advertisement(root: &Field<'_>) -> Option<Vec<Fact>> {
    read_bgp(root, Kind::BGPAdvertisement)
}

pub(super) fn metallb_bgp_advertisement(root: &Field<'_>) -> Option<Vec<Fact>> {
    read_bgp(root, Kind::MetallbBGPAdvertisement)
}

pub(super) fn bfd_profile(root: &Field<'_>) -> Option<Vec<Fact>> {
    read_bfd(root, Kind::BFDProfile)
}

pub(super) fn metallb_bfd_profile(root: &Field<'_>) -> Option<Vec<Fact>> {
    read_bfd(root, Kind::MetallbBFDProfile)
}

pub(super) fn community(root: &Field<'_>) -> Option<Vec<Fact>> {
    read_community(root, Kind::Community)
}

pub(super) fn metallb_community(root: &Field<'_>) -> Option<Vec<Fact>> {
    read_community(root, Kind::MetallbCommunity)
}

/// Whether a fault of this field leaves open which pools an advertisement is about.
pub(super) fn is_about_pools(field: &str) -> bool {
    let of_spec = field.strip_prefix("spec.").unwrap_or(field);
    matches!(field, "spec" | "") || of_spec.starts_with("addressPool") || of_spec.starts_with("ipAddressPool")
}

fn made(root: &Field<'_>, kind: Kind, says: Option<AnnouncementSpec>) -> Option<Vec<Fact>> {
    let naming = NameRules { kind, namespaced: kind.is_of_metallb(), rule: formats::dns1123_subdomain };
    let meta = meta::read(root, &naming);
    let spec = root.child("spec");
    if let Some(node) = spec.node() {
        let unknown = ValidationErrors::default();
        for fault in unknown_fields_at(kind, &["spec"], node, "spec") {
            let message = fault
                .message
                .replace(", which is ignored", ": the whole object is ignored until it is removed");
            unknown.push(ValidationError { message, ..fault });
        }
        root.add_errors(unknown);
    }
    let meta = meta?;
    let object = ObjectRef::new(kind, meta.namespace, meta.name);
    let says = says?;
    Some(vec![Fact::Announcing(Arc::new(AnnouncementObject { object, created: meta.created, says }))])
}

fn read_l2(root: &Field<'_>, kind: Kind) -> Option<Vec<Fact>> {
    let spec = root.child("spec");
    let scope = scope(&spec, kind);
    let interfaces = names(&spec.child("interfaces"), formats::interface);
    made(root, kind, Some(AnnouncementSpec::L2Advertisement(L2Advertisement { scope, interfaces })))
}

fn read_bgp(root: &Field<'_>, kind: Kind) -> Option<Vec<Fact>> {
    let spec = root.child("spec");
    let scope = scope(&spec, kind);
    let (v4, v6) = (spec.child("aggregationLength"), spec.child("aggregationLengthV6"));
    let aggregation_v4 = v4.integer_within(1, 32);
    let aggregation_v6 = v6.integer_within(1, 128);
    // An aggregate is for all addresses within it, of whichever Service.
    let is_aggregated = [(&v4, aggregation_v4, 32), (&v6, aggregation_v6, 128)];
    for (field, _, _) in is_aggregated.iter().filter(|(_, it, whole)| it.is_some_and(|it| it != *whole)) {
        if !scope.service_selectors.is_empty() {
            field.forbidden(
                "may not be set with `serviceSelectors`: an aggregate is for all addresses within it",
            );
        }
    }
    let list = spec.child("communities");
    if list.items().len() > MOST_COMMUNITIES {
        list.too_many(list.items().len(), MOST_COMMUNITIES);
    }
    let mut communities = Vec::new();
    for item in list.items() {
        let Some(text) = item.text() else { continue };
        match community_word(text) {
            Some(word) => communities.push(word),
            None => item.invalid(text, COMMUNITY),
        }
    }
    let advertisement = BgpAdvertisement {
        scope,
        peers: names(&spec.child("peers"), formats::dns1123_subdomain),
        aggregation_v4,
        aggregation_v6,
        local_pref: spec.child("localPref").integer_within(0, i64::from(u32::MAX)),
        med: if kind.is_of_metallb() {
            None
        } else {
            spec.child("med").integer_within(0, i64::from(u32::MAX))
        },
        communities,
    };
    made(root, kind, Some(AnnouncementSpec::BgpAdvertisement(advertisement)))
}

fn scope(spec: &Field<'_>, kind: Kind) -> AdvertisementScope {
    let [pools, pool_selectors, hosts] = match kind.is_of_metallb() {
        true => ["ipAddressPools", "ipAddressPoolSelectors", "nodeSelectors"],
        false => ["addressPools", "addressPoolSelectors", "hostSelectors"],
    };
    AdvertisementScope {
        pools: names(&spec.child(pools), formats::dns1123_subdomain),
        pool_selectors: selectors(&spec.child(pool_selectors)),
        service_selectors: selectors(&spec.child("serviceSelectors")),
        host_selectors: selectors(&spec.child(hosts)),
        unclear: false,
    }
}

fn names(list: &Field<'_>, rule: fn(&str) -> Vec<String>) -> Vec<Name> {
    let mut names: Vec<Name> = Vec::new();
    if list.items().len() > MOST {
        list.too_many(list.items().len(), MOST);
    }
    for item in list.items() {
        let Some(name) = item.text() else { continue };
        check_rule(&item, name, rule);
        if names.iter().any(|other| **other == *name) {
            item.duplicate(name);
        }
        names.push(name.into());
    }
    names
}

fn read_bfd(root: &Field<'_>, kind: Kind) -> Option<Vec<Fact>> {
    let spec = root.child("spec");
    let interval = |key| spec.child(key).integer_within(10, 60_000).unwrap_or(300_u64);
    let echo = spec.child("echoMode");
    if echo.bool() == Some(true) {
        echo.forbidden("Seaway has no echo mode; intervals of 50 ms and a multiplier of 3 notice a failure in 150 ms without it");
    }
    let echo_interval = spec.child("echoInterval");
    if kind.is_of_metallb() {
        let _without_effect: Option<u64> = echo_interval.integer_within(10, 60_000);
    }
    let profile = Bfd {
        receive: Duration::from_millis(interval("receiveInterval")),
        transmit: Duration::from_millis(interval("transmitInterval")),
        multiplier: spec.child("detectMultiplier").integer_within(2, 255).unwrap_or(3),
        passive: spec.child("passiveMode").bool().unwrap_or(false),
        minimum_ttl: spec.child("minimumTtl").integer_within(1, 254).unwrap_or(254),
    };
    made(root, kind, Some(AnnouncementSpec::BfdProfile(profile)))
}

const COMMUNITY: &str = "must be a community (e.g. 64512:100 or large:64512:1:2) or the name of one";

fn read_community(root: &Field<'_>, kind: Kind) -> Option<Vec<Fact>> {
    let spec = root.child("spec");
    let list = spec.child("communities");
    if list.items().len() > MOST {
        list.too_many(list.items().len(), MOST);
    }
    let mut communities = BTreeMap::new();
    for item in list.items() {
        let (name_field, value_field) = (item.child("name"), item.child("value"));
        for field in [&name_field, &value_field] {
            if field.is_missing() {
                field.required("");
            }
        }
        let (Some(name), Some(text)) = (name_field.name(), value_field.name()) else { continue };
        if !is_name(name) {
            name_field.invalid(name, "must be letters, digits, '-', '_' and '.', and begin with a letter");
        }
        let Some(value) = value(text) else {
            value_field.invalid(text, "must be a community (e.g. 64512:100 or large:64512:1:2)");
            continue;
        };
        if communities.insert(name.into(), value).is_some() {
            name_field.duplicate(name);
        }
    }
    made(root, kind, Some(AnnouncementSpec::Community(communities)))
}

fn community_word(text: &str) -> Option<CommunityRef> {
    if let Some(value) = value(text) {
        return Some(CommunityRef::Value(value));
    }
    is_name(text).then(|| CommunityRef::Name(text.into()))
}

fn is_name(text: &str) -> bool {
    let is_part = |it: char| it.is_ascii_alphanumeric() || matches!(it, '-' | '_' | '.');
    text.len() <= 63 && text.starts_with(|it: char| it.is_ascii_alphabetic()) && text.chars().all(is_part)
}

/// `64512:100`, `large:64512:1:2`, and a number as a whole.
fn value(text: &str) -> Option<CommunityValue> {
    let number = |text: &str| {
        let is_number = !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
        is_number.then(|| text.parse::<u32>().ok()).flatten()
    };
    if let Some(rest) = text.strip_prefix("large:") {
        let mut parts = rest.split(':').map(number);
        let parts = [parts.next()??, parts.next()??, parts.next()??, u32::from(parts.next().is_some())];
        let [a, b, c, 0] = parts else { return None };
        return Some(CommunityValue::Large([a, b, c]));
    }
    match text.split_once(':') {
        Some((high, low)) => {
            let (high, low) = (u16::try_from(number(high)?).ok()?, u16::try_from(number(low)?).ok()?);
            Some(CommunityValue::Standard(u32::from(high) << 16 | u32::from(low)))
        }
        None => number(text).map(CommunityValue::Standard),
    }
}

#[cfg(test)]
mod tests;
