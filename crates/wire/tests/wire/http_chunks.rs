//! The chunked coding, however it is cut.

use proptest::{prelude::*, test_runner::FileFailurePersistence};
use seaway_wire::http::{ChunkPiece, ChunkedDecoder, Limits};

/// The body, how many bytes were its coding, and its trailers; or that it was refused, or is not whole.
#[derive(Clone, Debug, PartialEq)]
enum End {
    Whole { body: Vec<u8>, length: usize, trailers: Vec<String> },
    Refused,
    Open { body: Vec<u8> },
}

/// Feeds the bytes in pieces that end at the cuts.
fn decode(bytes: &[u8], cuts: &[usize]) -> End {
    let (mut chunks, mut body, mut done) = (ChunkedDecoder::default(), Vec::new(), 0);
    chunks.begin();
    for end in cuts.iter().copied().chain([bytes.len()]) {
        let end = end.min(bytes.len()).max(done);
        loop {
            let seen = &bytes[done..end];
            match chunks.next(seen, &Limits::default()) {
                ChunkPiece::More { skip: 0 } => break,
                ChunkPiece::More { skip } => done += skip,
                ChunkPiece::Data { skip, length } => {
                    body.extend_from_slice(&seen[skip..skip + length]);
                    done += skip + length;
                }
                ChunkPiece::End { length } => {
                    let text = |span: seaway_wire::http::ByteRange| {
                        String::from_utf8_lossy(span.of(seen)).into_owned()
                    };
                    let trailers =
                        chunks.trailers.iter().map(|it| format!("{}={}", text(it.name), text(it.value)));
                    return End::Whole { body, length: done + length, trailers: trailers.collect() };
                }
                ChunkPiece::Refused(_) => return End::Refused,
            }
        }
    }
    End::Open { body }
}

#[test]
fn chunks_are_joined() {
    let whole = |body: &str, length, trailers: &[&str]| End::Whole {
        body: body.into(),
        length,
        trailers: trailers.iter().map(|it| (*it).to_owned()).collect(),
    };
    for (bytes, expected) in [
        ("0\r\n\r\n", whole("", 5, &[])),
        ("3\r\nabc\r\n0\r\n\r\nGET /", whole("abc", 13, &[])),
        ("3\r\nabc\r\n0a\r\n0123456789\r\n000\r\n\r\n", whole("abc0123456789", 31, &[])),
        ("1;a=b\r\nx\r\n0;c\r\n\r\n", whole("x", 17, &[])),
        ("1\r\nx\r\n0\r\nA: b\r\nC:d\r\n\r\n", whole("x", 22, &["A=b", "C=d"])),
        ("3\r\nab", End::Open { body: "ab".into() }),
        ("3\r\nabc\r\n0\r\n", End::Open { body: "abc".into() }),
    ] {
        for cut in 0..=bytes.len() {
            assert_eq!(decode(bytes.as_bytes(), &[cut]), expected, "{bytes:?} cut at {cut}");
        }
    }
}

#[test]
fn what_two_might_read_in_two_ways_is_refused() {
    for bytes in [
        "3\nabc\r\n0\r\n\r\n",
        "3\r\nabc\n0\r\n\r\n",
        "3\r\nabcd\r\n0\r\n\r\n",
        "x\r\n\r\n",
        "\r\n\r\n",
        "-1\r\n",
        "+1\r\nx\r\n",
        "0x1\r\nx\r\n",
        "1 \r\nx\r\n",
        " 1\r\nx\r\n",
        "1 ;a\r\nx\r\n",
        "1;\0\r\nx\r\n",
        "1;a\rb\r\nx\r\n",
        "10000000000000000\r\n",
        "00000000000000001\r\nx\r\n0\r\n\r\n",
        "0\r\nA b\r\n\r\n",
        "0\r\nA: b\n\r\n",
        "0\r\n A: b\r\n\r\n",
    ] {
        assert_eq!(decode(bytes.as_bytes(), &[]), End::Refused, "{bytes:?}");
    }
    assert_eq!(decode(&[b"1;", &[b'a'; 300][..]].concat(), &[]), End::Refused, "a size line without an end");
    assert_eq!(
        decode(&[b"0\r\nA: ", &[b'a'; 20_000][..]].concat(), &[]),
        End::Refused,
        "trailers without an end"
    );
}

proptest! {
    // What failed is kept beside this file, and tried first.
    #![proptest_config(ProptestConfig {
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("regressions"))),
        ..ProptestConfig::default()
    })]

    #[test]
    fn cuts_change_nothing(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6),
        mut cuts in prop::collection::vec(0..200_usize, 0..6),
    ) {
        let mut bytes = Vec::new();
        for chunk in &chunks {
            bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
            bytes.extend_from_slice(chunk);
            bytes.extend_from_slice(b"\r\n");
        }
        bytes.extend_from_slice(b"0\r\nA: b\r\n\r\n");
        cuts.sort_unstable();
        let expected = End::Whole { body: chunks.concat(), length: bytes.len(), trailers: vec!["A=b".into()] };
        prop_assert_eq!(decode(&bytes, &cuts), expected);
    }
}
