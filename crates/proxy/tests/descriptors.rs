//! A data plane without descriptors: in a process of its own, as the limit is a process's.

#![allow(clippy::unwrap_used)]

#[path = "tcp/stage.rs"]
mod stage;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use stage::*;

const MEMBER: &str = "SEAWAY_TEST_MEMBER";
/// The data plane itself needs about 25 of these; each connection needs two.
const LIMIT: usize = 60;

/// The part of the child: serves the member until its input ends, then tells what happened.
#[test]
#[ignore = "run by another test, with few descriptors"]
fn child() {
    let member = std::env::var(MEMBER).expect("the other test names a member");
    let stage = Stage::new();
    stage.put(pool(&[member.parse().unwrap()]));
    let (at, _) = stage.open(HERE, |_| {});
    let mut out = std::io::stdout();
    writeln!(out, "\nserving {at}").unwrap();
    let mut lines = std::io::stdin().lines();
    while let Some(Ok(_)) = lines.next() {
        let statistics = stage.proxy.statistics();
        let refused = stage.listener(at).refusals();
        writeln!(out, "\nstate {} {} {refused}", statistics.connections, statistics.exhausted).unwrap();
    }
}

/// Processor time of a process in hundredths of a second.
fn spent(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

struct Starving {
    child: Child,
    lines: std::io::Lines<BufReader<ChildStdout>>,
    at: SocketAddr,
}

struct State {
    connections: usize,
    exhausted: usize,
    refused: usize,
    spent: u64,
}

impl Starving {
    fn new(member: SocketAddr) -> Starving {
        Starving::within(LIMIT, member)
    }

    fn within(limit: usize, member: SocketAddr) -> Starving {
        let mut child = Command::new("sh")
            .args([
                "-c",
                &format!(
                    "ulimit -n {limit} && exec \"$0\" --exact child --ignored --nocapture --test-threads 1"
                ),
            ])
            .arg(std::env::current_exe().unwrap())
            .env(MEMBER, member.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let at = said(&mut lines, "serving ").parse().unwrap();
        Starving { child, lines, at }
    }

    fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    fn state(&mut self) -> State {
        writeln!(self.child.stdin.as_mut().unwrap(), "state").unwrap();
        let text = said(&mut self.lines, "state ");
        let numbers: Vec<usize> = text.split(' ').map(|number| number.parse().unwrap()).collect();
        let [connections, exhausted, refused] = numbers[..] else { panic!("{text}") };
        State { connections, exhausted, refused, spent: spent(self.child.id()) }
    }
}

fn said(lines: &mut impl Iterator<Item = std::io::Result<String>>, what: &str) -> String {
    let line = lines.map_while(Result::ok).find_map(|line| line.strip_prefix(what).map(str::to_owned));
    line.expect("the child says it")
}

impl Drop for Starving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn without_descriptors_what_runs_goes_on_and_newcomers_wait() {
    let backend = Backend::named(b'a');
    let mut proxy = Starving::new(backend.at);
    let clients: Vec<TcpStream> = (0..40).map(|_| connect(proxy.at)).collect();
    eventually("it runs out", || proxy.state().exhausted > 0);

    // Some are served. The others wait: neither served nor turned away.
    let (mut served, mut waiting) = (Vec::new(), clients);
    eventually("whoever has a connection has heard from it", || {
        for mut client in std::mem::take(&mut waiting) {
            client.set_read_timeout(Some(Duration::from_millis(10))).unwrap();
            match client.read(&mut [0]) {
                Ok(1) => served.push(client),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => waiting.push(client),
                other => panic!("{other:?}"),
            }
        }
        proxy.state().connections == served.len()
    });
    for client in served.iter_mut().chain(&mut waiting) {
        client.set_read_timeout(Some(PATIENCE)).unwrap();
    }
    assert!(served.len() >= 8 && waiting.len() >= 8, "{} served, {} wait", served.len(), waiting.len());
    served.iter_mut().for_each(echoes);

    // Waiting for descriptors is no spinning.
    let before = proxy.state();
    let begin = std::time::Instant::now();
    eventually("half a second passes", || begin.elapsed() > Duration::from_millis(500));
    let after = proxy.state();
    assert!(after.spent - before.spent <= 10, "{} ms", 10 * (after.spent - before.spent));
    assert_eq!((after.exhausted, after.refused), (1, 0), "one episode, nobody turned away");
    assert_eq!(after.connections, served.len());

    // Who leaves makes room.
    drop(served);
    let mut rest = waiting.split_off(8);
    for client in &mut waiting {
        assert_eq!(name_of(client), b'a');
        echoes(client);
    }
    drop(waiting);
    for client in &mut rest {
        assert_eq!(name_of(client), b'a');
    }
    assert_eq!(proxy.state().exhausted, 1, "still the same episode");
    drop(rest);
    eventually("all are gone", || proxy.state().connections == 0);
    assert_eq!(greeted(proxy.at).0, b'a');
}

#[test]
fn the_last_ones_are_kept_for_what_runs() {
    let backend = Backend::named(b'a');
    let mut proxy = Starving::within(320, backend.at);
    let clients: Vec<TcpStream> = (0..250).map(|_| connect(proxy.at)).collect();
    eventually("newcomers wait", || proxy.state().exhausted > 0);
    eventually("all who are in have a member", || backend.accepted() == proxy.state().connections);
    // A sixteenth is kept, half of it even from members.
    assert!(proxy.descriptors() <= 320 - 10, "{} of 320", proxy.descriptors());
    assert!(proxy.state().connections >= 100, "{} are served", proxy.state().connections);
    assert_eq!(proxy.state().refused, 0, "the others wait");
    drop(clients);
    eventually("all are gone", || proxy.state().connections == 0);
    assert_eq!(greeted(proxy.at).0, b'a');
}
