//! Members outside, by DNS name: a name server of our own on loopback.

use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use crate::{
    backends::{Backend, Talk},
    harness::{Setup, own_address, until},
};

/// Answers every A question with its present addresses, a TTL of one second, and everything else with nothing.
struct NameServer {
    at: SocketAddr,
    answers: Arc<Mutex<Option<Vec<Ipv4Addr>>>>,
    asked: Arc<AtomicUsize>,
    ended: Arc<AtomicBool>,
}

impl NameServer {
    fn start(answers: &[Ipv4Addr]) -> NameServer {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
        let server = NameServer {
            at: socket.local_addr().expect("it is bound"),
            answers: Arc::new(Mutex::new(Some(answers.to_vec()))),
            asked: Arc::default(),
            ended: Arc::default(),
        };
        let (answers, asked, ended) = (server.answers.clone(), server.asked.clone(), server.ended.clone());
        thread::spawn(move || {
            let mut question = [0; 512];
            while !ended.load(Ordering::Relaxed) {
                let Ok((count, from)) = socket.recv_from(&mut question) else { continue };
                asked.fetch_add(1, Ordering::Relaxed);
                let now = answers.lock().expect("no test panics while it holds this").clone();
                let _ = socket.send_to(&answer(&question[..count], now.as_deref()), from);
            }
        });
        server
    }

    /// `None`: the server fails.
    fn set(&self, answers: Option<&[Ipv4Addr]>) {
        *self.answers.lock().expect("no test panics while it holds this") = answers.map(<[_]>::to_vec);
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// RFC 1035: the header, the question as it came, and an A record for each address.
fn answer(question: &[u8], addresses: Option<&[Ipv4Addr]>) -> Vec<u8> {
    let name = question[12..].iter().position(|byte| *byte == 0).map_or(question.len(), |end| 12 + end + 1);
    let kind = u16::from_be_bytes([question[name], question[name + 1]]);
    let records = addresses.filter(|_| kind == 1).unwrap_or_default();
    let mut reply = question[..2].to_vec();
    reply.extend([
        0x81,
        if addresses.is_none() { 0x82 } else { 0x80 },
        0,
        1,
        0,
        records.len() as u8,
        0,
        0,
        0,
        0,
    ]);
    reply.extend(&question[12..name + 4]);
    for ip in records {
        reply.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
        reply.extend(ip.octets());
    }
    reply
}

#[test]
fn an_external_name_is_resolved_followed_by_its_ttl_and_its_last_answer_kept() {
    let (one, other) = (own_address(), own_address());
    let first = Backend::start_at("first", format!("{one}:7000"));
    let second = Backend::start_at("second", format!("{other}:7000"));
    let dns = NameServer::start(&[one]);
    let seaway = Setup::new()
        .config(&format!("resolvers: [\"{}\"]\ntcpServices: [{{service: db, port: 7000, listen: 5432}}]\n", dns.at))
        .write("db.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: db}\nspec: {type: ExternalName, externalName: db.example}\n")
        .start();
    until("it is resolved", || Talk::open(seaway.at(5432)).is_ok_and(|it| it.with == "first"));

    dns.set(Some(&[one, other]));
    until("all answers are used", || Talk::open(seaway.at(5432)).is_ok_and(|it| it.with == "second"));
    dns.set(None);
    let before = dns.asked.load(Ordering::Relaxed);
    until("it was asked in vain", || dns.asked.load(Ordering::Relaxed) > before + 1);
    assert!(Talk::open(seaway.at(5432)).is_ok(), "the last good answer is kept");
    dns.set(Some(&[other]));
    until("it follows again", || {
        (0..6).all(|_| Talk::open(seaway.at(5432)).is_ok_and(|it| it.with == "second"))
    });
    drop((first, second));
}
