//! Take-overs that go wrong. The successor is played by hand, in the words of `crates/proxy/src/takeover/message.rs`.

use std::{fs::File, io::Read, net::SocketAddr, thread};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::{
    backends::{Backend, Talk, manifest},
    harness::{PATIENCE, Seaway, Setup, get, until},
    manifests::Service,
    namespace::{command, in_a_network_of_its_own},
};

const POOL: &str = "apiVersion: seaway.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: public}\nspec: {addresses: [192.0.2.0/24]}\n";

/// A successor's end of the line.
struct Successor(Socket);

impl Successor {
    fn of(seaway: &Seaway) -> Successor {
        let path = SockAddr::unix(seaway.folder.state().join("takeover.sock")).expect("a short path");
        let socket = Socket::new(Domain::UNIX, Type::SEQPACKET, None).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        // It is ready a moment before it hands over.
        until("somebody hands over", || socket.connect(&path).is_ok());
        Successor(socket)
    }

    fn say(&self, message: &Value) {
        self.0.send(message.to_string().as_bytes()).expect("said");
    }

    /// The descriptors beside it are closed by the kernel: nobody here has room for them.
    fn hear(&self) -> Value {
        let mut room = vec![0; 128 * 1024];
        let count = (&self.0).read(&mut room).expect("an answer");
        serde_json::from_slice(&room[..count]).expect("a message")
    }

    fn hear_all_of(&self, kind: &str) {
        loop {
            let message = self.hear();
            assert!(message[kind].is_object(), "{message}");
            if message[kind]["more"] == false {
                return;
            }
        }
    }

    /// From then on the old process has nothing any more that only one may have.
    fn ask(&self) {
        self.say(&json!({"Hello": {"version": 1}}));
        self.hear_all_of("Sockets");
    }
}

/// Each start of it has a port of its own.
fn last_status_page(seaway: &Seaway) -> SocketAddr {
    let log = seaway.log();
    let (_, rest) = log.rsplit_once("status page at http://").expect("there is one");
    rest.split('/').next().and_then(|at| at.parse().ok()).expect("an address")
}

#[test]
fn a_successor_that_fails_but_lingers_ends_nobody() {
    let backend = Backend::start("a");
    let setup = Setup::new().write("shop.yaml", &manifest("shop", 8080, &[], &[backend.at]));
    let (folder, ip) = (setup.folder.clone(), setup.ip);
    let mut old = setup.start();
    let before = last_status_page(&old);
    let mut long = Talk::open(old.at(8080)).expect("served");
    let successor = Successor::of(&old);
    successor.ask();
    let lock = File::options().write(true).open(old.folder.state().join("lock")).expect("a file");
    lock.try_lock().expect("the old one let go");
    drop(successor);
    until("the old one wants it back", || old.log().contains("is in use by"));
    long.echo(b"still here").expect("what was open goes on");
    Talk::open(old.at(8080)).expect("served").echo(b"new").expect("what is new as well");
    assert!(matches!(old.child.try_wait(), Ok(None)), "it lives");
    drop(lock);
    until("it is ready again", || {
        let now = last_status_page(&old);
        now != before && get(now, "/ready").is_ok_and(|(status, _)| status == 200)
    });
    old.folder.write("more.yaml", &manifest("more", 8081, &[], &[backend.at]));
    until("it follows changes again", || Talk::open(old.at(8081)).is_ok());

    let new = Setup::again(folder, ip).argument("--take-over").start();
    drop(long);
    assert!(old.wait().success(), "the next successor had what it needs");
    assert!(Talk::open(new.at(8081)).is_ok());
}

#[test]
fn a_newer_process_takes_over_and_one_that_speaks_no_common_version_is_told_and_changes_nothing() {
    let backend = Backend::start("a");
    let mut old = Setup::new().write("shop.yaml", &manifest("shop", 8080, &[], &[backend.at])).start();
    let stranger = Successor::of(&old);
    stranger.say(&json!({"Hello": {"version": 1_000, "newest": 1_001}}));
    let refused = stranger.hear()["Refused"]["reason"].to_string();
    assert!(
        refused.contains("speaks versions 1000 to 1001 of the handover, this one versions 1 to"),
        "{refused}"
    );
    until("the log says so as well", || {
        old.log().contains("handover refused: the new process speaks versions")
    });
    Talk::open(old.at(8080)).expect("served").echo(b"by the old one").expect("served");
    let newer = Successor::of(&old);
    newer.say(&json!({"Hello": {"version": 1, "newest": 1_000, "host": {"name": "a"}}}));
    newer.hear_all_of("Sockets");
    newer.say(&json!("Ready"));
    newer.hear_all_of("Flows");
    newer.say(&json!("Received"));
    assert_eq!(newer.hear(), json!("Yours"));
    assert!(old.wait().success());
}

#[test]
fn a_process_that_drains_ends_even_if_a_successor_came_meanwhile() {
    let backend = Backend::start("a");
    let mut old = Setup::new().write("shop.yaml", &manifest("shop", 8080, &[], &[backend.at])).start();
    let talk = Talk::open(old.at(8080)).expect("served");
    old.signal(Signal::SIGTERM);
    until("it drains", || Talk::open(old.at(8080)).is_err());
    let successor = Successor::of(&old);
    successor.say(&json!({"Hello": {"version": 1}}));
    until("it is heard", || old.log().contains("a new process has connected"));
    drop(talk);
    assert!(old.wait().success());
}

#[test]
fn a_process_that_is_stopped_while_a_successor_gets_ready_waits_for_it() {
    let backend = Backend::start("a");
    let mut old = Setup::new().write("shop.yaml", &manifest("shop", 8080, &[], &[backend.at])).start();
    let successor = Successor::of(&old);
    successor.ask();
    old.signal(Signal::SIGTERM);
    until("new connections are the successor's", || Talk::open(old.at(8080)).is_err());
    successor.say(&json!("Ready"));
    successor.hear_all_of("Flows");
    successor.say(&json!("Received"));
    assert_eq!(successor.hear(), json!("Yours"));
    assert!(old.wait().success());
}

fn on_lo() -> Vec<String> {
    let all = command("ip", &["-4", "-o", "address", "show", "dev", "lo"]);
    let mut all: Vec<_> =
        all.split_whitespace().filter(|it| it.starts_with("192.0.2.")).map(str::to_owned).collect();
    all.sort();
    all
}

#[test]
fn a_successor_that_is_stopped_before_it_is_ready_takes_no_address_away() {
    in_a_network_of_its_own(|| {
        let backend = Backend::start("a");
        let mut setup = Setup::new().write("pool.yaml", POOL);
        // Enough that it is not ready as soon as it has begun.
        for number in 0..100 {
            let name = format!("s{number}");
            setup = setup.write(&format!("{name}.yaml"), &Service::tcp(&name, 80).to(backend.at).text());
        }
        let (folder, ip) = (setup.folder.clone(), setup.ip);
        let old = setup.start();
        let before = on_lo();
        assert_eq!(before.len(), 100);
        let (lock, owner) = (old.folder.state().join("lock"), old.child.id().to_string());
        // Its signals are heard from its first moment, and the lock is the first that it takes.
        let stop = thread::spawn(move || {
            until("the successor has the lock", || {
                let holder = std::fs::read_to_string(&lock).unwrap_or_default();
                let holder = holder.strip_suffix('\n').filter(|it| *it != owner);
                holder.is_some_and(|it| {
                    kill(Pid::from_raw(it.parse().expect("an id")), Signal::SIGTERM).is_ok()
                })
            });
        });
        let mut new = Setup::again(folder, ip).argument("--take-over").launch(|_| {});
        stop.join().expect("it was stopped");
        assert!(new.wait().success());
        assert_eq!(on_lo(), before);
        assert!(new.log().contains("before the handover is complete"), "{}", new.log());
        until("the old one is ready again", || {
            get(last_status_page(&old), "/ready").is_ok_and(|(status, _)| status == 200)
        });
        for at in &before {
            let at = at.strip_suffix("/32").expect("one address");
            let at = SocketAddr::new(at.parse().expect("an address"), 80);
            Talk::open(at).expect("served").echo(b"by the old one").expect("served");
        }
        assert!(old.stop().success());
        assert!(on_lo().is_empty());
    });
}

#[test]
fn what_is_stopped_during_a_take_over_leaves_the_addresses_to_its_successor_unless_that_fails() {
    in_a_network_of_its_own(|| {
        let backend = Backend::start("a");
        for fails in [false, true] {
            let mut old = Setup::new()
                .write("pool.yaml", POOL)
                .write("web.yaml", &Service::tcp("web", 80).to(backend.at).text())
                .start();
            let before = on_lo();
            assert_eq!(before.len(), 1);
            let at = before[0].strip_suffix("/32").and_then(|it| it.parse().ok()).expect("one address");
            let at = SocketAddr::new(at, 80);
            let successor = Successor::of(&old);
            successor.ask();
            old.signal(Signal::SIGTERM);
            until("it accepts nothing more", || Talk::open(at).is_err());
            assert_eq!(on_lo(), before);
            if !fails {
                successor.say(&json!("Ready"));
                successor.hear_all_of("Flows");
                successor.say(&json!("Received"));
                assert_eq!(successor.hear(), json!("Yours"));
            }
            drop(successor);
            assert!(old.wait().success());
            assert_eq!(on_lo().is_empty(), fails);
        }
    });
}
