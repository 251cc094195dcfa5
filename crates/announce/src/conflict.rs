//! Which sockets of others stand where one of ours is wanted.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use seaway_model::L4;

use crate::diag::Listener;
use crate::process::Process;

/// A socket to be. `[::]` is taken as IPv6 only; who wants both asks for `0.0.0.0` too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WantedSocket {
    pub at: SocketAddr,
    pub protocol: L4,
}

/// A wanted address and port, and who has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    pub wanted: WantedSocket,
    pub listener: Listener,
    /// None if it is another user's and we may not look, or the kernel's own.
    pub process: Option<Process>,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WantedSocket { at, protocol } = self.wanted;
        write!(f, "{} {at} is taken: ", protocol.as_str())?;
        match &self.process {
            Some(process) => write!(f, "{process}")?,
            None => write!(f, "a process of user {}", self.listener.uid)?,
        }
        write!(f, " holds {}", self.listener.at)
    }
}

/// Whether the two would share or refuse each other: same protocol and port, and an address in
/// common. A socket bound to one interface counts, because ours is bound to none.
pub fn overlaps(wanted: &WantedSocket, listener: &Listener) -> bool {
    wanted.protocol == listener.protocol
        && wanted.at.port() == listener.at.port()
        && match (wanted.at.ip().to_canonical(), listener.at.ip()) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => {
                ours == theirs || ours.is_unspecified() || theirs.is_unspecified()
            }
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => {
                ours == theirs || ours.is_unspecified() || theirs.is_unspecified()
            }
            (IpAddr::V4(_), IpAddr::V6(theirs)) => theirs.is_unspecified() && !listener.v6_only,
            (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
}

/// One conflict for each pair that overlaps; the processes are still to be found.
pub(crate) fn find_conflicts(
    wanted: &[WantedSocket],
    listeners: &[Listener],
    ours: &HashSet<u64>,
) -> Vec<Conflict> {
    let mut by_port: HashMap<(u16, L4), Vec<&Listener>> = HashMap::new();
    for listener in listeners {
        if !ours.contains(&listener.inode) {
            let key = (listener.at.port(), listener.protocol);
            by_port.entry(key).or_default().push(listener);
        }
    }
    let on_its_port = |wanted: &WantedSocket| by_port.get(&(wanted.at.port(), wanted.protocol));
    wanted
        .iter()
        .flat_map(|wanted| {
            let rivals = on_its_port(wanted).into_iter().flatten();
            rivals.filter(|listener| overlaps(wanted, listener)).map(|listener| Conflict {
                wanted: *wanted,
                listener: (*listener).clone(),
                process: None,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(at: &str, protocol: L4) -> WantedSocket {
        WantedSocket { at: at.parse().expect("an address"), protocol }
    }

    fn listener(at: &str, v6_only: bool, inode: u64) -> Listener {
        Listener {
            protocol: L4::Tcp,
            at: at.parse().expect("an address"),
            v6_only,
            peer: None,
            device: None,
            uid: 33,
            inode,
        }
    }

    #[test]
    fn sockets_overlap_where_they_have_an_address_in_common() {
        let dual = false;
        let only = true;
        let table = [
            ("192.0.2.1:80", "192.0.2.1:80", dual, true),
            ("192.0.2.1:80", "192.0.2.2:80", dual, false),
            ("192.0.2.1:80", "192.0.2.1:81", dual, false),
            ("192.0.2.1:80", "0.0.0.0:80", dual, true),
            ("0.0.0.0:80", "192.0.2.1:80", dual, true),
            ("0.0.0.0:80", "0.0.0.0:80", dual, true),
            ("192.0.2.1:80", "[::]:80", dual, true),
            ("0.0.0.0:80", "[::]:80", dual, true),
            ("192.0.2.1:80", "[::]:80", only, false),
            ("192.0.2.1:80", "[2001:db8::1]:80", dual, false),
            ("[2001:db8::1]:80", "[2001:db8::1]:80", dual, true),
            ("[2001:db8::1]:80", "[2001:db8::2]:80", dual, false),
            ("[2001:db8::1]:80", "[::]:80", only, true),
            ("[::]:80", "[2001:db8::1]:80", dual, true),
            ("[::]:80", "192.0.2.1:80", dual, false),
            ("[::]:80", "0.0.0.0:80", dual, false),
            ("[2001:db8::1]:80", "0.0.0.0:80", dual, false),
            ("[::ffff:192.0.2.1]:80", "192.0.2.1:80", dual, true),
        ];
        for (ours, theirs, v6_only, expected) in table {
            let found = overlaps(&wanted(ours, L4::Tcp), &listener(theirs, v6_only, 1));
            assert_eq!(found, expected, "{ours} and {theirs}, v6 only: {v6_only}");
            assert!(!overlaps(&wanted(ours, L4::Udp), &listener(theirs, v6_only, 1)));
        }
    }

    #[test]
    fn our_own_sockets_are_no_conflict() {
        let wanted = [wanted("192.0.2.1:80", L4::Tcp), wanted("192.0.2.2:80", L4::Tcp)];
        let listeners = [listener("192.0.2.1:80", false, 1), listener("0.0.0.0:80", false, 2)];
        let foreign = |ours: &[u64]| -> Vec<_> {
            find_conflicts(&wanted, &listeners, &ours.iter().copied().collect())
                .iter()
                .map(|conflict| (conflict.wanted.at.to_string(), conflict.listener.inode))
                .collect()
        };
        let (one, two) = ("192.0.2.1:80".to_owned(), "192.0.2.2:80".to_owned());
        assert_eq!(foreign(&[]), [(one.clone(), 1), (one.clone(), 2), (two.clone(), 2)]);
        assert_eq!(foreign(&[1]), [(one, 2), (two, 2)]);
        assert_eq!(foreign(&[1, 2]), []);
    }

    #[test]
    fn a_conflict_names_the_process_or_at_least_the_user() {
        let mut conflict = Conflict {
            wanted: wanted("192.0.2.1:80", L4::Tcp),
            listener: listener("[::]:80", false, 1),
            process: None,
        };
        assert_eq!(conflict.to_string(), "TCP 192.0.2.1:80 is taken: a process of user 33 holds [::]:80");
        conflict.process = Some(Process { pid: 12, name: "nginx".to_owned(), command_line: String::new() });
        assert_eq!(conflict.to_string(), "TCP 192.0.2.1:80 is taken: nginx (process 12) holds [::]:80");
    }
}
