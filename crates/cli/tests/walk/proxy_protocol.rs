//! The PROXY protocol, to members and from those who are trusted.

use std::{
    io::{ErrorKind, Read, Write},
    net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream},
};

use crate::{
    backends::connect_from,
    harness::{PATIENCE, Seaway, Setup, until},
    manifests::Service,
};

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
const TRUSTED: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 8, 1));

/// A member of which the test is the program.
struct Member(TcpListener);

impl Member {
    fn start(at: &str) -> Member {
        Member(TcpListener::bind(at).expect("a port"))
    }

    fn at(&self) -> SocketAddr {
        self.0.local_addr().expect("it is bound")
    }

    /// All that the next connection brings, up to a mark of the client's.
    fn hears(&self) -> Vec<u8> {
        self.0.set_nonblocking(true).expect("an option");
        let mut come = None;
        until("somebody comes", || {
            come = self.0.accept().ok();
            come.is_some()
        });
        let (mut stream, _) = come.expect("somebody came");
        stream.set_nonblocking(false).expect("an option");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut heard = Vec::new();
        let mut buffer = [0; 4_096];
        while !heard.ends_with(b"the end") {
            let count = stream.read(&mut buffer).expect("readable");
            assert!(count > 0, "it ended after {:?}", String::from_utf8_lossy(&heard));
            heard.extend_from_slice(&buffer[..count]);
        }
        heard
    }
}

fn serve(service: &Service) -> Seaway {
    let v6 = IpAddr::V6(Ipv6Addr::LOCALHOST);
    // Longer than a client stands still on a busy machine.
    let config = "defaults: {healthCheck: off, timeouts: {header: 5s}}\n";
    Setup::new().address(v6).config(config).write("shop.yaml", &service.text()).start()
}

fn both(service: Service) -> Service {
    service.spec("ipFamilyPolicy: RequireDualStack")
}

/// Of the ports of ::1, those of this file.
fn own_port(number: u16) -> u16 {
    2_000 + (std::process::id() % 500) as u16 * 16 + number
}

fn send(client: &mut TcpStream, text: &[u8]) {
    client.write_all(text).expect("sent");
}

#[test]
fn version_1_tells_members_who_the_client_is_in_both_families() {
    let member = Member::start("127.0.0.1:0");
    let port = own_port(0);
    let seaway = serve(&both(Service::tcp("shop", port)).with("proxy-protocol", "v1").to(member.at()));
    for (door, family) in [(seaway.at(port), "TCP4"), ((Ipv6Addr::LOCALHOST, port).into(), "TCP6")] {
        let mut client = TcpStream::connect(door).expect("served");
        send(&mut client, b"hello, the end");
        let from = client.local_addr().expect("it is bound");
        let expected =
            format!("PROXY {family} {} {} {} {port}\r\nhello, the end", from.ip(), door.ip(), from.port());
        assert_eq!(String::from_utf8_lossy(&member.hears()), expected);
    }
}

#[test]
fn version_2_tells_members_who_the_client_is_in_both_families() {
    let member = Member::start("[::1]:0");
    let port = own_port(1);
    let seaway = serve(&both(Service::tcp("shop", port)).with("proxy-protocol", "v2").to(member.at()));
    for door in [seaway.at(port), (Ipv6Addr::LOCALHOST, port).into()] {
        let mut client = TcpStream::connect(door).expect("served");
        send(&mut client, b"hello, the end");
        let from = client.local_addr().expect("it is bound");
        let heard = member.hears();
        assert!(heard.starts_with(SIGNATURE), "{heard:?}");
        let length = 16 + usize::from(u16::from_be_bytes([heard[14], heard[15]]));
        assert_eq!(&heard[length..], b"hello, the end");
        let mut expected = match (from.ip(), door.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => [vec![0x21, 0x11], [from.octets(), to.octets()].concat()],
            (IpAddr::V6(from), IpAddr::V6(to)) => [vec![0x21, 0x21], [from.octets(), to.octets()].concat()],
            _ => unreachable!("the client is of the door's family"),
        };
        expected[1].extend(from.port().to_be_bytes());
        expected[1].extend(port.to_be_bytes());
        assert_eq!(heard[12..14], expected[0]);
        assert!(heard[16..].starts_with(&expected[1]), "{heard:?}");
    }
}

#[test]
fn a_trusted_peer_says_who_the_client_is() {
    let member = Member::start("127.0.0.1:0");
    let service = Service::tcp("shop", 8080)
        .with("proxy-protocol-from", "127.0.8.0/24")
        .with("proxy-protocol", "v1")
        .to(member.at());
    let seaway = serve(&service);
    let v2_of_v6 = {
        let address = |text: &str| text.parse::<Ipv6Addr>().expect("an address").octets();
        let mut bytes = SIGNATURE.to_vec();
        bytes.extend([0x21, 0x21, 0, 36]);
        bytes.extend(address("2001:db8::7"));
        bytes.extend(address("2001:db8::8"));
        bytes.extend([0x1f, 0x90, 0, 80]);
        bytes
    };
    let headers: [(&[u8], &str); 2] = [
        (
            b"PROXY TCP4 192.0.2.7 192.0.2.8 8080 80\r\n",
            "PROXY TCP4 192.0.2.7 192.0.2.8 8080 80\r\nhello, the end",
        ),
        (&v2_of_v6, "PROXY TCP6 2001:db8::7 2001:db8::8 8080 80\r\nhello, the end"),
    ];
    for (header, expected) in headers {
        let mut client = connect_from(TRUSTED, seaway.at(8080)).expect("served");
        // In two parts, for the header to be waited for.
        send(&mut client, &header[..9]);
        client.flush().expect("sent");
        send(&mut client, &[&header[9..], b"hello, the end"].concat());
        assert_eq!(String::from_utf8_lossy(&member.hears()), expected);
    }
}

#[test]
fn an_ipv6_peer_is_trusted_by_its_range() {
    let member = Member::start("127.0.0.1:0");
    let port = own_port(2);
    let service = both(Service::tcp("shop", port))
        .with("proxy-protocol-from", "::1/128")
        .with("proxy-protocol", "v1")
        .to(member.at());
    let seaway = serve(&service);
    let mut client = TcpStream::connect((Ipv6Addr::LOCALHOST, port)).expect("served");
    send(&mut client, b"PROXY TCP6 2001:db8::7 2001:db8::8 1 2\r\nhello, the end");
    assert_eq!(
        String::from_utf8_lossy(&member.hears()),
        "PROXY TCP6 2001:db8::7 2001:db8::8 1 2\r\nhello, the end"
    );
    // Over IPv4 nobody is trusted.
    let mut client = TcpStream::connect(seaway.at(port)).expect("served");
    send(&mut client, b"PROXY TCP4 1.2.3.4 1.2.3.4 1 2\r\nhello, the end");
    let heard = String::from_utf8_lossy(&member.hears()).into_owned();
    assert!(heard.starts_with("PROXY TCP4 127.0.0.1 "), "{heard}");
    assert!(heard.ends_with("\r\nPROXY TCP4 1.2.3.4 1.2.3.4 1 2\r\nhello, the end"), "{heard}");
}

#[test]
fn source_ranges_are_asked_about_the_client_that_a_trusted_peer_names() {
    let member = Member::start("127.0.0.1:0");
    let service = Service::tcp("shop", 8080)
        .with("proxy-protocol-from", "127.0.8.0/24")
        .with("source-ranges", "192.0.2.0/24")
        .to(member.at());
    let seaway = serve(&service);
    let mut client = connect_from(TRUSTED, seaway.at(8080)).expect("served");
    send(&mut client, b"PROXY TCP4 192.0.2.7 192.0.2.8 1 2\r\nthe end");
    assert_eq!(member.hears(), b"the end");
    let mut client = connect_from(TRUSTED, seaway.at(8080)).expect("served");
    send(&mut client, b"PROXY TCP4 198.51.100.7 192.0.2.8 1 2\r\nthe end");
    refused(client);
    until("it is counted", || seaway.listener(8080)["refused"]["bySource"] == 1);
}

#[test]
fn who_is_trusted_must_say_a_header_and_rubbish_is_refused_at_once() {
    let member = Member::start("127.0.0.1:0");
    let service = Service::tcp("shop", 8080).with("proxy-protocol-from", "127.0.8.0/24").to(member.at());
    let seaway = serve(&service);
    let before = seaway.resident();
    let long = [b"PROXY TCP4 ".as_slice(), &[b'1'; 500]].concat();
    let huge = [SIGNATURE, &[0x21, 0x11, 0xff, 0xff], &[0; 1_000]].concat();
    let wrong: [&[u8]; 8] = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"PROXY TCP4 1.2.3.4 5.6.7.8 99999 1\r\n",
        b"PROXY TCP4 ::1 ::1 1 1\r\n",
        &long,
        &[SIGNATURE, &[0x31, 0x11, 0, 12], &[0; 12]].concat(),
        &[SIGNATURE, &[0x21, 0x11, 0, 1], &[0; 12]].concat(),
        &[0; 300],
        &[0xff; 300],
    ];
    for bytes in wrong {
        let mut client = connect_from(TRUSTED, seaway.at(8080)).expect("accepted");
        // It may be refused before all of it is sent.
        let _ = client.write_all(bytes);
        refused(client);
    }
    // Nothing, or not enough: until the time for it is over.
    let waiting = [b"".as_slice(), b"PROXY TCP4", &SIGNATURE[..5], &huge].map(|bytes| {
        let mut client = connect_from(TRUSTED, seaway.at(8080)).expect("accepted");
        let _ = client.write_all(bytes);
        client
    });
    waiting.into_iter().for_each(refused);
    // Many of them at a time hold little.
    let many: Vec<TcpStream> = (0..300)
        .map(|_| {
            let mut client = connect_from(TRUSTED, seaway.at(8080)).expect("accepted");
            let _ = client.write_all(&huge);
            client
        })
        .collect();
    assert!(seaway.resident() < before + (32 << 20), "{} before, {} now", before, seaway.resident());
    drop(many);
    let mut client = connect_from(TRUSTED, seaway.at(8080)).expect("served");
    send(&mut client, b"PROXY UNKNOWN\r\nthe end");
    assert_eq!(member.hears(), b"the end");
    let error = member.0.accept().expect_err("nothing of all that reached the member");
    assert_eq!(error.kind(), ErrorKind::WouldBlock);
}

fn refused(mut client: TcpStream) {
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    match client.read(&mut [0; 16]) {
        Ok(0) => {}
        Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe) => {}
        other => panic!("not refused: {other:?}"),
    }
}

#[test]
fn udp_tells_members_by_version_2_before_a_flow() {
    let member = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    member.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let service =
        Service::udp("dns", 5353).with("proxy-protocol", "v2").to(member.local_addr().expect("it is bound"));
    let seaway = serve(&service);
    let client = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    client.send_to(b"question", seaway.at(5353)).expect("sent");
    let mut buffer = [0; 256];
    let (count, from) = member.recv_from(&mut buffer).expect("it comes");
    let heard = &buffer[..count];
    assert!(heard.starts_with(SIGNATURE) && heard.ends_with(b"question"), "{heard:?}");
    assert_eq!(&heard[12..14], [0x21, 0x12], "PROXY, IPv4, datagrams");
    assert_eq!(heard[16..20], [127, 0, 0, 1]);
    member.send_to(b"answer", from).expect("sent");
    let (count, from) = client.recv_from(&mut buffer).expect("it comes back");
    assert_eq!((&buffer[..count], from), (b"answer".as_slice(), seaway.at(5353)));
}
