//! Requests that are sent to somebody else as well, whose answers nobody waits for.

use std::{
    future::poll_fn,
    rc::Rc,
    sync::Arc,
    task::{Poll, ready},
};

use super::{
    arrival::Who,
    ask::{choose, connect},
    end::End,
    hall::Hall,
    own::Own,
    scratch::Scratch,
    serve::Client,
};
use crate::running::{Mirror, RunningPool};

/// Sends a copy of the question. What has a body that is still to come is not copied: nobody holds it up, or holds it.
pub(super) fn reflect(client: &Client, scratch: &Scratch, mirrors: &[Mirror]) {
    for mirror in mirrors {
        let draw = client.hall.cursors().draw() % 1000;
        if draw >= u64::from(mirror.per_mille) {
            continue;
        }
        if !scratch.upward.is_over() {
            tracing::debug!(pool = %mirror.pool.id, "a request with a long body is not mirrored");
            continue;
        }
        if !client.who.memory.admits(scratch.question.len().saturating_mul(2)) {
            continue;
        }
        let own = Own::new(Some(client.who.listener.clone()), client.hall.now());
        let own = Rc::new(own.passed(client.own.passes()));
        let copy = closing(&scratch.question);
        let future = send(client.hall.clone(), own.clone(), client.who.clone(), mirror.pool.clone(), copy);
        client.hall.begin(own, future);
    }
}

/// The same, of which the connection ends with the answer.
fn closing(question: &[u8]) -> Vec<u8> {
    let end = memchr::memmem::find(question, b"\r\n\r\n").map_or(question.len(), |at| at.saturating_add(2));
    let (head, rest) = question.split_at_checked(end).unwrap_or((question, &[]));
    [head, b"Connection: close\r\n", rest].concat()
}

async fn send(hall: Rc<Hall>, own: Rc<Own>, who: Rc<Who>, pool: Arc<RunningPool>, question: Vec<u8>) {
    let _held = who.memory.reserve(question.capacity());
    let Some(member) = choose(&hall, who.peer.ip(), &pool, &[]) else { return };
    hall.engage(&own, &member);
    own.set_deadline(hall.now().saturating_add(who.timeout(|it| it.connect)));
    let Ok(End::Wire(stream)) = connect(&hall, &own, &who, &pool, &member, true).await else { return };
    own.set_deadline(hall.now().saturating_add(who.timeout(|it| it.answer)));
    if stream.write_all(&question).await.is_err() {
        return;
    }
    let mut scratch = hall.scratch();
    poll_fn(|_| {
        loop {
            scratch.answered.clear();
            if !matches!(ready!(scratch.answered.poll_fill(&stream)), Ok(1..)) {
                return Poll::Ready(());
            }
        }
    })
    .await;
    hall.put_back(scratch);
}
