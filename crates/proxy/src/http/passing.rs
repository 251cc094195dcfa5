//! What comes goes on as it is: TLS ends here and carries another protocol than HTTP, or it does not end here at all.

use std::{net::SocketAddr, sync::Arc};

use seaway_wire::http::Body;

use super::{
    ask::{choose, connect},
    queue::{self, QueueDeadline},
    quiet::{QuietTimeouts, millis},
    relay::tunnel,
    scratch::Scratch,
    serve::Client,
};
use crate::{
    access::{ConnectionLine, Ending},
    latency::Span,
    reach::{RETRIES, is_local_shortage, note_failure},
    running::{Refusal, RunningPool, SelectionRequest},
};

/// TLS ends here, and what is in it goes on as it is.
pub(super) async fn pass_through(client: &Client) {
    let config = client.downstream.listener.config_owned();
    let number = client.context.cursors().draw();
    let pool = config.pool(|| number).cloned();
    pass_to(client, pool, None).await;
}

/// What comes goes on as it is, what has come already first.
pub(super) async fn pass_to(client: &Client, pool: Option<Arc<RunningPool>>, begun: Option<Box<Scratch>>) {
    let mut passing = Passing { client, pool, scratch: begun, member: None, connect: None, ending: None };
    let Some(pool) = passing.pool.clone() else { return passing.refuse(Refusal::NoMember) };
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
        (millis(connect), QuietTimeouts::of(terms, usual))
    };
    let mut tried = Vec::new();
    let (mut refusal, mut patience) = (Refusal::NoMember, QueueDeadline::default());
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
                client.context.record_latency(&pool, Some(&member), Span::Connect, started);
                passing.member = Some(member.at);
                passing.connect = Some(client.context.now().saturating_sub(began));
                let scratch = passing.scratch.get_or_insert_with(|| client.context.scratch());
                scratch.upward.begin(Body::Tunnel, false);
                scratch.downward.begin(Body::Tunnel, false);
                passing.ending = Some(tunnel(client, scratch, &stream, &member, quiet).await);
                return;
            }
            Err(error) if is_local_shortage(&error) => {
                client.task_state.disengage();
                client.lacks(&error);
                passing.ending = Some(Ending::Refused(Refusal::Resources));
                return client.end.reset();
            }
            Err(error) => {
                client.task_state.disengage();
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
        passing.ending = Some(if is_evicted { Ending::Evicted } else { Ending::ClientReset });
    }
    client.end.reset();
}

/// One connection, written down when it is over. The task may be dropped amid it: its time to drain is over then.
struct Passing<'c> {
    client: &'c Client,
    pool: Option<Arc<RunningPool>>,
    scratch: Option<Box<Scratch>>,
    member: Option<SocketAddr>,
    connect: Option<u64>,
    ending: Option<Ending>,
}

impl Passing<'_> {
    fn refuse(&mut self, why: Refusal) {
        self.client.downstream.listener.refuse(why);
        self.ending = Some(Ending::Refused(why));
    }
}

impl Drop for Passing<'_> {
    fn drop(&mut self) {
        let (context, downstream) = (&self.client.context, &self.client.downstream);
        if let Some(sink) = context.sink_of_connections() {
            let is_open = self.member.is_some();
            let scratch = self.scratch.as_ref().filter(|_| is_open);
            let (received, sent) = scratch.map_or((0, 0), |it| (it.upward.moved, it.downward.moved));
            let line = ConnectionLine {
                client: downstream.peer,
                listener: &downstream.listener,
                pool: self.pool.as_ref().map_or("", |it| &it.id.0),
                member: self.member,
                sent,
                received,
                connect: self.connect,
                took: context.now().saturating_sub(downstream.came),
                ending: self.ending.unwrap_or(Ending::Drained),
            };
            context.log(&sink, &line);
        }
        if let Some(scratch) = self.scratch.take().filter(|_| self.ending.is_some()) {
            context.put_back(scratch);
        }
    }
}
