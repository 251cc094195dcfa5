use std::{net::SocketAddr, time::Duration};

use seaway_model::load_balancer::PassiveHealthCheck;

use seaway_testkit::balancing;

use super::*;
use crate::{
    running::queue::WaiterId,
    worker::{Mailbox, WorkerCommand},
};

fn at(last: u8) -> SocketAddr {
    ([10, 0, 0, last], 80).into()
}

fn pool(members: &[u8]) -> Pool {
    let members: Vec<SocketAddr> = members.iter().map(|last| at(*last)).collect();
    balancing::pool(&members)
}

fn running(pool: Pool) -> Arc<RunningPool> {
    let running = RunningPool::empty(LbKey::Whole, pool.id.clone());
    running.put(Some(Arc::new(pool)), 1000);
    running
}

fn shares(running: &RunningPool, picks: usize, now: u64) -> Vec<usize> {
    let (live, mut cursor) = (running.live(), Cursor::new(1));
    let mut shares = vec![0; live.members.len()];
    for _ in 0..picks {
        let chosen = running.choose(&live, [1, 2, 3, 4].into(), &mut cursor, &[], now).unwrap();
        shares[live.compiled.position(chosen.at).unwrap()] += 1;
    }
    shares
}

#[test]
fn a_swap_keeps_what_is_known_of_members_that_stay() {
    let running = running(pool(&[1, 2]));
    let two = running.live().members[1].clone();
    two.begin_connection();
    running.put(Some(Arc::new(pool(&[2, 3]))), 2000);
    assert!(Arc::ptr_eq(&running.live().members[0], &two));
    assert_eq!(two.draining_since(), None);
}

#[test]
fn a_removed_member_is_remembered_while_it_has_connections() {
    let running = running(pool(&[1, 2]));
    let (one, two) = (running.live().members[0].clone(), running.live().members[1].clone());
    one.begin_connection();
    assert!(running.put(Some(Arc::new(pool(&[]))), 2000), "somebody leaves");
    assert_eq!((one.draining_since(), two.draining_since()), (Some(2000), Some(2000)));
    assert_eq!(running.leaving().len(), 1);

    running.put(Some(Arc::new(pool(&[1, 2]))), 3000);
    assert!(Arc::ptr_eq(&running.live().members[0], &one), "it came back in time");
    assert!(!Arc::ptr_eq(&running.live().members[1], &two), "it was gone");
    assert_eq!((one.draining_since(), running.leaving().len()), (None, 0));
}

/// A Service with `drain: 24h` whose endpoints flap.
#[test]
fn members_that_come_and_go_all_day_leave_only_what_has_connections_behind() {
    let running = running(pool(&[1, 2]));
    let kept = running.live().members[0].clone();
    kept.begin_connection();
    for round in 0..10_000_u64 {
        // Each time others, as pods that restart have another address; and one that returns.
        let port = 1_024 + (round % 50_000) as u16;
        let others: Vec<SocketAddr> = (10..20).map(|last| ([10, 0, 1, last], port).into()).collect();
        let members = if round % 2 == 0 { others } else { [others, vec![at(1)]].concat() };
        assert!(running.put(Some(Arc::new(balancing::pool(&members))), 2_000 + round), "somebody leaves");
        assert!(running.leaving().len() <= 1, "{} in round {round}", running.leaving().len());
    }
    assert!(running.live().members.iter().any(|it| Arc::ptr_eq(it, &kept)), "it came back, and is the same");
    running.put(Some(Arc::new(pool(&[2]))), 100_000);
    assert_eq!((running.leaving().len(), kept.draining_since()), (1, Some(100_000)), "a day from now on");
}

#[test]
fn a_member_that_comes_back_up_gets_its_share_slowly() {
    let running = running(Pool { slow_start: Some(Duration::from_secs(10)), ..pool(&[1, 2]) });
    let one = running.live().members[0].clone();
    assert_eq!(shares(&running, 100, 1000), [50, 50], "nobody is new in a new pool");
    assert!(running.set_health(&one, Health::Down, 2000));
    assert!(!running.set_health(&one, Health::Down, 2001));
    assert_eq!(shares(&running, 100, 2000), [0, 100]);
    running.set_health(&one, Health::Up, 10_000);
    assert_eq!(shares(&running, 125, 12_500), [25, 100]);
    assert_eq!(shares(&running, 100, 20_000), [50, 50]);
}

#[test]
fn a_new_member_of_a_running_pool_serves_at_once_but_slowly() {
    let with = |members: &[u8]| Pool { slow_start: Some(Duration::from_secs(10)), ..pool(members) };
    let running = running(with(&[1]));
    running.put(Some(Arc::new(with(&[1, 2]))), 5000);
    assert_eq!(shares(&running, 101, 5000), [100, 1]);
    assert_eq!(shares(&running, 150, 10_000), [100, 50]);
}

#[test]
fn a_member_that_fails_in_a_row_is_out_for_longer_and_longer() {
    let passive = Some(PassiveHealthCheck {
        failures: 2,
        eject: Duration::from_secs(10),
        ..PassiveHealthCheck::default()
    });
    let running = running(Pool { passive, ..pool(&[1, 2]) });
    let one = running.live().members[0].clone();
    let fail = |times: usize, now| (0..times).for_each(|_| running.failed(&one, "refused", now));
    fail(1, 1000);
    one.served();
    fail(1, 1000);
    assert_eq!(shares(&running, 100, 1000), [50, 50], "not in a row");
    fail(1, 1000);
    assert_eq!(shares(&running, 100, 10_999), [0, 100]);
    assert_eq!(shares(&running, 100, 11_000), [50, 50]);
    fail(2, 11_000);
    assert_eq!(shares(&running, 100, 30_999), [0, 100], "twice the time");
    assert_eq!(shares(&running, 100, 31_000), [50, 50]);
    one.served();
    fail(2, 40_000);
    assert_eq!(shares(&running, 100, 50_000), [50, 50], "from the beginning after an answer");
}

#[test]
fn answers_that_tell_of_a_fault_eject_where_they_count() {
    for (errors, expected) in [(Some(3), [0, 100]), (None, [50, 50])] {
        let passive = Some(PassiveHealthCheck { errors, ..PassiveHealthCheck::default() });
        let running = running(Pool { passive, ..pool(&[1, 2]) });
        let one = running.live().members[0].clone();
        for status in [500, 503, 200, 502, 500, 404, 500, 501, 503, 505, 500] {
            running.answered(&one, status, 1000);
        }
        assert_eq!(shares(&running, 100, 1000), [50, 50], "{errors:?}: never so many in a row");
        for status in [504, 500] {
            running.answered(&one, status, 1000);
        }
        assert_eq!(shares(&running, 100, 1000), expected, "{errors:?}");
        assert_eq!(shares(&running, 100, 11_000), [50, 50], "it comes back");
    }
}

#[test]
fn only_a_share_of_a_pool_is_out_and_the_last_one_never() {
    for (members, share, most_out) in
        [(1, 100, 0), (2, 100, 1), (2, 50, 1), (4, 50, 2), (4, 0, 1), (4, 100, 3), (10, 25, 2)]
    {
        let passive = Some(PassiveHealthCheck { failures: 1, share, ..PassiveHealthCheck::default() });
        let all: Vec<u8> = (1..=members).collect();
        let running = running(Pool { passive, ..pool(&all) });
        let members_of = running.live().members.clone();
        for member in &members_of {
            running.failed(member, "refused", 1000);
        }
        let out = members_of.iter().filter(|it| it.standing(1000) == MemberAvailability::Ejected).count();
        assert_eq!(out, most_out, "{members} members, {share} %");
    }
    // Who is down by its checks serves nobody, either.
    let passive = Some(PassiveHealthCheck { failures: 1, share: 100, ..PassiveHealthCheck::default() });
    let running = running(Pool { passive, ..pool(&[1, 2]) });
    let members = running.live().members.clone();
    running.set_health(&members[0], Health::Down, 1000);
    running.failed(&members[1], "refused", 1000);
    assert_eq!(members[1].standing(1000), MemberAvailability::Usable);
}

#[test]
fn a_client_that_came_to_a_backup_goes_back_when_another_member_can_serve_again() {
    let mut both = pool(&[1, 2]);
    both.members[1].backup = true;
    let mut by_address = both.clone();
    by_address.affinity = Some(Affinity::ClientIp(Duration::from_secs(600)));
    for pool in [both, by_address] {
        let running = running(pool);
        assert_eq!(shares(&running, 10, 1000), [10, 0]);
        let first = running.live().members[0].clone();
        running.set_health(&first, Health::Down, 1000);
        assert_eq!(shares(&running, 10, 1000), [0, 10]);
        running.set_health(&first, Health::Up, 1000);
        assert_eq!(shares(&running, 10, 1000), [10, 0]);
    }
}

fn limited(members: &[u8], connections: u32) -> Pool {
    let wait = Duration::from_secs(5);
    Pool { member_limit: Some(MemberLimit { connections, wait }), ..pool(members) }
}

fn request() -> SelectionRequest {
    SelectionRequest { client: [1, 2, 3, 4].into(), cookie: None, tried: Vec::new() }
}

fn engage(running: &RunningPool) -> MemberSelection {
    running.reserve_member(&request(), &mut Cursor::new(1), 1000)
}

fn engaged(running: &RunningPool) -> Arc<RunningMember> {
    match engage(running) {
        MemberSelection::Reserved(member) => member,
        MemberSelection::Full => panic!("full"),
        MemberSelection::NoMember => panic!("nobody"),
    }
}

struct Line {
    running: Arc<RunningPool>,
    mailbox: Arc<Mailbox>,
}

impl Line {
    fn of(pool: Pool) -> Line {
        Line { running: running(pool), mailbox: Arc::new(Mailbox::new().unwrap()) }
    }

    fn join(&self, task: u32) -> QueuedClient {
        self.running.wait(request(), self.mailbox.clone(), WaiterId::Task(task)).expect("there is room")
    }

    fn called(&self) -> Vec<u32> {
        let task = |it: WorkerCommand| match it {
            WorkerCommand::WakeWaiter(WaiterId::Task(task)) => Some(task),
            _ => None,
        };
        self.mailbox.collect().into_iter().filter_map(task).collect()
    }
}

#[test]
fn room_goes_to_those_that_wait_in_their_order() {
    let line = Line::of(limited(&[1], 1));
    let member = engaged(&line.running);
    assert!(matches!(engage(&line.running), MemberSelection::Full));
    let waiting: Vec<_> = (0..3).map(|it| line.join(it)).collect();
    assert!(line.called().is_empty());
    member.end_connection();
    assert_eq!((line.called(), member.active()), (vec![0], 1), "nobody else can take it meanwhile");
    assert!(waiting[0].outcome().is_some_and(|it| it.is_some()));
    member.end_connection();
    assert_eq!((line.called(), member.active(), line.running.waiting()), (vec![1], 1, 1));
}

#[test]
fn what_a_client_was_given_and_did_not_use_goes_to_the_next() {
    let line = Line::of(limited(&[1], 1));
    let member = engaged(&line.running);
    let (first, second, third) = (line.join(0), line.join(1), line.join(2));
    drop(second);
    member.end_connection();
    drop(first);
    assert_eq!((line.called(), member.active()), (vec![0, 2], 1));
    drop(third);
    assert_eq!((member.active(), line.running.waiting()), (0, 0));
}

#[test]
fn clients_wait_for_a_better_member_and_not_for_none() {
    let mut plan = limited(&[1, 2], 1);
    plan.members[1].backup = true;
    let line = Line::of(plan);
    let member = engaged(&line.running);
    assert!(matches!(engage(&line.running), MemberSelection::Full), "a backup serves where others fail");
    let waiting = line.join(0);
    line.running.set_health(&member, Health::Down, 1000);
    assert!(waiting.outcome().is_some_and(|it| it.is_some_and(|it| it.at == at(2))));
    line.running.set_health(&line.running.live().members[1].clone(), Health::Down, 1000);
    assert!(matches!(engage(&line.running), MemberSelection::NoMember));
    let waiting = line.join(1);
    assert!(waiting.outcome().is_some_and(|it| it.is_none()), "there is nobody to wait for");
}

#[test]
fn below_the_panic_threshold_there_is_room_at_any_member() {
    let running = running(Pool { panic_threshold: 100, ..limited(&[1, 2], 1) });
    running.set_health(&running.live().members[0].clone(), Health::Down, 1000);
    let mut taken: Vec<_> = (0..2).map(|_| engaged(&running).at).collect();
    taken.sort();
    assert_eq!(taken, [at(1), at(2)]);
}

#[test]
fn no_more_wait_than_there_is_room_for() {
    let line = Line::of(limited(&[1], 1));
    let _member = engaged(&line.running);
    let join = |it| line.running.wait(request(), line.mailbox.clone(), WaiterId::Task(it));
    let mut waiting: Vec<_> = (0..).map_while(join).collect();
    assert_eq!(waiting.len(), crate::running::queue::MOST_WAITING);
    waiting.pop();
    assert!(join(7).is_some());
}
