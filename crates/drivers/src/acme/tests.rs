//! Orders by an authority that does as a test says. Its TLS is ended by our own data plane. (By a real one: `cli/tests/walk/acme.rs`.)

use std::{
    fs,
    io::{self, BufRead, BufReader, Read, Write},
    net::{IpAddr, Ipv4Addr, TcpListener, TcpStream},
    path::PathBuf,
    thread,
};

use seaway_model::{
    Kind, LbKey, ObjectRef,
    load_balancer::{Certificate, TlsByName},
};
use seaway_proxy::{Proxy, Settings};
use seaway_testkit::balancing;
use serde_json::{Value, json};

use super::*;

const HOST: &str = "shop.example";

struct Authority {
    /// Where its requests go.
    url: String,
    folder: PathBuf,
    proxy: Proxy,
}

impl Authority {
    /// Each test has a port of its own. `proves`: it asks for no proof, and signs nothing.
    fn start(port: u16, proves: bool) -> Authority {
        let id = std::process::id();
        let [_, _, high, low] = id.to_be_bytes();
        let ip = IpAddr::from(Ipv4Addr::new(127, 62, high, low));
        let url = format!("https://{ip}:{port}");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let at = listener.local_addr().expect("is bound");
        let base = url.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let base = base.clone();
                thread::spawn(move || converse(&stream, &base, proves));
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
        Authority { url, folder, proxy }
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
        let (_, life) = watch::channel(Life::Serving);
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
fn converse(stream: &TcpStream, base: &str, proves: bool) -> io::Result<()> {
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
        let (status, made, body) = answer(path, base, proves);
        let body = if head.starts_with("HEAD ") { String::new() } else { body.to_string() };
        write!(
            writer,
            "HTTP/1.1 {status} it says\r\nReplay-Nonce: once\r\nLocation: {base}{made}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )?;
    }
}

/// The status, what was made, and what is said.
fn answer(path: &str, base: &str, proves: bool) -> (u16, &'static str, Value) {
    let order = json!({
        "status": if proves { "ready" } else { "pending" },
        "authorizations": [format!("{base}/authorization")],
        "finalize": format!("{base}/finalize"),
    });
    match path {
        "/directory" => {
            let at = |what: &str| format!("{base}/{what}");
            let all =
                json!({ "newNonce": at("nonce"), "newAccount": at("account"), "newOrder": at("new-order") });
            (200, "", all)
        }
        "/account" => (201, "/account/1", json!({})),
        "/new-order" => (201, "/order", order),
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
        let mut observed = driver.observe(&unit, &desired).await.expect("it is looked at");
        for step in driver.steps(&desired, &observed) {
            driver.apply(&unit, &step, &mut observed).await.expect("the process goes on");
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
