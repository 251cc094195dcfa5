use std::time::Duration;

use seaway_model::{Kind, ObjectRef, Owner, Pool, load_balancer::HealthCheck};

use seaway_snapshot::Cursor;
use seaway_testkit::balancing::pool;

use super::*;

const A: &str = "192.0.2.1:80";
const B: &str = "192.0.2.2:80";
/// Without a client, until checks rest.
const MINUTE: u64 = 60_000;

struct TestRegistry {
    check_registry: CheckRegistry,
    pools: HashMap<PoolId, Arc<RunningPool>>,
}

impl TestRegistry {
    fn new() -> TestRegistry {
        TestRegistry { check_registry: CheckRegistry::default(), pools: HashMap::new() }
    }

    fn admit(&mut self, pool: Pool) -> Vec<usize> {
        let id = pool.id.clone();
        let running = self.pools.entry(id.clone()).or_insert_with(|| RunningPool::empty(LbKey::Whole, id));
        running.put(Some(Arc::new(pool)), 1);
        self.check_registry.admit(running, 1)
    }

    /// What of `slot` somebody who comes to it at `now` finds.
    fn suspend_if_idle(&mut self, slot: usize, now: u64) -> bool {
        let generation = self.check_registry.generation_of(slot).unwrap();
        self.check_registry.suspend_if_idle(slot, generation, now)
    }

    /// A client comes to the pool. Returns what is checked again.
    fn used(&mut self, pool: &str, now: u64) -> Vec<usize> {
        let id = PoolId(pool.into());
        let running = &self.pools[&id];
        running.choose(&running.live(), [192, 0, 2, 99].into(), &mut Cursor::new(1), &[], now).unwrap();
        self.check_registry.wake(&(LbKey::Whole, id))
    }

    fn health(&self, pool: &str, at: &str) -> Health {
        let live = self.pools[&PoolId(pool.into())].live();
        live.members[live.compiled.position(at.parse().unwrap()).unwrap()].health()
    }
}

fn named(name: &str, members: &[&str]) -> Pool {
    let members: Vec<SocketAddr> = members.iter().map(|at| at.parse().unwrap()).collect();
    let health = Some(HealthCheck { rise: 1, fall: 1, ..HealthCheck::default() });
    Pool { id: PoolId(name.into()), health, ..pool(&members) }
}

fn at_leisure(name: &str, members: &[&str]) -> Pool {
    let mut pool = named(name, members);
    pool.health.as_mut().unwrap().while_used = true;
    pool
}

fn ill() -> CheckResult {
    CheckResult::Failed("refused".into())
}

#[test]
fn the_same_check_in_two_pools_is_made_once_and_tells_both() {
    let mut checks = TestRegistry::new();
    let fresh = checks.admit(named("one", &[A]));
    assert_eq!(fresh.len(), 1);
    assert!(checks.admit(named("two", &[A])).is_empty());
    checks.check_registry.note(fresh[0], &ill(), 5);
    assert_eq!((checks.health("one", A), checks.health("two", A)), (Health::Down, Health::Down));
    assert_eq!(checks.check_registry.changes.len(), 2);
}

#[test]
fn another_interval_is_another_check() {
    let mut checks = TestRegistry::new();
    checks.admit(named("one", &[A]));
    let mut two = named("two", &[A]);
    two.health = Some(HealthCheck { interval: Duration::from_secs(7), ..HealthCheck::default() });
    assert_eq!(checks.admit(two).len(), 1);
}

#[test]
fn what_a_shared_check_knows_counts_for_a_pool_that_joins() {
    let mut checks = TestRegistry::new();
    let slot = checks.admit(named("one", &[A]))[0];
    checks.check_registry.note(slot, &ill(), 5);
    checks.admit(named("two", &[A]));
    assert_eq!(checks.health("two", A), Health::Down);
}

#[test]
fn changed_settings_do_not_raise_a_fallen_member() {
    let mut checks = TestRegistry::new();
    let slot = checks.admit(named("one", &[A]))[0];
    checks.check_registry.note(slot, &ill(), 5);
    let mut changed = named("one", &[A]);
    changed.health =
        Some(HealthCheck { interval: Duration::from_secs(9), rise: 1, ..HealthCheck::default() });
    let slot = checks.admit(changed)[0];
    assert_eq!(checks.health("one", A), Health::Down);
    checks.check_registry.note(slot, &CheckResult::Passed, 9);
    assert_eq!(checks.health("one", A), Health::Up);
}

#[test]
fn without_a_check_nobody_is_down() {
    let mut checks = TestRegistry::new();
    let slot = checks.admit(named("one", &[A]))[0];
    checks.check_registry.note(slot, &ill(), 5);
    assert!(checks.admit(Pool { health: None, ..named("one", &[A]) }).is_empty());
    assert_eq!(checks.health("one", A), Health::Unknown);
    assert!(checks.check_registry.by_check.is_empty());
}

#[test]
fn a_member_that_leaves_takes_its_check_along() {
    let mut checks = TestRegistry::new();
    checks.admit(named("one", &[A, B]));
    assert_eq!(checks.check_registry.by_check.len(), 2);
    checks.admit(named("one", &[B]));
    assert_eq!(checks.check_registry.by_check.len(), 1);
    let pool = checks.pools[&PoolId("one".into())].clone();
    pool.put(None, 9);
    checks.check_registry.admit(&pool, 9);
    assert!(checks.check_registry.by_check.is_empty() && checks.check_registry.pools.is_empty());
    assert!(checks.check_registry.checked_members.is_empty());
}

#[test]
fn what_we_lack_says_nothing_about_a_member() {
    let mut checks = TestRegistry::new();
    let slot = checks.admit(named("one", &[A]))[0];
    checks.check_registry.note(slot, &CheckResult::NotRun("too many open files".into()), 5);
    assert_eq!(checks.health("one", A), Health::Unknown);
}

#[test]
fn each_check_that_a_member_did_not_pass_is_counted_in_all_its_pools() {
    let mut checks = TestRegistry::new();
    let slot = checks.admit(named("one", &[A]))[0];
    checks.admit(named("two", &[A]));
    checks.admit(named("other", &[B]));
    let check_results =
        [ill(), CheckResult::Passed, CheckResult::NotRun("too many open files".into()), ill(), ill()];
    for (check_result, now) in check_results.iter().zip(5..) {
        checks.check_registry.note(slot, check_result, now);
    }
    let failures = |pool: &str, at: &str| {
        let live = checks.pools[&PoolId(pool.into())].live();
        live.members[live.compiled.position(at.parse().unwrap()).unwrap()].check_failures.load(Relaxed)
    };
    assert_eq!((failures("one", A), failures("two", A), failures("other", B)), (3, 3, 0));
}

#[test]
fn each_change_says_from_what_to_what_and_why() {
    let mut checks = TestRegistry::new();
    let slot = checks.admit(named("one", &[A]))[0];
    checks.check_registry.note(slot, &CheckResult::Passed, 4);
    checks.check_registry.note(slot, &ill(), 5);
    checks.check_registry.note(slot, &ill(), 6);
    checks.check_registry.note(slot, &CheckResult::Passed, 7);
    let told: Vec<_> =
        checks.check_registry.changes.iter().map(|c| (c.from, c.to, c.reason.as_str())).collect();
    assert_eq!(
        told,
        [
            (MemberAvailability::Usable, MemberAvailability::Failed, "refused"),
            (MemberAvailability::Failed, MemberAvailability::Usable, "checks succeeded")
        ]
    );
}

#[test]
fn checks_of_a_pool_that_nobody_uses_rest_until_somebody_does_and_from_a_minute_after() {
    let mut checks = TestRegistry::new();
    assert!(checks.admit(at_leisure("one", &[A, B])).is_empty());
    let mut awake = checks.used("one", 5);
    awake.sort();
    assert_eq!(awake.len(), 2);
    assert!(checks.used("one", 6).is_empty(), "it is awake");
    assert!(!checks.suspend_if_idle(awake[0], 5 + MINUTE - 1));
    assert!(checks.suspend_if_idle(awake[0], 5 + MINUTE) && checks.suspend_if_idle(awake[1], 5 + MINUTE));
    assert_eq!(checks.used("one", 7 + MINUTE).len(), 2);
}

#[test]
fn whoever_goes_on_coming_keeps_checks_awake() {
    let mut checks = TestRegistry::new();
    checks.admit(at_leisure("one", &[A]));
    let slot = checks.used("one", 5)[0];
    checks.used("one", 5 + MINUTE / 2);
    assert!(!checks.suspend_if_idle(slot, 5 + MINUTE));
    assert!(checks.suspend_if_idle(slot, 5 + MINUTE / 2 + MINUTE));
}

#[test]
fn a_connection_that_goes_on_keeps_checks_awake() {
    let mut checks = TestRegistry::new();
    checks.admit(at_leisure("one", &[A, B]));
    let awake = checks.used("one", 5);
    let member = checks.pools[&PoolId("one".into())].live().members[1].clone();
    member.begin_connection();
    assert!(!checks.suspend_if_idle(awake[0], 10 * MINUTE) && !checks.suspend_if_idle(awake[1], 10 * MINUTE));
    member.end_connection();
    assert!(!checks.suspend_if_idle(awake[0], 11 * MINUTE - 1), "it was there until now");
    assert!(checks.suspend_if_idle(awake[0], 11 * MINUTE));
}

#[test]
fn whoever_failed_is_asked_until_it_is_well_though_nobody_uses_it() {
    let mut checks = TestRegistry::new();
    let mut pool = at_leisure("one", &[A, B]);
    pool.health.as_mut().unwrap().fall = 2;
    checks.admit(pool.clone());
    let slot = checks.used("one", 5)[0];
    checks.check_registry.note(slot, &ill(), 6);
    assert!(!checks.suspend_if_idle(slot, 2 * MINUTE), "one more would make it fail");
    checks.check_registry.note(slot, &ill(), 7);
    assert!(!checks.suspend_if_idle(slot, 3 * MINUTE));
    // Another check of it is as bound to end that.
    pool.health.as_mut().unwrap().interval = Duration::from_secs(9);
    let slots = checks.admit(pool);
    assert_eq!(slots.len(), 1);
    assert!(!checks.suspend_if_idle(slots[0], 4 * MINUTE));
    checks.check_registry.note(slots[0], &CheckResult::Passed, 5 * MINUTE);
    assert!(checks.suspend_if_idle(slots[0], 5 * MINUTE));
}

#[test]
fn what_was_found_before_holds_while_checks_rest() {
    let mut checks = TestRegistry::new();
    checks.admit(at_leisure("one", &[A]));
    let slot = checks.used("one", 5)[0];
    checks.check_registry.note(slot, &CheckResult::Passed, 6);
    assert!(checks.suspend_if_idle(slot, 2 * MINUTE));
    assert_eq!(checks.health("one", A), Health::Up);
    checks.admit(at_leisure("two", &[A]));
    assert_eq!(checks.health("two", A), Health::Up);
}

#[test]
fn a_check_that_another_pool_always_wants_never_rests() {
    let mut checks = TestRegistry::new();
    assert!(checks.admit(at_leisure("one", &[A])).is_empty());
    let slot = checks.admit(named("two", &[A]))[0];
    assert!(!checks.suspend_if_idle(slot, 9 * MINUTE));
    assert!(checks.pools[&PoolId("one".into())].are_checks_suspended());
    checks.admit(named("two", &[]));
    assert!(checks.suspend_if_idle(slot, 9 * MINUTE));
    assert_eq!(checks.used("one", 9 * MINUTE), [slot]);
}

#[test]
fn a_check_that_is_asked_for_from_now_on_wakes() {
    let mut checks = TestRegistry::new();
    checks.admit(at_leisure("one", &[A]));
    let slot = checks.admit(named("one", &[A]))[0];
    assert!(!checks.suspend_if_idle(slot, 9 * MINUTE));
    assert!(!checks.pools[&PoolId("one".into())].are_checks_suspended());
}

#[test]
fn a_member_that_joins_a_pool_in_use_is_checked_at_once() {
    let mut checks = TestRegistry::new();
    checks.admit(at_leisure("one", &[A]));
    checks.used("one", 1);
    assert_eq!(checks.admit(at_leisure("one", &[A, B])).len(), 1);
}

#[test]
fn a_check_counts_for_the_namespace_that_asked_for_it_first() {
    let mut checks = TestRegistry::new();
    let of = |namespace: &str, pool: Pool| {
        let object = ObjectRef::new(Kind::Service, namespace, "web");
        Pool { owner: Owner::Object { object, uid: "1".into() }, ..pool }
    };
    let slot = checks.admit(of("shop", named("one", &[A])))[0];
    checks.admit(of("other", named("two", &[A])));
    assert!(!checks.check_registry.has_several_namespaces());
    let generation = checks.check_registry.generation_of(slot).unwrap();
    assert_eq!(checks.check_registry.target(slot, generation).unwrap().namespace, Name::from("shop"));
    checks.admit(of("other", named("two", &[A, B])));
    assert!(checks.check_registry.has_several_namespaces());
    checks.admit(of("other", named("two", &[])));
    assert!(!checks.check_registry.has_several_namespaces());
    checks.admit(of("shop", named("one", &[])));
    assert!(checks.check_registry.namespaces.is_empty());
}
