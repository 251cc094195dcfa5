//! The first thing that a client of TLS says: whom it wants to speak with (RFC 8446, section 4.1.2; RFC 6066, section 3).
//!
//! It is read without being answered, so that its bytes can go on untouched. It may come in several packets, and in
//! several records. What a strict server would refuse leads nowhere.

/// What the bytes so far say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HelloProgress {
    /// It is not whole yet.
    More,
    Is(ClientHello),
    Refused(&'static str),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientHello {
    /// In lower case; none, if no name is asked for.
    pub name: Option<String>,
    /// It is a certificate authority that checks this name, and speaks nothing else (RFC 8737).
    pub is_validation: bool,
}

/// More than this is no hello: a large one of today has 2 KiB.
pub const LARGEST: usize = 16 << 10;

const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
/// A record's plaintext (RFC 8446, section 5.1).
const RECORD: usize = 1 << 14;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;
const APPLICATION_PROTOCOLS: u16 = 16;
/// The list of that protocol alone, with the lengths of list and name.
const VALIDATION_ALONE: &[u8] = b"\x00\x0b\x0aacme-tls/1";

pub fn read(bytes: &[u8]) -> HelloProgress {
    match message(bytes) {
        Err(refused) => HelloProgress::Refused(refused),
        Ok(None) => HelloProgress::More,
        Ok(Some(message)) => match asked(&message) {
            Ok(asked) => HelloProgress::Is(asked),
            Err(refused) => HelloProgress::Refused(refused),
        },
    }
}

/// The message out of its records, once it is whole.
fn message(bytes: &[u8]) -> Result<Option<Vec<u8>>, &'static str> {
    let mut message = Vec::new();
    let mut rest = bytes;
    loop {
        // Everything is judged as soon as it is there: who sends something else is not waited for.
        match rest {
            [kind, ..] if *kind != HANDSHAKE => return Err("the first bytes are not a TLS handshake"),
            [_, major, ..] if *major != 3 => return Err("the version of the TLS record is unknown"),
            _ => {}
        }
        let [_, _, minor, high, low, after @ ..] = rest else { return Ok(None) };
        if *minor > 4 {
            return Err("the version of the TLS record is unknown");
        }
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        if length == 0 || length > RECORD {
            return Err("a TLS record of invalid length");
        }
        let (part, behind) = after.split_at_checked(length).unwrap_or((after, &[]));
        message.extend_from_slice(part);
        if message.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
            return Err("the first TLS message is not a ClientHello");
        }
        if let [_, a, b, c, ..] = message[..] {
            let whole = (u32::from_be_bytes([0, a, b, c]) as usize).saturating_add(4);
            if whole > LARGEST {
                return Err("the TLS ClientHello is too large");
            }
            if message.len() > whole {
                return Err("further bytes follow the TLS ClientHello");
            }
            // The record is whole as well, if it ends with the message.
            if message.len() == whole && part.len() == length {
                return Ok(Some(message));
            }
        }
        if part.len() < length {
            return Ok(None);
        }
        rest = behind;
    }
}

fn asked(message: &[u8]) -> Result<ClientHello, &'static str> {
    const SHORT: &str = "an incomplete TLS ClientHello";
    let mut hello = Part(message.get(4..).ok_or(SHORT)?);
    hello.take(2 + 32).ok_or(SHORT)?;
    let session = hello.short().ok_or(SHORT)?;
    let suites = hello.long().ok_or(SHORT)?;
    let compressions = hello.short().ok_or(SHORT)?;
    if session.0.len() > 32 || suites.0.is_empty() || suites.0.len() % 2 != 0 || compressions.0.is_empty() {
        return Err("a list of invalid length in the TLS ClientHello");
    }
    if hello.0.is_empty() {
        return Ok(ClientHello::default());
    }
    let mut extensions = hello.long().ok_or(SHORT)?;
    if !hello.0.is_empty() {
        return Err("further bytes follow the extensions of the TLS ClientHello");
    }
    let mut seen: Vec<u16> = Vec::new();
    let mut asked = ClientHello::default();
    while !extensions.0.is_empty() {
        let kind = extensions.number().ok_or(SHORT)?;
        let content = extensions.long().ok_or(SHORT)?;
        if seen.contains(&kind) {
            return Err("an extension is twice in the TLS ClientHello");
        }
        seen.push(kind);
        if kind == SERVER_NAME {
            asked.name = Some(name(content)?);
        }
        if kind == APPLICATION_PROTOCOLS {
            asked.is_validation = content.0 == VALIDATION_ALONE;
        }
    }
    Ok(asked)
}

/// A list in which only one kind of name was ever allowed, and that once.
fn name(mut content: Part<'_>) -> Result<String, &'static str> {
    const WRONG: &str = "an invalid server name in the TLS ClientHello";
    let mut list = content.long().filter(|_| content.0.is_empty()).ok_or(WRONG)?;
    let kind = list.byte().ok_or(WRONG)?;
    let name = list.long().filter(|_| list.0.is_empty() && kind == HOST_NAME).ok_or(WRONG)?;
    let text = std::str::from_utf8(name.0).map_err(|_| WRONG)?;
    let label = |it: &str| {
        let plain = it.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'));
        (1..=63).contains(&it.len()) && plain
    };
    // Addresses are no names, and a dot at the end is not sent.
    let digits = text.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    if text.len() > 253 || digits || !text.split('.').all(label) {
        return Err(WRONG);
    }
    Ok(text.to_ascii_lowercase())
}

/// What is left of one level.
#[derive(Clone, Copy)]
struct Part<'b>(&'b [u8]);

impl<'b> Part<'b> {
    fn take(&mut self, count: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    fn number(&mut self) -> Option<u16> {
        self.take(2)?.first_chunk().copied().map(u16::from_be_bytes)
    }

    /// With its length in one byte.
    fn short(&mut self) -> Option<Part<'b>> {
        let length = self.byte()?;
        self.take(length.into()).map(Part)
    }

    /// In two.
    fn long(&mut self) -> Option<Part<'b>> {
        let length = self.number()?;
        self.take(length.into()).map(Part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn long(bytes: &[u8]) -> Vec<u8> {
        [&(bytes.len() as u16).to_be_bytes(), bytes].concat()
    }

    /// With a session and cipher suites of so many bytes.
    fn hello(session: u8, suites: u16, extensions: &[(u16, &[u8])]) -> Vec<u8> {
        let mut message = vec![0; 4 + 2 + 32];
        message.push(session);
        message.extend(vec![0; session.into()]);
        message.extend(long(&vec![0; suites.into()]));
        message.extend([1, 0]);
        let listed: Vec<u8> = extensions
            .iter()
            .flat_map(|(kind, content)| [&kind.to_be_bytes(), &long(content)[..]].concat())
            .collect();
        message.extend(long(&listed));
        message
    }

    fn named(length: usize) -> Vec<u8> {
        let name: String =
            (1..=length).map(|at| if at % 60 == 0 && at < length { '.' } else { 'a' }).collect();
        long(&[&[HOST_NAME][..], &long(name.as_bytes())].concat())
    }

    #[test]
    fn lists_and_names_have_their_lengths() {
        for (session, suites, is_right) in
            [(0, 2, true), (32, 2, true), (33, 2, false), (32, 0, false), (0, 3, false)]
        {
            assert_eq!(asked(&hello(session, suites, &[])).is_ok(), is_right, "{session} {suites}");
        }
        for (length, is_right) in [(252, true), (253, true), (254, false)] {
            let found = asked(&hello(0, 2, &[(SERVER_NAME, &named(length))]));
            assert_eq!(found.ok().and_then(|it| it.name).map(|it| it.len()), is_right.then_some(length));
        }
    }

    #[test]
    fn only_the_list_of_protocols_asks_for_a_validation() {
        const OTHER: u16 = 0x1234;
        for (extensions, expected) in [
            (&[(APPLICATION_PROTOCOLS, VALIDATION_ALONE)][..], true),
            (&[(OTHER, VALIDATION_ALONE)], false),
            (&[(APPLICATION_PROTOCOLS, VALIDATION_ALONE), (OTHER, b"")], true),
            (&[(APPLICATION_PROTOCOLS, b"\x00\x03\x02h2")], false),
        ] {
            assert_eq!(asked(&hello(0, 2, extensions)).map(|it| it.is_validation), Ok(expected));
        }
    }
}
