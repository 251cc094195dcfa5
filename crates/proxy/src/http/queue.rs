//! The member of a request, which waits for one that has room: see [`Waiting`].

use std::{future::poll_fn, sync::Arc, task::Poll};

use super::serve::Client;
use crate::running::{Place, Refusal, RunningMember, RunningPool, Waiting};

/// Milliseconds after which a client that was not called looks at the members itself: nothing tells that an ejection is over.
const LOOK_AGAIN: u64 = 250;

enum Attempt {
    Engaged(Arc<RunningMember>),
    /// All that serve have as many connections as they may have.
    Full,
    Nobody,
}

/// Chooses by `choose`, and counts on that member from now on. With a limit of connections it waits for one, behind those that wait.
pub(super) async fn engage(
    client: &Client,
    pool: &Arc<RunningPool>,
    tried: &[Arc<RunningMember>],
    choose: impl Fn() -> Option<Arc<RunningMember>>,
) -> Result<Arc<RunningMember>, Refusal> {
    let context = &client.context;
    let attempt = || {
        let live = pool.live();
        let limit = live.compiled.pool().member_limit;
        match choose() {
            Some(member) if context.try_engage(&client.task_state, &member, limit) => {
                Attempt::Engaged(member)
            }
            Some(_) => Attempt::Full,
            None if live.may_wait(tried, context.now()) => Attempt::Full,
            None => Attempt::Nobody,
        }
    };
    if !pool.keeps_waiting(context.now()) {
        match attempt() {
            Attempt::Engaged(member) => return Ok(member),
            Attempt::Nobody => return Err(Refusal::NoMember),
            Attempt::Full => {}
        }
    }
    let Some(limit) = pool.live().compiled.pool().member_limit else { return Err(Refusal::NoMember) };
    let until = context.now().saturating_add(limit.wait.as_millis() as u64).min(client.limit.get());
    let waiting = match context.mailbox() {
        Some(mailbox) if !limit.wait.is_zero() => {
            pool.queue.join(mailbox, Place::Task(client.task_state.index()))
        }
        _ => None,
    };
    let waiting = waiting.ok_or(Refusal::Connections)?;
    loop {
        pool.call_if_there_is_room(context.now());
        called(client, &waiting, until).await;
        if client.who.memory.is_evicted() {
            return Err(Refusal::Resources);
        }
        if waiting.is_called() || !pool.keeps_waiting(context.now()) {
            match attempt() {
                Attempt::Engaged(member) => {
                    waiting.served();
                    return Ok(member);
                }
                Attempt::Nobody => return Err(Refusal::NoMember),
                Attempt::Full => waiting.rejoin(),
            }
        }
        if context.now() >= until {
            return Err(Refusal::Connections);
        }
    }
}

/// Until it is called, or is to look itself.
async fn called(client: &Client, waiting: &Waiting, until: u64) {
    let patience = until.saturating_sub(client.context.now()).min(LOOK_AGAIN);
    client.allow(patience);
    poll_fn(|_| match waiting.is_called() || client.context.is_late() {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}
