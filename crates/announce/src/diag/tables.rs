//! The same sockets as text: `/proc/net/{tcp,udp}{,6}`, for kernels without sock_diag. These
//! tables do not tell whether `[::]` is IPv6 only, or bound to an interface.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::{fs, io};

use seaway_model::L4;

use super::Listener;

/// Those in one of `states`, a bit for each.
pub(super) fn listeners(protocol: L4, states: u32) -> io::Result<Vec<Listener>> {
    let (v4, v6) = match protocol {
        L4::Tcp => ("tcp", "tcp6"),
        L4::Udp => ("udp", "udp6"),
        L4::Sctp => return Ok(Vec::new()),
    };
    // `/proc/net` would be that of the process's first thread.
    let table = |name| fs::read_to_string(format!("/proc/thread-self/net/{name}"));
    let mut all = read(protocol, states, &table(v4)?);
    match table(v6) {
        Ok(text) => all.extend(read(protocol, states, &text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(all)
}

/// The lines that can be read; the first one is a heading, and cannot.
pub(crate) fn read(protocol: L4, states: u32, table: &str) -> Vec<Listener> {
    table.lines().filter_map(|line| row(protocol, states, line)).collect()
}

fn row(protocol: L4, states: u32, line: &str) -> Option<Listener> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let at = address(fields.next()?)?;
    let peer = address(fields.next()?)?;
    let state = u32::from_str_radix(fields.next()?, 16).ok()?;
    if states & 1_u32.checked_shl(state)? == 0 {
        return None;
    }
    // Queues, timers and retransmissions stand in between.
    let uid = fields.nth(3)?.parse().ok()?;
    let inode = fields.nth(1)?.parse().ok()?;
    let peer = (peer.port() != 0).then_some(peer);
    Some(Listener { protocol, at, v6_only: false, peer, device: None, uid, inode })
}

/// `0100007F:0050`: the words of an address as numbers of this machine, so that a little-endian one
/// shows them backwards; the port as it is.
fn address(field: &str) -> Option<SocketAddr> {
    let (ip, port) = field.split_once(':')?;
    let word = |from: usize, to: usize| {
        let digits = ip.get(from..to)?;
        u32::from_str_radix(digits, 16).ok().map(u32::to_ne_bytes)
    };
    let ip = match ip.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0, 8)?)),
        32 => {
            let octets = [word(0, 8)?, word(8, 16)?, word(16, 24)?, word(24, 32)?].concat();
            IpAddr::V6(Ipv6Addr::from(*octets.first_chunk::<16>()?)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}
