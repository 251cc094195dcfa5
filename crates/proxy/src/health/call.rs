//! A check by HTTP/2 with prior knowledge: `GET`, or by gRPC `grpc.health.v1.Health/Check`.
//!
//! The prober lets it proceed whenever something happens on its socket, which is all that it can ever wait for.

use std::{
    io::{self, Read, Write},
    os::fd::{AsFd, OwnedFd},
    rc::Rc,
};

use rustls::ClientConnection;
use seaway_model::load_balancer::CheckKind;
use seaway_wire::http2::{Connection, FrameEvent, LocalSettings, StreamKey};

use super::{
    check::{Check, CheckResult},
    probe::Wire,
};
use crate::sys;

pub(super) struct H2CheckExchange {
    raw: ProbeStream,
    connection: Connection<()>,
    /// The stream of the question.
    key: Option<StreamKey>,
    check: Check,
    /// What came and is not a whole frame.
    rest: Vec<u8>,
    /// Of all that it has sent.
    heard: usize,
    /// The answer so far: as HTTP/1.1 would have given it, or the message alone.
    answer: Vec<u8>,
    status: u16,
    /// Of gRPC, in the fields after the message, or with the head where there is none.
    code: Option<u32>,
}

/// No answer to this question is longer.
const LONGEST: usize = 4 << 10;
/// Frames that say nothing could otherwise keep the prober for as long as somebody sends them.
const MOST_HEARD: usize = 256 << 10;
/// More than any answer that is looked at.
const OURS: LocalSettings = LocalSettings {
    head: 16 << 10,
    streams: 0,
    stream_window: 1 << 16,
    connection_window: 1 << 17,
    is_shared: false,
};

impl H2CheckExchange {
    pub(super) fn begin(
        (socket, session): (Rc<OwnedFd>, Option<ClientConnection>),
        check: &Check,
    ) -> H2CheckExchange {
        let mut connection = Connection::client(OURS);
        let key = match &check.kind {
            CheckKind::Grpc { service } => ask_by_grpc(&mut connection, check, service),
            _ => ask_by_get(&mut connection, check),
        };
        H2CheckExchange {
            raw: ProbeStream { socket, session },
            connection,
            key,
            check: check.clone(),
            rest: Vec::new(),
            heard: 0,
            answer: Vec::new(),
            status: 0,
            code: None,
        }
    }

    pub(super) fn proceed(&mut self) -> Option<CheckResult> {
        match self.go_on() {
            Ok(check_result) => Some(check_result),
            Err(error) if sys::would_block(&error) => None,
            Err(error) => Some(CheckResult::Failed(format!("no HTTP/2: {error}"))),
        }
    }

    fn go_on(&mut self) -> io::Result<CheckResult> {
        loop {
            while !self.connection.out.is_empty() {
                let written = self.raw.write(&self.connection.out)?;
                self.connection.out.drain(..written);
            }
            self.raw.flush()?;
            let mut page = [0; 4 << 10];
            let count = self.raw.read(&mut page)?;
            if count == 0 {
                return Ok(CheckResult::Failed("closed the connection before it answered".into()));
            }
            if let Some(check_result) = self.receive(page.get(..count).unwrap_or_default())? {
                return Ok(check_result);
            }
        }
    }

    /// What the member sends, piece by piece.
    pub(super) fn receive(&mut self, piece: &[u8]) -> io::Result<Option<CheckResult>> {
        self.heard = self.heard.saturating_add(piece.len());
        if self.heard > MOST_HEARD {
            return Ok(Some(CheckResult::Failed("sent too many HTTP/2 frames".into())));
        }
        self.rest.extend_from_slice(piece);
        self.listen()
    }

    /// Bytes that are kept of it, or wait to be sent.
    pub(super) fn buffered(&self) -> usize {
        self.rest.len().saturating_add(self.answer.len()).saturating_add(self.connection.out.len())
    }

    fn listen(&mut self) -> io::Result<Option<CheckResult>> {
        let rest = std::mem::take(&mut self.rest);
        let mut used = 0;
        loop {
            let heard = self.connection.read(rest.get(used..).unwrap_or_default());
            let (count, heard) =
                heard.map_err(|broken| io::Error::new(io::ErrorKind::InvalidData, broken.why))?;
            used = usize::saturating_add(used, count);
            let (ends, key) = match heard {
                FrameEvent::More => break,
                FrameEvent::Response { key, status, ends } if status >= 200 => {
                    self.status = status;
                    self.code = code(self.connection.lines());
                    if !self.is_grpc() {
                        self.answer = format!("HTTP/1.1 {status} \r\n\r\n").into_bytes();
                    }
                    (ends, key)
                }
                FrameEvent::Data { key, bytes, ends } => {
                    self.answer.extend_from_slice(bytes);
                    self.connection.release(key, bytes.len());
                    (ends, key)
                }
                FrameEvent::Trailers { key } => {
                    self.code = code(self.connection.lines());
                    (true, key)
                }
                FrameEvent::Reset { reason, .. } => {
                    return Ok(Some(CheckResult::Failed(format!("ended the HTTP/2 stream: {}", reason.0))));
                }
                FrameEvent::Leaves { last } if self.key.is_none_or(|key| key.id > last) => {
                    return Ok(Some(CheckResult::Failed("closed the connection before it answered".into())));
                }
                _ => continue,
            };
            if Some(key) == self.key
                && let Some(check_result) = self.judge(ends)
            {
                return Ok(Some(check_result));
            }
        }
        self.rest = rest.get(used..).unwrap_or_default().to_vec();
        Ok(None)
    }

    fn is_grpc(&self) -> bool {
        matches!(self.check.kind, CheckKind::Grpc { .. })
    }

    /// `None`: more has to come.
    fn judge(&self, ends: bool) -> Option<CheckResult> {
        if !self.is_grpc() {
            // As the same answer of HTTP/1.1 would be.
            let check_result = self.check.on_answer(&self.answer, ends);
            return check_result.or_else(|| {
                ends.then(|| CheckResult::Failed("closed the connection before it answered".into()))
            });
        }
        if self.status != 200 {
            return Some(CheckResult::Failed(format!("answered status {}", self.status)));
        }
        if self.answer.len() > LONGEST {
            return Some(CheckResult::Failed("the response is too long for a health check".into()));
        }
        ends.then(|| judge(self.code, &self.answer))
    }
}

fn ask_by_get(connection: &mut Connection<()>, check: &Check) -> Option<StreamKey> {
    let (host, path) = check.target();
    connection.ask(true, (), |block| {
        block.method(b"GET");
        block.scheme(false);
        block.path(path.as_bytes());
        block.authority(host.as_bytes());
        block.field(b"user-agent", b"seaway");
    })
}

fn ask_by_grpc(connection: &mut Connection<()>, check: &Check, service: &str) -> Option<StreamKey> {
    let key = connection.ask(false, (), |block| {
        block.method(b"POST");
        block.scheme(false);
        block.path(b"/grpc.health.v1.Health/Check");
        block.authority(check.at.to_string().as_bytes());
        block.field(b"content-type", b"application/grpc");
        block.field(b"te", b"trailers");
        block.field(b"user-agent", b"seaway");
    })?;
    connection.send_data(key, &question(service), true);
    Some(key)
}

fn code(lines: &[u8]) -> Option<u32> {
    let lines = std::str::from_utf8(lines).ok()?;
    lines.lines().find_map(|line| line.strip_prefix("grpc-status: "))?.parse().ok()
}

/// `HealthCheckRequest { service }`, with the length that gRPC puts before every message.
fn question(service: &str) -> Vec<u8> {
    // Names are as short as labels of Kubernetes: their length fits into one byte.
    let service = service.as_bytes().get(..service.len().min(127)).unwrap_or_default();
    let mut message = Vec::new();
    if !service.is_empty() {
        message.extend_from_slice(&[1 << 3 | 2, service.len() as u8]);
        message.extend_from_slice(service);
    }
    let length = (message.len() as u32).to_be_bytes();
    [&[0], &length[..], &message].concat()
}

/// `HealthCheckResponse { status }`: 1 is serving.
fn judge(status: Option<u32>, message: &[u8]) -> CheckResult {
    match status {
        Some(0) => {}
        Some(12) => return CheckResult::Failed("does not implement grpc.health.v1".into()),
        Some(5) => return CheckResult::Failed("does not know the gRPC service".into()),
        Some(code) => return CheckResult::Failed(format!("answered gRPC status {code}")),
        None => return CheckResult::Failed("answered without a gRPC status".into()),
    }
    match message.get(5..) {
        Some([8, 1, ..]) => CheckResult::Passed,
        Some([8, 2, ..]) => CheckResult::Failed("is not serving".into()),
        Some([8, 3, ..]) => CheckResult::Failed("does not know the gRPC service".into()),
        _ => CheckResult::Failed("reports the gRPC health status UNKNOWN".into()),
    }
}

/// The socket, with TLS between it and us where that is spoken.
struct ProbeStream {
    socket: Rc<OwnedFd>,
    session: Option<ClientConnection>,
}

impl ProbeStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(session) = &mut self.session else { return sys::receive(self.socket.as_fd(), into) };
        let mut wire = Wire(self.socket.as_fd());
        loop {
            while session.wants_write() {
                session.write_tls(&mut wire)?;
            }
            match session.reader().read(into) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            if session.read_tls(&mut wire)? == 0 && session.is_handshaking() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let processed = session.process_new_packets();
            processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.session {
            // Before hands are shaken it waits in the session.
            Some(session) => session.writer().write(bytes),
            None => sys::send(self.socket.as_fd(), bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut wire = Wire(self.socket.as_fd());
        while let Some(session) = self.session.as_mut().filter(|it| it.wants_write()) {
            session.write_tls(&mut wire)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_question_names_the_service() {
        assert_eq!(question(""), [0, 0, 0, 0, 0]);
        assert_eq!(question("ab"), [0, 0, 0, 0, 4, 10, 2, b'a', b'b']);
    }

    #[test]
    fn only_who_serves_is_well() {
        for (status, message, well) in [
            (Some(0), &[0, 0, 0, 0, 2, 8, 1][..], true),
            (Some(0), &[0, 0, 0, 0, 2, 8, 2], false),
            (Some(0), &[0, 0, 0, 0, 2, 8, 3], false),
            (Some(0), &[0, 0, 0, 0, 0], false),
            (Some(0), &[], false),
            (Some(12), &[], false),
            (Some(5), &[], false),
            (Some(14), &[0, 0, 0, 0, 2, 8, 1], false),
            (None, &[0, 0, 0, 0, 2, 8, 1], false),
        ] {
            assert_eq!(judge(status, message) == CheckResult::Passed, well, "{status:?} {message:?}");
        }
    }
}
