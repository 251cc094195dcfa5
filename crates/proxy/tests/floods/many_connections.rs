//! Too many.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
};

use socket2::SockRef;
use stats_alloc::Region;

use crate::{CONNECTIONS, frames::*, ground::*, stage::*};

#[test]
fn connections_one_after_another_leave_nothing_behind() {
    let _alone = alone();
    let member = member(5);
    let (stage, at) = front(member.at, |_| {});
    let visits: [fn(SocketAddr, usize); 5] = [asked, kept, many, nothing, broken];
    // Everything has its place afterwards.
    (0..500).for_each(|number| visits[number % visits.len()](at, number));
    let none = || stage.listener(at).traffic.current == 0;
    eventually("all have left", none);
    let region = Region::new(COUNTED);
    for number in 0..CONNECTIONS {
        visits[number % visits.len()](at, number);
        if number % 1_000 == 0 {
            is_served(at);
        }
    }
    eventually("all have left", none);
    let grown = grown(&region);
    assert!(grown < 256 << 10, "{grown} bytes after {CONNECTIONS} connections");
    assert!(member.accepted() < 500 + CONNECTIONS, "{} connections to the member", member.accepted());
    assert!(stage.listener(at).traffic.total as usize >= CONNECTIONS);
}

#[test]
fn connections_that_are_silent_hold_little() {
    let _alone = alone();
    let member = member(5);
    let (_stage, at) = front(member.at, |_| {});
    // Everything has its place afterwards.
    many(at, 0);
    let region = Region::new(COUNTED);
    let held: Vec<_> = (0..200).map(|number| asked_by_many(at, number)).collect();
    is_served(at);
    let each = grown(&region) / held.len() as isize;
    assert!(each < 16 << 10, "{each} bytes for each");
}

/// From many places, or the kernel would run out of ports.
fn dial(at: SocketAddr, number: usize) -> TcpStream {
    connect_from([127, 0, 1, (number % 250) as u8 + 1], at)
}

fn read_head(stream: &mut TcpStream) {
    let mut bytes = [0; 4096];
    let mut filled = 0;
    while !bytes[..filled].ends_with(b"xxxxx") {
        filled += stream.read(&mut bytes[filled..]).expect("an answer");
    }
}

/// As HTTP/1.0 did.
fn asked(at: SocketAddr, number: usize) {
    let mut stream = dial(at, number);
    stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    read_head(&mut stream);
}

/// It could go on, and does not.
fn kept(at: SocketAddr, number: usize) {
    let mut stream = dial(at, number);
    for _ in 0..2 {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        read_head(&mut stream);
    }
}

fn many(at: SocketAddr, number: usize) {
    drop(asked_by_many(at, number));
}

fn asked_by_many(at: SocketAddr, number: usize) -> TcpStream {
    let mut stream = dial(at, number);
    let fields =
        [(&b":method"[..], &b"GET"[..]), (b":scheme", b"http"), (b":authority", b"a"), (b":path", b"/")];
    let asked = [hello(), frame(HEADERS, END_HEADERS | END_STREAM, 1, &block(&fields))].concat();
    stream.write_all(&asked).unwrap();
    while next(&mut stream).expect("an answer").kind != DATA {}
    stream
}

fn nothing(at: SocketAddr, number: usize) {
    drop(dial(at, number));
}

/// Gone in the middle of a word.
fn broken(at: SocketAddr, number: usize) {
    let mut stream = dial(at, number);
    stream.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhel").unwrap();
    let _ = SockRef::from(&stream).set_linger(Some(std::time::Duration::ZERO));
}
