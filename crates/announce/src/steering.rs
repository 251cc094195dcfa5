//! Clients of an address of a pool are steered to a socket that is bound elsewhere, so that the port stays the machine's.
//!
//! A socket for one address and one for all addresses exclude each other at one port: while ours listens at an address of a pool,
//! sshd cannot be started at the same port, and the other way round. So ours listens at a port of loopback that nobody asked for:
//!
//! ```text
//!     nft table inet seaway-addresses, before all that guards:
//!       for one of ours, TCP, and (address, port) is in the map ─► tproxy to 127.0.0.1 or [::1], at the port in the map
//! ```
//! Nothing is translated: the accepted socket has the address and port that the client asked for. No mark and no route is needed,
//! because the address is local. Where the process ended, there is no socket, and the client is refused as at any other port.
//!
//! Only TCP: a UDP socket answers from the port that it is bound to.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{Mutex, MutexGuard, OnceLock, PoisonError},
};

use crate::{Error, Guard};

/// Where it is steered from, and to which port of loopback.
pub type Steered = BTreeMap<SocketAddr, u16>;

/// Each takes a port of loopback, of which the kernel gives none to others; and all of them are told to it at once.
pub const MOST_STEERED: usize = 500;

/// What is steered in this network namespace. It is in the kernel while its addresses are guarded.
#[derive(Debug)]
pub struct Steering {
    reserved: fn(u16) -> bool,
    /// Why it is not possible here.
    possible: OnceLock<Result<(), String>>,
    steered: Mutex<Steered>,
}

impl Steering {
    /// `reserved`: ports that the machine needs, which are never taken from it.
    pub fn new(reserved: fn(u16) -> bool) -> Steering {
        Steering { reserved, possible: OnceLock::new(), steered: Mutex::default() }
    }

    /// Not to be tried: nothing is steered, and reserved ports are not served.
    pub fn impossible(reserved: fn(u16) -> bool, why: &str) -> Steering {
        Steering { possible: OnceLock::from(Err(why.to_owned())), ..Steering::new(reserved) }
    }

    pub fn is_reserved(&self, port: u16) -> bool {
        (self.reserved)(port)
    }

    /// Whether this kernel steers, and this process may ask it to. Asked once.
    pub fn possible(&self) -> Result<(), &str> {
        let tried = self.possible.get_or_init(|| Guard::try_steering().map_err(|error| chain(&error)));
        tried.as_ref().copied().map_err(String::as_str)
    }

    pub fn is_full(&self) -> bool {
        self.steered().len() >= MOST_STEERED
    }

    /// Where a socket has to listen for clients of this address.
    pub fn place(of: IpAddr) -> IpAddr {
        match of {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        }
    }

    /// From now on, or from when the address is guarded.
    pub fn add(&self, at: SocketAddr, to: u16) -> Result<(), Error> {
        let mut steered = self.steered();
        Guard::steer(at, to)?;
        steered.insert(at, to);
        Ok(())
    }

    /// Its connections go on.
    pub fn remove(&self, at: SocketAddr) -> Result<(), Error> {
        let mut steered = self.steered();
        match steered.remove(&at) {
            Some(_) => Guard::steer_no_more(at),
            None => Ok(()),
        }
    }

    /// All addresses with all that is steered there, whatever was there before.
    pub fn guard(&self, addresses: &[IpAddr]) -> Result<(), Error> {
        // Held meanwhile: what is added next finds the table as it is then.
        let steered = self.steered();
        match self.possible() {
            Ok(()) => {
                let mut addresses = addresses.to_vec();
                addresses.sort_by_cached_key(|ip| !steered.keys().any(|at| at.ip() == *ip));
                Guard::set_steering(&addresses, &steered)
            }
            Err(_) => Guard::set(addresses),
        }
    }

    fn steered(&self) -> MutexGuard<'_, Steered> {
        self.steered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}
