//! Interfaces and their addresses, and our own addresses on `lo`.

use std::collections::HashSet;
use std::iter;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use nix::errno::Errno;
use nix::sys::socket::SockProtocol;

use crate::Error;
use crate::arp::Setting;
use crate::netlink::NetlinkSocket;
use crate::netlink::message::{Request, attributes, malformed, text, u32_at};
use crate::uapi::IFA_PROTO;

/// The label of our IPv4 addresses, as `ip address` shows it.
pub const LABEL: &str = "lo:seaway";

/// The address protocol (IFA_PROTO, Linux 5.18) of ours: who put them there. `S`, for Seaway.
pub const ADDRESS_PROTOCOL: u8 = 83;

const PASSING: u32 =
    libc::IFA_F_TEMPORARY | libc::IFA_F_DEPRECATED | libc::IFA_F_TENTATIVE | libc::IFA_F_DADFAILED;

const LOOPBACK: &str = "lo";
const FOREVER: u32 = u32::MAX;

/// Asks for addresses, and changes ours.
pub struct Links {
    socket: NetlinkSocket,
    loopback: Option<u32>,
}

impl Links {
    pub fn open() -> Result<Links, Error> {
        let socket = NetlinkSocket::open(SockProtocol::NetlinkRoute)
            .map_err(|source| Error::failed("opening a route socket", source))?;
        Ok(Links { socket, loopback: None })
    }

    /// All interfaces and addresses of this network namespace.
    pub fn observe(&mut self) -> Result<ObservedLinks, Error> {
        Ok(ObservedLinks { links: self.links()?, addresses: self.addresses()? })
    }

    pub fn links(&mut self) -> Result<Vec<Link>, Error> {
        let request = Request::new(libc::RTM_GETLINK, &[0; 16]);
        self.socket
            .dump(&request, |kind, payload| match kind {
                libc::RTM_NEWLINK => Link::read(payload).map(Some).ok_or_else(malformed),
                _ => Ok(None),
            })
            .map_err(|source| Error::unanswered("listing interfaces", source))
    }

    pub fn addresses(&mut self) -> Result<Vec<AssignedAddress>, Error> {
        let request = Request::new(libc::RTM_GETADDR, &[0; 8]);
        self.socket
            .dump(&request, |kind, payload| match kind {
                libc::RTM_NEWADDR => Ok(AssignedAddress::read(payload)),
                _ => Ok(None),
            })
            .map_err(|source| Error::unanswered("listing addresses", source))
    }

    /// Puts one address on `lo`, marked as ours. It says nothing about the same address on another
    /// interface: see [`ObservedLinks::is_local`] first.
    pub fn add(&mut self, ip: IpAddr) -> Result<AddOutcome, Error> {
        let failed = |source| Error::about_address("adding", ip, source, add_commands(ip));
        let loopback = self.loopback()?;
        let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        match self.socket.change(addition(ip, loopback), flags) {
            Ok(()) => Ok(AddOutcome::New),
            Err(error) if error.raw_os_error() == Some(Errno::EEXIST as i32) => Ok(AddOutcome::WasThere),
            Err(error) => Err(failed(error)),
        }
    }

    /// Takes one address of ours off `lo`.
    pub fn remove(&mut self, held: &RemovableAddress) -> Result<RemoveOutcome, Error> {
        let RemovableAddress { ip, link, ref label } = *held;
        let mut request = Request::new(libc::RTM_DELADDR, &address_header(ip, link))
            .attribute(libc::IFA_LOCAL, &octets(ip));
        if let Some(label) = label {
            // The kernel compares it: an address that somebody else put there since stays.
            request = request.attribute(libc::IFA_LABEL, &terminated(label));
        }
        match self.socket.change(request, 0) {
            Ok(()) => Ok(RemoveOutcome::Gone),
            Err(error) if error.raw_os_error() == Some(Errno::EADDRNOTAVAIL as i32) => {
                Ok(RemoveOutcome::WasGone)
            }
            Err(source) => {
                let commands = vec![remove_command(ip, label.as_deref())];
                Err(Error::about_address("removing", ip, source, commands))
            }
        }
    }

    /// Interfaces may be numbered differently in each namespace, `lo` is 1 in all of them; but a
    /// promise of that is not to be found.
    pub(crate) fn loopback(&mut self) -> Result<u32, Error> {
        if let Some(index) = self.loopback {
            return Ok(index);
        }
        let index = self
            .links()?
            .into_iter()
            .find(|link| link.loopback)
            .map(|link| link.index)
            .ok_or_else(|| Error::failed("finding the loopback interface", Errno::ENODEV))?;
        self.loopback = Some(index);
        Ok(index)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddOutcome {
    New,
    /// On `lo` already: by us, or by somebody else, and then it is not ours.
    WasThere,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoveOutcome {
    Gone,
    WasGone,
}

/// What was there at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObservedLinks {
    pub links: Vec<Link>,
    pub addresses: Vec<AssignedAddress>,
}

impl ObservedLinks {
    /// Whether sockets may bind it already, whoever made it so.
    pub fn is_local(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        ip.is_loopback() || self.addresses.iter().any(|assigned| assigned.ip == ip)
    }

    /// All that sockets may bind because an interface has it: to ask for many, ask here.
    pub fn local(&self) -> HashSet<IpAddr> {
        self.addresses.iter().map(|assigned| assigned.ip).collect()
    }

    /// Notes an address that was put on `lo` since, as it would be observed now.
    pub fn note_added(&mut self, ip: IpAddr) -> Option<RemovableAddress> {
        let link = self.links.iter().find(|link| link.loopback)?.index;
        let label = ip.is_ipv4().then(|| LABEL.to_owned());
        let mark = self.keeps_marks().then_some(ADDRESS_PROTOCOL);
        let lasts = ip.is_ipv4();
        self.addresses.push(AssignedAddress {
            ip,
            prefix: whole(ip),
            link,
            label: label.clone(),
            mark,
            lasts,
        });
        Some(RemovableAddress { ip, link, label })
    }

    /// Notes that one of ours was taken away since.
    pub fn note_removed(&mut self, held: &RemovableAddress) {
        self.addresses.retain(|it| (it.ip, it.link) != (held.ip, held.link));
    }

    /// The addresses that Seaway put on `lo`. Where the kernel keeps no mark for IPv6 (before
    /// 5.18), those in `recorded`, which the caller wrote down when it added them.
    pub fn ours(&self, recorded: &HashSet<IpAddr>) -> Vec<RemovableAddress> {
        let loopback = self.links.iter().find(|link| link.loopback);
        let marks = self.keeps_marks();
        self.addresses
            .iter()
            .filter(|assigned| loopback.is_some_and(|link| link.index == assigned.link))
            .filter(|assigned| assigned.is_whole())
            .filter(|assigned| match (assigned.ip, assigned.mark) {
                (_, Some(mark)) => mark == ADDRESS_PROTOCOL,
                (IpAddr::V4(_), None) => assigned.label.as_deref() == Some(LABEL),
                (IpAddr::V6(_), None) => !marks && recorded.contains(&assigned.ip),
            })
            .map(|assigned| RemovableAddress {
                ip: assigned.ip,
                link: assigned.link,
                label: assigned.label.clone(),
            })
            .collect()
    }

    /// Kernels that know marks put their own on the loopback addresses.
    pub fn keeps_marks(&self) -> bool {
        self.addresses.iter().any(|assigned| assigned.mark.is_some())
    }
}

/// An address that was observed to be ours; nothing else can be removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RemovableAddress {
    ip: IpAddr,
    link: u32,
    label: Option<String>,
}

impl RemovableAddress {
    pub fn ip(&self) -> IpAddr {
        self.ip
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    pub index: u32,
    pub name: String,
    pub up: bool,
    pub loopback: bool,
}

impl Link {
    pub(crate) fn read(payload: &[u8]) -> Option<Link> {
        let index = u32_at(payload, 4)?;
        let flags = u32_at(payload, 8)?;
        let name = attributes(payload.get(16..)?)
            .find(|(kind, _)| *kind == libc::IFLA_IFNAME)
            .map(|(_, value)| text(value))?;
        let has = |flag: i32| flags & flag.unsigned_abs() != 0;
        Some(Link { index, name, up: has(libc::IFF_UP), loopback: has(libc::IFF_LOOPBACK) })
    }
}

/// An address on an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignedAddress {
    pub ip: IpAddr,
    pub prefix: u8,
    /// The index of the interface.
    pub link: u32,
    /// IPv6 has none.
    pub label: Option<String>,
    /// Who put it there, if he said so and the kernel keeps it.
    pub mark: Option<u8>,
    /// It is there to stay: neither of a privacy extension nor deprecated, and no other machine was found to have it.
    pub lasts: bool,
}

impl AssignedAddress {
    /// `None` for other families than ours.
    pub(crate) fn read(payload: &[u8]) -> Option<AssignedAddress> {
        let family = i32::from(*payload.first()?);
        let prefix = *payload.get(1)?;
        let link = u32_at(payload, 4)?;
        let (mut local, mut address, mut label, mut mark) = (None, None, None, None);
        let mut flags = u32::from(*payload.get(2)?);
        for (kind, value) in attributes(payload.get(8..)?) {
            match kind {
                libc::IFA_LOCAL => local = ip(family, value),
                libc::IFA_ADDRESS => address = ip(family, value),
                libc::IFA_FLAGS => flags = u32_at(value, 0).unwrap_or(flags),
                libc::IFA_LABEL => label = Some(text(value)),
                IFA_PROTO => mark = value.first().copied(),
                _ => {}
            }
        }
        Some(AssignedAddress {
            // With a peer, IFA_ADDRESS is the peer's.
            ip: local.or(address)?,
            prefix,
            link,
            label,
            mark,
            lasts: flags & PASSING == 0,
        })
    }

    /// A single address and not a network, as all of ours are.
    fn is_whole(&self) -> bool {
        self.prefix == whole(self.ip)
    }
}

fn addition(ip: IpAddr, link: u32) -> Request {
    let request = Request::new(libc::RTM_NEWADDR, &address_header(ip, link))
        .attribute(libc::IFA_LOCAL, &octets(ip))
        .attribute(libc::IFA_ADDRESS, &octets(ip))
        .attribute(IFA_PROTO, &[ADDRESS_PROTOCOL]);
    match ip {
        IpAddr::V4(_) => request.attribute(libc::IFA_LABEL, &terminated(LABEL)),
        IpAddr::V6(_) => {
            // Deprecated (a preferred time of zero) keeps it from becoming the source address of
            // connections that have nothing to do with it. The local route is all it needs.
            let lifetime: Vec<u8> = [0, FOREVER, 0, 0].into_iter().flat_map(u32::to_ne_bytes).collect();
            let flags = libc::IFA_F_NODAD | libc::IFA_F_NOPREFIXROUTE;
            request.attribute(libc::IFA_FLAGS, &flags.to_ne_bytes()).attribute(libc::IFA_CACHEINFO, &lifetime)
        }
    }
}

/// `struct ifaddrmsg`: family, prefix, flags, scope (0 is global), interface.
fn address_header(ip: IpAddr, link: u32) -> [u8; 8] {
    let family = match ip {
        IpAddr::V4(_) => libc::AF_INET,
        IpAddr::V6(_) => libc::AF_INET6,
    };
    #[allow(clippy::expect_used, reason = "constants of the kernel's interface")]
    let family = u8::try_from(family).expect("address families are small numbers");
    let [a, b, c, d] = link.to_ne_bytes();
    [family, whole(ip), 0, 0, a, b, c, d]
}

fn whole(ip: IpAddr) -> u8 {
    if ip.is_ipv4() { 32 } else { 128 }
}

fn octets(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

fn ip(family: i32, bytes: &[u8]) -> Option<IpAddr> {
    match family {
        libc::AF_INET => Some(Ipv4Addr::from(*bytes.first_chunk::<4>()?).into()),
        libc::AF_INET6 => Some(Ipv6Addr::from(*bytes.first_chunk::<16>()?).into()),
        _ => None,
    }
}

fn terminated(text: &str) -> Vec<u8> {
    [text.as_bytes(), &[0]].concat()
}

/// By hand, the ARP settings are part of it: an address on `lo` that every host answers for does
/// harm.
fn add_commands(ip: IpAddr) -> Vec<String> {
    match ip {
        IpAddr::V4(_) => {
            let add = format!("ip address add {ip}/32 dev {LOOPBACK} label {LABEL}");
            iter::once(add).chain(Setting::commands()).collect()
        }
        IpAddr::V6(_) => {
            vec![format!("ip address add {ip}/128 dev {LOOPBACK} nodad noprefixroute preferred_lft 0")]
        }
    }
}

fn remove_command(ip: IpAddr, label: Option<&str>) -> String {
    let label = label.map(|label| format!(" label {label}")).unwrap_or_default();
    format!("ip address delete {ip}/{} dev {LOOPBACK}{label}", whole(ip))
}

#[cfg(test)]
mod tests;
