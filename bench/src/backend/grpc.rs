//! A member that speaks gRPC: HTTP/2 without TLS, a message for a message, and trailers. It obeys its peer's windows.

use std::collections::{HashMap, VecDeque};

use super::BackendCounters;
use super::server::{OutputBuffer, ServerProtocol};
use crate::message::frames::{self, Frame};
use crate::message::{ANSWER_HEAD, PATTERN, REQUEST_HEAD, Request, grpc, intact};

#[derive(Default)]
pub struct Grpc {
    begun: bool,
    input: Vec<u8>,
    coming: HashMap<u32, Vec<u8>>,
    /// Answers that are not said yet, or not whole, because a window is shut.
    waiting: VecDeque<Answer>,
    /// Of the connection, and of a new stream.
    window: i64,
    first: i64,
    /// Windows of streams that are no longer what they were at first.
    windows: HashMap<u32, i64>,
    taken: u32,
}

struct Answer {
    stream: u32,
    message: Vec<u8>,
    said: usize,
}

/// Without a table: nginx allows none. Its status is 200, its type `application/grpc`.
const HEAD: &[u8] = b"\x88\x0f\x10\x10application/grpc";
const TRAILER: &[u8] = b"\x00\x0bgrpc-status\x010";
/// As large as a frame may be where the peer has said nothing else.
const LARGEST_FRAME: usize = 16 << 10;

impl ServerProtocol for Grpc {
    fn take(&mut self, bytes: &[u8], say: &mut OutputBuffer, seen: &mut BackendCounters) -> bool {
        let mut input = std::mem::take(&mut self.input);
        input.extend_from_slice(bytes);
        let mut rest = &input[..];
        if !self.begun {
            let Some(after) = rest.strip_prefix(frames::PREFACE) else {
                let is_beginning = frames::PREFACE.starts_with(rest);
                self.input = input;
                return is_beginning;
            };
            rest = after;
            self.begun = true;
            (self.window, self.first) = (frames::FIRST_WINDOW, frames::FIRST_WINDOW);
            frames::begin(&mut say.bytes, false);
        }
        while let Some((frame, after)) = Frame::first(rest) {
            if !self.frame(&frame, say, seen) {
                return false;
            }
            rest = after;
        }
        let done = input.len() - rest.len();
        input.drain(..done);
        self.input = input;
        self.answer(say, seen);
        true
    }

    fn is_between_requests(&self) -> bool {
        self.coming.is_empty() && self.waiting.is_empty()
    }
}

impl Grpc {
    fn frame(&mut self, frame: &Frame<'_>, say: &mut OutputBuffer, seen: &mut BackendCounters) -> bool {
        match frame.kind {
            _ if frame.is_strange() => return false,
            frames::HEADERS => drop(self.coming.insert(frame.stream, Vec::new())),
            frames::DATA => {
                let Some(body) = self.coming.get_mut(&frame.stream) else { return false };
                body.extend_from_slice(frame.payload);
                self.taken += frame.payload.len() as u32;
                if self.taken > frames::MOST_TAKEN {
                    frames::widen(&mut say.bytes, std::mem::take(&mut self.taken));
                }
            }
            frames::SETTINGS if !frame.has(frames::ACK) => {
                if let Some(first) = frame.first_window() {
                    self.windows.values_mut().for_each(|window| *window += first - self.first);
                    self.first = first;
                }
                frames::put(&mut say.bytes, frames::SETTINGS, frames::ACK, 0, &[]);
            }
            frames::PING if !frame.has(frames::ACK) => {
                frames::put(&mut say.bytes, frames::PING, frames::ACK, 0, &[frame.payload]);
            }
            frames::WINDOW_UPDATE if frame.stream == 0 => self.window += frame.increment(),
            // What comes for a stream that is over is of no use.
            frames::WINDOW_UPDATE if self.is_open(frame.stream) => {
                *self.windows.entry(frame.stream).or_insert(self.first) += frame.increment();
            }
            frames::RST_STREAM => {
                self.coming.remove(&frame.stream);
                self.windows.remove(&frame.stream);
                self.waiting.retain(|answer| answer.stream != frame.stream);
            }
            _ => {}
        }
        !frame.ends_stream() || self.asked(frame.stream, seen)
    }

    fn is_open(&self, stream: u32) -> bool {
        self.coming.contains_key(&stream) || self.waiting.iter().any(|answer| answer.stream == stream)
    }

    fn asked(&mut self, stream: u32, seen: &mut BackendCounters) -> bool {
        let Some(body) = self.coming.remove(&stream) else { return false };
        let message = grpc::message(&body).unwrap_or_default();
        let Some(request) = Request::parse(message) else { return false };
        seen.requests += 1;
        seen.bytes_in += message.len() as u64;
        let length = request.answer_len;
        let answer = [&grpc::prefix(length)[..], &request.answer_head(), &PATTERN[ANSWER_HEAD..length]];
        self.waiting.push_back(Answer { stream, message: answer.concat(), said: 0 });
        request.len == message.len() && intact(&message[REQUEST_HEAD..], REQUEST_HEAD)
    }

    /// Says as much of all answers as the windows allow.
    fn answer(&mut self, say: &mut OutputBuffer, seen: &mut BackendCounters) {
        let Self { waiting, window, windows, first, .. } = self;
        let out = &mut say.bytes;
        waiting.retain_mut(|Answer { stream, message, said }| {
            if *said == 0 && *window <= 0 {
                return true;
            }
            let of_stream = windows.get(stream).copied().unwrap_or(*first);
            let mut left = of_stream;
            let begins = *said == 0 && left > 0;
            if begins {
                frames::put(out, frames::HEADERS, frames::END_HEADERS, *stream, &[HEAD]);
            }
            while *said < message.len() {
                let length = (message.len() - *said).min(LARGEST_FRAME) as i64;
                let length = length.min(left).min(*window);
                if length <= 0 {
                    break;
                }
                frames::put(out, frames::DATA, 0, *stream, &[&message[*said..][..length as usize]]);
                *said += length as usize;
                (left, *window) = (left - length, *window - length);
            }
            if *said < message.len() {
                if left != of_stream {
                    windows.insert(*stream, left);
                }
                return true;
            }
            windows.remove(stream);
            seen.bytes_out += (message.len() - grpc::PREFIX) as u64;
            let last = frames::END_HEADERS | frames::END_STREAM;
            frames::put(out, frames::HEADERS, last, *stream, &[TRAILER]);
            false
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_said_as_far_as_the_windows_of_its_stream_and_its_connection_allow() {
        let (mut member, mut say, mut seen) =
            (Grpc::default(), OutputBuffer::default(), BackendCounters::default());
        let request = Request { sequence: 1, len: REQUEST_HEAD, answer_len: 100, close: false };
        let mut asked = frames::PREFACE.to_vec();
        frames::put(&mut asked, frames::SETTINGS, 0, 0, &[&[0, 4, 0, 0, 0, 60]]);
        frames::put(&mut asked, frames::HEADERS, frames::END_HEADERS, 1, &[b"\x83"]);
        let message: [&[u8]; 2] = [&grpc::prefix(REQUEST_HEAD), &request.head()];
        frames::put(&mut asked, frames::DATA, frames::END_STREAM, 1, &message);
        assert!(member.take(&asked, &mut say, &mut seen));
        let said = |say: &mut OutputBuffer| {
            let bytes = std::mem::take(&mut say.bytes);
            let (mut rest, mut data) = (&bytes[..], 0);
            while let Some((frame, after)) = Frame::first(rest) {
                data += if frame.kind == frames::DATA { frame.payload.len() } else { 0 };
                rest = after;
            }
            data
        };
        assert_eq!(said(&mut say), 60);
        let mut wider = Vec::new();
        frames::put(&mut wider, frames::WINDOW_UPDATE, 0, 1, &[&100_u32.to_be_bytes()]);
        assert!(member.take(&wider, &mut say, &mut seen));
        assert_eq!(said(&mut say), 45);
        assert!(member.is_between_requests() && member.windows.is_empty());
        assert_eq!(seen.bytes_out, 100);
    }
}
