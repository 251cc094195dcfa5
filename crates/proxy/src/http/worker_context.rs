//! What the tasks of one worker share. All of it is of this thread alone: a `RefCell` is never borrowed over an await.

use std::{
    cell::{Cell, RefCell, RefMut},
    collections::VecDeque,
    future::{Future, poll_fn},
    io,
    os::fd::OwnedFd,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::Poll,
    time::Duration,
};

use super::{
    gzip::Compressors,
    h2_upstream::H2UpstreamPool,
    handshakes::Handshakes,
    idle_connections::IdleConnections,
    request_id::RequestIds,
    scratch::Scratch,
    stream::{SocketReadiness, Stream},
    task_state::{NOWHERE, TaskState},
};
use crate::{
    access::{AccessLogSink, LogBuffer, LogEntry, RefusedClient},
    latency::{LatencyKind, Stopwatch, WorkerNumber},
    listening_sockets::ListeningSockets,
    memory::{ConnectionMemory, WorkerMemory},
    pipes::Pipes,
    proxy_state::ProxyState,
    reach::Cursors,
    running::{RunningMember, RunningPool},
    sys::{Epoll, Event},
    worker::{DrainSweeps, FairQueue, FairnessKey, Kind, LoopIteration, Mailbox, Slab, Token},
};

pub(super) struct WorkerContext {
    now: Cell<u64>,
    pub(super) worker: usize,
    epoll: Arc<Epoll>,
    number: WorkerNumber,
    pub(super) memory: Rc<WorkerMemory>,
    /// What is held for no client in particular.
    pub(super) common: Rc<ConnectionMemory>,
    pub(super) shared: Arc<ProxyState>,
    listening: RefCell<ListeningSockets>,
    streams: RefCell<Slab<Rc<SocketReadiness>>>,
    cursors: RefCell<Cursors>,
    request_ids: RefCell<RequestIds>,
    log_buffer: RefCell<LogBuffer>,
    kept: RefCell<IdleConnections>,
    h2_upstreams: RefCell<H2UpstreamPool>,
    pub(super) pipes: Rc<RefCell<Pipes>>,
    pub(super) compressors: Rc<Compressors>,
    #[expect(clippy::vec_box, reason = "they move from task to task, and are large")]
    scratch_pool: RefCell<Vec<Box<Scratch>>>,
    /// Bytes of those in the pool.
    pooled: Cell<usize>,
    /// What is read of HTTP/2, and dealt with at once.
    read_buffer: RefCell<Vec<u8>>,
    /// Where frames of HTTP/2 wait, empty.
    buffers: RefCell<Vec<Vec<u8>>>,
    /// The task that runs.
    current: RefCell<Option<Rc<TaskState>>>,
    sweeps: RefCell<DrainSweeps>,
    stopping: Cell<bool>,
    turns: Cell<u64>,
    contended: Cell<bool>,
    /// TCP or UDP had more to do than fits a turn.
    others_are_behind: Cell<bool>,
    /// Tasks that had more to do than is fair in one turn.
    unfinished: RefCell<VecDeque<u32>>,
    /// Tasks that others have woken or begun since the last turn, in that order.
    runnable: RefCell<VecDeque<Runnable>>,
    /// Those that were too many for their turn.
    backlog: RefCell<FairQueue<Runnable>>,
    pub(super) handshakes: Handshakes,
}

/// A task that has no place yet.
pub(super) type NewTask = (Rc<TaskState>, Pin<Box<dyn Future<Output = ()>>>);

pub(super) enum Runnable {
    /// Another task woke it: a stream of a connection of HTTP/2, or the task that drives it.
    Woken(u32),
    /// Another task began it.
    Begun(NewTask),
    /// Clients wait there.
    ListeningSocket(Token),
}

/// Bytes of buffers that wait for a request; more than these are given back.
const MAX_POOLED: usize = 1 << 20;
/// And each is no larger: who gets it next is charged with it.
const KEEP: usize = 24 << 10;
const READ_BUFFER: usize = 32 << 10;
const MAX_BUFFERS: usize = 16;
/// What waits in one turn of a connection is seldom more.
const BUFFER: usize = 32 << 10;

impl WorkerContext {
    pub(super) fn new(turn: &LoopIteration) -> Rc<WorkerContext> {
        let memory = WorkerMemory::new(turn.shared.memory.clone());
        let common = memory.shared();
        Rc::new(WorkerContext {
            now: Cell::new(turn.now),
            worker: turn.worker,
            epoll: turn.epoll.clone(),
            number: turn.number_of_worker(),
            compressors: Compressors::new(&common),
            common,
            memory,
            shared: turn.shared.clone(),
            listening: RefCell::new(ListeningSockets::new(Kind::HttpListener)),
            streams: RefCell::default(),
            cursors: RefCell::new(Cursors::new(turn.worker)),
            request_ids: RefCell::new(RequestIds::new()),
            log_buffer: RefCell::default(),
            kept: RefCell::default(),
            h2_upstreams: RefCell::default(),
            pipes: Rc::default(),
            scratch_pool: RefCell::default(),
            pooled: Cell::new(0),
            read_buffer: RefCell::new(vec![0; READ_BUFFER]),
            buffers: RefCell::default(),
            current: RefCell::new(None),
            sweeps: RefCell::default(),
            stopping: Cell::new(false),
            turns: Cell::new(0),
            contended: Cell::new(false),
            others_are_behind: Cell::new(false),
            unfinished: RefCell::default(),
            runnable: RefCell::default(),
            backlog: RefCell::default(),
            handshakes: Handshakes::default(),
        })
    }

    pub(super) fn now(&self) -> u64 {
        self.now.get()
    }

    /// What began then has come about by that member.
    pub(super) fn record_latency(
        &self,
        pool: &RunningPool,
        member: Option<&RunningMember>,
        span: LatencyKind,
        started: Stopwatch,
    ) {
        pool.record_latency(self.number, member, span, started);
    }

    /// What is left over of earlier turns goes on.
    pub(super) fn continue_backlog(&self, turn: &mut LoopIteration) {
        turn.note_backlog(&self.backlog.borrow());
        if self.handshakes.are_behind() {
            turn.note_deferred();
        }
        self.begin_turn(turn);
    }

    pub(super) fn begin_turn(&self, turn: &LoopIteration) {
        self.now.set(turn.now);
        self.contended.set(turn.is_contended());
        self.others_are_behind.set(turn.transport_is_behind);
    }

    /// Others have much to do, too: whoever comes next waits for what the running task does.
    pub(super) fn is_contended(&self) -> bool {
        self.contended.get()
    }

    pub(super) fn mailbox(&self) -> Option<Arc<Mailbox>> {
        self.shared.workers.get(self.worker).cloned()
    }

    /// Somebody else than these has work that was too much for a turn.
    pub(super) fn has_others_than(&self, fairness_key: FairnessKey) -> bool {
        self.others_are_behind.get() || self.backlog.borrow().has_others_than(fairness_key)
    }

    /// The running task, if a long piece of its work is better done elsewhere: others have much to do, too, and would not be served
    /// before it all the same.
    pub(super) fn task_to_offload(&self) -> Option<Rc<TaskState>> {
        let current = self.current.borrow().clone()?;
        let delegates = self.is_contended() && !self.has_others_than(current.fairness_key());
        (delegates && self.handshakes.has_thread(self)).then_some(current)
    }

    pub(super) fn listening(&self) -> RefMut<'_, ListeningSockets> {
        self.listening.borrow_mut()
    }

    pub(super) fn cursors(&self) -> RefMut<'_, Cursors> {
        self.cursors.borrow_mut()
    }

    pub(super) fn sweeps(&self) -> RefMut<'_, DrainSweeps> {
        self.sweeps.borrow_mut()
    }

    /// The task counts for this member from now on, as one that was counted already; it may be leaving as all others are.
    pub(super) fn is_on(&self, task_state: &TaskState, member: &Arc<RunningMember>) {
        task_state.engaged.set(self.now());
        task_state.is_on(member);
        task_state.drained_at().into_iter().for_each(|at| self.sweeps().at(at));
    }

    pub(super) fn request_ids(&self) -> RefMut<'_, RequestIds> {
        self.request_ids.borrow_mut()
    }

    pub(super) fn idle_connections(&self) -> RefMut<'_, IdleConnections> {
        self.kept.borrow_mut()
    }

    pub(super) fn h2_upstreams(&self) -> RefMut<'_, H2UpstreamPool> {
        self.h2_upstreams.borrow_mut()
    }

    /// How often what the running task is about has come through here.
    pub(super) fn passes(&self) -> u8 {
        self.current.borrow().as_ref().map_or(0, |task_state| task_state.passes())
    }

    pub(super) fn enter(&self, task_state: &Rc<TaskState>) {
        task_state.is_woken.set(false);
        *self.current.borrow_mut() = Some(task_state.clone());
    }

    /// What nobody runs is nobody's to hold.
    pub(super) fn leave(&self) {
        self.current.borrow_mut().take();
    }

    /// The running task's time for what it is doing is over.
    pub(super) fn is_late(&self) -> bool {
        self.current
            .borrow()
            .as_ref()
            .is_some_and(|task_state| task_state.deadline() <= self.now() || task_state.is_evicted())
    }

    /// The running task has to end: its client holds too much.
    pub(super) fn is_evicted(&self) -> bool {
        self.current.borrow().as_ref().is_some_and(|task_state| task_state.is_evicted())
    }

    /// The running task has more to do.
    pub(super) fn continue_next_turn(&self) {
        if let Some(task_state) = &*self.current.borrow() {
            self.unfinished.borrow_mut().push_back(task_state.index());
        }
    }

    /// Lets a task go on after those that are runnable already. One that has not begun does so anyway.
    pub(super) fn wake(&self, task_state: &TaskState) {
        if task_state.index() != NOWHERE && !task_state.is_woken.replace(true) {
            self.runnable.borrow_mut().push_back(Runnable::Woken(task_state.index()));
        }
    }

    pub(super) fn next_runnable(&self) -> Option<Runnable> {
        self.runnable.borrow_mut().pop_front()
    }

    /// It goes on in a later turn.
    pub(super) fn postpone(&self, fairness_key: FairnessKey, client: usize, runnable: Runnable) {
        self.backlog.borrow_mut().push(fairness_key, client, runnable);
    }

    pub(super) fn next_of_backlog(&self) -> Option<(FairnessKey, Runnable)> {
        self.backlog.borrow_mut().pop()
    }

    pub(super) fn charge(&self, fairness_key: FairnessKey, time: Duration) {
        self.backlog.borrow_mut().charge(fairness_key, time);
    }

    pub(super) fn has_backlog(&self) -> bool {
        !self.backlog.borrow().is_empty()
    }

    /// Their clients are gone. Tasks hold the context, and so would never end.
    pub(super) fn drop_runnable(&self) {
        let runnable = (self.runnable.take(), self.backlog.take());
        drop(runnable);
    }

    pub(super) fn read_buffer(&self) -> RefMut<'_, Vec<u8>> {
        self.read_buffer.borrow_mut()
    }

    /// Lets the others have their turn.
    pub(super) async fn next_turn(&self) {
        let mut waited = false;
        poll_fn(|_| {
            if std::mem::replace(&mut waited, true) {
                return Poll::Ready(());
            }
            self.continue_next_turn();
            Poll::Pending
        })
        .await;
    }

    /// Another task goes on beside this one.
    pub(super) fn begin(&self, task_state: Rc<TaskState>, future: impl Future<Output = ()> + 'static) {
        self.runnable.borrow_mut().push_back(Runnable::Begun((task_state, Box::pin(future))));
    }

    pub(super) fn unfinished(&self) -> usize {
        self.unfinished.borrow().len()
    }

    pub(super) fn next_unfinished(&self) -> Option<u32> {
        self.unfinished.borrow_mut().pop_front()
    }

    /// No further request is to be awaited anywhere.
    pub(super) fn stop(&self) {
        self.stopping.set(true);
        self.idle_connections().clear();
        self.h2_upstreams().clear();
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.get()
    }

    /// Watches a socket from now on, for that task.
    pub(super) fn watch(self: &Rc<Self>, fd: OwnedFd, task: u32) -> io::Result<Stream> {
        let ready = Rc::new(SocketReadiness::of(task));
        let mut streams = self.streams.borrow_mut();
        let (index, generation) = streams.next();
        let token = Token::new(Kind::HttpStream, index, generation);
        self.epoll.watch_edges(std::os::fd::AsFd::as_fd(&fd), token.into())?;
        streams.insert(ready.clone());
        drop(streams);
        Ok(Stream::new(self.clone(), fd, ready, index))
    }

    pub(super) fn forget(&self, stream: u32) {
        self.streams.borrow_mut().remove(stream);
    }

    /// Tells the task that is to go on.
    pub(super) fn note(&self, token: Token, event: Event) -> Option<u32> {
        let ready = self.streams.borrow_mut().of_generation(token.index(), token.generation())?.clone();
        ready.note(event, self.turns.get());
        if ready.task().is_none() {
            // A kept connection to a member: whatever it says, nobody asked for it.
            let gone = self.idle_connections().remove_if_touched(token.index());
            drop(gone);
        }
        ready.task()
    }

    pub(super) fn scratch(&self) -> Box<Scratch> {
        let Some(scratch) = self.scratch_pool.borrow_mut().pop() else { return Box::default() };
        self.pooled.set(self.pooled.get().saturating_sub(scratch.weight()));
        scratch
    }

    pub(super) fn put_back(&self, mut scratch: Box<Scratch>) {
        scratch.reset();
        let pooled = self.pooled.get().saturating_add(scratch.weight());
        if scratch.weight() <= KEEP && pooled <= MAX_POOLED {
            self.pooled.set(pooled);
            self.scratch_pool.borrow_mut().push(scratch);
        }
    }

    pub(super) fn log(&self, sink: &Arc<AccessLogSink>, line: &dyn LogEntry) {
        self.log_buffer.borrow_mut().add(sink, line, self.now());
    }

    /// Where a connection that ends now is written down, if it is.
    pub(super) fn sink_of_connections(&self) -> Option<Arc<AccessLogSink>> {
        self.shared.access.sink_of_connections(|| self.cursors().draw())
    }

    pub(super) fn turned_away(&self, client: &RefusedClient) {
        if let Some(sink) = self.sink_of_connections() {
            self.log(&sink, &client.line());
        }
    }

    pub(super) fn take_buffer(&self) -> Vec<u8> {
        self.buffers.borrow_mut().pop().unwrap_or_else(|| Vec::with_capacity(BUFFER))
    }

    pub(super) fn return_buffer(&self, mut buffer: Vec<u8>) {
        let mut buffers = self.buffers.borrow_mut();
        if buffers.len() < MAX_BUFFERS && (1..=2 * BUFFER).contains(&buffer.capacity()) {
            buffer.clear();
            buffers.push(buffer);
        }
    }

    pub(super) fn forget_gone(&self) {
        self.cursors().forget_gone();
        let gone = self.idle_connections().take_of_draining_members();
        drop(gone);
        self.h2_upstreams().forget_draining_members();
    }

    /// Which turn of the worker this is.
    pub(super) fn turn(&self) -> u64 {
        self.turns.get()
    }

    pub(super) fn tick(&self, turn: &mut LoopIteration) {
        self.turns.set(self.turns.get().wrapping_add(1));
        let old = self.idle_connections().without_the_old(turn.now);
        drop(old);
        self.log_buffer.borrow_mut().tick(turn.now);
        self.shared.memory.trim(turn.now);
        self.compressors.tick(turn.now);
        self.listening().tick(turn);
    }

    pub(super) fn next_timeout(&self, now: u64) -> Option<u64> {
        let waits = !self.runnable.borrow().is_empty() || !self.backlog.borrow().is_empty();
        if waits || !self.unfinished.borrow().is_empty() {
            return Some(0);
        }
        let log_buffer = self.log_buffer.borrow().next_timeout(now);
        [
            log_buffer,
            self.memory.next_timeout(now),
            self.kept.borrow().next_timeout(now),
            self.listening.borrow().next_timeout(now),
            self.handshakes.next_timeout(now),
            self.compressors.next_timeout(now),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}
