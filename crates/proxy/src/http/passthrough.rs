//! Passes bytes on as they are: where TLS ends here and carries another protocol than HTTP, or does not end here at all.

use std::{net::SocketAddr, sync::Arc};

use seaway_wire::http::BodyFraming;

use super::{
    idle_timeouts::{IdleTimeouts, millis},
    queue::{self, QueueDeadline},
    relay::tunnel,
    scratch::Scratch,
    serve::DownstreamClient,
    upstream_request::{choose, connect},
};
use crate::{
    access::{ConnectionEnd, ConnectionLogLine},
    latency::LatencyKind,
    reach::{RETRIES, is_local_shortage, note_failure},
    running::{RefusalReason, RunningPool, SelectionRequest},
};

/// TLS ends here, and what is in it goes on as it is.
pub(super) async fn pass_through(client: &DownstreamClient) {
    let config = client.downstream.listener.config_owned();
    let number = client.context.cursors().draw();
    let pool = config.pool(|| number).cloned();
    pass_to(client, pool, None).await;
}

/// What comes goes on as it is, what has come already first.
pub(super) async fn pass_to(
    client: &DownstreamClient,
    pool: Option<Arc<RunningPool>>,
    begun: Option<Box<Scratch>>,
) {
    let mut passing =
        PassthroughConnection { client, pool, scratch: begun, member: None, connect: None, ending: None };
    let Some(pool) = passing.pool.clone() else { return passing.refuse(RefusalReason::NoMember) };
    let _under_way = match pool.admit(client.context.now()) {
        Ok(under_way) => under_way,
        Err(why) => {
            passing.refuse(why);
            return client.end.reset();
        }
    };
    let (connect_timeout, quiet) = {
        let (live, config) = (pool.live(), client.downstream.listener.config());
        let (terms, usual) = (&live.compiled.pool().http, &config.listener.timeouts);
        client.task_state.drain_within(terms.drain);
        let connect = terms.connect.unwrap_or(usual.connect);
        (millis(connect), IdleTimeouts::of(terms, usual))
    };
    let mut tried = Vec::new();
    let (mut refusal, mut patience) = (RefusalReason::NoMember, QueueDeadline::default());
    while tried.len() <= RETRIES {
        let selection =
            || SelectionRequest { client: client.downstream.peer.ip(), cookie: None, tried: tried.clone() };
        let choose = || choose(&client.context, client.downstream.peer.ip(), &pool, &tried);
        let member = match queue::reserve_member(client, &pool, selection, &mut patience, choose).await {
            Ok(member) => member,
            Err(why) => {
                refusal = why;
                break;
            }
        };
        client.allow(connect_timeout);
        let (started, began) = (client.context.shared.started(), client.context.now());
        match connect(&client.context, &client.task_state, &client.downstream, &pool, &member, false).await {
            Ok(stream) => {
                client.context.record_latency(&pool, Some(&member), LatencyKind::Connect, started);
                passing.member = Some(member.at);
                passing.connect = Some(client.context.now().saturating_sub(began));
                let scratch = passing.scratch.get_or_insert_with(|| client.context.scratch());
                scratch.upward.begin(BodyFraming::Tunnel, false);
                scratch.downward.begin(BodyFraming::Tunnel, false);
                passing.ending = Some(tunnel(client, scratch, &stream, &member, quiet).await);
                return;
            }
            Err(error) if is_local_shortage(&error) => {
                client.task_state.end_connection();
                client.note_local_shortage(&error);
                passing.ending = Some(ConnectionEnd::Refused(RefusalReason::Resources));
                return client.end.reset();
            }
            Err(error) => {
                client.task_state.end_connection();
                note_failure(
                    &client.downstream.listener,
                    &pool,
                    &member,
                    &error.to_string(),
                    client.context.now(),
                );
                tried.push(member);
            }
        }
    }
    // Who has left the queue was not refused.
    if !client.is_gone() {
        pool.refused(refusal);
        passing.refuse(refusal);
    } else {
        let is_evicted = client.downstream.memory.is_evicted();
        passing.ending = Some(if is_evicted { ConnectionEnd::Evicted } else { ConnectionEnd::ClientReset });
    }
    client.end.reset();
}

/// One connection, written down when it is over. The task may be dropped amid it: its time to drain is over then.
struct PassthroughConnection<'c> {
    client: &'c DownstreamClient,
    pool: Option<Arc<RunningPool>>,
    scratch: Option<Box<Scratch>>,
    member: Option<SocketAddr>,
    connect: Option<u64>,
    ending: Option<ConnectionEnd>,
}

impl PassthroughConnection<'_> {
    fn refuse(&mut self, why: RefusalReason) {
        self.client.downstream.listener.refuse(why);
        self.ending = Some(ConnectionEnd::Refused(why));
    }
}

impl Drop for PassthroughConnection<'_> {
    fn drop(&mut self) {
        let (context, downstream) = (&self.client.context, &self.client.downstream);
        if let Some(sink) = context.sink_of_connections() {
            let is_open = self.member.is_some();
            let scratch = self.scratch.as_ref().filter(|_| is_open);
            let (received, sent) = scratch.map_or((0, 0), |it| (it.upward.moved, it.downward.moved));
            let line = ConnectionLogLine {
                client: downstream.peer,
                listener: &downstream.listener,
                pool: self.pool.as_ref().map_or("", |it| &it.id.0),
                member: self.member,
                sent,
                received,
                connect: self.connect,
                took: context.now().saturating_sub(downstream.came),
                ending: self.ending.unwrap_or(ConnectionEnd::Drained),
            };
            context.log(&sink, &line);
        }
        if let Some(scratch) = self.scratch.take().filter(|_| self.ending.is_some()) {
            context.put_back(scratch);
        }
    }
}
