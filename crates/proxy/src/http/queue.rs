//! The member of a request, which waits for one that has room: see [`QueuedClient`].

use std::{future::poll_fn, sync::Arc, task::Poll};

use super::serve::DownstreamClient;
use crate::running::{
    MemberSelection, QueuedClient, RefusalReason, RunningMember, RunningPool, SelectionRequest, WaiterId,
};

/// Until when a request waits, in all its attempts together.
#[derive(Default)]
pub(super) struct QueueDeadline {
    until: Option<u64>,
}

/// Chooses a member, by `choose` where there is no limit, and counts on it from now on. With a limit of connections it waits for one,
/// behind those that wait.
pub(super) async fn reserve_member(
    client: &DownstreamClient,
    pool: &Arc<RunningPool>,
    selection: impl Fn() -> SelectionRequest,
    deadline: &mut QueueDeadline,
    choose: impl FnOnce() -> Option<Arc<RunningMember>>,
) -> Result<Arc<RunningMember>, RefusalReason> {
    let context = &client.context;
    let Some(limit) = pool.member_limit() else {
        let member = choose().ok_or(RefusalReason::NoMember)?;
        member.begin_connection();
        context.is_on(&client.task_state, &member);
        return Ok(member);
    };
    let at_once = || {
        let mut cursors = context.cursors();
        pool.reserve_member(&selection(), cursors.cursor_for(pool), context.now())
    };
    let queues = !limit.wait.is_zero();
    if !queues || !pool.has_waiting() {
        match at_once() {
            MemberSelection::Reserved(member) => {
                context.is_on(&client.task_state, &member);
                return Ok(member);
            }
            MemberSelection::NoMember => return Err(RefusalReason::NoMember),
            MemberSelection::Full if !queues => return Err(RefusalReason::Connections),
            MemberSelection::Full => {}
        }
    }
    let until = context.now().saturating_add(limit.wait.as_millis() as u64);
    let until = (*deadline.until.get_or_insert(until)).min(client.limit.get());
    let waiter = WaiterId::Task(client.task_state.index());
    let Some(waiting) = context.mailbox().and_then(|it| pool.wait(selection(), it, waiter)) else {
        // Those that wait have no use for what room there is: they keep other members.
        let MemberSelection::Reserved(member) = at_once() else { return Err(RefusalReason::Connections) };
        context.is_on(&client.task_state, &member);
        return Ok(member);
    };
    loop {
        match waiting.outcome() {
            Some(Some(member)) => {
                context.is_on(&client.task_state, &member);
                return Ok(member);
            }
            Some(None) => return Err(RefusalReason::NoMember),
            None if client.is_gone() || context.now() >= until => return Err(RefusalReason::Connections),
            None => settled(client, &waiting, until).await,
        }
        waiting.poll(context.now());
    }
}

/// Until it has a member or none, is gone, or has waited for a while.
async fn settled(client: &DownstreamClient, waiting: &QueuedClient, until: u64) {
    client.allow(until.saturating_sub(client.context.now()).min(QueuedClient::poll_interval()));
    poll_fn(|_| match waiting.is_settled() || client.is_gone() || client.context.is_late() {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}
