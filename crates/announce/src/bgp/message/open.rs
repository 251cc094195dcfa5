//! Who a speaker is, and what it can.

use std::net::Ipv4Addr;

use seaway_model::bgp::PeerFamilies;

use super::{Family, Notification, OPEN, Reader, SAFI_UNICAST, write};

const VERSION: u8 = 4;
/// What a number of four bytes is where there is room for two (RFC 6793).
pub(crate) const AS_TRANS: u16 = 23456;

const CAPABILITIES: u8 = 2;
const MULTIPROTOCOL: u8 = 1;
const REFRESH: u8 = 2;
const EXTENDED_NEXT_HOP: u8 = 5;
const GRACEFUL_RESTART: u8 = 64;
const FOUR_BYTE_AS: u8 = 65;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Open {
    pub(crate) number: u32,
    /// In seconds; 0 is without.
    pub(crate) hold: u16,
    pub(crate) id: Ipv4Addr,
    /// IPv4 alone, of a peer that does not say it.
    pub(crate) families: PeerFamilies,
    pub(crate) has_four_byte_as: bool,
    /// Next hops of IPv6 for IPv4 (RFC 8950).
    pub(crate) has_extended_next_hop: bool,
    pub(crate) has_refresh: bool,
    pub(crate) graceful: Option<GracefulRestart>,
}

/// RFC 4724.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GracefulRestart {
    pub(crate) is_restarting: bool,
    /// In seconds, of twelve bits.
    pub(crate) time: u16,
    /// Routes of these are kept.
    pub(crate) families: PeerFamilies,
    /// What was forwarded before the restart still is.
    pub(crate) is_forwarding: bool,
}

const NONE: PeerFamilies = PeerFamilies { v4: false, v6: false };

impl Open {
    pub(super) fn read(body: &[u8]) -> Result<Open, Notification> {
        let mut body = Reader(body);
        let mut fixed = || Some((body.u8()?, body.u16()?, body.u16()?, body.chunk::<4>()?, body.u8()?));
        let (version, number, hold, id, length) = fixed().ok_or(Notification::BAD_OPEN)?;
        if version != VERSION {
            return Err(Notification::with(2, 1, &[0, VERSION]));
        }
        let mut found = Capabilities::default();
        // RFC 9072: more than 255 bytes of parameters, each with a length of two bytes.
        let is_extended = length == 255 && body.0.first() == Some(&255);
        let mut parameters = if is_extended {
            let _ = body.u8();
            body.long()
        } else {
            body.take(length.into()).map(Reader)
        }
        .ok_or(Notification::BAD_OPEN)?;
        while let Some(kind) = parameters.u8() {
            let value = if is_extended { parameters.long() } else { parameters.short() };
            let value = value.ok_or(Notification::BAD_OPEN)?;
            if kind != CAPABILITIES {
                return Err(Notification::with(2, 4, &[]));
            }
            found.read(value).ok_or(Notification::BAD_OPEN)?;
        }
        if body.0 != [] as [u8; 0] {
            return Err(Notification::BAD_OPEN);
        }
        Ok(Open {
            number: found.number.unwrap_or(number.into()),
            hold,
            id: id.into(),
            families: found.families.unwrap_or(PeerFamilies { v4: true, v6: false }),
            has_four_byte_as: found.number.is_some(),
            has_extended_next_hop: found.has_extended_next_hop,
            has_refresh: found.has_refresh,
            graceful: found.graceful,
        })
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let mut all = Vec::new();
        let mut add = |kind: u8, value: &[u8]| {
            all.extend([kind, u8::try_from(value.len()).unwrap_or(0)]);
            all.extend_from_slice(value);
        };
        for family in Family::all(self.families) {
            let [high, low] = family.afi().to_be_bytes();
            add(MULTIPROTOCOL, &[high, low, 0, SAFI_UNICAST]);
        }
        if self.has_refresh {
            add(REFRESH, &[]);
        }
        if self.has_extended_next_hop {
            add(EXTENDED_NEXT_HOP, &[0, 1, 0, SAFI_UNICAST, 0, 2]);
        }
        if self.has_four_byte_as {
            add(FOUR_BYTE_AS, &self.number.to_be_bytes());
        }
        if let Some(graceful) = self.graceful {
            let restarting = if graceful.is_restarting { 0x8000 } else { 0 };
            let mut value = (restarting | (graceful.time & 0xfff)).to_be_bytes().to_vec();
            let forwarding = if graceful.is_forwarding { 0x80 } else { 0 };
            for family in Family::all(graceful.families) {
                value.extend(family.afi().to_be_bytes());
                value.extend([SAFI_UNICAST, forwarding]);
            }
            add(GRACEFUL_RESTART, &value);
        }
        let number = u16::try_from(self.number).unwrap_or(AS_TRANS).to_be_bytes();
        let length = u8::try_from(all.len()).unwrap_or(0);
        // No parameter at all, for a peer that takes none.
        let parameters: &[u8] =
            if all.is_empty() { &[0] } else { &[length.saturating_add(2), CAPABILITIES, length] };
        let fixed: &[&[u8]] =
            &[&[VERSION], &number, &self.hold.to_be_bytes(), &self.id.octets(), parameters, &all];
        write(OPEN, fixed, out);
    }
}

#[derive(Default)]
struct Capabilities {
    families: Option<PeerFamilies>,
    number: Option<u32>,
    has_extended_next_hop: bool,
    has_refresh: bool,
    graceful: Option<GracefulRestart>,
}

impl Capabilities {
    /// What is unknown, or too short to be what it says, is passed over (RFC 5492).
    fn read(&mut self, mut all: Reader<'_>) -> Option<()> {
        while let Some(kind) = all.u8() {
            let mut value = all.short()?;
            match kind {
                MULTIPROTOCOL => {
                    let (afi, safi) = (value.u16(), value.u16());
                    let families = self.families.get_or_insert(NONE);
                    if let (Some(afi), Some(safi)) = (afi, safi)
                        && let Some(family) = Family::read(afi, safi.to_be_bytes()[1])
                    {
                        family.add_to(families);
                    }
                }
                REFRESH => self.has_refresh = true,
                EXTENDED_NEXT_HOP => {
                    while let Some(one) = value.chunk::<6>() {
                        self.has_extended_next_hop |= one == [0, 1, 0, SAFI_UNICAST, 0, 2];
                    }
                }
                FOUR_BYTE_AS => self.number = value.u32().or(self.number),
                GRACEFUL_RESTART => self.graceful = graceful(value).or(self.graceful),
                _ => {}
            }
        }
        Some(())
    }
}

fn graceful(mut value: Reader<'_>) -> Option<GracefulRestart> {
    let first = value.u16()?;
    let mut found = GracefulRestart {
        is_restarting: first & 0x8000 != 0,
        time: first & 0xfff,
        families: NONE,
        is_forwarding: false,
    };
    while let (Some(afi), Some(safi), Some(flags)) = (value.u16(), value.u8(), value.u8()) {
        if let Some(family) = Family::read(afi, safi) {
            family.add_to(&mut found.families);
            found.is_forwarding |= flags & 0x80 != 0;
        }
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{super::Message, *};

    fn families() -> impl Strategy<Value = PeerFamilies> {
        any::<(bool, bool)>().prop_map(|(v4, v6)| PeerFamilies { v4, v6 })
    }

    fn open() -> impl Strategy<Value = Open> {
        let graceful = (any::<bool>(), 0_u16..4096, families(), any::<bool>()).prop_map(
            |(is_restarting, time, families, is_forwarding)| GracefulRestart {
                is_restarting,
                time,
                families,
                is_forwarding: is_forwarding && families != NONE,
            },
        );
        (
            any::<u32>(),
            any::<u16>(),
            any::<u32>(),
            families(),
            any::<(bool, bool)>(),
            proptest::option::of(graceful),
        )
            .prop_map(|(number, hold, id, families, (four, extended), graceful)| Open {
                number: if four { number } else { number & 0xffff },
                hold,
                id: id.into(),
                families: if families == NONE { PeerFamilies { v4: true, v6: false } } else { families },
                has_four_byte_as: four,
                has_extended_next_hop: extended,
                has_refresh: extended,
                graceful,
            })
    }

    proptest! {
        #[test]
        fn an_open_is_read_as_it_was_written(open in open()) {
            let mut sent = Vec::new();
            open.write(&mut sent);
            let length = sent.len();
            sent.push(0);
            prop_assert_eq!(super::super::read(&sent), Ok(Some((Message::Open(open), length))));
        }
    }

    #[test]
    fn unknown_capabilities_are_passed_over_and_other_parameters_refused() {
        let body = |parameters: &[u8]| {
            let length = u8::try_from(parameters.len()).expect("short");
            Open::read(&[&[4, 0xfd, 0xe9, 0, 90, 1, 2, 3, 4, length], parameters].concat())
        };
        let open = body(&[2, 13, 199, 3, 1, 2, 3, 65, 4, 0, 1, 0, 0, 69, 0]).expect("it is well-formed");
        assert_eq!((open.number, open.families), (65536, PeerFamilies { v4: true, v6: false }));
        assert_eq!(body(&[1, 1, 0]), Err(Notification::with(2, 4, &[])));
        assert_eq!(body(&[2, 4, 65, 4, 0, 1]), Err(Notification::BAD_OPEN), "cut short");
        assert_eq!(Open::read(&[3, 0, 1, 0, 90, 1, 2, 3, 4, 0]), Err(Notification::with(2, 1, &[0, 4])));
        // RFC 9072.
        let extended = [4, 0, 1, 0, 90, 1, 2, 3, 4, 255, 255, 0, 9, 2, 0, 6, 65, 4, 0, 1, 0, 0];
        assert_eq!(Open::read(&extended).expect("it is well-formed").number, 65536);
    }
}
