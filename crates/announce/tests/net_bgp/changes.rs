//! Routes that come and go: what they cost, and what they never do.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use seaway_testkit::topology::{Frr, lacks_routers, until};

use crate::{
    cable::{Cable, OUR_AS, OURS, THEIR_AS, THEIRS, route, routes, session},
    script::{Listener, USUAL},
};

const CHANGES: u16 = 1_000;

#[test]
fn a_thousand_changes_reset_no_session_and_leave_what_is_wanted() {
    if lacks_routers(&[Frr::PROGRAM]) {
        return;
    }
    let cable = Cable::new();
    let config = format!(
        "router bgp {THEIR_AS}\n bgp router-id {THEIRS}\n no bgp ebgp-requires-policy\n \
         neighbor {OURS} remote-as {OUR_AS}\n"
    );
    let frr = Frr::start(&cable.theirs, &[("bgpd", &config)]);
    let ours = cable.start(vec![session("tor")]);
    ours.until_established("tor");
    let mut wanted = session("tor");
    for change in 0..CHANGES {
        // A window that moves, and grows and shrinks, with attributes that change.
        let last = change + change % 97;
        wanted.routes = routes(change / 2..last);
        for one in wanted.routes.iter_mut().step_by(3) {
            one.med = Some((change % 5).into());
        }
        ours.set_desired(vec![wanted.clone()]);
        if change % 50 == 0 {
            until("it is said", || ours.state("tor").sent as usize == wanted.routes.len());
        }
    }
    let expected: BTreeSet<String> = wanted.routes.iter().map(|it| it.prefix.to_string()).collect();
    let mut had = BTreeSet::new();
    until("FRR has what is wanted", || {
        let told = frr.says("bgpd", "show bgp ipv4 unicast json");
        let parts = told.split('"').filter(|it| it.ends_with("/32"));
        had = parts.map(str::to_owned).collect();
        had == expected
    });
    let state = ours.state("tor");
    assert_eq!((state.resets, state.last_error, state.routes.len()), (0, None, expected.len()));
    let told = frr.says("bgpd", &format!("show bgp neighbors {OURS} json"));
    assert!(told.contains("\"connectionsEstablished\":1,"), "{told}");
}

/// From `want` until the UPDATE is there, at a router that answers nothing: with a thousand other routes beside it.
#[test]
fn a_change_is_on_the_wire_soon() {
    if lacks_routers(&[]) {
        return;
    }
    let runs: u16 = std::env::var("SEAWAY_RUNS").ok().and_then(|it| it.parse().ok()).unwrap_or(300);
    let cable = Cable::new();
    let listener = Listener::open(&cable.theirs);
    let mut wanted = session("script");
    wanted.routes = routes(0..1_000);
    let ours = cable.start(vec![wanted.clone()]);
    let mut script = listener.establish(&USUAL);
    let is_end = |(kind, body): &(u8, Vec<u8>)| *kind == 2 && body.starts_with(&[0, 0, 0, 6, 0x80, 15, 3]);
    until("all was said", || script.read().as_ref().is_some_and(is_end));
    ours.until("script", "all was said", |it| it.sent == 1_000);
    let mut took = Vec::new();
    for run in 0..runs {
        if run % 2 == 0 {
            wanted.routes.push(route("198.51.100.1/32"));
        } else {
            wanted.routes.pop();
        }
        let sessions = vec![wanted.clone()];
        let began = Instant::now();
        ours.set_desired(sessions);
        assert_eq!(script.next_news().0, 2, "an UPDATE");
        took.push(began.elapsed());
    }
    took.sort_unstable();
    let (half, p99) = (took[took.len() / 2], took[took.len() * 99 / 100]);
    println!("change to UPDATE, {runs} times beside 1,000 routes: p50 {half:?}, p99 {p99:?}");
    // A bound for a machine that does much else; `bench/bgp` prints what a quiet one needs.
    assert!(half < Duration::from_millis(500), "{half:?}");
}
