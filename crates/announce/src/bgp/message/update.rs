//! Routes out, and what is said of others' routes in.

use std::{net::IpAddr, sync::Arc};

use ipnet::IpNet;

use super::{Family, HEADER, MOST, Notification, Reader, SAFI_UNICAST, UPDATE, open::AS_TRANS, write};
use seaway_model::bgp::Route;

const ORIGIN: u8 = 1;
const AS_PATH: u8 = 2;
const NEXT_HOP: u8 = 3;
const MED: u8 = 4;
const LOCAL_PREF: u8 = 5;
const COMMUNITIES: u8 = 8;
const MP_REACH: u8 = 14;
const MP_UNREACH: u8 = 15;
const AS4_PATH: u8 = 17;
const LARGE_COMMUNITIES: u8 = 32;

const OPTIONAL: u8 = 0x80;
const TRANSITIVE: u8 = 0x40;
const EXTENDED: u8 = 0x10;
const AS_SEQUENCE: u8 = 2;

/// Where a route has no other (RFC 4271 asks for one between speakers of one AS).
const PREFERENCE: u32 = 100;
/// RFC 8326.
const GRACEFUL_SHUTDOWN: u32 = 0xffff_0000;
/// Bytes of communities; with more, not even one prefix may fit.
const MOST_COMMUNITIES: usize = 3072;

/// How a session wants its routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RouteEncoding {
    pub(crate) is_internal: bool,
    pub(crate) local_as: u32,
    pub(crate) has_four_byte_as: bool,
    /// For IPv4, of either family; for IPv6, of IPv6.
    pub(crate) next_hops: [Option<IpAddr>; 2],
}

impl RouteEncoding {
    pub(crate) fn next_hop(&self, family: Family) -> Option<IpAddr> {
        let [v4, v6] = self.next_hops;
        match family {
            Family::V4 => v4,
            Family::V6 => v6,
        }
    }
}

/// What routes have in common that one message announces.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Attributes {
    local_pref: Option<u32>,
    med: Option<u32>,
    communities: Arc<[u32]>,
    large: Arc<[[u32; 3]]>,
}

impl Attributes {
    /// None where it has more communities than a message has room for: without them it may go where it must not.
    pub(crate) fn of(route: &Route, is_leaving: bool) -> Option<Attributes> {
        let mut communities: Vec<u32> = route.communities.to_vec();
        if is_leaving {
            communities.push(GRACEFUL_SHUTDOWN);
        }
        communities.sort_unstable();
        communities.dedup();
        let bytes = communities.len().saturating_mul(4).saturating_add(route.large.len().saturating_mul(12));
        (bytes <= MOST_COMMUNITIES).then(|| Attributes {
            local_pref: if is_leaving { Some(0) } else { route.local_pref },
            med: route.med,
            communities: communities.into(),
            large: route.large.clone(),
        })
    }

    fn write(&self, manner: &RouteEncoding, next_hop: IpAddr) -> Vec<u8> {
        let mut all = Vec::new();
        attribute(TRANSITIVE, ORIGIN, &[0], &mut all);
        let path = |number: &[u8]| match manner.is_internal {
            true => Vec::new(),
            false => [&[AS_SEQUENCE, 1], number].concat(),
        };
        let long = path(&manner.local_as.to_be_bytes());
        let short = u16::try_from(manner.local_as);
        if manner.has_four_byte_as {
            attribute(TRANSITIVE, AS_PATH, &long, &mut all);
        } else {
            attribute(TRANSITIVE, AS_PATH, &path(&short.unwrap_or(AS_TRANS).to_be_bytes()), &mut all);
        }
        if let IpAddr::V4(next_hop) = next_hop {
            attribute(TRANSITIVE, NEXT_HOP, &next_hop.octets(), &mut all);
        }
        if let Some(med) = self.med {
            attribute(OPTIONAL, MED, &med.to_be_bytes(), &mut all);
        }
        if manner.is_internal {
            let preference = self.local_pref.unwrap_or(PREFERENCE);
            attribute(TRANSITIVE, LOCAL_PREF, &preference.to_be_bytes(), &mut all);
        }
        if !self.communities.is_empty() {
            let bytes: Vec<u8> = self.communities.iter().flat_map(|it| it.to_be_bytes()).collect();
            attribute(OPTIONAL | TRANSITIVE, COMMUNITIES, &bytes, &mut all);
        }
        if !manner.has_four_byte_as && short.is_err() && !manner.is_internal {
            attribute(OPTIONAL | TRANSITIVE, AS4_PATH, &long, &mut all);
        }
        if !self.large.is_empty() {
            let bytes: Vec<u8> = self.large.iter().flatten().flat_map(|it| it.to_be_bytes()).collect();
            attribute(OPTIONAL | TRANSITIVE, LARGE_COMMUNITIES, &bytes, &mut all);
        }
        all
    }
}

fn attribute(flags: u8, kind: u8, value: &[u8], all: &mut Vec<u8>) {
    let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
    match u8::try_from(length) {
        Ok(length) => all.extend([flags, kind, length]),
        Err(_) => {
            all.extend([flags | EXTENDED, kind]);
            all.extend(length.to_be_bytes());
        }
    }
    all.extend_from_slice(value);
}

fn prefix(prefix: &IpNet) -> Vec<u8> {
    let length = prefix.prefix_len();
    let octets = match prefix.network() {
        IpAddr::V4(it) => it.octets().to_vec(),
        IpAddr::V6(it) => it.octets().to_vec(),
    };
    let significant = octets.into_iter().take(usize::from(length.div_ceil(8)));
    [length].into_iter().chain(significant).collect()
}

/// As many prefixes as fit with `fixed` bytes beside them, in each message.
fn packed(prefixes: &[IpNet], fixed: usize, mut message: impl FnMut(&[u8])) {
    let room = MOST.saturating_sub(HEADER).saturating_sub(fixed);
    let mut part = Vec::new();
    for one in prefixes.iter().map(prefix) {
        if part.len().saturating_add(one.len()) > room {
            message(&part);
            part.clear();
        }
        part.extend(one);
    }
    if !part.is_empty() {
        message(&part);
    }
}

/// Prefixes of one family with the same attributes. Without a next hop nothing is said.
pub(crate) fn announce(
    prefixes: &[IpNet],
    family: Family,
    attributes: &Attributes,
    manner: &RouteEncoding,
    out: &mut Vec<u8>,
) {
    let Some(next_hop) = manner.next_hop(family) else { return };
    let all = attributes.write(manner, next_hop);
    let IpAddr::V6(next_hop) = next_hop else {
        packed(prefixes, all.len().saturating_add(4), |part| {
            write(UPDATE, &[&[0, 0], &length(all.len()), &all, part], out);
        });
        return;
    };
    let [high, low] = family.afi().to_be_bytes();
    let head = [&[high, low, SAFI_UNICAST, 16][..], &next_hop.octets(), &[0]].concat();
    packed(prefixes, all.len().saturating_add(head.len()).saturating_add(8), |part| {
        let mut reach = Vec::new();
        attribute(OPTIONAL, MP_REACH, &[&head, part].concat(), &mut reach);
        write(UPDATE, &[&[0, 0], &length(reach.len().saturating_add(all.len())), &reach, &all], out);
    });
}

pub(crate) fn withdraw(prefixes: &[IpNet], family: Family, out: &mut Vec<u8>) {
    match family {
        Family::V4 => packed(prefixes, 4, |part| {
            write(UPDATE, &[&length(part.len()), part, &[0, 0]], out);
        }),
        Family::V6 => packed(prefixes, 11, |part| unreachable(family, part, out)),
    }
}

/// All routes of a family were said (RFC 4724).
pub(crate) fn end_of_rib(family: Family, out: &mut Vec<u8>) {
    match family {
        Family::V4 => write(UPDATE, &[&[0; 4]], out),
        Family::V6 => unreachable(family, &[], out),
    }
}

fn unreachable(family: Family, prefixes: &[u8], out: &mut Vec<u8>) {
    let [high, low] = family.afi().to_be_bytes();
    let mut all = Vec::new();
    attribute(OPTIONAL, MP_UNREACH, &[&[high, low, SAFI_UNICAST], prefixes].concat(), &mut all);
    write(UPDATE, &[&[0, 0], &length(all.len()), &all], out);
}

fn length(bytes: usize) -> [u8; 2] {
    u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes()
}

/// How many prefixes are announced. Only what makes it impossible to tell where prefixes are ends the session (RFC 7606); all
/// else is wrong with routes that are dropped anyway.
pub(super) fn read(body: &[u8]) -> Result<u32, Notification> {
    let mut body = Reader(body);
    let withdrawn = body.long().ok_or(Notification::MALFORMED_ATTRIBUTES)?;
    let mut attributes = body.long().ok_or(Notification::MALFORMED_ATTRIBUTES)?;
    count(withdrawn, Family::V4).ok_or(Notification::BAD_PREFIXES)?;
    let mut prefixes = count(body, Family::V4).ok_or(Notification::BAD_PREFIXES)?;
    // Attributes end where one does not fit: the routes are withdrawn, not the session.
    while let Some((kind, mut value)) = next_attribute(&mut attributes) {
        if kind != MP_REACH {
            continue;
        }
        let mut head = || Some((value.u16()?, value.u8()?, value.short()?, value.u8()?));
        if let Some((afi, safi, ..)) = head()
            && let Some(family) = Family::read(afi, safi)
        {
            prefixes = prefixes.saturating_add(count(value, family).unwrap_or(0));
        }
    }
    Ok(prefixes)
}

pub(super) fn next_attribute<'a>(all: &mut Reader<'a>) -> Option<(u8, Reader<'a>)> {
    let (flags, kind) = (all.u8()?, all.u8()?);
    let value = if flags & EXTENDED != 0 { all.long()? } else { all.short()? };
    Some((kind, value))
}

fn count(mut all: Reader<'_>, family: Family) -> Option<u32> {
    let mut count = 0_u32;
    while !all.is_empty() {
        let length = all.u8().filter(|it| *it <= family.bits())?;
        all.take(length.div_ceil(8).into())?;
        count = count.saturating_add(1);
    }
    Some(count)
}
