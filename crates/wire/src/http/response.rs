//! Heads of answers.

use super::{
    BodyFraming, ByteRange, Field, HeadError, Limits, Method, ReadProgress, Version, bytes,
    framing::FramingHeaders,
    head::{self, HeadEndSearch, HeaderLines},
};

/// One head after another, in places that are allocated once. A refusal's status is meant for the log; the client is
/// told 502.
#[derive(Clone, Debug, Default)]
pub struct Response {
    pub status: u16,
    pub reason: ByteRange,
    pub version: Version,
    pub fields: Vec<Field>,
    /// Bytes of the head, its empty line included.
    pub length: usize,
    pub body: BodyFraming,
    /// The connection may be asked again after this answer.
    pub persists: bool,
    search: HeadEndSearch,
}

impl Response {
    pub fn begin(&mut self) {
        self.search = HeadEndSearch::default();
    }

    /// An answer before the answer: another head follows.
    pub fn is_interim(&self) -> bool {
        (100..200).contains(&self.status) && self.status != 101
    }

    /// Reads the head at the start of `bytes`, which answers a request of this method.
    pub fn read(&mut self, bytes: &[u8], method: Method, limits: &Limits) -> ReadProgress {
        let Some(end) = self.search.end(bytes) else {
            return if bytes.len() < limits.head { ReadProgress::More } else { too_long() };
        };
        if end > limits.head {
            return too_long();
        }
        match self.understand(bytes.get(..end).unwrap_or_default(), method, limits) {
            Ok(()) => ReadProgress::Whole,
            Err(refusal) => ReadProgress::Refused(refusal),
        }
    }

    fn understand(&mut self, head: &[u8], method: Method, limits: &Limits) -> Result<(), HeadError> {
        let mut lines = HeaderLines::new(head, 0);
        let (_, line) = lines.next()?;
        let wrong = HeadError::bad("an invalid status line");
        let (version, rest) = line.split_at_checked(8).ok_or(wrong)?;
        self.version = head::version(version)?;
        let [b' ', a, b, c, reason @ ..] = rest else { return Err(wrong) };
        let code = bytes::number(&[*a, *b, *c]).filter(|code| *code >= 100).ok_or(wrong)?;
        // Some leave the space out with the reason.
        if !matches!(reason, [] | [b' ', ..]) || !bytes::is_value(reason) {
            return Err(wrong);
        }
        self.status = code as u16;
        let at = line.len().saturating_sub(reason.len()).saturating_add(1);
        self.reason = ByteRange::new(at.min(line.len()), line.len());
        self.fields.clear();
        lines.fields(&mut self.fields, limits)?;
        self.length = head.len();
        let says = FramingHeaders::of(head, &mut self.fields, self.version)?;
        self.persists = says.persists(self.version);
        self.body = match self.status {
            101 if says.upgrade => BodyFraming::Tunnel,
            101 => return Err(HeadError::bad("101 without an Upgrade")),
            200..=299 if method == Method::Connect => BodyFraming::Tunnel,
            100..=199 | 204 | 304 => BodyFraming::None,
            _ if method == Method::Head => BodyFraming::None,
            _ => match (says.chunked, says.length) {
                (true, _) => BodyFraming::Chunked,
                (false, Some(0)) => BodyFraming::None,
                (false, Some(length)) => BodyFraming::Length(length),
                (false, None) => BodyFraming::UntilClose,
            },
        };
        self.persists &= !matches!(self.body, BodyFraming::UntilClose | BodyFraming::Tunnel);
        Ok(())
    }
}

fn too_long() -> ReadProgress {
    ReadProgress::Refused(HeadError::new(502, "a response whose head is too long"))
}
