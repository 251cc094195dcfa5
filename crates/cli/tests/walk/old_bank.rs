//! What the old HAProxy bank (service-loadbalancer) was accepted by, line by line, with its flags as they were:
//! `docs/from-service-loadbalancer.md` has the table.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener},
    sync::Arc,
    thread,
};

use rustls::{
    ServerConfig, ServerConnection, StreamOwned, pki_types::PrivateKeyDer, pki_types::pem::PemObject,
};
use serde_json::Value;

use crate::{
    backends::{Backend, Talk, Web},
    front_door::{Answer, ask},
    harness::{Folder, Seaway, Setup, path, run, stderr, stdout, until},
    namespace::{Outside, in_a_network_of_its_own},
    tls::{Pair, secure},
};

/// `seaway.yaml` as the flags say.
fn imported(flags: &[&str]) -> String {
    let output = run(&[&["import", "service-loadbalancer"], flags].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output)
}

/// What `seaway plan` says of these manifests under these flags.
fn planned(flags: &[&str], manifests: &str) -> Value {
    let folder = Folder::new();
    folder.write("all.yaml", manifests);
    let config = folder.config(&format!("host: {{addresses: [192.0.2.9]}}\n{}", imported(flags)));
    let (manifests, state) = (folder.manifests(), folder.state());
    let output = run(&[
        "plan",
        "-o",
        "json",
        "--config",
        path(&config),
        "--manifests",
        path(&manifests),
        "--state-dir",
        path(&state),
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn all<'v>(value: &'v Value, key: &str) -> impl Iterator<Item = &'v Value> {
    value[key].as_array().into_iter().flatten()
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// Where members of a pool are; `default/svc:80`.
fn members(plan: &Value, pool: &str) -> Vec<String> {
    let mut pools = all(plan, "services").flat_map(|it| all(it, "pools"));
    let pool = pools.find(|it| it["id"] == pool).unwrap_or_else(|| panic!("no {pool} in {plan:#}"));
    all(pool, "members").map(|it| text(&it["address"])).collect()
}

/// Each claim at the front door with the pool that it leads to, those below the namespace left out.
fn entrances(plan: &Value) -> Vec<(String, String)> {
    let leads = all(&plan["frontDoor"], "entrances").flat_map(|it| all(it, "leads"));
    let told = leads.map(|it| (text(&it["at"]), text(&it["to"])));
    told.filter(|(at, _)| !at.starts_with("/default/")).collect()
}

/// A Service with these `port: target` and those who answer for it, as they were written then.
fn service(name: &str, more: &str, ports: &[(u16, &str, u16)]) -> String {
    let (mut listed, mut answered) = (String::new(), String::new());
    for (port, target, at) in ports {
        listed += &format!("  - {{name: p{port}, port: {port}, targetPort: {target}}}\n");
        answered += &format!("  - {{name: p{port}, port: {at}}}\n");
    }
    format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n{more}  ports:\n{listed}---\napiVersion: v1\nkind: Endpoints\nmetadata: {{name: {name}}}\nsubsets:\n- addresses: [{{ip: 1.2.3.4}}, {{ip: 6.7.8.9}}]\n  ports:\n{answered}---\n"
    )
}

const PLAIN: &str = "spec:\n";

#[test]
fn every_port_has_both_addresses_whether_its_target_is_a_number_or_a_name() {
    let manifest = service("svc", PLAIN, &[(80, "80", 80), (443, "443", 443), (3306, "mysql", 3306)]);
    let plan = planned(&[], &manifest);
    for port in [80, 443, 3306] {
        let expected = ["1.2.3.4", "6.7.8.9"].map(|ip| format!("{ip}:{port}"));
        assert_eq!(members(&plan, &format!("default/svc:{port}")), expected);
    }
}

#[test]
fn a_port_of_tcp_services_has_a_listener_and_the_others_are_at_the_front_door() {
    let ports = [(10, "80", 80), (20, "443", 443)];
    let plan = planned(
        &["--tcp-services=svc1:20"],
        &(service("svc1", PLAIN, &ports) + &service("svc2", PLAIN, &ports)),
    );
    let claims = entrances(&plan);
    for (claim, pool) in
        [("/svc1:10", "default/svc1:10"), ("/svc2:10", "default/svc2:10"), ("/svc2:20", "default/svc2:20")]
    {
        assert!(claims.contains(&(claim.to_owned(), pool.to_owned())), "{claims:?}");
    }
    assert!(claims.iter().all(|(_, pool)| pool != "default/svc1:20"), "{claims:?}");
    for (pool, port) in
        [("default/svc1:10", 80), ("default/svc2:10", 80), ("default/svc2:20", 443), ("20/TCP", 443)]
    {
        let expected = ["1.2.3.4", "6.7.8.9"].map(|ip| format!("{ip}:{port}"));
        assert_eq!(members(&plan, pool), expected, "{pool}");
    }
    let exposed = all(&plan, "services").filter(|it| text(&it["owner"]).contains("tcpServices"));
    let listeners = exposed.flat_map(|it| all(it, "listeners"));
    let told: Vec<_> = listeners.map(|it| (text(&it["name"]), it["port"].as_u64())).collect();
    assert_eq!(told, [("default/svc1:p20".to_owned(), Some(20))]);
}

#[test]
fn two_services_have_four_entrances_and_the_balance_that_somebody_asked_for() {
    let annotated = |more: &str| format!("  annotations: {{{more}}}\nspec:\n");
    let by_service = annotated("serviceloadbalancer/lb.algorithm: leastconn");
    for (flags, first, balances) in [
        (&[][..], PLAIN, ["round-robin", "round-robin"]),
        (&["--balance-algorithm=leastconn"], PLAIN, ["least-connections", "least-connections"]),
        (&[], &by_service, ["least-connections", "round-robin"]),
        (&["--balance-algorithm=source"], &by_service, ["least-connections", "source-hash"]),
    ] {
        let ports = [(80, "80", 80), (443, "443", 443)];
        let plan = planned(flags, &(service("svc-1", first, &ports) + &service("svc-2", PLAIN, &ports)));
        let claims = entrances(&plan);
        for claim in ["/svc-1", "/svc-1:443", "/svc-2", "/svc-2:443"] {
            assert!(claims.iter().any(|(at, _)| at == claim), "{claim}: {claims:?}");
        }
        for (service, expected) in [("svc-1", balances[0]), ("svc-2", balances[1])] {
            let pools = all(&plan, "services").flat_map(|it| all(it, "pools"));
            let ours = pools.filter(|it| text(&it["id"]).starts_with(&format!("default/{service}:")));
            let told: Vec<String> = ours.map(|it| text(&it["balance"])).collect();
            assert_eq!(told, [expected, expected], "{service} under {flags:?}");
        }
    }
}

/// Behind the door with these two flags: the first of the two that answer, over and over.
fn visited(web: [&Web; 2], more: &str) -> Vec<Answer> {
    let setup = Setup::new();
    let ip = setup.ip;
    let endpoints = web.map(|it| {
        format!("- addresses: [{{ip: {}}}]\n  ports: [{{name: p80, port: {}}}]\n", it.at.ip(), it.at.port())
    });
    let manifest = service("svc", more, &[(80, "80", 80)]);
    let (start, _) = manifest.split_once("- addresses").expect("it has endpoints");
    let seaway = setup
        // Each worker has a turn of its own.
        .config(&format!("dataPlane: {{workers: 1}}\nfrontDoor: {{addresses: [{ip}], port: 8080}}\n"))
        .write("svc.yaml", &(start.to_owned() + &endpoints.concat()))
        .start();
    let mut cookie = String::new();
    (0..8)
        .map(|_| {
            let answer = ask(seaway.at(8080), "GET", "any.example/svc", &cookie);
            if let Some((given, _)) = answer.header("set-cookie").and_then(|it| it.split_once(';')) {
                cookie = format!("Cookie: {given}\r\n");
            }
            answer
        })
        .collect()
}

#[test]
fn a_client_keeps_its_member_by_address_or_by_cookie() {
    let (one, two) = (Web::start("one"), Web::start("two"));
    let names = |answers: &[Answer]| {
        let mut names: Vec<String> = answers.iter().map(|it| it.body.clone()).collect();
        names.sort();
        names.dedup();
        names
    };
    assert_eq!(names(&visited([&one, &two], PLAIN)), ["one", "two"], "nobody asked for it");
    assert_eq!(names(&visited([&one, &two], "spec:\n  sessionAffinity: ClientIP\n")).len(), 1);
    let sticky = "  annotations: {serviceloadbalancer/lb.cookie-sticky-session: \"true\"}\nspec:\n";
    let answers = visited([&one, &two], sticky);
    assert_eq!(names(&answers).len(), 1);
    assert!(answers[0].header("set-cookie").is_some_and(|it| it.starts_with("SERVERID=")), "{answers:?}");
}

/// A member that speaks TLS by itself, as nginx did.
fn https(pair: &Pair) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("it is bound");
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).expect("PEM");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("versions").with_no_client_auth().with_single_cert(vec![pair.der()], key);
    let config = Arc::new(config.expect("a certificate"));
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let connection = ServerConnection::new(config.clone()).expect("a server");
            let mut stream = StreamOwned::new(connection, stream);
            if stream.read(&mut [0; 4096]).is_ok() {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmine");
                let _ = stream.flush();
            }
        }
    });
    at
}

/// A Service whose ports each have a member of their own.
fn served(namespace: &str, name: &str, kind: &str, ports: &[(u16, SocketAddr)]) -> String {
    let mut listed = String::new();
    let mut answered = String::new();
    for (port, at) in ports {
        listed += &format!("  - {{name: p{port}, port: {port}}}\n");
        answered += &format!(
            "- addresses: [{{ip: {}}}]\n  ports: [{{name: p{port}, port: {}}}]\n",
            at.ip(),
            at.port()
        );
    }
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec:\n  type: {kind}\n  ports:\n{listed}---\napiVersion: v1\nkind: Endpoints\nmetadata: {{name: {name}, namespace: {namespace}}}\nsubsets:\n{answered}"
    )
}

#[test]
fn its_three_examples_are_served_on_the_ports_of_the_host() {
    in_a_network_of_its_own(|| {
        let outside = Outside::connect();
        let (nginx, ui, mysql) = (Web::start("nginx"), Web::start("ui"), Backend::start("mysql"));
        let pair = Pair::new(&["nginx.example"]);
        // The host's port 8080 led to the bank's 443.
        let config = imported(&["--tcp-services=mysql:3306,nginxsvc:443"])
            .replace("- nginxsvc:443", "- {service: nginxsvc, port: 443, listen: 8080}");
        let seaway = Setup::new()
            .finding_addresses()
            .config(&config)
            .write(
                "nginx.yaml",
                &served("default", "nginxsvc", "ClusterIP", &[(80, nginx.at), (443, https(&pair))]),
            )
            .write("mysql.yaml", &served("default", "mysql", "NodePort", &[(3306, mysql.at)]))
            .write("ui.yaml", &served("kube-system", "kube-ui", "ClusterIP", &[(80, ui.at)]))
            .start();
        let at = |port: u16| SocketAddr::from(([10, 9, 0, 1], port));
        let get = |url: &str| outside.run(|| ask(at(80), "GET", url, ""));
        for (url, status, body) in [
            ("10.9.0.1/nginxsvc", 200, "nginx"),
            ("10.9.0.1/kube-ui/", 200, "ui"),
            ("10.9.0.1/mysql", 404, ""),
        ] {
            let answer = get(url);
            assert_eq!(answer.status, status, "{url}");
            assert!(body.is_empty() || answer.body == body, "{url}: {answer:?}");
        }
        assert_eq!(get("10.9.0.1/nginxsvc:443").status, 404, "it is no route");
        let answer = outside.run(|| {
            let mut stream = secure(at(8080), "nginx.example", &pair).expect("its own certificate is shown");
            stream.write_all(b"GET / HTTP/1.1\r\nHost: nginx.example\r\n\r\n").expect("sent");
            let mut answer = Vec::new();
            // It ends without a farewell.
            let _ = stream.read_to_end(&mut answer);
            String::from_utf8(answer).expect("text")
        });
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("mine"), "{answer}");
        let said = outside.run(|| Talk::open(at(3306)).expect("MySQL speaks first").with.clone());
        assert_eq!(said, "mysql");
        assert!(seaway.problems().is_empty(), "{:?}", seaway.problems());
    });
}

/// With these flags, for what nobody wants.
fn unmatched(flags: &[&str], page: Option<&str>) -> (Seaway, Answer) {
    let setup = Setup::new();
    let ip = setup.ip;
    let config = imported(flags).replace("frontDoor:\n", &format!("frontDoor:\n  addresses: [{ip}]\n"));
    if let Some(page) = page {
        // What was a URL is fetched by whoever moves here, to where the comment says.
        std::fs::write(setup.folder.0.path().join("error-page.html"), page).expect("written");
    }
    let seaway = setup.config(&config).start();
    let mut answer = Answer::default();
    until("the door is open", || {
        answer = ask(seaway.at(8080), "GET", "any.example/nothing", "");
        answer.status != 0
    });
    (seaway, answer)
}

#[test]
fn what_nobody_wants_gets_the_page_and_the_code_that_were_asked_for() {
    let folder = Folder::new();
    let file = folder.0.path().join("page.html");
    std::fs::write(&file, "<p>from a file</p>").expect("written");
    let from_file = format!("--error-page=file://{}", path(&file));
    let open = "--http-port=8080";
    let (_seaway, answer) = unmatched(&[open, &from_file], None);
    assert_eq!((answer.status, answer.body.as_str()), (404, "<p>from a file</p>"));
    let from_url = ["--error-page=http://pages.example/error-page.html", open];
    let (_seaway, answer) = unmatched(&from_url, Some("<p>from a URL</p>"));
    assert_eq!((answer.status, answer.body.as_str()), (404, "<p>from a URL</p>"));
    let (_seaway, answer) = unmatched(&[open], None);
    assert_eq!((answer.status, answer.body.is_empty()), (404, false), "our own words");
    let (_seaway, answer) = unmatched(&[open, &from_file, "--default-return-code=200"], None);
    assert_eq!((answer.status, answer.body.as_str()), (200, "<p>from a file</p>"));
}

#[test]
fn a_page_that_is_not_there_is_told_before_anybody_is_served() {
    let folder = Folder::new();
    let config = folder.config(&imported(&["--error-page=file:///nowhere/page.html"]));
    let checked = run(&["config", "--check", path(&config)]);
    assert!(!checked.status.success());
    let told = stdout(&checked) + &stderr(&checked);
    assert!(told.contains("frontDoor.unmatched.page") && told.contains("/nowhere/page.html"), "{told}");
}
