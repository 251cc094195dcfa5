//! Heads of requests.

use super::{
    BodyFraming, ByteRange, Field, HeadError, KnownHeader, Limits, ReadProgress, Version, bytes,
    framing::FramingHeaders,
    head::{self, HeadEndSearch, HeaderLines},
    target::{self, RequestTarget},
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Method {
    #[default]
    Get,
    Head,
    Post,
    Put,
    Delete,
    Options,
    Patch,
    Connect,
    Trace,
    /// Some token; [`Request::method_name`] has it.
    Other,
}

impl Method {
    pub fn of(name: &[u8]) -> Method {
        match name {
            b"GET" => Method::Get,
            b"HEAD" => Method::Head,
            b"POST" => Method::Post,
            b"PUT" => Method::Put,
            b"DELETE" => Method::Delete,
            b"OPTIONS" => Method::Options,
            b"PATCH" => Method::Patch,
            b"CONNECT" => Method::Connect,
            b"TRACE" => Method::Trace,
            _ => Method::Other,
        }
    }

    /// Twice does what once does (RFC 9110, section 9.2.2).
    pub fn is_idempotent(self) -> bool {
        use Method::*;
        matches!(self, Get | Head | Put | Delete | Options | Trace)
    }
}

/// One head after another, in places that are allocated once.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub method: Method,
    pub method_name: ByteRange,
    pub version: Version,
    pub fields: Vec<Field>,
    /// Bytes of the head, its empty line included; what follows is the body.
    pub length: usize,
    pub body: BodyFraming,
    /// The connection may serve another request after this one.
    pub persists: bool,
    /// A switch of protocols is asked for (RFC 9110, section 7.8).
    pub upgrade: bool,
    /// The client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// Whom it is for: of the target if that says so, else of `Host`; empty only in HTTP/1.0.
    pub authority: ByteRange,
    target: RequestTarget,
    search: HeadEndSearch,
}

impl Request {
    /// Before the first byte of the next head.
    pub fn begin(&mut self) {
        self.search = HeadEndSearch::default();
        // What cannot be read is nothing in particular.
        self.method = Method::default();
    }

    /// Reads the head at the start of `bytes`, which grow from one call to the next.
    pub fn read(&mut self, bytes: &[u8], limits: &Limits) -> ReadProgress {
        let Some(end) = self.search.end(bytes) else {
            return if bytes.len() < limits.head {
                ReadProgress::More
            } else {
                ReadProgress::Refused(too_long(bytes))
            };
        };
        if end > limits.head {
            return ReadProgress::Refused(too_long(bytes));
        }
        match self.understand(bytes.get(..end).unwrap_or_default(), limits) {
            Ok(()) => ReadProgress::Whole,
            Err(refusal) => ReadProgress::Refused(refusal),
        }
    }

    fn understand(&mut self, head: &[u8], limits: &Limits) -> Result<(), HeadError> {
        let start: usize = if head.starts_with(b"\r\n") { 2 } else { 0 };
        let mut lines = HeaderLines::new(head, start);
        let (_, line) = lines.next()?;
        let length = bytes::token_length(line);
        let (name, rest) = line.split_at(length);
        let rest = rest
            .strip_prefix(b" ")
            .filter(|_| length > 0)
            .ok_or(HeadError::bad("an invalid request line"))?;
        let space = memchr::memrchr(b' ', rest).ok_or(HeadError::bad("an invalid request line"))?;
        let (asked, version) =
            rest.split_at_checked(space).ok_or(HeadError::bad("an invalid request line"))?;
        let version = version.strip_prefix(b" ").unwrap_or_default();
        if is_another_protocol(name, asked, version) {
            return Err(HeadError::ANOTHER_PROTOCOL);
        }
        self.version = head::version(version)?;
        if space > limits.target {
            return Err(HeadError::new(414, "a target that is too long"));
        }
        self.method = Method::of(name);
        let end = start.saturating_add(length);
        self.method_name = ByteRange::new(start, end);
        let at = end.saturating_add(1);
        self.target = target::target(head, ByteRange::new(at, at.saturating_add(space)), self.method)?;
        self.fields.clear();
        lines.fields(&mut self.fields, limits)?;
        self.length = head.len();
        self.frame(head)?;
        self.address(head)
    }

    fn frame(&mut self, head: &[u8]) -> Result<(), HeadError> {
        let says = FramingHeaders::of(head, &mut self.fields, self.version)?;
        self.persists = says.persists(self.version);
        self.body = match (says.chunked, says.length) {
            (false, None) if self.method == Method::Connect => BodyFraming::Tunnel,
            _ if self.method == Method::Connect => return Err(HeadError::bad("CONNECT with a body")),
            (true, _) => BodyFraming::Chunked,
            (false, None | Some(0)) => BodyFraming::None,
            (false, Some(length)) => BodyFraming::Length(length),
        };
        // Where a body ends and the other protocol begins is nothing to disagree about.
        self.upgrade = says.upgrade && self.body == BodyFraming::None;
        self.expects_continue = false;
        for field in self.fields.iter().filter(|field| field.known == KnownHeader::Expect) {
            if !field.value.of(head).eq_ignore_ascii_case(b"100-continue") {
                return Err(HeadError::new(417, "an Expect header other than 100-continue"));
            }
            self.expects_continue = self.version == Version::Http11 && self.body != BodyFraming::None;
        }
        Ok(())
    }

    fn address(&mut self, head: &[u8]) -> Result<(), HeadError> {
        let mut hosts = self.fields.iter().filter(|field| field.known == KnownHeader::Host);
        let host = hosts.next().map(|field| field.value);
        if hosts.next().is_some() {
            return Err(HeadError::bad("more than one Host"));
        }
        if host.is_none() && self.version == Version::Http11 {
            return Err(HeadError::bad("no Host"));
        }
        let host = host.unwrap_or_default();
        if !host.is_empty() && !target::is_authority(host.of(head), false) {
            return Err(HeadError::bad("an invalid Host"));
        }
        // The target's own authority beats Host (RFC 9112, section 3.2.2).
        self.authority = self.target.authority.unwrap_or(host);
        Ok(())
    }

    /// Path and query as they are to be sent on; empty stands for `/`.
    pub fn path_and_query(&self) -> ByteRange {
        self.target.path
    }

    pub fn path(&self) -> ByteRange {
        ByteRange { end: self.target.path_end, ..self.target.path }
    }

    /// Without its `?`.
    pub fn query(&self) -> ByteRange {
        let ByteRange { end, .. } = self.target.path;
        ByteRange { start: self.target.path_end.saturating_add(1).min(end), end }
    }

    /// The value of the first field of that kind.
    pub fn field(&self, known: KnownHeader) -> Option<ByteRange> {
        self.fields.iter().find(|field| field.known == known).map(|field| field.value)
    }
}

/// Three words that are no more like HTTP/1 than that, or the preface of HTTP/2 where it is not followed by the rest
/// (RFC 9113, section 3.4).
fn is_another_protocol(name: &[u8], target: &[u8], version: &[u8]) -> bool {
    let is_target = target.iter().any(|byte| matches!(byte, b'/' | b':' | b'*'));
    name == b"PRI" || (!is_target && !version.starts_with(b"HTTP/"))
}

fn too_long(bytes: &[u8]) -> HeadError {
    if bytes.contains(&b'\n') {
        HeadError::new(431, "a head that is too long")
    } else {
        HeadError::new(414, "a request line that is too long")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_without_end_is_waited_for_until_it_is_as_long_as_it_may_be() {
        let limits = Limits { head: 64, ..Limits::default() };
        let head = format!("GET / HTTP/1.1\r\nHost: a\r\nx: {}", "y".repeat(64));
        let read = |length: usize| {
            let mut request = Request::default();
            request.begin();
            request.read(&head.as_bytes()[..length], &limits)
        };
        assert_eq!(read(63), ReadProgress::More);
        assert!(matches!(read(64), ReadProgress::Refused(_)));
    }
}
