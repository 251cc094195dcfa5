//! One client, from its first request to its last.

use std::{
    cell::Cell,
    future::poll_fn,
    io,
    rc::Rc,
    sync::atomic::Ordering::Relaxed,
    task::{Poll, ready},
    time::Duration,
};

use seaway_wire::http::{HeadError, ReadProgress};

use super::{
    body_relay::BodyRelay,
    downstream::DownstreamConnection,
    exchange::{self, KeepAlive},
    local_reply::LocalReply,
    scratch::{Buffer, Scratch},
    streams,
    task_state::TaskState,
    transport::HttpTransport,
    worker_context::WorkerContext,
};
use crate::{memory::Reservation, running, sys};

/// Whoever asks: a connection of HTTP/1.1, one request after the other, or one stream of HTTP/2.
pub(super) struct DownstreamClient {
    pub(super) context: Rc<WorkerContext>,
    pub(super) task_state: Rc<TaskState>,
    pub(super) end: HttpTransport,
    pub(super) downstream: Rc<DownstreamConnection>,
    /// When a rule's own time is over, whatever goes on.
    pub(super) limit: Cell<u64>,
    /// What the exchange holds.
    pub(super) held: Reservation,
}

/// In milliseconds: long enough to hear an answer over a long way.
pub(super) const LINGER: u64 = 1_000;
/// Reads in one turn of who is only let go by.
const ROUNDS: usize = 8;

/// How a connection of HTTP/2 begins (RFC 9113, section 3.4).
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

impl DownstreamClient {
    /// `begun`: what has come already.
    pub(super) async fn serve(self, mut begun: Option<Box<Scratch>>) {
        let mut first = true;
        loop {
            let HttpTransport::Wire(stream) = &self.end else { return };
            // Nobody holds a buffer while nothing comes.
            let patience =
                if first { self.timeout(|it| it.header) } else { self.timeout(|it| it.keep_alive) };
            self.task_state.set_deadline(self.context.now().saturating_add(patience));
            if begun.is_none() && !stream.wakes(|| self.is_done(first)).await {
                return;
            }
            let mut scratch = begun.take().unwrap_or_else(|| self.context.scratch());
            self.account_memory(&scratch);
            if first && self.begins_many(&mut scratch).await {
                let HttpTransport::Wire(stream) = self.end else { return };
                return streams::serve(self.context, self.task_state, self.downstream, stream, Some(scratch))
                    .await;
            }
            for answered in 1.. {
                match self.one(&mut scratch, &mut first).await {
                    KeepAlive::Next if self.downstream.memory.is_evicted() => {
                        return self.context.put_back(scratch);
                    }
                    KeepAlive::Next if scratch.asked.is_empty() && !stream.is_readable() => break,
                    // What no member is asked is answered at once, and more may always have come meanwhile.
                    KeepAlive::Next if answered % ROUNDS == 0 => self.context.next_turn().await,
                    KeepAlive::Next => {}
                    KeepAlive::Last => {
                        self.linger(&mut scratch).await;
                        return self.context.put_back(scratch);
                    }
                    KeepAlive::Close => return self.context.put_back(scratch),
                }
            }
            self.context.put_back(scratch);
            self.held.set(0);
        }
    }

    /// Whether this is HTTP/2 by prior knowledge.
    async fn begins_many(&self, scratch: &mut Scratch) -> bool {
        poll_fn(|_| {
            loop {
                let seen = scratch.asked.filled();
                let common = seen.len().min(PREFACE.len());
                if seen.get(..common) != PREFACE.get(..common) {
                    return Poll::Ready(false);
                }
                if common == PREFACE.len() {
                    return Poll::Ready(true);
                }
                match ready!(self.end.poll_fill(&mut scratch.asked)) {
                    Ok(1..) => {}
                    // Whoever reads next finds the same.
                    _ => return Poll::Ready(false),
                }
            }
        })
        .await
    }

    /// Reads one head and answers it.
    async fn one(&self, scratch: &mut Scratch, first: &mut bool) -> KeepAlive {
        let patience = if *first || !scratch.asked.is_empty() {
            self.timeout(|it| it.header)
        } else {
            self.timeout(|it| it.keep_alive)
        };
        self.task_state.set_deadline(self.context.now().saturating_add(patience));
        scratch.request.begin();
        let read = poll_fn(|_| self.poll_head(scratch, *first)).await;
        let is_new = std::mem::replace(first, false);
        self.downstream.memory.progressed(self.context.now());
        let whole = matches!(read, Ok(Some(ReadProgress::Whole)));
        if whole || !scratch.asked.is_empty() {
            self.begin_record(scratch, whole);
        }
        let after = if whole && is_new && self.context.shared.memory.is_used_up() {
            // Those who were here before go on.
            self.downstream.refuse_for_memory();
            exchange::refuse(self, scratch, 503).await
        } else {
            self.answer(scratch, read).await
        };
        self.finish_record(scratch);
        after
    }

    /// Counts what the exchange holds now.
    pub(super) fn account_memory(&self, scratch: &Scratch) {
        self.account_parts(scratch.weight(), &[], &[]);
    }

    /// The same, where not all is at hand: what is not, and the rest.
    pub(super) fn account_parts(&self, others: usize, buffers: &[&mut Buffer], flows: &[&mut BodyRelay]) {
        let task = if matches!(self.end, HttpTransport::H2Stream(_)) { streams::OF_STREAM } else { 0 };
        let buffers: usize = buffers.iter().map(|buffer| buffer.weight()).sum();
        let flows: usize = flows.iter().map(|flow| flow.weight()).sum();
        self.held.set([task, others, buffers, flows].iter().sum());
    }

    /// Lets go of all that is not needed while a client or a member is waited for, where much is held.
    pub(super) fn release_buffers(&self, scratch: &mut Scratch) {
        if self.downstream.memory.is_filling() {
            scratch.trim();
        }
        self.account_memory(scratch);
    }

    async fn answer(&self, scratch: &mut Scratch, read: io::Result<Option<ReadProgress>>) -> KeepAlive {
        match read {
            Ok(Some(ReadProgress::Refused(refusal))) => {
                tracing::debug!(listener = %self.downstream.listener.at, peer = %self.downstream.peer, why = refusal.why, "refused");
                if refusal == HeadError::ANOTHER_PROTOCOL {
                    return KeepAlive::Close;
                }
                exchange::refuse(self, scratch, refusal.status).await
            }
            Ok(Some(_)) => {
                self.downstream.listener.requests.fetch_add(1, Relaxed);
                exchange::exchange(self, scratch).await
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut && !scratch.asked.is_empty() => {
                exchange::refuse(self, scratch, 408).await
            }
            Ok(None) | Err(_) => KeepAlive::Close,
        }
    }

    fn poll_head(&self, scratch: &mut Scratch, first: bool) -> Poll<io::Result<Option<ReadProgress>>> {
        let limits = self.downstream.limits();
        loop {
            if !scratch.asked.is_empty() {
                match scratch.request.read(scratch.asked.filled(), &limits) {
                    ReadProgress::More => {}
                    whole => return Poll::Ready(Ok(Some(whole))),
                }
            } else if self.is_done(first)
                && !matches!(&self.end, HttpTransport::Wire(stream) if stream.is_readable())
            {
                return Poll::Ready(Ok(None));
            }
            let nothing_yet = scratch.asked.is_empty();
            if ready!(self.end.poll_fill(&mut scratch.asked))? == 0 {
                return Poll::Ready(Ok(None));
            }
            self.account_memory(scratch);
            if nothing_yet && !first {
                // The head has begun: from now on it has its own time.
                self.task_state.set_deadline(self.context.now().saturating_add(self.timeout(|it| it.header)));
            }
        }
    }

    /// It is turned away for want of something that we lack, not the member.
    pub(super) fn note_local_shortage(&self, error: &io::Error) {
        if sys::out_of_descriptors(error) {
            self.context.shared.out_of_descriptors(error);
        }
        self.downstream.listener.refuse(running::RefusalReason::Resources);
    }

    /// It has left, or has to: nothing is done for it any more.
    pub(super) fn is_gone(&self) -> bool {
        self.end.is_gone() || self.downstream.memory.is_evicted()
    }

    /// No further request is awaited from it.
    pub(super) fn is_over(&self) -> bool {
        self.context.is_stopping() || self.downstream.listener.closed_at().is_some()
    }

    /// Nothing is awaited from it any more. Who has only just come may still be about to ask, and is closed unanswered
    /// only if it does not do so soon.
    fn is_done(&self, first: bool) -> bool {
        if first && self.is_over() {
            self.task_state
                .set_deadline(self.task_state.deadline().min(self.context.now().saturating_add(LINGER)));
        }
        !first && self.is_over()
    }

    /// In milliseconds.
    pub(super) fn timeout(&self, which: impl Fn(&seaway_model::load_balancer::Timeouts) -> Duration) -> u64 {
        self.downstream.timeout(which)
    }

    /// Lets what comes next take so long, in milliseconds, within the limit of its rule.
    pub(super) fn allow(&self, patience: u64) {
        self.task_state.set_deadline((self.context.now().saturating_add(patience)).min(self.limit.get()));
    }

    /// From now on a rule's own time runs, too.
    pub(super) fn limit(&self, time: Option<Duration>) {
        self.limit
            .set(time.map_or(u64::MAX, |time| self.context.now().saturating_add(time.as_millis() as u64)));
    }

    /// Answers in the place of a member.
    pub(super) async fn respond(&self, scratch: &mut Scratch, answer: &LocalReply<'_>) -> KeepAlive {
        self.downstream.listener.answers.count(answer.status);
        scratch.record.set_response(answer.status, || answer.length());
        self.limit(None);
        self.allow(self.timeout(|it| it.answer));
        if let HttpTransport::H2Stream(h2_stream) = &self.end {
            let mut said = 0;
            poll_fn(|_| match h2_stream.poll_say(answer, &mut said) {
                Poll::Pending if self.context.is_late() || self.end.is_gone() => Poll::Ready(()),
                poll => poll,
            })
            .await;
            return KeepAlive::Close;
        }
        scratch.downward.clear();
        answer.write(&mut scratch.downward.out);
        let written = poll_fn(|_| scratch.downward.poll_write(&self.end)).await;
        match written {
            Ok(()) if answer.persists => KeepAlive::Next,
            Ok(()) => KeepAlive::Last,
            Err(_) => KeepAlive::Close,
        }
    }

    /// Who still sends when we close would get a reset, and with it lose the answer (RFC 9112, section 9.6): for a while
    /// what comes is let go by, until the client has noticed.
    async fn linger(&self, scratch: &mut Scratch) {
        let HttpTransport::Wire(stream) = &self.end else { return };
        stream.finish();
        self.task_state.set_deadline(self.context.now().saturating_add(LINGER));
        poll_fn(|_| {
            for _ in 0..ROUNDS {
                match ready!(scratch.asked.poll_let_go(stream)) {
                    Ok(1..) if !self.context.is_late() => {}
                    _ => return Poll::Ready(()),
                }
            }
            self.context.continue_next_turn();
            Poll::Pending
        })
        .await;
    }
}
