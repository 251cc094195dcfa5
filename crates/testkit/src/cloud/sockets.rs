//! HTTP in, values to the state, HTTP out, with whatever trouble a test scripted in between.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use hyper::{
    Response,
    body::{Body as HttpBody, Bytes, Frame, Incoming, SizeHint},
};
use percent_encoding::percent_decode_str;

use super::{
    Shared,
    exchange::{Body, Reply, Request},
};
use crate::{
    faults::FaultAction,
    server::{ConnectionLost, accept, converse, whole},
};

pub(super) async fn serve(listener: std::net::TcpListener, shared: Arc<Shared>) {
    accept(listener, |stream| {
        let shared = Arc::clone(&shared);
        converse(stream, move |request| {
            let shared = Arc::clone(&shared);
            async move { respond(request, &shared).await }
        })
    })
    .await;
}

async fn respond(
    request: hyper::Request<Incoming>,
    shared: &Shared,
) -> Result<Response<Outgoing>, ConnectionLost> {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let request = read(request).await?;
    let (number, struck) = shared.record(&request, &query);
    let (trouble, then) = struck.map_or((None, None), |struck| (Some(struck.trouble), struck.then));
    let mut cut = false;
    let reply = match trouble {
        None => shared.answer(request),
        Some(FaultAction::Instead { status, headers, body }) => {
            shared.canned(&request, status, headers, body)
        }
        Some(FaultAction::LoseRequest) => return Err(ConnectionLost),
        Some(FaultAction::LoseReply) => {
            shared.answer(request);
            return Err(ConnectionLost);
        }
        Some(FaultAction::CutShort) => {
            cut = true;
            shared.answer(request)
        }
        Some(FaultAction::Stale) => shared.answer_from(then, request),
        Some(FaultAction::Hold(hold)) => {
            hold.pass().await;
            shared.answer(request)
        }
        Some(FaultAction::HoldReply(hold)) => {
            let reply = shared.answer(request);
            hold.pass().await;
            reply
        }
    };
    shared.replied(number, reply.status);
    Ok(written(reply, number, cut))
}

async fn read(request: hyper::Request<Incoming>) -> Result<Request, ConnectionLost> {
    let (head, body) = request.into_parts();
    let headers = head.headers.iter().map(|(name, value)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    });
    Ok(Request {
        method: head.method.as_str().to_owned(),
        path: decoded(head.uri.path(), false),
        query: pairs(head.uri.query().unwrap_or_default()),
        headers: headers.collect(),
        body: whole(body).await?.to_vec(),
        ..Request::default()
    })
}

fn pairs(query: &str) -> Vec<(String, String)> {
    let parts = query.split('&').filter(|part| !part.is_empty());
    parts
        .map(|part| part.split_once('=').unwrap_or((part, "")))
        .map(|(name, value)| (decoded(name, true), decoded(value, true)))
        .collect()
}

/// Percent signs and, in a query, plus signs resolved.
fn decoded(text: &str, plus: bool) -> String {
    let text = if plus { text.replace('+', " ") } else { text.to_owned() };
    percent_decode_str(&text).decode_utf8_lossy().into_owned()
}

fn written(reply: Reply, number: usize, cut: bool) -> Response<Outgoing> {
    let (content, body) = match reply.body {
        Body::Nothing => (None, Bytes::new()),
        Body::Json(value) => (Some("application/json"), Bytes::from(value.to_string())),
        Body::Raw(bytes, content) => (Some(content), Bytes::from(bytes)),
    };
    let mut response = Response::builder().status(reply.status);
    if let Some(content) = content {
        response = response.header("content-type", content);
    }
    for (name, value) in reply.headers {
        response = response.header(name, value);
    }
    response
        .header("x-openstack-request-id", format!("req-{number:08x}-0000-4000-8000-000000000000"))
        .body(Outgoing { body, stage: if cut { Stage::Half } else { Stage::Whole } })
        .expect("statuses and headers of the fake and of its tests are valid")
}

/// A body that may end before its length.
struct Outgoing {
    body: Bytes,
    stage: Stage,
}

enum Stage {
    Whole,
    Half,
    /// What was sent leaves for the network before the connection breaks.
    Flush,
    Break,
    Done,
}

impl HttpBody for Outgoing {
    type Data = Bytes;
    type Error = ConnectionLost;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ConnectionLost>>> {
        let (next, now) = match self.stage {
            Stage::Whole => (Stage::Done, Poll::Ready(Some(Ok(Frame::data(self.body.clone()))))),
            Stage::Half => {
                (Stage::Flush, Poll::Ready(Some(Ok(Frame::data(self.body.slice(..self.body.len() / 2))))))
            }
            Stage::Flush => {
                context.waker().wake_by_ref();
                (Stage::Break, Poll::Pending)
            }
            Stage::Break => (Stage::Done, Poll::Ready(Some(Err(ConnectionLost)))),
            Stage::Done => (Stage::Done, Poll::Ready(None)),
        };
        self.stage = next;
        now
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_empty() || matches!(self.stage, Stage::Done)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.body.len() as u64)
    }
}
