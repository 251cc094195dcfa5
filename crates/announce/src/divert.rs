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

use crate::netlink::NetlinkSocket;
use crate::netlink::message::{Request, nested, value};
use crate::uapi::*;
use crate::{Error, Links, nft};

/// Of packets that are for our sockets.
const DIVERTED: u32 = 0x5ea1;
/// The routing table in which every address is local; above those that have names.
const ROUTES: u32 = 21_153;
/// Of the rule: after the kernel's own addresses (0), before everything that people usually write.
const PRIORITY: u32 = 83;

/// Removes what [`divert`] makes: for a shell, as root. It is left when a process ends, for another of ours may need it.
pub const UNDIVERT: &str = "nft delete table inet seaway; for f in -4 -6; do ip $f rule del fwmark 0x5ea1 table 21153; \
                            ip $f route flush table 21153; done";

const DOING: &str = "routing replies to clients' addresses back to this machine";
const TABLE: &[u8] = b"seaway\0";
const CHAIN: &[u8] = b"divert\0";

/// Makes replies to sockets that appear as somebody else come to them, in both families. What is so already stays so.
pub fn divert() -> Result<(), Error> {
    let failed = |source: std::io::Error| Error::failed(DOING, source);
    nft::change(DOING, marking())?;
    let mut routes = NetlinkSocket::open(SockProtocol::NetlinkRoute).map_err(failed)?;
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

fn lead(routes: &mut NetlinkSocket, family: u8, loopback: u32) -> std::io::Result<()> {
    let route = [family, 0, 0, 0, 0, libc::RTPROT_STATIC, libc::RT_SCOPE_HOST, libc::RTN_LOCAL, 0, 0, 0, 0];
    let route = Request::new(libc::RTM_NEWROUTE, &route)
        .attribute(libc::RTA_OIF, &loopback.to_ne_bytes())
        .attribute(libc::RTA_TABLE, &ROUTES.to_ne_bytes());
    routes.change(route, libc::NLM_F_CREATE | libc::NLM_F_REPLACE)?;
    let rule = Request::new(libc::RTM_NEWRULE, &[family, 0, 0, 0, 0, 0, 0, FR_ACT_TO_TBL, 0, 0, 0, 0])
        .attribute(FRA_PRIORITY, &PRIORITY.to_ne_bytes())
        .attribute(FRA_FWMARK, &DIVERTED.to_ne_bytes())
        .attribute(FRA_TABLE, &ROUTES.to_ne_bytes());
    match routes.change(rule, libc::NLM_F_CREATE | libc::NLM_F_EXCL) {
        Err(error) if error.raw_os_error() == Some(Errno::EEXIST as i32) => Ok(()),
        other => other,
    }
}

/// Our table anew, whatever it was, in one step.
fn marking() -> Vec<(Request, i32)> {
    let create = |it| (it, libc::NLM_F_CREATE);
    vec![
        create(nft::table(TABLE, NFT_MSG_NEWTABLE)),
        (nft::table(TABLE, NFT_MSG_DELTABLE), 0),
        create(nft::table(TABLE, NFT_MSG_NEWTABLE)),
        create(nft::prerouting_chain(TABLE, CHAIN, libc::NF_IP_PRI_MANGLE)),
        (nft::rule(TABLE, CHAIN, &expressions()), libc::NLM_F_CREATE | libc::NLM_F_APPEND),
    ]
}

/// `socket transparent 1 meta mark set … accept`, as `nft --debug=netlink` spells it.
fn expressions() -> [Vec<u8>; 5] {
    let mark = nested(NFTA_IMMEDIATE_DATA, &value(NFTA_DATA_VALUE, &DIVERTED.to_ne_bytes()));
    let mark = [value(NFTA_IMMEDIATE_DREG, &nft::REGISTER), mark];
    [
        nft::socket(NFT_SOCKET_TRANSPARENT),
        nft::compare(NFT_CMP_EQ, &[1]),
        nft::expression(b"immediate\0", &mark),
        nft::number_expression(b"meta\0", &[(NFTA_META_KEY, NFT_META_MARK), (NFTA_META_SREG, NFT_REG_1)]),
        nft::verdict(NF_ACCEPT, None),
    ]
}
