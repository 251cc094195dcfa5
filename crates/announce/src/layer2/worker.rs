//! The thread: sockets in, the state machine, sockets out.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr},
    os::fd::AsFd,
    sync::{Arc, atomic::Ordering},
    time::{Duration, SystemTime},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
use seaway_model::Name;
use seaway_watchdog::Heartbeat;

use super::{
    announcer::{AnnouncerShared, locked},
    clock::{boot, now},
    heartbeat::Message,
    interfaces::{Interfaces, gateway},
    packet::{Advertisement, Arp, Solicitation},
    responder::NeighborResponder,
    settings::{AddressState, AddressStatus, DesiredAnnouncements, Mac, Peer, Settings},
    sockets::{BUFFER, Family, HeartbeatSocket, LinkSocket, MulticastGroups},
    state::{Action, Layer2StateMachine, Moment, SubnetInterface},
    succession::HandoverPeers,
};
use crate::{Error, LinkWatch};

/// Frames of one socket, and heartbeats, before others have a turn.
const FRAMES: usize = 64;
const BEATS: usize = 512;
/// Until a socket that could not be opened is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// Interfaces are looked at no more often, for machines where they come and go with pods.
const REST: Duration = Duration::from_millis(50);
/// Routes are looked at again so often.
const GATEWAY: Duration = Duration::from_secs(5);
/// A host that has the key and is not known as a peer yet counts as one for so long after its last message.
const ACQUAINTANCE: Duration = Duration::from_secs(10);
const MOST_STRANGERS: usize = 64;
/// That an address was let go is said so often, since there is no later message that says it.
const FAREWELLS: usize = 3;

type ChangeCallback = Box<dyn FnMut(&BTreeMap<IpAddr, AddressStatus>) + Send>;

pub(super) struct Worker {
    settings: Settings,
    shared: Arc<AnnouncerShared>,
    changed: ChangeCallback,
    heartbeat: Heartbeat,
    watch: LinkWatch,
    machine: Layer2StateMachine,
    wanted: DesiredAnnouncements,
    /// Hosts with our key that are no peers as far as we were told: where they are, and until when they count.
    strangers: BTreeMap<Name, (IpAddr, Moment)>,
    interfaces: Interfaces,
    links: BTreeMap<(u32, Family), LinkSocket>,
    beats: Option<HeartbeatSocket>,
    succession: HandoverPeers,
    groups: MulticastGroups,
    gateway: Option<(u32, IpAddr)>,
    /// A socket that is needed cannot be opened.
    lacks: bool,
    looked: Moment,
    look_again: Moment,
    told: u64,
    tell_again: Moment,
    actions: Vec<Action>,
    buffer: Vec<u8>,
}

impl Worker {
    pub(super) fn new(
        settings: Settings,
        shared: Arc<AnnouncerShared>,
        changed: ChangeCallback,
        heartbeat: Heartbeat,
    ) -> Result<Worker, Error> {
        let now = now();
        let machine = Layer2StateMachine::new(
            settings.host.clone(),
            settings.timing,
            settings.key.is_some(),
            boot(),
            now,
        );
        Ok(Worker {
            settings,
            shared,
            changed,
            heartbeat,
            watch: LinkWatch::open()?,
            machine,
            wanted: DesiredAnnouncements::default(),
            strangers: BTreeMap::new(),
            interfaces: Interfaces::default(),
            links: BTreeMap::new(),
            beats: None,
            succession: HandoverPeers::default(),
            groups: MulticastGroups::default(),
            gateway: None,
            lacks: false,
            looked: Moment::ZERO,
            look_again: now,
            told: 0,
            tell_again: now,
            actions: Vec::new(),
            buffer: vec![0; BUFFER],
        })
    }

    pub(super) fn run(mut self) {
        self.heartbeat.enter_thread();
        while !self.shared.ended.load(Ordering::Relaxed) {
            self.heartbeat.beat();
            self.turn();
            self.wait();
        }
        self.end();
    }

    /// A successor on this machine goes on with it all; without one it is let go, and peers are told.
    fn end(mut self) {
        let has_successor = self.succession.has_successor(&self.settings);
        let left = if has_successor { self.machine.hand_over(now()) } else { Vec::new() };
        if let (Some(key), false) = (&self.settings.key, left.is_empty())
            && self.succession.hand_over(key, &left)
        {
            // Before its successor hears that this process is gone.
            self.beats = None;
            return;
        }
        for _ in 0..FAREWELLS {
            self.machine.stop(now(), &mut self.actions);
            self.act();
        }
    }

    fn turn(&mut self) {
        let wanted = locked(&self.shared.wanted).take().filter(|it| *it != self.wanted);
        // News of interfaces is all looked at together. A watch that fails says so by that, too.
        let moved = self.watch.events().map_or(true, |events| !events.is_empty());
        let time = now();
        self.succession.accept(&self.settings);
        if let Some(key) = &self.settings.key
            && let Some(left) = self.succession.inherit(key, &mut self.buffer)
        {
            self.machine.inherit(time, &left);
            self.look_again = time;
        }
        if moved {
            self.look_again = self.look_again.min(self.looked.saturating_add(REST));
        }
        if wanted.is_some() || time >= self.look_again {
            self.look(time, wanted);
        }
        self.receive_heartbeats();
        self.listen();
        // Later than what was heard: whether a lease is over is judged by the time after.
        let time = now();
        self.machine.tick(time, &mut self.actions);
        self.act();
        self.report_changes(time);
    }

    fn wait(&self) {
        let time = now();
        let until = self.machine.next(time).min(self.look_again).min(self.tell_again);
        let pause = until.saturating_sub(time).saturating_add(Duration::from_micros(999));
        let timeout = PollTimeout::try_from(pause).unwrap_or(PollTimeout::from(100_u8));
        let sockets = self.links.values().map(AsFd::as_fd).chain(self.beats.as_ref().map(AsFd::as_fd));
        let own = [self.watch.as_fd(), self.shared.wake.as_fd()].into_iter().chain(self.succession.sockets());
        let mut polled: Vec<_> = own.chain(sockets).map(|it| PollFd::new(it, PollFlags::POLLIN)).collect();
        // Interrupted or not, the turn looks at everything.
        let _ = poll(&mut polled, timeout);
        let _ = self.shared.wake.read();
    }

    /// At interfaces, routes and what is wanted.
    fn look(&mut self, time: Moment, wanted: Option<DesiredAnnouncements>) {
        (self.looked, self.look_again) = (time, time.saturating_add(GATEWAY));
        if let Some(wanted) = wanted {
            self.wanted = wanted;
        }
        if let Ok(found) = Interfaces::observe() {
            self.interfaces = found;
        }
        let wanted = self.open_sockets(time);
        let (interfaces, links, only) = (&self.interfaces, &self.links, &self.wanted.interfaces);
        // Where no socket could be opened, nothing is announced.
        let place = |address: IpAddr| {
            let place: SubnetInterface = interfaces.place(address, only.get(&address))?;
            links.contains_key(&(place.link, Family::of(address))).then_some(place)
        };
        let mut macs: Vec<Mac> =
            self.links.keys().filter_map(|(index, _)| Some(interfaces.get(*index)?.mac)).collect();
        macs.sort_unstable();
        macs.dedup();
        self.machine.set_places(time, macs, place);
        self.machine.set_desired(time, wanted, place, &mut self.actions);
        if let Ok(found) = gateway() {
            self.gateway = found.filter(|(index, _)| interfaces.get(*index).is_some());
            self.open_gateway();
        }
        self.machine.set_gateway(self.gateway.is_some());
        self.told = 0;
    }

    /// What may be announced with the sockets that there are: all that is wanted, or nothing.
    fn open_sockets(&mut self, time: Moment) -> DesiredAnnouncements {
        self.strangers.retain(|_, (_, until)| time < *until);
        let mut wanted = self.wanted.clone();
        let named: Vec<Name> = wanted.peers.iter().map(|it| it.name.clone()).collect();
        let others = self.strangers.iter().filter(|(name, _)| !named.contains(name));
        wanted.peers.extend(others.map(|(name, (at, _))| Peer { name: name.clone(), addresses: vec![*at] }));
        let has_peers = wanted.peers.iter().any(|peer| peer.name != self.settings.host);
        let needs_beats = self.settings.key.is_some();
        if needs_beats && self.beats.is_none() && !self.succession.is_waiting() {
            match HeartbeatSocket::open(self.settings.port) {
                Ok(socket) => {
                    self.beats = Some(socket);
                    self.succession.listen(self.settings.port);
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                    self.succession.wait_behind(self.settings.port, &self.settings);
                }
                Err(_) => {}
            }
        }
        self.lacks = needs_beats && has_peers && self.beats.is_none();
        let needed: Vec<(u32, Family)> = self
            .wanted
            .addresses
            .iter()
            .filter_map(|it| {
                let address = it.address.to_canonical();
                let only = self.wanted.interfaces.get(&address);
                Some((self.interfaces.place(address, only)?.link, Family::of(address)))
            })
            .collect();
        let gateway = self.gateway.map(|(index, gateway)| (index, Family::of(gateway)));
        let interfaces = &self.interfaces;
        self.links.retain(|key, _| {
            (needed.contains(key) || gateway == Some(*key)) && interfaces.get(key.0).is_some()
        });
        for key in needed {
            if let Err(error) = self.open_link(key) {
                // Another interface may be well; without the capability, none is.
                self.lacks |= error.kind() == io::ErrorKind::PermissionDenied;
                self.look_again = time.saturating_add(RETRY);
            }
        }
        if self.lacks {
            self.look_again = time.saturating_add(RETRY);
            wanted.addresses.clear();
        }
        wanted
    }

    fn open_link(&mut self, key: (u32, Family)) -> io::Result<()> {
        let interface = self.interfaces.get(key.0);
        if let Some(interface) = interface.filter(|_| !self.links.contains_key(&key)) {
            self.links.insert(key, LinkSocket::open(&interface.link, key.1)?);
        }
        Ok(())
    }

    /// It is asked only where there are peers.
    fn open_gateway(&mut self) {
        let has_peers = !self.wanted.peers.is_empty() || !self.strangers.is_empty();
        if let Some((index, gateway)) = self.gateway.filter(|_| has_peers) {
            // Without it, it counts as one that does not answer.
            let _ = self.open_link((index, Family::of(gateway)));
        }
    }

    /// Heartbeats.
    fn receive_heartbeats(&mut self) {
        let (Some(socket), Some(key)) = (&self.beats, &self.settings.key) else { return };
        for _ in 0..BEATS {
            let Some((bytes, at)) = socket.receive(&mut self.buffer) else { return };
            let Some(message) = Message::read(key, bytes) else { continue };
            let time = now();
            let is_told = self.machine.has_peer(&message.from);
            if let Some((_, until)) = self.strangers.get_mut(&message.from) {
                *until = time.saturating_add(ACQUAINTANCE);
            } else if !is_told
                && message.to == self.settings.host
                && message.from != message.to
                && self.strangers.len() < MOST_STRANGERS
            {
                // It knows of us before we were told of it.
                self.strangers.insert(message.from.clone(), (at, time.saturating_add(ACQUAINTANCE)));
                self.look_again = time;
            }
            self.machine.receive(time, message);
        }
    }

    /// ARP and NDP.
    fn listen(&mut self) {
        let mut broken = Vec::new();
        for ((index, family), socket) in &self.links {
            for _ in 0..FRAMES {
                match socket.receive(&mut self.buffer) {
                    Ok(Some(frame)) => {
                        let answer = NeighborResponder { machine: &mut self.machine, socket, link: *index };
                        match family {
                            Family::Arp => answer.arp(frame, self.gateway),
                            Family::Ndp => answer.ndp(frame, self.gateway),
                        }
                    }
                    Ok(None) => break,
                    // Its interface went down, and says so once.
                    Err(error) if error.raw_os_error() == Some(Errno::ENETDOWN as i32) => {}
                    Err(_) => {
                        broken.push((*index, *family));
                        break;
                    }
                }
            }
        }
        for key in broken {
            self.links.remove(&key);
            self.look_again = Moment::ZERO;
        }
    }

    fn act(&mut self) {
        for action in std::mem::take(&mut self.actions) {
            match action {
                Action::Send(message) => self.send(&message),
                Action::Probe(address) => self.emit(address, |mac, socket| match address {
                    IpAddr::V4(address) => socket.send(&Arp::probe(mac, address)),
                    IpAddr::V6(address) => socket.send(&Solicitation::probe(mac, address)),
                }),
                // It may have been frozen since that was decided.
                Action::Announce(address) if !self.answers(address) => {}
                Action::Announce(address) => {
                    if let (IpAddr::V6(address), Some(place)) = (address, self.machine.place(address)) {
                        self.groups.join(address, place.link);
                    }
                    self.emit(address, |mac, socket| match address {
                        IpAddr::V4(address) => {
                            Arp::announcements(mac, address).iter().try_for_each(|it| socket.send(it))
                        }
                        IpAddr::V6(address) => socket.send(&Advertisement::unsolicited(mac, address)),
                    });
                }
                Action::LetGo(IpAddr::V6(address)) => self.groups.leave(address),
                Action::LetGo(IpAddr::V4(_)) => {}
                Action::AskGateway => self.ask_gateway(),
            }
        }
    }

    fn answers(&self, address: IpAddr) -> bool {
        let place = self.machine.place(address);
        place.is_some_and(|it| self.machine.answers(now(), address, it.link).is_some())
    }

    fn send(&self, message: &Message) {
        let (Some(socket), Some(key)) = (&self.beats, &self.settings.key) else { return };
        let bytes = message.write(key);
        let Some(peer) = self.wanted.peers.iter().find(|peer| peer.name == message.to) else {
            let stranger = self.strangers.get(&message.to);
            return stranger.into_iter().for_each(|(at, _)| socket.send(&bytes, *at, self.settings.port));
        };
        // Other ways to it are tried while it is silent.
        let ways = if self.machine.is_quiet(now(), &message.to) { peer.addresses.len() } else { 1 };
        for address in peer.addresses.iter().take(ways) {
            socket.send(&bytes, *address, self.settings.port);
        }
    }

    /// What is lost is sent again later.
    fn emit(&self, address: IpAddr, send: impl FnOnce(Mac, &LinkSocket) -> io::Result<()>) {
        let Some(place) = self.machine.place(address) else { return };
        if let Some(socket) = self.links.get(&(place.link, Family::of(address))) {
            let _ = send(place.mac, socket);
        }
    }

    fn ask_gateway(&self) {
        let Some((index, gateway)) = self.gateway else { return };
        let key = (index, Family::of(gateway));
        let (Some(socket), Some(interface)) = (self.links.get(&key), self.interfaces.get(index)) else {
            return;
        };
        let own = self.interfaces.beside(index, gateway);
        // What is lost is asked again.
        let _ = match (own, gateway) {
            (own, IpAddr::V4(gateway)) => {
                let own = own.and_then(|it| if let IpAddr::V4(own) = it { Some(own) } else { None });
                let own = own.unwrap_or(Ipv4Addr::UNSPECIFIED);
                socket.send(&Arp::request(interface.mac, own, gateway))
            }
            (Some(IpAddr::V6(own)), IpAddr::V6(gateway)) => {
                socket.send(&Solicitation::request(interface.mac, own, gateway))
            }
            (_, IpAddr::V6(_)) => Ok(()),
        };
    }

    /// What changed, to who asks.
    fn report_changes(&mut self, time: Moment) {
        let revision = self.machine.revision();
        if revision == self.told && time < self.tell_again {
            return;
        }
        self.told = revision;
        self.tell_again = time.saturating_add(Duration::from_secs(1));
        let states = self.states(time);
        let counters = self.machine.counters();
        let mut told = locked(&self.shared.told);
        told.1 = counters;
        let same = |(one, other): ((&IpAddr, &AddressStatus), (&IpAddr, &AddressStatus))| one == other;
        if told.0.len() == states.len() && told.0.iter().zip(&states).all(same) {
            return;
        }
        told.0.clone_from(&states);
        drop(told);
        let changed = &mut self.changed;
        self.heartbeat.while_waiting(|| changed(&states));
    }

    fn states(&self, time: Moment) -> BTreeMap<IpAddr, AddressStatus> {
        let before = locked(&self.shared.told).0.clone();
        let all = if self.lacks {
            let wanted = self.wanted.addresses.iter();
            // The process before this one announces them.
            let what =
                if self.succession.is_waiting() { AddressState::Probing } else { AddressState::NotPermitted };
            wanted.map(|it| (it.address.to_canonical(), (what.clone(), false))).collect()
        } else {
            self.machine.states(time)
        };
        let state = |(address, (what, answering)): (IpAddr, (AddressState, bool))| {
            let place = self.interfaces.place(address, self.wanted.interfaces.get(&address));
            let interface = place.and_then(|it| self.interfaces.get(it.link)).map(|it| it.name.clone());
            let old = before.get(&address).filter(|old| old.what == what);
            let since = old.map_or_else(SystemTime::now, |old| old.since);
            (address, AddressStatus { what, since, interface, answering })
        };
        all.into_iter().map(state).collect()
    }
}
