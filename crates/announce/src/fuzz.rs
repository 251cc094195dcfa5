//! What must hold for any bytes whatever (`fuzz/README.md`).

#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "what is wrong ends the fuzz target"
)]

use std::net::{IpAddr, SocketAddr};

use seaway_model::L4;

use crate::{
    bfd, bgp,
    diag::{Listener, tables},
    layer2::{HeartbeatKey, Mac, heartbeat::Message as Said, packet},
    netlink::message::{Message, Messages, Request, attributes, u32_at, value},
    watch::{Event, event},
};

/// Netlink messages are parts of their datagram, one behind the other, and end with the first that is none. Who waits for the
/// answer to a question gets that and nothing else. What is read of a message stands in it, and reads back as we write it.
pub fn netlink(bytes: &[u8]) {
    let mut end = 0;
    let all: Vec<_> = Messages::notifications(bytes).collect();
    assert!(all.len() <= bytes.len() / 16 + 1, "{} messages of {} bytes", all.len(), bytes.len());
    for (index, message) in all.iter().enumerate() {
        assert!(message.is_ok() || index + 1 == all.len(), "behind what cannot be read nothing is read");
        if let Ok(Message::Data { kind, payload, .. }) = message {
            let start = payload.as_ptr() as usize - bytes.as_ptr() as usize;
            assert!(start >= end + 16, "it begins within the one before");
            end = start + payload.len();
            assert!(end <= bytes.len());
            data(*kind, payload);
        }
    }
    let asked = u32_at(bytes, 8).unwrap_or(7);
    let answers: Vec<_> = Messages::of(bytes, asked).collect();
    assert_eq!(answers.len(), all.len());
    let mut rest = bytes;
    for (answer, message) in answers.iter().zip(&all) {
        let is_asked = u32_at(rest, 8) == Some(asked);
        match answer {
            Ok(Message::Foreign) if !is_asked => {}
            other => assert_eq!(format!("{other:?}"), format!("{message:?}")),
        }
        let length = u32_at(rest, 0).map_or(usize::MAX, |it| it as usize);
        rest = rest.get(length.checked_next_multiple_of(4).unwrap_or(usize::MAX)..).unwrap_or_default();
    }
}

fn data(kind: u16, payload: &[u8]) {
    if kind > 3 {
        let sent = Request::new(kind, payload).finish(0, 7);
        let mut back = Messages::of(&sent, 7);
        let Some(Ok(Message::Data { kind: again, payload: whole, overtaken: false })) = back.next() else {
            panic!("what we send is no message");
        };
        // What is sent is filled up to four bytes.
        assert!(again == kind && whole.starts_with(payload) && whole.len() < payload.len() + 4);
        assert!(back.next().is_none());
    }
    let read: Vec<_> = attributes(payload).collect();
    // The last one tells that none before it was taken for more or less than it is.
    let last: (u16, &[u8]) = (9, b"end");
    let written: Vec<u8> = read.iter().chain([&last]).flat_map(|(kind, bytes)| value(*kind, bytes)).collect();
    assert!(attributes(&written).eq(read.into_iter().chain([last])), "attributes read back equal");
    let has = |part: &[u8]| payload.windows(part.len().max(1)).any(|it| it == part) || part.is_empty();
    match event(kind, payload) {
        Some(Event::Address { ip, link } | Event::AddressGone { ip, link }) => {
            let is_there = match ip {
                IpAddr::V4(ip) => has(&ip.octets()),
                IpAddr::V6(ip) => has(&ip.octets()),
            };
            assert!(is_there && u32_at(payload, 4) == Some(link), "{ip} on {link} is not in it");
        }
        Some(Event::Link(link) | Event::LinkGone(link)) => {
            assert_eq!(u32_at(payload, 4), Some(link.index));
            let is_lossy = link.name.contains(char::REPLACEMENT_CHARACTER);
            assert!(is_lossy || has(link.name.as_bytes()), "{:?} is not in it", link.name);
            assert!(!link.name.contains('\0'));
        }
        Some(Event::Lost) | None => {}
    }
    if let Some(read) = Listener::read(L4::Tcp, payload) {
        let ports: Vec<u16> = payload[4..8].chunks(2).map(|it| u16::from_be_bytes([it[0], it[1]])).collect();
        assert_eq!((read.at.port(), read.peer.map_or(0, |it| it.port())), (ports[0], ports[1]));
        assert_eq!(
            (Some(read.uid), u32::try_from(read.inode).ok()),
            (u32_at(payload, 64), u32_at(payload, 68))
        );
        // All that it is, is in the fixed part and in one attribute.
        assert_eq!(Listener::read(L4::Tcp, &payload[..72]), Some(Listener { v6_only: false, ..read }));
    }
}

/// The kernel's socket tables are read line by line, each by itself; a socket is in one state, and written down again as the
/// kernel writes it, it is the same.
pub fn tables(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let found = tables::read(L4::Tcp, u32::MAX, &text);
    let one_by_one: Vec<Listener> =
        text.lines().flat_map(|line| tables::read(L4::Tcp, u32::MAX, line)).collect();
    assert_eq!(found, one_by_one);
    let by_state = (0..32).map(|state| tables::read(L4::Tcp, 1 << state, &text).len());
    assert_eq!(by_state.sum::<usize>(), found.len(), "in one state each");
    for it in &found {
        let (at, peer) = (written(it.at), it.peer.map_or_else(|| written(([0, 0, 0, 0], 0).into()), written));
        let line = format!(
            "   0: {at} {peer} 0A 00000000:00000000 00:00000000 00000000 {:5}        0 {} 1 0",
            it.uid, it.inode
        );
        assert_eq!(tables::read(L4::Tcp, 1 << 10, &line), std::slice::from_ref(it), "{line}");
        assert_eq!(tables::read(L4::Tcp, 1 << 9, &line), [], "{line}");
    }
}

fn written(at: SocketAddr) -> String {
    let octets = match at.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let words = octets.chunks(4).map(|it| u32::from_ne_bytes([it[0], it[1], it[2], it[3]]));
    format!("{}:{:04X}", words.map(|it| format!("{it:08X}")).collect::<String>(), at.port())
}

/// What is read of ARP and NDP is all that the frame says, and is answered to who asked: one interface, and not a group, but for
/// those who have no address yet.
pub fn neighbors(bytes: &[u8]) {
    use packet::{Advertisement, Arp, Solicitation};
    const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
    if let Some(arp) = Arp::read(bytes) {
        assert!(bytes.len() >= Arp::FRAME && arp.sender_mac.is_unicast(), "{arp:?}");
        let written = arp.write(Mac(bytes[..6].try_into().expect("six")));
        assert_eq!(Arp::read(&written), Some(arp));
        assert!(written[..6] == bytes[..6] && written[12..] == bytes[12..Arp::FRAME], "{arp:?}");
        let reply = arp.reply(OURS);
        assert!(reply[..6] == arp.sender_mac.0 && reply[28..32] == arp.target.octets());
    }
    // Mutations seldom have the right checksum.
    let mut frame = bytes.to_vec();
    packet::set_checksum(&mut frame);
    for frame in [bytes, &frame] {
        let (asked, said) = (Solicitation::read(frame), Advertisement::read(frame));
        assert!(asked.is_none() || said.is_none());
        let is_alone = |target: std::net::Ipv6Addr| !target.is_multicast() && !target.is_unspecified();
        if let Some(said) = said {
            assert!(is_alone(said.target) && said.mac.is_unicast() && frame[62..78] == said.target.octets());
        }
        let Some(asked) = asked else { continue };
        assert!(is_alone(asked.target) && asked.mac.is_unicast() && frame[62..78] == asked.target.octets());
        let reply = asked.reply(OURS);
        let answer = Advertisement::read(&reply).expect("what we say is well-formed");
        assert_eq!((answer.target, answer.mac), (asked.target, OURS));
        assert_eq!(answer.is_solicited, !asked.source.is_unspecified());
        assert!(reply[..6] == asked.mac.0 || asked.source.is_unspecified() && reply[..2] == [0x33, 0x33]);
    }
}

/// A heartbeat that is read is written again as it came, and whatever has no signature of the key is refused.
pub fn heartbeat(bytes: &[u8]) {
    let key = HeartbeatKey::new("a secret that has thirty-two characters");
    assert_eq!(Said::read(&key, bytes), None);
    let Some(message) = Said::parse(bytes) else { return };
    let written = message.write(&key);
    // What a later version added is not ours to repeat.
    assert!(bytes.starts_with(&written[..written.len() - 32]), "{message:?}");
    // What others with the key say may be longer than what we read.
    assert!(Said::read(&key, &written).is_none_or(|it| it == message));
}

/// A packet of BFD that is read is written again as it came. After any packets a session answers polls alone, by what is
/// well-formed, and nothing that is for another session; it never spins, and no packet ends it for good.
pub fn bfd(bytes: &[u8]) {
    bfd::hold(bytes);
}

/// What a BGP peer sends comes to the same however it is cut, ends a session with one line at most, and what is understood is
/// written as it was read.
pub fn bgp(bytes: &[u8]) {
    bgp::hold(bytes);
}
