//! Peers that freeze, flood, and say what nobody knows.

use std::{fs, time::Duration};

use seaway_announce::bgp::SessionState;
use seaway_testkit::topology::{Bird, lacks_routers, until};

use crate::{
    cable::{Cable, OUR_AS, OURS, THEIR_AS, THEIRS, route, session},
    restart::start,
    script::{Listener, USUAL, message, open},
};

fn bird(more: &str) -> String {
    format!(
        "router id {THEIRS};\nprotocol device {{}}\n\
         protocol bgp host {{ local {THEIRS} as {THEIR_AS}; neighbor {OURS} as {OUR_AS}; error wait time 1, 2; ipv4 {{ import all; export all; }}; }}\n{more}"
    )
}

#[test]
fn a_frozen_peer_ends_by_the_hold_time_and_has_all_again_when_it_wakes() {
    if lacks_routers(&[Bird::PROGRAM]) {
        return;
    }
    let cable = Cable::new();
    let bird = Bird::start(&cable.theirs, &bird(""));
    let mut wanted = session("bird");
    wanted.hold = Duration::from_secs(3);
    wanted.routes = vec![route("192.0.2.1/32")];
    let ours = cable.start(vec![wanted]);
    ours.until_established("bird");
    bird.freeze();
    ours.until_it_says("bird", "hold timer expired: nothing came from the peer for 3 s");
    assert_eq!(ours.state("bird").resets, 1);
    bird.thaw();
    ours.until_established("bird");
    until("it has it again", || bird.says(&["show", "route"]).contains("192.0.2.1/32"));
}

/// All are counted and dropped, in a process of its own.
#[test]
fn a_hundred_thousand_prefixes_cost_no_memory_and_no_session() {
    if lacks_routers(&[Bird::PROGRAM]) {
        return;
    }
    let cable = Cable::new();
    let mut flood = String::from("protocol static flood { disabled; ipv4;\n");
    for number in 0..100_000_u32 {
        let [_, a, b, c] = number.to_be_bytes();
        flood.push_str(&format!("route 100.{a}.{b}.{c}/32 blackhole;\n"));
    }
    let bird = Bird::start(&cable.theirs, &bird(&format!("{flood}}}\n")));
    let folder = tempfile::tempdir().expect("a folder");
    let told = folder.path().join("told");
    let process = start(&cable, "first", Some(&told));
    let resident = || -> usize {
        let status = fs::read_to_string(format!("/proc/{}/statm", process.id())).expect("it runs");
        let pages = status.split(' ').nth(1).expect("resident").parse::<usize>().expect("a number");
        pages * 4
    };
    let told = || fs::read_to_string(&told).unwrap_or_default();
    until("it is established", || told().contains("Established"));
    let before = resident();
    bird.says(&["enable", "flood"]);
    until("all came", || told().contains("received 100000 "));
    let after = resident();
    println!("100,000 prefixes: {before} KiB before, {after} KiB after");
    assert!(after < before + 10 * 1024, "{before} KiB, then {after} KiB");
    assert!(told().contains("Established") && told().contains("resets 0"), "{}", told());
    assert!(bird.says(&["show", "protocols", "host"]).contains("Established"));
}

/// The router would end the session of a program that was there before, for a restart that is none.
#[test]
fn beside_another_program_with_a_session_none_is_begun() {
    if lacks_routers(&[Bird::PROGRAM]) {
        return;
    }
    let cable = Cable::new();
    let router = Bird::start(
        &cable.theirs,
        &format!(
            "router id {THEIRS};\nprotocol device {{}}\nprotocol bgp host {{ local {THEIRS} as {THEIR_AS}; \
             neighbor {OURS} as {OUR_AS}; graceful restart on; ipv4 {{ import all; export none; }}; }}\n"
        ),
    );
    let other = Bird::start(
        &cable.ours,
        &format!(
            "router id {OURS};\nprotocol device {{}}\nprotocol bgp tor {{ local {OURS} as {OUR_AS}; \
             neighbor {THEIRS} as {THEIR_AS}; graceful restart on; ipv4 {{ import none; export none; }}; }}\n"
        ),
    );
    let established = || router.says(&["show", "protocols", "all", "host"]).contains("Established");
    until("the other one has a session", established);
    let line = |told: &str| told.lines().find(|it| it.starts_with("host")).map(str::to_owned);
    let before = line(&router.says(&["show", "protocols", "host"]));
    let ours = cable.start(vec![session("tor")]);
    ours.until_it_says(
        "tor",
        "of this host already has a session with 10.79.0.1; Seaway starts no second session",
    );
    ours.until_it_says("tor", "bird (process ");
    assert_eq!(line(&router.says(&["show", "protocols", "host"])), before, "it goes on as it was");
    drop(other);
    ours.until_established("tor");
}

#[test]
fn unknown_capabilities_attributes_and_families_are_passed_over_and_a_refresh_is_answered() {
    if lacks_routers(&[]) {
        return;
    }
    let cable = Cable::new();
    let listener = Listener::open(&cable.theirs);
    let mut wanted = session("script");
    wanted.routes = vec![route("192.0.2.1/32")];
    let ours = cable.start(vec![wanted]);
    let strange = [&USUAL[..], &[199, 3, 1, 2, 3, 69, 0, 1, 4, 0, 25, 0, 70]].concat();
    let mut script = listener.establish(&strange);
    let announces = |(kind, body): (u8, Vec<u8>)| kind == 2 && body.ends_with(&[32, 192, 0, 2, 1]);
    until("it announces", || script.read().is_some_and(announces));
    // An unknown attribute; next an attribute that is longer than all of them.
    script.send(&message(2, &[0, 0, 0, 4, 0xc0, 250, 1, 1, 32, 203, 0, 113, 1]));
    script.send(&message(2, &[0, 0, 0, 4, 0xc0, 2, 90, 1, 32, 203, 0, 113, 2]));
    // A family that is not ours.
    script.send(&message(5, &[0, 25, 0, 70]));
    script.send(&message(5, &[0, 1, 0, 1]));
    until("it announces again", || script.read().is_some_and(announces));
    let state = ours.state("script");
    assert_eq!((state.session, state.resets, state.received), (SessionState::Established, 0, 2));
    // What is no BGP ends it, and only then.
    script.send(&[0; 19]);
    until("it says why", || script.read().is_some_and(|(kind, body)| kind == 3 && body == [1, 1]));
    ours.until("script", "it ended", |it| it.resets == 1);
    drop(script);
    // Refused without a word, and with one that is not for machines.
    drop(listener.accept());
    ours.until_it_says("script", "the peer closed the connection before it sent a message");
    let mut script = listener.accept();
    script.send(&open(&USUAL));
    script.send(&message(3, b"\x06\x02\x0bmaintenance"));
    ours.until_it_says("script", "Cease: administrative shutdown (6/2): \"maintenance\"");
    drop((listener, script));
    ours.until_it_says("script", "connection refused: nothing listens on TCP port 179 of 10.79.0.1");
}

#[test]
fn a_changed_peer_resets_its_own_session_once_and_no_other() {
    if lacks_routers(&[Bird::PROGRAM]) {
        return;
    }
    let cable = Cable::new();
    let _bird = Bird::start(&cable.theirs, &bird(""));
    let mut gone = session("gone");
    gone.to = seaway_model::bgp::PeerAddress::Ip {
        address: "10.79.0.9".parse().expect("one"),
        port: 179,
        source: None,
    };
    let ours = cable.start(vec![gone, session("bird")]);
    ours.until_established("bird");
    // Another one goes, a third one comes: nothing.
    let mut third = session("third");
    third.to = seaway_model::bgp::PeerAddress::Ip {
        address: "10.79.0.8".parse().expect("one"),
        port: 179,
        source: None,
    };
    ours.set_desired(vec![session("bird"), third]);
    until("it came", || ours.0.states().contains_key("third") && !ours.0.states().contains_key("gone"));
    assert_eq!(ours.state("bird").resets, 0);
    let mut changed = session("bird");
    changed.hold = Duration::from_secs(30);
    ours.set_desired(vec![changed.clone()]);
    ours.until("bird", "it was reset", |it| it.resets == 1);
    ours.until_established("bird");
    ours.set_desired(vec![changed]);
    ours.until_established("bird");
    assert_eq!(ours.state("bird").resets, 1);
}
