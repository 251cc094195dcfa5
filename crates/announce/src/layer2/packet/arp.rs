//! ARP for IPv4 over Ethernet (RFC 826), with the probes and announcements of RFC 5227.

use std::net::Ipv4Addr;

use super::{BROADCAST, NOTHING, ethernet, joined, taken};
use crate::layer2::settings::Mac;

const TYPE: u16 = 0x0806;
/// Ethernet, IPv4, and the lengths of their addresses.
const HEADER: [u8; 6] = [0, 1, 8, 0, 6, 4];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Request,
    Reply,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arp {
    pub(crate) operation: Operation,
    pub(crate) sender_mac: Mac,
    /// Unspecified in a probe.
    pub(crate) sender: Ipv4Addr,
    pub(crate) target_mac: Mac,
    pub(crate) target: Ipv4Addr,
}

impl Arp {
    pub(crate) const FRAME: usize = 42;

    /// `None` for what is malformed, or about something else than IPv4 over Ethernet.
    pub(crate) fn read(frame: &[u8]) -> Option<Arp> {
        let (_, source, rest) = ethernet(frame, TYPE)?;
        let (header, rest) = taken::<6>(rest)?;
        let (operation, rest) = taken::<2>(rest)?;
        let (sender_mac, rest) = taken::<6>(rest)?;
        let (sender, rest) = taken::<4>(rest)?;
        let (target_mac, rest) = taken::<6>(rest)?;
        let (target, _) = taken::<4>(rest)?;
        let operation = match operation {
            [0, 1] => Operation::Request,
            [0, 2] => Operation::Reply,
            _ => return None,
        };
        let (sender, target) = (Ipv4Addr::from(sender), Ipv4Addr::from(target));
        let read =
            Arp { operation, sender_mac: Mac(sender_mac), sender, target_mac: Mac(target_mac), target };
        // An answer to a group would reach everybody, and a sender that is a group is nobody.
        let is_well = header == HEADER
            && source.is_unicast()
            && read.sender_mac.is_unicast()
            && !sender.is_multicast()
            && !sender.is_broadcast();
        is_well.then_some(read)
    }

    pub(crate) fn write(&self, destination: Mac) -> [u8; Arp::FRAME] {
        let operation = match self.operation {
            Operation::Request => [0, 1],
            Operation::Reply => [0, 2],
        };
        joined(&[
            &destination.0,
            &self.sender_mac.0,
            &TYPE.to_be_bytes(),
            &HEADER,
            &operation,
            &self.sender_mac.0,
            &self.sender.octets(),
            &self.target_mac.0,
            &self.target.octets(),
        ])
    }

    /// "Who has `target`?", asked by who has `sender`.
    pub(crate) fn request(mac: Mac, sender: Ipv4Addr, target: Ipv4Addr) -> [u8; Arp::FRAME] {
        let arp = Arp { operation: Operation::Request, sender_mac: mac, sender, target_mac: NOTHING, target };
        arp.write(BROADCAST)
    }

    /// Asks without teaching caches anything (RFC 5227, 2.1.1).
    pub(crate) fn probe(mac: Mac, target: Ipv4Addr) -> [u8; Arp::FRAME] {
        Arp::request(mac, Ipv4Addr::UNSPECIFIED, target)
    }

    /// Gratuitous, both ways: some machines learn from requests alone, others from replies alone.
    pub(crate) fn announcements(mac: Mac, address: Ipv4Addr) -> [[u8; Arp::FRAME]; 2] {
        let reply = Arp {
            operation: Operation::Reply,
            sender_mac: mac,
            sender: address,
            target_mac: BROADCAST,
            target: address,
        };
        [Arp::request(mac, address, address), reply.write(BROADCAST)]
    }

    /// Our answer to this request, for who asked.
    pub(crate) fn reply(&self, mac: Mac) -> [u8; Arp::FRAME] {
        let reply = Arp {
            operation: Operation::Reply,
            sender_mac: mac,
            sender: self.target,
            target_mac: self.sender_mac,
            target: self.sender,
        };
        reply.write(self.sender_mac)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const THEIRS: Mac = Mac([2, 0, 0, 0, 0, 9]);
    const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 7);
    const CLIENT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

    /// As tcpdump prints one of Linux's.
    const REQUEST: &str =
        "ffffffffffff 020000000009 0806 0001 0800 06 04 0001 020000000009 c0000201 000000000000 c0000207";

    fn bytes(hex: &str) -> Vec<u8> {
        let digits: String = hex.split_whitespace().collect();
        (0..digits.len() / 2)
            .map(|at| u8::from_str_radix(&digits[2 * at..2 * at + 2], 16).expect("hexadecimal"))
            .collect()
    }

    #[test]
    fn a_request_is_read_and_answered_to_who_asked() {
        let request = Arp::read(&bytes(REQUEST)).expect("a request");
        assert_eq!(
            (request.operation, request.sender, request.target),
            (Operation::Request, CLIENT, ADDRESS)
        );
        let reply =
            "020000000009 020000000001 0806 0001 0800 06 04 0002 020000000001 c0000207 020000000009 c0000201";
        assert_eq!(request.reply(OURS).to_vec(), bytes(reply));
        assert_eq!(Arp::request(THEIRS, CLIENT, ADDRESS).to_vec(), bytes(REQUEST));
    }

    #[test]
    fn announcements_are_a_request_and_a_reply_to_all_and_a_probe_teaches_nothing() {
        let [request, reply] = Arp::announcements(OURS, ADDRESS);
        let (request, reply) = (Arp::read(&request).expect("well"), Arp::read(&reply).expect("well"));
        assert_eq!((request.operation, reply.operation), (Operation::Request, Operation::Reply));
        for it in [request, reply] {
            assert!(it.sender == ADDRESS && it.target == ADDRESS && it.sender_mac == OURS, "{it:?}");
        }
        let probe = Arp::read(&Arp::probe(OURS, ADDRESS)).expect("well");
        assert!(probe.sender.is_unspecified() && probe.target == ADDRESS);
    }

    #[test]
    fn what_is_malformed_is_refused() {
        let good = bytes(REQUEST);
        for length in 0..good.len() {
            assert_eq!(Arp::read(&good[..length]), None, "{length} bytes");
        }
        let padded = [&good[..], &[0; 18]].concat();
        assert!(Arp::read(&padded).is_some(), "as short frames are on a wire");
        let with = |at: usize, values: &[u8]| {
            let mut bad = good.clone();
            bad[at..at + values.len()].copy_from_slice(values);
            bad
        };
        for (what, bad) in [
            ("another type", with(12, &[8, 0])),
            ("other hardware", with(14, &[0, 6])),
            ("another protocol", with(16, &[0x86, 0xdd])),
            ("long hardware addresses", with(18, &[8])),
            ("long addresses", with(19, &[16])),
            ("no operation", with(20, &[0, 0])),
            ("RARP", with(20, &[0, 3])),
            ("from a group", with(22, &[1])),
            ("from nowhere", with(22, &[0; 6])),
            ("a frame from a group", with(6, &[0xff; 6])),
            ("a multicast sender", with(28, &[224, 0, 0, 1])),
            ("broadcast as the sender", with(28, &[255; 4])),
        ] {
            assert_eq!(Arp::read(&bad), None, "{what}");
        }
    }
}
