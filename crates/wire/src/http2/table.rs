//! Fields that have a number: those that everybody knows (RFC 7541, appendix A), and those that were said before.

use std::collections::VecDeque;

macro_rules! known {
    ($($name:literal $(= $value:literal)?),* $(,)?) => {
        /// From 1 on.
        const KNOWN: [(&[u8], &[u8]); 61] = [$(($name, known!(@ $($value)?))),*];
    };
    (@) => { b"" };
    (@ $value:literal) => { $value };
}

known! {
    b":authority", b":method" = b"GET", b":method" = b"POST", b":path" = b"/", b":path" = b"/index.html",
    b":scheme" = b"http", b":scheme" = b"https", b":status" = b"200", b":status" = b"204",
    b":status" = b"206", b":status" = b"304", b":status" = b"400", b":status" = b"404",
    b":status" = b"500", b"accept-charset", b"accept-encoding" = b"gzip, deflate", b"accept-language",
    b"accept-ranges", b"accept", b"access-control-allow-origin", b"age", b"allow", b"authorization",
    b"cache-control", b"content-disposition", b"content-encoding", b"content-language",
    b"content-length", b"content-location", b"content-range", b"content-type", b"cookie", b"date",
    b"etag", b"expect", b"expires", b"from", b"host", b"if-match", b"if-modified-since",
    b"if-none-match", b"if-range", b"if-unmodified-since", b"last-modified", b"link", b"location",
    b"max-forwards", b"proxy-authenticate", b"proxy-authorization", b"range", b"referer", b"refresh",
    b"retry-after", b"server", b"set-cookie", b"strict-transport-security", b"transfer-encoding",
    b"user-agent", b"vary", b"via", b"www-authenticate",
}

/// The number of a name among those that everybody knows; the name is in small letters.
pub(super) fn number_of(name: &[u8]) -> Option<u8> {
    // The commonest of each length; a look-up that fails costs a few comparisons.
    Some(match name {
        b"age" => 21,
        b"via" => 60,
        b"date" => 33,
        b"etag" => 34,
        b"vary" => 59,
        b"link" => 45,
        b"allow" => 22,
        b"range" => 50,
        b"accept" => 19,
        b"cookie" => 32,
        b"server" => 54,
        b"expires" => 36,
        b"referer" => 51,
        b"location" => 46,
        b"if-match" => 39,
        b"user-agent" => 58,
        b"set-cookie" => 55,
        b"retry-after" => 53,
        b"content-type" => 31,
        b"accept-ranges" => 18,
        b"authorization" => 23,
        b"cache-control" => 24,
        b"content-range" => 30,
        b"if-none-match" => 41,
        b"last-modified" => 44,
        b"content-length" => 28,
        b"accept-encoding" => 16,
        b"accept-language" => 17,
        b"content-encoding" => 26,
        b"content-language" => 27,
        b"content-location" => 29,
        b"www-authenticate" => 61,
        b"if-modified-since" => 40,
        b"content-disposition" => 25,
        b"strict-transport-security" => 56,
        b"access-control-allow-origin" => 20,
        _ => return None,
    })
}

/// What the peer has said before, the newest first.
#[derive(Debug)]
pub(super) struct DynamicTable {
    said: VecDeque<Entry>,
    size: usize,
    most: usize,
}

#[derive(Debug)]
struct Entry {
    bytes: Box<[u8]>,
    name: usize,
}

/// As large as we allow, which is what everybody begins with.
pub(super) const MOST: usize = 4096;
/// What an entry costs besides its bytes (RFC 7541, section 4.1).
pub(super) const OVERHEAD: usize = 32;

impl Default for DynamicTable {
    fn default() -> DynamicTable {
        DynamicTable { said: VecDeque::new(), size: 0, most: MOST }
    }
}

impl Entry {
    fn size(&self) -> usize {
        self.bytes.len().saturating_add(OVERHEAD)
    }
}

impl DynamicTable {
    pub(super) fn field(&self, number: usize) -> Option<(&[u8], &[u8])> {
        match number.checked_sub(KNOWN.len().saturating_add(1)) {
            None => KNOWN.get(number.checked_sub(1)?).copied(),
            Some(at) => self.said.get(at).map(|entry| entry.bytes.split_at(entry.name)),
        }
    }

    /// `field`: the name, of so many bytes, and the value.
    pub(super) fn remember(&mut self, field: &[u8], name: usize) {
        let size = field.len().saturating_add(OVERHEAD);
        if size > self.most {
            // Allowed, and empties it (RFC 7541, section 4.4).
            self.shrink(0);
            return;
        }
        self.shrink(self.most.saturating_sub(size));
        self.size = self.size.saturating_add(size);
        self.said.push_front(Entry { bytes: field.into(), name });
    }

    /// `None`: that is more than we allow.
    pub(super) fn limit(&mut self, most: usize) -> Option<()> {
        if most > MOST {
            return None;
        }
        self.most = most;
        self.shrink(most);
        Some(())
    }

    fn shrink(&mut self, to: usize) {
        while self.size > to
            && let Some(oldest) = self.said.pop_back()
        {
            self.size = self.size.saturating_sub(oldest.size());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_their_numbers_and_back() {
        for (at, (name, _)) in KNOWN.iter().enumerate() {
            if let Some(number) = number_of(name) {
                assert_eq!((KNOWN[usize::from(number) - 1].0, usize::from(number)), (*name, at + 1));
            }
        }
        assert_eq!(KNOWN.iter().filter(|(name, _)| number_of(name).is_some()).count(), 36);
    }

    #[test]
    fn the_oldest_go_when_room_is_needed() {
        let mut table = DynamicTable::default();
        table.limit(100).unwrap();
        for value in [b"a1", b"b2", b"c3"] {
            table.remember(value, 1);
        }
        assert_eq!(table.field(62), Some((&b"c"[..], &b"3"[..])));
        assert_eq!((table.field(63).map(|it| it.0), table.field(64)), (Some(&b"b"[..]), None));
        table.remember(&[b'x'; 69], 1);
        assert_eq!(table.field(62), None, "too large for all of it");
        assert_eq!(table.limit(4097), None);
    }
}
