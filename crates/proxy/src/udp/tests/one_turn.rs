//! A worker's turn by hand: what comes of events and commands that happen to come together.

use super::*;
use crate::worker::Token;

struct ManualWorker {
    udp: Udp,
    turn: LoopIteration,
    rig: Rig,
    listener: Arc<RunningListener>,
    member: UdpSocket,
}

impl ManualWorker {
    fn new() -> ManualWorker {
        let member = UdpSocket::bind((FAMILIES[0], 0)).unwrap();
        member.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mailbox = Arc::new(Mailbox::new().unwrap());
        // A mailbox that no thread reads: its commands are given here.
        let shared = Arc::new(ProxyState::new(vec![mailbox.clone()]));
        let rig = Rig { shared: shared.clone(), threads: Vec::new(), key: LbKey::Whole };
        rig.put(pool(&[member.local_addr().unwrap()]));
        let listener = rig.open(FAMILIES[0], |_| {});
        let epoll = Arc::new(sys::Epoll::new().unwrap());
        let turn = LoopIteration::new(0, epoll, Box::default(), shared);
        let mut this = ManualWorker { udp: Udp::new(0, turn.now), turn, rig, listener, member };
        for command in mailbox.collect() {
            this.udp.command(&command, &mut this.turn);
        }
        this
    }

    /// Of all that can be read, as a worker gets it.
    fn events(&mut self) -> Vec<Event> {
        let mut events = sys::Events::with_room_for(256);
        self.turn.epoll.wait(&mut events, Some(20_000)).unwrap();
        assert!(events.len() > 0, "nothing happens");
        (0..events.len()).map(|index| events.at(index)).collect()
    }

    fn handle(&mut self, events: Vec<Event>) {
        for event in events {
            self.udp.event(Token::from(event.token), event, &mut self.turn);
        }
    }

    fn command(&mut self, command: WorkerCommand) {
        self.udp.command(&command, &mut self.turn);
    }

    /// A client has asked, and its member has answered; the answer was not read yet.
    fn asked(&mut self) -> Client {
        let client = Client::of(self.listener.at);
        client.0.send(b"x").unwrap();
        let events = self.events();
        self.handle(events);
        self.udp.tick(&mut self.turn);
        let (_, flow) = self.member.recv_from(&mut [0; 8]).unwrap();
        self.member.send_to(format!("{} y", self.member.local_addr().unwrap()).as_bytes(), flow).unwrap();
        client
    }
}

#[test]
fn a_reply_of_the_turn_in_which_everything_is_left_to_a_successor_still_arrives() {
    let mut hand = ManualWorker::new();
    let client = hand.asked();
    let (export, _exported) = std::sync::mpsc::channel();
    hand.command(WorkerCommand::Freeze(export));
    let events = hand.events();
    hand.handle(events);
    hand.command(WorkerCommand::Relinquish);
    hand.udp.tick(&mut hand.turn);
    assert_eq!(client.answer().1, b"y");
}

#[test]
fn a_reply_of_the_turn_in_which_its_listener_is_replaced_leaves_by_its_own_door() {
    let mut hand = ManualWorker::new();
    let client = hand.asked();
    let events = hand.events();
    hand.handle(events);
    hand.command(WorkerCommand::Close(hand.listener.clone()));
    let other = hand.rig.open(FAMILIES[0], |_| {});
    for command in hand.rig.shared.workers[0].clone().collect() {
        hand.command(command);
    }
    assert_ne!(other.at, hand.listener.at);
    hand.udp.tick(&mut hand.turn);
    assert_eq!(client.answer().1, b"y");
}

#[test]
fn who_comes_in_the_turn_of_a_freeze_is_left_to_the_successor() {
    let mut hand = ManualWorker::new();
    let client = Client::of(hand.listener.at);
    client.0.send(b"x").unwrap();
    let events = hand.events();
    let (export, exported) = std::sync::mpsc::channel();
    hand.command(WorkerCommand::Freeze(export));
    assert!(exported.recv().unwrap().unwrap().is_empty(), "its flow has not begun");
    hand.handle(events);
    assert_eq!(hand.rig.shared.flows(), 0, "a flow that the successor was not told of");
    // Nothing is lost: whoever reads the listening socket next gets it.
    hand.command(WorkerCommand::Thaw);
    let events = hand.events();
    hand.handle(events);
    assert_eq!(hand.rig.shared.flows(), 1);
}

#[test]
fn a_service_with_hundreds_of_replies_delays_that_of_another_by_a_few() {
    let mut hand = ManualWorker::new();
    let greedy: Vec<_> = (0..200).map(|_| Client::of(hand.listener.at)).collect();
    hand.rig.key = LbKey::Of(seaway_testkit::balancing::owner());
    hand.rig.put(pool(&[hand.member.local_addr().unwrap()]));
    let other = hand.rig.open(FAMILIES[0], |_| {});
    for command in hand.rig.shared.workers[0].clone().collect() {
        hand.command(command);
    }
    let modest = Client::of(other.at);
    let mut answers = Vec::new();
    for client in greedy.iter().chain([&modest]) {
        client.0.send(b"x").unwrap();
        let events = hand.events();
        hand.handle(events);
        answers.push(hand.member.recv_from(&mut [0; 8]).unwrap().1);
        client.0.set_nonblocking(true).unwrap();
    }
    for flow in answers {
        hand.member.send_to(b"y", flow).unwrap();
    }
    let events = hand.events();
    assert_eq!(events.len(), 201, "all of them at once, and that of the modest one came last");
    hand.turn.begin(events.len(), hand.udp.is_behind());
    hand.handle(events);
    let mut room = [0; 8];
    let mut is_answered = |it: &Client| it.0.recv(&mut room).is_ok();
    let turns = (0..1_000).take_while(|_| {
        hand.udp.tick(&mut hand.turn);
        !is_answered(&modest)
    });
    assert!(turns.count() < 1_000, "it is answered");
    let before = greedy.iter().filter(|it| is_answered(it)).count();
    assert!(before < 100, "{before} of 200");
    while hand.udp.is_behind() {
        hand.udp.tick(&mut hand.turn);
    }
    let after = greedy.iter().filter(|it| is_answered(it)).count();
    assert_eq!(before + after, 200, "nobody is forgotten");
}

#[test]
fn beside_others_a_door_is_read_a_few_datagrams_at_a_time() {
    let mut hand = ManualWorker::new();
    let client = Client::of(hand.listener.at);
    hand.member.set_nonblocking(true).unwrap();
    (0..64).for_each(|_| _ = client.0.send(b"x").unwrap());
    let events = hand.events();
    hand.turn.begin(100, false);
    hand.handle(events);
    hand.udp.run_waiting(&mut hand.turn);
    let came = || std::iter::from_fn(|| hand.member.recv_from(&mut [0; 8]).ok()).count();
    assert_eq!(came(), BESIDE_OTHERS);
}
