//! Nftables rules by which our addresses on `lo` answer at our ports alone.
//!
//! An address that is local is reached at every port where something listens for all addresses: sshd, the kubelet, whatever the
//! machine runs. What comes for one of ours from elsewhere passes only if a socket of that very address is there:
//!
//! ```text
//!     nft table inet seaway-addresses, before anything is translated (a node port would be):
//!       from lo ──────────────────────────────────────────► passes, as does all that is for other addresses
//!       a port that is steered (see `steering`) ────────────► passes here; all below is asked once that is done
//!       ICMP (echo, path MTU, neighbours), later fragments ─► pass
//!       the socket there is for all addresses ─────────────► refused
//!       a socket of that address, or a connection of it ───► passes
//!       no socket ─────────────────────────────────────────► refused
//! ```
//!
//! Refused is what the kernel itself says where nothing listens: a reset, or that the port is unreachable. So clients of a host
//! that drains or has died go on to another at once. Where the kernel cannot refuse there, packets are dropped.
//!
//! Sockets are looked up, connections are not tracked: answers to connections that the machine makes from such an address find
//! their socket as well.
//!
//! What passes is for a socket of ours, but kube-proxy and CNI translate next, and a tenant writes what they translate (a Service
//! with `externalIPs`, a pod with `hostPort`). So the same table translates it first, to itself. The kernel asks the chains of
//! type `nat` of all tables, iptables' among them, in the order of their priorities, and only until one has translated
//! (`nf_nat_inet_fn`, net/netfilter/nf_nat_core.c):
//!
//! ```text
//!     from elsewhere (prerouting), or from this machine (output), -110:
//!       for one of ours ─► translated to itself; chains that come later are not asked
//! ```
//!
//! It is asked for the first packet of a connection alone, and only where the kernel tracks connections already: without that nobody
//! translates, and to begin with it would bound how many connections the machine can have. What was translated before the address was
//! ours stays so until that connection ends.

use std::{
    fs, io,
    net::{IpAddr, SocketAddr},
};

use nix::errno::Errno;

use crate::netlink::message::{Request, nested, value};
use crate::nft::{self, Family};
use crate::steering::PRIORITY as STEERS;
use crate::uapi::*;
use crate::{Error, Links};

const TABLE: &[u8] = b"seaway-addresses\0";
const ARRIVALS: &[u8] = b"arrivals\0";
const LANDED: &[u8] = b"landed\0";
const CHECK: &[u8] = b"check\0";
const REFUSE: &[u8] = b"refuse\0";
const ARRIVALS_KEPT: &[u8] = b"arrivals-kept\0";
const DEPARTURES_KEPT: &[u8] = b"departures-kept\0";
const DOING: &str = "keeping other ports of this machine from answering at addresses of pools";
/// Before `divert`, and before anything is translated.
const PRIORITY: i32 = -160;
/// Before iptables, kube-proxy and CNI, which have -100. An operator who translates on purpose has room before it.
const TRANSLATES: i32 = -110;

/// Addresses of ours, and with them the ports that are steered.
const OURS: [(&[u8], Family); 2] = [(b"ours4\0", nft::V4), (b"ours6\0", nft::V6)];
const STEERED: [(&[u8], Family); 2] = [(b"steered4\0", nft::V4), (b"steered6\0", nft::V6)];

/// The rules in the kernel. They stay when the process ends, as the addresses do, until somebody clears them.
#[derive(Debug)]
pub struct FirewallRules;

/// What came of it.
#[derive(Debug)]
#[must_use]
pub struct FirewallOutcome {
    /// Why rules of others may translate what is for these addresses; all else is as it should be.
    pub translatable: Option<Error>,
}

impl FirewallRules {
    /// For these addresses and no others, whatever was there before.
    pub fn set(addresses: &[IpAddr]) -> Result<FirewallOutcome, Error> {
        FirewallRules::set_with_steered(addresses, &[])
    }

    /// The same, with what is steered at them.
    pub(crate) fn set_with_steered(
        addresses: &[IpAddr],
        steered: &[SocketAddr],
    ) -> Result<FirewallOutcome, Error> {
        most(is_tracked(), |refusal, translation| {
            FirewallRules::set_with(addresses, steered, refusal, translation)
        })
    }

    fn set_with(
        addresses: &[IpAddr],
        steered: &[SocketAddr],
        refusal: RejectMode,
        translation: Translation,
    ) -> Result<(), Error> {
        let loopback = Links::open()?.loopback()?;
        let create = |it| (it, libc::NLM_F_CREATE);
        let mut changes = vec![
            create(nft::table(TABLE, NFT_MSG_NEWTABLE)),
            (nft::table(TABLE, NFT_MSG_DELTABLE), 0),
            create(nft::table(TABLE, NFT_MSG_NEWTABLE)),
        ];
        let sets = OURS.iter().zip(1_u32..).map(|((name, family), id)| nft::set(TABLE, name, family, id));
        changes.extend(sets.map(create));
        let sets = STEERED.iter().zip(3_u32..);
        changes
            .extend(sets.map(|((name, family), id)| nft::set_of_pairs(TABLE, name, family, id)).map(create));
        let (plain, arriving) = ([REFUSE, CHECK], [(ARRIVALS, PRIORITY), (LANDED, STEERS.saturating_add(1))]);
        changes.extend(plain.map(|name| create(nft::chain(TABLE, name))));
        changes.extend(arriving.map(|(name, priority)| create(nft::prerouting_chain(TABLE, name, priority))));
        let rules = [
            (REFUSE, refuse(refusal)),
            (CHECK, check()),
            (ARRIVALS, chosen(loopback)),
            (LANDED, chosen_when_steered(loopback)),
        ];
        let kept = match translation {
            Translation::Ours => {
                &[(ARRIVALS_KEPT, NF_INET_PRE_ROUTING), (DEPARTURES_KEPT, NF_INET_LOCAL_OUT)][..]
            }
            Translation::Others => &[],
        };
        changes
            .extend(kept.iter().map(|(name, hook)| create(nft::nat_chain(TABLE, name, (*hook, TRANSLATES)))));
        let rules = rules.into_iter().chain(kept.iter().map(|(name, _)| (*name, to_itself())));
        let append = libc::NLM_F_CREATE | libc::NLM_F_APPEND;
        for (chain, rules) in rules {
            changes.extend(rules.iter().map(|it| (nft::rule(TABLE, chain, it), append)));
        }
        // What is steered is known before its address is guarded, or clients would be refused.
        let mut elements = nft::pair_elements(NFT_MSG_NEWSETELEM, TABLE, &STEERED, steered);
        elements.extend(nft::address_elements(NFT_MSG_NEWSETELEM, TABLE, &OURS, addresses));
        let mut elements = elements.into_iter().map(create);
        match change(changes.iter().cloned().chain(elements.clone()).collect()) {
            Err(error) if errno(&error) == Some(Errno::EMSGSIZE) => {
                change(changes)?;
                elements.try_for_each(|it| change(vec![it]))
            }
            done => done,
        }
    }

    /// One more; what is there already stays.
    pub fn add(ip: IpAddr) -> Result<(), Error> {
        change(created(nft::address_elements(NFT_MSG_NEWSETELEM, TABLE, &OURS, &[ip])))
    }

    /// Removes one address; one that is absent is no error.
    pub fn remove(ip: IpAddr) -> Result<(), Error> {
        ignore_absent(change(plain(nft::address_elements(NFT_MSG_DELSETELEM, TABLE, &OURS, &[ip]))))
    }

    /// What says that it is steered (`NFT_MSG_NEWSETELEM`), or is no more (`NFT_MSG_DELSETELEM`).
    pub(crate) fn steered(kind: u16, at: SocketAddr) -> Vec<Request> {
        nft::pair_elements(kind, TABLE, &STEERED, &[at])
    }

    /// Deletes the table: no address is guarded any more.
    pub fn clear() -> Result<(), Error> {
        ignore_absent(change(plain(vec![nft::table(TABLE, NFT_MSG_DELTABLE)])))
    }
}

/// What a client hears where nothing of ours listens.
#[derive(Clone, Copy, Debug, PartialEq)]
enum RejectMode {
    Answer,
    Silence,
}

/// Who translates what is for ours.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Translation {
    Ours,
    Others,
}

/// As much as this kernel can do: those before 5.9 refuse nothing before routing, those before 5.2 translate in no table that is for
/// both families, and some are built without either.
fn most(
    is_tracked: bool,
    mut attempt: impl FnMut(RejectMode, Translation) -> Result<(), Error>,
) -> Result<FirewallOutcome, Error> {
    let mut by = |translation| {
        attempt(RejectMode::Answer, translation).or_else(|_| attempt(RejectMode::Silence, translation))
    };
    if !is_tracked {
        return by(Translation::Others).map(|()| FirewallOutcome { translatable: None });
    }
    match by(Translation::Ours) {
        Ok(()) => Ok(FirewallOutcome { translatable: None }),
        Err(why) => by(Translation::Others).map(|()| FirewallOutcome { translatable: Some(why) }),
    }
}

pub(crate) fn created(requests: Vec<Request>) -> Vec<(Request, i32)> {
    requests.into_iter().map(|it| (it, libc::NLM_F_CREATE)).collect()
}

pub(crate) fn plain(requests: Vec<Request>) -> Vec<(Request, i32)> {
    requests.into_iter().map(|it| (it, 0)).collect()
}

pub(crate) fn errno(error: &Error) -> Option<Errno> {
    match error {
        Error::Failed { source, .. } => source.raw_os_error().map(Errno::from_raw),
        _ => None,
    }
}

pub(crate) fn ignore_absent(done: Result<(), Error>) -> Result<(), Error> {
    match done {
        Err(error) if errno(&error) == Some(Errno::ENOENT) => Ok(()),
        done => done,
    }
}

/// All of it or nothing.
fn change(changes: Vec<(Request, i32)>) -> Result<(), Error> {
    nft::change(DOING, changes)
}

fn from_here(loopback: u32) -> Vec<Vec<u8>> {
    vec![
        nft::meta(NFT_META_IIF),
        nft::compare(NFT_CMP_EQ, &loopback.to_ne_bytes()),
        nft::verdict(NF_ACCEPT, None),
    ]
}

/// What is for one of ours, and not from this machine, is looked at.
fn chosen(loopback: u32) -> Vec<Vec<Vec<u8>>> {
    let mut rules = vec![from_here(loopback)];
    rules.extend(STEERED.iter().map(|(steered, family)| {
        let mut rule = [nft::is_of(family), nft::is_protocol(nft::TCP)].concat();
        rule.extend([nft::load_address(family), nft::load_port(family), nft::is_in(steered)]);
        rule.push(nft::verdict(NF_ACCEPT, None));
        rule
    }));
    rules.extend(OURS.iter().map(|(ours, family)| {
        let mut rule = nft::is_of(family).to_vec();
        rule.extend([nft::load_address(family), nft::is_in(ours), nft::verdict(NFT_JUMP, Some(CHECK))]);
        rule
    }));
    rules
}

/// What was let through to be steered, and is still for that port: there has to be the socket that it was steered to, or the
/// process has ended.
fn chosen_when_steered(loopback: u32) -> Vec<Vec<Vec<u8>>> {
    let mut rules = vec![from_here(loopback)];
    rules.extend(OURS.iter().zip(STEERED).map(|((ours, family), (steered, _))| {
        let mut rule = [nft::is_of(family), nft::is_protocol(nft::TCP)].concat();
        rule.extend([nft::load_address(family), nft::is_in(ours), nft::load_port(family)]);
        rule.extend([nft::is_in(steered), nft::verdict(NFT_JUMP, Some(CHECK))]);
        rule
    }));
    rules
}

/// Whether connections are tracked in this network. Where it cannot be read, they may be; without the module, none is.
fn is_tracked() -> bool {
    match fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count") {
        Ok(count) => count.trim() != "0",
        Err(error) => error.kind() != io::ErrorKind::NotFound,
    }
}

fn to_itself() -> Vec<Vec<Vec<u8>>> {
    let rule = |(ours, family): &(&[u8], Family)| {
        let its = [nft::load_address(family), nft::is_in(ours), nft::translate_to(family)];
        [nft::is_of(family).to_vec(), its.to_vec()].concat()
    };
    OURS.iter().map(rule).collect()
}

fn check() -> Vec<Vec<Vec<u8>>> {
    const FRAGMENT: u8 = libc::IPPROTO_FRAGMENT as u8;
    let accept = || nft::verdict(NF_ACCEPT, None);
    let protocol = |number: u8| [nft::is_protocol(number).to_vec(), vec![accept()]].concat();
    let data = |kind, bytes: &[u8]| nested(kind, &value(NFTA_DATA_VALUE, bytes));
    // Of IPv4's flags and fragment offset, the offset.
    let masked = nft::expression(
        b"bitwise\0",
        &[
            value(NFTA_BITWISE_SREG, &nft::REGISTER),
            value(NFTA_BITWISE_DREG, &nft::REGISTER),
            value(NFTA_BITWISE_LEN, &2_u32.to_be_bytes()),
            data(NFTA_BITWISE_MASK, &[0x1f, 0xff]),
            data(NFTA_BITWISE_XOR, &[0, 0]),
        ],
    );
    let in_family = |family: &Family, rest: Vec<Vec<u8>>| [nft::is_of(family).to_vec(), rest].concat();
    vec![
        protocol(libc::IPPROTO_ICMP as u8),
        protocol(libc::IPPROTO_ICMPV6 as u8),
        // A later fragment has no ports, and comes to nothing without its first.
        in_family(&nft::V4, vec![nft::header(6, 2), masked, nft::compare(NFT_CMP_NEQ, &[0, 0]), accept()]),
        in_family(&nft::V6, vec![nft::header(6, 1), nft::compare(NFT_CMP_EQ, &[FRAGMENT]), accept()]),
        vec![
            nft::socket(NFT_SOCKET_WILDCARD),
            nft::compare(NFT_CMP_EQ, &[1]),
            nft::verdict(NFT_JUMP, Some(REFUSE)),
        ],
        // Whatever it says: where there is no socket, it says nothing and the rule does not match.
        vec![nft::socket(NFT_SOCKET_TRANSPARENT), nft::compare(NFT_CMP_NEQ, &[2]), accept()],
        vec![nft::verdict(NFT_JUMP, Some(REFUSE))],
    ]
}

fn refuse(refusal: RejectMode) -> Vec<Vec<Vec<u8>>> {
    let answer = |kind: u32, code: u8| {
        let its = [value(NFTA_REJECT_TYPE, &kind.to_be_bytes()), value(NFTA_REJECT_ICMP_CODE, &[code])];
        nft::expression(b"reject\0", &its)
    };
    match refusal {
        RejectMode::Answer => vec![
            [nft::is_protocol(nft::TCP).to_vec(), vec![answer(NFT_REJECT_TCP_RST, 0)]].concat(),
            vec![answer(NFT_REJECT_ICMPX_UNREACH, NFT_REJECT_ICMPX_PORT_UNREACH)],
        ],
        RejectMode::Silence => vec![vec![nft::verdict(NF_DROP, None)]],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is guarded on a kernel that can do some of it: how packets are refused and who translates, or nothing at all.
    fn possible(
        is_tracked: bool,
        can: impl Fn(RejectMode, Translation) -> bool,
    ) -> Option<(RejectMode, Translation)> {
        let mut done = None;
        let refused = || Error::failed(DOING, std::io::Error::from_raw_os_error(libc::EOPNOTSUPP));
        let guarded = most(is_tracked, |refusal, translation| {
            done = Some((refusal, translation)).filter(|_| can(refusal, translation));
            done.map(drop).ok_or_else(refused)
        });
        let told = guarded.map(|it| it.translatable.is_some()).ok();
        assert_eq!(told, done.map(|(_, translation)| is_tracked && translation == Translation::Others));
        done
    }

    #[test]
    fn a_kernel_that_can_do_less_does_what_it_can() {
        use {RejectMode::*, Translation::*};
        assert_eq!(possible(true, |_, _| true), Some((Answer, Ours)));
        assert_eq!(possible(true, |refusal, _| refusal == Silence), Some((Silence, Ours)));
        assert_eq!(possible(true, |_, translation| translation == Others), Some((Answer, Others)));
        assert_eq!(possible(true, |refusal, by| refusal == Silence && by == Others), Some((Silence, Others)));
        assert_eq!(possible(true, |_, _| false), None);
        assert_eq!(possible(false, |_, _| true), Some((Answer, Others)), "nobody translates there");
        assert_eq!(possible(false, |refusal, _| refusal == Silence), Some((Silence, Others)));
    }
}
