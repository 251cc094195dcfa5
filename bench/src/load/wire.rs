//! A client's connection to a contender: bytes as they are, or through TLS.

use std::io::{self, Read as _, Write as _};
use std::net::SocketAddrV4;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientConnection, TicketRequest};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};

use crate::sys;

pub struct Wire {
    fd: OwnedFd,
    tls: Option<Box<ClientConnection>>,
}

/// How every client of the bench speaks TLS: 1.3, X25519, AES-128-GCM, a P-256 key, no tickets, nothing resumed.
pub fn terms() -> Arc<ClientConfig> {
    let mut provider = aws_lc_rs::default_provider();
    provider.cipher_suites = vec![aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256];
    provider.kx_groups = vec![aws_lc_rs::kx_group::X25519];
    let builder = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .expect("the suite is one of TLS 1.3");
    let mut config =
        builder.dangerous().with_custom_certificate_verifier(Arc::new(NoCertVerifier)).with_no_client_auth();
    config.resumption = rustls::client::Resumption::disabled();
    config.send_ticket_request = Some(TicketRequest { new_session_count: 0, resumption_count: 0 });
    Arc::new(config)
}

impl Wire {
    /// Begins to connect; it is writable once it has.
    pub fn connect(to: SocketAddrV4, terms: Option<(&Arc<ClientConfig>, &str)>) -> io::Result<Self> {
        let tls = match terms {
            None => None,
            Some((terms, name)) => {
                let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
                Some(Box::new(ClientConnection::new(terms.clone(), name).map_err(io::Error::other)?))
            }
        };
        Ok(Self { fd: sys::tcp_connect(to)?, tls })
    }

    /// Goes on with the handshake; whether it is over.
    pub fn shake_hands(&mut self) -> io::Result<bool> {
        let Self { fd, tls: Some(tls) } = self else { return Ok(true) };
        loop {
            flush(fd, tls)?;
            if !tls.is_handshaking() {
                return Ok(true);
            }
            match take(fd, tls) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
    }

    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            tls.writer().write_all(bytes)?;
            return flush(&self.fd, tls);
        }
        match sys::send(&self.fd, bytes)? {
            sent if sent == bytes.len() => Ok(()),
            // Questions are far smaller than a socket's buffer.
            sent => Err(io::Error::other(format!("only {sent} bytes of a question fitted the socket"))),
        }
    }

    pub fn recv(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Self { fd, tls: Some(tls) } = self else { return sys::recv(&self.fd, buffer) };
        loop {
            match tls.reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            if take(fd, tls)? == 0 {
                return Ok(0);
            }
        }
    }

    /// The certificate that the contender has shown.
    pub fn shown(&self) -> Option<&[u8]> {
        Some(self.tls.as_ref()?.peer_certificates()?.first()?.as_ref())
    }

    /// Takes up to `len` bytes and looks at none.
    pub fn recv_and_drop(&mut self, len: usize) -> io::Result<usize> {
        sys::recv_and_drop(&self.fd, len)
    }
}

impl AsRawFd for Wire {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

fn flush(fd: &OwnedFd, tls: &mut ClientConnection) -> io::Result<()> {
    while tls.wants_write() {
        tls.write_tls(&mut Socket(fd))?;
    }
    Ok(())
}

fn take(fd: &OwnedFd, tls: &mut ClientConnection) -> io::Result<usize> {
    let len = tls.read_tls(&mut Socket(fd))?;
    tls.process_new_packets().map_err(io::Error::other)?;
    Ok(len)
}

struct Socket<'f>(&'f OwnedFd);

impl io::Read for Socket<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        sys::recv(self.0, into)
    }
}

impl io::Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        sys::send(self.0, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Who measures does not verify: that would be the client's time, not the contender's.
#[derive(Debug)]
struct NoCertVerifier;

impl ServerCertVerifier for NoCertVerifier {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}
