//! What is written down of requests.

use std::path::PathBuf;

use seaway_proxy::{AccessLog, AccessLogFormat, AccessLogTarget};
use serde_json::Value;
use tempfile::TempDir;

use crate::{peer::Peer, scene::*, stage::*};

struct Log {
    folder: TempDir,
    one_of: u32,
}

impl Log {
    fn of(stage: &Stage, one_of: u32) -> Log {
        let log = Log { folder: tempfile::tempdir().unwrap(), one_of };
        stage.proxy.log_requests(Some(log.settings())).unwrap();
        log
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("access.log")
    }

    fn settings(&self) -> AccessLog {
        let to = AccessLogTarget::File(self.path());
        AccessLog { form: AccessLogFormat::Json, to, one_of: self.one_of, connections: true, flows: false }
    }

    /// So many, as soon as they are there.
    fn lines(&self, count: usize) -> Vec<Value> {
        let read = || std::fs::read_to_string(self.path()).unwrap();
        eventually("the lines are written", || read().lines().count() >= count);
        read().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

#[test]
fn each_request_is_a_line_however_it_ended() {
    let member = Member::new(|_, heard| (!heard.first().contains("/gone")).then(|| ok("hello")));
    let (stage, at) = front_with(&[member.at()], |listener| {
        listener.http.trusted = vec!["127.0.0.0/8".parse().unwrap()];
    });
    let log = Log::of(&stage, 1);
    let mut client = Client::new(at);
    client.ask(
        "POST /a?b HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: t\r\nReferer: r\r\nX-Request-Id: mine\r\n\
         X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: https\r\nContent-Length: 3\r\n\r\nabc",
    );
    log.lines(1);
    client.ask("GET /gone HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    log.lines(2);
    Client::new(at).ask("nonsense\r\n\r\n");
    log.lines(3);
    Peer::new(at).get("/many");
    let lines = log.lines(4);
    let member = member.at().to_string();
    let expected: [&[(&str, Value)]; 4] = [
        &[
            ("client", "192.0.2.7".into()),
            ("method", "POST".into()),
            ("target", "/a?b".into()),
            ("version", "1.1".into()),
            ("scheme", "https".into()),
            ("host", "shop.example".into()),
            ("referer", "r".into()),
            ("user_agent", "t".into()),
            ("request_id", "mine".into()),
            ("listener", "test".into()),
            ("pool", "members".into()),
            ("member", member.clone().into()),
            ("status", 200.into()),
            ("sent", 5.into()),
            ("received", 3.into()),
        ],
        &[
            ("target", "/gone".into()),
            ("version", "1.0".into()),
            ("status", 503.into()),
            ("client", "127.0.0.1".into()),
        ],
        &[
            ("method", Value::Null),
            ("status", 400.into()),
            ("request_id", Value::Null),
            ("member", Value::Null),
        ],
        &[("target", "/many".into()), ("version", "2".into()), ("status", 200.into()), ("sent", 5.into())],
    ];
    for (line, expected) in lines.iter().zip(expected) {
        for (key, value) in expected {
            assert_eq!(&line[key], value, "{key} of {line}");
        }
    }
    assert_eq!((lines.len(), stage.proxy.lost_lines()), (4, 0));
}

#[test]
fn a_client_that_goes_before_its_answer_is_a_line_without_status() {
    let member = Member::new(|_, _| {
        std::thread::park_timeout(PATIENCE);
        None
    });
    let (stage, at) = front(&[member.at()]);
    let log = Log::of(&stage, 1);
    let mut client = Client::new(at);
    client.send("GET /left HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it is asked", || member.heard().len() == 1);
    socket2::SockRef::from(client.stream()).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    drop(client);
    assert_eq!(log.lines(1)[0]["status"], Value::Null);
}

#[test]
fn nothing_of_a_request_is_told_of_the_next() {
    let member = Member::new(|_, heard| {
        if heard.first().contains("/left") {
            std::thread::park_timeout(PATIENCE);
        }
        Some(ok("hello"))
    });
    let (stage, at) = front_with(&[member.at()], |listener| {
        listener.http.trusted = vec!["127.0.0.0/8".parse().unwrap()];
    });
    let log = Log::of(&stage, 1);
    let whole = "POST /a HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.7\r\nContent-Length: 3\r\n\r\nabc";
    let mut client = Client::new(at);
    client.ask(whole);
    assert_eq!(client.ask("GET / HTTP/1.1\r\nHost: a\r\nx : y\r\n\r\n").status(), 400);
    let refused = &log.lines(2)[1];
    for (key, value) in [("client", "127.0.0.1".into()), ("received", 0.into()), ("member", Value::Null)] {
        assert_eq!(refused[key], value, "{key} of {refused}");
    }
    let mut client = Client::new(at);
    client.ask(whole);
    client.send("GET /left HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it is asked", || member.heard().len() == 3);
    socket2::SockRef::from(client.stream()).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    drop(client);
    assert_eq!(log.lines(4)[3]["status"], Value::Null);
}

#[test]
fn one_of_so_many_is_written() {
    let member = Member::saying("x");
    let (stage, at) = front(&[member.at()]);
    let log = Log::of(&stage, 10);
    let mut client = Client::new(at);
    for _ in 0..500 {
        client.get("/");
    }
    // A tenth, give or take what chance does in one of a million runs.
    let lines = log.lines(15).len();
    assert!((15..=100).contains(&lines), "{lines}");
    stage.proxy.log_requests(None).unwrap();
    let before = log.lines(0).len();
    client.get("/");
    stage.proxy.log_requests(None).unwrap();
    assert_eq!(log.lines(0).len(), before, "off");
}

#[test]
fn a_file_that_was_moved_away_is_begun_anew() {
    let member = Member::saying("x");
    let (stage, at) = front(&[member.at()]);
    let log = Log::of(&stage, 1);
    let mut client = Client::new(at);
    client.get("/before");
    assert_eq!(log.lines(1).len(), 1);
    std::fs::rename(log.path(), log.folder.path().join("old")).unwrap();
    stage.proxy.log_requests(Some(log.settings())).unwrap();
    client.get("/after");
    let lines = log.lines(1);
    assert_eq!((lines.len(), &lines[0]["target"]), (1, &"/after".into()));
}

#[test]
fn a_connection_whose_tls_ends_here_is_a_line_and_so_is_one_without_tls() {
    use std::io::{Read, Write};

    use seaway_model::load_balancer::{Protocol, TlsByName};

    use crate::tls::{Authority, config, give, object, secure};

    let authority = Authority::new();
    let backend = Backend::echo(HERE);
    let stage = Stage::new();
    stage.put(pool(&[backend.at]));
    let tls = TlsByName { default: vec![object("own")], ..TlsByName::default() };
    let (at, listener) = stage.open(HERE, |listener| {
        listener.protocol = Protocol::Opaque;
        listener.tls = Some(std::sync::Arc::new(tls.clone()));
        listener.timeouts.drain = std::time::Duration::from_millis(10);
    });
    give(&stage, "own", &authority.certificate("own.example"));
    let log = Log::of(&stage, 1);
    let mut stranger = connect(at);
    stranger.write_all(b"no TLS at all\r\n\r\n").unwrap();
    let _ = stranger.read(&mut [0; 64]);
    let refused = log.lines(1).remove(0);
    assert_eq!((&refused["end"], &refused["reason"]), (&"refused".into(), &"tls".into()), "{refused}");
    let open = || {
        let mut stream = secure(at, "own.example", config(&authority)).unwrap();
        stream.write_all(b"hello").unwrap();
        stream.read_exact(&mut [0; 5]).unwrap();
        stream
    };
    let mut stream = open();
    stream.conn.send_close_notify();
    stream.flush().unwrap();
    let _ = stream.sock.shutdown(std::net::Shutdown::Write);
    let line = log.lines(2).remove(1);
    assert_eq!(
        (&line["end"], &line["sent"], &line["received"]),
        (&"client".into(), &5.into(), &5.into()),
        "{line}"
    );
    assert_eq!(line["member"], backend.at.to_string(), "{line}");
    // Its task is dropped amid it.
    let _stream = open();
    stage.proxy.close(&stage.key, at.ip(), listener.id());
    let line = log.lines(3).remove(2);
    assert_eq!((&line["end"], &line["received"]), (&"drained".into(), &5.into()), "{line}");
}
