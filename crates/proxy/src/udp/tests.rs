//! Workers with real sockets, in both families.

mod one_turn;
mod rig;

use std::{
    collections::BTreeSet,
    net::UdpSocket,
    os::fd::AsFd,
    sync::{Arc, atomic::Ordering::SeqCst},
    time::Duration,
};

use seaway_model::{
    LbKey, Pool,
    load_balancer::{PassiveHealthCheck, ProxyVersion},
};

use self::rig::*;
use super::*;
use crate::{
    memory::MemoryBudget,
    proxy_state::ProxyState,
    running::{Health, RefusalReason},
    worker::Mailbox,
};

#[test]
fn a_flow_keeps_its_member_and_flows_take_turns() {
    for ip in FAMILIES {
        let backends = [Backend::new(ip), Backend::new(ip), Backend::new(ip)];
        let rig = Rig::new(2);
        rig.put(pool(&backends.each_ref().map(|backend| backend.at)));
        let listener = rig.open(ip, |_| {});
        let mut used = BTreeSet::new();
        // All at once, or the kernel would give one's port to the next.
        let clients: Vec<_> = (0..20).map(|_| Client::of(listener.at)).collect();
        for client in &clients {
            let (member, heard) = client.ask(b"hello");
            assert_eq!(heard, b"hello");
            for _ in 0..5 {
                assert_eq!(client.ask(b"again").0, member);
            }
            used.insert(member);
        }
        assert_eq!(used.len(), 3);
        assert_eq!(listener.active(), 20);
    }
}

#[test]
fn every_datagram_arrives_once_and_whole_whatever_its_size() {
    for ip in FAMILIES {
        let backend = Backend::new(ip);
        let rig = Rig::new(1);
        rig.put(pool(&[backend.at]));
        let listener = rig.open(ip, |_| {});
        let client = Client::of(listener.at);
        for size in [0, 1, 64, 1472, 1473, 9000, 60_000] {
            let text: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
            assert_eq!(client.ask(&text).1, text);
        }
    }
}

#[test]
fn trains_of_datagrams_go_through_in_both_directions() {
    for ip in FAMILIES {
        let backend = Backend::new(ip);
        let rig = Rig::new(1);
        rig.put(pool(&[backend.at]));
        let listener = rig.open(ip, |_| {});
        let client = Client::of(listener.at);
        for round in 0..50_u8 {
            let train: Vec<u8> = (0..10).flat_map(|part| vec![round * 5 + part; 500]).collect();
            sys::send_datagrams(client.0.as_fd(), &[], &train[..4800], Some(500)).unwrap();
            for part in 0..10 {
                let (_, heard) = client.answer();
                let length = if part == 9 { 300 } else { 500 };
                assert_eq!(heard, vec![round * 5 + part; length]);
            }
        }
    }
}

#[test]
fn a_silent_flow_ends_and_the_next_datagram_begins_another() {
    let backend = Backend::new(FAMILIES[0]);
    let rig = Rig::new(1);
    rig.put(pool(&[backend.at]));
    let listener = rig.open(FAMILIES[0], |listener| listener.timeouts.udp_idle = Duration::from_millis(100));
    let client = Client::of(listener.at);
    client.ask(b"x");
    assert_eq!(listener.active(), 1);
    until("the flow ends", || listener.active() == 0);
    client.ask(b"y");
    assert_eq!(listener.total.load(SeqCst), 2);
}

#[test]
fn a_dead_port_is_noticed_and_its_flow_moves() {
    for ip in FAMILIES {
        let alive = Backend::new(ip);
        let dead = UdpSocket::bind((ip, 0)).unwrap();
        // Connected elsewhere, it refuses everybody else, and nobody can take its port.
        dead.connect((ip, 9)).unwrap();
        let rig = Rig::new(1);
        let mut members = pool(&[alive.at, dead.local_addr().unwrap()]);
        members.passive = Some(PassiveHealthCheck {
            failures: 2,
            eject: Duration::from_secs(60),
            ..PassiveHealthCheck::default()
        });
        rig.put(members);
        let listener = rig.open(ip, |_| {});
        for _ in 0..10 {
            let client = Client::of(listener.at);
            client.0.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            let mut buffer = [0; 64];
            until("somebody answers", || {
                client.0.send(b"x").unwrap();
                client.0.recv(&mut buffer).is_ok()
            });
        }
        let tried = listener.connect_errors.load(SeqCst);
        assert!((1..=4).contains(&tried), "{tried} datagrams went to the dead one");
    }
}

#[test]
fn a_flow_leaves_a_member_that_fails_its_checks() {
    let backends = [Backend::new(FAMILIES[0]), Backend::new(FAMILIES[0])];
    let rig = Rig::new(1);
    let running = rig.put(pool(&backends.each_ref().map(|backend| backend.at)));
    let listener = rig.open(FAMILIES[0], |_| {});
    let client = Client::of(listener.at);
    let (first, _) = client.ask(b"x");
    let member = {
        let live = running.live();
        live.members[live.compiled.position(first).unwrap()].clone()
    };
    running.set_health(&member, Health::Down, sys::millis());
    let (second, _) = client.ask(b"y");
    assert_ne!(first, second);
    assert_eq!(member.active(), 0);
    running.set_health(&member, Health::Up, sys::millis());
    assert_eq!(client.ask(b"z").0, second, "coming back moves nobody");
}

#[test]
fn a_flow_stays_where_it_is_when_all_members_fail_their_checks() {
    let backends = [Backend::new(FAMILIES[0]), Backend::new(FAMILIES[0])];
    let rig = Rig::new(1);
    let members = backends.each_ref().map(|backend| backend.at);
    let running = rig.put(Pool { panic_threshold: 100, ..pool(&members) });
    let listener = rig.open(FAMILIES[0], |_| {});
    let client = Client::of(listener.at);
    let (first, _) = client.ask(b"x");
    for member in &running.live().members {
        running.set_health(member, Health::Down, sys::millis());
    }
    for _ in 0..3 {
        assert_eq!(client.ask(b"y").0, first, "the checks may be wrong, so all are used");
    }
}

#[test]
fn a_backup_gets_flows_while_no_other_member_is_up() {
    let backends = [Backend::new(FAMILIES[0]), Backend::new(FAMILIES[0])];
    let rig = Rig::new(1);
    let mut both = pool(&backends.each_ref().map(|backend| backend.at));
    both.members.iter_mut().for_each(|it| it.backup = it.at == backends[1].at);
    let running = rig.put(both);
    let listener = rig.open(FAMILIES[0], |_| {});
    let served_by = || Client::of(listener.at).ask(b"x").0;
    assert!((0..4).all(|_| served_by() == backends[0].at));
    let live = running.live();
    let first = live.members.iter().find(|it| it.at == backends[0].at).expect("it is listed");
    running.set_health(first, Health::Down, sys::millis());
    assert!((0..4).all(|_| served_by() == backends[1].at));
    running.set_health(first, Health::Up, sys::millis());
    assert!((0..4).all(|_| served_by() == backends[0].at));
}

#[test]
fn a_flow_of_a_removed_member_goes_on_until_the_drain_is_over() {
    let backends = [Backend::new(FAMILIES[0]), Backend::new(FAMILIES[0])];
    let rig = Rig::new(1);
    rig.put(pool(&backends.each_ref().map(|backend| backend.at)));
    let listener = rig.open(FAMILIES[0], |listener| listener.timeouts.drain = Duration::from_millis(700));
    let client = Client::of(listener.at);
    let (first, _) = client.ask(b"x");
    let other = backends.iter().find(|backend| backend.at != first).unwrap().at;
    rig.put(pool(&[other]));
    assert_eq!(client.ask(b"y").0, first);
    until("the flow has moved", || client.ask(b"z").0 == other);
    assert_eq!(listener.active(), 1);
}

#[test]
fn flows_that_begin_at_a_member_that_leaves_drain_as_well() {
    let member = UdpSocket::bind((FAMILIES[0], 0)).unwrap();
    member.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let rig = Rig::new(1);
    let mut leaving = pool(&[member.local_addr().unwrap()]);
    leaving.members[0].state = seaway_model::load_balancer::MemberState::Draining;
    rig.put(leaving);
    let listener = rig.open(FAMILIES[0], |listener| listener.timeouts.drain = Duration::from_millis(100));
    let client = Client::of(listener.at);
    let seen = || {
        client.0.send(b"x").unwrap();
        member.recv_from(&mut [0; 64]).unwrap().1
    };
    let first = seen();
    until("its flow has ended, and another has begun", || seen() != first);
}

#[test]
fn who_may_not_come_gets_nothing() {
    for ip in FAMILIES {
        let backend = Backend::new(ip);
        let rig = Rig::new(1);
        rig.put(pool(&[backend.at]));
        let closed = rig.open(ip, |listener| listener.sources = vec!["192.0.2.0/24".parse().unwrap()]);
        let denied = rig.open(ip, |listener| listener.denied = vec![ip.into()]);
        let open = rig.open(ip, |_| {});
        for closed in [closed, denied] {
            Client::of(closed.at).is_ignored(b"x", &Client::of(open.at));
            assert_eq!((closed.refused(RefusalReason::Source), closed.active()), (1, 0));
        }
        assert_eq!(open.active(), 2);
    }
}

#[test]
fn limits_refuse_newcomers_and_spare_those_who_are_in() {
    let backend = Backend::new(FAMILIES[0]);
    let rig = Rig::new(1);
    rig.put(pool(&[backend.at]));
    let listener = rig.open(FAMILIES[0], |listener| listener.limits.connections = Some(2));
    let (one, two, three) = (Client::of(listener.at), Client::of(listener.at), Client::of(listener.at));
    one.ask(b"x");
    two.ask(b"x");
    three.is_ignored(b"x", &one);
    assert_eq!(listener.refused(RefusalReason::Connections), 1);
}

#[test]
fn a_member_is_told_of_the_client_in_the_first_datagram() {
    for ip in FAMILIES {
        let backend = Backend::new(ip);
        let rig = Rig::new(1);
        rig.put(Pool { proxy: Some(ProxyVersion::V2), ..pool(&[backend.at]) });
        let listener = rig.open(ip, |_| {});
        let client = Client::of(listener.at);
        let (_, heard) = client.ask(b"payload");
        let seaway_wire::proxy::Parsed::Header(header) = seaway_wire::proxy::parse(&heard) else {
            panic!("no header: {heard:?}")
        };
        assert_eq!(header.source(), Some(client.0.local_addr().unwrap()));
        assert_eq!(header.destination(), Some(listener.at));
        assert_eq!(&heard[header.length..], b"payload");
        assert_eq!(client.ask(b"second").1, b"second");
    }
}

#[test]
fn a_trusted_proxy_must_say_who_the_client_is() {
    use seaway_wire::proxy::{Forwarded, Origin, Transport, Version, encode};
    for ip in FAMILIES {
        let backend = Backend::new(ip);
        let rig = Rig::new(1);
        rig.put(pool(&[backend.at]));
        let everybody = ["0.0.0.0/0".parse().unwrap(), "::/0".parse().unwrap()];
        let listener = rig.open(ip, |listener| {
            listener.proxy_from = everybody.to_vec();
            listener.sources = vec!["192.0.2.0/24".parse().unwrap()];
        });
        let plain = rig.open(ip, |_| {});
        let witness = Client::of(plain.at);
        let says = |client: &str| {
            let origin = Forwarded::new(
                Transport::Datagram,
                client.parse().unwrap(),
                "192.0.2.200:53".parse().unwrap(),
            );
            let mut datagram = Vec::new();
            encode(Version::V2, &Origin::Forwarded(origin), &mut datagram);
            datagram.extend_from_slice(b"payload");
            datagram
        };
        let client = Client::of(listener.at);
        client.is_ignored(b"no header", &witness);
        client.is_ignored(&says("198.51.100.7:1000"), &witness);
        assert_eq!(
            (listener.refused(RefusalReason::Header), listener.refused(RefusalReason::Source)),
            (1, 1)
        );
        assert_eq!(client.ask(&says("192.0.2.7:1000")).1, b"payload");
        assert_eq!(client.ask(b"bare").1, b"bare");
        assert_eq!(client.ask(&says("192.0.2.7:1000")).1, b"payload", "a proxy that was started anew");
    }
}

#[test]
fn without_members_nobody_is_let_in() {
    let rig = Rig::new(1);
    rig.put(pool(&[]));
    let listener = rig.open(FAMILIES[0], |_| {});
    Client::of(listener.at).0.send(b"x").unwrap();
    until("it is counted", || listener.refused(RefusalReason::NoMember) == 1);
    assert_eq!(listener.active(), 0);
}

#[test]
fn a_closed_listener_ends_its_flows() {
    let backend = Backend::new(FAMILIES[0]);
    let rig = Rig::new(2);
    let running = rig.put(pool(&[backend.at]));
    let listener = rig.open(FAMILIES[0], |_| {});
    let clients: Vec<_> = (0..10).map(|_| Client::of(listener.at)).collect();
    for client in &clients {
        client.ask(b"x");
    }
    listener.close(sys::millis());
    rig.shared.send_to_workers(&WorkerCommand::Close(listener.clone()));
    until("all flows end", || listener.active() == 0);
    assert_eq!(running.live().members[0].active(), 0);
    assert_eq!(rig.shared.flows(), 0);
}

#[test]
fn many_flows_at_once_all_get_their_own_answers() {
    let backends = [Backend::new(FAMILIES[0]), Backend::new(FAMILIES[0])];
    let rig = Rig::new(2);
    rig.put(pool(&backends.each_ref().map(|backend| backend.at)));
    let listener = rig.open(FAMILIES[0], |_| {});
    let clients: Vec<_> = (0..300).map(|_| Client::of(listener.at)).collect();
    for round in 0..5 {
        for (number, client) in clients.iter().enumerate() {
            client.0.send(format!("{round}:{number}").as_bytes()).unwrap();
        }
        for (number, client) in clients.iter().enumerate() {
            assert_eq!(client.answer().1, format!("{round}:{number}").as_bytes());
        }
    }
    assert_eq!(listener.active(), 300);
}

#[test]
fn a_flood_of_garbage_costs_no_more_than_agreed_and_spares_those_who_are_answered() {
    let backend = Backend::new(FAMILIES[0]);
    let rig = Rig::new(1);
    rig.put(pool(&[backend.at]));
    let listener = rig.open(FAMILIES[0], |_| {});
    let clients: Vec<_> = (0..20).map(|_| Client::of(listener.at)).collect();
    for client in &clients {
        client.ask(b"x");
    }
    sys::raise_descriptor_limit().unwrap();
    let garbage = 3 * MOST_FLOWS as u64;
    // Kept, or the kernel would give their ports to later ones.
    let mut liars = Vec::new();
    for number in 0..garbage {
        let liar = Client::of(listener.at);
        liar.0.send(b"garbage").unwrap();
        liars.push(liar);
        if number % 50 == 0 {
            until("it is dealt with", || listener.total.load(SeqCst) >= 20 + number);
        }
        assert!(rig.shared.flows() <= MOST_FLOWS);
    }
    for client in &clients {
        client.ask(b"y");
    }
    until("all is dealt with", || listener.total.load(SeqCst) >= 20 + garbage);
    assert_eq!(listener.total.load(SeqCst), 20 + garbage, "nobody had to come anew");
    assert!(listener.refused(RefusalReason::Resources) >= garbage - MOST_FLOWS as u64);
}

#[test]
fn while_the_control_group_is_nearly_full_flows_go_on_and_newcomers_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("memory.max", "1000");
    write("memory.stat", "inactive_file 0\nactive_file 0\n");
    write("memory.current", "100");
    let backend = Backend::new(FAMILIES[0]);
    let budget = Arc::new(MemoryBudget::of_group(folder.path()));
    let rig = Rig::with(1, |shared| shared.memory = budget.clone());
    rig.put(pool(&[backend.at]));
    let listener = rig.open(FAMILIES[0], |_| {});
    let before = Client::of(listener.at);
    before.ask(b"x");
    write("memory.current", "920");
    until("the group is found full", || {
        before.ask(b"y");
        budget.is_group_nearly_full()
    });
    let refused = Client::of(listener.at);
    refused.0.send(b"x").unwrap();
    until("it is refused", || listener.refused(RefusalReason::Resources) == 1);
    before.ask(b"z");
    assert_eq!(rig.shared.flows(), 1);
    write("memory.current", "100");
    until("there is room", || {
        before.ask(b"y");
        !budget.is_group_nearly_full()
    });
    refused.ask(b"again");
    assert_eq!(rig.shared.flows(), 2);
}
