//! What can be asked of HTTP beside where it leads: by annotations, and by the configuration.

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::{
    backends::Web,
    front_door::{Answer, ask, with_door},
    harness::{Seaway, Setup, until},
    manifests::Service,
};

/// Where the doors of these tests are.
const PORT: u16 = 8080;

fn get(seaway: &Seaway, url: &str, more: &str) -> Answer {
    ask(seaway.at(PORT), "GET", url, more)
}

#[test]
fn a_client_keeps_its_member_by_a_cookie_through_changes_and_restarts() {
    let names = ["one", "two", "three"];
    let webs = names.map(Web::start);
    let at = webs.each_ref().map(|it| it.at);
    let service = Service::web("shop").with("sticky-cookie", "true").all_to(&at);
    let setup = with_door("").write("shop.yaml", &service.text());
    let (folder, ip) = (setup.folder.clone(), setup.ip);
    let seaway = setup.start();
    let first = get(&seaway, "any.example/shop/x", "");
    let told = first.header("set-cookie").expect("a newcomer gets a cookie").to_owned();
    let (cookie, rest) = told.split_once("; ").expect("with what holds for it");
    assert!(cookie.starts_with("SERVERID=") && !cookie.contains("127."), "{cookie}");
    assert_eq!(rest, "Path=/shop; HttpOnly; SameSite=Lax");
    let with_it = format!("Cookie: {cookie}\r\n");
    let stays = |seaway: &Seaway| {
        for _ in 0..6 {
            let answer = get(seaway, "any.example/shop/y", &with_it);
            assert_eq!((answer.body.as_str(), answer.header("set-cookie")), (first.body.as_str(), None));
        }
    };
    stays(&seaway);
    let restarted = Setup::again(folder, ip);
    assert!(seaway.stop().success());
    let ip = restarted.ip;
    let door = format!("frontDoor:\n  addresses: [\"{ip}\"]\n  port: {PORT}\n");
    let seaway = restarted.config(&door).start();
    stays(&seaway);
    let others = names.iter().zip(at).filter(|(name, _)| **name != first.body);
    let others: Vec<_> = others.map(|(_, at)| at).collect();
    let without = Service::web("shop").with("sticky-cookie", "true").all_to(&others);
    seaway.folder.write("shop.yaml", &without.text());
    until("another answers, and says so", || {
        let answer = get(&seaway, "any.example/shop/y", &with_it);
        answer.body != first.body && answer.header("set-cookie").is_some()
    });
}

#[test]
fn a_body_is_as_long_as_the_door_or_the_service_says() {
    let (small, large) = (Web::start("small"), Web::start("large"));
    let seaway = with_door("  limits: {body: 10}\n")
        .write("small.yaml", &Service::web("small").to(small.at).text())
        .write("large.yaml", &Service::web("large").with("max-body-size", "1Ki").to(large.at).text())
        .start();
    for (url, length, status) in
        [("a/small", 10, 200), ("a/small", 11, 413), ("a/large", 1024, 200), ("a/large", 1025, 413)]
    {
        let more = format!("Content-Length: {length}\r\n\r\n{}", "b".repeat(length - 2));
        // The empty line that ends the head of others ends the body of this one.
        assert_eq!(ask(seaway.at(PORT), "POST", url, &more).status, status, "{url} {length}");
    }
}

#[test]
fn who_asked_for_what_is_written_down_and_begun_anew_after_a_hang_up() {
    let web = Web::start("web");
    let setup = with_door("accessLog: {format: json, to: access.log}\n")
        .write("web.yaml", &Service::web("web").to(web.at).text());
    let folder = setup.folder.clone();
    let path = folder.0.path().join("access.log");
    let lines = |count: usize| -> Vec<Value> {
        let read = || std::fs::read_to_string(&path).unwrap_or_default();
        until("the lines are there", || read().lines().count() >= count);
        read().lines().map(|line| serde_json::from_str(line).expect("an object")).collect()
    };
    let seaway = setup.start();
    get(&seaway, "shop.example/web/x?y", "User-Agent: walker\r\n");
    get(&seaway, "shop.example/none", "");
    let written = lines(2);
    let found = written.iter().find(|it| it["target"] == "/web/x?y").expect("the first");
    for (key, value) in [
        ("host", "shop.example"),
        ("user_agent", "walker"),
        ("pool", "default/web:80"),
        ("member", &web.at.to_string()),
    ] {
        assert_eq!(found[key], value, "{key}: {found}");
    }
    assert!(written.iter().any(|it| it["status"] == 404 && it["target"] == "/none"), "{written:?}");
    std::fs::rename(&path, folder.0.path().join("access.log.1")).expect("renamed");
    seaway.signal(Signal::SIGHUP);
    // Until then, a request may still be written into the old file.
    until("it is begun anew", || seaway.log().contains("configuration reloaded"));
    assert!(path.exists(), "there is a new file");
    get(&seaway, "shop.example/web/after", "");
    assert_eq!(lines(1)[0]["target"], "/web/after");
    let (_, metrics) = seaway.get("/metrics").expect("it answers");
    assert!(metrics.contains("seaway_access_log_lost_total 0"), "nothing was lost");
}
