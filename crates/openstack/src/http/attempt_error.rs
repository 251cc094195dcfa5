//! Errors of single HTTP attempts. Each says why no complete reply came, and what to correct.

use std::{error::Error as Cause, io, time::Duration};

use reqwest::Url;
use rustls::{AlertDescription, CertificateError, InvalidMessage};

use super::transport::HttpRequest;
use crate::error::{Class, Error};

/// Why an attempt of a request got no complete reply.
#[derive(Debug)]
pub(crate) struct AttemptError {
    pub(crate) error: Error,
    /// Whether the request may have been done all the same.
    pub(crate) sent: bool,
}

/// What was asked, for the sake of telling.
pub(super) struct RequestDescription<'a> {
    pub(super) url: &'a Url,
    pub(super) connect: Duration,
    pub(super) within: Duration,
    pub(super) address_from: &'a str,
}

impl AttemptError {
    pub(super) fn unsent(error: Error) -> AttemptError {
        AttemptError { error, sent: false }
    }

    pub(super) fn no_url(ask: &HttpRequest<'_>, source: impl Cause + Send + Sync + 'static) -> AttemptError {
        let error = Error::new(Class::Credentials, format!("{:?} is not a URL", ask.url))
            .with_fix(format!("the address comes from {}", ask.address_from))
            .with_source(source);
        AttemptError::unsent(error)
    }
}

impl RequestDescription<'_> {
    /// Of a request that got no reply.
    pub(super) fn no_reply(&self, error: reqwest::Error) -> AttemptError {
        let connecting = error.is_connect();
        let told = if error.is_timeout() {
            self.too_late(connecting)
        } else if let Some(fault) = find::<rustls::Error>(&error) {
            self.tls(fault)
        } else if error.is_dns() {
            let host = self.url.host_str().unwrap_or_default();
            Error::new(Class::Unreachable, format!("the name {host:?} does not resolve")).with_fix(format!(
                "check it in {}, and this machine's DNS (`getent hosts {host}`)",
                self.address_from
            ))
        } else if connecting {
            self.unreachable(find::<io::Error>(&error).map(io::Error::kind), &error)
        } else if error.is_builder() {
            Error::new(Class::Credentials, format!("no request can be sent to {}", self.url)).with_fix(
                format!(
                    "the address has to begin with http:// or https://; it comes from {}",
                    self.address_from
                ),
            )
        } else if chain(&error).any(|cause| cause.to_string().contains("invalid HTTP")) {
            // hyper's word for bytes that are none, and there is no other way to know it.
            Error::new(Class::NotOpenStack, format!("{} does not speak plain HTTP", self.host()))
                .with_fix(format!("if it speaks TLS, write https:// in {}", self.address_from))
        } else {
            let host = self.host();
            Error::new(Class::Unreachable, format!("{host} ended the connection before it replied")).with_fix(
                format!("if this continues, look at proxies in between, and at {}", self.address_from),
            )
        };
        AttemptError { error: told.with_source(error.without_url()), sent: !connecting }
    }

    /// Of a reply whose head came, and its body did not.
    pub(super) fn cut(&self, error: reqwest::Error, read: usize) -> AttemptError {
        if error.is_timeout() {
            return AttemptError { error: self.too_late(false).with_source(error.without_url()), sent: true };
        }
        let trouble = self.ends_early(read);
        AttemptError { error: trouble.error.with_source(error.without_url()), ..trouble }
    }

    pub(super) fn ends_early(&self, read: usize) -> AttemptError {
        let host = self.host();
        let error = Error::new(Class::CutShort, format!("the reply of {host} broke off after {read} bytes"))
            .with_fix("if this continues, look for a proxy in between that cuts long or slow replies");
        AttemptError { error, sent: true }
    }

    pub(super) fn too_large(&self, most: usize) -> AttemptError {
        let message = format!("the reply of {} is larger than {} MiB", self.host(), most >> 20);
        let fix = format!(
            "check {}: this address is not an API of OpenStack, or the API does not paginate its lists",
            self.address_from
        );
        AttemptError { error: Error::new(Class::TooLarge, message).with_fix(fix), sent: true }
    }

    fn too_late(&self, connecting: bool) -> Error {
        let host = self.host();
        if connecting {
            let message = format!("no connection to {host} within {}", seconds(self.connect));
            Error::new(Class::Timeout, message).with_fix(format!(
                "a firewall may drop what is sent there; check the address in {}",
                self.address_from
            ))
        } else {
            let message = format!("{host} did not reply within {}", seconds(self.within));
            Error::new(Class::Timeout, message)
                .with_fix("the service behind it is stuck or overloaded: ask its operators")
        }
    }

    fn unreachable(&self, kind: Option<io::ErrorKind>, error: &reqwest::Error) -> Error {
        let host = self.host();
        let tunnel = chain(error).any(|cause| cause.to_string().contains("tunnel"));
        let message = match kind {
            _ if tunnel => format!("the proxy of this environment does not connect to {host}"),
            Some(io::ErrorKind::ConnectionRefused) => {
                format!("nothing listens at {host}: connection refused")
            }
            Some(io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof) => {
                format!("{host} closed the connection during the handshake")
            }
            Some(io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable) => {
                format!("this machine has no route to {host}")
            }
            _ => format!("no connection to {host}"),
        };
        let fix = if tunnel {
            "see https_proxy and no_proxy in the environment".to_owned()
        } else {
            format!("check the address in {}, and that the service runs", self.address_from)
        };
        Error::new(Class::Unreachable, message).with_fix(fix)
    }

    fn tls(&self, fault: &rustls::Error) -> Error {
        use rustls::Error::{AlertReceived, InvalidCertificate, InvalidMessage as Message};
        let host = self.host();
        let (message, fix) = match fault {
            // One of the same name signed another way: an authority that was made anew.
            InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => (
                format!("the certificate of {host} is signed by an authority that is not trusted here"),
                "name the file of that authority: `cacert` in clouds.yaml, `ca-file` in cloud.conf, or OS_CACERT"
                    .to_owned(),
            ),
            InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            ) => (
                format!("the certificate of {host} is for another name"),
                format!("use a name that the certificate has, in {}", self.address_from),
            ),
            InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => (
                format!("the certificate of {host} has expired"),
                "the operators of the service have to renew the certificate; also check this machine's clock".to_owned(),
            ),
            InvalidCertificate(CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. }) => (
                format!("the certificate of {host} is not valid yet"),
                "check this machine's clock".to_owned(),
            ),
            InvalidCertificate(_) => (
                format!("the certificate of {host} is not acceptable"),
                "the operators of the service must correct the certificate".to_owned(),
            ),
            Message(InvalidMessage::InvalidContentType) => (
                format!("{host} does not speak TLS"),
                format!("if it speaks plain HTTP, write http:// in {}", self.address_from),
            ),
            AlertReceived(
                AlertDescription::CertificateRequired
                | AlertDescription::UnknownCA
                | AlertDescription::BadCertificate
                | AlertDescription::HandshakeFailure,
            ) => (
                format!("{host} requires a client certificate, or a different one"),
                "name it: `cert` and `key` in clouds.yaml, `cert-file` and `key-file` in cloud.conf".to_owned(),
            ),
            _ => (format!("the TLS handshake with {host} failed"), format!("check the address in {}", self.address_from)),
        };
        Error::new(Class::Tls, message).with_fix(fix)
    }

    fn host(&self) -> String {
        let host = self.url.host_str().unwrap_or_default();
        self.url.port_or_known_default().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }
}

fn seconds(time: Duration) -> String {
    format!("{} s", (time.as_secs_f64() * 10.0).round() / 10.0)
}

/// All causes; an `io::Error` hides one from the usual way.
fn chain<'a>(error: &'a (dyn Cause + 'static)) -> impl Iterator<Item = &'a (dyn Cause + 'static)> {
    fn next<'a>(error: &&'a (dyn Cause + 'static)) -> Option<&'a (dyn Cause + 'static)> {
        match (*error).downcast_ref::<io::Error>() {
            Some(io) => io.get_ref().map(|inner| inner as _).or_else(|| io.source()),
            None => (*error).source(),
        }
    }
    std::iter::successors(Some(error), next)
}

fn find<'a, T: Cause + 'static>(error: &'a (dyn Cause + 'static)) -> Option<&'a T> {
    chain(error).find_map(|cause| cause.downcast_ref())
}
