//! Host names that are proven by a record in DNS, which a real BIND takes by dynamic updates.

use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    thread,
};

use super::{Authority, authority_asking, problem};
use crate::{
    backends::Web,
    front_door::ask,
    harness::{Folder, Seaway, Setup, own_address, until},
    manifests::Service,
    tls::{OPEN, TLS, is_served, says},
};

const SECRET: &str = "c2Vhd2F5IHRlc3RzIHRoZSBzaWduYXR1cmVzIG9mIEROUw==";
/// Of somebody else, at the very name.
const THEIRS: &str = "\"theirs\"";

/// BIND with the zone shop.example, of which the key may change records of some names alone.
struct Bind {
    /// BIND listens at addresses that an interface has, so that each has another port.
    port: u16,
    folder: tempfile::TempDir,
    process: Child,
}

impl Bind {
    fn start() -> Option<Bind> {
        let named =
            ["/usr/sbin/named", "/usr/bin/named"].map(PathBuf::from).into_iter().find(|it| it.exists());
        let Some(named) = named else {
            seaway_testkit::skip(None, "BIND is not installed: sudo apt-get install bind9 bind9-dnsutils");
            return None;
        };
        let (port, folder) = (free_port(), tempfile::tempdir().expect("a folder"));
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("written");
        // The host names lead to where nothing listens: by HTTP, they could not be proven.
        let nowhere = own_address();
        write(
            "shop.zone",
            &format!(
                "$TTL 60\n@ SOA ns root 1 60 60 60 1\n@ NS ns\nns A 127.0.0.1\n@ A {nowhere}\n* A {nowhere}\n\
                 _acme-challenge TXT {THEIRS}\n_acme-challenge.alias CNAME elsewhere\n"
            ),
        );
        // It asks the root servers although it is not to ask anybody.
        write("hints", ". 60 NS ns.invalid.\nns.invalid. 60 A 127.0.0.1\n");
        let may = |name: &str| format!("grant seaway name _acme-challenge.{name}shop.example. TXT;");
        write(
            "named.conf",
            &format!(
                "options {{ directory \"{}\"; listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }};\n\
                 pid-file none; session-keyfile none; lock-file none; recursion no; notify no; dnssec-validation no; }};\n\
                 controls {{ }};\n\
                 key \"seaway\" {{ algorithm hmac-sha256; secret \"{SECRET}\"; }};\n\
                 zone \".\" {{ type hint; file \"hints\"; }};\n\
                 zone \"shop.example\" {{ type primary; file \"shop.zone\"; update-policy {{ {} {} {} }}; }};\n",
                folder.path().display(),
                may(""),
                may("www."),
                may("alias.")
            ),
        );
        let log = fs::File::create(folder.path().join("log")).expect("a log");
        let process = Command::new(named)
            .args(["-g", "-n", "1", "-c"])
            .arg(folder.path().join("named.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("BIND starts");
        let bind = Bind { port, folder, process };
        until("BIND answers", || bind.texts("_acme-challenge.shop.example") == [THEIRS]);
        Some(bind)
    }

    fn at(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// As DNS has them.
    fn texts(&self, name: &str) -> Vec<String> {
        let asked = Command::new("dig")
            .args([
                "@127.0.0.1",
                "-p",
                &self.port.to_string(),
                "+short",
                "+norecurse",
                "+time=1",
                "+tries=1",
                "TXT",
                name,
            ])
            .output()
            .expect("dig runs");
        let mut all: Vec<String> = String::from_utf8_lossy(&asked.stdout)
            .lines()
            .filter(|it| it.starts_with('"'))
            .map(Into::into)
            .collect();
        all.sort();
        all
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// A file with the secret, as that user has it.
    fn secret(&self, name: &str, text: &str, mode: u32) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
        path
    }

    fn settings(&self, authority: &Authority, ip: Ipv4Addr, key: &str, more: &str) -> String {
        let config = authority.config(ip);
        format!("{config}    dns:\n      server: {}\n      key: {key}\n{more}", self.at())
    }

    fn key(&self) -> String {
        let path = self.secret("tsig.key", SECRET, 0o600);
        format!("{{name: seaway, algorithm: hmac-sha256, secretFile: {}}}", path.display())
    }
}

impl Drop for Bind {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        if thread::panicking() {
            eprintln!("--- log of BIND ---\n{}", self.log());
        }
    }
}

/// Outside of the range in which the kernel chooses ports for others.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut all = std::iter::repeat_with(|| NEXT.fetch_add(1, Ordering::Relaxed));
    let port = |count: u32| 20_000 + ((std::process::id() * 16 + count) % 12_000) as u16;
    let is_free = |port: &u16| {
        let at = (Ipv4Addr::LOCALHOST, *port);
        UdpSocket::bind(at).is_ok() && TcpListener::bind(at).is_ok()
    };
    all.by_ref().take(1_000).map(port).find(is_free).expect("a port is free")
}

fn launch(folder: &Arc<Folder>, ip: Ipv4Addr, config: &str) -> Seaway {
    Setup::again(folder.clone(), ip).config(config).start()
}

fn at_hosts(web: &Web, hosts: &str) -> String {
    Service::web("shop").with("host", hosts).to(web.at).text()
}

#[test]
fn a_wildcard_and_its_name_are_proven_by_records_of_which_none_stays_and_no_other_is_touched() {
    let Some(bind) = Bind::start() else { return };
    let Some(authority) = authority_asking(3600, Some(bind.at()), false) else { return };
    let (web, ip, folder) = (Web::start("shop"), own_address(), Arc::new(Folder::new()));
    folder.write("shop.yaml", &at_hosts(&web, "shop.example,*.shop.example"));
    let config = bind.settings(&authority, ip, &bind.key(), "    challenge: dns-01\n");
    let seaway = launch(&folder, ip, &config);
    let (secure, root) = (seaway.at(TLS), authority.root());
    until("both are served by https", || {
        is_served(secure, "shop.example", &root) && is_served(secure, "any.shop.example", &root)
    });
    until("what was added is removed", || bind.texts("_acme-challenge.shop.example") == [THEIRS]);
    until("that they were removed is told", || {
        seaway.log().matches("a record was removed from DNS").count() == 2
    });
    let log = seaway.log();
    assert_eq!(log.matches("a record was added to DNS").count(), 2);
    assert_eq!((problem(&seaway), authority.orders()), (None, 2));
    assert!(!log.contains(SECRET) && !says(&folder.state(), SECRET), "the secret is in its file alone");
    until("nothing is written down any more", || {
        fs::read_dir(folder.state().join("acme-dns")).expect("a folder").next().is_none()
    });
    let redirected = ask(seaway.at(OPEN), "GET", "any.shop.example/", "");
    assert_eq!(redirected.status, 308, "http is sent on once there is a certificate");
    assert!(seaway.stop().success());
    let seaway = launch(&folder, ip, &config);
    until("what is stored is served", || is_served(seaway.at(TLS), "any.shop.example", &root));
    assert_eq!(authority.orders(), 2, "what is stored is not ordered again");
}

#[test]
fn a_record_of_a_killed_process_is_removed_by_the_next_one_which_orders_nothing() {
    let Some(bind) = Bind::start() else { return };
    let Some(authority) = authority_asking(3600, Some(bind.at()), false) else { return };
    let (web, ip, folder) = (Web::start("shop"), own_address(), Arc::new(Folder::new()));
    folder.write("shop.yaml", &at_hosts(&web, "*.shop.example"));
    // It takes questions and answers none, so that the order is under way for long.
    let silent = UdpSocket::bind((own_address(), 0)).expect("bound");
    let more = format!("      secondaries: [\"{}\"]\n", silent.local_addr().expect("an address"));
    let config = bind.settings(&authority, ip, &bind.key(), &more);
    let mut seaway = launch(&folder, ip, &config);
    until("the record is added", || bind.texts("_acme-challenge.shop.example").len() == 2);
    seaway.signal(nix::sys::signal::Signal::SIGKILL);
    seaway.wait();
    drop(seaway);
    assert_eq!(bind.texts("_acme-challenge.shop.example").len(), 2, "it could not remove it");

    folder.remove("shop.yaml");
    let without = format!("frontDoor:\n  addresses: [\"{ip}\"]\n  port: {OPEN}\n");
    let seaway = launch(&folder, ip, &without);
    until("the record is removed", || bind.texts("_acme-challenge.shop.example") == [THEIRS]);
    assert!(seaway.stop().success());

    // A clean stop removes what its orders have added.
    folder.write("shop.yaml", &at_hosts(&web, "*.shop.example"));
    for file in fs::read_dir(folder.state().join("acme")).expect("a folder").map_while(Result::ok) {
        let _ = fs::remove_file(file.path().join("wildcard+shop.example.failed"));
    }
    let seaway = launch(&folder, ip, &config);
    until("the record is added again", || bind.texts("_acme-challenge.shop.example").len() == 2);
    assert!(seaway.stop().success());
    assert_eq!(bind.texts("_acme-challenge.shop.example"), [THEIRS]);
}

#[test]
fn an_authority_that_does_not_see_the_record_ends_the_order_and_the_record_goes() {
    let Some(bind) = Bind::start() else { return };
    // It asks a server that has no such record.
    let Some(authority) = authority_asking(3600, None, false) else { return };
    let (web, ip, folder) = (Web::start("shop"), own_address(), Arc::new(Folder::new()));
    folder.write("shop.yaml", &at_hosts(&web, "*.shop.example"));
    let config = bind.settings(&authority, ip, &bind.key(), "");
    let seaway = launch(&folder, ip, &config);
    until("why there is no certificate is told", || problem(&seaway).is_some());
    until("the record is removed", || bind.texts("_acme-challenge.shop.example") == [THEIRS]);
    assert!(seaway.log().contains("a record was added to DNS"));
    assert_eq!(authority.orders(), 1);
}

#[test]
fn what_the_name_server_refuses_is_told_and_costs_the_authority_little() {
    let Some(bind) = Bind::start() else { return };
    let Some(authority) = authority_asking(3600, Some(bind.at()), false) else { return };
    let web = Web::start("shop");
    let open = bind.secret("open.key", SECRET, 0o644);
    let other = bind.secret("other.key", "b3RoZXI=", 0o600);
    let key = |name: &str, file: &std::path::Path| {
        format!("{{name: {name}, algorithm: hmac-sha256, secretFile: {}}}", file.display())
    };
    let sha512 = bind.key().replace("sha256", "sha512");
    for (host, key, expected, orders) in [
        ("*.shop.example", key("seaway", &open), format!("Type: chmod 600 {}", open.display()), 0),
        (
            "*.shop.example",
            key("nobody", &other),
            "does not know the key nobody with hmac-sha256".to_owned(),
            1,
        ),
        ("*.shop.example", sha512, "does not know the key seaway with hmac-sha512".to_owned(), 1),
        ("*.shop.example", key("seaway", &other), "(BADSIG)".to_owned(), 1),
        ("*.cart.shop.example", bind.key(), "must allow this to the key seaway (REFUSED)".to_owned(), 1),
        ("*.alias.shop.example", bind.key(), "is an alias (CNAME)".to_owned(), 1),
        ("*.other.example", bind.key(), "(REFUSED)".to_owned(), 1),
    ] {
        let (ip, folder, before) = (own_address(), Arc::new(Folder::new()), authority.orders());
        folder.write("shop.yaml", &at_hosts(&web, host));
        let seaway = launch(&folder, ip, &bind.settings(&authority, ip, &key, ""));
        until("why there is no certificate is told", || problem(&seaway).is_some());
        let told = problem(&seaway).expect("a Problem");
        assert!(told.contains(&expected), "{host}: {told}");
        assert_eq!(authority.orders() - before, orders, "{host}: {told}");
        assert!(seaway.stop().success());
    }
    assert_eq!(bind.texts("_acme-challenge.shop.example"), [THEIRS]);
    let zones = "      zones: [cart.example]\n";
    let (ip, folder) = (own_address(), Arc::new(Folder::new()));
    folder.write("shop.yaml", &at_hosts(&web, "*.shop.example"));
    let seaway = launch(&folder, ip, &bind.settings(&authority, ip, &bind.key(), zones));
    until("that its zone is not named is told", || {
        seaway.problems().iter().any(|it| {
            it.1.contains("*.shop.example") && it.1.contains("none of these zones contains the name")
        })
    });
}
