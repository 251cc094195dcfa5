//! Whatever befalls a request that changes something, before, at or after it: the end is the same.

use std::collections::BTreeMap;

use seaway_testkit::{
    faults::{Fault, RequestHold},
    kubernetes::Gate,
};
use serde_json::{Value, json};

use crate::{
    scene::{CONTROLLER, Scene},
    witness::{ApiClient, SERVICES, Witness, seen, until_it_is},
};

const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/seaway-controller";
/// Whoever is stalled for seconds leads on; whoever is killed has his term ended.
const STEADY: &str = "{defaultDriver: native, admin: {listen: [\"127.0.0.1:0\"]}, lease: 15s}";
const SLICES: &str = "/apis/seaway.dev/v1alpha1/loadbalancerhostslices";
const POOL: &str = "/apis/seaway.dev/v1alpha1/addresspools/public";

/// What befalls a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum RequestFault {
    KilledBefore,
    KilledAfter,
    ReplyLost,
}

struct Crashes {
    scene: Scene,
    gate: Gate,
    questions: ApiClient,
    _host: Witness,
    /// The controller that runs.
    running: String,
    started: usize,
    pending: Option<RequestHold>,
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
            questions: ApiClient::to(&kubeconfig),
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
        self.is_killed();
        self.gate.heal();
        self.start();
    }

    fn is_killed(&mut self) {
        self.scene.kill(&self.running.clone());
        // As if its term were over, if it had come to lead.
        match self.questions.ask("DELETE", LEASE, None) {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            deleted => drop(deleted.expect("it is deleted")),
        }
    }

    /// `of`: what befalls the request of that pattern, the nth of them.
    fn strikes(&mut self, of: RequestFault, pattern: &str, nth: usize) {
        let (on, hold) = (Fault::on(pattern).nth(nth), RequestHold::new());
        self.pending = (of != RequestFault::ReplyLost).then(|| hold.clone());
        self.gate.fail(match of {
            RequestFault::KilledBefore => on.hold(&hold),
            RequestFault::KilledAfter => on.hold_reply(&hold),
            RequestFault::ReplyLost => on.lose_reply(),
        });
    }

    fn heals(&mut self) {
        self.gate.heal();
        // Whoever came to it after the end of the story goes on.
        if let Some(hold) = self.pending.take() {
            hold.release();
        }
    }

    /// Names and contents of the slices that the leader gathers hosts' addresses in.
    fn slices(&self) -> BTreeMap<String, Value> {
        let listed = self.questions.ask("GET", SLICES, None).unwrap_or_default();
        let all = listed["items"].as_array().into_iter().flatten();
        all.map(|it| (it["metadata"]["name"].to_string(), it["spec"].clone())).collect()
    }

    /// All slices are lost with the controller, and the next one gathers them.
    fn gathers_slices(
        &mut self,
        of: &str,
        blow: Option<(RequestFault, &str, usize)>,
    ) -> BTreeMap<String, Value> {
        self.is_killed();
        self.questions.ask("DELETE", SLICES, None).unwrap_or_else(|error| panic!("{of}: {error}"));
        self.gate.forget_requests();
        if let Some((blow, pattern, nth)) = blow {
            self.strikes(blow, pattern, nth);
        }
        self.start();
        until_it_is(&format!("{of}: addresses of hosts are gathered"), &true, || {
            self.is_struck();
            // Written last of all.
            self.slices().values().any(|it| !it["slices"].is_null())
        });
        self.slices()
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
        let is_later = pattern.contains("addresspools") && *nth > 2;
        // Slices are written when hosts come, not when Services change: they have a test of their own.
        if is_later || pattern.contains(SLICES) {
            continue;
        }
        for blow in [RequestFault::KilledBefore, RequestFault::KilledAfter, RequestFault::ReplyLost] {
            let what = format!("{blow:?} {pattern} {nth}");
            crashes.gate.forget_requests();
            crashes.counts = pattern.contains("addresspools");
            crashes.strikes(blow, pattern, *nth);
            crashes.tell_the_story(&what);
            if crashes.gate.count(pattern) < *nth {
                missed.push(what);
            }
            crashes.heals();
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

#[test]
fn killed_before_or_after_a_slice_is_written_or_without_its_reply_all_hosts_are_gathered() {
    let Some(mut crashes) = Crashes::up() else { return };
    let wanted = crashes.gathers_slices("undisturbed", None);
    assert_eq!(wanted.len(), 2, "the first, and that of the host: {wanted:#?}");
    let pattern = format!("POST {SLICES}");
    assert_eq!(crashes.gate.count(&pattern), 2);
    for nth in [1, 2] {
        for blow in [RequestFault::KilledBefore, RequestFault::KilledAfter, RequestFault::ReplyLost] {
            let what = format!("{blow:?} {nth}");
            let gathered = crashes.gathers_slices(&what, Some((blow, &pattern, nth)));
            assert_eq!(gathered, wanted, "{what}");
            assert!(crashes.gate.count(&pattern) >= nth, "{what} never came");
            crashes.heals();
        }
    }
}
