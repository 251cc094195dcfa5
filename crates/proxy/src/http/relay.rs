//! A member's answer on its way to the client.

use std::{
    future::poll_fn,
    io,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::Poll,
};

use seaway_wire::http::{BodyFraming, Limits, Method, ReadProgress, Response, Version};

use super::{
    body_relay::{BodyError, BodyRelay},
    compression::{CompressedHead, ContentCoding},
    exchange::{ExchangeState, KeepAlive, refuse},
    grpc::GrpcStatusSource,
    heads::{self, BodyForwarding, HeaderModifier},
    idle_timeouts::IdleTimeouts,
    reuse::{self, NextUse},
    rules::{NoResponseChanges, ResponseChanges},
    scratch::{Buffer, Scratch},
    serve::DownstreamClient,
    transport::HttpTransport,
    upstream_request::UpstreamResponse,
};
use crate::{
    access::ConnectionEnd,
    latency::LatencyKind,
    running::{RunningMember, RunningPool},
};

/// Passes the answer on, with the interim ones before it.
pub(super) async fn relay(
    client: &DownstreamClient,
    scratch: &mut Scratch,
    state: ExchangeState<'_>,
    UpstreamResponse { end: stream, is_whole, mut next }: UpstreamResponse,
    pool: &RunningPool,
    member: &Arc<RunningMember>,
) -> KeepAlive {
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
            downward.begin(BodyFraming::None, false);
            let written = poll_fn(|_| downward.poll_write(&client.end)).await;
            if written.is_err() {
                return KeepAlive::Close;
            }
            match next_head(client, scratch, state, &stream).await {
                Ok(()) => continue,
                Err(_) if client.downstream.memory.is_evicted() => {
                    stream.reset();
                    client.end.reset();
                    return KeepAlive::Close;
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
        return KeepAlive::Close;
    }
    let status = scratch.response.status;
    let tunnels = scratch.response.body == BodyFraming::Tunnel;
    if status == 101 && !state.upgrade {
        return refuse(client, scratch, 502).await;
    }
    client.downstream.listener.answers.count(status);
    member.answers.count(status);
    client.context.record_latency(pool, Some(member), LatencyKind::FirstByte, state.started);
    scratch.record.set_response(status, || 0);
    let may_persist = state.persists && !client.is_over();
    let has_body = scratch.request.body != BodyFraming::None;
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
    let cookies = state.sticky.map(|(sticky, pool)| sticky.response_lines(pool, member, head, response));
    let mut answering = ResponseChanges {
        coded: CompressedHead::default(),
        rule: state.rule,
        lines: state.response_headers,
        sticky: state.sticky.map(|(sticky, _)| sticky),
        cookies: cookies.as_deref().unwrap_or_default(),
        via: state.options.via.as_deref().map(|name| match &stream {
            HttpTransport::Wire(_) if response.version == Version::Http10 => (name, "1.0"),
            HttpTransport::Wire(_) => (name, "1.1"),
            HttpTransport::H2Stream(_) => (name, "2"),
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
            answering.coded.coding = ContentCoding::Varies;
        }
    }
    downward.clear();
    let onward = match &client.end {
        HttpTransport::Wire(_) => {
            heads::answer(&mut downward.out, head, response, state.version, may_persist, &answering)
        }
        HttpTransport::H2Stream(h2_stream) => h2_stream.answer(head, response, &answering),
    };
    let BodyForwarding { chunked, persists } = onward;
    let outcome = match &stream {
        HttpTransport::Wire(_) => GrpcStatusSource::None,
        HttpTransport::H2Stream(_) => GrpcStatusSource::of(head, response),
    };
    answered.consume(response.length);
    downward.begin(response.body, chunked);
    downward.compress(gzip);
    if tunnels {
        pool.answered(member, status, client.context.now());
        upward.begin(BodyFraming::Tunnel, false);
        tunnel(client, scratch, &stream, member, state.quiet).await;
        return KeepAlive::Close;
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
    let quiet = if matches!(stream, HttpTransport::H2Stream(_)) { state.quiet.idle } else { timeout };
    client.allow(timeout);
    let (mut asking, mut was_stuck) = (true, true);
    let result = poll_fn(|_| {
        if stream.is_reclaimed() {
            return Poll::Ready(Err(BodyError::Sink));
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
                [&mut *downward, &mut *upward].into_iter().for_each(BodyRelay::trim);
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
            client.context.record_latency(pool, None, LatencyKind::Request, state.started);
            let status = outcome.status(status, downward.trailers());
            pool.answered(member, status, client.context.now());
        }
        Err(BodyError::Source(_)) => {
            // The client must see that something is missing.
            member.resets.fetch_add(1, Relaxed);
            pool.failed(member, "reset during a response", client.context.now());
            client.end.reset();
            return KeepAlive::Close;
        }
        Err(BodyError::Sink) => {
            if stream.is_reclaimed() {
                client.end.reset();
            }
            stream.reset();
            return KeepAlive::Close;
        }
    }
    // The next request begins behind it, whether or not the member has taken all of this one.
    let asked_all = upward.is_over();
    if let HttpTransport::Wire(mut stream) = stream {
        stream.charge_memory(&client.context.common);
        let is_done = upward.is_through() && answered.is_empty();
        let switches = state.upgrade || state.method == Method::Connect;
        if !is_done || is_unread || !is_whole || switches {
            // Closed by us, it would hold its port for a minute, and a client can do this as often as it likes.
            stream.reset();
        } else if next == NextUse::Closed && state.closes {
            client.context.idle_connections().part(stream, member, client.context.now());
        } else {
            client.context.idle_connections().keep(
                stream,
                member,
                (next, &client.downstream),
                client.context.now(),
            );
        }
    }
    match &client.end {
        _ if persists && asked_all => KeepAlive::Next,
        HttpTransport::Wire(stream) if asked_all && asked.is_empty() && !stream.is_readable() => {
            stream.part();
            KeepAlive::Close
        }
        _ => KeepAlive::Last,
    }
}

/// An answer before the answer goes on at once: the client may wait for it before it sends its body.
pub(super) fn put_interim(
    client: &DownstreamClient,
    downward: &mut BodyRelay,
    state: ExchangeState<'_>,
    head: &[u8],
    response: &Response,
) {
    match &client.end {
        HttpTransport::Wire(_) if state.version == Version::Http11 => {
            heads::answer(
                &mut downward.out,
                head,
                response,
                state.version,
                state.persists,
                &NoResponseChanges,
            );
        }
        // HTTP/1.0 knows none.
        HttpTransport::Wire(_) => {}
        HttpTransport::H2Stream(h2_stream) => h2_stream.inform(head, response),
    }
}

/// The head after an interim one.
async fn next_head(
    client: &DownstreamClient,
    scratch: &mut Scratch,
    state: ExchangeState<'_>,
    stream: &HttpTransport,
) -> Result<(), u16> {
    client.allow(state.response_timeout);
    let limits = Limits::default();
    scratch.response.begin();
    poll_fn(|_| {
        loop {
            match scratch.response.read(scratch.answered.filled(), state.method, &limits) {
                ReadProgress::More => {}
                ReadProgress::Whole => return Poll::Ready(Ok(())),
                ReadProgress::Refused(_) => return Poll::Ready(Err(502)),
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
    client: &DownstreamClient,
    scratch: &mut Scratch,
    stream: &HttpTransport,
    member: &RunningMember,
    IdleTimeouts { idle, half_closed }: IdleTimeouts,
) -> ConnectionEnd {
    let Scratch { answered, downward, upward, asked, record, .. } = scratch;
    client.allow(idle);
    let (mut up, mut down) = (true, true);
    let (mut first, mut is_whole) = (ConnectionEnd::Client, true);
    let ending = poll_fn(|_| {
        if stream.is_reclaimed() {
            stream.reset();
            client.end.reset();
            return Poll::Ready(ConnectionEnd::Evicted);
        }
        let before = downward.moved.wrapping_add(upward.moved);
        let (of_client, of_member) = (ConnectionEnd::ClientReset, ConnectionEnd::MemberReset);
        for (open, from, buffer, flow, to, ends, (source, sink)) in [
            (
                &mut up,
                &client.end,
                &mut *asked,
                &mut *upward,
                stream,
                ConnectionEnd::Client,
                (of_client, of_member),
            ),
            (
                &mut down,
                stream,
                &mut *answered,
                &mut *downward,
                &client.end,
                ConnectionEnd::Member,
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
                Poll::Ready(Err(_)) if client.context.is_evicted() => {
                    return Poll::Ready(ConnectionEnd::Evicted);
                }
                Poll::Ready(Err(_)) if client.context.is_late() => {
                    return Poll::Ready(ConnectionEnd::IdleTimeout);
                }
                Poll::Ready(Err(BodyError::Source(_))) => return Poll::Ready(source),
                Poll::Ready(Err(BodyError::Sink)) => return Poll::Ready(sink),
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
            [&mut *downward, &mut *upward].into_iter().for_each(BodyRelay::trim);
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
    if ending == ConnectionEnd::MemberReset {
        member.resets.fetch_add(1, Relaxed);
    }
    record.set_bytes(upward.moved, downward.moved);
    ending
}
