//! Updates that presuppose what is there (RFC 2136, sections 2.4 and 2.5): all of one happens, or nothing.

use std::net::IpAddr;

use super::{
    error::DnsError,
    message::{A, AAAA, ANY, IN, NONE, Request, SOA, TXT, UPDATE, WireName, head, question, record},
};

/// What must be so, or nothing is changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prerequisite {
    /// No record of any type is at this very name: what a wildcard of the zone answers does not count.
    NameUnused(String),
    /// Some record is.
    NameUsed(String),
    NoRecords(String, RecordType),
    SomeRecords(String, RecordType),
    /// These, and no other TXT records.
    Texts(String, Vec<String>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordChange {
    /// Beside those that are there. One that is there gets this TTL.
    Add { name: String, data: RecordData, ttl: u32 },
    /// That one alone. It is no error if it is not there.
    Remove { name: String, data: RecordData },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordData {
    Address(IpAddr),
    Text(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordType {
    A,
    Aaaa,
    Cname,
    Mx,
    Ns,
    Srv,
    Txt,
}

impl RecordType {
    pub fn as_str(self) -> &'static str {
        match self {
            RecordType::A => "A",
            RecordType::Aaaa => "AAAA",
            RecordType::Cname => "CNAME",
            RecordType::Mx => "MX",
            RecordType::Ns => "NS",
            RecordType::Srv => "SRV",
            RecordType::Txt => "TXT",
        }
    }

    pub(super) fn number(self) -> u16 {
        match self {
            RecordType::A => A,
            RecordType::Aaaa => AAAA,
            RecordType::Cname => 5,
            RecordType::Mx => 15,
            RecordType::Ns => 2,
            RecordType::Srv => 33,
            RecordType::Txt => TXT,
        }
    }
}

/// What a server answers for one name and type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    /// There is none, or a type that is not read.
    pub data: Vec<RecordData>,
    pub count: usize,
    /// The name is an alias for this one.
    pub alias: Option<String>,
}

/// What became of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateOutcome {
    Done,
    /// Something that it presupposes is not so: nothing was changed.
    NotAsPresupposed,
}

impl Request {
    pub(super) fn update(
        zone: &WireName,
        prerequisites: &[Prerequisite],
        changes: &[RecordChange],
    ) -> Result<Request, DnsError> {
        let mut presupposed = Vec::new();
        let mut count: u16 = 0;
        for it in prerequisites {
            count = count.saturating_add(it.write(&mut presupposed)?);
        }
        let changed = u16::try_from(changes.len()).unwrap_or(u16::MAX);
        let mut bytes = head(UPDATE, [1, count, changed])?;
        question(&mut bytes, zone, SOA);
        bytes.extend(presupposed);
        for it in changes {
            it.write(&mut bytes)?;
        }
        Ok(Request::of_update(bytes))
    }
}

impl Prerequisite {
    fn write(&self, out: &mut Vec<u8>) -> Result<u16, DnsError> {
        match self {
            Prerequisite::NameUnused(name) => record(out, &wire(name)?, [ANY, NONE], 0, &[])?,
            Prerequisite::NameUsed(name) => record(out, &wire(name)?, [ANY, ANY], 0, &[])?,
            Prerequisite::NoRecords(name, kind) => {
                record(out, &wire(name)?, [kind.number(), NONE], 0, &[])?;
            }
            Prerequisite::SomeRecords(name, kind) => {
                record(out, &wire(name)?, [kind.number(), ANY], 0, &[])?;
            }
            Prerequisite::Texts(name, texts) => {
                let name = wire(name)?;
                for text in texts {
                    record(out, &name, [TXT, IN], 0, &strings(text))?;
                }
                return Ok(u16::try_from(texts.len()).unwrap_or(u16::MAX));
            }
        }
        Ok(1)
    }
}

impl RecordChange {
    fn write(&self, out: &mut Vec<u8>) -> Result<(), DnsError> {
        let (RecordChange::Add { name, data, .. } | RecordChange::Remove { name, data }) = self;
        let (class, ttl) = match self {
            RecordChange::Add { ttl, .. } => (IN, *ttl),
            RecordChange::Remove { .. } => (NONE, 0),
        };
        let (kind, bytes) = match data {
            RecordData::Address(IpAddr::V4(ip)) => (A, ip.octets().to_vec()),
            RecordData::Address(IpAddr::V6(ip)) => (AAAA, ip.octets().to_vec()),
            RecordData::Text(text) => (TXT, strings(text)),
        };
        record(out, &wire(name)?, [kind, class], ttl, &bytes)
    }
}

/// As many character-strings as it takes: each has 255 bytes at most.
fn strings(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for part in text.as_bytes().chunks(usize::from(u8::MAX)) {
        out.push(u8::try_from(part.len()).unwrap_or(u8::MAX));
        out.extend(part);
    }
    out
}

/// A host name, or a wildcard.
pub(super) fn wire(name: &str) -> Result<WireName, DnsError> {
    WireName::parse_wildcard(name).ok_or_else(|| DnsError::Name(name.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_says_what_it_presupposes_and_what_it_changes() {
        let zone = WireName::parse("a.example").expect("a name");
        let (web, mark) = ("*.a.example".to_owned(), "m.a.example".to_owned());
        let presupposed = [
            Prerequisite::NameUnused(web.clone()),
            Prerequisite::NoRecords(mark.clone(), RecordType::Txt),
            Prerequisite::SomeRecords(web.clone(), RecordType::Aaaa),
            Prerequisite::Texts(mark.clone(), vec!["x".into(), "y".repeat(300)]),
        ];
        let changes = [
            RecordChange::Add {
                name: web.clone(),
                data: RecordData::Address("192.0.2.1".parse().expect("an address")),
                ttl: 60,
            },
            RecordChange::Remove { name: mark, data: RecordData::Text("x".into()) },
        ];
        let request = Request::update(&zone, &presupposed, &changes).expect("a request");
        let (web, mark): (&[u8], &[u8]) = (b"\x01*\x01a\x07example\0", b"\x01m\x01a\x07example\0");
        let long = [&[255][..], &[b'y'; 255], &[45], &[b'y'; 45]].concat();
        let expected: Vec<&[u8]> = vec![
            &[0x28, 0, 0, 1, 0, 5, 0, 2, 0, 0],
            b"\x01a\x07example\0\0\x06\0\x01",
            // RFC 2136, 2.4.5: class NONE, type ANY.
            web,
            &[0, 255, 0, 254, 0, 0, 0, 0, 0, 0],
            mark,
            &[0, 16, 0, 254, 0, 0, 0, 0, 0, 0],
            web,
            &[0, 28, 0, 255, 0, 0, 0, 0, 0, 0],
            // 2.4.2: the zone's class, no TTL.
            mark,
            &[0, 16, 0, 1, 0, 0, 0, 0, 0, 2, 1, b'x'],
            mark,
            &[0, 16, 0, 1, 0, 0, 0, 0, 1, 46],
            &long,
            web,
            &[0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 1],
            mark,
            &[0, 16, 0, 254, 0, 0, 0, 0, 0, 2, 1, b'x'],
        ];
        assert_eq!(request.bytes()[2..], expected.concat());
    }

    #[test]
    fn a_wildcard_has_its_star_in_front_alone() {
        for wrong in ["*", "a.*.example", "**.example", "*a.example", ""] {
            assert!(wire(wrong).is_err(), "{wrong}");
        }
        assert_eq!(wire("*.A.example.").expect("a name").to_string(), "*.a.example");
    }
}
