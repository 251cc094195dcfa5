use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{Mutex, mpsc},
    time::Duration,
};

use seaway_model::{Pool, load_balancer::ProxyVersion};
use seaway_proxy::RefusalReason;
use seaway_wire::proxy::{self, Parsed};

use crate::stage::*;

/// A member that tells of each connection what it got until the client finished.
fn listening() -> (Backend, mpsc::Receiver<Vec<u8>>) {
    let (tell, told) = mpsc::channel();
    let tell = Mutex::new(tell);
    let backend = Backend::new(HERE, move |mut stream| {
        let mut all = Vec::new();
        if stream.read_to_end(&mut all).is_ok() {
            tell.lock().unwrap().send(all).unwrap();
        }
    });
    (backend, told)
}

fn say(mut stream: TcpStream, bytes: &[u8]) -> SocketAddr {
    stream.write_all(bytes).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let from = stream.local_addr().unwrap();
    assert_eq!(ending(&mut stream), Ending::End);
    from
}

#[test]
fn a_member_is_told_who_the_client_is() {
    for version in [ProxyVersion::V1, ProxyVersion::V2] {
        let (stage, (backend, told)) = (Stage::new(), listening());
        stage.put(Pool { proxy: Some(version), ..pool(&[nobody(), backend.at]) });
        let (at, _) = stage.open(HERE, |_| {});
        let client = say(connect(at), b"hello");
        let got = told.recv_timeout(PATIENCE).unwrap();
        let Parsed::Header(header) = proxy::parse(&got) else { panic!("no header: {got:?}") };
        assert_eq!((header.source(), header.destination()), (Some(client), Some(at)));
        assert_eq!(&got[header.length..], b"hello");
    }
}

#[test]
fn a_member_is_told_at_once_even_if_it_speaks_first() {
    let backend = Backend::new(HERE, |mut stream| {
        let mut line = [0; 6];
        stream.read_exact(&mut line).unwrap();
        assert_eq!(&line, b"PROXY ");
        stream.write_all(b"a").unwrap();
    });
    let stage = Stage::new();
    stage.put(Pool { proxy: Some(ProxyVersion::V1), ..pool(&[backend.at]) });
    let (at, _) = stage.open(HERE, |_| {});
    assert_eq!(greeted(at).0, b'a');
}

/// A listener that believes 127.0.0.1 and nobody else.
fn believing(stage: &Stage, members: &[SocketAddr], version: Option<ProxyVersion>) -> SocketAddr {
    stage.put(Pool { proxy: version, ..pool(members) });
    let tune = |listener: &mut seaway_model::Listener| {
        listener.proxy_from = vec!["127.0.0.1/32".parse().unwrap()];
        listener.timeouts.header = Duration::from_secs(3);
    };
    stage.open(HERE, tune).0
}

const LINE: &[u8] = b"PROXY TCP4 192.0.2.7 198.51.100.9 4711 80\r\nhello";

#[test]
fn a_header_of_a_trusted_peer_is_taken_off_however_it_comes() {
    for pieces in [1, 3, LINE.len()] {
        let (stage, (backend, told)) = (Stage::new(), listening());
        let at = believing(&stage, &[backend.at], None);
        let mut stream = connect(at);
        stream.set_nodelay(true).unwrap();
        for piece in LINE.chunks(LINE.len().div_ceil(pieces)) {
            stream.write_all(piece).unwrap();
        }
        say(stream, b" world");
        assert_eq!(told.recv_timeout(PATIENCE).unwrap(), b"hello world");
    }
}

#[test]
fn who_a_trusted_peer_names_is_who_the_member_is_told() {
    let (stage, (backend, told)) = (Stage::new(), listening());
    let at = believing(&stage, &[backend.at], Some(ProxyVersion::V2));
    say(connect(at), LINE);
    let got = told.recv_timeout(PATIENCE).unwrap();
    let Parsed::Header(header) = proxy::parse(&got) else { panic!("no header: {got:?}") };
    assert_eq!(header.source(), Some("192.0.2.7:4711".parse().unwrap()));
    assert_eq!(header.destination(), Some("198.51.100.9:80".parse().unwrap()));
    assert_eq!(&got[header.length..], b"hello");
}

#[test]
fn a_header_of_anybody_else_is_just_bytes() {
    let (stage, (backend, told)) = (Stage::new(), listening());
    let at = believing(&stage, &[backend.at], None);
    say(connect_from([127, 0, 0, 2], at), LINE);
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), LINE);
}

#[test]
fn a_trusted_peer_without_a_header_is_reset() {
    let (stage, (backend, _told)) = (Stage::new(), listening());
    let at = believing(&stage, &[backend.at], None);
    let mut garbage = connect(at);
    garbage.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    assert_eq!(ending(&mut garbage), Ending::Reset);

    let mut silent = connect(at);
    silent.write_all(b"PROXY TCP4").unwrap();
    assert_eq!(ending(&mut silent), Ending::Reset);

    let mut gone = connect(at);
    gone.write_all(b"PROXY").unwrap();
    gone.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(ending(&mut gone), Ending::Reset);
    assert_eq!(stage.listener(at).refused(RefusalReason::Header), 3);
    assert_eq!(backend.accepted(), 0);
}

#[test]
fn sources_are_about_the_client_that_a_header_names() {
    let (stage, (backend, told)) = (Stage::new(), listening());
    stage.put(pool(&[backend.at]));
    let (at, _) = stage.open(HERE, |listener| {
        listener.proxy_from = vec!["127.0.0.1/32".parse().unwrap()];
        listener.sources = vec!["192.0.2.0/24".parse().unwrap()];
    });
    say(connect(at), LINE);
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), b"hello");
    let mut stranger = connect(at);
    stranger.write_all(b"PROXY TCP4 203.0.113.1 198.51.100.9 4711 80\r\n").unwrap();
    assert_eq!(ending(&mut stranger), Ending::Reset);
    assert_eq!(stage.listener(at).refused(RefusalReason::Source), 1);
}
