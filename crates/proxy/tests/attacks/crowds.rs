//! Many hostile clients at one member of HTTP/2: those who come later are served, too.

use std::{io::Write, net::SocketAddr, sync::atomic::Ordering::SeqCst, time::Duration};

use seaway_model::load_balancer::Protocol;

use crate::{
    attacker::Attacker,
    frames::*,
    ground::alone,
    member::{Member, Terms},
    memory::{front, status},
    stage::*,
};

fn patient(listener: &mut seaway_model::Listener) {
    listener.timeouts.answer = 2 * PATIENCE;
    listener.timeouts.idle = 2 * PATIENCE;
}

/// Opens so many streams, and takes nothing of their answers.
fn hungry(at: SocketAddr, streams: u32) -> Attacker {
    let mut attacker = Attacker::new(at, 0);
    for number in 0..streams {
        attacker.ask(2 * number + 1, "GET", "/file", true);
    }
    attacker
}

/// Sends a quarter of a megabyte on so many streams, which the member does not read.
fn unread(at: SocketAddr, streams: u32) -> Attacker {
    let mut attacker = Attacker::new(at, 65_535);
    for number in 0..streams {
        attacker.ask(2 * number + 1, "POST", "/hold", false);
        for piece in vec![b'x'; (256 << 10) / streams as usize].chunks(16 << 10) {
            let _ = attacker.stream.write_all(&frame(DATA, 0, 2 * number + 1, piece));
        }
    }
    attacker
}

/// By either protocol, on connections of their own.
fn others_are_served(at: SocketAddr, times: usize) {
    for _ in 0..times {
        assert_eq!(status(at), "200");
        let mut client = Attacker::new(at, 65_535);
        (0..4).for_each(|number| assert!(client.ask(2 * number + 1, "GET", "/", true)));
        eventually("all of its streams are answered", || client.heard.data.load(SeqCst) >= 20);
        assert_eq!(client.heard.good.load(SeqCst), 4);
    }
}

#[test]
fn clients_of_a_member_are_served_beside_64_that_take_all_they_can() {
    let _alone = alone();
    for attack in [hungry, unread] {
        let member = Member::new(Terms { streams: 128, ..Terms::default() });
        let (_stage, at) = front(&[member.at], patient);
        assert_eq!(status(at), "200");
        let attackers: Vec<Attacker> = (0..64).map(|_| attack(at, 128)).collect();
        eventually("they hold more than eight connections have", || {
            member.told.requests.load(SeqCst) > 1_024
        });
        others_are_served(at, 8);
        assert!(member.connections() <= 64, "{} connections", member.connections());
        drop(attackers);
        assert_eq!(status(at), "200");
    }
}

#[test]
fn streams_that_do_not_move_make_room_when_a_member_has_no_more() {
    let _alone = alone();
    for attack in [hungry, unread] {
        // All of its connections together take fewer streams than these clients open.
        let member = Member::new(Terms { streams: 1, ..Terms::default() });
        let (_stage, at) = front(&[member.at], patient);
        assert_eq!(status(at), "200");
        let attackers: Vec<Attacker> = (0..40).map(|_| attack(at, 2)).collect();
        eventually("all that there are, are taken", || member.told.requests.load(SeqCst) >= 64);
        others_are_served(at, 1);
        drop(attackers);
    }
}

#[test]
fn streams_that_only_wait_for_their_member_keep_their_places() {
    let _alone = alone();
    let member = Member::new(Terms { streams: 1, ..Terms::default() });
    let (stage, at) = front(&[member.at], patient);
    let (hurried, _) = stage.open(HERE, |listener| {
        listener.protocol = Protocol::Http;
        listener.timeouts.answer = Duration::from_millis(2_500);
    });
    let waiting: Vec<Attacker> = (0..64)
        .map(|number| {
            let mut client = Attacker::new(at, 65_535);
            client.ask(1, "GET", "/hold", true);
            eventually("it has a stream", || member.told.requests.load(SeqCst) == number + 1);
            client
        })
        .collect();
    // One more than there are waits in vain: nobody is cut for it.
    assert_eq!(status(hurried), "503");
    let cut = |it: &&Attacker| it.heard.resets.load(SeqCst) + it.heard.heads.load(SeqCst) > 0;
    assert_eq!(waiting.iter().filter(cut).count(), 0, "streams that wait for an answer");
    drop(waiting);
}
