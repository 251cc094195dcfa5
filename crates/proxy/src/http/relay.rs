//! A member's answer on its way to the client.

use std::{
    future::poll_fn,
    io,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::Poll,
};

use seaway_wire::http::{Body, Limits, Method, Reading, Response, Version};

use super::{
    ask::MemberAnswer,
    compression::{CodedHead, Coding},
    end::End,
    exchange::{After, ExchangeState, refuse},
    flow::{Broken, Flow},
    grpc::Outcome,
    heads::{self, BodyForwarding, Changes},
    quiet::QuietTimeouts,
    reuse::{self, NextUse},
    rules::{Nothing, ResponseChanges},
    scratch::{Buffer, Scratch},
    serve::Client,
};
use crate::{
    access::Ending,
    latency::Span,
    running::{RunningMember, RunningPool},
};

/// Passes the answer on, with the interim ones before it.
pub(super) async fn relay(
    client: &Client,
    scratch: &mut Scratch,
    state: ExchangeState<'_>,
    MemberAnswer { end: stream, is_whole, mut next }: MemberAnswer,
    pool: &RunningPool,
    member: &Arc<RunningMember>,
) -> After {
    let mut is_invited = false;
    loop {
        let Scratch { response, answered, downward, .. } = scratch;
        let Ok(head) = answered.part(0, response.length) else {
            return refuse(client, scratch, 502).await;
        };
        if response.is_interim() {
            is_invited |= response.status == 100;
            put_interim(client, downward, state, head, response);
            answered.consume(response.length);
            downward.begin(Body::None, false);
            let written = poll_fn(|_| downward.poll_write(&client.end)).await;
            if written.is_err() {
                return After::Close;
            }
            match next_head(client, scratch, state, &stream).await {
                Ok(()) => continue,
                Err(_) if client.downstream.memory.is_evicted() => {
                    stream.reset();
                    client.end.reset();
                    return After::Close;
                }
                Err(status) => {
                    match status {
                        504 => pool.note_response_timeout(member, client.context.now()),
                        _ => pool.failed(
                            member,
                            "no final response after an interim one",
                            client.context.now(),
                        ),
                    }
                    return refuse(client, scratch, status).await;
                }
            }
        }
        break;
    }
    // Its head waits with those of other streams.
    let takes = poll_fn(|_| match client.end.poll_takes_head() {
        Poll::Pending if client.context.is_late() => Poll::Ready(false),
        poll => poll.map(|()| true),
    });
    client.allow(state.response_timeout);
    if !takes.await {
        stream.reset();
        client.end.reset();
        return After::Close;
    }
    let status = scratch.response.status;
    let tunnels = scratch.response.body == Body::Tunnel;
    if status == 101 && !state.upgrade {
        return refuse(client, scratch, 502).await;
    }
    client.downstream.listener.answers.count(status);
    member.answers.count(status);
    client.context.record_latency(pool, Some(member), Span::FirstByte, state.started);
    scratch.record.set_response(status, || 0);
    let may_persist = state.persists && !client.is_over();
    let has_body = scratch.request.body != Body::None;
    let is_unread = has_body && next != NextUse::Closed && {
        let is_uninvited = reuse::expects(&scratch.request) && !is_invited;
        is_uninvited || reuse::is_early(&scratch.upward, &stream)
    };
    if is_unread || !is_whole {
        next = NextUse::Closed;
    }
    let Scratch { response, answered, downward, upward, .. } = scratch;
    let Ok(head) = answered.part(0, response.length) else {
        return refuse(client, scratch, 502).await;
    };
    next = next.after_answer(state.reuse, head, response);
    let cookies = state.sticky.map(|(sticky, pool)| sticky.told(pool, member, head, response));
    let mut answering = ResponseChanges {
        coded: CodedHead::default(),
        rule: state.rule,
        lines: state.response_headers,
        sticky: state.sticky.map(|(sticky, _)| sticky),
        cookies: cookies.as_deref().unwrap_or_default(),
        via: state.options.via.as_deref().map(|name| match &stream {
            End::Wire(_) if response.version == Version::Http10 => (name, "1.0"),
            End::Wire(_) => (name, "1.1"),
            End::H2Stream(_) => (name, "2"),
        }),
    };
    let mut gzip = None;
    if let Some(wanted) = state.compression {
        answering.coded = wanted.coding(head, response);
        if answering.is_coded() {
            // A rule may say that its members code bodies without telling, or give the client a cookie.
            let is_told = [&b"content-encoding"[..], b"set-cookie"].iter().any(|it| answering.sets(it));
            gzip = client.context.compressors.lend(&client.downstream).filter(|_| !is_told);
        }
        if answering.is_coded() && gzip.is_none() {
            answering.coded.coding = Coding::Varies;
        }
    }
    downward.clear();
    let onward = match &client.end {
        End::Wire(_) => {
            heads::answer(&mut downward.out, head, response, state.version, may_persist, &answering)
        }
        End::H2Stream(h2_stream) => h2_stream.answer(head, response, &answering),
    };
    let BodyForwarding { chunked, persists } = onward;
    let outcome = match &stream {
        End::Wire(_) => Outcome::None,
        End::H2Stream(_) => Outcome::of(head, response),
    };
    answered.consume(response.length);
    downward.begin(response.body, chunked);
    downward.compress(gzip);
    if tunnels {
        pool.answered(member, status, client.context.now());
        upward.begin(Body::Tunnel, false);
        tunnel(client, scratch, &stream, member, state.quiet).await;
        return After::Close;
    }
    if downward.join(answered).is_err() {
        stream.reset();
        return refuse(client, scratch, 502).await;
    }
    let timeout = state.response_timeout;
    if client.downstream.memory.is_filling() {
        scratch.forget_heads();
    }
    client.account_memory(scratch);
    let others = scratch.weight().saturating_sub(scratch.weight_of_bodies());
    let Scratch { answered, downward, upward, asked, record, .. } = scratch;
    // A silent stream of HTTP/2 holds nothing but its place: calls that last are not cut.
    let quiet = if matches!(stream, End::H2Stream(_)) { state.quiet.idle } else { timeout };
    client.allow(timeout);
    let (mut asking, mut was_stuck) = (true, true);
    let result = poll_fn(|_| {
        if stream.is_reclaimed() {
            return Poll::Ready(Err(Broken::Sink));
        }
        let before = downward.moved.wrapping_add(upward.moved);
        // The client may still be sending while it is answered.
        if asking && !upward.is_through() {
            asking =
                !matches!(upward.poll(&client.context, &client.end, asked, &stream), Poll::Ready(Err(_)));
        }
        let result = downward.poll(&client.context, &stream, answered, &client.end);
        let stuck = downward.is_stuck(answered);
        stream.note(
            stuck || (asking && upward.is_stuck(asked)),
            downward.moved.wrapping_add(upward.moved) != before,
        );
        if downward.moved.wrapping_add(upward.moved) != before || stuck != was_stuck {
            was_stuck = stuck;
            client.allow(if stuck { timeout } else { quiet });
            client.downstream.memory.progressed(client.context.now());
            if client.downstream.memory.is_filling() {
                [&mut *answered, &mut *asked].into_iter().for_each(Buffer::trim);
                [&mut *downward, &mut *upward].into_iter().for_each(Flow::trim);
            }
            client.account_parts(others, &[answered, asked], &[downward, upward]);
        }
        result
    })
    .await;
    client.downstream.listener.bytes_in.fetch_add(upward.moved, Relaxed);
    client.downstream.listener.bytes_out.fetch_add(downward.delivered(), Relaxed);
    member.bytes_in.fetch_add(upward.moved, Relaxed);
    member.bytes_out.fetch_add(downward.moved, Relaxed);
    record.set_bytes(upward.moved, downward.delivered());
    match result {
        Ok(()) => {
            client.context.record_latency(pool, None, Span::Request, state.started);
            let status = outcome.status(status, downward.trailers());
            pool.answered(member, status, client.context.now());
        }
        Err(Broken::Source(_)) => {
            // The client must see that something is missing.
            member.resets.fetch_add(1, Relaxed);
            pool.failed(member, "reset during a response", client.context.now());
            client.end.reset();
            return After::Close;
        }
        Err(Broken::Sink) => {
            if stream.is_reclaimed() {
                client.end.reset();
            }
            stream.reset();
            return After::Close;
        }
    }
    // The next request begins behind it, whether or not the member has taken all of this one.
    let asked_all = upward.is_over();
    if let End::Wire(mut stream) = stream {
        stream.charge_memory(&client.context.common);
        let is_done = upward.is_through() && answered.is_empty();
        let switches = state.upgrade || state.method == Method::Connect;
        if !is_done || is_unread || !is_whole || switches {
            // Closed by us, it would hold its port for a minute, and a client can do this as often as it likes.
            stream.reset();
        } else if next == NextUse::Closed && state.closes {
            client.context.kept().part(stream, member, client.context.now());
        } else {
            client.context.kept().keep(stream, member, (next, &client.downstream), client.context.now());
        }
    }
    match &client.end {
        _ if persists && asked_all => After::Next,
        End::Wire(stream) if asked_all && asked.is_empty() && !stream.is_readable() => {
            stream.part();
            After::Close
        }
        _ => After::Last,
    }
}

/// An answer before the answer goes on at once: the client may wait for it before it sends its body.
pub(super) fn put_interim(
    client: &Client,
    downward: &mut Flow,
    state: ExchangeState<'_>,
    head: &[u8],
    response: &Response,
) {
    match &client.end {
        End::Wire(_) if state.version == Version::Http11 => {
            heads::answer(&mut downward.out, head, response, state.version, state.persists, &Nothing);
        }
        // HTTP/1.0 knows none.
        End::Wire(_) => {}
        End::H2Stream(h2_stream) => h2_stream.inform(head, response),
    }
}

/// The head after an interim one.
async fn next_head(
    client: &Client,
    scratch: &mut Scratch,
    state: ExchangeState<'_>,
    stream: &End,
) -> Result<(), u16> {
    client.allow(state.response_timeout);
    let limits = Limits::default();
    scratch.response.begin();
    poll_fn(|_| {
        loop {
            match scratch.response.read(scratch.answered.filled(), state.method, &limits) {
                Reading::More => {}
                Reading::Whole => return Poll::Ready(Ok(())),
                Reading::Refused(_) => return Poll::Ready(Err(502)),
            }
            if !scratch.upward.is_through() {
                let _ = scratch.upward.poll(&client.context, &client.end, &mut scratch.asked, stream);
            }
            match stream.poll_fill(&mut scratch.answered) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::TimedOut => {
                    return Poll::Ready(Err(504));
                }
                Poll::Ready(_) => return Poll::Ready(Err(502)),
            }
        }
    })
    .await
}

/// Bytes both ways until both have finished. Tells how it ended.
pub(super) async fn tunnel(
    client: &Client,
    scratch: &mut Scratch,
    stream: &End,
    member: &RunningMember,
    QuietTimeouts { idle, half_closed }: QuietTimeouts,
) -> Ending {
    let Scratch { answered, downward, upward, asked, record, .. } = scratch;
    client.allow(idle);
    let (mut up, mut down) = (true, true);
    let (mut first, mut is_whole) = (Ending::Client, true);
    let ending = poll_fn(|_| {
        if stream.is_reclaimed() {
            stream.reset();
            client.end.reset();
            return Poll::Ready(Ending::Evicted);
        }
        let before = downward.moved.wrapping_add(upward.moved);
        let (of_client, of_member) = (Ending::ClientReset, Ending::MemberReset);
        for (open, from, buffer, flow, to, ends, (source, sink)) in [
            (&mut up, &client.end, &mut *asked, &mut *upward, stream, Ending::Client, (of_client, of_member)),
            (
                &mut down,
                stream,
                &mut *answered,
                &mut *downward,
                &client.end,
                Ending::Member,
                (of_member, of_client),
            ),
        ] {
            if !*open {
                continue;
            }
            match flow.poll(&client.context, from, buffer, to) {
                Poll::Pending => {}
                Poll::Ready(Ok(())) => {
                    *open = false;
                    if is_whole {
                        (first, is_whole) = (ends, false);
                    }
                    to.finish();
                    client.allow(half_closed);
                }
                Poll::Ready(Err(_)) if client.context.is_evicted() => return Poll::Ready(Ending::Evicted),
                Poll::Ready(Err(_)) if client.context.is_late() => return Poll::Ready(Ending::IdleTimeout),
                Poll::Ready(Err(Broken::Source(_))) => return Poll::Ready(source),
                Poll::Ready(Err(Broken::Sink)) => return Poll::Ready(sink),
            }
        }
        let moved = downward.moved.wrapping_add(upward.moved) != before;
        stream.note((up && upward.is_stuck(asked)) || (down && downward.is_stuck(answered)), moved);
        if moved {
            client.allow(if up && down { idle } else { half_closed });
            client.downstream.memory.progressed(client.context.now());
        }
        if client.downstream.memory.is_filling() {
            [&mut *answered, &mut *asked].into_iter().for_each(Buffer::trim);
            [&mut *downward, &mut *upward].into_iter().for_each(Flow::trim);
        }
        client.account_parts(0, &[answered, asked], &[downward, upward]);
        if up || down { Poll::Pending } else { Poll::Ready(first) }
    })
    .await;
    for (ins, outs) in [
        (&client.downstream.listener.bytes_in, &client.downstream.listener.bytes_out),
        (&member.bytes_in, &member.bytes_out),
    ] {
        ins.fetch_add(upward.moved, Relaxed);
        outs.fetch_add(downward.moved, Relaxed);
    }
    if ending == Ending::MemberReset {
        member.resets.fetch_add(1, Relaxed);
    }
    record.set_bytes(upward.moved, downward.moved);
    ending
}
