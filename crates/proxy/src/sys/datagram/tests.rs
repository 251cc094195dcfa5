use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use super::*;

fn loopback(v6: bool) -> IpAddr {
    if v6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() }
}

fn pair(v6: bool) -> (UdpSocket, UdpSocket) {
    let a = UdpSocket::bind((loopback(v6), 0)).unwrap();
    let b = UdpSocket::bind((loopback(v6), 0)).unwrap();
    b.connect(a.local_addr().unwrap()).unwrap();
    (a, b)
}

#[test]
fn a_batch_comes_with_its_senders_and_goes_back_to_them() {
    for v6 in [false, true] {
        let (server, client) = pair(v6);
        let other = UdpSocket::bind((loopback(v6), 0)).unwrap();
        other.connect(server.local_addr().unwrap()).unwrap();
        client.send(b"one").unwrap();
        other.send(b"two").unwrap();
        client.send(b"").unwrap();
        let mut inbox = Inbox::new();
        assert_eq!(inbox.receive(server.as_fd(), BATCH, false).unwrap(), 3);
        let (peer, bytes, segment) = inbox.datagram(1).unwrap();
        assert_eq!((peer.socket_addr(), bytes, segment), (other.local_addr().unwrap(), &b"two"[..], None));
        assert_eq!(inbox.datagram(2).unwrap().1, b"");
        let (upstream, backend) = pair(v6);
        upstream.connect(backend.local_addr().unwrap()).unwrap();
        backend.send(b"first").unwrap();
        backend.send(b"second").unwrap();
        let mut outbox = Outbox::new();
        outbox.receive(upstream.as_fd(), peer, 0).unwrap();
        outbox.receive(upstream.as_fd(), client.local_addr().unwrap().into(), 0).unwrap();
        assert_eq!(outbox.flush(|_| Some(server.as_fd())), 0);
        let mut buffer = [0; 16];
        assert_eq!(other.recv(&mut buffer).unwrap(), 5);
        assert_eq!(client.recv(&mut buffer).unwrap(), 6);
    }
}

#[test]
fn a_train_arrives_whole_and_leaves_in_its_segments() {
    for v6 in [false, true] {
        let (server, client) = pair(v6);
        if !coalesce(server.as_fd(), true) {
            continue;
        }
        let train: Vec<u8> = (0..3500_u32).map(|at| at as u8).collect();
        send_datagrams(client.as_fd(), &[], &train, Some(1000)).unwrap();
        let mut inbox = Inbox::new();
        assert_eq!(inbox.receive(server.as_fd(), BATCH, true).unwrap(), 1);
        let (peer, bytes, segment) = inbox.datagram(0).unwrap();
        assert_eq!((bytes, segment), (&train[..], Some(1000)));
        let (upstream, backend) = pair(v6);
        upstream.connect(backend.local_addr().unwrap()).unwrap();
        assert!(coalesce(upstream.as_fd(), true));
        send_datagrams(backend.as_fd(), &[], &train, Some(1000)).unwrap();
        let mut outbox = Outbox::new();
        assert_eq!(outbox.receive_many(upstream.as_fd(), peer, 0, 8).unwrap(), (1, 3500));
        assert_eq!(outbox.flush(|_| Some(server.as_fd())), 0);
        let mut buffer = [0; 2000];
        for expected in [1000, 1000, 1000, 500] {
            assert_eq!(client.recv(&mut buffer).unwrap(), expected);
        }
    }
}

#[test]
fn a_prefix_goes_before_the_first_datagram_of_a_train_only() {
    let (server, client) = pair(false);
    send_datagrams(client.as_fd(), b"head:", b"aaabbb", Some(3)).unwrap();
    let mut buffer = [0; 64];
    assert_eq!(server.recv(&mut buffer).unwrap(), 8);
    assert_eq!(&buffer[..8], b"head:aaa");
    assert_eq!(server.recv(&mut buffer).unwrap(), 3);
    assert_eq!(&buffer[..3], b"bbb");
}
