use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

const MILLI: Duration = Duration::from_millis(1);

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn profile(interval: u64, multiplier: u8) -> Profile {
    Profile { transmit: millis(interval), receive: millis(interval), multiplier, ..Profile::default() }
}

fn packet(state: BfdState, yours: u32) -> Packet {
    Packet {
        state,
        diagnostic: Diagnostic::NONE,
        is_poll: false,
        is_final: false,
        is_control_plane_independent: false,
        is_demand: false,
        multiplier: 3,
        mine: 77,
        yours,
        desired_transmit: millis(50),
        required_receive: millis(50),
        required_echo: Duration::ZERO,
    }
}

/// A session that is in that state, at one second.
fn in_state(what: BfdState) -> Session {
    let mut session = Session::new(profile(50, 3), 5, 1, Duration::ZERO);
    let told: &[BfdState] = match what {
        BfdState::AdminDown | BfdState::Down => &[],
        BfdState::Init => &[BfdState::Down],
        BfdState::Up => &[BfdState::Init],
    };
    for state in told {
        session.receive(&packet(*state, 5), millis(1_000));
    }
    if what == BfdState::AdminDown {
        session.stop(millis(1_000));
    }
    assert_eq!(session.what, what);
    session
}

/// The diagram of RFC 5880, 6.2.
#[test]
fn each_state_follows_from_the_one_before_and_from_what_the_peer_says() {
    use BfdState::{AdminDown, Down, Init, Up};
    for (state, told, expected) in [
        (Down, AdminDown, Down),
        (Down, Down, Init),
        (Down, Init, Up),
        (Init, AdminDown, Down),
        (Init, Down, Init),
        (Init, Init, Up),
        (Init, Up, Up),
        (Up, AdminDown, Down),
        (Up, Down, Down),
        (Up, Init, Up),
        (Up, Up, Up),
        (AdminDown, Down, AdminDown),
        (AdminDown, Init, AdminDown),
        (AdminDown, Up, AdminDown),
    ] {
        let mut session = in_state(state);
        session.receive(&packet(told, 5), millis(1_010));
        assert_eq!(session.what, expected, "{state:?} hears {told:?}");
    }
}

#[test]
fn a_session_that_fails_says_why() {
    let mut session = in_state(BfdState::Up);
    assert!(session.tick(millis(1_149)).is_some());
    assert_eq!(session.what, BfdState::Up);
    let said = session.tick(millis(1_150)).expect("it says so at once");
    assert_eq!((said.state, said.diagnostic, said.yours), (BfdState::Down, Diagnostic::EXPIRED, 0));
    let mut session = in_state(BfdState::Up);
    session.receive(&packet(BfdState::Down, 5), millis(1_010));
    assert_eq!(session.diagnostic, Diagnostic::TOLD_DOWN);
    let said = in_state(BfdState::Up).stop(millis(1_010)).expect("there is a peer");
    assert_eq!((said.state, said.diagnostic), (BfdState::AdminDown, Diagnostic::ADMINISTRATIVE));
    assert_eq!(in_state(BfdState::Down).stop(millis(1_010)), None, "no peer was heard");
}

#[test]
fn a_session_that_is_not_up_sends_once_in_a_second_and_one_that_is_says_so_at_once() {
    let mut session = Session::new(profile(50, 3), 5, 1, Duration::ZERO);
    let mut sent = Vec::new();
    for at in 0..10_000 {
        sent.extend(session.tick(millis(at)).map(|it| (at, it)));
    }
    assert!((10..=14).contains(&sent.len()), "{}", sent.len());
    assert!(sent.iter().all(|(_, it)| it.desired_transmit == SLOWEST_START));
    assert!(sent.windows(2).all(|two| (750..=1_001).contains(&(two[1].0 - two[0].0))));
    session.receive(&packet(BfdState::Init, 5), millis(10_001));
    let said = session.tick(millis(10_001)).expect("at once");
    assert_eq!((said.state, said.is_poll, said.desired_transmit), (BfdState::Up, true, millis(50)));
}

#[test]
fn jitter_keeps_intervals_between_three_quarters_and_the_whole() {
    for (multiplier, most) in [(3, 50), (1, 45)] {
        let mut session = in_state(BfdState::Up);
        session.set_profile(profile(50, multiplier), millis(1_000));
        let mut sent = Vec::new();
        for at in 1_000..9_000 {
            let now = millis(at);
            session.receive(&packet(BfdState::Up, 5), now);
            sent.extend(session.tick(now).map(|_| at));
        }
        let pauses: Vec<u64> = sent.windows(2).skip(1).map(|two| two[1] - two[0]).collect();
        assert!(pauses.iter().all(|it| (37..=most + 1).contains(it)), "{pauses:?}");
        assert!(pauses.iter().any(|it| *it != pauses[0]), "no two sessions keep step");
    }
}

#[test]
fn a_poll_is_repeated_until_it_is_confirmed_and_slower_intervals_hold_from_then() {
    let mut session = in_state(BfdState::Up);
    let mut confirm = packet(BfdState::Up, 5);
    confirm.is_final = true;
    session.receive(&confirm, millis(1_001));
    session.set_profile(profile(400, 3), millis(1_002));
    let said = session.tick(millis(1_002)).expect("at once");
    assert!(said.is_poll && said.desired_transmit == millis(400));
    assert_eq!(session.interval(), millis(50), "the peer does not know of it yet");
    session.receive(&packet(BfdState::Up, 5), millis(1_030));
    let said = session.tick(millis(1_060)).expect("as often as before");
    assert!(said.is_poll);
    session.receive(&confirm, millis(1_061));
    assert_eq!(session.interval(), millis(400));
    assert!(!session.tick(millis(1_500)).expect("it is due").is_poll);
    // A detection time that becomes shorter does so once the peer knows.
    session.set_profile(profile(50, 3), millis(1_501));
    assert_eq!(session.detection(), Some(millis(1_200)));
    session.receive(&confirm, millis(1_502));
    assert_eq!(session.detection(), Some(millis(150)));
}

#[test]
fn a_poll_of_the_peer_is_answered_at_once_and_never_by_a_poll() {
    let mut session = in_state(BfdState::Up);
    let mut poll = packet(BfdState::Up, 5);
    poll.is_poll = true;
    let answer = session.receive(&poll, millis(1_001)).expect("at once");
    assert!(answer.is_final && !answer.is_poll);
    assert_eq!(session.receive(&packet(BfdState::Up, 5), millis(1_002)), None);
}

#[test]
fn what_is_for_another_session_changes_nothing() {
    let mut session = in_state(BfdState::Up);
    session.receive(&packet(BfdState::Down, 6), millis(1_010));
    assert_eq!(session.what, BfdState::Up);
}

#[test]
fn a_peer_that_wants_to_hear_nothing_is_sent_nothing() {
    let mut session = in_state(BfdState::Up);
    let mut quiet = packet(BfdState::Up, 5);
    quiet.required_receive = Duration::ZERO;
    quiet.is_final = true;
    session.receive(&quiet, millis(1_001));
    assert!((1_001..1_100).all(|at| session.tick(millis(at)).is_none()));
}

#[test]
fn a_passive_session_waits_for_its_peer() {
    let mut session = Session::new(Profile { is_passive: true, ..profile(50, 3) }, 5, 1, Duration::ZERO);
    assert!((0..5_000).all(|at| session.tick(millis(at)).is_none()));
    session.receive(&packet(BfdState::Down, 0), millis(5_000));
    assert_eq!(session.tick(millis(5_000)).map(|it| it.state), Some(BfdState::Init));
}

#[test]
fn the_next_process_is_up_as_soon_as_the_peer_speaks_to_the_one_before() {
    let mut next = Session::new(profile(50, 3), 5, 1, millis(1_000));
    next.receive(&packet(BfdState::Up, 0), millis(1_001));
    assert_eq!(next.what, BfdState::Down, "it does not hear this session");
    next.receive(&packet(BfdState::Up, 5), millis(1_002));
    assert_eq!(next.what, BfdState::Up);
    let mut late = Session::new(profile(50, 3), 5, 1, millis(1_000));
    late.receive(&packet(BfdState::Up, 5), millis(1_000) + SUCCESSION);
    assert_eq!(late.what, BfdState::Down, "the peer notices first that nobody speaks");
    let mut lost = in_state(BfdState::Up);
    lost.receive(&packet(BfdState::Down, 5), millis(1_003));
    lost.receive(&packet(BfdState::Up, 5), millis(1_004));
    assert_eq!(lost.what, BfdState::Down);
}

/// Two sessions and what is on its way between them.
struct Pair {
    now: Moment,
    sides: [Option<Session>; 2],
    inbox: [VecDeque<(Moment, Packet)>; 2],
    random: u64,
    /// Of a thousand packets.
    lost: u64,
    most_delay: Duration,
}

impl Pair {
    fn new(profiles: [Profile; 2], seed: u64, lost: u64, most_delay: Duration) -> Pair {
        let now = millis(1_000);
        let session = |at: usize| Session::new(profiles[at], at as u32 + 10, seed + at as u64 * 977, now);
        Pair {
            now,
            sides: [Some(session(0)), Some(session(1))],
            inbox: Default::default(),
            random: seed | 1,
            lost,
            most_delay,
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) % below.max(1)
    }

    fn send(&mut self, from: usize, packet: Packet) {
        let bytes = packet.write();
        let packet = Packet::read(&bytes).expect("what we say is well-formed");
        if self.random(1_000) >= self.lost {
            let delay = Duration::from_micros(self.random(self.most_delay.as_micros() as u64));
            self.inbox[1 - from].push_back((self.now + delay, packet));
        }
    }

    fn step(&mut self) {
        for side in 0..2 {
            while let Some((_, packet)) = self.inbox[side].pop_front_if(|(at, _)| *at <= self.now) {
                let now = self.now;
                let answer = self.sides[side].as_mut().and_then(|it| it.receive(&packet, now));
                answer.into_iter().for_each(|it| self.send(side, it));
            }
            let now = self.now;
            let said = self.sides[side].as_mut().and_then(|it| it.tick(now));
            said.into_iter().for_each(|it| self.send(side, it));
        }
        self.now += MILLI;
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.step();
        }
    }

    fn until(&mut self, what: &str, limit: Duration, met: impl Fn(&Pair) -> bool) {
        let end = self.now + limit;
        while !met(self) {
            assert!(self.now < end, "in vain: {what}");
            self.step();
        }
    }

    fn side(&self, side: usize) -> &Session {
        self.sides[side].as_ref().expect("it lives")
    }

    fn are_up(&self) -> bool {
        self.sides.iter().flatten().all(|it| it.what == BfdState::Up)
    }

    fn downs(&self) -> u64 {
        self.sides.iter().flatten().map(|it| it.downs).sum()
    }
}

fn any_profile() -> impl Strategy<Value = Profile> {
    (20_u64..400, 20_u64..400, 2_u8..6, any::<bool>()).prop_map(|(transmit, receive, multiplier, _)| {
        Profile { transmit: millis(transmit), receive: millis(receive), multiplier, ..Profile::default() }
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn two_sessions_come_up_over_any_network_that_loses_a_quarter(
        profiles in [any_profile(), any_profile()], seed in any::<u32>(), lost in 0_u64..250,
    ) {
        let mut pair = Pair::new(profiles, seed.into(), lost, millis(15));
        pair.until("both are up", Duration::from_secs(120), Pair::are_up);
    }

    #[test]
    fn no_session_flaps_without_loss_and_other_intervals_are_agreed_on_the_way(
        profiles in [any_profile(), any_profile()], next in any_profile(), seed in any::<u32>(),
    ) {
        let mut pair = Pair::new(profiles, seed.into(), 0, millis(15));
        pair.until("both are up", Duration::from_secs(10), Pair::are_up);
        pair.run(Duration::from_secs(10));
        let now = pair.now;
        pair.sides[0].as_mut().expect("it lives").set_profile(next, now);
        pair.run(Duration::from_secs(10));
        prop_assert_eq!(pair.downs(), 0);
        prop_assert!(pair.are_up());
        let agreed = |a: Profile, b: Profile| a.receive.max(b.transmit) * b.multiplier.into();
        prop_assert_eq!(pair.side(0).detection(), Some(agreed(next, profiles[1])));
        prop_assert_eq!(pair.side(1).detection(), Some(agreed(profiles[1], next)));
    }

    #[test]
    fn a_peer_that_dies_is_lost_within_the_detection_time(
        profiles in [any_profile(), any_profile()], seed in any::<u32>(),
    ) {
        let mut pair = Pair::new(profiles, seed.into(), 0, millis(15));
        pair.until("both are up", Duration::from_secs(10), Pair::are_up);
        pair.run(Duration::from_secs(10));
        pair.sides[1] = None;
        let limit = pair.side(0).detection().expect("it was heard") + millis(17);
        pair.until("it is lost", limit, |pair| pair.side(0).what == BfdState::Down);
        prop_assert_eq!(pair.side(0).diagnostic, Diagnostic::EXPIRED);
    }

    #[test]
    fn a_peer_that_begins_again_is_found_again(
        profiles in [any_profile(), any_profile()], seed in any::<u32>(),
    ) {
        let mut pair = Pair::new(profiles, seed.into(), 0, millis(15));
        pair.until("both are up", Duration::from_secs(10), Pair::are_up);
        // With a discriminator of its own, before the other has noticed.
        let now = pair.now;
        pair.sides[1] = Some(Session::new(profiles[1], 99, 3, now));
        pair.inbox[1].clear();
        pair.run(millis(50));
        pair.until("both are up again", Duration::from_secs(20), Pair::are_up);
        prop_assert_eq!(pair.downs(), 1);
    }
}
