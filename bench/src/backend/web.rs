//! A member that speaks HTTP/1.1 and never closes.

use super::Seen;
use super::server::{Saying, Talk};
use crate::message::http::{self, Asked};
use crate::message::{ANSWER_HEAD, PATTERN, REQUEST_HEAD};

#[derive(Default)]
pub struct Web {
    head: Vec<u8>,
}

/// Answers up to this size leave in one call, head and body together.
const SMALL: usize = 2048;

impl Talk for Web {
    fn take(&mut self, bytes: &[u8], say: &mut Saying, seen: &mut Seen) -> bool {
        let asked = if self.head.is_empty() {
            http::asked(bytes)
        } else {
            self.head.extend_from_slice(bytes);
            http::asked(&self.head)
        };
        match asked {
            Asked::Broken => return false,
            Asked::More if self.head.is_empty() => self.head.extend_from_slice(bytes),
            Asked::More => {}
            Asked::Whole(request) => {
                self.head.clear();
                seen.requests += 1;
                seen.bytes_in += REQUEST_HEAD as u64;
                http::answer(&mut say.bytes, request.answer_len);
                say.bytes.extend_from_slice(&request.answer_head());
                let mut at = ANSWER_HEAD;
                if request.answer_len <= SMALL {
                    say.bytes.extend_from_slice(&PATTERN[at..request.answer_len]);
                    at = request.answer_len;
                }
                seen.bytes_out += at as u64;
                say.pattern(at, request.answer_len);
            }
        }
        true
    }

    fn is_between_requests(&self) -> bool {
        self.head.is_empty()
    }
}
