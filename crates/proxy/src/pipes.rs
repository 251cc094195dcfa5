//! Pipes of one worker, used again and again.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

use crate::sys::Pipe;

/// Few calls for a large window, and not too much for a client that reads slowly to fill.
const SIZE: usize = 512 * 1024;
/// Smaller ones, which is what a user gets who has many, are not worth their calls.
const LEAST: usize = 64 * 1024;
/// Beyond that bytes are copied: pipes take two descriptors each, and what is held in them is memory.
const MOST: usize = 128;
/// Kept for the next ones.
const IDLE: usize = 16;

#[derive(Default)]
pub(crate) struct Pipes {
    // Boxed as connections hold them, where a pipe would be the largest thing by far and mostly absent.
    #[allow(clippy::vec_box)]
    idle: Vec<Box<Pipe>>,
    lent: usize,
}

impl Pipes {
    /// An empty pipe, if one is to be had.
    pub(crate) fn borrow(&mut self) -> Option<Box<Pipe>> {
        let pipe = match self.idle.pop() {
            Some(pipe) => pipe,
            None if self.lent >= MOST => return None,
            None => Box::new(Pipe::new(SIZE).ok().filter(|pipe| pipe.size() >= LEAST)?),
        };
        self.lent = self.lent.saturating_add(1);
        Some(pipe)
    }

    /// One with bytes in it is of no more use.
    pub(crate) fn give_back(&mut self, pipe: Box<Pipe>) {
        self.lent = self.lent.saturating_sub(1);
        if pipe.buffered() == 0 && self.idle.len() < IDLE {
            self.idle.push(pipe);
        }
    }
}
