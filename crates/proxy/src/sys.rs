//! The only module of the data plane that speaks to the kernel without std in between.
//!
//! Every function is a thin, safe face over one system call, with the error left as the kernel gave it. Descriptors
//! are owned (`OwnedFd`) or borrowed (`BorrowedFd`), never bare numbers.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]
#![allow(unsafe_code)]

mod address;
mod alarm;
mod clock;
mod datagram;
mod epoll;
mod pass;
mod pipe;
mod process;
mod socket;

use std::io;

pub(crate) use address::KernelAddress;
pub(crate) use alarm::Alarm;
pub(crate) use clock::{micros, millis};
pub(crate) use datagram::*;
pub(crate) use epoll::{Epoll, Event, Events, Waker};
pub(crate) use pass::*;
pub(crate) use pipe::Pipe;
pub(crate) use process::{descriptor_limit, give_way, pin_to, run_when_idle, sleep_exactly, thread_cpu_time};
pub use process::{give_memory_back, raise_descriptor_limit};
pub(crate) use socket::*;

/// The result of a call that gives a number, or −1.
fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

fn checked_size(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// There is nothing to do at the moment.
pub(crate) fn would_block(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// The process, or the whole machine, is out of descriptors or of memory for sockets.
pub(crate) fn out_of_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOBUFS | libc::ENOMEM))
}
