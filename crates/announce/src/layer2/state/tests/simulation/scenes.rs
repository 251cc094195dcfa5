//! What happens to hosts, one thing at a time.

use std::time::Duration;

use super::{Layer2StateMachine, Network, address, mac, millis, name, one_each};
use crate::layer2::settings::{AddressState, Timing};

#[test]
fn an_address_is_announced_within_a_second_of_the_start_of_one_host_or_three() {
    for hosts in [1, 3] {
        let mut network = Network::new(hosts, 7);
        network.start_all();
        let took = network.until("all addresses have an owner", one_each);
        assert!(took < Duration::from_secs(1), "{hosts}: {took:?}");
        network.run(Duration::from_secs(5));
        assert!(one_each(&network) && network.moves() == 0, "{}", network.told());
    }
}

#[test]
fn a_host_whose_peers_are_not_there_announces_after_it_listened() {
    for has_gateway in [true, false] {
        let mut network = Network::new(3, 7);
        network.hosts[1].has_gateway = has_gateway;
        network.start(1);
        let took = network.until("it announces", one_each);
        assert!(took > Timing::default().dead && took < Duration::from_secs(1), "{took:?}");
    }
}

#[test]
fn the_owner_is_the_first_in_the_order_of_those_that_live() {
    let mut network = Network::new(4, 3);
    network.start_all();
    network.until("owners", one_each);
    network.run(Duration::from_secs(5));
    for last in 1..=3 {
        let mut order: Vec<usize> = (0..4).collect();
        order.sort_by_key(|host| crate::layer2::election::rank(&name(*host), address(last)));
        assert_eq!(network.answering(last), order[..1], "{last}");
    }
}

#[test]
fn a_killed_owner_is_replaced_within_half_a_second() {
    for seed in 1..40 {
        let mut network = Network::new(3, seed * 7_919);
        network.start_all();
        network.until("owners", one_each);
        network.run(millis(2_000 + seed));
        let owner = network.answering(1)[0];
        network.hosts[owner].machine = None;
        let took = network.until("another owner", |it| it.answering(1).len() == 1);
        assert!(took <= millis(450), "seed {seed}: {took:?}");
    }
}

#[test]
fn a_planned_move_takes_as_long_as_one_message() {
    let mut network = Network::new(3, 5);
    network.start_all();
    network.until("owners", one_each);
    network.run(Duration::from_secs(2));
    let owner = network.answering(1)[0];
    network.hosts[owner].wants = vec![2, 3];
    network.set_desired(owner);
    assert!(network.answering(1).is_empty(), "withdrawn at once");
    let took = network.until("another owner", |it| it.answering(1).len() == 1);
    assert!(took <= millis(5), "{took:?}");

    // It comes back by itself, without anyone answering twice.
    network.hosts[owner].wants = vec![1, 2, 3];
    network.set_desired(owner);
    network.until("it is back", |it| it.answering(1) == [owner]);
    assert_eq!(network.found, [] as [u8; 0]);
}

#[test]
fn nothing_moves_while_one_packet_in_a_hundred_is_lost_and_owners_stall() {
    let mut network = Network::new(3, 11);
    network.start_all();
    network.until("owners", one_each);
    network.run(Duration::from_secs(3));
    let (owners, moves) = ([1, 2, 3].map(|it| network.answering(it)), network.moves());
    network.lost = 10;
    for stall in 0..200 {
        let host = stall % 3;
        network.hosts[host].frozen_until = network.now + millis(300);
        network.run(millis(900 + stall as u64 % 50));
    }
    assert_eq!((network.moves(), [1, 2, 3].map(|it| network.answering(it))), (moves, owners));
}

#[test]
fn an_owner_that_was_frozen_answers_nothing_after_another_began() {
    for seed in 1..30 {
        let mut network = Network::new(3, seed * 104_729);
        network.start_all();
        network.until("owners", one_each);
        network.run(Duration::from_secs(2));
        let owner = network.answering(1)[0];
        network.hosts[owner].frozen_until = network.now + millis(300 + 74 * seed);
        for _ in 0..6_000 {
            network.step();
            assert_eq!(network.found, [] as [u8; 0], "seed {seed}: {}", network.told());
        }
        assert_eq!(network.answering(1), [owner], "it is back");
    }
}

#[test]
fn who_hears_neither_a_peer_nor_its_gateway_stops_before_another_begins() {
    let mut network = Network::new(3, 13);
    network.start_all();
    network.until("owners", one_each);
    network.run(Duration::from_secs(2));
    let owner = network.answering(1)[0];
    network.hosts[owner].part = 1;
    let mut stopped = None;
    for _ in 0..2_000 {
        network.step();
        assert_eq!(network.found, [] as [u8; 0]);
        let answering = network.answering(1);
        if answering.is_empty() {
            stopped.get_or_insert(network.now);
        }
    }
    assert!(stopped.is_some() && network.answering(1) != [owner] && network.answering(1).len() == 1);
    let states = network.hosts[owner].machine.as_ref().expect("it runs").states(network.now);
    assert!(states.values().all(|(what, answers)| *what == AddressState::Isolated && !answers), "{states:?}");
}

#[test]
fn a_host_that_comes_back_has_its_addresses_once_it_was_well_for_a_second() {
    let mut network = Network::new(3, 23);
    network.start_all();
    network.until("owners", one_each);
    network.run(Duration::from_secs(3));
    let owner = network.answering(1)[0];
    network.hosts[owner].machine = None;
    network.until("another owner", one_each);
    network.start(owner);
    let took = network.until("it has it again", |it| it.answering(1) == [owner]);
    assert!((millis(1_000)..millis(1_500)).contains(&took), "{took:?}");
    // One that does not stay well never gets it.
    for _ in 0..8 {
        network.hosts[owner].machine = None;
        network.run(millis(700));
        network.start(owner);
        network.run(millis(900));
        assert_ne!(network.answering(1), [owner]);
    }
}

/// Its next process begins so much later, and may serve nothing.
fn succeed(network: &mut Network, host: usize, pause: Duration) {
    let now = network.now;
    let left = network.hosts[host].machine.take().expect("it runs").hand_over(now);
    assert!(!left.is_empty());
    network.run(pause);
    network.boots += 1;
    let mut machine =
        Layer2StateMachine::new(name(host), Timing::default(), true, network.boots, network.now);
    machine.set_gateway(true);
    machine.set_places(network.now, vec![mac(host)], |_| None);
    machine.inherit(network.now, &left);
    network.hosts[host].machine = Some(machine);
    network.set_desired(host);
}

#[test]
fn the_next_process_of_a_host_goes_on_with_its_life() {
    for pause in [0, 10, 250] {
        let mut network = Network::new(3, 29);
        network.start_all();
        network.until("owners", one_each);
        network.run(Duration::from_secs(3));
        let owner = network.answering(1)[0];
        succeed(&mut network, owner, millis(pause));
        for _ in 0..3_000 {
            assert_eq!(network.answering(1), [owner], "{pause}: {}", network.told());
            network.step();
        }
        assert!(network.moves() == 0 && one_each(&network), "{}", network.told());
    }
}

#[test]
fn a_next_process_that_serves_nothing_of_it_lets_it_go_at_once() {
    let mut network = Network::new(3, 29);
    network.start_all();
    network.until("owners", one_each);
    network.run(Duration::from_secs(3));
    let owner = network.answering(1)[0];
    network.hosts[owner].wants = Vec::new();
    succeed(&mut network, owner, millis(10));
    let took = network.until("others have it all", one_each);
    assert!(took <= millis(30), "{took:?}");
}

#[test]
fn a_host_that_starts_again_waits_until_it_knows_all_that_others_announce() {
    for lost in [0, 200] {
        let mut network = Network::new(3, 41);
        network.room = 5;
        network.start_all();
        network.until("owners", one_each);
        network.lost = lost;
        for host in (0..3).cycle().take(9) {
            network.hosts[host].machine = None;
            network.run(millis(600));
            network.start(host);
            for _ in 0..2_500 {
                network.step();
                assert_eq!(network.found, [] as [u8; 0], "{}", network.told());
            }
        }
    }
}

#[test]
fn a_process_that_begins_too_late_inherits_nothing() {
    let mut network = Network::new(3, 29);
    network.start_all();
    network.until("owners", one_each);
    network.run(Duration::from_secs(3));
    let owner = network.answering(1)[0];
    succeed(&mut network, owner, millis(900));
    for _ in 0..600 {
        assert!(!network.answering(1).contains(&owner));
        network.step();
        assert_eq!(network.found, [] as [u8; 0]);
    }
}

#[test]
fn two_that_do_not_hear_each_other_are_told_by_a_third() {
    let mut network = Network::new(3, 17);
    network.start_all();
    network.until("owners", one_each);
    network.run(Duration::from_secs(3));
    let owners = [1, 2, 3].map(|last| network.answering(last));
    network.cut = vec![[0, 1]];
    for _ in 0..3_000 {
        network.step();
        assert_eq!([1, 2, 3].map(|last| network.answering(last)), owners);
    }
    // Who dies is missed all the same, and as soon.
    network.hosts[0].machine = None;
    let took = network.until("others have it all", one_each);
    assert!(took <= millis(450), "{took:?}");
}

#[test]
fn after_a_split_in_which_both_sides_answered_one_stops_within_a_second() {
    for seed in 1..15 {
        let mut network = Network::new(3, seed * 31);
        network.with_gateway = vec![0, 1];
        network.start_all();
        network.until("owners", one_each);
        network.run(Duration::from_secs(2));
        let owner = network.answering(1)[0];
        network.hosts[owner].part = 1;
        network.run(Duration::from_secs(3));
        assert_eq!(network.answering(1).len(), 2, "a real split: each side has its clients");
        network.hosts[owner].part = 0;
        let took = network.until("one owner", one_each);
        assert!(took < millis(500), "{took:?}");
        network.run(Duration::from_secs(3));
        assert!(one_each(&network));
        let overlaps: u64 =
            network.hosts.iter().filter_map(|it| it.machine.as_ref()).map(|it| it.counters().overlaps).sum();
        assert!(overlaps >= 1, "it is counted");
    }
}
