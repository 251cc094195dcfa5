//! Version 1: one line of text.

use std::io::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::str::FromStr;

use super::{Endpoints, Forwarded, Header, Invalid, Origin, Parsed, Tlvs, Transport, V1_MAX, Version};

const PREFIX: &[u8] = b"PROXY ";
const UNKNOWN: &[u8] = b"PROXY UNKNOWN\r\n";

/// No valid line is shorter, and neither is a header of version 2.
pub(super) const SHORTEST: usize = UNKNOWN.len();

pub(super) fn parse(bytes: &[u8]) -> Result<Parsed<'_>, Invalid> {
    if bytes.iter().zip(PREFIX).any(|(is, wanted)| is != wanted) {
        return Err(Invalid::NoHeader);
    }
    // Lines are judged when they are whole, so that a verdict does not depend on how they arrived.
    let line = bytes.get(..V1_MAX - 1).unwrap_or(bytes);
    let Some(end) = line.iter().position(|byte| matches!(byte, b'\r' | b'\n')) else {
        return if line.len() >= V1_MAX - 1 {
            Err(Invalid::LineTooLong)
        } else {
            Ok(Parsed::Need(2.max(SHORTEST.saturating_sub(bytes.len()))))
        };
    };
    let (line, ending) = bytes.split_at_checked(end).ok_or(Invalid::LineEnding)?;
    match ending {
        [b'\r', b'\n', ..] => Ok(Parsed::Header(Header {
            version: Version::V1,
            origin: origin(line.strip_prefix(PREFIX).ok_or(Invalid::NoHeader)?)?,
            tlvs: Tlvs::NONE,
            length: end.saturating_add(2),
        })),
        [b'\r'] => Ok(Parsed::Need(1)),
        _ => Err(Invalid::LineEnding),
    }
}

pub(super) fn encode(origin: &Origin, out: &mut Vec<u8>) {
    match origin {
        Origin::Forwarded(forwarded) if forwarded.transport == Transport::Stream => {
            let (from, to) = (forwarded.source(), forwarded.destination());
            let family = if from.is_ipv4() { "TCP4" } else { "TCP6" };
            let (from_port, to_port) = (from.port(), to.port());
            let (from, to) = (from.ip(), to.ip());
            // Writing to a Vec cannot fail.
            let _ = write!(out, "PROXY {family} {from} {to} {from_port} {to_port}\r\n");
        }
        _ => out.extend_from_slice(UNKNOWN),
    }
}

/// What stands between the prefix and the CRLF.
fn origin(line: &[u8]) -> Result<Origin, Invalid> {
    let mut fields = line.split(|byte| *byte == b' ');
    match fields.next() {
        // The spec lets anything follow, and has it ignored.
        Some(b"UNKNOWN") => Ok(Origin::Unknown),
        Some(b"TCP4") => {
            let (from, to, from_port, to_port) = ends::<Ipv4Addr>(fields)?;
            Ok(forwarded(Endpoints::V4 {
                source: SocketAddrV4::new(from, from_port),
                destination: SocketAddrV4::new(to, to_port),
            }))
        }
        Some(b"TCP6") => {
            let (from, to, from_port, to_port) = ends::<Ipv6Addr>(fields)?;
            Ok(forwarded(Endpoints::V6 {
                source: SocketAddrV6::new(from, from_port, 0, 0),
                destination: SocketAddrV6::new(to, to_port, 0, 0),
            }))
        }
        _ => Err(Invalid::Protocol),
    }
}

fn forwarded(ends: Endpoints) -> Origin {
    Origin::Forwarded(Forwarded { transport: Transport::Stream, ends })
}

fn ends<'a, A: FromStr>(mut fields: impl Iterator<Item = &'a [u8]>) -> Result<(A, A, u16, u16), Invalid> {
    let mut field = || fields.next().ok_or(Invalid::Fields);
    let (from, to, from_port, to_port) = (field()?, field()?, field()?, field()?);
    if fields.next().is_some() {
        return Err(Invalid::Fields);
    }
    Ok((address(from)?, address(to)?, port(from_port)?, port(to_port)?))
}

/// The standard library's reading is as strict as the spec's: no leading zeros in IPv4, no zone
/// and exactly 128 bits in IPv6.
fn address<A: FromStr>(field: &[u8]) -> Result<A, Invalid> {
    std::str::from_utf8(field).ok().and_then(|text| text.parse().ok()).ok_or(Invalid::Address)
}

fn port(field: &[u8]) -> Result<u16, Invalid> {
    match field {
        b"0" => Ok(0),
        [b'1'..=b'9', rest @ ..] if rest.len() < 5 => field
            .iter()
            .try_fold(0_u16, |sum, digit| {
                let digit = digit.checked_sub(b'0').filter(|it| *it < 10)?;
                sum.checked_mul(10)?.checked_add(digit.into())
            })
            .ok_or(Invalid::Port),
        _ => Err(Invalid::Port),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_of_digits_alone_and_as_large_as_a_port() {
        for (field, expected) in [("0", 0), ("1", 1), ("99", 99), ("65535", 65_535)] {
            assert_eq!(port(field.as_bytes()).ok(), Some(expected), "{field}");
        }
        for field in ["", "00", "01", "1:", "1/", "-1", "65536", "100000", "18446744073709551617"] {
            assert!(port(field.as_bytes()).is_err(), "{field}");
        }
    }
}
