use std::{
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    ptr,
};

use super::{checked, checked_size};

/// A pipe through which bytes move from socket to socket without being copied into our memory.
#[derive(Debug)]
pub(crate) struct Pipe {
    exit: OwnedFd,
    entrance: OwnedFd,
    held: usize,
    size: usize,
}

impl Pipe {
    /// A smaller pipe than asked for is accepted: the kernel limits how much one user's pipes may have together.
    pub(crate) fn new(wanted: usize) -> io::Result<Pipe> {
        let mut ends = [0; 2];
        // SAFETY: the pointer is to two numbers of ours.
        checked(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) })?;
        // SAFETY: the kernel just gave us both descriptors; nobody else owns them.
        let (exit, entrance) = unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) };
        // SAFETY: no pointers are passed.
        let size = unsafe { libc::fcntl(entrance.as_raw_fd(), libc::F_SETPIPE_SZ, wanted as libc::c_int) };
        // Refused to a user who has too much in pipes already: then it stays as it was made.
        let size = checked(size).or_else(|_| {
            // SAFETY: as above.
            checked(unsafe { libc::fcntl(entrance.as_raw_fd(), libc::F_GETPIPE_SZ) })
        })?;
        Ok(Pipe { exit, entrance, held: 0, size: size as usize })
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Bytes that went in and did not come out yet.
    pub(crate) fn buffered(&self) -> usize {
        self.held
    }

    pub(crate) fn fill_from(&mut self, socket: BorrowedFd<'_>, most: usize) -> io::Result<usize> {
        let moved = splice(socket.as_raw_fd(), self.entrance.as_raw_fd(), self.size.min(most))?;
        self.held = self.held.saturating_add(moved);
        Ok(moved)
    }

    pub(crate) fn empty_into(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let moved = splice(self.exit.as_raw_fd(), socket.as_raw_fd(), self.held)?;
        self.held = self.held.saturating_sub(moved);
        Ok(moved)
    }
}

fn splice(from: libc::c_int, to: libc::c_int, most: usize) -> io::Result<usize> {
    let flags = libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MOVE;
    // SAFETY: the offsets are null, as pipes and sockets ask for; both descriptors are open.
    checked_size(unsafe { libc::splice(from, ptr::null_mut(), to, ptr::null_mut(), most, flags) })
}
