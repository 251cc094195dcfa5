//! A check by HTTP/2 with prior knowledge: `GET`, or by gRPC `grpc.health.v1.Health/Check`.
//!
//! What h2 does is a future without a waker: the prober polls it whenever something happens on its socket, which is all
//! that it can ever wait for.

use std::{
    future::{Future, poll_fn},
    io::{self, Read, Write},
    os::fd::{AsFd, OwnedFd},
    pin::{Pin, pin},
    rc::Rc,
    task::{Context, Poll, Waker, ready},
};

use bytes::Bytes;
use h2::client::{self, SendRequest};
use http::{HeaderMap, Request};
use rustls::ClientConnection;
use seaway_model::load_balancer::CheckKind;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{
    check::{Check, Finding},
    probe::Wire,
};
use crate::sys;

pub(super) struct Call(Pin<Box<dyn Future<Output = Finding>>>);

/// No answer to this question is longer.
const LONGEST: usize = 4 << 10;

impl Call {
    pub(super) fn begin((socket, session): (Rc<OwnedFd>, Option<ClientConnection>), check: &Check) -> Call {
        let check = check.clone();
        Call(Box::pin(async move {
            match call(Raw { socket, session }, &check).await {
                Ok(finding) => finding,
                Err(error) => Finding::Ill(format!("no HTTP/2: {error}")),
            }
        }))
    }

    pub(super) fn proceed(&mut self) -> Option<Finding> {
        match self.0.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(finding) => Some(finding),
            Poll::Pending => None,
        }
    }
}

async fn call(raw: Raw, check: &Check) -> Result<Finding, h2::Error> {
    let (requests, connection) = client::handshake(raw).await?;
    let mut connection = pin!(connection);
    let mut exchange = pin!(exchange(requests, check));
    let mut over = false;
    poll_fn(|cx| {
        // Each moves the other on, and nobody would be woken for that: after a few turns both have done all they can.
        for _ in 0..4 {
            if !over && let Poll::Ready(ended) = connection.as_mut().poll(cx) {
                over = true;
                ended?;
            }
            if let Poll::Ready(found) = exchange.as_mut().poll(cx) {
                return Poll::Ready(found);
            }
        }
        if over { Poll::Ready(Ok(Finding::Ill("closed before an answer".into()))) } else { Poll::Pending }
    })
    .await
}

async fn exchange(requests: SendRequest<Bytes>, check: &Check) -> Result<Finding, h2::Error> {
    match &check.kind {
        CheckKind::Grpc { service } => by_grpc(requests, &check.at.to_string(), service).await,
        _ => by_get(requests, check).await,
    }
}

/// Judged as the same answer of HTTP/1.1 would be.
async fn by_get(requests: SendRequest<Bytes>, check: &Check) -> Result<Finding, h2::Error> {
    let (host, path) = check.target();
    let request = Request::get(format!("http://{host}{path}")).header("user-agent", "seaway").body(());
    let Ok(request) = request else { return Ok(Finding::Ill(format!("{host}{path} cannot be asked for"))) };
    let mut requests = requests.ready().await?;
    let (head, mut from) = requests.send_request(request, true)?.0.await?.into_parts();
    let mut answer = format!("HTTP/1.1 {} \r\n\r\n", head.status.as_u16()).into_bytes();
    loop {
        if let Some(finding) = check.on_answer(&answer, false) {
            return Ok(finding);
        }
        let Some(bytes) = from.data().await else { break };
        let bytes = bytes?;
        answer.extend_from_slice(&bytes);
        from.flow_control().release_capacity(bytes.len())?;
    }
    let finding = check.on_answer(&answer, true);
    Ok(finding.unwrap_or_else(|| Finding::Ill("closed before an answer".into())))
}

async fn by_grpc(requests: SendRequest<Bytes>, authority: &str, service: &str) -> Result<Finding, h2::Error> {
    let request = Request::post(format!("http://{authority}/grpc.health.v1.Health/Check"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("user-agent", "seaway")
        .body(());
    let Ok(request) = request else { return Ok(Finding::Ill(format!("{authority} is no host"))) };
    let mut requests = requests.ready().await?;
    let (answer, mut to) = requests.send_request(request, false)?;
    to.send_data(question(service).into(), true)?;
    let (head, mut from) = answer.await?.into_parts();
    if head.status != 200 {
        return Ok(Finding::Ill(format!("answered status {}", head.status.as_u16())));
    }
    let mut message = Vec::new();
    while let Some(bytes) = from.data().await {
        let bytes = bytes?;
        message.extend_from_slice(&bytes);
        from.flow_control().release_capacity(bytes.len())?;
        if message.len() > LONGEST {
            return Ok(Finding::Ill("answered more than health".into()));
        }
    }
    let trailers = from.trailers().await?.unwrap_or_default();
    // Without a message, they come with the head.
    Ok(judge(status(&trailers).or_else(|| status(&head.headers)), &message))
}

fn status(fields: &HeaderMap) -> Option<u32> {
    fields.get("grpc-status")?.to_str().ok()?.parse().ok()
}

/// `HealthCheckRequest { service }`, with the length that gRPC puts before every message.
fn question(service: &str) -> Vec<u8> {
    // Names are as short as labels of Kubernetes: their length fits into one byte.
    let service = &service.as_bytes()[..service.len().min(127)];
    let mut message = Vec::new();
    if !service.is_empty() {
        message.extend_from_slice(&[1 << 3 | 2, service.len() as u8]);
        message.extend_from_slice(service);
    }
    let length = (message.len() as u32).to_be_bytes();
    [&[0], &length[..], &message].concat()
}

/// `HealthCheckResponse { status }`: 1 is serving.
fn judge(status: Option<u32>, message: &[u8]) -> Finding {
    match status {
        Some(0) => {}
        Some(12) => return Finding::Ill("does not know grpc.health.v1".into()),
        Some(5) => return Finding::Ill("does not know that service".into()),
        Some(code) => return Finding::Ill(format!("answered gRPC status {code}")),
        None => return Finding::Ill("answered without a gRPC status".into()),
    }
    match message.get(5..) {
        Some([8, 1, ..]) => Finding::Well,
        Some([8, 2, ..]) => Finding::Ill("is not serving".into()),
        Some([8, 3, ..]) => Finding::Ill("does not know that service".into()),
        _ => Finding::Ill("does not know its health".into()),
    }
}

/// The socket as h2 reads and writes it, with TLS between them where that is spoken.
struct Raw {
    socket: Rc<OwnedFd>,
    session: Option<ClientConnection>,
}

impl Raw {
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

fn now<T>(result: io::Result<T>) -> Poll<io::Result<T>> {
    match result {
        Err(error) if sys::would_block(&error) => Poll::Pending,
        result => Poll::Ready(result),
    }
}

impl AsyncRead for Raw {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = ready!(now(self.read(into.initialize_unfilled())))?;
        into.advance(read);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Raw {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        now(self.write(bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        now(self.flush())
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
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
            assert_eq!(judge(status, message) == Finding::Well, well, "{status:?} {message:?}");
        }
    }
}
