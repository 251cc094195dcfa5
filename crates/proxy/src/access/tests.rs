use std::{
    fs, thread,
    time::{Duration, Instant},
};

use seaway_model::{L4, LbKey, ListenerId, PoolId};
use seaway_testkit::balancing;

use super::*;
use crate::running::{ListenerConfig, RefusalReason, RunningListener, RunningPool};

const LINE: RequestLogLine<'static> = RequestLogLine {
    client: std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 7)),
    method: b"GET",
    target: b"/a?b=\"c\"",
    version: "1.1",
    host: b"shop.example",
    referer: b"",
    agent: b"curl\\\n\xff\xc3\xa9",
    id: b"name",
    status: 200,
    sent: 5,
    received: 0,
    took: 12,
    scheme: "https",
    listener: "frontDoor:http",
    pool: "default/shop:80",
    member: None,
};

fn written(line: &RequestLogLine<'_>, form: AccessLogFormat) -> String {
    let mut out = Vec::new();
    line.write(form, &mut LogTimestamp::default(), &mut out);
    String::from_utf8(out).unwrap()
}

/// With the time, which nobody knows, taken out.
fn timeless(text: &str) -> String {
    let (before, rest) = text.split_once('[').unwrap();
    let (time, after) = rest.split_once(']').unwrap();
    assert!(time.len() == 26 && time.ends_with(" +0000"), "{time}");
    format!("{before}[]{after}")
}

#[test]
fn lines_are_those_of_apache() {
    let request = r#"192.0.2.7 - - [] "GET /a?b=\"c\" HTTP/1.1" 200 5"#;
    assert_eq!(timeless(&written(&LINE, AccessLogFormat::Common)), format!("{request}\n"));
    assert_eq!(
        timeless(&written(&LINE, AccessLogFormat::Combined)),
        format!("{request} \"-\" \"curl\\\\\\x0a\\xff\\xc3\\xa9\"\n")
    );
    let nothing = RequestLogLine { method: b"", status: 0, sent: 0, ..LINE };
    assert_eq!(timeless(&written(&nothing, AccessLogFormat::Common)), "192.0.2.7 - - [] \"-\" - -\n");
}

#[test]
fn a_line_of_json_is_an_object_whatever_was_said() {
    let member = Some(([10, 0, 0, 1], 80).into());
    let text = written(&RequestLogLine { member, ..LINE }, AccessLogFormat::Json);
    let read: serde_json::Value = serde_json::from_str(&text).unwrap();
    for (key, value) in [
        ("client", "192.0.2.7"),
        ("method", "GET"),
        ("target", "/a?b=\"c\""),
        ("user_agent", "curl\\\n\u{fffd}é"),
        ("request_id", "name"),
        ("pool", "default/shop:80"),
        ("member", "10.0.0.1:80"),
    ] {
        assert_eq!(read[key], value, "{key}");
    }
    assert_eq!(
        (&read["status"], &read["milliseconds"], &read["referer"]),
        (&200.into(), &12.into(), &().into())
    );
    assert_eq!(text.matches('\n').count(), 1);
    let gone = written(&RequestLogLine { status: 0, ..LINE }, AccessLogFormat::Json);
    assert!(serde_json::from_str::<serde_json::Value>(&gone).unwrap()["status"].is_null());
}

#[test]
fn a_writer_that_takes_nothing_costs_lines_and_never_time() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let name = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
    // The other end is open and never read.
    assert!(std::process::Command::new("mkfifo").arg(name.to_str().unwrap()).status().unwrap().success());
    let _reader = fs::OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    let access = AccessLogger::default();
    let settings = AccessLog {
        form: AccessLogFormat::Json,
        to: AccessLogTarget::File(pipe),
        one_of: 1,
        connections: true,
        flows: false,
    };
    access.write(Some(settings)).unwrap();
    let (sink, mut buffer) = (access.sink().unwrap(), LogBuffer::default());
    let begun = Instant::now();
    for now in 0..20_000 {
        buffer.add(&sink, &LINE, now);
    }
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
    assert!(access.lost() > 1_000, "{}", access.lost());
}

#[test]
fn a_log_that_is_told_again_goes_on_in_a_new_file() {
    let folder = tempfile::tempdir().unwrap();
    let (path, moved) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
    let settings = AccessLog {
        form: AccessLogFormat::Common,
        to: AccessLogTarget::File(path.clone()),
        one_of: 1,
        connections: true,
        flows: false,
    };
    let access = AccessLogger::default();
    access.write(Some(settings.clone())).unwrap();
    let mut buffer = LogBuffer::default();
    buffer.add(&access.sink().unwrap(), &LINE, 1);
    fs::rename(&path, &moved).unwrap();
    access.write(Some(settings)).unwrap();
    buffer.add(&access.sink().unwrap(), &RequestLogLine { status: 404, ..LINE }, 2);
    drop(buffer);
    access.write(None).unwrap();
    // Nobody waits for who wrote the file that was moved away.
    let deadline = Instant::now() + Duration::from_secs(20);
    while fs::metadata(&moved).unwrap().len() == 0 && Instant::now() < deadline {
        thread::yield_now();
    }
    let (old, new) = (fs::read_to_string(moved).unwrap(), fs::read_to_string(path).unwrap());
    assert!(old.contains(" 200 ") && !old.contains(" 404 "), "{old}");
    assert!(new.contains(" 404 ") && !new.contains(" 200 "), "{new}");
    assert_eq!(access.lost(), 0);
    let nowhere = AccessLogTarget::File(folder.path().join("none/access.log"));
    assert!(
        access
            .write(Some(AccessLog {
                form: AccessLogFormat::Common,
                to: nowhere,
                one_of: 1,
                connections: true,
                flows: false
            }))
            .is_err()
    );
}

#[test]
fn a_connection_is_one_line_in_each_form_whatever_names_say() {
    let hostile = "default/shop\"\n198.51.100.1 - - [x] \"GET / HTTP/1.1\" 200 5\\";
    let mut listener = balancing::listener(443);
    listener.name = hostile.into();
    let key = LbKey::Of(balancing::owner());
    let pool = |pool: &PoolId| RunningPool::empty(key.clone(), pool.clone());
    let config = ListenerConfig::new(Arc::new(listener), None, None, pool);
    let id = ListenerId { l4: L4::Tcp, port: 443 };
    let at = ([203, 0, 113, 7], 443).into();
    let listener = RunningListener::new(key.clone(), at, id, Arc::new(config));
    let line = ConnectionLogLine {
        client: "[::ffff:192.0.2.7]:999".parse().unwrap(),
        listener: &listener,
        pool: "443/TCP",
        member: Some(([10, 0, 0, 1], 80).into()),
        sent: 5,
        received: 3,
        connect: Some(2),
        took: 900,
        ending: ConnectionEnd::Client,
    };
    let written = |line: &ConnectionLogLine<'_>, form| {
        let mut out = Vec::new();
        line.write(form, &mut LogTimestamp::default(), &mut out);
        String::from_utf8(out).unwrap()
    };
    let name = r#"default/shop\"\x0a198.51.100.1 - - [x] \"GET / HTTP/1.1\" 200 5\\"#;
    let told = format!(
        "192.0.2.7 - - [] \"TCP 203.0.113.7:443 {name} 10.0.0.1:80 end=client received=3 connect_ms=2 ms=900\" - 5"
    );
    assert_eq!(timeless(&written(&line, AccessLogFormat::Common)), format!("{told}\n"));
    assert_eq!(timeless(&written(&line, AccessLogFormat::Combined)), format!("{told} \"-\" \"-\"\n"));
    let text = written(&line, AccessLogFormat::Json);
    let read: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&read["listener"], &read["client_port"]), (&hostile.into(), &999.into()));
    assert_eq!(text.matches('\n').count(), 1);
    let refused = ConnectionLogLine {
        ending: ConnectionEnd::Refused(RefusalReason::Source),
        member: None,
        connect: None,
        sent: 0,
        ..line
    };
    let text = written(&refused, AccessLogFormat::Common);
    assert!(text.ends_with(" - end=refused reason=source received=3 ms=900\" - -\n"), "{text}");
}
