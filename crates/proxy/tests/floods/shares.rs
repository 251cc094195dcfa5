//! Two Services at one worker, of which one is asked for more than it can do.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread,
};

use seaway_model::{
    LbKey, Owner,
    load_balancer::{Action, Protocol, Rule},
};

use crate::{ground::*, stage::*};

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
const FOES: usize = 1_000;
const REQUESTS: u64 = 100;

/// Many connections, on each of which a request follows the answer to the one before.
struct Foes {
    over: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Foes {
    fn of(at: SocketAddr) -> Foes {
        let over = Arc::<AtomicBool>::default();
        let mut foes: Vec<TcpStream> = (0..FOES).map(|_| connect(at)).collect();
        let ended = over.clone();
        let thread = thread::spawn(move || {
            let mut buffer = [0; 4096];
            for stream in &mut foes {
                stream.write_all(REQUEST).unwrap();
                stream.set_nonblocking(true).unwrap();
            }
            while !ended.load(SeqCst) {
                for stream in &mut foes {
                    if matches!(stream.read(&mut buffer), Ok(1..)) {
                        stream.write_all(REQUEST).unwrap();
                    }
                }
            }
        });
        Foes { over, thread: Some(thread) }
    }
}

impl Drop for Foes {
    fn drop(&mut self) {
        self.over.store(true, SeqCst);
        let ended = self.thread.take().map(thread::JoinHandle::join);
        assert!(thread::panicking() || ended.is_some_and(|it| it.is_ok()));
    }
}

#[test]
fn a_service_that_is_flooded_leaves_others_their_share_of_a_worker() {
    let _alone = alone();
    let member = member(5);
    let (mut stage, shop) = front(member.at, |_| {});
    stage.key = LbKey::Of(Owner::Config("evil".into()));
    // It needs no member: each request is answered at once.
    let (evil, _) = stage.open(HERE, |listener| {
        listener.protocol = Protocol::Http;
        let mut rule = Rule::clone(&listener.rules[0]);
        rule.action = Action::Respond { code: 200, body: "".into() };
        listener.rules = vec![Arc::new(rule)];
    });
    let answered = || stage.listener(evil).requests;
    let foes = Foes::of(evil);
    eventually("it is flooded", || answered() > 10_000);

    let mut stream = connect(shop);
    stream.set_nodelay(true).unwrap();
    let mut answer = [0; 512];
    let before = answered();
    for _ in 0..REQUESTS {
        stream.write_all(REQUEST).unwrap();
        let length = stream.read(&mut answer).expect("an answer");
        assert!(answer[..length].starts_with(b"HTTP/1.1 200"), "{:?}", &answer[..length]);
    }
    let each = (answered() - before) / REQUESTS;
    drop(foes);
    // Its events are seen some hundred microseconds later: by then so many of the others are answered. Where each connection
    // has the same share, it waits for all of them, twice.
    assert!(each < 400, "{each} requests of others for each of ours");
}
