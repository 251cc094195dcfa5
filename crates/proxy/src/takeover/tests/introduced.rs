//! Where only one process may serve: who is admitted, and who has the lock after each end of a hand-over.

use std::fs::File;

use super::*;
use crate::takeover::message::Introduction;

/// Admits who knows at least this, and lends its lock.
struct Keeper {
    lock: File,
    knows: u64,
    turns: mpsc::Sender<HandoverPhase>,
}

impl Predecessor for Keeper {
    fn admit(&mut self, who: Option<&Introduction>) -> Result<(), String> {
        who.filter(|it| it.of == "a").map(drop).ok_or_else(|| "another host".into())
    }

    fn lock_for(&mut self, who: Option<&Introduction>) -> Result<Option<OwnedFd>, String> {
        match who {
            Some(who) if who.knows >= self.knows => {
                Ok(Some(self.lock.try_clone().map_err(|it| it.to_string())?.into()))
            }
            _ => Err("it knows less".into()),
        }
    }

    fn tell(&mut self, turn: HandoverPhase) {
        // A test that looks no more has ended.
        let _ = self.turns.send(turn);
    }
}

struct Scene {
    plan: Plan,
    _old: Proxy,
    hand_over: HandoverListener,
    turns: mpsc::Receiver<HandoverPhase>,
}

impl Scene {
    fn new() -> Scene {
        let plan = Plan::new(FAMILIES[0]);
        let old = plan.proxy(1);
        plan.serve(&old);
        let lock = File::create(plan.folder.path().join("lock")).unwrap();
        lock.try_lock().unwrap();
        let (tell, turns) = mpsc::channel();
        let keeper = Keeper { lock, knows: 7, turns: tell };
        let hand_over = old.hand_over(&plan.path(), keeper).unwrap();
        Scene { plan, _old: old, hand_over, turns }
    }

    fn asks(&self, of: &str, knows: u64) -> Result<Takeover, TakeoverError> {
        take_as(&self.plan.path(), Introduction { of: of.into(), generation: 1, knows })
    }

    fn turn(&self) -> HandoverPhase {
        self.turns.recv_timeout(Duration::from_secs(20)).unwrap()
    }

    /// Whether no process has the lock.
    fn is_free(&self) -> bool {
        File::open(self.plan.folder.path().join("lock")).unwrap().try_lock().is_ok()
    }
}

#[test]
fn another_host_changes_nothing_and_who_knows_less_is_refused_after_all_rests() {
    let scene = Scene::new();
    let refused = |asked: Result<Takeover, TakeoverError>| match asked {
        Err(TakeoverError::Refused { reason }) => reason,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it is refused"),
    };
    assert_eq!(refused(scene.asks("b", 9)), "another host");
    assert_eq!(refused(take(&scene.plan.path())), "another host", "who does not say who it is");
    assert_eq!(refused(scene.asks("a", 6)), "it knows less");
    assert_eq!(
        [scene.turn(), scene.turn()],
        [HandoverPhase::Asked, HandoverPhase::Resumed],
        "of the last one alone"
    );
    assert!(scene.turns.try_recv().is_err());
    short_connection(scene.plan.at()).unwrap();
}

#[test]
fn the_lock_goes_over_without_a_moment_in_which_it_is_free() {
    let scene = Scene::new();
    let mut taken = scene.asks("a", 7).unwrap_or_else(|it| panic!("{it}"));
    let lock = taken.lock().unwrap();
    let new = scene.plan.proxy(1);
    new.adopt(&mut taken);
    scene.plan.serve(&new);
    new.confirm(&mut taken).unwrap();
    taken.until_gone(Duration::from_secs(20));
    assert_eq!(
        [scene.turn(), scene.turn()],
        [HandoverPhase::Asked, HandoverPhase::Over],
        "told before the line was closed"
    );
    drop(scene.hand_over);
    assert!(File::open(scene.plan.folder.path().join("lock")).unwrap().try_lock().is_err());
    short_connection(scene.plan.at()).unwrap();
    drop(lock);
    assert!(File::open(scene.plan.folder.path().join("lock")).unwrap().try_lock().is_ok());
}

#[test]
fn a_successor_that_ends_after_any_message_leaves_the_lock_and_the_sockets_to_the_old_one() {
    let scene = Scene::new();
    let hello = || Message::Hello {
        version: OLDEST,
        newest: Some(NEWEST),
        introduction: Some(Introduction { of: "a".into(), generation: 1, knows: 7 }),
    };
    // Greets; has the lock and the sockets; says that it is ready; has the flows.
    for last in 0..4 {
        let socket = sys::local_connect(&scene.plan.path()).unwrap();
        let mut peer = HandoverSocket::new(socket, Duration::from_secs(10)).unwrap();
        peer.send(&hello(), &[]).unwrap();
        let mut has_lock = None;
        if last > 0 {
            while !matches!(
                peer.receive().unwrap().map(|(message, fds)| {
                    if matches!(message, Message::Lock) {
                        has_lock = fds.into_iter().next();
                    }
                    message
                }),
                Some(Message::Sockets { more: false, .. })
            ) {}
            assert!(has_lock.is_some(), "before the sockets");
        }
        if last > 1 {
            peer.send(&Message::Ready, &[]).unwrap();
        }
        if last > 2 {
            while !matches!(peer.receive().unwrap(), Some((Message::Flows { more: false, .. }, _))) {}
        }
        drop((peer, has_lock));
        assert_eq!([scene.turn(), scene.turn()], [HandoverPhase::Asked, HandoverPhase::Resumed], "{last}");
        assert!(!scene.is_free(), "{last}");
        short_connection(scene.plan.at()).unwrap();
        Flow::to(scene.plan.at()).ask("x").unwrap();
    }
    scene.asks("a", 7).unwrap_or_else(|it| panic!("the next one is served: {it}"));
}

/// It gives up and is still there: what it does until then, it does with the lock.
#[test]
fn one_that_has_the_lock_is_given_the_time_to_stop_before_the_old_one_works_again() {
    let scene = Scene::new();
    let socket = sys::local_connect(&scene.plan.path()).unwrap();
    let mut peer = HandoverSocket::new(socket, Duration::from_secs(20)).unwrap();
    let introduction = Some(Introduction { of: "a".into(), generation: 1, knows: 7 });
    peer.send(&Message::Hello { version: OLDEST, newest: Some(NEWEST), introduction }, &[]).unwrap();
    while !matches!(peer.receive().unwrap(), Some((Message::Sockets { more: false, .. }, _))) {}
    peer.send(&Message::Yours, &[]).unwrap();
    assert_eq!(scene.turn(), HandoverPhase::Asked);
    assert!(scene.turns.recv_timeout(STOPS_WITHIN * 6 / 10).is_err(), "it waits");
    drop(peer);
    assert_eq!(scene.turn(), HandoverPhase::Resumed);
}

/// The old one may be stopped for a while before it gives everything up; once it has, it serves no more.
#[test]
fn silence_at_the_last_moment_is_no_answer() {
    let plan = Plan::new(FAMILIES[0]);
    let listener = sys::local_listener(&plan.path()).unwrap();
    let (tell, told) = mpsc::channel();
    let old = thread::spawn(move || {
        let socket = sys::local_accept(listener.as_fd()).unwrap();
        let mut peer = HandoverSocket::new(socket, Duration::from_secs(20)).unwrap();
        assert!(matches!(peer.receive().unwrap(), Some((Message::Hello { .. }, _))));
        peer.send(&Message::Sockets { sockets: Vec::new(), more: false }, &[]).unwrap();
        peer.send(&Message::Flows { flows: Vec::new(), more: false }, &[]).unwrap();
        tell.send(()).unwrap();
        assert!(matches!(peer.receive().unwrap(), Some((Message::Ready, _))));
        assert!(matches!(peer.receive().unwrap(), Some((Message::Received, _))));
        // Many times as long as the other one waits at a time.
        peer.until_gone(Duration::from_millis(200));
        peer.send(&Message::Yours, &[])
    });
    let mut taken = take(&plan.path()).unwrap_or_else(|it| panic!("{it}"));
    told.recv().unwrap();
    taken.peer.set_timeout(Duration::from_millis(10)).unwrap();
    let confirmed = plan.proxy(1).confirm(&mut taken);
    drop(taken);
    assert!(confirmed.is_ok(), "{confirmed:?}");
    old.join().unwrap().unwrap();
}
