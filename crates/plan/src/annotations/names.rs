//! Names that a Service is to have in DNS.

use seaway_model::{Name, fact::Labels};

use super::table::Row;
use crate::quantity::{duration, list};

pub const DNS_NAMES: &str = "seaway.dev/dns-names";
pub(crate) const DNS_TTL: &str = "seaway.dev/dns-ttl";
/// What these say may be for external-dns, and then is no matter of ours.
pub(super) const OF_EXTERNAL_DNS: &str = "external-dns.alpha.kubernetes.io/";
/// Of one Service.
const MOST: usize = 16;
/// Of a name; beside it is another with our mark, which is longer.
const LONGEST: usize = 230;
const LONGEST_TTL: u32 = 86_400;

pub(super) const ROWS: &[Row] = &[
    Row {
        names: &[DNS_NAMES, "external-dns.alpha.kubernetes.io/hostname"],
        help: "names that are published in DNS with the addresses of this Service: shop.example,*.shop.example; seaway.yaml says in which zones (dns.zones)",
        set: |wishes, text| {
            let names = list(text, host_name)?;
            match names.len() {
                0 => return Err("no name is given".into()),
                count if count > MOST => return Err(format!("{count} names; {MOST} are allowed")),
                _ => {}
            }
            wishes.hostnames = names;
            Ok(())
        },
    },
    Row {
        names: &[DNS_TTL, "external-dns.alpha.kubernetes.io/ttl"],
        help: "how long resolvers keep the addresses of its names: 30s, 5m, or seconds; else the ttl of the zone",
        set: |wishes, text| {
            let seconds = match text.parse::<u32>() {
                Ok(seconds) => seconds,
                Err(_) => u32::try_from(duration(text)?.as_secs()).unwrap_or(u32::MAX),
            };
            if !(1..=LONGEST_TTL).contains(&seconds) {
                return Err(format!("{text:?} is not between 1s and {LONGEST_TTL}s"));
            }
            wishes.hostname_ttl = Some(seconds);
            Ok(())
        },
    },
];

fn host_name(text: &str) -> Result<Name, String> {
    let name = text.trim_end_matches('.').to_ascii_lowercase();
    let below = name.strip_prefix("*.").unwrap_or(&name);
    let is_label = |it: &str| {
        (1..=63).contains(&it.len())
            && it.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-')
            && !it.starts_with('-')
            && !it.ends_with('-')
    };
    // The last label of a name has a letter: no address is one.
    let is_name = below.rsplit('.').next().is_some_and(|it| it.bytes().any(|it| it.is_ascii_alphabetic()));
    match is_name && below.contains('.') && name.len() <= LONGEST && below.split('.').all(is_label) {
        true => Ok(name.into()),
        false => Err(format!("{text:?} is not a valid DNS name")),
    }
}

/// The names that an object asks for; nothing, where what it says is not understood.
pub(crate) fn hostnames(annotations: &Labels) -> Option<Vec<Name>> {
    text_of(annotations).map_or(Some(Vec::new()), |text| list(text, host_name).ok())
}

/// Whether an object has this name among those it asks for, also where the rest of what it says is not understood.
pub(crate) fn has_hostname(annotations: &Labels, name: &str) -> bool {
    let is_it = |it: &str| it.trim().trim_end_matches('.').eq_ignore_ascii_case(name);
    text_of(annotations).is_some_and(|text| text.split(',').any(is_it))
}

fn text_of(annotations: &Labels) -> Option<&Name> {
    let names = ROWS.first().map_or(&[][..], |row| row.names);
    names.iter().find_map(|name| annotations.get(*name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_of_ours_and_else_of_external_dns() {
        let read = |all: &[(&str, &str)]| {
            let all = all.iter().map(|(name, value)| ((*name).into(), (*value).into()));
            hostnames(&all.collect())
        };
        let theirs = "external-dns.alpha.kubernetes.io/hostname";
        assert_eq!(read(&[]), Some(Vec::new()));
        assert_eq!(
            read(&[(theirs, "A.example., *.b.example")]),
            Some(vec!["a.example".into(), "*.b.example".into()])
        );
        assert_eq!(read(&[(theirs, "a.example"), (DNS_NAMES, "b.example")]), Some(vec!["b.example".into()]));
        let long = format!("{}.example", "a.".repeat(120));
        for wrong in
            ["example", "*", "a.*.example", "a_b.example", "-a.example", "a..example", "192.0.2.1:80", &long]
        {
            assert_eq!(read(&[(DNS_NAMES, wrong)]), None, "{wrong}");
        }
    }
}
