//! Certificates that the front door orders itself, from a real ACME server (rig/pebble) that checks host names over the network.

mod dns;
mod entrances;
mod tls_alpn;

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use crate::{
    backends::Web,
    front_door::ask,
    harness::{Folder, Seaway, Setup, own_address, until},
    manifests::Service,
    tls::{OPEN, Pair, TLS, ask_with_any_certificate, get, is_served, say, says},
};

const DIRECTORY: u16 = 14_000;
const MANAGEMENT: u16 = 15_000;
const DNS: u16 = 8_053;
const NAMES: u16 = 8_055;
const EXTERNAL_KEY: &str = "c2Vhd2F5LXRlc3RzLWFjY291bnRzLWJvdW5kLXRvLW90aGVycw";

/// A certificate authority, and the DNS server that it asks.
struct Authority {
    programs: PathBuf,
    ip: Ipv4Addr,
    own: Pair,
    folder: tempfile::TempDir,
    /// Answers all names, where no other DNS server is asked.
    names: Option<Child>,
    asks: SocketAddr,
    pebble: Child,
}

/// Starts one that certifies for so many seconds, or says why there is none.
fn authority(life: u32) -> Option<Authority> {
    authority_asking(life, None, false)
}

/// It asks that DNS server, or one that answers all names alike; and may want accounts that were made elsewhere.
fn authority_asking(life: u32, asks: Option<SocketAddr>, bound: bool) -> Option<Authority> {
    let Some(programs) = std::env::var_os("SEAWAY_PEBBLE").map(PathBuf::from) else {
        seaway_testkit::skip(None, "SEAWAY_PEBBLE names no folder with Pebble; rig/pebble/install builds it");
        return None;
    };
    let ip = own_address();
    let folder = tempfile::tempdir().expect("a folder");
    let own = Pair::new(&[&ip.to_string()]);
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("written");
        path
    };
    file("key.pem", &own.key);
    file("ca.pem", own.chain());
    file(
        "pebble.json",
        &serde_json::json!({"pebble": {
            "externalAccountBindingRequired": bound,
            "externalAccountMACKeys": {"kid-1": EXTERNAL_KEY},
            "listenAddress": format!("{ip}:{DIRECTORY}"),
            "managementListenAddress": format!("{ip}:{MANAGEMENT}"),
            "certificate": folder.path().join("ca.pem"),
            "privateKey": folder.path().join("key.pem"),
            "httpPort": OPEN,
            "tlsPort": TLS,
            "keyAlgorithm": "ecdsa",
            "profiles": {"default": {"description": "for tests", "validityPeriod": life}},
        }})
        .to_string(),
    );
    let names = asks.is_none().then(|| {
        Command::new(programs.join("pebble-challtestsrv"))
            .args(["-http01", "", "-https01", "", "-doh", "", "-tlsalpn01", "", "-defaultIPv6", ""])
            .args(["-dnsserver", &format!("{ip}:{DNS}"), "-management", &format!("{ip}:{NAMES}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the DNS server starts")
    });
    let asks = asks.unwrap_or(SocketAddr::from((ip, DNS)));
    let pebble = start_pebble(&programs, &folder, asks);
    let authority = Authority { programs, ip, own, folder, names, asks, pebble };
    authority.wait();
    Some(authority)
}

fn start_pebble(programs: &std::path::Path, folder: &tempfile::TempDir, asks: SocketAddr) -> Child {
    let log =
        fs::OpenOptions::new().create(true).append(true).open(folder.path().join("log")).expect("a log");
    Command::new(programs.join("pebble"))
        .arg("-config")
        .arg(folder.path().join("pebble.json"))
        .args(["-dnsserver", &asks.to_string()])
        // It looks at once, refuses some requests as an authority may, and forgets what was proven.
        .envs([("PEBBLE_VA_NOSLEEP", "1"), ("PEBBLE_WFE_NONCEREJECT", "20"), ("PEBBLE_AUTHZREUSE", "0")])
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(Stdio::null())
        .spawn()
        .expect("Pebble starts")
}

impl Authority {
    fn wait(&self) {
        until("the authority answers", || {
            get((self.ip, DIRECTORY).into(), &self.ip.to_string(), "/dir", &self.own).is_ok()
        });
        if self.names.is_some() {
            until("the DNS server answers", || std::net::TcpStream::connect((self.ip, NAMES)).is_ok());
        }
    }

    /// Whom its certificates are signed by; another one after each start.
    fn root(&self) -> Pair {
        let at = SocketAddr::from((self.ip, MANAGEMENT));
        let answer = get(at, &self.ip.to_string(), "/roots/0", &self.own).expect("it answers");
        Pair::of(answer.split_once("\r\n\r\n").expect("a body").1)
    }

    /// All names lead there.
    fn lead_to(&self, ip: Ipv4Addr) {
        let body = format!("{{\"ip\": \"{ip}\"}}");
        let at = SocketAddr::from((self.ip, NAMES));
        let (status, _) =
            crate::harness::request(at, "POST", "/set-default-ipv4", &body).expect("the DNS server answers");
        assert_eq!(status, 200);
    }

    /// The first certificate of this PEM is to be renewed now.
    fn asks_to_renew(&self, pem: &str) {
        let window = serde_json::json!({"suggestedWindow": {
            "start": "2020-01-01T00:00:00Z", "end": "2020-01-02T00:00:00Z"
        }});
        let body = serde_json::json!({"Certificate": pem, "ARIResponse": window.to_string()}).to_string();
        let head = format!(
            "POST /set-renewal-info/ HTTP/1.1\r\nHost: a\r\nUser-Agent: test\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let at = SocketAddr::from((self.ip, MANAGEMENT));
        let answer = say(at, &self.ip.to_string(), &(head + &body), &self.own).expect("it answers");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    fn orders(&self) -> usize {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default().matches("Added order").count()
    }

    fn stop(&mut self) {
        let _ = self.pebble.kill();
        let _ = self.pebble.wait();
    }

    fn start(&mut self) {
        self.pebble = start_pebble(&self.programs, &self.folder, self.asks);
        self.wait();
    }

    fn config(&self, ip: Ipv4Addr) -> String {
        format!(
            "frontDoor:\n  addresses: [\"{ip}\"]\n  port: {OPEN}\n  tls: {{port: {TLS}, redirect: true}}\n  acme:\n    email: ops@shop.example\n    directory: https://{}:{DIRECTORY}/dir\n    authorities: {}\n",
            self.ip,
            self.folder.path().join("ca.pem").display()
        )
    }
}

impl Drop for Authority {
    fn drop(&mut self) {
        for child in [&mut self.pebble].into_iter().chain(&mut self.names) {
            let _ = child.kill();
            let _ = child.wait();
        }
        if thread::panicking() {
            eprintln!(
                "--- log of Pebble ---\n{}",
                fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
            );
        }
    }
}

fn shop(web: &Web) -> String {
    Service::web("shop").with("host", "shop.example").to(web.at).text()
}

fn start(folder: &Arc<Folder>, ip: Ipv4Addr, authority: &Authority) -> Seaway {
    Setup::again(folder.clone(), ip).config(&authority.config(ip)).start()
}

fn problem(seaway: &Seaway) -> Option<String> {
    seaway.problems().into_iter().find(|it| it.0 == "CertificateOrder").map(|it| it.1)
}

#[test]
fn a_host_name_is_served_by_https_with_no_certificate_given_and_renewed_without_a_lost_request() {
    let Some(authority) = authority(12) else { return };
    let (web, ip, folder) = (Web::start("shop"), own_address(), Arc::new(Folder::new()));
    authority.lead_to(ip);
    folder.write("shop.yaml", &shop(&web));
    let seaway = start(&folder, ip, &authority);
    let (open, secure, root) = (seaway.at(OPEN), seaway.at(TLS), authority.root());
    until("it is served by https", || is_served(secure, "shop.example", &root));
    assert_eq!(problem(&seaway), None);
    let redirected = ask(open, "GET", "shop.example/cart", "");
    assert_eq!(
        (redirected.status, redirected.header("location")),
        (308, Some("https://shop.example:8443/cart"))
    );
    // Two thirds of its life later, without anybody doing anything.
    let (lost, done) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let client = thread::spawn({
        let (lost, done) = (lost.clone(), done.clone());
        move || {
            let mut asked = 0;
            while !done.load(Ordering::Relaxed) {
                asked += 1;
                if !is_served(secure, "shop.example", &root) {
                    lost.fetch_add(1, Ordering::Relaxed);
                }
                thread::sleep(Duration::from_millis(20));
            }
            asked
        }
    });
    until("it is renewed", || seaway.log().matches("a certificate was issued").count() >= 2);
    done.store(true, Ordering::Relaxed);
    let asked = client.join().expect("it asked");
    assert_eq!(lost.load(Ordering::Relaxed), 0, "of {asked}");
    let answer = ask(open, "GET", "shop.example/.well-known/acme-challenge/x", "");
    assert_eq!(answer.status, 308, "nothing is answered for the authority any more");
    assert!(!seaway.log().contains("PRIVATE KEY"));
    assert!(
        says(&folder.state().join("acme"), "PRIVATE KEY"),
        "keys are in the state folder, and there alone"
    );
    assert!(!says(&folder.state().join("last-good"), "PRIVATE KEY"));
}

/// Long before two thirds of its life: the authority knows why, and hears which certificate is replaced.
#[test]
fn a_certificate_is_renewed_early_when_its_authority_asks_for_it() {
    let Some(authority) = authority(240) else { return };
    let (web, ip, folder) = (Web::start("shop"), own_address(), Arc::new(Folder::new()));
    authority.lead_to(ip);
    folder.write("shop.yaml", &shop(&web));
    let seaway = start(&folder, ip, &authority);
    let root = authority.root();
    until("it is served by https", || is_served(seaway.at(TLS), "shop.example", &root));
    assert!(seaway.stop().success());
    // As when it is about to be revoked.
    let stored: Vec<PathBuf> = fs::read_dir(folder.state().join("acme"))
        .expect("a folder")
        .map_while(Result::ok)
        .map(|it| it.path().join("shop.example.pem"))
        .filter(|it| it.exists())
        .collect();
    assert_eq!(stored.len(), 1);
    authority.asks_to_renew(&fs::read_to_string(&stored[0]).expect("read"));
    let seaway = start(&folder, ip, &authority);
    until("it is known", || {
        seaway.log().contains("the authority says when the certificate is to be renewed")
    });
    until("it is renewed", || seaway.log().contains("a certificate was issued"));
    assert_eq!(authority.orders(), 2);
    let log = fs::read_to_string(authority.folder.path().join("log")).expect("a log");
    assert_eq!(log.matches("is a replacement of").count(), 1, "it hears what is replaced");
    assert!(is_served(seaway.at(TLS), "shop.example", &root));
    assert_eq!(problem(&seaway), None);
}

#[test]
fn an_account_is_bound_to_one_that_was_made_elsewhere() {
    let Some(authority) = authority_asking(3600, None, true) else { return };
    let (web, ip, folder) = (Web::start("shop"), own_address(), Arc::new(Folder::new()));
    authority.lead_to(ip);
    folder.write("shop.yaml", &shop(&web));
    let seaway = start(&folder, ip, &authority);
    until("that it wants one is told", || {
        problem(&seaway).is_some_and(|it| it.contains("set frontDoor.acme.externalAccount"))
    });
    assert!(seaway.stop().success());
    fs::remove_dir_all(folder.state().join("acme")).expect("forgotten");
    let file = authority.folder.path().join("eab.key");
    fs::write(&file, EXTERNAL_KEY).expect("written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("set");
    let config = authority.config(ip);
    let config = format!("{config}    externalAccount: {{keyId: kid-1, hmacFile: {}}}\n", file.display());
    let seaway = Setup::again(folder.clone(), ip).config(&config).start();
    let root = authority.root();
    until("it is served by https", || is_served(seaway.at(TLS), "shop.example", &root));
    assert!(!seaway.log().contains(EXTERNAL_KEY) && !says(&folder.state(), EXTERNAL_KEY));
}

#[test]
fn a_name_that_leads_elsewhere_is_told_and_not_asked_for_again_by_a_restart() {
    let Some(authority) = authority(3600) else { return };
    let (web, ip, folder) = (Web::start("shop"), own_address(), Arc::new(Folder::new()));
    // Nothing listens there.
    authority.lead_to(own_address());
    folder.write("shop.yaml", &shop(&web));
    let seaway = start(&folder, ip, &authority);
    until("why there is no certificate is told", || problem(&seaway).is_some());
    let told = problem(&seaway).expect("a Problem");
    assert!(told.starts_with("no certificate was issued: ") && told.contains("refused"), "{told}");
    assert_eq!(ask(seaway.at(OPEN), "GET", "shop.example/", "").body, "shop", "http goes on");
    assert_eq!(authority.orders(), 1);
    assert!(seaway.stop().success());

    let seaway = start(&folder, ip, &authority);
    until("it is still told", || problem(&seaway).is_some());
    assert_eq!(authority.orders(), 1, "five failures in an hour are too many for an authority");
    assert!(seaway.stop().success());

    // Mended, and said so.
    authority.lead_to(ip);
    let failed: Vec<PathBuf> = fs::read_dir(folder.state().join("acme"))
        .expect("a folder")
        .map_while(Result::ok)
        .map(|it| it.path().join("shop.example.failed"))
        .filter(|it| it.exists())
        .collect();
    assert_eq!(failed.len(), 1);
    fs::remove_file(&failed[0]).expect("removed");
    let seaway = start(&folder, ip, &authority);
    let root = authority.root();
    until("it is served", || is_served(seaway.at(TLS), "shop.example", &root));
    assert_eq!((problem(&seaway), authority.orders()), (None, 2));
    assert!(seaway.stop().success());

    let seaway = start(&folder, ip, &authority);
    until("what is stored is served", || is_served(seaway.at(TLS), "shop.example", &root));
    assert_eq!(authority.orders(), 2, "what is stored is not ordered again");
}

#[test]
fn an_authority_that_is_away_keeps_nothing_from_being_served() {
    let Some(mut authority) = authority(6) else { return };
    let (web, ip, folder) = (Web::start("shop"), own_address(), Arc::new(Folder::new()));
    authority.lead_to(ip);
    authority.stop();
    folder.write("shop.yaml", &shop(&web));
    let seaway = start(&folder, ip, &authority);
    until("that it is away is told", || problem(&seaway).is_some_and(|it| it.contains("cannot be reached")));
    assert_eq!(ask(seaway.at(OPEN), "GET", "shop.example/", "").body, "shop");
    assert!(seaway.stop().success());

    authority.start();
    let root = authority.root();
    fs::remove_dir_all(folder.state().join("acme")).expect("forgotten");
    let seaway = start(&folder, ip, &authority);
    until("it is served by https", || is_served(seaway.at(TLS), "shop.example", &root));
    authority.stop();
    until("that it was not renewed is told", || {
        problem(&seaway)
            .is_some_and(|it| it.starts_with("the certificate was not renewed, and the previous one"))
    });
    let last_good = ask_with_any_certificate(seaway.at(TLS), "shop.example").expect("served").0;
    until("it has ended", || !is_served(seaway.at(TLS), "shop.example", &root));
    assert_eq!(ask(seaway.at(OPEN), "GET", "shop.example/", "").status, 308);
    // Who does not look at the dates is served by the last good one.
    let (shown, answer) = ask_with_any_certificate(seaway.at(TLS), "shop.example").expect("served");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(shown == last_good, "another certificate is shown");
}

#[test]
fn a_certificate_is_never_ordered_for_a_name_that_only_clients_ask_for() {
    let Some(authority) = authority(3600) else { return };
    let (web, ip, folder) = (Web::start("shop"), own_address(), Arc::new(Folder::new()));
    authority.lead_to(ip);
    folder.write("shop.yaml", &shop(&web));
    let seaway = start(&folder, ip, &authority);
    let (open, secure, root) = (seaway.at(OPEN), seaway.at(TLS), authority.root());
    until("it is served by https", || is_served(secure, "shop.example", &root));
    assert!(!is_served(secure, "other.example", &root), "it has no certificate");
    for path in ["/", "/.well-known/acme-challenge/x"] {
        assert_ne!(ask(open, "GET", &format!("other.example{path}"), "").status, 200, "{path}");
    }
    // A Service that comes now is certified after whatever else was begun before.
    let second = Service::web("second").with("host", "second.example").to(web.at);
    folder.write("second.yaml", &second.text());
    until("the second is served by https", || is_served(secure, "second.example", &root));
    let log = fs::read_to_string(authority.folder.path().join("log")).expect("a log");
    assert!(log.contains("second.example") && !log.contains("other.example"), "{log}");
    assert_eq!(authority.orders(), 2);
}

#[test]
fn nothing_is_ordered_that_could_not_be_stored() {
    let Some(authority) = authority(3600) else { return };
    let (web, ip, folder) = (Web::start("shop"), own_address(), Arc::new(Folder::new()));
    authority.lead_to(ip);
    folder.write("shop.yaml", &shop(&web));
    fs::create_dir(folder.state()).expect("a folder");
    let in_the_way = folder.state().join("acme");
    fs::write(&in_the_way, "").expect("written");
    let seaway = start(&folder, ip, &authority);
    until("why nothing is ordered is told", || {
        problem(&seaway).is_some_and(|it| it.contains("the state folder cannot be written"))
    });
    assert_eq!(authority.orders(), 0);
    assert_eq!(ask(seaway.at(OPEN), "GET", "shop.example/", "").body, "shop");
}

#[test]
fn an_authority_that_never_answers_delays_neither_the_start_nor_the_end() {
    let (web, ip, folder) = (Web::start("shop"), own_address(), Arc::new(Folder::new()));
    // It accepts, and says nothing.
    let silent = std::net::TcpListener::bind((ip, DIRECTORY)).expect("bound");
    let accepted = Arc::new(AtomicU32::new(0));
    thread::spawn({
        let (accepted, silent) = (accepted.clone(), silent.try_clone().expect("cloned"));
        move || {
            let mut kept = Vec::new();
            while let Ok((stream, _)) = silent.accept() {
                accepted.fetch_add(1, Ordering::Relaxed);
                kept.push(stream);
            }
        }
    });
    for number in 0..20 {
        let host = format!("s{number}.example");
        folder.write(
            &format!("s{number}.yaml"),
            &Service::web(&format!("s{number}")).with("host", &host).to(web.at).text(),
        );
    }
    let config = format!(
        "frontDoor:\n  addresses: [\"{ip}\"]\n  port: {OPEN}\n  tls: {{port: {TLS}}}\n  acme: {{directory: 'https://{ip}:{DIRECTORY}/dir'}}\n"
    );
    let seaway = Setup::again(folder.clone(), ip).config(&config).start();
    until("it is asked", || accepted.load(Ordering::Relaxed) > 0);
    let began = std::time::Instant::now();
    assert!(seaway.stop().success());
    // One request is given up after 20 s, and there are twenty names.
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    let failed = |it: &std::path::Path| it.extension().is_some_and(|it| it == "failed");
    let left = fs::read_dir(folder.state().join("acme")).expect("a folder").map_while(Result::ok);
    let left = left.flat_map(|it| fs::read_dir(it.path()).expect("a folder")).map_while(Result::ok);
    let left: Vec<PathBuf> = left.map(|it| it.path()).filter(|it| failed(it)).collect();
    assert!(left.is_empty(), "what the end cut short is nobody's failure: {left:?}");
}
