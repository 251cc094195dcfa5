//! A connection of HTTP/2 of a client: one task for its frames, one for each of its streams.

use std::{cell::Cell, future::poll_fn, rc::Rc, sync::atomic::Ordering::Relaxed, task::Poll};

use seaway_wire::{
    http::ReadProgress,
    http2::{Connection, ErrorCode, RequestInfo, StreamKey},
};

use super::{
    downstream::DownstreamConnection,
    exchange,
    h2_connection::{H2Connection, MOST_STREAMS, for_client},
    h2_stream::H2Stream,
    scratch::Scratch,
    serve::DownstreamClient,
    stream::Stream,
    stream_inbox::StreamInbox,
    task_state::TaskState,
    transport::HttpTransport,
    worker_context::WorkerContext,
};

/// `begun`: what has come already, the preface first.
pub(super) async fn serve(
    context: Rc<WorkerContext>,
    task_state: Rc<TaskState>,
    downstream: Rc<DownstreamConnection>,
    stream: Stream,
    begun: Option<Box<Scratch>>,
) {
    let ours = for_client(downstream.limits().head, downstream.memory.most());
    let h2 = H2Connection::new(
        context.clone(),
        stream,
        task_state.clone(),
        Connection::server(ours, false),
        &downstream.memory,
    );
    downstream.hold_more(OF_HTTP_2);
    begun.into_iter().for_each(|begun| h2.take_begun(begun));
    let (mut leaving, abandoned) = (false, Rc::new(AbandonedStreams::default()));
    let (keep_alive, answer) = (downstream.timeout(|it| it.keep_alive), downstream.timeout(|it| it.answer));
    // Until the client has said anything in HTTP/2 it is as late as with any head.
    let idle_until = Cell::new(task_state.deadline());
    let end = poll_fn(|_| {
        // A client that was verified by others than would be asked today comes again: what it asks for on this connection would be
        // refused for ever, and it is not idle as long as it asks.
        let over = context.is_stopping()
            || downstream.listener.closed_at().is_some()
            || downstream.asked_by.as_ref().is_some_and(|it| !it.is_current());
        let late = idle_until.get() <= context.now();
        let (is_idle, heard, begun) = {
            let connection = h2.state();
            (connection.held_streams() == 0, connection.has_heard(), abandoned.begun.get())
        };
        if h2.gives_up_at(answer) <= context.now() {
            return Poll::Ready(Ok(()));
        }
        if task_state.is_evicted() {
            h2.connection().abort(ErrorCode::TOO_MUCH);
            return Poll::Ready(Ok(()));
        }
        if late && is_idle && h2.is_written() && (leaving || !heard) {
            // The peer does not close its side.
            return Poll::Ready(Ok(()));
        }
        if !leaving && (over || (late && is_idle)) {
            leaving = true;
            // Whoever opens a stream meanwhile is told that it was not looked at.
            h2.connection().leave();
        }
        let polled = h2.poll_turn(
            |connection, key, ends, asked| begin(&h2, &downstream, &abandoned, connection, key, ends, asked),
            || abandoned.refuse(),
        );
        if late || heard != h2.state().has_heard() || begun != abandoned.begun.get() {
            idle_until.set(context.now().saturating_add(keep_alive));
        }
        task_state.set_deadline(idle_until.get().min(h2.gives_up_at(answer)));
        if polled.is_pending() && abandoned.is_too_much() {
            h2.connection().abort(ErrorCode::TOO_MUCH);
            return Poll::Ready(Ok(()));
        }
        let is_through = h2.is_written() && h2.state().held_streams() == 0;
        if polled.is_pending() && is_through && h2.state().has_sent_goaway() {
            return Poll::Ready(Ok(()));
        }
        polled
    });
    if let Err(error) = end.await {
        tracing::debug!(listener = %downstream.listener.at, peer = %downstream.peer, %error, "a connection has ended");
    }
    // What is said last is why.
    h2.part().await;
}

/// Begins the task of a stream whose head the connection has just heard.
fn begin(
    h2: &Rc<H2Connection>,
    downstream: &Rc<DownstreamConnection>,
    abandoned: &Rc<AbandonedStreams>,
    connection: &Connection<StreamInbox>,
    key: StreamKey,
    ends: bool,
    asked: RequestInfo,
) -> Option<StreamInbox> {
    abandoned.begun.set(abandoned.begun.get().saturating_add(1));
    let head = connection.lines().len();
    if !downstream.memory.admits(head.saturating_mul(2).saturating_add(OF_STREAM)) {
        downstream.refuse_for_memory();
        // Whoever asks on and on although most is refused is ended.
        abandoned.given_up.set(abandoned.given_up.get().saturating_add(1));
        return None;
    }
    let task_state = TaskState::new(Some(downstream.listener.clone()), h2.context.now())
        .passed(h2.driver().passes())
        .of_client(&downstream.memory);
    let task_state = Rc::new(task_state);
    // Room that was used before is larger than what this one may need.
    let mut scratch = if downstream.memory.is_filling() { Box::default() } else { h2.context.scratch() };
    scratch.asked.put(connection.lines());
    if !ends && !asked.is_sized && !asked.switches && !asked.connects {
        scratch.asked.put(b"transfer-encoding: chunked\r\n");
    }
    scratch.asked.put(b"\r\n");
    let h2_stream = H2Stream::of_client(h2.clone(), key, task_state.clone(), asked.switches);
    let client = DownstreamClient {
        context: h2.context.clone(),
        task_state: task_state.clone(),
        end: HttpTransport::H2Stream(h2_stream),
        downstream: downstream.clone(),
        limit: Cell::new(u64::MAX),
        held: downstream.memory.reserve(0),
    };
    client.account_memory(&scratch);
    h2.context.begin(task_state.clone(), one(client, scratch, asked.is_too_large, abandoned.clone()));
    Some(StreamInbox::to(task_state, downstream.memory.reserve(0)))
}

/// What a connection of HTTP/2 holds without a stream, and what a stream holds: its task, and its places in both
/// connections.
const OF_HTTP_2: usize = 16 << 10;
pub(super) const OF_STREAM: usize = 3 << 10;

/// Streams of one connection. Giving one up costs a client nothing, and us a request to a member.
#[derive(Default)]
struct AbandonedStreams {
    begun: Cell<u64>,
    given_up: Cell<u64>,
}

/// A browser that leaves a page gives up what it has asked for, and not much more.
const MOST_GIVEN_UP: u64 = 2 * MOST_STREAMS as u64;

impl AbandonedStreams {
    fn refuse(&self) {
        self.begun.set(self.begun.get().saturating_add(1));
        self.given_up.set(self.given_up.get().saturating_add(1));
    }

    fn is_too_much(&self) -> bool {
        self.given_up.get() > MOST_GIVEN_UP && self.given_up.get() > self.begun.get() / 2
    }
}

/// Answers one stream.
async fn one(
    client: DownstreamClient,
    mut scratch: Box<Scratch>,
    is_too_large: bool,
    abandoned: Rc<AbandonedStreams>,
) {
    // Who gives up at once has asked nobody.
    if !client.end.is_gone() {
        client.downstream.listener.requests.fetch_add(1, Relaxed);
        answer(&client, &mut scratch, is_too_large).await;
    }
    if let HttpTransport::H2Stream(h2_stream) = &client.end
        && h2_stream.is_unanswered()
    {
        abandoned.given_up.set(abandoned.given_up.get().saturating_add(1));
    }
    // Of a client that holds much it is not kept for others: that would be as much again.
    if !client.downstream.memory.is_filling() {
        client.context.put_back(scratch);
    }
}

async fn answer(client: &DownstreamClient, scratch: &mut Scratch, is_too_large: bool) {
    scratch.request.begin();
    // As strictly as what comes by HTTP/1.1: it goes on as that.
    let read = match is_too_large {
        true => ReadProgress::More,
        false => scratch.request.read(scratch.asked.filled(), &client.downstream.limits()),
    };
    client.begin_record(scratch, read == ReadProgress::Whole);
    match read {
        ReadProgress::Whole => drop(exchange::exchange(client, scratch).await),
        ReadProgress::Refused(refusal) => drop(exchange::refuse(client, scratch, refusal.status).await),
        ReadProgress::More => {
            let status = if is_too_large { 431 } else { 400 };
            exchange::refuse(client, scratch, status).await;
        }
    }
    client.finish_record(scratch);
}
