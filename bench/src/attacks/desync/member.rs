//! Members with one fault in how they frame messages. They answer every request by the target they have read, so that
//! an answer to the wrong client shows.

use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};

#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// Those bytes are its next request. `waits`: what it says behind an answer waits in its kernel until that answer
    /// was acknowledged (Nagle's algorithm), which is with the next request.
    ReadsNoBody { waits: bool },
    /// The same, after it has said `100 Continue`.
    Invites,
    /// It answers `/attack` with exactly this, in one write or in as many as there are.
    Says { pieces: &'static [&'static str], at_once: bool },
    /// It reads a length where no strict reader sees one.
    SeesLengths,
}

pub(super) struct Faulty {
    at: SocketAddrV4,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Faulty {
    pub(super) fn start(at: SocketAddrV4, fault: Fault) -> Result<Self> {
        let listener: TcpListener = crate::sys::tcp_listen(at).map(Into::into).context("a member")?;
        listener.set_nonblocking(false)?;
        let stop = Arc::<AtomicBool>::default();
        let told = stop.clone();
        let thread = thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if told.load(Relaxed) {
                    return;
                }
                // Its thread ends with the connection, which the contender's end ends.
                thread::spawn(move || serve(&stream, fault));
            }
        });
        Ok(Self { at, stop, thread: Some(thread) })
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        // Wakes it up.
        let _connected = TcpStream::connect(self.at);
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

/// Serves one connection until it breaks. It never closes by itself.
fn serve(stream: &TcpStream, fault: Fault) -> io::Result<()> {
    let waits = matches!(fault, Fault::ReadsNoBody { waits: true } | Fault::Says { .. });
    stream.set_nodelay(!waits)?;
    let (mut reader, mut writer) = (BufReader::new(stream), stream);
    while let Some(head) = read_head(&mut reader) {
        let target = head.split(' ').nth(1).filter(|it| it.starts_with('/')).unwrap_or("/nonsense");
        match fault {
            Fault::ReadsNoBody { .. } => {}
            Fault::Invites => {
                if length_of(&head).is_some() {
                    writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
                }
            }
            Fault::SeesLengths => read_body(&mut reader, loose_length_of(&head))?,
            Fault::Says { .. } => read_body(&mut reader, length_of(&head))?,
        }
        match fault {
            Fault::Says { pieces, at_once } if target == "/attack" => {
                let whole = [pieces.concat()];
                let pieces: Vec<&str> =
                    if at_once { whole.iter().map(|it| &it[..]).collect() } else { pieces.to_vec() };
                for piece in pieces {
                    writer.write_all(piece.as_bytes())?;
                }
            }
            _ => {
                let body = if head.starts_with("HEAD") { "" } else { target };
                let length = target.len();
                writer.write_all(
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").as_bytes(),
                )?;
            }
        }
    }
    Ok(())
}

/// Takes whatever comes up to an empty line for a head. `None`: the connection is over.
pub(super) fn read_head(reader: &mut impl BufRead) -> Option<String> {
    let mut head = Vec::new();
    loop {
        let before = head.len();
        if reader.read_until(b'\n', &mut head).ok()? == 0 {
            return None;
        }
        match &head[before..] {
            b"\r\n" if before == 0 => head.clear(),
            b"\r\n" => return Some(String::from_utf8_lossy(&head).into_owned()),
            _ => {}
        }
    }
}

fn length_of(head: &str) -> Option<u64> {
    let lines = head.lines().filter_map(|line| line.split_once(':'));
    let mut lengths = lines.filter(|it| it.0.eq_ignore_ascii_case("content-length"));
    lengths.next().and_then(|it| it.1.trim().parse().ok())
}

/// The last number of a line that looks like a length at all.
fn loose_length_of(head: &str) -> Option<u64> {
    let mut lines = head.split(['\r', '\n']).rev().map(str::to_ascii_lowercase);
    let line =
        lines.find(|it| it.replace(|c: char| !c.is_ascii_alphabetic(), "").starts_with("contentlength"))?;
    line.rsplit(|c: char| !c.is_ascii_digit()).find(|it| !it.is_empty())?.parse().ok()
}

fn read_body(reader: &mut impl Read, length: Option<u64>) -> io::Result<()> {
    io::copy(&mut reader.take(length.unwrap_or(0)), &mut io::sink()).map(drop)
}
