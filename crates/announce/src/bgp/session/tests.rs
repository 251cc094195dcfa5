//! A session beside a router that is made of what the RFCs say, by a network on which anything happens.

use std::time::Duration;

use ipnet::IpNet;
use proptest::prelude::*;
use seaway_model::bgp::{PeerFamilies, RemoteAs};

use super::*;
use crate::bgp::{
    message::{self, GracefulRestart, Message, Open, decoded::AdjRibIn},
    settings::Timing,
};

const BOTH: PeerFamilies = PeerFamilies { v4: true, v6: true };

fn config() -> Config {
    Config {
        local_as: 4_200_000_001,
        remote_as: RemoteAs::Number(65001),
        hold: Duration::from_secs(90),
        keepalive: None,
        connect_retry: Duration::from_secs(30),
        families: BOTH,
        graceful_restart: Some(Duration::from_secs(120)),
        has_password: false,
        timing: Timing::default(),
    }
}

fn local() -> LocalAddresses {
    LocalAddresses { v4: Some([10, 0, 0, 1].into()), v6: Some("fd00::1".parse().expect("an address")) }
}

fn their_open() -> Open {
    Open {
        number: 65001,
        hold: 30,
        id: [10, 0, 0, 2].into(),
        families: BOTH,
        has_four_byte_as: true,
        has_extended_next_hop: false,
        has_refresh: true,
        graceful: Some(GracefulRestart {
            is_restarting: false,
            time: 120,
            families: BOTH,
            is_forwarding: true,
        }),
    }
}

/// The router, and the wires.
struct Scene {
    session: Session,
    now: Moment,
    routes: Vec<Route>,
    open: Open,
    is_connected: bool,
    /// Towards us.
    sent: Vec<u8>,
    /// That we wrote, and the router has not read.
    wire: Vec<u8>,
    table: AdjRibIn,
    is_open: bool,
    refused: Option<message::Notification>,
    cuts: u64,
}

impl Scene {
    fn new(open: Open, config: Config) -> Scene {
        Scene {
            session: Session::new(config, false, 7),
            now: Duration::from_secs(1000),
            routes: Vec::new(),
            open,
            is_connected: false,
            sent: Vec::new(),
            wire: Vec::new(),
            table: AdjRibIn::default(),
            is_open: false,
            refused: None,
            cuts: 0,
        }
    }

    fn set_desired(&mut self, routes: Vec<Route>) {
        self.session.set_desired(&routes, false);
        self.routes = routes;
    }

    /// What the socket does by itself, with room for so many bytes.
    fn turn(&mut self, can_connect: bool, room: usize) {
        self.session.tick(self.now);
        for command in self.session.commands() {
            let rest = self.session.output().to_vec();
            match command {
                Command::Connect => {
                    self.is_connected = can_connect;
                    if can_connect {
                        self.session.connected(self.now, [10, 0, 0, 1].into(), local());
                    } else {
                        self.session.lost(self.now, "connection refused");
                    }
                }
                Command::Close => {
                    self.wire.extend(rest);
                    self.read(usize::MAX);
                    self.hang_up();
                }
            }
        }
        if self.is_connected {
            let part: Vec<u8> = self.session.output().iter().take(room).copied().collect();
            assert!(self.session.output().len() < 200_000, "no more is made than goes in one go");
            if !self.session.output().is_empty() {
                self.session.wrote(self.now, part.len());
            }
            self.wire.extend(part);
        }
    }

    fn hang_up(&mut self) {
        self.session.clear();
        self.is_connected = false;
        self.is_open = false;
        self.sent.clear();
        self.wire.clear();
        self.table = AdjRibIn::default();
    }

    /// The router reads so many messages.
    fn read(&mut self, most: usize) {
        for _ in 0..most {
            let Ok(Some((message, length))) = message::read(&self.wire) else { return };
            let bytes: Vec<u8> = self.wire.drain(..length).collect();
            match message {
                Message::Open(open) => {
                    assert_eq!(open.number, 4_200_000_001);
                    self.is_open = true;
                    self.open.write(&mut self.sent);
                    message::keep_alive(&mut self.sent);
                }
                Message::Update { .. } => self.table.take(&bytes, self.open.has_four_byte_as),
                Message::Notification(it) => self.refused = Some(it),
                Message::KeepAlive | Message::RouteRefresh(_) => {}
            }
        }
    }

    fn hear(&mut self, most: usize) {
        let part: Vec<u8> = self.sent.drain(..most.min(self.sent.len())).collect();
        self.session.receive(self.now, &part);
    }

    fn cut(&mut self) {
        if self.is_connected {
            self.cuts += 1;
            self.session.lost(self.now, "the peer closed the connection");
            let _ = self.session.commands();
            self.hang_up();
        }
    }

    /// Nothing happens for so long, and everything works.
    fn rest(&mut self, seconds: u64) {
        for _ in 0..seconds {
            if self.is_open {
                message::keep_alive(&mut self.sent);
            }
            for _ in 0..6 {
                self.turn(true, usize::MAX);
                self.read(usize::MAX);
                self.hear(usize::MAX);
            }
            self.now += Duration::from_secs(1);
        }
    }

    fn assert_has_all(&self) {
        assert!(self.session.machine().is_established(), "{:?}", self.session.machine());
        let wanted: Vec<IpNet> = {
            let mut all: Vec<_> = self.routes.iter().map(|it| it.prefix).collect();
            all.sort();
            all
        };
        assert_eq!(self.table.routes.keys().copied().collect::<Vec<_>>(), wanted);
        assert_eq!(self.session.rib().sent() as usize, wanted.len());
        for route in &self.routes {
            let said = &self.table.routes[&route.prefix];
            let is_v4 = route.prefix.addr().is_ipv4();
            assert_eq!(
                said.next_hop,
                if is_v4 { local().v4.map(Into::into) } else { local().v6.map(Into::into) }
            );
            let path = if self.open.has_four_byte_as { 4_200_000_001 } else { said.path[0] };
            assert_eq!(said.path, [path]);
            assert_eq!((said.med, said.local_pref), (route.med, None));
            let mut communities = route.communities.to_vec();
            communities.sort_unstable();
            communities.dedup();
            assert_eq!((&said.communities, &said.large[..]), (&communities, &route.large[..]));
        }
    }
}

fn route(number: u16, kind: u8) -> Route {
    let [high, low] = number.to_be_bytes();
    let prefix = match kind % 2 {
        0 => format!("192.0.{high}.{low}/32"),
        _ => format!("2001:db8::{number:x}/128"),
    };
    Route {
        prefix: prefix.parse().expect("a prefix"),
        local_pref: Some(kind.into()),
        med: (kind & 4 != 0).then_some(kind.into()),
        communities: (0..u32::from(kind % 5)).map(|it| 65001 << 16 | it).collect(),
        large: (0..u32::from(kind % 3)).map(|it| [65001, it, 7]).collect(),
    }
}

fn routes() -> impl Strategy<Value = Vec<Route>> {
    proptest::collection::btree_map(0_u16..400, any::<u8>(), 0..120)
        .prop_map(|all| all.into_iter().map(|(number, kind)| route(number, kind)).collect())
}

#[derive(Clone, Debug)]
enum Event {
    Want(Vec<Route>),
    Pass(u32),
    Turn(bool, usize),
    Read(usize),
    Hear(usize),
    Cut,
    Refresh,
    NextHop,
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let room = prop_oneof![Just(0_usize), 1_usize..200, Just(usize::MAX)];
    let event = prop_oneof![
        2 => routes().prop_map(Event::Want),
        2 => (0_u32..40_000).prop_map(Event::Pass),
        6 => (any::<bool>(), room.clone()).prop_map(|(can, room)| Event::Turn(can, room)),
        4 => (0_usize..20).prop_map(Event::Read),
        4 => room.prop_map(Event::Hear),
        1 => Just(Event::Cut),
        1 => Just(Event::Refresh),
        1 => Just(Event::NextHop),
    ];
    proptest::collection::vec(event, 0..60)
}

fn happens(scene: &mut Scene, event: Event) {
    match event {
        Event::Want(routes) => scene.set_desired(routes),
        Event::Pass(millis) => scene.now += Duration::from_millis(millis.into()),
        Event::Turn(can_connect, room) => scene.turn(can_connect, room),
        Event::Read(most) => scene.read(most),
        Event::Hear(most) => scene.hear(most),
        Event::Cut => scene.cut(),
        Event::Refresh if scene.session.machine().is_established() => {
            let mut refresh = vec![0xff; 16];
            refresh.extend([0, 23, 5, 0, 1, 0, 1]);
            scene.sent.extend(refresh);
        }
        Event::Refresh => {}
        Event::NextHop => {
            let other = LocalAddresses { v4: Some([10, 0, 0, 99].into()), ..local() };
            scene.session.set_local(other);
            scene.session.set_local(local());
        }
    }
}

proptest! {
    #[test]
    fn after_a_quiet_time_the_peer_has_what_is_wanted(events in events()) {
        let mut scene = Scene::new(their_open(), config());
        events.into_iter().for_each(|event| happens(&mut scene, event));
        scene.rest(200);
        scene.assert_has_all();
        prop_assert!(scene.table.ended.len() == 2, "each family ends once in a session: {:?}", scene.table.ended);
    }

    #[test]
    fn no_change_of_routes_ends_a_session(changes in proptest::collection::vec((routes(), 0_usize..2000), 0..30)) {
        let mut scene = Scene::new(their_open(), config());
        scene.rest(3);
        for (routes, room) in changes {
            scene.set_desired(routes);
            scene.turn(true, room);
            scene.read(usize::MAX);
        }
        scene.rest(3);
        scene.assert_has_all();
        prop_assert_eq!((scene.session.machine().resets, scene.refused), (0, None));
    }

    #[test]
    fn a_peer_without_four_byte_numbers_has_all_the_same(routes in routes()) {
        let mut scene = Scene::new(Open { has_four_byte_as: false, ..their_open() }, config());
        scene.set_desired(routes);
        scene.rest(3);
        scene.assert_has_all();
        prop_assert!(scene.table.routes.values().all(|it| it.path == [4_200_000_001]), "by AS4_PATH");
    }

    #[test]
    fn whatever_a_peer_sends_the_session_comes_again(
        garbage in proptest::collection::vec(any::<u8>(), 0..200),
        kind in 1_u8..6,
    ) {
        let mut scene = Scene::new(their_open(), config());
        scene.rest(3);
        let length = u16::try_from(garbage.len() + 19).expect("short").to_be_bytes();
        let framed = [&[0xff; 16][..], &length, &[kind], &garbage].concat();
        scene.session.receive(scene.now, &framed);
        scene.session.receive(scene.now, &garbage);
        scene.rest(200);
        scene.assert_has_all();
    }
}

fn ends(open: Open, config: Config) -> String {
    let mut scene = Scene::new(open, config);
    scene.rest(1);
    assert!(!scene.session.machine().is_established());
    scene.session.machine().last_error.clone().expect("it says why")
}

#[test]
fn what_is_wrong_with_a_peer_is_one_clear_line() {
    let wrong = Open { number: 65009, ..their_open() };
    let line = ends(wrong.clone(), config());
    assert_eq!(line, "AS mismatch: the peer is AS 65009, and 65001 is configured");
    let line = ends(wrong, Config { remote_as: RemoteAs::Internal, ..config() });
    assert_eq!(line, "AS mismatch: the peer is AS 65009, and our own, 4200000001, is configured");
    let own = Open { number: 4_200_000_001, ..their_open() };
    let line = ends(own, Config { remote_as: RemoteAs::External, ..config() });
    assert_eq!(
        line,
        "AS mismatch: the peer is AS 4200000001, and the peer has another AS number than this BGPPeer configures"
    );
    let line = ends(Open { hold: 2, ..their_open() }, config());
    assert_eq!(line, "the peer asks for a hold time of 2 s; the least is 3 s");
}

#[test]
fn a_peer_of_any_other_as_is_taken_and_told_and_one_of_ours_hears_a_preference() {
    let mut scene = Scene::new(their_open(), Config { remote_as: RemoteAs::External, ..config() });
    scene.rest(3);
    assert_eq!(scene.session.machine().remote_as(), Some(65001));
    let own = Open { number: 4_200_000_001, ..their_open() };
    let mut scene = Scene::new(own, Config { remote_as: RemoteAs::Internal, ..config() });
    scene.set_desired(vec![Route { local_pref: None, ..route(1, 0) }, route(2, 7)]);
    scene.rest(3);
    let said: Vec<_> = scene.table.routes.values().map(|it| (it.local_pref, it.path.len())).collect();
    assert_eq!(said, [(Some(100), 0), (Some(7), 0)]);
    // Before it goes (RFC 8326).
    scene.session.set_desired(&scene.routes, true);
    scene.rest(1);
    let is_last = |it: &message::decoded::DecodedRoute| {
        it.local_pref == Some(0) && it.communities.contains(&0xffff_0000)
    };
    assert!(scene.table.routes.values().all(is_last), "{:?}", scene.table);
    assert_eq!(scene.session.machine().resets, 0);
}

#[test]
fn a_silent_peer_ends_with_the_hold_time_that_was_agreed_on() {
    let mut scene = Scene::new(their_open(), config());
    scene.rest(3);
    assert!(scene.session.machine().is_established());
    scene.now += Duration::from_secs(27);
    scene.turn(true, usize::MAX);
    assert!(scene.session.machine().is_established(), "29 s after its last word");
    scene.now += Duration::from_secs(3);
    scene.turn(true, usize::MAX);
    let line = scene.session.machine().last_error.clone();
    assert_eq!(line.as_deref(), Some("hold timer expired: nothing came from the peer for 30 s"));
    assert_eq!(scene.session.machine().resets, 1);
}

#[test]
fn attempts_come_more_and_more_seldom_and_never_more_seldom_than_configured() {
    let mut scene = Scene::new(their_open(), config());
    let mut attempts: Vec<u64> = Vec::new();
    for _ in 0..300 {
        scene.turn(false, 0);
        if scene.session.machine().last_error.is_some() && scene.session.next() > scene.now {
            attempts.push((scene.session.next() - scene.now).as_millis().try_into().expect("small"));
        }
        scene.now = scene.session.next();
    }
    assert!((750..=1000).contains(&attempts[0]) && (1500..=2000).contains(&attempts[1]), "{attempts:?}");
    assert!(attempts.iter().all(|it| *it <= 30_000) && attempts.last() >= Some(&22_500), "{attempts:?}");
}

#[test]
fn a_family_that_cannot_be_said_is_told_and_the_other_one_goes() {
    let mut scene =
        Scene::new(Open { families: PeerFamilies { v4: true, v6: false }, ..their_open() }, config());
    scene.set_desired(vec![route(1, 0), route(2, 1)]);
    scene.rest(3);
    assert_eq!(scene.table.routes.len(), 1);
    let line = "IPv6 routes are not announced: the peer has not activated IPv6 for this session";
    assert_eq!(scene.session.complaint().as_deref(), Some(line));
    let v6 = LocalAddresses { v4: None, ..local() };
    let mut scene = Scene::new(their_open(), config());
    scene.set_desired(vec![route(1, 0), route(2, 1)]);
    scene.rest(3);
    scene.session.set_local(v6);
    scene.rest(1);
    assert_eq!(scene.table.routes.len(), 1, "IPv4 has no next hop any more");
    assert!(scene.session.complaint().is_some_and(|it| it.contains("no IPv4 address")));
    let mut scene = Scene::new(Open { has_extended_next_hop: true, ..their_open() }, config());
    scene.set_desired(vec![route(1, 0), route(2, 1)]);
    scene.rest(3);
    scene.session.set_local(v6);
    scene.rest(1);
    assert!(scene.table.routes.values().all(|it| it.next_hop == v6.v6.map(Into::into)), "RFC 8950");
    assert_eq!(scene.table.routes.len(), 2);
}

#[test]
fn a_peer_that_takes_nothing_holds_one_part_and_ends_after_eight_minutes() {
    let mut scene = Scene::new(their_open(), config());
    scene.rest(3);
    let began = scene.now;
    for at in 0..100_000_u32 {
        let at = u16::try_from(at % 400).expect("small");
        scene.set_desired(vec![route(at, 4), route(at, 5)]);
        if at % 100 == 0 {
            scene.turn(true, 0);
            message::keep_alive(&mut scene.sent);
            scene.hear(usize::MAX);
            scene.now += Duration::from_secs(1);
        }
        if scene.session.machine().resets > 0 {
            break;
        }
    }
    let line = scene.session.machine().last_error.clone();
    assert_eq!(line.as_deref(), Some("send hold timer expired: the peer reads nothing from the connection"));
    assert!((479..490).contains(&(scene.now - began).as_secs()), "{:?}", scene.now - began);
    scene.rest(60);
    scene.assert_has_all();
}

#[test]
fn a_peer_that_asks_for_all_again_and_again_has_it_once_more() {
    let mut scene = Scene::new(their_open(), config());
    scene.set_desired((0..400).map(|it| route(it, 4)).collect());
    scene.rest(3);
    let refresh = [&[0xff; 16][..], &[0, 23, 5, 0, 1, 0, 1]].concat();
    scene.session.receive(scene.now, &refresh.repeat(40_000));
    let mut said = 0;
    while !scene.session.output().is_empty() {
        said += scene.session.output().len();
        scene.session.wrote(scene.now, usize::MAX);
    }
    assert!((2_000..4_000).contains(&said), "400 prefixes of 5 bytes: {said}");
}

#[test]
fn a_session_without_hold_time_is_confirmed_in_time_or_ends() {
    let mut scene = Scene::new(Open { hold: 0, ..their_open() }, config());
    scene.turn(true, usize::MAX);
    scene.turn(true, usize::MAX);
    let mut open = Vec::new();
    Open { hold: 0, ..their_open() }.write(&mut open);
    scene.session.receive(scene.now, &open);
    assert!(matches!(scene.session.machine().state(), State::OpenConfirm));
    scene.now += Duration::from_secs(61);
    scene.turn(true, usize::MAX);
    assert_eq!(
        scene.session.machine().last_error.as_deref(),
        Some("the peer did not confirm the session with a KEEPALIVE message")
    );
    scene.rest(200);
    scene.assert_has_all();
    scene.now += Duration::from_secs(100_000);
    scene.turn(true, usize::MAX);
    scene.assert_has_all();
}

#[test]
fn a_route_with_more_communities_than_fit_is_told_and_the_others_go() {
    let mut scene = Scene::new(their_open(), config());
    let many = Route { communities: (0..1_000).collect(), ..route(1, 0) };
    scene.set_desired(vec![many, route(2, 0)]);
    scene.rest(3);
    assert_eq!(scene.table.routes.len(), 1);
    assert!(scene.session.complaint().is_some_and(|it| it.starts_with("192.0.0.1/32 and similar routes")));
}
