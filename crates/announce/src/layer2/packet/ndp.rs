//! Neighbor solicitations and advertisements of IPv6 (RFC 4861), with all that a receiver has to check.

use std::net::Ipv6Addr;

use super::{ethernet, joined, taken};
use crate::layer2::settings::Mac;

const TYPE: u16 = 0x86dd;
const ICMP: u8 = 58;
/// What came through a router has less: nobody beyond the link can send it.
const HOPS: u8 = 255;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const SOURCE_MAC: u8 = 1;
const TARGET_MAC: u8 = 2;
const SOLICITED: u8 = 0x40;
const OVERRIDE: u8 = 0x20;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// Options of anything that is longer are not worth the time.
const LONGEST: usize = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Solicitation {
    /// Unspecified where who asks wants the address for itself (RFC 4862).
    pub(crate) source: Ipv6Addr,
    pub(crate) target: Ipv6Addr,
    /// Of the frame, or of its option.
    pub(crate) mac: Mac,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Advertisement {
    pub(crate) target: Ipv6Addr,
    pub(crate) is_solicited: bool,
    /// Of the frame, or of its option.
    pub(crate) mac: Mac,
}

impl Solicitation {
    pub(crate) const PROBE: usize = 78;
    const FRAME: usize = 86;

    pub(crate) fn read(frame: &[u8]) -> Option<Solicitation> {
        let packet = Packet::read(frame, SOLICITATION)?;
        let option = packet.mac(SOURCE_MAC)?;
        if packet.source.is_unspecified()
            && (option.is_some() || packet.destination != solicited_node(packet.target))
        {
            return None;
        }
        Some(Solicitation {
            source: packet.source,
            target: packet.target,
            mac: option.unwrap_or(packet.frame_source),
        })
    }

    /// Asks whether anybody has the address, as duplicate address detection does.
    pub(crate) fn probe(mac: Mac, target: Ipv6Addr) -> [u8; Solicitation::PROBE] {
        let group = solicited_node(target);
        written(group_mac(group), mac, Ipv6Addr::UNSPECIFIED, group, [SOLICITATION, 0], target, &[])
    }

    /// "Who has `target`?", asked by who has `source`.
    pub(crate) fn request(mac: Mac, source: Ipv6Addr, target: Ipv6Addr) -> [u8; Solicitation::FRAME] {
        let group = solicited_node(target);
        let option = mac_option(SOURCE_MAC, mac);
        written(group_mac(group), mac, source, group, [SOLICITATION, 0], target, &option)
    }

    /// Our answer, for who asked; to all, where who asked has no address yet.
    pub(crate) fn reply(&self, mac: Mac) -> [u8; Advertisement::FRAME] {
        if self.source.is_unspecified() {
            return Advertisement::unsolicited(mac, self.target);
        }
        advertised(self.mac, mac, self.source, self.target, SOLICITED | OVERRIDE)
    }
}

impl Advertisement {
    pub(crate) const FRAME: usize = 86;

    pub(crate) fn read(frame: &[u8]) -> Option<Advertisement> {
        let packet = Packet::read(frame, ADVERTISEMENT)?;
        let option = packet.mac(TARGET_MAC)?;
        let is_solicited = packet.flags & SOLICITED != 0;
        if packet.source.is_unspecified() || is_solicited && packet.destination.is_multicast() {
            return None;
        }
        Some(Advertisement {
            target: packet.target,
            is_solicited,
            mac: option.unwrap_or(packet.frame_source),
        })
    }

    /// To all: caches are to be overridden.
    pub(crate) fn unsolicited(mac: Mac, target: Ipv6Addr) -> [u8; Advertisement::FRAME] {
        advertised(group_mac(ALL_NODES), mac, ALL_NODES, target, OVERRIDE)
    }
}

/// The group in which those listen who have the address.
pub(crate) fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = address.octets();
    let low = u16::from_be_bytes([b, c]);
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, u16::from_be_bytes([0xff, a]), low)
}

fn group_mac(group: Ipv6Addr) -> Mac {
    let [.., a, b, c, d] = group.octets();
    Mac([0x33, 0x33, a, b, c, d])
}

fn mac_option(kind: u8, mac: Mac) -> [u8; 8] {
    joined(&[&[kind, 1], &mac.0])
}

fn advertised(
    to_mac: Mac,
    mac: Mac,
    to: Ipv6Addr,
    target: Ipv6Addr,
    flags: u8,
) -> [u8; Advertisement::FRAME] {
    written(to_mac, mac, target, to, [ADVERTISEMENT, flags], target, &mac_option(TARGET_MAC, mac))
}

fn written<const N: usize>(
    to_mac: Mac,
    mac: Mac,
    from: Ipv6Addr,
    to: Ipv6Addr,
    [kind, flags]: [u8; 2],
    target: Ipv6Addr,
    option: &[u8],
) -> [u8; N] {
    let length = 24_u16.saturating_add(u16::try_from(option.len()).unwrap_or(0));
    let mut frame = joined(&[
        &to_mac.0,
        &mac.0,
        &TYPE.to_be_bytes(),
        &[0x60, 0, 0, 0],
        &length.to_be_bytes(),
        &[ICMP, HOPS],
        &from.octets(),
        &to.octets(),
        &[kind, 0, 0, 0],
        &[flags, 0, 0, 0],
        &target.octets(),
        option,
    ]);
    set_checksum(&mut frame);
    frame
}

/// As it is to be for what else is in the frame.
pub(crate) fn set_checksum(frame: &mut [u8]) {
    let Some((header, message)) = frame.split_at_mut_checked(54) else { return };
    let address = |at: usize| {
        let bytes = header.get(at..).and_then(|it| it.first_chunk::<16>()).copied();
        Ipv6Addr::from(bytes.unwrap_or_default())
    };
    let (from, to) = (address(22), address(38));
    if let Some(place) = message.get_mut(2..4) {
        place.fill(0);
    }
    let checksum = !sum(from, to, message);
    if let Some(place) = message.get_mut(2..4) {
        place.copy_from_slice(&checksum.to_be_bytes());
    }
}

/// Of the message and its pseudo-header (RFC 4443, 2.3); `0xffff` where the checksum in it is right.
fn sum(from: Ipv6Addr, to: Ipv6Addr, message: &[u8]) -> u16 {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let words = |bytes: &[u8]| {
        let pairs = bytes.chunks(2).map(|pair| match *pair {
            [high, low] => u32::from(u16::from_be_bytes([high, low])),
            [high] => u32::from(u16::from_be_bytes([high, 0])),
            _ => 0,
        });
        pairs.fold(0_u32, u32::wrapping_add)
    };
    let whole = [words(&from.octets()), words(&to.octets()), length, ICMP.into(), words(message)];
    let mut sum = whole.into_iter().fold(0_u32, u32::wrapping_add);
    while let Some(carry) = sum.checked_shr(16).filter(|it| *it != 0) {
        sum = (sum & 0xffff).wrapping_add(carry);
    }
    u16::try_from(sum).unwrap_or(0)
}

/// What both have in common.
struct Packet<'a> {
    frame_source: Mac,
    source: Ipv6Addr,
    destination: Ipv6Addr,
    flags: u8,
    target: Ipv6Addr,
    options: &'a [u8],
}

impl Packet<'_> {
    fn read(frame: &[u8], wanted: u8) -> Option<Packet<'_>> {
        let (_, frame_source, rest) = ethernet(frame, TYPE)?;
        let ([version, _, _, _], rest) = taken::<4>(rest)?;
        let (length, rest) = taken::<2>(rest)?;
        let ([next, hops], rest) = taken::<2>(rest)?;
        let (source, rest) = taken::<16>(rest)?;
        let (destination, rest) = taken::<16>(rest)?;
        let message = rest.get(..u16::from_be_bytes(length).into())?;
        let ([kind, code, _, _, flags, _, _, _], rest) = taken::<8>(message)?;
        let (target, options) = taken::<16>(rest)?;
        let (source, destination) = (Ipv6Addr::from(source), Ipv6Addr::from(destination));
        let target = Ipv6Addr::from(target);
        let is_well = version >> 4 == 6
            && (next, hops) == (ICMP, HOPS)
            && (kind, code) == (wanted, 0)
            && message.len() <= LONGEST
            && frame_source.is_unicast()
            && !source.is_multicast()
            && !target.is_multicast()
            && !target.is_unspecified()
            && sum(source, destination, message) == 0xffff;
        is_well.then_some(Packet { frame_source, source, destination, flags, target, options })
    }

    /// `None` if the options are malformed; `Some(None)` if it is not among them.
    fn mac(&self, wanted: u8) -> Option<Option<Mac>> {
        let mut found = None;
        let mut rest = self.options;
        while !rest.is_empty() {
            let [kind, eights, ..] = *rest else { return None };
            let length = usize::from(eights).checked_mul(8).filter(|it| *it > 0)?;
            let option = rest.get(..length)?;
            if kind == wanted {
                let (mac, _) = taken::<6>(option.get(2..)?)?;
                if length != 8 || !Mac(mac).is_unicast() {
                    return None;
                }
                found.get_or_insert(Mac(mac));
            }
            rest = rest.get(length..)?;
        }
        Some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const THEIRS: Mac = Mac([2, 0, 0, 0, 0, 9]);
    const ADDRESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0x12, 0x3456);
    const CLIENT: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

    /// The same, with another byte somewhere, and a checksum that is right.
    fn with(frame: &[u8], at: usize, value: u8) -> Vec<u8> {
        let mut frame = frame.to_vec();
        frame[at] = value;
        set_checksum(&mut frame);
        frame
    }

    #[test]
    fn a_receiver_adds_the_checksum_up_to_all_ones() {
        // Summed by another way: what a receiver adds up is all ones (RFC 1071).
        let frame = Solicitation::request(
            Mac([0x52, 0x54, 0, 0x12, 0x34, 0x56]),
            "fe80::5054:ff:fe12:3456".parse().expect("an address"),
            "fe80::1".parse().expect("an address"),
        );
        assert_eq!(frame[..6], [0x33, 0x33, 0xff, 0, 0, 1]);
        let mut total = 0_u32;
        let pseudo = [&frame[22..54], &[0, 0, 0, 32, 0, 0, 0, 58][..], &frame[54..]].concat();
        for pair in pseudo.chunks(2) {
            total += u32::from(pair[0]) << 8 | u32::from(pair[1]);
        }
        total = (total & 0xffff) + (total >> 16);
        total = (total & 0xffff) + (total >> 16);
        assert_eq!(total, 0xffff);
    }

    #[test]
    fn a_solicitation_is_answered_to_who_asked_and_a_probe_to_all() {
        let asked = Solicitation::read(&Solicitation::request(THEIRS, CLIENT, ADDRESS)).expect("well");
        assert_eq!(asked, Solicitation { source: CLIENT, target: ADDRESS, mac: THEIRS });
        let answer = asked.reply(OURS);
        assert_eq!((answer[..6].to_vec(), answer[58]), (THEIRS.0.to_vec(), 0x60));
        let read = Advertisement::read(&answer).expect("well");
        assert_eq!(read, Advertisement { target: ADDRESS, is_solicited: true, mac: OURS });

        let probed = Solicitation::read(&Solicitation::probe(THEIRS, ADDRESS)).expect("well");
        assert!(probed.source.is_unspecified());
        let answer = probed.reply(OURS);
        assert_eq!(answer, Advertisement::unsolicited(OURS, ADDRESS));
        assert_eq!((answer[..6].to_vec(), answer[58]), (vec![0x33, 0x33, 0, 0, 0, 1], 0x20));
        assert!(!Advertisement::read(&answer).expect("well").is_solicited);
    }

    #[test]
    fn the_group_has_the_last_three_bytes() {
        assert_eq!(solicited_node(ADDRESS), "ff02::1:ff12:3456".parse::<Ipv6Addr>().expect("an address"));
        assert_eq!(group_mac(solicited_node(ADDRESS)), Mac([0x33, 0x33, 0xff, 0x12, 0x34, 0x56]));
    }

    #[test]
    fn what_is_malformed_is_refused() {
        let good = Solicitation::request(THEIRS, CLIENT, ADDRESS);
        for length in 0..good.len() {
            assert_eq!(Solicitation::read(&good[..length]), None, "{length} bytes");
        }
        for (what, at, value) in [
            ("another type", 12, 8),
            ("another version", 14, 0x40),
            ("another protocol", 20, 17),
            ("through a router", 21, 254),
            ("from a group", 22, 0xff),
            ("a frame from a group", 6, 1),
            ("an advertisement", 54, 136),
            ("another code", 55, 1),
            ("a group as target", 62, 0xff),
            ("an option without length", 79, 0),
            ("an option that is longer than the packet", 79, 2),
            ("a group in the option", 80, 1),
        ] {
            let bad = with(&good, at, value);
            assert_eq!(Solicitation::read(&bad), None, "{what}");
        }
        let mut wrong = good;
        wrong[57] ^= 1;
        assert_eq!(Solicitation::read(&wrong), None, "a wrong checksum");
        assert!(Solicitation::read(&with(&good, 57, 0)).is_some(), "the test writes good checksums");

        let probe = Solicitation::probe(THEIRS, ADDRESS);
        assert_eq!(Solicitation::read(&with(&probe, 53, 1)), None, "to another group than the target's");
        let answer = Solicitation { source: CLIENT, target: ADDRESS, mac: THEIRS }.reply(OURS);
        assert_eq!(Advertisement::read(&with(&answer, 38, 0xff)), None, "solicited, to a group");
    }
}
