//! What a running process tells: files, pages, logs, notices.

use std::{collections::BTreeSet, os::unix::net::UnixDatagram};

use serde_json::Value;

use crate::{
    backends::{Backend, Talk},
    harness::{PATIENCE, Setup, request, until},
    manifests::Service,
};

#[test]
fn status_json_says_what_each_service_got() {
    let backend = Backend::start("a");
    let seaway = Setup::new()
        .write("shop.yaml", &Service::tcp("shop", 8080).to(backend.at).text())
        .write("empty.yaml", &Service::tcp("empty", 8081).text())
        .start();
    let of = |name: &str| seaway.status()["services"][format!("Service default/{name}")].clone();
    until("it is written", || of("shop")["ready"] == true && !of("empty").is_null());
    let (shop, empty, ip) = (of("shop"), of("empty"), seaway.ip.to_string());
    assert_eq!(shop["addresses"], serde_json::json!([ip]));
    assert_eq!(shop["serving"], serde_json::json!([{"ip": ip, "protocol": "TCP", "port": 8080}]));
    assert_eq!((&shop["members"], &shop["pool"]), (&Value::from(1), &Value::from("hosts")));
    assert!(shop["problems"].as_array().is_none_or(Vec::is_empty), "{shop}");
    assert_eq!(empty["members"], 0);
    let problem = &empty["problems"][0];
    assert_eq!(problem["reason"], "NoEndpoints");
    assert!(problem["place"]["file"].as_str().is_some_and(|it| it.ends_with("empty.yaml")), "{problem}");
    assert!(problem["place"]["line"].as_u64() > Some(0), "{problem}");
    use std::os::unix::fs::PermissionsExt;
    let mode = |name: &str| {
        let metadata = std::fs::metadata(seaway.folder.state().join(name)).expect("it is there");
        metadata.permissions().mode() & 0o777
    };
    assert_eq!((mode("status.json"), mode("ledger.jsonl"), mode("")), (0o600, 0o600, 0o700));
    seaway.folder.remove("empty.yaml");
    until("what is gone is gone", || of("empty").is_null());
}

#[test]
fn the_log_level_changes_at_run_time() {
    let seaway = Setup::new().start();
    let (_, level) = seaway.get("/log").expect("it answers");
    assert_eq!(level.trim(), "info");
    let set = |level: &str| request(seaway.admin(), "PUT", "/log", level).expect("it answers");
    assert_eq!(set("error").0, 200);
    seaway.folder.write("bad.yaml", "a: [\n");
    until("it is told", || seaway.has_problem("Unreadable"));
    assert!(!seaway.log().contains("bad.yaml"), "warnings are not heard");
    let (status, why) = set("loud");
    assert_eq!(status, 400, "{why}");
    assert_eq!(set("info,seaway_files=debug").0, 200);
    seaway.folder.remove("bad.yaml");
    until("it is heard again", || seaway.log().contains("problem solved"));
    let (_, level) = seaway.get("/log").expect("it answers");
    assert_eq!(level.trim(), "info,seaway_files=debug");
}

#[test]
fn logs_in_json_are_one_object_a_line() {
    let backend = Backend::start("a");
    let seaway = Setup::new()
        .argument("--log-format")
        .argument("json")
        .write("shop.yaml", &Service::tcp("shop", 8080).to(backend.at).text())
        .write("bad.yaml", "a: [\n")
        .start();
    until("there is a log", || {
        seaway.log().contains("\"listener opened\"") && seaway.log().contains("bad.yaml")
    });
    let log = seaway.log();
    for line in log.lines() {
        let value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        for key in ["timestamp", "level", "message", "target"] {
            assert!(value[key].is_string(), "{key} is missing: {line}");
        }
    }
    let serving = log.lines().find(|line| line.contains("\"listener opened\"")).expect("it was waited for");
    let serving: Value = serde_json::from_str(serving).expect("JSON");
    assert_eq!(serving["listener"], "default/shop:main");
}

#[test]
fn connections_are_written_down_as_the_configuration_says() {
    let backend = Backend::start("a");
    let setup = Setup::new()
        .config("accessLog: {format: json, to: access.log}\n")
        .write("shop.yaml", &Service::tcp("shop", 8080).to(backend.at).text());
    let path = setup.folder.0.path().join("access.log");
    let seaway = setup.start();
    let mut talk = Talk::open(seaway.at(8080)).expect("served");
    talk.echo(b"hello").expect("echoed");
    drop(talk);
    let mut lines = Vec::new();
    until("a line is there", || {
        let text = std::fs::read_to_string(&path).unwrap_or_default();
        lines = text.lines().map(str::to_owned).collect();
        text.ends_with('\n')
    });
    let line: Value = serde_json::from_str(&lines[0]).expect("an object");
    let (address, member) = (seaway.at(8080).to_string(), backend.at.to_string());
    for (key, value) in [
        ("protocol", "tcp"),
        ("client", "127.0.0.1"),
        ("address", &address),
        ("listener", "default/shop:main"),
        ("member", &member),
    ] {
        assert_eq!(line[key], value, "{key}: {line}");
    }
    assert_eq!((&line["received"], lines.len()), (&Value::from(5), 1), "{lines:?}");
}

#[test]
fn traffic_is_counted_in_haproxys_columns() {
    let backend = Backend::start("a");
    let seaway = Setup::new().write("shop.yaml", &Service::tcp("shop", 8080).to(backend.at).text()).start();
    let mut open = Vec::new();
    for _ in 0..5 {
        let mut talk = Talk::open(seaway.at(8080)).expect("served");
        talk.echo(&[b'x'; 1_000]).expect("echoed");
        open.push(talk);
    }
    open.truncate(2);
    let rows = || -> Vec<Vec<String>> {
        let (status, text) = seaway.get("/;csv").expect("it answers");
        assert_eq!(status, 200);
        text.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect()
    };
    let value = |rows: &[Vec<String>], kind: fn(&str) -> bool, column: &str| -> String {
        let index = rows[0].iter().position(|it| it.trim_start_matches("# ") == column).expect("a column");
        let row = rows.iter().skip(1).find(|row| row[0].contains("shop") && kind(&row[1]));
        row.map(|row| row[index].clone()).unwrap_or_default()
    };
    let front = |name: &str| name == "FRONTEND";
    let back = |name: &str| name == "BACKEND";
    let member = |name: &str| name != "FRONTEND" && name != "BACKEND";
    let kinds = [front as fn(&str) -> bool, back, member];
    let all =
        |rows: &[Vec<String>], column, wanted| kinds.iter().all(|it| value(rows, *it, column) == wanted);
    until("those who left are counted out", || all(&rows(), "scur", "2"));
    // Bytes of connections that are open are told now and then; each got its name, and as much as it sent.
    until("bytes are counted", || {
        let rows = rows();
        all(&rows, "bin", "5000") && value(&rows, front, "bout") == "5010"
    });
    let rows = rows();
    for kind in kinds {
        assert_eq!(value(&rows, kind, "stot"), "5", "{rows:?}");
        assert_eq!(value(&rows, kind, "scur"), "2", "{rows:?}");
        assert_eq!(value(&rows, kind, "bin"), "5000", "{rows:?}");
    }
    assert_eq!(value(&rows, front, "status"), "OPEN");
    assert!(value(&rows, member, "status").starts_with("UP"), "{rows:?}");
    let widths: BTreeSet<usize> = rows.iter().map(Vec::len).collect();
    assert_eq!(widths.len(), 1, "all rows are as wide as the first");
}

#[test]
fn metrics_have_bounded_labels() {
    let backend = Backend::start("a");
    let seaway = Setup::new()
        .config("metrics: {services: 0}\n")
        .write("shop.yaml", &Service::tcp("shop", 8080).to(backend.at).text())
        .start();
    let series = || -> BTreeSet<String> {
        let (_, text) = seaway.get("/metrics").expect("it answers");
        assert!(text.trim_end().ends_with("# EOF"), "{text}");
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        samples.map(|line| line.rsplit_once(' ').expect("a value").0.to_owned()).collect()
    };
    Talk::open(seaway.at(8080)).expect("served").echo(b"counted").expect("echoed");
    let before = series();
    assert!(before.len() > 10, "{before:?}");
    for number in 0..20 {
        let name = format!("shop-{number}");
        let service = Service::tcp(&name, 9_000 + number).to(backend.at);
        seaway.folder.write(&format!("{name}.yaml"), &service.text());
    }
    until("all are served", || Talk::open(seaway.at(9_019)).is_ok());
    let after = series();
    assert_eq!(before, after, "series do not grow with Services");
    assert!(!after.iter().any(|it| it.contains("shop") || it.contains("127.")), "{after:?}");
}

#[test]
fn systemd_is_told_when_it_is_ready_reloading_and_stopping() {
    let backend = Backend::start("a");
    let setup = Setup::new().write("shop.yaml", &Service::tcp("shop", 8080).to(backend.at).text());
    let path = setup.folder.0.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let hear = |what: &str| {
        let mut heard = String::new();
        let mut buffer = [0; 4_096];
        while !heard.contains(what) {
            let count = socket.recv(&mut buffer).unwrap_or_else(|_| panic!("no {what}: {heard}"));
            heard.push_str(&String::from_utf8_lossy(&buffer[..count]));
            heard.push('\n');
        }
        heard
    };
    let mut seaway = setup.launch(|command| {
        command.env("NOTIFY_SOCKET", &path);
    });
    hear("READY=1");
    assert!(Talk::open(seaway.at(8080)).is_ok(), "ready means serving");
    assert_eq!(seaway.get("/ready").expect("it answers").0, 200);
    seaway.signal(nix::sys::signal::Signal::SIGHUP);
    let heard = hear("READY=1");
    assert!(heard.contains("RELOADING=1") && heard.contains("MONOTONIC_USEC="), "{heard}");
    let talk = Talk::open(seaway.at(8080)).expect("served");
    seaway.signal(nix::sys::signal::Signal::SIGTERM);
    hear("STOPPING=1");
    until("it is ready no more, while somebody is there", || {
        seaway.get("/ready").is_ok_and(|(status, why)| status == 503 && why.contains("stopping"))
    });
    assert_eq!(seaway.get("/live").expect("it answers").0, 200);
    drop(talk);
    assert!(seaway.wait().success());
}
