//! Whatever befalls a request that changes something, before, at or after it: the end is the same.

use std::collections::BTreeMap;

use seaway_testkit::{
    faults::{Fault, Hold},
    kubernetes::Gate,
};
use serde_json::json;

use crate::{
    scene::{CONTROLLER, Scene},
    witness::{Questions, SERVICES, Witness, seen, until_it_is},
};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/seaway-controller";
/// Whoever is stalled for seconds leads on; whoever is killed has his term ended.
const STEADY: &str = "{defaultDriver: native, admin: {listen: [\"127.0.0.1:0\"]}, lease: 15s}";
const POOL: &str = "/apis/seaway.dev/v1alpha1/addresspools/public";

/// What befalls a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Blow {
    KilledBefore,
    KilledAfter,
    ReplyLost,
}

struct Crashes {
    scene: Scene,
    gate: Gate,
    questions: Questions,
    _host: Witness,
    /// The controller that runs.
    running: String,
    started: usize,
    pending: Option<Hold>,
    /// Whether pools are waited for, which are told of their use a second later.
    counts: bool,
}

impl Crashes {
    fn up() -> Option<Crashes> {
        let mut scene = Scene::bare()?;
        scene.install();
        scene.configuration = STEADY;
        let kubeconfig = scene.cluster.kubeconfig().to_owned();
        let mut crashes = Crashes {
            gate: Gate::here(&scene.cluster.kubeconfig_of(CONTROLLER, &[])),
            questions: Questions::to(&kubeconfig),
            _host: Witness::of(&kubeconfig, Some("everywhere")),
            scene,
            running: String::new(),
            started: 0,
            pending: None,
            counts: true,
        };
        crashes.start();
        Some(crashes)
    }

    fn start(&mut self) {
        self.started += 1;
        self.running = format!("controller-{}", self.started);
        let kubeconfig = self.gate.kubeconfig().to_owned();
        self.scene.lead_as(&self.running.clone(), &kubeconfig, "default");
    }

    fn is_struck(&mut self) {
        if self.pending.as_ref().is_none_or(|it| it.waiting() == 0) {
            return;
        }
        self.pending = None;
        self.scene.kill(&self.running.clone());
        self.gate.heal();
        // As if its term were over.
        self.questions.ask("DELETE", LEASE, None).expect("it had led");
        self.start();
    }

    fn assigned(&self) -> usize {
        let pool = self.questions.ask("GET", POOL, None).unwrap_or_default();
        let of = |family: &str| pool["status"][family]["assigned"].as_u64().unwrap_or_default();
        usize::try_from(of("ipv4") + of("ipv6")).expect("few")
    }

    fn comes_to(&mut self, what: &str, addresses: &[(&str, &str)], services: &[(&str, &str)]) {
        let wanted = seen(addresses, services);
        until_it_is(what, &(wanted, self.counts.then_some(addresses.len())), || {
            self.is_struck();
            (self.questions.seen(), self.counts.then(|| self.assigned()))
        });
    }

    /// Create, update, share and delete.
    fn tell_the_story(&mut self, of: &str) {
        let (v4, v6) = ("203.0.113.0", "2001:db8:113::");
        let service = |name: &str, port: u16| {
            json!({
                "apiVersion": "v1", "kind": "Service",
                "metadata": { "name": name, "annotations": { "seaway.dev/share": "web" } },
                "spec": { "type": "LoadBalancer", "ports": [{ "port": port }] },
            })
        };
        let ask = |this: &Crashes, method, path: &str, body| {
            this.questions
                .ask(method, path, body)
                .unwrap_or_else(|error| panic!("{of}: {method} {path}: {error}"));
        };
        ask(self, "POST", SERVICES, Some(service("shop", 80)));
        let served = format!("{v4} Served=True NoEndpoints=True NotAnnounced=False");
        self.comes_to(&format!("{of}: it is created"), &[(v4, "Held shop")], &[("shop", &served)]);

        let ports = json!({ "spec": { "ports": [{ "port": 81 }], "ipFamilyPolicy": "PreferDualStack" } });
        ask(self, "PATCH", &format!("{SERVICES}/shop"), Some(ports));
        let both = format!("{v4} {v6} Served=True NoEndpoints=True NotAnnounced=False");
        let addresses = [(v4, "Held shop"), (v6, "Held shop")];
        self.comes_to(&format!("{of}: it is changed"), &addresses, &[("shop", &both)]);

        ask(self, "POST", SERVICES, Some(service("twin", 80)));
        let services = [("shop", &*both), ("twin", &*served)];
        let addresses = [(v4, "Held shop twin"), (v6, "Held shop")];
        self.comes_to(&format!("{of}: it is shared"), &addresses, &services);

        ask(self, "DELETE", &format!("{SERVICES}/shop"), None);
        self.comes_to(&format!("{of}: one is deleted"), &[(v4, "Held twin")], &services[1..]);
        ask(self, "DELETE", &format!("{SERVICES}/twin"), None);
        self.comes_to(&format!("{of}: all are deleted"), &[], &[]);
    }
}

#[test]
fn killed_before_or_after_any_request_or_without_its_reply_the_end_is_the_same() {
    let Some(mut crashes) = Crashes::up() else { return };
    crashes.tell_the_story("undisturbed");
    let mut counts = BTreeMap::new();
    let mut all = Vec::new();
    for (method, path) in crashes.gate.writes() {
        let pattern = format!("{method} {path}");
        let nth = counts.entry(pattern.clone()).and_modify(|it| *it += 1).or_insert(1_usize);
        all.push((pattern, *nth));
    }
    assert!(all.len() >= 15, "{all:#?}");
    let mut missed = Vec::new();
    for (pattern, nth) in &all {
        // A pool is told how full it is once a second at most: the later ones are as the first.
        if pattern.contains("addresspools") && *nth > 2 {
            continue;
        }
        for blow in [Blow::KilledBefore, Blow::KilledAfter, Blow::ReplyLost] {
            let what = format!("{blow:?} {pattern} {nth}");
            crashes.gate.forget_requests();
            crashes.counts = pattern.contains("addresspools");
            let (on, hold) = (Fault::on(pattern).nth(*nth), Hold::new());
            crashes.pending = (blow != Blow::ReplyLost).then(|| hold.clone());
            crashes.gate.fail(match blow {
                Blow::KilledBefore => on.hold(&hold),
                Blow::KilledAfter => on.hold_reply(&hold),
                Blow::ReplyLost => on.lose_reply(),
            });
            crashes.tell_the_story(&what);
            if crashes.gate.count(pattern) < *nth {
                missed.push(what);
            }
            crashes.gate.heal();
            // Whoever came to it after the end of the story goes on.
            if let Some(hold) = crashes.pending.take() {
                hold.release();
            }
        }
    }
    // Statuses and events of two changes may be told at once: a later one of a kind need not come, the first must.
    let (first, later): (Vec<_>, Vec<_>) = missed.into_iter().partition(|what| what.ends_with(" 1"));
    assert!(first.is_empty(), "{first:#?} never came");
    let is_told = |what: &String| what.contains("/status ") || what.contains("/events ");
    assert!(later.iter().all(is_told) && later.len() * 5 < all.len() * 3, "{later:#?} never came");
    crashes.counts = true;
    crashes.comes_to("nothing is left", &[], &[]);
}
