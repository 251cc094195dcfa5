//! Headers that HAProxy 2.6 wrote, which are seeds of the fuzz target too: we read them, and write
//! the same bytes for the same origin.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use seaway_wire::proxy::{Command, Forwarded, Header, Origin, Parsed, Transport, Version, encode, parse};

fn captured(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/proxy").join(name);
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn header(bytes: &[u8]) -> Header<'_> {
    match parse(bytes) {
        Parsed::Header(header) => header,
        other => panic!("{} gave {other:?}", bytes.escape_ascii()),
    }
}

#[test]
fn headers_of_haproxy_are_read_and_written_byte_for_byte() {
    let table = [
        ("v1-haproxy-tcp4", Version::V1, "127.0.0.1:44188", "127.0.0.1:23450"),
        ("v1-haproxy-tcp6", Version::V1, "[::1]:60100", "[::1]:23451"),
        ("v2-haproxy-tcp4", Version::V2, "127.0.0.1:55286", "127.0.0.1:23452"),
        ("v2-haproxy-tcp6", Version::V2, "[::1]:38552", "[::1]:23453"),
    ];
    for (name, version, source, destination) in table {
        let bytes = captured(name);
        let header = header(&bytes);
        assert_eq!(header.version, version, "{name}");
        assert_eq!(&bytes[header.length..], b"hello", "{name}");
        let at = |text: &str| -> SocketAddr { text.parse().expect("an address") };
        let forwarded = Forwarded::new(Transport::Stream, at(source), at(destination));
        assert_eq!(header.origin, Origin::Forwarded(forwarded), "{name}");
        let mut written = Vec::new();
        encode(version, &header.origin, &mut written);
        assert_eq!(written, &bytes[..header.length], "{name}");
    }
}

#[test]
fn a_checksum_and_a_unique_id_of_haproxy_are_accepted() {
    let bytes = captured("v2-haproxy-options");
    let kinds: Vec<u8> = header(&bytes).tlvs.iter().map(|tlv| tlv.kind).collect();
    assert_eq!(kinds, [0x03, 0x05]);
}

#[test]
fn a_health_check_of_haproxy_is_its_own_connection() {
    let bytes = captured("v2-haproxy-check");
    assert_eq!(header(&bytes).command(), Command::Local);
    let mut written = Vec::new();
    encode(Version::V2, &Origin::Local, &mut written);
    assert_eq!(written, bytes);
}
