//! Authorities, and what they sign.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, date_time_ymd};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    server::WebPkiClientVerifier,
};

pub(crate) struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key.
pub(crate) struct Pair {
    certificate: rcgen::Certificate,
    key: KeyPair,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        let mut parameters = CertificateParams::new(Vec::new()).expect("no names are fine names");
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("keys can be made");
        Authority(CertifiedIssuer::self_signed(parameters, key).expect("a key signs for itself"))
    }

    pub(crate) fn signs(&self, name: &str) -> Pair {
        self.signs_with(name, |_| {})
    }

    pub(crate) fn signs_expired(&self, name: &str) -> Pair {
        self.signs_with(name, |parameters| parameters.not_after = date_time_ymd(2020, 1, 1))
    }

    fn signs_with(&self, name: &str, adjust: impl FnOnce(&mut CertificateParams)) -> Pair {
        let mut parameters = CertificateParams::new(vec![name.to_owned()]).expect("a name or an address");
        adjust(&mut parameters);
        let key = KeyPair::generate().expect("keys can be made");
        Pair { certificate: parameters.signed_by(&key, &self.0).expect("an authority signs"), key }
    }

    pub(crate) fn write(&self, folder: &Path) -> PathBuf {
        let path = folder.join("ca.pem");
        fs::write(&path, self.0.pem()).expect("written");
        path
    }

    fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("an authority");
        Arc::new(roots)
    }
}

impl Pair {
    pub(crate) fn write(&self, folder: &Path) -> (PathBuf, PathBuf) {
        let (certificate, key) = (folder.join("cert.pem"), folder.join("key.pem"));
        fs::write(&certificate, self.certificate.pem()).expect("written");
        fs::write(&key, self.key.serialize_pem()).expect("written");
        (certificate, key)
    }

    /// A server that shows this; and that wants to be shown one of `clients`, if there are any.
    pub(crate) fn serve(&self, clients: Option<&Authority>) -> ServerConfig {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("the provider knows TLS");
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(authority.roots(), provider);
                builder.with_client_cert_verifier(verifier.build().expect("there is a root"))
            }
        };
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(self.key.serialize_der()));
        builder.with_single_cert(vec![self.certificate.der().clone()], key).expect("key and certificate fit")
    }
}
