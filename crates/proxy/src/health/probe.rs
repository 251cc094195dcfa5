//! One look at a member: a socket from its opening to the finding.

use std::{
    io::{self, Read, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
};

use rustls::ClientConnection;
use seaway_model::load_balancer::BackendProtocol;

use super::{
    call::H2CheckExchange,
    check::{Check, CheckResult},
};
use crate::{sys, tls::UpstreamTls};

pub(super) struct Probe {
    socket: Rc<OwnedFd>,
    connected: bool,
    /// What is still to be said: in the open, then in TLS where that is spoken.
    question: Vec<u8>,
    within: Option<Box<TlsProbe>>,
    said: usize,
    answer: Vec<u8>,
    /// What is asked by gRPC, and answered there.
    call: Option<Box<H2CheckExchange>>,
}

/// What became of an attempt to begin.
pub(super) enum ProbeStart {
    Waiting(Probe),
    Found(CheckResult),
}

impl Probe {
    pub(super) fn begin(check: &Check) -> ProbeStart {
        match Probe::open(check) {
            Ok(probe) => ProbeStart::Waiting(probe),
            Err(error) => ProbeStart::Found(judge(&error)),
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
        let socket = Rc::new(socket);
        let begin = |protocol| match &check.tls {
            Some((tls, resolved)) => UpstreamTls::of(tls, protocol).begin(resolved.as_ref()).map(Some),
            None => Ok(None),
        };
        let mut question = check.proxy_header();
        let (mut within, mut call) = (None, None);
        if check.uses_http2() {
            call = Some(Box::new(H2CheckExchange::begin(
                (socket.clone(), begin(BackendProtocol::Http2)?),
                check,
            )));
        } else if let Some(session) = begin(BackendProtocol::Http1)? {
            within = Some(Box::new(TlsProbe { session, question: check.question(), said: 0 }));
        } else {
            question.extend(check.question());
        }
        let connected = check.is_udp();
        let mut probe = Probe { socket, connected, question, within, said: 0, answer: Vec::new(), call };
        if check.is_udp() {
            probe.said = sys::send(probe.socket(), &probe.question)?;
        }
        Ok(probe)
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The socket is ready for something, or broken.
    pub(super) fn proceed(&mut self, check: &Check) -> Option<CheckResult> {
        match self.step(check) {
            Ok(check_result) => check_result,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => None,
            Err(error) => Some(judge(&error)),
        }
    }

    pub(super) fn on_silence(&self, check: &Check) -> CheckResult {
        check.on_silence(self.connected)
    }

    fn step(&mut self, check: &Check) -> io::Result<Option<CheckResult>> {
        if !self.connected {
            if let Some(error) = sys::pending_error(self.socket()) {
                return Err(error);
            }
            self.connected = true;
        }
        while self.said < self.question.len() {
            let rest = self.question.get(self.said..).unwrap_or_default();
            let said = sys::send(self.socket(), rest)?;
            self.said = self.said.saturating_add(said);
        }
        if let Some(check_result) = check.on_connected() {
            return Ok(Some(check_result));
        }
        if let Some(call) = &mut self.call {
            return Ok(call.proceed());
        }
        let mut buffer = [0; 2048];
        loop {
            let count = match &mut self.within {
                Some(within) => within.exchange(self.socket.as_fd(), &mut buffer)?,
                None => sys::receive(self.socket.as_fd(), &mut buffer)?,
            };
            let room = check.longest_answer().saturating_sub(self.answer.len());
            self.answer.extend_from_slice(buffer.get(..count.min(room)).unwrap_or_default());
            let ended = count == 0 || check.is_udp();
            if let Some(check_result) = check.on_answer(&self.answer, ended) {
                return Ok(Some(check_result));
            }
        }
    }
}

/// A question in TLS.
struct TlsProbe {
    session: ClientConnection,
    question: Vec<u8>,
    said: usize,
}

impl TlsProbe {
    /// Goes on with the handshake and the question as far as it can, and reads what was answered.
    fn exchange(&mut self, socket: BorrowedFd<'_>, into: &mut [u8]) -> io::Result<usize> {
        let mut wire = Wire(socket);
        loop {
            if !self.session.is_handshaking() && self.said < self.question.len() {
                let rest = self.question.get(self.said..).unwrap_or_default();
                let said = self.session.writer().write(rest)?;
                self.said = self.said.saturating_add(said);
            }
            while self.session.wants_write() {
                self.session.write_tls(&mut wire)?;
            }
            match self.session.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // What is asked for has been said by then, farewell or not.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                read => return read,
            }
            if self.session.read_tls(&mut wire)? == 0 && self.session.is_handshaking() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let processed = self.session.process_new_packets();
            processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
    }
}

/// The socket, as rustls wants it.
pub(super) struct Wire<'s>(pub(super) BorrowedFd<'s>);

impl Read for Wire<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        sys::receive(self.0, into)
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        sys::send(self.0, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whose fault is it?
fn judge(error: &io::Error) -> CheckResult {
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
    if ours || sys::out_of_descriptors(error) {
        CheckResult::NotRun(reason)
    } else {
        CheckResult::Failed(reason)
    }
}
