//! The PROXY protocol header that trusted peers must send first.

use std::os::fd::AsFd;

use seaway_wire::proxy::{self, Parsed};

use super::{Tcp, connection::PendingData};
use crate::{
    hops::{self, MOST_HOPS},
    running::RefusalReason,
    sys,
    worker::LoopIteration,
};

impl Tcp {
    pub(super) fn read_header(&mut self, index: u32, turn: &mut LoopIteration) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        // What came before is at most one unfinished header, whose length the parser limits.
        let known = match std::mem::replace(&mut connection.client.pending, PendingData::Nothing) {
            PendingData::Bytes { bytes, .. } => bytes,
            PendingData::Nothing | PendingData::Pipe(_) => Box::default(),
        };
        let Some((kept, room)) = turn.buffer.split_at_mut_checked(known.len()) else {
            return self.refuse(index, RefusalReason::Header, turn);
        };
        kept.copy_from_slice(&known);
        let read = match sys::receive(connection.client.fd.as_fd(), room) {
            Ok(0) => return self.refuse(index, RefusalReason::Header, turn),
            Ok(read) => read,
            Err(error) if sys::would_block(&error) => {
                connection.client.pending = keep(&known);
                return;
            }
            Err(_) => return self.refuse(index, RefusalReason::Header, turn),
        };
        // Nothing of it is to be lost: what cannot be found again ends the connection.
        let Some(bytes) = turn.buffer.get(..known.len().saturating_add(read)) else {
            return self.refuse(index, RefusalReason::Header, turn);
        };
        // A short read has emptied the socket; its end, if it came with the bytes, is read when somebody wants it.
        connection.client.readable = bytes.len() == turn.buffer.len() || connection.client.peer_finished;
        let (length, source, destination, hops) = match proxy::parse(bytes) {
            Parsed::Header(header) => {
                (header.length, header.source(), header.destination(), hops::received(&header))
            }
            Parsed::Need(_) => {
                connection.client.pending = keep(bytes);
                if connection.client.peer_finished {
                    self.refuse(index, RefusalReason::Header, turn);
                }
                return;
            }
            Parsed::Invalid(reason) => {
                tracing::debug!(listener = %connection.listener.at, peer = %connection.peer, %reason, "no PROXY header");
                return self.refuse(index, RefusalReason::Header, turn);
            }
        };
        let Some(behind) = bytes.get(length..) else {
            return self.refuse(index, RefusalReason::Header, turn);
        };
        connection.client.pending = keep(behind);
        if hops >= MOST_HOPS {
            turn.shared.report_loop(connection.listener.at);
            return self.refuse(index, RefusalReason::Loop, turn);
        }
        connection.extras().hops = hops.saturating_add(1);
        if let Some(source) = source {
            connection.peer = source;
            connection.extras().destination = destination;
        }
        if !connection.listener.config().admits(connection.peer.ip()) {
            return self.refuse(index, RefusalReason::Source, turn);
        }
        self.select_and_connect(index, turn);
    }
}

fn keep(bytes: &[u8]) -> PendingData {
    if bytes.is_empty() { PendingData::Nothing } else { PendingData::Bytes { bytes: bytes.into(), from: 0 } }
}
