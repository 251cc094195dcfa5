//! Connections.

use crate::{
    sys::Event,
    worker::{Command, Source, Token, Turn},
};

pub(crate) struct Tcp {}

impl Tcp {
    pub(crate) fn new(_worker: usize) -> Tcp {
        Tcp {}
    }
}

impl Source for Tcp {
    fn event(&mut self, _token: Token, _event: Event, _turn: &mut Turn) {}
    fn command(&mut self, _command: &Command, _turn: &mut Turn) {}
    fn tick(&mut self, _turn: &mut Turn) {}
    fn patience(&self, _now: u64) -> Option<u64> {
        None
    }
}
