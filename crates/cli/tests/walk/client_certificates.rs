//! Certificates of clients at the front door, host name by host name, asked for by curl in HTTP/1.1 and HTTP/2.

use std::{
    net::SocketAddr,
    path::Path,
    process::{Command, Stdio},
};

use crate::{
    backends::Web,
    harness::{run, until},
    manifests::Service,
    tls::{OPEN, Pair, TLS, with_door},
};

fn secret(name: &str, ca: &str) -> String {
    let ca: String = ca.lines().map(|line| format!("    {line}\n")).collect();
    format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\nstringData:\n  ca.crt: |\n{ca}")
}

/// One who asks by curl, with a certificate or without.
struct Curl<'f> {
    folder: &'f Path,
    at: SocketAddr,
}

impl Curl<'_> {
    fn write(&self, name: &str, pair: &Pair) {
        std::fs::write(self.folder.join(format!("{name}.crt")), pair.chain()).expect("written");
        std::fs::write(self.folder.join(format!("{name}.key")), &pair.key).expect("written");
    }

    /// The status of a request for `host` on a connection whose handshake names `sni`; 0: no handshake. By HTTP/2, the host is
    /// the request's `:authority`.
    fn ask(&self, version: &str, sni: &str, host: &str, own: Option<&str>) -> u16 {
        let (port, ip) = (self.at.port(), self.at.ip());
        let mut curl = Command::new("curl");
        curl.args([
            "-s",
            "-o",
            "/dev/null",
            "-w",
            "%{http_code} %{http_version}",
            "--max-time",
            "20",
            version,
        ]);
        curl.args(["--cacert", "server.crt", "--resolve", &format!("{sni}:{port}:{ip}")]);
        if let Some(own) = own {
            curl.args(["--cert", &format!("{own}.crt"), "--key", &format!("{own}.key")]);
        }
        curl.args(["-H", &format!("Host: {host}"), "-H", "Client-Cert: :forged:"]);
        curl.arg(format!("https://{sni}:{port}/x")).current_dir(self.folder);
        let output = curl.stderr(Stdio::null()).output().expect("curl is there");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let (status, spoken) = said.split_once(' ').expect("two figures");
        let wanted = if version == "--http2" { "2" } else { "1.1" };
        assert!(status == "000" || spoken == wanted, "{said}");
        status.parse().expect("a number")
    }
}

#[test]
fn no_host_name_lends_its_connection_to_one_that_asks_for_certificates() {
    let (web, open) = (Web::start("shop"), Web::start("open"));
    let folder = tempfile::tempdir().expect("a folder");
    let names = ["shop.example", "bank.example", "open.example", "x.vault.example"];
    let server = Pair::new(&names);
    let (client, other, stranger) = (Pair::authority(), Pair::authority(), Pair::authority());
    let asking = |name: &str, host: &str, ca: &str| {
        Service::web(name).with("host", host).with("client-authorities", ca).to(web.at).text()
    };
    let seaway = with_door("")
        .write("tls.yaml", &server.secret("tls"))
        .write("open.yaml", &Service::web("open").with("host", "open.example").to(open.at).text())
        .write("shop.yaml", &asking("shop", "shop.example", "clients"))
        .write("bank.yaml", &asking("bank", "bank.example", "others"))
        .write("vault.yaml", &asking("vault", "*.vault.example", "clients"))
        .write("clients.yaml", &secret("clients", client.chain()))
        .write("others.yaml", &secret("others", other.chain()))
        .start();
    let curl = Curl { folder: folder.path(), at: seaway.at(TLS) };
    for (name, pair) in [("server", &server), ("client", &client), ("other", &other), ("stranger", &stranger)]
    {
        curl.write(name, pair);
    }
    until("it is served", || curl.ask("--http1.1", "shop.example", "shop.example", Some("client")) == 200);
    let told = web.last_request().to_lowercase();
    assert!(told.contains("client-cert: :mii") && !told.contains("forged"), "{told}");
    for version in ["--http1.1", "--http2"] {
        for (sni, host, own, status) in [
            ("shop.example", "shop.example", Some("client"), 200),
            ("shop.example", "shop.example", None, 0),
            ("shop.example", "shop.example", Some("other"), 0),
            ("shop.example", "shop.example", Some("stranger"), 0),
            ("bank.example", "bank.example", Some("other"), 200),
            ("x.vault.example", "x.vault.example", Some("client"), 200),
            ("x.vault.example", "x.vault.example", None, 0),
            ("open.example", "open.example", None, 200),
            // The handshake names one host, and the request another.
            ("open.example", "shop.example", None, 421),
            ("open.example", "shop.example", Some("client"), 421),
            ("open.example", "SHOP.example.", Some("client"), 421),
            ("open.example", "x.vault.example", Some("client"), 421),
            ("bank.example", "shop.example", Some("other"), 421),
            ("shop.example", "bank.example", Some("client"), 421),
            ("shop.example", "open.example", Some("client"), 200),
            ("shop.example", "x.vault.example", Some("client"), 200),
        ] {
            assert_eq!(curl.ask(version, sni, host, own), status, "{version} {sni} {host} {own:?}");
        }
    }
    // What others have verified is told to nobody.
    curl.ask("--http2", "shop.example", "open.example", Some("client"));
    assert!(!open.last_request().to_lowercase().contains("client-cert"), "{}", open.last_request());
    // Over http, no request is served.
    let at = seaway.at(OPEN);
    let answer = crate::front_door::ask(at, "GET", "shop.example/x", "");
    assert!(answer.status == 308 && answer.head.contains("https://shop.example"), "{}", answer.head);
    // The authorities change: who was believed is not any more.
    seaway.folder.write("clients.yaml", &secret("clients", stranger.chain()));
    until("the others are believed", || {
        curl.ask("--http2", "shop.example", "shop.example", Some("stranger")) == 200
    });
    assert_eq!(curl.ask("--http2", "shop.example", "shop.example", Some("client")), 0);
    // One who asks for others at the same name comes too late, and is closed.
    seaway.folder.write("late.yaml", &asking("zlate", "shop.example/late", "others"));
    until("it is told", || seaway.has_problem("RouteConflict"));
    assert_eq!(curl.ask("--http1.1", "shop.example", "shop.example", Some("stranger")), 200);
    let checked = run(&["check", &seaway.folder.manifests().display().to_string()]);
    assert!(crate::harness::stdout(&checked).contains("503"), "{checked:?}");
}

/// Nothing is served, and what is answered does not look like a mistake of routing (421).
#[test]
fn a_secret_with_authorities_that_is_missing_is_503_and_a_problem_that_names_it() {
    let web = Web::start("shop");
    let folder = tempfile::tempdir().expect("a folder");
    let (server, client) = (Pair::new(&["shop.example"]), Pair::authority());
    let shop = Service::web("shop").with("host", "shop.example").with("client-authorities", "clients");
    let seaway = with_door("")
        .write("tls.yaml", &server.secret("tls"))
        .write("shop.yaml", &shop.to(web.at).text())
        .start();
    let curl = Curl { folder: folder.path(), at: seaway.at(TLS) };
    for (name, pair) in [("server", &server), ("client", &client)] {
        curl.write(name, pair);
    }
    let ask =
        |own| ["--http1.1", "--http2"].map(|version| curl.ask(version, "shop.example", "shop.example", own));
    until("it is answered", || ask(Some("client"))[0] == 503);
    assert_eq!((ask(Some("client")), ask(None)), ([503, 503], [503, 503]));
    let told = seaway.problems();
    let is_named = told.iter().any(|it| it.0 == "NoSuchSecret" && it.1.contains("clients"));
    assert!(is_named, "{told:?}");
    assert!(!web.last_request().contains("GET"), "{}", web.last_request());
    seaway.folder.write("clients.yaml", &secret("clients", client.chain()));
    until("it is served", || ask(Some("client")) == [200, 200]);
    assert_eq!(ask(None), [0, 0]);
}
