//! The start of an answer, which is all that a health check reads.

use super::bytes::number;

/// What the start of an HTTP/1 answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusLine {
    /// So far it may become anything.
    Partial,
    /// 100 to 999.
    Code(u16),
    Invalid,
}

/// The longest status line that is waited for.
pub const STATUS_LINE_MAX: usize = 1024;

/// Reads `HTTP/1.x NNN reason CRLF` and nothing laxer (RFC 9112, section 4): a backend that answers a bare LF
/// or a two-digit status would fail its real clients too.
pub fn status(bytes: &[u8]) -> StatusLine {
    const START: &[u8] = b"HTTP/1.";
    if bytes.iter().zip(START).any(|(is, wanted)| is != wanted) {
        return StatusLine::Invalid;
    }
    let bytes = bytes.get(..STATUS_LINE_MAX).unwrap_or(bytes);
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
        return if bytes.len() < STATUS_LINE_MAX { StatusLine::Partial } else { StatusLine::Invalid };
    };
    let line = bytes.get(..end).and_then(|line| line.strip_suffix(b"\r"));
    let Some(line) = line.and_then(|line| line.strip_prefix(START)) else {
        return StatusLine::Invalid;
    };
    let [minor, b' ', a, b, c, rest @ ..] = line else { return StatusLine::Invalid };
    let text = |byte: &u8| *byte == b'\t' || (*byte >= b' ' && *byte != 0x7f);
    let reason_fits = matches!(rest, [] | [b' ', ..]) && rest.iter().all(text);
    if !minor.is_ascii_digit() || !reason_fits {
        return StatusLine::Invalid;
    }
    match number(&[*a, *b, *c]).map(u16::try_from) {
        Some(Ok(code @ 100..)) => StatusLine::Code(code),
        _ => StatusLine::Invalid,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_line_is_read_strictly() {
        for (bytes, expected) in [
            (&b""[..], StatusLine::Partial),
            (b"HTT", StatusLine::Partial),
            (b"HTTP/1.1 200 OK", StatusLine::Partial),
            (b"HTTP/1.1 200 OK\r\n", StatusLine::Code(200)),
            (b"HTTP/1.0 404\r\nServer: x", StatusLine::Code(404)),
            (b"HTTP/1.1 503 \r\n", StatusLine::Code(503)),
            (b"HTTP/1.1 200 OK\n", StatusLine::Invalid),
            (b"HTTP/2 200\r\n", StatusLine::Invalid),
            (b"HTTP/1.1 20\r\n", StatusLine::Invalid),
            (b"HTTP/1.1 2000\r\n", StatusLine::Invalid),
            (b"HTTP/1.1 099 x\r\n", StatusLine::Invalid),
            (b"HTTP/1.1  200\r\n", StatusLine::Invalid),
            (b"HTTP/1.1 200 a\0b\r\n", StatusLine::Invalid),
            (b"SSH-2.0-x\r\n", StatusLine::Invalid),
        ] {
            assert_eq!(status(bytes), expected, "{}", String::from_utf8_lossy(bytes));
        }
        assert_eq!(status(&[b"HTTP/1.1 200 ", &[b'a'; 2000][..]].concat()), StatusLine::Invalid);
        assert_eq!(status(&[b"HTTP/1.1 200 ", &[b'a'; 2000][..], b"\r\n"].concat()), StatusLine::Invalid);
    }
}
