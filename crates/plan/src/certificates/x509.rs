//! A certificate's names and dates (RFC 5280), and no more of it: who uses one verifies it.
//!
//! A reader of its own, with a fuzz target (`certificate`): rustls-webpki verifies names and dates but tells neither, and the crates
//! that tell them read all the rest of a certificate as well, and bring a dozen crates for that into a pure one.

use seaway_model::{Time, load_balancer::HostPattern};

use super::calendar;
use crate::http;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParsedCertificate {
    /// What it is for, as far as these are host names; from its subject only where it has no names of its own.
    pub(crate) names: Vec<HostPattern>,
    pub(crate) from: Time,
    pub(crate) until: Time,
}

/// By what its authority knows a certificate: the identifier of the authority's key, and its number.
pub(crate) type Identity = (Vec<u8>, Vec<u8>);

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const SET: u8 = 0x31;
const OBJECT: u8 = 0x06;
const BOOLEAN: u8 = 0x01;
const OCTETS: u8 = 0x04;
const UTC_TIME: u8 = 0x17;
const GENERAL_TIME: u8 = 0x18;
/// In a list of names: a DNS name.
const DNS: u8 = 0x82;
const SUBJECT_ALTERNATIVE_NAME: &[u8] = &[0x55, 0x1d, 0x11];
const BASIC_CONSTRAINTS: &[u8] = &[0x55, 0x1d, 0x13];
const AUTHORITY_KEY: &[u8] = &[0x55, 0x1d, 0x23];
/// In what is said of the authority's key.
const KEY_IDENTIFIER: u8 = 0x80;
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

pub(crate) fn read(bytes: &[u8]) -> Option<ParsedCertificate> {
    let mut outer = Der(bytes).inside(SEQUENCE)?;
    let mut certificate = outer.inside(SEQUENCE)?;
    // Version, serial number, signature, issuer.
    certificate.optional(0xa0)?;
    certificate.next()?;
    certificate.inside(SEQUENCE)?;
    certificate.inside(SEQUENCE)?;
    let mut validity = certificate.inside(SEQUENCE)?;
    let (from, until) = (validity.time()?, validity.time()?);
    let subject = certificate.inside(SEQUENCE)?;
    // Its public key, and identifiers that nobody uses.
    certificate.inside(SEQUENCE)?;
    certificate.optional(0x81)?;
    certificate.optional(0xa1)?;
    let own = match certificate.optional(0xa3)? {
        Some(extensions) => alternative_names(extensions)?,
        None => None,
    };
    let names = match own {
        Some(names) => names,
        None => common_names(subject)?,
    };
    let mut hosts: Vec<HostPattern> = Vec::new();
    for name in names {
        let host = std::str::from_utf8(name).ok().and_then(|it| http::host(it).ok());
        hosts.extend(host.filter(|it| !hosts.contains(it)));
    }
    Some(ParsedCertificate { names: hosts, from, until })
}

/// What may be verified by a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CertificateRole {
    /// It signed itself, as an authority does, or the certificate of one client that is named instead of an authority.
    SelfSigned,
    /// It says that it is an authority's, and another one signed it. Of version 1, which cannot say it, that is assumed.
    Intermediate,
    /// Nothing.
    Leaf,
}

/// Whether other certificates may be verified by this one.
pub(crate) fn signs(bytes: &[u8]) -> Option<bool> {
    Some(role(bytes)? != CertificateRole::Leaf)
}

pub(crate) fn role(bytes: &[u8]) -> Option<CertificateRole> {
    let mut outer = Der(bytes).inside(SEQUENCE)?;
    let mut certificate = outer.inside(SEQUENCE)?;
    let has_version = certificate.optional(0xa0)?.is_some();
    certificate.inside(INTEGER)?;
    certificate.inside(SEQUENCE)?;
    let issuer = certificate.inside(SEQUENCE)?;
    // Validity.
    certificate.inside(SEQUENCE)?;
    let subject = certificate.inside(SEQUENCE)?;
    // Its public key.
    certificate.inside(SEQUENCE)?;
    certificate.optional(0x81)?;
    certificate.optional(0xa1)?;
    let constraints = match certificate.optional(0xa3)? {
        Some(extensions) => extension(extensions, BASIC_CONSTRAINTS)?,
        None => None,
    };
    let is_authority = match constraints {
        Some(mut value) => value.inside(SEQUENCE)?.optional(BOOLEAN)?.is_some_and(|it| it.0 != [0]),
        None => false,
    };
    Some(match issuer.0 == subject.0 {
        true => CertificateRole::SelfSigned,
        false if is_authority || !has_version => CertificateRole::Intermediate,
        false => CertificateRole::Leaf,
    })
}

/// Nothing, where its authority says nothing of its key.
pub(crate) fn identity(bytes: &[u8]) -> Option<Identity> {
    let mut outer = Der(bytes).inside(SEQUENCE)?;
    let mut certificate = outer.inside(SEQUENCE)?;
    certificate.optional(0xa0)?;
    let number = certificate.inside(INTEGER)?;
    // Signature, issuer, validity, subject, public key.
    for _ in 0..5 {
        certificate.inside(SEQUENCE)?;
    }
    certificate.optional(0x81)?;
    certificate.optional(0xa1)?;
    let mut value = extension(certificate.optional(0xa3)??, AUTHORITY_KEY)??;
    let key = value.inside(SEQUENCE)?.inside(KEY_IDENTIFIER)?;
    Some((key.0.to_vec(), number.0.to_vec()))
}

fn alternative_names(extensions: Der<'_>) -> Option<Option<Vec<&[u8]>>> {
    let Some(mut value) = extension(extensions, SUBJECT_ALTERNATIVE_NAME)? else { return Some(None) };
    let mut all = value.inside(SEQUENCE)?;
    let mut names = Vec::new();
    while !all.is_empty() {
        let (tag, name) = all.next()?;
        names.extend((tag == DNS).then_some(name.0));
    }
    Some(Some(names))
}

/// The value of the first of that kind, if there is one.
fn extension<'d>(mut extensions: Der<'d>, wanted: &[u8]) -> Option<Option<Der<'d>>> {
    let mut list = extensions.inside(SEQUENCE)?;
    while !list.is_empty() {
        let mut extension = list.inside(SEQUENCE)?;
        let id = extension.inside(OBJECT)?;
        extension.optional(BOOLEAN)?;
        let value = extension.inside(OCTETS)?;
        if id.0 == wanted {
            return Some(Some(value));
        }
    }
    Some(None)
}

fn common_names(mut subject: Der<'_>) -> Option<Vec<&[u8]>> {
    let mut names = Vec::new();
    while !subject.is_empty() {
        let mut set = subject.inside(SET)?;
        while !set.is_empty() {
            let mut attribute = set.inside(SEQUENCE)?;
            let id = attribute.inside(OBJECT)?;
            let (_, value) = attribute.next()?;
            names.extend((id.0 == COMMON_NAME).then_some(value.0));
        }
    }
    Some(names)
}

/// What is left of one level.
#[derive(Clone, Copy)]
struct Der<'d>(&'d [u8]);

impl<'d> Der<'d> {
    fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    fn next(&mut self) -> Option<(u8, Der<'d>)> {
        let [tag, length, rest @ ..] = self.0 else { return None };
        let (length, rest) = match *length {
            short @ 0..=0x7f => (usize::from(short), rest),
            // Nothing of a certificate has more than 16 MiB.
            long @ 0x81..=0x83 => {
                let (digits, rest) = rest.split_at_checked(usize::from(long & 0x7f))?;
                (digits.iter().fold(0, |sum, digit| sum << 8 | usize::from(*digit)), rest)
            }
            _ => return None,
        };
        let (inside, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((*tag, Der(inside)))
    }

    fn inside(&mut self, wanted: u8) -> Option<Der<'d>> {
        self.next().filter(|(tag, _)| *tag == wanted).map(|(_, inside)| inside)
    }

    fn optional(&mut self, wanted: u8) -> Option<Option<Der<'d>>> {
        match self.0.first() {
            Some(tag) if *tag == wanted => self.inside(wanted).map(Some),
            _ => Some(None),
        }
    }

    /// In seconds and in UTC, as the standard wants both forms.
    fn time(&mut self) -> Option<Time> {
        let (tag, text) = self.next()?;
        let text = text.0.strip_suffix(b"Z")?;
        if !text.iter().all(u8::is_ascii_digit) {
            return None;
        }
        // Of four digits at most.
        let number = |digits: &[u8]| {
            let digit = |it: &u8| u64::from(it.saturating_sub(b'0'));
            digits.iter().fold(0_u64, |sum, it| sum.saturating_mul(10).saturating_add(digit(it)))
        };
        let (year, rest) = match (tag, text.len()) {
            (UTC_TIME, 12) => {
                let (year, rest) = text.split_at_checked(2)?;
                let year = number(year);
                (year.saturating_add(if year < 50 { 2000 } else { 1900 }), rest)
            }
            (GENERAL_TIME, 14) => {
                let (year, rest) = text.split_at_checked(4)?;
                (number(year), rest)
            }
            _ => return None,
        };
        let parts: Vec<u64> = rest.chunks(2).map(number).collect();
        let [month, day, hour, minute, second] = parts[..] else { return None };
        calendar::moment([year, month, day], [hour, minute, second])
    }
}
