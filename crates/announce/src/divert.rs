//! Replies that go to somebody else and are meant for our sockets.
//!
//! A socket that appears to a member as its client (IP_TRANSPARENT) is answered at the client's address. Where such an
//! answer passes through this host, the kernel would pass it on:
//!
//! ```text
//!     nft: socket transparent ─► mark ─► ip rule ─► a table in which every address is local ─► the socket
//! ```
//! Only packets of such sockets are marked (Documentation/networking/tproxy.rst).

use nix::errno::Errno;
use nix::sys::socket::SockProtocol;

use crate::netlink::Socket;
use crate::netlink::message::{Request, nested, value};
use crate::{Error, Links};

/// Of packets that are for our sockets.
const DIVERTED: u32 = 0x5ea1;
/// The routing table in which every address is local; above those that have names.
const ROUTES: u32 = 21_153;
/// Of the rule: after the kernel's own addresses (0), before everything that people usually write.
const PRIORITY: u32 = 83;

/// Removes what [`divert`] makes: for a shell, as root. It is left when a process ends, for another of ours may need it.
pub const UNDIVERT: &str = "nft delete table inet seaway; for f in -4 -6; do ip $f rule del fwmark 0x5ea1 table 21153; \
                            ip $f route flush table 21153; done";

const TABLE: &[u8] = b"seaway\0";
const CHAIN: &[u8] = b"divert\0";

/// From linux/netfilter/nfnetlink.h and nf_tables.h: not all of them are in the libc crate.
pub(crate) mod nf {
    pub(crate) const TABLES: u16 = 10;
    pub(crate) const BEGIN: u16 = 0x10;
    pub(crate) const END: u16 = 0x11;
    pub(crate) const NEW_TABLE: u16 = TABLES << 8;
    pub(crate) const DELETE_TABLE: u16 = TABLES << 8 | 2;
    pub(crate) const NEW_CHAIN: u16 = TABLES << 8 | 3;
    pub(crate) const NEW_RULE: u16 = TABLES << 8 | 6;
    pub(crate) const INET: u8 = 1;
    pub(crate) const PREROUTING: u32 = 0;
    pub(crate) const OUTPUT: u32 = 3;
    /// Before anything is translated, and before a route is chosen.
    pub(crate) const MANGLE: i32 = -150;
    pub(crate) const ACCEPT: u32 = 1;
    pub(crate) const MARK: u32 = 3;
}

/// Makes replies to sockets that appear as somebody else come to them, in both families. What is so already stays so.
pub fn divert() -> Result<(), Error> {
    let failed =
        |source: std::io::Error| Error::refused("leading replies to clients' addresses back here", source);
    let mut filter = Socket::open(SockProtocol::NetlinkNetFilter).map_err(failed)?;
    filter.batch(&marking()).map_err(failed)?;
    let mut routes = Socket::open(SockProtocol::NetlinkRoute).map_err(failed)?;
    let loopback = Links::open()?.loopback()?;
    for family in [libc::AF_INET, libc::AF_INET6] {
        #[allow(clippy::expect_used, reason = "constants of the kernel's interface")]
        let family = u8::try_from(family).expect("families are small numbers");
        let led = lead(&mut routes, family, loopback);
        match led {
            // A kernel without IPv6 has no replies by it.
            Err(_) if i32::from(family) == libc::AF_INET6 => {}
            led => led.map_err(failed)?,
        }
    }
    Ok(())
}

fn lead(routes: &mut Socket, family: u8, loopback: u32) -> std::io::Result<()> {
    const HOST_SCOPE: u8 = 254;
    const STATIC: u8 = 4;
    const LOCAL: u8 = 2;
    let route =
        Request::new(libc::RTM_NEWROUTE, &[family, 0, 0, 0, 0, STATIC, HOST_SCOPE, LOCAL, 0, 0, 0, 0])
            .attribute(libc::RTA_OIF, &loopback.to_ne_bytes())
            .attribute(libc::RTA_TABLE, &ROUTES.to_ne_bytes());
    routes.change(route, libc::NLM_F_CREATE | libc::NLM_F_REPLACE)?;
    const TO_TABLE: u8 = 1;
    // Of linux/fib_rules.h.
    let (fra_priority, fra_mark, fra_table) = (6, 10, 15);
    let rule = Request::new(libc::RTM_NEWRULE, &[family, 0, 0, 0, 0, 0, 0, TO_TABLE, 0, 0, 0, 0])
        .attribute(fra_priority, &PRIORITY.to_ne_bytes())
        .attribute(fra_mark, &DIVERTED.to_ne_bytes())
        .attribute(fra_table, &ROUTES.to_ne_bytes());
    match routes.change(rule, libc::NLM_F_CREATE | libc::NLM_F_EXCL) {
        Err(error) if error.raw_os_error() == Some(Errno::EEXIST as i32) => Ok(()),
        other => other,
    }
}

/// Our table anew, whatever it was, in one step.
fn marking() -> Vec<(Request, i32)> {
    let message = |kind| Request::new(kind, &[nf::INET, 0, 0, 0]);
    let batch = |kind| Request::new(kind, &[&[0, 0][..], &nf::TABLES.to_be_bytes()].concat());
    let table = |kind| message(kind).attribute(1, TABLE);
    let hook = [value(1, &nf::PREROUTING.to_be_bytes()), value(2, &nf::MANGLE.to_be_bytes())].concat();
    let chain = message(nf::NEW_CHAIN)
        .attribute(1, TABLE)
        .attribute(3, CHAIN)
        .attribute(4 | NESTED, &hook)
        .attribute(7, b"filter\0");
    let rule =
        message(nf::NEW_RULE).attribute(1, TABLE).attribute(2, CHAIN).attribute(4 | NESTED, &expressions());
    vec![
        (batch(nf::BEGIN), 0),
        (table(nf::NEW_TABLE), libc::NLM_F_CREATE),
        (table(nf::DELETE_TABLE), 0),
        (table(nf::NEW_TABLE), libc::NLM_F_CREATE),
        (chain, libc::NLM_F_CREATE),
        (rule, libc::NLM_F_CREATE | libc::NLM_F_APPEND),
        (batch(nf::END), 0),
    ]
}

const NESTED: u16 = 0x8000;

/// `socket transparent 1 meta mark set … accept`, as `nft --debug=netlink` spells it.
fn expressions() -> Vec<u8> {
    const REGISTER: [u8; 4] = 1_u32.to_be_bytes();
    const VERDICT: [u8; 4] = 0_u32.to_be_bytes();
    let zero = 0_u32.to_be_bytes();
    let expression =
        |name: &[u8], data: &[Vec<u8>]| nested(1, &[value(1, name), nested(2, &data.concat())].concat());
    let bytes = |kind, bytes: &[u8]| nested(kind, &value(1, bytes));
    let accept = nested(2, &nested(2, &value(1, &nf::ACCEPT.to_be_bytes())));
    [
        // Its key `transparent` into the register; is it 1?
        expression(b"socket\0", &[value(1, &zero), value(2, &REGISTER)]),
        expression(b"cmp\0", &[value(1, &REGISTER), value(2, &zero), bytes(3, &[1])]),
        expression(b"immediate\0", &[value(1, &REGISTER), bytes(2, &DIVERTED.to_ne_bytes())]),
        expression(b"meta\0", &[value(2, &nf::MARK.to_be_bytes()), value(3, &REGISTER)]),
        expression(b"immediate\0", &[value(1, &VERDICT), accept]),
    ]
    .concat()
}
