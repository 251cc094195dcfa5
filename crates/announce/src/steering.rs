//! Clients of an address of a pool are steered to a socket that is bound elsewhere, so that the port stays the machine's.
//!
//! A socket for one address and one for all addresses exclude each other at one port: while ours listens at an address of a pool,
//! sshd cannot be started at the same port, and the other way round. So ours listens at an address that nobody else has, and at a
//! port that nobody asked for:
//!
//! ```text
//!     nft table inet seaway-steering-N, after everything that translates:
//!       TCP, and (address, port) is in the map ─► tproxy to the (address, port) in the map
//! ```
//! Nothing is translated: the accepted socket has the address and port that the client asked for. No mark and no route is needed,
//! because the address is local. `guard` keeps it from what the machine translates (kube-proxy, ports of pods).
//!
//! The kernel keeps the table for the process that made it: no other changes it, `nft flush ruleset` passes over it, and it goes
//! with the process. Kernels before 5.12 know no such tables. What steers can be lost there, until somebody looks; so only what
//! cannot be had otherwise is steered.
//!
//! Only TCP: a UDP socket answers from the port that it is bound to.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsFd, AsRawFd},
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError, RwLock,
        atomic::{AtomicU16, AtomicU32, Ordering::Relaxed},
    },
};

use nix::{errno::Errno, sys::socket::NetlinkAddr};

use seaway_model::config::ReservedPorts;

use crate::{
    Error, FirewallOutcome, FirewallRules,
    firewall::{created, errno, ignore_absent, plain},
    netlink::{
        NetlinkSocket,
        message::{Request, value},
    },
    nft::{self, Family},
    uapi::*,
};

/// After everything that translates: what is for somebody else then is not ours.
pub(crate) const PRIORITY: i32 = -50;

const DOING: &str = "passing connections of clients to a socket that is bound to another address \
                     (nft_tproxy)";
const CHAIN: &[u8] = b"arrivals\0";
const MAPS: [(&[u8], Family); 2] = [(b"steered4\0", nft::V4), (b"steered6\0", nft::V6)];

/// What is steered in this network namespace.
#[derive(Debug)]
pub struct Steering {
    reserved: fn(u16) -> bool,
    /// Those that the configuration names.
    more: RwLock<Option<ReservedPorts>>,
    /// Whether a table that no other process changes is tried.
    owns: bool,
    /// Or why it is not possible here.
    table: OnceLock<Result<Table, String>>,
    steered: Mutex<Steered>,
    next: AtomicU32,
    port: AtomicU16,
}

#[derive(Debug, Default)]
struct Steered {
    /// From where, to where.
    all: BTreeMap<SocketAddr, SocketAddr>,
    /// The guard is there, and has to know each of them.
    guarded: bool,
}

/// In the kernel.
#[derive(Debug)]
struct Table {
    name: Vec<u8>,
    owned: bool,
    /// As long as it is open, what it owns is there.
    socket: Mutex<NetlinkSocket>,
}

impl Steering {
    /// `reserved`: ports that the machine needs, which are never taken from it.
    pub fn new(reserved: fn(u16) -> bool) -> Steering {
        Steering {
            reserved,
            more: RwLock::default(),
            owns: true,
            table: OnceLock::new(),
            steered: Mutex::default(),
            next: AtomicU32::new(0),
            port: AtomicU16::new(0),
        }
    }

    /// Not to be tried: nothing is steered, and reserved ports are not served.
    pub fn unavailable(reserved: fn(u16) -> bool, why: &str) -> Steering {
        Steering { table: OnceLock::from(Err(why.to_owned())), ..Steering::new(reserved) }
    }

    /// As kernels before 5.12 do it: others can remove what steers.
    pub fn fragile(reserved: fn(u16) -> bool) -> Steering {
        Steering { owns: false, ..Steering::new(reserved) }
    }

    pub fn is_reserved(&self, port: u16) -> bool {
        let more = self.more.read().unwrap_or_else(PoisonError::into_inner);
        (self.reserved)(port) || more.as_ref().is_some_and(|it| it.contains(port))
    }

    /// From now on, these as well. What was opened there before stays as it is.
    pub fn reserve(&self, ports: ReservedPorts) {
        *self.more.write().unwrap_or_else(PoisonError::into_inner) = Some(ports);
    }

    /// Whether this kernel steers, and this process may ask it to. Asked once.
    pub fn check_possible(&self) -> Result<(), &str> {
        self.table().map(|_| ())
    }

    /// Nobody else can remove what steers, so that all that can be steered may be.
    pub fn is_permanent(&self) -> bool {
        self.table().is_ok_and(|it| it.owned)
    }

    pub fn has(&self, at: SocketAddr) -> bool {
        self.steered().all.contains_key(&at)
    }

    /// Where the next socket for clients of this address should listen. All of them have one port, which is all that they
    /// take from the machine, and each has an address of its own, to which nothing comes over a network: of the
    /// loopback network, or of the prefix that is discarded (RFC 6666), which is bound without being on the machine.
    pub fn next_socket_address(&self, of: IpAddr) -> SocketAddr {
        const FIRST: u32 = Ipv4Addr::new(127, 64, 0, 0).to_bits();
        const MOST: u32 = 1 << 22;
        const DISCARDED: u128 = 0x100 << 112;
        let number = self.next.fetch_add(1, Relaxed).wrapping_add(1) % MOST;
        let ip = match of {
            IpAddr::V4(_) => IpAddr::from(Ipv4Addr::from_bits(FIRST | number)),
            IpAddr::V6(_) => Ipv6Addr::from_bits(DISCARDED | u128::from(number)).into(),
        };
        SocketAddr::new(ip, self.port.load(Relaxed))
    }

    /// From now on.
    pub fn add(&self, at: SocketAddr, to: SocketAddr) -> Result<(), Error> {
        let table =
            self.table().map_err(|why| Error::failed(DOING, std::io::Error::other(why.to_owned())))?;
        let mut steered = self.steered();
        table.add(at, to, steered.guarded)?;
        self.port.store(to.port(), Relaxed);
        steered.all.insert(at, to);
        Ok(())
    }

    /// All that a process before this one steers, from where to where, before anything is guarded. At once: before 5.12 both have one
    /// table, and clients of what is not in it for a moment are refused.
    pub fn adopt(&self, pairs: BTreeMap<SocketAddr, SocketAddr>) -> Result<(), Error> {
        let mut steered = self.steered();
        let mut all = steered.all.clone();
        all.extend(pairs);
        let table = self.table_with(&all);
        let table = table.map_err(|why| Error::failed(DOING, std::io::Error::other(why.to_owned())))?;
        table.remake(&all)?;
        if let Some(to) = all.values().next() {
            self.port.store(to.port(), Relaxed);
        }
        steered.all = all;
        Ok(())
    }

    /// Its connections go on.
    pub fn remove(&self, at: SocketAddr) -> Result<(), Error> {
        let mut steered = self.steered();
        match (steered.all.remove(&at), self.table()) {
            (Some(_), Ok(table)) => table.remove(at, steered.guarded),
            _ => Ok(()),
        }
    }

    /// All addresses with all that is steered there, whatever was there before.
    pub fn set_guarded(&self, addresses: &[IpAddr]) -> Result<FirewallOutcome, Error> {
        // Held meanwhile: what is added next finds the table as it is then.
        let mut steered = self.steered();
        if let Ok(table) = self.table()
            && !table.owned
        {
            table.remake(&steered.all)?;
        }
        let done =
            FirewallRules::set_with_steered(addresses, &steered.all.keys().copied().collect::<Vec<_>>());
        steered.guarded |= done.is_ok();
        done
    }

    /// Deletes the table on kernels before 5.12, where it would outlive the process; elsewhere it ends with the process.
    pub fn clear(&self) -> Result<(), Error> {
        match self.table.get() {
            Some(Ok(table)) if !table.owned => table.clear(),
            _ => Ok(()),
        }
    }

    /// Another process steers from now on. What this one alone has in the kernel is deleted, for it could lead clients to an
    /// address at which the other one opens another socket. Connections that were steered go on.
    pub fn retire(&self) -> Result<(), Error> {
        match self.table.get() {
            Some(Ok(table)) if table.owned => table.clear(),
            _ => Ok(()),
        }
    }

    fn table(&self) -> Result<&Table, &str> {
        self.table_with(&BTreeMap::new())
    }

    /// Made with these, if it is not there yet.
    fn table_with(&self, first: &BTreeMap<SocketAddr, SocketAddr>) -> Result<&Table, &str> {
        let shared = || Table::make(false, first);
        let make = || match self.owns {
            true => Table::make(true, first).or_else(|_| shared()).map_err(|error| chain(&error)),
            false => shared().map_err(|error| chain(&error)),
        };
        self.table.get_or_init(make).as_ref().map_err(String::as_str)
    }

    fn steered(&self) -> MutexGuard<'_, Steered> {
        self.steered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    fn make(owned: bool, steered: &BTreeMap<SocketAddr, SocketAddr>) -> Result<Table, Error> {
        let socket = nft::open(DOING)?;
        // No two of the kernel's sockets of one kind have one number.
        let own = nix::sys::socket::getsockname::<NetlinkAddr>(socket.as_fd().as_raw_fd());
        let number = own.map_err(|source| Error::failed(DOING, source))?.pid();
        let name = if owned { format!("seaway-steering-{number}\0") } else { "seaway-steering\0".to_owned() };
        let table = Table { name: name.into_bytes(), owned, socket: Mutex::new(socket) };
        table.remake(steered)?;
        Ok(table)
    }

    /// Whatever was there before.
    fn remake(&self, steered: &BTreeMap<SocketAddr, SocketAddr>) -> Result<(), Error> {
        let name = self.name.as_slice();
        // Only whoever made it changes it, and it goes with him.
        let flags = if self.owned { NFT_TABLE_F_OWNER } else { 0 };
        let table = || {
            (
                nft::table(name, NFT_MSG_NEWTABLE).attribute(NFTA_TABLE_FLAGS, &flags.to_be_bytes()),
                libc::NLM_F_CREATE,
            )
        };
        let mut changes = vec![table(), (nft::table(name, NFT_MSG_DELTABLE), 0), table()];
        let maps = MAPS.iter().zip(1_u32..);
        changes.extend(created(
            maps.map(|((map, family), id)| nft::map_of_pairs(name, map, family, id)).collect(),
        ));
        changes.extend(created(vec![nft::prerouting_chain(name, CHAIN, PRIORITY)]));
        let append = libc::NLM_F_CREATE | libc::NLM_F_APPEND;
        changes
            .extend(MAPS.iter().map(|(map, family)| (nft::rule(name, CHAIN, &steer(map, family)), append)));
        let all: Vec<_> = steered.iter().map(|(at, to)| (*at, *to)).collect();
        changes.extend(created(nft::map_elements(NFT_MSG_NEWSETELEM, name, &MAPS, &all)));
        self.change(changes)
    }

    fn add(&self, at: SocketAddr, to: SocketAddr, guarded: bool) -> Result<(), Error> {
        let element = |kind| nft::map_elements(kind, &self.name, &MAPS, &[(at, to)]);
        let guard = created(FirewallRules::steered(NFT_MSG_NEWSETELEM, at));
        match self.change_beside(created(element(NFT_MSG_NEWSETELEM)), guard.clone(), guarded) {
            // It is steered elsewhere.
            Err(error) if errno(&error) == Some(Errno::EEXIST) => {
                let (before, after) = (element(NFT_MSG_DELSETELEM), element(NFT_MSG_NEWSETELEM));
                self.change_beside([plain(before), created(after)].concat(), guard, guarded)
            }
            // Somebody removed the table: it is made again with all that is steered.
            done if !self.owned => ignore_absent(done),
            done => done,
        }
    }

    fn remove(&self, at: SocketAddr, guarded: bool) -> Result<(), Error> {
        let element = nft::map_elements(NFT_MSG_DELSETELEM, &self.name, &MAPS, &[(at, at)]);
        let guard = FirewallRules::steered(NFT_MSG_DELSETELEM, at);
        ignore_absent(self.change_beside(plain(element), plain(guard), guarded))
    }

    /// With what the guard has to know, unless somebody removed that.
    fn change_beside(
        &self,
        changes: Vec<(Request, i32)>,
        guard: Vec<(Request, i32)>,
        guarded: bool,
    ) -> Result<(), Error> {
        if guarded {
            match self.change([changes.as_slice(), &guard].concat()) {
                Err(error) if errno(&error) == Some(Errno::ENOENT) => {}
                done => return done,
            }
        }
        self.change(changes)
    }

    fn clear(&self) -> Result<(), Error> {
        ignore_absent(self.change(plain(vec![nft::table(&self.name, NFT_MSG_DELTABLE)])))
    }

    fn change(&self, changes: Vec<(Request, i32)>) -> Result<(), Error> {
        let mut socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        nft::change_through(&mut socket, DOING, changes)
    }
}

/// What is in the map is led there; where no socket is, it goes its way.
fn steer(map: &[u8], family: &Family) -> Vec<Vec<u8>> {
    let mut rule = [nft::is_of(family), nft::is_protocol(nft::TCP)].concat();
    rule.extend([nft::load_address(family), nft::load_port(family)]);
    let fields = [nft::KEY, nft::PLACE].map(u32::to_be_bytes);
    let lookup = [
        value(NFTA_LOOKUP_SET, map),
        value(NFTA_LOOKUP_SREG, &fields[0]),
        value(NFTA_LOOKUP_DREG, &fields[1]),
    ];
    rule.push(nft::expression(b"lookup\0", &lookup));
    let port = family.register_after(nft::PLACE);
    let place = [
        (NFTA_TPROXY_FAMILY, family.number.into()),
        (NFTA_TPROXY_REG_ADDR, nft::PLACE),
        (NFTA_TPROXY_REG_PORT, port),
    ];
    rule.push(nft::number_expression(b"tproxy\0", &place));
    rule.push(nft::verdict(NF_ACCEPT, None));
    rule
}

fn chain(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(source) => format!("{error}: {}", chain(source)),
        None => error.to_string(),
    }
}
