//! A member that speaks HTTP/1.1 and never closes. Over a WebSocket it answers plain messages.

use super::BackendCounters;
use super::server::{OutputBuffer, ServerProtocol};
use crate::message::http::{self, ParsedRequest};
use crate::message::{ANSWER_HEAD, PATTERN, REQUEST_HEAD, Request, intact};

#[derive(Default)]
pub struct Web {
    /// Of a question; over a WebSocket, all of it that has come.
    head: Vec<u8>,
    is_socket: bool,
}

/// Answers up to this size leave in one call, head and body together.
const SMALL: usize = 2048;

impl ServerProtocol for Web {
    fn take(&mut self, bytes: &[u8], say: &mut OutputBuffer, seen: &mut BackendCounters) -> bool {
        if self.is_socket {
            self.head.extend_from_slice(bytes);
            return self.messages(say, seen);
        }
        let asked = if self.head.is_empty() {
            http::asked(bytes)
        } else {
            self.head.extend_from_slice(bytes);
            http::asked(&self.head)
        };
        match asked {
            ParsedRequest::Broken
                if http::is_upgrade(if self.head.is_empty() { bytes } else { &self.head }) =>
            {
                self.head.clear();
                self.is_socket = true;
                say.bytes.extend_from_slice(http::UPGRADED);
            }
            ParsedRequest::Broken => return false,
            ParsedRequest::More if self.head.is_empty() => self.head.extend_from_slice(bytes),
            ParsedRequest::More => {}
            ParsedRequest::Whole(request) => {
                self.head.clear();
                // What a contender asks by itself is none of the clients' requests.
                let counts = u64::from(request.sequence != http::OF_A_CONTENDER);
                seen.requests += counts;
                seen.bytes_in += REQUEST_HEAD as u64 * counts;
                http::answer(&mut say.bytes, request.answer_len);
                say.bytes.extend_from_slice(&request.answer_head());
                let mut at = ANSWER_HEAD;
                if request.answer_len <= SMALL {
                    say.bytes.extend_from_slice(&PATTERN[at..request.answer_len]);
                    at = request.answer_len;
                }
                seen.bytes_out += at as u64 * counts;
                say.pattern(at, request.answer_len);
            }
        }
        true
    }

    fn is_between_requests(&self) -> bool {
        self.head.is_empty()
    }
}

impl Web {
    /// Answers all messages that are whole.
    fn messages(&mut self, say: &mut OutputBuffer, seen: &mut BackendCounters) -> bool {
        while self.head.len() >= REQUEST_HEAD {
            let Some(request) = Request::parse(&self.head) else { return false };
            if self.head.len() < request.len {
                return true;
            }
            if !intact(&self.head[REQUEST_HEAD..request.len], REQUEST_HEAD) {
                return false;
            }
            self.head.drain(..request.len);
            seen.requests += 1;
            seen.bytes_in += request.len as u64;
            seen.bytes_out += request.answer_len as u64;
            say.bytes.extend_from_slice(&request.answer_head());
            say.bytes.extend_from_slice(&PATTERN[ANSWER_HEAD..request.answer_len]);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_a_websocket_each_whole_message_is_answered_and_a_changed_byte_is_refused() {
        let (mut member, mut say, mut seen) =
            (Web::default(), OutputBuffer::default(), BackendCounters::default());
        assert!(member.take(http::UPGRADE, &mut say, &mut seen));
        assert_eq!(say.bytes, http::UPGRADED);
        say.bytes.clear();
        let request = Request { sequence: 7, len: 100, answer_len: 50, close: false };
        let mut message = request.head().to_vec();
        message.extend_from_slice(&PATTERN[REQUEST_HEAD..request.len]);
        assert!(member.take(&message[..60], &mut say, &mut seen));
        assert!(say.bytes.is_empty() && !member.is_between_requests());
        assert!(member.take(&message[60..], &mut say, &mut seen));
        assert_eq!((say.bytes.len(), seen.requests, seen.bytes_in, seen.bytes_out), (50, 1, 100, 50));
        message[70] ^= 1;
        assert!(!member.take(&message, &mut say, &mut seen));
    }
}
