//! How connections of HTTP/2 end: nothing that was said is lost, and nobody holds what nobody uses.

use std::{
    io::{Read, Write},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use seaway_model::{
    Pool,
    load_balancer::{BackendProtocol, Protocol},
};
use socket2::SockRef;

use crate::{frames::*, raw::*, scene::*, stage::*, trunks::*};

const PING: u8 = 6;
const ACK: u8 = 1;

#[test]
fn who_takes_an_answer_slowly_gets_all_of_it_though_we_leave() {
    const LENGTH: usize = 24 << 20;
    let member = Backend::new(HERE, |mut stream| {
        Reader::new(stream.try_clone().unwrap()).head().unwrap();
        let _ = stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n").as_bytes());
        let _ = stream.write_all(&vec![b'x'; LENGTH]);
    });
    let stage = Stage::with_workers(1);
    stage.put(pool(&[member.at]));
    let (at, _) = stage.open(HERE, |it| it.protocol = Protocol::Http);
    let mut stream = wide(at);
    let _ = SockRef::from(&stream).set_recv_buffer_size(128 << 10);
    stream.write_all(&asked(b"GET", b"/", END_STREAM, 1)).unwrap();
    while next(&mut stream).unwrap().kind != HEADERS {}
    stage.proxy.stop_accepting();
    let mut heard = 0;
    while let Some(frame) = next(&mut stream) {
        match frame.kind {
            // Asks whether we have heard that it leaves.
            PING => stream.write_all(&crate::frames::frame(PING, ACK, 0, &frame.payload)).unwrap(),
            DATA => heard += frame.payload.len(),
            _ => {}
        }
        // As whoever takes bytes does, though nobody waits for more room; the last ones come when we are gone.
        let _ = stream.write_all(&crate::frames::frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]));
    }
    assert_eq!(heard, LENGTH);
}

#[test]
fn a_connection_to_a_member_that_nobody_uses_any_more_is_closed() {
    // Says what it takes once it is told to, and it takes no other protocol.
    let (speaks, closed) = (Arc::<AtomicBool>::default(), Arc::<AtomicBool>::default());
    let (may_speak, closes) = (speaks.clone(), closed.clone());
    let member = Backend::new(HERE, move |mut stream| {
        eventually("it is told to speak", || may_speak.load(SeqCst));
        stream.write_all(&frame(SETTINGS, 0, 0, &[])).unwrap();
        let end =
            std::iter::repeat_with(|| stream.read(&mut [0; 4096])).find(|read| !matches!(read, Ok(1..)));
        // Who only waits in vain for it to end finds no end.
        closes.store(matches!(end, Some(Ok(0))), SeqCst);
    });
    let (stage, at) = front_one(&[member.at]);
    let mut client = Client::new(at);
    client.send(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    eventually("the member is reached", || member.accepted() == 1);
    // Whoever asks next is not to ask by this one, and who waits for its settings is the last.
    stage.put(Pool { protocol: BackendProtocol::Http2, ..pool(&[]) });
    speaks.store(true, SeqCst);
    assert_eq!(client.answer().status(), 501);
    eventually("nobody holds it", || closed.load(SeqCst));
}
