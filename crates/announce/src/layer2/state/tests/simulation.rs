//! Several machines, one network that loses, delays and splits, and clocks that hosts miss: what must always hold.

mod scenes;

use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
    time::Duration,
};

use proptest::prelude::*;
use seaway_model::Name;

use super::{Action, Layer2StateMachine, Message, SubnetInterface};
use crate::layer2::settings::{DesiredAnnouncements, Mac, Peer, Timing, WantedAddress};

const MILLI: Duration = Duration::from_millis(1);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn address(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

fn name(host: usize) -> Name {
    format!("host-{host}").into()
}

struct Host {
    machine: Option<Layer2StateMachine>,
    frozen_until: Duration,
    inbox: VecDeque<(Duration, Message)>,
    wants: Vec<u8>,
    part: usize,
    has_gateway: bool,
    answers: Option<Duration>,
}

struct Network {
    now: Duration,
    hosts: Vec<Host>,
    random: u64,
    /// Of a thousand messages.
    lost: u64,
    /// Pairs that do not hear each other, though others hear both.
    cut: Vec<[usize; 2]>,
    /// Parts that reach the gateway.
    with_gateway: Vec<usize>,
    /// Bytes of claims in one message.
    room: usize,
    boots: u64,
    began: BTreeMap<u8, u32>,
    found: Vec<u8>,
}

impl Network {
    fn new(hosts: usize, seed: u64) -> Network {
        let host = |_| Host {
            machine: None,
            frozen_until: Duration::ZERO,
            inbox: VecDeque::new(),
            wants: vec![1, 2, 3],
            part: 0,
            has_gateway: true,
            answers: None,
        };
        Network {
            now: Duration::from_secs(100),
            hosts: (0..hosts).map(host).collect(),
            random: seed | 1,
            lost: 0,
            cut: Vec::new(),
            with_gateway: vec![0],
            room: 420,
            boots: 0,
            began: BTreeMap::new(),
            found: Vec::new(),
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % below
    }

    fn start(&mut self, host: usize) {
        self.boots += 1;
        let mut machine = Layer2StateMachine::new(name(host), Timing::default(), true, self.boots, self.now);
        machine.set_gateway(self.hosts[host].has_gateway);
        machine.room = self.room;
        machine.set_places(self.now, vec![mac(host)], |_| None);
        self.hosts[host].machine = Some(machine);
        self.hosts[host].inbox.clear();
        self.set_desired(host);
    }

    fn start_all(&mut self) {
        (0..self.hosts.len()).for_each(|host| self.start(host));
    }

    fn set_desired(&mut self, host: usize) {
        let all: Vec<usize> = (0..self.hosts.len()).collect();
        let candidates: std::sync::Arc<[Name]> = all.iter().map(|it| name(*it)).collect();
        let wanted = |last: &u8| WantedAddress { address: address(*last), candidates: candidates.clone() };
        let wanted = DesiredAnnouncements {
            peers: all.iter().map(|it| Peer { name: name(*it), addresses: Vec::new() }).collect(),
            addresses: self.hosts[host].wants.iter().map(wanted).collect(),
            ..DesiredAnnouncements::default()
        };
        let now = self.now;
        let place = SubnetInterface { link: 1, mac: mac(host) };
        let mut actions = Vec::new();
        let Some(machine) = &mut self.hosts[host].machine else { return };
        machine.set_desired(now, wanted, |_| Some(place), &mut actions);
        machine.tick(now, &mut actions);
        self.act(host, actions);
    }

    fn act(&mut self, host: usize, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Send(message) => {
                    let to = (0..self.hosts.len()).find(|it| name(*it) == message.to).expect("a host");
                    let is_cut = self.cut.iter().any(|it| it.contains(&host) && it.contains(&to));
                    let is_one = self.hosts[to].part == self.hosts[host].part && !is_cut;
                    if is_one && self.random(1_000) >= self.lost {
                        let at = self.now + millis(self.random(4));
                        self.hosts[to].inbox.push_back((at, message));
                    }
                }
                Action::AskGateway => {
                    let is_there = self.with_gateway.contains(&self.hosts[host].part);
                    self.hosts[host].answers = is_there.then_some(self.now + MILLI);
                }
                Action::Announce(IpAddr::V4(it)) => *self.began.entry(it.octets()[3]).or_default() += 1,
                _ => {}
            }
        }
    }

    fn answering(&self, last: u8) -> Vec<usize> {
        self.answerers(last).collect()
    }

    fn answerers(&self, last: u8) -> impl Iterator<Item = usize> {
        let answers = move |host: &Host| {
            let machine = host.machine.as_ref().filter(|_| host.frozen_until <= self.now);
            machine.is_some_and(|it| it.answers(self.now, address(last), 1).is_some())
        };
        self.hosts.iter().enumerate().filter(move |(_, host)| answers(host)).map(|(at, _)| at)
    }

    /// One millisecond. Notes the addresses that two answer for.
    fn step(&mut self) {
        self.now += MILLI;
        self.found = (1..=3).filter(|last| self.answerers(*last).nth(1).is_some()).collect();
        for host in 0..self.hosts.len() {
            let now = self.now;
            let this = &mut self.hosts[host];
            if this.frozen_until > now {
                continue;
            }
            let Some(machine) = &mut this.machine else {
                this.inbox.clear();
                continue;
            };
            let mut has_news = false;
            if this.answers.is_some_and(|at| at <= now) {
                this.answers = None;
                machine.gateway_answered();
                has_news = true;
            }
            for _ in 0..this.inbox.len() {
                match this.inbox.pop_front() {
                    Some((at, message)) if at <= now => {
                        machine.receive(now, message);
                        has_news = true;
                    }
                    later => this.inbox.extend(later),
                }
            }
            if has_news || machine.next(now - MILLI) <= now {
                let mut actions = Vec::new();
                machine.tick(now, &mut actions);
                self.act(host, actions);
            }
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.step();
        }
    }

    /// How long until it holds.
    fn until(&mut self, what: &str, met: impl Fn(&Network) -> bool) -> Duration {
        let begun = self.now;
        while !met(self) {
            self.step();
            assert!(self.now - begun < Duration::from_secs(20), "in vain: {what}: {}", self.told());
        }
        self.now - begun
    }

    fn told(&self) -> String {
        let tell = |host: &Host| host.machine.as_ref().map(|it| it.states(self.now));
        self.hosts.iter().map(|host| format!("{:?}\n", tell(host))).collect()
    }

    fn moves(&self) -> u64 {
        self.hosts.iter().filter_map(|it| it.machine.as_ref()).map(|it| it.counters().moves).sum()
    }
}

fn mac(host: usize) -> Mac {
    Mac([2, 0, 0, 0, 0, host as u8])
}

fn one_each(network: &Network) -> bool {
    (1..=3).all(|last| network.answering(last).len() == 1)
}

#[derive(Clone, Debug)]
enum Fault {
    Freeze(usize, u64),
    Kill(usize),
    Start(usize),
    Split(usize),
    Heal,
    Drain(usize, u8),
    Serve(usize),
    Lose(u64),
    /// These two do not hear each other.
    Cut(usize, usize),
}

fn fault() -> impl Strategy<Value = Fault> {
    let host = 0..4_usize;
    prop_oneof![
        (host.clone(), 10..3_000_u64).prop_map(|(host, time)| Fault::Freeze(host, time)),
        host.clone().prop_map(Fault::Kill),
        host.clone().prop_map(Fault::Start),
        host.clone().prop_map(Fault::Split),
        Just(Fault::Heal),
        (host.clone(), 1..=3_u8).prop_map(|(host, last)| Fault::Drain(host, last)),
        host.prop_map(Fault::Serve),
        (0..50_u64).prop_map(Fault::Lose),
        (0..4_usize, 0..4_usize).prop_map(|(one, other)| Fault::Cut(one, other)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: seaway_testkit::properties::cases(12), ..ProptestConfig::default() })]

    #[test]
    fn an_address_has_one_owner_at_most_and_one_after_all_is_well(
        seed in any::<u64>(),
        // In the first of three, who is cut off reaches no gateway; then all reach one, or know of none, and both sides of a
        // split go on.
        gateways in 0..3_u8,
        // All claims fit one message, or one does.
        has_room in any::<bool>(),
        faults in proptest::collection::vec((fault(), 5..1_500_u64), 1..25),
    ) {
        let mut network = Network::new(4, seed);
        network.hosts.iter_mut().for_each(|it| it.has_gateway = gateways != 2);
        network.with_gateway = if gateways == 1 { (0..=4).collect() } else { vec![0] };
        network.start_all();
        network.room = if has_room { 420 } else { 5 };
        let mut split = None;
        // Hosts that start at once may find each other only after both began.
        let mut twice: BTreeMap<u8, u64> = BTreeMap::new();
        for (fault, time) in faults {
            match fault {
                Fault::Freeze(host, time) => network.hosts[host].frozen_until = network.now + millis(time),
                Fault::Kill(host) => network.hosts[host].machine = None,
                Fault::Start(host) if network.hosts[host].machine.is_none() => network.start(host),
                Fault::Start(_) => {}
                // It reaches nobody, nor the gateway.
                Fault::Split(host) => network.hosts[host].part = 1 + host,
                Fault::Heal => {
                    network.hosts.iter_mut().for_each(|it| it.part = 0);
                    network.cut.clear();
                }
                Fault::Drain(host, last) => {
                    network.hosts[host].wants.retain(|it| *it != last);
                    network.set_desired(host);
                }
                Fault::Serve(host) => {
                    network.hosts[host].wants = vec![1, 2, 3];
                    network.set_desired(host);
                }
                Fault::Lose(lost) => network.lost = lost,
                Fault::Cut(one, other) if one != other => network.cut.push([one, other]),
                Fault::Cut(..) => {}
            }
            for _ in 0..time {
                network.step();
                // Several cuts are a split, in which all reach the gateway.
                let is_apart = gateways != 0 && network.hosts.iter().any(|it| it.part != 0);
                if is_apart || !network.cut.is_empty() {
                    split = Some(network.now);
                }
                if split.is_some_and(|at| network.now - at <= Duration::from_secs(1)) {
                    continue;
                }
                for last in network.found.clone() {
                    let count = twice.entry(last).or_default();
                    *count += 1;
                    prop_assert!(*count <= 20, "{last} for {count} ms: {}", network.told());
                }
            }
        }
        (network.lost, network.cut) = (0, Vec::new());
        for host in 0..4 {
            network.hosts[host].part = 0;
            network.hosts[host].wants = vec![1, 2, 3];
            if network.hosts[host].machine.is_none() {
                network.start(host);
            }
            network.set_desired(host);
        }
        network.run(Duration::from_secs(8));
        prop_assert!(one_each(&network), "{}", network.told());
        for last in 1..=3 {
            let mut order: Vec<usize> = (0..4).collect();
            order.sort_by_key(|host| crate::layer2::election::rank(&name(*host), address(last)));
            prop_assert_eq!(network.answering(last), &order[..1]);
        }
    }
}
