use std::{
    io, mem,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    ptr,
};

use super::{checked, checked_size};

pub(crate) struct Epoll(OwnedFd);

/// What happened to one descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) token: u64,
    flags: u32,
}

impl Event {
    /// Bytes, an end or an error can be read.
    pub(crate) fn readable(self) -> bool {
        self.flags & (libc::EPOLLIN | libc::EPOLLRDHUP | libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0
    }

    pub(crate) fn writable(self) -> bool {
        self.flags & libc::EPOLLOUT as u32 != 0
    }

    /// The peer will send nothing more; what it sent may still be waiting.
    pub(crate) fn peer_finished(self) -> bool {
        self.flags & (libc::EPOLLRDHUP | libc::EPOLLHUP) as u32 != 0
    }

    /// Out-of-band data is waiting, at which reads stop short.
    pub(crate) fn urgent(self) -> bool {
        self.flags & libc::EPOLLPRI as u32 != 0
    }

    pub(crate) fn failed(self) -> bool {
        self.flags & libc::EPOLLERR as u32 != 0
    }

    /// Neither direction is open any more, or never was.
    pub(crate) fn hung_up(self) -> bool {
        self.flags & libc::EPOLLHUP as u32 != 0
    }
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Epoll> {
        // SAFETY: no pointers are passed.
        let fd = checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) })?;
        // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
        Ok(Epoll(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Every change of readability and of writability is told once. Never has to be changed again.
    pub(crate) fn watch_edges(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        let interest = libc::EPOLLIN | libc::EPOLLPRI | libc::EPOLLOUT | libc::EPOLLRDHUP | libc::EPOLLET;
        self.control(libc::EPOLL_CTL_ADD, fd, interest as u32, token)
    }

    /// One that cannot be waited for.
    #[cfg(test)]
    pub(crate) fn broken() -> io::Result<Epoll> {
        Ok(Epoll(std::fs::File::open("/dev/null")?.into()))
    }

    /// As long as something can be read, it is told in every turn.
    pub(crate) fn watch_readable(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, libc::EPOLLIN as u32, token)
    }

    pub(crate) fn pause(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, 0, token)
    }

    pub(crate) fn resume(&self, fd: BorrowedFd<'_>, token: u64) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, libc::EPOLLIN as u32, token)
    }

    /// Needed only where another descriptor of the same socket lives on: closing the last one forgets it as well.
    pub(crate) fn forget(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, 0)
    }

    fn control(&self, operation: libc::c_int, fd: BorrowedFd<'_>, events: u32, token: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: token };
        // SAFETY: both descriptors are open while borrowed, and the event lives through the call.
        checked(unsafe { libc::epoll_ctl(self.0.as_raw_fd(), operation, fd.as_raw_fd(), &mut event) })
            .map(drop)
    }

    /// Waits for so many milliseconds, or without end.
    pub(crate) fn wait(&self, events: &mut Events, timeout: Option<u64>) -> io::Result<()> {
        let timeout = timeout.map_or(-1, |millis| libc::c_int::try_from(millis).unwrap_or(libc::c_int::MAX));
        let room = events.events.len() as libc::c_int;
        events.filled = 0;
        let (array, mask) = (events.events.as_mut_ptr(), ptr::null::<libc::sigset_t>());
        // SAFETY: the pointer and the count describe the array of `events`, which is borrowed for the call; without a
        // mask of signals its size does not matter. Directly, as `receive` does it.
        let result = unsafe {
            libc::syscall(libc::SYS_epoll_pwait, self.0.as_raw_fd(), array, room, timeout, mask, 0)
        };
        events.filled = checked_size(result as libc::ssize_t)?;
        Ok(())
    }
}

/// Room for what one wait brings.
pub(crate) struct Events {
    events: Box<[libc::epoll_event]>,
    filled: usize,
}

impl Events {
    pub(crate) fn with_room_for(count: usize) -> Events {
        Events { events: vec![libc::epoll_event { events: 0, u64: 0 }; count].into(), filled: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.filled
    }

    #[allow(clippy::indexing_slicing, reason = "the caller counts to `len`, which is from the kernel")]
    pub(crate) fn at(&self, index: usize) -> Event {
        let event = self.events[index];
        Event { token: event.u64, flags: event.events }
    }
}

/// Wakes a worker that waits (an eventfd).
pub(crate) struct Waker(OwnedFd);

impl Waker {
    pub(crate) fn new() -> io::Result<Waker> {
        // SAFETY: no pointers are passed.
        let fd = checked(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) })?;
        // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
        Ok(Waker(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        std::os::fd::AsFd::as_fd(&self.0)
    }

    pub(crate) fn wake(&self) {
        let one = 1_u64;
        // SAFETY: eight bytes of ours are read. It fails only if the worker has 2^64 wakes waiting already.
        unsafe { libc::write(self.0.as_raw_fd(), ptr::from_ref(&one).cast(), mem::size_of::<u64>()) };
    }

    pub(crate) fn clear(&self) {
        let mut count = 0_u64;
        // SAFETY: eight bytes of ours are written. It fails only if nobody woke us, which is as good.
        let result = unsafe {
            libc::read(self.0.as_raw_fd(), ptr::from_mut(&mut count).cast(), mem::size_of::<u64>())
        };
        drop(checked_size(result));
    }
}
