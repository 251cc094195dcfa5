//! What floods are let loose on, and what they must leave as it was.

use std::{
    alloc::System,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{Mutex, MutexGuard, PoisonError},
};

use seaway_model::{
    Listener, Pool,
    load_balancer::{BackendProtocol, Protocol},
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use crate::stage::*;

#[global_allocator]
pub(crate) static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Memory is counted for the whole process: one test at a time.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes that are in use and were not before.
pub(crate) fn grown(since: &Region<'_, System>) -> isize {
    let change = since.change();
    change.bytes_allocated as isize - change.bytes_deallocated as isize
}

/// A data plane with one worker, whom everybody shares, before this member.
pub(crate) fn front(member: SocketAddr, tune: impl Fn(&mut Listener)) -> (Stage, SocketAddr) {
    let stage = Stage::with_workers(1);
    stage.put(Pool { protocol: BackendProtocol::Http1, ..pool(&[member]) });
    let (at, _) = stage.open(HERE, |listener| {
        listener.protocol = Protocol::Http;
        tune(listener);
    });
    (stage, at)
}

/// Answers every request with so many bytes; bodies are not understood.
pub(crate) fn member(length: usize) -> Backend {
    // In one piece: a second one would wait for the first to be acknowledged.
    let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").into_bytes();
    answer.resize(answer.len() + length, b'x');
    Backend::new(HERE, move |mut stream| {
        let (mut head, mut buffer) = (Vec::new(), [0; 4096]);
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            head.extend_from_slice(&buffer[..count]);
            while let Some(end) = head.windows(4).position(|it| it == b"\r\n\r\n") {
                head.drain(..end + 4);
                if stream.write_all(&answer).is_err() {
                    return;
                }
            }
        }
    })
}

/// Somebody else, who does everything right.
pub(crate) fn is_served(at: SocketAddr) {
    let mut stream = connect(at);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer to somebody else");
    assert!(answer.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&answer));
}

/// All that comes until the connection ends, in whatever way.
pub(crate) fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return all,
            Ok(count) => all.extend_from_slice(&buffer[..count]),
            Err(error) => {
                let open =
                    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut);
                assert!(!open, "nobody ends it");
                return all;
            }
        }
    }
}
