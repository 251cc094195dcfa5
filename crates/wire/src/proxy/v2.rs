//! Version 2: sixteen fixed bytes, addresses, and TLVs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};

use super::{Endpoints, Forwarded, Header, Invalid, Origin, Parsed, Transport, Version, crc32c};

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, version and command, family and transport, length of the rest.
const FIXED: usize = 16;
const V4_ROOM: usize = 12;
const V6_ROOM: usize = 36;
const UNIX_ROOM: usize = 216;
/// A TLV of this kind holds the checksum of the whole header, itself taken as zeros.
const CRC32C: u8 = 0x03;

pub(super) fn parse(bytes: &[u8], limit: usize) -> Result<Parsed<'_>, Invalid> {
    // Each byte is judged as soon as it is there: whoever speaks something else is not waited for.
    if bytes.iter().zip(SIGNATURE).any(|(is, wanted)| is != wanted) {
        return Err(Invalid::NoHeader);
    }
    let Some(local) = bytes.get(12).map(|byte| is_local(*byte)).transpose()? else {
        return Ok(Parsed::Need(FIXED.saturating_sub(bytes.len())));
    };
    let Some(family) = bytes.get(13).map(|byte| family(*byte, local)).transpose()? else {
        return Ok(Parsed::Need(FIXED.saturating_sub(bytes.len())));
    };
    let Some(&[high, low]) = bytes.get(14..FIXED) else {
        return Ok(Parsed::Need(FIXED.saturating_sub(bytes.len())));
    };
    let announced = usize::from(u16::from_be_bytes([high, low]));
    let length = FIXED.saturating_add(announced);
    if announced < family.room() {
        return Err(Invalid::TooShort);
    }
    if length > limit {
        return Err(Invalid::TooLong);
    }
    let Some(header) = bytes.get(..length) else {
        return Ok(Parsed::Need(length.saturating_sub(bytes.len())));
    };
    let rooms = header.get(FIXED..).unwrap_or_default();
    let (origin, tlvs) = match family {
        Family::Ignored => (Origin::Local, Tlvs::NONE),
        Family::Unknown { .. } => (Origin::Unknown, Tlvs::NONE),
        Family::V4(transport) => {
            let (room, rest) = rooms.split_first_chunk::<V4_ROOM>().ok_or(Invalid::TooShort)?;
            (forwarded(transport, v4(room)), Tlvs::checked(rest, header)?)
        }
        Family::V6(transport) => {
            let (room, rest) = rooms.split_first_chunk::<V6_ROOM>().ok_or(Invalid::TooShort)?;
            (forwarded(transport, v6(room)), Tlvs::checked(rest, header)?)
        }
    };
    Ok(Parsed::Header(Header { version: Version::V2, origin, tlvs, length }))
}

pub(super) fn encode(origin: &Origin, tlvs: Tlvs<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(SIGNATURE);
    let forwarded = match origin {
        Origin::Local => return out.extend_from_slice(&[0x20, 0, 0, 0]),
        Origin::Unknown => return out.extend_from_slice(&[0x21, 0, 0, 0]),
        Origin::Forwarded(forwarded) => forwarded,
    };
    let (from, to) = (forwarded.source(), forwarded.destination());
    let transport = match forwarded.transport {
        Transport::Stream => 1,
        Transport::Datagram => 2,
    };
    let (family, room) = if from.is_ipv4() { (0x10, V4_ROOM as u16) } else { (0x20, V6_ROOM as u16) };
    // The TLVs of a header with IPv4 addresses may leave no room for IPv6 ones.
    let fits = u16::try_from(tlvs.0.len()).ok().and_then(|it| it.checked_add(room));
    let (tlvs, length) = fits.map_or((Tlvs::NONE, room), |length| (tlvs, length));
    out.extend_from_slice(&[0x21, family | transport]);
    out.extend_from_slice(&length.to_be_bytes());
    for end in [from, to] {
        match end.ip() {
            IpAddr::V4(ip) => out.extend_from_slice(&ip.octets()),
            IpAddr::V6(ip) => out.extend_from_slice(&ip.octets()),
        }
    }
    out.extend_from_slice(&from.port().to_be_bytes());
    out.extend_from_slice(&to.port().to_be_bytes());
    out.extend_from_slice(tlvs.0);
}

/// Well-formed TLVs of one header, still as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tlvs<'a>(&'a [u8]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tlv<'a> {
    pub kind: u8,
    pub value: &'a [u8],
}

impl<'a> Tlvs<'a> {
    pub const NONE: Tlvs<'static> = Tlvs(&[]);

    /// Of bytes that are TLVs to the end. A checksum among them is not looked at.
    pub fn of(bytes: &'a [u8]) -> Option<Tlvs<'a>> {
        let mut rest = bytes;
        while !rest.is_empty() {
            (_, rest) = split(rest)?;
        }
        Some(Tlvs(bytes))
    }

    pub fn iter(self) -> impl Iterator<Item = Tlv<'a>> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let (tlv, after) = split(rest)?;
            rest = after;
            Some(tlv)
        })
    }

    fn checked(bytes: &'a [u8], header: &[u8]) -> Result<Tlvs<'a>, Invalid> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let (tlv, after) = split(rest).ok_or(Invalid::Tlv)?;
            if tlv.kind == CRC32C {
                let at = header.len().saturating_sub(after.len()).saturating_sub(tlv.value.len());
                let sum: [u8; 4] = tlv.value.try_into().map_err(|_| Invalid::Tlv)?;
                if crc32c::with_zeros(header, at..at.saturating_add(4)) != u32::from_be_bytes(sum) {
                    return Err(Invalid::Checksum);
                }
            }
            rest = after;
        }
        Ok(Tlvs(bytes))
    }
}

fn split(bytes: &[u8]) -> Option<(Tlv<'_>, &[u8])> {
    let (&[kind, high, low], rest) = bytes.split_first_chunk()?;
    let (value, after) = rest.split_at_checked(usize::from(u16::from_be_bytes([high, low])))?;
    Some((Tlv { kind, value }, after))
}

fn is_local(byte: u8) -> Result<bool, Invalid> {
    match byte {
        0x20 => Ok(true),
        0x21 => Ok(false),
        _ if byte >> 4 != 2 => Err(Invalid::Version),
        _ => Err(Invalid::Command),
    }
}

/// What the addresses are, as far as we care.
enum Family {
    /// With LOCAL the family is to be discarded unread.
    Ignored,
    Unknown {
        room: usize,
    },
    V4(Transport),
    V6(Transport),
}

impl Family {
    fn room(&self) -> usize {
        match self {
            Family::Ignored => 0,
            Family::Unknown { room } => *room,
            Family::V4(_) => V4_ROOM,
            Family::V6(_) => V6_ROOM,
        }
    }
}

fn family(byte: u8, local: bool) -> Result<Family, Invalid> {
    if local {
        return Ok(Family::Ignored);
    }
    let transport = match byte & 0x0f {
        0 => None,
        1 => Some(Transport::Stream),
        2 => Some(Transport::Datagram),
        _ => return Err(Invalid::Family),
    };
    match (byte >> 4, transport) {
        (0, _) => Ok(Family::Unknown { room: 0 }),
        (1, Some(transport)) => Ok(Family::V4(transport)),
        (1, None) => Ok(Family::Unknown { room: V4_ROOM }),
        (2, Some(transport)) => Ok(Family::V6(transport)),
        (2, None) => Ok(Family::Unknown { room: V6_ROOM }),
        (3, _) => Ok(Family::Unknown { room: UNIX_ROOM }),
        _ => Err(Invalid::Family),
    }
}

fn forwarded(transport: Transport, ends: Endpoints) -> Origin {
    Origin::Forwarded(Forwarded { transport, ends })
}

fn v4(room: &[u8; V4_ROOM]) -> Endpoints {
    let [a, b, c, d, e, f, g, h, ports @ ..] = *room;
    let (from, to) = both_ports(ports);
    Endpoints::V4 {
        source: SocketAddrV4::new(Ipv4Addr::from([a, b, c, d]), from),
        destination: SocketAddrV4::new(Ipv4Addr::from([e, f, g, h]), to),
    }
}

fn v6(room: &[u8; V6_ROOM]) -> Endpoints {
    let (addresses, ports) = room.split_last_chunk().unwrap_or((&[], &[0; 4]));
    let (from, to) = both_ports(*ports);
    let ip = |bytes: Option<&[u8; 16]>| bytes.map_or(Ipv6Addr::UNSPECIFIED, |it| Ipv6Addr::from(*it));
    Endpoints::V6 {
        source: SocketAddrV6::new(ip(addresses.first_chunk()), from, 0, 0),
        destination: SocketAddrV6::new(ip(addresses.last_chunk()), to, 0, 0),
    }
}

fn both_ports([a, b, c, d]: [u8; 4]) -> (u16, u16) {
    (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]))
}
