//! How commands reach a worker.
//!
//! A worker that is behind does not make its mailbox grow for ever: sweeps become one, and a listener that was opened and closed
//! while the worker did not look was never there. What is left is a command for each listener that is open or was, as a
//! worker that hangs ends the process.

use std::{
    io,
    os::fd::BorrowedFd,
    sync::{Arc, Mutex, PoisonError},
};

use super::WorkerCommand;
use crate::sys::Waker;

/// Fewer commands than this are nothing unusual, and obeyed one by one: who has connected to a listener that closes is served.
const BEHIND: usize = 1024;

pub(crate) struct Mailbox {
    commands: Mutex<Vec<WorkerCommand>>,
    waker: Waker,
}

impl Mailbox {
    pub(crate) fn new() -> io::Result<Mailbox> {
        Ok(Mailbox { commands: Mutex::default(), waker: Waker::new()? })
    }

    /// The worker gets all of them at once.
    pub(crate) fn post(&self, commands: impl IntoIterator<Item = WorkerCommand>) {
        let mut waiting = self.commands.lock().unwrap_or_else(PoisonError::into_inner);
        commands.into_iter().for_each(|it| add(&mut waiting, it));
        drop(waiting);
        self.waker.wake();
    }

    pub(crate) fn collect(&self) -> Vec<WorkerCommand> {
        self.waker.clear();
        std::mem::take(&mut *self.commands.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn wake(&self) {
        self.waker.wake();
    }

    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.waker.fd()
    }
}

fn add(commands: &mut Vec<WorkerCommand>, command: WorkerCommand) {
    match command {
        // The earliest counts, and it comes after all that it is for: see `Sweeps`.
        WorkerCommand::SweepAt(at) => {
            let before = commands.iter().rposition(|it| matches!(it, WorkerCommand::SweepAt(_)));
            let earliest = match before.map(|before| commands.remove(before)) {
                Some(WorkerCommand::SweepAt(before)) => before.min(at),
                _ => at,
            };
            commands.push(WorkerCommand::SweepAt(earliest));
        }
        WorkerCommand::Close(closed) if commands.len() >= BEHIND => {
            // All sockets of a listener come at once: either all of them wait here or none does.
            let all = commands.len();
            commands
                .retain(|it| !matches!(it, WorkerCommand::Open(opened, _) if Arc::ptr_eq(opened, &closed)));
            if commands.len() == all {
                commands.push(WorkerCommand::Close(closed));
            }
        }
        other => commands.push(other),
    }
}

#[cfg(test)]
mod tests {
    use std::{net::UdpSocket, os::fd::OwnedFd};

    use seaway_model::LbKey;
    use seaway_testkit::balancing;

    use super::*;
    use crate::running::{LoadBalancerState, RunningListener};

    fn listener() -> (Arc<RunningListener>, Arc<OwnedFd>) {
        let key = LbKey::Whole;
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let at = socket.local_addr().expect("is bound");
        let listener = Arc::new(balancing::listener(at.port()));
        let config = LoadBalancerState::default().listener_config(&key, listener.clone(), None);
        (Arc::new(RunningListener::new(key, at, listener.id(), config)), Arc::new(socket.into()))
    }

    #[test]
    fn sweeps_that_wait_are_one_and_come_after_what_they_are_for() {
        let mut commands = Vec::new();
        let (listener, socket) = listener();
        add(&mut commands, WorkerCommand::Open(listener.clone(), socket));
        for at in (500..10_500).rev() {
            add(&mut commands, WorkerCommand::SweepAt(at));
        }
        add(&mut commands, WorkerCommand::Close(listener));
        add(&mut commands, WorkerCommand::SweepAt(9_000));
        assert!(
            matches!(
                &commands[..],
                [WorkerCommand::Open(..), WorkerCommand::Close(_), WorkerCommand::SweepAt(500)]
            ),
            "{}",
            commands.len()
        );
    }

    #[test]
    fn listeners_that_come_and_go_while_a_worker_hangs_leave_nothing_behind() {
        let mut commands = Vec::new();
        let kept = listener();
        add(&mut commands, WorkerCommand::Open(kept.0.clone(), kept.1));
        let (flapping, socket) = listener();
        for _ in 0..20 * BEHIND {
            add(&mut commands, WorkerCommand::Open(flapping.clone(), socket.clone()));
            add(&mut commands, WorkerCommand::Close(flapping.clone()));
            add(&mut commands, WorkerCommand::SweepAt(7));
        }
        assert!(commands.len() <= BEHIND + 2, "{}", commands.len());
        add(&mut commands, WorkerCommand::Close(kept.0.clone()));
        let opened = commands
            .iter()
            .position(|it| matches!(it, WorkerCommand::Open(opened, _) if Arc::ptr_eq(opened, &kept.0)));
        let closed = commands
            .iter()
            .position(|it| matches!(it, WorkerCommand::Close(closed) if Arc::ptr_eq(closed, &kept.0)));
        assert!(opened.is_none() || closed > opened, "its wish to close is not lost");
        let other = listener();
        add(&mut commands, WorkerCommand::Close(other.0));
        assert!(matches!(commands.last(), Some(WorkerCommand::Close(_))), "one that is open is closed");
    }
}
