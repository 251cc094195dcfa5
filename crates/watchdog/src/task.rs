//! A task of a runtime as a part.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use crate::Heartbeat;

/// A future whose polls beat.
pub struct WatchedFuture<F> {
    heartbeat: Heartbeat,
    future: Pin<Box<F>>,
}

impl Heartbeat {
    /// The part is this future: it hangs when one of its polls does, and has ended when it is ready or dropped.
    pub fn watch<F: Future>(self, future: F) -> WatchedFuture<F> {
        WatchedFuture { heartbeat: self, future: Box::pin(future) }
    }
}

impl<F: Future> Future for WatchedFuture<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.heartbeat.enter_thread();
        let polled = self.future.as_mut().poll(context);
        self.heartbeat.leave_thread();
        polled
    }
}
