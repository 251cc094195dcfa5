//! One connection as a task sees it: it reads and writes, and waits where that is not possible yet.

use std::{
    cell::{Cell, RefCell},
    future::poll_fn,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    rc::Rc,
    task::Poll,
};

use super::{session::Session, worker_context::WorkerContext};
use crate::{
    descriptors::DescriptorGuard,
    memory::{ConnectionMemory, Reservation},
    own_sockets::OwnSocket,
    sys::{self, Event, Pipe},
};

pub(super) struct Stream {
    /// As it looks from the member; goes before the connection does.
    own_socket: Option<OwnSocket>,
    /// Of its load balancer's share, where its client does not count for it.
    taken: Option<DescriptorGuard>,
    /// What its session holds; of whoever uses it now.
    held: Option<Reservation>,
    context: Rc<WorkerContext>,
    fd: OwnedFd,
    ready: Rc<SocketReadiness>,
    index: u32,
    tls: Option<RefCell<Session>>,
    /// The deadline of its task is not about single reads and writes.
    checked_member: Cell<bool>,
}

/// What edges have told.
pub(super) struct SocketReadiness {
    task: Cell<Option<u32>>,
    readable: Cell<bool>,
    writable: Cell<bool>,
    /// The peer will send nothing more; what it sent may still be waiting.
    finished: Cell<bool>,
    failed: Cell<bool>,
    /// The turn in which it was asked again, after it had been kept.
    taken: Cell<u64>,
    /// What can be read is no answer: it was there before anybody asked.
    spoilt: Cell<bool>,
}

impl SocketReadiness {
    pub(super) fn of(task: u32) -> SocketReadiness {
        SocketReadiness {
            task: Cell::new(Some(task)),
            readable: Cell::new(false),
            writable: Cell::new(false),
            finished: Cell::new(false),
            failed: Cell::new(false),
            taken: Cell::new(u64::MAX),
            spoilt: Cell::new(false),
        }
    }

    /// All events of a turn are older than what is done in it: a member that has something to say in the turn in which
    /// it is asked again has not heard the question.
    pub(super) fn note(&self, event: Event, turn: u64) {
        if event.readable() && self.taken.get() == turn {
            self.spoilt.set(true);
        }
        self.readable.set(self.readable.get() || event.readable());
        self.writable.set(self.writable.get() || event.writable());
        self.finished.set(self.finished.get() || event.peer_finished());
        self.failed.set(self.failed.get() || event.failed() || event.hung_up());
    }

    pub(super) fn task(&self) -> Option<u32> {
        self.task.get()
    }

    pub(super) fn set_task(&self, task: Option<u32>) {
        self.task.set(task);
    }
}

impl Stream {
    pub(super) fn new(
        context: Rc<WorkerContext>,
        fd: OwnedFd,
        ready: Rc<SocketReadiness>,
        index: u32,
    ) -> Stream {
        Stream {
            own_socket: None,
            taken: None,
            held: None,
            context,
            fd,
            ready,
            index,
            tls: None,
            checked_member: Cell::new(false),
        }
    }

    /// It is one of our own to a member.
    pub(super) fn is_from(&mut self, own_socket: Option<OwnSocket>) {
        self.own_socket = own_socket;
    }

    pub(super) fn set_descriptor_guard(&mut self, taken: Option<DescriptorGuard>) {
        self.taken = taken;
    }

    /// Counts the memory of its TLS session for this client, or for all of the worker.
    pub(super) fn charge_memory(&mut self, memory: &Rc<ConnectionMemory>) {
        if self.tls.is_some() {
            self.held = Some(memory.reserve(Session::HELD));
        }
    }

    pub(super) fn index(&self) -> u32 {
        self.index
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Whose task goes on when something happens; nobody's while it is kept.
    pub(super) fn set_task(&self, task: Option<u32>) {
        self.ready.set_task(task);
    }

    /// For who cannot reach the stream itself any more.
    pub(super) fn ready(&self) -> Rc<SocketReadiness> {
        self.ready.clone()
    }

    /// Kept until now, and asked again.
    pub(super) fn resume_for(&self, task: u32) {
        self.ready.set_task(Some(task));
        self.ready.taken.set(self.context.turn());
    }

    pub(super) fn be_patient(&self) {
        self.checked_member.set(true);
    }

    /// Both directions are broken.
    pub(super) fn has_failed(&self) -> bool {
        self.ready.failed.get()
    }

    /// Something has come since it was last read empty: bytes, an end or an error.
    pub(super) fn is_readable(&self) -> bool {
        self.ready.readable.get()
            || self.tls.as_ref().is_some_and(|session| session.borrow().holds_plaintext())
    }

    /// Everything goes through this session, once both sides know each other.
    pub(super) async fn start_tls(&mut self, session: Session) -> io::Result<()> {
        let session = session.shake_hands(self).await?;
        self.tls = Some(RefCell::new(session));
        Ok(())
    }

    pub(super) fn session(&self) -> Option<std::cell::Ref<'_, Session>> {
        self.tls.as_ref().map(|session| session.borrow())
    }

    pub(super) fn context(&self) -> &WorkerContext {
        &self.context
    }

    /// Whose it is goes on although nothing happens.
    pub(super) fn continue_next_turn(&self) {
        self.context.continue_next_turn();
    }

    fn later<T>(&self) -> Poll<io::Result<T>> {
        if !self.checked_member.get() && self.context.is_late() {
            Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
        } else {
            Poll::Pending
        }
    }

    /// `Ok(0)`: the peer has finished.
    pub(super) fn poll_read(&self, into: &mut [u8]) -> Poll<io::Result<usize>> {
        match &self.tls {
            Some(session) => session.borrow_mut().poll_read(self, into),
            None => self.poll_receive(into),
        }
    }

    /// What was taken may wait here until [`Stream::poll_flush`] is through.
    pub(super) fn poll_write(&self, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match &self.tls {
            Some(session) => session.borrow_mut().poll_write(self, bytes),
            None => self.poll_send(bytes),
        }
    }

    pub(super) fn poll_flush(&self) -> Poll<io::Result<()>> {
        match &self.tls {
            Some(session) => session.borrow_mut().poll_flush(self),
            None => Poll::Ready(Ok(())),
        }
    }

    /// Bytes as they are on the wire.
    pub(super) fn poll_receive(&self, into: &mut [u8]) -> Poll<io::Result<usize>> {
        if !self.ready.readable.get() {
            return self.later();
        }
        if self.ready.spoilt.get() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        match sys::receive(self.fd(), into) {
            Ok(read) => {
                // A short read has emptied the socket: an edge will tell of more. If the end was announced it is next.
                if read < into.len() && read > 0 {
                    self.ready.readable.set(self.ready.finished.get());
                }
                Poll::Ready(Ok(read))
            }
            Err(error) if sys::would_block(&error) => {
                self.ready.readable.set(false);
                self.later()
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Whether the socket takes bytes; an edge tells when it does again.
    pub(super) fn poll_takes(&self) -> Poll<()> {
        if self.ready.writable.get() { Poll::Ready(()) } else { Poll::Pending }
    }

    pub(super) fn poll_send(&self, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_sent(bytes.len(), |fd| sys::send(fd, bytes))
    }

    pub(super) fn poll_send_all(&self, pieces: &[io::IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let length = pieces.iter().map(|piece| piece.len()).sum();
        self.poll_sent(length, |fd| sys::send_all(fd, pieces))
    }

    fn poll_sent(
        &self,
        length: usize,
        send: impl Fn(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        if !self.ready.writable.get() {
            return self.later();
        }
        match send(self.fd()) {
            Ok(written) => {
                self.ready.writable.set(written == length);
                Poll::Ready(Ok(written))
            }
            Err(error) if sys::would_block(&error) => {
                self.ready.writable.set(false);
                self.later()
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Bytes on the wire are those that are meant.
    pub(super) fn is_plain(&self) -> bool {
        self.tls.is_none()
    }

    /// Reads into an empty pipe. `Ok(0)`: the peer has finished.
    pub(super) fn poll_fill(&self, pipe: &mut Pipe, most: usize) -> Poll<io::Result<usize>> {
        if !self.ready.readable.get() {
            return self.later();
        }
        match pipe.fill_from(self.fd(), most) {
            Err(error) if sys::would_block(&error) => {
                self.ready.readable.set(false);
                self.later()
            }
            other => Poll::Ready(other),
        }
    }

    /// Writes what a pipe holds.
    pub(super) fn poll_write_pipe(&self, pipe: &mut Pipe) -> Poll<io::Result<usize>> {
        if !self.ready.writable.get() {
            return self.later();
        }
        match pipe.empty_into(self.fd()) {
            Err(error) if sys::would_block(&error) => {
                self.ready.writable.set(false);
                self.later()
            }
            other => Poll::Ready(other),
        }
    }

    /// Waits until something can be read; `false`: not in time.
    pub(super) async fn wakes(&self, enough: impl Fn() -> bool) -> bool {
        poll_fn(|_| match self.later::<()>() {
            _ if self.is_readable() => Poll::Ready(true),
            // What is there already has its event still to come, maybe in this very turn.
            _ if enough() => {
                self.ready.readable.set(!self.is_silent());
                Poll::Ready(self.is_readable())
            }
            Poll::Ready(_) => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        })
        .await
    }

    /// Waits until a connection stands.
    pub(super) async fn connected(&self) -> io::Result<()> {
        poll_fn(|_| {
            if self.has_failed() {
                return Poll::Ready(Err(
                    sys::pending_error(self.fd()).unwrap_or(io::ErrorKind::ConnectionReset.into())
                ));
            }
            if self.ready.writable.get() { Poll::Ready(Ok(())) } else { self.later() }
        })
        .await
    }

    pub(super) async fn write_all(&self, bytes: &[u8]) -> io::Result<()> {
        let mut written = 0;
        while written < bytes.len() {
            let more = poll_fn(|_| self.poll_write(bytes.get(written..).unwrap_or_default())).await?;
            written = written.saturating_add(more);
        }
        poll_fn(|_| self.poll_flush()).await
    }

    /// Whether an idle one is still as it was left: nothing has come on it, not even an end.
    pub(super) fn is_idle_and_open(&self) -> bool {
        if self.ready.failed.get() || self.ready.finished.get() {
            return false;
        }
        // An edge may tell of what was read together with the bytes before it, or only that there is room to write.
        if self.ready.readable.get() && self.is_silent() {
            self.ready.readable.set(false);
        }
        !self.is_readable()
    }

    /// As the kernel has it now.
    pub(super) fn is_silent(&self) -> bool {
        sys::is_silent(self.fd())
    }

    pub(super) fn reset(&self) {
        // If it fails the peer sees an end instead; there is nobody to tell.
        let _ = sys::reset_when_closed(self.fd());
    }

    /// An end in TLS is told, or what came before could be cut (RFC 8446, section 6.1). Without TLS closing says it.
    pub(super) fn part(&self) {
        if let Some(session) = &self.tls {
            session.borrow_mut().finish(self);
        }
    }

    /// Tells the peer that nothing more will come.
    pub(super) fn finish(&self) {
        self.part();
        // Fails only if the connection is broken already, of which an event tells.
        let _ = sys::finish_sending(self.fd());
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.context.forget(self.index);
    }
}
