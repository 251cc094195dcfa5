//! Attackers of HTTP/2 before members of HTTP/1.1 that read no body.

use crate::{
    desync::{BODILESS, Client, HALF, Scene, WHOLE, WITH_BODIES, no_harm, tries},
    frames::{self, *},
    stage::*,
    worst::{Fault, member},
};

/// How the body is sent.
#[derive(Clone, Copy, Debug)]
enum Framing {
    /// By `content-length` and frames.
    Length,
    /// By frames alone: it is chunked from here on.
    Frames,
    /// By a frame that is empty, alone.
    Empty,
    /// Its frames come when the answer is there.
    Late,
}

use Framing::*;

#[test]
fn a_body_in_frames_that_a_member_does_not_read_is_no_other_client_s_request() {
    let mut harmed = Vec::new();
    for (class, framing, body) in [
        ("H2.CL, half a request", Length, HALF),
        ("H2.CL, a whole request", Length, WHOLE),
        ("H2.TE, half a request", Frames, HALF),
        ("H2.TE, a whole request", Frames, WHOLE),
        ("H2.TE, an empty frame", Empty, ""),
        ("H2, paused before the body", Late, HALF),
    ] {
        let member = member(Fault::ReadsNoBodyAndWaits);
        let mut scene = Scene::new(class, member.at);
        for method in [BODILESS, WITH_BODIES].concat().iter().cycle().take(tries()) {
            attack(&scene, method, framing, body);
            scene.try_victim();
        }
        harmed.push(scene.judge());
    }
    no_harm(harmed);
}

/// Asks by a stream of its own connection, and waits until that is over.
fn attack(scene: &Scene, method: &str, framing: Framing, body: &str) {
    let mut line = connect(scene.at);
    let length = body.len().to_string();
    let mut fields: Vec<(&[u8], &[u8])> = vec![
        (b":method", method.as_bytes()),
        (b":scheme", b"http"),
        (b":authority", b"a"),
        (b":path", b"/attack"),
    ];
    if matches!(framing, Length | Late) {
        fields.push((b"content-length", length.as_bytes()));
    }
    let head = frame(HEADERS, END_HEADERS, 1, &block(&fields));
    let data = frame(DATA, END_STREAM, 1, body.as_bytes());
    let mut say = |bytes: &[u8]| std::io::Write::write_all(&mut line, bytes);
    let said = match framing {
        Late => say(&[hello(), head].concat()),
        Length | Frames | Empty => say(&[hello(), head, data.clone()].concat()),
    };
    said.unwrap();
    let mut heard = false;
    while let Some(it) = frames::next(&mut line) {
        let is_last = it.kind == RST_STREAM || it.kind == GOAWAY;
        heard |= it.kind == HEADERS;
        if is_last || (heard && !matches!(framing, Late)) {
            break;
        }
        if it.kind == HEADERS {
            let _ = std::io::Write::write_all(&mut line, &data);
        }
        if heard && it.kind == DATA {
            break;
        }
    }
}

/// Two clients behind one proxy of ours that is trusted: what one does to their connection is not the other's.
#[test]
fn clients_that_share_a_trusted_proxy_s_connection_get_their_own_answers() {
    let member = member(Fault::ReadsNoBody);
    let mut scene = Scene::with("CL.0 behind a trusted proxy", pool(&[member.at]), |listener| {
        listener.http.trusted = vec!["127.0.0.0/8".parse().unwrap()];
    });
    let mut shared = Client::new(scene.at);
    for method in [BODILESS, WITH_BODIES].concat().iter().cycle().take(tries()) {
        shared.ask(&crate::desync::sized(method, HALF));
        scene.try_client(&mut shared);
    }
    no_harm([scene.judge()]);
}
