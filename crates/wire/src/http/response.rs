//! Heads of answers.

use super::{
    Body, Field, Limits, Method, Reading, Refusal, Span, Version, bytes,
    framing::Says,
    head::{self, Lines, Search},
};

/// One head after another, in places that are allocated once. A refusal's status is meant for the log; the client is
/// told 502.
#[derive(Clone, Debug, Default)]
pub struct Response {
    pub status: u16,
    pub reason: Span,
    pub version: Version,
    pub fields: Vec<Field>,
    /// Bytes of the head, its empty line included.
    pub length: usize,
    pub body: Body,
    /// The connection may be asked again after this answer.
    pub persists: bool,
    search: Search,
}

impl Response {
    pub fn begin(&mut self) {
        self.search = Search::default();
    }

    /// An answer before the answer: another head follows.
    pub fn is_interim(&self) -> bool {
        (100..200).contains(&self.status) && self.status != 101
    }

    /// Reads the head at the start of `bytes`, which answers a request of this method.
    pub fn read(&mut self, bytes: &[u8], method: Method, limits: &Limits) -> Reading {
        let Some(end) = self.search.end(bytes) else {
            return if bytes.len() < limits.head { Reading::More } else { too_long() };
        };
        if end > limits.head {
            return too_long();
        }
        match self.understand(bytes.get(..end).unwrap_or_default(), method, limits) {
            Ok(()) => Reading::Whole,
            Err(refusal) => Reading::Refused(refusal),
        }
    }

    fn understand(&mut self, head: &[u8], method: Method, limits: &Limits) -> Result<(), Refusal> {
        let mut lines = Lines::new(head, 0);
        let (_, line) = lines.next()?;
        let wrong = Refusal::bad("an invalid status line");
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
        self.reason = Span::new(at.min(line.len()), line.len());
        self.fields.clear();
        lines.fields(&mut self.fields, limits)?;
        self.length = head.len();
        let says = Says::of(head, &mut self.fields, self.version)?;
        self.persists = says.persists(self.version);
        self.body = match self.status {
            101 if says.upgrade => Body::Tunnel,
            101 => return Err(Refusal::bad("101 without an Upgrade")),
            200..=299 if method == Method::Connect => Body::Tunnel,
            100..=199 | 204 | 304 => Body::None,
            _ if method == Method::Head => Body::None,
            _ => match (says.chunked, says.length) {
                (true, _) => Body::Chunked,
                (false, Some(0)) => Body::None,
                (false, Some(length)) => Body::Length(length),
                (false, None) => Body::UntilClose,
            },
        };
        self.persists &= !matches!(self.body, Body::UntilClose | Body::Tunnel);
        Ok(())
    }
}

fn too_long() -> Reading {
    Reading::Refused(Refusal::new(502, "a response whose head is too long"))
}
