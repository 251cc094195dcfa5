//! A member of HTTP/2 that minds windows, and reads bodies or does not.

use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use crate::{attacker::WINDOW_UPDATE, frames::*, stage::*};

/// What a member lets come.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    /// At a time, on each connection.
    pub(crate) streams: u32,
    /// Of a body, for each stream.
    pub(crate) window: u32,
    /// For all streams of a connection, beyond the usual.
    pub(crate) room: u32,
    /// Of an answer to `/file`.
    pub(crate) file: usize,
    /// Bytes in the head of each answer.
    pub(crate) head: usize,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms { streams: 100, window: 65_535, room: 0, file: 4 << 20, head: 0 }
    }
}

pub(crate) struct Member {
    pub(crate) at: SocketAddr,
    pub(crate) told: Arc<Told>,
    backend: Backend,
}

#[derive(Default)]
pub(crate) struct Told {
    pub(crate) requests: AtomicUsize,
    /// Of bodies, both ways.
    pub(crate) received: AtomicUsize,
    pub(crate) sent: AtomicUsize,
    /// The most streams that a connection has had at a time.
    pub(crate) most: AtomicUsize,
    /// Connections that are read no more.
    pub(crate) frozen: AtomicUsize,
}

impl Member {
    pub(crate) fn new(terms: Terms) -> Member {
        let told = Arc::<Told>::default();
        let counts = told.clone();
        let backend = Backend::new(HERE, move |stream| {
            serve(stream, terms, &counts);
        });
        Member { at: backend.at, told, backend }
    }
}

impl Member {
    pub(crate) fn connections(&self) -> usize {
        self.backend.accepted()
    }
}

struct Stream {
    window: i64,
    /// Of the answer; `None`: it waits for the body.
    left: Option<usize>,
    reads: bool,
}

/// `/hold`: a body that is not read, and no answer. `/file`: a long answer. Anything else is answered when it is whole.
fn serve(mut stream: TcpStream, terms: Terms, told: &Told) -> Option<()> {
    let mut preface = [0; 24];
    stream.read_exact(&mut preface).ok()?;
    let setting = |which: u16, value: u32| [&which.to_be_bytes()[..], &value.to_be_bytes()].concat();
    let settings = [setting(3, terms.streams), setting(4, terms.window), setting(8, 1)].concat();
    stream.write_all(&frame(SETTINGS, 0, 0, &settings)).ok()?;
    if terms.room > 0 {
        stream.write_all(&frame(WINDOW_UPDATE, 0, 0, &terms.room.to_be_bytes())).ok()?;
    }
    let (mut first, mut window, mut streams) = (65_535_i64, 65_535_i64, BTreeMap::<u32, Stream>::new());
    let field = [b'h'; 100];
    let mut fields = vec![(&b":status"[..], &b"200"[..])];
    fields.extend((0..terms.head / 100).map(|_| (&b"x-padding"[..], &field[..])));
    let head = block(&fields);
    loop {
        let (kind, flags, id, payload) = heard(&mut stream)?;
        let mut out = Vec::new();
        let answers = |out: &mut Vec<u8>, id: u32| out.extend(frame(HEADERS, END_HEADERS, id, &head));
        match kind {
            SETTINGS if flags & 1 == 0 => {
                for it in payload.chunks_exact(6).filter(|it| it[..2] == [0, 4]) {
                    let told = i64::from(u32::from_be_bytes([it[2], it[3], it[4], it[5]]));
                    streams.values_mut().for_each(|it| it.window += told - first);
                    first = told;
                }
                out.extend(frame(SETTINGS, 1, 0, &[]));
            }
            WINDOW_UPDATE => {
                let by = i64::from(u32::from_be_bytes([payload[0], payload[1], payload[2], payload[3]]));
                match streams.get_mut(&id) {
                    Some(stream) => stream.window += by,
                    None if id == 0 => window += by,
                    None => {}
                }
            }
            HEADERS => {
                told.requests.fetch_add(1, SeqCst);
                let has = |path: &[u8]| payload.windows(path.len()).any(|it| it == path);
                if has(b"/freeze") {
                    told.frozen.fetch_add(1, SeqCst);
                    std::thread::park_timeout(5 * PATIENCE);
                    return None;
                }
                let (file, holds, ends) = (has(b"/file"), has(b"/hold"), flags & END_STREAM != 0);
                let left = match () {
                    () if holds => None,
                    () if file => Some(terms.file),
                    () => ends.then_some(5),
                };
                left.into_iter().for_each(|_| answers(&mut out, id));
                streams.insert(id, Stream { window: first, left, reads: !holds });
                told.most.fetch_max(streams.len(), SeqCst);
            }
            DATA => {
                told.received.fetch_add(payload.len(), SeqCst);
                if let Some(stream) = streams.get_mut(&id).filter(|it| it.reads) {
                    if !payload.is_empty() {
                        for id in [0, id] {
                            out.extend(frame(WINDOW_UPDATE, 0, id, &(payload.len() as u32).to_be_bytes()));
                        }
                    }
                    if flags & END_STREAM != 0 {
                        stream.left = Some(5);
                        answers(&mut out, id);
                    }
                }
            }
            RST_STREAM => drop(streams.remove(&id)),
            GOAWAY => return Some(()),
            _ => {}
        }
        streams.retain(|id, stream| {
            let Some(left) = &mut stream.left else { return true };
            while *left > 0 {
                let count = (*left as i64).min(stream.window).min(window).min(16 << 10);
                if count <= 0 {
                    return true;
                }
                *left -= count as usize;
                (stream.window, window) = (stream.window - count, window - count);
                told.sent.fetch_add(count as usize, SeqCst);
                out.extend(frame(
                    DATA,
                    if *left == 0 { END_STREAM } else { 0 },
                    *id,
                    &vec![b'x'; count as usize],
                ));
            }
            false
        });
        stream.write_all(&out).ok()?;
    }
}

pub(crate) fn heard(stream: &mut TcpStream) -> Option<(u8, u8, u32, Vec<u8>)> {
    let mut head = [0; 9];
    stream.read_exact(&mut head).ok()?;
    let mut payload = vec![0; u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize];
    stream.read_exact(&mut payload).ok()?;
    Some((head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]]), payload))
}
