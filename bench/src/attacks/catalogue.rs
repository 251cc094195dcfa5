//! The attacks: what hostile clients do, and at which listener.

mod floods;

use std::time::Duration;

pub use self::floods::REDIRECTED;
use super::hostile::bytes::{Bytes, client_hello};
use super::hostile::h2::{GET, H2, POST, STREAM, Streams, fields};
use super::hostile::{Script, TURN};
use super::{HOSTILE, ports};
use crate::contender::Contender;
use crate::message::frames;

/// Which honest clients share the member, and its listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SharedMember {
    Http,
    ToH2,
    Tls,
    Tcp,
    Udp,
    /// The member itself is what misbehaves: only others are measured.
    Failing,
    /// More than the contender can do, of a Service at that port: others are measured, who ask for a third of a core.
    Flood(u16),
}

pub struct Attack {
    pub name: &'static str,
    pub what: &'static str,
    pub shared: SharedMember,
    pub script: Script,
}

impl Attack {
    /// Where the hostile clients connect.
    pub fn port(&self, contender: Contender) -> u16 {
        let by_h2 = contender == Contender::Nginx && matches!(self.script, Script::H2(_));
        match self.shared {
            SharedMember::Http if by_h2 => ports::HTTP_BY_H2,
            SharedMember::ToH2 if by_h2 => ports::TO_H2_BY_H2,
            shared => shared.port(),
        }
    }

    pub fn is_of(&self, contender: Contender) -> bool {
        match contender {
            // It does not balance UDP.
            Contender::Haproxy => self.shared != SharedMember::Udp && !self.is_flood(),
            Contender::Nginx => !self.is_flood(),
            _ => true,
        }
    }

    pub fn is_flood(&self) -> bool {
        matches!(self.shared, SharedMember::Flood(_))
    }

    pub fn connections(&self) -> usize {
        if matches!(self.script, Script::Probes) {
            return 1;
        }
        if self.is_flood() { floods::CONNECTIONS } else { HOSTILE }
    }

    /// What honest clients ask, relative to other attacks.
    pub fn load(&self) -> f64 {
        if self.is_flood() { floods::LOAD } else { 1.0 }
    }
}

impl SharedMember {
    /// Where honest clients connect.
    pub fn port(self) -> u16 {
        match self {
            Self::Http => ports::HTTP,
            Self::ToH2 => ports::TO_H2,
            Self::Tls => ports::TLS,
            Self::Tcp => ports::TCP,
            Self::Udp => ports::UDP,
            Self::Failing => ports::FAILING,
            Self::Flood(port) => port,
        }
    }
}

const ALL: u32 = u32::MAX;
const SLOWLY: Duration = Duration::from_millis(100);

fn get(path: &str) -> String {
    request_for("bench.example", path)
}

fn request_for(host: &str, path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n")
}

fn streams(method: u8, path: &str, more: &[(&str, &str)]) -> Streams {
    let head = fields(method, path, more);
    Streams { head, most: ALL, window: 0, uploads: false, ends: true }
}

/// Opens them and holds them.
fn holds(streams: Streams) -> Script {
    Script::H2(H2 { streams, opening: Vec::new(), again: Vec::new(), times: 0 })
}

/// Repeats these frames so often in each turn of each connection.
fn repeats(times: usize, opening: &[u8], again: Vec<u8>) -> Script {
    let streams = Streams { most: 0, window: 65_535, ..streams(GET, "/ok", &[]) };
    Script::H2(H2 { streams, opening: opening.to_vec(), again, times })
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    frames::put(&mut out, kind, flags, stream, &[payload]);
    out
}

fn slowly(opening: &str, byte: &str) -> Script {
    let again = byte.as_bytes().to_vec();
    Script::Bytes(Bytes { again, every: SLOWLY, reads: true, ..Bytes::opening(opening) })
}

fn takes_nothing(opening: impl Into<Vec<u8>>) -> Script {
    Script::Bytes(Bytes::opening(opening))
}

/// One answer after the other, a tenth of a second apart: as often as a connection that is ended comes again.
fn asks(path: &str) -> Script {
    Script::Bytes(Bytes { reads: true, ..Bytes::opening(get(path)) })
}

fn anew(opening: Vec<u8>, stays: Duration) -> Script {
    Script::Bytes(Bytes { stays: Some(stays), reads: true, ..Bytes::opening(opening) })
}

pub fn attacks() -> Vec<Attack> {
    single().into_iter().chain(floods::floods()).collect()
}

fn single() -> Vec<Attack> {
    let reset = [
        frame(frames::HEADERS, frames::END_HEADERS | frames::END_STREAM, STREAM, &fields(GET, "/ok/0", &[])),
        frame(frames::RST_STREAM, 0, STREAM, &8_u32.to_be_bytes()),
    ]
    .concat();
    let large = "h".repeat(1_000);
    let names: Vec<String> = (0..7).map(|it| format!("x-large-{it}")).collect();
    let large: Vec<(&str, &str)> = names.iter().map(|name| (&name[..], &large[..])).collect();
    let without_end = frame(frames::HEADERS, frames::END_STREAM, 1, &fields(GET, "/ok/0", &[]));
    let continued = frame(frames::CONTINUATION, 0, 1, b"\x00\x01a\x01b");
    let upload = |shared, name, what| Attack {
        name,
        what,
        shared,
        script: holds(Streams { uploads: true, ends: false, ..streams(POST, "/hold", &[]) }),
    };
    let websocket = "GET /ws HTTP/1.1\r\nHost: bench.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                     Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    let of = |name, shared, what, script| Attack { name, what, shared, script };
    let grpc = [("content-type", "application/grpc"), ("te", "trailers")];
    let one_call = Streams { most: 1, ..streams(POST, "/big", &grpc) };
    use SharedMember::{Failing, Http, Tcp, Tls, ToH2, Udp};
    vec![
        of(
            "h2-window-0-to-h2",
            ToH2,
            "all streams, window 0, a large file of an HTTP/2 member",
            holds(streams(GET, "/big", &[])),
        ),
        of(
            "h2-window-0-to-h1",
            Http,
            "all streams, window 0, a large file of an HTTP/1.1 member",
            holds(streams(GET, "/big", &[])),
        ),
        upload(
            ToH2,
            "h2-upload-to-h2",
            "uploads on all streams, a handler that does not read, HTTP/2 member",
        ),
        upload(
            Http,
            "h2-upload-to-h1",
            "uploads on all streams, a handler that does not read, HTTP/1.1 member",
        ),
        of(
            "h1-slow-head",
            Http,
            "a head, a byte each 100 ms",
            slowly("GET /ok/0 HTTP/1.1\r\nHost: bench.example\r\nX-Slow: ", "s"),
        ),
        of(
            "h1-slow-body",
            Http,
            "a body, a byte each 100 ms",
            slowly("POST /ok/0 HTTP/1.1\r\nHost: bench.example\r\nContent-Length: 100000\r\n\r\n", "s"),
        ),
        of("h1-takes-nothing", Http, "takes nothing of a large answer", takes_nothing(get("/big"))),
        of(
            "h1-pipelining",
            Http,
            "requests one after the other, takes no answer",
            Script::Bytes(Bytes {
                again: get("/ok/0").repeat(2).into_bytes(),
                every: TURN,
                ..Bytes::default()
            }),
        ),
        of(
            "h2-rapid-reset",
            Http,
            "HEADERS and RST_STREAM, 200/s on each connection",
            repeats(2, &[], reset),
        ),
        of(
            "h2-ping",
            Http,
            "PING, 1,000/s on each connection",
            repeats(10, &[], frame(frames::PING, 0, 0, b"12345678")),
        ),
        of(
            "h2-settings",
            Http,
            "SETTINGS, 500/s on each connection",
            repeats(5, &[], frame(frames::SETTINGS, 0, 0, &[0, 4, 0, 0, 255, 255])),
        ),
        of(
            "h2-continuation",
            Http,
            "CONTINUATION without end, 1,000/s on each connection",
            repeats(10, &without_end, continued),
        ),
        of(
            "h2-large-heads",
            Http,
            "all streams, header lists of 7 KiB, kept open",
            holds(Streams { ends: false, ..streams(POST, "/hold", &large) }),
        ),
        of("tls-begun", Tls, "a ClientHello, then silence", takes_nothing(client_hello())),
        of("tls-handshakes", Tls, "a ClientHello, gone after 100 ms: 640/s", anew(client_hello(), SLOWLY)),
        of(
            "tls-takes-nothing",
            Tls,
            "takes nothing of a large answer through TLS",
            Script::Bytes(Bytes { tls: true, ..Bytes::opening(get("/big")) }),
        ),
        of("tcp-silent", Tcp, "connects and sends nothing", takes_nothing("")),
        of("tcp-takes-nothing", Tcp, "takes nothing of a large answer", takes_nothing(get("/big"))),
        of("tcp-churn", Tcp, "a new connection each 30 ms: 2,100/s", anew(Vec::new(), TURN * 3)),
        of("udp-ports", Udp, "a datagram from a new port, 6,400/s", Script::Ports(1)),
        of("websocket", Http, "takes nothing of a WebSocket", takes_nothing(websocket)),
        of("grpc-stream", ToH2, "takes nothing of a gRPC stream", holds(one_call)),
        of("member-silent", Failing, "a member that never answers", asks("/silent")),
        of("member-trickles", Failing, "a member that answers a byte each 100 ms", asks("/trickle")),
        of("member-cuts", Failing, "a member that closes within its answer", asks("/cut")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_attack_has_a_name_of_its_own() {
        let mut names: Vec<&str> = attacks().iter().map(|it| it.name).collect();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
    }

    #[test]
    fn the_peers_listen_wherever_they_are_attacked() {
        let peers = [
            (Contender::Haproxy, include_str!("../../peers/haproxy-attacks.cfg")),
            (Contender::Nginx, include_str!("../../peers/nginx-attacks.conf")),
        ];
        for (peer, configuration) in peers {
            let attacked = attacks().into_iter().filter(|it| it.is_of(peer));
            let attacked = attacked.flat_map(|it| [it.port(peer), it.shared.port()]);
            let loops = ports::Loop::all().flat_map(ports::Loop::listeners).map(|it| it.0);
            for port in attacked.chain([ports::OTHER]).chain(loops).chain(ports::desync()) {
                let listens = |end| configuration.contains(&format!(" 127.0.0.1:{port}{end}"));
                assert!(listens(' ') || listens('\n') || listens(';'), "{peer}: {port}");
            }
        }
    }
}
