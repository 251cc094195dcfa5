use std::net::SocketAddr;

use proptest::prelude::*;

use super::*;

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn v2(command: u8, family: u8, body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).expect("a short body");
    [SIGNATURE, &[command, family], &length.to_be_bytes(), body].concat()
}

#[track_caller]
fn refuses(bytes: &[u8], why: Invalid) {
    let text = bytes.escape_ascii();
    assert_eq!(parse(bytes), Parsed::Invalid(why), "{text}");
}

#[track_caller]
fn says(bytes: &[u8], origin: Origin) {
    let text = bytes.escape_ascii();
    match parse(bytes) {
        Parsed::Header(header) => {
            assert_eq!(header.origin, origin, "{text}");
            assert_eq!(header.length, bytes.len(), "{text}");
        }
        other => panic!("{text} gave {other:?}"),
    }
}

#[track_caller]
fn names(bytes: &[u8], transport: Transport, source: &str, destination: &str) {
    says(bytes, Origin::Forwarded(Forwarded::new(transport, at(source), at(destination))));
    let Parsed::Header(header) = parse(bytes) else { panic!("it was one before") };
    let told = (header.transport(), header.source(), header.destination());
    assert_eq!(told, (Some(transport), Some(at(source)), Some(at(destination))));
}

#[test]
fn lines_of_version_1_name_both_ends() {
    let tcp = Transport::Stream;
    names(b"PROXY TCP4 192.0.2.1 198.51.100.2 56324 443\r\n", tcp, "192.0.2.1:56324", "198.51.100.2:443");
    names(
        b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 0\r\n",
        tcp,
        "255.255.255.255:65535",
        "255.255.255.255:0",
    );
    names(
        b"PROXY TCP6 2001:DB8::1 2001:db8:0:0:0:0:0:2 1 65535\r\n",
        tcp,
        "[2001:db8::1]:1",
        "[2001:db8::2]:65535",
    );
}

#[test]
fn unknown_origins_of_version_1_may_be_followed_by_anything() {
    says(b"PROXY UNKNOWN\r\n", Origin::Unknown);
    says(b"PROXY UNKNOWN a b  c \xff\r\n", Origin::Unknown);
    let longest = b"PROXY UNKNOWN ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff \
        ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 65535 65535\r\n";
    assert_eq!(longest.len(), V1_MAX);
    says(longest, Origin::Unknown);
}

#[test]
fn faults_of_version_1_are_told_apart() {
    let table: &[(&[u8], Invalid)] = &[
        (b"POST / HTTP/1.1\r\n", Invalid::NoHeader),
        (b"PROXY\tTCP4", Invalid::NoHeader),
        (b"proxy TCP4", Invalid::NoHeader),
        (b"PROXY UNKNOWN\n", Invalid::LineEnding),
        (b"PROXY UNKNOWN\rx", Invalid::LineEnding),
        (b"PROXY UNKNOWN a\rb\r\n", Invalid::LineEnding),
        (b"PROXY \r\n", Invalid::Protocol),
        (b"PROXY  TCP4 1.1.1.1 2.2.2.2 1 2\r\n", Invalid::Protocol),
        (b"PROXY tcp4 1.1.1.1 2.2.2.2 1 2\r\n", Invalid::Protocol),
        (b"PROXY UDP4 1.1.1.1 2.2.2.2 1 2\r\n", Invalid::Protocol),
        (b"PROXY UNKNOWNS\r\n", Invalid::Protocol),
        (b"PROXY TCP4\r\n", Invalid::Fields),
        (b"PROXY TCP4 1.1.1.1 2.2.2.2 1\r\n", Invalid::Fields),
        (b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2 \r\n", Invalid::Fields),
        (b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2 3\r\n", Invalid::Fields),
        (b"PROXY TCP4 1.1.1.1  2.2.2.2 1\r\n", Invalid::Address),
        (b"PROXY TCP4 01.1.1.1 2.2.2.2 1 2\r\n", Invalid::Address),
        (b"PROXY TCP4 1.1.1 2.2.2.2 1 2\r\n", Invalid::Address),
        (b"PROXY TCP4 256.1.1.1 2.2.2.2 1 2\r\n", Invalid::Address),
        (b"PROXY TCP4 ::1 ::2 1 2\r\n", Invalid::Address),
        (b"PROXY TCP6 1.1.1.1 2.2.2.2 1 2\r\n", Invalid::Address),
        (b"PROXY TCP6 fe80::1%1 ::2 1 2\r\n", Invalid::Address),
        (b"PROXY TCP6 1::2::3 ::2 1 2\r\n", Invalid::Address),
        (b"PROXY TCP6 00001::1 ::2 1 2\r\n", Invalid::Address),
        (b"PROXY TCP6 \xff ::2 1 2\r\n", Invalid::Address),
        (b"PROXY TCP4 1.1.1.1 2.2.2.2 +1 2\r\n", Invalid::Port),
        (b"PROXY TCP4 1.1.1.1 2.2.2.2 01 2\r\n", Invalid::Port),
        (b"PROXY TCP4 1.1.1.1 2.2.2.2 00 2\r\n", Invalid::Port),
        (b"PROXY TCP4 1.1.1.1 2.2.2.2 1 65536\r\n", Invalid::Port),
        (b"PROXY TCP4 1.1.1.1 2.2.2.2 1 100000\r\n", Invalid::Port),
        (b"PROXY TCP4 1.1.1.1 2.2.2.2 1 -2\r\n", Invalid::Port),
        (b"PROXY TCP4 1.1.1.1 2.2.2.2 1 2a\r\n", Invalid::Port),
        (b"PROXY TCP4 1.1.1.1 2.2.2.2  2\r\n", Invalid::Port),
    ];
    for (bytes, why) in table {
        refuses(bytes, *why);
    }
}

#[test]
fn a_line_of_version_1_that_does_not_end_is_refused_at_its_limit() {
    let mut line = b"PROXY UNKNOWN ".to_vec();
    line.resize(V1_MAX - 2, b'x');
    assert_eq!(parse(&line), Parsed::Need(2));
    line.push(b'x');
    refuses(&line, Invalid::LineTooLong);
    line.extend_from_slice(b"\r\n");
    refuses(&line, Invalid::LineTooLong);
}

#[test]
fn binary_headers_name_both_ends_and_the_transport() {
    let body = [192, 0, 2, 1, 198, 51, 100, 2, 0xdc, 0x04, 0x01, 0xbb];
    for (family, transport) in [(0x11, Transport::Stream), (0x12, Transport::Datagram)] {
        names(&v2(0x21, family, &body), transport, "192.0.2.1:56324", "198.51.100.2:443");
    }
    let mut body = [0; 36];
    body[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    body[15] = 1;
    body[16..20].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
    body[31] = 2;
    body[32..].copy_from_slice(&[0, 80, 0xff, 0xff]);
    for (family, transport) in [(0x21, Transport::Stream), (0x22, Transport::Datagram)] {
        names(&v2(0x21, family, &body), transport, "[2001:db8::1]:80", "[2001:db8::2]:65535");
    }
}

#[test]
fn the_proxys_own_connections_have_no_addresses_whatever_follows() {
    says(&v2(0x20, 0x00, &[]), Origin::Local);
    says(&v2(0x20, 0x11, &[1; 12]), Origin::Local);
    says(&v2(0x20, 0xff, &[9; 5]), Origin::Local);
}

#[test]
fn families_without_an_ip_address_are_unknown() {
    says(&v2(0x21, 0x00, &[]), Origin::Unknown);
    says(&v2(0x21, 0x00, b"whatever"), Origin::Unknown);
    says(&v2(0x21, 0x01, &[]), Origin::Unknown);
    says(&v2(0x21, 0x10, &[0; 12]), Origin::Unknown);
    says(&v2(0x21, 0x20, &[0; 36]), Origin::Unknown);
    says(&v2(0x21, 0x31, &[0; 216]), Origin::Unknown);
    says(&v2(0x21, 0x32, &[0; 220]), Origin::Unknown);
}

#[test]
fn faults_of_version_2_are_told_apart() {
    refuses(b"GET / HTTP/1.1\r\n", Invalid::NoHeader);
    refuses(b"\r\n\r\n\0\r\nQUIT\r", Invalid::NoHeader);
    refuses(b"\x16\x03\x01", Invalid::NoHeader);
    refuses(&v2(0x11, 0x11, &[0; 12]), Invalid::Version);
    refuses(&v2(0x31, 0x11, &[0; 12]), Invalid::Version);
    refuses(&v2(0x22, 0x11, &[0; 12]), Invalid::Command);
    refuses(&v2(0x21, 0x41, &[0; 12]), Invalid::Family);
    refuses(&v2(0x21, 0x13, &[0; 12]), Invalid::Family);
    refuses(&v2(0x21, 0x11, &[0; 11]), Invalid::TooShort);
    refuses(&v2(0x21, 0x22, &[0; 35]), Invalid::TooShort);
    refuses(&v2(0x21, 0x31, &[0; 215]), Invalid::TooShort);
    refuses(&v2(0x21, 0x11, &[0; 14]), Invalid::Tlv);
    refuses(&v2(0x21, 0x11, &[&[0; 12][..], &[4, 0, 2, 0]].concat()), Invalid::Tlv);
}

#[test]
fn a_binary_header_beyond_the_limit_is_refused_by_its_announcement_alone() {
    let header = v2(0x20, 0, &[0; 100]);
    let refused = Parsed::Invalid(Invalid::TooLong);
    assert_eq!(parse_within(&header[..16], 115), refused);
    assert_eq!(parse_within(&header[..16], 116), Parsed::Need(100));
    let huge = [SIGNATURE, &[0x21, 0x11, 0xff, 0xff]].concat();
    assert_eq!(parse(&huge), refused);
}

#[test]
fn whoever_speaks_something_else_is_refused_at_its_first_wrong_byte() {
    refuses(b"G", Invalid::NoHeader);
    refuses(b"PRI ", Invalid::NoHeader);
    refuses(b"\r\n\r\n\r", Invalid::NoHeader);
    refuses(&[SIGNATURE, &[0x10]].concat(), Invalid::Version);
    refuses(&[SIGNATURE, &[0x21, 0x50]].concat(), Invalid::Family);
}

#[test]
fn tlvs_are_kept_and_checksums_verified() {
    let body = |sum: u32| {
        let tlvs = [&[0x01, 0, 2][..], b"h2", &[0x03, 0, 4], &sum.to_be_bytes(), &[0x04, 0, 0]];
        v2(0x21, 0x11, &[&[7; 12][..], &tlvs.concat()].concat())
    };
    let sum = crc32c::with_zeros(&body(0), 0..0);
    let header = body(sum);
    let Parsed::Header(parsed) = parse(&header) else {
        panic!("{:?}", parse(&header));
    };
    let kinds: Vec<(u8, usize)> = parsed.tlvs.iter().map(|tlv| (tlv.kind, tlv.value.len())).collect();
    assert_eq!(kinds, [(1, 2), (3, 4), (4, 0)]);
    refuses(&body(sum ^ 1), Invalid::Checksum);
    let short = [&[7; 12][..], &[0x03, 0, 3, 1, 2, 3]].concat();
    refuses(&v2(0x21, 0x11, &short), Invalid::Tlv);
}

#[test]
fn tlvs_without_room_are_left_out() {
    let tlv = [&[4, 0xff, 0xf0][..], &[0; 0xfff0]].concat();
    let header = v2(0x21, 0x11, &[&[7; 12][..], &tlv].concat());
    let Parsed::Header(parsed) = parse_within(&header, usize::MAX) else {
        panic!("it is whole");
    };
    let v6 = Forwarded::new(Transport::Stream, at("[::1]:1"), at("[::2]:2"));
    let mut out = Vec::new();
    encode_with(Version::V2, &Origin::Forwarded(v6), parsed.tlvs, &mut out);
    says(&out, Origin::Forwarded(v6));
}

#[test]
fn what_version_1_cannot_say_becomes_unknown() {
    let datagram = Forwarded::new(Transport::Datagram, at("192.0.2.1:1"), at("192.0.2.2:2"));
    for origin in [Origin::Local, Origin::Unknown, Origin::Forwarded(datagram)] {
        let mut out = Vec::new();
        encode(Version::V1, &origin, &mut out);
        assert_eq!(out, b"PROXY UNKNOWN\r\n");
    }
}

#[test]
fn addresses_of_a_dual_stack_socket_are_told_in_their_own_family() {
    let check = |source: &str, destination: &str, line: &str| {
        let forwarded = Forwarded::new(Transport::Stream, at(source), at(destination));
        let mut out = Vec::new();
        encode(Version::V1, &Origin::Forwarded(forwarded), &mut out);
        assert_eq!(out.escape_ascii().to_string(), format!("{line}\\r\\n"));
    };
    check("[::ffff:192.0.2.1]:5", "[::ffff:192.0.2.2]:80", "PROXY TCP4 192.0.2.1 192.0.2.2 5 80");
    check("[::ffff:192.0.2.1]:5", "[2001:db8::2]:80", "PROXY TCP6 ::ffff:192.0.2.1 2001:db8::2 5 80");
    check("192.0.2.1:5", "192.0.2.2:80", "PROXY TCP4 192.0.2.1 192.0.2.2 5 80");
}

fn origins() -> impl Strategy<Value = Origin> {
    let transport = prop_oneof![Just(Transport::Stream), Just(Transport::Datagram)];
    let forwarded = (transport, any::<SocketAddr>(), any::<SocketAddr>())
        .prop_map(|(transport, from, to)| Origin::Forwarded(Forwarded::new(transport, from, to)));
    prop_oneof![
        1 => Just(Origin::Local),
        1 => Just(Origin::Unknown),
        8 => forwarded,
    ]
}

proptest! {
    #[test]
    fn version_2_says_every_origin(origin in origins(), rest: Vec<u8>) {
        let mut bytes = Vec::new();
        encode(Version::V2, &origin, &mut bytes);
        let length = bytes.len();
        bytes.extend_from_slice(&rest);
        let expected = Header { version: Version::V2, origin, tlvs: Tlvs::NONE, length };
        prop_assert_eq!(parse(&bytes), Parsed::Header(expected));
    }

    #[test]
    fn version_1_says_every_stream(from: SocketAddr, to: SocketAddr, rest: Vec<u8>) {
        let origin = Origin::Forwarded(Forwarded::new(Transport::Stream, from, to));
        let mut bytes = Vec::new();
        encode(Version::V1, &origin, &mut bytes);
        let length = bytes.len();
        prop_assert!(length <= V1_MAX);
        bytes.extend_from_slice(&rest);
        let expected = Header { version: Version::V1, origin, tlvs: Tlvs::NONE, length };
        prop_assert_eq!(parse(&bytes), Parsed::Header(expected));
    }

    #[test]
    fn whatever_comes_the_invariants_hold(bytes: Vec<u8>, lead in 0_usize..4) {
        let leads: [&[u8]; 4] = [b"", b"PROXY ", b"PROXY TCP4 ", SIGNATURE];
        crate::fuzz::proxy(&[leads[lead], &bytes].concat());
    }
}
