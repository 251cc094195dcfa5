//! A connection of HTTP/2, of a client or to a member: its socket, what comes on it for whom, and what goes out.
//!
//! One task drives it. The tasks of its streams find what came for them in their [`StreamInbox`], write into one buffer, and
//! wake the driver, which sends that in one call when all of them have had their turn.

mod body;
mod settings;

use std::{
    cell::{Cell, Ref, RefCell, RefMut},
    future::poll_fn,
    io,
    rc::Rc,
    task::{Poll, ready},
};

use seaway_wire::http2::{Connection, ErrorCode, FrameEvent, RequestInfo, StreamKey};

pub(super) use self::settings::{FIRST_WINDOW, MOST_STREAMS, for_client, for_member};
use super::{
    scratch::{Scratch, lost},
    serve::LINGER,
    stream::Stream,
    stream_inbox::{ResponseHead, StreamInbox},
    task_state::TaskState,
    worker_context::WorkerContext,
};
use crate::memory::{ConnectionMemory, Reservation};

pub(super) struct H2Connection {
    pub(super) context: Rc<WorkerContext>,
    stream: Stream,
    connection: RefCell<Connection<StreamInbox>>,
    /// The task that drives it.
    driver: Rc<TaskState>,
    /// The beginning of a frame; more, if `is_behind`.
    rest: RefCell<Vec<u8>>,
    is_behind: Cell<bool>,
    sent: Cell<usize>,
    /// Since when the peer takes nothing of what is to be written.
    blocked: Cell<u64>,
    /// Reads that are left, and in which turn.
    left: Cell<(u64, u32)>,
    /// All that was said is with the kernel.
    is_written: Cell<bool>,
    /// Nothing comes or goes any more.
    is_over: Cell<bool>,
    /// Who waits for a window, and who for what is to be written to become less.
    waiting: RefCell<Vec<Rc<TaskState>>>,
    crowded: RefCell<Vec<Rc<TaskState>>>,
    /// Since when the peer's window for all streams is shut for one that would say something.
    shut: Cell<u64>,
    /// It has to end, with all that is on it.
    is_cut: Cell<bool>,
    /// Above nothing: answers of this member were lately too long for the first window.
    long_answers: Cell<i8>,
    /// What waits to be written, and what of a frame has come.
    held: Reservation,
}

/// A stream that is over is held until its task has noticed.
const MOST_HELD: usize = 2 * MOST_STREAMS as usize;
/// Frames that need no answer from a member (PING, SETTINGS and the like) could otherwise keep a worker for as long as
/// somebody sends them.
const READS: u32 = 4;
/// Waits to be written at most, but for heads and answers to frames.
pub(super) const CROWD: usize = 64 << 10;
/// More than bodies alone can make of it: while both sides only send, neither waits for the other to listen.
const MOST_UNTAKEN: usize = 2 * CROWD;
/// Of a body, at a time.
pub(super) const PIECE: usize = 16 << 10;
/// Answers before the answer that nobody takes.
const MOST_INTERIM: usize = 16;
const NEVER: u64 = u64::MAX;
/// In milliseconds: a connection to a member that has not got on for so long gets nothing more to do.
const STUCK: u64 = 1_000;

impl H2Connection {
    /// Its deadline is about the whole connection, not about each read.
    pub(super) fn new(
        context: Rc<WorkerContext>,
        stream: Stream,
        driver: Rc<TaskState>,
        connection: Connection<StreamInbox>,
        memory: &Rc<ConnectionMemory>,
    ) -> Rc<H2Connection> {
        stream.be_patient();
        Rc::new(H2Connection {
            context,
            stream,
            connection: RefCell::new(connection),
            driver,
            rest: RefCell::default(),
            is_behind: Cell::new(false),
            sent: Cell::new(0),
            blocked: Cell::new(NEVER),
            left: Cell::new((0, 0)),
            is_written: Cell::new(false),
            is_over: Cell::new(false),
            waiting: RefCell::default(),
            crowded: RefCell::default(),
            shut: Cell::new(NEVER),
            is_cut: Cell::new(false),
            long_answers: Cell::new(0),
            held: memory.reserve(0),
        })
    }

    /// The state of HTTP/2 with a buffer to write to, which is sent in the turn of the driver.
    pub(super) fn connection(&self) -> RefMut<'_, Connection<StreamInbox>> {
        let mut connection = self.connection.borrow_mut();
        if connection.out.capacity() == 0 {
            connection.out = self.context.take_buffer();
        }
        connection
    }

    /// The state of HTTP/2, to take what came: that writes little or nothing, and needs no buffer for it.
    pub(super) fn state_mut(&self) -> RefMut<'_, Connection<StreamInbox>> {
        self.connection.borrow_mut()
    }

    /// The state of HTTP/2, to be read.
    pub(super) fn state(&self) -> Ref<'_, Connection<StreamInbox>> {
        self.connection.borrow()
    }

    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    pub(super) fn driver(&self) -> &Rc<TaskState> {
        &self.driver
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// Since the last turn nothing waits to be written.
    pub(super) fn is_written(&self) -> bool {
        self.is_written.get()
    }

    /// Notes whether an answer was too long for the first window.
    pub(super) fn note_answer(&self, is_long: bool) {
        let change = if is_long { 2 } else { -1 };
        self.long_answers.set((self.long_answers.get().saturating_add(change)).clamp(0, 16));
    }

    /// The next answer may be too long for the first window.
    pub(super) fn expects_long_answers(&self) -> bool {
        self.long_answers.get() > 0
    }

    /// A member takes another request now.
    pub(super) fn takes_another(&self) -> bool {
        let connection = self.state();
        // How many streams it takes is the first thing that it says.
        let takes = connection.has_heard() && connection.takes_more() && connection.out.len() <= CROWD;
        takes && !self.is_over() && !connection.is_used_up()
    }

    /// A member has all the streams that it takes. One that takes none for the moment may say otherwise.
    pub(super) fn has_all_streams(&self) -> bool {
        let connection = self.state();
        connection.has_heard() && connection.most_streams() > 0 && !connection.takes_more()
    }

    /// Which clients send bodies by it: this one, and any other.
    pub(super) fn sends(&self, client: &Rc<ConnectionMemory>) -> (bool, bool) {
        let connection = self.state();
        let of = |inbox: &StreamInbox| inbox.held.as_ref().is_some_and(|held| Rc::ptr_eq(held.of(), client));
        connection
            .sendable_streams()
            .fold((false, false), |(own, others), it| (own || of(it), others || !of(it)))
    }

    /// For longer than is usual the peer takes nothing of what is to be written, or of bodies.
    pub(super) fn is_stuck(&self, now: u64) -> bool {
        self.blocked.get().min(self.shut.get()).saturating_add(STUCK) <= now
    }

    pub(super) fn cut(&self) {
        self.is_cut.set(true);
        self.wake();
    }

    pub(super) fn is_cut(&self) -> bool {
        self.is_cut.get()
    }

    /// Something was said.
    pub(super) fn wake(&self) {
        self.context.wake(&self.driver);
    }

    /// The running task goes on when there may be room for what it wants, whatever that is.
    pub(super) fn wait(&self, task_state: &Rc<TaskState>) {
        join(&self.waiting, task_state);
    }

    /// When a peer that takes nothing has had so much time.
    pub(super) fn gives_up_at(&self, patience: u64) -> u64 {
        self.blocked.get().saturating_add(patience)
    }

    /// Reads what is fair, hands it out, and writes what waits. `Ok`: the peer has finished.
    pub(super) fn poll_turn(
        &self,
        mut asked: impl FnMut(&Connection<StreamInbox>, StreamKey, bool, RequestInfo) -> Option<StreamInbox>,
        mut refused: impl FnMut(),
    ) -> Poll<io::Result<()>> {
        let read = self.poll_reads(&mut |heard| self.hand_out(heard, &mut asked, &mut refused));
        // What was said goes out even if nothing more comes in.
        let written = self.poll_flush();
        self.is_written.set(written.is_ready());
        let held = self.connection.borrow().out.capacity().saturating_add(self.rest.borrow().capacity());
        self.held.set(held);
        match (read, written) {
            (Poll::Pending, Poll::Ready(Err(error))) => Poll::Ready(Err(error)),
            (read, _) => read,
        }
    }

    fn poll_reads(&self, hand_out: &mut dyn FnMut(FrameEvent<'_>)) -> Poll<io::Result<()>> {
        let turn = self.context.turn();
        if self.left.get().0 != turn {
            self.left.set((turn, READS));
        }
        loop {
            if self.connection.borrow().out.len().saturating_sub(self.sent.get()) > MOST_UNTAKEN {
                // Who takes no answers is not listened to.
                ready!(self.poll_flush())?;
            }
            // First those have their turn that are there: who lets a stream go wakes this task.
            if self.is_full() {
                return Poll::Pending;
            }
            let (_, left) = self.left.get();
            if left == 0 {
                if self.is_behind.get() || self.stream.is_readable() {
                    self.context.continue_next_turn();
                }
                return Poll::Pending;
            }
            let mut rest = self.rest.borrow_mut();
            if self.is_behind.take() {
                let used = self.listen(&rest, hand_out)?;
                rest.drain(..used);
                continue;
            }
            let mut page = self.context.read_buffer();
            let count = ready!(self.stream.poll_read(&mut page))?;
            self.left.set((turn, left.saturating_sub(1)));
            if count == 0 {
                return Poll::Ready(Ok(()));
            }
            let heard = page.get(..count).ok_or_else(lost)?;
            if rest.is_empty() {
                let used = self.listen(heard, hand_out)?;
                rest.extend_from_slice(heard.get(used..).ok_or_else(lost)?);
            } else {
                rest.extend_from_slice(heard);
                let used = self.listen(&rest, hand_out)?;
                match used == rest.len() {
                    true => *rest = Vec::new(),
                    false => drop(rest.drain(..used)),
                }
            }
        }
    }

    /// Of clients' streams: ours to a member would stay for ever if it were not listened to.
    fn is_full(&self) -> bool {
        let connection = self.connection.borrow();
        connection.is_server() && connection.held_streams() > MOST_HELD
    }

    /// Tells how many of the bytes are dealt with.
    fn listen(&self, bytes: &[u8], hand_out: &mut dyn FnMut(FrameEvent<'_>)) -> io::Result<usize> {
        let mut used = 0;
        loop {
            let mut connection = self.connection();
            if connection.is_server() && connection.held_streams() > MOST_HELD {
                self.is_behind.set(true);
                return Ok(used);
            }
            let heard = connection.read(bytes.get(used..).ok_or_else(lost)?);
            let (count, heard) =
                heard.map_err(|broken| io::Error::new(io::ErrorKind::InvalidData, broken.why))?;
            drop(connection);
            if heard == FrameEvent::More {
                return Ok(used);
            }
            used = used.saturating_add(count);
            if heard != FrameEvent::Nothing {
                hand_out(heard);
            }
        }
    }

    fn hand_out(
        &self,
        heard: FrameEvent<'_>,
        asked: &mut impl FnMut(&Connection<StreamInbox>, StreamKey, bool, RequestInfo) -> Option<StreamInbox>,
        refused: &mut impl FnMut(),
    ) {
        let connection = &mut *self.connection.borrow_mut();
        let key = match heard {
            FrameEvent::Request { key, ends, asked: facts } => {
                match asked(connection, key, ends, facts) {
                    Some(inbox) => {
                        let Some(place) = connection.with_mut(key) else { return };
                        *place = inbox;
                        place.ended = ends;
                    }
                    None => {
                        connection.reset(key, ErrorCode::REFUSED);
                        connection.let_go(key, 0);
                    }
                }
                return;
            }
            FrameEvent::Refused => return refused(),
            FrameEvent::WindowUpdate { key: None } => {
                self.shut.set(NEVER);
                return self.wake_all(&self.waiting);
            }
            FrameEvent::Leaves { last } => {
                for key in connection.drop_streams_after(last) {
                    self.deliver(connection, key, |inbox| inbox.reset = Some(ErrorCode::REFUSED));
                }
                return self.wake_all(&self.waiting);
            }
            FrameEvent::Response { key, status, ends } => {
                let lines = connection.lines().to_vec();
                let mut too_many = false;
                self.deliver(connection, key, |inbox| {
                    inbox.heads.push_back(ResponseHead { status, lines, ends });
                    inbox.ended = ends;
                    inbox.report_held();
                    too_many = inbox.heads.len() > MOST_INTERIM || inbox.holds_too_much();
                });
                if too_many {
                    connection.reset(key, ErrorCode::TOO_MUCH);
                    self.deliver(connection, key, StreamInbox::refuse);
                }
                key
            }
            FrameEvent::Data { key, bytes, ends } => {
                self.deliver(connection, key, |inbox| {
                    inbox.put(bytes);
                    inbox.ended = ends;
                });
                key
            }
            FrameEvent::Trailers { key } => {
                let lines = connection.lines().to_vec();
                self.deliver(connection, key, |inbox| {
                    (inbox.trailers, inbox.ended) = (lines, true);
                    inbox.report_held();
                });
                key
            }
            FrameEvent::Reset { key, reason } => {
                self.deliver(connection, key, |inbox| inbox.reset = Some(reason));
                key
            }
            FrameEvent::WindowUpdate { key: Some(key) } => {
                self.deliver(connection, key, |_| {});
                return;
            }
            FrameEvent::More | FrameEvent::Nothing => return,
        };
        if connection.is_closed(key) {
            // Another may be opened in its place.
            self.wake_all(&self.waiting);
        }
    }

    fn deliver(
        &self,
        streams: &mut Connection<StreamInbox>,
        key: StreamKey,
        put: impl FnOnce(&mut StreamInbox),
    ) {
        let Some(inbox) = streams.with_mut(key) else { return };
        put(inbox);
        if let Some(task_state) = &inbox.task_state {
            self.context.wake(task_state);
        }
    }

    fn wake_all(&self, downstream: &RefCell<Vec<Rc<TaskState>>>) {
        downstream.take().iter().for_each(|task_state| self.context.wake(task_state));
    }

    /// Writes what waits; nothing is held while nothing does.
    pub(super) fn poll_flush(&self) -> Poll<io::Result<()>> {
        loop {
            let connection = self.connection.borrow();
            let waiting = connection.out.get(self.sent.get()..).ok_or_else(lost)?;
            if waiting.is_empty() {
                break;
            }
            let written = ready!(self.note(self.stream.poll_write(waiting)))?;
            self.sent.set(self.sent.get().saturating_add(written));
        }
        self.sent.set(0);
        let buffer = std::mem::take(&mut self.connection.borrow_mut().out);
        self.context.return_buffer(buffer);
        self.wake_all(&self.crowded);
        self.note(self.stream.poll_flush())
    }

    fn note<T>(&self, poll: Poll<T>) -> Poll<T> {
        match &poll {
            Poll::Ready(_) => self.blocked.set(NEVER),
            Poll::Pending => self.blocked.set(self.blocked.get().min(self.context.now())),
        }
        poll
    }

    /// Nothing comes or goes any more: all who are on it are told.
    pub(super) fn end(&self) {
        self.is_over.set(true);
        for inbox in self.connection.borrow_mut().each() {
            if let Some(task_state) = &inbox.task_state {
                self.context.wake(task_state);
            }
        }
        self.wake_all(&self.waiting);
        self.wake_all(&self.crowded);
    }

    /// Says what is left to be said, and that it is the end. Who closes while something comes takes back what is on its
    /// way: for a while that is let go by, until the peer has ended, too.
    pub(super) async fn part(&self) {
        self.end();
        self.driver.set_deadline(self.context.now().saturating_add(LINGER));
        let in_time = |poll: Poll<io::Result<usize>>| match poll {
            Poll::Pending if self.context.is_late() => Poll::Ready(Ok(0)),
            poll => poll,
        };
        let written = poll_fn(|_| in_time(self.poll_flush().map_ok(|()| 1))).await;
        if !matches!(written, Ok(1)) {
            return;
        }
        self.stream.finish();
        // Who floods is not listened to for that.
        let mut left = MOST_UNTAKEN;
        poll_fn(|_| {
            loop {
                let read = self.stream.poll_receive(&mut self.context.read_buffer());
                left = match ready!(in_time(read)) {
                    Ok(count @ 1..) if count < left => left.saturating_sub(count),
                    _ => return Poll::Ready(()),
                };
            }
        })
        .await;
    }

    /// Takes what came before it was known to be HTTP/2.
    pub(super) fn take_begun(&self, begun: Box<Scratch>) {
        self.rest.borrow_mut().extend_from_slice(begun.asked.filled());
        self.is_behind.set(true);
        self.context.put_back(begun);
    }
}

fn join(line: &RefCell<Vec<Rc<TaskState>>>, task_state: &Rc<TaskState>) {
    let mut line = line.borrow_mut();
    if !line.iter().any(|it| Rc::ptr_eq(it, task_state)) {
        line.push(task_state.clone());
    }
}
