//! An owner goes, in each way that there is, and another answers.

use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use seaway_testkit::topology::{in_a_network_of_its_own, until};

use crate::{
    clients::{Asker, Pinger},
    lan::{Lan, V4, V6, ip},
};

/// Within a gate, beside other tests. What is promised is half a second: `a_hundred_owners_go`.
const BOUND: Duration = Duration::from_secs(2);
/// Below what passes until a peer that says nothing counts as gone.
const PLANNED: Duration = Duration::from_millis(300);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 9);

fn both() -> String {
    format!("{V4},{V6}")
}

fn address() -> Ipv4Addr {
    V4.parse().expect("an address")
}

#[test]
fn an_address_is_reached_within_a_second_of_the_start_of_hosts() {
    in_a_network_of_its_own(|| {
        let mut lan = Lan::new(3);
        for to in [V4, V6] {
            let begun = Instant::now();
            lan.start_all(&both());
            let pinger = Pinger::start(&lan.client, ip(to));
            let owner = pinger.until_answered_since(begun);
            let took = begun.elapsed();
            println!("{to}: reached {took:?} after three processes were started, by {owner}");
            assert!(took < BOUND, "{took:?}");
            lan.hosts.iter_mut().for_each(|it| it.kill());
            lan.client.ip(&["neigh", "flush", "dev", "eth0"]);
        }
    });
}

/// How it goes, and how it comes back.
#[derive(Clone, Copy, Debug)]
enum Way {
    Killed,
    Frozen,
    LinkDown,
    CutOff,
}

impl Way {
    fn go(self, lan: &mut Lan, owner: usize) {
        match self {
            Way::Killed => lan.hosts[owner].kill(),
            Way::Frozen => lan.hosts[owner].freeze(),
            Way::LinkDown => drop(lan.hosts[owner].namespace.ip(&["link", "set", "eth0", "down"])),
            Way::CutOff => lan.cut(owner),
        }
    }

    fn come_back(self, lan: &mut Lan, owner: usize) {
        match self {
            Way::Killed => lan.start(owner, &both()),
            Way::Frozen => lan.hosts[owner].wake(),
            Way::LinkDown => {
                let namespace = &lan.hosts[owner].namespace;
                namespace.ip(&["link", "set", "eth0", "up"]);
                // The kernel took it along.
                namespace.address("eth0", &format!("fd77::{}/64", owner + 1));
                namespace.route("default", "10.77.0.254");
                namespace.route("default", "fd77::254");
            }
            Way::CutOff => lan.mend(owner),
        }
    }
}

/// How long clients lose what they ask.
fn outage(lan: &mut Lan, way: Way, to: &str) -> Duration {
    let pinger = Pinger::start(&lan.client, ip(to));
    let owner = pinger.until_answered();
    let (gone, at) = (lan.at(&owner), Instant::now());
    way.go(lan, gone);
    let took = pinger.outage(at, &owner);
    way.come_back(lan, gone);
    took
}

fn fails_over(way: Way) {
    in_a_network_of_its_own(move || {
        let mut lan = Lan::new(3);
        lan.start_all(&both());
        for to in [V4, V6] {
            let took = outage(&mut lan, way, to);
            println!("{way:?}, {to}: {took:?} without an answer");
            assert!(took < BOUND, "{way:?} {to}: {took:?}");
            until("all is well again", || is_well(&lan));
        }
    });
}

/// Each address has one owner, and all hosts know it.
fn is_well(lan: &Lan) -> bool {
    let knows = |states: String| {
        states.matches("what: Announcing").count() + states.matches("what: Standby").count() == 2
    };
    owners(lan) == 2 && lan.hosts.iter().all(|it| knows(it.states()))
}

/// How many addresses are announced, all hosts together.
fn owners(lan: &Lan) -> usize {
    lan.hosts.iter().map(|it| it.states().matches("what: Announcing").count()).sum()
}

#[test]
fn an_owner_that_is_killed_is_replaced() {
    fails_over(Way::Killed);
}

#[test]
fn an_owner_that_is_frozen_is_replaced() {
    fails_over(Way::Frozen);
}

#[test]
fn an_owner_whose_link_is_down_is_replaced() {
    fails_over(Way::LinkDown);
}

#[test]
fn an_owner_that_is_cut_off_though_its_link_is_up_is_replaced() {
    fails_over(Way::CutOff);
}

#[test]
fn hosts_that_have_ipv6_alone_fail_over_and_notice_that_they_are_cut_off() {
    in_a_network_of_its_own(|| {
        let mut lan = Lan::of(2, false);
        lan.start_all(V6);
        let pinger = Pinger::start(&lan.client, ip(V6));
        let owner = pinger.until_answered();
        let (gone, at) = (lan.at(&owner), Instant::now());
        lan.hosts.iter().for_each(|it| it.until_it_says(&format!("{V6}: AddressStatus {{ what: ")));
        lan.cut(gone);
        let took = pinger.outage(at, &owner);
        println!("IPv6 alone, cut off: {took:?} without an answer");
        assert!(took < BOUND, "{took:?}");
        lan.hosts[gone].until_it_says("Isolated");
    });
}

#[test]
#[ignore = "run by hand, on a machine that does nothing else: it takes minutes, and measures"]
fn a_hundred_owners_go() {
    in_a_network_of_its_own(|| {
        let runs: usize = std::env::var("SEAWAY_RUNS").ok().and_then(|it| it.parse().ok()).unwrap_or(100);
        for way in [Way::Killed, Way::Frozen, Way::LinkDown] {
            let mut lan = Lan::new(3);
            lan.start_all(&both());
            let mut all = Vec::new();
            for _ in 0..runs {
                all.push(outage(&mut lan, way, V4));
                until("all is well again", || is_well(&lan));
            }
            all.sort();
            let at = |part: usize| all[(all.len() * part / 100).min(all.len() - 1)];
            println!(
                "{way:?}: {} runs, p50 {:?}, p99 {:?}, longest {:?}",
                all.len(),
                at(50),
                at(99),
                all[all.len() - 1]
            );
        }
    });
}

#[test]
fn a_planned_move_loses_next_to_nothing_and_so_does_a_stop() {
    in_a_network_of_its_own(|| {
        let mut lan = Lan::new(3);
        lan.start_all(&both());
        let pinger = Pinger::start(&lan.client, ip(V4));
        let owner = pinger.until_answered();
        lan.hosts.iter().for_each(|it| it.until_it_says("owner"));
        let at = Instant::now();
        lan.hosts[lan.at(&owner)].tell(&format!("want {V6}")).expect("it heard");
        until("another host answers", || pinger.answered_by().is_some_and(|it| it != owner));
        let took = pinger.outage(at, &owner);
        println!("planned move: {took:?} without an answer, {} lost", pinger.lost(at));
        assert!(took < PLANNED, "{took:?}");

        let owner = pinger.until_answered();
        let at = Instant::now();
        lan.hosts[lan.at(&owner)].tell("stop ").expect("it heard");
        let took = pinger.outage(at, &owner);
        println!("stop: {took:?} without an answer, {} lost", pinger.lost(at));
        assert!(took < PLANNED, "{took:?}");
    });
}

#[test]
fn the_next_process_on_a_machine_goes_on_and_nothing_moves() {
    in_a_network_of_its_own(|| {
        let mut lan = Lan::new(3);
        lan.start_all(&both());
        let pinger = Pinger::start(&lan.client, ip(V4));
        let owner = lan.at(&pinger.until_answered());
        until("all is well", || is_well(&lan));
        let moves = |lan: &Lan| {
            lan.hosts
                .iter()
                .filter(|it| !it.states().contains("moves: 0"))
                .map(|it| it.name.clone())
                .collect()
        };
        let before: Vec<String> = moves(&lan);
        let at = Instant::now();
        let predecessor = lan.start_next(owner, &both());
        // It waits behind the one that announces.
        lan.hosts[owner].until_it_says("Probing");
        predecessor.stop(&lan.hosts[owner].namespace);
        until("all is well again", || is_well(&lan));
        // For longer than peers wait for one that is gone.
        let stopped = Instant::now();
        while stopped.elapsed() < Duration::from_secs(2) {
            std::thread::park_timeout(Duration::from_millis(100));
        }
        println!("the next process: {} lost", pinger.lost(at));
        assert_eq!(pinger.answered_by().as_ref(), Some(&lan.hosts[owner].name));
        assert_eq!(moves(&lan), before);
        assert!(lan.hosts[owner].states().contains("what: Announcing"));
    });
}

#[test]
fn an_owner_that_was_frozen_answers_no_question_after_another_began() {
    in_a_network_of_its_own(|| {
        let mut lan = Lan::new(3);
        lan.start_all(&both());
        let pinger = Pinger::start(&lan.client, ip(V4));
        let owner = lan.at(&pinger.until_answered());
        let mac = lan.hosts[owner].mac();
        lan.hosts.iter().for_each(|it| it.until_it_says("owner"));
        lan.hosts[owner].freeze();
        let asker = Asker::start(&lan.client, CLIENT, address());
        until("another answers", || asker.told().iter().any(|(_, it)| *it != mac));
        let before = asker.told().len();
        let woken = Instant::now();
        lan.hosts[owner].wake();
        // While the other one had it, which is the settling time of a second at least.
        until("it announces again", || asker.told().iter().skip(before).any(|(_, it)| *it == mac));
        let told = asker.told();
        let mut again = told.iter().filter(|(at, it)| *at >= woken && *it == mac).map(|(at, _)| *at);
        let first = again.next().expect("it was found");
        println!("the frozen owner answers {:?} after it was woken", first - woken);
        assert!(first - woken >= Duration::from_millis(500), "it asked its peers first");
        let others = told.iter().filter(|(at, it)| *at > first && *it != mac).count();
        assert!(others <= 1, "{others} answers of the other one since");
        assert!(lan.hosts.iter().all(|it| it.states().contains("overlaps: 0")));
    });
}

#[test]
fn after_hosts_did_not_hear_each_other_one_stops_within_a_second() {
    in_a_network_of_its_own(|| {
        let mut lan = Lan::new(2);
        lan.start_all(&both());
        let pinger = Pinger::start(&lan.client, ip(V4));
        pinger.until_answered();
        lan.hosts.iter().for_each(|it| it.until_it_says("owner"));
        // Both reach their gateway: a split that neither can tell from the end of the other.
        let nft = |rules: &str| {
            for host in &lan.hosts {
                let done = host.namespace.command("nft").arg(rules).status().expect("nft runs");
                assert!(done.success(), "{rules}");
            }
        };
        nft("table inet cut { chain in { type filter hook input priority 0; udp dport 1939 drop; }; }");
        let asker = Asker::start(&lan.client, CLIENT, address());
        let seen = |since: Instant| {
            let told = asker.told();
            let lately: Vec<_> = told.iter().filter(|(at, _)| *at >= since).map(|(_, mac)| *mac).collect();
            lan.hosts.iter().filter(|it| lately.contains(&it.mac())).count()
        };
        let split = Instant::now();
        until("both answer", || seen(split) == 2);
        nft("delete table inet cut");
        let healed = Instant::now();
        until("it was noticed", || lan.hosts.iter().any(|it| !it.states().contains("overlaps: 0")));
        until("one owner of each", || owners(&lan) == 2);
        let macs = lan.hosts.iter().map(|it| it.mac()).collect::<Vec<_>>();
        let told = asker.told();
        let last = macs.iter().filter_map(|mac| told.iter().rev().find(|(_, it)| it == mac).map(|it| it.0));
        let stopped = last.min().expect("both answered");
        println!("one stopped {:?} after the split healed", stopped.saturating_duration_since(healed));
        assert!(stopped.saturating_duration_since(healed) < Duration::from_secs(1));
    });
}

#[test]
#[ignore = "run by hand: it keeps the machine busy for a minute, and measures"]
fn nothing_moves_while_the_machine_is_busy_and_owners_stall() {
    in_a_network_of_its_own(|| {
        let seconds = std::env::var("SEAWAY_SECONDS").ok().and_then(|it| it.parse().ok()).unwrap_or(60);
        let mut lan = Lan::new(3);
        lan.start_all(&both());
        let pinger = Pinger::start(&lan.client, ip(V4));
        let owner = lan.at(&pinger.until_answered());
        until("all is well", || is_well(&lan));
        let moves = |lan: &Lan| {
            let told = lan.hosts.iter().map(|it| it.states());
            told.filter_map(|it| it.split_once("moves: ")?.1.split(',').next()?.parse::<u64>().ok())
                .sum::<u64>()
        };
        let before = moves(&lan);
        let ended = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let spin = || {
            let ended = ended.clone();
            std::thread::spawn(move || while !ended.load(std::sync::atomic::Ordering::Relaxed) {})
        };
        let busy: Vec<_> = (0..8).map(|_| spin()).collect();
        let begun = Instant::now();
        let mut stalls = 0;
        while begun.elapsed() < Duration::from_secs(seconds) {
            let at = Instant::now();
            lan.hosts[owner].freeze();
            while at.elapsed() < Duration::from_millis(300) {
                std::thread::park_timeout(Duration::from_millis(300).saturating_sub(at.elapsed()));
            }
            lan.hosts[owner].wake();
            stalls += 1;
            while at.elapsed() < Duration::from_secs(1) {
                std::thread::park_timeout(Duration::from_millis(100));
            }
        }
        ended.store(true, std::sync::atomic::Ordering::Relaxed);
        busy.into_iter().for_each(|it| it.join().expect("it ends"));
        let after = moves(&lan);
        println!("{stalls} stalls of 300 ms beside 8 busy threads for {seconds} s: {} moves", after - before);
        assert_eq!(after, before);
    });
}
