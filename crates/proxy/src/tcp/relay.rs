//! Bytes from one end to the other.

use std::{io, os::fd::AsFd, sync::atomic::Ordering::Relaxed};

use super::{
    Tcp,
    connection::{Connection, NoDelayState, PendingData, Phase, Side, Socket, TransferMode},
};
use crate::{access::ConnectionEnd, latency::LatencyKind, pipes::Pipes, sys, worker::LoopIteration};

/// Reads of one connection in one turn, so that the others get theirs.
const READS: usize = 16;
/// The same where others have much to do, too: whoever comes next waits for this piece.
const READS_BESIDE_OTHERS: usize = 2;
/// What one read takes then.
const READ_BESIDE_OTHERS: usize = 64 * 1024;

/// A write of so few bytes goes out whole at once, if nothing is unacknowledged: one segment even over poor links.
const ONE_SEGMENT: usize = 1200;

/// A pipe that brings less than this at a time is not worth its calls.
const WORTH_A_PIPE: usize = 16 * 1024;

impl Tcp {
    /// Moves what can be moved, beginning with what `side` sent.
    pub(super) fn relay(&mut self, index: u32, side: Side, turn: &mut LoopIteration) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        let Connection { client, member: Some(member), phase: Phase::Open, .. } = connection else { return };
        let pipes = &mut self.pipes;
        let piece = if turn.is_contended() { RelayQuantum::BESIDE_OTHERS } else { RelayQuantum::ALONE };
        let mut shovel = |side: Side| match side {
            Side::Client => shovel(client, member, &mut turn.buffer, pipes, piece),
            Side::Member => shovel(member, client, &mut turn.buffer, pipes, piece),
        };
        let order = match side {
            Side::Client => [Side::Client, Side::Member],
            Side::Member => [Side::Member, Side::Client],
        };
        let results = order.map(|side| (side, shovel(side)));
        let was_half_closed = client.fin_sent || member.fin_sent;
        let mut more = false;
        let mut broken = None;
        for (from, RelayResult { bytes, result }) in results {
            if bytes > 0 {
                if from == Side::Member && !connection.answered {
                    connection.answered = true;
                    if let Some(pool) = &connection.pool {
                        pool.record_latency(
                            turn.number_of_worker(),
                            None,
                            LatencyKind::FirstByte,
                            connection.came,
                        );
                    }
                    connection.target.iter().for_each(|member| member.served());
                }
                connection.count(from, bytes, turn.now);
            }
            match result {
                Ok(unfinished) => more |= unfinished,
                Err(RelayFault::Source) => broken = broken.or(Some(from)),
                Err(RelayFault::Sink) => broken = broken.or(Some(from.other())),
            }
        }
        if let Some(side) = broken {
            let generation = self.connections.generation(index);
            return self.broken(index, generation, side, turn);
        }
        let Connection { client, member: Some(member), .. } = connection else { return };
        if client.is_done() && member.is_done() {
            // Whose end was passed on came first; if both came at once, whoever the event was of.
            let is_client = member.fin_sent || (!client.fin_sent && side == Side::Client);
            let ending = if is_client { ConnectionEnd::Client } else { ConnectionEnd::Member };
            // Some have nothing to say and are well all the same.
            connection.target.iter().for_each(|member| member.served());
            return self.end(index, ending, turn);
        }
        pass_end_on(client, member);
        pass_end_on(member, client);
        let half_closed = client.fin_sent || member.fin_sent;
        if more && !connection.unfinished {
            connection.unfinished = true;
            let token = self.token_of(index, side);
            self.unfinished.push(token);
        }
        if half_closed && !was_half_closed {
            self.schedule(index);
        }
    }

    /// One side failed: the other is told by a reset.
    pub(super) fn broken(&mut self, index: u32, generation: u32, side: Side, turn: &mut LoopIteration) {
        let Some(connection) = self.connections.of_generation(index, generation) else { return };
        if side == Side::Member
            && let (Some(member), Some(pool)) = (&connection.target, &connection.pool)
        {
            member.resets.fetch_add(1, Relaxed);
            if !connection.answered {
                pool.failed(member, "reset before an answer", turn.now);
            }
        }
        self.end(
            index,
            if side == Side::Client { ConnectionEnd::ClientReset } else { ConnectionEnd::MemberReset },
            turn,
        );
    }
}

impl Side {
    fn other(self) -> Side {
        match self {
            Side::Client => Side::Member,
            Side::Member => Side::Client,
        }
    }
}

/// What one connection may move before others have their turn.
#[derive(Clone, Copy)]
struct RelayQuantum {
    reads: usize,
    /// Bytes of one read.
    most: usize,
}

impl RelayQuantum {
    const ALONE: RelayQuantum = RelayQuantum { reads: READS, most: usize::MAX };
    const BESIDE_OTHERS: RelayQuantum = RelayQuantum { reads: READS_BESIDE_OTHERS, most: READ_BESIDE_OTHERS };
}

struct RelayResult {
    bytes: u64,
    /// `Ok(true)`: there may be more, but it has been enough for now.
    result: Result<bool, RelayFault>,
}

enum RelayFault {
    Source,
    Sink,
}

fn pass_end_on(from: &mut Socket, to: &mut Socket) {
    if from.is_done() && !to.fin_sent {
        to.fin_sent = true;
        // Fails only if the connection is broken already, of which an event tells.
        let _ = sys::finish_sending(to.fd.as_fd());
    }
}

/// One way. What is pending goes first; nothing is read that could not be passed on.
fn shovel(
    from: &mut Socket,
    to: &mut Socket,
    buffer: &mut [u8],
    pipes: &mut Pipes,
    piece: RelayQuantum,
) -> RelayResult {
    let mut bytes = 0;
    let result = (|| {
        for _ in 0..piece.reads {
            if !deliver(from, to, pipes)? {
                return Ok(false);
            }
            if from.at_end || !from.readable || !to.writable {
                break;
            }
            let moved = if from.flow != TransferMode::Small {
                suck(from, pipes, piece.most)?
            } else {
                copy(from, to, buffer)?
            };
            bytes = u64::saturating_add(bytes, moved as u64);
        }
        let delivered = deliver(from, to, pipes)?;
        if !from.readable
            && let Some(pipe) = from.take_pipe_if_empty()
        {
            pipes.give_back(pipe);
        }
        Ok(delivered && from.readable && to.writable && !from.at_end)
    })();
    RelayResult { bytes, result }
}

/// Writes what is pending. `false`: not all of it could be.
fn deliver(from: &mut Socket, to: &mut Socket, pipes: &mut Pipes) -> Result<bool, RelayFault> {
    match &mut from.pending {
        PendingData::Nothing => return Ok(true),
        PendingData::Bytes { bytes, from: start } => {
            if !to.writable {
                return Ok(false);
            }
            let written = write(to, bytes.get(*start..).ok_or(RelayFault::Source)?)?;
            *start = start.saturating_add(written);
            if *start < bytes.len() {
                return Ok(false);
            }
        }
        PendingData::Pipe(pipe) => {
            while pipe.buffered() > 0 {
                if !to.writable {
                    return Ok(false);
                }
                stop_delaying(to);
                match pipe.empty_into(to.fd.as_fd()) {
                    Ok(0) => return Err(RelayFault::Sink),
                    Ok(_) => {}
                    Err(error) if sys::would_block(&error) => to.writable = false,
                    Err(_) => return Err(RelayFault::Sink),
                }
            }
            if from.flow != TransferMode::Small {
                return Ok(true);
            }
        }
    }
    if let Some(pipe) = from.take_pipe() {
        pipes.give_back(pipe);
    }
    from.pending = PendingData::Nothing;
    Ok(true)
}

/// Reads into the worker's buffer and writes from there; what cannot be written is kept.
fn copy(from: &mut Socket, to: &mut Socket, buffer: &mut [u8]) -> Result<usize, RelayFault> {
    let read = match sys::receive(from.fd.as_fd(), buffer) {
        Ok(read) => read,
        Err(error) if sys::would_block(&error) => {
            from.readable = false;
            return Ok(0);
        }
        Err(_) => return Err(RelayFault::Source),
    };
    if read == 0 || (read < buffer.len() && !from.urgent) {
        // The socket is empty: an edge will tell of more. If the peer's end was announced, it is what comes next.
        from.readable = false;
        from.at_end = read == 0 || from.peer_finished;
    } else if read == buffer.len() {
        from.flow = TransferMode::LARGE;
    }
    let bytes = buffer.get(..read).ok_or(RelayFault::Source)?;
    let written = if read > 0 { write(to, bytes)? } else { 0 };
    if written < read {
        from.pending =
            PendingData::Bytes { bytes: bytes.get(written..).ok_or(RelayFault::Source)?.into(), from: 0 };
    }
    Ok(read)
}

/// Reads into a pipe, from which [`deliver`] writes.
fn suck(from: &mut Socket, pipes: &mut Pipes, most: usize) -> Result<usize, RelayFault> {
    if matches!(from.pending, PendingData::Nothing) {
        match pipes.borrow() {
            Some(pipe) => from.pending = PendingData::Pipe(pipe),
            None => {
                from.flow = TransferMode::Small;
                return Ok(0);
            }
        }
    }
    let PendingData::Pipe(pipe) = &mut from.pending else { return Ok(0) };
    match pipe.fill_from(from.fd.as_fd(), most) {
        Ok(0) => {
            from.readable = false;
            from.at_end = true;
            Ok(0)
        }
        Ok(read) => {
            from.flow = if read < WORTH_A_PIPE { from.flow.after_small() } else { TransferMode::LARGE };
            Ok(read)
        }
        Err(error) if sys::would_block(&error) => {
            from.readable = false;
            Ok(0)
        }
        Err(_) => Err(RelayFault::Source),
    }
}

fn write(to: &mut Socket, bytes: &[u8]) -> Result<usize, RelayFault> {
    if to.delay == NoDelayState::Possible || bytes.len() > ONE_SEGMENT {
        stop_delaying(to);
    }
    if to.delay == NoDelayState::NothingSentYet {
        to.delay = NoDelayState::Possible;
    }
    match sys::send(to.fd.as_fd(), bytes) {
        Ok(written) => {
            to.writable = written == bytes.len();
            Ok(written)
        }
        Err(error) if sys::would_block(&error) => {
            to.writable = false;
            Ok(0)
        }
        Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
        Err(_) => Err(RelayFault::Sink),
    }
}

fn stop_delaying(to: &mut Socket) {
    if to.delay != NoDelayState::Never {
        to.delay = NoDelayState::Never;
        // Without it small writes may be late, not lost.
        let _ = sys::set_no_delay(to.fd.as_fd());
    }
}
