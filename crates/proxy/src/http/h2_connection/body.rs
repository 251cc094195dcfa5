//! What tasks of streams take of bodies, and say.

use std::{
    io,
    rc::Rc,
    task::{Poll, ready},
};

use seaway_wire::http2::{Connection, StreamKey};

use super::{
    super::{stream_inbox::StreamInbox, task_state::TaskState},
    CROWD, H2Connection, PIECE, join,
};

impl H2Connection {
    /// Takes a piece of what came on a stream. `Ok(0)`: the body is over.
    pub(in super::super) fn poll_take(
        &self,
        key: StreamKey,
        mut take: impl FnMut(&[u8]),
    ) -> Poll<io::Result<usize>> {
        let mut connection = self.state_mut();
        let Some(inbox) = connection.with_mut(key) else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        if inbox.is_read() {
            return match (inbox.ended, inbox.reset) {
                (true, _) => Poll::Ready(Ok(0)),
                (false, Some(_)) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                (false, None) if self.is_over() => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                (false, None) => Poll::Pending,
            };
        }
        let count = inbox.take(&mut take);
        if let Some(held) = &inbox.held {
            held.of().progressed(self.context.now());
        }
        drop(connection);
        let mut connection = self.connection();
        connection.release(key, count);
        if !connection.out.is_empty() {
            self.wake();
        }
        Poll::Ready(Ok(count))
    }

    /// Waits until what is to be written is little enough for more.
    pub(in super::super) fn poll_room(
        &self,
        connection: &Connection<StreamInbox>,
        task_state: &Rc<TaskState>,
    ) -> Poll<()> {
        if connection.out.len() <= CROWD {
            return Poll::Ready(());
        }
        join(&self.crowded, task_state);
        self.wake();
        Poll::Pending
    }

    /// Waits until something of a body can be said. A stream that is over takes what it is given, and says so.
    pub(in super::super) fn poll_takes(&self, task_state: &Rc<TaskState>, key: StreamKey) -> Poll<()> {
        let connection = self.state();
        if self.is_over() || connection.is_closed(key) {
            return Poll::Ready(());
        }
        if connection.sendable(key) == 0 {
            self.wait_for_window(&connection, task_state);
            return Poll::Pending;
        }
        self.poll_room(&connection, task_state)
    }

    /// Says a piece of a body. `ends`: it is the last.
    pub(in super::super) fn poll_say(
        &self,
        task_state: &Rc<TaskState>,
        key: StreamKey,
        bytes: &[u8],
        ends: bool,
    ) -> Poll<io::Result<usize>> {
        let mut connection = self.connection();
        if self.is_over() || connection.is_closed(key) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        ready!(self.poll_room(&connection, task_state));
        let most = PIECE.min(connection.sendable(key));
        let piece = bytes.get(..most).unwrap_or(bytes);
        if piece.is_empty() && !bytes.is_empty() {
            self.wait_for_window(&connection, task_state);
            return Poll::Pending;
        }
        let count = connection.send_data(key, piece, ends && piece.len() == bytes.len());
        self.wake();
        Poll::Ready(Ok(count))
    }

    /// Something of a body waits for the member to make room.
    fn wait_for_window(&self, connection: &Connection<StreamInbox>, task_state: &Rc<TaskState>) {
        if connection.window() <= 0 {
            self.shut.set(self.shut.get().min(self.context.now()));
        }
        self.wait(task_state);
    }

    /// The caller needs the stream no more.
    pub(in super::super) fn let_go(&self, key: StreamKey) {
        let mut connection = self.connection();
        let unread = connection.with(key).map_or(0, StreamInbox::unread);
        connection.let_go(key, unread);
        self.wake_all(&self.waiting);
        self.wake();
    }
}
