//! `/metrics` by TLS for those who show a token that may read them: Prometheus, in a cluster.
//!
//! ```text
//!     strangers ─► places ─► handshake ─► Authorization: Bearer TOKEN ─► Judge ─► /metrics
//!        (of their own)      (5 s)                                    401, 403, 429, 503
//! ```
//! Who may is asked of a [`Authorizer`], which the crate knows nothing of. Without its word nothing is told.

use std::{
    fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use hyper::{
    HeaderMap, StatusCode,
    header::{self, HeaderValue},
};
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use secrecy::SecretString;
use thiserror::Error;

use super::routes::response::{PageResponse, text};

/// A certificate in files is looked at again this often.
const LOOK_AGAIN: Duration = Duration::from_secs(10);
/// Tokens of a cluster are some 1,000 letters.
const LONGEST_TOKEN: usize = 8 * 1024;

/// Tells whether who has this token may read the metrics. Whoever asks is told apart by address.
pub type Authorizer = Arc<dyn Fn(SecretString, IpAddr) -> AuthorizationFuture + Send + Sync>;
pub type AuthorizationFuture = Pin<Box<dyn Future<Output = Authorization> + Send>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authorization {
    Allowed,
    /// Nobody knows the token.
    Unauthenticated,
    /// Its owner may not.
    Denied,
    /// Too many ask at once.
    Busy,
    /// Who knows does not answer.
    Unanswered,
}

/// Why a listener has no certificate.
#[derive(Debug, Error)]
pub enum CertificateError {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("there is no PEM certificate in {}", .0.display())]
    Chain(PathBuf),
    #[error("there is no PEM key in {}", .0.display())]
    Key(PathBuf),
    #[error("the key does not belong to the certificate, or is of a type that TLS does not support")]
    Unusable(#[source] rustls::Error),
    #[error("a certificate cannot be made")]
    Made(#[source] rcgen::Error),
}

/// A certificate for TLS, and who may read.
#[derive(Clone)]
pub struct MetricsGuard {
    pub(super) tls: Arc<ServerConfig>,
    judge: Authorizer,
}

impl MetricsGuard {
    /// With a certificate of its own, made now, that nobody vouches for: it keeps what is said from those who listen, and
    /// does not tell who we are.
    pub fn self_signed(names: Vec<String>, judge: Authorizer) -> Result<MetricsGuard, CertificateError> {
        let made = rcgen::generate_simple_self_signed(names).map_err(CertificateError::Made)?;
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let certified = certified(vec![made.cert.der().clone()], key)?;
        MetricsGuard::new(Arc::new(SelfSignedCertificate(certified)), judge)
    }

    /// With a certificate in files, which may be renewed there.
    pub fn from_files(
        certificate: &Path,
        key: &Path,
        judge: Authorizer,
    ) -> Result<MetricsGuard, CertificateError> {
        let now = LoadedCertificate::read(certificate, key)?;
        let files = CertificateFiles {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            held: Mutex::new(now),
        };
        MetricsGuard::new(Arc::new(files), judge)
    }

    fn new(
        resolver: Arc<dyn ResolvesServerCert>,
        judge: Authorizer,
    ) -> Result<MetricsGuard, CertificateError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(CertificateError::Unusable)?;
        let mut config = config.with_no_client_auth().with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(MetricsGuard { tls: Arc::new(config), judge })
    }

    /// What whoever may not is told; nothing, for who may.
    pub(super) async fn rejection(&self, headers: &HeaderMap, from: IpAddr) -> Option<PageResponse> {
        let verdict = match token(headers) {
            Some(token) => (self.judge)(token, from).await,
            None => Authorization::Unauthenticated,
        };
        let (status, why) = match verdict {
            Authorization::Allowed => return None,
            Authorization::Unauthenticated => (
                StatusCode::UNAUTHORIZED,
                "Send a token of the cluster in a header: Authorization: Bearer \
                                            TOKEN\n",
            ),
            Authorization::Denied => (
                StatusCode::FORBIDDEN,
                "This user may not get /metrics: bind the role seaway-metrics-reader.\n",
            ),
            Authorization::Busy => (StatusCode::TOO_MANY_REQUESTS, "Too many requests at once. Try again.\n"),
            Authorization::Unanswered => (
                StatusCode::SERVICE_UNAVAILABLE,
                "The API server did not answer whether this user may get \
                                                   /metrics. Try again.\n",
            ),
        };
        let mut answer = text(status, why);
        if status == StatusCode::UNAUTHORIZED {
            answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if status == StatusCode::TOO_MANY_REQUESTS {
            answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        Some(answer)
    }
}

fn token(headers: &HeaderMap) -> Option<SecretString> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let (Some(one), None) = (all.next(), all.next()) else { return None };
    let (scheme, token) = one.to_str().ok()?.split_once(' ')?;
    let token = token.trim();
    let is_one = !token.is_empty() && token.len() <= LONGEST_TOKEN && !token.contains(' ');
    (scheme.eq_ignore_ascii_case("bearer") && is_one).then(|| token.to_owned().into())
}

fn certified(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<Arc<CertifiedKey>, CertificateError> {
    let provider = aws_lc_rs::default_provider();
    CertifiedKey::from_der(chain, key, &provider).map(Arc::new).map_err(CertificateError::Unusable)
}

#[derive(Debug)]
struct SelfSignedCertificate(Arc<CertifiedKey>);

impl ResolvesServerCert for SelfSignedCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.clone())
    }
}

#[derive(Debug)]
struct CertificateFiles {
    certificate: PathBuf,
    key: PathBuf,
    held: Mutex<LoadedCertificate>,
}

#[derive(Debug)]
struct LoadedCertificate {
    certified: Arc<CertifiedKey>,
    /// When both files were written.
    written: [Option<SystemTime>; 2],
    looked: Instant,
}

impl ResolvesServerCert for CertificateFiles {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.now())
    }
}

impl CertificateFiles {
    /// What cannot be read now is what was read before.
    fn now(&self) -> Arc<CertifiedKey> {
        let mut held: MutexGuard<'_, LoadedCertificate> =
            self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.looked.elapsed() >= LOOK_AGAIN {
            held.looked = Instant::now();
            self.reload_if_changed(&mut held);
        }
        held.certified.clone()
    }

    fn reload_if_changed(&self, held: &mut LoadedCertificate) {
        if written(&self.certificate, &self.key) == held.written {
            return;
        }
        match LoadedCertificate::read(&self.certificate, &self.key) {
            Ok(now) => *held = now,
            Err(error) => {
                tracing::warn!(%error, "the certificate of the metrics server cannot be reloaded; the previous one stays in use")
            }
        }
    }
}

impl LoadedCertificate {
    fn read(certificate: &Path, key: &Path) -> Result<LoadedCertificate, CertificateError> {
        let written = written(certificate, key);
        let read = |path: &Path| {
            fs::read(path).map_err(|source| CertificateError::Read { path: path.to_owned(), source })
        };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(certificate)?).collect();
        let chain = chain.ok().filter(|it| !it.is_empty());
        let chain = chain.ok_or_else(|| CertificateError::Chain(certificate.to_owned()))?;
        let key =
            PrivateKeyDer::from_pem_slice(&read(key)?).map_err(|_| CertificateError::Key(key.to_owned()))?;
        Ok(LoadedCertificate { certified: certified(chain, key)?, written, looked: Instant::now() })
    }
}

fn written(certificate: &Path, key: &Path) -> [Option<SystemTime>; 2] {
    [certificate, key].map(|it| fs::metadata(it).and_then(|it| it.modified()).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_what_one_header_says_and_nothing_else() {
        use secrecy::ExposeSecret;
        let of = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
            }
            token(&headers).map(|it| it.expose_secret().to_owned())
        };
        assert_eq!(of(&["Bearer a.b.c"]).as_deref(), Some("a.b.c"));
        assert_eq!(of(&["bearer  a.b.c "]).as_deref(), Some("a.b.c"));
        let long = format!("Bearer {}", "a".repeat(LONGEST_TOKEN + 1));
        for values in [
            &[][..],
            &["Bearer"],
            &["Bearer "],
            &["Basic a"],
            &["Bearer a", "Bearer a"],
            &["Bearer a b"],
            &[&long],
        ] {
            assert_eq!(of(values), None, "{values:?}");
        }
    }

    #[test]
    fn a_certificate_that_is_renewed_in_its_files_is_shown_and_a_broken_one_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let [certificate, key] = ["tls.crt", "tls.key"].map(|it| folder.path().join(it));
        let write = |age: u64| {
            let made = rcgen::generate_simple_self_signed(vec!["seaway".to_owned()]).unwrap();
            for (path, text) in [(&certificate, made.cert.pem()), (&key, made.signing_key.serialize_pem())] {
                fs::write(path, text).unwrap();
                let then = SystemTime::UNIX_EPOCH + Duration::from_secs(age);
                fs::File::options().write(true).open(path).unwrap().set_modified(then).unwrap();
            }
            made.cert.der().clone()
        };
        let first = write(1);
        let held = Mutex::new(LoadedCertificate::read(&certificate, &key).unwrap());
        let files = CertificateFiles { certificate: certificate.clone(), key: key.clone(), held };
        let look = || {
            let mut held = files.held.lock().unwrap();
            files.reload_if_changed(&mut held);
            held.certified.cert[0].clone()
        };
        assert_eq!(look(), first);
        let second = write(2);
        assert_eq!(look(), second);
        fs::write(&key, "no key").unwrap();
        assert_eq!(look(), second);
        assert!(matches!(LoadedCertificate::read(&certificate, &key), Err(CertificateError::Key(_))));
    }
}
