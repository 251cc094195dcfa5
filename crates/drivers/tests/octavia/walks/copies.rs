//! A copy of the cluster that goes on beside it, and is older than a port of a Service.

use std::{collections::BTreeSet, time::Duration};

use seaway_model::{Problem, Reason};
use seaway_openstack::{octavia::Member, resource::Query};
use seaway_testkit::cloud::Fault;

use super::{ApiServer, Controller, Event, SeededRandom, Walk, nodes};

const A_WHILE: Duration = Duration::from_secs(100);
const TAGS: &str = "PUT */ports/*/tags";
const MINUTE: Duration = Duration::from_secs(60);

impl Walk {
    async fn served(&self) -> BTreeSet<u16> {
        self.scene.listeners().await.iter().map(|it| it.protocol_port).collect()
    }

    /// At port 80.
    async fn members(&self) -> usize {
        let listeners = self.scene.listeners().await.into_iter();
        let pool = listeners.filter(|it| it.protocol_port == 80).find_map(|it| it.default_pool_id);
        let members = self.scene.cloud.within::<Member>(&pool.unwrap());
        members.list::<Member>(Query::all()).await.unwrap().len()
    }

    /// A Service with a load balancer, and a state of its cluster as a backup has it.
    async fn with_backup() -> (Walk, ApiServer) {
        let mut walk = Walk::begin(SeededRandom(1)).await;
        walk.happens(Event::Create("shop", vec![80])).await;
        walk.passes(5 * MINUTE).await;
        let backup = walk.api.copy(|_| true);
        walk.happens(Event::Ports("shop", vec![80, 443])).await;
        walk.happens(Event::Nodes(vec![11, 12, 13])).await;
        walk.passes(A_WHILE).await;
        walk.scene.fake.forget_requests();
        (walk, backup)
    }

    fn beside(&self, api: &ApiServer) -> Controller {
        Controller::start(&self.scene.fake.auth_url(), api, &self.config, true)
    }

    /// But for heartbeats.
    fn writes(&self) -> Vec<String> {
        let all = self.scene.fake.requests().into_iter();
        let writes = all.filter(|it| it.method != "GET" && !it.path.contains("/auth/tokens"));
        writes
            .filter(|it| !it.path.ends_with("/tags"))
            .map(|it| format!("{} {}", it.method, it.path))
            .collect()
    }

    /// When its leader begins to write again, in seconds.
    async fn goes_on_after(&self) -> u64 {
        let mut seconds = 0;
        while !self.controllers[self.leader].as_ref().unwrap().sole.may_write() {
            self.passes(Duration::from_secs(1)).await;
            seconds += 1;
            assert!(seconds < 1_000, "it waits for ever");
        }
        seconds
    }
}

/// What owners hear of other controllers.
async fn others(controller: &Controller) -> Vec<Problem> {
    let all = controller.handle.ask(|world| world.problems()).await.unwrap();
    all.into_iter().filter(|it| it.reason == Reason::OtherController).collect()
}

fn told(controller: &Controller) -> Option<String> {
    controller.sole.problem().map(|it| {
        assert_eq!(it.reason, Reason::OtherController);
        it.message
    })
}

#[tokio::test(start_paused = true)]
async fn a_copy_writes_nothing_as_long_as_the_original_lives() {
    let (mut walk, backup) = Walk::with_backup().await;
    backup.set_nodes(nodes(&[21]));
    let beside = walk.beside(&backup);
    walk.passes(Duration::from_secs(4_000)).await;
    assert_eq!((walk.writes(), walk.served().await), (Vec::new(), [80, 443].into()));
    let message = told(&beside).expect("the copy says so");
    assert!(message.starts_with("nothing is written in the cloud: another controller"), "{message}");
    // The original is killed, or another of its cluster leads: that is not the end of it.
    walk.restart_both().await;
    walk.passes(A_WHILE).await;
    walk.happens(Event::AnotherLeads).await;
    walk.happens(Event::Ports("shop", vec![80, 8443])).await;
    walk.passes(Duration::from_secs(1_000)).await;
    assert_eq!(walk.served().await, [80, 8443].into());
    assert_eq!(told(walk.controllers[walk.leader].as_ref().unwrap()), None, "the original goes on as ever");
    assert!(!beside.sole.may_write());
    drop(beside);
    walk.ends().await;
}

#[tokio::test(start_paused = true)]
async fn a_copy_goes_on_five_minutes_after_the_original_ended_and_the_original_waits_then() {
    let (mut walk, backup) = Walk::with_backup().await;
    walk.controllers = [None, None];
    let beside = walk.beside(&backup);
    walk.passes(4 * MINUTE).await;
    assert_eq!(walk.writes(), [""; 0]);
    walk.passes(10 * MINUTE).await;
    assert!(beside.sole.may_write() && told(&beside).is_none());
    walk.restart_both().await;
    walk.passes(10 * MINUTE).await;
    let original = walk.controllers[walk.leader].as_ref().unwrap();
    assert!(!original.sole.may_write() && told(original).is_some(), "one at a time");
    drop(beside);
    let seconds = walk.goes_on_after().await;
    assert!((240..=420).contains(&seconds), "{seconds}");
    walk.ends().await;
}

/// A cluster whose etcd was set back, with nothing beside it.
#[tokio::test(start_paused = true)]
async fn a_cluster_that_was_set_back_waits_once_and_goes_on() {
    let (mut walk, backup) = Walk::with_backup().await;
    walk.controllers = [None, None];
    walk.api = backup;
    walk.restart_both().await;
    let seconds = walk.goes_on_after().await;
    assert!((240..=420).contains(&seconds), "{seconds}");
    // From then on it is as ever.
    walk.restart_both().await;
    assert!(walk.goes_on_after().await <= 2);
    walk.ends().await;
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_follows_another_or_did_not_run_for_a_week_writes_at_once() {
    let (mut walk, _) = Walk::with_backup().await;
    for away in [Duration::ZERO, Duration::from_secs(30), 7 * 24 * 60 * MINUTE] {
        walk.controllers = [None, None];
        tokio::time::sleep(away).await;
        walk.scene.clock.advance(away);
        walk.restart_both().await;
        assert!(walk.goes_on_after().await <= 2, "after {away:?}");
    }
    for _ in 0..3 {
        walk.happens(Event::AnotherLeads).await;
        assert!(walk.goes_on_after().await <= 2);
        walk.passes(A_WHILE).await;
    }
    walk.ends().await;
}

/// The one that began later does not know that another lives, and learns it with the next heartbeat.
#[tokio::test(start_paused = true)]
async fn of_an_original_and_its_copy_of_this_minute_the_original_stays() {
    let (walk, _) = Walk::with_backup().await;
    let beside = walk.beside(&walk.api.fresh_copy(|_| true));
    walk.passes(3 * MINUTE).await;
    let original = walk.controllers[walk.leader].as_ref().unwrap();
    assert!(original.sole.may_write() && !beside.sole.may_write());
    assert!(told(&beside).is_some_and(|it| it.contains("another controller")));
    walk.passes(3 * MINUTE).await;
    assert!(!beside.sole.may_write() && walk.controllers[walk.leader].as_ref().unwrap().sole.may_write());
    drop(beside);
    walk.ends().await;
}

/// The load balancer at whose port the heartbeat was goes: it is at another's from then on, at one.
#[tokio::test(start_paused = true)]
async fn a_heartbeat_moves_when_its_load_balancer_goes() {
    let (mut walk, backup) = Walk::with_backup().await;
    walk.happens(Event::Create("mail", vec![80])).await;
    walk.passes(A_WHILE).await;
    let beside = walk.beside(&backup);
    walk.passes(A_WHILE).await;
    walk.happens(Event::Delete("shop")).await;
    walk.passes(10 * MINUTE).await;
    assert_eq!(walk.scene.balancers().await.len(), 1);
    assert!(!beside.sole.may_write(), "where it is now, the copy sees it");
    drop(beside);
    walk.ends().await;
}

/// It was allowed once: what is there then stays, and is still this cluster's.
#[tokio::test(start_paused = true)]
async fn a_right_to_tag_that_was_taken_away_delays_no_leader() {
    let (mut walk, _) = Walk::with_backup().await;
    walk.scene.fake.fail(Fault::on(TAGS).always().status(403));
    for _ in 0..2 {
        walk.passes(30 * MINUTE).await;
        walk.restart_both().await;
        assert!(walk.goes_on_after().await <= 2);
    }
    walk.ends().await;
}

/// Where Neutron lets no port be tagged, the two do not know of each other.
#[tokio::test(start_paused = true)]
async fn where_a_copy_is_not_noticed_it_deletes_nothing_before_an_operator_approves_it() {
    let mut walk = Walk::begin(SeededRandom(1)).await;
    walk.scene.fake.fail(Fault::on(TAGS).always().status(403));
    walk.happens(Event::Create("shop", vec![80])).await;
    walk.passes(A_WHILE).await;
    let copy = walk.api.copy(|_| true);
    walk.happens(Event::Ports("shop", vec![80, 443])).await;
    walk.happens(Event::Nodes(vec![11, 12, 13])).await;
    walk.passes(A_WHILE).await;
    assert_eq!(walk.served().await, [80, 443].into());
    walk.scene.fake.forget_requests();
    let beside = walk.beside(&copy);
    walk.passes(Duration::from_secs(4_000)).await;
    assert_eq!((walk.writes(), walk.served().await), (Vec::new(), [80, 443].into()));
    let told = others(&beside).await;
    assert!(
        told.len() == 1 && told[0].message.contains("listener 443/TCP, member 10.0.0.13 of 80/TCP"),
        "{told:?}"
    );
    assert!(told[0].fix.contains("seaway.dev/approved-deletions=default/shop until TIME"), "{told:?}");
    drop(beside);
    // Without it, what is seen to be taken away goes as ever.
    walk.happens(Event::Ports("shop", vec![80])).await;
    walk.happens(Event::Nodes(vec![11, 12])).await;
    walk.passes(A_WHILE).await;
    assert_eq!((walk.served().await, walk.members().await), ([80].into(), 2));
    // What nobody saw to be taken away waits for an approval.
    walk.happens(Event::Ports("shop", vec![80, 443])).await;
    walk.passes(A_WHILE).await;
    walk.controllers = [None, None];
    walk.happens(Event::Ports("shop", vec![80])).await;
    walk.happens(Event::Nodes(vec![12, 13])).await;
    walk.restart_both().await;
    walk.passes(Duration::from_secs(1_000)).await;
    assert_eq!((walk.served().await, walk.members().await), ([80, 443].into(), 3), "one that came serves");
    assert_eq!(others(walk.controllers[walk.leader].as_ref().unwrap()).await.len(), 1);
    walk.api.approve("shop");
    walk.passes(A_WHILE).await;
    assert_eq!((walk.served().await, walk.members().await), ([80].into(), 2));
    assert_eq!(others(walk.controllers[walk.leader].as_ref().unwrap()).await, []);
    walk.ends().await;
}

/// It knows the last heartbeat, and writes until it sees the next one.
#[tokio::test(start_paused = true)]
async fn a_copy_of_a_state_of_this_minute_deletes_nothing() {
    let mut walk = Walk::begin(SeededRandom(1)).await;
    walk.happens(Event::Create("shop", vec![80])).await;
    walk.passes(5 * MINUTE + Duration::from_secs(10)).await;
    let copy = walk.api.fresh_copy(|_| true);
    walk.happens(Event::Ports("shop", vec![80, 443])).await;
    walk.happens(Event::Nodes(vec![11, 12, 13])).await;
    walk.passes(Duration::from_secs(20)).await;
    assert_eq!((walk.served().await, walk.members().await), ([80, 443].into(), 3));
    walk.scene.fake.forget_requests();
    let beside = walk.beside(&copy);
    walk.passes(Duration::from_secs(15)).await;
    assert!(beside.sole.may_write(), "it has not seen the original yet");
    walk.passes(10 * MINUTE).await;
    assert!(!beside.sole.may_write());
    assert_eq!((walk.writes(), walk.served().await, walk.members().await), (Vec::new(), [80, 443].into(), 3));
    drop(beside);
    walk.ends().await;
}

/// Who follows a leader that was killed cannot know at once that nobody else writes.
#[tokio::test(start_paused = true)]
async fn who_follows_a_killed_leader_serves_at_once_and_deletes_what_nobody_saw_asked_for_three_minutes_later()
 {
    let (mut walk, _) = Walk::with_backup().await;
    walk.controllers = [None, None];
    walk.happens(Event::Ports("shop", vec![80, 8443])).await;
    walk.happens(Event::Nodes(vec![12, 13])).await;
    walk.restart_both().await;
    walk.passes(Duration::from_secs(50)).await;
    assert_eq!((walk.served().await, walk.members().await), ([80, 443, 8443].into(), 3));
    // What it sees asked for goes.
    walk.happens(Event::Ports("shop", vec![80])).await;
    walk.passes(Duration::from_secs(15)).await;
    assert_eq!(walk.served().await, [80, 443].into());
    walk.passes(4 * MINUTE).await;
    assert_eq!((walk.served().await, walk.members().await), ([80].into(), 2));
    walk.ends().await;
}

/// Neutron refuses it: then it is as it was before there were heartbeats.
#[tokio::test(start_paused = true)]
async fn where_ports_are_not_told_or_not_tagged_all_is_served() {
    for pattern in ["GET */ports*", TAGS] {
        let mut walk = Walk::begin(SeededRandom(1)).await;
        walk.scene.fake.fail(Fault::on(pattern).always().status(403));
        walk.happens(Event::Create("shop", vec![80])).await;
        walk.passes(A_WHILE).await;
        assert!(walk.goes_on_after().await <= 1, "{pattern}");
        walk.ends().await;
    }
}
