//! Packets with descriptors in them, between processes of one host (SOCK_SEQPACKET, SCM_RIGHTS).

use std::{
    ffi::c_int,
    io, mem,
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
    ptr,
    time::Duration,
};

use super::{checked, checked_size};

/// The kernel takes no more at once.
const MOST_PASSED: usize = 253;
/// Room for them and their header, in units that align it.
const ROOM: usize = (MOST_PASSED * mem::size_of::<c_int>() + 64) / 8;

/// A place where processes of this host may connect; what was there before is gone.
pub(crate) fn local_listener(path: &Path) -> io::Result<OwnedFd> {
    let socket = packet_socket()?;
    let (address, length) = local_address_of(path)?;
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // SAFETY: pointer and length describe an address of ours.
    checked(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    // SAFETY: no pointers are passed.
    checked(unsafe { libc::listen(socket.as_raw_fd(), 4) })?;
    Ok(socket)
}

pub(crate) fn local_connect(path: &Path) -> io::Result<OwnedFd> {
    let socket = packet_socket()?;
    let (address, length) = local_address_of(path)?;
    // SAFETY: pointer and length describe an address of ours.
    checked(unsafe { libc::connect(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    Ok(socket)
}

pub(crate) fn local_accept(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let (none, flags) = (ptr::null_mut(), libc::SOCK_CLOEXEC);
    // SAFETY: both pointers may be null: nobody asks who it is, as `peer_of` tells more.
    let fd = checked(unsafe { libc::accept4(listener.as_raw_fd(), none, ptr::null_mut(), flags) })?;
    // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// User and process at the other end, as the kernel knows them.
pub(crate) fn peer_of(socket: BorrowedFd<'_>) -> io::Result<(u32, i32)> {
    let credentials = option(
        socket,
        libc::SOL_SOCKET,
        libc::SO_PEERCRED,
        libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX },
    )?;
    Ok((credentials.uid, credentials.pid))
}

/// The user that this process acts as.
pub(crate) fn own_user() -> u32 {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// What identifies a socket, the same in every process that has it.
pub(crate) fn cookie(socket: BorrowedFd<'_>) -> io::Result<u64> {
    option(socket, libc::SOL_SOCKET, libc::SO_COOKIE, 0_u64)
}

/// Nobody waits longer than this for the other side.
pub(crate) fn limit_waiting(socket: BorrowedFd<'_>, patience: Duration) -> io::Result<()> {
    let time = libc::timeval {
        tv_sec: patience.as_secs() as libc::time_t,
        tv_usec: patience.subsec_micros() as libc::suseconds_t,
    };
    for name in [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO] {
        let length = mem::size_of::<libc::timeval>() as libc::socklen_t;
        // SAFETY: pointer and length describe a value of ours.
        checked(unsafe {
            libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, (&raw const time).cast(), length)
        })?;
    }
    Ok(())
}

/// Sends one packet and at most [`MOST_PASSED`] descriptors.
pub(crate) fn pass(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    if fds.len() > MOST_PASSED {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut piece = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = [0_u64; ROOM];
    // SAFETY: an all-zero `msghdr` is null pointers and zero lengths.
    let mut head: libc::msghdr = unsafe { mem::zeroed() };
    head.msg_iov = &raw mut piece;
    head.msg_iovlen = 1;
    if !fds.is_empty() {
        let length = mem::size_of_val(fds) as u32;
        head.msg_control = control.as_mut_ptr().cast();
        // SAFETY: `ROOM` holds the header and `MOST_PASSED` numbers, so the first message and all its data lie
        // within `control`, which is aligned for it. A `BorrowedFd` is a `c_int` (it is `repr(transparent)`).
        unsafe {
            head.msg_controllen = libc::CMSG_SPACE(length) as _;
            let message = libc::CMSG_FIRSTHDR(&raw const head);
            (*message).cmsg_level = libc::SOL_SOCKET;
            (*message).cmsg_type = libc::SCM_RIGHTS;
            (*message).cmsg_len = libc::CMSG_LEN(length) as _;
            ptr::copy_nonoverlapping(fds.as_ptr().cast::<u8>(), libc::CMSG_DATA(message), length as usize);
        }
    }
    loop {
        // SAFETY: the head points to locals and borrowed slices; sending only reads them.
        match checked_size(unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const head, libc::MSG_NOSIGNAL) })
        {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => return other.map(drop),
        }
    }
}

/// Receives one packet with its descriptors. An empty one is the end.
pub(crate) fn take(socket: BorrowedFd<'_>, room: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut piece = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    let mut control = [0_u64; ROOM];
    // SAFETY: an all-zero `msghdr` is null pointers and zero lengths.
    let mut head: libc::msghdr = unsafe { mem::zeroed() };
    head.msg_iov = &raw mut piece;
    head.msg_iovlen = 1;
    head.msg_control = control.as_mut_ptr().cast();
    head.msg_controllen = mem::size_of_val(&control) as _;
    let count = loop {
        // SAFETY: the head points to locals and a slice that is borrowed for the call, with their lengths.
        match checked_size(unsafe {
            libc::recvmsg(socket.as_raw_fd(), &raw mut head, libc::MSG_CMSG_CLOEXEC)
        }) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => break other?,
        }
    };
    let mut fds = Vec::new();
    // SAFETY: the kernel wrote whole control messages of `msg_controllen` bytes; the walk stays within them, and
    // each number in a message of rights is a descriptor that is ours from now on and that nobody else owns.
    unsafe {
        let mut message = libc::CMSG_FIRSTHDR(&raw const head);
        while !message.is_null() {
            if (*message).cmsg_level == libc::SOL_SOCKET && (*message).cmsg_type == libc::SCM_RIGHTS {
                let length = ((*message).cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
                let data = libc::CMSG_DATA(message).cast::<c_int>();
                for index in 0..length.checked_div(mem::size_of::<c_int>()).unwrap_or(0) {
                    fds.push(OwnedFd::from_raw_fd(data.add(index).read_unaligned()));
                }
            }
            message = libc::CMSG_NXTHDR(&raw const head, message);
        }
    }
    if head.msg_flags & (libc::MSG_CTRUNC | libc::MSG_TRUNC) != 0 {
        // Descriptors were dropped, mostly for want of numbers to give them here.
        return Err(io::Error::from_raw_os_error(libc::EMFILE));
    }
    Ok((count, fds))
}

fn packet_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers are passed.
    let fd = checked(unsafe { libc::socket(libc::AF_UNIX, kind, 0) })?;
    // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn local_address_of(path: &Path) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: sockaddr_un is plain numbers; zeros are a valid value.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    if bytes.is_empty() || bytes.len() >= address.sun_path.len() || bytes.contains(&0) {
        let longest = address.sun_path.len().saturating_sub(1);
        let reason = format!("{} is not a path of at most {longest} bytes", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
    }
    for (place, byte) in address.sun_path.iter_mut().zip(bytes) {
        *place = *byte as libc::c_char;
    }
    Ok((address, mem::size_of::<libc::sockaddr_un>() as libc::socklen_t))
}

fn option<T: Copy>(socket: BorrowedFd<'_>, level: c_int, name: c_int, mut value: T) -> io::Result<T> {
    let mut length = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: pointer and length describe a value of ours; the callers' types are plain numbers.
    checked(unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut length)
    })?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn descriptors_travel_with_their_packet_and_are_the_same_sockets() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pass.sock");
        let listener = local_listener(&path).unwrap();
        let client = local_connect(&path).unwrap();
        let server = local_accept(listener.as_fd()).unwrap();
        let (uid, pid) = peer_of(server.as_fd()).unwrap();
        assert_eq!((uid, pid as u32), (own_user(), std::process::id()));
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let h2 = vec![socket.as_fd(); MOST_PASSED];
        pass(client.as_fd(), b"many", &h2).unwrap();
        pass(client.as_fd(), b"none", &[]).unwrap();
        let mut room = [0; 64];
        let (count, fds) = take(server.as_fd(), &mut room).unwrap();
        assert_eq!((&room[..count], fds.len()), (&b"many"[..], MOST_PASSED));
        assert_eq!(cookie(fds[7].as_fd()).unwrap(), cookie(socket.as_fd()).unwrap());
        assert!(take(server.as_fd(), &mut room).unwrap().1.is_empty());
        drop(client);
        assert_eq!(take(server.as_fd(), &mut room).unwrap().0, 0);
    }

    #[test]
    fn a_path_that_is_too_long_is_refused() {
        assert!(local_listener(Path::new(&"x".repeat(200))).is_err());
    }
}
