//! TLS with members: whom they have to be, and who vouches for that.

use std::{
    collections::HashMap,
    io,
    sync::{Arc, LazyLock, Mutex, PoisonError, Weak},
};

use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};
use seaway_model::{
    Name,
    load_balancer::{BackendProtocol, BackendTls, Trust},
};

/// How the members of one pool are spoken to.
#[derive(Debug)]
pub(crate) struct UpstreamTls {
    tls: Arc<BackendTls>,
    config: Arc<ClientConfig>,
}

type UpstreamTlsCache = HashMap<(Arc<BackendTls>, BackendProtocol), Weak<UpstreamTls>>;

impl UpstreamTls {
    /// The same for all who want the same: sessions are resumed whoever asks.
    pub(crate) fn of(tls: &Arc<BackendTls>, protocol: BackendProtocol) -> Arc<UpstreamTls> {
        static KNOWN: LazyLock<Mutex<UpstreamTlsCache>> = LazyLock::new(Mutex::default);
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (tls.clone(), protocol);
        if let Some(upstream_tls) = known.get(&key).and_then(Weak::upgrade) {
            return upstream_tls;
        }
        known.retain(|_, it| it.strong_count() > 0);
        let made = Arc::new(UpstreamTls { tls: tls.clone(), config: Arc::new(config(tls, protocol)) });
        known.insert(key, Arc::downgrade(&made));
        made
    }

    /// `resolved`: the name that the member was found by.
    pub(crate) fn begin(&self, resolved: Option<&Name>) -> io::Result<ClientConnection> {
        let name = self.tls.name.as_ref().or(resolved).unwrap_or(&self.tls.usual);
        let name = ServerName::try_from(name.as_str().to_owned()).map_err(io::Error::other)?;
        ClientConnection::new(self.config.clone(), name).map_err(io::Error::other)
    }
}

#[allow(clippy::expect_used, reason = "a constant of the provider, and no bytes of others")]
fn config(tls: &BackendTls, protocol: BackendProtocol) -> ClientConfig {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone());
    let builder = builder.with_safe_default_protocol_versions().expect("the provider knows TLS 1.2 and 1.3");
    let verifier: Arc<dyn ServerCertVerifier> = match &tls.trust {
        Trust::InsecureSkipVerify => Arc::new(NoRootsVerifier { believes: AcceptPolicy::Anybody, provider }),
        Trust::CaBundle(pem) => trusting(pem_roots(pem), provider),
        Trust::SystemRoots => trusting(machine_roots(), provider),
    };
    // It is no more dangerous than who is trusted.
    let mut config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
    config.alpn_protocols = match protocol {
        BackendProtocol::Http2 => vec![b"h2".to_vec()],
        BackendProtocol::Http1 => vec![b"http/1.1".to_vec()],
        BackendProtocol::Opaque => Vec::new(),
    };
    config
}

fn trusting(roots: Arc<RootCertStore>, provider: Arc<CryptoProvider>) -> Arc<dyn ServerCertVerifier> {
    match WebPkiServerVerifier::builder_with_provider(roots, provider.clone()).build() {
        Ok(verifier) => verifier,
        Err(error) => {
            tracing::warn!(%error, "no usable CA certificate: all TLS connections to these members will fail");
            Arc::new(NoRootsVerifier { believes: AcceptPolicy::Nobody, provider })
        }
    }
}

fn pem_roots(pem: &Name) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(pem.as_bytes()).filter_map(Result::ok));
    Arc::new(roots)
}

/// Whom this machine trusts; read when they are first asked for.
fn machine_roots() -> Arc<RootCertStore> {
    static ROOTS: LazyLock<Arc<RootCertStore>> = LazyLock::new(|| {
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::warn!(%error, "the certificate authorities of this machine cannot be read");
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(found.certs);
        Arc::new(roots)
    });
    ROOTS.clone()
}

/// Verifies no certificate: all are believed, as was asked for, or none is.
#[derive(Debug)]
struct NoRootsVerifier {
    believes: AcceptPolicy,
    provider: Arc<CryptoProvider>,
}

#[derive(Debug)]
enum AcceptPolicy {
    Anybody,
    /// Without authorities there is nobody to believe.
    Nobody,
}

impl ServerCertVerifier for NoRootsVerifier {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match self.believes {
            AcceptPolicy::Anybody => Ok(ServerCertVerified::assertion()),
            AcceptPolicy::Nobody => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let known = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_authorities_nobody_is_believed() {
        let verifier = trusting(pem_roots(&"no PEM".into()), Arc::new(aws_lc_rs::default_provider()));
        let (certificate, name) = (CertificateDer::from(vec![0]), "shop.example".try_into().unwrap());
        let refused = verifier.verify_server_cert(&certificate, &[], &name, &[], UnixTime::now());
        assert_eq!(refused.unwrap_err(), CertificateError::UnknownIssuer.into());
    }
}
