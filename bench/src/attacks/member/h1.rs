//! A server of HTTP/1.1.

use super::{BIG, BODY, Next, PIECE};

#[derive(Default)]
pub(super) struct H1 {
    input: Vec<u8>,
    /// Of a request's body, not yet read, and what is answered then.
    body: u64,
    target: Option<String>,
    /// Of an answer, not yet written.
    left: u64,
    trickles: bool,
    next: Option<Next>,
}

impl H1 {
    pub(super) fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Next {
        self.input.extend_from_slice(bytes);
        while self.next.is_none() && self.left == 0 {
            let skipped = (self.body as usize).min(self.input.len());
            self.input.drain(..skipped);
            self.body -= skipped as u64;
            if self.body > 0 {
                break;
            }
            if let Some(target) = self.target.take() {
                out.extend_from_slice(
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {BODY}\r\n\r\n").as_bytes(),
                );
                out.extend_from_slice(format!("{target:<BODY$.BODY$}").as_bytes());
            }
            let Some(end) = self.input.windows(4).position(|four| four == b"\r\n\r\n") else { break };
            let head: Vec<u8> = self.input.drain(..end + 4).collect();
            self.answer(&String::from_utf8_lossy(&head), out);
        }
        self.next.unwrap_or(Next::Reads)
    }

    fn answer(&mut self, head: &str, out: &mut Vec<u8>) {
        let target = head.split(' ').nth(1).unwrap_or_default();
        let field = |name: &str| {
            let mut fields = head.lines().filter_map(|line| line.split_once(':'));
            fields.find(|it| it.0.eq_ignore_ascii_case(name)).map(|it| it.1.trim())
        };
        match target {
            _ if field("upgrade").is_some() => {
                out.extend_from_slice(
                    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                      Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
                );
                self.left = BIG;
            }
            "/big" => {
                out.extend_from_slice(format!("HTTP/1.1 200 OK\r\nContent-Length: {BIG}\r\n\r\n").as_bytes());
                self.left = BIG;
            }
            "/hold" => self.next = Some(Next::Holds),
            "/silent" => {}
            "/trickle" => {
                out.extend_from_slice(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
                self.trickles = true;
            }
            "/cut" => {
                out.extend_from_slice(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nsome");
                self.next = Some(Next::Ends);
            }
            _ => {
                self.body = field("content-length").and_then(|it| it.parse().ok()).unwrap_or(0);
                self.target = Some(target.to_owned());
            }
        }
    }

    /// Says the next piece of an answer without end.
    pub(super) fn more(&mut self, out: &mut Vec<u8>) {
        let piece = (PIECE as u64).min(self.left);
        out.resize(out.len() + piece as usize, b'x');
        self.left -= piece;
    }

    /// Whether there is another byte.
    pub(super) fn trickle(&mut self, out: &mut Vec<u8>) -> bool {
        if self.trickles {
            out.push(b'x');
        }
        self.trickles
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_repeats_what_was_asked_for_and_a_handler_that_holds_reads_no_more() {
        let (mut server, mut out) = (H1::default(), Vec::new());
        assert_eq!(server.take(b"POST /7 HTTP/1.1\r\nContent-Length: 3\r\n\r\nab", &mut out), Next::Reads);
        assert_eq!(server.take(b"cGET /8 HTTP/1.1\r\n\r\n", &mut out), Next::Reads);
        let text = String::from_utf8(out.clone()).unwrap();
        assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 2);
        assert!(text.contains("\r\n\r\n/7 ") && text.contains("\r\n\r\n/8 "));
        assert_eq!(server.take(b"GET /hold HTTP/1.1\r\n\r\n", &mut out), Next::Holds);
    }
}
