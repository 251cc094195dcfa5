//! What is served, and to whom.

use std::{collections::BTreeMap, net::UdpSocket};

use seaway_testkit::stopwatch::{Stopwatch, median};

use crate::{
    backends::{Backend, Datagrams, Talk, manifest, slices},
    harness::{PATIENCE, Setup, own_address, until},
};

#[test]
fn a_service_in_the_folder_is_served_by_all_of_its_endpoints() {
    let backends = ["a", "b", "c"].map(Backend::start);
    let all: Vec<_> = backends.iter().map(|it| it.at).collect();
    let seaway = Setup::new().write("shop.yaml", &manifest("shop", 8080, &[], &all)).start();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..60 {
        let mut talk = Talk::open(seaway.at(8080)).expect("served");
        talk.echo(b"hello").expect("echoed");
        *counts.entry(talk.with).or_default() += 1;
    }
    // Round robin is counted per worker, so the parts are about equal.
    assert_eq!(counts.len(), 3, "{counts:?}");
    assert!(counts.values().all(|count| *count >= 12), "{counts:?}");
    until("status.json says so", || seaway.status().to_string().contains(&seaway.ip.to_string()));
}

#[test]
fn an_endpoint_that_is_added_is_served_within_100_ms_most_times_and_no_connection_is_dropped() {
    let (first, second) = (Backend::start("first"), Backend::start("second"));
    let seaway = Setup::new().write("shop.yaml", &manifest("shop", 8080, &[], &[first.at])).start();
    let mut long = Talk::open(seaway.at(8080)).expect("served");
    let mut took = Vec::new();
    for turn in 0..9 {
        let watch = Stopwatch::of(seaway.child.id());
        seaway.folder.write("shop.yaml", &manifest("shop", 8080, &[], &[first.at, second.at]));
        until("the new endpoint answers", || Talk::open(seaway.at(8080)).is_ok_and(|it| it.with == "second"));
        took.push(watch.elapsed());
        seaway.folder.write("shop.yaml", &manifest("shop", 8080, &[], &[first.at]));
        until("the old one alone answers", || {
            (0..4).all(|_| Talk::open(seaway.at(8080)).is_ok_and(|it| it.with == "first"))
        });
        long.echo(format!("turn {turn}").as_bytes()).expect("the long connection goes on");
    }
    assert!(median(took.clone()).as_millis() <= 100, "{took:?}");
}

#[test]
fn udp_is_balanced_by_flow_and_answered_from_the_address_that_was_asked() {
    let (a, b) = (Datagrams::start("a"), Datagrams::start("b"));
    let text = "apiVersion: v1\nkind: Service\nmetadata: {name: dns}\nspec:\n  type: LoadBalancer\n  ports:\n  - {name: main, port: 5353, protocol: UDP}\n".to_owned();
    let seaway = Setup::new().write("dns.yaml", &(text + &slices("dns", "UDP", &[a.at, b.at]))).start();
    let mut who = BTreeMap::new();
    for _ in 0..20 {
        let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
        client.connect(seaway.at(5353)).expect("an address");
        client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let mut names = Vec::new();
        for _ in 0..3 {
            client.send(b"question").expect("sent");
            let mut answer = [0; 64];
            let count = client.recv(&mut answer).expect("answered from where it was asked");
            names.push(String::from_utf8_lossy(&answer[..count]).into_owned());
        }
        assert!(names.windows(2).all(|pair| pair[0] == pair[1]), "one flow, one member: {names:?}");
        *who.entry(names.remove(0)).or_insert(0) += 1;
    }
    assert_eq!(who.len(), 2, "{who:?}");
}

#[test]
fn a_backend_that_is_killed_is_noticed_and_comes_back() {
    // At an address of its own, nobody takes its port before it is back.
    let stays = Backend::start("stays");
    let dies = Backend::start_at("dies", (own_address(), 7_000));
    let quick = [("seaway.dev/health-check-interval", "100ms"), ("seaway.dev/health-check-fall", "2")];
    let seaway =
        Setup::new().write("shop.yaml", &manifest("shop", 8080, &quick, &[stays.at, dies.at])).start();
    let at = dies.at;
    dies.kill();
    until("it is told to be down", || seaway.get("/state").is_ok_and(|(_, text)| text.contains("\"down\"")));
    for _ in 0..20 {
        assert_eq!(Talk::open(seaway.at(8080)).expect("served").with, "stays");
    }
    let _back = Backend::start_at("back", at);
    until("it is used again", || Talk::open(seaway.at(8080)).is_ok_and(|it| it.with == "back"));
    let log = seaway.log();
    assert_eq!(
        log.lines().filter(|line| line.contains(&at.to_string()) && line.contains("to=\"down\"")).count(),
        1,
        "{log}"
    );
}

#[test]
fn a_service_without_members_resets_instead_of_hanging() {
    let seaway = Setup::new().write("shop.yaml", &manifest("shop", 8080, &[], &[])).start();
    let error = Talk::open(seaway.at(8080)).expect_err("nobody is there");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    let backend = Backend::start("late");
    seaway.folder.write("shop.yaml", &manifest("shop", 8080, &[], &[backend.at]));
    until("somebody is there", || Talk::open(seaway.at(8080)).is_ok());
}

#[test]
fn a_client_keeps_its_member_with_session_affinity() {
    let backends = ["a", "b", "c", "d"].map(Backend::start);
    let all: Vec<_> = backends.iter().map(|it| it.at).collect();
    let text = manifest("shop", 8080, &[], &all)
        .replace("  type: LoadBalancer", "  type: LoadBalancer\n  sessionAffinity: ClientIP");
    let seaway = Setup::new().write("shop.yaml", &text).start();
    let first = Talk::open(seaway.at(8080)).expect("served").with;
    for _ in 0..40 {
        assert_eq!(Talk::open(seaway.at(8080)).expect("served").with, first);
    }
}

#[test]
fn who_is_outside_of_the_source_ranges_is_refused() {
    let backend = Backend::start("a");
    let text = |range: &str| manifest("shop", 8080, &[("seaway.dev/source-ranges", range)], &[backend.at]);
    let seaway = Setup::new().write("shop.yaml", &text("192.0.2.0/24")).start();
    assert!(Talk::open(seaway.at(8080)).is_err());
    seaway.folder.write("shop.yaml", &text("127.0.0.0/8"));
    until("we are allowed", || Talk::open(seaway.at(8080)).is_ok());
}

#[test]
fn a_port_of_the_configuration_is_served_without_a_load_balancer_service() {
    let backend = Backend::start("mysql");
    let text = manifest("mysql", 3306, &[], &[backend.at]).replace("type: LoadBalancer", "type: ClusterIP");
    let config = "tcpServices:\n- mysql:3306\n- {service: mysql, port: main, listen: 13306}\n";
    let seaway = Setup::new().config(config).write("mysql.yaml", &text).start();
    for port in [3306, 13306] {
        assert_eq!(Talk::open(seaway.at(port)).expect("served").with, "mysql");
    }
}
