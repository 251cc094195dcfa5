//! Responses that this proxy makes itself, without a member: errors, redirects and preflights.

use std::borrow::Cow;

/// The usual words for a status.
pub(super) fn reason(status: u16) -> &'static str {
    match status {
        101 => "Switching Protocols",
        200 => "OK",
        204 => "No Content",
        301 => "Moved Permanently",
        302 => "Found",
        303 => "See Other",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        408 => "Request Timeout",
        413 => "Content Too Large",
        414 => "URI Too Long",
        417 => "Expectation Failed",
        421 => "Misdirected Request",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        505 => "HTTP Version Not Supported",
        508 => "Loop Detected",
        _ => "",
    }
}

/// A response that this proxy makes itself, without a member: an error, a redirect, a preflight.
pub(super) struct LocalReply<'a> {
    pub(super) status: u16,
    /// More of its head, as lines.
    pub(super) fields: &'a str,
    /// `None`: the usual words for the status.
    pub(super) body: Option<&'a str>,
    /// Only the head is wanted.
    pub(super) head_only: bool,
    /// The connection goes on after it.
    pub(super) persists: bool,
}

impl<'a> LocalReply<'a> {
    /// The connection ends with it.
    pub(super) fn last(status: u16) -> LocalReply<'a> {
        LocalReply { status, fields: "", body: None, head_only: false, persists: false }
    }

    /// Fields as lines, and the body.
    pub(super) fn parts(&self) -> (String, Cow<'a, str>) {
        let body = match self.body {
            Some(body) => Cow::Borrowed(body),
            None => Cow::Owned(format!("{} {}\n", self.status, reason(self.status))),
        };
        let more = self.fields;
        // By definition without a body, and without a word on its length (RFC 9110, section 8.6).
        if self.status == 204 {
            return (more.to_owned(), Cow::Borrowed(""));
        }
        let kind = if body.trim_start().starts_with('<') { "text/html" } else { "text/plain" };
        let length = body.len();
        (format!("{more}Content-Type: {kind}; charset=utf-8\r\nContent-Length: {length}\r\n"), body)
    }

    /// Of the body that goes to the client.
    pub(super) fn length(&self) -> usize {
        if self.head_only { 0 } else { self.parts().1.len() }
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let (fields, body) = self.parts();
        let connection = if self.persists { "" } else { "Connection: close\r\n" };
        let head = format!("HTTP/1.1 {} {}\r\n{fields}{connection}\r\n", self.status, reason(self.status));
        out.extend_from_slice(head.as_bytes());
        if !self.head_only {
            out.extend_from_slice(body.as_bytes());
        }
    }
}
