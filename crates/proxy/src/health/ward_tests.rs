use seaway_model::{
    L4, Member, Owner,
    load_balancer::{BackendProtocol, Balance, HealthCheck},
};

use super::*;
use crate::health::Vitals;

struct Bed(Vitals);

impl Patient for Bed {
    fn vitals(&self) -> &Vitals {
        &self.0
    }
}

const EJECT: u64 = 10_000;

fn pool(name: &str, members: &[&str]) -> Pool {
    let mut members: Vec<Member> = members
        .iter()
        .map(|at| Member {
            at: at.parse().unwrap(),
            host_name: None,
            node: None,
            weight: 1,
            state: MemberState::Ready,
        })
        .collect();
    members.sort_by_key(|member| member.at);
    Pool {
        id: PoolId(name.into()),
        owner: Owner::Config("test".into()),
        l4: L4::Tcp,
        protocol: BackendProtocol::Opaque,
        tls: None,
        balance: Balance::RoundRobin,
        affinity: None,
        health: Some(HealthCheck { rise: 1, fall: 1, ..HealthCheck::default() }),
        passive: Some(Passive { failures: 3, eject: Duration::from_millis(EJECT) }),
        slow_start: None,
        panic_threshold: 0,
        proxy: None,
        members,
    }
}

/// Beds outlive swaps of their pool, as the proxy's runtime state does.
#[derive(Default)]
struct Clinic {
    ward: Ward,
    beds: HashMap<(PoolId, SocketAddr), Arc<Bed>>,
}

impl Clinic {
    fn admit(&mut self, pool: &Pool) -> Vec<usize> {
        let admissions = pool
            .members
            .iter()
            .map(|member| Admission { at: member.at, patient: self.bed(pool, &member.at.to_string()) })
            .collect();
        self.ward.admit(LbKey::Whole, pool, admissions, 0)
    }

    fn bed(&mut self, pool: &Pool, at: &str) -> Arc<Bed> {
        let key = (pool.id.clone(), at.parse().unwrap());
        self.beds.entry(key).or_insert_with(|| Arc::new(Bed(Vitals::default()))).clone()
    }

    fn targets(&self) -> usize {
        self.ward.by_check.len()
    }

    fn suspect(&mut self, pool: &Pool, at: &str, now: u64) -> Option<u64> {
        let id = self.bed(pool, at).0.id();
        self.ward.suspect(id, now)
    }

    fn health(&mut self, pool: &Pool, at: &str) -> Health {
        self.bed(pool, at).0.health()
    }
}

const A: &str = "192.0.2.1:80";
const B: &str = "192.0.2.2:80";

fn ill() -> Finding {
    Finding::Ill("refused".into())
}

#[test]
fn the_same_check_in_two_pools_is_made_once_and_tells_both() {
    let mut clinic = Clinic::default();
    let (one, two) = (pool("one", &[A]), pool("two", &[A]));
    let fresh = clinic.admit(&one);
    assert_eq!(fresh.len(), 1);
    assert!(clinic.admit(&two).is_empty());
    assert_eq!(clinic.targets(), 1);
    clinic.ward.note(fresh[0], &ill(), 5);
    assert_eq!(clinic.health(&one, A), Health::Down);
    assert_eq!(clinic.health(&two, A), Health::Down);
    assert_eq!(clinic.ward.changes.len(), 2);
}

#[test]
fn another_interval_is_another_check() {
    let mut clinic = Clinic::default();
    let one = pool("one", &[A]);
    let mut two = pool("two", &[A]);
    two.health = Some(HealthCheck { interval: Duration::from_secs(7), ..one.health.clone().unwrap() });
    clinic.admit(&one);
    assert_eq!(clinic.admit(&two).len(), 1);
}

#[test]
fn what_a_shared_check_knows_counts_for_a_pool_that_joins() {
    let mut clinic = Clinic::default();
    let one = pool("one", &[A]);
    let slot = clinic.admit(&one)[0];
    clinic.ward.note(slot, &ill(), 5);
    let two = pool("two", &[A]);
    clinic.admit(&two);
    assert_eq!(clinic.health(&two, A), Health::Down);
}

#[test]
fn changed_settings_do_not_raise_a_fallen_member() {
    let mut clinic = Clinic::default();
    let mut one = pool("one", &[A]);
    let slot = clinic.admit(&one)[0];
    clinic.ward.note(slot, &ill(), 5);
    one.health = Some(HealthCheck { interval: Duration::from_secs(9), rise: 1, ..HealthCheck::default() });
    let slot = clinic.admit(&one)[0];
    assert_eq!(clinic.health(&one, A), Health::Down);
    clinic.ward.note(slot, &Finding::Well, 9);
    assert_eq!(clinic.health(&one, A), Health::Up);
}

#[test]
fn without_a_check_nobody_is_down() {
    let mut clinic = Clinic::default();
    let mut one = pool("one", &[A]);
    let slot = clinic.admit(&one)[0];
    clinic.ward.note(slot, &ill(), 5);
    one.health = None;
    assert!(clinic.admit(&one).is_empty());
    assert_eq!(clinic.health(&one, A), Health::Up);
    assert_eq!(clinic.targets(), 0);
}

#[test]
fn a_member_that_leaves_takes_its_check_along() {
    let mut clinic = Clinic::default();
    clinic.admit(&pool("one", &[A, B]));
    assert_eq!(clinic.targets(), 2);
    clinic.admit(&pool("one", &[B]));
    assert_eq!(clinic.targets(), 1);
    clinic.ward.forget(LbKey::Whole, PoolId("one".into()));
    assert_eq!(clinic.targets(), 0);
    assert!(clinic.ward.patients.is_empty());
}

#[test]
fn what_we_lack_says_nothing_about_a_member() {
    let mut clinic = Clinic::default();
    let one = pool("one", &[A]);
    let slot = clinic.admit(&one)[0];
    clinic.ward.note(slot, &Finding::Unable("too many open files".into()), 5);
    assert_eq!(clinic.health(&one, A), Health::Up);
}

#[test]
fn never_are_all_members_ejected() {
    let mut clinic = Clinic::default();
    let one = pool("one", &[A, B]);
    clinic.admit(&one);
    assert_eq!(clinic.suspect(&one, A, 0), Some(EJECT));
    assert_eq!(clinic.health(&one, A), Health::Ejected);
    assert_eq!(clinic.suspect(&one, B, 1), None);
    assert_eq!(clinic.health(&one, B), Health::Up);
}

#[test]
fn a_draining_member_is_nobody_to_count_on() {
    let mut clinic = Clinic::default();
    let mut one = pool("one", &[A, B]);
    one.members[1].state = MemberState::Draining;
    clinic.admit(&one);
    assert_eq!(clinic.suspect(&one, A, 0), None);
}

#[test]
fn ejections_in_a_row_last_longer_up_to_ten_times() {
    let mut clinic = Clinic::default();
    let one = pool("one", &[A, B]);
    clinic.admit(&one);
    let id = clinic.bed(&one, A).0.id();
    let mut now = 0;
    for round in 1..=12 {
        let until = clinic.suspect(&one, A, now).unwrap();
        assert_eq!(until - now, EJECT * round.min(10));
        clinic.ward.release(id, until - 1);
        assert_eq!(clinic.health(&one, A), Health::Ejected);
        clinic.ward.release(id, until);
        assert_eq!(clinic.health(&one, A), Health::Up);
        now = until + 1;
    }
    now += EJECT * 10;
    assert_eq!(clinic.suspect(&one, A, now), Some(now + EJECT), "it proved itself in between");
}

#[test]
fn a_pool_without_ejection_ejects_nobody() {
    let mut clinic = Clinic::default();
    let mut one = pool("one", &[A, B]);
    one.passive = None;
    clinic.admit(&one);
    assert_eq!(clinic.suspect(&one, A, 0), None);
}

#[test]
fn each_change_says_from_what_to_what_and_why() {
    let mut clinic = Clinic::default();
    let one = pool("one", &[A]);
    let slot = clinic.admit(&one)[0];
    clinic.ward.note(slot, &ill(), 5);
    clinic.ward.note(slot, &ill(), 6);
    clinic.ward.note(slot, &Finding::Well, 7);
    let told: Vec<_> = clinic.ward.changes.iter().map(|c| (c.from, c.to, c.reason.as_str())).collect();
    assert_eq!(told, [(Health::Up, Health::Down, "refused"), (Health::Down, Health::Up, "checks succeeded")]);
}
