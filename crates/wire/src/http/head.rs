//! What requests and answers have in common: lines, limits, versions, refusals.

use super::{bytes, field::Field};

/// Where something stands in the bytes of a head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ByteRange {
    pub start: u32,
    pub end: u32,
}

impl ByteRange {
    /// A head is far below 4 GiB; what is not is nowhere.
    pub(super) fn new(start: usize, end: usize) -> ByteRange {
        let narrow = |it: usize| u32::try_from(it).unwrap_or(u32::MAX);
        ByteRange { start: narrow(start), end: narrow(end) }
    }

    pub fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// The bytes themselves, out of those that were read.
    pub fn of(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    Http10,
    #[default]
    Http11,
}

/// How much a head may be. The caller's buffer bounds it, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a whole head.
    pub head: usize,
    pub target: usize,
    pub fields: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { head: 16 << 10, target: 8 << 10, fields: 128 }
    }
}

/// What a status code tells the client, and a few words the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HeadError {
    pub status: u16,
    pub why: &'static str,
}

impl HeadError {
    /// Neither a target nor a version of HTTP/1: an answer in HTTP/1 would not be understood.
    pub const ANOTHER_PROTOCOL: HeadError = HeadError::bad("a protocol other than HTTP/1");

    pub(super) const fn bad(why: &'static str) -> HeadError {
        HeadError { status: 400, why }
    }

    pub(super) const fn new(status: u16, why: &'static str) -> HeadError {
        HeadError { status, why }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadProgress {
    /// More bytes are needed.
    More,
    Whole,
    Refused(HeadError),
}

/// Looks for the end of a head as bytes come in, each of them once.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeadEndSearch {
    searched: usize,
}

impl HeadEndSearch {
    /// Where the empty line ends, whether or not its lines end as they must.
    pub(super) fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        while let Some(found) = memchr::memchr(b'\n', bytes.get(self.searched..)?) {
            let at = self.searched.saturating_add(found);
            let line = bytes.get(..at)?;
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            // The first line may be empty (RFC 9112, section 2.2); then the head is still to come.
            if line.ends_with(b"\n") && !line.iter().all(|byte| matches!(byte, b'\r' | b'\n')) {
                return Some(at.saturating_add(1));
            }
            self.searched = at.saturating_add(1);
        }
        self.searched = bytes.len();
        None
    }
}

/// The lines of a head, one after another.
pub(super) struct HeaderLines<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl<'b> HeaderLines<'b> {
    pub(super) fn new(bytes: &'b [u8], at: usize) -> HeaderLines<'b> {
        HeaderLines { bytes, at }
    }

    /// The next line without its CRLF, and where it starts.
    pub(super) fn next(&mut self) -> Result<(usize, &'b [u8]), HeadError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let end = memchr::memchr(b'\n', rest).ok_or(HeadError::bad("a line without an end"))?;
        let line = rest.get(..end).and_then(|line| line.strip_suffix(b"\r"));
        let line = line.ok_or(HeadError::bad("a line that ends with LF instead of CRLF"))?;
        let start = self.at;
        self.at = self.at.saturating_add(end).saturating_add(1);
        Ok((start, line))
    }

    /// Reads fields up to the empty line.
    pub(super) fn fields(&mut self, fields: &mut Vec<Field>, limits: &Limits) -> Result<(), HeadError> {
        loop {
            if let Some((field, end)) = plain_field(self.bytes, self.at)
                && fields.len() < limits.fields
            {
                fields.push(field);
                self.at = end;
                continue;
            }
            let (start, line) = self.next()?;
            if line.is_empty() {
                return Ok(());
            }
            if fields.len() == limits.fields {
                return Err(HeadError::new(431, "too many fields"));
            }
            fields.push(field(start, line)?);
        }
    }
}

/// A field as nearly all are written, and where the next line starts: a name of letters and hyphens, one space behind the colon, a
/// value without tabs and without white space around it. [`field`] decides on all others.
#[allow(clippy::arithmetic_side_effects, reason = "places within one head, which the value is a part of")]
fn plain_field(bytes: &[u8], start: usize) -> Option<(Field, usize)> {
    let line = bytes.get(start..)?;
    let length = bytes::plain_name_length(line);
    let (name, rest) = line.split_at_checked(length)?;
    let rest = rest.strip_prefix(b": ").filter(|_| length > 0)?;
    let (value, end) = rest.split_at_checked(bytes::printable_length(rest))?;
    if !end.starts_with(b"\r\n") || matches!(value, [] | [b' ', ..] | [.., b' ']) {
        return None;
    }
    let from = start + length + 2;
    let value = ByteRange::new(from, from + value.len());
    Some((Field::plain(name, ByteRange::new(start, start + length), value), value.end as usize + 2))
}

#[allow(clippy::arithmetic_side_effects, reason = "places within one head, which the value is a part of")]
fn field(start: usize, line: &[u8]) -> Result<Field, HeadError> {
    if matches!(line, [b' ' | b'\t', ..]) {
        return Err(HeadError::bad("a field folded over two lines"));
    }
    let length = bytes::token_length(line);
    let (name, rest) = line.split_at_checked(length).unwrap_or_default();
    let value = match rest {
        [b':', value @ ..] if length > 0 => bytes::trimmed(value),
        [b' ' | b'\t', ..] => return Err(HeadError::bad("white space before a colon")),
        _ => return Err(HeadError::bad("a field with an invalid name")),
    };
    if !bytes::is_value(value) {
        return Err(HeadError::bad("a control byte in a field"));
    }
    // Of an empty value, the place does not matter.
    let from = if value.is_empty() { length + 1 } else { value.as_ptr() as usize - line.as_ptr() as usize };
    let value = ByteRange::new(start + from, start + from + value.len());
    Ok(Field::new(name, ByteRange::new(start, start + length), value))
}

/// `HTTP/1.1` or `HTTP/1.0`.
pub(super) fn version(bytes: &[u8]) -> Result<Version, HeadError> {
    match bytes {
        b"HTTP/1.1" => Ok(Version::Http11),
        b"HTTP/1.0" => Ok(Version::Http10),
        [b'H', b'T', b'T', b'P', b'/', major, b'.', minor]
            if major.is_ascii_digit() && minor.is_ascii_digit() =>
        {
            // A later 1.x is to be read as 1.1 (RFC 9110, section 2.5).
            if *major == b'1' {
                Ok(Version::Http11)
            } else {
                Err(HeadError::new(505, "a version of HTTP that is not supported"))
            }
        }
        _ => Err(HeadError::bad("an invalid version of HTTP")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As [`field`] reads it from a line alone.
    fn one_by_one(line: &str) -> Result<Field, HeadError> {
        field(0, line.as_bytes())
    }

    #[test]
    fn a_field_that_is_read_quickly_is_the_one_that_is_read_slowly() {
        let names = [
            "a",
            "Host",
            "User-Agent",
            "x-long-name-of-a-field",
            "content_length",
            "x1",
            "",
            " a",
            "a ",
            "a\rb",
        ];
        let values = [
            "",
            "b",
            " b",
            "b ",
            "  b",
            "b\tc",
            "\tb",
            "b\t",
            "b\rc",
            "b\u{7f}",
            "b\u{1}",
            "b: c",
            "\u{e9}t\u{e9}",
            "0123456789abcdef",
        ];
        let mut quick = 0;
        for name in names {
            for value in values {
                for colon in [":", ": ", ":  ", " :", "", ":\t"] {
                    let line = format!("{name}{colon}{value}");
                    for after in ["\r\n", "\r\n\r\n", "\r\nNext: field\r\n\r\n"] {
                        let whole = format!("{line}{after}");
                        if let Some((field, end)) = plain_field(whole.as_bytes(), 0) {
                            assert_eq!((Ok(field), end), (one_by_one(&line), line.len() + 2), "{whole:?}");
                            quick += 1;
                        }
                    }
                    for after in ["", "\n", "\r", "\n\r\n", "\r\r\n"] {
                        assert_eq!(plain_field(format!("{line}{after}").as_bytes(), 0), None, "{line:?}");
                    }
                }
            }
        }
        assert!(quick > 40, "{quick}");
    }

    #[test]
    fn no_more_fields_are_read_than_the_limit_allows() {
        let head = b"Accept: text/html\r\nAccept-Language: de\r\nUser-Agent: test\r\n\r\n";
        for (most, expected) in [(3, Ok(())), (2, Err(HeadError::new(431, "too many fields")))] {
            let limits = Limits { fields: most, ..Limits::default() };
            let mut fields = Vec::new();
            assert_eq!(HeaderLines::new(head, 0).fields(&mut fields, &limits), expected);
            assert_eq!(fields.len(), most);
        }
    }
}
