//! `dns`: in which zones names of Services are published, and how.

use std::{path::Path, sync::Arc};

use seaway_manifests::decode::{Field, FieldMap};
use seaway_model::{
    Name,
    dns::{Dns, DnsProvider, DnsZone},
};

use super::{
    acme::{PORT, dns_key, is_dns_name},
    socket,
};

const TTL: u32 = 60;
const LONGEST_TTL: u64 = 86_400;

/// Nothing is published, unless zones are named.
pub(super) fn read(field: &Field<'_>, beside: &Path) -> Option<Dns> {
    if !field.is_set() {
        return None;
    }
    let section = field.object();
    let owner = section.take("owner");
    match owner.name() {
        None => owner.required(
            "the name of this installation, another one for each cluster and for each group of hosts that write into the \
             same zones, such as prod",
        ),
        Some(text) if !is_dns_name(text) => {
            owner.invalid(text, "may contain only letters, digits, dots and hyphens, such as prod");
        }
        Some(_) => {}
    }
    let usual = ttl(&section.take("ttl")).unwrap_or(TTL);
    let zones = section.take("zones");
    if zones.items().len() == 0 {
        zones.required("the zones in which names are published: nothing is published outside of them");
    }
    let mut names: Vec<Name> = Vec::new();
    let zones = zones.items().filter_map(|item| {
        let entry = item.object();
        let zone = zone(&entry.take("zone"));
        if let Some(name) = &zone
            && names.contains(name)
        {
            item.duplicate(name.as_str());
        }
        names.extend(zone.clone());
        let by = provider(&entry, beside);
        let ttl = ttl(&entry.take("ttl")).unwrap_or(usual);
        let namespaces = entry.take("namespaces").texts().into_iter().map(Name::from).collect();
        entry.finish();
        Some(Arc::new(DnsZone { name: zone?, by: by?, ttl, namespaces }))
    });
    let zones: Vec<Arc<DnsZone>> = zones.collect();
    let is_label = |it: &str| {
        let is_end = |it: Option<&u8>| it.is_some_and(u8::is_ascii_alphanumeric);
        it.len() <= 63 && is_end(it.as_bytes().first()) && is_end(it.as_bytes().last())
    };
    if let Some(text) = owner.name().filter(|it| is_dns_name(it) && !is_label(it))
        && zones.iter().any(|it| it.by == DnsProvider::Endpoints)
    {
        owner.invalid(
            text,
            "must have at most 63 characters, and begin and end with a letter or digit: it is a label of DNSEndpoint objects",
        );
    }
    section.finish();
    Some(Dns { owner: owner.name()?.into(), zones })
}

fn zone(field: &Field<'_>) -> Option<Name> {
    let Some(text) = field.name() else {
        field.required("the name of a zone in DNS, such as shop.example");
        return None;
    };
    let zone = text.trim_end_matches('.').to_ascii_lowercase();
    if !is_dns_name(&zone) {
        field.invalid(text, "must be the name of a zone in DNS, such as shop.example");
    }
    Some(zone.into())
}

/// Who writes the records: a name server that takes updates, unless another is named.
fn provider(entry: &FieldMap<'_>, beside: &Path) -> Option<DnsProvider> {
    let named = entry.take("provider");
    let (server, key) = (entry.take("server"), entry.take("key"));
    match named.one_of(&[("rfc2136", false), ("dnsendpoint", true)]) {
        Some(true) => {
            for field in [&server, &key] {
                if field.is_set() {
                    field.forbidden("external-dns writes the records of a zone with provider: dnsendpoint");
                }
            }
            Some(DnsProvider::Endpoints)
        }
        _ => updates(&server, &key, beside),
    }
}

fn updates(server: &Field<'_>, key: &Field<'_>, beside: &Path) -> Option<DnsProvider> {
    if !server.is_set() {
        server.required(
            "the address of the primary name server, which takes dynamic updates, such as 192.0.2.53:53",
        );
    }
    let (at, key) = (socket(server, PORT), dns_key(key, beside));
    Some(DnsProvider::Updates { server: at?, key: key? })
}

fn ttl(field: &Field<'_>) -> Option<u32> {
    let ttl = field.duration()?;
    if !(1..=LONGEST_TTL).contains(&ttl.as_secs()) {
        field.invalid(&*format!("{ttl:?}"), "must be between 1s and 24h");
    }
    u32::try_from(ttl.as_secs()).ok()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use seaway_model::acme::{DnsKey, DnsKeyAlgorithm};

    use super::{super::parse, *};

    #[test]
    fn zones_are_read_with_who_takes_their_updates() {
        let text = "dns:\n  owner: prod\n  ttl: 30s\n  zones:\n  - zone: Shop.example.\n    server: 192.0.2.53\n    \
                    key: {name: seaway, secretFile: tsig.key}\n    namespaces: [shop]\n  - zone: b.example\n    \
                    server: '[2001:db8::53]:5353'\n    ttl: 5m\n    key: {name: k, algorithm: hmac-sha512, secretFile: /k}\n  \
                    - {zone: c.example, provider: dnsendpoint}\n";
        let dns = parse(text, Path::new("/etc/seaway")).expect("it is right").config.dns.expect("is set");
        assert_eq!(&*dns.owner, "prod");
        let key = |name: &str, algorithm, file: &str| DnsKey {
            name: name.into(),
            algorithm,
            secret_file: file.into(),
        };
        let updates = |at: &str, key| DnsProvider::Updates {
            server: at.parse::<SocketAddr>().expect("an address"),
            key,
        };
        let expected = [
            DnsZone {
                name: "shop.example".into(),
                by: updates(
                    "192.0.2.53:53",
                    key("seaway", DnsKeyAlgorithm::HmacSha256, "/etc/seaway/tsig.key"),
                ),
                ttl: 30,
                namespaces: vec!["shop".into()],
            },
            DnsZone {
                name: "b.example".into(),
                by: updates("[2001:db8::53]:5353", key("k", DnsKeyAlgorithm::HmacSha512, "/k")),
                ttl: 300,
                namespaces: Vec::new(),
            },
            DnsZone { name: "c.example".into(), by: DnsProvider::Endpoints, ttl: 30, namespaces: Vec::new() },
        ];
        assert_eq!(dns.zones, expected.map(Arc::new));
        assert_eq!(parse("", Path::new("")).expect("it is right").config.dns, None);
    }

    #[test]
    fn mistakes_are_told_at_their_places() {
        let zone = "zone: a.example, server: 192.0.2.53, key: {name: k, secretFile: f}";
        for (text, expected) in [
            (format!("zones: [{{{zone}}}]"), "owner: Required value"),
            (format!("owner: a b, zones: [{{{zone}}}]"), "owner: Invalid value"),
            ("owner: a".to_owned(), "zones: Required value"),
            (format!("owner: a, zones: [{{{zone}, tls: x}}]"), "zones[0].tls: unknown field"),
            ("owner: a, zones: [{zone: a.example}]".to_owned(), "zones[0].server: Required value"),
            (
                "owner: a, zones: [{zone: a.example, server: 192.0.2.53}]".to_owned(),
                "zones[0].key: Required value",
            ),
            (
                format!("owner: a, zones: [{{{}}}]", zone.replace("a.example", "'*.a'")),
                "zones[0].zone: Invalid value",
            ),
            (format!("owner: a, zones: [{{{zone}}}, {{{zone}}}]"), "zones[1]: Duplicate value"),
            (format!("owner: a, ttl: 0s, zones: [{{{zone}}}]"), "ttl: Invalid value"),
            (
                format!("owner: a, zones: [{{{zone}, provider: route53}}]"),
                "zones[0].provider: Unsupported value",
            ),
            // Nothing that is meant for a name server is left out in silence.
            (format!("owner: a, zones: [{{{zone}, provider: dnsendpoint}}]"), "zones[0].server: Forbidden"),
            (
                "owner: a-, zones: [{zone: a.example, provider: dnsendpoint}]".to_owned(),
                "owner: Invalid value",
            ),
        ] {
            let faults = parse(&format!("dns: {{{text}}}\n"), Path::new("")).expect_err("it is wrong");
            assert!(faults[0].to_string().starts_with(&format!("dns.{expected}")), "{text}: {}", faults[0]);
        }
    }
}
