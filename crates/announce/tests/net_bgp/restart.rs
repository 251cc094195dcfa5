//! A process that is killed, replaced, or ends for good, and what a router makes of it.

use std::{path::Path, process::Stdio, time::Duration};

use seaway_announce::{
    bfd::BfdState,
    bgp::{SessionState, Settings, Speaker},
};
use seaway_model::bgp::{Bfd, DesiredBgp, Session};
use seaway_testkit::topology::{Bird, Frr, Running, command, lacks_routers, until};

use crate::{
    cable::{Cable, OUR_AS, OURS, THEIR_AS, THEIRS, quick, route, session},
    script::{Listener, USUAL, message, open},
};

/// Whether it starts again, and what it announces.
const VARIABLE: &str = "SEAWAY_TEST_SPEAKER";
/// Where it writes what it says of its session.
const TOLD: &str = "SEAWAY_TEST_TOLD";
const ADDRESS: &str = "192.0.2.1/32";

fn wanted() -> Session {
    let mut wanted = session("tor");
    wanted.graceful_restart = Some(Duration::from_secs(120));
    wanted.routes = vec![route(ADDRESS)];
    wanted
}

#[test]
#[ignore = "run by another test, as a process that is killed"]
fn a_speaker() {
    let which = std::env::var(VARIABLE).expect("it says what this is");
    let restarting = which == "again";
    let mut wanted = wanted();
    if which == "with bfd" {
        let pace = Duration::from_millis(300);
        wanted.bfd =
            Some(Bfd { receive: pace, transmit: pace, multiplier: 3, passive: false, minimum_ttl: 254 });
    }
    let speaker = Speaker::start(Settings { restarting, ..quick() }, || {}).expect("a thread");
    speaker.set_desired(DesiredBgp { sessions: vec![wanted], is_leaving: false });
    let told = std::env::var(TOLD).ok();
    loop {
        std::thread::park_timeout(Duration::from_millis(20));
        if let (Some(told), Some(it)) = (&told, speaker.states().get("tor")) {
            let text = format!("{:?} received {} resets {}", it.session, it.received, it.resets);
            std::fs::write(told, text).expect("written");
        }
    }
}

pub(crate) fn start(cable: &Cable, which: &str, told: Option<&Path>) -> Running {
    let program = std::env::current_exe().expect("this test");
    let mut command = cable.ours.command(&program.to_string_lossy());
    command.args(["--ignored", "--exact", "restart::a_speaker"]).env(VARIABLE, which).stdout(Stdio::null());
    if let Some(told) = told {
        command.env(TOLD, told);
    }
    Running::start(&mut command)
}

#[test]
fn a_router_keeps_routes_of_a_killed_process_until_the_next_one_says_them_again() {
    if lacks_routers(&[Frr::PROGRAM]) {
        return;
    }
    let cable = Cable::new();
    let config = format!(
        "router bgp {THEIR_AS}\n bgp router-id {THEIRS}\n no bgp ebgp-requires-policy\n bgp graceful-restart\n \
         neighbor {OURS} remote-as {OUR_AS}\n"
    );
    let frr = Frr::start(&cable.theirs, &[("bgpd", &config)]);
    // What the router forwards by, written down at each change.
    let has_route = || command("ip", &["-n", cable.theirs.name(), "route", "show", ADDRESS]).contains(OURS);
    let told = || frr.says("bgpd", &format!("show bgp ipv4 unicast {ADDRESS}"));
    let first = start(&cable, "first", None);
    until("the router forwards", has_route);
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("routes");
    let output = std::fs::File::create(&log).expect("a file");
    let mut monitor = cable.theirs.command("ip");
    let _monitor = Running::start(monitor.args(["monitor", "route"]).stdout(output));
    let changes = || std::fs::read_to_string(&log).expect("text");
    until("changes are written down", || {
        for what in ["add", "delete"] {
            cable.theirs.ip(&["route", what, "198.51.100.77/32", "dev", "eth0"]);
        }
        changes().contains("Deleted 198.51.100.77")
    });
    drop(first);
    until("it is stale", || told().contains("stale"));
    assert!(has_route(), "it goes on");
    let _second = start(&cable, "again", None);
    until("it was said again", || {
        let told = told();
        told.contains(OURS) && !told.contains("stale")
    });
    assert!(has_route());
    assert!(!changes().contains("Deleted 192"), "it was never withdrawn: {}", changes());
}

/// BIRD, with BFD that is slower than a change of processes; the next process waits until the session of this one has ended.
#[test]
fn the_next_process_takes_the_session_and_bfd_over() {
    if lacks_routers(&[Bird::PROGRAM]) {
        return;
    }
    let cable = Cable::new();
    let config = format!(
        "router id {THEIRS};\nprotocol device {{}}\nprotocol bfd {{ interface \"eth0\" {{ interval 300 ms; multiplier 3; }}; }}\n\
         protocol bgp host {{ local {THEIRS} as {THEIR_AS}; neighbor {OURS} as {OUR_AS}; graceful restart on; bfd graceful; \
         ipv4 {{ import all; export none; }}; }}\n"
    );
    let bird = Bird::start(&cable.theirs, &config);
    let pace = Duration::from_millis(300);
    let mut wanted = wanted();
    wanted.bfd = Some(Bfd { receive: pace, transmit: pace, multiplier: 3, passive: false, minimum_ttl: 254 });
    let first = start(&cable, "with bfd", None);
    let bfd = || bird.says(&["show", "bfd", "sessions"]);
    until("BFD is up", || bfd().contains("Up"));
    let routes = || bird.says(&["show", "route", "for", "192.0.2.1"]);
    until("BIRD has it", || routes().contains(OURS));
    // The next one is there before this one ends.
    let ours = cable.start_with(Settings { restarting: true, ..quick() }, vec![wanted]);
    ours.until_it_says("tor", "of this host already has a session with 10.79.0.1");
    let since = || {
        bfd()
            .lines()
            .find(|it| it.contains(OURS))
            .map(|it| it.split_whitespace().collect::<Vec<_>>()[..4].join(" "))
    };
    let before = since();
    drop(first);
    let began = std::time::Instant::now();
    until("the next one has the session", || {
        assert!(routes().contains(OURS), "{}", routes());
        ours.state("tor").session == SessionState::Established
    });
    println!("the next process had the session after {:?}", began.elapsed());
    ours.until("tor", "its BFD is up", |it| it.bfd.as_ref().is_some_and(|it| it.what == BfdState::Up));
    assert_eq!(since(), before, "to BIRD it was never down");
    assert!(routes().contains(OURS), "{}", routes());
}

fn bird(cable: &Cable) -> Bird {
    let config = format!(
        "router id {THEIRS};\nprotocol device {{}}\nprotocol bgp host {{ local {THEIRS} as {THEIR_AS}; \
         neighbor {OURS} as {OUR_AS}; graceful restart on; ipv4 {{ import all; export none; }}; }}\n"
    );
    Bird::start(&cable.theirs, &config)
}

#[test]
fn a_handover_keeps_routes_and_an_end_asks_for_other_ways_first_and_leaves_none() {
    if lacks_routers(&[Bird::PROGRAM]) {
        return;
    }
    let cable = Cable::new();
    let bird = bird(&cable);
    let says = || bird.says(&["show", "route", "all", "for", "192.0.2.1"]);
    let ours = cable.start(vec![wanted()]);
    ours.until_established("tor");
    until("BIRD has it", || says().contains(OURS));
    ours.0.restart();
    until("the session is gone", || !bird.says(&["show", "protocols", "host"]).contains("Established"));
    assert!(says().contains(OURS), "{}", says());
    let ours = cable.start_with(Settings { restarting: true, ..quick() }, vec![wanted()]);
    ours.until_established("tor");
    assert!(ours.state("tor").graceful_restart);
    assert!(says().contains(OURS), "{}", says());
    // RFC 8326, then nothing, though it would keep routes of who is gone without a word.
    std::thread::scope(|scope| {
        scope.spawn(|| ours.0.shut_down(Duration::from_secs(2)));
        until("BIRD is asked for other ways", || says().contains("(65535,0)"));
        until("BIRD has it no more", || !says().contains(OURS));
    });
    let told = bird.says(&["show", "protocols", "all", "host"]);
    assert!(told.contains("Administrative shutdown"), "{told}");
    assert!(!told.contains("1 imported"), "{told}");
}

#[test]
fn a_host_that_is_drained_asks_for_other_ways_and_withdraws_and_its_session_stays() {
    if lacks_routers(&[Bird::PROGRAM]) {
        return;
    }
    let cable = Cable::new();
    let bird = bird(&cable);
    let says = || bird.says(&["show", "route", "all", "for", "192.0.2.1"]);
    let ours = cable.start(vec![wanted()]);
    ours.until_established("tor");
    until("BIRD has it", || says().contains(OURS));
    let since = ours.state("tor").since;
    let want = |sessions: Vec<Session>, is_leaving| ours.0.set_desired(DesiredBgp { sessions, is_leaving });
    want(vec![wanted()], true);
    until("BIRD is asked for other ways", || says().contains("(65535,0)"));
    assert!(says().contains(OURS), "and has it as long: {}", says());
    want(vec![Session { routes: Vec::new(), ..wanted() }], true);
    until("BIRD has it no more", || !says().contains(OURS));
    // It is not drained after all.
    want(vec![wanted()], false);
    until("BIRD has it again", || says().contains(OURS));
    assert!(!says().contains("(65535,0)"), "{}", says());
    let state = ours.state("tor");
    assert_eq!((state.since, state.resets), (since, 0), "the session stayed");
    ours.0.shut_down(Duration::ZERO);
}

#[test]
fn an_end_withdraws_all_before_it_says_why_and_says_that_once() {
    if lacks_routers(&[]) {
        return;
    }
    let cable = Cable::new();
    let listener = Listener::open(&cable.theirs);
    let ours = cable.start(vec![wanted()]);
    let mut script = listener.establish(&USUAL);
    until("it announces", || script.read().is_some_and(|(_, body)| body.ends_with(&[32, 192, 0, 2, 1])));
    ours.until("tor", "all was said", |it| it.sent == 1);
    ours.0.shut_down(Duration::ZERO);
    let said: Vec<_> = std::iter::from_fn(|| script.read()).filter(|it| *it != (4, vec![])).collect();
    let ends: Vec<_> =
        said.iter().map(|(kind, body)| (*kind, &body[..])).skip_while(|it| it.1[..2] == [0, 0]).collect();
    assert_eq!(
        ends,
        [(2, &[0, 5, 32, 192, 0, 2, 1, 0, 0][..]), (3, b"\x06\x02\x0cseaway stops")],
        "{said:?}"
    );
}

/// What is forwarded still is, always; that it starts again, only until a session is there.
#[test]
fn an_open_tells_of_a_restart_until_a_session_is_there() {
    if lacks_routers(&[]) {
        return;
    }
    let cable = Cable::new();
    let listener = Listener::open(&cable.theirs);
    let _ours = cable.start_with(Settings { restarting: true, ..quick() }, vec![wanted()]);
    let says = |body: &[u8], first: u8| {
        let graceful = [64, 10, first, 120, 0, 1, 1, 0x80, 0, 2, 1, 0x80];
        body.windows(graceful.len()).any(|it| it == graceful)
    };
    for (first, has_session) in [(0x80, false), (0x80, true), (0, false)] {
        let mut script = listener.accept();
        let (kind, body) = script.next();
        assert!(kind == 1 && says(&body, first), "{body:?}");
        if has_session {
            script.send(&open(&USUAL));
            script.send(&message(4, &[]));
            until("routes come", || {
                script.read().is_some_and(|(_, body)| body.ends_with(&[32, 192, 0, 2, 1]))
            });
        }
    }
}
