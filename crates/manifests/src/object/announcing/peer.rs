//! BGPPeer: whom a host connects to.
//!
//! ```yaml
//! spec:
//!   myASN: 64512
//!   peerASN: 64513                 # or dynamicASN: internal | external
//!   peerAddress: 192.0.2.1         # or interface: eth1 (unnumbered)
//!   peerPort: 179
//!   sourceAddress: 192.0.2.2
//!   holdTime: 90s                  # keepaliveTime: a third of it; connectTime: 10s
//!   passwordSecret: {name: tor-a}  # its key `password`
//!   ebgpMultiHop: true             # or gtsmHops: 1
//!   bfdProfile: fast
//!   enableGracefulRestart: true
//!   hostSelectors: []              # MetalLB's: nodeSelectors
//!   routerID: 192.0.2.2
//!   nextHops: {ipv4: 192.0.2.2, ipv6: "2001:db8::2"}
//!   families: [ipv4, ipv6]         # MetalLB's: dualStackAddressFamily
//! ```

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use seaway_model::{
    Fact, Kind, ObjectRef,
    bgp::{NextHops, PeerAddress, PeerDistance, PeerFamilies, RemoteAs},
    fact::{AnnouncementSpec, BgpPeer},
};

use super::made;
use crate::{
    decode::Field,
    object::{formats, meta::check_rule, pool::selectors},
};

/// RFC 4271; MetalLB has the same.
const HOLD: Duration = Duration::from_secs(90);
const LEAST_HOLD: Duration = Duration::from_secs(3);
const LONGEST: Duration = Duration::from_secs(65_535);
const CONNECT: Duration = Duration::from_secs(10);
/// How long a peer keeps the routes of a host that restarts, at most.
const RESTART: Duration = Duration::from_secs(120);
/// A TTL for peers that may be anywhere.
const ANYWHERE: u8 = 255;

pub(crate) fn bgp_peer(root: &Field<'_>) -> Option<Vec<Fact>> {
    read(root, Kind::BGPPeer)
}

pub(crate) fn metallb_bgp_peer(root: &Field<'_>) -> Option<Vec<Fact>> {
    read(root, Kind::MetallbBGPPeer)
}

fn read(root: &Field<'_>, kind: Kind) -> Option<Vec<Fact>> {
    let spec = root.child("spec");
    let is_of_metallb = kind.is_of_metallb();
    let own = spec.child("myASN");
    if own.is_missing() {
        own.required("the AS number of the hosts");
    }
    let local_as = as_number(&own);
    let remote_as = remote_as(&spec);
    let to = address(&spec);
    let (hold, keepalive, connect_retry) = times(&spec, is_of_metallb);
    let hops = hops(&spec, local_as, remote_as, is_of_metallb);
    let bfd = spec.child("bfdProfile");
    let bfd = bfd.name().inspect(|name| check_rule(&bfd, name, formats::dns1123_subdomain)).map(Into::into);
    let restarts = spec.child("enableGracefulRestart").bool().unwrap_or(false);
    let host_selectors =
        selectors(&spec.child(if is_of_metallb { "nodeSelectors" } else { "hostSelectors" }));
    let (next_hops, families) = match is_of_metallb {
        true => (NextHops::default(), metallb_families(&spec, to.as_ref())),
        false => (next_hops(&spec), families(&spec)),
    };
    let password = password(root, &spec, is_of_metallb);
    if is_of_metallb {
        unsupported(&spec);
    }
    let router_id = v4(&spec.child("routerID"));
    let peer = (|| {
        Some(BgpPeer {
            to: to?,
            local_as: local_as?,
            remote_as: remote_as?,
            router_id,
            hold,
            keepalive,
            connect_retry,
            password,
            hops,
            graceful_restart: restarts.then_some(RESTART),
            bfd,
            next_hops,
            families,
            host_selectors,
        })
    })();
    made(root, kind, peer.map(AnnouncementSpec::BgpPeer))
}

fn as_number(field: &Field<'_>) -> Option<u32> {
    field.integer_within(1, i64::from(u32::MAX))
}

fn remote_as(spec: &Field<'_>) -> Option<RemoteAs> {
    let (number, word) = (spec.child("peerASN"), spec.child("dynamicASN"));
    // MetalLB's API server fills in 0 for none.
    let number_is_set = number.is_set() && !is_zero(&number);
    match (number_is_set, word.is_missing()) {
        (true, true) => as_number(&number).map(RemoteAs::Number),
        (false, false) => word.one_of(&[("internal", RemoteAs::Internal), ("external", RemoteAs::External)]),
        (true, false) => {
            word.forbidden("may not be set together with `peerASN`");
            None
        }
        (false, true) => {
            number.required("the peer's AS number, or `dynamicASN`");
            None
        }
    }
}

fn is_zero(field: &Field<'_>) -> bool {
    field.node().is_some_and(|it| matches!(it.value, crate::tree::Value::Int(0)))
}

fn address(spec: &Field<'_>) -> Option<PeerAddress> {
    let (address, interface) = (spec.child("peerAddress"), spec.child("interface"));
    let (port, source) = (spec.child("peerPort"), spec.child("sourceAddress"));
    let port = if is_zero(&port) { None } else { port.port() };
    let source_ip = if source.is_missing() { None } else { source.ip() };
    match (address.is_missing(), interface.is_missing()) {
        (false, true) => {
            let ip = address.ip()?;
            if ip.is_unspecified() || ip.is_multicast() {
                address.invalid(&*ip.to_string(), "must be the address of one machine");
                return None;
            }
            if matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local()) {
                address.invalid(&*ip.to_string(), "is a link-local address: set `interface` instead");
                return None;
            }
            if source_ip.is_some_and(|it| it.is_ipv4() != ip.is_ipv4()) {
                source.invalid(
                    source.text().unwrap_or_default(),
                    "must be of the same family as `peerAddress`",
                );
                return None;
            }
            Some(PeerAddress::Ip { address: ip, port: port.unwrap_or(179), source: source_ip })
        }
        (true, false) => {
            let name = interface.name()?;
            check_rule(&interface, name, formats::interface);
            if source.is_set() && !source.is_missing() {
                source.forbidden("may not be set together with `interface`");
            }
            Some(PeerAddress::Interface(name.into()))
        }
        (false, false) => {
            interface.forbidden("may not be set together with `peerAddress`");
            None
        }
        (true, true) => {
            address.required("the peer's address, or `interface`");
            None
        }
    }
}

fn times(spec: &Field<'_>, is_of_metallb: bool) -> (Duration, Option<Duration>, Duration) {
    let within = |key, least: Duration| {
        let field = spec.child(key);
        // MetalLB's manifests write 0s for none.
        let time = field.duration().filter(|it| !(is_of_metallb && it.is_zero()));
        if time.is_some_and(|it| it < least || it > LONGEST || it.subsec_nanos() != 0) {
            let why = format!("must be whole seconds, from {} to 65535", least.as_secs());
            field.invalid(field.text().unwrap_or_default(), &why);
        }
        time
    };
    let hold = within("holdTime", LEAST_HOLD).unwrap_or(HOLD);
    let keepalive = within("keepaliveTime", Duration::from_secs(1));
    if keepalive.is_some_and(|it| it >= hold) {
        let field = spec.child("keepaliveTime");
        field.invalid(field.text().unwrap_or_default(), "must be less than `holdTime`");
    }
    (hold, keepalive, within("connectTime", Duration::from_secs(1)).unwrap_or(CONNECT))
}

fn hops(spec: &Field<'_>, local: Option<u32>, remote: Option<RemoteAs>, is_of_metallb: bool) -> PeerDistance {
    let multihop = spec.child("ebgpMultiHop").bool().unwrap_or(false);
    if !is_of_metallb {
        let field = spec.child("gtsmHops");
        let gtsm: Option<u8> = field.integer_within(1, 254);
        if gtsm.is_some() && multihop {
            field.forbidden(
                "may not be set together with `ebgpMultiHop`: it says how far away the peer may be",
            );
        }
        if let Some(hops) = gtsm {
            return PeerDistance::Security(hops);
        }
    }
    let is_internal = match remote {
        Some(RemoteAs::Internal) => true,
        Some(RemoteAs::Number(number)) => Some(number) == local,
        Some(RemoteAs::External) | None => false,
    };
    if multihop && is_internal {
        spec.child("ebgpMultiHop")
            .forbidden("may not be set for iBGP: an iBGP peer may be any number of hops away without it");
    }
    if multihop || is_internal { PeerDistance::Multihop(ANYWHERE) } else { PeerDistance::Direct }
}

fn password(root: &Field<'_>, spec: &Field<'_>, is_of_metallb: bool) -> Option<ObjectRef> {
    let secret = spec.child("passwordSecret");
    let (name, namespace) = (secret.child("name"), secret.child("namespace"));
    if is_of_metallb {
        let plain = spec.child("password").redacted();
        if !plain.is_missing() {
            plain.forbidden(
                "Seaway reads no passwords from BGPPeers, which many may read: set `passwordSecret`",
            );
        }
        // MetalLB's CRD has both as an empty object.
        if name.is_missing() {
            return None;
        }
        let own = root.child("metadata").child("namespace").name().unwrap_or("default").to_owned();
        let of = namespace.name().map_or(own, str::to_owned);
        return Some(ObjectRef::new(Kind::Secret, of, name.name()?));
    }
    if !secret.is_set() {
        return None;
    }
    if name.is_missing() {
        name.required("the name of a Secret with the key `password`");
    }
    let text = name.name()?;
    check_rule(&name, text, formats::dns1123_subdomain);
    Some(ObjectRef::new(Kind::Secret, "", text))
}

/// What would change the session, and is not built.
fn unsupported(spec: &Field<'_>) {
    let vrf = spec.child("vrf");
    if !vrf.is_missing() {
        vrf.forbidden("Seaway connects from the host's main network only, from no VRF");
    }
    let local = spec.child("localASN");
    if local.is_set() && !is_zero(&local) {
        local.forbidden("Seaway has one AS number in a session, `myASN`");
    }
    let _deprecated = spec.child("disableMP").bool();
}

fn metallb_families(spec: &Field<'_>, to: Option<&PeerAddress>) -> PeerFamilies {
    let both = spec.child("dualStackAddressFamily").bool().unwrap_or(false);
    match to {
        Some(PeerAddress::Ip { address, .. }) if !both => {
            PeerFamilies { v4: address.is_ipv4(), v6: address.is_ipv6() }
        }
        _ => PeerFamilies { v4: true, v6: true },
    }
}

fn families(spec: &Field<'_>) -> PeerFamilies {
    let list = spec.child("families");
    let mut families = PeerFamilies { v4: false, v6: false };
    for item in list.items() {
        match item.one_of(&[("ipv4", true), ("ipv6", false)]) {
            Some(true) if families.v4 => item.duplicate("ipv4"),
            Some(false) if families.v6 => item.duplicate("ipv6"),
            Some(true) => families.v4 = true,
            Some(false) => families.v6 = true,
            None => {}
        }
    }
    if list.items().len() == 0 { PeerFamilies { v4: true, v6: true } } else { families }
}

fn next_hops(spec: &Field<'_>) -> NextHops {
    let hops = spec.child("nextHops");
    let v6 = hops.child("ipv6");
    let second = match v6.ip() {
        Some(IpAddr::V6(ip)) => Some(ip),
        Some(IpAddr::V4(ip)) => {
            v6.invalid(&*ip.to_string(), "must be an IPv6 address");
            None
        }
        None => None,
    };
    NextHops { v4: v4(&hops.child("ipv4")), v6: second }
}

fn v4(field: &Field<'_>) -> Option<Ipv4Addr> {
    if field.is_missing() {
        return None;
    }
    match field.ip()? {
        IpAddr::V4(ip) if !ip.is_unspecified() => Some(ip),
        ip => {
            field.invalid(&*ip.to_string(), "must be an IPv4 address");
            None
        }
    }
}
