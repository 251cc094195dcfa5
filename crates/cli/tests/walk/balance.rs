//! Each way to balance, as clients see it.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use crate::{
    backends::{Backend, Talk},
    harness::{Seaway, Setup, own_address, until},
    manifests::Service,
};

/// What turns are counted by: then they are exact.
const ONE_WORKER: &str = "dataPlane: {workers: 1}\n";

fn four() -> (Vec<Backend>, Vec<SocketAddr>) {
    let backends: Vec<Backend> = ["a", "b", "c", "d"].map(Backend::start).into();
    let all = backends.iter().map(|it| it.at).collect();
    (backends, all)
}

fn counts(seaway: &Seaway, times: usize) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for _ in 0..times {
        *counts.entry(Talk::open(seaway.at(8080)).expect("served").with).or_default() += 1;
    }
    counts
}

fn idle(seaway: &Seaway, at: SocketAddr) {
    until("nobody is connected to it", || seaway.member(at)["sessions"]["current"] == 0);
}

#[test]
fn round_robin_gives_everybody_the_same() {
    let (_backends, all) = four();
    let service = Service::tcp("shop", 8080).with("balance", "round-robin").all_to(&all);
    let seaway = Setup::new().config(ONE_WORKER).write("shop.yaml", &service.text()).start();
    let counts = counts(&seaway, 40);
    assert!(counts.len() == 4 && counts.values().all(|it| *it == 10), "{counts:?}");
}

#[test]
fn a_slice_that_weighs_three_gets_three_times_as_many_and_one_that_weighs_nothing_none() {
    let (_backends, all) = four();
    let service =
        Service::tcp("shop", 8080).weighing(1, all[0]).weighing(3, all[1]).weighing(0, all[2]).to(all[3]);
    let seaway = Setup::new().config(ONE_WORKER).write("shop.yaml", &service.text()).start();
    let counts = counts(&seaway, 50);
    assert_eq!(counts, [("a", 10), ("b", 30), ("d", 10)].map(|(name, it)| (name.to_owned(), it)).into());
}

#[test]
fn random_of_two_reaches_everybody_about_as_often() {
    let (_backends, all) = four();
    let service = Service::tcp("shop", 8080).with("balance", "random-two").all_to(&all);
    let seaway = Setup::new().write("shop.yaml", &service.text()).start();
    let counts = counts(&seaway, 200);
    // 50 each, and a spread of 6 or so; whoever is emptier of two is preferred.
    assert!(counts.len() == 4 && counts.values().all(|it| (20..=85).contains(it)), "{counts:?}");
}

#[test]
fn random_of_two_prefers_the_emptier() {
    let (_backends, all) = four();
    let service = Service::tcp("shop", 8080).with("balance", "random-two");
    let setup = Setup::new().write("shop.yaml", &service.clone().to(all[0]).text());
    let seaway = setup.start();
    let open = || Talk::open(seaway.at(8080)).expect("served");
    let _full: Vec<Talk> = (0..120).map(|_| open()).collect();
    seaway.folder.write("shop.yaml", &service.all_to(&all[..2]).text());
    until("the empty one is known", || !seaway.member(all[1]).is_null());
    // Unless both draws are of the full one, the empty one gets it: 300, and a spread of 9. By mere chance: 200.
    let on_b = (0..400).filter(|_| open().with == "b").count();
    assert!(on_b >= 250, "{on_b} of 400");
}

#[test]
fn least_connections_fills_up_whoever_has_fewest() {
    let (_backends, all) = four();
    let service = Service::tcp("shop", 8080).with("balance", "least-connections").all_to(&all[..2]);
    let seaway = Setup::new().write("shop.yaml", &service.text()).start();
    let mut kept: Vec<Talk> = (0..10).map(|_| Talk::open(seaway.at(8080)).expect("served")).collect();
    assert_eq!(kept.iter().filter(|it| it.with == "a").count(), 5);
    kept.retain(|it| it.with == "b");
    idle(&seaway, all[0]);
    // Four in a row: any other way would give some of them to b, which has five.
    let next: Vec<Talk> = (0..4).map(|_| Talk::open(seaway.at(8080)).expect("served")).collect();
    assert!(next.iter().all(|it| it.with == "a"));
}

#[test]
fn least_connections_counts_connections_by_weight() {
    let (_backends, all) = four();
    let service = Service::tcp("shop", 8080)
        .with("balance", "least-connections")
        .weighing(1, all[0])
        .weighing(4, all[1]);
    let seaway = Setup::new().write("shop.yaml", &service.text()).start();
    let kept: Vec<Talk> = (0..20).map(|_| Talk::open(seaway.at(8080)).expect("served")).collect();
    let on_a = kept.iter().filter(|it| it.with == "a").count();
    assert!((3..=5).contains(&on_a), "{on_a}");
}

#[test]
fn source_hash_keeps_a_client_at_its_member_and_spreads_clients_over_all() {
    let (_backends, all) = four();
    let service = Service::tcp("shop", 8080).with("balance", "source-hash").all_to(&all);
    let seaway = Setup::new().write("shop.yaml", &service.text()).start();
    let mut who = BTreeMap::new();
    for client in 1..=100_u8 {
        let from = IpAddr::from([127, 0, 7, client]);
        let first = Talk::open_from(from, seaway.at(8080)).expect("served").with;
        let again = Talk::open_from(from, seaway.at(8080)).expect("served").with;
        assert_eq!(first, again);
        who.insert(client, first);
    }
    let reached: std::collections::BTreeSet<&String> = who.values().collect();
    assert_eq!(reached.len(), 4, "{who:?}");
    // A member goes: only its clients move.
    let service = Service::tcp("shop", 8080).with("balance", "source-hash").all_to(&all[..3]);
    seaway.folder.write("shop.yaml", &service.text());
    until("d is gone", || seaway.member(all[3]).is_null() || seaway.member(all[3])["state"] == "draining");
    let mut moved = 0;
    for (client, before) in &who {
        let now = Talk::open_from(IpAddr::from([127, 0, 7, *client]), seaway.at(8080)).expect("served").with;
        assert_ne!(now, "d");
        moved += usize::from(before != "d" && now != *before);
    }
    // So few members race for their clients, and nobody else moves.
    assert_eq!(moved, 0, "moved without need");
}

#[test]
fn a_member_that_is_new_beside_others_starts_slowly_where_that_is_asked_for() {
    let (_backends, all) = four();
    let service = |time: &str, members: &[SocketAddr]| {
        Service::tcp("shop", 8080).with("slow-start", time).all_to(members).text()
    };
    let seaway = Setup::new().config(ONE_WORKER).write("shop.yaml", &service("1h", &all[..1])).start();
    seaway.folder.write("shop.yaml", &service("1h", &all[..2]));
    until("the new one is known", || !seaway.member(all[1]).is_null());
    let slow = counts(&seaway, 60);
    assert!(slow.get("b").copied().unwrap_or(0) <= 6, "{slow:?}");
    seaway.folder.write("shop.yaml", &service("1ms", &all[..2]));
    until("it is warm", || counts(&seaway, 10).get("b") == Some(&5));
}

#[test]
fn below_the_panic_threshold_all_members_are_used_and_without_one_none() {
    // There, nobody is given the port beside it.
    let backend = Backend::start_at("a", (own_address(), 7_000));
    // The check asks a port where nobody is, so the member counts as down though it would serve.
    let service = |percent: &str| {
        Service::tcp("shop", 8080)
            .with("health-check-port", "7001")
            .with("health-check-interval", "50ms")
            .with("health-check-fall", "1")
            .with("panic-threshold", percent)
            .to(backend.at)
            .text()
    };
    let seaway = Setup::new().write("shop.yaml", &service("0")).start();
    until("it is down", || seaway.member(backend.at)["state"] == "down");
    assert!(Talk::open(seaway.at(8080)).is_err(), "nobody is usable");
    seaway.folder.write("shop.yaml", &service("50%"));
    until("all are used", || Talk::open(seaway.at(8080)).is_ok());
    let state = seaway.state();
    assert_eq!(state["services"][0]["pools"][0]["panic"], true, "{state}");
}

#[test]
fn a_backup_of_the_short_form_serves_while_the_others_are_down() {
    let (one, spare) = (Backend::start("one"), Backend::start("spare"));
    let text = format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: shop\n  annotations:\n    seaway.dev/backends: {} name=first, {} \
         name=sorry backup\n    seaway.dev/health-check-interval: 100ms\nspec: {{type: LoadBalancer, ports: [{{port: 8080}}]}}\n",
        one.at, spare.at
    );
    let seaway = Setup::new().write("shop.yaml", &text).start();
    assert_eq!(counts(&seaway, 10), [("one".to_owned(), 10)].into());
    let [first, sorry] = [one.at, spare.at].map(|at| seaway.member(at));
    assert_eq!((&first["name"], &first["backup"]), (&"first".into(), &serde_json::Value::Null));
    assert_eq!((&sorry["name"], &sorry["backup"]), (&"sorry".into(), &true.into()));
    let (_, csv) = seaway.get("/;csv").expect("the page answers");
    let columns: Vec<&str> = csv.lines().next().expect("a header").split(',').collect();
    let bck = columns.iter().position(|it| *it == "bck").expect("HAProxy has it");
    let row = csv.lines().find(|it| it.contains(&spare.at.to_string())).expect("it is listed");
    assert_eq!(row.split(',').nth(bck), Some("1"));
    let (_, page) = seaway.get("/").expect("the page answers");
    assert!(page.contains("<small>sorry</small> <small>backup</small>"), "{page}");
    drop(one);
    assert_eq!(counts(&seaway, 10), [("spare".to_owned(), 10)].into(), "at once, for who is refused");
}
