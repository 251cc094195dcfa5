//! What can go wrong between us and a cloud: one clear line each that names the fix, within its time.

use std::{
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use seaway_openstack::{
    Call, Class, Cloud, Credentials, Error, Retry, Service, Settings, Source,
    credentials::{ApplicationCredential, AuthMethod, Scope},
};
use serde_json::json;
use socket2::{Domain, Socket, Type};

use crate::{
    keystone::{PASSWORD, connect, credentials, granted, impatient, quick, signs_in, unauthorized},
    scripted::{Request, ScriptedReply, ScriptedServer},
};

/// More than any of these situations may take, attempts, pauses and all; and less than patience lasts.
pub(crate) const SOON: Duration = Duration::from_secs(50);

fn networks() -> Call {
    Call::get(Service::Network, "list networks", "/networks")
}

fn new_port() -> Call {
    Call::post(Service::Network, "make a port", "/ports", json!({"port": {}}))
}

#[track_caller]
pub(crate) fn check(start: Instant, error: &Error, class: &Class, line: &str) {
    let told = error.to_string();
    assert!(start.elapsed() < SOON, "{told} took {:?}", start.elapsed());
    assert_eq!(error.class(), class, "{told}");
    assert!(!told.contains('\n') && !told.contains(PASSWORD), "{told}");
    assert_eq!(told.split(" (req-").next(), Some(line));
}

/// Signing in to this server ends so; `{at}` stands for its address.
async fn sign_in_fails(
    class: Class,
    line: &str,
    act: impl Fn(&Request) -> ScriptedReply + Send + Sync + 'static,
) {
    sign_in_fails_with(quick(), class, line, act).await;
}

async fn sign_in_fails_with(
    settings: Settings,
    class: Class,
    line: &str,
    act: impl Fn(&Request) -> ScriptedReply + Send + Sync + 'static,
) {
    let server = ScriptedServer::start(act);
    let start = Instant::now();
    let error = connect(&server, settings).await.err().expect("not let in");
    check(start, &error, &class, &line.replace("{at}", &server.address().to_string()));
}

/// A call to this cloud ends so.
async fn call_fails(
    call: Call,
    class: Class,
    line: &str,
    act: impl Fn(&Request) -> ScriptedReply + Send + Sync + 'static,
) {
    let server =
        ScriptedServer::start(move |request| if signs_in(request) { granted(request) } else { act(request) });
    let cloud = connect(&server, quick()).await.expect("let in");
    fails(&server, &cloud, call, class, line).await;
}

async fn fails(server: &ScriptedServer, cloud: &Cloud, call: Call, class: Class, line: &str) {
    let start = Instant::now();
    let error = cloud.call(call).await.expect_err("trouble");
    check(start, &error, &class, &line.replace("{at}", &server.address().to_string()));
}

/// A call to a cloud that says nothing ends so.
async fn call_stalls(call: Call, class: Class, line: &str) {
    let server =
        ScriptedServer::start(
            |request| if signs_in(request) { granted(request) } else { ScriptedReply::Stall },
        );
    // Whoever is impatient may have to knock more than once.
    let until = Instant::now() + SOON;
    let cloud = loop {
        match connect(&server, impatient()).await {
            Ok(cloud) => break cloud,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
    };
    fails(&server, &cloud, call, class, line).await;
}

#[tokio::test]
async fn signing_in_to_what_is_no_keystone_says_so() {
    let fix = "there is no Keystone: check auth_url (as given), which often ends in :5000/v3 or /identity/v3, and \
               whether a proxy stands in between";
    sign_in_fails(
        Class::NotOpenStack,
        &format!("sign in: http://{{at}}/v3/auth/tokens answered with a web page, \"Log in\" (200); {fix}"),
        |_| ScriptedReply::Html(200, "<html><title>Log in</title>"),
    )
    .await;
    sign_in_fails(
        Class::NotOpenStack,
        &format!("sign in: http://{{at}}/v3/auth/tokens answered with a web page (404); {fix}"),
        |_| ScriptedReply::Html(404, "<html>"),
    )
    .await;
    sign_in_fails(
        Class::NotOpenStack,
        &format!("sign in: http://{{at}}/v3/auth/tokens redirects to https://elsewhere/ (302); {fix}"),
        |_| ScriptedReply::JsonWith(302, ("location", "https://elsewhere/"), json!(null)),
    )
    .await;
    sign_in_fails(
        Class::NotOpenStack,
        &format!("sign in: http://{{at}}/v3/auth/tokens answered with something else (200); {fix}"),
        |_| ScriptedReply::Json(200, json!({"hello": "world"})),
    )
    .await;
}

#[tokio::test]
async fn a_keystone_in_trouble_is_told_from_one_that_refuses() {
    sign_in_fails(
        Class::Busy,
        "sign in: a web page came instead of an answer of Keystone (503); the proxy in front of Keystone gets no reply \
         from it: ask its operators whether it runs",
        |_| ScriptedReply::Html(503, "<html>busy"),
    )
    .await;
    sign_in_fails(
        Class::Broken,
        "sign in: Keystone answered 500; Keystone failed internally: its operators find the cause in the log of Keystone",
        |_| ScriptedReply::Json(500, json!({})),
    )
    .await;
    // In its own form, as a Keystone with a limit of its own says it: not a matter of the password.
    for (status, class, fix) in [
        (
            429,
            Class::Busy,
            "; Keystone is overloaded or limits the rate of requests: if this continues, ask its operators",
        ),
        (
            413,
            Class::Busy,
            "; Keystone is overloaded or limits the rate of requests: if this continues, ask its operators",
        ),
        (408, Class::Timeout, ""),
    ] {
        let line = format!("sign in: not now (Keystone {status}){fix}");
        sign_in_fails(class, &line, move |_| {
            ScriptedReply::Json(
                status,
                json!({"error": {"code": status, "message": "not now", "title": "Not Now"}}),
            )
        })
        .await;
    }
    sign_in_fails_with(
        impatient(),
        Class::Timeout,
        "sign in: {at} did not reply within 0.5 s; the service behind it is stuck or overloaded: ask its operators",
        |_| ScriptedReply::Stall,
    )
    .await;
    sign_in_fails(
        Class::CutShort,
        "sign in: the reply of {at} broke off after 12 bytes; if this continues, look for a proxy in between that \
         cuts long or slow replies",
        |_| ScriptedReply::Raw(b"HTTP/1.1 201 Created\r\ncontent-length: 400\r\n\r\n{\"token\": {\"".to_vec()),
    )
    .await;
    sign_in_fails(
        Class::CutShort,
        "sign in: the reply of {at} broke off after 12 bytes; if this continues, look for a proxy in between that \
         cuts long or slow replies",
        |_| ScriptedReply::Raw(b"HTTP/1.1 201 Created\r\ncontent-type: application/json\r\n\r\n{\"token\": {\"".to_vec()),
    )
    .await;
    sign_in_fails(
        Class::Unreachable,
        "sign in: {at} ended the connection before it replied; if this continues, look at proxies in between, and at \
         auth_url (as given)",
        |_| ScriptedReply::HangUp,
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
            ScriptedReply::Json(401, json!({"error": {"code": 401, "message": message, "title": "Unauthorized"}}))
        },
    )
    .await;

    let server = ScriptedServer::start(|_| unauthorized());
    let which = ApplicationCredential::Id("a1".into());
    let proof = AuthMethod::ApplicationCredential { which, secret: PASSWORD.into() };
    let source = Source::Given(Credentials::new(&server.url(), proof, Scope::Unsaid));
    let start = Instant::now();
    let error = Cloud::connect(source, quick()).await.err().expect("not let in");
    let line = "sign in: Keystone rejects the application credential: it has expired, or its secret is wrong; \
                see `openstack application credential list`; make another with `openstack application credential \
                create`";
    check(start, &error, &Class::Credentials, line);
}

#[tokio::test]
async fn an_address_where_nobody_answers_says_so() {
    let fails = async |settings: Settings, auth_url: &str, class: Class, line: &str| {
        let start = Instant::now();
        let error =
            Cloud::connect(Source::Given(credentials(auth_url)), settings).await.err().expect("nobody");
        check(start, &error, &class, line);
    };
    // Nobody listens there, and nobody else can.
    let (_kept, at) = bound();
    fails(
        quick(),
        &format!("http://{at}/v3"),
        Class::Unreachable,
        &format!(
            "sign in: nothing listens at {at}: connection refused; check the address in auth_url (as given), and that \
             the service runs"
        ),
    )
    .await;
    let full = UnresponsiveListener::new();
    let at = full.address;
    fails(
        impatient(),
        &format!("http://{at}/v3"),
        Class::Timeout,
        &format!(
            "sign in: no connection to {at} within 0.4 s; a firewall may drop what is sent there; check the address in \
             auth_url (as given)"
        ),
    )
    .await;
    fails(
        quick(),
        "http://no-such-host.invalid:5000/v3",
        Class::Unreachable,
        "sign in: the name \"no-such-host.invalid\" does not resolve; check it in auth_url (as given), and this \
         machine's DNS (`getent hosts no-such-host.invalid`)",
    )
    .await;
    fails(
        quick(),
        "http://[::1/v3",
        Class::Credentials,
        "sign in: \"http://[::1/v3/auth/tokens\" is not a URL; the address comes from auth_url (as given)",
    )
    .await;
}

/// Listens, and takes nobody in: what is sent there is dropped, as by a firewall.
struct UnresponsiveListener {
    address: SocketAddr,
    _listener: Socket,
    _waiting: Vec<Socket>,
}

impl UnresponsiveListener {
    fn new() -> UnresponsiveListener {
        let (listener, address) = bound();
        listener.listen(0).expect("it listens");
        let mut waiting = Vec::new();
        loop {
            let client = socket();
            let taken = client.connect_timeout(&address.into(), Duration::from_secs(1)).is_ok();
            waiting.push(client);
            if !taken {
                return UnresponsiveListener { address, _listener: listener, _waiting: waiting };
            }
            assert!(waiting.len() < 64, "its line never gets full");
        }
    }
}

fn socket() -> Socket {
    Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket")
}

/// A port of its own, where nobody listens yet.
fn bound() -> (Socket, SocketAddr) {
    let socket = socket();
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("a free port");
    let address = socket.local_addr().expect("bound").as_socket().expect("of IPv4");
    (socket, address)
}

#[tokio::test]
async fn a_call_that_gets_no_whole_reply_says_why() {
    call_fails(
        networks(),
        Class::NotOpenStack,
        "list networks: instead of Neutron, a web page (\"Welcome to nginx!\") answered (200); a proxy or another \
         program answers at the address of Neutron in the catalog: check https_proxy and no_proxy, or set \
         `network_endpoint_override`",
        |_| ScriptedReply::Html(200, "<!DOCTYPE html><title>Welcome to nginx!</title>"),
    )
    .await;
    call_fails(
        networks(),
        Class::CutShort,
        "list networks: the reply of {at} broke off after 13 bytes; if this continues, look for a proxy in between \
         that cuts long or slow replies",
        |_| ScriptedReply::Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{\"networks\": ".to_vec()),
    )
    .await;
    call_stalls(
        networks(),
        Class::Timeout,
        "list networks: {at} did not reply within 0.5 s; the service behind it is stuck or overloaded: ask its \
         operators",
    )
    .await;
    for (status, class) in [(502, Class::Broken), (503, Class::Busy), (504, Class::Broken)] {
        call_fails(
            networks(),
            class,
            &format!(
                "list networks: a web page (\"Oh no\") came instead of an answer of Neutron ({status}); the proxy in \
                 front of Neutron gets no reply from it: ask its operators whether it runs"
            ),
            move |_| ScriptedReply::Html(status, "<html><title>Oh no</title>"),
        )
        .await;
    }
    call_fails(networks(), Class::NotFound, "list networks: no such thing (Neutron 404)", |_| {
        ScriptedReply::Json(
            404,
            json!({"NeutronError": {"type": "NotFound", "message": "no such thing.", "detail": ""}}),
        )
    })
    .await;
}

#[tokio::test]
async fn a_write_of_which_nobody_knows_the_outcome_is_lost() {
    let broken = "the service behind it is stuck or overloaded: ask its operators";
    let line = format!("make a port: {{at}} did not reply within 0.5 s; {broken}");
    call_stalls(new_port(), Class::Lost, &line).await;
    call_fails(
        new_port(),
        Class::Lost,
        "make a port: {at} ended the connection before it replied; if this continues, look at proxies in between, and \
         at the catalog",
        |_| ScriptedReply::HangUp,
    )
    .await;
    for status in [500, 502, 504] {
        let line = format!(
            "make a port: Neutron answered {status}; Neutron failed internally: its operators find the cause in the log of Neutron"
        );
        call_fails(new_port(), Class::Lost, &line, move |_| ScriptedReply::Json(status, json!(null))).await;
    }
    // It was done, whatever became of the reply.
    for act in [
        || ScriptedReply::Html(200, "<html><title>Log in</title>"),
        || ScriptedReply::Raw(b"HTTP/1.1 201 Created\r\ncontent-length: 4\r\n\r\nwhat".to_vec()),
        || ScriptedReply::Raw(b"HTTP/1.1 201 Created\r\ncontent-length: 400\r\n\r\n{".to_vec()),
    ] {
        let server =
            ScriptedServer::start(move |request| if signs_in(request) { granted(request) } else { act() });
        let cloud = connect(&server, quick()).await.expect("let in");
        let error = cloud.call(new_port()).await.expect_err("nothing to understand");
        assert_eq!((error.class(), error.retry()), (&Class::Lost, Retry::AfterLooking), "{error}");
    }
    call_fails(new_port(), Class::Invalid, "make a port: bad (Neutron 400)", |_| {
        ScriptedReply::Json(400, json!({"NeutronError": "bad"}))
    })
    .await;
}

#[tokio::test]
async fn a_missing_service_and_a_wrong_region_are_told_with_what_there_is() {
    let server = ScriptedServer::start(granted);
    let cloud = connect(&server, quick()).await.expect("let in");
    let error = cloud.call(Call::get(Service::KeyManager, "list secrets", "/secrets")).await.unwrap_err();
    check(
        Instant::now(),
        &error,
        &Class::NoService,
        "list secrets: this cloud has no Barbican (key-manager); ask its operators; if it exists, set \
         `key_manager_endpoint_override`; the catalog has: load-balancer, network",
    );
    let elsewhere = credentials(&format!("{}/v3", server.url())).with_region("Atlantis");
    let cloud = Cloud::connect(Source::Given(elsewhere), quick()).await.expect("let in");
    let error = cloud.call(networks()).await.unwrap_err();
    check(
        Instant::now(),
        &error,
        &Class::NoRegion,
        "list networks: the cloud has no network in region \"Atlantis\"; set the region (as given) to one of: RegionOne",
    );
}
