//! BGP messages as bytes (RFC 4271).

#[cfg(test)]
pub(crate) mod decoded;
pub(crate) mod notification;
pub(crate) mod open;
mod reader;
pub(crate) mod update;

pub(crate) use notification::Notification;
pub(crate) use open::{GracefulRestart, Open};
pub(crate) use update::{Attributes, RouteEncoding};

use ipnet::IpNet;
use reader::Reader;

use seaway_model::bgp::PeerFamilies;

pub(crate) const MOST: usize = 4096;
const HEADER: usize = 19;
const MARKER: [u8; 16] = [0xff; 16];
const SAFI_UNICAST: u8 = 1;

const OPEN: u8 = 1;
const UPDATE: u8 = 2;
const NOTIFICATION: u8 = 3;
const KEEPALIVE: u8 = 4;
const ROUTE_REFRESH: u8 = 5;

/// Of unicast routes; all others are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    V4,
    V6,
}

impl Family {
    pub(crate) const ALL: [Family; 2] = [Family::V4, Family::V6];

    pub(crate) fn of(prefix: &IpNet) -> Family {
        if matches!(prefix, IpNet::V4(_)) { Family::V4 } else { Family::V6 }
    }

    fn afi(self) -> u16 {
        match self {
            Family::V4 => 1,
            Family::V6 => 2,
        }
    }

    fn read(afi: u16, safi: u8) -> Option<Family> {
        let of_afi = |it: &Family| it.afi() == afi;
        Family::ALL.into_iter().find(of_afi).filter(|_| safi == SAFI_UNICAST)
    }

    pub(crate) fn is_in(self, families: PeerFamilies) -> bool {
        match self {
            Family::V4 => families.v4,
            Family::V6 => families.v6,
        }
    }

    pub(crate) fn all(families: PeerFamilies) -> impl Iterator<Item = Family> {
        Family::ALL.into_iter().filter(move |it| it.is_in(families))
    }

    pub(crate) fn add_to(self, families: &mut PeerFamilies) {
        match self {
            Family::V4 => families.v4 = true,
            Family::V6 => families.v6 = true,
        }
    }

    fn bits(self) -> u8 {
        match self {
            Family::V4 => 32,
            Family::V6 => 128,
        }
    }
}

/// What a peer said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Open(Open),
    /// How many prefixes it announces; which, is not kept.
    Update {
        prefixes: u32,
    },
    Notification(Notification),
    KeepAlive,
    /// All routes of a family again (RFC 2918); nothing to us where the family is not ours.
    RouteRefresh(Option<Family>),
}

/// The first message, and its length; `None` where there is more to come. What is malformed so that the session cannot go on is
/// the notification that the peer gets for it.
pub(crate) fn read(bytes: &[u8]) -> Result<Option<(Message, usize)>, Notification> {
    let Some(header) = bytes.first_chunk::<HEADER>() else {
        let begins = bytes.iter().zip(MARKER).all(|(byte, of_marker)| *byte == of_marker);
        return if begins { Ok(None) } else { Err(Notification::NOT_SYNCHRONIZED) };
    };
    let [marker @ .., high, low, kind] = header;
    if *marker != MARKER {
        return Err(Notification::NOT_SYNCHRONIZED);
    }
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    let is_bad = match *kind {
        OPEN => length < 29,
        UPDATE => length < 23,
        NOTIFICATION => length < 21,
        KEEPALIVE => length != HEADER,
        ROUTE_REFRESH => length < 23,
        _ => return Err(Notification::with(1, 3, &[*kind])),
    };
    if is_bad || length > MOST {
        return Err(Notification::with(1, 2, &[*high, *low]));
    }
    let Some(body) = bytes.get(HEADER..length) else { return Ok(None) };
    let message = match *kind {
        OPEN => Message::Open(Open::read(body)?),
        UPDATE => Message::Update { prefixes: update::read(body)? },
        NOTIFICATION => Message::Notification(Notification::read(body)),
        KEEPALIVE => Message::KeepAlive,
        _ => {
            let mut body = Reader(body);
            let (afi, _, safi) = (body.u16().unwrap_or(0), body.u8().unwrap_or(0), body.u8().unwrap_or(0));
            Message::RouteRefresh(Family::read(afi, safi))
        }
    };
    Ok(Some((message, length)))
}

/// One message of ours. What does not fit is never made.
fn write(kind: u8, body: &[&[u8]], out: &mut Vec<u8>) {
    let length: usize = body.iter().map(|it| it.len()).sum::<usize>().saturating_add(HEADER);
    debug_assert!(length <= MOST, "{length} bytes");
    out.extend_from_slice(&MARKER);
    out.extend_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
    out.push(kind);
    body.iter().for_each(|it| out.extend_from_slice(it));
}

pub(crate) fn keep_alive(out: &mut Vec<u8>) {
    write(KEEPALIVE, &[], out);
}
