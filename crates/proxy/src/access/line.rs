//! One line.

use std::{
    io::Write,
    net::{IpAddr, SocketAddr},
    time::{SystemTime, UNIX_EPOCH},
};

use jiff::{Timestamp, tz::TimeZone};

use super::{AccessLogFormat, LogEntry};

/// What became of a request. What is empty was not said.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestLogLine<'a> {
    pub(crate) client: IpAddr,
    pub(crate) method: &'a [u8],
    pub(crate) target: &'a [u8],
    pub(crate) version: &'a str,
    pub(crate) host: &'a [u8],
    pub(crate) referer: &'a [u8],
    pub(crate) agent: &'a [u8],
    pub(crate) id: &'a [u8],
    /// 0: the client was gone before.
    pub(crate) status: u16,
    /// Of bodies, to the client and from it.
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// In milliseconds.
    pub(crate) took: u64,
    pub(crate) scheme: &'a str,
    pub(crate) listener: &'a str,
    pub(crate) pool: &'a str,
    pub(crate) member: Option<SocketAddr>,
}

/// The time as text, written anew once a second.
#[derive(Default)]
pub(crate) struct LogTimestamp {
    second: u64,
    pub(super) common: String,
    pub(super) begun: String,
}

impl LogTimestamp {
    /// Milliseconds of the second that the texts are about.
    pub(super) fn now(&mut self) -> u32 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        if self.second != now.as_secs() || self.common.is_empty() {
            self.second = now.as_secs();
            let time = Timestamp::from_second(now.as_secs() as i64).unwrap_or_default();
            let time = time.to_zoned(TimeZone::UTC);
            self.common = time.strftime("%d/%b/%Y:%H:%M:%S +0000").to_string();
            self.begun = time.strftime("%Y-%m-%dT%H:%M:%S").to_string();
        }
        now.subsec_millis()
    }
}

impl LogEntry for RequestLogLine<'_> {
    fn write(&self, form: AccessLogFormat, stamp: &mut LogTimestamp, out: &mut Vec<u8>) {
        match form {
            AccessLogFormat::Common => self.common(stamp, out),
            AccessLogFormat::Combined => {
                self.common(stamp, out);
                for field in [self.referer, self.agent] {
                    out.extend_from_slice(b" \"");
                    put_plain(out, if field.is_empty() { b"-" } else { field });
                    out.push(b'"');
                }
            }
            AccessLogFormat::Json => self.json(stamp, out),
        }
        out.push(b'\n');
    }
}

impl RequestLogLine<'_> {
    fn common(&self, stamp: &mut LogTimestamp, out: &mut Vec<u8>) {
        stamp.now();
        // A Vec takes all that is written to it.
        let _ = write!(out, "{} - - [{}] \"", self.client, stamp.common);
        if self.method.is_empty() {
            out.push(b'-');
        } else {
            put_plain(out, self.method);
            out.push(b' ');
            put_plain(out, self.target);
            let _ = write!(out, " HTTP/{}", self.version);
        }
        let _ = match (self.status, self.sent) {
            (0, _) => write!(out, "\" - -"),
            (status, 0) => write!(out, "\" {status} -"),
            (status, sent) => write!(out, "\" {status} {sent}"),
        };
    }

    fn json(&self, stamp: &mut LogTimestamp, out: &mut Vec<u8>) {
        let millis = stamp.now();
        let _ = write!(out, "{{\"time\":\"{}.{millis:03}Z\",\"client\":\"{}\"", stamp.begun, self.client);
        for (name, value) in [
            ("method", self.method),
            ("target", self.target),
            ("version", self.version.as_bytes()),
            ("scheme", self.scheme.as_bytes()),
            ("host", self.host),
            ("referer", self.referer),
            ("user_agent", self.agent),
            ("request_id", self.id),
            ("listener", self.listener.as_bytes()),
            ("pool", self.pool.as_bytes()),
        ] {
            if !value.is_empty() {
                let _ = write!(out, ",\"{name}\":\"");
                put_json(out, value);
                out.push(b'"');
            }
        }
        if let Some(member) = self.member {
            let _ = write!(out, ",\"member\":\"{member}\"");
        }
        let status = (self.status > 0).then_some(self.status);
        let _ = match status {
            Some(status) => write!(out, ",\"status\":{status}"),
            None => write!(out, ",\"status\":null"),
        };
        let _ = write!(
            out,
            ",\"sent\":{},\"received\":{},\"milliseconds\":{}}}",
            self.sent, self.received, self.took
        );
    }
}

/// As Apache escapes: nobody ends a field, or a line, from within.
pub(super) fn put_plain(out: &mut Vec<u8>, text: &[u8]) {
    for byte in text {
        match byte {
            b'"' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            b' '..=b'~' => out.push(*byte),
            _ => {
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
}

/// What is no UTF-8 is replaced: JSON has no way to say it.
pub(super) fn put_json(out: &mut Vec<u8>, text: &[u8]) {
    for letter in text.utf8_chunks() {
        for letter in letter.valid().chars().chain((!letter.invalid().is_empty()).then_some('\u{fffd}')) {
            let mut room = [0; 4];
            match letter {
                '"' | '\\' => out.extend_from_slice(&[b'\\', letter as u8]),
                '\0'..='\u{1f}' | '\u{7f}' => {
                    let _ = write!(out, "\\u{:04x}", letter as u32);
                }
                _ => out.extend_from_slice(letter.encode_utf8(&mut room).as_bytes()),
            }
        }
    }
}
