//! One host, and what it is told.

mod simulation;

use std::{net::IpAddr, time::Duration};

use super::{Action, AddressClaim, HeartbeatStamp, Layer2StateMachine, Message, Moment, SubnetInterface};
use crate::layer2::{
    election::rank,
    packet::Arp,
    settings::{AddressState, DesiredAnnouncements, Mac, Peer, Timing, WantedAddress},
};

const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
const THEIRS: Mac = Mac([2, 0, 0, 0, 0, 9]);
const PLACE: SubnetInterface = SubnetInterface { link: 1, mac: OURS };
const START: Moment = Duration::from_secs(50);

fn address() -> IpAddr {
    IpAddr::from([192, 0, 2, 1])
}

fn wanted(peers: &[&str], addresses: &[IpAddr]) -> DesiredAnnouncements {
    let candidates: std::sync::Arc<[_]> = ["a", "b", "c"].map(Into::into).into();
    DesiredAnnouncements {
        peers: peers.iter().map(|it| Peer { name: (*it).into(), addresses: Vec::new() }).collect(),
        addresses: addresses
            .iter()
            .map(|it| WantedAddress { address: *it, candidates: candidates.clone() })
            .collect(),
        ..DesiredAnnouncements::default()
    }
}

/// Host `a`, with time that passes.
struct Host {
    machine: Layer2StateMachine,
    now: Moment,
}

impl Host {
    fn new(peers: &[&str], has_key: bool) -> Host {
        let mut machine = Layer2StateMachine::new("a".into(), Timing::default(), has_key, 7, START);
        machine.set_places(START, vec![OURS], |_| Some(PLACE));
        machine.set_desired(START, wanted(peers, &[address()]), |_| Some(PLACE), &mut Vec::new());
        Host { machine, now: START }
    }

    fn pass(&mut self, millis: u64) -> Vec<Action> {
        let mut actions = Vec::new();
        for _ in 0..millis {
            self.now += Duration::from_millis(1);
            self.machine.tick(self.now, &mut actions);
        }
        actions
    }

    fn what(&self) -> AddressState {
        self.machine.states(self.now)[&address()].0.clone()
    }

    /// What `b` says, in answer to our newest message.
    fn message(&mut self, sequence: u64, announcing: bool) -> Message {
        let said = self.pass(60);
        let ours = said.iter().rev().find_map(|it| match it {
            Action::Send(message) => Some(message.stamp),
            _ => None,
        });
        Message {
            from: "b".into(),
            to: "a".into(),
            stamp: HeartbeatStamp { boot: 8, sequence },
            acknowledged: ours.expect("it beats"),
            known: None,
            macs: vec![THEIRS],
            hears: Vec::new(),
            version: 1,
            part: 0,
            parts: 1,
            claims: vec![AddressClaim { address: address(), announcing }],
        }
    }
}

#[test]
fn a_host_without_peers_probes_three_times_and_announces_both_at_once_and_again() {
    let mut host = Host::new(&[], false);
    let actions = host.pass(299);
    assert_eq!(actions, vec![Action::Probe(address()); 3]);
    assert_eq!(host.what(), AddressState::Probing);
    let actions = host.pass(6_000);
    // At once, some soon for a network that loses, and each 1.1 seconds for five.
    assert_eq!(actions, vec![Action::Announce(address()); 8]);
    assert_eq!(host.what(), AddressState::Announcing);
    assert_eq!(host.pass(60_000).len(), 1);
    assert_eq!(host.machine.counters().moves, 0);
}

#[test]
fn another_machine_that_answers_a_probe_has_it_until_it_is_gone() {
    let mut host = Host::new(&[], false);
    host.pass(150);
    host.machine.dispute(host.now, address(), 2, THEIRS);
    assert_eq!(host.what(), AddressState::Probing, "it said so elsewhere");
    host.machine.dispute(host.now, address(), 1, OURS);
    assert_eq!(host.what(), AddressState::Probing, "it was ourselves");
    host.machine.dispute(host.now, address(), 1, THEIRS);
    assert_eq!(host.what(), AddressState::Conflict { ours: OURS, theirs: THEIRS });
    assert_eq!(host.pass(9_900), []);
    assert_eq!(host.machine.answers(host.now, address(), 1), None);
    // It is asked again; by now the other machine is gone.
    let actions = host.pass(500);
    assert_eq!(actions.iter().filter(|it| **it == Action::Probe(address())).count(), 3);
    assert_eq!(host.what(), AddressState::Announcing);
    assert_eq!(host.machine.counters().conflicts, 1);
}

#[test]
fn an_address_that_is_held_is_defended_once_in_ten_seconds() {
    let mut host = Host::new(&[], false);
    host.pass(10_000);
    let mut sent = 0;
    for _ in 0..50 {
        host.machine.dispute(host.now, address(), 1, THEIRS);
        sent += host.pass(100).len();
    }
    assert_eq!(sent, 1);
    assert_eq!(host.what(), AddressState::Conflict { ours: OURS, theirs: THEIRS });
    assert_eq!(host.machine.answers(host.now, address(), 1), Some(OURS), "it is answered for all the same");
    host.pass(30_000);
    assert_eq!(host.what(), AddressState::Announcing);
}

#[test]
fn without_a_key_nothing_is_announced_where_there_are_peers() {
    let mut host = Host::new(&["b"], false);
    assert_eq!(host.pass(3_000), []);
    assert_eq!(host.what(), AddressState::NoKey);
}

#[test]
fn a_host_that_is_no_candidate_or_has_no_subnet_announces_nothing() {
    let mut host = Host::new(&[], false);
    host.machine.set_places(host.now, Vec::new(), |_| None);
    host.pass(1_000);
    assert_eq!(host.what(), AddressState::NoInterface);
    let others = WantedAddress { address: address(), candidates: ["b".into()].into() };
    let wanted = DesiredAnnouncements { addresses: vec![others], ..DesiredAnnouncements::default() };
    host.machine.set_desired(host.now, wanted, |_| Some(PLACE), &mut Vec::new());
    assert_eq!(host.pass(1_000), []);
    assert_eq!(host.what(), AddressState::NotServed);
}

#[test]
fn a_message_counts_once_and_only_if_it_answers_what_we_said_just_now() {
    let mut host = Host::new(&["b"], true);
    let owner = AddressState::Standby { owner: "b".into() };
    let first = host.message(5, true);
    host.machine.receive(host.now, Message { to: "c".into(), ..first.clone() });
    host.machine.receive(host.now, Message { from: "c".into(), ..first.clone() });
    host.machine.receive(
        host.now,
        Message { acknowledged: HeartbeatStamp { boot: 6, sequence: 1 }, ..first.clone() },
    );
    host.pass(1);
    assert_ne!(host.what(), owner, "to another, from another, to an earlier life");
    host.machine.receive(host.now, first.clone());
    host.pass(1);
    assert_eq!(host.what(), owner);
    // The same again is not heard again.
    host.pass(200);
    host.machine.receive(host.now, first.clone());
    host.pass(250);
    assert_ne!(host.what(), owner, "it was heard 451 ms ago");
    // Nor is what answers something older, with whatever number.
    host.machine.receive(host.now, Message { stamp: HeartbeatStamp { boot: 8, sequence: 900 }, ..first });
    host.pass(1);
    assert_ne!(host.what(), owner);
}

#[test]
fn a_probe_that_a_host_of_ours_answers_does_not_make_an_address_free() {
    let mut host = Host::new(&["b"], true);
    let message = Message { claims: Vec::new(), ..host.message(5, false) };
    host.machine.receive(host.now, message);
    host.pass(100);
    assert_eq!(host.what(), AddressState::Probing);
    host.machine.dispute(host.now, address(), 1, THEIRS);
    for sequence in 6..16 {
        let message = Message { claims: Vec::new(), ..host.message(sequence, false) };
        host.machine.receive(host.now, message);
    }
    assert_eq!(host.what(), AddressState::Probing, "it will say so to us as well");
    assert_eq!(host.machine.counters().conflicts, 0);
}

#[test]
fn a_conflict_with_a_host_that_turns_out_to_be_ours_is_none() {
    let mut host = Host::new(&["b"], true);
    host.pass(600);
    host.machine.dispute(host.now, address(), 1, THEIRS);
    assert!(matches!(host.what(), AddressState::Conflict { .. }));
    let message = host.message(5, true);
    host.machine.receive(host.now, message);
    host.pass(1);
    assert_eq!(host.what(), AddressState::Standby { owner: "b".into() });
}

#[test]
fn of_two_that_probe_at_once_the_one_with_the_smaller_mac_goes_on() {
    let (smaller, larger) = (Mac([2, 0, 0, 0, 0, 0]), THEIRS);
    let mut host = Host::new(&[], false);
    host.pass(150);
    host.machine.rival(host.now, address(), 1, larger);
    assert_eq!(host.what(), AddressState::Probing);
    host.machine.rival(host.now, address(), 1, smaller);
    assert_eq!(host.what(), AddressState::Conflict { ours: OURS, theirs: smaller });
    // Who asks for what is announced gets an answer.
    let mut host = Host::new(&[], false);
    host.pass(1_000);
    host.machine.rival(host.now, address(), 1, smaller);
    assert_eq!(host.what(), AddressState::Announcing);
}

#[test]
fn packets_of_one_dispute_are_one_conflict_with_the_first_mac() {
    let mut host = Host::new(&[], false);
    host.pass(1_000);
    let revision = host.machine.revision();
    for other in 20..200 {
        host.machine.dispute(host.now, address(), 1, Mac([2, 0, 0, 0, 0, other]));
        host.pass(1);
    }
    assert_eq!(host.what(), AddressState::Conflict { ours: OURS, theirs: Mac([2, 0, 0, 0, 0, 20]) });
    assert_eq!(host.machine.counters().conflicts, 1);
    assert_eq!(host.machine.revision(), revision + 1, "told once");
}

#[test]
fn what_a_host_announced_that_is_no_peer_any_more_is_probed_first() {
    let mut host = Host::new(&["b"], true);
    let message = host.message(5, true);
    host.machine.receive(host.now, message);
    host.pass(1);
    assert_eq!(host.what(), AddressState::Standby { owner: "b".into() });
    host.machine.set_desired(host.now, wanted(&[], &[address()]), |_| Some(PLACE), &mut Vec::new());
    assert_eq!(host.pass(10), [Action::Probe(address())]);
    host.machine.dispute(host.now, address(), 1, THEIRS);
    assert_eq!(host.what(), AddressState::Conflict { ours: OURS, theirs: THEIRS });
}

#[test]
fn what_comes_back_on_a_link_is_probed_first() {
    let mut host = Host::new(&[], false);
    host.pass(1_000);
    host.machine.set_places(host.now, Vec::new(), |_| None);
    host.pass(10);
    host.machine.set_places(host.now, vec![OURS], |_| Some(PLACE));
    assert_eq!(host.pass(10), [Action::Probe(address())]);
}

#[test]
fn a_host_that_was_cut_off_for_long_probes_and_one_that_was_for_a_moment_does_not() {
    for (away, probes) in [(2_000, 0), (20_000, 3)] {
        let mut host = Host::new(&["b"], true);
        host.machine.set_gateway(true);
        let answer = |host: &mut Host, millis: u64| {
            let mut actions = Vec::new();
            for _ in 0..millis {
                actions.extend(host.pass(1));
                host.machine.gateway_answered();
            }
            actions.iter().filter(|it| **it == Action::Probe(address())).count()
        };
        assert_eq!(answer(&mut host, 2_000), 3);
        assert_eq!(host.what(), AddressState::Announcing);
        host.pass(away);
        assert_eq!(host.what(), AddressState::Isolated);
        assert_eq!(answer(&mut host, 2_000), probes, "{away} ms");
        assert_eq!(host.what(), AddressState::Announcing);
    }
}

#[test]
fn a_better_host_that_could_and_does_not_is_passed_over_for_good() {
    let last = |it: &u8| IpAddr::from([192, 0, 2, *it]);
    let better = |it: &u8| rank("b", last(it)) < rank("a", last(it));
    let address = last(&(1..255).find(better).expect("one of many"));
    let mut host = Host::new(&["b"], true);
    host.machine.set_desired(host.now, wanted(&["b"], &[address]), |_| Some(PLACE), &mut Vec::new());
    let mut announced = 0;
    for sequence in 1..200 {
        // It claims another address now and then, so that everything is decided again.
        let mut message = host.message(sequence, false);
        let other = IpAddr::from([198, 51, 100, u8::try_from(sequence / 4).expect("small")]);
        message.claims = [address, other].map(|address| AddressClaim { address, announcing: false }).to_vec();
        message.version = u32::try_from(sequence).expect("small");
        host.machine.receive(host.now, message);
        host.pass(1);
        let is_announced = host.machine.answers(host.now, address, 1).is_some();
        assert!(is_announced || announced == 0, "it is kept");
        announced += u32::from(is_announced);
    }
    assert!(announced > 100, "{announced}");
    // It does: then it is the better one again.
    let mut message = host.message(1_000, true);
    (message.claims, message.version) = (vec![AddressClaim { address, announcing: true }], 1_000);
    host.machine.receive(host.now, message);
    host.pass(1);
    assert_eq!(host.machine.answers(host.now, address, 1), None);
}

#[test]
fn claims_in_parts_count_once_all_of_them_came() {
    let mut host = Host::new(&["b"], true);
    let owner = AddressState::Standby { owner: "b".into() };
    let first = host.message(5, true);
    let parts = |sequence, part| Message {
        stamp: HeartbeatStamp { boot: 8, sequence },
        part,
        parts: 2,
        claims: if part == 0 { Vec::new() } else { first.claims.clone() },
        ..first.clone()
    };
    host.machine.receive(host.now, parts(5, 1));
    host.pass(1);
    assert_ne!(host.what(), owner);
    host.machine.receive(host.now, parts(6, 0));
    host.pass(1);
    assert_eq!(host.what(), owner);
}

#[test]
fn many_addresses_are_announced_a_few_at_a_time() {
    let mut host = Host::new(&[], false);
    let many: Vec<IpAddr> = (0..=255).map(|last| IpAddr::from([192, 0, 2, last])).collect();
    host.machine.set_desired(host.now, wanted(&[], &many), |_| Some(PLACE), &mut Vec::new());
    let mut most = 0;
    let mut announced = std::collections::BTreeSet::new();
    for _ in 0..500 {
        let actions = host.pass(1);
        most = most.max(actions.len());
        announced.extend(actions.iter().filter_map(|it| match it {
            Action::Announce(address) => Some(*address),
            _ => None,
        }));
    }
    assert!(most <= 64, "{most}");
    assert_eq!(announced.len(), 256);
}

#[test]
fn frames_are_answered_without_allocating() {
    let mut host = Host::new(&["b"], true);
    let message = host.message(5, false);
    host.machine.receive(host.now, message);
    host.pass(1);
    let frame = Arp::request(THEIRS, [192, 0, 2, 9].into(), [192, 0, 2, 1].into());
    let count = allocation_counter::measure(|| {
        for _ in 0..1_000 {
            let arp = Arp::read(&frame).expect("well-formed");
            host.machine.dispute(host.now, arp.sender.into(), 1, arp.sender_mac);
            host.machine.dispute(host.now, arp.target.into(), 1, arp.sender_mac);
            std::hint::black_box(host.machine.answers(host.now, arp.target.into(), 1));
            std::hint::black_box(arp.reply(OURS));
        }
    });
    assert_eq!(count.count_total, 0);
}
