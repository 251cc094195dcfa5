//! Our addresses on `lo` answer at our ports alone.
//!
//! An address that is local is reached at every port where something listens for all addresses: sshd, the kubelet, whatever the
//! machine runs. What comes for one of ours from elsewhere passes only if a socket of that very address is there:
//!
//! ```text
//!     nft table inet seaway-addresses, before anything is translated (a node port would be):
//!       what is steered: see `steering` ────────────────────► passes
//!       from lo ──────────────────────────────────────────► passes, as does all that is for other addresses
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

use std::net::{IpAddr, SocketAddr};

use nix::errno::Errno;
use nix::sys::socket::SockProtocol;

use crate::divert::nf;
use crate::netlink::Socket;
use crate::netlink::message::{Request, nested, value};
use crate::{Error, Links, Steered};

const TABLE: &[u8] = b"seaway-addresses\0";
const CHAIN: &[u8] = b"arrivals\0";
const CHECK: &[u8] = b"check\0";
const REFUSE: &[u8] = b"refuse\0";
const DOING: &str = "keeping other ports of this machine from answering at addresses of pools";
const PROBE: &[u8] = b"seaway-probe\0";
const STEERING: &str = "steering clients to a socket that is bound elsewhere (nft_tproxy)";
/// Before `divert`, and before anything is translated.
const PRIORITY: i32 = -160;
/// An attribute has 64 KiB at most, and a datagram to the kernel not much more.
const AT_ONCE: usize = 1_000;

/// From linux/netfilter/nf_tables.h: not all of them are in the libc crate.
mod nft {
    pub(super) const NEW_SET: u16 = 9;
    pub(super) const NEW_ELEMENT: u16 = 12;
    pub(super) const DELETE_ELEMENT: u16 = 14;
    pub(super) const META_IIF: u32 = 4;
    pub(super) const META_NFPROTO: u32 = 15;
    pub(super) const META_L4PROTO: u32 = 16;
    pub(super) const NETWORK_HEADER: u32 = 1;
    pub(super) const TRANSPORT_HEADER: u32 = 2;
    pub(super) const SET_IS_MAP: u32 = 8;
    /// What nft(8) calls inet_service; of keys with several parts, each has six bits.
    pub(super) const PORT_TYPE: u32 = 13;
    pub(super) const PARTS_ABOVE: u32 = 6;
    pub(super) const EQUAL: u32 = 0;
    pub(super) const NOT_EQUAL: u32 = 1;
    pub(super) const SOCKET_TRANSPARENT: u32 = 0;
    pub(super) const SOCKET_WILDCARD: u32 = 2;
    pub(super) const DROP: u32 = 0;
    pub(super) const REJECT_TCP_RESET: u32 = 1;
    pub(super) const REJECT_UNREACHABLE: u32 = 2;
    pub(super) const PORT_UNREACHABLE: u8 = 1;
    pub(super) const JUMP: u32 = -3_i32 as u32;
}

/// A family with the set of its addresses, and where a packet says for whom it is.
struct Family {
    set: &'static [u8],
    number: u8,
    kind: u32,
    length: u32,
    offset: u32,
    /// From an address and a port to a port of loopback.
    map: &'static [u8],
    loopback: &'static [u8],
}

const FAMILIES: [Family; 2] = [
    Family {
        set: b"ours4\0",
        number: 2,
        kind: 7,
        length: 4,
        offset: 16,
        map: b"steered4\0",
        loopback: &[127, 0, 0, 1],
    },
    Family {
        set: b"ours6\0",
        number: 10,
        kind: 8,
        length: 16,
        offset: 24,
        map: b"steered6\0",
        loopback: &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
    },
];

/// The rules in the kernel. They stay when the process ends, as the addresses do, until somebody clears them.
#[derive(Debug)]
pub struct Guard;

impl Guard {
    /// For these addresses and no others, whatever was there before.
    pub fn set(addresses: &[IpAddr]) -> Result<(), Error> {
        Guard::set_either(addresses, None)
    }

    /// The same, with what is steered at them, of which those that come first are never without.
    pub(crate) fn set_steering(addresses: &[IpAddr], steered: &Steered) -> Result<(), Error> {
        Guard::set_either(addresses, Some(steered)).or_else(|error| {
            // What cannot be guarded is steered all the same.
            Guard::set_with(addresses, Some(steered), None)?;
            Err(error)
        })
    }

    fn set_either(addresses: &[IpAddr], steered: Option<&Steered>) -> Result<(), Error> {
        // Kernels before 5.9 refuse nothing before routing, and some are built without.
        Guard::set_with(addresses, steered, Some(Refusal::Answer))
            .or_else(|_| Guard::set_with(addresses, steered, Some(Refusal::Silence)))
    }

    /// Without a refusal nothing is guarded.
    fn set_with(
        addresses: &[IpAddr],
        steered: Option<&Steered>,
        refusal: Option<Refusal>,
    ) -> Result<(), Error> {
        let loopback = Links::open()?.loopback()?;
        let (first, others) = addresses.split_at_checked(AT_ONCE).unwrap_or((addresses, &[]));
        let mut changes = vec![
            (table(nf::NEW_TABLE), libc::NLM_F_CREATE),
            (table(nf::DELETE_TABLE), 0),
            (table(nf::NEW_TABLE), libc::NLM_F_CREATE),
        ];
        changes
            .extend(FAMILIES.iter().zip(1_u32..).map(|(family, id)| (set(family, id), libc::NLM_F_CREATE)));
        changes.extend(elements(nft::NEW_ELEMENT, first).map(|it| (it, libc::NLM_F_CREATE)));
        if steered.is_some() {
            changes.extend(
                FAMILIES.iter().zip(3_u32..).map(|(family, id)| (map(family, id), libc::NLM_F_CREATE)),
            );
        }
        let pairs_of: Vec<_> = steered.into_iter().flatten().map(|(at, to)| (*at, *to)).collect();
        changes.extend(pairs(nft::NEW_ELEMENT, &pairs_of).map(|it| (it, libc::NLM_F_CREATE)));
        let chains = [chain(REFUSE), chain(CHECK), arrivals()];
        changes.extend(chains.map(|it| (it, libc::NLM_F_CREATE)));
        let append = libc::NLM_F_CREATE | libc::NLM_F_APPEND;
        if steered.is_some() {
            changes.extend(FAMILIES.iter().map(|family| (rule(CHAIN, &steer(family)), append)));
        }
        if let Some(refusal) = refusal {
            changes.extend(refuse(refusal).into_iter().map(|it| (rule(REFUSE, &it), append)));
            changes.extend(check().into_iter().map(|it| (rule(CHECK, &it), append)));
            changes.extend(chosen(loopback).into_iter().map(|it| (rule(CHAIN, &it), append)));
        }
        change(changes)?;
        for more in others.chunks(AT_ONCE) {
            change(elements(nft::NEW_ELEMENT, more).map(|it| (it, libc::NLM_F_CREATE)).collect())?;
        }
        Ok(())
    }

    /// One more; what is there already stays.
    pub fn add(ip: IpAddr) -> Result<(), Error> {
        change(elements(nft::NEW_ELEMENT, &[ip]).map(|it| (it, libc::NLM_F_CREATE)).collect())
    }

    /// One less; what is not there is as good as gone.
    pub fn remove(ip: IpAddr) -> Result<(), Error> {
        gone(change(elements(nft::DELETE_ELEMENT, &[ip]).map(|it| (it, 0)).collect()))
    }

    /// Where the table is not there (yet), it will have it.
    pub(crate) fn steer(at: SocketAddr, to: u16) -> Result<(), Error> {
        let pair = [(at, to)];
        let add = || pairs(nft::NEW_ELEMENT, &pair).map(|it| (it, libc::NLM_F_CREATE));
        match change(add().collect()) {
            // A predecessor that died left it, with a port that is not ours.
            Err(Error::Refused { source, .. }) if source.raw_os_error() == Some(Errno::EEXIST as i32) => {
                let remove = pairs(nft::DELETE_ELEMENT, &pair).map(|it| (it, 0));
                change(remove.chain(add()).collect())
            }
            done => gone(done),
        }
    }

    pub(crate) fn steer_no_more(at: SocketAddr) -> Result<(), Error> {
        gone(change(pairs(nft::DELETE_ELEMENT, &[(at, 0)]).map(|it| (it, 0)).collect()))
    }

    /// Asks for a rule that steers in a table that goes in the same transaction.
    pub(crate) fn try_steering() -> Result<(), Error> {
        let of = |kind: u16| message(kind).attribute(1, PROBE);
        let rules = FAMILIES.iter().map(|family| {
            // A register that is read must have been written.
            let port = expression(
                b"immediate\0",
                &[value(1, &PORT.to_be_bytes()), nested(2, &value(1, &22_u16.to_be_bytes()))],
            );
            let led = [port, lead(family).concat()].concat();
            let rule = of(nf::NEW_RULE).attribute(2, CHAIN).attribute(4 | NESTED, &led);
            (rule, libc::NLM_F_CREATE | libc::NLM_F_APPEND)
        });
        let mut changes = vec![
            (of(nf::NEW_TABLE), libc::NLM_F_CREATE),
            (of(nf::NEW_CHAIN).attribute(3, CHAIN), libc::NLM_F_CREATE),
        ];
        changes.extend(rules);
        changes.push((of(nf::DELETE_TABLE), 0));
        change_for(STEERING, changes)
    }

    /// None, and no rules.
    pub fn clear() -> Result<(), Error> {
        gone(change(vec![(table(nf::DELETE_TABLE), 0)]))
    }
}

/// What a client hears where nothing of ours listens.
#[derive(Clone, Copy)]
enum Refusal {
    Answer,
    Silence,
}

fn gone(done: Result<(), Error>) -> Result<(), Error> {
    match done {
        Err(Error::Refused { source, .. })
            if source.raw_os_error().map(Errno::from_raw) == Some(Errno::ENOENT) =>
        {
            Ok(())
        }
        done => done,
    }
}

/// All of it or nothing.
fn change(changes: Vec<(Request, i32)>) -> Result<(), Error> {
    change_for(DOING, changes)
}

fn change_for(doing: &str, changes: Vec<(Request, i32)>) -> Result<(), Error> {
    let refused = |source: std::io::Error| Error::refused(doing, source);
    let mut filter = Socket::open(SockProtocol::NetlinkNetFilter).map_err(refused)?;
    let batch = |kind| Request::new(kind, &[&[0, 0][..], &nf::TABLES.to_be_bytes()].concat());
    let mut all = vec![(batch(nf::BEGIN), 0)];
    all.extend(changes);
    all.push((batch(nf::END), 0));
    filter.batch(&all).map_err(refused)
}

fn message(kind: u16) -> Request {
    Request::new(kind, &[nf::INET, 0, 0, 0])
}

fn table(kind: u16) -> Request {
    message(kind).attribute(1, TABLE)
}

fn set(family: &Family, id: u32) -> Request {
    message(nf::TABLES << 8 | nft::NEW_SET)
        .attribute(1, TABLE)
        .attribute(2, family.set)
        .attribute(3, &0_u32.to_be_bytes())
        .attribute(4, &family.kind.to_be_bytes())
        .attribute(5, &family.length.to_be_bytes())
        .attribute(10, &id.to_be_bytes())
}

fn elements(kind: u16, addresses: &[IpAddr]) -> impl Iterator<Item = Request> {
    let of = move |family: &Family| {
        let bytes = |ip: &IpAddr| match ip {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        let its = addresses.iter().filter(|ip| ip.is_ipv4() == (family.length == 4));
        let list: Vec<u8> = its.flat_map(|ip| nested(1, &nested(1, &value(1, &bytes(ip))))).collect();
        let request = message(nf::TABLES << 8 | kind).attribute(1, TABLE).attribute(2, family.set);
        (!list.is_empty()).then(|| request.attribute(3 | NESTED, &list))
    };
    FAMILIES.iter().filter_map(of).collect::<Vec<_>>().into_iter()
}

fn map(family: &Family, id: u32) -> Request {
    let kind = family.kind << nft::PARTS_ABOVE | nft::PORT_TYPE;
    message(nf::TABLES << 8 | nft::NEW_SET)
        .attribute(1, TABLE)
        .attribute(2, family.map)
        .attribute(3, &nft::SET_IS_MAP.to_be_bytes())
        .attribute(4, &kind.to_be_bytes())
        .attribute(5, &family.length.saturating_add(4).to_be_bytes())
        .attribute(6, &nft::PORT_TYPE.to_be_bytes())
        .attribute(7, &2_u32.to_be_bytes())
        .attribute(10, &id.to_be_bytes())
}

fn pairs(kind: u16, steered: &[(SocketAddr, u16)]) -> impl Iterator<Item = Request> {
    let of = move |family: &Family| {
        let pair = |(at, to): &(SocketAddr, u16)| {
            let mut key = match at.ip() {
                IpAddr::V4(ip) => ip.octets().to_vec(),
                IpAddr::V6(ip) => ip.octets().to_vec(),
            };
            // Each part has whole registers, of four bytes.
            key.extend(at.port().to_be_bytes().into_iter().chain([0, 0]));
            let key = nested(1, &value(1, &key));
            // What is removed may have another.
            let data = (kind == nft::NEW_ELEMENT).then(|| nested(2, &value(1, &to.to_be_bytes())));
            nested(1, &[key, data.unwrap_or_default()].concat())
        };
        let its = steered.iter().filter(|(at, _)| at.is_ipv4() == (family.length == 4));
        let list: Vec<u8> = its.flat_map(pair).collect();
        let request = message(nf::TABLES << 8 | kind).attribute(1, TABLE).attribute(2, family.map);
        (!list.is_empty()).then(|| request.attribute(3 | NESTED, &list))
    };
    FAMILIES.iter().filter_map(of).collect::<Vec<_>>().into_iter()
}

const NESTED: u16 = 0x8000;

fn chain(name: &[u8]) -> Request {
    message(nf::NEW_CHAIN).attribute(1, TABLE).attribute(3, name)
}

fn arrivals() -> Request {
    let hook = [value(1, &nf::PREROUTING.to_be_bytes()), value(2, &PRIORITY.to_be_bytes())].concat();
    chain(CHAIN).attribute(4 | NESTED, &hook).attribute(7, b"filter\0")
}

fn rule(chain: &[u8], expressions: &[Vec<u8>]) -> Request {
    message(nf::NEW_RULE).attribute(1, TABLE).attribute(2, chain).attribute(4 | NESTED, &expressions.concat())
}

/// What is for one of ours, and not from this machine, is looked at.
fn chosen(loopback: u32) -> Vec<Vec<Vec<u8>>> {
    let from_here =
        vec![meta(nft::META_IIF), compare(nft::EQUAL, &loopback.to_ne_bytes()), verdict(nf::ACCEPT, None)];
    let of = |family: &Family| {
        vec![
            meta(nft::META_NFPROTO),
            compare(nft::EQUAL, &[family.number]),
            header(family.offset, family.length),
            expression(b"lookup\0", &[value(1, family.set), value(2, &REGISTER)]),
            verdict(nft::JUMP, Some(CHECK)),
        ]
    };
    std::iter::once(from_here).chain(FAMILIES.iter().map(of)).collect()
}

/// Registers of four bytes: an address with its port in one row, an address of loopback, a port there.
const KEY: u32 = 8;
const LOOPBACK: u32 = 16;
const PORT: u32 = 20;

/// One of ours that is in the map is led there; where no socket is, the next rules decide.
fn steer(family: &Family) -> Vec<Vec<u8>> {
    let part = |base: u32, offset: u32, length: u32, register: u32| {
        let fields = [(1, register), (2, base), (3, offset), (4, length)];
        expression(b"payload\0", &fields.map(|(kind, number)| value(kind, &number.to_be_bytes())))
    };
    let key = || value(2, &KEY.to_be_bytes());
    let mut all = vec![
        meta(nft::META_NFPROTO),
        compare(nft::EQUAL, &[family.number]),
        meta(nft::META_L4PROTO),
        compare(nft::EQUAL, &[6]),
        part(nft::NETWORK_HEADER, family.offset, family.length, KEY),
        expression(b"lookup\0", &[value(1, family.set), key()]),
        part(nft::TRANSPORT_HEADER, 2, 2, KEY.saturating_add(family.length / 4)),
        expression(b"lookup\0", &[value(1, family.map), key(), value(3, &PORT.to_be_bytes())]),
    ];
    all.extend(lead(family));
    all
}

/// To the port in the register.
fn lead(family: &Family) -> Vec<Vec<u8>> {
    let loopback = [value(1, &LOOPBACK.to_be_bytes()), nested(2, &value(1, family.loopback))];
    let fields = [(1, u32::from(family.number)), (2, LOOPBACK), (3, PORT)];
    vec![
        expression(b"immediate\0", &loopback),
        expression(b"tproxy\0", &fields.map(|(kind, number)| value(kind, &number.to_be_bytes()))),
        verdict(nf::ACCEPT, None),
    ]
}

fn check() -> Vec<Vec<Vec<u8>>> {
    let accept = || verdict(nf::ACCEPT, None);
    let protocol = |number: u8| vec![meta(nft::META_L4PROTO), compare(nft::EQUAL, &[number]), accept()];
    let socket = |key: u32| expression(b"socket\0", &[value(1, &key.to_be_bytes()), value(2, &REGISTER)]);
    let mask = |bytes: &[u8]| [nested(4, &value(1, bytes)), nested(5, &value(1, &[0, 0]))].concat();
    let masked = expression(
        b"bitwise\0",
        &[value(1, &REGISTER), value(2, &REGISTER), value(3, &2_u32.to_be_bytes()), mask(&[0x1f, 0xff])],
    );
    vec![
        protocol(1),
        protocol(58),
        // A later fragment has no ports, and comes to nothing without its first.
        vec![
            meta(nft::META_NFPROTO),
            compare(nft::EQUAL, &[2]),
            header(6, 2),
            masked,
            compare(nft::NOT_EQUAL, &[0, 0]),
            accept(),
        ],
        vec![
            meta(nft::META_NFPROTO),
            compare(nft::EQUAL, &[10]),
            header(6, 1),
            compare(nft::EQUAL, &[44]),
            accept(),
        ],
        vec![socket(nft::SOCKET_WILDCARD), compare(nft::EQUAL, &[1]), verdict(nft::JUMP, Some(REFUSE))],
        // Whatever it says: where there is no socket, it says nothing and the rule does not match.
        vec![socket(nft::SOCKET_TRANSPARENT), compare(nft::NOT_EQUAL, &[2]), accept()],
        vec![verdict(nft::JUMP, Some(REFUSE))],
    ]
}

fn refuse(refusal: Refusal) -> Vec<Vec<Vec<u8>>> {
    let answer =
        |kind: u32, code: u8| expression(b"reject\0", &[value(1, &kind.to_be_bytes()), value(2, &[code])]);
    match refusal {
        Refusal::Answer => vec![
            vec![meta(nft::META_L4PROTO), compare(nft::EQUAL, &[6]), answer(nft::REJECT_TCP_RESET, 0)],
            vec![answer(nft::REJECT_UNREACHABLE, nft::PORT_UNREACHABLE)],
        ],
        Refusal::Silence => vec![vec![verdict(nft::DROP, None)]],
    }
}

const REGISTER: [u8; 4] = 1_u32.to_be_bytes();

fn expression(name: &[u8], data: &[Vec<u8>]) -> Vec<u8> {
    nested(1, &[value(1, name), nested(2, &data.concat())].concat())
}

fn meta(key: u32) -> Vec<u8> {
    expression(b"meta\0", &[value(2, &key.to_be_bytes()), value(1, &REGISTER)])
}

fn header(offset: u32, length: u32) -> Vec<u8> {
    let fields = [(2, nft::NETWORK_HEADER), (3, offset), (4, length)];
    let fields = fields.map(|(kind, number)| value(kind, &number.to_be_bytes()));
    expression(b"payload\0", &[&[value(1, &REGISTER)][..], &fields].concat())
}

fn compare(how: u32, with: &[u8]) -> Vec<u8> {
    let with = nested(3, &value(1, with));
    expression(b"cmp\0", &[value(1, &REGISTER), value(2, &how.to_be_bytes()), with])
}

fn verdict(code: u32, chain: Option<&[u8]>) -> Vec<u8> {
    let mut its = value(1, &code.to_be_bytes());
    its.extend(chain.iter().flat_map(|name| value(2, name)));
    expression(b"immediate\0", &[value(1, &0_u32.to_be_bytes()), nested(2, &nested(2, &its))])
}
