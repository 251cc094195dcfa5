//! The front door: many Services behind one listener, by path and by host name.

use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
};

use nix::sys::signal::Signal;

use crate::{
    backends::Web,
    harness::{Folder, PATIENCE, Seaway, Setup, path, run, stdout, until},
    manifests::Service,
    namespace::{Outside, in_a_network_of_its_own},
};

/// Where the doors of these tests are, each on an address of its own.
const PORT: u16 = 8080;

/// What a client gets.
#[derive(Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }
}

/// Asks for `host/path`, with more lines of a head.
pub(crate) fn ask(at: SocketAddr, method: &str, url: &str, more: &str) -> Answer {
    let (host, path) = url.split_at(url.find('/').unwrap_or(url.len()));
    let asked = || -> std::io::Result<Answer> {
        let mut stream = TcpStream::connect_timeout(&at, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{more}\r\n")?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split_whitespace().nth(1).and_then(|it| it.parse().ok()).unwrap_or(0);
        Ok(Answer { status, head: head.to_owned(), body: body.trim().to_owned() })
    };
    asked().unwrap_or_default()
}

fn get(seaway: &Seaway, url: &str) -> Answer {
    ask(seaway.at(PORT), "GET", url, "")
}

/// A door on the test's own address, with more keys.
pub(crate) fn with_door(more: &str) -> Setup {
    let setup = Setup::new();
    let ip = setup.ip;
    setup.config(&door(ip.into(), more))
}

fn door(ip: IpAddr, more: &str) -> String {
    format!("frontDoor:\n  addresses: [\"{ip}\"]\n  port: {PORT}\n{more}")
}

/// The first line that a member was sent: `GET /cart HTTP/1.1`.
fn asked_for(web: &Web) -> String {
    web.last_request().lines().next().unwrap_or_default().to_owned()
}

#[test]
fn services_are_reached_by_their_names_and_namespaces_and_see_paths_without_them() {
    let (cart, one, two) = (Web::start("cart"), Web::start("one"), Web::start("two"));
    let seaway = with_door("")
        .write("cart.yaml", &Service::web("cart").to(cart.at).text())
        .write("one.yaml", &Service::web("web").within("one").to(one.at).text())
        .write("two.yaml", &Service::web("web").within("two").to(two.at).text())
        .start();
    for (url, name, seen) in [
        ("any.example/cart", "cart", "/"),
        ("any.example/cart/", "cart", "/"),
        ("any.example/cart/items?of=me", "cart", "/items?of=me"),
        ("any.example/cart:80/x", "cart", "/x"),
        ("any.example/default/cart/x", "cart", "/x"),
        ("any.example/web/x", "one", "/x"),
        ("any.example/one/web/x", "one", "/x"),
        ("any.example/two/web/x", "two", "/x"),
        ("any.example/two/web:80/x", "two", "/x"),
    ] {
        let answer = get(&seaway, url);
        assert_eq!((answer.status, answer.body.as_str()), (200, name), "{url}");
        let web = [&cart, &one, &two].into_iter().find(|it| asked_for(it) == format!("GET {seen} HTTP/1.1"));
        assert!(web.is_some(), "{url}: {:?}", [asked_for(&cart), asked_for(&one), asked_for(&two)]);
    }
    for url in ["any.example/", "any.example/carts", "any.example/three/web", "any.example/cart:81"] {
        assert_eq!(get(&seaway, url).status, 404, "{url}");
    }
}

#[test]
fn host_names_lead_to_a_service_exactly_or_by_their_end() {
    let (shop, all) = (Web::start("shop"), Web::start("all"));
    let seaway = with_door("")
        .write("shop.yaml", &Service::web("shop").with("host", "shop.example").to(shop.at).text())
        .write("all.yaml", &Service::web("all").with("host", "*.shop.example").to(all.at).text())
        .start();
    for (url, expected) in [
        ("shop.example/", "shop"),
        ("SHOP.example:8080/cart?x", "shop"),
        ("eu.shop.example/", "all"),
        ("a.eu.shop.example/", "all"),
    ] {
        assert_eq!(get(&seaway, url).body, expected, "{url}");
    }
    assert_eq!(asked_for(&shop), "GET /cart?x HTTP/1.1", "paths of a host stay whole");
    assert_eq!(get(&seaway, "example/").status, 404);
}

#[test]
fn a_host_with_a_path_leads_to_a_service_at_that_path_of_that_host_alone() {
    let web = Web::start("web");
    let service = Service::web("web").with("host", "shop.example/api");
    let seaway = with_door("").write("web.yaml", &service.to(web.at).text()).start();
    for url in ["shop.example/api", "shop.example/api/", "SHOP.example:8080/api/cart?x"] {
        let answer = get(&seaway, url);
        assert_eq!((answer.status, answer.body.as_str()), (200, "web"), "{url}");
    }
    assert_eq!(asked_for(&web), "GET /api/cart?x HTTP/1.1", "paths of a host stay whole");
    for url in [
        "other.example/api",
        "www.shop.example/api",
        "shop.example/",
        "shop.example/apis",
        "shop.example/web",
        "any.example/web",
        "any.example/default/web",
    ] {
        assert_eq!(get(&seaway, url).status, 404, "{url}");
    }
    assert_eq!(seaway.problems(), []);
}

#[test]
fn of_two_that_claim_the_same_the_older_has_it_until_it_goes() {
    let (old, new) = (Web::start("old"), Web::start("new"));
    let born = |name: &str, web: &Web, year: u16| {
        let text = Service::web(name).with("host", "shop.example").to(web.at).text();
        text.replacen("metadata:", &format!("metadata:\n  creationTimestamp: {year}-01-01T00:00:00Z"), 1)
    };
    let seaway = with_door("")
        .write("a-new.yaml", &born("a-new", &new, 2025))
        .write("z-old.yaml", &born("z-old", &old, 2020))
        .start();
    assert_eq!(get(&seaway, "shop.example/").body, "old");
    until("the younger is told who has it", || {
        seaway.problems().iter().any(|(reason, message, place)| {
            reason == "RouteConflict"
                && message.contains("shop.example/ leads to Service default/z-old already, which is older")
                && place.contains("a-new.yaml")
        })
    });
    assert_eq!(get(&seaway, "other.example/a-new").body, "new", "and is served where it is alone");
    seaway.folder.remove("z-old.yaml");
    until("the younger gets it", || get(&seaway, "shop.example/").body == "new");
    until("and has no problem any more", || !seaway.has_problem("RouteConflict"));
}

#[test]
fn a_service_that_comes_and_goes_is_served_and_missed_at_once() {
    let seaway = with_door("  enabled: true\n").start();
    assert_eq!(get(&seaway, "any.example/web").status, 404);
    let web = Web::start("web");
    seaway.folder.write("web.yaml", &Service::web("web").to(web.at).text());
    until("it is served", || get(&seaway, "any.example/web").status == 200);
    seaway.folder.write("web.yaml", &Service::web("web").text());
    until("nobody is behind it", || get(&seaway, "any.example/web").status == 503);
    seaway.folder.remove("web.yaml");
    until("it is gone", || get(&seaway, "any.example/web").status == 404);
}

#[test]
fn the_configuration_says_what_is_stripped_and_what_the_unmatched_get() {
    let web = Web::start("web");
    let setup = with_door("  stripPrefix: false\n  unmatched: {code: 410, page: gone.html}\n");
    let (folder, ip) = (setup.folder.clone(), setup.ip);
    std::fs::write(folder.0.path().join("gone.html"), "<p>long gone</p>").expect("written");
    let seaway = setup.write("web.yaml", &Service::web("web").to(web.at).text()).start();
    assert_eq!(get(&seaway, "any.example/web/x").status, 200);
    assert_eq!(asked_for(&web), "GET /web/x HTTP/1.1");
    let gone = get(&seaway, "any.example/");
    assert_eq!((gone.status, gone.body.as_str()), (410, "<p>long gone</p>"));
    assert!(gone.header("content-type").is_some_and(|it| it.starts_with("text/html")), "{gone:?}");

    let text = format!("host:\n  name: edge-1\n  addresses: [{ip}]\n{}", door(ip.into(), ""));
    folder.config(&text);
    seaway.signal(Signal::SIGHUP);
    until("the new configuration holds", || get(&seaway, "any.example/").status == 404);
    assert_eq!(get(&seaway, "any.example/web/x").status, 200);
    assert_eq!(asked_for(&web), "GET /x HTTP/1.1");
}

#[test]
fn a_load_balancer_that_speaks_http_has_its_own_listener_and_may_change_its_mind() {
    let web = Web::start("web");
    let service = |said: &str| Service::tcp("shop", 8081).with("protocol", said).to(web.at).text();
    let seaway = Setup::new().write("shop.yaml", &service("http")).start();
    let asked = || ask(seaway.at(8081), "GET", "any.example/x", "");
    assert_eq!((asked().status, asked().body.as_str()), (200, "web"));
    assert!(web.last_request().to_lowercase().contains("x-forwarded-for: "), "{}", web.last_request());
    seaway.folder.write("shop.yaml", &service("tcp"));
    until("bytes are passed on as they are", || {
        asked();
        !web.last_request().to_lowercase().contains("x-forwarded-for: ")
    });
}

#[test]
fn a_port_that_somebody_else_has_is_a_problem_of_the_door_alone() {
    let (web, other) = (Web::start("web"), Web::start("other"));
    let setup = with_door("");
    let taken = TcpListener::bind((setup.ip, PORT)).expect("it is free");
    let seaway = setup
        .write("web.yaml", &Service::web("web").to(web.at).text())
        .write("other.yaml", &Service::tcp("other", 8081).to(other.at).text())
        .start();
    until("it is told", || {
        seaway.problems().iter().any(|it| it.0 == "PortInUse" && it.1.contains(&format!("{PORT}/TCP")))
    });
    assert_eq!(ask(seaway.at(8081), "GET", "any.example/", "").body, "other", "others are served");
    assert!(seaway.get("/ready").is_ok_and(|(status, _)| status == 200));
    drop(taken);
    until("it opens by itself", || get(&seaway, "any.example/web").status == 200);
    until("and has no problem any more", || !seaway.has_problem("PortInUse"));
}

#[test]
fn plan_check_and_explain_tell_who_is_there_and_who_came_too_late() {
    let folder = Folder::new();
    let at: SocketAddr = "127.0.0.1:9".parse().expect("an address");
    let web = |namespace| Service::web("web").within(namespace).to(at).text();
    folder.write("one.yaml", &web("one"));
    folder.write("two.yaml", &web("two"));
    folder.write("cart.yaml", &Service::web("cart").with("host", "shop.example").to(at).text());
    let manifests = folder.manifests();
    let asked = |arguments: &[&str]| stdout(&run(arguments));

    let table = asked(&["plan", "--manifests", path(&manifests)]);
    for part in [
        "The front door, at [::]:80 0.0.0.0:80:",
        "Service default/cart  default/cart:80  1        /cart /default/cart /cart:80 /default/cart:80 shop.example/",
        "Service two/web       two/web:80       1        /two/web /two/web:80\n",
        "Service two/web is not routed /web /web:80: Service one/web claimed it first",
    ] {
        assert!(table.contains(part), "{part} is missing:\n{table}");
    }
    let json: serde_json::Value =
        serde_json::from_str(&asked(&["plan", "--manifests", path(&manifests), "-o", "json"]))
            .expect("it is JSON");
    let entrances = json["frontDoor"]["entrances"].as_array().expect("a list");
    let two = entrances.iter().find(|it| it["object"]["namespace"] == "two").expect("it is there");
    assert_eq!(two["leads"][0]["at"], "/two/web");
    assert_eq!(two["lost"][0]["at"], serde_json::json!(["/web", "/web:80"]));

    let checked = run(&["check", path(&manifests)]);
    assert_eq!(checked.status.code(), Some(1));
    let told = stdout(&checked);
    assert!(
        told.contains(
            "two.yaml:4:3: Service two/web: metadata.name: /web, /web:80 lead to Service one/web already"
        ),
        "{told}"
    );

    folder.write("some.yaml", &Service::web("some").with("source-ranges", "192.0.2.0/24").to(at).text());
    let explained = asked(&["explain", "some", "--manifests", path(&manifests)]);
    assert!(explained.contains("  /some  leads to default/some:80, only for 192.0.2.0/24\n"), "{explained}");
    let explained = asked(&["explain", "two/web", "--manifests", path(&manifests)]);
    for part in [
        "Front door, at [::]:80, 0.0.0.0:80:",
        "  /two/web  leads to two/web:80",
        "  /web, /web:80  leads to Service one/web instead",
        "Members of two/web:80: round-robin",
        "  127.0.0.1:9  listed as ready",
    ] {
        assert!(explained.contains(part), "{part} is missing:\n{explained}");
    }
    folder.write("own.yaml", &Service::tcp("own", 8080).to(at).text());
    let outside = asked(&["explain", "own", "--manifests", path(&manifests)]);
    assert!(outside.contains("not at the front door: the Service has an address of its own"), "{outside}");
}

#[test]
fn by_default_it_is_on_all_addresses_beside_services_with_addresses_of_their_own() {
    in_a_network_of_its_own(|| {
        let outside = Outside::connect();
        let (web, own) = (Web::start("web"), Web::start("own"));
        let pool = "apiVersion: seaway.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: public}\nspec: {addresses: [192.0.2.5]}\n";
        let seaway = Setup::new()
            .finding_addresses()
            .config("frontDoor: {}\n")
            .write("pool.yaml", pool)
            .write("web.yaml", &Service::web("web").to(web.at).text())
            .write("own.yaml", &Service::tcp("own", 80).to(own.at).text())
            .start();
        for (at, expected) in [("10.9.0.1:80", "web"), ("[fd00:9::1]:80", "web"), ("192.0.2.5:80", "own")] {
            let at: SocketAddr = at.parse().expect("an address");
            let answer = || outside.run(|| ask(at, "GET", "any.example/web", ""));
            until(&format!("{expected} answers at {at}"), || answer().body == expected);
        }
        assert!(seaway.problems().is_empty(), "{:?}", seaway.problems());
    });
}

#[test]
fn who_may_not_have_port_80_is_told_what_to_do_and_serves_the_rest() {
    in_a_network_of_its_own(|| {
        let (web, other) = (Web::start("web"), Web::start("other"));
        let seaway = Setup::new()
            .by(&["setpriv", "--bounding-set=-net_bind_service", "--inh-caps=-all"])
            .config("frontDoor: {}\n")
            .write("web.yaml", &Service::web("web").to(web.at).text())
            .write("other.yaml", &Service::tcp("other", 8081).to(other.at).text())
            .start();
        until("it is told", || seaway.has_problem("NotPermitted"));
        let fixes = seaway.state()["problems"].to_string();
        assert!(fixes.contains("frontDoor: {port: 8080}"), "{fixes}");
        assert_eq!(ask(seaway.at(8081), "GET", "any.example/", "").body, "other", "others are served");
    });
}

#[test]
fn clients_outside_of_the_source_ranges_of_a_service_get_403_at_its_paths_alone() {
    let (some, all) = (Web::start("some"), Web::start("all"));
    let seaway = with_door("  trusted: [127.0.0.0/8]\n")
        .write(
            "some.yaml",
            &Service::web("some")
                // At its name, though a route that protects leads to it.
                .with("front-door", "true")
                .with("source-ranges", "192.0.2.0/24")
                .with("denied-source-ranges", "192.0.2.7")
                .to(some.at)
                .text(),
        )
        .write("all.yaml", &Service::web("all").to(all.at).text())
        .write(
            "route.yaml",
            "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\n\
             metadata: {name: open, annotations: {seaway.dev/source-ranges: 0.0.0.0/0}}\n\
             spec: {rules: [{matches: [{path: {value: /by-route}}], backendRefs: [{name: some, port: 80}]}]}\n",
        )
        .start();
    let status =
        |path: &str, told: &str| ask(seaway.at(PORT), "GET", &format!("any.example{path}"), told).status;
    for (path, told, expected) in [
        ("/some", "", 403),
        ("/some", "X-Forwarded-For: 192.0.2.9\r\n", 200),
        ("/some", "X-Forwarded-For: 192.0.2.9, 198.51.100.1\r\n", 403),
        ("/some", "X-Forwarded-For: 192.0.2.7\r\n", 403),
        ("/by-route", "", 403),
        ("/by-route", "X-Forwarded-For: 192.0.2.9\r\n", 200),
        ("/all", "", 200),
    ] {
        assert_eq!(status(path, told), expected, "{path} {told}");
    }
    assert!(seaway.problems().is_empty(), "{:?}", seaway.problems());
    let (_, metrics) = seaway.get("/metrics").unwrap();
    let refused =
        |it: &str| it.starts_with("seaway_refused_total") && it.contains("\"source\"") && it.ends_with(" 4");
    assert!(metrics.lines().any(refused), "{metrics}");
}

#[test]
fn a_client_that_asks_too_often_gets_429_and_others_are_served() {
    let web = Web::start("web");
    let limited = Service::web("web")
        .with("requests-per-second-per-client", "1")
        .with("requests-burst-per-client", "3")
        .with("rate-limit-key", "header:X-Api-Key");
    let seaway = with_door("").write("web.yaml", &limited.to(web.at).text()).start();
    let status =
        |key: &str| ask(seaway.at(PORT), "GET", "any.example/web", &format!("X-Api-Key: {key}\r\n")).status;
    assert_eq!([status("one"), status("one"), status("one")], [200; 3]);
    until("it has asked too often", || status("one") == 429);
    assert_eq!(status("two"), 200);
    assert!(seaway.problems().is_empty(), "{:?}", seaway.problems());
    let counted = |it: &str| it.starts_with("seaway_refused_total") && it.contains("\"client-rate\"");
    let (_, metrics) = seaway.get("/metrics").unwrap();
    let count =
        metrics.lines().find(|it| counted(it)).and_then(|it| it.rsplit(' ').next()?.parse::<u64>().ok());
    assert!(count.is_some_and(|it| it > 0), "{metrics}");
}

#[test]
fn requests_and_their_answers_are_counted_for_people_and_scrapers() {
    let cart = Web::start("cart");
    let seaway = with_door("").write("cart.yaml", &Service::web("cart").to(cart.at).text()).start();
    for url in ["any.example/cart", "any.example/cart/x", "any.example/nothing"] {
        get(&seaway, url);
    }
    let counted = || {
        let listener = seaway.listener(PORT);
        (listener["http"]["requests"].as_u64(), listener["http"]["answers"]["2xx"].as_u64())
    };
    until("three requests are counted", || counted() == (Some(3), Some(2)));
    let member = seaway.member(cart.at);
    assert_eq!((&member["http"]["requests"], &member["http"]["answers"]["2xx"]), (&2.into(), &2.into()));
    let (_, metrics) = seaway.get("/metrics").unwrap();
    assert!(metrics.contains("seaway_http_requests_total 3"), "{metrics}");
    assert!(metrics.contains(r#"seaway_http_answers_total{status="4xx"} 1"#), "{metrics}");
    let (_, csv) = seaway.get("/;csv").unwrap();
    assert!(csv.contains(",http,"), "{csv}");
}
