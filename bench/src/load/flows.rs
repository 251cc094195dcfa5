//! Datagrams over many flows: each flow is a socket of its own with at most one question under way.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;

use anyhow::{Context, Result};

use super::{Clients, Tally};
use crate::message::{ANSWER_HEAD, PATTERN, REQUEST_HEAD, Request, intact};
use crate::sys::{self, Epoll, Event, READABLE};

pub struct Flows {
    size: usize,
    flows: Vec<Flow>,
    /// In the order in which they became idle: every flow is used in turn.
    idle: VecDeque<usize>,
    sequence: u64,
    buffer: Vec<u8>,
}

struct Flow {
    fd: OwnedFd,
    asked: Option<(u64, u64)>,
}

impl Flows {
    pub fn open(epoll: &Epoll, contender: SocketAddrV4, count: usize, size: usize) -> Result<Self> {
        let flows = (0..count)
            .map(|index| {
                let fd = sys::udp_connect(contender)?;
                epoll.add(&fd, index as u64, READABLE)?;
                Ok(Flow { fd, asked: None })
            })
            .collect::<io::Result<_>>()
            .context("cannot open UDP flows")?;
        Ok(Self { size, flows, idle: (0..count).collect(), sequence: 0, buffer: vec![0; 1 << 16] })
    }

    fn request(&self, sequence: u64) -> Request {
        Request { sequence, len: self.size, answer_len: self.size, close: false }
    }
}

impl Clients for Flows {
    fn ask(&mut self, _epoll: &Epoll, due: u64, tally: &mut Tally) -> Result<bool> {
        let Some(index) = self.idle.pop_front() else { return Ok(false) };
        self.sequence += 1;
        let request = self.request(self.sequence);
        let buffer = &mut self.buffer[..request.len];
        buffer[..REQUEST_HEAD].copy_from_slice(&request.head());
        buffer[REQUEST_HEAD..].copy_from_slice(&PATTERN[REQUEST_HEAD..request.len]);
        tally.asked += 1;
        let flow = &mut self.flows[index];
        flow.asked = Some((self.sequence, due));
        match sys::send(&flow.fd, buffer) {
            Ok(len) => tally.bytes_out += len as u64,
            Err(error) => tally.error(|| format!("flow {index}: {error}")),
        }
        Ok(true)
    }

    fn event(&mut self, _epoll: &Epoll, event: Event, tally: &mut Tally) -> Result<()> {
        let index = event.token as usize;
        let len = match sys::recv(&self.flows[index].fd, &mut self.buffer) {
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => {
                tally.error(|| format!("flow {index}: {error}"));
                return Ok(());
            }
        };
        tally.bytes_in += len as u64;
        let Some((sequence, due)) = self.flows[index].asked.take() else {
            tally.error(|| format!("flow {index}: an answer twice, or too late"));
            return Ok(());
        };
        let request = self.request(sequence);
        let answer = &self.buffer[..len];
        if len == request.answer_len
            && answer.starts_with(&request.answer_head())
            && intact(&answer[ANSWER_HEAD..], ANSWER_HEAD)
        {
            tally.answer(due);
            self.idle.push_back(index);
        } else {
            tally.error(|| format!("flow {index}: the answer is not what the backend sent"));
        }
        Ok(())
    }
}
