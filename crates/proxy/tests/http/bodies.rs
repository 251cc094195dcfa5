//! Bodies, however they are framed.

use std::{
    io::{Read, Write},
    net::Shutdown,
};

use crate::{scene::*, stage::*};

#[test]
fn bodies_go_up_and_down_in_every_framing() {
    let member = Member::new(|_, heard| {
        let body = String::from_utf8(heard.body.clone()).unwrap();
        Some(match heard.field("x-want").unwrap_or_default() {
            "length" => ok(&body),
            "chunks" => format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:X};x=y\r\n{body}\r\n0\r\nT: u\r\n\r\n",
                body.len()
            ),
            _ => format!("HTTP/1.1 200 OK\r\n\r\n{body}"),
        })
    });
    let (_stage, at) = front(&[member.at()]);
    let mut client = Client::new(at);
    for up in [
        "Content-Length: 5\r\n\r\nhello",
        "Transfer-Encoding: chunked\r\n\r\n2;a\r\nhe\r\n03\r\nllo\r\n0\r\nA: b\r\n\r\n",
    ] {
        for want in ["length", "chunks", "end"] {
            let answer = client.ask(format!("POST / HTTP/1.1\r\nHost: a\r\nX-Want: {want}\r\n{up}"));
            let sent = if up.starts_with('C') { "hello" } else { "helloA: b\n" };
            let trailers = if want == "chunks" { "T: u\n" } else { "" };
            assert_eq!(String::from_utf8(answer.body).unwrap(), format!("{sent}{trailers}"), "{up} {want}");
        }
    }
}

#[test]
fn a_large_body_is_the_same_on_the_other_side() {
    let backend = Backend::new(HERE, |mut stream| {
        let mut reader = Reader::new(stream.try_clone().unwrap());
        while let Some(message) = reader.message(false) {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", message.body.len());
            stream.write_all(head.as_bytes()).unwrap();
            stream.write_all(&message.body).unwrap();
        }
    });
    let (stage, at) = front(&[backend.at]);
    let body = noise(8 << 20, 7);
    let mut client = Client::new(at);
    for _ in 0..2 {
        client.send(format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len()));
        client.send(&body);
        assert!(client.answer().body == body, "other bytes came back");
    }
    let traffic = stage.listener(at).traffic;
    assert!(traffic.bytes_in >= 16 << 20 && traffic.bytes_out >= 16 << 20, "{traffic:?}");
}

/// The kernel would keep a small write back until the member has confirmed the one before, which takes it 40 ms if it
/// has nothing to say. The clock is only asked whether that happened again and again.
#[test]
fn a_piece_that_comes_late_is_not_held_back() {
    const ROUNDS: u32 = 100;
    let (told, head_has_come) = std::sync::mpsc::channel();
    let backend = Backend::new(HERE, move |stream| {
        let mut reader = Reader::new(stream.try_clone().unwrap());
        while reader.head().is_some() {
            told.send(()).unwrap();
            let mut body = [0; 2];
            reader.exactly(&mut body);
            (&stream).write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
        }
    });
    let (_stage, at) = front(&[backend.at]);
    let mut client = Client::new(at);
    client.stream().set_nodelay(true).unwrap();
    let mut took = Vec::new();
    for _ in 0..ROUNDS {
        let began = std::time::Instant::now();
        client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n");
        head_has_come.recv().unwrap();
        client.send("ab");
        assert_eq!(client.answer().status(), 200);
        took.push(began.elapsed());
    }
    // The machine may stand still for a moment; every second time it does not.
    took.sort();
    assert!(took[took.len() / 2] < std::time::Duration::from_millis(20), "{took:?}");
}

#[test]
fn answers_without_a_body_do_not_wait_for_one() {
    let member = Member::new(|_, heard| {
        Some(match heard.first().split(' ').nth(1).unwrap() {
            "/204" => "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n".to_owned(),
            "/304" => "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n".to_owned(),
            _ => "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n".to_owned(),
        })
    });
    let (_stage, at) = front(&[member.at()]);
    let mut client = Client::new(at);
    client.send("HEAD /h HTTP/1.1\r\nHost: a\r\n\r\n");
    let answer = client.answer_to_head();
    assert_eq!((answer.status(), answer.field("content-length")), (200, Some("7")));
    assert_eq!(client.get("/204").status(), 204);
    let answer = client.get("/304");
    assert_eq!((answer.status(), answer.field("content-length")), (304, Some("7")));
}

#[test]
fn interim_answers_are_passed_on() {
    let backend = Backend::new(HERE, |mut stream| {
        let mut reader = Reader::new(stream.try_clone().unwrap());
        while let Some(head) = reader.head() {
            assert!(head.contains("Expect: 100-continue"));
            stream
                .write_all(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n")
                .unwrap();
            let mut body = [0; 5];
            stream.read_exact(&mut body).unwrap();
            stream.write_all(ok("done").as_bytes()).unwrap();
        }
    });
    let (_stage, at) = front(&[backend.at]);
    let mut client = Client::new(at);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.answer().status(), 103);
    assert_eq!(client.answer().status(), 100);
    client.send("hello");
    assert_eq!(client.answer().body, b"done");
}

#[test]
fn a_switch_of_protocols_opens_a_tunnel() {
    let backend = Backend::new(HERE, |mut stream| {
        let mut reader = Reader::new(stream.try_clone().unwrap());
        let head = reader.head().unwrap();
        assert!(head.contains("Upgrade: websocket") && head.contains("Connection: upgrade"), "{head}");
        stream
            .write_all(
                b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nhi",
            )
            .unwrap();
        let mut buffer = [0; 64];
        while let Ok(count @ 1..) = stream.read(&mut buffer) {
            stream.write_all(&buffer[..count]).unwrap();
        }
        stream.write_all(b"bye").unwrap();
    });
    let (_stage, at) = front(&[backend.at]);
    let mut client = Client::new(at);
    client.send("GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nearly");
    let answer = client.answer();
    assert_eq!((answer.status(), answer.field("upgrade")), (101, Some("websocket")));
    client.send(" and late");
    client.stream().shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.rest().unwrap(), b"hiearly and latebye");
}

#[test]
fn an_answer_may_come_before_the_request_is_whole() {
    let backend = Backend::new(HERE, |mut stream| {
        Reader::new(stream.try_clone().unwrap()).head();
        stream.write_all(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno").unwrap();
        let _ = stream.read(&mut [0; 1]);
    });
    let (_stage, at) = front(&[backend.at]);
    let mut client = Client::new(at);
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\nsome");
    let answer = client.answer();
    assert_eq!((answer.status(), &answer.body[..]), (413, &b"no"[..]));
    assert!(client.is_over(), "what is left of the request is nobody's");
}

#[test]
fn an_answer_that_is_cut_short_is_not_taken_for_whole() {
    for answer in [
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\nhalf",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n4\r\nhalf\r\n",
    ] {
        let member = Member::new(move |_, _| Some(answer.to_owned()));
        let (_stage, at) = front(&[member.at()]);
        let mut client = Client::new(at);
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        let rest = client.rest();
        assert!(rest.is_none_or(|rest| !rest.ends_with(b"0\r\n\r\n")), "{answer}");
    }
}

#[test]
fn connect_opens_a_tunnel_where_the_member_lets_it() {
    let backend = Backend::new(HERE, |mut stream| {
        let mut reader = Reader::new(stream.try_clone().unwrap());
        if let Some(head) = reader.head() {
            let lets = head.starts_with("CONNECT b.example:1 HTTP/1.1\n");
            let answer = if lets {
                "HTTP/1.1 200 Well\r\n\r\n"
            } else {
                "HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n"
            };
            stream.write_all(answer.as_bytes()).unwrap();
            if lets {
                let _ = std::io::copy(&mut stream.try_clone().unwrap(), &mut stream);
            }
        }
    });
    let (_stage, at) = front(&[backend.at]);
    let mut client = Client::new(at);
    client.send("CONNECT b.example:1 HTTP/1.1\r\nHost: b.example:1\r\n\r\n");
    assert_eq!(client.answer_to_head().status(), 200);
    client.send("through");
    client.stream().shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.rest().unwrap(), b"through");
    let refused = Client::new(at).ask("CONNECT c.example:1 HTTP/1.1\r\nHost: c.example:1\r\n\r\n");
    assert_eq!(refused.status(), 403);
}
