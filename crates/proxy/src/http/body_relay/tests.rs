use super::*;

fn buffer(bytes: &[u8]) -> Buffer {
    let mut buffer = Buffer::default();
    buffer.put(bytes);
    buffer
}

/// They are not left out: whoever waits for them is told, by the end of the connection.
#[test]
fn bytes_that_were_counted_and_are_not_there_are_an_error() {
    let there = buffer(b"abc");
    assert_eq!(there.part(1, 3).expect("they are there"), b"bc");
    for (from, to) in [(0, 4), (3, 2), (4, 4)] {
        let error = there.part(from, to).expect_err("they are not");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{from} to {to}");
    }
}

#[test]
fn a_body_goes_on_whole_however_it_is_framed() {
    for (body, came, goes_on) in [
        (BodyFraming::Length(3), &b"abcd"[..], &b"abc"[..]),
        (BodyFraming::Chunked, b"3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n", b"abcd"),
        (BodyFraming::UntilClose, b"abcd", b"abcd"),
    ] {
        let (mut flow, mut from) = (BodyRelay::default(), buffer(came));
        flow.begin(body, false);
        flow.join(&mut from).expect("it is well framed");
        assert_eq!((flow.out.as_slice(), flow.moved), (goes_on, goes_on.len() as u64), "{body:?}");
    }
}

/// Other clients wait for each piece.
#[test]
fn no_more_than_a_piece_is_compressed_at_once() {
    let body = vec![b'a'; 4 * COMPRESSED];
    let chunked = [format!("{:x}\r\n", body.len()).as_bytes(), &body, b"\r\n0\r\n\r\n"].concat();
    for (framing, came) in [
        (BodyFraming::Chunked, &chunked),
        (BodyFraming::Length(body.len() as u64), &body),
        (BodyFraming::UntilClose, &body),
    ] {
        let (mut flow, mut from) = (BodyRelay::default(), buffer(came));
        flow.begin(framing, false);
        flow.compress(Some(super::super::gzip::tests::gzip()));
        flow.join(&mut from).expect("it is well framed");
        assert!((1..=COMPRESSED as u64).contains(&flow.moved), "{framing:?}: {}", flow.moved);
        while !from.is_empty() && !flow.is_over() {
            flow.join(&mut from).expect("it is well framed");
        }
        if framing == BodyFraming::UntilClose {
            flow.finish().expect("it ends");
        }
        assert_eq!(super::super::gzip::tests::read(&flow.out), (body.clone(), true), "{framing:?}");
    }
}

#[test]
fn sizes_of_chunks_are_written_plainly() {
    for number in [1, 9, 10, 15, 16, 255, 256, 4096, 65_537] {
        let mut out = Vec::new();
        put_hex(&mut out, number);
        assert_eq!(out, format!("{number:x}").into_bytes());
    }
}
