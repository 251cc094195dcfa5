//! News of addresses and links, as they happen.

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{SockFlag, SockProtocol};

use crate::Error;
use crate::links::{AssignedAddress, Link};
use crate::netlink::NetlinkSocket;
use crate::netlink::message::{Message, Messages};

const GROUPS: i32 = libc::RTMGRP_LINK | libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV6_IFADDR;

/// A subscription. It begins when it is opened: observe afterwards, and nothing is missed.
///
/// Non-blocking, so that its descriptor fits a reactor: when it is readable, call
/// [`events`](Watch::events). Threads call [`wait`](Watch::wait).
pub struct LinkWatch {
    socket: NetlinkSocket,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An address came, or something about it changed.
    Address {
        ip: IpAddr,
        link: u32,
    },
    AddressGone {
        ip: IpAddr,
        link: u32,
    },
    /// A link came, or something about it changed.
    Link(Link),
    LinkGone(Link),
    /// There was more news than the kernel would keep: observe again.
    Lost,
}

impl LinkWatch {
    pub fn open() -> Result<LinkWatch, Error> {
        let socket = NetlinkSocket::subscribed(
            SockProtocol::NetlinkRoute,
            GROUPS.unsigned_abs(),
            SockFlag::SOCK_NONBLOCK,
        )
        .map_err(|source| Error::failed("subscribing to address changes", source))?;
        Ok(LinkWatch { socket })
    }

    /// All that happened since the last call; nothing if there is no news.
    pub fn events(&mut self) -> Result<Vec<Event>, Error> {
        let mut events = Vec::new();
        loop {
            match self.socket.receive_notifications() {
                Ok(messages) => read(messages, &mut events),
                Err(error) => match error.raw_os_error().map(Errno::from_raw) {
                    Some(Errno::EAGAIN) => return Ok(events),
                    Some(Errno::ENOBUFS) => events.push(Event::Lost),
                    _ => return Err(Error::failed("receiving address changes", error)),
                },
            }
        }
    }

    /// Waits until there is news; empty if there was none in time.
    pub fn wait(&mut self, patience: Duration) -> Result<Vec<Event>, Error> {
        let timeout = PollTimeout::try_from(patience).unwrap_or(PollTimeout::MAX);
        let mut watched = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
        match poll(&mut watched, timeout) {
            Ok(_) | Err(Errno::EINTR) => self.events(),
            Err(error) => Err(Error::failed("waiting for address changes", error)),
        }
    }
}

impl AsFd for LinkWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for LinkWatch {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

fn read(messages: Messages<'_>, events: &mut Vec<Event>) {
    for message in messages {
        match message {
            Ok(Message::Data { kind, payload, .. }) => events.extend(event(kind, payload)),
            Ok(_) => {}
            Err(_) => events.push(Event::Lost),
        }
    }
}

pub(crate) fn event(kind: u16, payload: &[u8]) -> Option<Event> {
    let address = || AssignedAddress::read(payload).map(|assigned| (assigned.ip, assigned.link));
    match kind {
        libc::RTM_NEWADDR => address().map(|(ip, link)| Event::Address { ip, link }),
        libc::RTM_DELADDR => address().map(|(ip, link)| Event::AddressGone { ip, link }),
        libc::RTM_NEWLINK => Link::read(payload).map(Event::Link),
        libc::RTM_DELLINK => Link::read(payload).map(Event::LinkGone),
        _ => None,
    }
}
