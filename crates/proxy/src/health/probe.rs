//! One look at a member: a socket from its opening to the finding.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use seaway_wire::http::STATUS_LINE_MAX;

use super::check::{Check, Finding};
use crate::sys;

pub(super) struct Probe {
    socket: OwnedFd,
    connected: bool,
    /// What is still to be said.
    question: Vec<u8>,
    said: usize,
    answer: Vec<u8>,
}

/// What became of an attempt to begin.
pub(super) enum Begun {
    Waiting(Probe),
    Found(Finding),
}

impl Probe {
    pub(super) fn begin(check: &Check) -> Begun {
        match Probe::open(check) {
            Ok(probe) => Begun::Waiting(probe),
            Err(error) => Begun::Found(judge(&error)),
        }
    }

    fn open(check: &Check) -> io::Result<Probe> {
        let at = sys::KernelAddress::from(check.at);
        let socket = if check.is_udp() {
            sys::datagram_socket(&at)?
        } else {
            let socket = sys::stream_socket(&at)?;
            // Closing then resets: thousands of checks must not leave thousands of ports in TIME_WAIT.
            sys::reset_when_closed(socket.as_fd())?;
            socket
        };
        sys::connect(socket.as_fd(), &at)?;
        let mut probe = Probe {
            socket,
            connected: check.is_udp(),
            question: check.question(),
            said: 0,
            answer: Vec::new(),
        };
        if check.is_udp() {
            probe.said = sys::send(probe.socket(), &probe.question)?;
        }
        Ok(probe)
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The socket is ready for something, or broken.
    pub(super) fn proceed(&mut self, check: &Check) -> Option<Finding> {
        match self.step(check) {
            Ok(finding) => finding,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => None,
            Err(error) => Some(judge(&error)),
        }
    }

    pub(super) fn on_silence(&self, check: &Check) -> Finding {
        check.on_silence(self.connected)
    }

    fn step(&mut self, check: &Check) -> io::Result<Option<Finding>> {
        if !self.connected {
            if let Some(error) = sys::pending_error(self.socket()) {
                return Err(error);
            }
            self.connected = true;
        }
        while self.said < self.question.len() {
            self.said += sys::send(self.socket(), &self.question[self.said..])?;
        }
        if let Some(finding) = check.on_connected() {
            return Ok(Some(finding));
        }
        let mut buffer = [0; 2048];
        loop {
            let count = sys::receive(self.socket(), &mut buffer)?;
            let room = STATUS_LINE_MAX - self.answer.len().min(STATUS_LINE_MAX);
            self.answer.extend_from_slice(&buffer[..count.min(room)]);
            let ended = count == 0 || check.is_udp();
            if let Some(finding) = check.on_answer(&self.answer, ended) {
                return Ok(Some(finding));
            }
        }
    }
}

/// Whose fault is it?
fn judge(error: &io::Error) -> Finding {
    let ours = matches!(
        error.raw_os_error(),
        Some(libc::EADDRNOTAVAIL | libc::EAGAIN | libc::EPERM | libc::EACCES | libc::EAFNOSUPPORT)
    );
    let reason = match error.kind() {
        io::ErrorKind::ConnectionRefused => "connection refused".into(),
        io::ErrorKind::ConnectionReset => "connection reset".into(),
        io::ErrorKind::HostUnreachable => "no route to host".into(),
        io::ErrorKind::NetworkUnreachable => "network is unreachable".into(),
        _ => error.to_string(),
    };
    if ours || sys::out_of_descriptors(error) { Finding::Unable(reason) } else { Finding::Ill(reason) }
}
