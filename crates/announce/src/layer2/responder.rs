//! Answers others' ARP and NDP requests for our addresses, and notices who else claims one.

use std::net::IpAddr;

use super::{
    clock::now,
    packet::{Advertisement, Arp, Operation, Solicitation},
    sockets::LinkSocket,
    state::Layer2StateMachine,
};

/// What a frame asks, and our answer. Nothing is allocated.
pub(super) struct NeighborResponder<'a> {
    pub(super) machine: &'a mut Layer2StateMachine,
    pub(super) socket: &'a LinkSocket,
    pub(super) link: u32,
}

impl NeighborResponder<'_> {
    pub(super) fn arp(self, frame: &[u8], gateway: Option<(u32, IpAddr)>) {
        let Some(arp) = Arp::read(frame) else { return };
        let time = now();
        if arp.operation == Operation::Reply && gateway == Some((self.link, arp.sender.into())) {
            self.machine.gateway_answered();
        }
        if arp.sender.is_unspecified() {
            self.machine.rival(time, arp.target.into(), self.link, arp.sender_mac);
        } else {
            self.machine.dispute(time, arp.sender.into(), self.link, arp.sender_mac);
        }
        let is_asked = arp.operation == Operation::Request && arp.sender != arp.target;
        let answers = |machine: &Layer2StateMachine| machine.answers(time, arp.target.into(), self.link);
        if let Some(mac) = is_asked.then(|| answers(self.machine)).flatten() {
            // A queue that is full loses it; who asked asks again.
            let _ = self.socket.send(&arp.reply(mac));
        }
    }

    pub(super) fn ndp(self, frame: &[u8], gateway: Option<(u32, IpAddr)>) {
        let time = now();
        if let Some(asked) = Solicitation::read(frame) {
            if asked.source.is_unspecified() {
                self.machine.rival(time, asked.target.into(), self.link, asked.mac);
            }
            if let Some(mac) = self.machine.answers(time, asked.target.into(), self.link) {
                let _ = self.socket.send(&asked.reply(mac));
            }
        } else if let Some(said) = Advertisement::read(frame) {
            if gateway == Some((self.link, said.target.into())) {
                self.machine.gateway_answered();
            }
            self.machine.dispute(time, said.target.into(), self.link, said.mac);
        }
    }
}
