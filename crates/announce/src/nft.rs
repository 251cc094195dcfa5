//! What both tables of nftables for addresses of pools are written with: requests and expressions, as `nft --debug=netlink`
//! spells them.

use std::net::{IpAddr, SocketAddr};

use nix::sys::socket::SockProtocol;

use crate::Error;
use crate::divert::nf;
use crate::netlink::Socket;
use crate::netlink::message::{Request, nested, value};

/// From linux/netfilter/nf_tables.h: not all of them are in the libc crate.
pub(crate) const NEW_SET: u16 = 9;
pub(crate) const NEW_ELEMENT: u16 = 12;
pub(crate) const DELETE_ELEMENT: u16 = 14;
pub(crate) const META_IIF: u32 = 4;
const META_NFPROTO: u32 = 15;
pub(crate) const META_L4PROTO: u32 = 16;
pub(crate) const NETWORK_HEADER: u32 = 1;
const TRANSPORT_HEADER: u32 = 2;
const SET_IS_MAP: u32 = 8;
/// What nft(8) calls inet_service; of keys with several parts, each has six bits.
const PORT_TYPE: u32 = 13;
const PARTS_ABOVE: u32 = 6;
pub(crate) const EQUAL: u32 = 0;
pub(crate) const NOT_EQUAL: u32 = 1;
pub(crate) const TCP: u8 = 6;
/// An attribute has 64 KiB at most.
const AT_ONCE: usize = 1_000;

/// Registers of four bytes: an address with its port in one row, and another one.
pub(crate) const KEY: u32 = 8;
pub(crate) const PLACE: u32 = 16;
pub(crate) const REGISTER: [u8; 4] = 1_u32.to_be_bytes();
pub(crate) const NESTED: u16 = 0x8000;

/// An address, and where a packet says for whom it is.
#[derive(Clone, Copy)]
pub(crate) struct Family {
    pub(crate) number: u8,
    kind: u32,
    pub(crate) length: u32,
    offset: u32,
}

pub(crate) const V4: Family = Family { number: 2, kind: 7, length: 4, offset: 16 };
pub(crate) const V6: Family = Family { number: 10, kind: 8, length: 16, offset: 24 };

impl Family {
    fn of(ip: IpAddr) -> u8 {
        if ip.is_ipv4() { V4.number } else { V6.number }
    }

    /// The register behind an address that begins in this one.
    pub(crate) fn behind(&self, register: u32) -> u32 {
        register.saturating_add(self.length / 4)
    }

    fn type_with_port(&self) -> u32 {
        self.kind << PARTS_ABOVE | PORT_TYPE
    }
}

/// All of it or nothing, by a socket of its own.
pub(crate) fn change(doing: &str, changes: Vec<(Request, i32)>) -> Result<(), Error> {
    let mut filter = open(doing)?;
    change_by(&mut filter, doing, changes)
}

pub(crate) fn open(doing: &str) -> Result<Socket, Error> {
    Socket::open(SockProtocol::NetlinkNetFilter).map_err(|source| Error::refused(doing, source))
}

pub(crate) fn change_by(filter: &mut Socket, doing: &str, changes: Vec<(Request, i32)>) -> Result<(), Error> {
    let batch = |kind| Request::new(kind, &[&[0, 0][..], &nf::TABLES.to_be_bytes()].concat());
    let mut all = vec![(batch(nf::BEGIN), 0)];
    all.extend(changes);
    all.push((batch(nf::END), 0));
    filter.batch(&all).map_err(|source| Error::refused(doing, source))
}

pub(crate) fn message(kind: u16) -> Request {
    Request::new(kind, &[nf::INET, 0, 0, 0])
}

pub(crate) fn table(name: &[u8], kind: u16) -> Request {
    message(kind).attribute(1, name)
}

/// Of addresses.
pub(crate) fn set(table: &[u8], name: &[u8], family: &Family, id: u32) -> Request {
    any_set(table, name, (family.kind, family.length), id, 0)
}

/// Of addresses with ports.
pub(crate) fn set_of_pairs(table: &[u8], name: &[u8], family: &Family, id: u32) -> Request {
    any_set(table, name, (family.type_with_port(), family.length.saturating_add(4)), id, 0)
}

/// From addresses with ports to such.
pub(crate) fn map_of_pairs(table: &[u8], name: &[u8], family: &Family, id: u32) -> Request {
    let (kind, length) = (family.type_with_port(), family.length.saturating_add(4));
    any_set(table, name, (kind, length), id, SET_IS_MAP)
        .attribute(6, &kind.to_be_bytes())
        .attribute(7, &length.to_be_bytes())
}

fn any_set(table: &[u8], name: &[u8], (kind, length): (u32, u32), id: u32, flags: u32) -> Request {
    message(nf::TABLES << 8 | NEW_SET)
        .attribute(1, table)
        .attribute(2, name)
        .attribute(3, &flags.to_be_bytes())
        .attribute(4, &kind.to_be_bytes())
        .attribute(5, &length.to_be_bytes())
        .attribute(10, &id.to_be_bytes())
}

/// In as many requests as they need.
pub(crate) fn addresses(kind: u16, table: &[u8], sets: &[(&[u8], Family)], all: &[IpAddr]) -> Vec<Request> {
    let of = |ip: &IpAddr| (Family::of(*ip), nested(1, &nested(1, &value(1, &bytes_of(*ip)))));
    elements(kind, table, sets, all.iter().map(of).collect())
}

pub(crate) fn pairs(kind: u16, table: &[u8], sets: &[(&[u8], Family)], all: &[SocketAddr]) -> Vec<Request> {
    let of = |at: &SocketAddr| (Family::of(at.ip()), nested(1, &nested(1, &value(1, &row(*at)))));
    elements(kind, table, sets, all.iter().map(of).collect())
}

pub(crate) fn mapped(
    kind: u16,
    table: &[u8],
    sets: &[(&[u8], Family)],
    all: &[(SocketAddr, SocketAddr)],
) -> Vec<Request> {
    let of = |(at, to): &(SocketAddr, SocketAddr)| {
        let key = nested(1, &value(1, &row(*at)));
        // What is removed may have another.
        let data = (kind == NEW_ELEMENT).then(|| nested(2, &value(1, &row(*to))));
        (Family::of(at.ip()), nested(1, &[key, data.unwrap_or_default()].concat()))
    };
    elements(kind, table, sets, all.iter().map(of).collect())
}

fn elements(kind: u16, table: &[u8], sets: &[(&[u8], Family)], all: Vec<(u8, Vec<u8>)>) -> Vec<Request> {
    let mut requests = Vec::new();
    for (set, family) in sets {
        let its: Vec<&[u8]> =
            all.iter().filter(|(number, _)| *number == family.number).map(|(_, it)| it.as_slice()).collect();
        requests.extend(its.chunks(AT_ONCE).map(|some| {
            let request = message(nf::TABLES << 8 | kind).attribute(1, table).attribute(2, set);
            request.attribute(3 | NESTED, &some.concat())
        }));
    }
    requests
}

fn bytes_of(ip: IpAddr) -> Vec<u8> {
    match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    }
}

/// Each part has whole registers, of four bytes.
fn row(at: SocketAddr) -> Vec<u8> {
    let mut row = bytes_of(at.ip());
    row.extend(at.port().to_be_bytes().into_iter().chain([0, 0]));
    row
}

pub(crate) fn chain(table: &[u8], name: &[u8]) -> Request {
    message(nf::NEW_CHAIN).attribute(1, table).attribute(3, name)
}

/// What comes to the machine passes through it.
pub(crate) fn arriving(table: &[u8], name: &[u8], priority: i32) -> Request {
    hooked(table, name, b"filter\0", (nf::PREROUTING, priority))
}

/// The first packet of each connection passes through it, until a rule says where the connection is translated to.
pub(crate) fn translating(table: &[u8], name: &[u8], at: (u32, i32)) -> Request {
    hooked(table, name, b"nat\0", at)
}

fn hooked(table: &[u8], name: &[u8], kind: &[u8], (hook, priority): (u32, i32)) -> Request {
    let hook = [value(1, &hook.to_be_bytes()), value(2, &priority.to_be_bytes())].concat();
    chain(table, name).attribute(4 | NESTED, &hook).attribute(7, kind)
}

pub(crate) fn rule(table: &[u8], chain: &[u8], expressions: &[Vec<u8>]) -> Request {
    message(nf::NEW_RULE).attribute(1, table).attribute(2, chain).attribute(4 | NESTED, &expressions.concat())
}

pub(crate) fn expression(name: &[u8], data: &[Vec<u8>]) -> Vec<u8> {
    nested(1, &[value(1, name), nested(2, &data.concat())].concat())
}

/// The same with numbers alone.
pub(crate) fn numbers(name: &[u8], fields: &[(u16, u32)]) -> Vec<u8> {
    let fields: Vec<_> = fields.iter().map(|(kind, number)| value(*kind, &number.to_be_bytes())).collect();
    expression(name, &fields)
}

pub(crate) fn meta(key: u32) -> Vec<u8> {
    expression(b"meta\0", &[value(2, &key.to_be_bytes()), value(1, &REGISTER)])
}

/// Bytes of the header of the network.
pub(crate) fn header(offset: u32, length: u32) -> Vec<u8> {
    numbers(b"payload\0", &[(1, 1), (2, NETWORK_HEADER), (3, offset), (4, length)])
}

pub(crate) fn compare(how: u32, with: &[u8]) -> Vec<u8> {
    let with = nested(3, &value(1, with));
    expression(b"cmp\0", &[value(1, &REGISTER), value(2, &how.to_be_bytes()), with])
}

pub(crate) fn is_of(family: &Family) -> [Vec<u8>; 2] {
    [meta(META_NFPROTO), compare(EQUAL, &[family.number])]
}

pub(crate) fn is_protocol(number: u8) -> [Vec<u8>; 2] {
    [meta(META_L4PROTO), compare(EQUAL, &[number])]
}

/// For whom it is, into `KEY`.
pub(crate) fn load_address(family: &Family) -> Vec<u8> {
    let fields = [(1, KEY), (2, NETWORK_HEADER), (3, family.offset), (4, family.length)];
    numbers(b"payload\0", &fields)
}

/// For which port, behind the address.
pub(crate) fn load_port(family: &Family) -> Vec<u8> {
    numbers(b"payload\0", &[(1, family.behind(KEY)), (2, TRANSPORT_HEADER), (3, 2), (4, 2)])
}

/// Goes on where the set has what is in `KEY`.
pub(crate) fn is_in(set: &[u8]) -> Vec<u8> {
    expression(b"lookup\0", &[value(1, set), value(2, &KEY.to_be_bytes())])
}

/// Translates for whom it is: to the address in `KEY`.
pub(crate) fn translate_to(family: &Family) -> Vec<u8> {
    const DESTINATION: u32 = 1;
    numbers(b"nat\0", &[(1, DESTINATION), (2, u32::from(family.number)), (3, KEY)])
}

pub(crate) fn verdict(code: u32, chain: Option<&[u8]>) -> Vec<u8> {
    let mut its = value(1, &code.to_be_bytes());
    its.extend(chain.iter().flat_map(|name| value(2, name)));
    expression(b"immediate\0", &[value(1, &0_u32.to_be_bytes()), nested(2, &nested(2, &its))])
}
