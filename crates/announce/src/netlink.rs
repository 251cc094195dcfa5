//! A netlink socket: requests out, acknowledgements and dumps in.

// What is read here is somebody else's.
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

pub(crate) mod message;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, setsockopt,
    sockopt,
};
use nix::sys::time::{TimeVal, TimeValLike};

use message::{Message, Messages, Request};

/// Above the kernel's largest dump part (32 KiB), so that none is ever cut.
const BUFFER: usize = 64 * 1024;
/// What every kernel takes at once.
const ROOM: usize = 64 * 1024;
/// A dump that was overtaken by a change is asked for again, this often.
const TRIES: usize = 8;
/// The kernel answers at once; whatever takes this long never comes.
const PATIENCE_SECONDS: i64 = 5;

#[derive(Debug)]
pub(crate) struct NetlinkSocket {
    fd: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl NetlinkSocket {
    pub(crate) fn open(protocol: SockProtocol) -> io::Result<NetlinkSocket> {
        let socket = NetlinkSocket::subscribed(protocol, 0, SockFlag::empty())?;
        let patience = TimeVal::seconds(PATIENCE_SECONDS);
        setsockopt(&socket.fd, sockopt::ReceiveTimeout, &patience)?;
        Ok(socket)
    }

    /// A socket that hears what the kernel tells everybody in `groups` (a bit for each).
    pub(crate) fn subscribed(
        protocol: SockProtocol,
        groups: u32,
        flags: SockFlag,
    ) -> io::Result<NetlinkSocket> {
        let fd = nix::sys::socket::socket(
            AddressFamily::Netlink,
            SockType::Raw,
            flags | SockFlag::SOCK_CLOEXEC,
            protocol,
        )?;
        bind(fd.as_raw_fd(), &NetlinkAddr::new(0, groups))?;
        Ok(NetlinkSocket { fd, sequence: 0, buffer: vec![0; BUFFER] })
    }

    /// One change, and the kernel's word on it.
    pub(crate) fn change(&mut self, request: Request, flags: i32) -> io::Result<()> {
        self.send(request, flags | libc::NLM_F_REQUEST | libc::NLM_F_ACK)?;
        loop {
            for message in self.receive()? {
                if let Message::Done { result, .. } = message? {
                    return result;
                }
            }
        }
    }

    /// One question that has one answer, or none.
    pub(crate) fn ask<T>(
        &mut self,
        request: Request,
        read: impl Fn(u16, &[u8]) -> Option<T>,
    ) -> io::Result<Option<T>> {
        self.send(request, libc::NLM_F_REQUEST | libc::NLM_F_ACK)?;
        let mut answer = None;
        loop {
            for message in self.receive()? {
                match message? {
                    Message::Data { kind, payload, .. } => answer = answer.or_else(|| read(kind, payload)),
                    Message::Done { result, .. } => return result.map(|()| answer),
                    Message::Foreign => {}
                }
            }
        }
    }

    /// Several changes that happen together or not at all, as netfilter has them: the first and the last only mark
    /// where it begins and ends.
    pub(crate) fn batch(&mut self, requests: &[(Request, i32)]) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        let last = requests.len().saturating_sub(2);
        let bytes: Vec<Vec<u8>> = (requests.iter().enumerate())
            .map(|(at, (request, flags))| {
                // Whatever fails is told before the last word, which is on the last change.
                let word = if at == last { libc::NLM_F_ACK } else { 0 };
                request.clone().finish(flags | word | libc::NLM_F_REQUEST, self.sequence)
            })
            .collect();
        let bytes = bytes.concat();
        if bytes.len() > ROOM {
            // Where that is not allowed, the kernel says that the message is too long.
            let _ = setsockopt(&self.fd, sockopt::SndBufForce, &bytes.len().saturating_mul(2));
        }
        send(self.fd.as_raw_fd(), &bytes, MsgFlags::empty())?;
        loop {
            for message in self.receive()? {
                if let Message::Done { result, .. } = message? {
                    return result;
                }
            }
        }
    }

    /// Everything of a kind: each answer goes through `read`, which may pass it over.
    pub(crate) fn dump<T>(
        &mut self,
        request: &Request,
        read: impl Fn(u16, &[u8]) -> io::Result<Option<T>>,
    ) -> io::Result<Vec<T>> {
        for _ in 0..TRIES {
            if let Some(all) = self.dump_once(request.clone(), &read)? {
                return Ok(all);
            }
        }
        Err(Errno::EAGAIN.into())
    }

    /// `None` if the kernel says that the answers do not fit together.
    fn dump_once<T>(
        &mut self,
        request: Request,
        read: impl Fn(u16, &[u8]) -> io::Result<Option<T>>,
    ) -> io::Result<Option<Vec<T>>> {
        let flags = libc::NLM_F_REQUEST | libc::NLM_F_DUMP;
        self.send(request, flags)?;
        let mut all = Vec::new();
        let mut overtaken = false;
        loop {
            for message in self.receive()? {
                match message? {
                    Message::Done { result, overtaken: torn } => {
                        result?;
                        return Ok((!overtaken && !torn).then_some(all));
                    }
                    Message::Data { kind, payload, overtaken: torn } => {
                        overtaken |= torn;
                        all.extend(read(kind, payload)?);
                    }
                    Message::Foreign => {}
                }
            }
        }
    }

    /// The next datagram that the kernel sent to our groups.
    pub(crate) fn receive_notifications(&mut self) -> io::Result<Messages<'_>> {
        let length = read(&self.fd, &mut self.buffer)?;
        Ok(Messages::notifications(self.buffer.get(..length).unwrap_or_default()))
    }

    fn send(&mut self, request: Request, flags: i32) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1).max(1);
        let bytes = request.finish(flags, self.sequence);
        send(self.fd.as_raw_fd(), &bytes, MsgFlags::empty())?;
        Ok(())
    }

    fn receive(&mut self) -> io::Result<Messages<'_>> {
        let length = read(&self.fd, &mut self.buffer)?;
        Ok(Messages::of(self.buffer.get(..length).unwrap_or_default(), self.sequence))
    }
}

impl AsFd for NetlinkSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn read(fd: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match recv(fd.as_raw_fd(), buffer, MsgFlags::empty()) {
            Err(Errno::EINTR) => {}
            other => return Ok(other?),
        }
    }
}
