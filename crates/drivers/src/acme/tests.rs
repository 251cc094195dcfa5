//! Orders by an authority that does as a test says. Its TLS is ended by our own data plane. (By a real one: `cli/tests/walk/acme.rs`.)

use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::{IpAddr, Ipv4Addr, TcpListener, TcpStream},
    path::PathBuf,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    thread,
    time::Instant,
};

use seaway_model::{
    Kind, LbKey, ObjectRef,
    load_balancer::{Certificate, TlsByName},
};
use seaway_proxy::{Proxy, Settings};
use seaway_testkit::balancing;
use serde_json::{Value, json};

use super::{renewal::OFFERS_FOR, *};

const HOST: &str = "shop.example";

struct Authority {
    /// Where its requests go.
    url: String,
    folder: PathBuf,
    proxy: Proxy,
    says: Arc<AuthorityScript>,
}

/// What it does, and what it was asked.
#[derive(Default)]
struct AuthorityScript {
    /// It asks for no proof, and signs nothing.
    proves: bool,
    /// What it offers is at other URLs now.
    moved: AtomicBool,
    /// No account can be opened at those.
    refuses_accounts: AtomicBool,
    directories: AtomicUsize,
    /// Orders at the URL of before, and at the one of now.
    orders: [AtomicUsize; 2],
}

impl Authority {
    /// Each test has a port of its own.
    fn start(port: u16, proves: bool) -> Authority {
        let id = std::process::id();
        let [_, _, high, low] = id.to_be_bytes();
        let ip = IpAddr::from(Ipv4Addr::new(127, 62, high, low));
        let url = format!("https://{ip}:{port}");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let at = listener.local_addr().expect("is bound");
        let base = url.clone();
        let says = Arc::new(AuthorityScript { proves, ..AuthorityScript::default() });
        let spoken = says.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (base, says) = (base.clone(), spoken.clone());
                thread::spawn(move || converse(&stream, &base, &says));
            }
        });

        let folder = std::env::temp_dir().join(format!("seaway-authority-{id}-{port}"));
        fs::create_dir_all(&folder).expect("a folder");
        let made = rcgen::generate_simple_self_signed([ip.to_string()]).expect("a certificate");
        fs::write(folder.join("ca.pem"), made.cert.pem()).expect("written");
        let shown = ObjectRef::new(Kind::Secret, "default", "shown");
        let certificate = Certificate {
            chain: made.cert.pem().into(),
            key: made.signing_key.serialize_pem().into(),
            authorities: Name::default(),
            staple: None,
            users: String::new().into(),
        };
        let proxy = Proxy::start(Settings { workers: 1, pin: false }).expect("a data plane");
        proxy.put_pool(&LbKey::Whole, Arc::new(balancing::pool(&[at])));
        proxy.put_certificate(&LbKey::Whole, &shown, &Arc::new(certificate)).expect("it can be shown");
        let mut front = balancing::listener(port);
        front.tls = Some(Arc::new(TlsByName { default: vec![shown], ..TlsByName::default() }));
        proxy.open(&LbKey::Whole, ip, Arc::new(front)).expect("it is opened");
        Authority { url, folder, proxy, says }
    }

    fn order(&self) -> CertificateOrder {
        let acme = Acme {
            directory: format!("{}/directory", self.url).into(),
            email: None,
            authorities: Some(self.folder.join("ca.pem")),
            binding: None,
            challenge: None,
            dns: None,
        };
        // Nothing is open there.
        let answers_at = vec![(Ipv4Addr::LOCALHOST, 1).into()];
        CertificateOrder { host: HOST.into(), acme, challenge: Some(ChallengeType::Http01), answers_at }
    }

    fn driver(&self) -> Certificates {
        let (_, life) = watch::channel(ProcessPhase::Serving);
        Certificates::new(CertificateStore::at(&self.folder), DnsRecordStore::at(&self.folder), life)
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        self.proxy.stop_accepting();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// One request after another, until the client goes away.
fn converse(stream: &TcpStream, base: &str, says: &AuthorityScript) -> io::Result<()> {
    let (mut reader, mut writer) = (BufReader::new(stream), stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head)? == 0 {
                return Ok(());
            }
        }
        let length = head.lines().find_map(|it| {
            let (name, value) = it.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        });
        reader.read_exact(&mut vec![0; length.unwrap_or(0)])?;
        let path = head.split(' ').nth(1).unwrap_or_default();
        let (status, made, body) = answer(path, base, says);
        let body = if head.starts_with("HEAD ") { String::new() } else { body.to_string() };
        write!(
            writer,
            "HTTP/1.1 {status} it says\r\nReplay-Nonce: once\r\nLocation: {base}{made}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
    }
}

/// The status, what was made, and what is said.
fn answer(path: &str, base: &str, says: &AuthorityScript) -> (u16, &'static str, Value) {
    let proves = says.proves;
    let order = json!({
        "status": if proves { "ready" } else { "pending" },
        "authorizations": [format!("{base}/authorization")],
        "finalize": format!("{base}/finalize"),
    });
    match path {
        "/directory" => {
            says.directories.fetch_add(1, Ordering::Relaxed);
            let moved = if says.moved.load(Ordering::Relaxed) { "/moved" } else { "" };
            let at = |what: &str| format!("{base}{moved}/{what}");
            let all = json!({
                "newNonce": format!("{base}/nonce"), "newAccount": at("account"), "newOrder": at("new-order")
            });
            (200, "", all)
        }
        "/moved/account" if says.refuses_accounts.load(Ordering::Relaxed) => {
            (403, "", json!({ "type": "urn:ietf:params:acme:error:unauthorized", "detail": "not today" }))
        }
        "/account" | "/moved/account" => (201, "/account/1", json!({})),
        "/new-order" | "/moved/new-order" => {
            says.orders[usize::from(path.starts_with("/moved"))].fetch_add(1, Ordering::Relaxed);
            (201, "/order", order)
        }
        "/order" => (200, "", order),
        "/authorization" => {
            let challenge = json!({ "type": "http-01", "url": format!("{base}/challenge"), "token": "t0k" });
            let status = if proves { "valid" } else { "pending" };
            (200, "", json!({ "status": status, "challenges": [challenge] }))
        }
        "/finalize" => {
            (403, "", json!({ "type": "urn:ietf:params:acme:error:badCSR", "detail": "not this key" }))
        }
        _ => (200, "", json!({})),
    }
}

/// Works on it so many times, as the engine does.
async fn work(driver: &Certificates, order: &CertificateOrder, times: usize) -> Observed {
    let unit = Unit::CertificateOrder(order.host.clone());
    let desired = Desired::CertificateOrder(Arc::new(order.clone()));
    let mut last = None;
    for _ in 0..times {
        let mut observed =
            driver.observe(&Context::default(), &unit, &desired).await.expect("it is looked at");
        for step in driver.steps(&desired, &observed) {
            driver
                .apply(&Context::default(), &unit, &step, &mut observed)
                .await
                .expect("the process goes on");
        }
        driver.conclude(&unit, &desired, &observed);
        last = Some(observed);
    }
    last.expect("once at least")
}

fn why(observed: &Observed) -> &str {
    observed.why.as_ref().map_or("", |it| &it.0)
}

#[tokio::test]
async fn an_order_that_the_authority_refuses_ends_and_counts() {
    let authority = Authority::start(20_104, true);
    let (driver, order) = (authority.driver(), authority.order());
    // What is stored is told first.
    assert!(work(&driver, &order, 1).await.attempt.is_none());
    let begun = work(&driver, &order, 1).await;
    assert!(begun.attempt.is_some(), "{}", why(&begun));
    let refused = work(&driver, &order, 1).await;
    assert!(refused.attempt.is_none() && why(&refused).contains("badCSR"), "{}", why(&refused));
    assert_eq!(driver.failed(&order).count, 1);
}

#[tokio::test]
async fn what_is_wrong_here_counts_and_an_authority_that_is_away_does_not() {
    let authority = Authority::start(20_105, true);
    let nowhere = authority.folder.join("no.pem");
    let mut here = authority.order();
    here.acme.authorities = Some(nowhere);
    let driver = authority.driver();
    let told = work(&driver, &here, 2).await;
    assert!(why(&told).contains("no.pem cannot be read"), "{}", why(&told));
    assert_eq!((driver.failed(&here).count, told.gate.is_some()), (1, false));

    let mut away = authority.order();
    away.acme.directory = "https://127.0.0.1:1/directory".into();
    let driver = authority.driver();
    let told = work(&driver, &away, 2).await;
    assert_eq!((why(&told), driver.failed(&away).count, told.gate.is_some()), ("", 0, true));
}

/// An authority counts what it finds wrong: it is not let look before the front door answers.
#[tokio::test]
async fn an_order_ends_that_the_front_door_does_not_answer_for_in_time() {
    let authority = Authority::start(20_106, false);
    let (driver, order) = (authority.driver(), authority.order());
    let mut observed = work(&driver, &order, 3).await;
    let attempt = observed.attempt.as_mut().expect("it is under way");
    assert_eq!(attempt.next(), None, "there is time yet");
    attempt.age(Duration::from_secs(31));
    let Some(Step::Abandon(why)) = attempt.next() else { panic!("it goes on: {:?}", attempt.next()) };
    assert!(why.contains("does not answer it as it should: http://127.0.0.1:1"), "{why}");
}

impl Authority {
    fn directories(&self) -> usize {
        self.says.directories.load(Ordering::Relaxed)
    }

    /// At the URL of before, and at the one of now.
    fn orders(&self) -> [usize; 2] {
        self.says.orders.each_ref().map(|it| it.load(Ordering::Relaxed))
    }
}

/// As if the authority had been asked a day ago.
async fn a_day_later(driver: &Certificates) {
    for offer in driver.directories.lock().await.values_mut() {
        let left = offer.until.saturating_duration_since(Instant::now());
        assert!(OFFERS_FOR == Duration::from_secs(24 * 3600) && left <= OFFERS_FOR, "{left:?}");
        offer.until = Instant::now();
    }
}

#[tokio::test]
async fn what_an_authority_offers_is_asked_once_a_day_and_holds_from_then_on() {
    let authority = Authority::start(20_107, true);
    let (driver, order) = (authority.driver(), authority.order());
    let directory = driver.directory(&order.acme).await.expect("it answers");
    for _ in 0..3 {
        let again = driver.directory(&order.acme).await.expect("it is known");
        assert!(Arc::ptr_eq(&again, &directory));
    }
    assert_eq!(authority.directories(), 1);
    // The same offer is the same directory, and its account is not opened again.
    a_day_later(&driver).await;
    let again = driver.directory(&order.acme).await.expect("it answers");
    assert_eq!((authority.directories(), Arc::ptr_eq(&again, &directory)), (2, true));
    authority.says.moved.store(true, Ordering::Relaxed);
    a_day_later(&driver).await;
    let again = driver.directory(&order.acme).await.expect("it answers");
    assert_eq!((authority.directories(), again.is_as(&directory)), (3, false));
    // An authority that is away takes back nothing that it has said.
    authority.proxy.stop_accepting();
    a_day_later(&driver).await;
    let kept = driver.directory(&order.acme).await.expect("it is known");
    assert!(Arc::ptr_eq(&kept, &again));
}

#[tokio::test]
async fn an_account_stays_in_use_until_it_can_be_opened_at_a_changed_directory() {
    let authority = Authority::start(20_108, true);
    let (driver, order) = (authority.driver(), authority.order());
    let account = driver.account(&order.acme).await.expect("it is opened");
    account.order(HOST, None).await.expect("it is taken");
    authority.says.moved.store(true, Ordering::Relaxed);
    authority.says.refuses_accounts.store(true, Ordering::Relaxed);
    a_day_later(&driver).await;
    let account = driver.account(&order.acme).await.expect("the account of before is valid");
    account.order(HOST, None).await.expect("it is taken");
    assert_eq!(authority.orders(), [2, 0]);
    authority.says.refuses_accounts.store(false, Ordering::Relaxed);
    let account = driver.account(&order.acme).await.expect("it is opened");
    account.order(HOST, None).await.expect("it is taken");
    assert_eq!(authority.orders(), [2, 1]);
}

/// Chain and key, until that year.
fn certificate(year: i32) -> String {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut parameters = rcgen::CertificateParams::new([HOST.to_owned()]).expect("a name");
    parameters.not_after = rcgen::date_time_ymd(year, 1, 1);
    let made = parameters.self_signed(&key).expect("a certificate");
    format!("{}{}", made.pem(), key.serialize_pem())
}

#[tokio::test]
async fn a_certificate_stays_in_use_while_the_authority_that_is_configured_now_gives_none() {
    let authority = Authority::start(20_109, true);
    let (driver, order) = (authority.driver(), authority.order());
    let (soon, late) = (certificate(2200), certificate(2300));
    let kept = |directory: &str, pem: &str| {
        driver.store.keep_certificate(directory, HOST, pem).expect("it is stored");
    };
    kept("https://first.example/directory", &late);
    kept("https://second.example/directory", &soon);
    driver.store.keep_account_key("https://first.example/directory", "its key").expect("it is stored");
    let shown = |observed: &Observed| {
        let unit = Unit::CertificateOrder(order.host.clone());
        let desired = Desired::CertificateOrder(Arc::new(order.clone()));
        let report = driver.conclude(&unit, &desired, observed);
        report.facts.into_iter().find_map(|fact| match fact {
            Fact::Secret(secret) => Some(secret.values["tls.crt"].expose_secret().to_owned()),
            _ => None,
        })
    };
    // The account cannot be opened: no order begins, and what lasts longest is shown.
    authority.says.moved.store(true, Ordering::Relaxed);
    authority.says.refuses_accounts.store(true, Ordering::Relaxed);
    let refused = work(&driver, &order, 2).await;
    assert!(why(&refused).contains("not today"), "{}", why(&refused));
    assert_eq!(shown(&refused), Some(late.clone()));
    let problem = refused.problem(&order).expect("it is told").to_string();
    assert!(problem.contains("the previous one is still served"), "{problem}");
    let key = driver.store.account_key("https://first.example/directory").expect("it is read");
    assert_eq!(key.as_deref(), Some("its key"));
    // One of the authority that is configured now comes first, but not if it cannot be used.
    kept(&order.acme.directory, "rubbish");
    assert_eq!(shown(&work(&driver, &order, 1).await), Some(late));
    let own = certificate(2250);
    kept(&order.acme.directory, &own);
    assert_eq!(shown(&work(&driver, &order, 1).await), Some(own));
}
