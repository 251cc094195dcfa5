use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    ptr,
};

use super::checked;

/// Wakes a worker at a time (a timerfd).
///
/// A time limit of epoll itself costs a timer set and cancelled for every wait; this one is set only when it is to ring
/// earlier than it already would.
pub(crate) struct Alarm {
    fd: OwnedFd,
    /// By [`super::millis`], while it is set.
    rings_at: Option<u64>,
}

impl Alarm {
    pub(crate) fn new() -> io::Result<Alarm> {
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: no pointers are passed.
        let fd = checked(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) })?;
        // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
        Ok(Alarm { fd: unsafe { OwnedFd::from_raw_fd(fd) }, rings_at: None })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// It rings at that time, or before.
    pub(crate) fn set(&mut self, at: u64, now: u64) -> io::Result<()> {
        if self.rings_at.is_some_and(|rings_at| rings_at <= at) {
            return Ok(());
        }
        // Nothing at all would stop it.
        let millis = at.saturating_sub(now).max(1);
        let time = libc::timespec {
            tv_sec: (millis / 1000) as libc::time_t,
            tv_nsec: (millis % 1000).saturating_mul(1_000_000) as libc::c_long,
        };
        let once = libc::itimerspec { it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 }, it_value: time };
        // SAFETY: the pointer is to a value of ours that lives through the call; the old setting is not wanted.
        checked(unsafe { libc::timerfd_settime(self.fd.as_raw_fd(), 0, &once, ptr::null_mut()) })?;
        self.rings_at = Some(at);
        Ok(())
    }

    /// It has rung. Watched for edges it need not be read.
    pub(crate) fn rang(&mut self) {
        self.rings_at = None;
    }
}
