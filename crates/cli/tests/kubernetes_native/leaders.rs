//! Two controllers, of which one leads, however they are treated.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use seaway_testkit::{
    faults::{Fault, RequestHold},
    kubernetes::Gate,
    topology::{until, until_within},
};
use serde_json::{Value, json};

use crate::{
    scene::{A_TERM, CONTROLLER, Scene},
    witness::{ApiClient, SERVICES, Witness, seen, until_it_is},
};

/// Controllers that wait for no longer than they must: whoever stands still for a moment gives the lead up, too.
const HASTY: &str = "{defaultDriver: native, admin: {listen: [\"127.0.0.1:0\"]}, lease: 2s}";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/seaway-controller";

/// Two controllers, each behind a gate, and a host that serves at once whatever is written.
struct TwoControllers {
    scene: Scene,
    gates: BTreeMap<&'static str, Gate>,
    questions: ApiClient,
    witness: Witness,
}

#[derive(Clone, Copy, Debug)]
enum LeaderFault {
    Killed,
    Paused,
    CutOff,
}

fn service(name: &str, annotations: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": name, "annotations": annotations },
        "spec": { "type": "LoadBalancer", "ports": [{ "port": 80 }] },
    })
}

impl TwoControllers {
    fn up() -> Option<TwoControllers> {
        let mut scene = Scene::bare()?;
        scene.install();
        scene.configuration = HASTY;
        let kubeconfig = scene.cluster.kubeconfig().to_owned();
        let gates =
            ["first", "second"].map(|name| (name, Gate::here(&scene.cluster.kubeconfig_of(CONTROLLER, &[]))));
        let mut rivals = TwoControllers {
            questions: ApiClient::to(&kubeconfig),
            witness: Witness::of(&kubeconfig, Some("everywhere")),
            gates: gates.into(),
            scene,
        };
        rivals.start("first");
        rivals.until_leads("first");
        rivals.start("second");
        Some(rivals)
    }

    fn start(&mut self, name: &'static str) {
        let kubeconfig = self.gates[name].kubeconfig().to_owned();
        self.scene.lead_as(name, &kubeconfig, "default");
    }

    /// The one that leads, and the other.
    fn leader(&self) -> Option<(&'static str, &'static str)> {
        let lease = self.questions.ask("GET", LEASE, None).ok()?;
        let holder = lease["spec"]["holderIdentity"].as_str()?;
        [("first", "second"), ("second", "first")].into_iter().find(|(name, _)| holder.starts_with(name))
    }

    /// The same, once somebody leads: who stands still for too long gives it up and takes it again.
    fn until_led(&self) -> (&'static str, &'static str) {
        let mut found = None;
        until_within(A_TERM, "somebody leads", || {
            found = self.leader();
            found.is_some()
        });
        found.expect("it was waited for")
    }

    fn until_leads(&self, name: &str) {
        until_within(A_TERM, &format!("the {name} leads"), || self.leader().is_some_and(|it| it.0 == name));
    }

    fn strike(&mut self, blow: LeaderFault, name: &'static str) {
        match blow {
            LeaderFault::Killed => self.scene.kill(name),
            LeaderFault::Paused => self.scene.pause(name),
            LeaderFault::CutOff => self.gates[name].freeze(),
        }
    }

    fn mend(&mut self, blow: LeaderFault, name: &'static str) {
        match blow {
            LeaderFault::Killed => self.start(name),
            LeaderFault::Paused => self.scene.resume(name),
            LeaderFault::CutOff => self.gates[name].thaw(),
        }
    }

    fn until_it_goes_on(&self, what: &str) {
        let before = self.witness.saw().changes;
        until_within(A_TERM, what, || self.witness.saw().changes >= before + 20);
    }

    fn ask(&self, method: &str, path: &str, body: Option<Value>) {
        self.questions.ask(method, path, body).unwrap_or_else(|error| panic!("{method} {path}: {error}"));
    }
}

/// Services come and go, a few at any time; those that are still there at the end.
fn come_and_go(questions: &ApiClient, ended: &AtomicBool) -> VecDeque<String> {
    let mut there = VecDeque::new();
    for number in 0.. {
        if ended.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("s{number}");
        questions.ask("POST", SERVICES, Some(service(&name, json!({})))).expect("it is created");
        there.push_back(name);
        if there.len() > 8 {
            let oldest = there.pop_front().expect("there are many");
            questions.ask("DELETE", &format!("{SERVICES}/{oldest}"), None).expect("it is there");
        }
        thread::park_timeout(Duration::from_millis(40));
    }
    there
}

#[test]
fn two_controllers_killed_paused_and_cut_off_never_give_one_address_to_two() {
    let Some(mut rivals) = TwoControllers::up() else { return };
    let ended = AtomicBool::new(false);
    let customer = ApiClient::to(rivals.scene.cluster.kubeconfig());
    let there = thread::scope(|scope| {
        let customers = scope.spawn(|| come_and_go(&customer, &ended));
        // Whatever fails in here, they are told to end.
        let end = End(&ended);
        for blow in [
            LeaderFault::Killed,
            LeaderFault::Paused,
            LeaderFault::CutOff,
            LeaderFault::Killed,
            LeaderFault::CutOff,
            LeaderFault::Paused,
        ] {
            let (leader, other) = rivals.until_led();
            rivals.strike(blow, leader);
            rivals.until_leads(other);
            rivals.until_it_goes_on(&format!("the {other} gives addresses out, the {leader} being {blow:?}"));
            rivals.mend(blow, leader);
            rivals.until_it_goes_on(&format!("addresses are given out, the {leader} being back"));
        }
        drop(end);
        customers.join().expect("customers do not panic")
    });
    let wrong = rivals.witness.saw().wrong;
    assert!(wrong.is_empty(), "{wrong:#?}");
    until("everybody has one address, and nobody two", || {
        let (addresses, services) = rivals.questions.seen();
        let owners: Vec<&str> = addresses.values().filter_map(|it| it.strip_prefix("Held ")).collect();
        let told = |name: &String| {
            let own = addresses.iter().find(|(_, it)| it.strip_prefix("Held ") == Some(name));
            let says = services.get(name).map(String::as_str).unwrap_or_default();
            own.is_some_and(|(ip, _)| says.starts_with(&format!("{ip} Served")))
        };
        addresses.len() == there.len() && owners.len() == there.len() && there.iter().all(told)
    });
    for name in there {
        rivals.ask("DELETE", &format!("{SERVICES}/{name}"), None);
    }
    until_it_is("nothing is left", &seen(&[], &[]), || rivals.questions.seen());
}

struct End<'e>(&'e AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn what_a_deposed_leader_has_sent_and_comes_late_changes_nothing() {
    let Some(rivals) = TwoControllers::up() else { return };
    let (v4, other) = ("203.0.113.0", "203.0.113.9");
    let asks = |ip: &str| json!({ "seaway.dev/address": ip });
    let moved = json!({ "metadata": { "annotations": asks(other) } });
    let path = |name: &str| format!("{SERVICES}/{name}");
    let served = |ip: &str| format!("{ip} Served=True NoEndpoints=True NotAnnounced=False");
    let create = |name: &str, ip: &str| rivals.ask("POST", SERVICES, Some(service(name, asks(ip))));

    // What the leader begins to write, what is done meanwhile, and what has to come of it.
    let late = |pattern: &str, begin: &dyn Fn(), meanwhile: &dyn Fn(), becomes: &[(&str, &str)]| {
        // Who leads now need not when it is written: whose it is then is struck, and the other goes on.
        let holds =
            [("first", "second"), ("second", "first")].map(|(of, other)| (of, other, RequestHold::new()));
        for (of, _, hold) in &holds {
            rivals.gates[of].fail(Fault::on(pattern).hold(hold));
        }
        begin();
        let mut struck = None;
        until(&format!("{pattern} is on its way"), || {
            struck = holds.iter().find(|(.., hold)| hold.waiting() == 1);
            struck.is_some()
        });
        let (leader, next, hold) = struck.expect("it was waited for");
        let gate = &rivals.gates[leader];
        gate.freeze();
        rivals.gates[next].heal();
        holds.iter().filter(|(of, ..)| of == next).for_each(|(.., hold)| hold.release());
        rivals.until_leads(next);
        let addresses: Vec<(&str, String)> =
            becomes.iter().map(|(name, ip)| (*ip, format!("Held {name}"))).collect();
        let addresses: Vec<(&str, &str)> = addresses.iter().map(|(ip, it)| (*ip, &**it)).collect();
        let services: Vec<(&str, String)> = becomes.iter().map(|(name, ip)| (*name, served(ip))).collect();
        let services: Vec<(&str, &str)> = services.iter().map(|(name, it)| (*name, &**it)).collect();
        let wanted = seen(&addresses, &services);
        meanwhile();
        until_it_is(&format!("{pattern} is not missed"), &wanted, || rivals.questions.seen());
        // Another one may still be on its way, and is released again: who leads now began with what was wanted before.
        let ips: Vec<&str> = becomes.iter().map(|(_, ip)| *ip).collect();
        let before = rivals.questions.identities(&ips);
        hold.release();
        until("it has come", || hold.waiting() == 0);
        // Whoever follows may have to mend it first, and has when it has served one who came later.
        rivals.ask("POST", SERVICES, Some(service("after", asks("203.0.113.14"))));
        until("who comes after it is served", || {
            rivals.questions.seen().1.get("after") == Some(&served("203.0.113.14"))
        });
        rivals.ask("DELETE", &path("after"), None);
        until_it_is(&format!("{pattern} came late"), &wanted, || rivals.questions.seen());
        let after = rivals.questions.identities(&ips);
        assert_eq!(after, before, "{pattern} came late: these Addresses were never deleted");
        gate.heal();
        gate.thaw();
        for (name, _) in becomes {
            rivals.ask("DELETE", &path(name), None);
        }
        until_it_is("nothing is left", &seen(&[], &[]), || rivals.questions.seen());
    };
    // Whom it is for is no more.
    late("POST */addresses", &|| create("a", v4), &|| rivals.ask("DELETE", &path("a"), None), &[]);
    // He has another address by now.
    let move_on = || rivals.ask("PATCH", &path("a"), Some(moved.clone()));
    late("POST */addresses", &|| create("a", v4), &move_on, &[("a", other)]);
    // Somebody else has it by now.
    let hand_on = || {
        rivals.ask("DELETE", &path("a"), None);
        create("b", v4);
    };
    late("POST */addresses", &|| create("a", v4), &hand_on, &[("b", v4)]);
    // The last moment of an address, and by then it has begun anew.
    for pattern in ["PUT */addresses/*", "DELETE */addresses/*"] {
        let begin = || {
            create("a", v4);
            until("it is told", || rivals.questions.seen().1.get("a") == Some(&served(v4)));
            rivals.ask("DELETE", &path("a"), None);
        };
        late(pattern, &begin, &|| create("b", v4), &[("b", v4)]);
    }
    // What it was told is true no more.
    late("PATCH */services/a/status", &|| create("a", v4), &move_on, &[("a", other)]);
    let again = || {
        rivals.ask("DELETE", &path("a"), None);
        create("a", other);
    };
    late("PATCH */services/a/status", &|| create("a", v4), &again, &[("a", other)]);
    let wrong = rivals.witness.saw().wrong;
    assert!(wrong.is_empty(), "{wrong:#?}");
}
