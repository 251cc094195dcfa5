//! Handshakes by host name, and requests on the same connection that name another host.

use std::{
    io::{self, Read, Write},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

use rustls::{
    ClientConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    version::{TLS12, TLS13},
};
use seaway_model::{
    Pool,
    load_balancer::{ClientAuth, HostPattern, HostTls, Limits, Match, Rule, RuleTls, TlsByName, TlsProfile},
};
use seaway_proxy::RefusalReason;
use secrecy::ExposeSecret;

use crate::{peer::Peer, scene::*, stage::*, tls::*};

fn exact(name: &str) -> HostPattern {
    HostPattern::Exact(name.into())
}

fn auth(name: &str, required: bool) -> Option<ClientAuth> {
    Some(ClientAuth { authorities: object(name), required })
}

fn rule(host: Option<HostPattern>, tls: RuleTls) -> Arc<Rule> {
    let tls = (tls != RuleTls::default()).then(|| Arc::new(tls));
    Arc::new(Rule { hosts: host.into_iter().collect(), matches: vec![Match::default()], tls, ..everything() })
}

fn asking(name: &str, required: bool) -> RuleTls {
    RuleTls { clients: auth(name, required), ..RuleTls::default() }
}

fn of_host(clients: Option<ClientAuth>) -> HostTls {
    HostTls { clients, profile: TlsProfile::Intermediate }
}

/// With a certificate of that issuer, if it is there.
fn with(
    trusted: &Authority,
    issuer: Option<&Authority>,
    versions: &[&'static rustls::SupportedProtocolVersion],
) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(versions).unwrap();
    let builder = builder.with_root_certificates(trusted.roots());
    let Some(issuer) = issuer else { return builder.with_no_client_auth() };
    let own = issuer.certificate("client");
    let key = PrivateKeyDer::from_pem_slice(own.key.expose_secret().as_bytes()).unwrap();
    let chain = vec![CertificateDer::from_pem_slice(own.chain.as_bytes()).unwrap()];
    builder.with_client_auth_cert(chain, key).unwrap()
}

/// The status, once the whole answer has come.
fn ask(stream: &mut Secured, host: &str) -> io::Result<u16> {
    write!(
        stream,
        "GET /x HTTP/1.1\r\nHost: {host}\r\nClient-Cert: :forged:\r\nclient-cert-chain: :forged:\r\nconnection: close\r\n\r\n"
    )?;
    let mut text = Vec::new();
    stream.read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text).into_owned();
    Ok(text.split(' ').nth(1).and_then(|it| it.parse().ok()).unwrap_or(0))
}

const BOTH: &[&rustls::SupportedProtocolVersion] = &[&TLS13, &TLS12];

/// `a.example` is for clients of one authority, `b.example` for those of another, `open.example` for all; what is below
/// `wild.example` for those of the first, and of `any.example` those with a certificate are told apart.
struct Doors {
    own: Authority,
    first: Authority,
    second: Authority,
    member: Member,
    stage: Stage,
    at: SocketAddr,
}

impl Doors {
    fn open() -> Doors {
        let (own, first, second) = (Authority::new(), Authority::new(), Authority::new());
        let member = Member::saying("x");
        let tls = TlsByName {
            default: vec![object("own")],
            hosts: [
                (exact("a.example"), of_host(auth("first", true))),
                (exact("b.example"), of_host(auth("second", true))),
                (exact("any.example"), of_host(auth("second", false))),
                (HostPattern::Under("wild.example".into()), of_host(auth("first", true))),
                (exact("missing.example"), of_host(auth("missing", true))),
            ]
            .into(),
            ..TlsByName::default()
        };
        let (stage, at) = front_with(&[member.at()], |listener| {
            listener.tls = Some(Arc::new(tls.clone()));
            listener.rules = vec![
                rule(Some(exact("a.example")), asking("first", true)),
                rule(Some(exact("b.example")), asking("second", true)),
                rule(Some(exact("any.example")), asking("second", false)),
                rule(Some(HostPattern::Under("wild.example".into())), asking("first", true)),
                rule(Some(exact("missing.example")), asking("missing", true)),
                rule(None, RuleTls::default()),
            ];
        });
        let names =
            ["a.example", "b.example", "any.example", "open.example", "x.wild.example", "missing.example"];
        give(&stage, "own", &own.certificates(&names));
        give(&stage, "first", &first.as_authorities());
        give(&stage, "second", &second.as_authorities());
        Doors { own, first, second, member, stage, at }
    }

    /// A client with such a certificate shakes hands with one host, and asks for another. 0: no handshake, or no answer.
    fn ask(&self, (sni, host): (&'static str, &str), issuer: Option<&Authority>) -> u16 {
        let stream = secure(self.at, sni, with(&self.own, issuer, BOTH));
        stream.and_then(|mut stream| ask(&mut stream, host)).unwrap_or(0)
    }

    /// What the member was told of the client's certificate last.
    fn told(&self) -> Option<String> {
        self.member.heard().last().and_then(|it| it.field("client-cert").map(str::to_owned))
    }
}

#[test]
fn a_request_is_served_only_on_a_connection_that_its_own_host_has_verified() {
    let doors = Doors::open();
    let (none, first, second) = (None, Some(&doors.first), Some(&doors.second));
    for (sni, host, issuer, status, is_told) in [
        ("a.example", "a.example", first, 200, true),
        ("a.example", "A.Example:443", first, 200, true),
        ("a.example", "a.example", none, 0, false),
        ("a.example", "a.example", second, 0, false),
        ("b.example", "b.example", second, 200, true),
        ("x.wild.example", "x.wild.example", first, 200, true),
        ("x.wild.example", "x.wild.example", none, 0, false),
        ("open.example", "open.example", none, 200, false),
        // The handshake is another host's.
        ("open.example", "a.example", none, 421, false),
        ("open.example", "a.example", first, 421, false),
        ("open.example", "a.example.", first, 421, false),
        ("open.example", "y.x.wild.example", first, 421, false),
        ("b.example", "a.example", second, 421, false),
        ("a.example", "b.example", first, 421, false),
        ("any.example", "a.example", second, 421, false),
        // The very same authorities have verified it.
        ("a.example", "y.wild.example", first, 200, true),
        ("any.example", "b.example", second, 200, true),
        // It was asked by the right ones, and has shown none.
        ("any.example", "b.example", none, 403, false),
        ("any.example", "any.example", none, 200, false),
        ("any.example", "any.example", second, 200, true),
        ("any.example", "any.example", first, 0, false),
        // Members hear of no certificate that others have verified.
        ("a.example", "any.example", first, 200, false),
        ("a.example", "open.example", first, 200, false),
        // Without authorities no handshake succeeds, and no request.
        ("missing.example", "missing.example", first, 0, false),
        ("open.example", "missing.example", first, 421, false),
    ] {
        let before = doors.member.heard().len();
        let named = issuer.map(|it| std::ptr::eq(it, &doors.first));
        let case = format!("{sni} {host} {named:?}");
        assert_eq!(doors.ask((sni, host), issuer), status, "{case}");
        assert_eq!(doors.member.heard().len() - before, usize::from(status == 200), "{case}");
        if status == 200 {
            let last = doors.member.heard().pop().unwrap();
            assert_eq!(last.field("client-cert-chain"), None, "{case}");
            let told = doors.told();
            assert_eq!(told.is_some(), is_told, "{case}: {told:?}");
            assert!(told.is_none_or(|it| it.starts_with(":MII")), "{case}");
        }
    }
}

#[test]
fn one_connection_is_judged_request_by_request() {
    let doors = Doors::open();
    let mut stream = secure(doors.at, "open.example", with(&doors.own, Some(&doors.first), BOTH)).unwrap();
    for (host, status) in [("open.example", "200"), ("a.example", "421")] {
        write!(stream, "GET / HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).unwrap();
        assert_eq!(head.split(' ').nth(1), Some(status), "{head}");
        if status == "200" {
            stream.read_exact(&mut [0]).unwrap();
        }
    }
    assert_eq!(doors.stage.listener(doors.at).refused(RefusalReason::Tls), 1);
}

#[test]
fn a_session_of_one_host_is_not_resumed_by_another() {
    let doors = Doors::open();
    // One store of tickets, as a client has it that takes the ticket of one name to another.
    let config = Arc::new(with(&doors.own, Some(&doors.first), BOTH));
    for (sni, host, status) in [
        ("open.example", "open.example", 200),
        ("open.example", "a.example", 421),
        ("a.example", "a.example", 200),
        ("a.example", "b.example", 421),
    ] {
        for _ in 0..2 {
            let stream = secure(doors.at, sni, (*config).clone());
            assert_eq!(stream.and_then(|mut it| ask(&mut it, host)).unwrap_or(0), status, "{sni} {host}");
        }
    }
}

#[test]
fn authorities_may_come_change_and_go_while_clients_come() {
    let doors = Doors::open();
    let case = ("missing.example", "missing.example");
    assert_eq!(doors.ask(case, Some(&doors.first)), 0);
    give(&doors.stage, "missing", &doors.first.as_authorities());
    assert_eq!(doors.ask(case, Some(&doors.first)), 200);
    // One that comes back by a ticket.
    let kept = with(&doors.own, Some(&doors.first), BOTH);
    let again =
        || secure(doors.at, case.0, kept.clone()).and_then(|mut it| ask(&mut it, case.1)).unwrap_or(0);
    assert_eq!([again(), again()], [200, 200]);
    give(&doors.stage, "missing", &doors.second.as_authorities());
    assert_eq!(again(), 0, "a ticket of before is worth nothing");
    assert_eq!((doors.ask(case, Some(&doors.first)), doors.ask(case, Some(&doors.second))), (0, 200));
    assert_eq!(doors.ask(("a.example", "a.example"), Some(&doors.first)), 200, "others stay as they were");
}

/// The status of the answer, whose connection stays open.
fn ask_on(stream: &mut Secured, host: &str) -> io::Result<u16> {
    write!(stream, "GET / HTTP/1.1\r\nHost: {host}\r\n\r\n")?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|it| it.split("\r\n").next()?.parse().ok());
    stream.read_exact(&mut vec![0; length.unwrap_or(0)])?;
    Ok(head.split(' ').nth(1).and_then(|it| it.parse().ok()).unwrap_or(0))
}

/// It was verified once, and would otherwise go on for as long as the client keeps it.
#[test]
fn a_connection_outlives_no_authority_that_verified_it() {
    let doors = Doors::open();
    let opened = |sni: &'static str, issuer: &Authority| {
        secure(doors.at, sni, with(&doors.own, Some(issuer), BOTH)).unwrap()
    };
    let mut of_a = opened("a.example", &doors.first);
    let mut optional = opened("any.example", &doors.second);
    let mut of_b = opened("b.example", &doors.second);
    for (stream, host) in [(&mut of_a, "a.example"), (&mut optional, "any.example"), (&mut of_b, "b.example")]
    {
        assert_eq!(ask_on(stream, host).unwrap(), 200, "{host}");
    }
    // The same authorities in another Secret are no others.
    give(&doors.stage, "second", &doors.second.as_authorities());
    assert_eq!(ask_on(&mut of_b, "b.example").unwrap(), 200);
    assert!(doors.told().is_some());
    let other = Authority::new();
    for name in ["first", "second"] {
        give(&doors.stage, name, &other.as_authorities());
    }
    let before = doors.member.heard().len();
    assert_eq!(ask_on(&mut of_a, "a.example").unwrap(), 421);
    assert_eq!(ask_on(&mut of_b, "b.example").unwrap(), 421);
    assert_eq!(doors.member.heard().len(), before);
    // Where a certificate is optional, it is one that shows none.
    assert_eq!(ask_on(&mut optional, "any.example").unwrap(), 200);
    assert_eq!(doors.told(), None);
    assert_eq!(doors.ask(("a.example", "a.example"), Some(&other)), 200, "those who come now are served");
}

/// Over HTTP/2 nothing else would end it as long as the client asks, and each answer would be 421.
#[test]
fn a_connection_of_http_2_is_told_to_leave_once_its_authority_is_replaced() {
    let doors = Doors::open();
    for (host, name, issuer) in
        [("a.example", "first", &doors.first), ("any.example", "second", &doors.second)]
    {
        let mut peer = Peer::secured(doors.at, host, with(&doors.own, Some(issuer), BOTH));
        let request = || http::Request::get(format!("https://{host}/")).body(()).unwrap();
        let mut ask = || peer.ask(request(), None).ok().map(|(head, ..)| head.status().as_u16());
        assert_eq!(ask(), Some(200), "{host}");
        give(&doors.stage, name, &issuer.as_authorities());
        assert_eq!(ask(), Some(200), "{host}: the same authority again");
        give(&doors.stage, name, &Authority::new().as_authorities());
        let before = doors.member.heard().len();
        // Where a certificate is optional, it is served as one that shows none.
        match ask() {
            Some(200) if host == "any.example" => assert_eq!(doors.told(), None),
            _ => assert_eq!(doors.member.heard().len(), before, "{host}"),
        }
        eventually("the connection ends", || peer.connection.is_finished());
    }
}

/// Where certificates are optional, a ticket says who came first, with a certificate or without; it never says more.
#[test]
fn a_session_that_is_resumed_is_verified_as_it_was_and_by_those_who_vouch_now() {
    let doors = Doors::open();
    let (none, shown) = (with(&doors.own, None, BOTH), with(&doors.own, Some(&doors.second), BOTH));
    let ask = |config: &ClientConfig, host: &str| {
        secure(doors.at, "any.example", config.clone()).and_then(|mut it| ask(&mut it, host)).unwrap_or(0)
    };
    for _ in 0..3 {
        // `b.example` requires a certificate of the same authorities.
        assert_eq!(["any.example", "b.example"].map(|host| ask(&none, host)), [200, 403]);
        assert_eq!(doors.told(), None);
        assert_eq!(["any.example", "b.example"].map(|host| ask(&shown, host)), [200, 200]);
        assert!(doors.told().is_some());
    }
    give(&doors.stage, "second", &Authority::new().as_authorities());
    assert_eq!(
        ["any.example", "b.example"].map(|host| ask(&shown, host)),
        [0, 0],
        "its ticket is worth nothing"
    );
    assert_eq!(["any.example", "b.example"].map(|host| ask(&none, host)), [200, 403]);
}

#[test]
fn in_the_open_no_request_is_served_that_needs_a_certificate() {
    let member = Member::saying("x");
    let (stage, at) = front_with(&[member.at()], |listener| {
        listener.rules = vec![
            rule(Some(exact("a.example")), asking("first", true)),
            rule(Some(exact("any.example")), asking("first", false)),
        ];
    });
    for (host, status) in [("a.example", 403), ("any.example", 200)] {
        let asked = format!(
            "GET / HTTP/1.1\r\nHost: {host}\r\nClient-Cert: :forged:\r\nclient-cert-chain: :forged:\r\n\r\n"
        );
        assert_eq!(Client::new(at).ask(asked).status(), status, "{host}");
    }
    assert_eq!(member.heard().iter().map(|it| it.field("client-cert")).collect::<Vec<_>>(), [None]);
    drop(stage);
}

#[test]
fn a_host_that_speaks_only_tls_1_3_is_not_served_by_an_older_version_either() {
    let own = Authority::new();
    let member = Member::saying("x");
    let modern = HostTls { clients: None, profile: TlsProfile::Modern };
    let tls = TlsByName {
        default: vec![object("own")],
        hosts: [(exact("new.example"), modern)].into(),
        ..TlsByName::default()
    };
    let (stage, at) = front_with(&[member.at()], |listener| {
        listener.tls = Some(Arc::new(tls.clone()));
        let asks = RuleTls { profile: Some(TlsProfile::Modern), hsts: Some(60), ..RuleTls::default() };
        listener.rules = vec![rule(Some(exact("new.example")), asks), rule(None, RuleTls::default())];
    });
    give(&stage, "own", &own.certificates(&["new.example", "old.example"]));
    for (sni, host, old, status) in [
        ("new.example", "new.example", false, 200),
        ("new.example", "new.example", true, 0),
        ("old.example", "old.example", true, 200),
        ("old.example", "new.example", true, 421),
        ("old.example", "new.example", false, 200),
    ] {
        let versions: &[_] = if old { &[&TLS12] } else { BOTH };
        let stream = secure(at, sni, with(&own, None, versions));
        let found = stream.and_then(|mut it| ask(&mut it, host)).unwrap_or(0);
        assert_eq!(found, status, "{sni} {host} {old}");
    }
}

#[test]
fn a_service_is_given_no_more_requests_at_a_time_or_in_a_second_than_it_may() {
    let (hold, held) = std::sync::mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let member = Member::new(move |_, message| {
        if message.first().contains("/slow") {
            let _ = held.lock().unwrap().recv_timeout(Duration::from_secs(20));
        }
        Some(ok("x"))
    });
    let (stage, at) = front(&[member.at()]);
    let limited = |limits| stage.put(Pool { limits, ..pool(&[member.at()]) });
    limited(Limits { connections: Some(1), new_per_second: None });
    let mut slow = Client::new(at);
    slow.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    eventually("it is under way", || member.heard().len() == 1);
    let mut other = Client::new(at);
    // The connection goes on.
    for _ in 0..3 {
        assert_eq!(other.get("/").status(), 503);
    }
    assert_eq!(stage.listener(at).refused(RefusalReason::Connections), 3);
    hold.send(()).unwrap();
    assert_eq!(slow.answer().status(), 200);
    eventually("it is free again", || other.get("/").status() == 200);
    // One that leaves amid its request counts no more. It is the one that was answered last: the end of its request counts for
    // its own next one at once, for that of another connection a moment later.
    other.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
    let asked = |path| member.heard().iter().filter(|it| it.first().contains(path)).count();
    eventually("it is under way", || asked("/slow") == 2);
    drop(other);
    eventually("it is free again", || slow.get("/").status() == 200);
    limited(Limits { connections: None, new_per_second: Some(1) });
    let answers: Vec<Message> = (0..5).map(|_| slow.get("/")).collect();
    let refused: Vec<&Message> = answers.iter().filter(|it| it.status() == 429).collect();
    assert!(refused.len() >= 3, "{answers:?}");
    assert!(refused.iter().all(|it| it.field("retry-after") == Some("1")), "{refused:?}");
    limited(Limits::default());
    assert_eq!(slow.get("/").status(), 200);
}
