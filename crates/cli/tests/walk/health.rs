//! Health checks of every kind, and ejection of members that fail without one.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{
    backends::{Backend, Datagrams, Talk, Web},
    harness::{Seaway, Setup, own_address, until},
    manifests::Service,
};

fn is(seaway: &Seaway, at: SocketAddr, state: &str) {
    until(&format!("{at} is {state}"), || seaway.member(at)["state"] == state);
}

#[test]
fn an_http_check_heeds_path_host_and_status() {
    let (backend, web) = (Backend::start("a"), Web::start("a"));
    web.answer(204);
    let service = |statuses: &str| {
        Service::tcp("shop", 8080)
            .with("health-check-path", "/healthz?deep=1")
            .with("health-check-host", "shop.example")
            .with("health-check-status", statuses)
            .with("health-check-port", &web.at.port().to_string())
            .with("health-check-interval", "50ms")
            .with("health-check-timeout", "1m")
            .with("health-check-fall", "2")
            .with("health-check-rise", "2")
            .to(backend.at)
            .text()
    };
    let seaway = Setup::new().write("shop.yaml", &service("200-299")).start();
    until("it was asked", || web.last_request().contains("GET /healthz?deep=1 HTTP/1."));
    assert!(
        web.last_request().to_lowercase().contains("\r\nhost: shop.example\r\n"),
        "{}",
        web.last_request()
    );
    is(&seaway, backend.at, "up");
    for wrong in [302, 503] {
        web.answer(wrong);
        is(&seaway, backend.at, "down");
        assert!(Talk::open(seaway.at(8080)).is_err(), "nobody is usable");
        let member = seaway.member(backend.at);
        let told = member["lastError"].to_string();
        assert!(told.contains(&wrong.to_string()), "{told}");
        assert!(member["check"]["failures"].as_u64() >= Some(2), "it is down after two: {member}");
        web.answer(200);
        is(&seaway, backend.at, "up");
        assert!(Talk::open(seaway.at(8080)).is_ok());
    }
    web.answer(302);
    is(&seaway, backend.at, "down");
    seaway.folder.write("shop.yaml", &service("200-399"));
    is(&seaway, backend.at, "up");
}

#[test]
fn a_udp_check_expects_its_answer() {
    let right = Arc::new(AtomicBool::new(true));
    let says = right.clone();
    let backend = Datagrams::answering(move |question| match question {
        b"ping" if says.load(Ordering::Relaxed) => b"pong 1".to_vec(),
        b"ping" => b"what?".to_vec(),
        _ => b"data".to_vec(),
    });
    let service = Service::udp("dns", 5353)
        .with("health-check", "udp")
        .with("health-check-send", "ping")
        .with("health-check-expect", "pong")
        .with("health-check-interval", "50ms")
        .with("health-check-timeout", "2s")
        .with("health-check-fall", "2")
        .to(backend.at);
    let seaway = Setup::new().write("dns.yaml", &service.text()).start();
    is(&seaway, backend.at, "up");
    right.store(false, Ordering::Relaxed);
    is(&seaway, backend.at, "down");
    right.store(true, Ordering::Relaxed);
    is(&seaway, backend.at, "up");
}

#[test]
fn a_udp_member_whose_port_is_dead_is_noticed_without_an_expected_answer() {
    let backend = Datagrams::start("a");
    // Nobody else takes a port there.
    let dead = SocketAddr::new(own_address().into(), 7_000);
    let service = Service::udp("dns", 5353)
        .with("health-check", "udp")
        .with("health-check-send", "x")
        .with("health-check-interval", "50ms")
        .with("health-check-timeout", "200ms")
        .with("health-check-fall", "2")
        .to(backend.at)
        .to(dead);
    let seaway = Setup::new().write("dns.yaml", &service.text()).start();
    is(&seaway, dead, "down");
    is(&seaway, backend.at, "up");
}

#[test]
fn no_check_is_made_where_none_is_wanted() {
    let backend = Backend::start("a");
    let service = Service::tcp("shop", 8080).with("health-check", "none").to(backend.at);
    let seaway = Setup::new().write("shop.yaml", &service.text()).start();
    assert_eq!(seaway.member(backend.at)["state"], "unchecked");
    assert!(Talk::open(seaway.at(8080)).is_ok());
}

#[test]
fn a_new_member_serves_before_its_first_check_has_ended() {
    let backend = Backend::start("a");
    let service = Service::tcp("shop", 8080)
        .with("health-check-interval", "1h")
        .with("health-check-rise", "255")
        .to(backend.at);
    let seaway = Setup::new().write("shop.yaml", &service.text()).start();
    assert!(Talk::open(seaway.at(8080)).is_ok());
}

#[test]
fn a_member_that_refuses_is_ejected_though_nobody_checks_it_and_comes_back() {
    let stays = Backend::start("stays");
    let gone = Backend::start_at("gone", (own_address(), 7_000)).kill_and_tell();
    let service = Service::tcp("shop", 8080).with("health-check", "none").to(stays.at).to(gone);
    let seaway = Setup::new()
        .config("defaults: {passiveEjection: {failures: 2, eject: 300ms}}\n")
        .write("shop.yaml", &service.text())
        .start();
    until("it is ejected", || {
        // A member that does not answer costs its client nothing: another one does.
        assert_eq!(Talk::open(seaway.at(8080)).expect("redispatched").with, "stays");
        seaway.log().contains("2 failures in a row")
    });
    let _back = Backend::start_at("back", gone);
    until("it is used again", || Talk::open(seaway.at(8080)).is_ok_and(|it| it.with == "back"));
}
