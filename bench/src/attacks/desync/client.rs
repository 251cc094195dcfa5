//! Asks one thing after the other by HTTP/1.1, and waits for each answer.

use std::io::{BufReader, Read as _, Write as _};
use std::net::{SocketAddrV4, TcpStream};
use std::time::Duration;

use super::member::read_head;

pub(super) struct Client(Option<BufReader<TcpStream>>);

impl Client {
    pub(super) fn new(to: SocketAddrV4) -> Self {
        let stream = TcpStream::connect(to).and_then(|it| it.set_nodelay(true).map(|()| it));
        Self(stream.ok().map(BufReader::new))
    }

    /// The connection may be over.
    pub(super) fn say(&mut self, text: &str) {
        if let Some(stream) = &mut self.0 {
            let _said = stream.get_mut().write_all(text.as_bytes());
        }
    }

    pub(super) fn ask(&mut self, request: &str, patience: Duration) -> Option<(u16, String)> {
        self.say(request);
        self.answer(request.starts_with("HEAD"), patience)
    }

    /// Status and body of the next answer. Interim answers are passed over.
    pub(super) fn answer(&mut self, head_only: bool, patience: Duration) -> Option<(u16, String)> {
        let stream = self.0.as_mut()?;
        stream.get_ref().set_read_timeout(Some(patience)).ok()?;
        loop {
            let head = read_head(stream)?;
            let status: u16 = head.get(9..12)?.parse().ok()?;
            if (100..200).contains(&status) {
                continue;
            }
            let lines = head.lines().filter_map(|line| line.split_once(':'));
            let mut lengths = lines.filter(|it| it.0.eq_ignore_ascii_case("content-length"));
            let length = lengths.next().and_then(|it| it.1.trim().parse().ok()).unwrap_or(0);
            let mut body = vec![0; if head_only || matches!(status, 204 | 304) { 0 } else { length }];
            stream.read_exact(&mut body).ok()?;
            return Some((status, String::from_utf8_lossy(&body).into_owned()));
        }
    }
}
