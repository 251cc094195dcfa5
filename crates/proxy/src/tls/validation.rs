//! Names that a certificate authority checks by shaking hands (TLS-ALPN-01, RFC 8737): it is shown a certificate that nobody else is
//! shown, and nothing follows.

use std::{
    collections::HashMap,
    io::{self, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use rustls::{
    CertificateError, ClientConfig, ClientConnection, DigitallySignedStruct, ServerConfig, SignatureScheme,
    Stream,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::aws_lc_rs::{self, sign::any_supported_type},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::{ClientHello, NoServerSessionStorage, ResolvesServerCert},
    sign::CertifiedKey,
};
use seaway_model::{
    Name,
    load_balancer::{Certificate, TlsByName},
};
use secrecy::ExposeSecret;

const PROTOCOL: &[u8] = b"acme-tls/1";
const PATIENCE: Duration = Duration::from_secs(5);

/// How it is spoken with authorities: with no client certificates, no tickets, and no other protocol.
pub(crate) struct TlsAlpnChallenges {
    pub(crate) config: Arc<ServerConfig>,
    names: Arc<ChallengeCertificates>,
}

#[derive(Debug)]
struct ChallengeCertificates(HashMap<Name, Arc<CertifiedKey>>);

impl TlsAlpnChallenges {
    pub(crate) fn new(tls: &TlsByName) -> Option<TlsAlpnChallenges> {
        if tls.validations.is_empty() {
            return None;
        }
        let usable = tls.validations.iter().filter_map(|(name, it)| Some((name.clone(), key(it)?)));
        let names = Arc::new(ChallengeCertificates(usable.collect()));
        let builder = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().ok()?.with_no_client_auth();
        let mut config = builder.with_cert_resolver(names.clone());
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Some(TlsAlpnChallenges { config: Arc::new(config), names })
    }

    /// For exactly that name.
    pub(crate) fn is_of(&self, name: &str) -> bool {
        self.names.0.contains_key(name)
    }
}

impl ResolvesServerCert for ChallengeCertificates {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.get(hello.server_name()?).cloned()
    }
}

/// It is ours, and has an extension that no verifier takes: it is not looked into any further.
fn key(certificate: &Certificate) -> Option<Arc<CertifiedKey>> {
    let chain = CertificateDer::from_pem_slice(certificate.chain.as_bytes()).ok()?;
    let key = PrivateKeyDer::from_pem_slice(certificate.key.expose_secret().as_bytes()).ok()?;
    Some(Arc::new(CertifiedKey::new(vec![chain], any_supported_type(&key).ok()?)))
}

/// Whether who listens there shows that certificate to an authority, and why not. It waits for up to some seconds.
pub fn shows_validation(at: SocketAddr, host: &str, certificate: &Certificate) -> Result<(), String> {
    let shake_hands = || -> io::Result<()> {
        let expected =
            CertificateDer::from_pem_slice(certificate.chain.as_bytes()).map_err(io::Error::other)?;
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(io::Error::other)?;
        let exactly = Arc::new(PinnedCertVerifier(expected));
        let mut config = builder.dangerous().with_custom_certificate_verifier(exactly).with_no_client_auth();
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let mut connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
        let mut socket = TcpStream::connect_timeout(&at, PATIENCE)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Stream::new(&mut connection, &mut socket).flush()?;
        match connection.alpn_protocol() == Some(PROTOCOL) {
            true => Ok(()),
            false => Err(io::Error::other("the server does not speak acme-tls/1")),
        }
    };
    shake_hands().map_err(|error| error.to_string())
}

/// Who has that certificate is who is asked: what it signs with is not looked at.
#[derive(Debug)]
struct PinnedCertVerifier(CertificateDer<'static>);

impl ServerCertVerifier for PinnedCertVerifier {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match *shown == self.0 {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        aws_lc_rs::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
