//! Heads of messages, from fields to lines as HTTP/1.1 has them.

use std::ops::Range;

use super::{fields::digits, table::OVERHEAD};
use crate::http::bytes;

/// Reads one head. What is wrong with it is known at its end, for the tables must hear all of it.
#[derive(Debug, Default)]
pub(super) struct Head {
    /// Lines, but for the empty one at the end.
    pub(super) lines: Vec<u8>,
    /// What leads the fields, until all of it is there.
    lead: Vec<u8>,
    method: Range<usize>,
    scheme: Range<usize>,
    authority: Range<usize>,
    path: Range<usize>,
    protocol: Range<usize>,
    cookies: Vec<u8>,
    pub(super) facts: HeadFacts,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeadFacts {
    kind: Kind,
    size: usize,
    most: usize,
    /// Of an answer.
    pub(super) status: u16,
    /// Of the body, as it is told.
    pub(super) length: Option<u64>,
    pub(super) connects: bool,
    pub(super) switches: bool,
    has_host: bool,
    has_key: bool,
    /// Fields have begun: nothing may lead any more.
    begun: bool,
    pub(super) wrong: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    #[default]
    Request,
    Response,
    Trailers,
}

impl HeadFacts {
    pub(super) fn is_too_large(&self) -> bool {
        self.size > self.most
    }
}

impl Head {
    pub(super) fn begin(&mut self, kind: Kind, most: usize) {
        self.lines.clear();
        self.lead.clear();
        self.cookies.clear();
        let none = 0..0;
        [&mut self.method, &mut self.scheme, &mut self.authority, &mut self.path, &mut self.protocol]
            .into_iter()
            .for_each(|it| *it = none.clone());
        self.facts = HeadFacts { kind, most, begun: kind == Kind::Trailers, ..HeadFacts::default() };
    }

    /// What the longest heads needed is not kept for the next ones.
    pub(super) fn let_go(&mut self) {
        const KEPT: usize = 1 << 10;
        for buffer in [&mut self.lines, &mut self.lead, &mut self.cookies] {
            if buffer.capacity() > KEPT {
                *buffer = Vec::new();
            }
        }
    }

    pub(super) fn take(&mut self, name: &[u8], value: &[u8]) {
        self.facts.size = [name.len(), value.len(), OVERHEAD]
            .iter()
            .fold(self.facts.size, |sum, it| sum.saturating_add(*it));
        if self.facts.wrong || self.facts.is_too_large() {
            return;
        }
        let is_fine = match name.first() {
            Some(b':') => !self.facts.begun && self.leads(name, value),
            Some(_) => self.begins() && self.follows(name, value),
            None => false,
        };
        self.facts.wrong |= !is_fine;
    }

    /// All fields have come.
    pub(super) fn end(&mut self) {
        if self.facts.wrong || self.facts.is_too_large() {
            return;
        }
        let is_fine = self.begins() && self.ends();
        self.facts.wrong |= !is_fine;
    }

    fn leads(&mut self, name: &[u8], value: &[u8]) -> bool {
        let place = match (self.facts.kind, name) {
            (Kind::Request, b":method") => &mut self.method,
            (Kind::Request, b":scheme") => &mut self.scheme,
            (Kind::Request, b":authority") => &mut self.authority,
            (Kind::Request, b":path") => &mut self.path,
            (Kind::Request, b":protocol") => &mut self.protocol,
            (Kind::Response, b":status") if self.facts.status == 0 => {
                let [hundreds @ b'1'..=b'9', tens @ b'0'..=b'9', ones @ b'0'..=b'9'] = value else {
                    return false;
                };
                let code = bytes::number(&[*hundreds, *tens, *ones]).map(u16::try_from);
                let Some(Ok(code)) = code else { return false };
                self.facts.status = code;
                return true;
            }
            _ => return false,
        };
        // Twice, empty, or with what would end a word of the first line.
        if place.end > 0 || value.is_empty() || !bytes::is_visible(value) {
            return false;
        }
        let start = self.lead.len();
        self.lead.extend_from_slice(value);
        *place = start..self.lead.len();
        true
    }

    /// Writes the first line, once.
    fn begins(&mut self) -> bool {
        if std::mem::replace(&mut self.facts.begun, true) {
            return true;
        }
        match self.facts.kind {
            Kind::Request => self.begins_request(),
            Kind::Response => self.begins_response(),
            Kind::Trailers => true,
        }
    }

    fn begins_response(&mut self) -> bool {
        let status = self.facts.status;
        let digits = digits(status);
        put(&mut self.lines, &[b"HTTP/1.1 ", &digits, b" \r\n"]);
        // What switches a connection cannot come on a stream (RFC 9113, section 8.6).
        status != 0 && status != 101
    }

    fn begins_request(&mut self) -> bool {
        let of = |it: &Range<usize>| self.lead.get(it.clone()).unwrap_or_default();
        let (method, scheme, authority) = (of(&self.method), of(&self.scheme), of(&self.authority));
        let (path, protocol) = (of(&self.path), of(&self.protocol));
        let out = &mut self.lines;
        let connects = method == b"CONNECT";
        let switches = !protocol.is_empty();
        let (method, target) = match (connects, switches) {
            // A tunnel, with nothing but where it leads.
            (true, false) if scheme.is_empty() && path.is_empty() && !authority.is_empty() => {
                (method, authority)
            }
            (true, false) | (false, true) => return false,
            (true, true) if authority.is_empty() => return false,
            (true, true) => (&b"GET"[..], path),
            (false, false) => (method, path),
        };
        let is_plain = !connects || switches;
        let asterisk = target == b"*" && method == b"OPTIONS";
        let is_path = target.first() == Some(&b'/') || asterisk;
        let is_http = scheme.eq_ignore_ascii_case(b"http") || scheme.eq_ignore_ascii_case(b"https");
        if (is_plain && !(is_path && is_http)) || !bytes::is_token(method) {
            return false;
        }
        put(out, &[method, b" ", target, b" HTTP/1.1\r\n"]);
        if !authority.is_empty() {
            put(out, &[b"Host: ", authority, b"\r\n"]);
        }
        self.facts.connects = connects && !switches;
        self.facts.switches = switches;
        true
    }

    fn follows(&mut self, name: &[u8], value: &[u8]) -> bool {
        if !bytes::is_small_token(name) || !bytes::is_trimmed_value(value) {
            return false;
        }
        let is_request = self.facts.kind == Kind::Request;
        match name {
            // They are about a connection, which has its own ways here (RFC 9113, section 8.2.2).
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
                return false;
            }
            b"te" if value != b"trailers" => return false,
            b"host" if is_request => return self.is_host(value),
            // Split for the tables; one field again for everybody else.
            b"cookie" if is_request => {
                let between: &[u8] = if self.cookies.is_empty() { b"" } else { b"; " };
                put(&mut self.cookies, &[between, value]);
                return true;
            }
            b"content-length" if self.facts.kind != Kind::Trailers => {
                let Some(length) = bytes::number(value) else { return false };
                if self.facts.length.replace(length).is_some_and(|before| before != length) {
                    return false;
                }
            }
            b"sec-websocket-key" => self.facts.has_key = true,
            _ => {}
        }
        put(&mut self.lines, &[name, b": ", value, b"\r\n"]);
        true
    }

    /// One, however it is told (RFC 9113, section 8.3.1).
    fn is_host(&mut self, value: &[u8]) -> bool {
        if std::mem::replace(&mut self.facts.has_host, true) {
            return false;
        }
        let authority = self.lead.get(self.authority.clone()).unwrap_or_default();
        if authority.is_empty() {
            put(&mut self.lines, &[b"Host: ", value, b"\r\n"]);
            return true;
        }
        authority.eq_ignore_ascii_case(value)
    }

    fn ends(&mut self) -> bool {
        if self.facts.kind != Kind::Request {
            return true;
        }
        if !self.cookies.is_empty() {
            put(&mut self.lines, &[b"cookie: ", &self.cookies, b"\r\n"]);
        }
        if self.facts.switches {
            let protocol = self.lead.get(self.protocol.clone()).unwrap_or_default();
            put(&mut self.lines, &[b"Connection: upgrade\r\nUpgrade: ", protocol, b"\r\n"]);
            if protocol == b"websocket" && !self.facts.has_key {
                // In HTTP/2 there is none; what it guards against cannot happen on this way.
                put(&mut self.lines, &[b"Sec-WebSocket-Key: c2Vhd2F5LXNlYXdheS1zZQ==\r\n"]);
            }
        }
        self.facts.has_host || !self.authority.is_empty()
    }
}

fn put(out: &mut Vec<u8>, parts: &[&[u8]]) {
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: Kind, fields: &[(&str, &str)]) -> Option<String> {
        let mut head = Head::default();
        head.begin(kind, 1000);
        fields.iter().for_each(|(name, value)| head.take(name.as_bytes(), value.as_bytes()));
        head.end();
        assert!(!head.facts.is_too_large());
        (!head.facts.wrong).then(|| String::from_utf8(head.lines).unwrap())
    }

    const GET: [(&str, &str); 4] =
        [(":method", "GET"), (":scheme", "https"), (":path", "/a?b"), (":authority", "a.example")];

    #[test]
    fn a_tunnel_is_told_from_a_change_of_protocol() {
        let facts = |fields: &[(&str, &str)]| {
            let mut head = Head::default();
            head.begin(Kind::Request, 1000);
            fields.iter().for_each(|(name, value)| head.take(name.as_bytes(), value.as_bytes()));
            head.end();
            (head.facts.wrong, head.facts.connects, head.facts.switches)
        };
        assert_eq!(facts(&GET), (false, false, false));
        assert_eq!(facts(&[(":method", "CONNECT"), (":authority", "a:1")]), (false, true, false));
        let socket = [&[(":method", "CONNECT"), (":protocol", "websocket")][..], &GET[1..]].concat();
        assert_eq!(facts(&socket), (false, false, true));
    }

    #[test]
    fn a_request_reads_as_http_1_would_have_sent_it() {
        let fields =
            [&GET[..], &[("cookie", "a=b"), ("x-y", "z  z"), ("host", "A.example"), ("cookie", "c=d")]];
        let expected = "GET /a?b HTTP/1.1\r\nHost: a.example\r\nx-y: z  z\r\ncookie: a=b; c=d\r\n";
        assert_eq!(read(Kind::Request, &fields.concat()).unwrap(), expected);
        let tunnel = [(":method", "CONNECT"), (":authority", "a:1")];
        assert_eq!(read(Kind::Request, &tunnel).unwrap(), "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n");
        let socket = [&[(":method", "CONNECT"), (":protocol", "websocket")][..], &GET[1..]].concat();
        let expected = "GET /a?b HTTP/1.1\r\nHost: a.example\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
            Sec-WebSocket-Key: c2Vhd2F5LXNlYXdheS1zZQ==\r\n";
        assert_eq!(read(Kind::Request, &socket).unwrap(), expected);
        let host = [&GET[..3], &[("a", "b"), ("host", "h")]].concat();
        assert_eq!(read(Kind::Request, &host).unwrap(), "GET /a?b HTTP/1.1\r\na: b\r\nHost: h\r\n");
    }

    #[test]
    fn what_reads_another_way_there_is_refused_here() {
        for (name, value) in [
            ("X-Large", "a"),
            ("", "a"),
            ("a b", "c"),
            ("a:", "c"),
            ("a\r\nb", "c"),
            ("a", "b\r\nc: d"),
            ("a", "b\n"),
            ("a", "b\0"),
            ("a", " b"),
            ("a", "b\t"),
            ("connection", "close"),
            ("transfer-encoding", "chunked"),
            ("upgrade", "h2c"),
            ("keep-alive", "1"),
            ("proxy-connection", "close"),
            ("te", "gzip"),
            ("host", "b.example"),
            ("content-length", "+1"),
            ("content-length", ""),
            ("content-length", "99999999999999999999"),
            (":path", "/late"),
            (":unknown", "a"),
            (":status", "200"),
        ] {
            let fields = [&GET[..], &[(name, value)]].concat();
            assert_eq!(read(Kind::Request, &fields), None, "{name:?}: {value:?}");
        }
        for (name, value) in [
            (":method", "GET /x HTTP/1.1"),
            (":method", ""),
            (":method", "G(T"),
            (":scheme", "ftp"),
            (":path", "x"),
            (":path", ""),
            (":path", "*"),
            (":path", "/a HTTP/1.1"),
            (":path", "/a\r\n"),
            (":authority", "a\r\nb: c"),
            (":authority", "a b"),
        ] {
            let fields = GET.map(|it| if it.0 == name { (name, value) } else { it });
            assert_eq!(read(Kind::Request, &fields), None, "{name}: {value:?}");
        }
        for (missing, _) in GET {
            let fields: Vec<_> = GET.into_iter().filter(|(name, _)| *name != missing).collect();
            assert_eq!(read(Kind::Request, &fields), None, "without {missing}");
        }
        for twice in GET {
            assert_eq!(read(Kind::Request, &[&GET[..], &[twice]].concat()), None, "{} twice", twice.0);
        }
        assert_eq!(
            read(Kind::Request, &[&GET[..], &[("content-length", "1"), ("content-length", "2")]].concat()),
            None
        );
        assert_eq!(read(Kind::Request, &[&GET[..], &[(":protocol", "websocket")]].concat()), None);
        assert_eq!(read(Kind::Request, &[(":method", "CONNECT"), (":path", "/"), (":authority", "a")]), None);
    }

    #[test]
    fn answers_and_trailers_have_their_own_rules() {
        let answer = [(":status", "404"), ("content-length", "3")];
        assert_eq!(read(Kind::Response, &answer).unwrap(), "HTTP/1.1 404 \r\ncontent-length: 3\r\n");
        for wrong in ["101", "20", "2000", "099", "+20"] {
            assert_eq!(read(Kind::Response, &[(":status", wrong)]), None, "{wrong}");
        }
        assert_eq!(read(Kind::Response, &[("a", "b")]), None, "no status");
        assert_eq!(read(Kind::Response, &[(":status", "200"), (":status", "200")]), None);
        assert_eq!(read(Kind::Response, &[(":status", "200"), (":path", "/")]), None);
        assert_eq!(read(Kind::Trailers, &[("grpc-status", "0")]).unwrap(), "grpc-status: 0\r\n");
        assert_eq!(read(Kind::Trailers, &[(":status", "200")]), None);
    }

    #[test]
    fn a_head_may_be_as_large_as_allowed_and_no_larger() {
        for (length, fits) in [(1000 - 33, true), (1000 - 32, false)] {
            let mut head = Head::default();
            head.begin(Kind::Trailers, 1000);
            head.take(b"a", &vec![b'x'; length]);
            head.end();
            assert_eq!(head.facts.is_too_large(), !fits, "{length}");
        }
    }
}
