//! `frontDoor.acme`: where certificates are ordered, and how host names are proven.

use std::path::Path;

use seaway_manifests::decode::Field;
use seaway_model::{
    Name,
    acme::{AccountBinding, Acme, ChallengeType, DnsKey, DnsKeyAlgorithm, DnsUpdates},
};

use super::{socket, sockets};

/// Directories that have a name of their own.
const DIRECTORIES: [(&str, &str); 2] = [
    ("letsencrypt", "https://acme-v02.api.letsencrypt.org/directory"),
    ("letsencrypt-staging", "https://acme-staging-v02.api.letsencrypt.org/directory"),
];
/// Of DNS.
pub(super) const PORT: u16 = 53;

/// Nowhere, unless somebody asks for it.
pub(super) fn acme(field: &Field<'_>, beside: &Path) -> Option<Acme> {
    if !field.is_set() {
        return None;
    }
    let section = field.object();
    let email = section.take("email");
    if let Some(text) = email.name().filter(|it| !is_email(it)) {
        email.invalid(text, "must be an email address, such as ops@shop.example");
    }
    let directory = section.take("directory");
    let text = directory.name().unwrap_or("letsencrypt");
    let named = DIRECTORIES.iter().find(|(name, _)| *name == text).map(|(_, url)| *url);
    if named.is_none() && !text.starts_with("https://") {
        directory
            .invalid(text, "must be letsencrypt, letsencrypt-staging, or the https URL of an ACME directory");
    }
    let authorities = section.take("authorities").name().map(|it| beside.join(it));
    let (asked, updates) = (section.take("challenge"), section.take("dns"));
    let challenge = asked.one_of(&[
        ("http-01", ChallengeType::Http01),
        ("tls-alpn-01", ChallengeType::TlsAlpn01),
        ("dns-01", ChallengeType::Dns01),
    ]);
    let dns = dns(&updates, beside);
    if challenge == Some(ChallengeType::Dns01) && !updates.is_set() {
        updates.required("a name server that takes dynamic updates, as dns-01 needs one (docs/acme.md)");
    }
    let binding = binding(&section.take("externalAccount"), beside);
    section.finish();
    let email = email.name().map(Name::from);
    Some(Acme { directory: named.unwrap_or(text).into(), email, authorities, binding, challenge, dns })
}

fn binding(field: &Field<'_>, beside: &Path) -> Option<AccountBinding> {
    if !field.is_set() {
        return None;
    }
    let section = field.object();
    let (id, file) = (section.take("keyId"), section.take("hmacFile"));
    if id.name().is_none() {
        id.required("the key identifier that the certificate authority gave you");
    }
    if file.name().is_none() {
        file.required("a file with the HMAC key in base64url, which only Seaway's user may read (chmod 600)");
    }
    section.finish();
    Some(AccountBinding { key_id: id.name()?.into(), hmac_file: beside.join(file.name()?) })
}

fn dns(field: &Field<'_>, beside: &Path) -> Option<DnsUpdates> {
    if !field.is_set() {
        return None;
    }
    let section = field.object();
    let (server, key) = (section.take("server"), section.take("key"));
    let at = match server.is_set() {
        true => socket(&server, PORT),
        false => {
            server
                .required("the address of the name server that takes dynamic updates, such as 192.0.2.53:53");
            None
        }
    };
    let key = dns_key(&key, beside);
    let zones = section.take("zones");
    let zones = zones.items().filter_map(|item| {
        let text = item.name()?;
        let zone = text.trim_end_matches('.').to_ascii_lowercase();
        if !is_dns_name(&zone) {
            item.invalid(text, "must be the name of a zone in DNS, such as shop.example");
        }
        Some(Name::from(zone))
    });
    let zones = zones.collect();
    let secondaries = sockets(&section.take("secondaries"), PORT);
    section.finish();
    Some(DnsUpdates { server: at?, key: key?, zones, secondaries })
}

pub(super) fn dns_key(field: &Field<'_>, beside: &Path) -> Option<DnsKey> {
    if !field.is_set() {
        // Who takes updates of anybody who sends from some address gives his zone to that network.
        field.required("the TSIG key: {name, algorithm, secretFile}; updates without one are not supported");
        return None;
    }
    let section = field.object();
    let (name, algorithm, file) =
        (section.take("name"), section.take("algorithm"), section.take("secretFile"));
    let text = name.name();
    match text {
        None => name.required("the name of the key, as the name server has it"),
        Some(text) if !is_dns_name(text.trim_end_matches('.')) => {
            name.invalid(text, "must be a name in DNS, such as seaway or seaway.shop.example");
        }
        Some(_) => {}
    }
    let algorithms =
        [("hmac-sha256", DnsKeyAlgorithm::HmacSha256), ("hmac-sha512", DnsKeyAlgorithm::HmacSha512)];
    let algorithm = algorithm.one_of(&algorithms).unwrap_or(DnsKeyAlgorithm::HmacSha256);
    let path = file.name();
    if path.is_none() {
        file.required("a file with the secret in base64, which only Seaway's user may read (chmod 600)");
    }
    section.finish();
    Some(DnsKey { name: text?.into(), algorithm, secret_file: beside.join(path?) })
}

fn is_email(text: &str) -> bool {
    let is_part =
        |it: &str| !it.is_empty() && it.chars().all(|it| it.is_ascii_graphic() && !matches!(it, ',' | '?'));
    text.split_once('@').is_some_and(|(name, host)| is_part(name) && is_part(host) && !host.contains('@'))
}

pub(super) fn is_dns_name(text: &str) -> bool {
    let is_label = |it: &str| {
        (1..=63).contains(&it.len())
            && it.bytes().all(|it| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_'))
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::super::{Settings, parse};
    use super::*;

    fn read(text: &str) -> Settings {
        parse(text, Path::new("/etc/seaway")).expect("it is right")
    }

    fn acme(text: &str) -> Option<Acme> {
        read(text).config.front_door.tls.acme
    }

    #[test]
    fn certificates_are_ordered_where_the_configuration_says_and_nowhere_else() {
        assert_eq!(acme("frontDoor: {}\n"), None);
        let usual = acme("frontDoor: {acme: {email: ops@shop.example}}\n").expect("is set");
        assert_eq!(&*usual.directory, "https://acme-v02.api.letsencrypt.org/directory");
        assert_eq!((usual.email.as_deref(), usual.authorities), (Some("ops@shop.example"), None));
        assert_eq!((usual.challenge, usual.dns), (None, None));
        let other = acme("frontDoor: {acme: {directory: 'https://ca.lan/acme', authorities: ca.pem}}\n")
            .expect("is set");
        assert_eq!((&*other.directory, other.email), ("https://ca.lan/acme", None));
        assert_eq!(other.authorities.as_deref(), Some(Path::new("/etc/seaway/ca.pem")));
        let staging = acme("frontDoor: {acme: {directory: letsencrypt-staging}}\n").expect("is set");
        assert!(staging.directory.contains("staging"), "{staging:?}");
    }

    #[test]
    fn an_account_that_was_made_elsewhere_is_named_with_the_file_of_its_key() {
        let set = acme("frontDoor: {acme: {externalAccount: {keyId: kid-1, hmacFile: eab.key}}}\n");
        let expected = AccountBinding { key_id: "kid-1".into(), hmac_file: "/etc/seaway/eab.key".into() };
        assert_eq!(set.expect("is set").binding, Some(expected));
    }

    #[test]
    fn a_name_server_is_named_with_its_key() {
        let text = "frontDoor:\n  acme:\n    challenge: dns-01\n    dns:\n      server: 192.0.2.53\n      \
                    key: {name: seaway, secretFile: tsig.key}\n";
        let set = acme(text).expect("is set");
        let key = DnsKey {
            name: "seaway".into(),
            algorithm: DnsKeyAlgorithm::HmacSha256,
            secret_file: "/etc/seaway/tsig.key".into(),
        };
        let server = SocketAddr::from(([192, 0, 2, 53], 53));
        let expected = DnsUpdates { server, key, zones: Vec::new(), secondaries: Vec::new() };
        assert_eq!((set.challenge, set.dns), (Some(ChallengeType::Dns01), Some(expected)));
        let text = "frontDoor: {acme: {dns: {server: '[2001:db8::53]:5353', zones: [Shop.example.], secondaries: [192.0.2.54], \
                    key: {name: k., algorithm: hmac-sha512, secretFile: /k}}}}\n";
        let dns = acme(text).expect("is set").dns.expect("is set");
        assert_eq!((dns.server.port(), dns.zones), (5353, vec!["shop.example".into()]));
        assert_eq!(dns.secondaries, [SocketAddr::from(([192, 0, 2, 54], 53))]);
        assert_eq!((&*dns.key.name, dns.key.algorithm), ("k.", DnsKeyAlgorithm::HmacSha512));
        assert_eq!(dns.key.secret_file, Path::new("/k"));
    }

    #[test]
    fn mistakes_are_told_at_their_places() {
        let key = "key: {name: k, secretFile: f}";
        for (text, expected) in [
            ("email: ops".to_owned(), "email: Invalid value"),
            ("email: 'a@b?cc=c'".to_owned(), "email: Invalid value"),
            ("directory: 'http://ca'".to_owned(), "directory: Invalid value"),
            ("mail: a".to_owned(), "mail: unknown field (did you mean \"email\"?)"),
            ("externalAccount: {keyId: a}".to_owned(), "externalAccount.hmacFile: Required value"),
            ("externalAccount: {hmacFile: a}".to_owned(), "externalAccount.keyId: Required value"),
            (
                "externalAccount: {hmac: a, keyId: a, hmacFile: a}".to_owned(),
                "externalAccount.hmac: unknown field",
            ),
            ("challenge: dns-01".to_owned(), "dns: Required value"),
            ("challenge: dns".to_owned(), "challenge: Unsupported value"),
            (format!("dns: {{{key}}}"), "dns.server: Required value"),
            (format!("dns: {{server: ns.shop.example, {key}}}"), "dns.server: Invalid value"),
            ("dns: {server: 192.0.2.53}".to_owned(), "dns.key: Required value"),
            ("dns: {server: 192.0.2.53, key: {name: k}}".to_owned(), "dns.key.secretFile: Required value"),
            ("dns: {server: 192.0.2.53, key: {secretFile: f}}".to_owned(), "dns.key.name: Required value"),
            (
                "dns: {server: 192.0.2.53, key: {name: a b, secretFile: f}}".to_owned(),
                "dns.key.name: Invalid value",
            ),
            (
                "dns: {server: 192.0.2.53, key: {name: k, algorithm: hmac-md5, secretFile: f}}".to_owned(),
                "dns.key.algorithm: Unsupported value",
            ),
            (
                "dns: {server: 192.0.2.53, key: {name: k, secret: c2VjcmV0, secretFile: f}}".to_owned(),
                "dns.key.secret: unknown field",
            ),
            (format!("dns: {{server: 192.0.2.53, zones: ['*.a'], {key}}}"), "dns.zones[0]: Invalid value"),
            (
                format!("dns: {{server: 192.0.2.53, zone: a, {key}}}"),
                "dns.zone: unknown field (did you mean \"zones\"?)",
            ),
            (
                format!("dns: {{server: 192.0.2.53, secondaries: [x], {key}}}"),
                "dns.secondaries[0]: Invalid value",
            ),
        ] {
            let text = format!("frontDoor: {{acme: {{{text}}}}}\n");
            let faults = parse(&text, Path::new("")).expect_err("it is wrong");
            let expected = format!("frontDoor.acme.{expected}");
            assert!(faults[0].to_string().starts_with(&expected), "{text}: {}", faults[0]);
            assert!(!faults[0].to_string().contains("c2VjcmV0"), "a secret is not repeated");
        }
    }
}
