//! One tenant asks for more than the contender can do, while another asks for a third of it.

use std::time::Duration;

use super::{Attack, SharedMember, anew, client_hello, get, ports, request_for, takes_nothing};
use crate::attacks::hostile::bytes::Bytes;
use crate::attacks::hostile::{Script, TURN};

/// So many times the requests of honest clients under other attacks: about 30 % of what one worker can do.
pub const LOAD: f64 = 4.0;
/// A host name of the front door at which all requests are redirected.
pub const REDIRECTED: &str = "redirected.example";
pub const CONNECTIONS: usize = 512;
/// The path that all expressions are tried on.
const LONG: usize = 2_000;

pub fn floods() -> Vec<Attack> {
    let of = |name, port, what, script| Attack { name, what, shared: SharedMember::Flood(port), script };
    let asks = |request: String, times| {
        Script::Bytes(Bytes {
            again: request.repeat(times).into_bytes(),
            every: TURN,
            reads: true,
            ..Bytes::default()
        })
    };
    vec![
        of(
            "flood-connections",
            ports::NO_MEMBER_TCP,
            "new TCP connections, up to 51,200/s",
            anew(Vec::new(), Duration::ZERO),
        ),
        of(
            "flood-requests",
            ports::EXPRESSIONS,
            "requests that are redirected, up to 102,400/s",
            asks(request_for(REDIRECTED, "/"), 2),
        ),
        of(
            "flood-handshakes",
            ports::TLS,
            "TLS handshakes, up to 25,600/s",
            // More than one core can answer; with more, it is the generator's core that honest clients wait for.
            anew(client_hello(), TURN * 2),
        ),
        of(
            "flood-slow-reads",
            ports::HTTP,
            "large answers of which nothing is taken",
            takes_nothing(get("/big")),
        ),
        of(
            "flood-expressions",
            ports::EXPRESSIONS,
            "64 regular expressions on paths of 2,000 bytes, up to 51,200/s",
            asks(get(&format!("/{}", "a".repeat(LONG))), 1),
        ),
        of(
            "flood-probes",
            ports::NO_MEMBER_TCP,
            "8 Services with 250 members each that are to be checked every millisecond: 4,000/s as a namespace may",
            Script::Probes,
        ),
    ]
}
