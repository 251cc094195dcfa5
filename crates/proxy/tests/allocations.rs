//! Requests on connections that are kept alive cost no allocation.
#![allow(clippy::unwrap_used)]

#[path = "tcp/stage.rs"]
mod stage;

use std::{
    alloc::System,
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
};

use seaway_model::{
    Kind, ObjectRef,
    load_balancer::{ClientKey, Protocol, RateLimit, RequestRate, Rule},
};
use stage::*;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static COUNTED: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const QUESTION: &[u8] =
    b"GET /a/path?and=query HTTP/1.1\r\nHost: shop.example\r\nUser-Agent: test\r\nAccept: */*\r\n\r\n";
/// Its connection is its client's own from then on.
const WITH_BODY: &[u8] = b"POST /a HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 8\r\n\r\nbody\r\n\r\n";
const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nServer: test\r\n\r\nhello";
const REQUESTS: usize = 1_000;

/// Reads until the end of a head with this body, allocating nothing.
fn read_message(stream: &mut TcpStream, end: &[u8]) -> Option<()> {
    let (mut buffer, mut filled) = ([0; 2048], 0);
    while !buffer[..filled].ends_with(end) {
        match stream.read(&mut buffer[filled..]) {
            Ok(read @ 1..) => filled += read,
            _ => return None,
        }
    }
    Some(())
}

/// Ranges and limits that let all of them through.
fn guard(rule: &mut Rule) {
    rule.sources = ["127.0.0.0/8", "::1/128"].map(|it| it.parse().unwrap()).into();
    rule.denied = vec!["192.0.2.0/24".parse().unwrap()];
    let of = ObjectRef::new(Kind::Service, "default", "shop");
    let limit = |key| {
        let rate = RequestRate { per_second: 1_000_000, burst: 1_000_000, key };
        RateLimit { of: of.clone(), rate }
    };
    let keys = [ClientKey::Address, ClientKey::Header("user-agent".into()), ClientKey::Cookie("none".into())];
    rule.rates = keys.map(limit).into();
}

#[test]
fn a_request_on_a_connection_that_is_kept_alive_allocates_nothing() {
    let stage = Stage::new();
    stage.proxy.measure_latency(true);
    let backend = Backend::new(HERE, |mut stream| {
        while read_message(&mut stream, b"\r\n\r\n").is_some() && stream.write_all(ANSWER).is_ok() {}
    });
    stage.put(pool(&[backend.at]));
    let (plain, _) = stage.open(HERE, |listener| listener.protocol = Protocol::Http);
    let (guarded, _) = stage.open(HERE, |listener| {
        listener.protocol = Protocol::Http;
        listener.rules.iter_mut().for_each(|rule| guard(Arc::make_mut(rule)));
    });
    for (at, question) in [(plain, QUESTION), (plain, WITH_BODY), (guarded, QUESTION)] {
        let mut client = connect(at);
        let mut ask = |times| {
            for _ in 0..times {
                client.write_all(question).unwrap();
                read_message(&mut client, b"hello").unwrap();
            }
        };
        // Everything has its place afterwards.
        ask(50);
        // The prober and the like may have something to do once in a while, and on a slow machine more often: not in each batch.
        // What is allocated for each request, or for each of some hundreds, is in all of them.
        let counted = (0..10).map(|_| {
            let region = Region::new(COUNTED);
            ask(REQUESTS);
            region.change().allocations
        });
        let least = counted.min().unwrap();
        assert_eq!(least, 0, "allocations for {REQUESTS} requests");
    }
}
