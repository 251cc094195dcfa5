//! What hosts say to each other: a datagram, authenticated as a whole.
//!
//! ```text
//!   "SWL2" 1 │ boot, sequence │ acknowledged boot, sequence │ known │ name │ to │ MACs │ hears │ version, part, parts │ claims │
//!   what later versions add │ HMAC
//! ```
//!
//! What follows the claims is not read, so that hosts of different versions hear each other. What is there stays as it is.
//!
//! A message counts only if it acknowledges what its receiver sent a moment ago. So neither a recorded message nor one of a
//! host that was frozen counts, and who hears a peer knows that it is heard.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use seaway_model::Name;

use super::settings::{HeartbeatKey, Mac};

const MAGIC: [u8; 5] = *b"SWL2\x01";
const TAG: usize = 32;
/// Below what fits an Ethernet frame, so that nothing is fragmented.
pub(crate) const LONGEST: usize = 1_452;
/// Of a Kubernetes Node's name.
const LONGEST_NAME: usize = 253;
/// Together with two long names, these stay below `LONGEST`.
const MOST_MACS: usize = 16;
const MOST_HEARD: usize = 32;
/// Bytes of claims in one part.
pub(crate) const ROOM: usize = 420;
const MOST_PARTS: usize = 255;

/// A moment in the life of a process: which life, and how many messages it had sent by then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct HeartbeatStamp {
    pub(crate) boot: u64,
    pub(crate) sequence: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) from: Name,
    /// So that what was said to one host cannot be repeated to another.
    pub(crate) to: Name,
    pub(crate) stamp: HeartbeatStamp,
    /// The newest of the receiver's that was heard; a boot of 0 for none.
    pub(crate) acknowledged: HeartbeatStamp,
    /// The version of the receiver's claims of which the sender has all parts.
    pub(crate) known: Option<u32>,
    /// Of the interfaces on which it announces.
    pub(crate) macs: Vec<Mac>,
    /// Whom it hears, by [`short`](super::election::short), and how many milliseconds ago.
    pub(crate) hears: Vec<(u64, u16)>,
    /// Of its claims, and which part of them this is.
    pub(crate) version: u32,
    pub(crate) part: u8,
    pub(crate) parts: u8,
    pub(crate) claims: Vec<AddressClaim>,
}

/// An address that the sender serves and could announce, or does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddressClaim {
    pub(crate) address: IpAddr,
    pub(crate) announcing: bool,
}

impl AddressClaim {
    fn length(&self) -> usize {
        if self.address.is_ipv4() { 5 } else { 17 }
    }
}

/// The claims in parts that each fit a message; one empty part if there are none. What is beyond all parts is left out.
pub(crate) fn parts(claims: &[AddressClaim], most: usize) -> Vec<Vec<AddressClaim>> {
    let mut parts = vec![Vec::new()];
    let mut room = most;
    for claim in claims {
        if claim.length() > room {
            if parts.len() == MOST_PARTS {
                break;
            }
            parts.push(Vec::new());
            room = most;
        }
        room = room.saturating_sub(claim.length());
        parts.last_mut().into_iter().for_each(|part| part.push(*claim));
    }
    parts
}

impl Message {
    pub(crate) fn write(&self, key: &HeartbeatKey) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for number in
            [self.stamp.boot, self.stamp.sequence, self.acknowledged.boot, self.acknowledged.sequence]
        {
            bytes.extend(number.to_be_bytes());
        }
        bytes.push(self.known.is_some().into());
        bytes.extend(self.known.unwrap_or(0).to_be_bytes());
        for name in [&self.from, &self.to] {
            let name = name.as_bytes().get(..LONGEST_NAME).unwrap_or(name.as_bytes());
            bytes.push(u8::try_from(name.len()).unwrap_or(0));
            bytes.extend(name);
        }
        bytes.push(count(self.macs.len(), MOST_MACS));
        self.macs.iter().take(MOST_MACS).for_each(|mac| bytes.extend(mac.0));
        bytes.push(count(self.hears.len(), MOST_HEARD));
        for (host, age) in self.hears.iter().take(MOST_HEARD) {
            bytes.extend(host.to_be_bytes());
            bytes.extend(age.to_be_bytes());
        }
        bytes.extend(self.version.to_be_bytes());
        bytes.extend([self.part, self.parts, count(self.claims.len(), u8::MAX.into())]);
        for claim in &self.claims {
            let announcing = u8::from(claim.announcing) << 7;
            match claim.address {
                IpAddr::V4(address) => {
                    bytes.push(4 | announcing);
                    bytes.extend(address.octets());
                }
                IpAddr::V6(address) => {
                    bytes.push(6 | announcing);
                    bytes.extend(address.octets());
                }
            }
        }
        let tag = key.sign(&bytes);
        bytes.extend(tag.iter().flat_map(|tag| tag.as_ref()));
        bytes
    }

    /// `None` for what has another key, or another form.
    pub(crate) fn read(key: &HeartbeatKey, bytes: &[u8]) -> Option<Message> {
        if bytes.len() > LONGEST || !bytes.starts_with(&MAGIC) {
            return None;
        }
        let (said, tag) = bytes.split_at_checked(bytes.len().checked_sub(TAG)?)?;
        if !key.verifies(said, tag) {
            return None;
        }
        Message::parse(said)
    }

    pub(crate) fn parse(said: &[u8]) -> Option<Message> {
        let mut rest = Reader(said.strip_prefix(&MAGIC)?);
        let mut stamp = || Some(HeartbeatStamp { boot: rest.u64()?, sequence: rest.u64()? });
        let (stamp, acknowledged) = (stamp()?, stamp()?);
        let known = match (rest.array()?, u32::from_be_bytes(rest.array()?)) {
            ([0], 0) => None,
            ([1], version) => Some(version),
            _ => return None,
        };
        let (from, to) = (rest.name()?, rest.name()?);
        let macs = rest.many(MOST_MACS, |rest| rest.array().map(Mac))?;
        let hears = rest.many(MOST_HEARD, |rest| Some((rest.u64()?, u16::from_be_bytes(rest.array()?))))?;
        let version = u32::from_be_bytes(rest.array()?);
        let [part, parts] = rest.array()?;
        let claims = rest.many(u8::MAX.into(), Reader::claim)?;
        let is_well = part < parts && stamp.boot != 0;
        is_well.then_some(Message {
            from,
            to,
            stamp,
            acknowledged,
            known,
            macs,
            hears,
            version,
            part,
            parts,
            claims,
        })
    }
}

fn count(of: usize, most: usize) -> u8 {
    u8::try_from(of.min(most)).unwrap_or(u8::MAX)
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    fn name(&mut self) -> Option<Name> {
        let [length] = self.array()?;
        let (name, rest) = self.0.split_at_checked(length.into())?;
        self.0 = rest;
        let name = str::from_utf8(name).ok()?;
        (1..=LONGEST_NAME).contains(&name.len()).then(|| Name::from(name))
    }

    fn many<T>(&mut self, most: usize, mut read: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let [count] = self.array()?;
        if usize::from(count) > most {
            return None;
        }
        (0..count).map(|_| read(self)).collect()
    }

    fn claim(&mut self) -> Option<AddressClaim> {
        let [kind] = self.array()?;
        let address = match kind & 0x7f {
            4 => IpAddr::V4(Ipv4Addr::from(self.array::<4>()?)),
            6 => IpAddr::V6(Ipv6Addr::from(self.array::<16>()?)),
            _ => return None,
        };
        Some(AddressClaim { address, announcing: kind >> 7 == 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message() -> Message {
        Message {
            from: "a".into(),
            to: "b".into(),
            stamp: HeartbeatStamp { boot: 7, sequence: 9 },
            acknowledged: HeartbeatStamp { boot: 8, sequence: 3 },
            known: Some(2),
            macs: vec![Mac([2, 0, 0, 0, 0, 1])],
            hears: vec![(17, 20)],
            version: 4,
            part: 0,
            parts: 1,
            claims: vec![
                AddressClaim { address: IpAddr::from([192, 0, 2, 7]), announcing: true },
                AddressClaim { address: "2001:db8::7".parse().expect("an address"), announcing: false },
            ],
        }
    }

    #[test]
    fn a_message_reads_back_equal_with_the_key_and_not_at_all_with_another() {
        let (key, other) =
            (HeartbeatKey::new("a secret of thirty-two characters"), HeartbeatKey::new("another"));
        let bytes = message().write(&key);
        assert_eq!(Message::read(&key, &bytes), Some(message()));
        assert_eq!(Message::read(&other, &bytes), None);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_eq!(Message::read(&key, &changed), None, "byte {at} changed");
            assert_eq!(Message::read(&key, &bytes[..at]), None, "{at} bytes");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(Message::read(&key, &longer), None);
    }

    #[test]
    fn one_secret_replaces_another_while_both_are_accepted() {
        let (old, new) = ("a secret of thirty-two characters", "its successor of the same length");
        let both = [format!("{old}\n{new}\n"), format!("{new}\n\n{old}")].map(|it| HeartbeatKey::new(&it));
        for one in &both {
            let bytes = message().write(one);
            assert!(both.iter().all(|other| Message::read(other, &bytes).is_some()));
        }
        assert!(Message::read(&HeartbeatKey::new(old), &message().write(&both[0])).is_some());
        assert!(Message::read(&HeartbeatKey::new(old), &message().write(&both[1])).is_none());
        let none = HeartbeatKey::new(" \n");
        assert_eq!(Message::read(&none, &message().write(&none)), None);
    }

    #[test]
    fn what_a_later_version_adds_is_passed_over() {
        let key = HeartbeatKey::new("a secret of thirty-two characters");
        let bytes = message().write(&key);
        let mut said = bytes[..bytes.len() - TAG].to_vec();
        said.extend(b"a field of the future");
        said.extend(key.sign(&said).expect("a secret").as_ref().to_vec());
        assert_eq!(Message::read(&key, &said), Some(message()));
    }

    #[test]
    fn the_longest_message_fits_a_frame() {
        let key = HeartbeatKey::new("a secret of thirty-two characters");
        let name = Name::from("n".repeat(300));
        let claim = |last| AddressClaim { address: IpAddr::from([192, 0, 2, last]), announcing: true };
        let claims: Vec<_> = (0..=255).map(claim).collect();
        let parts = parts(&claims, ROOM);
        let whole = Message {
            from: name.clone(),
            to: name,
            macs: vec![Mac([2; 6]); 9],
            hears: vec![(1, 1); 99],
            claims: parts[0].clone(),
            ..message()
        };
        let bytes = whole.write(&key);
        assert!(bytes.len() <= LONGEST, "{}", bytes.len());
        assert_eq!(Message::read(&key, &bytes).expect("well").hears.len(), MOST_HEARD);
    }

    #[test]
    fn claims_are_cut_into_parts_that_together_are_all_of_them() {
        assert_eq!(parts(&[], ROOM), [[]]);
        let claims: Vec<_> = (0..1_000_u32)
            .map(|it| AddressClaim { address: Ipv4Addr::from(it).into(), announcing: it % 2 == 0 })
            .collect();
        let cut = parts(&claims, ROOM);
        assert_eq!((cut.len(), cut.concat()), (12, claims));
        let many: Vec<_> = (0..100_000_u32)
            .map(|it| AddressClaim { address: Ipv4Addr::from(it).into(), announcing: false })
            .collect();
        assert_eq!(parts(&many, ROOM).len(), MOST_PARTS);
    }
}
