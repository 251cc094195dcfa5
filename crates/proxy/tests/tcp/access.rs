//! What is written down of connections.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    time::Duration,
};

use seaway_model::Listener;
use seaway_proxy::{AccessLog, AccessLogFormat, AccessLogTarget};
use serde_json::Value;
use socket2::SockRef;
use tempfile::TempDir;

use crate::stage::*;

struct Log(TempDir);

impl Log {
    fn of(stage: &Stage, one_of: u32, connections: bool) -> Log {
        let folder = tempfile::tempdir().unwrap();
        let to = AccessLogTarget::File(folder.path().join("access.log"));
        let settings = AccessLog { form: AccessLogFormat::Json, to, one_of, connections, flows: true };
        stage.proxy.log_requests(Some(settings)).unwrap();
        Log(folder)
    }

    fn read(&self) -> String {
        std::fs::read_to_string(self.0.path().join("access.log")).unwrap()
    }

    /// So many, as soon as they are there.
    fn lines(&self, count: usize) -> Vec<Value> {
        eventually("the lines are written", || self.read().lines().count() >= count);
        self.read().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Says what it hears, ends first if that is `bye`, and breaks if it is `break`.
fn backend() -> Backend {
    Backend::new(HERE, |mut stream| {
        let mut heard = [0; 16];
        while let Ok(count @ 1..) = stream.read(&mut heard) {
            if &heard[..count] == b"break" {
                SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
                return;
            }
            stream.write_all(&heard[..count]).unwrap();
            if &heard[..count] == b"bye" {
                stream.shutdown(Shutdown::Write).unwrap();
            }
        }
    })
}

fn say(stream: &mut TcpStream, words: &[u8]) {
    stream.write_all(words).unwrap();
    let mut heard = vec![0; words.len()];
    stream.read_exact(&mut heard).unwrap();
}

fn reset(stream: TcpStream) {
    SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
}

/// A listener before this member, with a log, and what one connection to it comes to.
fn told(at: SocketAddr, tune: impl Fn(&mut Listener), test: impl FnOnce(&Stage, SocketAddr)) -> Value {
    let stage = Stage::new();
    stage.put(pool(&[at]));
    let (at, _) = stage.open(HERE, tune);
    let log = Log::of(&stage, 1, true);
    test(&stage, at);
    log.lines(1).remove(0)
}

#[test]
fn each_connection_is_a_line_that_says_how_it_ended() {
    let backend = backend();
    let usual = |_: &mut Listener| {};
    let line = told(backend.at, usual, |stage, at| {
        stage.proxy.measure_latency(true);
        let mut client = connect(at);
        say(&mut client, b"hello");
        let from = client.local_addr().unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.read(&mut [0; 8]).unwrap(), 0);
        drop(client);
        assert!(from.port() > 0);
    });
    for (key, value) in [
        ("client", "127.0.0.1".into()),
        ("protocol", "tcp".into()),
        ("listener", "test".into()),
        ("pool", "members".into()),
        ("member", backend.at.to_string().into()),
        ("end", "client".into()),
        ("reason", Value::Null),
        ("sent", 5.into()),
        ("received", 5.into()),
    ] {
        assert_eq!(line[key], value, "{key} of {line}");
    }
    for key in ["connect_milliseconds", "milliseconds", "client_port"] {
        assert!(line[key].is_u64(), "{key} of {line}");
    }
    let line = told(backend.at, usual, |_, at| {
        let mut client = connect(at);
        say(&mut client, b"bye");
        assert_eq!(client.read(&mut [0; 8]).unwrap(), 0);
        client.shutdown(Shutdown::Write).unwrap();
        drop(client);
    });
    assert_eq!((&line["end"], &line["received"]), (&"member".into(), &3.into()), "{line}");
    let line = told(backend.at, usual, |_, at| {
        let mut client = connect(at);
        say(&mut client, b"hello");
        reset(client);
    });
    assert_eq!(line["end"], "client-reset", "{line}");
    let line = told(backend.at, usual, |_, at| {
        let mut client = connect(at);
        client.write_all(b"break").unwrap();
        assert!(client.read(&mut [0; 8]).is_err());
    });
    assert_eq!(line["end"], "member-reset", "{line}");
    let idle = |it: &mut Listener| it.timeouts.idle = Duration::from_millis(50);
    let line = told(backend.at, idle, |_, at| {
        let mut client = connect(at);
        say(&mut client, b"hello");
        let _ = client.read(&mut [0; 8]);
    });
    assert_eq!(line["end"], "idle-timeout", "{line}");
    assert!(line["milliseconds"].as_u64().unwrap() >= 40, "{line}");
    let drained = |it: &mut Listener| it.timeouts.drain = Duration::from_millis(10);
    let line = told(backend.at, drained, |stage, at| {
        let mut client = connect(at);
        say(&mut client, b"hello");
        let listener = stage.listener(at);
        stage.proxy.close(&stage.key, at.ip(), listener.id);
        let _ = client.read(&mut [0; 8]);
    });
    assert_eq!(line["end"], "drained", "{line}");
}

#[test]
fn who_is_refused_is_a_line_with_the_reason() {
    let backend = backend();
    let ask = |_: &Stage, at: SocketAddr| {
        let mut client = connect(at);
        let _ = client.read(&mut [0; 8]);
    };
    let denied = |it: &mut Listener| it.denied = vec!["127.0.0.0/8".parse().unwrap()];
    let limited = |it: &mut Listener| it.limits.connections = Some(0);
    type Tune<'t> = &'t dyn Fn(&mut Listener);
    let cases: [(Tune<'_>, SocketAddr, &str); 3] = [
        (&denied, backend.at, "source"),
        (&limited, backend.at, "connections"),
        (&|_| {}, nobody(), "no-member"),
    ];
    for (tune, at, reason) in cases {
        let line = told(at, tune, ask);
        assert_eq!((&line["end"], &line["reason"]), (&"refused".into(), &reason.into()), "{line}");
        assert_eq!((&line["member"], &line["sent"]), (&Value::Null, &0.into()), "{line}");
    }
}

#[test]
fn one_of_so_many_is_written_and_none_where_they_are_left_out() {
    let backend = backend();
    let stage = Stage::new();
    let at = stage.serve(&[backend.at]);
    let ask = || {
        let mut client = connect(at);
        say(&mut client, b"hello");
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(client.read(&mut [0; 8]).unwrap(), 0);
    };
    let log = Log::of(&stage, 4, true);
    (0..400).for_each(|_| ask());
    eventually("all have ended", || stage.listener(at).traffic.current == 0);
    // A log that ends has its last lines written.
    stage.proxy.log_requests(None).unwrap();
    let without = Log::of(&stage, 1, false);
    ask();
    eventually("it has ended", || stage.listener(at).traffic.current == 0);
    stage.proxy.log_requests(None).unwrap();
    assert_eq!(without.read(), "");
    eventually("about a quarter is written", || (40..160).contains(&log.read().lines().count()));
}

#[test]
fn a_flow_is_a_line_when_it_ends_where_that_is_asked_for() {
    use std::net::UdpSocket;

    use seaway_model::{L4, Pool};

    let member = UdpSocket::bind((HERE, 0)).unwrap();
    let stage = Stage::new();
    stage.put(Pool { l4: L4::Udp, ..pool(&[member.local_addr().unwrap()]) });
    let (at, _) = stage.open(HERE, |it| {
        it.l4 = L4::Udp;
        it.timeouts.udp_idle = Duration::from_millis(100);
    });
    let log = Log::of(&stage, 1, true);
    let client = UdpSocket::bind((HERE, 0)).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    client.send_to(b"hello", at).unwrap();
    let mut heard = [0; 16];
    let (_, from) = member.recv_from(&mut heard).unwrap();
    member.send_to(b"hi", from).unwrap();
    assert_eq!(client.recv(&mut heard).unwrap(), 2);
    let line = log.lines(1).remove(0);
    for (key, value) in [
        ("protocol", "udp".into()),
        ("client_port", Value::from(client.local_addr().unwrap().port())),
        ("member", member.local_addr().unwrap().to_string().into()),
        ("end", "idle-timeout".into()),
        ("received", 5.into()),
        ("sent", 2.into()),
    ] {
        assert_eq!(line[key], value, "{key} of {line}");
    }
}
