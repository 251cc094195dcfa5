//! One look at a member: a socket from its opening to the finding.

use std::{
    io::{self, Read, Write},
    os::fd::{AsFd, BorrowedFd},
    time::Duration,
};

use nix::errno::Errno;
use socket2::{Domain, Socket, Type};

use super::check::{Check, Finding, STATUS_LINE_MAX};

pub(super) struct Probe {
    socket: Socket,
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
        let kind = if check.is_udp() { Type::DGRAM } else { Type::STREAM };
        let socket = Socket::new(Domain::for_address(check.at), kind.nonblocking().cloexec(), None)?;
        if !check.is_udp() {
            // Closing then resets: thousands of checks must not leave thousands of ports in TIME_WAIT.
            socket.set_linger(Some(Duration::ZERO))?;
        }
        match socket.connect(&check.at.into()) {
            Ok(()) => {}
            Err(error) if error.raw_os_error() == Some(Errno::EINPROGRESS as i32) => {}
            Err(error) => return Err(error),
        }
        let mut probe = Probe {
            socket,
            connected: check.is_udp(),
            question: check.question(),
            said: 0,
            answer: Vec::new(),
        };
        if check.is_udp() {
            probe.socket.send(&probe.question)?;
            probe.said = probe.question.len();
        }
        Ok(probe)
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Is it now an answer that it waits for?
    pub(super) fn listens(&self) -> bool {
        self.connected && self.said == self.question.len()
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
            if let Some(error) = self.socket.take_error()? {
                return Err(error);
            }
            self.connected = true;
        }
        while self.said < self.question.len() {
            self.said += (&self.socket).write(&self.question[self.said..])?;
        }
        if let Some(finding) = check.on_connected() {
            return Ok(Some(finding));
        }
        let mut buffer = [0; 2048];
        loop {
            let count = (&self.socket).read(&mut buffer)?;
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
    match error.raw_os_error().map(Errno::from_raw) {
        Some(
            lack @ (Errno::EMFILE
            | Errno::ENFILE
            | Errno::ENOBUFS
            | Errno::ENOMEM
            | Errno::EADDRNOTAVAIL
            | Errno::EAGAIN
            | Errno::EPERM
            | Errno::EACCES
            | Errno::EAFNOSUPPORT),
        ) => Finding::Unable(lack.desc().to_lowercase()),
        Some(fault) => Finding::Ill(fault.desc().to_lowercase()),
        None => Finding::Ill(error.to_string()),
    }
}
