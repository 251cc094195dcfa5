//! What can go wrong between us and a cloud: one clear line each that names the fix, within its time.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    time::{Duration, Instant},
};

use seaway_openstack::{
    Call, Class, Cloud, Credentials, Error, Retry, Service, Source,
    credentials::{ApplicationCredential, Place, Placed, Proof, Scope},
};
use serde_json::json;

use crate::{
    again,
    certificates::Authority,
    keystone::{PASSWORD, connect, credentials, grant, granted, quick, signs_in, unauthorized},
    scripted::{Act, Request, Scripted},
};

/// More than any of these situations may take: attempts, pauses and all.
const SOON: Duration = Duration::from_secs(4);

fn networks() -> Call {
    Call::get(Service::Network, "list networks", "/networks")
}

fn new_port() -> Call {
    Call::post(Service::Network, "make a port", "/ports", json!({"port": {}}))
}

#[track_caller]
fn check(start: Instant, error: &Error, class: &Class, line: &str) {
    let told = error.to_string();
    assert!(start.elapsed() < SOON, "{told} took {:?}", start.elapsed());
    assert_eq!(error.class(), class, "{told}");
    assert!(!told.contains('\n') && !told.contains(PASSWORD), "{told}");
    assert_eq!(told.split(" (req-").next(), Some(line));
}

/// Signing in to this server ends so; `{at}` stands for its address.
async fn sign_in_fails(class: Class, line: &str, act: impl Fn(&Request) -> Act + Send + Sync + 'static) {
    let server = Scripted::start(act);
    let start = Instant::now();
    let error = connect(&server, quick()).await.err().expect("not let in");
    check(start, &error, &class, &line.replace("{at}", &server.address().to_string()));
}

/// A call to this cloud ends so.
async fn call_fails(
    call: Call,
    class: Class,
    line: &str,
    act: impl Fn(&Request) -> Act + Send + Sync + 'static,
) {
    let server =
        Scripted::start(move |request| if signs_in(request) { granted(request) } else { act(request) });
    let cloud = connect(&server, quick()).await.expect("let in");
    let start = Instant::now();
    let error = cloud.call(call).await.expect_err("trouble");
    check(start, &error, &class, &line.replace("{at}", &server.address().to_string()));
}

#[tokio::test]
async fn signing_in_to_what_is_no_keystone_says_so() {
    let fix = "there is no Keystone: check auth_url (as given), which often ends in :5000/v3 or /identity/v3, and \
               whether a proxy stands in between";
    sign_in_fails(
        Class::NotOpenStack,
        &format!("sign in: http://{{at}}/v3/auth/tokens answered with a web page, \"Log in\" (200); {fix}"),
        |_| Act::Html(200, "<html><title>Log in</title>"),
    )
    .await;
    sign_in_fails(
        Class::NotOpenStack,
        &format!("sign in: http://{{at}}/v3/auth/tokens answered with a web page (404); {fix}"),
        |_| Act::Html(404, "<html>"),
    )
    .await;
    sign_in_fails(
        Class::NotOpenStack,
        &format!("sign in: http://{{at}}/v3/auth/tokens sends us on to https://elsewhere/ (302); {fix}"),
        |_| Act::JsonWith(302, ("location", "https://elsewhere/"), json!(null)),
    )
    .await;
    sign_in_fails(
        Class::NotOpenStack,
        &format!("sign in: http://{{at}}/v3/auth/tokens answered with something else (200); {fix}"),
        |_| Act::Json(200, json!({"hello": "world"})),
    )
    .await;
}

#[tokio::test]
async fn a_keystone_in_trouble_is_told_from_one_that_refuses() {
    sign_in_fails(
        Class::Busy,
        "sign in: a web page came instead of an answer of Keystone (503); the proxy in front of Keystone gets no reply \
         from it: its operators know whether it runs",
        |_| Act::Html(503, "<html>busy"),
    )
    .await;
    sign_in_fails(
        Class::Broken,
        "sign in: Keystone answered 500; something failed within Keystone: its operators find it in its log",
        |_| Act::Json(500, json!({})),
    )
    .await;
    sign_in_fails(
        Class::Timeout,
        "sign in: {at} did not reply within 0.5 s; the service behind it is stuck or overloaded: ask its operators",
        |_| Act::Stall,
    )
    .await;
    sign_in_fails(
        Class::CutShort,
        "sign in: the reply of {at} broke off after 12 bytes; if that goes on, a proxy in between drops long replies \
         or slow ones",
        |_| Act::Raw(b"HTTP/1.1 201 Created\r\ncontent-length: 400\r\n\r\n{\"token\": {\"".to_vec()),
    )
    .await;
    sign_in_fails(
        Class::CutShort,
        "sign in: the reply of {at} broke off after 12 bytes; if that goes on, a proxy in between drops long replies \
         or slow ones",
        |_| Act::Raw(b"HTTP/1.1 201 Created\r\ncontent-type: application/json\r\n\r\n{\"token\": {\"".to_vec()),
    )
    .await;
    sign_in_fails(
        Class::Unreachable,
        "sign in: {at} ended the connection before it replied; if that goes on, look at what stands between, and at \
         auth_url (as given)",
        |_| Act::HangUp,
    )
    .await;
}

#[tokio::test]
async fn refused_credentials_say_what_to_check() {
    sign_in_fails(
        Class::Credentials,
        "sign in: Keystone does not know user \"demo\" of domain default, or the password is wrong; check user, \
         password and the user's domain (auth_url: as given)",
        |_| unauthorized(),
    )
    .await;
    sign_in_fails(
        Class::Credentials,
        "sign in: The password is expired and needs to be changed for user: u1 (Keystone 401); set a new one (`openstack \
         user password set`), and write it into the credentials",
        |_| {
            let message = "The password is expired and needs to be changed for user: u1.";
            Act::Json(401, json!({"error": {"code": 401, "message": message, "title": "Unauthorized"}}))
        },
    )
    .await;

    let server = Scripted::start(|_| unauthorized());
    let which = ApplicationCredential::Id("a1".into());
    let proof = Proof::ApplicationCredential { which, secret: PASSWORD.into() };
    let source = Source::Given(Credentials::new(&server.url(), proof, Scope::Unsaid));
    let start = Instant::now();
    let error = Cloud::connect(source, quick()).await.err().expect("not let in");
    let line = "sign in: Keystone does not take the application credential: it has expired, or its secret is wrong; \
                see `openstack application credential list`; make another with `openstack application credential \
                create`";
    check(start, &error, &Class::Credentials, line);
}

#[tokio::test]
async fn an_address_where_nobody_answers_says_so() {
    let fails = async |auth_url: &str, class: Class, line: &str| {
        let start = Instant::now();
        let error =
            Cloud::connect(Source::Given(credentials(auth_url)), quick()).await.err().expect("nobody");
        check(start, &error, &class, line);
    };
    let gone = Scripted::start(|_| Act::HangUp);
    let at = gone.address();
    drop(gone);
    until_refused(at);
    fails(
        &format!("http://{at}/v3"),
        Class::Unreachable,
        &format!(
            "sign in: nothing listens at {at}: connection refused; check the address in auth_url (as given), and that \
             the service runs"
        ),
    )
    .await;
    let full = Full::new();
    let at = full.address;
    fails(
        &format!("http://{at}/v3"),
        Class::Timeout,
        &format!(
            "sign in: no connection to {at} within 0.4 s; a firewall may drop what is sent there; check the address in \
             auth_url (as given)"
        ),
    )
    .await;
    fails(
        "http://no-such-host.invalid:5000/v3",
        Class::Unreachable,
        "sign in: the name \"no-such-host.invalid\" does not resolve; check it in auth_url (as given), and this \
         machine's DNS (`getent hosts no-such-host.invalid`)",
    )
    .await;
    fails(
        "http://[::1/v3",
        Class::Credentials,
        "sign in: \"http://[::1/v3/auth/tokens\" is no URL; it comes from auth_url (as given)",
    )
    .await;
}

/// Listens, and takes nobody in: what is sent there is dropped, as by a firewall.
struct Full {
    address: SocketAddr,
    _listener: socket2::Socket,
    _waiting: Vec<socket2::Socket>,
}

impl Full {
    fn new() -> Full {
        use socket2::{Domain, Socket, Type};
        let socket = || Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        let listener = socket();
        listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("a free port");
        listener.listen(0).expect("it listens");
        let address = listener.local_addr().expect("bound").as_socket().expect("of IPv4");
        let mut waiting = Vec::new();
        loop {
            let client = socket();
            let taken = client.connect_timeout(&address.into(), Duration::from_millis(200)).is_ok();
            waiting.push(client);
            if !taken {
                return Full { address, _listener: listener, _waiting: waiting };
            }
            assert!(waiting.len() < 64, "its line never gets full");
        }
    }
}

fn until_refused(at: SocketAddr) {
    let until = Instant::now() + Duration::from_secs(5);
    while std::net::TcpStream::connect(at).is_ok() {
        assert!(Instant::now() < until, "it still listens");
    }
}

#[tokio::test]
async fn a_call_that_gets_no_whole_reply_says_why() {
    call_fails(
        networks(),
        Class::NotOpenStack,
        "list networks: instead of Neutron, a web page (\"Welcome to nginx!\") answered (200); a proxy or another \
         program stands where the catalog says that Neutron is: check https_proxy and no_proxy, or set \
         `network_endpoint_override`",
        |_| Act::Html(200, "<!DOCTYPE html><title>Welcome to nginx!</title>"),
    )
    .await;
    call_fails(
        networks(),
        Class::CutShort,
        "list networks: the reply of {at} broke off after 13 bytes; if that goes on, a proxy in between drops long \
         replies or slow ones",
        |_| Act::Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{\"networks\": ".to_vec()),
    )
    .await;
    call_fails(
        networks(),
        Class::Timeout,
        "list networks: {at} did not reply within 0.5 s; the service behind it is stuck or overloaded: ask its \
         operators",
        |_| Act::Stall,
    )
    .await;
    for (status, class) in [(502, Class::Broken), (503, Class::Busy), (504, Class::Broken)] {
        call_fails(
            networks(),
            class,
            &format!(
                "list networks: a web page (\"Oh no\") came instead of an answer of Neutron ({status}); the proxy in \
                 front of Neutron gets no reply from it: its operators know whether it runs"
            ),
            move |_| Act::Html(status, "<html><title>Oh no</title>"),
        )
        .await;
    }
    call_fails(networks(), Class::NotFound, "list networks: no such thing (Neutron 404)", |_| {
        Act::Json(
            404,
            json!({"NeutronError": {"type": "NotFound", "message": "no such thing.", "detail": ""}}),
        )
    })
    .await;
}

#[tokio::test]
async fn a_write_of_which_nobody_knows_the_outcome_is_lost() {
    let broken = "the service behind it is stuck or overloaded: ask its operators";
    call_fails(
        new_port(),
        Class::Lost,
        &format!("make a port: {{at}} did not reply within 0.5 s; {broken}"),
        |_| Act::Stall,
    )
    .await;
    call_fails(
        new_port(),
        Class::Lost,
        "make a port: {at} ended the connection before it replied; if that goes on, look at what stands between, and \
         at the catalog",
        |_| Act::HangUp,
    )
    .await;
    for status in [500, 502, 504] {
        let line = format!(
            "make a port: Neutron answered {status}; something failed within Neutron: its operators find it in its log"
        );
        call_fails(new_port(), Class::Lost, &line, move |_| Act::Json(status, json!(null))).await;
    }
    // It was done, whatever became of the reply.
    for act in [
        || Act::Html(200, "<html><title>Log in</title>"),
        || Act::Raw(b"HTTP/1.1 201 Created\r\ncontent-length: 4\r\n\r\nwhat".to_vec()),
        || Act::Raw(b"HTTP/1.1 201 Created\r\ncontent-length: 400\r\n\r\n{".to_vec()),
    ] {
        let server = Scripted::start(move |request| if signs_in(request) { granted(request) } else { act() });
        let cloud = connect(&server, quick()).await.expect("let in");
        let error = cloud.call(new_port()).await.expect_err("nothing to understand");
        assert_eq!((error.class(), error.retry()), (&Class::Lost, Retry::AfterLooking), "{error}");
    }
    call_fails(new_port(), Class::Invalid, "make a port: bad (Neutron 400)", |_| {
        Act::Json(400, json!({"NeutronError": "bad"}))
    })
    .await;
}

#[tokio::test]
async fn a_missing_service_and_a_wrong_region_are_told_with_what_there_is() {
    let server = Scripted::start(granted);
    let cloud = connect(&server, quick()).await.expect("let in");
    let error = cloud.call(Call::get(Service::KeyManager, "list secrets", "/secrets")).await.unwrap_err();
    check(
        Instant::now(),
        &error,
        &Class::NoService,
        "list secrets: this cloud has no Barbican (key-manager); ask its operators; if it is there all the same, set \
         `key_manager_endpoint_override`; the catalog has: load-balancer, network",
    );
    let elsewhere = credentials(&format!("{}/v3", server.url())).with_region("Atlantis");
    let cloud = Cloud::connect(Source::Given(elsewhere), quick()).await.expect("let in");
    let error = cloud.call(networks()).await.unwrap_err();
    check(
        Instant::now(),
        &error,
        &Class::NoRegion,
        "list networks: there is no network in region \"Atlantis\"; set the region (as given) to one of: RegionOne",
    );
}

/// Signing in over TLS, with these files of the client's; `{at}` stands for the server's address.
async fn over_tls(
    config: rustls::ServerConfig,
    adjust: impl FnOnce(&mut Credentials),
) -> (String, Option<Error>) {
    let server = Scripted::start_tls(config, |request| {
        let host = request.headers.get("host").map(String::as_str).unwrap_or_default();
        Act::JsonWith(201, ("x-subject-token", "t"), grant(&format!("https://{host}")))
    });
    let mut credentials = credentials(&format!("{}/v3", server.url()));
    adjust(&mut credentials);
    let start = Instant::now();
    let error = Cloud::connect(Source::Given(credentials), quick()).await.err();
    assert!(start.elapsed() < SOON, "{error:?} took {:?}", start.elapsed());
    (server.address().to_string(), error)
}

fn named(path: PathBuf) -> Placed<PathBuf> {
    Placed { value: path, place: Place("clouds.yaml:9".into()) }
}

#[tokio::test]
async fn tls_is_refused_with_what_to_set() {
    let folder = tempfile::tempdir().expect("a folder");
    let (ours, others) = (Authority::new(), Authority::new());
    let ca = named(ours.write(folder.path()));
    let trusting = |credentials: &mut Credentials| credentials.tls.ca = Some(ca.clone());

    let (_, fine) = over_tls(ours.signs("127.0.0.1").serve(None), trusting).await;
    assert!(fine.is_none(), "{fine:?}");

    let unknown = "is signed by an authority that is not trusted here; name the file of that authority: `cacert` in \
                   clouds.yaml, `ca-file` in cloud.conf, or OS_CACERT";
    for (server, adjust) in [
        (
            ours.signs("127.0.0.1").serve(None),
            Box::new(|_: &mut Credentials| {}) as Box<dyn FnOnce(&mut Credentials)>,
        ),
        (others.signs("127.0.0.1").serve(None), Box::new(trusting)),
    ] {
        let (at, error) = over_tls(server, adjust).await;
        let error = error.expect("not trusted");
        check(Instant::now(), &error, &Class::Tls, &format!("sign in: the certificate of {at} {unknown}"));
    }
    let (at, error) = over_tls(ours.signs("keystone.example").serve(None), trusting).await;
    let line = format!(
        "sign in: the certificate of {at} is for another name; use a name that is in it, in auth_url (as given)"
    );
    check(Instant::now(), &error.expect("another name"), &Class::Tls, &line);
    let (at, error) = over_tls(ours.signs_expired("127.0.0.1").serve(None), trusting).await;
    let line = format!(
        "sign in: the certificate of {at} has expired; its operators have to renew it; also check this machine's clock"
    );
    check(Instant::now(), &error.expect("expired"), &Class::Tls, &line);

    let (_, fine) =
        over_tls(others.signs("else.example").serve(None), |it| it.tls.insecure = Some(Place("x:1".into())))
            .await;
    assert!(fine.is_none(), "who wants to believe anybody, does: {fine:?}");
}

#[tokio::test]
async fn a_client_certificate_is_shown_where_one_is_wanted() {
    let folder = tempfile::tempdir().expect("a folder");
    let (ours, clients) = (Authority::new(), Authority::new());
    let ca = named(ours.write(folder.path()));
    let (certificate, key) = clients.signs("seaway").write(folder.path());
    let server = || ours.signs("127.0.0.1").serve(Some(&clients));
    let (at, error) = over_tls(server(), |it| it.tls.ca = Some(ca.clone())).await;
    let line = format!(
        "sign in: {at} wants a client certificate, or another one; name it: `cert` and `key` in clouds.yaml, \
         `cert-file` and `key-file` in cloud.conf"
    );
    check(Instant::now(), &error.expect("nothing was shown"), &Class::Tls, &line);
    let (_, fine) = over_tls(server(), |it| {
        it.tls.ca = Some(ca.clone());
        it.tls.client = Some((named(certificate), named(key)));
    })
    .await;
    assert!(fine.is_none(), "{fine:?}");
}

#[tokio::test]
async fn files_of_certificates_that_are_none_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let empty = folder.path().join("empty.pem");
    std::fs::write(&empty, "nothing").expect("written");
    let missing = folder.path().join("missing.pem");
    for (path, what) in [(&empty, "has no certificate in it"), (&missing, "cannot be read")] {
        let mut credentials = credentials("https://127.0.0.1:9/v3");
        credentials.tls.ca = Some(named(path.clone()));
        let error = Cloud::connect(Source::Given(credentials), quick()).await.err().expect("no CA");
        let told = error.to_string();
        assert!(told.starts_with(&format!("sign in: the CA file {} {what}", path.display())), "{told}");
        assert!(told.contains("named by clouds.yaml:9"), "{told}");
    }
}

/// Whether or not a CA is named beside it: going on without it would end in a riddle, or in somebody else's rights.
#[tokio::test]
async fn a_client_certificate_that_cannot_be_used_is_never_left_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let ours = Authority::new();
    let ca = named(ours.write(folder.path()));
    let (certificate, key) = ours.signs("seaway").write(folder.path());
    let other = tempfile::tempdir().expect("a folder");
    let (_, others_key) = ours.signs("else").write(other.path());
    let (empty, missing) = (folder.path().join("empty.pem"), folder.path().join("missing.pem"));
    std::fs::write(&empty, "nothing").expect("written");
    for (pair, told) in [
        ((&missing, &key), format!("the client certificate {} cannot be read", missing.display())),
        ((&certificate, &missing), format!("the key of the client certificate {} cannot", missing.display())),
        ((&certificate, &empty), "has no certificate with its key in it".to_owned()),
        ((&certificate, &others_key), "key and certificate have to belong together".to_owned()),
    ] {
        for ca in [None, Some(ca.clone())] {
            let mut credentials = credentials("https://127.0.0.1:9/v3");
            credentials.tls.ca = ca;
            credentials.tls.client = Some((named(pair.0.clone()), named(pair.1.clone())));
            let error = Cloud::connect(Source::Given(credentials), quick()).await.err().expect("unusable");
            assert!(error.to_string().contains(&told), "{error}");
        }
    }
}

#[test]
fn a_system_without_authorities_takes_nothing_else_away() {
    let nowhere = ("SSL_CERT_FILE", "/nowhere.pem");
    let test = "trouble::in_a_process_without_authorities";
    let output = again(test, &[nowhere, ("SSL_CERT_DIR", "/nowhere"), ("WITHOUT_AUTHORITIES", "1")]);
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && told.contains("1 passed"), "{told}");
}

#[tokio::test]
async fn in_a_process_without_authorities() {
    if std::env::var_os("WITHOUT_AUTHORITIES").is_none() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let clients = Authority::new();
    let (certificate, key) = clients.signs("seaway").write(folder.path());
    let (_, error) = over_tls(Authority::new().signs("127.0.0.1").serve(Some(&clients)), |it| {
        it.tls.insecure = Some(Place("x:1".into()));
        it.tls.client = Some((named(certificate), named(key)));
    })
    .await;
    assert!(error.is_none(), "{error:?}");
}

#[tokio::test]
async fn http_where_tls_is_spoken_and_the_other_way_round_say_so() {
    let plain = Scripted::start(granted);
    let at = plain.address();
    let start = Instant::now();
    let source = Source::Given(credentials(&format!("https://{at}/v3")));
    let error = Cloud::connect(source, quick()).await.err().expect("no TLS");
    check(
        start,
        &error,
        &Class::Tls,
        &format!(
            "sign in: {at} does not speak TLS; if it speaks plain HTTP, write http:// in auth_url (as given)"
        ),
    );
    let tls = Scripted::start_tls(Authority::new().signs("127.0.0.1").serve(None), granted);
    let at = tls.address();
    let start = Instant::now();
    let source = Source::Given(credentials(&format!("http://{at}/v3")));
    let error = Cloud::connect(source, quick()).await.err().expect("TLS");
    check(
        start,
        &error,
        &Class::NotOpenStack,
        &format!(
            "sign in: {at} does not speak plain HTTP; if it speaks TLS, write https:// in auth_url (as given)"
        ),
    );
}
