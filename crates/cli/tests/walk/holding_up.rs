//! Under load, and when things go wrong around it.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use seaway_testkit::traffic::Clients;

use crate::{
    backends::{Backend, Talk, manifest},
    harness::{Setup, own_address, own_addresses, until},
    thousand_changes::{self, Changes, ListenerAddresses, Members, nobody_noticed},
    tls,
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
fn a_thousand_changes_of_the_folder_are_each_served_and_drop_nothing() {
    let members = Members::at(own_addresses::<3>().map(IpAddr::V4));
    let setup = tls::with_door("");
    let folder = setup.folder.clone();
    let apply = |name: &str, text: &str| folder.write(&format!("{name}.yaml"), text);
    let changes = Changes::new(&members, "{name: any}", &apply);
    changes.begin();
    let seaway = setup.start();
    let doors = ListenerAddresses {
        http: seaway.at(tls::OPEN),
        https: seaway.at(tls::TLS),
        echo: seaway.at(thousand_changes::STAYS),
        dns: seaway.at(thousand_changes::UDP),
    };
    nobody_noticed(changes.make(&Clients::here(), &doors, 1));
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
