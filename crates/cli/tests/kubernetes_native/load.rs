//! Who asks steadily, and remembers when nobody answered.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use seaway_testkit::topology::{Namespace, until};

/// One that waits holds nobody else up: there are more of them where more is asked.
const EACH: u32 = 12;
const PATIENCE: Duration = Duration::from_secs(5);

/// Some who ask for a page, each time on a new connection, until it is dropped.
pub(crate) struct Load {
    ended: Arc<AtomicBool>,
    heard: Arc<Mutex<Heard>>,
    clients: Vec<JoinHandle<()>>,
}

#[derive(Debug, Default, Clone)]
pub(crate) struct Heard {
    /// How often each pod answered.
    pub(crate) answers: BTreeMap<String, usize>,
    pub(crate) failures: Vec<String>,
}

impl Heard {
    pub(crate) fn answered(&self) -> usize {
        self.answers.values().sum()
    }

    #[track_caller]
    pub(crate) fn was_always_answered(&self) {
        let (failed, answered) = (self.failures.len(), self.answered());
        assert!(self.failures.is_empty(), "{failed} of {answered}: {:#?}", self.failures);
    }
}

impl Load {
    /// So many requests in each second, from there, whether or not those before are answered.
    pub(crate) fn start(from: &Namespace, at: SocketAddr, rate: u32) -> Load {
        let (ended, heard) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Heard>>::default());
        let clients = (rate / EACH).max(1);
        let pause = Duration::from_secs(1) * clients / rate;
        let began = Instant::now();
        let clients = (0..clients).map(|number| {
            let (ended, heard) = (ended.clone(), heard.clone());
            // A thread is in the network of whoever begins it.
            from.run(move || thread::spawn(move || ask_on(at, pause, number, began, &ended, &heard)))
        });
        Load { clients: clients.collect(), ended, heard }
    }

    pub(crate) fn heard(&self) -> Heard {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until so many more were answered.
    pub(crate) fn goes_on(&self, what: &str, answers: usize) {
        let before = self.heard().answered();
        until(what, || self.heard().answered() >= before + answers);
    }

    /// What was heard all in all.
    pub(crate) fn end(mut self) -> Heard {
        self.ended.store(true, Ordering::Relaxed);
        for client in self.clients.drain(..) {
            client.join().expect("who asks does not panic");
        }
        self.heard()
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

fn ask_on(
    at: SocketAddr,
    pause: Duration,
    number: u32,
    began: Instant,
    ended: &AtomicBool,
    heard: &Mutex<Heard>,
) {
    // Not all at once.
    let mut next = began + pause * number / (number + 1);
    while !ended.load(Ordering::Relaxed) {
        let asked = Instant::now();
        let answer = ask(at);
        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        match answer {
            Ok(pod) => *heard.answers.entry(pod).or_default() += 1,
            Err(error) => {
                let (begun, took) = (asked - began, asked.elapsed());
                heard.failures.push(format!("asked after {begun:?}, failed in {took:?}: {error}"));
            }
        }
        drop(heard);
        next += pause;
        thread::park_timeout(next.saturating_duration_since(Instant::now()));
    }
}

/// The pod that answered.
fn ask(at: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&at, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let whole = answer.starts_with("HTTP/1.1 200") && answer.ends_with('\n');
    let body = answer.lines().last().filter(|_| whole);
    let pod = body.and_then(|it| it.split_whitespace().next());
    pod.map(str::to_owned).ok_or_else(|| std::io::Error::other(format!("it was answered {answer:?}")))
}
