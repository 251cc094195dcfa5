//! Large bodies that go on just as they come: from socket to pipe to socket, past our memory.

use std::{
    cell::RefCell,
    io,
    rc::Rc,
    task::{Poll, ready},
};

use super::{body_relay::BodyError, stream::Stream};
use crate::{pipes::Pipes, sys::Pipe};

/// A pipe as long as a body needs it.
pub(super) struct BodyPipe {
    pipe: Option<Box<Pipe>>,
    pipes: Rc<RefCell<Pipes>>,
}

/// Less of a body is left than this: two more calls cost more than copying.
pub(super) const WORTH: u64 = 64 << 10;

impl BodyPipe {
    /// `None`: there are too many already.
    pub(super) fn begin(pipes: &Rc<RefCell<Pipes>>) -> Option<BodyPipe> {
        let pipe = pipes.borrow_mut().borrow()?;
        Some(BodyPipe { pipe: Some(pipe), pipes: pipes.clone() })
    }

    /// Moves some of the next `left` bytes and tells how many of them went on.
    pub(super) fn poll(&mut self, from: &Stream, to: &Stream, left: u64) -> Poll<Result<usize, BodyError>> {
        let Some(pipe) = &mut self.pipe else { return Poll::Ready(Ok(0)) };
        if pipe.buffered() == 0 {
            let most = usize::try_from(left).unwrap_or(usize::MAX);
            if ready!(from.poll_fill(pipe, most)).map_err(BodyError::Source)? == 0 {
                return Poll::Ready(Err(BodyError::Source(io::ErrorKind::UnexpectedEof.into())));
            }
        }
        Poll::Ready(match ready!(to.poll_write_pipe(pipe)) {
            Ok(0) | Err(_) => Err(BodyError::Sink),
            Ok(count) => Ok(count),
        })
    }
}

impl Drop for BodyPipe {
    fn drop(&mut self) {
        if let Some(pipe) = self.pipe.take() {
            self.pipes.borrow_mut().give_back(pipe);
        }
    }
}
