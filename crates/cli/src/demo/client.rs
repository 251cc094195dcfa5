//! GET, for looking at what the demo started.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use anyhow::{Context, Result};

pub(super) struct HttpResponse {
    pub(super) status: u16,
    pub(super) body: String,
}

pub(super) fn get(at: SocketAddr, path: &str) -> Result<HttpResponse> {
    let mut stream = TcpStream::connect_timeout(&at, Duration::from_secs(2))?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").context("no end of the head")?;
    let status = head.split_whitespace().nth(1).and_then(|it| it.parse().ok()).context("no status")?;
    Ok(HttpResponse { status, body: unchunked(head, body) })
}

/// So many answers, on one connection.
pub(super) fn repeated_answers(at: SocketAddr, path: &str, times: usize) -> Vec<Result<HttpResponse>> {
    let connected = TcpStream::connect_timeout(&at, Duration::from_secs(2));
    let mut stream = match connected {
        Ok(stream) => BufReader::new(stream),
        Err(error) => return vec![Err(error.into())],
    };
    (0..times).map(|_| next_answer(&mut stream, at, path)).collect()
}

fn next_answer(stream: &mut BufReader<TcpStream>, at: SocketAddr, path: &str) -> Result<HttpResponse> {
    stream.get_ref().set_read_timeout(Some(Duration::from_secs(5)))?;
    write!(stream.get_mut(), "GET {path} HTTP/1.1\r\nHost: {at}\r\n\r\n")?;
    let (mut status, mut length) = (None, 0);
    loop {
        let mut line = String::new();
        anyhow::ensure!(stream.read_line(&mut line)? > 0, "the connection was closed");
        match line.trim_end().split_once(' ') {
            None => break,
            Some((version, rest)) if status.is_none() && version.starts_with("HTTP/") => {
                status = rest.get(..3).and_then(|it| it.parse().ok());
            }
            Some((name, value)) if name.eq_ignore_ascii_case("content-length:") => length = value.parse()?,
            Some(_) => {}
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(HttpResponse {
        status: status.context("no status")?,
        body: String::from_utf8_lossy(&body).into_owned(),
    })
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
