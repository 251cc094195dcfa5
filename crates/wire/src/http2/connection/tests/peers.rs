//! What the other side's settings and answers may do.

use super::*;

/// A client that has asked so many times, and heard those settings.
fn asking(times: usize, method: &[u8], settings: &[u8]) -> (Side, Vec<StreamKey>) {
    let mut client = Side::client(OURS);
    let keys = (0..times).map_while(|_| {
        client.ask(true, Vec::new(), |block| {
            block.method(method);
            block.scheme(false);
            block.path(b"/");
            block.authority(b"a");
        })
    });
    let keys = keys.collect();
    assert_eq!(hear(&mut client, &framed(kind::SETTINGS, 0, 0, settings)).1, None);
    client.out.clear();
    (client, keys)
}

#[test]
fn the_first_window_counts_for_streams_that_are_open_and_none_grows_beyond_all() {
    const MOST: [u8; 4] = [0x7f, 255, 255, 255];
    let first = |value: [u8; 4]| framed(kind::SETTINGS, 0, 0, &[&[0, 4][..], &value].concat());
    let (mut side, mut other) = (asked(), asked());
    let key = side.streams.find(1).unwrap();
    assert_eq!(side.send_data(key, &[0; 100], false), 100);
    for value in [[0, 0, 0, 10], MOST, [0, 0, 0, 0], [0, 0, 0, 103]] {
        assert_eq!(hear(&mut side, &first(value)).1, None, "{value:?}");
    }
    assert_eq!(side.send_data(key, &[0; 10], false), 3);
    assert_eq!(hear(&mut side, &framed(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 104])).1, None);
    let broken = hear(&mut side, &first(MOST)).1.unwrap();
    assert_eq!(broken.reason, ErrorCode::FLOW_CONTROL, "one more than all");
    // Nobody minds a stream that is over.
    hear(&mut other, &framed(kind::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 104]));
    hear(&mut other, &framed(kind::RST_STREAM, 0, 1, &[0; 4]));
    assert_eq!(hear(&mut other, &first(MOST)).1, None);
}

#[test]
fn settings_cost_the_same_however_many_streams_there_are() {
    let changes = framed(kind::SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0, 0, 4, 0, 2, 0, 0].repeat(1_300));
    let cost = |streams: u32| {
        let mut side = Side::server(LocalSettings { streams: 1_000, ..OURS }, true);
        hear(&mut side, &SETTINGS);
        for number in 0..streams {
            hear(&mut side, &framed(kind::HEADERS, ALL, 2 * number + 1, &get("/")));
        }
        // The least of some, for others use this machine, too.
        let times = (0..9).map(|_| {
            let begun = std::time::Instant::now();
            assert_eq!(hear(&mut side, &changes).1, None);
            begun.elapsed()
        });
        times.min().unwrap()
    };
    let (few, many) = (cost(1), cost(1_000));
    assert!(many < 20 * few, "{few:?} with one, {many:?} with a thousand");
}

#[test]
fn no_more_than_a_hundred_are_asked_before_a_member_has_told_how_many_it_takes() {
    let (mut side, keys) = asking(200, b"GET", &[0, 3, 0, 0, 0, 101]);
    assert_eq!(keys.len(), 100);
    let ask = |side: &mut Side| side.ask(true, Vec::new(), |block| block.status(200)).is_some();
    assert!(ask(&mut side) && !ask(&mut side));
    let (mut side, _) = asking(100, b"GET", &[]);
    assert!((0..1_000).all(|_| ask(&mut side)), "it takes any number");
}

#[test]
fn where_streams_are_shared_what_nobody_takes_fills_its_own_window_alone() {
    let mut side = Side::client(LocalSettings { is_shared: true, ..OURS });
    let keys = [(); 4].map(|()| side.ask(true, Vec::new(), |block| block.method(b"GET")).unwrap());
    hear(&mut side, &SETTINGS);
    for key in keys {
        let piece = framed(kind::DATA, 0, key.id, &[0; 16 << 10]);
        let head = framed(kind::HEADERS, flag::END_HEADERS, key.id, b"\x88");
        let bytes = [head, piece.repeat(4)].concat();
        let (heard, broken) = hear(&mut side, &bytes);
        assert!(broken.is_none() && !heard.iter().any(|it| matches!(it, FrameEvent::Reset { .. })));
    }
    side.out.clear();
    // More than its own is too much for any, whatever there is for all.
    let more = framed(kind::DATA, 0, keys[0].id, b"x");
    let (heard, _) = hear(&mut side, &more);
    assert!(matches!(heard[..], [FrameEvent::Reset { reason: ErrorCode::FLOW_CONTROL, .. }]));
    side.out.clear();
    side.release(keys[1], 64 << 10);
    side.let_go(keys[2], 64 << 10);
    let rooms = frames(&side.out).into_iter().filter(|it| it.0 == kind::WINDOW_UPDATE);
    assert_eq!(rooms.map(|it| it.2).collect::<Vec<_>>(), [keys[1].id], "that of all was opened before");
}

#[test]
fn an_answer_without_a_body_may_tell_how_long_one_would_be() {
    for (method, status, body, fits) in [
        ("HEAD", 200, "", true),
        ("HEAD", 200, "hello", false),
        ("GET", 304, "", true),
        ("GET", 304, "hello", false),
        ("GET", 200, "hello", true),
        ("GET", 200, "", false),
    ] {
        let (mut side, _) = asking(1, method.as_bytes(), &[]);
        let mut head = Vec::new();
        let mut block = FieldBlock::new(&mut head, false);
        block.status(status);
        block.field(b"content-length", b"5");
        let head = framed(kind::HEADERS, flag::END_HEADERS, 1, &head);
        // Whoever does not know at once that there is none says so later.
        let bytes = [head, framed(kind::DATA, flag::END_STREAM, 1, body.as_bytes())].concat();
        let (heard, broken) = hear(&mut side, &bytes);
        assert_eq!(broken, None);
        let is_whole = matches!(heard.last(), Some(FrameEvent::Data { ends: true, .. }));
        assert_eq!(is_whole, fits, "{method} {status} {body:?}: {heard:?}");
    }
}

#[test]
fn streams_after_the_last_one_that_a_peer_has_looked_at_are_given_up_once_and_those_before_stay() {
    let (mut client, keys) = asking(4, b"GET", &[]);
    assert_eq!(keys.iter().map(|key| key.id).collect::<Vec<_>>(), [1, 3, 5, 7]);
    let mut late = client.drop_streams_after(3);
    late.sort_by_key(|key| key.id);
    assert_eq!(late, keys[2..]);
    assert_eq!(keys.iter().map(|key| client.is_closed(*key)).collect::<Vec<_>>(), [false, false, true, true]);
    assert_eq!(client.open(), 2);
    assert_eq!(client.drop_streams_after(3), [], "they are over");
}
