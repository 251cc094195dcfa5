use std::collections::BTreeMap;

use seaway_model::{
    L4,
    load_balancer::{HttpOptions, Limits, Protocol, Rule, Timeouts},
    name::Owner,
};

use super::*;

fn config(limits: Limits, pools: &[(&str, u32)]) -> ListenerConfig {
    let owner = Owner::Config("test".into());
    let mut rule = Rule::forward_all(owner.clone(), PoolId("none".into()));
    rule.action = Action::Forward(pools.iter().map(|(id, weight)| (PoolId((*id).into()), *weight)).collect());
    let listener = Listener {
        owner,
        name: "test".into(),
        l4: L4::Tcp,
        port: 80,
        protocol: Protocol::Opaque,
        tls: None,
        rules: vec![rule.into()],
        http: HttpOptions::default(),
        sources: Vec::new(),
        denied: Vec::new(),
        proxy_from: Vec::new(),
        limits,
        timeouts: Timeouts::default(),
    };
    ListenerConfig::new(Arc::new(listener), None, None, |id| RunningPool::empty(LbKey::Whole, id.clone()))
}

fn running() -> RunningListener {
    let id = ListenerId { l4: L4::Tcp, port: 80 };
    RunningListener::new(
        LbKey::Whole,
        ([127, 0, 0, 1], 80).into(),
        id,
        Arc::new(config(Limits::default(), &[])),
    )
}

#[test]
fn pools_are_chosen_by_weight() {
    let config = config(Limits::default(), &[("a", 3), ("never", 0), ("b", 1)]);
    let mut counts = BTreeMap::<String, usize>::new();
    for number in 0..400 {
        *counts.entry(config.pool(|| number).unwrap().id.to_string()).or_default() += 1;
    }
    assert_eq!(counts, [("a".into(), 300), ("b".into(), 100)].into());
}

#[test]
fn pools_without_weight_are_nobody() {
    assert!(config(Limits::default(), &[]).pool(|| 1).is_none());
    assert!(config(Limits::default(), &[("a", 0)]).pool(|| 1).is_none());
    assert!(config(Limits::default(), &[("a", 0), ("b", 0)]).pool(|| 1).is_none());
}

#[test]
fn the_rate_is_kept_with_a_second_of_credit() {
    let (listener, config) = (running(), config(Limits { connections: None, new_per_second: Some(10) }, &[]));
    let enter = |now| listener.enter(&config, now).is_ok();
    assert_eq!((0..100).filter(|_| enter(5000)).count(), 10);
    assert_eq!((5000..6000).filter(|now| enter(*now)).count(), 9);
    assert_eq!((0..100).filter(|_| enter(20_000)).count(), 10);
}

#[test]
fn a_rate_of_nothing_lets_nobody_in() {
    let config = config(Limits { connections: None, new_per_second: Some(0) }, &[]);
    assert_eq!(running().enter(&config, 5000), Err(RefusalReason::Rate));
}

#[test]
fn who_leaves_makes_room() {
    let (listener, config) = (running(), config(Limits { connections: Some(2), new_per_second: None }, &[]));
    let enter = || listener.enter(&config, 5000);
    assert_eq!([enter(), enter(), enter()], [Ok(()), Ok(()), Err(RefusalReason::Connections)]);
    listener.leave();
    assert_eq!([enter(), enter()], [Ok(()), Err(RefusalReason::Connections)]);
    assert_eq!((listener.active(), listener.most.load(Relaxed), listener.total.load(Relaxed)), (2, 2, 3));
}

impl ListenerConfig {
    /// Where those rules lead that were not made for the other.
    pub(crate) fn unlike(&self, other: &ListenerConfig) -> Vec<String> {
        let known = |path: &&Arc<RunningRoute>| other.paths.iter().flatten().any(|it| Arc::ptr_eq(it, path));
        let made = self.paths.iter().flatten().filter(|path| !known(path));
        made.flat_map(|path| &path.choice.pools).map(|(pool, _)| pool.id.to_string()).collect()
    }
}
