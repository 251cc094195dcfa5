//! Where connections have their places, and how they come.

use std::{io, iter, os::fd::OwnedFd};

use crate::sys;

pub struct Slab<C> {
    all: Vec<Option<C>>,
    free: Vec<usize>,
}

impl<C> Slab<C> {
    pub fn new() -> Self {
        Self { all: Vec::new(), free: Vec::new() }
    }

    /// A place that nobody has, until somebody is put there.
    pub fn free(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            self.all.len() - 1
        })
    }

    pub fn put(&mut self, slot: usize, connection: C) {
        self.all[slot] = Some(connection);
    }

    /// An event may be older than the end of its connection.
    pub fn at(&mut self, slot: usize) -> Option<&mut C> {
        self.all.get_mut(slot)?.as_mut()
    }

    pub fn end(&mut self, slot: usize) {
        self.all[slot] = None;
        self.free.push(slot);
    }

    pub fn clear(&mut self) {
        self.all.clear();
        self.free.clear();
    }
}

/// Who waits at a listener: a bounded number at a time, or a flood of new connections would starve the rest of the loop.
pub fn newcomers(listener: &OwnedFd) -> impl Iterator<Item = io::Result<OwnedFd>> {
    let next = move || match sys::accept(listener) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        other => Some(other),
    };
    let aborted = |it: &io::Result<OwnedFd>| matches!(it, Err(error) if error.kind() == io::ErrorKind::ConnectionAborted);
    iter::from_fn(next).take(64).filter(move |it| !aborted(it))
}
