//! A connection of HTTP/2 of a client: one task for its frames, one for each of its streams.

use std::{cell::Cell, future::poll_fn, rc::Rc, sync::atomic::Ordering::Relaxed, task::Poll};

use seaway_wire::{
    http::Reading,
    http2::{Asked, Connection, Key, Reason},
};

use super::{
    arrival::Who,
    end::End,
    exchange,
    hall::Hall,
    mail::Mail,
    many::{MOST_STREAMS, Many, for_client},
    multi::Multi,
    own::Own,
    scratch::Scratch,
    serve::Client,
    stream::Stream,
};

/// `begun`: what has come already, the preface first.
pub(super) async fn serve(
    hall: Rc<Hall>,
    own: Rc<Own>,
    who: Rc<Who>,
    stream: Stream,
    begun: Option<Box<Scratch>>,
) {
    let ours = for_client(who.limits().head, who.memory.most());
    let many = Many::new(hall.clone(), stream, own.clone(), Connection::server(ours, false), &who.memory);
    who.hold_more(OF_HTTP_2);
    begun.into_iter().for_each(|begun| many.take_begun(begun));
    let (mut leaving, toll) = (false, Rc::new(Toll::default()));
    let (keep_alive, answer) = (who.timeout(|it| it.keep_alive), who.timeout(|it| it.answer));
    // Until the client has said anything in HTTP/2 it is as late as with any head.
    let idle_until = Cell::new(own.deadline());
    let end = poll_fn(|_| {
        let over = hall.is_stopping() || who.listener.closed_at().is_some();
        let late = idle_until.get() <= hall.now();
        let (is_idle, heard, begun) = {
            let connection = many.seen();
            (connection.held() == 0, connection.has_heard(), toll.begun.get())
        };
        if many.gives_up(answer) <= hall.now() {
            return Poll::Ready(Ok(()));
        }
        if own.is_evicted() {
            many.connection().break_off(Reason::TOO_MUCH);
            return Poll::Ready(Ok(()));
        }
        if late && is_idle && many.is_written() && (leaving || !heard) {
            // The peer does not close its side.
            return Poll::Ready(Ok(()));
        }
        if !leaving && (over || (late && is_idle)) {
            leaving = true;
            // Whoever opens a stream meanwhile is told that it was not looked at.
            many.connection().leave();
        }
        let polled = many.poll_turn(
            |connection, key, ends, asked| begin(&many, &who, &toll, connection, key, ends, asked),
            || toll.refuse(),
        );
        if late || heard != many.seen().has_heard() || begun != toll.begun.get() {
            idle_until.set(hall.now().saturating_add(keep_alive));
        }
        own.set_deadline(idle_until.get().min(many.gives_up(answer)));
        if polled.is_pending() && toll.is_too_much() {
            many.connection().break_off(Reason::TOO_MUCH);
            return Poll::Ready(Ok(()));
        }
        let is_through = many.is_written() && many.seen().held() == 0;
        if polled.is_pending() && is_through && many.seen().has_left() {
            return Poll::Ready(Ok(()));
        }
        polled
    });
    if let Err(error) = end.await {
        tracing::debug!(listener = %who.listener.at, peer = %who.peer, %error, "a connection has ended");
    }
    // What is said last is why.
    many.part().await;
}

/// Begins the task of a stream whose head the connection has just heard.
fn begin(
    many: &Rc<Many>,
    who: &Rc<Who>,
    toll: &Rc<Toll>,
    connection: &Connection<Mail>,
    key: Key,
    ends: bool,
    asked: Asked,
) -> Option<Mail> {
    toll.begun.set(toll.begun.get().saturating_add(1));
    let head = connection.lines().len();
    if !who.memory.admits(head.saturating_mul(2).saturating_add(OF_STREAM)) {
        who.refuse_for_memory();
        // Whoever asks on and on although most is refused is ended.
        toll.given_up.set(toll.given_up.get().saturating_add(1));
        return None;
    }
    let own = Own::new(Some(who.listener.clone()), many.hall.now())
        .passed(many.driver().passes())
        .of_client(&who.memory);
    let own = Rc::new(own);
    // Room that was used before is larger than what this one may need.
    let mut scratch = if who.memory.is_filling() { Box::default() } else { many.hall.scratch() };
    scratch.asked.put(connection.lines());
    if !ends && !asked.is_sized && !asked.switches && !asked.connects {
        scratch.asked.put(b"transfer-encoding: chunked\r\n");
    }
    scratch.asked.put(b"\r\n");
    let multi = Multi::asked(many.clone(), key, own.clone(), asked.switches);
    let client = Client {
        hall: many.hall.clone(),
        own: own.clone(),
        end: End::Multi(multi),
        who: who.clone(),
        limit: Cell::new(u64::MAX),
        held: who.memory.reserve(0),
    };
    client.weigh(&scratch);
    many.hall.begin(own.clone(), one(client, scratch, asked.is_too_large, toll.clone()));
    Some(Mail::to(own, who.memory.reserve(0)))
}

/// What a connection of HTTP/2 holds without a stream, and what a stream holds: its task, and its places in both
/// connections.
const OF_HTTP_2: usize = 16 << 10;
pub(super) const OF_STREAM: usize = 3 << 10;

/// Streams of one connection. Giving one up costs a client nothing, and us a request to a member.
#[derive(Default)]
struct Toll {
    begun: Cell<u64>,
    given_up: Cell<u64>,
}

/// A browser that leaves a page gives up what it has asked for, and not much more.
const MOST_GIVEN_UP: u64 = 2 * MOST_STREAMS as u64;

impl Toll {
    fn refuse(&self) {
        self.begun.set(self.begun.get().saturating_add(1));
        self.given_up.set(self.given_up.get().saturating_add(1));
    }

    fn is_too_much(&self) -> bool {
        self.given_up.get() > MOST_GIVEN_UP && self.given_up.get() > self.begun.get() / 2
    }
}

/// Answers one stream.
async fn one(client: Client, mut scratch: Box<Scratch>, is_too_large: bool, toll: Rc<Toll>) {
    // Who gives up at once has asked nobody.
    if !client.end.is_gone() {
        client.who.listener.requests.fetch_add(1, Relaxed);
        answer(&client, &mut scratch, is_too_large).await;
    }
    if let End::Multi(multi) = &client.end
        && multi.is_unanswered()
    {
        toll.given_up.set(toll.given_up.get().saturating_add(1));
    }
    // Of a client that holds much it is not kept for others: that would be as much again.
    if !client.who.memory.is_filling() {
        client.hall.put_back(scratch);
    }
}

async fn answer(client: &Client, scratch: &mut Scratch, is_too_large: bool) {
    scratch.request.begin();
    // As strictly as what comes by HTTP/1.1: it goes on as that.
    let read = match is_too_large {
        true => Reading::More,
        false => scratch.request.read(scratch.asked.filled(), &client.who.limits()),
    };
    client.note(scratch, read == Reading::Whole);
    match read {
        Reading::Whole => drop(exchange::exchange(client, scratch).await),
        Reading::Refused(refusal) => drop(exchange::refuse(client, scratch, refusal.status).await),
        Reading::More => {
            let status = if is_too_large { 431 } else { 400 };
            exchange::refuse(client, scratch, status).await;
        }
    }
    client.tell(scratch);
}
