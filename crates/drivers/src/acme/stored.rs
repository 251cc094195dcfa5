//! A certificate with its key, as it is stored: looked into before it is kept, and whenever it is read.

use std::sync::Arc;

use seaway_acme::certificate_id;
use seaway_model::{
    Name,
    acme::{CertificateOrder, ordered_certificate},
    fact::{Secret, TLS_SECRET},
    load_balancer::{Certificate, HostPattern},
};
use seaway_plan::{CertificateDates, certificate_dates, certificate_identity};
use secrecy::SecretString;
use tracing::warn;

use super::Certificates;

#[derive(Clone)]
pub(super) struct StoredCertificate {
    pub(super) pem: String,
    pub(super) dates: CertificateDates,
    /// By the directory that is asked now, and not by another one.
    pub(super) is_current: bool,
    /// What its authority calls it.
    pub(super) id: Option<Name>,
}

impl StoredCertificate {
    /// If it is for that host name, and its key is its own: what could not be shown counts as absent.
    pub(super) fn read(pem: String, host: &Name, is_current: bool) -> Result<StoredCertificate, String> {
        let dates = certificate_dates(&pem).ok_or("the file has no certificate that can be read")?;
        let is_for = |name: &HostPattern| match name {
            HostPattern::Exact(name) => name == host,
            // Of one label; of a wildcard that label is `*`.
            HostPattern::Under(end) => host.split_once('.').is_some_and(|(_, rest)| *rest == **end),
        };
        if !dates.names.iter().any(is_for) {
            return Err(format!("the certificate is not for {host}"));
        }
        let certificate = Certificate {
            chain: pem.as_str().into(),
            key: SecretString::from(pem.clone()),
            authorities: Name::default(),
            staple: None,
            users: String::new().into(),
        };
        seaway_proxy::look_at(&Arc::new(certificate)).map_err(|error| error.to_string())?;
        let id = certificate_identity(&pem).and_then(|(key, number)| certificate_id(&key, &number));
        Ok(StoredCertificate { pem, dates, is_current, id: id.map(Name::from) })
    }

    pub(super) fn secret(&self, host: &Name) -> Secret {
        let text = || SecretString::from(self.pem.clone());
        Secret {
            object: ordered_certificate(host),
            created: None,
            kind: TLS_SECRET.into(),
            values: [("tls.crt".into(), text()), ("tls.key".into(), text())].into(),
            staple: None,
            withheld: false,
        }
    }
}

impl Certificates {
    /// By the directory that is asked now if it can be used, or else what lasts longest of others.
    pub(super) fn stored(&self, order: &CertificateOrder) -> Option<StoredCertificate> {
        let CertificateOrder { host, acme, .. } = order;
        let found = self.store.certificates(&acme.directory, host);
        let found = found.inspect_err(|error| warn!(%host, %error, "the stored certificate cannot be read"));
        let read = found.ok()?.into_iter().filter_map(|stored| {
            let read = StoredCertificate::read(stored.pem, host, stored.is_current);
            read.inspect_err(|why| warn!(%host, why, "the stored certificate cannot be used")).ok()
        });
        read.max_by_key(|it| (it.is_current, it.dates.until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str) -> (String, String) {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    #[test]
    fn only_what_can_be_shown_for_its_name_is_kept() {
        let ((chain, key), (_, other)) = (pair("shop.example"), pair("shop.example"));
        let read = |pem: String, host: &str| StoredCertificate::read(pem, &host.into(), true).map(|_| ());
        assert_eq!(read(format!("{chain}\n{key}"), "shop.example"), Ok(()));
        for (pem, host, why) in [
            (format!("{chain}\n{key}"), "other.example", "it is not for other.example"),
            (format!("{chain}\n{other}"), "shop.example", "its key is another's"),
            (chain.clone(), "shop.example", "it has no key"),
            (key.clone(), "shop.example", "it has no certificate"),
            (String::new(), "shop.example", "it is empty"),
        ] {
            read(pem, host).expect_err(why);
        }
        let (wide, key) = pair("*.shop.example");
        assert_eq!(read(format!("{wide}\n{key}"), "www.shop.example"), Ok(()));
        assert_eq!(read(format!("{wide}\n{key}"), "*.shop.example"), Ok(()));
        read(format!("{wide}\n{key}"), "a.b.shop.example").expect_err("of one label");
    }
}
