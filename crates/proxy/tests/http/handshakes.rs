//! Handshakes of TLS beside others who have much to do.

use std::{
    io::Write,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use seaway_model::{
    LbKey,
    load_balancer::{Protocol, TlsByName},
};

use crate::{
    scene::*,
    stage::*,
    tls::{self, *},
};

/// The policies by which the kernel schedules the threads of this process that have this name.
fn policies(name: &str) -> Vec<String> {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let stats = threads.filter_map(|it| std::fs::read_to_string(it.path().join("stat")).ok());
    let of_name = stats.filter_map(|stat| {
        let (before, after) = stat.rsplit_once(')')?;
        let policy = after.split_whitespace().nth(38)?.to_owned();
        before.ends_with(&format!("({name}")).then_some(policy)
    });
    of_name.collect()
}

const IDLE: &str = "5";
const SHAKING: usize = 32;
const ASKING: usize = 12;

#[test]
fn handshakes_are_computed_by_a_thread_that_runs_only_while_the_worker_has_nothing_to_do() {
    let authority = Authority::new();
    let member = Backend::new(HERE, |mut stream| {
        let mut reader = Reader::new(stream.try_clone().unwrap());
        while reader.message(false).is_some() {
            let _ = stream.write_all(ok("x").as_bytes());
        }
    });
    let mut stage = Stage::with_workers(1);
    stage.put(pool(&[member.at]));
    let tls = TlsByName { default: vec![object("c")], ..TlsByName::default() };
    let (secret, _) = stage.open(HERE, |listener| {
        listener.protocol = Protocol::Http;
        listener.tls = Some(Arc::new(tls.clone()));
    });
    give(&stage, "c", &authority.certificate("a.example"));
    stage.key = LbKey::Whole;
    stage.put(pool(&[member.at]));
    let (open, _) = stage.open(HERE, |listener| listener.protocol = Protocol::Http);

    let (over, shaken, asked) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let shakes = |at: SocketAddr| {
        while !over.load(SeqCst) {
            let stream = secure(at, "a.example", config(&authority)).expect("a handshake comes about");
            drop(stream);
            shaken.fetch_add(1, SeqCst);
        }
    };
    let asks = |at: SocketAddr| {
        let mut client = Client::new(at);
        while !over.load(SeqCst) {
            assert_eq!(client.get("/").status(), 200);
            asked.fetch_add(1, SeqCst);
        }
    };
    thread::scope(|scope| {
        (0..SHAKING).for_each(|_| drop(scope.spawn(|| shakes(secret))));
        (0..ASKING).for_each(|_| drop(scope.spawn(|| asks(open))));
        let _end = Ends(&over);
        eventually("there is such a thread", || policies("handshakes-0").contains(&IDLE.to_owned()));
        let (shaken_before, asked_before) = (shaken.load(SeqCst), asked.load(SeqCst));
        eventually("handshakes go on", || shaken.load(SeqCst) >= shaken_before + 5 * SHAKING);
        eventually("requests are answered", || asked.load(SeqCst) >= asked_before + 5 * ASKING);
    });
    stage.key = LbKey::Of(owner());
    eventually("all have left", || stage.listener(secret).traffic.current == 0);
    let mut stream = secure(secret, "a.example", config(&authority)).unwrap();
    assert!(tls::get(&mut stream).unwrap().starts_with("HTTP/1.1 200"));
}

/// Also where the test fails: nobody would end otherwise.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}
