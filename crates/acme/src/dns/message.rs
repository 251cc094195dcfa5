//! Messages of DNS (RFC 1035, RFC 2136): those that are asked, and as much of answers as is looked at. All is bounded by the
//! bytes that came: a name has 255 of them at most, and pointers in names lead backwards only.

use std::fmt;

use aws_lc_rs::rand;

use super::{
    error::DnsError,
    tsig::{self, Signature},
    update::RecordData,
};

pub(super) const A: u16 = 1;
pub(super) const AAAA: u16 = 28;
pub(super) const CNAME: u16 = 5;
pub(super) const SOA: u16 = 6;
pub(super) const TXT: u16 = 16;
pub(super) const TSIG: u16 = 250;

pub(super) const IN: u16 = 1;
/// In an update: a record is removed; a set of records must not be there (RFC 2136, sections 2.5.4 and 2.4.3).
pub(super) const NONE: u16 = 254;
pub(super) const ANY: u16 = 255;

pub(super) const NO_ERROR: u16 = 0;
pub(super) const SERVER_FAILURE: u16 = 2;
pub(super) const NX_DOMAIN: u16 = 3;
pub(super) const REFUSED: u16 = 5;
pub(super) const YX_DOMAIN: u16 = 6;
pub(super) const YX_RRSET: u16 = 7;
pub(super) const NX_RRSET: u16 = 8;
pub(super) const NO_ZONE_AUTHORITY: u16 = 9;
pub(super) const NOT_ZONE: u16 = 10;

pub(super) const HEAD: usize = 12;
const IS_ANSWER: u16 = 0x8000;
pub(super) const UPDATE: u16 = 5 << 11;
const OPERATION: u16 = 0xf << 11;
const AUTHORITATIVE: u16 = 0x0400;
const TRUNCATED: u16 = 0x0200;
/// Seconds. The authority asks once, and the record goes soon.
const LIFE: u32 = 60;
const LONGEST_NAME: usize = 255;
const LONGEST_LABEL: u8 = 63;

/// A name as it is on the wire: labels with their lengths, in lower case, not compressed.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct WireName(Vec<u8>);

impl WireName {
    pub(super) fn parse(text: &str) -> Option<WireName> {
        let mut out = Vec::new();
        for label in text.strip_suffix('.').unwrap_or(text).split('.') {
            let length = u8::try_from(label.len()).ok().filter(|it| (1..=LONGEST_LABEL).contains(it))?;
            let is_part = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_');
            if !label.bytes().all(is_part) {
                return None;
            }
            out.push(length);
            out.extend(label.bytes().map(|it| it.to_ascii_lowercase()));
        }
        out.push(0);
        (out.len() <= LONGEST_NAME).then_some(WireName(out))
    }

    /// The same, or a wildcard: `*.shop.example`.
    pub(super) fn parse_wildcard(text: &str) -> Option<WireName> {
        let Some(below) = text.strip_prefix("*.") else { return WireName::parse(text) };
        let out = [&[1, b'*'][..], &WireName::parse(below)?.0].concat();
        (out.len() <= LONGEST_NAME).then_some(WireName(out))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// It is that zone's apex, or below it.
    pub(super) fn is_within(&self, zone: &WireName) -> bool {
        let mut rest = self.0.as_slice();
        loop {
            if rest == zone.0 {
                return true;
            }
            let Some((length, after)) = rest.split_first().filter(|(length, _)| **length > 0) else {
                return false;
            };
            rest = after.get(usize::from(*length)..).unwrap_or_default();
        }
    }
}

impl fmt::Display for WireName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut rest, mut is_first) = (self.0.as_slice(), true);
        while let Some((length, after)) = rest.split_first().filter(|(length, _)| **length > 0) {
            let (label, next) = after.split_at_checked(usize::from(*length)).unwrap_or((after, &[]));
            if !is_first {
                f.write_str(".")?;
            }
            for byte in label {
                // A dot inside a label is none between two.
                match byte {
                    b'.' => f.write_str("\\.")?,
                    byte => write!(f, "{}", byte.escape_ascii())?,
                }
            }
            (rest, is_first) = (next, false);
        }
        Ok(())
    }
}

impl fmt::Debug for WireName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// What is asked, not signed yet.
pub(super) struct Request {
    bytes: Vec<u8>,
    question: Option<(WireName, u16)>,
}

impl Request {
    pub(super) fn query(name: &WireName, kind: u16) -> Result<Request, DnsError> {
        let mut bytes = head(0, [1, 0, 0])?;
        question(&mut bytes, name, kind);
        Ok(Request { bytes, question: Some((name.clone(), kind)) })
    }

    /// Refused where the name is an alias: the server would drop the record in silence (RFC 2136, section 3.4.2.2).
    pub(super) fn add(zone: &WireName, name: &WireName, value: &str) -> Result<Request, DnsError> {
        let mut bytes = head(UPDATE, [1, 1, 1])?;
        question(&mut bytes, zone, SOA);
        record(&mut bytes, name, [CNAME, NONE], 0, &[])?;
        record(&mut bytes, name, [TXT, IN], LIFE, &text(value)?)?;
        Ok(Request { bytes, question: None })
    }

    pub(super) fn remove(zone: &WireName, name: &WireName, value: &str) -> Result<Request, DnsError> {
        let mut bytes = head(UPDATE, [1, 0, 1])?;
        question(&mut bytes, zone, SOA);
        record(&mut bytes, name, [TXT, NONE], 0, &text(value)?)?;
        Ok(Request { bytes, question: None })
    }

    pub(super) fn of_update(bytes: Vec<u8>) -> Request {
        Request { bytes, question: None }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether this answers it, if it is from who was asked.
    pub(super) fn is_answered_by(&self, reply: &Reply) -> bool {
        let operation = number(&self.bytes, 2).map(|it| it & OPERATION);
        number(&self.bytes, 0) == Some(reply.id)
            && reply.is_answer
            && operation == Some(reply.operation)
            && (self.question.is_none() || self.question == reply.question)
    }
}

pub(super) fn head(flags: u16, counts: [u16; 3]) -> Result<Vec<u8>, DnsError> {
    let mut id = [0; 2];
    rand::fill(&mut id).map_err(|_| DnsError::Key("the kernel's random number generator failed".into()))?;
    let mut out = id.to_vec();
    for it in [flags].into_iter().chain(counts).chain([0]) {
        out.extend(it.to_be_bytes());
    }
    Ok(out)
}

pub(super) fn question(out: &mut Vec<u8>, name: &WireName, kind: u16) {
    out.extend(name.bytes());
    out.extend(kind.to_be_bytes());
    out.extend(IN.to_be_bytes());
}

pub(super) fn record(
    out: &mut Vec<u8>,
    name: &WireName,
    [kind, class]: [u16; 2],
    life: u32,
    data: &[u8],
) -> Result<(), DnsError> {
    let length = u16::try_from(data.len()).map_err(|_| DnsError::Name(name.to_string()))?;
    out.extend(name.bytes());
    out.extend(kind.to_be_bytes());
    out.extend(class.to_be_bytes());
    out.extend(life.to_be_bytes());
    out.extend(length.to_be_bytes());
    out.extend(data);
    Ok(())
}

/// One character-string, as the values of challenges are short.
fn text(value: &str) -> Result<Vec<u8>, DnsError> {
    let length = u8::try_from(value.len()).map_err(|_| DnsError::Name(value.into()))?;
    Ok([&[length], value.as_bytes()].concat())
}

/// What was answered.
pub(super) struct Reply {
    id: u16,
    is_answer: bool,
    operation: u16,
    pub(super) is_authoritative: bool,
    pub(super) is_truncated: bool,
    pub(super) code: u16,
    pub(super) question: Option<(WireName, u16)>,
    pub(super) answers: Vec<Record>,
    pub(super) authority: Vec<Record>,
    pub(super) tsig: Option<Signature>,
}

pub(super) struct Record {
    pub(super) name: WireName,
    pub(super) kind: u16,
    pub(super) data: Vec<u8>,
    /// What an alias is for.
    pub(super) alias: Option<WireName>,
}

impl Record {
    /// All of its character-strings are that text.
    pub(super) fn has_text(&self, value: &str) -> bool {
        self.text().is_some_and(|it| it == value.as_bytes())
    }

    /// All of its character-strings, one after the other.
    fn text(&self) -> Option<Vec<u8>> {
        let (mut rest, mut found) = (self.data.as_slice(), Vec::new());
        while let Some((length, after)) = rest.split_first() {
            let (part, next) = after.split_at_checked(usize::from(*length))?;
            found.extend_from_slice(part);
            rest = next;
        }
        Some(found)
    }

    /// Of a type that is read. A text that is none is shown with what it has instead.
    pub(super) fn value(&self) -> Option<RecordData> {
        match self.kind {
            A => <[u8; 4]>::try_from(&*self.data).ok().map(|it| RecordData::Address(it.into())),
            AAAA => <[u8; 16]>::try_from(&*self.data).ok().map(|it| RecordData::Address(it.into())),
            TXT => self.text().map(|it| RecordData::Text(String::from_utf8_lossy(&it).into_owned())),
            _ => None,
        }
    }
}

/// What came is no message of DNS.
#[derive(Debug, PartialEq)]
pub(super) struct MalformedMessage;

impl Reply {
    pub(super) fn read(bytes: &[u8]) -> Result<Reply, MalformedMessage> {
        let at = |place| number(bytes, place).ok_or(MalformedMessage);
        let (id, flags) = (at(0)?, at(2)?);
        let [questions, answers, authority, additional] = [at(4)?, at(6)?, at(8)?, at(10)?];
        let mut reader = Reader { bytes, at: HEAD };
        let mut question = None;
        for count in 0..questions {
            let (name, kind, _class) = (reader.name()?, reader.number()?, reader.number()?);
            question = (count == 0).then_some((name, kind));
        }
        let answers = reader.records(answers)?;
        let authority = reader.records(authority)?;
        let mut tsig = None;
        for left in (0..additional).rev() {
            let begins_at = reader.at;
            let (name, kind, class, data) = reader.record()?;
            if kind == TSIG {
                // The last record of all (RFC 8945, section 5.1).
                let is_last = left == 0 && class == ANY;
                let read = tsig::read(bytes, begins_at, name, data).filter(|_| is_last);
                tsig = Some(read.ok_or(MalformedMessage)?);
            }
        }
        Ok(Reply {
            id,
            is_answer: flags & IS_ANSWER != 0,
            operation: flags & OPERATION,
            is_authoritative: flags & AUTHORITATIVE != 0,
            is_truncated: flags & TRUNCATED != 0,
            code: flags & 0xf,
            question,
            answers,
            authority,
            tsig,
        })
    }
}

pub(super) fn number(bytes: &[u8], at: usize) -> Option<u16> {
    let pair = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_be_bytes(pair.try_into().ok()?))
}

/// In a whole message, for names point into it.
pub(super) struct Reader<'b> {
    pub(super) bytes: &'b [u8],
    pub(super) at: usize,
}

/// Name, type, class, and where its data are.
type RawRecord<'b> = (WireName, u16, u16, &'b [u8]);

impl<'b> Reader<'b> {
    pub(super) fn take(&mut self, length: usize) -> Result<&'b [u8], MalformedMessage> {
        let end = self.at.checked_add(length).ok_or(MalformedMessage)?;
        let taken = self.bytes.get(self.at..end).ok_or(MalformedMessage)?;
        self.at = end;
        Ok(taken)
    }

    pub(super) fn number(&mut self) -> Result<u16, MalformedMessage> {
        number(self.take(2)?, 0).ok_or(MalformedMessage)
    }

    pub(super) fn name(&mut self) -> Result<WireName, MalformedMessage> {
        let mut out = Vec::new();
        // Behind the first pointer, the rest is elsewhere. Each leads further back than the one before.
        let (mut place, mut before, mut goes_on_at) = (self.at, self.at, None);
        loop {
            let length = *self.bytes.get(place).ok_or(MalformedMessage)?;
            let next = place.checked_add(1).ok_or(MalformedMessage)?;
            match length {
                0 => {
                    out.push(0);
                    self.at = goes_on_at.unwrap_or(next);
                    return if out.len() <= LONGEST_NAME { Ok(WireName(out)) } else { Err(MalformedMessage) };
                }
                1..=LONGEST_LABEL => {
                    let end = next.checked_add(usize::from(length)).ok_or(MalformedMessage)?;
                    let label = self.bytes.get(next..end).ok_or(MalformedMessage)?;
                    out.push(length);
                    out.extend(label.iter().map(u8::to_ascii_lowercase));
                    place = end;
                }
                0xc0.. => {
                    let target = usize::from(number(self.bytes, place).ok_or(MalformedMessage)? & 0x3fff);
                    if target >= before {
                        return Err(MalformedMessage);
                    }
                    goes_on_at = goes_on_at.or(place.checked_add(2));
                    (place, before) = (target, target);
                }
                _ => return Err(MalformedMessage),
            }
            if out.len() > LONGEST_NAME {
                return Err(MalformedMessage);
            }
        }
    }

    fn record(&mut self) -> Result<RawRecord<'b>, MalformedMessage> {
        let (name, kind, class) = (self.name()?, self.number()?, self.number()?);
        let _life = self.take(4)?;
        let length = usize::from(self.number()?);
        Ok((name, kind, class, self.take(length)?))
    }

    /// Of all that there are, those that are looked at.
    fn records(&mut self, count: u16) -> Result<Vec<Record>, MalformedMessage> {
        let mut all = Vec::new();
        for _ in 0..count {
            let (name, kind, class, data) = self.record()?;
            if class == IN {
                // Its name may point to one before it in the message.
                let begins_at = self.at.checked_sub(data.len()).ok_or(MalformedMessage)?;
                let target = (kind == CNAME).then(|| Reader { bytes: self.bytes, at: begins_at }.name());
                let alias = target.transpose()?;
                all.push(Record { name, kind, data: data.to_vec(), alias });
            }
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> WireName {
        WireName::parse(text).expect("a name")
    }

    #[test]
    fn names_are_bounded_and_of_the_letters_that_host_names_have() {
        assert_eq!(
            name("_acme-challenge.Shop.example.").bytes(),
            b"\x0f_acme-challenge\x04shop\x07example\0"
        );
        let long = format!("{}.example", "a.".repeat(130));
        for wrong in ["", ".", "a..b", "a b", "*.shop.example", "ä.example", &"a".repeat(64), &long] {
            assert_eq!(WireName::parse(wrong), None, "{wrong}");
        }
        for (text, zone, is) in [
            ("a.shop.example", "shop.example", true),
            ("shop.example", "shop.example", true),
            ("bishop.example", "shop.example", false),
            ("example", "shop.example", false),
        ] {
            assert_eq!(name(text).is_within(&name(zone)), is, "{text} {zone}");
        }
    }

    #[test]
    fn an_update_adds_or_removes_one_value_and_touches_nothing_else() {
        let (zone, at) = (name("shop.example"), name("_acme-challenge.shop.example"));
        let zone_section: &[u8] = &[b"\x04shop\x07example\0".as_slice(), &[0, 6, 0, 1]].concat();
        let own = b"\x0f_acme-challenge\x04shop\x07example\0".as_slice();
        let added = Request::add(&zone, &at, "v1").expect("a request");
        let no_alias: &[u8] = &[0, 5, 0, 254, 0, 0, 0, 0, 0, 0];
        let one_more: &[u8] = &[0, 16, 0, 1, 0, 0, 0, 60, 0, 3, 2, b'v', b'1'];
        let expected =
            [&[0x28, 0, 0, 1, 0, 1, 0, 1, 0, 0], zone_section, own, no_alias, own, one_more].concat();
        assert_eq!(added.bytes()[2..], expected);
        let removed = Request::remove(&zone, &at, "v1").expect("a request");
        // Of class NONE: that record and no other (RFC 2136, section 2.5.4).
        let one_less: &[u8] = &[0, 16, 0, 254, 0, 0, 0, 0, 0, 3, 2, b'v', b'1'];
        let expected = [&[0x28, 0, 0, 1, 0, 0, 0, 1, 0, 0], zone_section, own, one_less].concat();
        assert_eq!(removed.bytes()[2..], expected);
    }

    /// An answer to that query with one TXT, whose name is a pointer to the question.
    fn answer(to: &Request, data: &[u8]) -> Vec<u8> {
        let mut bytes = to.bytes().to_vec();
        (bytes[2], bytes[7]) = (0x84, 1);
        bytes.extend([0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 9, 0, u8::try_from(data.len()).expect("short")]);
        bytes.extend(data);
        bytes
    }

    #[test]
    fn an_answer_is_read_with_its_pointers_and_belongs_to_its_question() {
        let asked = Request::query(&name("a.example"), TXT).expect("a request");
        let bytes = answer(&asked, b"\x02ab\x01c");
        let reply = Reply::read(&bytes).expect("it is read");
        assert!(asked.is_answered_by(&reply) && reply.is_authoritative && reply.code == 0);
        assert_eq!((&reply.answers[0].name, reply.answers.len()), (&name("a.example"), 1));
        assert!(reply.answers[0].has_text("abc") && !reply.answers[0].has_text("ab"));
        let other = Request::query(&name("b.example"), TXT).expect("a request");
        assert!(!other.is_answered_by(&reply), "another name, another id");
        for (place, value) in [(0, !bytes[0]), (2, 0x04), (2, 0xac), (13, b'x'), (24, 7)] {
            let mut forged = bytes.clone();
            forged[place] = value;
            let is_taken = Reply::read(&forged).is_ok_and(|it| asked.is_answered_by(&it));
            assert!(!is_taken, "byte {place}");
        }
        for length in 0..bytes.len() {
            assert!(Reply::read(&bytes[..length]).is_err(), "{length}");
        }
    }

    #[test]
    fn a_pointer_that_leads_on_or_to_itself_ends_nothing_but_its_message() {
        let asked = Request::query(&name("a.example"), TXT).expect("a request");
        let bytes = answer(&asked, b"\x01a");
        let pointer = asked.bytes().len();
        for to in [pointer, pointer + 1, 0x3fff] {
            let mut wrong = bytes.clone();
            (wrong[pointer], wrong[pointer + 1]) = (0xc0 | (to >> 8) as u8, to as u8);
            assert!(Reply::read(&wrong).is_err(), "{to}");
        }
    }
}
