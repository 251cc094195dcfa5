//! Under load, and when things go wrong around it.

use std::{
    net::UdpSocket,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use crate::{
    backends::{Backend, Datagrams, Talk, manifest, slices},
    harness::{PATIENCE, Setup, own_address, until},
};

/// Threads that use a listener until they are told to end; a failure of one is a failure of the test.
pub(crate) struct Load {
    ended: Arc<AtomicBool>,
    made: Arc<AtomicUsize>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Load {
    pub(crate) fn new() -> Load {
        Load { ended: Arc::default(), made: Arc::default(), threads: Vec::new() }
    }

    pub(crate) fn run(&mut self, mut one: impl FnMut() + Send + 'static) {
        let (ended, made) = (self.ended.clone(), self.made.clone());
        self.threads.push(thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                one();
                made.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }

    pub(crate) fn made(&self) -> usize {
        self.made.load(Ordering::Relaxed)
    }

    pub(crate) fn end(self) {
        self.ended.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("nothing was dropped and nothing refused");
        }
    }
}

#[test]
fn a_thousand_changes_of_the_folder_drop_nothing() {
    let backends: Vec<Backend> = ["a", "b", "c"].map(Backend::start).into();
    let all: Vec<_> = backends.iter().map(|it| it.at).collect();
    let udp = Datagrams::start("u");
    let dns = "apiVersion: v1\nkind: Service\nmetadata: {name: dns}\nspec:\n  type: LoadBalancer\n  ports:\n  - {name: main, port: 5353, protocol: UDP}\n";
    let seaway = Setup::new()
        .write("shop.yaml", &manifest("shop", 8080, &[], &all))
        .write("dns.yaml", &(dns.to_owned() + &slices("dns", "UDP", &[udp.at])))
        .start();
    let (at, dns_at) = (seaway.at(8080), seaway.at(5353));
    let mut load = Load::new();
    for _ in 0..3 {
        let mut long = Talk::open(at).expect("served");
        load.run(move || long.echo(b"a long connection").expect("it goes on"));
    }
    load.run(move || Talk::open(at).expect("not refused").echo(b"short").expect("not dropped"));
    let flow = UdpSocket::bind("127.0.0.1:0").expect("a port");
    flow.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    flow.connect(dns_at).expect("an address");
    load.run(move || {
        flow.send(b"x").expect("sent");
        let count = flow.recv(&mut [0; 16]).expect("no datagram is lost");
        assert_eq!(count, 3);
    });
    for turn in 0..1_000 {
        match turn % 4 {
            // Members come and go (those who go are drained), options change, another Service comes and goes.
            0 => seaway.folder.write("shop.yaml", &manifest("shop", 8080, &[], &all[..2])),
            1 => seaway
                .folder
                .write("shop.yaml", &manifest("shop", 8080, &[("seaway.dev/balance", "source-hash")], &all)),
            2 => seaway.folder.write("other.yaml", &manifest("other", 8081, &[], &all)),
            _ => seaway.folder.remove("other.yaml"),
        }
        if turn % 50 == 0 {
            let before = load.made();
            until("the load goes on", || load.made() > before);
        }
    }
    seaway.folder.write("last.yaml", &manifest("last", 8082, &[], &all));
    until("the last change is served", || Talk::open(seaway.at(8082)).is_ok());
    load.end();
    assert!(seaway.problems().is_empty(), "{:?}", seaway.problems());
}

#[test]
fn a_backend_that_dies_under_load_takes_only_what_was_in_flight_to_it() {
    // At an address of its own: nobody else comes to where it was.
    let (stays, dies) = (Backend::start("stays"), Backend::start_at("dies", (own_address(), 7000)));
    let seaway = Setup::new().write("shop.yaml", &manifest("shop", 8080, &[], &[stays.at, dies.at])).start();
    let at = seaway.at(8080);
    let mut kept: Vec<Talk> = (0..20).map(|_| Talk::open(at).expect("served")).collect();
    let on_the_dead = kept.iter().filter(|it| it.with == "dies").count();
    assert!(on_the_dead > 0 && on_the_dead < 20);
    dies.kill();
    // From here on nobody new may fail: a refused connect goes on to the other member.
    let mut load = Load::new();
    for _ in 0..2 {
        load.run(move || {
            let mut talk = Talk::open(at).expect("redispatched");
            assert_eq!(talk.with, "stays");
            talk.echo(b"new").expect("served");
        });
    }
    until("there was load", || load.made() > 200);
    load.end();
    for talk in &mut kept {
        let works = talk.echo(b"old").is_ok();
        assert_eq!(works, talk.with == "stays", "{}", talk.with);
    }
}

#[test]
fn a_state_folder_that_cannot_be_written_is_named_and_serving_goes_on() {
    let backend = Backend::start("a");
    let seaway = Setup::new().write("shop.yaml", &manifest("shop", 8080, &[], &[backend.at])).start();
    let state = seaway.folder.state();
    let aside = seaway.folder.0.path().join("aside");
    std::fs::rename(&state, &aside).expect("moved");
    std::fs::write(&state, "no folder").expect("written");
    seaway.folder.write("more.yaml", &manifest("more", 8081, &[], &[backend.at]));
    until("the change is served", || Talk::open(seaway.at(8081)).is_ok());
    until("it is named", || seaway.problems().iter().any(|it| it.0 == "StateUnwritable"));
    std::fs::remove_file(&state).expect("removed");
    std::fs::rename(&aside, &state).expect("moved back");
    seaway.folder.write("more.yaml", &manifest("more", 8082, &[], &[backend.at]));
    until("it is written again", || {
        seaway.problems().is_empty() && seaway.status().to_string().contains("8082")
    });
}
