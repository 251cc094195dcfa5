//! A router that freezes, with BFD: how soon its session ends, here and beside it at FRR.

use std::{
    fs,
    time::{Duration, Instant},
};

use seaway_announce::{bfd::BfdState, bgp::SessionState};
use seaway_model::bgp::{Bfd, PeerDistance, RemoteAs};
use seaway_testkit::topology::{Frr, Namespace, lacks_routers, until};

use crate::{
    cable::{Cable, OUR_AS, OURS, THEIR_AS, THEIRS, route, session},
    script::{Listener, USUAL, message},
};

const PACE: Duration = Duration::from_millis(50);
const ADDRESS: &str = "192.0.2.1/32";

fn runs(usually: usize) -> usize {
    std::env::var("SEAWAY_RUNS").ok().and_then(|it| it.parse().ok()).unwrap_or(usually)
}

/// FRR with BFD to the other side, 50 ms x 3, and one address that it announces if it has one.
fn frr(on: &Namespace, own: (&str, u32), other: (&str, u32), announced: bool) -> Frr {
    let network = if announced { format!(" network {ADDRESS}\n") } else { String::new() };
    let bgpd = format!(
        "router bgp {}\n bgp router-id {}\n no bgp ebgp-requires-policy\n no bgp network import-check\n \
         neighbor {} remote-as {}\n neighbor {} bfd\n neighbor {} timers connect 1\n address-family ipv4 unicast\n{network} \
         exit-address-family\n",
        own.1, own.0, other.0, other.1, other.0, other.0
    );
    let bfdd = format!(
        "bfd\n peer {} interface eth0\n  detect-multiplier 3\n  receive-interval 50\n  transmit-interval 50\n exit\nexit\n",
        other.0
    );
    Frr::start(on, &[("bfdd", &bfdd), ("bgpd", &bgpd)])
}

fn tell(who: &str, took: &mut [Duration]) {
    took.sort_unstable();
    let (half, p99) = (took[took.len() / 2], took[took.len() * 99 / 100]);
    println!("{who}, {} times, BFD 50 ms x 3: p50 {half:?}, p99 {p99:?}", took.len());
    assert!(took.iter().all(|it| *it < Duration::from_secs(1)), "{took:?}");
}

/// What takes longer than 150 ms is what a busy machine adds; `bench/bgp` prints what a quiet one needs.
#[test]
fn a_frozen_peer_ends_by_bfd() {
    if lacks_routers(&[Frr::PROGRAM]) {
        return;
    }
    let cable = Cable::new();
    let frr = frr(&cable.theirs, (THEIRS, THEIR_AS), (OURS, OUR_AS), false);
    let mut wanted = session("frr");
    wanted.routes = vec![route(ADDRESS)];
    wanted.bfd = Some(Bfd { receive: PACE, transmit: PACE, multiplier: 3, passive: false, minimum_ttl: 254 });
    let ours = cable.start(vec![wanted]);
    let mut took = Vec::new();
    for run in 0..runs(2) {
        ours.until("frr", "BFD is up and fast", |it| {
            let is_fast = |it: &seaway_announce::bfd::BfdStatus| it.detection == Some(PACE * 3);
            it.session == SessionState::Established && it.bfd.as_ref().is_some_and(is_fast)
        });
        let began = Instant::now();
        frr.freeze();
        ours.until("frr", "it ended", |it| it.resets == run as u64 + 1);
        took.push(began.elapsed());
        ours.until_it_says("frr", "BFD is down");
        frr.thaw();
    }
    tell("FRR frozen, our session ended", &mut took);
}

/// Of one AS, FRR takes a host of its own network for a neighbor (UDP port 3784), however far away it might be.
#[test]
fn bfd_comes_up_with_a_router_of_our_own_as() {
    if lacks_routers(&[Frr::PROGRAM]) {
        return;
    }
    let cable = Cable::new();
    let bgpd = format!(
        "router bgp {THEIR_AS}\n bgp router-id {THEIRS}\n neighbor {OURS} remote-as {THEIR_AS}\n neighbor {OURS} bfd\n"
    );
    let _frr = Frr::start(&cable.theirs, &[("bfdd", ""), ("bgpd", &bgpd)]);
    let mut wanted = session("frr");
    wanted.local_as = THEIR_AS;
    wanted.remote_as = RemoteAs::Internal;
    wanted.hops = PeerDistance::Multihop(255);
    let pace = Duration::from_millis(300);
    wanted.bfd = Some(Bfd { receive: pace, transmit: pace, multiplier: 3, passive: false, minimum_ttl: 254 });
    let ours = cable.start(vec![wanted]);
    ours.until("frr", "BFD is up", |it| it.bfd.as_ref().is_some_and(|it| it.what == BfdState::Up));
    assert_eq!(ours.state("frr").resets, 0);
}

#[test]
fn a_session_without_the_bfd_that_it_is_to_have_says_so_and_stays() {
    if lacks_routers(&[]) {
        return;
    }
    let cable = Cable::new();
    let listener = Listener::open(&cable.theirs);
    let mut wanted = session("script");
    wanted.hold = Duration::from_secs(9);
    wanted.bfd = Some(Bfd { receive: PACE, transmit: PACE, multiplier: 3, passive: false, minimum_ttl: 254 });
    let ours = cable.start(vec![wanted]);
    let mut script = listener.establish(&USUAL);
    ours.until("script", "it says what is missing", |it| {
        while script.read().is_some() {
            script.send(&message(4, &[]));
        }
        let line = "BFD is not up: the peer sends nothing to UDP port 3784 of 10.79.0.2";
        it.last_error.as_ref().is_some_and(|it| it.starts_with(line))
    });
    assert_eq!(ours.state("script").session, SessionState::Established);
}

/// From the same until FRR has taken the route out of its kernel.
#[test]
#[ignore = "run by bench/bgp"]
fn a_frozen_peer_of_frr_ends_by_bfd() {
    let cable = Cable::new();
    let _ours = frr(&cable.ours, (OURS, OUR_AS), (THEIRS, THEIR_AS), false);
    let theirs = frr(&cable.theirs, (THEIRS, THEIR_AS), (OURS, OUR_AS), true);
    // 192.0.2.1 as the kernel writes it.
    let has_route =
        || fs::read_to_string("/proc/thread-self/net/route").is_ok_and(|it| it.contains("010200C0"));
    let mut took = Vec::new();
    for _ in 0..runs(2) {
        let is_up = || {
            let told = _ours.says("bfdd", "show bfd peers json");
            told.contains("\"status\":\"up\"") && !told.contains("\"remote-transmit-interval\":1000")
        };
        until("BFD is up, and the route is there", || is_up() && cable.ours.run(has_route));
        let began = Instant::now();
        theirs.freeze();
        took.push(cable.ours.run(|| {
            until("the route is gone", || !has_route());
            began.elapsed()
        }));
        theirs.thaw();
    }
    tell("FRR frozen, the route of FRR beside it gone", &mut took);
}
