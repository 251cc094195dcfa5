//! No history of Nodes, ports, other writers and crashes removes a route or a pair of others, or one of a Node that exists; and once it
//! is quiet, all is there.

use std::collections::BTreeSet;

use proptest::prelude::*;
use seaway_openstack::neutron::{Route, RouterChange};
use seaway_testkit::cloud::Fault;

use super::{passes::Stage, *};

const NODES: u8 = 4;

/// What happens next.
#[derive(Clone, Debug)]
enum Event {
    /// A Node comes, or goes with its server.
    Node(u8, bool),
    /// A Node is not listed and not read for a pass, though it exists.
    Hidden(u8),
    /// Another network of the Node.
    Network(u8, u8),
    /// Others write a route of their own, or take ours away, or send ours to nowhere.
    Theirs(u8),
    Taken,
    Pass,
    /// A pass of which one request fails.
    Crash(usize, bool),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (1..=NODES, any::<bool>()).prop_map(|(at, comes)| Event::Node(at, comes)),
        1 => (1..=NODES).prop_map(Event::Hidden),
        1 => (1..=NODES, 1..4_u8).prop_map(|(at, network)| Event::Network(at, network)),
        1 => (0..5_u8).prop_map(Event::Theirs),
        1 => Just(Event::Taken),
        4 => Just(Event::Pass),
        2 => (1..6_usize, any::<bool>()).prop_map(|(nth, is_done)| Event::Crash(nth, is_done)),
    ]
}

/// What is of others: the key is what must stay.
#[derive(Default)]
struct Others(BTreeSet<String>);

impl Stage {
    async fn exists(&self, at: u8) -> bool {
        self.memory.node(&format!("n{at}")).is_some()
    }

    async fn check(&self, others: &Others, case: &str) {
        let routes = self.routes().await;
        for line in &others.0 {
            assert!(routes.contains(line), "{case}: {line} of others is gone: {routes:?}");
        }
        for at in 1..=NODES {
            if self.port_of(at).await.is_some() {
                assert!(
                    self.pairs(at).await.contains(&"192.0.2.1".to_owned()),
                    "{case}: the pair of others is gone"
                );
            }
        }
    }
}

async fn play(events: Vec<Event>) {
    let mut stage = Stage::of(2).await;
    let mut others = Others::default();
    for (step, event) in events.into_iter().enumerate() {
        let case = format!("step {step}, {event:?}");
        match event {
            Event::Node(at, true) if !stage.exists(at).await => {
                if stage.port_of(at).await.is_none() {
                    stage.boot(at).await;
                }
            }
            Event::Node(at, false) if stage.exists(at).await => stage.lose(at).await,
            Event::Node(..) => {}
            Event::Hidden(at) => {
                // It is not in a list; a GET finds it.
                let before = stage.routes().await;
                stage.memory.hide(&format!("n{at}"), true);
                stage.pass().await;
                stage.memory.hide(&format!("n{at}"), false);
                if stage.exists(at).await {
                    let hop = format!(" {}", stage.v4(at));
                    let after = stage.routes().await;
                    let lost = before.iter().find(|it| it.ends_with(&hop) && !after.contains(it));
                    // Unless its network was another one before, or another Node's.
                    let networks = stage.memory.node(&format!("n{at}")).expect("it exists").pod_cidrs;
                    let is_its = |it: &&String| networks.iter().any(|net| it.starts_with(&**net));
                    assert_eq!(lost.filter(is_its), None, "{case}");
                }
            }
            Event::Network(at, network) if stage.exists(at).await => {
                // Never that of another Node.
                let network = format!("10.{}.{at}.0/24", 10 + network);
                stage.memory.change(&format!("n{at}"), |it| it.pod_cidrs = vec![network]);
            }
            Event::Network(..) => {}
            Event::Theirs(at) => {
                let (to, hop) = (format!("172.16.{at}.0/24"), "10.0.200.1");
                let route = Route::to(&to, hop.parse().unwrap());
                stage.cloud.all::<Router>().add_routes(&stage.router, &[route]).await.expect("it may");
                others.0.insert(format!("{to} {hop}"));
            }
            Event::Taken => {
                let mut router: Router =
                    stage.cloud.all::<Router>().read(&stage.router).await.expect("it is there");
                router.routes.retain(|it| others.0.contains(&format!("{} {}", it.destination, it.nexthop)));
                let change = RouterChange { routes: router.routes.into(), ..RouterChange::default() };
                stage.cloud.all::<Router>().change(&stage.router, &change).await.expect("it may");
            }
            Event::Pass => {
                stage.pass().await;
            }
            Event::Crash(nth, is_done) => {
                let fault = Fault::on("PUT *").nth(nth);
                stage.fake.fail(if is_done { fault.lose_reply() } else { fault.lose_request() });
                stage.pass().await;
                stage.fake.heal();
            }
        }
        stage.check(&others, &case).await;
    }
    // Then it is quiet.
    for _ in 0..3 {
        stage.pass().await;
    }
    stage.fake.forget_requests();
    let pass = stage.pass().await;
    assert_eq!(stage.writes(), 0, "nothing changed, nothing is written");
    let routes: BTreeSet<String> = stage.routes().await.into_iter().collect();
    let mut wanted = others.0.clone();
    for at in 1..=NODES {
        let Some(node) = stage.memory.node(&format!("n{at}")) else { continue };
        for network in &node.pod_cidrs {
            let hop = node.addresses.iter().find(|it| it.address.contains('.') == network.contains('.'));
            wanted.insert(format!("{network} {}", hop.expect("it has one").address));
        }
        let pairs = stage.pairs(at).await;
        assert!(node.pod_cidrs.iter().all(|it| pairs.contains(it)), "{pairs:?}");
    }
    if (1..=NODES).any(|at| stage.memory.node(&format!("n{at}")).is_some()) {
        assert_eq!(routes, wanted, "{:?}", pass.problems);
    } else {
        assert!(wanted.is_subset(&routes), "without Nodes, nothing is removed");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn no_history_touches_what_others_wrote(events in proptest::collection::vec(event(), 1..20)) {
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime").block_on(play(events));
    }
}
