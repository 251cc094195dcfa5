//! Clients of HTTP/2 that open all streams they may, or repeat frames.

use std::collections::BTreeMap;
use std::net::SocketAddrV4;
use std::time::Instant;

use super::Attacker;
use super::line::Line;
use crate::message::frames::{self, Frame};

#[derive(Clone, Debug)]
pub struct H2 {
    pub streams: Streams,
    /// Frames that are said once.
    pub opening: Vec<u8>,
    /// Said again in each turn, so often; `STREAM` stands for the next stream.
    pub again: Vec<u8>,
    pub times: usize,
}

/// What it opens once it knows how many the peer allows.
#[derive(Clone, Debug)]
pub struct Streams {
    pub head: Vec<u8>,
    pub most: u32,
    /// Of each of its streams, for what comes.
    pub window: u32,
    /// A body, as far as windows allow.
    pub uploads: bool,
    /// The head is all of the request.
    pub ends: bool,
}

/// In `again`: the number of the next stream, which is then used up.
pub const STREAM: u32 = 0x7fff_ffff;
/// Where a peer announces no number of streams, or a very large one.
const MOST_STREAMS: u32 = 256;
const PIECE: i64 = 4 << 10;
/// Of all bodies of a connection in a turn: they fill what takes them, and are no flood.
const UPLOAD: usize = 8 << 10;

/// A list of fields (RFC 7541) without any table.
pub fn fields(method: u8, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    // The scheme is http.
    let mut out = vec![method, 0x86];
    for (index, value) in [(4, path), (1, "bench.example")] {
        out.push(index);
        text(&mut out, value);
    }
    for (name, value) in more {
        out.push(0);
        text(&mut out, name);
        text(&mut out, value);
    }
    out
}

pub const GET: u8 = 0x82;
pub const POST: u8 = 0x83;

fn text(out: &mut Vec<u8>, value: &str) {
    let mut rest = value.len();
    if rest < 127 {
        out.push(rest as u8);
    } else {
        out.push(127);
        rest -= 127;
        while rest >= 128 {
            out.push((rest % 128) as u8 | 128);
            rest /= 128;
        }
        out.push(rest as u8);
    }
    out.extend_from_slice(value.as_bytes());
}

pub(super) struct Client {
    script: H2,
    line: Line,
    input: Vec<u8>,
    next: u32,
    /// The peer's settings have come.
    settled: bool,
    begun: bool,
    allowed: u32,
    opened: u32,
    first: i64,
    window: i64,
    uploads: BTreeMap<u32, i64>,
}

impl Client {
    pub(super) fn new(script: H2, to: SocketAddrV4) -> Self {
        Self {
            script,
            line: Line::new(to),
            input: Vec::new(),
            next: 1,
            settled: false,
            begun: false,
            allowed: MOST_STREAMS,
            opened: 0,
            first: frames::FIRST_WINDOW,
            window: frames::FIRST_WINDOW,
            uploads: BTreeMap::new(),
        }
    }

    fn begin(&mut self) {
        let fresh = Self::new(self.script.clone(), SocketAddrV4::new([0; 4].into(), 0));
        let line = std::mem::replace(self, fresh).line;
        self.line = line;
        let out = &mut self.line.out;
        out.extend_from_slice(frames::PREFACE);
        let window = [&[0, 4][..], &self.script.streams.window.to_be_bytes()].concat();
        frames::put(out, frames::SETTINGS, 0, 0, &[&window]);
    }

    fn hear(&mut self, now: Instant) {
        let mut buffer = [0; 16 << 10];
        loop {
            let bytes = self.line.read(&mut buffer, now);
            if bytes.is_empty() {
                return;
            }
            let mut input = std::mem::take(&mut self.input);
            input.extend_from_slice(bytes);
            let mut rest = &input[..];
            while let Some((frame, after)) = Frame::first(rest) {
                self.frame(&frame);
                rest = after;
            }
            let done = input.len() - rest.len();
            input.drain(..done);
            self.input = input;
        }
    }

    fn frame(&mut self, frame: &Frame<'_>) {
        match frame.kind {
            frames::SETTINGS if !frame.has(frames::ACK) => {
                for setting in frame.payload.chunks_exact(6) {
                    let value = u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]);
                    match setting[1] {
                        3 => self.allowed = value.min(MOST_STREAMS),
                        4 => self.first = i64::from(value),
                        _ => {}
                    }
                }
                self.settled = true;
                frames::put(&mut self.line.out, frames::SETTINGS, frames::ACK, 0, &[]);
            }
            frames::PING if !frame.has(frames::ACK) => {
                frames::put(&mut self.line.out, frames::PING, frames::ACK, 0, &[frame.payload]);
            }
            frames::WINDOW_UPDATE if frame.stream == 0 => self.window += frame.increment(),
            frames::WINDOW_UPDATE => {
                if let Some(window) = self.uploads.get_mut(&frame.stream) {
                    *window += frame.increment();
                }
            }
            frames::RST_STREAM => drop(self.uploads.remove(&frame.stream)),
            _ => {}
        }
    }

    fn open(&mut self) {
        let Streams { head, most, uploads, ends, .. } = &self.script.streams;
        let out = &mut self.line.out;
        while self.settled && self.opened < self.allowed.min(*most) {
            let flags = frames::END_HEADERS | if *ends { frames::END_STREAM } else { 0 };
            frames::put(out, frames::HEADERS, flags, self.next, &[head]);
            if *uploads {
                self.uploads.insert(self.next, self.first);
            }
            self.next += 2;
            self.opened += 1;
        }
        let body = [b'x'; PIECE as usize];
        for (id, window) in &mut self.uploads {
            let length = PIECE.min(*window).min(self.window);
            if length > 0 && out.len() < UPLOAD {
                frames::put(out, frames::DATA, 0, *id, &[&body[..length as usize]]);
                (*window, self.window) = (*window - length, self.window - length);
            }
        }
    }

    fn repeat(&mut self) {
        if !self.settled {
            return;
        }
        if !self.begun {
            self.begun = true;
            self.line.out.extend_from_slice(&self.script.opening);
        }
        for _ in 0..self.script.times {
            let mut rest = &self.script.again[..];
            let mut used = false;
            while let Some((frame, after)) = Frame::first(rest) {
                let is_next = frame.stream == STREAM;
                let stream = if is_next { self.next } else { frame.stream };
                used |= is_next;
                frames::put(&mut self.line.out, frame.kind, frame.flags, stream, &[frame.payload]);
                rest = after;
            }
            self.next += if used { 2 } else { 0 };
        }
    }
}

impl Attacker for Client {
    fn turn(&mut self, now: Instant) {
        match self.line.stands(now) {
            None => return,
            Some(true) => self.begin(),
            Some(false) => {}
        }
        self.hear(now);
        self.open();
        // Who takes no more is not flooded.
        if self.line.is_empty() || self.line.out.len() < 64 << 10 {
            self.repeat();
        }
        self.line.write(now);
    }

    fn ended(&self) -> u64 {
        self.line.ended
    }
}
