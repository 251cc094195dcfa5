//! https: certificates from Secrets and from files, shown, renewed and missed.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::Arc,
    thread,
    time::Duration,
};

use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, ServerConfig, ServerConnection,
    SignatureScheme, StreamOwned,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};
use seaway_testkit::stopwatch::{Stopwatch, median};

use crate::{
    backends::Web,
    front_door::ask,
    harness::{PATIENCE, Setup, run, stdout, until},
    manifests::Service,
};

/// Where the doors of these tests are, each on an address of its own.
pub(crate) const OPEN: u16 = 8080;
pub(crate) const TLS: u16 = 8443;

/// A certificate that vouches for itself.
pub(crate) struct Pair {
    chain: String,
    pub(crate) key: String,
}

impl Pair {
    pub(crate) fn new(names: &[&str]) -> Pair {
        let names = names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        Pair { chain: made.cert.pem(), key: made.signing_key.serialize_pem() }
    }

    /// One that is valid from then on, since 1970.
    pub(crate) fn from_then_on(names: &[&str], since: Duration) -> Pair {
        let names = names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let mut asked = rcgen::CertificateParams::new(names).expect("names");
        asked.not_before = rcgen::date_time_ymd(1970, 1, 1) + since;
        let key = rcgen::KeyPair::generate().expect("a key");
        Pair { chain: asked.self_signed(&key).expect("signed").pem(), key: key.serialize_pem() }
    }

    /// Of somebody who has the key.
    pub(crate) fn of(chain: &str) -> Pair {
        Pair { chain: chain.to_owned(), key: String::new() }
    }

    pub(crate) fn chain(&self) -> &str {
        &self.chain
    }

    /// One that may vouch for clients, itself among them.
    pub(crate) fn authority() -> Pair {
        let mut asked = rcgen::CertificateParams::new(Vec::new()).expect("no names");
        asked.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let issuer = rcgen::CertifiedIssuer::self_signed(asked, rcgen::KeyPair::generate().expect("a key"));
        let issuer = issuer.expect("an authority");
        let key = rcgen::KeyPair::generate().expect("a key");
        let own = rcgen::CertificateParams::new(vec!["client".to_owned()]).expect("a name");
        let own = own.signed_by(&key, &issuer).expect("signed");
        Pair { chain: own.pem() + &issuer.pem(), key: key.serialize_pem() }
    }

    pub(crate) fn secret(&self, name: &str) -> String {
        secret(name, &self.chain, &self.key)
    }

    pub(crate) fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from_pem_slice(self.chain.as_bytes()).expect("PEM")
    }
}

fn secret(name: &str, chain: &str, key: &str) -> String {
    let indented = |text: &str| text.lines().map(|line| format!("    {line}\n")).collect::<String>();
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\ntype: kubernetes.io/tls\nstringData:\n  tls.crt: |\n{}  tls.key: |\n{}",
        indented(chain),
        indented(key)
    )
}

pub(crate) fn with_door(more: &str) -> Setup {
    let setup = Setup::new();
    let ip = setup.ip;
    setup.config(&format!(
        "frontDoor:\n  addresses: [\"{ip}\"]\n  port: {OPEN}\n  tls:\n    port: {TLS}\n{more}"
    ))
}

pub(crate) type Secured = StreamOwned<ClientConnection, TcpStream>;

/// Shakes hands as somebody who trusts only this certificate.
pub(crate) fn secure(at: SocketAddr, name: &str, trusted: &Pair) -> std::io::Result<Secured> {
    secure_by(at, name, trusted, None)
}

/// With a certificate of its own.
fn secure_by(at: SocketAddr, name: &str, trusted: &Pair, own: Option<&Pair>) -> std::io::Result<Secured> {
    let mut roots = RootCertStore::empty();
    roots.add(trusted.der()).expect("it can be trusted");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("versions").with_root_certificates(roots);
    let config = match own {
        None => config.with_no_client_auth(),
        Some(own) => {
            let chain =
                CertificateDer::pem_slice_iter(own.chain.as_bytes()).collect::<Result<_, _>>().expect("PEM");
            let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).expect("PEM");
            config.with_client_auth_cert(chain, key).expect("its own")
        }
    };
    shake_hands(at, name, config)
}

fn shake_hands(at: SocketAddr, name: &str, config: ClientConfig) -> std::io::Result<Secured> {
    let name = ServerName::try_from(name.to_owned()).expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("a client");
    let socket = TcpStream::connect_timeout(&at, PATIENCE)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    let mut stream = StreamOwned::new(connection, socket);
    while stream.conn.is_handshaking() {
        stream.conn.complete_io(&mut stream.sock)?;
    }
    Ok(stream)
}

/// Takes any certificate, of whatever date.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, shown, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, shown, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// The certificate that is shown to who takes any, and what `https://name/` answers.
pub(crate) fn ask_with_any_certificate(
    at: SocketAddr,
    name: &str,
) -> std::io::Result<(CertificateDer<'static>, String)> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    let config = config.expect("versions").dangerous();
    let config = config.with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)));
    let mut stream = shake_hands(at, name, config.with_no_client_auth())?;
    let shown = stream.conn.peer_certificates().expect("it is shown")[0].clone();
    write!(stream, "GET / HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok((shown, text))
}

/// What `https://name/path` answers to somebody who trusts only this certificate.
pub(crate) fn get(at: SocketAddr, name: &str, path: &str, trusted: &Pair) -> std::io::Result<String> {
    say(at, name, &format!("GET {path} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n"), trusted)
}

/// What is answered to that, by who then ends the connection.
pub(crate) fn say(at: SocketAddr, name: &str, request: &str, trusted: &Pair) -> std::io::Result<String> {
    let mut stream = secure(at, name, trusted)?;
    stream.write_all(request.as_bytes())?;
    let mut text = String::new();
    // To its end, which has to be told.
    stream.read_to_string(&mut text)?;
    Ok(text)
}

pub(crate) fn is_served(at: SocketAddr, name: &str, trusted: &Pair) -> bool {
    get(at, name, "/", trusted).is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

/// Whether any file below says this.
pub(crate) fn says(folder: &Path, what: &str) -> bool {
    let entries = std::fs::read_dir(folder).expect("a folder").map_while(Result::ok);
    entries.map(|it| it.path()).any(|path| match path.is_dir() {
        true => says(&path, what),
        // Sockets and the like say nothing.
        false => std::fs::read(&path).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).contains(what)),
    })
}

#[test]
fn a_folder_with_a_secret_is_served_by_https_and_its_certificate_is_swapped() {
    let web = Web::start("shop");
    let (first, second) = (Pair::new(&["shop.example"]), Pair::new(&["shop.example"]));
    let seaway = with_door("    hsts: 1h\n")
        .write("shop.yaml", &Service::web("shop").with("host", "shop.example").to(web.at).text())
        .start();
    let at = seaway.at(TLS);
    assert!(TcpStream::connect_timeout(&at, PATIENCE).is_err(), "nothing is there without a certificate");
    seaway.folder.write("tls.yaml", &first.secret("shop-tls"));
    until("it is served", || is_served(at, "shop.example", &first));
    let answer = get(at, "shop.example", "/", &first).expect("an answer");
    assert!(
        answer.contains("Strict-Transport-Security: max-age=3600") && answer.trim_end().ends_with("shop"),
        "{answer}"
    );
    assert!(web.last_request().contains("X-Forwarded-Proto: https"), "{}", web.last_request());
    let (_, metrics) = seaway.get("/metrics").expect("metrics");
    assert!(metrics.contains("seaway_certificates{state=\"valid\"} 1"), "{metrics}");
    assert!(metrics.contains("seaway_certificate_expiry_timestamp_seconds "), "{metrics}");
    let mut open = secure(at, "shop.example", &first).expect("shaken");
    seaway.folder.write("tls.yaml", &second.secret("shop-tls"));
    until("the new one is shown", || is_served(at, "shop.example", &second));
    write!(open, "GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: close\r\n\r\n").expect("sent");
    let mut text = String::new();
    let _ = open.read_to_string(&mut text);
    assert!(text.starts_with("HTTP/1.1 200"), "who was there stays: {text}");
    seaway.folder.write("tls.yaml", &secret("shop-tls", &first.chain, &second.key));
    until("a wrong key is told at its place", || {
        seaway.problems().iter().any(|(reason, message, place)| {
            reason == "BadCertificate"
                && message.contains("the key does not belong to the certificate")
                && place.contains("tls.yaml:")
        })
    });
    assert!(is_served(at, "shop.example", &second), "and the last good one goes on");
    assert!(!seaway.log().contains("PRIVATE KEY"));
    assert!(!says(&seaway.folder.state(), "PRIVATE KEY"), "no key is kept in the state folder");
    seaway.folder.remove("tls.yaml");
    until("the door is shut", || TcpStream::connect_timeout(&at, PATIENCE).is_err());
}

#[test]
fn files_of_an_edge_box_are_shown_and_renewed_as_certbot_renews_them() {
    let web = Web::start("shop");
    let folder = tempfile::tempdir().expect("a folder");
    let put = |number: usize, pair: &Pair| {
        let archive = folder.path().join(format!("archive{number}"));
        std::fs::create_dir_all(&archive).expect("a folder");
        std::fs::write(archive.join("fullchain.pem"), &pair.chain).expect("written");
        std::fs::write(archive.join("privkey.pem"), &pair.key).expect("written");
        for file in ["fullchain.pem", "privkey.pem"] {
            let aside = folder.path().join(format!("{file}.new"));
            std::os::unix::fs::symlink(Path::new(&format!("archive{number}")).join(file), &aside)
                .expect("a link");
            std::fs::rename(aside, folder.path().join(file)).expect("swapped");
        }
    };
    let pairs = [(); 3].map(|()| Pair::new(&["shop.example", "*.shop.example"]));
    put(0, &pairs[0]);
    let (chain, key) = (folder.path().join("fullchain.pem"), folder.path().join("privkey.pem"));
    let seaway = with_door(&format!(
        "    redirect: true\n  certificates:\n  - {{cert: {}, key: {}}}\n",
        chain.display(),
        key.display()
    ))
    .write("shop.yaml", &Service::web("shop").with("host", "shop.example,*.shop.example").to(web.at).text())
    .start();
    let at = seaway.at(TLS);
    for name in ["shop.example", "eu.shop.example"] {
        assert!(is_served(at, name, &pairs[0]), "{name}");
    }
    let sent_on = ask(seaway.at(OPEN), "GET", "shop.example/cart?x=1", "");
    let to = format!("https://shop.example:{TLS}/cart?x=1");
    assert_eq!((sent_on.status, sent_on.header("location")), (308, Some(to.as_str())));
    let mut took = Vec::new();
    for number in 1..8 {
        let pair = &pairs[number % 3];
        let watch = Stopwatch::of(seaway.child.id());
        put(number, pair);
        until("the new one is shown", || is_served(at, "shop.example", pair));
        took.push(watch.elapsed());
    }
    assert!(median(took.clone()).as_millis() <= 100, "{took:?}");
    std::fs::remove_file(&chain).expect("removed");
    until("a missing file is told", || seaway.has_problem("Unreadable"));
    assert!(is_served(at, "shop.example", &pairs[7 % 3]), "and its last content goes on");
}

#[test]
fn the_front_door_may_ask_clients_for_a_certificate_of_files_that_it_watches() {
    let web = Web::start("shop");
    let folder = tempfile::tempdir().expect("a folder");
    let authorities = folder.path().join("ca.pem");
    let (pair, client, stranger) = (Pair::new(&["shop.example"]), Pair::authority(), Pair::authority());
    std::fs::write(&authorities, &stranger.chain).expect("written");
    let seaway = with_door(&format!(
        "    profile: modern\n    clients: {{authorities: {}, required: false}}\n",
        authorities.display()
    ))
    .write("shop.yaml", &Service::web("shop").with("host", "shop.example").to(web.at).text())
    .write("tls.yaml", &pair.secret("shop-tls"))
    .start();
    let at = seaway.at(TLS);
    let shown = |by: Option<&Pair>| {
        let mut stream = secure_by(at, "shop.example", &pair, by)?;
        write!(
            stream,
            "GET / HTTP/1.1\r\nHost: shop.example\r\nClient-Cert: :forged:\r\nConnection: close\r\n\r\n"
        )?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        std::io::Result::Ok(text)
    };
    assert!(shown(Some(&client)).is_err(), "nobody vouches for it");
    std::fs::write(&authorities, &client.chain).expect("written");
    until("it is let in", || shown(Some(&client)).is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")));
    assert!(web.last_request().to_lowercase().contains("client-cert: :mii"), "{}", web.last_request());
    assert!(shown(None).is_ok_and(|answer| answer.starts_with("HTTP/1.1 200")));
    assert!(!web.last_request().to_lowercase().contains("client-cert"), "{}", web.last_request());
}

/// A member that ends TLS itself, and answers with its name.
fn ending_tls(name: &'static str, pair: &Pair) -> SocketAddr {
    let chain = vec![pair.der()];
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("PEM");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config =
        config.expect("versions").with_no_client_auth().with_single_cert(chain, key).expect("its own");
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("bound");
    thread::spawn(move || {
        for socket in listener.incoming().map_while(Result::ok) {
            let connection = ServerConnection::new(config.clone()).expect("a server");
            let mut stream = StreamOwned::new(connection, socket);
            // Checks come and go without a word.
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
                head.extend(byte);
            }
            if !head.is_empty() {
                let length = name.len();
                let _ = write!(
                    stream,
                    "HTTP/1.1 200 So\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{name}"
                );
                stream.conn.send_close_notify();
                let _ = stream.flush();
            }
        }
    });
    at
}

#[test]
fn tls_goes_on_untouched_by_name_beside_members_that_are_asked_by_tls() {
    let (own, raw, inner) =
        (Pair::new(&["shop.example"]), Pair::new(&["raw.example"]), Pair::new(&["shop.default.svc"]));
    let (behind, through) = (ending_tls("asked", &inner), ending_tls("untouched", &raw));
    let authorities = format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: inner}}\nstringData:\n  ca.crt: |\n{}",
        inner.chain.lines().map(|line| format!("    {line}\n")).collect::<String>()
    );
    let shop = Service::web("shop").with("host", "shop.example").with("backend-tls", "true");
    let passing =
        Service::tcp("raw", 443).cluster_ip().with("host", "raw.example").with("tls-passthrough", "true");
    let seaway = with_door("")
        .write("own.yaml", &own.secret("own"))
        .write("inner.yaml", &authorities)
        .write("shop.yaml", &shop.clone().to(behind).text())
        .write("raw.yaml", &passing.to(through).text())
        .start();
    let at = seaway.at(TLS);
    let answer = get(at, "raw.example", "/", &raw).expect("its own certificate is seen");
    assert!(answer.ends_with("untouched"), "{answer}");
    let answer = get(at, "shop.example", "/", &own).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 503"), "nobody vouches for the member: {answer}");
    seaway.folder.write("shop.yaml", &shop.with("backend-tls-authorities", "inner").to(behind).text());
    until("it is believed", || get(at, "shop.example", "/", &own).is_ok_and(|it| it.ends_with("asked")));
}

#[test]
fn a_configuration_that_is_read_again_shows_other_files() {
    let web = Web::start("shop");
    let folder = tempfile::tempdir().expect("a folder");
    let pairs = ["one", "two"].map(|name| {
        let pair = Pair::new(&["shop.example"]);
        // Both in one file, as HAProxy has them.
        std::fs::write(folder.path().join(name), format!("{}{}", pair.key, pair.chain)).expect("written");
        pair
    });
    let naming = |name: &str| format!("  certificates: [{{cert: {}}}]\n", folder.path().join(name).display());
    let seaway = with_door(&naming("one"))
        .write("shop.yaml", &Service::web("shop").with("host", "shop.example").to(web.at).text())
        .start();
    let at = seaway.at(TLS);
    assert!(is_served(at, "shop.example", &pairs[0]));
    let path = seaway.folder.0.path().join("seaway.yaml");
    let text = std::fs::read_to_string(&path).expect("it is there");
    std::fs::write(&path, text.replace(&naming("one"), &naming("two"))).expect("written");
    seaway.signal(nix::sys::signal::Signal::SIGHUP);
    until("the other is shown", || is_served(at, "shop.example", &pairs[1]));
    assert!(!seaway.log().contains("PRIVATE KEY"));
}

#[test]
fn a_load_balancer_of_its_own_ends_tls_before_http_and_before_anything_else() {
    let web = Web::start("shop");
    let pair = Pair::new(&["shop.example"]);
    let service = |name: &str, port| Service::tcp(name, port).with("tls", "own").to(web.at);
    let seaway = Setup::new()
        .write("own.yaml", &pair.secret("own"))
        .write("web.yaml", &service("web", 9443).text())
        .write("raw.yaml", &service("raw", 9444).with("protocol", "tcp").text())
        .start();
    for (port, told) in [(9443, true), (9444, false)] {
        let answer = get(seaway.at(port), "shop.example", "/", &pair).expect("an answer");
        assert!(answer.trim_end().ends_with("shop"), "{answer}");
        assert_eq!(
            web.last_request().contains("X-Forwarded-Proto: https"),
            told,
            "{port}: {}",
            web.last_request()
        );
    }
    let plain = ask(seaway.at(9443), "GET", "shop.example/", "");
    assert_eq!(plain.status, 0, "nothing is said in the open: {plain:?}");
}

#[test]
fn check_finds_what_is_wrong_with_certificates() {
    let (one, other) = (Pair::new(&["one.example"]), Pair::new(&["other.example"]));
    let setup = Setup::new()
        .write("mixed.yaml", &secret("mixed", &one.chain, &other.key))
        .write("none.yaml", &secret("none", "nonsense", &one.key))
        .write("good.yaml", &one.secret("good"))
        .write("a.yaml", &Service::web("a").with("tls", "nowhere").text())
        .write("b.yaml", &Service::web("b").with("tls", "good").with("host", "b.example").text());
    let output = run(&["check", setup.folder.manifests().to_str().expect("a path")]);
    let told = stdout(&output);
    for expected in [
        "mixed.yaml:6:3: Secret default/mixed: data[tls.crt]: the certificate cannot be used for TLS: the key does not belong to the certificate",
        "Secret default/none: data[tls.crt]: there is no PEM certificate",
        "there is no Secret default/nowhere with a certificate",
        "the certificate is not for b.example",
    ] {
        assert!(told.contains(expected), "{expected}: {told}");
    }
    assert!(!told.contains("PRIVATE KEY"), "{told}");
}
