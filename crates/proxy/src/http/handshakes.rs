//! TLS handshakes under contention: computed on a thread of the lowest priority (`SCHED_IDLE`), which the kernel preempts
//! whenever the worker has an event. A handshake takes as much time as ten requests or more.
//!
//! ```text
//!   a task ──► process ─┬─ no contention, or other load balancers have work waiting ──► here, at once
//!                       └─ else ──► waiting, in fair order ──► at_work, one at a time ──► collect ──► the task goes on
//! ```
//! That thread gets no time while the worker is busy. So the worker computes a handshake itself where another load balancer keeps
//! it busy, in fair order, and where the thread does not finish in time. Handshakes with members are always computed by the worker:
//! their sessions are in a table that workers share, under a lock that the thread could hold while it gets no time.

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::HashMap,
    future::poll_fn,
    io,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    task::Poll,
    time::Duration,
};

use rustls::{Connection, IoState};

use super::{task_state::TaskState, worker_context::WorkerContext};
use crate::{
    sys,
    worker::{FairQueue, FairnessKey, Mailbox, Token},
};

type HandshakeResult = Result<IoState, rustls::Error>;

/// Pieces of one load balancer that wait before its next clients stay in the queue of the listening socket.
const MOST_WAITING: usize = 4;
/// Milliseconds after which the thread is taken to get no processor time.
const LATE: u64 = 50;

#[derive(Default)]
pub(super) struct Handshakes {
    waiting: RefCell<FairQueue<Rc<HandshakeStep>>>,
    /// How many of each load balancer wait.
    queued: RefCell<HashMap<FairnessKey, usize>>,
    /// What the thread computes, and since when.
    at_work: RefCell<Option<(Rc<HandshakeStep>, u64)>>,
    /// Started when it is first needed. `None`: it could not be.
    helper: OnceCell<Option<HandshakeThread>>,
    /// Listening sockets that are not accepted from: their clients would only wait here, and hold memory meanwhile.
    held_back: RefCell<Vec<(FairnessKey, Token)>>,
}

/// One step of a handshake: what was read from the peer is to be processed.
struct HandshakeStep {
    of: Rc<TaskState>,
    connection: RefCell<Option<Box<Connection>>>,
    outcome: RefCell<Option<HandshakeResult>>,
    /// Its task has ended.
    is_forgotten: Cell<bool>,
}

struct HandshakeThread {
    work: mpsc::Sender<Box<Connection>>,
    done: mpsc::Receiver<StepResult>,
    /// It has its priority, and has run since.
    is_ready: Arc<AtomicBool>,
}

/// A piece that was computed.
pub(super) struct CompletedStep {
    pub(super) of: Rc<TaskState>,
    pub(super) took: Duration,
    /// Its task has not ended.
    pub(super) is_awaited: bool,
}

struct StepResult {
    connection: Box<Connection>,
    outcome: HandshakeResult,
    took: Duration,
}

impl HandshakeThread {
    fn start(worker: usize, mailbox: Arc<Mailbox>) -> io::Result<HandshakeThread> {
        let (work, waiting) = mpsc::channel::<Box<Connection>>();
        let (finished, done) = mpsc::channel();
        let is_ready = Arc::new(AtomicBool::new(false));
        let ready = is_ready.clone();
        std::thread::Builder::new().name(format!("handshakes-{worker}")).spawn(move || {
            // Of equal priority, it would delay the worker for whole time slices.
            if let Err(error) = sys::run_when_idle() {
                return report(&error);
            }
            ready.store(true, Relaxed);
            for connection in waiting {
                if finished.send(compute(connection)).is_err() {
                    return;
                }
                mailbox.wake();
            }
        })?;
        Ok(HandshakeThread { work, done, is_ready })
    }
}

fn report(error: &io::Error) {
    tracing::warn!(
        %error,
        "no idle-priority thread for TLS handshakes: a flood of handshakes at one Service delays requests of \
         others more"
    );
}

impl Handshakes {
    /// Some are not computed yet.
    pub(super) fn are_behind(&self) -> bool {
        self.at_work.borrow().is_some() || !self.waiting.borrow().is_empty()
    }

    /// What the thread has finished.
    pub(super) fn collect(&self) -> Option<CompletedStep> {
        if self.at_work.borrow().is_none() {
            return None;
        }
        let done = match self.helper.get()?.as_ref()?.done.try_recv() {
            Ok(done) => done,
            Err(mpsc::TryRecvError::Empty) => return None,
            // As where a worker fails: its clients would wait until they time out.
            Err(mpsc::TryRecvError::Disconnected) => {
                tracing::error!("the thread for TLS handshakes has failed; the process ends");
                std::process::abort();
            }
        };
        let (piece, _) = self.at_work.take()?;
        Some(self.finish(&piece, done))
    }

    /// Hands the next piece to the thread, or computes it here.
    pub(super) fn advance(&self, context: &WorkerContext) -> Option<CompletedStep> {
        if self.is_in_time(context.now()) {
            let next = self.waiting.borrow().first()?;
            if !context.has_others_than(next) {
                return None;
            }
        }
        let (fairness_key, piece) = self.pop()?;
        let mut connection = piece.connection.take()?;
        if self.at_work.borrow().is_none()
            && !context.has_others_than(fairness_key)
            && let Some(Some(helper)) = self.helper.get()
        {
            match helper.work.send(connection) {
                Ok(()) => {
                    self.at_work.replace(Some((piece, context.now())));
                    return None;
                }
                Err(mpsc::SendError(back)) => connection = back,
            }
        }
        Some(self.finish(&piece, compute(connection)))
    }

    fn finish(&self, piece: &HandshakeStep, done: StepResult) -> CompletedStep {
        self.waiting.borrow_mut().charge(piece.of.fairness_key(), done.took);
        let is_awaited = !piece.is_forgotten.get();
        if is_awaited {
            piece.connection.replace(Some(done.connection));
            piece.outcome.replace(Some(done.outcome));
        }
        CompletedStep { of: piece.of.clone(), took: done.took, is_awaited }
    }

    /// The thread is at work, and not for too long.
    fn is_in_time(&self, now: u64) -> bool {
        self.at_work.borrow().as_ref().is_some_and(|(_, since)| now.saturating_sub(*since) < LATE)
    }

    fn push(&self, fairness_key: FairnessKey, client: usize, piece: Rc<HandshakeStep>) {
        let mut queued = self.queued.borrow_mut();
        let queued = queued.entry(fairness_key).or_default();
        *queued = queued.saturating_add(1);
        self.waiting.borrow_mut().push(fairness_key, client, piece);
    }

    /// The next whose task has not ended.
    fn pop(&self) -> Option<(FairnessKey, Rc<HandshakeStep>)> {
        loop {
            let (fairness_key, piece) = self.waiting.borrow_mut().pop()?;
            if let Some(queued) = self.queued.borrow_mut().get_mut(&fairness_key) {
                *queued = queued.saturating_sub(1);
            }
            if !piece.is_forgotten.get() {
                return Some((fairness_key, piece));
            }
        }
    }

    /// `true`: nothing is accepted there until [`Handshakes::released`] returns it.
    pub(super) fn hold_back(&self, fairness_key: FairnessKey, listening_socket: Token) -> bool {
        let holds = self.queued.borrow().get(&fairness_key).is_some_and(|it| *it >= MOST_WAITING);
        let mut held_back = self.held_back.borrow_mut();
        if holds && !held_back.contains(&(fairness_key, listening_socket)) {
            held_back.push((fairness_key, listening_socket));
        }
        holds
    }

    /// The listening sockets that are accepted from again.
    pub(super) fn released(&self) -> Vec<(FairnessKey, Token)> {
        let mut queued = self.queued.borrow_mut();
        queued.retain(|_, it| *it > 0);
        let holds =
            |fairness_key: &FairnessKey| queued.get(fairness_key).is_some_and(|it| *it >= MOST_WAITING);
        self.held_back.borrow_mut().extract_if(.., |(fairness_key, _)| !holds(fairness_key)).collect()
    }

    /// Whether there is such a thread. It is started here, and the worker does not wait for it.
    pub(super) fn has_thread(&self, context: &WorkerContext) -> bool {
        let start = || {
            let mailbox = context.mailbox()?;
            HandshakeThread::start(context.worker, mailbox).inspect_err(report).ok()
        };
        self.helper.get_or_init(start).as_ref().is_some_and(|it| it.is_ready.load(Relaxed))
    }

    /// Milliseconds until the worker has to compute what waits for the thread.
    pub(super) fn next_timeout(&self, now: u64) -> Option<u64> {
        if self.waiting.borrow().is_empty() {
            return None;
        }
        let since = self.at_work.borrow().as_ref().map_or(0, |(_, since)| *since);
        Some(since.saturating_add(LATE).saturating_sub(now))
    }
}

fn compute(mut connection: Box<Connection>) -> StepResult {
    let before = sys::thread_cpu_time();
    let outcome = connection.process_new_packets();
    StepResult { connection, outcome, took: sys::thread_cpu_time().saturating_sub(before) }
}

/// Processes what was read from the peer. An error: the task's time is over, or it has to end.
pub(super) async fn process(
    context: &WorkerContext,
    mut connection: Box<Connection>,
) -> io::Result<(Box<Connection>, HandshakeResult)> {
    let delegates =
        || matches!(*connection, Connection::Server(_)).then(|| context.task_to_offload()).flatten();
    let Some(of) = delegates() else {
        let outcome = connection.process_new_packets();
        return Ok((connection, outcome));
    };
    let (fairness_key, client) = (of.fairness_key(), of.client());
    let piece = Rc::new(HandshakeStep {
        of,
        connection: RefCell::new(Some(connection)),
        outcome: RefCell::default(),
        is_forgotten: Cell::new(false),
    });
    let waits = StepWaiter(piece.clone());
    context.handshakes.push(fairness_key, client, piece);
    poll_fn(|_| match (waits.0.outcome.take(), context.is_late()) {
        (Some(outcome), _) => {
            let connection = waits.0.connection.take().ok_or(io::ErrorKind::BrokenPipe);
            Poll::Ready(connection.map(|it| (it, outcome)).map_err(io::Error::from))
        }
        (None, true) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
        (None, false) => Poll::Pending,
    })
    .await
}

/// A task that waits for a piece. Dropped with it, when the task ends.
struct StepWaiter(Rc<HandshakeStep>);

impl Drop for StepWaiter {
    fn drop(&mut self) {
        self.0.is_forgotten.set(true);
        self.0.connection.take();
    }
}

#[cfg(test)]
mod tests {
    use rustls::{ServerConfig, ServerConnection, server::ResolvesServerCertUsingSni};
    use seaway_model::{Kind as ObjectKind, LbKey, ObjectRef, Owner};

    use super::{super::worker_context::Runnable, *};
    use crate::{
        proxy_state::ProxyState,
        sys::Epoll,
        worker::{Kind, LoopIteration},
    };

    /// A worker whose thread for handshakes never gets a processor.
    struct Starved {
        context: Rc<WorkerContext>,
        turn: LoopIteration,
        given: mpsc::Receiver<Box<Connection>>,
        _done: mpsc::Sender<StepResult>,
    }

    impl Starved {
        fn new() -> Starved {
            let shared = Arc::new(ProxyState::new(vec![Arc::new(Mailbox::new().unwrap())]));
            let turn = LoopIteration::new(0, Arc::new(Epoll::new().unwrap()), Box::default(), shared);
            let context = WorkerContext::new(&turn);
            let (work, given) = mpsc::channel();
            let (sender, done) = mpsc::channel();
            assert!(
                context
                    .handshakes
                    .helper
                    .set(Some(HandshakeThread { work, done, is_ready: Arc::default() }))
                    .is_ok()
            );
            Starved { context, turn, given, _done: sender }
        }

        fn push(&self) -> StepWaiter {
            let config = ServerConfig::builder()
                .with_no_client_auth()
                .with_cert_resolver(Arc::new(ResolvesServerCertUsingSni::new()));
            let connection = ServerConnection::new(Arc::new(config)).unwrap();
            let piece = Rc::new(HandshakeStep {
                of: Rc::new(TaskState::new(None, 0)),
                connection: RefCell::new(Some(Box::new(connection.into()))),
                outcome: RefCell::default(),
                is_forgotten: Cell::new(false),
            });
            self.context.handshakes.push(piece.of.fairness_key(), piece.of.client(), piece.clone());
            StepWaiter(piece)
        }

        fn advance(&self) -> bool {
            self.context.handshakes.advance(&self.context).is_some()
        }
    }

    fn another() -> FairnessKey {
        let object = ObjectRef::new(ObjectKind::Service, "shop", "web");
        FairnessKey::of(&LbKey::Of(Owner::Object { object, uid: "1".into() }))
    }

    #[test]
    fn the_worker_computes_what_waits_while_the_thread_gets_no_processor() {
        let mut starved = Starved::new();
        let pieces = [starved.push(), starved.push(), starved.push()];
        let outcomes = || pieces.iter().map(|it| it.0.outcome.borrow().is_some()).collect::<Vec<_>>();
        assert!(!starved.advance() && !starved.advance(), "one is at the thread, which has time");
        assert_eq!(starved.given.try_iter().count(), 1);
        assert_eq!(starved.context.handshakes.next_timeout(starved.turn.now), Some(LATE));
        starved.turn.now += LATE;
        starved.context.begin_turn(&starved.turn);
        assert!(starved.advance());
        assert_eq!(outcomes(), [false, true, false]);
        assert!(starved.advance() && !starved.advance());
        assert_eq!(outcomes(), [false, true, true]);
        assert!(starved.context.handshakes.are_behind(), "the first is still at the thread");
    }

    #[test]
    fn the_worker_computes_for_those_who_come_before_others_that_wait() {
        let starved = Starved::new();
        let listening_socket = Runnable::ListeningSocket(Token::new(Kind::HttpListener, 0, 0));
        starved.context.postpone(another(), 0, listening_socket);
        let piece = starved.push();
        assert!(starved.advance());
        assert!(piece.0.outcome.borrow().is_some());
        assert_eq!(starved.given.try_iter().count(), 0);
    }

    #[test]
    fn nothing_is_computed_for_a_task_that_has_ended() {
        let starved = Starved::new();
        drop(starved.push());
        assert!(!starved.advance());
        assert_eq!(starved.given.try_iter().count(), 0);
        assert!(!starved.context.handshakes.are_behind());
    }

    #[test]
    fn nobody_is_let_in_while_enough_of_the_same_wait() {
        let starved = Starved::new();
        let (handshakes, socket) = (&starved.context.handshakes, Token::new(Kind::HttpListener, 7, 0));
        let fairness_key = TaskState::new(None, 0).fairness_key();
        let pieces: Vec<_> = (0..MOST_WAITING).map(|_| starved.push()).collect();
        assert!(!handshakes.hold_back(another(), socket), "others are");
        assert!(handshakes.hold_back(fairness_key, socket));
        assert!(handshakes.released().is_empty());
        assert!(!starved.advance());
        let released = handshakes.released();
        assert_eq!(released.iter().map(|(_, token)| token.index()).collect::<Vec<_>>(), [7]);
        assert!(!handshakes.hold_back(fairness_key, socket));
        drop(pieces);
    }
}
