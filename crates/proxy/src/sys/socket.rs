use std::{
    io, mem,
    net::SocketAddr,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    ptr,
};

use super::{KernelAddress, checked, checked_size};

/// A TCP socket that never blocks.
pub(crate) fn stream_socket(family_of: &KernelAddress) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers are passed.
    let fd = checked(unsafe { libc::socket(family_of.family(), kind, 0) })?;
    // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Begins to connect. That it is under way is no error; the outcome comes as an event.
pub(crate) fn connect(fd: BorrowedFd<'_>, to: &KernelAddress) -> io::Result<()> {
    // SAFETY: pointer and length describe one address, which is borrowed for the call.
    match checked(unsafe { libc::connect(fd.as_raw_fd(), to.as_ptr(), to.length()) }) {
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(()),
        other => other.map(drop),
    }
}

pub(crate) fn accept(fd: BorrowedFd<'_>) -> io::Result<(OwnedFd, SocketAddr)> {
    let mut peer = KernelAddress::empty();
    let length = ptr::from_mut(peer.length_mut());
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: pointer and length describe the room for one address, which is ours.
    let fd = checked(unsafe { libc::accept4(fd.as_raw_fd(), peer.as_mut_ptr(), length, flags) })?;
    // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    peer.to_std().map(|peer| (fd, peer)).ok_or_else(|| io::ErrorKind::ConnectionAborted.into())
}

/// Asked of the kernel directly, as `send` is: in a process with threads libc's own are points of cancellation, for
/// which each call pays with two atomic exchanges.
pub(crate) fn receive(fd: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
    let nowhere = ptr::null_mut::<libc::c_void>();
    let (bytes, length) = (into.as_mut_ptr(), into.len());
    // SAFETY: pointer and length describe a slice that is borrowed for the call; the sender's address is not wanted.
    let read =
        unsafe { libc::syscall(libc::SYS_recvfrom, fd.as_raw_fd(), bytes, length, 0, nowhere, nowhere) };
    checked_size(read as libc::ssize_t)
}

/// Nothing is there to be read: no byte, no end, no error.
pub(crate) fn is_silent(fd: BorrowedFd<'_>) -> bool {
    let mut byte = 0_u8;
    let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
    // SAFETY: the pointer is that of one byte that lives through the call.
    let read = unsafe { libc::recv(fd.as_raw_fd(), (&raw mut byte).cast(), 1, flags) };
    checked_size(read).is_err_and(|error| super::would_block(&error))
}

/// The peer's kernel has not taken all that was written yet.
pub(crate) fn has_unacknowledged(fd: BorrowedFd<'_>) -> bool {
    let mut count: libc::c_int = 0;
    // SAFETY: the pointer is that of one number that lives through the call.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut count) };
    // An unknown state counts as the worse one.
    checked(result).is_err() || count > 0
}

pub(crate) fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let nowhere = ptr::null::<libc::c_void>();
    let (start, length, flags) = (bytes.as_ptr(), bytes.len(), libc::MSG_NOSIGNAL);
    // SAFETY: pointer and length describe a slice that is borrowed for the call; a stream needs no address.
    let written =
        unsafe { libc::syscall(libc::SYS_sendto, fd.as_raw_fd(), start, length, flags, nowhere, 0) };
    checked_size(written as libc::ssize_t)
}

/// Several pieces in one call.
pub(crate) fn send_all(fd: BorrowedFd<'_>, pieces: &[io::IoSlice<'_>]) -> io::Result<usize> {
    // SAFETY: a message without address, pieces and control data is all zeros.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    // An IoSlice is what the kernel calls an iovec, as std promises.
    message.msg_iov = pieces.as_ptr().cast_mut().cast();
    message.msg_iovlen = pieces.len() as _;
    // SAFETY: the message points to pieces that are borrowed for the call, and the kernel only reads them.
    checked_size(unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) })
}

/// Tells the peer that nothing more will come.
pub(crate) fn finish_sending(fd: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no pointers are passed.
    checked(unsafe { libc::shutdown(fd.as_raw_fd(), libc::SHUT_WR) }).map(drop)
}

/// Makes the coming close tell the peer of a failure (RST) instead of an end.
pub(crate) fn reset_when_closed(fd: BorrowedFd<'_>) -> io::Result<()> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    set_option(fd, libc::SOL_SOCKET, libc::SO_LINGER, &linger)
}

/// What went wrong since the last question.
pub(crate) fn pending_error(fd: BorrowedFd<'_>) -> Option<io::Error> {
    let mut code: libc::c_int = 0;
    let mut length = mem::size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: pointer and length describe a number of ours.
    let result = checked(unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ERROR,
            ptr::from_mut(&mut code).cast(),
            &mut length,
        )
    });
    match result {
        Err(error) => Some(error),
        Ok(_) if code != 0 => Some(io::Error::from_raw_os_error(code)),
        Ok(_) => None,
    }
}

pub(crate) fn local_address(fd: BorrowedFd<'_>) -> Option<SocketAddr> {
    let mut address = KernelAddress::empty();
    let length = ptr::from_mut(address.length_mut());
    // SAFETY: pointer and length describe the room for one address, which is ours.
    checked(unsafe { libc::getsockname(fd.as_raw_fd(), address.as_mut_ptr(), length) }).ok()?;
    address.to_std()
}

/// Where a connection was meant to go before its destination was translated on this machine (netfilter).
pub(crate) fn meant_for(fd: BorrowedFd<'_>) -> Option<SocketAddr> {
    let is_v6 = matches!(local_address(fd)?, SocketAddr::V6(_));
    // SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST have one number.
    let (level, name) = (if is_v6 { libc::SOL_IPV6 } else { libc::SOL_IP }, libc::SO_ORIGINAL_DST);
    let mut address = KernelAddress::empty();
    let length = ptr::from_mut(address.length_mut());
    // SAFETY: pointer and length describe the room for one address, which is ours.
    checked(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, address.as_mut_ptr().cast(), length) })
        .ok()?;
    address.to_std()
}

/// Small writes are not held back to be joined. Connections inherit it from the socket that accepts them.
pub(crate) fn set_no_delay(fd: BorrowedFd<'_>) -> io::Result<()> {
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_NODELAY, &YES)
}

/// Finds out a client that vanished: asked after a minute of silence, given up a minute later. Connections inherit it
/// as well.
pub(crate) fn set_keep_alive(fd: BorrowedFd<'_>) -> io::Result<()> {
    let (silence, pause, times): (libc::c_int, libc::c_int, libc::c_int) = (60, 10, 6);
    set_option(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, &YES)?;
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, &silence)?;
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, &pause)?;
    set_option(fd, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, &times)
}

pub(crate) fn set_reuse_address(fd: BorrowedFd<'_>) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, &YES)
}

pub(crate) fn set_reuse_port(fd: BorrowedFd<'_>) -> io::Result<()> {
    set_option(fd, libc::SOL_SOCKET, libc::SO_REUSEPORT, &YES)
}

/// Lets an address be bound that is not on the host (yet); an IPv6 socket keeps to IPv6.
pub(crate) fn set_free_bind(fd: BorrowedFd<'_>, at: &KernelAddress) -> io::Result<()> {
    if at.family() == libc::AF_INET6 {
        set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &YES)?;
        return set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_FREEBIND, &YES);
    }
    set_option(fd, libc::IPPROTO_IP, libc::IP_FREEBIND, &YES)
}

/// Lets an address be bound that is somebody else's, as which the socket then appears: needs CAP_NET_ADMIN or
/// CAP_NET_RAW. Which port is decided once it is known who is on the other side.
pub(crate) fn set_transparent(fd: BorrowedFd<'_>, at: &KernelAddress) -> io::Result<()> {
    // What cannot be decided later is decided now.
    let _ = set_option(fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, &YES);
    if at.family() == libc::AF_INET6 {
        return set_option(fd, libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT, &YES);
    }
    set_option(fd, libc::IPPROTO_IP, libc::IP_TRANSPARENT, &YES)
}

pub(crate) fn bind(fd: BorrowedFd<'_>, at: &KernelAddress) -> io::Result<()> {
    // SAFETY: pointer and length describe one address, which is borrowed for the call.
    checked(unsafe { libc::bind(fd.as_raw_fd(), at.as_ptr(), at.length()) }).map(drop)
}

pub(crate) fn listen(fd: BorrowedFd<'_>, backlog: i32) -> io::Result<()> {
    // SAFETY: no pointers are passed.
    checked(unsafe { libc::listen(fd.as_raw_fd(), backlog) }).map(drop)
}

const YES: libc::c_int = 1;

fn set_option<T: Copy>(fd: BorrowedFd<'_>, level: i32, name: i32, value: &T) -> io::Result<()> {
    let length = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: pointer and length describe a plain value, which is borrowed for the call.
    checked(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, ptr::from_ref(value).cast(), length) })
        .map(drop)
}
