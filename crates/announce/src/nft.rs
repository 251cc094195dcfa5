//! What both tables of nftables for addresses of pools are written with: requests and expressions, as `nft --debug=netlink`
//! spells them.

use std::net::{IpAddr, SocketAddr};

use nix::sys::socket::SockProtocol;

use crate::Error;
use crate::netlink::NetlinkSocket;
use crate::netlink::message::{Request, nested, value};
use crate::uapi::*;

/// What nft(8) calls ipv4_addr, ipv6_addr and inet_service; of keys with several parts, each has six bits.
const V4_TYPE: u32 = 7;
const V6_TYPE: u32 = 8;
const PORT_TYPE: u32 = 13;
const PARTS_ABOVE: u32 = 6;
pub(crate) const TCP: u8 = libc::IPPROTO_TCP as u8;
/// An attribute has 64 KiB at most.
const AT_ONCE: usize = 1_000;

/// Registers of four bytes: an address with its port in one row, and another one.
pub(crate) const KEY: u32 = NFT_REG32_00;
pub(crate) const PLACE: u32 = NFT_REG32_08;
pub(crate) const REGISTER: [u8; 4] = NFT_REG_1.to_be_bytes();

/// An address, and where a packet says for whom it is.
#[derive(Clone, Copy)]
pub(crate) struct Family {
    pub(crate) number: u8,
    kind: u32,
    pub(crate) length: u32,
    offset: u32,
}

/// Where the header of IPv4 or IPv6 has the address that a packet is for.
pub(crate) const V4: Family = Family { number: NFPROTO_IPV4, kind: V4_TYPE, length: 4, offset: 16 };
pub(crate) const V6: Family = Family { number: NFPROTO_IPV6, kind: V6_TYPE, length: 16, offset: 24 };

impl Family {
    fn of(ip: IpAddr) -> u8 {
        if ip.is_ipv4() { V4.number } else { V6.number }
    }

    /// The register behind an address that begins in this one.
    pub(crate) fn register_after(&self, register: u32) -> u32 {
        register.saturating_add(self.length / 4)
    }

    fn type_with_port(&self) -> u32 {
        self.kind << PARTS_ABOVE | PORT_TYPE
    }
}

/// All of it or nothing, by a socket of its own.
pub(crate) fn change(doing: &str, changes: Vec<(Request, i32)>) -> Result<(), Error> {
    let mut filter = open(doing)?;
    change_through(&mut filter, doing, changes)
}

pub(crate) fn open(doing: &str) -> Result<NetlinkSocket, Error> {
    NetlinkSocket::open(SockProtocol::NetlinkNetFilter).map_err(|source| Error::failed(doing, source))
}

pub(crate) fn change_through(
    filter: &mut NetlinkSocket,
    doing: &str,
    changes: Vec<(Request, i32)>,
) -> Result<(), Error> {
    let batch = |kind| Request::new(kind, &[&[0, 0][..], &NFNL_SUBSYS_NFTABLES.to_be_bytes()].concat());
    let mut all = vec![(batch(NFNL_MSG_BATCH_BEGIN), 0)];
    all.extend(changes);
    all.push((batch(NFNL_MSG_BATCH_END), 0));
    filter.batch(&all).map_err(|source| Error::failed(doing, source))
}

pub(crate) fn message(kind: u16) -> Request {
    Request::new(kind, &[NFPROTO_INET, 0, 0, 0])
}

pub(crate) fn table(name: &[u8], kind: u16) -> Request {
    message(kind).attribute(NFTA_TABLE_NAME, name)
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
    any_set(table, name, (kind, length), id, NFT_SET_MAP)
        .attribute(NFTA_SET_DATA_TYPE, &kind.to_be_bytes())
        .attribute(NFTA_SET_DATA_LEN, &length.to_be_bytes())
}

fn any_set(table: &[u8], name: &[u8], (kind, length): (u32, u32), id: u32, flags: u32) -> Request {
    message(NFT_MSG_NEWSET)
        .attribute(NFTA_SET_TABLE, table)
        .attribute(NFTA_SET_NAME, name)
        .attribute(NFTA_SET_FLAGS, &flags.to_be_bytes())
        .attribute(NFTA_SET_KEY_TYPE, &kind.to_be_bytes())
        .attribute(NFTA_SET_KEY_LEN, &length.to_be_bytes())
        .attribute(NFTA_SET_ID, &id.to_be_bytes())
}

/// In as many requests as they need.
pub(crate) fn address_elements(
    kind: u16,
    table: &[u8],
    sets: &[(&[u8], Family)],
    all: &[IpAddr],
) -> Vec<Request> {
    let of = |ip: &IpAddr| (Family::of(*ip), element(&key(&bytes_of(*ip))));
    elements(kind, table, sets, all.iter().map(of).collect())
}

pub(crate) fn pair_elements(
    kind: u16,
    table: &[u8],
    sets: &[(&[u8], Family)],
    all: &[SocketAddr],
) -> Vec<Request> {
    let of = |at: &SocketAddr| (Family::of(at.ip()), element(&key(&row(*at))));
    elements(kind, table, sets, all.iter().map(of).collect())
}

pub(crate) fn map_elements(
    kind: u16,
    table: &[u8],
    sets: &[(&[u8], Family)],
    all: &[(SocketAddr, SocketAddr)],
) -> Vec<Request> {
    let of = |(at, to): &(SocketAddr, SocketAddr)| {
        // What is removed may have another.
        let data = (kind == NFT_MSG_NEWSETELEM)
            .then(|| nested(NFTA_SET_ELEM_DATA, &value(NFTA_DATA_VALUE, &row(*to))));
        (Family::of(at.ip()), element(&[key(&row(*at)), data.unwrap_or_default()].concat()))
    };
    elements(kind, table, sets, all.iter().map(of).collect())
}

fn key(bytes: &[u8]) -> Vec<u8> {
    nested(NFTA_SET_ELEM_KEY, &value(NFTA_DATA_VALUE, bytes))
}

fn element(its: &[u8]) -> Vec<u8> {
    nested(NFTA_LIST_ELEM, its)
}

fn elements(kind: u16, table: &[u8], sets: &[(&[u8], Family)], all: Vec<(u8, Vec<u8>)>) -> Vec<Request> {
    let mut requests = Vec::new();
    for (set, family) in sets {
        let its: Vec<&[u8]> =
            all.iter().filter(|(number, _)| *number == family.number).map(|(_, it)| it.as_slice()).collect();
        requests.extend(its.chunks(AT_ONCE).map(|some| {
            let request = message(kind)
                .attribute(NFTA_SET_ELEM_LIST_TABLE, table)
                .attribute(NFTA_SET_ELEM_LIST_SET, set);
            request.attribute(NFTA_SET_ELEM_LIST_ELEMENTS | NLA_F_NESTED, &some.concat())
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
    message(NFT_MSG_NEWCHAIN).attribute(NFTA_CHAIN_TABLE, table).attribute(NFTA_CHAIN_NAME, name)
}

/// A chain at the hook prerouting: what comes to the machine passes through it.
pub(crate) fn prerouting_chain(table: &[u8], name: &[u8], priority: i32) -> Request {
    hooked(table, name, b"filter\0", (NF_INET_PRE_ROUTING, priority))
}

/// The first packet of each connection passes through it, until a rule says where the connection is translated to.
pub(crate) fn nat_chain(table: &[u8], name: &[u8], at: (u32, i32)) -> Request {
    hooked(table, name, b"nat\0", at)
}

fn hooked(table: &[u8], name: &[u8], kind: &[u8], (hook, priority): (u32, i32)) -> Request {
    let hook =
        [value(NFTA_HOOK_HOOKNUM, &hook.to_be_bytes()), value(NFTA_HOOK_PRIORITY, &priority.to_be_bytes())];
    chain(table, name)
        .attribute(NFTA_CHAIN_HOOK | NLA_F_NESTED, &hook.concat())
        .attribute(NFTA_CHAIN_TYPE, kind)
}

pub(crate) fn rule(table: &[u8], chain: &[u8], expressions: &[Vec<u8>]) -> Request {
    message(NFT_MSG_NEWRULE)
        .attribute(NFTA_RULE_TABLE, table)
        .attribute(NFTA_RULE_CHAIN, chain)
        .attribute(NFTA_RULE_EXPRESSIONS | NLA_F_NESTED, &expressions.concat())
}

pub(crate) fn expression(name: &[u8], data: &[Vec<u8>]) -> Vec<u8> {
    let its = [value(NFTA_EXPR_NAME, name), nested(NFTA_EXPR_DATA, &data.concat())];
    nested(NFTA_LIST_ELEM, &its.concat())
}

/// The same with numbers alone.
pub(crate) fn number_expression(name: &[u8], fields: &[(u16, u32)]) -> Vec<u8> {
    let fields: Vec<_> = fields.iter().map(|(kind, number)| value(*kind, &number.to_be_bytes())).collect();
    expression(name, &fields)
}

pub(crate) fn meta(key: u32) -> Vec<u8> {
    expression(b"meta\0", &[value(NFTA_META_KEY, &key.to_be_bytes()), value(NFTA_META_DREG, &REGISTER)])
}

/// What the socket says that a packet is for; nothing, and the rule does not match, where there is none.
pub(crate) fn socket(key: u32) -> Vec<u8> {
    expression(b"socket\0", &[value(NFTA_SOCKET_KEY, &key.to_be_bytes()), value(NFTA_SOCKET_DREG, &REGISTER)])
}

/// Bytes of a header into a register.
fn payload(register: u32, header: u32, offset: u32, length: u32) -> Vec<u8> {
    let fields = [
        (NFTA_PAYLOAD_DREG, register),
        (NFTA_PAYLOAD_BASE, header),
        (NFTA_PAYLOAD_OFFSET, offset),
        (NFTA_PAYLOAD_LEN, length),
    ];
    number_expression(b"payload\0", &fields)
}

/// Bytes of the header of the network.
pub(crate) fn header(offset: u32, length: u32) -> Vec<u8> {
    payload(NFT_REG_1, NFT_PAYLOAD_NETWORK_HEADER, offset, length)
}

pub(crate) fn compare(how: u32, with: &[u8]) -> Vec<u8> {
    let with = nested(NFTA_CMP_DATA, &value(NFTA_DATA_VALUE, with));
    expression(b"cmp\0", &[value(NFTA_CMP_SREG, &REGISTER), value(NFTA_CMP_OP, &how.to_be_bytes()), with])
}

pub(crate) fn is_of(family: &Family) -> [Vec<u8>; 2] {
    [meta(NFT_META_NFPROTO), compare(NFT_CMP_EQ, &[family.number])]
}

pub(crate) fn is_protocol(number: u8) -> [Vec<u8>; 2] {
    [meta(NFT_META_L4PROTO), compare(NFT_CMP_EQ, &[number])]
}

/// For whom it is, into `KEY`.
pub(crate) fn load_address(family: &Family) -> Vec<u8> {
    payload(KEY, NFT_PAYLOAD_NETWORK_HEADER, family.offset, family.length)
}

/// For which port, behind the address.
pub(crate) fn load_port(family: &Family) -> Vec<u8> {
    payload(family.register_after(KEY), NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2)
}

/// Goes on where the set has what is in `KEY`.
pub(crate) fn is_in(set: &[u8]) -> Vec<u8> {
    expression(b"lookup\0", &[value(NFTA_LOOKUP_SET, set), value(NFTA_LOOKUP_SREG, &KEY.to_be_bytes())])
}

/// Translates for whom it is: to the address in `KEY`.
pub(crate) fn translate_to(family: &Family) -> Vec<u8> {
    let fields = [
        (NFTA_NAT_TYPE, NFT_NAT_DNAT),
        (NFTA_NAT_FAMILY, family.number.into()),
        (NFTA_NAT_REG_ADDR_MIN, KEY),
    ];
    number_expression(b"nat\0", &fields)
}

pub(crate) fn verdict(code: u32, chain: Option<&[u8]>) -> Vec<u8> {
    let mut its = value(NFTA_VERDICT_CODE, &code.to_be_bytes());
    its.extend(chain.iter().flat_map(|name| value(NFTA_VERDICT_CHAIN, name)));
    let verdict = nested(NFTA_IMMEDIATE_DATA, &nested(NFTA_DATA_VERDICT, &its));
    expression(b"immediate\0", &[value(NFTA_IMMEDIATE_DREG, &NFT_REG_VERDICT.to_be_bytes()), verdict])
}
