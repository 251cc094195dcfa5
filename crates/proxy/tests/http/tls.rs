//! TLS with clients.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject},
};
use seaway_model::{
    Kind, L4, ListenerId, ObjectRef,
    load_balancer::{Certificate, ClientAuth, HostPattern, Protocol, TlsByName, TlsProfile},
};

use crate::{scene::*, stage::*};

/// An authority of its own for each test.
pub(crate) struct Authority(rcgen::CertifiedIssuer<'static, rcgen::KeyPair>);

impl Authority {
    pub(crate) fn new() -> Authority {
        let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        Authority(
            rcgen::CertifiedIssuer::self_signed(parameters, rcgen::KeyPair::generate().unwrap()).unwrap(),
        )
    }

    pub(crate) fn certificate(&self, name: &str) -> Certificate {
        self.with_key(name, &rcgen::KeyPair::generate().unwrap())
    }

    pub(crate) fn certificates(&self, names: &[&str]) -> Certificate {
        self.of_names(names, &rcgen::KeyPair::generate().unwrap())
    }

    fn with_key(&self, name: &str, key: &rcgen::KeyPair) -> Certificate {
        self.of_names(&[name], key)
    }

    fn of_names(&self, names: &[&str], key: &rcgen::KeyPair) -> Certificate {
        let names: Vec<String> = names.iter().map(|it| (*it).to_owned()).collect();
        let parameters = rcgen::CertificateParams::new(names).unwrap();
        let certificate = parameters.signed_by(key, &self.0).unwrap();
        Certificate {
            chain: certificate.pem().into(),
            key: key.serialize_pem().into(),
            authorities: "".into(),
            staple: None,
            users: String::new().into(),
        }
    }

    pub(crate) fn as_authorities(&self) -> Certificate {
        Certificate {
            chain: "".into(),
            key: String::new().into(),
            authorities: self.0.pem().into(),
            staple: None,
            users: String::new().into(),
        }
    }

    pub(crate) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        roots
    }
}

pub(crate) fn object(name: &str) -> ObjectRef {
    ObjectRef::new(Kind::Secret, "default", name)
}

pub(crate) fn give(stage: &Stage, name: &str, certificate: &Certificate) {
    stage.proxy.put_certificate(&stage.key, &object(name), &Arc::new(certificate.clone())).unwrap();
}

pub(crate) type Secured = StreamOwned<ClientConnection, TcpStream>;

pub(crate) fn config(authority: &Authority) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    builder.with_root_certificates(authority.roots()).with_no_client_auth()
}

pub(crate) fn secure(at: SocketAddr, name: &'static str, config: ClientConfig) -> io::Result<Secured> {
    let connection = ClientConnection::new(Arc::new(config), ServerName::try_from(name).unwrap()).unwrap();
    let mut stream = StreamOwned::new(connection, connect(at));
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

pub(crate) fn get(stream: &mut Secured) -> io::Result<String> {
    stream.write_all(b"GET /x HTTP/1.1\r\nHost: a.example\r\nClient-Cert: :forged:\r\n\r\n")?;
    let mut answer = Vec::new();
    let mut byte = [0];
    while !answer.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        answer.push(byte[0]);
    }
    let answer = String::from_utf8(answer).unwrap();
    let length = answer.lines().find_map(|line| line.strip_prefix("Content-Length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    stream.read_exact(&mut body)?;
    Ok(answer + &String::from_utf8(body).unwrap())
}

fn front_tls(members: &[SocketAddr], tls: &TlsByName) -> (Stage, SocketAddr) {
    front_with(members, |listener| listener.tls = Some(Arc::new(tls.clone())))
}

fn shown(stream: &Secured) -> CertificateDer<'static> {
    stream.conn.peer_certificates().unwrap()[0].clone()
}

fn first(certificate: &Certificate) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(certificate.chain.as_bytes()).unwrap()
}

#[test]
fn certificates_are_chosen_by_name_and_swapped_at_once() {
    let authority = Authority::new();
    let member = Member::saying("hello");
    let (a, wild, default) = (
        authority.certificate("a.example"),
        authority.certificate("*.shop.example"),
        authority.certificate("d.test"),
    );
    let tls = TlsByName {
        default: vec![object("d")],
        by_name: [
            (HostPattern::Exact("a.example".into()), [object("a")].into()),
            (HostPattern::Under("shop.example".into()), [object("w")].into()),
        ]
        .into(),
        hsts: Some(300),
        ..TlsByName::default()
    };
    let (stage, at) = front_tls(&[member.at()], &tls);
    assert!(secure(at, "a.example", config(&authority)).is_err(), "there is none yet");
    for (name, certificate) in [("a", &a), ("w", &wild), ("d", &default)] {
        give(&stage, name, certificate);
    }
    for (name, expected) in [("a.example", &a), ("b.shop.example", &wild), ("d.test", &default)] {
        let mut stream = secure(at, name, config(&authority)).unwrap();
        assert!(shown(&stream) == first(expected), "{name}");
        for _ in 0..3 {
            let answer = get(&mut stream).unwrap();
            assert!(
                answer.ends_with("hello") && answer.contains("Strict-Transport-Security: max-age=300"),
                "{answer}"
            );
        }
    }
    let heard = &member.heard()[0];
    assert_eq!((heard.field("x-forwarded-proto"), heard.field("client-cert")), (Some("https"), None));
    let mut old = secure(at, "a.example", config(&authority)).unwrap();
    let renewed = authority.certificate("a.example");
    give(&stage, "a", &renewed);
    assert!(shown(&secure(at, "a.example", config(&authority)).unwrap()) == first(&renewed));
    assert!(get(&mut old).is_ok(), "who is connected stays so");
}

#[test]
fn a_client_gets_the_kind_of_key_that_it_knows() {
    let authority = Authority::new();
    let member = Member::saying("x");
    let ed = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
    let (ed, ec) = (authority.with_key("a.example", &ed), authority.certificate("a.example"));
    let tls = TlsByName { default: vec![object("ed"), object("ec")], ..TlsByName::default() };
    let (stage, at) = front_tls(&[member.at()], &tls);
    give(&stage, "ed", &ed);
    give(&stage, "ec", &ec);
    assert!(shown(&secure(at, "a.example", config(&authority)).unwrap()) == first(&ed));
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    let mapping = provider.signature_verification_algorithms.mapping;
    let without: Vec<_> =
        mapping.iter().filter(|(scheme, _)| *scheme != rustls::SignatureScheme::ED25519).copied().collect();
    provider.signature_verification_algorithms.mapping = Box::leak(without.into_boxed_slice());
    let builder = ClientConfig::builder_with_provider(Arc::new(provider))
        .with_safe_default_protocol_versions()
        .unwrap();
    let plain = builder.with_root_certificates(authority.roots()).with_no_client_auth();
    assert!(shown(&secure(at, "a.example", plain).unwrap()) == first(&ec));
}

#[test]
fn a_profile_says_which_versions_are_spoken() {
    let authority = Authority::new();
    let member = Member::saying("x");
    for (profile, old_is_served) in [(TlsProfile::Modern, false), (TlsProfile::Intermediate, true)] {
        let tls = TlsByName { default: vec![object("a")], profile, ..TlsByName::default() };
        let (stage, at) = front_tls(&[member.at()], &tls);
        give(&stage, "a", &authority.certificate("a.example"));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let old = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS12])
            .unwrap();
        let old = old.with_root_certificates(authority.roots()).with_no_client_auth();
        assert_eq!(secure(at, "a.example", old).is_ok(), old_is_served);
        assert!(secure(at, "a.example", config(&authority)).is_ok());
    }
}

#[test]
fn clients_may_have_to_show_a_certificate_which_members_are_told() {
    let (authority, others) = (Authority::new(), Authority::new());
    let member = Member::saying("x");
    for required in [true, false] {
        let clients = Some(ClientAuth { authorities: object("ca"), required });
        let tls = TlsByName { default: vec![object("a")], clients, ..TlsByName::default() };
        let (stage, at) = front_tls(&[member.at()], &tls);
        give(&stage, "a", &authority.certificate("a.example"));
        assert!(
            secure(at, "a.example", config(&authority)).is_err(),
            "nobody is served before there are authorities"
        );
        let lacks_tls =
            || stage.proxy.lacks_tls(&stage.key, at.ip(), ListenerId { l4: L4::Tcp, port: at.port() });
        assert!(lacks_tls());
        give(&stage, "ca", &authority.as_authorities());
        assert!(!lacks_tls());
        let with = |issuer: &Authority| {
            let own = issuer.certificate("client");
            let key = {
                use secrecy::ExposeSecret;
                PrivateKeyDer::from_pem_slice(own.key.expose_secret().as_bytes()).unwrap()
            };
            let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
            let builder =
                ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
            builder
                .with_root_certificates(authority.roots())
                .with_client_auth_cert(vec![first(&own)], key)
                .unwrap()
        };
        let asked = |config| secure(at, "a.example", config).and_then(|mut stream| get(&mut stream));
        assert!(asked(with(&authority)).is_ok());
        let told = member.heard().last().unwrap().field("client-cert").unwrap().to_owned();
        assert!(told.starts_with(":MII") && told.ends_with(':'), "{told}");
        assert!(asked(with(&others)).is_err());
        assert_eq!(asked(config(&authority)).is_ok(), !required);
    }
}

/// What a trust anchor may be is decided by webpki, which asks for no basic constraints of one.
#[test]
fn a_certificate_that_is_no_authority_s_verifies_only_what_it_signed() {
    let authority = Authority::new();
    let leaf = authority.certificate("client");
    let made = rcgen::generate_simple_self_signed(["client".to_owned()]).unwrap();
    let own = Certificate {
        chain: made.cert.pem().into(),
        key: made.signing_key.serialize_pem().into(),
        ..leaf.clone()
    };
    let member = Member::saying("x");
    for (shown, is_verified) in [(leaf, false), (own, true)] {
        let clients = Some(ClientAuth { authorities: object("ca"), required: true });
        let tls = TlsByName { default: vec![object("a")], clients, ..TlsByName::default() };
        let (stage, at) = front_tls(&[member.at()], &tls);
        give(&stage, "a", &authority.certificate("a.example"));
        let vouching = Certificate {
            authorities: shown.chain.clone(),
            chain: "".into(),
            key: String::new().into(),
            ..shown.clone()
        };
        give(&stage, "ca", &vouching);
        let key = {
            use secrecy::ExposeSecret;
            PrivateKeyDer::from_pem_slice(shown.key.expose_secret().as_bytes()).unwrap()
        };
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(authority.roots());
        let config = builder.with_client_auth_cert(vec![first(&shown)], key).unwrap();
        let asked = secure(at, "a.example", config).and_then(|mut stream| get(&mut stream));
        assert_eq!(asked.is_ok(), is_verified);
    }
}

#[test]
fn a_hello_may_come_in_many_pieces_and_late_ones_are_given_up() {
    let authority = Authority::new();
    let member = Member::saying("x");
    let tls = TlsByName { default: vec![object("a")], ..TlsByName::default() };
    let (stage, at) = front_with(&[member.at()], |listener| {
        listener.tls = Some(Arc::new(tls.clone()));
        listener.timeouts.header = std::time::Duration::from_secs(3);
    });
    give(&stage, "a", &authority.certificate("a.example"));
    let mut connection =
        ClientConnection::new(Arc::new(config(&authority)), ServerName::try_from("a.example").unwrap())
            .unwrap();
    let mut hello = Vec::new();
    connection.write_tls(&mut hello).unwrap();
    let mut stream = connect(at);
    for piece in hello.chunks(hello.len() / 7) {
        stream.set_nodelay(true).unwrap();
        stream.write_all(piece).unwrap();
    }
    let mut stream = StreamOwned::new(connection, stream);
    assert!(get(&mut stream).is_ok());
    let mut half = connect(at);
    half.write_all(&hello[..hello.len() / 2]).unwrap();
    assert_eq!(half.read(&mut [0; 9]).unwrap_or(0), 0);
    let mut plain = Client::new(at);
    plain.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(plain.rest().is_none_or(|rest| !rest.starts_with(b"HTTP")));
    eventually("they are counted", || stage.listener(at).refused(seaway_proxy::RefusalReason::Tls) == 2);
}

#[test]
fn tls_ends_here_before_a_member_that_speaks_something_else() {
    let authority = Authority::new();
    let backend = Backend::echo(HERE);
    let tls = TlsByName { default: vec![object("a")], ..TlsByName::default() };
    let (stage, at) = front_with(&[backend.at], |listener| {
        listener.tls = Some(Arc::new(tls.clone()));
        listener.protocol = Protocol::Opaque;
    });
    give(&stage, "a", &authority.certificate("a.example"));
    let mut stream = secure(at, "a.example", config(&authority)).unwrap();
    let sent = noise(1 << 20, 3);
    let (mut back, mut written) = (Vec::new(), 0);
    let mut buffer = vec![0; 1 << 14];
    while back.len() < sent.len() {
        if written < sent.len() {
            let end = sent.len().min(written + (1 << 14));
            stream.write_all(&sent[written..end]).unwrap();
            written = end;
        }
        let read = stream.read(&mut buffer).unwrap();
        back.extend_from_slice(&buffer[..read]);
    }
    assert!(back == sent, "other bytes came back");
}

#[test]
fn what_is_no_certificate_is_named() {
    let authority = Authority::new();
    let (one, other) = (authority.certificate("a"), authority.certificate("b"));
    let stage = Stage::new();
    give(&stage, "a", &one);
    let with = |chain: &str, key: &Certificate| Certificate { chain: chain.into(), ..key.clone() };
    for (certificate, expected) in [
        (with("nonsense", &one), "there is no certificate in it"),
        (with(&other.chain, &one), "the key does not belong to the certificate"),
        (Certificate { key: "nonsense".to_owned().into(), ..one.clone() }, "the key is not valid PEM"),
    ] {
        let told = stage
            .proxy
            .put_certificate(&stage.key, &object("a"), &Arc::new(certificate))
            .unwrap_err()
            .to_string();
        assert!(told.starts_with(expected), "{told}");
    }
    let running = stage.proxy.running(&stage.key).unwrap();
    assert_eq!(*running.certificates, [(object("a"), Arc::new(one))].into(), "the good one stays");
    stage.proxy.remove_certificate(&stage.key, &object("a"));
    assert_eq!(stage.proxy.running(&stage.key), None);
}

/// How the handshake went, once a ticket may have come.
fn shaken(at: SocketAddr, config: &Arc<ClientConfig>) -> io::Result<rustls::HandshakeKind> {
    let name = ServerName::try_from("a.example").unwrap();
    let mut stream = StreamOwned::new(ClientConnection::new(config.clone(), name).unwrap(), connect(at));
    get(&mut stream)?;
    Ok(stream.conn.handshake_kind().unwrap())
}

#[test]
fn sessions_are_resumed_whichever_worker_a_client_comes_to() {
    let authority = Authority::new();
    let member = Member::saying("x");
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let tls = TlsByName { default: vec![object("a")], ..TlsByName::default() };
        let (stage, at) = front_tls(&[member.at()], &tls);
        give(&stage, "a", &authority.certificate("a.example"));
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder =
            ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
        let config = Arc::new(builder.with_root_certificates(authority.roots()).with_no_client_auth());
        assert_eq!(shaken(at, &config).unwrap(), rustls::HandshakeKind::Full);
        // Each comes to one of two workers, as the kernel likes.
        for _ in 0..40 {
            assert_eq!(shaken(at, &config).unwrap(), rustls::HandshakeKind::Resumed, "{version:?}");
        }
    }
}

#[test]
fn a_ticket_is_no_way_around_a_certificate_of_the_client() {
    let authority = Authority::new();
    let member = Member::saying("x");
    let stage = Stage::new();
    stage.put(pool(&[member.at()]));
    let open = TlsByName { default: vec![object("a")], ..TlsByName::default() };
    let clients = Some(ClientAuth { authorities: object("ca"), required: true });
    let strict = TlsByName { clients, ..open.clone() };
    let [open, strict] = [open, strict].map(|tls| {
        let opened = stage.open(HERE, |listener| {
            listener.protocol = Protocol::Http;
            listener.tls = Some(Arc::new(tls.clone()));
        });
        opened.0
    });
    give(&stage, "a", &authority.certificate("a.example"));
    give(&stage, "ca", &authority.as_authorities());
    let config = Arc::new(config(&authority));
    assert_eq!(shaken(open, &config).unwrap(), rustls::HandshakeKind::Full);
    assert_eq!(shaken(open, &config).unwrap(), rustls::HandshakeKind::Resumed);
    assert!(shaken(strict, &config).is_err(), "with a ticket of the other");
}

/// Believes everybody, and keeps what was stapled.
#[derive(Debug)]
struct Stapled(Arc<rustls::crypto::CryptoProvider>, std::sync::Mutex<Vec<u8>>);

impl rustls::client::danger::ServerCertVerifier for Stapled {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        staple: &[u8],
        _: rustls::pki_types::UnixTime,
    ) -> Result<rustls::client::danger::ServerCertVerified, rustls::Error> {
        *self.1.lock().unwrap() = staple.to_vec();
        Ok(rustls::client::danger::ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &rustls::DigitallySignedStruct,
    ) -> Result<rustls::client::danger::HandshakeSignatureValid, rustls::Error> {
        Ok(rustls::client::danger::HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[test]
fn an_ocsp_answer_is_stapled_and_swapped_with_its_certificate() {
    let authority = Authority::new();
    let member = Member::saying("x");
    let tls = TlsByName { default: vec![object("a")], ..TlsByName::default() };
    let (stage, at) = front_tls(&[member.at()], &tls);
    let certificate = authority.certificate("a.example");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    for staple in [None, Some(&b"first"[..]), Some(b"second")] {
        give(&stage, "a", &Certificate { staple: staple.map(Into::into), ..certificate.clone() });
        let kept = Arc::new(Stapled(provider.clone(), std::sync::Mutex::default()));
        let builder = ClientConfig::builder_with_provider(provider.clone());
        let builder = builder.with_safe_default_protocol_versions().unwrap().dangerous();
        let config = builder.with_custom_certificate_verifier(kept.clone()).with_no_client_auth();
        secure(at, "a.example", config).unwrap();
        assert_eq!(*kept.1.lock().unwrap(), staple.unwrap_or_default());
    }
}
