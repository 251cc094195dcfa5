//! Listening sockets, and the clients that are accepted there.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

use std::{
    io,
    net::SocketAddr,
    os::fd::{AsFd, OwnedFd},
    sync::{Arc, atomic::Ordering::Relaxed},
};

use crate::{
    access::RefusedClient,
    own_sockets::MOST_PASSES,
    proxy_state::ProxyState,
    running::{RefusalReason, RunningListener},
    sys::{self, KernelAddress},
    worker::{FairnessKey, Kind, LoopIteration, Slab, Token},
};

pub(crate) struct ListeningSockets {
    /// Of the source whose listening sockets these are.
    kind: Kind,
    listening: Slab<ListeningSocket>,
    /// Not watched at the moment, for want of descriptors.
    shut: Vec<(u32, u32)>,
    reopen_at: u64,
    /// Held so that a newcomer who got the last descriptor can still get one for its member: a socket of the family of
    /// this address. To close one and to open another would leave it to other workers for a moment.
    spare: Option<OwnedFd>,
    spare_for: Option<KernelAddress>,
}

struct ListeningSocket {
    listener: Arc<RunningListener>,
    socket: Arc<OwnedFd>,
    /// How many are let in per event. One, unless more keep waiting: asking in vain is the dearest answer.
    burst: u32,
    last_turn: u64,
    /// Its clients are let in among what others have to do.
    waits: bool,
}

const MOST_AT_ONCE: u32 = 64;
/// Where others have much to do, too.
const MOST_BESIDE_OTHERS: u32 = 4;
/// Milliseconds between attempts to let somebody in while nobody leaves.
const REOPEN_AFTER: u64 = 100;

/// What an attempt to accept at a listening socket came to.
pub(crate) enum AcceptOutcome {
    /// No client waits, or none can be accepted now.
    None,
    Refused(Option<RefusedClient>),
    Accepted(AcceptedConnection),
}

/// Counted as a connection of the listener: who has it tells when it leaves.
pub(crate) struct AcceptedConnection {
    pub(crate) fd: OwnedFd,
    pub(crate) peer: SocketAddr,
    pub(crate) listener: Arc<RunningListener>,
    /// A PROXY protocol header has to come first.
    pub(crate) trusted: bool,
    /// How often what it sends has come through here.
    pub(crate) passes: u8,
}

impl ListeningSockets {
    pub(crate) fn new(kind: Kind) -> ListeningSockets {
        ListeningSockets {
            kind,
            listening: Slab::default(),
            shut: Vec::new(),
            reopen_at: 0,
            spare: None,
            spare_for: None,
        }
    }

    pub(crate) fn open(
        &mut self,
        listener: Arc<RunningListener>,
        socket: Arc<OwnedFd>,
        turn: &mut LoopIteration,
    ) {
        let (index, generation) = self.listening.next();
        let token = Token::new(self.kind, index, generation);
        self.spare_for.get_or_insert_with(|| listener.at.into());
        if let Err(error) = turn.epoll.watch_readable(socket.as_fd(), token.into()) {
            tracing::error!(listener = %listener.at, worker = turn.worker, %error, "a listener cannot be added to epoll");
            return;
        }
        self.listening.insert(ListeningSocket { listener, socket, burst: 1, last_turn: 0, waits: false });
    }

    /// Those of these listeners.
    pub(crate) fn of(&mut self, which: impl Fn(&Arc<RunningListener>) -> bool) -> Vec<u32> {
        let mut indexes = self.listening.indexes();
        indexes.retain(|index| {
            self.listening.get_mut(*index).is_some_and(|listening_socket| which(&listening_socket.listener))
        });
        indexes
    }

    pub(crate) fn close(&mut self, index: u32, turn: &mut LoopIteration) {
        if let Some(listening_socket) = self.listening.remove(index) {
            // Others may hold the socket, so that closing ours would not end the watch.
            let _ = turn.epoll.forget(listening_socket.socket.as_fd());
        }
    }

    /// All of them: who waits there from now on is a successor's, which has the same queues.
    pub(crate) fn leave(&mut self, turn: &mut LoopIteration) {
        for index in self.listening.indexes() {
            self.close(index, turn);
        }
    }

    /// Whose listening socket it is, if it is still there.
    pub(crate) fn fairness_key(&mut self, token: Token) -> Option<FairnessKey> {
        self.listening
            .of_generation(token.index(), token.generation())
            .map(|listening_socket| listening_socket.listener.fairness_key)
    }

    /// Its clients speak TLS with us.
    pub(crate) fn is_secure(&mut self, token: Token) -> bool {
        let listening_socket = self.listening.of_generation(token.index(), token.generation());
        listening_socket.is_some_and(|it| it.listener.config().listener.tls.is_some())
    }

    /// It waits for its turn; `false`: as it did before.
    pub(crate) fn wait(&mut self, index: u32) -> bool {
        self.listening
            .get_mut(index)
            .is_some_and(|listening_socket| !std::mem::replace(&mut listening_socket.waits, true))
    }

    /// Its clients wait in the kernel until [`ListeningSockets::let_go`]: an event in every turn would keep the worker busy.
    pub(crate) fn hold(&mut self, token: Token, turn: &LoopIteration) {
        if let Some(listening_socket) = self.listening.of_generation(token.index(), token.generation()) {
            listening_socket.waits = false;
            if let Err(error) = turn.epoll.pause(listening_socket.socket.as_fd(), token.into()) {
                tracing::warn!(listener = %listening_socket.listener.at, %error, "a listening socket cannot be paused");
            }
        }
    }

    pub(crate) fn let_go(&mut self, token: Token, turn: &LoopIteration) {
        if let Some(listening_socket) = self.listening.of_generation(token.index(), token.generation())
            && let Err(error) = turn.epoll.resume(listening_socket.socket.as_fd(), token.into())
        {
            tracing::warn!(listener = %listening_socket.listener.at, %error, "a listening socket cannot be resumed");
        }
    }

    /// How many may come in now.
    pub(crate) fn burst(&mut self, token: Token, turn: &LoopIteration) -> u32 {
        let Some(listening_socket) = self.listening.of_generation(token.index(), token.generation()) else {
            return 0;
        };
        let waited_on = listening_socket.last_turn.wrapping_add(1) == turn.number;
        listening_socket.waits = false;
        let most = if turn.is_contended() { MOST_BESIDE_OTHERS } else { MOST_AT_ONCE };
        listening_socket.burst =
            if waited_on { listening_socket.burst.saturating_mul(2).min(most) } else { 1 };
        listening_socket.last_turn = turn.number;
        listening_socket.burst
    }

    pub(crate) fn admit(&mut self, listening_socket: u32, turn: &mut LoopIteration) -> AcceptOutcome {
        if turn.shared.descriptors.are_scarce() {
            turn.shared.report_scarcity();
            self.shut(listening_socket, turn);
            return AcceptOutcome::None;
        }
        if !self.has_spare(&turn.shared) {
            self.shut(listening_socket, turn);
            return AcceptOutcome::None;
        }
        let Some(ListeningSocket { listener, socket, .. }) = self.listening.get_mut(listening_socket) else {
            return AcceptOutcome::None;
        };
        let (fd, peer) = match sys::accept(socket.as_fd()) {
            Ok(newcomer) => newcomer,
            Err(error) if sys::would_block(&error) => return AcceptOutcome::None,
            Err(error) if sys::out_of_descriptors(&error) => {
                turn.shared.out_of_descriptors(&error);
                self.shut(listening_socket, turn);
                return AcceptOutcome::None;
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return AcceptOutcome::None,
            // Of this newcomer's network, says accept(2); the next one may be well.
            Err(_) => return AcceptOutcome::Refused(None),
        };
        if !turn.shared.descriptors.register(fd.as_fd()) {
            turn.shared.report_scarcity();
        }
        let listener = listener.clone();
        let config = listener.config();
        let trusted = config.trusts(peer.ip());
        let passes = turn.shared.own_sockets.passes(fd.as_fd(), peer, listener.at);
        // Requests share connections: first their marks tell, and they can be told why.
        let most_passes = if self.kind == Kind::HttpListener { 2 * MOST_PASSES } else { MOST_PASSES };
        let refusal = if !trusted && !config.admits(peer.ip()) {
            Some(RefusalReason::Source)
        } else if passes >= most_passes {
            turn.shared.report_loop(listener.at);
            Some(RefusalReason::Loop)
        } else if self.kind == Kind::Listener && turn.shared.memory.is_group_nearly_full() {
            turn.shared.memory.refused.fetch_add(1, Relaxed);
            Some(RefusalReason::Resources)
        } else {
            listener.enter(&config, turn.now).err()
        };
        if let Some(refusal) = refusal {
            listener.refuse(refusal);
            // If it fails the client sees an end instead of a reset.
            let _ = sys::reset_when_closed(fd.as_fd());
            drop(config);
            return AcceptOutcome::Refused(Some(RefusedClient { peer, listener, why: refusal }));
        }
        drop(config);
        turn.shared.connection_began();
        AcceptOutcome::Accepted(AcceptedConnection { fd, peer, listener, trusted, passes })
    }

    pub(crate) fn connection_closed(&mut self, now: u64) {
        if !self.shut.is_empty() {
            self.reopen_at = now;
        }
    }

    pub(crate) fn tick(&mut self, turn: &mut LoopIteration) {
        if self.shut.is_empty() || turn.now < self.reopen_at {
            return;
        }
        for (index, generation) in std::mem::take(&mut self.shut) {
            if let Some(listening_socket) = self.listening.of_generation(index, generation) {
                let token = Token::new(self.kind, index, generation);
                if let Err(error) = turn.epoll.resume(listening_socket.socket.as_fd(), token.into()) {
                    tracing::error!(listener = %listening_socket.listener.at, %error, "a listener cannot be added to epoll again");
                }
            }
        }
    }

    pub(crate) fn next_timeout(&self, now: u64) -> Option<u64> {
        (!self.shut.is_empty()).then(|| self.reopen_at.saturating_sub(now))
    }

    fn shut(&mut self, index: u32, turn: &LoopIteration) {
        let generation = self.listening.generation(index);
        let Some(listening_socket) = self.listening.get_mut(index) else { return };
        let token = Token::new(self.kind, index, generation);
        if turn.epoll.pause(listening_socket.socket.as_fd(), token.into()).is_ok() {
            self.shut.push((index, generation));
        }
        self.reopen_at = turn.now.saturating_add(REOPEN_AFTER);
    }

    /// Whether a newcomer could be given a second descriptor.
    fn has_spare(&mut self, shared: &ProxyState) -> bool {
        if let (None, Some(family_of)) = (&self.spare, &self.spare_for) {
            match sys::stream_socket(family_of) {
                Ok(spare) => self.spare = Some(spare),
                Err(error) => {
                    shared.out_of_descriptors(&error);
                    return false;
                }
            }
        }
        true
    }

    /// A socket for the member of a newcomer who was let in, where there is no other descriptor.
    pub(crate) fn give_up_spare(&mut self, member: &KernelAddress) -> Option<OwnedFd> {
        let spare = self.spare.take()?;
        let fits = self.spare_for.replace(*member).is_some_and(|it| it.family() == member.family());
        if fits {
            return Some(spare);
        }
        drop(spare);
        sys::stream_socket(member).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use seaway_model::LbKey;
    use seaway_testkit::balancing;

    use super::*;
    use crate::{
        running::LoadBalancerState,
        sys::{Epoll, Events},
        worker::Mailbox,
    };

    #[test]
    fn clients_of_a_listening_socket_that_is_held_wake_no_worker_until_it_is_let_go() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap();
        let planned = Arc::new(balancing::listener(at.port()));
        let config = LoadBalancerState::default().listener_config(&LbKey::Whole, planned.clone(), None);
        let listener = Arc::new(RunningListener::new(LbKey::Whole, at, planned.id(), config));
        let epoll = Arc::new(Epoll::new().unwrap());
        let shared = Arc::new(ProxyState::new(vec![Arc::new(Mailbox::new().unwrap())]));
        let mut turn = LoopIteration::new(0, epoll.clone(), Box::default(), shared);
        let mut listening = ListeningSockets::new(Kind::HttpListener);
        listening.open(listener, Arc::new(socket.into()), &mut turn);
        let _client = TcpStream::connect(at).unwrap();

        let mut events = Events::with_room_for(4);
        let mut tokens = || {
            epoll.wait(&mut events, Some(0)).unwrap();
            (0..events.len()).map(|it| Token::from(events.at(it).token)).collect::<Vec<_>>()
        };
        let [token] = tokens()[..] else { panic!("its client is not announced") };
        assert!(listening.wait(token.index()));
        listening.hold(token, &turn);
        assert_eq!(tokens(), []);
        listening.let_go(token, &turn);
        assert_eq!(tokens(), [token]);
        assert!(listening.wait(token.index()), "it has its place in the line again");
    }
}
