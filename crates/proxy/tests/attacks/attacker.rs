//! A client of HTTP/2 that says whatever it is told to, and takes as little as it is told to.

use std::{
    io::Write,
    net::{Shutdown, SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

use crate::{frames::*, stage::*};

pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const INITIAL_WINDOW: u16 = 4;

/// What it has heard. Frames are read so that nothing piles up in the kernel; what they allow is not used.
#[derive(Default)]
pub(crate) struct Heard {
    pub(crate) heads: AtomicUsize,
    pub(crate) good: AtomicUsize,
    pub(crate) data: AtomicUsize,
    pub(crate) resets: AtomicUsize,
    pub(crate) refused: AtomicUsize,
    pub(crate) goodbye: AtomicBool,
    pub(crate) over: AtomicBool,
}

pub(crate) struct Attacker {
    pub(crate) stream: TcpStream,
    pub(crate) heard: Arc<Heard>,
    reader: Option<thread::JoinHandle<()>>,
}

impl Attacker {
    /// `window`: of each of its streams, at first.
    pub(crate) fn new(at: SocketAddr, window: u32) -> Attacker {
        let mut stream = connect(at);
        stream.set_nodelay(true).unwrap();
        let setting = [&INITIAL_WINDOW.to_be_bytes()[..], &window.to_be_bytes()].concat();
        let hello = hello();
        let preface = &hello[..hello.len() - 9];
        stream.write_all(&[preface, &frame(SETTINGS, 0, 0, &setting)].concat()).unwrap();
        let heard = Arc::<Heard>::default();
        let (mut reader, told, mut answers) =
            (stream.try_clone().unwrap(), heard.clone(), stream.try_clone().unwrap());
        let reader = thread::spawn(move || {
            while let Some(frame) = next(&mut reader) {
                match frame.kind {
                    HEADERS => {
                        told.good.fetch_add(usize::from(frame.is_ok()), SeqCst);
                        told.heads.fetch_add(1, SeqCst)
                    }
                    DATA => told.data.fetch_add(frame.payload.len(), SeqCst),
                    RST_STREAM => {
                        told.refused.fetch_add(usize::from(frame.payload == [0, 0, 0, 7]), SeqCst);
                        told.resets.fetch_add(1, SeqCst)
                    }
                    GOAWAY => usize::from(told.goodbye.swap(true, SeqCst)),
                    SETTINGS if frame.payload.is_empty() => 0,
                    SETTINGS => {
                        usize::from(answers.write_all(&crate::frames::frame(SETTINGS, 1, 0, &[])).is_ok())
                    }
                    _ => 0,
                };
            }
            told.over.store(true, SeqCst);
        });
        Attacker { stream, heard, reader: Some(reader) }
    }

    /// Opens a stream. `false`: nobody listens any more.
    pub(crate) fn ask(&mut self, id: u32, method: &str, path: &str, ends: bool) -> bool {
        self.ask_with(id, method, path, &[], ends)
    }

    pub(crate) fn ask_with(
        &mut self,
        id: u32,
        method: &str,
        path: &str,
        more: &[(&[u8], &[u8])],
        ends: bool,
    ) -> bool {
        let mut fields: Vec<(&[u8], &[u8])> = vec![
            (b":method", method.as_bytes()),
            (b":scheme", b"http"),
            (b":authority", b"a"),
            (b":path", path.as_bytes()),
        ];
        fields.extend_from_slice(more);
        let flags = END_HEADERS | if ends { END_STREAM } else { 0 };
        self.stream.write_all(&frame(HEADERS, flags, id, &block(&fields))).is_ok()
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        let _ = self.stream.shutdown(Shutdown::Both);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}
