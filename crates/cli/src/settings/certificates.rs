//! `frontDoor.certificates` and `frontDoor.tls`: what the front door shows, and how it speaks TLS.

use std::path::{Path, PathBuf};

use seaway_files::pem::PemFiles;
use seaway_manifests::decode::Field;
use seaway_model::{
    Kind, ObjectRef,
    config::{FrontDoorTls, TlsSecrets},
    load_balancer::{ClientAuth, TlsProfile},
};
use seaway_plan::annotations::hsts;

use super::tenants::ExplicitKeys;

/// A Secret, or files; those are told as facts, so that one which is not there yet is a Problem and no fault.
pub(super) fn certificates(
    field: &Field<'_>,
    beside: &Path,
    tls: &mut FrontDoorTls,
    files: &mut Vec<PemFiles>,
) {
    for item in field.items() {
        let entry = item.object();
        let (secret, cert) = (entry.take("secret"), entry.take("cert"));
        let (key, staple) = (entry.take("key"), entry.take("ocsp"));
        match (secret.is_set(), cert.name()) {
            (true, Some(_)) => cert.error("cannot be combined with `secret`: name one of the two"),
            (true, None) => tls.certificates.extend(secret_named(&secret)),
            (false, Some(path)) => {
                // As HAProxy has them: both in one file.
                let key = key.name().unwrap_or(path);
                let pem = PemFiles {
                    name: beside.join(path).display().to_string().into(),
                    parts: vec![("tls.crt", beside.join(path)), ("tls.key", beside.join(key))],
                    staple: staple.name().map(|it| beside.join(it)),
                };
                tls.certificates.push(pem.object());
                add(files, pem);
            }
            (false, None) => cert.required("a PEM file, or `secret: namespace/name`"),
        }
        entry.finish();
    }
}

/// Authorities and a certificate in one file are one object, which has the parts of both.
fn add(files: &mut Vec<PemFiles>, pem: PemFiles) {
    let Some(known) = files.iter_mut().find(|it| it.name == pem.name) else { return files.push(pem) };
    let is_new = |part: &(&str, PathBuf)| known.parts.iter().all(|it| it.0 != part.0);
    if pem.parts.iter().all(is_new) {
        known.parts.extend(pem.parts);
        known.staple = known.staple.take().or(pem.staple);
    } else if pem.staple.is_some() || !pem.parts.iter().all(|it| known.parts.contains(it)) {
        files.push(pem);
    }
}

pub(super) fn tls(
    field: &Field<'_>,
    beside: &Path,
    tls: &mut FrontDoorTls,
    files: &mut Vec<PemFiles>,
    said: &mut ExplicitKeys,
) {
    let section = field.object();
    tls.port = section.take("port").port().unwrap_or(tls.port);
    let secrets = [("all", TlsSecrets::All), ("named", TlsSecrets::Named)];
    if let Some(secrets) = section.take("secrets").one_of(&secrets) {
        (tls.secrets, said.secrets) = (secrets, true);
    }
    tls.redirect = section.take("redirect").bool().unwrap_or(tls.redirect);
    let profiles = [("modern", TlsProfile::Modern), ("intermediate", TlsProfile::Intermediate)];
    tls.terms.profile = section.take("profile").one_of(&profiles).unwrap_or(tls.terms.profile);
    let lasting = section.take("hsts");
    if let Some(text) = lasting.text() {
        match hsts(text) {
            Ok(seconds) => tls.terms.hsts = Some(seconds).filter(|it| *it > 0),
            Err(_) => lasting.invalid(text, "must be a duration, such as 8760h, or off"),
        }
    }
    let clients = section.take("clients");
    if clients.is_set() {
        let keys = clients.object();
        let (file, secret) = (keys.take("authorities"), keys.take("secret"));
        let authorities = match (file.name(), secret.is_set()) {
            (Some(_), true) => {
                secret.error("cannot be combined with `authorities`: name one of the two");
                None
            }
            (Some(path), false) => {
                let parts = vec![("ca.crt", beside.join(path))];
                let name = beside.join(path).display().to_string().into();
                let pem = PemFiles { name, parts, staple: None };
                let object = pem.object();
                add(files, pem);
                Some(object)
            }
            (None, true) => secret_named(&secret),
            (None, false) => {
                file.required(
                    "a PEM file of the authorities that sign clients' certificates, or `secret: \
                    namespace/name`",
                );
                None
            }
        };
        let required = keys.take("required").bool().unwrap_or(true);
        tls.terms.clients = authorities.map(|authorities| ClientAuth { authorities, required });
        keys.finish();
    }
    section.finish();
}

/// `shop-tls`, or `namespace/shop-tls`.
fn secret_named(field: &Field<'_>) -> Option<ObjectRef> {
    let text = field.name()?;
    let (namespace, name) = text.split_once('/').unwrap_or(("default", text));
    if name.is_empty() || name.contains('/') {
        field.invalid(text, "must be a Secret's name, such as default/shop-tls");
        return None;
    }
    Some(ObjectRef::new(Kind::Secret, namespace, name))
}

#[cfg(test)]
mod tests {
    use super::super::{Settings, parse};
    use super::*;

    fn read(text: &str) -> Settings {
        parse(text, Path::new("/etc/seaway")).expect("it is right")
    }

    #[test]
    fn certificates_are_secrets_or_files_beside_the_configuration() {
        let settings = read(
            "frontDoor:\n  certificates:\n  - {cert: a.pem, key: /keys/a.key, ocsp: a.der}\n  - secret: shop/tls\n  \
             - {cert: both.pem}\n",
        );
        let named: Vec<String> =
            settings.config.front_door.tls.certificates.iter().map(ToString::to_string).collect();
        assert_eq!(named, ["File /etc/seaway/a.pem", "Secret shop/tls", "File /etc/seaway/both.pem"]);
        let paths =
            |it: &PemFiles| it.parts.iter().map(|(_, it)| it.display().to_string()).collect::<Vec<_>>();
        assert_eq!(paths(&settings.pems[0]), ["/etc/seaway/a.pem", "/keys/a.key"]);
        assert_eq!(settings.pems[0].staple.as_deref(), Some(Path::new("/etc/seaway/a.der")));
        assert_eq!(paths(&settings.pems[1]), ["/etc/seaway/both.pem", "/etc/seaway/both.pem"]);
    }

    #[test]
    fn every_key_of_tls_is_heeded() {
        let settings = read(
            "frontDoor:\n  tls:\n    port: 8443\n    secrets: named\n    redirect: true\n    profile: modern\n    \
             hsts: 1h\n    clients: {authorities: ca.pem, required: false}\n",
        );
        let tls = settings.config.front_door.tls;
        assert_eq!((tls.port, tls.secrets, tls.redirect), (8443, TlsSecrets::Named, true));
        assert_eq!((tls.terms.profile, tls.terms.hsts), (TlsProfile::Modern, Some(3600)));
        let clients = tls.terms.clients.expect("they are asked");
        assert_eq!((clients.authorities.name.as_str(), clients.required), ("/etc/seaway/ca.pem", false));
        assert_eq!(settings.pems[0].parts[0].0, "ca.crt");
        let by_secret =
            read("frontDoor: {tls: {clients: {secret: a/ca}}}\n").config.front_door.tls.terms.clients;
        assert_eq!(by_secret.expect("they are asked").authorities, ObjectRef::new(Kind::Secret, "a", "ca"));
    }

    #[test]
    fn authorities_in_the_file_of_a_certificate_hide_no_part_of_it() {
        let door = "certificates: [{cert: a.pem, ocsp: a.der}]";
        let clients = "tls: {clients: {authorities: a.pem}}";
        let inner = "entrances: [{name: inside, port: 81, tls: {port: 444, clients: {authorities: a.pem}}}]";
        for text in [
            format!("{{{door}, {clients}}}"),
            format!("{{{door}, {inner}}}"),
            format!("{{{door}, {clients}, {inner}}}"),
            format!("{{{clients}, entrances: [{{name: inside, port: 81, tls: {{port: 444}}, {door}}}]}}"),
        ] {
            let settings = read(&format!("frontDoor: {text}\n"));
            assert_eq!(settings.pems.len(), 1, "{text}: {:?}", settings.pems);
            let mut parts: Vec<&str> = settings.pems[0].parts.iter().map(|it| it.0).collect();
            parts.sort_unstable();
            assert_eq!(parts, ["ca.crt", "tls.crt", "tls.key"], "{text}");
            assert!(settings.pems[0].staple.is_some(), "{text}");
        }
    }

    #[test]
    fn mistakes_are_told_at_their_places() {
        for (text, expected) in [
            ("certificates: [{key: a}]", "frontDoor.certificates[0].cert: Required value"),
            ("certificates: [{cert: a, secret: b}]", "frontDoor.certificates[0].cert: cannot be combined"),
            ("certificates: [{secret: a/b/c}]", "frontDoor.certificates[0].secret: Invalid value"),
            ("tls: {hsts: soon}", "frontDoor.tls.hsts: Invalid value"),
            ("tls: {profile: old}", "frontDoor.tls.profile: "),
            ("tls: {clients: {}}", "frontDoor.tls.clients.authorities: Required value"),
            ("tls: {prot: 1}", "frontDoor.tls.prot: unknown field (did you mean \"port\"?)"),
        ] {
            let faults = parse(&format!("frontDoor: {{{text}}}\n"), Path::new("")).expect_err("it is wrong");
            assert!(faults[0].to_string().starts_with(expected), "{text}: {}", faults[0]);
        }
    }
}
