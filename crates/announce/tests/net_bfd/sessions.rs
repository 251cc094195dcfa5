use std::{
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use seaway_announce::bfd::{BfdState, Diagnostic, Key, Profile, SINGLE_HOP_PORT};
use seaway_testkit::topology::{Bird, Frr, lacks_routers, until};
use socket2::{Domain, Socket, Type};

use crate::{
    cable::{Cable, FAST, OURS, THEIRS, THEIRS_V6, ip},
    daemons::{bird, downs_of, frr, frr_says, until_bird_says, until_frr_says},
};

/// 150 ms are agreed, up to 50 ms pass since the peer's last packet before it is frozen; the rest is for a busy machine.
const SOON: Duration = Duration::from_millis(1_000);

fn key() -> Key {
    Key::single_hop(ip(THEIRS))
}

#[test]
fn a_frozen_frr_is_lost_within_the_detection_time_and_found_again() {
    if lacks_routers(&[Frr::PROGRAM]) {
        return;
    }
    let cable = Cable::new();
    let frr = frr(&cable.theirs);
    let ours = cable.start();
    let v6 = Key::single_hop(ip(THEIRS_V6));
    let far = Key::multihop(ip(THEIRS), Some(ip(OURS)));
    ours.set_desired(&[key(), v6.clone(), far.clone()], FAST);
    let mut took = Vec::new();
    for _ in 0..5 {
        for key in [&key(), &v6, &far] {
            ours.until(key, BfdState::Up);
            until("150 ms are agreed", || {
                ours.state(key).is_some_and(|it| it.detection == Some(Duration::from_millis(150)))
            });
        }
        let since = Instant::now();
        frr.freeze();
        took.extend([&key(), &v6, &far].map(|key| ours.lost(key, since)));
        assert_eq!(
            ours.state(&key()).map(|it| it.diagnostic),
            Some(Diagnostic(1)),
            "control detection time expired"
        );
        frr.thaw();
    }
    took.sort_unstable();
    println!("FRR frozen, 50 ms x 3: lost after {took:?}");
    assert!(took.iter().all(|it| *it < SOON), "{took:?}");
}

#[test]
fn frr_notices_that_this_host_is_gone_and_hears_it_stop_on_purpose() {
    if lacks_routers(&[Frr::PROGRAM]) {
        return;
    }
    let cable = Cable::new();
    let frr = frr(&cable.theirs);
    let ours = cable.start();
    ours.set_desired(&[key()], FAST);
    ours.until(&key(), BfdState::Up);
    until_frr_says(&frr, "\"status\":\"up\"");
    drop(ours);
    until_frr_says(&frr, "control detection time expired");
    let ours = cable.start();
    ours.set_desired(&[key()], FAST);
    until_frr_says(&frr, "\"status\":\"up\"");
    ours.until(&key(), BfdState::Up);
    ours.bfd.shut_down();
    until_frr_says(&frr, "administratively down");
}

#[test]
fn the_next_process_goes_on_and_no_peer_notices() {
    if lacks_routers(&[Frr::PROGRAM]) {
        return;
    }
    let cable = Cable::new();
    let frr = frr(&cable.theirs);
    let mut ours = cable.start();
    ours.set_desired(&[key()], Profile { transmit: 4 * FAST.transmit, ..FAST });
    ours.until(&key(), BfdState::Up);
    until_frr_says(&frr, "\"status\":\"up\"");
    until("they agree", || frr_says(&frr).contains("\"remote-transmit-interval\":200"));
    let downs = downs_of(&frr);
    for _ in 0..3 {
        // It waits for the port while this one has it.
        let next = cable.start();
        next.set_desired(&[key()], Profile { transmit: 4 * FAST.transmit, ..FAST });
        until("it waits", || next.state(&key()).is_some_and(|it| it.trouble.is_some()));
        drop(ours);
        ours = next;
        ours.until(&key(), BfdState::Up);
        until("they agree", || ours.state(&key()).is_some_and(|it| it.detection.is_some()));
    }
    assert_eq!(ours.downs(), 0);
    assert_eq!(downs_of(&frr), downs);
}

#[test]
fn other_intervals_are_agreed_while_the_session_is_up() {
    if lacks_routers(&[Frr::PROGRAM]) {
        return;
    }
    let cable = Cable::new();
    let frr = frr(&cable.theirs);
    let ours = cable.start();
    ours.set_desired(&[key()], FAST);
    ours.until(&key(), BfdState::Up);
    for millis in [400, 60, 1_500, 50] {
        let interval = Duration::from_millis(millis);
        ours.set_desired(&[key()], Profile { transmit: interval, receive: interval, ..FAST });
        until("it is agreed", || ours.state(&key()).is_some_and(|it| it.detection == Some(3 * interval)));
        until_frr_says(&frr, &format!("\"remote-receive-interval\":{millis}"));
    }
    assert_eq!(ours.downs(), 0);
}

#[test]
fn bird_is_lost_when_frozen_and_hears_this_host_stop_on_purpose() {
    if lacks_routers(&[Bird::PROGRAM]) {
        return;
    }
    let cable = Cable::new();
    let bird = bird(&cable.theirs);
    let ours = cable.start();
    ours.set_desired(&[key()], FAST);
    let mut took = Vec::new();
    for _ in 0..5 {
        ours.until(&key(), BfdState::Up);
        until("150 ms are agreed", || {
            ours.state(&key()).is_some_and(|it| it.detection == Some(Duration::from_millis(150)))
        });
        let since = Instant::now();
        bird.freeze();
        took.push(ours.lost(&key(), since));
        bird.thaw();
    }
    println!("BIRD frozen, 50 ms x 3: lost after {took:?}");
    assert!(took.iter().all(|it| *it < SOON), "{took:?}");
    ours.until(&key(), BfdState::Up);
    until_bird_says(&bird, "Up");
    ours.bfd.shut_down();
    until_bird_says(&bird, "Down");
}

#[test]
fn a_packet_that_passed_a_router_is_not_the_neighbors() {
    if lacks_routers(&[Bird::PROGRAM]) {
        return;
    }
    let cable = Cable::new();
    let bird = bird(&cable.theirs);
    let ours = cable.start();
    ours.set_desired(&[key()], FAST);
    ours.until(&key(), BfdState::Up);
    // "Down", from one that has not heard us: by it a session ends.
    let mut packet = vec![0x20, 0x40, 3, 24, 0, 0, 0, 9, 0, 0, 0, 0];
    packet.extend([0, 0x0f, 0x42, 0x40, 0, 0x0f, 0x42, 0x40, 0, 0, 0, 0]);
    let send = |hops| {
        cable.theirs.run(|| {
            let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).expect("a socket");
            socket.set_ttl_v4(hops).expect("set");
            socket.bind(&SocketAddr::new(ip(THEIRS), 0).into()).expect("it is there");
            socket.send_to(&packet, &SocketAddr::new(ip(OURS), SINGLE_HOP_PORT).into()).expect("sent");
        });
    };
    (0..20).for_each(|_| send(254));
    // What was sent before was read before.
    let since = Instant::now();
    assert_eq!(ours.downs(), 0);
    until_bird_says(&bird, "Up");
    assert_eq!(ours.downs(), 0);
    send(255);
    ours.lost(&key(), since);
}

/// They would push out what the neighbor says.
#[test]
fn a_flood_of_others_ends_no_session() {
    if lacks_routers(&[Bird::PROGRAM]) {
        return;
    }
    let cable = Cable::new();
    let bird = bird(&cable.theirs);
    cable.theirs.address("eth0", "10.77.0.3/24");
    let ours = cable.start();
    ours.set_desired(&[key()], FAST);
    ours.until(&key(), BfdState::Up);
    let end = Instant::now() + Duration::from_secs(1);
    cable.theirs.run(|| {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).expect("a socket");
        socket.set_ttl_v4(255).expect("set");
        socket.bind(&SocketAddr::new(ip("10.77.0.3"), 0).into()).expect("it is there");
        let to = SocketAddr::new(ip(OURS), SINGLE_HOP_PORT).into();
        while Instant::now() < end {
            let _ = socket.send_to(&[0x20; 64], &to);
        }
    });
    println!("a flood of a second: {} alarms", ours.downs());
    until_bird_says(&bird, "Up");
    assert!(ours.downs() <= 1, "{}", ours.downs());
}

#[test]
fn a_busy_machine_raises_no_false_alarm() {
    if lacks_routers(&[Bird::PROGRAM]) {
        return;
    }
    let cable = Cable::new();
    let bird = bird(&cable.theirs);
    let ours = cable.start();
    ours.set_desired(&[key()], FAST);
    ours.until(&key(), BfdState::Up);
    let end = Instant::now() + Duration::from_secs(3);
    let cores = thread::available_parallelism().map_or(2, usize::from);
    thread::scope(|scope| {
        for _ in 0..2 * cores {
            scope.spawn(|| while Instant::now() < end {});
        }
    });
    let downs = ours.downs();
    println!("3 s at 100 % CPU, 50 ms x 3: {downs} alarms");
    until_bird_says(&bird, "Up");
    // A machine may have had other work for whole seconds.
    assert!(downs <= 1, "{downs}");
}
