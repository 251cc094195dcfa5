//! ClientHellos as clients say them, cut and mangled.

use proptest::{prelude::*, test_runner::FileFailurePersistence};
use seaway_wire::hello::{ClientHello, HelloProgress, read};

fn with_length<const N: usize>(content: &[u8]) -> Vec<u8> {
    let length = content.len().to_be_bytes();
    [&length[length.len() - N..], content].concat()
}

fn extension(kind: u16, content: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes()[..], &with_length::<2>(content)].concat()
}

fn server_name(name: &[u8]) -> Vec<u8> {
    extension(0, &with_length::<2>(&[&[0][..], &with_length::<2>(name)].concat()))
}

/// The message, with these extensions.
fn message(extensions: &[Vec<u8>]) -> Vec<u8> {
    let body = [
        &[3, 3][..],
        &[7; 32],
        &with_length::<1>(&[9; 32]),
        &with_length::<2>(&[0x13, 0x01, 0x13, 0x02]),
        &with_length::<1>(&[0]),
        &with_length::<2>(&extensions.concat()),
    ]
    .concat();
    [&[1][..], &with_length::<3>(&body)].concat()
}

/// In records of so many bytes each.
fn records(message: &[u8], size: usize) -> Vec<u8> {
    message.chunks(size).flat_map(|part| [&[22, 3, 1][..], &with_length::<2>(part)].concat()).collect()
}

fn named(name: &str) -> HelloProgress {
    HelloProgress::Is(ClientHello { name: Some(name.to_owned()), is_validation: false })
}

#[test]
fn the_name_is_read_whatever_stands_around_it() {
    let other = extension(16, b"\x00\x03\x02h2");
    let checked =
        HelloProgress::Is(ClientHello { name: Some("shop.example".to_owned()), is_validation: true });
    let protocols = |list: &[u8]| vec![server_name(b"shop.example"), extension(16, &with_length::<2>(list))];
    for (extensions, expected) in [
        (protocols(b"\x0aacme-tls/1"), checked),
        (protocols(b"\x02h2\x0aacme-tls/1"), named("shop.example")),
        (protocols(b"\x0aacme-tls/1\x02h2"), named("shop.example")),
        (protocols(b"\x0aacme-tls/2"), named("shop.example")),
        (vec![server_name(b"Shop.Example")], named("shop.example")),
        (vec![other.clone(), server_name(b"a_b.example"), extension(0x0a0a, b"")], named("a_b.example")),
        (vec![other.clone()], HelloProgress::Is(ClientHello::default())),
        (vec![], HelloProgress::Is(ClientHello::default())),
    ] {
        assert_eq!(read(&records(&message(&extensions), 1 << 14)), expected);
    }
    let mut old = message(&[]);
    old.truncate(old.len() - 2);
    let length = old.len() - 4;
    old[1..4].copy_from_slice(&length.to_be_bytes()[5..]);
    assert_eq!(
        read(&records(&old, 1 << 14)),
        HelloProgress::Is(ClientHello::default()),
        "without any extensions"
    );
}

#[test]
fn what_no_client_says_is_refused() {
    let record = |content: &[u8]| records(content, 1 << 14);
    let good = message(&[server_name(b"a.example")]);
    let twice = message(&[server_name(b"a.example"), server_name(b"b.example")]);
    let mut large = good.clone();
    large[1] = 1;
    let mut shorter = good.clone();
    shorter[3] -= 1;
    for (what, bytes) in [
        ("plain HTTP", b"GET / HTTP/1.1\r\n".to_vec()),
        ("SSL 2", vec![0x80, 0x2e, 1, 3, 1]),
        ("an alert", vec![21, 3, 1, 0, 2, 1, 0]),
        ("another major version", vec![22, 2, 0]),
        ("another minor version", vec![22, 3, 5, 0, 4]),
        ("an empty record", vec![22, 3, 1, 0, 0]),
        ("a record that is too large", vec![22, 3, 1, 0x40, 1]),
        ("a message of a server", record(&[2, 0, 0, 1, 0])),
        ("a name twice", record(&twice)),
        ("the TLS ClientHello is too large", record(&large)),
        ("more than it says", record(&shorter)),
    ] {
        assert!(matches!(read(&bytes), HelloProgress::Refused(_)), "{what}: {:?}", read(&bytes));
    }
    for name in [
        &b""[..],
        b".",
        b"a..b",
        b"a.example.",
        b"a b",
        b"a\0.example",
        b"192.0.2.1",
        b"[::1]",
        b"\xff",
        &[b'a'; 64],
    ] {
        let told = read(&record(&message(&[server_name(name)])));
        assert_eq!(told, HelloProgress::Refused("an invalid server name in the TLS ClientHello"), "{name:?}");
    }
    let two_names = extension(0, &with_length::<2>(&[0, 0, 1, b'a', 0, 0, 1, b'b']));
    assert!(matches!(read(&record(&message(&[two_names]))), HelloProgress::Refused(_)));
}

proptest! {
    // What failed is kept beside this file, and tried first.
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn however_it_is_cut_it_says_the_same_once_it_is_whole(
        name in "[a-z]{1,20}(\\.[a-z]{1,20}){0,3}",
        padding in 0_usize..6_000,
        size in 1_usize..700,
        end in any::<prop::sample::Index>(),
    ) {
        let message = message(&[extension(21, &vec![0; padding]), server_name(name.as_bytes())]);
        let bytes = records(&message, size);
        prop_assert_eq!(read(&bytes), named(&name));
        prop_assert_eq!(read(&bytes[..end.index(bytes.len())]), HelloProgress::More);
        let followed = [&bytes[..], b"what comes next"].concat();
        prop_assert_eq!(read(&followed), named(&name));
    }
}
