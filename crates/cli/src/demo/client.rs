//! One GET, for looking at what the demo started.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::{Context, Result};

pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
}

pub(super) fn get(at: SocketAddr, path: &str) -> Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&at, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").context("no end of the head")?;
    let status = head.split_whitespace().nth(1).and_then(|it| it.parse().ok()).context("no status")?;
    Ok(Answer { status, body: unchunked(head, body) })
}

/// Chunk sizes stand on lines of their own; what is asked here has none within.
fn unchunked(head: &str, body: &str) -> String {
    if !head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        return body.to_owned();
    }
    let (mut text, mut rest) = (String::new(), body);
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        let Some(chunk) = after.get(..size).filter(|it| !it.is_empty()) else { break };
        text.push_str(chunk);
        rest = after.get(size + 2..).unwrap_or("");
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn chunks_are_joined() {
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked";
        assert_eq!(super::unchunked(head, "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"), "abcde");
        assert_eq!(super::unchunked("", "3\r\nabc"), "3\r\nabc");
    }
}
