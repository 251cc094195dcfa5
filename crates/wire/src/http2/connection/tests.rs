use proptest::prelude::*;

use super::{
    super::{
        fields::FieldBlock,
        frame::{Frame, FrameStart, put},
    },
    *,
};

const OURS: LocalSettings = LocalSettings {
    head: 4096,
    streams: 4,
    stream_window: 1 << 16,
    connection_window: 1 << 17,
    is_shared: false,
};

mod peers;

type Side = Connection<Vec<u8>>;

fn server() -> Side {
    let mut server = Side::server(OURS, true);
    server.out.clear();
    server
}

fn frames(bytes: &[u8]) -> Vec<(u8, u8, u32, Vec<u8>)> {
    let (mut rest, mut all) = (bytes, Vec::new());
    while let FrameStart::Frame(frame) = Frame::first(rest) {
        all.push((frame.kind, frame.flags, frame.stream, frame.payload.to_vec()));
        rest = &rest[HEAD + frame.payload.len()..];
    }
    assert!(rest.is_empty(), "half a frame was written");
    all
}

fn framed(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    put(&mut out, kind, flags, stream, payload);
    out
}

fn get(path: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut block = FieldBlock::new(&mut out, false);
    block.method(b"GET");
    block.scheme(false);
    block.path(path.as_bytes());
    block.authority(b"a");
    out
}

/// Everything that the bytes say, and how it ended.
fn hear<'b>(side: &mut Side, bytes: &'b [u8]) -> (Vec<FrameEvent<'b>>, Option<ConnectionError>) {
    let (mut rest, mut all) = (bytes, Vec::new());
    loop {
        match side.read(rest) {
            Ok((_, FrameEvent::More)) => return (all, None),
            Ok((count, heard)) => {
                rest = &rest[count..];
                all.push(heard);
            }
            Err(broken) => return (all, Some(broken)),
        }
    }
}

const SETTINGS: [u8; 9] = [0, 0, 0, kind::SETTINGS, 0, 0, 0, 0, 0];
const ALL: u8 = flag::END_HEADERS | flag::END_STREAM;

/// A server that has heard settings and, on stream 1, a question that is not over.
fn asked() -> Side {
    let mut server = server();
    let question = framed(kind::HEADERS, flag::END_HEADERS, 1, &get("/"));
    let bytes = [&SETTINGS[..], &question].concat();
    let (heard, broken) = hear(&mut server, &bytes);
    assert!(
        matches!(heard[..], [FrameEvent::WindowUpdate { .. }, FrameEvent::Request { ends: false, .. }])
            && broken.is_none()
    );
    server.out.clear();
    server
}

#[test]
fn who_breaks_the_rules_of_a_connection_loses_it_and_hears_why() {
    let half = [&get("/")[..5]].concat();
    for (name, bytes, reason) in [
        ("data on stream 0", framed(kind::DATA, 0, 0, b"x"), ErrorCode::PROTOCOL),
        ("data on an idle stream", framed(kind::DATA, 0, 3, b"x"), ErrorCode::PROTOCOL),
        ("too much filling", framed(kind::DATA, flag::PADDED, 1, &[9, 1, 2]), ErrorCode::PROTOCOL),
        ("a head on stream 0", framed(kind::HEADERS, ALL, 0, &get("/")), ErrorCode::PROTOCOL),
        ("a head on an even stream", framed(kind::HEADERS, ALL, 2, &get("/")), ErrorCode::PROTOCOL),
        ("a head that is garbled", framed(kind::HEADERS, ALL, 3, &[0xff; 9]), ErrorCode::COMPRESSION),
        ("half a priority", framed(kind::HEADERS, ALL | flag::PRIORITY, 3, &[0; 3]), ErrorCode::FRAME_SIZE),
        ("a loop", framed(kind::HEADERS, ALL | flag::PRIORITY, 3, &[0, 0, 0, 3, 0]), ErrorCode::PROTOCOL),
        (
            "something amid a head",
            [framed(kind::HEADERS, 0, 3, &half), framed(kind::PING, 0, 0, &[0; 8])].concat(),
            ErrorCode::PROTOCOL,
        ),
        ("the rest of no head", framed(kind::CONTINUATION, flag::END_HEADERS, 1, &half), ErrorCode::PROTOCOL),
        ("a push", framed(kind::PUSH_PROMISE, 0, 1, &[0, 0, 0, 2]), ErrorCode::PROTOCOL),
        ("settings of a stream", framed(kind::SETTINGS, 0, 1, &[]), ErrorCode::PROTOCOL),
        ("half a setting", framed(kind::SETTINGS, 0, 0, &[0; 5]), ErrorCode::FRAME_SIZE),
        (
            "settings that agree and more",
            framed(kind::SETTINGS, flag::ACK, 0, &[0; 6]),
            ErrorCode::FRAME_SIZE,
        ),
        ("a window too large", framed(kind::SETTINGS, 0, 0, &[0, 4, 0x80, 0, 0, 0]), ErrorCode::FLOW_CONTROL),
        ("frames too small", framed(kind::SETTINGS, 0, 0, &[0, 5, 0, 0, 0x3f, 0xff]), ErrorCode::PROTOCOL),
        ("push as no switch", framed(kind::SETTINGS, 0, 0, &[0, 2, 0, 0, 0, 2]), ErrorCode::PROTOCOL),
        ("a ping on a stream", framed(kind::PING, 0, 1, &[0; 8]), ErrorCode::PROTOCOL),
        ("a short ping", framed(kind::PING, 0, 0, &[0; 7]), ErrorCode::FRAME_SIZE),
        ("a reset of stream 0", framed(kind::RST_STREAM, 0, 0, &[0; 4]), ErrorCode::PROTOCOL),
        ("a reset of an idle stream", framed(kind::RST_STREAM, 0, 3, &[0; 4]), ErrorCode::PROTOCOL),
        ("a short reset", framed(kind::RST_STREAM, 0, 1, &[0; 3]), ErrorCode::FRAME_SIZE),
        ("a window that stays", framed(kind::WINDOW_UPDATE, 0, 0, &[0; 4]), ErrorCode::PROTOCOL),
        (
            "a window beyond all",
            framed(kind::WINDOW_UPDATE, 0, 0, &[0x7f, 255, 255, 255]),
            ErrorCode::FLOW_CONTROL,
        ),
        ("a window of an idle stream", framed(kind::WINDOW_UPDATE, 0, 3, &[0, 0, 0, 1]), ErrorCode::PROTOCOL),
        ("a short window", framed(kind::WINDOW_UPDATE, 0, 0, &[0; 3]), ErrorCode::FRAME_SIZE),
        ("a priority of nothing", framed(kind::PRIORITY, 0, 0, &[0; 5]), ErrorCode::PROTOCOL),
        ("a frame too large", vec![0, 0x40, 1, 0, 0, 0, 0, 0, 1], ErrorCode::FRAME_SIZE),
    ] {
        let mut side = asked();
        let (_, broken) = hear(&mut side, &bytes);
        assert_eq!(broken.map(|it| it.reason), Some(reason), "{name}");
        let (kind, _, stream, payload) = frames(&side.out).pop().unwrap();
        assert_eq!((kind, stream, payload[7]), (kind::GOAWAY, 0, reason.0 as u8), "{name}");
    }
    let (_, broken) = hear(&mut server(), &framed(kind::PING, 0, 0, &[0; 8]));
    assert_eq!(broken.unwrap().reason, ErrorCode::PROTOCOL, "settings come first");
}

#[test]
fn who_breaks_the_rules_of_a_stream_loses_that_alone() {
    for (name, bytes, reason) in [
        ("a window that stays", framed(kind::WINDOW_UPDATE, 0, 1, &[0; 4]), ErrorCode::PROTOCOL),
        (
            "a window beyond all",
            framed(kind::WINDOW_UPDATE, 0, 1, &[0x7f, 255, 255, 255]),
            ErrorCode::FLOW_CONTROL,
        ),
        ("a priority of itself", framed(kind::PRIORITY, 0, 1, &[0, 0, 0, 1, 0]), ErrorCode::PROTOCOL),
        (
            "trailers without end",
            framed(kind::HEADERS, flag::END_HEADERS, 1, b"\0\x01a\x01b"),
            ErrorCode::PROTOCOL,
        ),
        ("trailers that lead", framed(kind::HEADERS, ALL, 1, b"\x84"), ErrorCode::PROTOCOL),
        ("more than a window", framed(kind::DATA, 0, 1, &[0; 16 << 10]).repeat(5), ErrorCode::FLOW_CONTROL),
    ] {
        let mut side = asked();
        let (heard, broken) = hear(&mut side, &bytes);
        assert_eq!(broken, None, "{name}");
        assert!(
            matches!(heard.last(), Some(FrameEvent::Reset { reason: why, .. }) if *why == reason),
            "{name}"
        );
        assert_eq!(frames(&side.out).pop().unwrap().0, kind::RST_STREAM, "{name}");
        // What is still on its way is let go by, and the next question is heard.
        let next =
            [framed(kind::DATA, flag::END_STREAM, 1, b"late"), framed(kind::HEADERS, ALL, 3, &get("/next"))]
                .concat();
        let (heard, broken) = hear(&mut side, &next);
        assert_eq!(broken, None, "{name}");
        assert!(matches!(heard.last(), Some(FrameEvent::Request { ends: true, .. })), "{name}: {heard:?}");
    }
}

#[test]
fn streams_beyond_what_is_allowed_are_refused_and_may_be_asked_again() {
    let mut side = server();
    hear(&mut side, &SETTINGS);
    side.out.clear();
    for id in [1, 3, 5, 7, 9] {
        let question = framed(kind::HEADERS, ALL, id, &get("/"));
        let (heard, _) = hear(&mut side, &question);
        assert_eq!(heard == [FrameEvent::Refused], id == 9, "{id}: {heard:?}");
    }
    assert_eq!(frames(&side.out), [(kind::RST_STREAM, 0, 9, vec![0, 0, 0, 7])]);
    assert_eq!((side.open(), side.held_streams()), (4, 4));
    let key = side.streams.find(3).unwrap();
    side.send_headers(key, true, |block| block.status(200));
    assert!(side.let_go(key, 0).is_some(), "what stood with it comes back");
    let question = framed(kind::HEADERS, ALL, 11, &get("/"));
    assert!(matches!(hear(&mut side, &question).0[..], [FrameEvent::Request { .. }]), "there is room again");
}

#[test]
fn a_head_without_end_ends_the_connection() {
    for piece in [&b""[..], b"\0\x01a\x01b"] {
        let mut side = asked();
        let mut broken = hear(&mut side, &framed(kind::HEADERS, 0, 3, &get("/"))).1;
        for _ in 0..10_000 {
            broken = broken.or(hear(&mut side, &framed(kind::CONTINUATION, 0, 3, piece)).1);
        }
        assert_eq!(broken.unwrap().reason, ErrorCode::TOO_MUCH);
    }
}

#[test]
fn a_head_may_come_in_so_many_pieces_and_no_more() {
    for (count, is_whole) in [(31, true), (32, false)] {
        let mut side = asked();
        let mut bytes = framed(kind::HEADERS, flag::END_STREAM, 3, &get("/"));
        (1..count).for_each(|_| bytes.extend(framed(kind::CONTINUATION, 0, 3, b"")));
        bytes.extend(framed(kind::CONTINUATION, flag::END_HEADERS, 3, b""));
        let (heard, broken) = hear(&mut side, &bytes);
        assert_eq!(matches!(heard.last(), Some(FrameEvent::Request { .. })), is_whole, "{count}");
        assert_eq!(broken.map(|it| it.reason), (!is_whole).then_some(ErrorCode::TOO_MUCH), "{count}");
    }
}

#[test]
fn a_preface_may_come_in_pieces() {
    let mut side = Side::server(OURS, false);
    assert_eq!(side.read(b""), Ok((0, FrameEvent::More)));
    assert_eq!(side.read(&PREFACE[..5]), Ok((5, FrameEvent::Nothing)));
    assert_eq!(side.read(b""), Ok((0, FrameEvent::More)));
    assert_eq!(side.read(&PREFACE[5..]), Ok((PREFACE.len() - 5, FrameEvent::Nothing)));
    assert!(Side::server(OURS, false).read(b"GET / HTTP/1.1").is_err());
}

#[test]
fn a_client_may_allow_pushes_to_a_server_by_0_and_1() {
    for (value, is_right) in [(0, true), (1, true), (2, false)] {
        let setting = [&setting::ENABLE_PUSH.to_be_bytes()[..], &[0, 0, 0, value]].concat();
        let (_, broken) = hear(&mut server(), &framed(kind::SETTINGS, 0, 0, &setting));
        assert_eq!(broken.is_none(), is_right, "{value}");
    }
}

#[test]
fn a_body_is_as_long_as_it_was_told() {
    for (told, sent, fits) in [("5", "hello", true), ("5", "hell", false), ("4", "hello", false)] {
        let mut side = server();
        let mut head = get("/");
        FieldBlock::new(&mut head, false).field(b"content-length", told.as_bytes());
        let head = framed(kind::HEADERS, flag::END_HEADERS, 1, &head);
        let body = framed(kind::DATA, flag::END_STREAM, 1, sent.as_bytes());
        let bytes = [&SETTINGS[..], &head, &body].concat();
        let (heard, _) = hear(&mut side, &bytes);
        assert_eq!(matches!(heard.last(), Some(FrameEvent::Data { ends: true, .. })), fits, "{told}: {sent}");
    }
}

#[test]
fn windows_bound_what_is_said_and_open_as_bytes_are_taken() {
    let mut side = asked();
    let key = side.streams.find(1).unwrap();
    assert_eq!(side.send_data(key, &[0; 100_000], true), 65_535);
    assert_eq!(side.send_data(key, &[0; 10], true), 0);
    let room = framed(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 4]);
    hear(&mut side, &room);
    assert_eq!(side.send_data(key, &[0; 10], true), 0, "that of the connection is closed");
    let room = framed(kind::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 9]);
    hear(&mut side, &room);
    assert_eq!(side.send_data(key, &[0; 10], true), 4);
    // A window that is made smaller may be below nothing.
    hear(&mut side, &framed(kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]));
    hear(&mut side, &framed(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0xff, 0xff]));
    assert_eq!(side.send_data(key, &[0; 10], true), 0);
    hear(&mut side, &framed(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 3]));
    assert_eq!(side.send_data(key, &[0; 10], true), 3);

    let mut side = asked();
    let key = side.streams.find(1).unwrap();
    for _ in 0..3 {
        assert_eq!(
            hear(&mut side, &framed(kind::DATA, flag::PADDED, 1, &[&[3][..], &[0; 9_000]].concat())).1,
            None
        );
    }
    side.release(key, 3 * 8_997);
    assert!(frames(&side.out).is_empty(), "not for so little");
    side.release(key, 6_000);
    assert_eq!(frames(&side.out).len(), 1);
}

#[test]
fn who_leaves_serves_what_was_on_its_way() {
    let mut side = asked();
    side.leave();
    let said = frames(&side.out);
    assert_eq!((said[0].0, &said[0].3[..4]), (kind::GOAWAY, &[0x7f, 255, 255, 255][..]));
    let question = framed(kind::HEADERS, ALL, 3, &get("/late"));
    assert!(matches!(hear(&mut side, &question).0[..], [FrameEvent::Request { .. }]));
    side.out.clear();
    hear(&mut side, &framed(kind::PING, flag::ACK, 0, &said[1].3));
    assert_eq!(frames(&side.out), [(kind::GOAWAY, 0, 0, vec![0, 0, 0, 3, 0, 0, 0, 0])]);
    assert!(side.has_sent_goaway());
    let question = framed(kind::HEADERS, ALL, 5, &get("/too-late"));
    assert_eq!(hear(&mut side, &question), (vec![FrameEvent::Nothing], None));
}

/// Both sides, joined by bytes that come in pieces.
struct Pair {
    client: Side,
    server: Side,
    asked: Vec<(StreamKey, String)>,
    heard: Vec<(u32, String)>,
    bodies: std::collections::BTreeMap<u32, Vec<u8>>,
}

impl Pair {
    fn new() -> Pair {
        let (client, server) = (Side::client(OURS), Side::server(OURS, false));
        Pair { client, server, asked: Vec::new(), heard: Vec::new(), bodies: Default::default() }
    }

    /// Carries everything over, so many bytes at a time, until nobody has anything to say.
    fn carry(&mut self, piece: usize) {
        let (mut up, mut down) = (Vec::new(), Vec::new());
        loop {
            up.append(&mut self.client.out);
            down.append(&mut self.server.out);
            if up.is_empty() && down.is_empty() {
                return;
            }
            let before = (up.len(), down.len());
            for end in (0..=up.len()).step_by(piece).chain([up.len()]) {
                let used = self.serve(&up[..end]);
                up.drain(..used);
                if used > 0 {
                    break;
                }
            }
            for end in (0..=down.len()).step_by(piece).chain([down.len()]) {
                let used = self.ask(&down[..end]);
                down.drain(..used);
                if used > 0 {
                    break;
                }
            }
            let is_stuck = before == (up.len(), down.len());
            assert!(!is_stuck || !self.client.out.is_empty() || !self.server.out.is_empty(), "half a frame");
        }
    }

    fn serve(&mut self, bytes: &[u8]) -> usize {
        let (used, heard) = self.server.read(bytes).unwrap();
        match heard {
            FrameEvent::Request { key, .. } => {
                self.asked.push((key, String::from_utf8(self.server.lines().to_vec()).unwrap()));
            }
            FrameEvent::Data { key, bytes, .. } => {
                self.server.with_mut(key).unwrap().extend_from_slice(bytes);
                self.server.release(key, bytes.len());
            }
            FrameEvent::Refused | FrameEvent::Reset { .. } => panic!("{heard:?}"),
            _ => {}
        }
        used
    }

    fn ask(&mut self, bytes: &[u8]) -> usize {
        let (used, heard) = self.client.read(bytes).unwrap();
        match heard {
            FrameEvent::Response { key, .. } | FrameEvent::Trailers { key } => {
                self.heard.push((key.id, String::from_utf8(self.client.lines().to_vec()).unwrap()));
            }
            FrameEvent::Data { key, bytes, .. } => {
                self.bodies.entry(key.id).or_default().extend_from_slice(bytes);
                self.client.release(key, bytes.len());
            }
            FrameEvent::Reset { .. } => panic!("{heard:?}"),
            _ => {}
        }
        used
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(seaway_testkit::properties::cases(16)))]
    #[test]
    fn two_of_us_understand_each_other(
        piece in 1..2_000_usize,
        sizes in prop::collection::vec((0..200_000_usize, 0..200_000_usize, any::<bool>()), 1..4),
    ) {
        let mut pair = Pair::new();
        pair.carry(piece);
        let bytes: Vec<u8> = (0..200_000_u32).map(|at| at as u8 ^ (at >> 8) as u8).collect();
        let mut keys = Vec::new();
        for (up, _, _) in &sizes {
            let path = format!("/{up}");
            let key = pair.client.ask(*up == 0, Vec::new(), |block| {
                block.method(b"POST");
                block.scheme(true);
                block.path(path.as_bytes());
                block.authority(b"a");
                block.field(b"X-Large", &vec![b'x'; 3_000]);
            });
            keys.push((key.unwrap(), 0));
        }
        // Both directions at once, as the windows let them.
        let mut answered = vec![(false, 0, false); sizes.len()];
        for _ in 0..200 {
            for ((key, sent), (up, _, _)) in keys.iter_mut().zip(&sizes) {
                if *sent < *up {
                    *sent += pair.client.send_data(*key, &bytes[*sent..*up], true);
                }
            }
            pair.carry(piece);
            for (at, (key, _)) in pair.asked.clone().into_iter().enumerate() {
                let (_, down, trailed) = sizes[at];
                let (has_head, sent, done) = &mut answered[at];
                if !std::mem::replace(has_head, true) {
                    pair.server.send_headers(key, false, |block| block.status(200));
                }
                if *sent < down {
                    *sent += pair.server.send_data(key, &bytes[*sent..down], !trailed);
                }
                if *sent == down && !*done {
                    *done = true;
                    match trailed {
                        true => pair.server.send_headers(key, true, |block| block.field(b"t", b"u")),
                        false => drop(pair.server.send_data(key, &[], true)),
                    }
                }
            }
            pair.carry(piece);
        }
        prop_assert_eq!(pair.asked.len(), sizes.len());
        for (at, (up, down, trailed)) in sizes.iter().enumerate() {
            let (key, head) = &pair.asked[at];
            let expected = format!("POST /{up} HTTP/1.1\r\nHost: a\r\nx-large: xxx");
            prop_assert!(head.starts_with(&expected), "{}", head);
            prop_assert!(pair.server.with(*key).unwrap() == &bytes[..*up], "up {}", at);
            let body = pair.bodies.remove(&key.id).unwrap_or_default();
            prop_assert!(body == bytes[..*down], "down {}: {} of {}", at, body.len(), down);
            let heard: Vec<_> = pair.heard.iter().filter(|it| it.0 == key.id).map(|it| &it.1[..]).collect();
            let expected: &[&str] = if *trailed { &["HTTP/1.1 200 \r\n", "t: u\r\n"] } else { &["HTTP/1.1 200 \r\n"] };
            prop_assert_eq!(&heard[..], expected);
        }
        prop_assert_eq!((pair.client.open(), pair.server.open()), (0, 0), "all are over on both sides");
    }

    #[test]
    fn a_head_larger_than_a_frame_goes_in_pieces(size in 0..40_000_usize) {
        let ours = LocalSettings { head: 64 << 10, ..OURS };
        let (mut client, mut server) = (Side::client(ours), Side::server(ours, false));
        client.ask(true, Vec::new(), |block| {
            block.method(b"GET");
            block.scheme(false);
            block.path(b"/");
            block.authority(b"a");
            block.field(b"x", &vec![b'y'; size]);
        });
        let mut rest = &client.out[..];
        let asked = loop {
            let (count, heard) = server.read(rest).unwrap();
            rest = &rest[count..];
            if let FrameEvent::Request { asked, .. } = heard {
                break asked;
            }
        };
        prop_assert_eq!((asked, rest.len()), (RequestInfo::default(), 0));
        prop_assert_eq!(server.lines().len(), b"GET / HTTP/1.1\r\nHost: a\r\nx: \r\n".len() + size);
    }
}
