//! The PROXY protocol, versions 1 and 2: how a proxy tells the next one who the client was.
//!
//! Follows `doc/proxy-protocol.txt` of HAProxy. A header must stand at the very start of a
//! connection (or, in version 2, of a datagram), whole, before any other byte.

mod crc32c;
mod v1;
mod v2;

use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6};

pub use v2::{Tlv, Tlvs};

/// The most bytes that a version 1 line has, its CRLF included.
pub const V1_MAX: usize = 107;

/// The most bytes that a version 2 header may have unless the caller says otherwise: room for
/// every TLV in use, a small multiple of what a connection costs anyway.
pub const V2_LIMIT: usize = 4096;

/// Reads a header at the start of `bytes`, with [`V2_LIMIT`].
pub fn parse(bytes: &[u8]) -> Parsed<'_> {
    parse_within(bytes, V2_LIMIT)
}

/// Reads a header at the start of `bytes`. A version 2 header that announces more than `limit`
/// bytes in total is refused as soon as its length is known.
pub fn parse_within(bytes: &[u8], limit: usize) -> Parsed<'_> {
    let verdict = match bytes.first() {
        None => return Parsed::Need(v1::SHORTEST),
        Some(b'P') => v1::parse(bytes),
        Some(_) => v2::parse(bytes, limit),
    };
    verdict.unwrap_or_else(Parsed::Invalid)
}

/// Appends the header that says `origin`.
///
/// Version 1 knows neither datagrams nor the proxy's own connections: both become `UNKNOWN`, with
/// which a receiver uses the addresses of the connection itself.
pub fn encode(version: Version, origin: &Origin, out: &mut Vec<u8>) {
    encode_with(version, origin, Tlvs::NONE, out);
}

/// Like [`encode`], with the TLVs of a header that was received. Version 1 has no place for them,
/// and neither have origins without addresses; those that do not fit are left out. A checksum among
/// them holds only for an unchanged origin.
pub fn encode_with(version: Version, origin: &Origin, tlvs: Tlvs<'_>, out: &mut Vec<u8>) {
    match version {
        Version::V1 => v1::encode(origin, out),
        Version::V2 => v2::encode(origin, tlvs, out),
    }
}

/// What the bytes so far amount to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed<'a> {
    /// No verdict before at least this many further bytes.
    Need(usize),
    Header(Header<'a>),
    Invalid(Invalid),
}

/// A whole and valid header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    pub version: Version,
    pub origin: Origin,
    pub tlvs: Tlvs<'a>,
    /// How many bytes the header had; what follows belongs to the client.
    pub length: usize,
}

impl Header<'_> {
    pub fn command(&self) -> Command {
        match self.origin {
            Origin::Local => Command::Local,
            Origin::Unknown | Origin::Forwarded(_) => Command::Proxy,
        }
    }

    /// The client, where the header names one; else the peer of the connection counts.
    pub fn source(&self) -> Option<SocketAddr> {
        self.forwarded().map(Forwarded::source)
    }

    /// The address that the client asked for.
    pub fn destination(&self) -> Option<SocketAddr> {
        self.forwarded().map(Forwarded::destination)
    }

    pub fn transport(&self) -> Option<Transport> {
        self.forwarded().map(|forwarded| forwarded.transport)
    }

    fn forwarded(&self) -> Option<&Forwarded> {
        match &self.origin {
            Origin::Forwarded(forwarded) => Some(forwarded),
            Origin::Local | Origin::Unknown => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    V1,
    V2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    Local,
    Proxy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    Stream,
    Datagram,
}

/// For whom a connection was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// For the proxy itself, as a health check is.
    Local,
    /// For somebody whose address cannot be told: `UNKNOWN`, an unspecified family, a UNIX socket.
    Unknown,
    Forwarded(Forwarded),
}

/// For a client with an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Forwarded {
    pub transport: Transport,
    ends: Endpoints,
}

/// Both ends of a connection; a header has no room for two families.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Endpoints {
    V4 { source: SocketAddrV4, destination: SocketAddrV4 },
    V6 { source: SocketAddrV6, destination: SocketAddrV6 },
}

impl Forwarded {
    /// IPv4 addresses as a dual-stack socket shows them (`::ffff:192.0.2.1`) count as IPv4; with
    /// one end in each family, both are told as IPv6.
    pub fn new(transport: Transport, source: SocketAddr, destination: SocketAddr) -> Forwarded {
        let ends = match (source.ip().to_canonical(), destination.ip().to_canonical()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => Endpoints::V4 {
                source: SocketAddrV4::new(from, source.port()),
                destination: SocketAddrV4::new(to, destination.port()),
            },
            _ => Endpoints::V6 { source: as_v6(source), destination: as_v6(destination) },
        };
        Forwarded { transport, ends }
    }

    pub fn source(&self) -> SocketAddr {
        match self.ends {
            Endpoints::V4 { source, .. } => source.into(),
            Endpoints::V6 { source, .. } => source.into(),
        }
    }

    pub fn destination(&self) -> SocketAddr {
        match self.ends {
            Endpoints::V4 { destination, .. } => destination.into(),
            Endpoints::V6 { destination, .. } => destination.into(),
        }
    }
}

/// Scope and flow label do not travel in a header.
fn as_v6(at: SocketAddr) -> SocketAddrV6 {
    let ip = match at.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    SocketAddrV6::new(ip, at.port(), 0, 0)
}

/// Why bytes are no PROXY header; the connection is to be closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Invalid {
    #[error("the header begins with neither `PROXY ` nor the signature of version 2")]
    NoHeader,
    #[error("a line of version 1 must end with CRLF, and contain no other CR or LF")]
    LineEnding,
    #[error("a line of version 1 must end within {V1_MAX} bytes")]
    LineTooLong,
    #[error("the protocol of version 1 must be TCP4, TCP6 or UNKNOWN")]
    Protocol,
    #[error("version 1 needs exactly two addresses and two ports, with one space between them")]
    Fields,
    #[error("an address is not of the announced family")]
    Address,
    #[error("a port is not a plain number from 0 to 65535")]
    Port,
    #[error("the version after the signature must be 2")]
    Version,
    #[error("the command must be LOCAL or PROXY")]
    Command,
    #[error("the address family or the transport is a reserved one")]
    Family,
    #[error("the announced length is too short for the addresses of the family")]
    TooShort,
    #[error("the announced length exceeds the limit")]
    TooLong,
    #[error("the TLVs do not fill the announced length exactly")]
    Tlv,
    #[error("the checksum does not match")]
    Checksum,
}

#[cfg(test)]
mod tests;
