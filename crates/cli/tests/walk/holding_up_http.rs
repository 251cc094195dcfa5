//! The front door under load, while everything behind it changes.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
};

use crate::{
    front_door::ask,
    harness::{PATIENCE, until},
    holding_up::Load,
    manifests::Service,
    tls::{self, Pair, secure},
};

const HOST: &str = "shop.example";

/// Answers every request on a connection with 200, and echoes after an upgrade. It is there until the test ends.
fn member() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("it is bound");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || serve(stream));
        }
    });
    at
}

fn serve(mut stream: TcpStream) {
    while let Some(head) = head(&mut stream) {
        let upgrades = head.to_ascii_lowercase().contains("upgrade: websocket");
        let answer = if upgrades {
            "HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
        } else {
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
        };
        if stream.write_all(answer.as_bytes()).is_err() {
            return;
        }
        if upgrades {
            let mut reader = stream.try_clone().expect("a second one");
            let _ = std::io::copy(&mut reader, &mut stream);
            return;
        }
    }
}

/// Up to its empty line, and no byte further.
fn head(stream: &mut impl Read) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    String::from_utf8(head).ok()
}

fn dial(at: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect_timeout(&at, PATIENCE).expect("not refused");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    stream
}

fn is_answered(stream: &mut (impl Read + Write), more: &str, status: &str) {
    write!(stream, "GET /x HTTP/1.1\r\nHost: {HOST}\r\n{more}\r\n").expect("sent");
    let head = head(stream).expect("an answer");
    assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{head}");
}

#[test]
fn a_thousand_changes_of_the_folder_fail_no_request_and_drop_no_stream() {
    let all = [member(), member(), member()];
    let pairs = [Pair::new(&[HOST]), Pair::new(&[HOST])];
    let shop = |members: &[SocketAddr], option: &str| {
        Service::web("shop").with("host", HOST).with("balance", option).all_to(members).text()
    };
    let route = |turn: usize| {
        format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: route}}\nspec:\n  parentRefs: [{{name: any}}]\n  hostnames: [host-{turn}.example]\n  rules:\n  - backendRefs: [{{name: shop, port: 80}}]\n"
        )
    };
    let seaway = tls::with_door("")
        .write("shop.yaml", &shop(&all, "round-robin"))
        .write("tls.yaml", &pairs[0].secret("shop-tls"))
        .start();
    let (open, secured) = (seaway.at(tls::OPEN), seaway.at(tls::TLS));
    until("https is served", || secure(secured, HOST, &pairs[0]).is_ok());
    let mut load = Load::new();
    for _ in 0..2 {
        let mut kept = dial(open);
        load.run(move || is_answered(&mut kept, "", "200"));
        let mut socket = dial(open);
        is_answered(&mut socket, "Connection: Upgrade\r\nUpgrade: websocket\r\n", "101");
        load.run(move || {
            socket.write_all(b"ping").expect("it takes bytes");
            socket.read_exact(&mut [0; 4]).expect("it goes on");
        });
    }
    load.run(move || is_answered(&mut dial(open), "Connection: close\r\n", "200"));
    let mut kept = secure(secured, HOST, &pairs[0]).expect("shaken");
    load.run(move || is_answered(&mut kept, "", "200"));
    for turn in 0..1_000 {
        match turn % 5 {
            0 => seaway.folder.write("shop.yaml", &shop(&all[..2], "round-robin")),
            1 => seaway.folder.write("tls.yaml", &pairs[turn / 5 % 2].secret("shop-tls")),
            2 => seaway.folder.write("shop.yaml", &shop(&all, "source-hash")),
            3 => seaway.folder.write("shop.yaml", &shop(&all[1..], "round-robin")),
            _ => seaway.folder.write("route.yaml", &route(turn)),
        }
        if turn % 50 == 49 {
            let host = format!("host-{turn}.example/");
            until("the change is served", || ask(open, "GET", &host, "").status == 200);
            let before = load.made();
            until("the load goes on", || load.made() > before);
        }
    }
    load.end();
    assert!(seaway.problems().is_empty(), "{:?}", seaway.problems());
}
