//! Checks that rest while nobody uses their pool.

use seaway_model::PoolId;
use seaway_snapshot::Cursor;

use super::*;

#[test]
fn a_pool_is_asked_nothing_until_its_first_client_whose_coming_finds_out_who_is_dead() {
    let (heard, _asked) = mpsc::channel();
    let backend = Backend::tcp(FAMILIES[0], b"", heard.clone());
    let (_socket, dead) = dead_tcp(FAMILIES[0]);
    let check_registry = CheckRegistry::new(CheckKind::Tcp, &[backend.at, dead], |pool| {
        pool.health.as_mut().unwrap().while_used = true;
    });
    // Whoever is asked always, and was heard of later, tells that there was time to ask the others.
    let witness = Backend::tcp(FAMILIES[0], b"", heard);
    let mut always = Pool { id: PoolId("always".into()), ..pool(&[witness.at]) };
    always.health = check_registry.pool.health.clone().map(|it| HealthCheck { while_used: false, ..it });
    let running = RunningPool::empty(LbKey::Whole, always.id.clone());
    running.put(Some(Arc::new(always)), sys::millis());
    check_registry.prober.watch(&running);
    until("the witness is asked a few times", || witness.asked.load(SeqCst) > 5);
    assert_eq!(backend.asked.load(SeqCst), 0);
    assert_eq!(check_registry.health(dead), Health::Unknown);
    assert!(check_registry.running.are_checks_suspended() && !running.are_checks_suspended());

    let (live, mut cursor) = (check_registry.running.live(), Cursor::new(1));
    assert!(check_registry.running.choose(&live, FAMILIES[0], &mut cursor, &[], sys::millis()).is_some());
    assert!(!check_registry.running.are_checks_suspended());
    check_registry.becomes(dead, Health::Down);
    check_registry.becomes(backend.at, Health::Up);
}
