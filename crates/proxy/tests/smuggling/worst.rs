//! Members of the worst kind: each has one fault in how it frames messages, and answers every request by the target it
//! has read, so that an answer to the wrong client shows.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
};

use crate::stage::*;

/// What a member does wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// It reads no body: those bytes are its next request (CL.0, TE.0). It answers as soon as it has read a head.
    ReadsNoBody,
    /// The same, and what it says behind an answer waits in its kernel until that answer was acknowledged (Nagle's
    /// algorithm), which is with the next request.
    ReadsNoBodyAndWaits,
    /// The same, after it has said `100 Continue`.
    InvitesAndReadsNoBody,
    /// It reads a length where no strict reader sees one (0.CL).
    SeesLengths,
    /// It answers requests for `/attack` with exactly this, in so many writes, of which the last ones wait in its
    /// kernel as well; and it reads bodies as it should.
    Says(&'static [&'static str]),
    /// The same, and closes.
    SaysAndCloses(&'static str),
}

/// A member with that fault.
pub(crate) fn member(fault: Fault) -> Backend {
    Backend::new(HERE, move |stream| {
        let waits = matches!(fault, Fault::ReadsNoBodyAndWaits | Fault::Says(_));
        let _ = stream.set_nodelay(!waits);
        let _ = serve(&stream, fault);
    })
}

/// Serves one connection until it breaks. It never closes by itself: not even if it is asked to.
fn serve(stream: &TcpStream, fault: Fault) -> std::io::Result<()> {
    let (mut reader, mut writer) = (BufReader::new(stream), stream);
    while let Some(head) = read_head(&mut reader) {
        let target = target_of(&head);
        match fault {
            Fault::ReadsNoBody | Fault::ReadsNoBodyAndWaits => {}
            Fault::InvitesAndReadsNoBody => {
                if length_of(&head).is_some() {
                    writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
                }
            }
            Fault::SeesLengths => read_body(&mut reader, loose_length_of(&head))?,
            Fault::Says(_) | Fault::SaysAndCloses(_) => read_body(&mut reader, length_of(&head))?,
        }
        match fault {
            Fault::Says(pieces) if target == "/attack" => {
                for piece in pieces {
                    writer.write_all(piece.as_bytes())?;
                }
            }
            Fault::SaysAndCloses(text) if target == "/attack" => return writer.write_all(text.as_bytes()),
            _ => writer.write_all(answer(&target, head.starts_with("HEAD")).as_bytes())?,
        }
    }
    Ok(())
}

/// An answer that names what it answers.
pub(crate) fn answer(target: &str, head_only: bool) -> String {
    let body = if head_only { "" } else { target };
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", target.len())
}

/// Takes whatever comes up to an empty line for a head. `None`: the connection is over.
pub(crate) fn read_head(reader: &mut impl BufRead) -> Option<String> {
    let mut head = Vec::new();
    loop {
        let before = head.len();
        if reader.read_until(b'\n', &mut head).ok()? == 0 {
            return None;
        }
        match &head[before..] {
            // Some pass over empty lines before a request.
            b"\r\n" if before == 0 => head.clear(),
            b"\r\n" => return Some(String::from_utf8_lossy(&head).into_owned()),
            _ => {}
        }
    }
}

pub(crate) fn target_of(head: &str) -> String {
    head.split(' ').nth(1).filter(|it| it.starts_with('/')).unwrap_or("/nonsense").to_owned()
}

fn length_of(head: &str) -> Option<u64> {
    let lines = head.lines().filter_map(|line| line.split_once(": "));
    let mut lengths = lines.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    lengths.next().and_then(|(_, value)| value.parse().ok())
}

/// The last number of a line that looks like a length at all.
fn loose_length_of(head: &str) -> Option<u64> {
    let mut lines = head.split(['\r', '\n']).rev().map(str::to_ascii_lowercase);
    let line =
        lines.find(|it| it.replace(|c: char| !c.is_ascii_alphabetic(), "").starts_with("contentlength"))?;
    line.rsplit(|c: char| !c.is_ascii_digit()).find(|it| !it.is_empty())?.parse().ok()
}

fn read_body(reader: &mut impl Read, length: Option<u64>) -> std::io::Result<()> {
    std::io::copy(&mut reader.take(length.unwrap_or(0)), &mut std::io::sink()).map(drop)
}
