//! Requests that are sent to somebody else as well, whose answers nobody waits for.

use std::{
    future::poll_fn,
    rc::Rc,
    sync::Arc,
    task::{Poll, ready},
};

use super::{
    downstream::DownstreamConnection,
    scratch::Scratch,
    serve::DownstreamClient,
    task_state::TaskState,
    transport::HttpTransport,
    upstream_request::{choose, connect},
    worker_context::WorkerContext,
};
use crate::running::{Mirror, RunningPool};

/// Sends a copy of the question. What has a body that is still to come is not copied: nobody holds it up, or holds it.
pub(super) fn send_mirrors(client: &DownstreamClient, scratch: &Scratch, mirrors: &[Mirror]) {
    for mirror in mirrors {
        let draw = client.context.cursors().draw() % 1000;
        if draw >= u64::from(mirror.per_mille) {
            continue;
        }
        if !scratch.upward.is_over() {
            tracing::debug!(pool = %mirror.pool.id, "a request with a long body is not mirrored");
            continue;
        }
        if !client.downstream.memory.admits(scratch.question.len().saturating_mul(2)) {
            continue;
        }
        let task_state = TaskState::new(Some(client.downstream.listener.clone()), client.context.now());
        let task_state = Rc::new(task_state.passed(client.task_state.passes()));
        let copy = closing(&scratch.question);
        let future = send(
            client.context.clone(),
            task_state.clone(),
            client.downstream.clone(),
            mirror.pool.clone(),
            copy,
        );
        client.context.begin(task_state, future);
    }
}

/// The same, of which the connection ends with the answer.
fn closing(question: &[u8]) -> Vec<u8> {
    let end = memchr::memmem::find(question, b"\r\n\r\n").map_or(question.len(), |at| at.saturating_add(2));
    let (head, rest) = question.split_at_checked(end).unwrap_or((question, &[]));
    [head, b"Connection: close\r\n", rest].concat()
}

async fn send(
    context: Rc<WorkerContext>,
    task_state: Rc<TaskState>,
    downstream: Rc<DownstreamConnection>,
    pool: Arc<RunningPool>,
    question: Vec<u8>,
) {
    let _held = downstream.memory.reserve(question.capacity());
    let Some(member) = choose(&context, downstream.peer.ip(), &pool, &[]) else { return };
    let Ok(_under_way) = pool.admit(context.now()) else { return };
    // A copy waits for nobody, and overtakes nobody who does.
    if pool.member_limit().is_some() && pool.has_waiting()
        || !member.try_begin_connection(pool.member_limit())
    {
        return;
    }
    task_state.drain_within(pool.live().compiled.pool().http.drain);
    context.is_on(&task_state, &member);
    task_state.set_deadline(context.now().saturating_add(downstream.timeout(|it| it.connect)));
    let Ok(HttpTransport::Wire(stream)) =
        connect(&context, &task_state, &downstream, &pool, &member, true).await
    else {
        return;
    };
    task_state.set_deadline(context.now().saturating_add(downstream.timeout(|it| it.answer)));
    if stream.write_all(&question).await.is_err() {
        return;
    }
    let mut scratch = context.scratch();
    poll_fn(|_| {
        loop {
            scratch.answered.clear();
            if !matches!(ready!(scratch.answered.poll_fill(&stream)), Ok(1..)) {
                return Poll::Ready(());
            }
        }
    })
    .await;
    context.put_back(scratch);
}
