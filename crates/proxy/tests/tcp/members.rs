use std::{
    collections::BTreeMap,
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use seaway_model::{
    Pool,
    load_balancer::{Affinity, Balance, MemberState, PassiveHealthCheck},
};
use seaway_proxy::RefusalReason;
use socket2::{Domain, Socket, Type};

use crate::stage::*;

/// How often each member answers so many new connections.
fn answers(at: SocketAddr, connections: usize) -> BTreeMap<u8, usize> {
    let mut answers = BTreeMap::new();
    for _ in 0..connections {
        *answers.entry(greeted(at).0).or_default() += 1;
    }
    answers
}

#[test]
fn new_connections_go_round() {
    let (stage, backends) = (Stage::new(), [b'a', b'b', b'c'].map(Backend::named));
    let at = stage.serve(&backends.each_ref().map(|backend| backend.at));
    // Each of the two workers has its own turn: they may differ by one each.
    let answers = answers(at, 60);
    assert!(answers.values().all(|count| (18..=22).contains(count)), "{answers:?}");
}

#[test]
fn weights_are_kept() {
    let (stage, backends) = (Stage::new(), [b'a', b'b'].map(Backend::named));
    let mut weighted = pool(&backends.each_ref().map(|backend| backend.at));
    for member in &mut weighted.members {
        member.weight = if member.at == backends[0].at { 3 } else { 1 };
    }
    stage.put(weighted);
    let (at, _) = stage.open(HERE, |_| {});
    let answers = answers(at, 80);
    assert!((57..=63).contains(&answers[&b'a']), "{answers:?}");
}

#[test]
fn least_connections_prefers_the_idle_one() {
    let (stage, backends) = (Stage::new(), [b'a', b'b'].map(Backend::named));
    let at_both = backends.each_ref().map(|backend| backend.at);
    stage.put(Pool { balance: Balance::LeastConnections, ..pool(&at_both[..1]) });
    let (at, _) = stage.open(HERE, |_| {});
    let busy: Vec<_> = (0..10).map(|_| greeted(at)).collect();
    stage.put(Pool { balance: Balance::LeastConnections, ..pool(&at_both) });
    let held: Vec<_> = (0..10).map(|_| greeted(at)).collect();
    assert!(busy.iter().all(|(name, _)| *name == b'a'));
    assert!(held.iter().all(|(name, _)| *name == b'b'));
}

#[test]
fn a_member_that_refuses_is_passed_over_unnoticed() {
    let (stage, backend) = (Stage::new(), Backend::named(b'a'));
    let dead = [nobody(), nobody(), nobody()];
    let at = stage.serve(&[dead[0], dead[1], dead[2], backend.at]);
    assert_eq!(answers(at, 20), [(b'a', 20)].into());
    let statistics = stage.listener(at);
    assert!(statistics.retries > 0 && statistics.retries == statistics.connect_errors, "{statistics:?}");
    assert_eq!(statistics.refusals(), 0);
}

#[test]
fn what_the_client_sent_before_a_redispatch_is_not_lost() {
    let (stage, backend) = (Stage::new(), Backend::echo(HERE));
    let at = stage.serve(&[nobody(), nobody(), nobody(), backend.at]);
    for _ in 0..20 {
        echoes(&mut connect(at));
    }
}

/// An address that takes no further connection and refuses none.
fn deaf() -> (SocketAddr, Socket, Vec<Socket>) {
    let listening = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listening.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listening.listen(0).unwrap();
    let at = listening.local_addr().unwrap().as_socket().unwrap();
    let waiting = (0..4)
        .map(|_| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            socket.set_nonblocking(true).unwrap();
            let _ = socket.connect(&at.into());
            socket
        })
        .collect();
    (at, listening, waiting)
}

#[test]
fn a_member_that_does_not_answer_in_time_is_passed_over() {
    let (stage, backend, deaf) = (Stage::new(), Backend::named(b'a'), deaf());
    stage.put(pool(&[deaf.0, backend.at]));
    let (at, _) = stage.open(HERE, |listener| listener.timeouts.connect = Duration::from_millis(150));
    assert_eq!(answers(at, 4), [(b'a', 4)].into());
    assert!(stage.member(deaf.0).connect_errors >= 1);
}

#[test]
fn without_members_a_client_is_reset() {
    let stage = Stage::new();
    let at = stage.serve(&[]);
    assert!(is_refused(at));
    stage.put(pool(&[nobody(), nobody()]));
    assert!(is_refused(at));
    assert_eq!(stage.listener(at).refused(RefusalReason::NoMember), 2);
    let backend = Backend::named(b'a');
    stage.put(pool(&[backend.at]));
    assert_eq!(greeted(at).0, b'a');
}

#[test]
fn a_killed_member_takes_only_its_own_connections_with_it() {
    let (stage, backends) = (Stage::new(), [b'a', b'b'].map(Backend::named));
    let at = stage.serve(&backends.each_ref().map(|backend| backend.at));
    let mut held: Vec<(u8, TcpStream)> = (0..10).map(|_| greeted(at)).collect();
    let [a, _b] = backends;
    drop(a);
    for (name, stream) in &mut held {
        if *name == b'a' {
            ending(stream);
        } else {
            echoes(stream);
        }
    }
    assert_eq!(answers(at, 10), [(b'b', 10)].into());
}

#[test]
fn a_member_that_keeps_failing_is_left_alone_for_a_while() {
    let (stage, backend, dead) = (Stage::new(), Backend::named(b'a'), nobody());
    let passive = Some(PassiveHealthCheck {
        failures: 3,
        eject: Duration::from_secs(60),
        ..PassiveHealthCheck::default()
    });
    stage.put(Pool { passive, ..pool(&[dead, backend.at]) });
    let (at, _) = stage.open(HERE, |_| {});
    assert_eq!(answers(at, 40), [(b'a', 40)].into());
    assert_eq!(stage.member(dead).connect_errors, 3);
}

#[test]
fn members_that_reset_before_any_answer_are_ejected() {
    let backend = Backend::new(HERE, |stream| {
        let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
    });
    let (stage, good) = (Stage::new(), Backend::named(b'a'));
    let passive = Some(PassiveHealthCheck {
        failures: 2,
        eject: Duration::from_secs(60),
        ..PassiveHealthCheck::default()
    });
    stage.put(Pool { passive, ..pool(&[backend.at, good.at]) });
    let (at, _) = stage.open(HERE, |_| {});
    eventually("it is ejected", || {
        let mut stream = connect(at);
        let _ = std::io::Read::read(&mut stream, &mut [0]);
        stage.member(backend.at).standing == seaway_proxy::MemberAvailability::Ejected
    });
    assert_eq!(answers(at, 10), [(b'a', 10)].into());
}

#[test]
fn a_client_keeps_its_member_while_the_pool_changes() {
    let (stage, backends) = (Stage::new(), [b'a', b'b', b'c', b'd', b'e'].map(Backend::named));
    let at_all = backends.each_ref().map(|backend| backend.at);
    let sticky = |members: &[SocketAddr]| {
        let affinity = Some(Affinity::ClientIp(Duration::from_secs(60)));
        stage.put(Pool { affinity, ..pool(members) });
    };
    sticky(&at_all[..2]);
    let (at, _) = stage.open(HERE, |_| {});
    let clients: Vec<[u8; 4]> = (1..30).map(|last| [127, 0, 1, last]).collect();
    let names =
        || -> Vec<u8> { clients.iter().map(|client| name_of(&mut connect_from(*client, at))).collect() };
    let before = names();
    assert!(before.contains(&b'a') && before.contains(&b'b'));
    sticky(&at_all);
    assert_eq!(names(), before, "hashing alone would have moved some to the new members");
    sticky(&at_all[1..]);
    let after = names();
    for (was, is) in before.iter().zip(&after) {
        assert!(*is != b'a' && (*was == b'a' || was == is));
    }
}

#[test]
fn connections_that_begin_at_a_member_that_leaves_drain_as_well() {
    let (stage, backend) = (Stage::new(), Backend::named(b'a'));
    let mut leaving = pool(&[backend.at]);
    leaving.members[0].state = MemberState::Draining;
    stage.put(leaving);
    // By the time they come, everybody who was there when it began to leave would have been ended.
    let (at, _) = stage.open(HERE, |listener| listener.timeouts.drain = Duration::from_millis(100));
    for _ in 0..3 {
        let mut held = connect(at);
        let mut heard = Vec::new();
        // An end, or a reset where the greeting was still on its way: it does not go on until it is idle.
        let _ = held.read_to_end(&mut heard).inspect_err(|error| {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
        });
    }
    eventually("nothing is left", || stage.member(backend.at).traffic.current == 0);
}

#[test]
fn draining_members_get_nothing_new_but_keep_what_they_have() {
    let (stage, backends) = (Stage::new(), [b'a', b'b'].map(Backend::named));
    let mut both = pool(&backends.each_ref().map(|backend| backend.at));
    stage.put(both.clone());
    let (at, _) = stage.open(HERE, |_| {});
    let mut held: Vec<_> = (0..6).map(|_| greeted(at)).collect();
    let place = both.members.iter().position(|member| member.at == backends[0].at).unwrap();
    both.members[place].state = MemberState::Draining;
    stage.put(both.clone());
    assert_eq!(answers(at, 10), [(b'b', 10)].into());
    held.iter_mut().for_each(|(_, stream)| echoes(stream));
    // Better a terminating member than none.
    both.members.iter_mut().for_each(|member| member.state = MemberState::Draining);
    stage.put(both);
    assert_eq!(answers(at, 10).values().sum::<usize>(), 10);
}

#[test]
fn a_backup_serves_while_the_others_do_not_and_no_longer() {
    let (stage, backends) = (Stage::new(), [b'a', b'b', b'z'].map(Backend::named));
    let mut all = pool(&backends.each_ref().map(|backend| backend.at));
    let spare = backends[2].at;
    all.members.iter_mut().for_each(|it| it.backup = it.at == spare);
    stage.put(all.clone());
    let (at, _) = stage.open(HERE, |_| {});
    assert_eq!(answers(at, 20).keys().copied().collect::<Vec<_>>(), b"ab");
    // No longer listed, and of no weight: either way they are not there for new connections.
    let mut alone = all.clone();
    alone.members.iter_mut().filter(|it| it.at != spare).for_each(|it| it.weight = 0);
    stage.put(alone);
    assert_eq!(answers(at, 10), [(b'z', 10)].into());
    stage.put(all.clone());
    assert!(!answers(at, 20).contains_key(&b'z'));
    // One that takes no connection is passed over, and by and by left out.
    let dead = pool(&[nobody(), spare]);
    let mut dead =
        Pool { passive: Some(PassiveHealthCheck { failures: 1, ..PassiveHealthCheck::default() }), ..dead };
    dead.members.iter_mut().for_each(|it| it.backup = it.at == spare);
    stage.put(dead);
    assert_eq!(answers(at, 10), [(b'z', 10)].into());
}

#[test]
fn connections_to_members_and_first_bytes_are_measured() {
    let backend = Backend::new(HERE, |mut stream| {
        let _ = stream.read(&mut [0; 8]);
        std::thread::sleep(Duration::from_millis(20));
        let _ = stream.write_all(b"hello");
    });
    let stage = Stage::new();
    let at = stage.serve(&[backend.at]);
    let latencies = || stage.proxy.statistics().pools[0].latency.clone();
    let ask = || {
        let mut client = connect(at);
        client.write_all(b"x").unwrap();
        assert_eq!(client.read(&mut [0; 8]).unwrap(), 5);
    };
    ask();
    assert_eq!(latencies(), None, "nothing is measured unless it is asked for");
    stage.proxy.measure_latency(true);
    ask();
    eventually("it is measured", || latencies().is_some_and(|it| it.first_byte.count() == 1));
    let told = latencies().unwrap();
    assert_eq!((told.connect.count(), told.first_byte.count(), told.request.count()), (1, 1, 0));
    assert!(told.first_byte.sum >= 20_000 && told.connect.sum < told.first_byte.sum, "{told:?}");
    let member = stage.member(backend.at);
    assert_eq!((member.measured, member.took), (1, told.connect.sum));
}
