//! Many datagrams by one system call, and trains of datagrams by one buffer (GRO, GSO).
//!
//! Buffers are made once per worker and never move: the kernel gets pointers into them only for the length of a call.

mod peer;

use std::{
    io, mem,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    ptr,
};

use libc::{c_int, c_void};

use self::peer::Address;
use super::{KernelAddress, checked};

pub(crate) use self::peer::Peer;

/// As many datagrams as one call takes or gives.
pub(crate) const BATCH: usize = 64;
/// Room for the largest datagram, and for the longest train that GRO makes.
const SLOT: usize = 65_536;
/// Slots are a little further apart than their size, or the first lines of all of them would share one cache set.
const STRIDE: usize = SLOT + 192;
/// How much may wait for being sent.
const OUTGOING: usize = 16 * SLOT;
/// Segments that one GSO call may carry in every kernel that knows it.
const TRAIN: usize = 64;
/// Space for one control message with an `int`.
const CONTROL: usize = 32;

#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

const NO_MESSAGE: libc::mmsghdr = {
    // SAFETY: an all-zero `mmsghdr` is null pointers and zero lengths.
    unsafe { mem::zeroed() }
};
const NO_PIECE: libc::iovec = libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 };

/// What one call received: at most [`BATCH`] datagrams or trains.
pub(crate) struct Inbox {
    bytes: Box<[u8]>,
    names: Box<[Address; BATCH]>,
    controls: Box<[Control; BATCH]>,
    pieces: Box<[libc::iovec; BATCH]>,
    heads: Box<[libc::mmsghdr; BATCH]>,
}

// SAFETY: the raw pointers in `pieces` and `heads` lead into boxes of the same value, or nowhere.
unsafe impl Send for Inbox {}

#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "places are below BATCH, and each has its slot"
)]
impl Inbox {
    pub(crate) fn new() -> Inbox {
        Inbox {
            // Zeroed pages are not resident before somebody writes them: only what long datagrams touch costs memory.
            bytes: vec![0; BATCH * STRIDE].into_boxed_slice(),
            names: Box::new([Address::EMPTY; BATCH]),
            controls: Box::new([Control([0; CONTROL]); BATCH]),
            pieces: Box::new([NO_PIECE; BATCH]),
            heads: Box::new([NO_MESSAGE; BATCH]),
        }
    }

    /// Takes what is there, without waiting. `trains` says whether the socket may coalesce.
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>, most: usize, trains: bool) -> io::Result<usize> {
        let (base, most) = (self.bytes.as_mut_ptr(), most.min(BATCH));
        for index in 0..most {
            self.pieces[index] = libc::iovec {
                // SAFETY: `bytes` has `BATCH` strides, so the start of each slot lies within it.
                iov_base: unsafe { base.add(index * STRIDE) }.cast(),
                iov_len: SLOT,
            };
            let head = &mut self.heads[index].msg_hdr;
            head.msg_name = (&raw mut self.names[index]).cast();
            head.msg_namelen = mem::size_of::<Address>() as libc::socklen_t;
            head.msg_iov = &raw mut self.pieces[index];
            head.msg_iovlen = 1;
            head.msg_control = if trains { (&raw mut self.controls[index]).cast() } else { ptr::null_mut() };
            head.msg_controllen = if trains { CONTROL as _ } else { 0 };
            head.msg_flags = 0;
        }
        // SAFETY: all pointers in the heads were set above to memory that this value owns and that nobody else uses
        // during the call; lengths are theirs.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.heads.as_mut_ptr(),
                most as _,
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        };
        usize::try_from(received).map_err(|_| io::Error::last_os_error())
    }

    /// One of those that the last call received: from whom, what, and the length of the segments of a train.
    pub(crate) fn datagram(&self, index: usize) -> Option<(Peer, &[u8], Option<u16>)> {
        let head = self.heads.get(index)?;
        let start = index * STRIDE;
        let bytes = self.bytes.get(start..start + (head.msg_len as usize).min(SLOT))?;
        Some((self.names[index].read()?, bytes, segment(&head.msg_hdr, bytes.len())))
    }
}

/// Replies on their way: received into this buffer, sent out of it.
pub(crate) struct Outbox {
    bytes: Box<[u8]>,
    used: usize,
    /// Where each reply lies, how it is cut, whose it is.
    replies: Vec<Reply>,
    names: Box<[Address; BATCH]>,
    controls: Box<[Control; BATCH]>,
    pieces: Box<[libc::iovec; BATCH]>,
    heads: Box<[libc::mmsghdr; BATCH]>,
}

#[derive(Clone, Copy)]
struct Reply {
    start: usize,
    length: usize,
    segment: Option<u16>,
    peer: Peer,
    /// Which listening socket it leaves by.
    by: u32,
}

// SAFETY: as for `Inbox`.
unsafe impl Send for Outbox {}

#[allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "the caller asks `is_full` before, the kernel fills no more than it was given, and no run is empty"
)]
impl Outbox {
    pub(crate) fn new() -> Outbox {
        Outbox {
            bytes: vec![0; OUTGOING].into_boxed_slice(),
            used: 0,
            replies: Vec::with_capacity(BATCH),
            names: Box::new([Address::EMPTY; BATCH]),
            controls: Box::new([Control([0; CONTROL]); BATCH]),
            pieces: Box::new([NO_PIECE; BATCH]),
            heads: Box::new([NO_MESSAGE; BATCH]),
        }
    }

    /// No room for `count` more: to be flushed first.
    pub(crate) fn is_full(&self, count: usize) -> bool {
        self.replies.len() + count > BATCH || self.used + count * SLOT > self.bytes.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }

    /// Receives one datagram of a connected socket and keeps it for `peer`, to leave by socket `by`.
    pub(crate) fn receive(&mut self, upstream: BorrowedFd<'_>, peer: Peer, by: u32) -> io::Result<usize> {
        let room = &mut self.bytes[self.used..self.used + SLOT];
        // SAFETY: the pointer and length are those of a slice that is borrowed for the call.
        let received = unsafe {
            libc::recv(upstream.as_raw_fd(), room.as_mut_ptr().cast(), room.len(), libc::MSG_DONTWAIT)
        };
        let length = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        self.keep(Reply { start: self.used, length, segment: None, peer, by });
        Ok(length)
    }

    /// The same for up to `count` datagrams or trains. Returns how many came, and their bytes.
    pub(crate) fn receive_many(
        &mut self,
        upstream: BorrowedFd<'_>,
        peer: Peer,
        by: u32,
        count: usize,
    ) -> io::Result<(usize, usize)> {
        let base = self.bytes[self.used..self.used + count * SLOT].as_mut_ptr();
        for index in 0..count {
            self.pieces[index] = libc::iovec {
                // SAFETY: the slice above proves that `count` slots follow `used`.
                iov_base: unsafe { base.add(index * SLOT) }.cast(),
                iov_len: SLOT,
            };
            let head = &mut self.heads[index].msg_hdr;
            *head = NO_MESSAGE.msg_hdr;
            head.msg_iov = &raw mut self.pieces[index];
            head.msg_iovlen = 1;
            head.msg_control = (&raw mut self.controls[index]).cast();
            head.msg_controllen = CONTROL as _;
        }
        // SAFETY: as in `Inbox::receive`.
        let received = unsafe {
            libc::recvmmsg(
                upstream.as_raw_fd(),
                self.heads.as_mut_ptr(),
                count as _,
                libc::MSG_DONTWAIT as _,
                ptr::null_mut(),
            )
        };
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        let (first, mut bytes) = (self.used, 0);
        for index in 0..received {
            let length = (self.heads[index].msg_len as usize).min(SLOT);
            let segment = segment(&self.heads[index].msg_hdr, length);
            self.keep(Reply { start: first + index * SLOT, length, segment, peer, by });
            bytes += length;
        }
        Ok((received, bytes))
    }

    /// Sends everything, each by the socket that `socket` finds for it. Returns how many could not be sent.
    pub(crate) fn flush<S: AsFd>(&mut self, mut socket: impl FnMut(u32) -> Option<S>) -> usize {
        let mut replies = mem::take(&mut self.replies);
        // Stable: the order of one flow's datagrams is kept.
        if replies.iter().any(|reply| reply.by != replies[0].by) {
            replies.sort_by_key(|reply| reply.by);
        }
        let mut lost = 0;
        for run in replies.chunk_by(|one, next| one.by == next.by) {
            match socket(run[0].by) {
                Some(socket) => lost += self.send(socket.as_fd(), run),
                None => lost += run.len(),
            }
        }
        replies.clear();
        self.replies = replies;
        self.used = 0;
        lost
    }

    fn keep(&mut self, reply: Reply) {
        self.used = (reply.start + reply.length).next_multiple_of(64);
        self.replies.push(reply);
    }

    fn send(&mut self, socket: BorrowedFd<'_>, run: &[Reply]) -> usize {
        let base = self.bytes.as_mut_ptr();
        for (index, reply) in run.iter().enumerate() {
            self.pieces[index] = libc::iovec {
                // SAFETY: `start` was within `bytes` when the reply was kept.
                iov_base: unsafe { base.add(reply.start) }.cast(),
                iov_len: reply.length,
            };
            let head = &mut self.heads[index].msg_hdr;
            *head = NO_MESSAGE.msg_hdr;
            head.msg_namelen = self.names[index].write(reply.peer);
            head.msg_name = (&raw mut self.names[index]).cast();
            head.msg_iov = &raw mut self.pieces[index];
            head.msg_iovlen = 1;
            if let Some(segment) = reply.segment {
                cut(head, &mut self.controls[index], segment);
            }
        }
        let (mut done, mut lost) = (0, 0);
        while done < run.len() {
            // SAFETY: heads `done..run.len()` were set above, with pointers into what this value owns.
            let sent = unsafe {
                libc::sendmmsg(
                    socket.as_raw_fd(),
                    self.heads.as_mut_ptr().add(done),
                    (run.len() - done) as _,
                    libc::MSG_DONTWAIT as _,
                )
            };
            if let Ok(sent) = usize::try_from(sent) {
                done += sent.max(1);
                continue;
            }
            match io::Error::last_os_error().kind() {
                io::ErrorKind::Interrupted => {}
                // A full buffer is what UDP drops for: waiting would hold up everybody else.
                io::ErrorKind::WouldBlock => return lost + run.len() - done,
                _ => {
                    // It failed at the first one left: a train may go in pieces, anything else is skipped.
                    lost += self.send_cut(socket, &run[done]);
                    done += 1;
                }
            }
        }
        lost
    }

    fn send_cut(&mut self, socket: BorrowedFd<'_>, reply: &Reply) -> usize {
        let Some(segment) = reply.segment else { return 1 };
        let mut name = Address::EMPTY;
        let name_length = name.write(reply.peer);
        let train = &self.bytes[reply.start..reply.start + reply.length];
        train
            .chunks(usize::from(segment))
            .filter(|piece| {
                // SAFETY: pointers and lengths of a slice and of an address that live through the call.
                let sent = unsafe {
                    libc::sendto(
                        socket.as_raw_fd(),
                        piece.as_ptr().cast(),
                        piece.len(),
                        libc::MSG_DONTWAIT,
                        (&raw const name).cast(),
                        name_length,
                    )
                };
                sent < 0
            })
            .count()
    }
}

/// A socket for datagrams that never blocks.
pub(crate) fn datagram_socket(family_of: &KernelAddress) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers are passed.
    let fd = checked(unsafe { libc::socket(family_of.family(), kind, 0) })?;
    // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Sends one datagram, or a train cut into `segment`s, over a connected socket, after `prefix` if there is one.
pub(crate) fn send_datagrams(
    socket: BorrowedFd<'_>,
    prefix: &[u8],
    bytes: &[u8],
    segment: Option<u16>,
) -> io::Result<()> {
    match segment {
        None if prefix.is_empty() => {
            // SAFETY: pointer and length are those of a slice that lives through the call.
            let sent = unsafe {
                libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT)
            };
            if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
        }
        None => send_pieces(socket, prefix, bytes, None),
        Some(segment) if !prefix.is_empty() => {
            // The first is longer than the others by its header, so it cannot ride in their train.
            let (first, rest) = bytes.split_at(usize::from(segment).min(bytes.len()));
            send_pieces(socket, prefix, first, None)?;
            if rest.is_empty() { Ok(()) } else { send_datagrams(socket, &[], rest, Some(segment)) }
        }
        Some(segment) => {
            if bytes.len() <= usize::from(segment).saturating_mul(TRAIN) {
                match send_pieces(socket, &[], bytes, Some(segment)) {
                    Err(error) if cannot_cut(&error) => {}
                    other => return other,
                }
            }
            bytes
                .chunks(usize::from(segment).max(1))
                .try_for_each(|piece| send_datagrams(socket, &[], piece, None))
        }
    }
}

/// The kernel, the device or the length of the way is not made for trains.
fn cannot_cut(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::EMSGSIZE | libc::EIO | libc::EOPNOTSUPP | libc::ENOPROTOOPT)
    )
}

fn send_pieces(socket: BorrowedFd<'_>, prefix: &[u8], bytes: &[u8], segment: Option<u16>) -> io::Result<()> {
    let mut pieces = [
        libc::iovec { iov_base: prefix.as_ptr().cast_mut().cast(), iov_len: prefix.len() },
        libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() },
    ];
    let mut control = Control([0; CONTROL]);
    let mut head = NO_MESSAGE.msg_hdr;
    head.msg_iov = pieces.as_mut_ptr();
    head.msg_iovlen = pieces.len();
    if let Some(segment) = segment {
        cut(&mut head, &mut control, segment);
    }
    // SAFETY: the head points to locals and borrowed slices that live through the call; sending only reads them.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const head, libc::MSG_DONTWAIT) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Lets the kernel coalesce what arrives at this socket. False where it does not know how.
pub(crate) fn coalesce(socket: BorrowedFd<'_>, on: bool) -> bool {
    let value = c_int::from(on);
    // SAFETY: pointer and length are those of a local that lives through the call.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_GRO,
            (&raw const value).cast::<c_void>(),
            mem::size_of::<c_int>() as libc::socklen_t,
        )
    };
    set == 0 && on
}

/// Lets so many bytes wait in either direction, if the kernel allows them; else as many as it does.
pub(crate) fn widen(socket: BorrowedFd<'_>, bytes: c_int) {
    let set = |name: c_int| {
        // SAFETY: pointer and length are those of a local that lives through the call.
        unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                name,
                (&raw const bytes).cast::<c_void>(),
                mem::size_of::<c_int>() as libc::socklen_t,
            )
        }
    };
    // By force needs a capability, and then ignores `net.core.rmem_max`.
    for (by_force, politely) in
        [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
    {
        if set(by_force) != 0 {
            set(politely);
        }
    }
}

/// Has a message cut into datagrams of `segment` bytes.
fn cut(head: &mut libc::msghdr, control: &mut Control, segment: u16) {
    head.msg_control = (&raw mut *control).cast();
    // SAFETY: `CMSG_SPACE` of two bytes is within `CONTROL`, so the first header and its data lie within `control`,
    // which is aligned for a `cmsghdr`.
    unsafe {
        head.msg_controllen = libc::CMSG_SPACE(mem::size_of::<u16>() as u32) as _;
        let message = libc::CMSG_FIRSTHDR(head);
        (*message).cmsg_level = libc::SOL_UDP;
        (*message).cmsg_type = libc::UDP_SEGMENT;
        (*message).cmsg_len = libc::CMSG_LEN(mem::size_of::<u16>() as u32) as _;
        libc::CMSG_DATA(message).cast::<u16>().write_unaligned(segment);
    }
}

/// How long the segments of a received train are; nothing if it is a single datagram.
fn segment(head: &libc::msghdr, length: usize) -> Option<u16> {
    if head.msg_control.is_null() || head.msg_controllen == 0 {
        return None;
    }
    // SAFETY: the kernel wrote `msg_controllen` bytes of whole control messages to `msg_control`; the walk stays
    // within them, and the value is read without assuming alignment.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(head);
        while !message.is_null() {
            if (*message).cmsg_level == libc::SOL_UDP && (*message).cmsg_type == libc::UDP_GRO {
                let size = libc::CMSG_DATA(message).cast::<c_int>().read_unaligned();
                return u16::try_from(size).ok().filter(|size| *size > 0 && usize::from(*size) < length);
            }
            message = libc::CMSG_NXTHDR(head, message);
        }
    }
    None
}

#[cfg(test)]
mod tests;
