//! Flows of UDP that ask again and again, each its own.

use std::io;
use std::net::{SocketAddrV4, UdpSocket};

use anyhow::{Context, Result};

use super::{HonestClient, PATIENCE, RequestOutcome};
use crate::pace::now;
use crate::sys::{Epoll, Event, READABLE};

const FLOWS: usize = 16;

pub struct Datagrams {
    flows: Vec<UdpSocket>,
    asked: Vec<RequestOutcome>,
    waiting: usize,
}

impl Datagrams {
    pub fn open(epoll: &Epoll, base: u64, to: SocketAddrV4) -> Result<Self> {
        let mut flows = Vec::new();
        for index in 0..FLOWS {
            let flow = UdpSocket::bind(("127.0.0.1", 0)).context("a socket of UDP")?;
            flow.connect(to)?;
            flow.set_nonblocking(true)?;
            epoll.add(&flow, base + index as u64, READABLE)?;
            flows.push(flow);
        }
        Ok(Self { flows, asked: Vec::new(), waiting: 0 })
    }
}

impl HonestClient for Datagrams {
    fn ask(&mut self, _epoll: &Epoll, _base: u64, due: u64) {
        let request = self.asked.len();
        self.asked.push(RequestOutcome { due, answered: None, why: "no answer in time" });
        self.waiting += 1;
        // A datagram that could not be sent is missed like any other.
        let _sent = self.flows[request % FLOWS].send(&(request as u64).to_be_bytes());
    }

    fn event(&mut self, _epoll: &Epoll, event: Event) {
        let Some(flow) = self.flows.get((event.token & 0xffff_ffff) as usize) else { return };
        let mut bytes = [0; 8];
        loop {
            match flow.recv(&mut bytes) {
                Ok(8) => {
                    let request = u64::from_be_bytes(bytes) as usize;
                    if let Some(asked) = self.asked.get_mut(request).filter(|it| it.answered.is_none()) {
                        asked.answered = Some(now());
                        self.waiting -= 1;
                    }
                }
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // An error of an earlier datagram, which is taken with that.
                Err(_) => return,
            }
        }
    }

    fn expire(&mut self, now: u64) {
        let late = self.asked.iter().filter(|it| it.answered.is_none() && it.due + PATIENCE < now).count();
        let open = self.asked.iter().filter(|it| it.answered.is_none()).count();
        self.waiting = open - late;
    }

    fn is_waiting(&self) -> bool {
        self.waiting > 0
    }

    fn asked(&mut self) -> &mut Vec<RequestOutcome> {
        &mut self.asked
    }
}
