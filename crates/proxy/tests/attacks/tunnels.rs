//! Clients that open WebSockets and tunnels, and take nothing of what comes through them.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::atomic::Ordering::SeqCst,
};

use seaway_model::{
    Pool,
    load_balancer::{BackendProtocol, Protocol},
};
use stats_alloc::Region;

use crate::{
    attacker::Attacker,
    ground::{COUNTED, alone, grown},
    member::{Member, Terms},
    memory::{MOST, front, status},
    stage::*,
};

pub(crate) const SWITCH: &[u8] =
    b"GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";

fn patient(listener: &mut seaway_model::Listener) {
    listener.timeouts.answer = 2 * PATIENCE;
    listener.timeouts.idle = 2 * PATIENCE;
}

/// Agrees to everything, and sends without end.
pub(crate) fn endless() -> Backend {
    Backend::new(HERE, |mut stream| {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if stream.read_exact(&mut byte).is_err() {
                return;
            }
            head.push(byte[0]);
        }
        let switches = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
            Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
        let _ = stream.write_all(if head.starts_with(b"CONNECT") {
            &b"HTTP/1.1 200 OK\r\n\r\n"[..]
        } else {
            &switches[..]
        });
        while stream.write_all(&[b'x'; 16 << 10]).is_ok() {}
    })
}

/// Before that member, with one worker.
fn before(member: SocketAddr) -> (Stage, SocketAddr) {
    let stage = Stage::with_workers(1);
    stage.put(Pool { protocol: BackendProtocol::Http1, ..pool(&[member]) });
    let (at, _) = stage.open(HERE, |listener| {
        listener.protocol = Protocol::Http;
        patient(listener);
    });
    (stage, at)
}

#[test]
fn tunnels_of_which_nobody_takes_anything_hold_little() {
    let _alone = alone();
    for asked in [SWITCH, b"CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n"] {
        let member = endless();
        let (stage, at) = before(member.at);
        let before = stage.proxy.statistics().memory.held;
        let region = Region::new(COUNTED);
        let clients: Vec<TcpStream> = (0..8)
            .map(|_| {
                let mut client = connect(at);
                client.write_all(asked).unwrap();
                let mut start = [0; 12];
                client.read_exact(&mut start).unwrap();
                assert!(matches!(&start, b"HTTP/1.1 101" | b"HTTP/1.1 200"), "{start:?}");
                client
            })
            .collect();
        let each = grown(&region) / clients.len() as isize;
        assert!(each < MOST, "{each} bytes for each connection");
        let held = stage.proxy.statistics().memory.held.saturating_sub(before);
        assert!(held < (clients.len() as u64) << 17, "{held} bytes are accounted for");
        drop(clients);
        eventually("all have left", || stage.listener(at).traffic.current == 0);
    }
}

#[test]
fn tunnels_in_streams_of_which_nobody_takes_anything_have_the_bound_of_their_connection() {
    let _alone = alone();
    let many = Member::new(Terms { streams: 1_000, ..Terms::default() });
    let one = endless();
    for protocol in [BackendProtocol::Http2, BackendProtocol::Http1] {
        let (stage, at) = match protocol {
            BackendProtocol::Http2 => front(&[many.at], patient),
            _ => before(one.at),
        };
        if protocol == BackendProtocol::Http2 {
            assert_eq!(status(at), "200");
        }
        let region = Region::new(COUNTED);
        let attackers: Vec<Attacker> = (0..4)
            .map(|_| {
                let mut attacker = Attacker::new(at, 0);
                for number in 0..120 {
                    let fields = [(&b":protocol"[..], &b"websocket"[..]), (b"sec-websocket-version", b"13")];
                    attacker.ask_with(2 * number + 1, "CONNECT", "/file", &fields, false);
                }
                attacker
            })
            .collect();
        eventually("all are answered or refused", || {
            attackers.iter().all(|it| it.heard.heads.load(SeqCst) + it.heard.resets.load(SeqCst) >= 120)
        });
        let good: usize = attackers.iter().map(|it| it.heard.good.load(SeqCst)).sum();
        assert!(good > 40, "{good} tunnels, {protocol:?}");
        let each = grown(&region) / attackers.len() as isize;
        assert!(each < MOST, "{each} bytes for each connection, {protocol:?}");
        drop(attackers);
        eventually("all have left", || stage.listener(at).traffic.current == 0);
        eventually("nothing is held", || stage.proxy.statistics().memory.held < 128 << 10);
    }
}
