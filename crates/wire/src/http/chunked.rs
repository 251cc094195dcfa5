//! The chunked coding (RFC 9112, section 7.1), one piece at a time.

use super::{
    Field, HeadError, Limits,
    head::{HeadEndSearch, HeaderLines},
};

/// A size line with its extensions. Extensions are dropped: nobody defined one, and some read them otherwise.
const LINE: usize = 256;

/// What the next bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkPiece {
    /// Nothing can be said before more bytes come. So many in front are done with.
    More {
        skip: usize,
    },
    /// After `skip` bytes of framing, `length` bytes of the body.
    Data {
        skip: usize,
        length: usize,
    },
    /// All is over after so many bytes; [`ChunkedDecoder::trailers`] stand in them.
    End {
        length: usize,
    },
    Refused(HeadError),
}

/// Finds the data in a body with chunked coding.
#[derive(Clone, Debug, Default)]
pub struct ChunkedDecoder {
    state: State,
    /// Places in the bytes of the piece that ended it.
    pub trailers: Vec<Field>,
    search: HeadEndSearch,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Size,
    /// So many bytes of the chunk are still to come.
    Data(u64),
    /// The line break after a chunk.
    Break,
    Trailers,
}

impl ChunkedDecoder {
    /// Before the first chunk of the next body.
    pub fn begin(&mut self) {
        self.state = State::Size;
        self.trailers.clear();
        self.search = HeadEndSearch::default();
    }

    /// Looks at the start of `bytes`; what it says is done with is not to be shown again.
    pub fn next(&mut self, bytes: &[u8], limits: &Limits) -> ChunkPiece {
        let mut skip = 0;
        loop {
            let rest = bytes.get(skip..).unwrap_or_default();
            match self.state {
                State::Size => match size_line(rest) {
                    Ok(None) => return ChunkPiece::More { skip },
                    Ok(Some((0, length))) => {
                        self.state = State::Trailers;
                        skip = skip.saturating_add(length);
                    }
                    Ok(Some((size, length))) => {
                        self.state = State::Data(size);
                        skip = skip.saturating_add(length);
                    }
                    Err(refusal) => return ChunkPiece::Refused(refusal),
                },
                State::Data(left) => {
                    if rest.is_empty() {
                        return ChunkPiece::More { skip };
                    }
                    let length = usize::try_from(left).unwrap_or(usize::MAX).min(rest.len());
                    let left = left.saturating_sub(length as u64);
                    self.state = if left == 0 { State::Break } else { State::Data(left) };
                    return ChunkPiece::Data { skip, length };
                }
                State::Break => match rest {
                    [b'\r', b'\n', ..] => {
                        self.state = State::Size;
                        skip = skip.saturating_add(2);
                    }
                    [] | [b'\r'] => return ChunkPiece::More { skip },
                    _ => return ChunkPiece::Refused(HeadError::bad("a chunk longer than its size")),
                },
                State::Trailers => return self.end(rest, skip, limits),
            }
        }
    }

    /// The fields after the last chunk, up to the empty line.
    fn end(&mut self, rest: &[u8], skip: usize, limits: &Limits) -> ChunkPiece {
        if rest.starts_with(b"\r\n") {
            return ChunkPiece::End { length: skip.saturating_add(2) };
        }
        // The bytes in front go first, so that places in the trailers stay true.
        if skip > 0 {
            return ChunkPiece::More { skip };
        }
        let too_long = HeadError::new(431, "trailers that are too long");
        let Some(end) = self.search.end(rest) else {
            return if rest.len() < limits.head {
                ChunkPiece::More { skip }
            } else {
                ChunkPiece::Refused(too_long)
            };
        };
        // However they come: all at once or in pieces.
        if end > limits.head {
            return ChunkPiece::Refused(too_long);
        }
        match HeaderLines::new(rest.get(..end).unwrap_or_default(), 0).fields(&mut self.trailers, limits) {
            Ok(()) => ChunkPiece::End { length: end },
            Err(refusal) => ChunkPiece::Refused(refusal),
        }
    }
}

/// A chunk's size, and the length of its line.
fn size_line(bytes: &[u8]) -> Result<Option<(u64, usize)>, HeadError> {
    let seen = bytes.get(..LINE).unwrap_or(bytes);
    let Some(end) = memchr::memchr(b'\n', seen) else {
        return match seen.len() {
            LINE => Err(HeadError::bad("a chunk's size line that is too long")),
            _ => Ok(None),
        };
    };
    let line = seen.get(..end).and_then(|line| line.strip_suffix(b"\r"));
    let line = line.ok_or(HeadError::bad("a chunk size line that ends with LF instead of CRLF"))?;
    let digits = line.iter().position(|byte| !byte.is_ascii_hexdigit()).unwrap_or(line.len());
    let wrong = HeadError::bad("an invalid chunk size");
    // 16 digits are 64 bits.
    if digits == 0 || digits > 16 {
        return Err(wrong);
    }
    let (digits, extension) = line.split_at_checked(digits).ok_or(wrong)?;
    if !is_extension(extension) {
        return Err(wrong);
    }
    let size =
        digits.iter().fold(0_u64, |sum, digit| sum << 4 | (*digit as char).to_digit(16).map_or(0, u64::from));
    Ok(Some((size, end.saturating_add(1))))
}

/// Nothing, or `;` and what may stand in a field. White space before it is an invitation to disagree.
fn is_extension(rest: &[u8]) -> bool {
    match rest {
        [] => true,
        [b';', extension @ ..] => super::bytes::is_value(extension),
        _ => false,
    }
}
