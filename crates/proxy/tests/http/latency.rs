//! How long members take, as it is measured.

use std::{thread, time::Duration};

use seaway_model::latency::{Histogram, Latencies};

use crate::{peer::Peer, scene::*, stage::*};

/// Of the only pool.
fn latencies(stage: &Stage) -> Option<Latencies> {
    let pools = stage.proxy.statistics().pools;
    pools.into_iter().next().and_then(|pool| pool.latency).map(|it| *it)
}

#[test]
fn a_request_is_measured_until_it_is_connected_answered_and_passed_on() {
    let late = Duration::from_millis(30);
    let member = Member::new(move |_, _| {
        thread::sleep(late);
        Some(ok("hello"))
    });
    let (unmeasured, at) = front(&[member.at()]);
    Client::new(at).ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(latencies(&unmeasured), None, "nothing is measured unless it is asked for");
    let (stage, at) = front(&[member.at()]);
    let mut client = Client::new(at);
    stage.proxy.measure_latency(true);
    for _ in 0..2 {
        client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    Peer::new(at).get("/");
    eventually("all were passed on", || latencies(&stage).is_some_and(|it| it.request.count() == 3));
    let told = latencies(&stage).unwrap();
    // A connection that was kept is none that was waited for.
    assert!((1..=2).contains(&told.connect.count()), "{told:?}");
    assert_eq!(told.first_byte.count(), 3);
    let least = |it: Histogram| it.sum >= 3 * late.as_micros() as u64;
    assert!(
        least(told.first_byte) && least(told.request) && told.request.sum >= told.first_byte.sum,
        "{told:?}"
    );
    let member = stage.member(member.at());
    assert_eq!((member.measured, member.took), (3, told.first_byte.sum));
    stage.proxy.measure_latency(false);
    client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(latencies(&stage).unwrap().first_byte.count(), 3);
}

#[test]
fn clients_that_find_no_member_are_counted_at_the_pool_and_late_answers_at_the_member() {
    let (stage, at) = front(&[]);
    assert_eq!(Client::new(at).ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").status(), 503);
    assert_eq!(stage.proxy.statistics().pools[0].no_member, 1);
    let member = Member::new(|_, _| {
        thread::sleep(Duration::from_secs(1));
        Some(ok("late"))
    });
    let (stage, at) = front_with(&[member.at()], |it| it.timeouts.answer = Duration::from_millis(50));
    assert_eq!(Client::new(at).ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n").status(), 504);
    assert_eq!(stage.member(member.at()).timeouts, 1);
}
