//! Whatever befalls what a host writes: it goes on serving, reports again, and nothing is withdrawn.

use seaway_testkit::{
    faults::{Fault, RequestHold, RequestMatcher},
    kubernetes::Gate,
    topology::{until, until_within},
    traffic::{Clients, Kind, Target},
};

use crate::{
    scene::{A_TERM, NODE, Scene, deployment, service},
    witness::Witness,
};

/// Each on a new connection.
const RATE: u32 = 100;

/// All that a host writes: its report, the object for that where there is none, its Lease.
const WRITES: [&str; 3] =
    ["PATCH */loadbalancerhosts/a/status", "POST */loadbalancerhosts", "PUT */leases/seaway-host-a"];
/// A Lease that is gone is made by this, or by the one above where that gets through first: API servers do both.
const NEW_LEASE: &str = "POST */leases";

/// What befalls each of them.
#[derive(Clone, Copy, Debug)]
enum WriteFault {
    Lost,
    ReplyLost,
    /// Refused so often in a row.
    Refused(u16, usize),
    Late,
}

impl WriteFault {
    fn on(self, on: RequestMatcher, hold: &RequestHold) -> Fault {
        match self {
            WriteFault::Lost => on.lose_request(),
            WriteFault::ReplyLost => on.lose_reply(),
            WriteFault::Refused(status, times) => on.times(times).status(status),
            WriteFault::Late => on.hold_reply(hold),
        }
    }

    fn times(self) -> usize {
        if let WriteFault::Refused(_, times) = self { times } else { 1 }
    }
}

#[test]
fn a_host_whose_writes_are_lost_or_late_serves_on_and_reports_again() {
    strike(&[WriteFault::Lost, WriteFault::ReplyLost, WriteFault::Late]);
}

#[test]
fn a_host_whose_writes_are_refused_serves_on_and_reports_again() {
    strike(&[
        WriteFault::Refused(403, 2),
        WriteFault::Refused(409, 1),
        WriteFault::Refused(429, 2),
        WriteFault::Refused(500, 2),
    ]);
}

fn strike(blows: &[WriteFault]) {
    let Some(mut scene) = Scene::bare() else { return };
    scene.nodes = vec![scene.cluster.node("a")];
    scene.install();
    let gate = Gate::inside(&scene.cluster, &scene.cluster.kubeconfig_of(NODE, &[]));
    scene.lead("controller");
    scene.serve_by(0, gate.kubeconfig());
    scene.lead_to(0);
    scene.cluster.apply(&deployment("shop", 2));
    scene.cluster.apply(&service("shop", "selector: {app: shop}"));
    let at = scene.answering("shop");
    let ip = at.ip();
    let published = |scene: &Scene| scene.field("service/shop", "{.status.loadBalancer.ingress[*].ip}");
    let witness = Witness::of(scene.cluster.kubeconfig(), None);
    until("the witness sees it", || witness.saw().addresses.contains_key(&ip));
    let as_it_is = witness.saw().addresses[&ip].clone();
    let clients = scene.outside.run(Clients::here);
    let load = clients.load(vec![Target::new("shop", Kind::Http, at).times(RATE)]);

    for (round, &blow) in blows.iter().enumerate() {
        let holds = WRITES.map(|write| {
            let hold = RequestHold::new();
            gate.fail(blow.on(Fault::on(write), &hold));
            hold
        });
        let lease = RequestHold::new();
        gate.fail(blow.on(Fault::on(NEW_LEASE), &lease));
        gate.forget_requests();
        // Somebody deletes both, so that they are made again; and a Service comes, of which the host has to report.
        scene.cluster.kubectl(&["delete", "loadbalancerhost", "a"]);
        scene.cluster.kubectl(&["delete", "lease", "seaway-host-a"]);
        let name = format!("comes-{round}");
        scene.cluster.apply(&service(&name, "selector: {app: shop}"));
        for (write, hold) in WRITES.iter().zip(&holds) {
            // Whoever waits for an answer asks for nothing else of that kind.
            until_within(A_TERM, &format!("{blow:?} strikes {write}"), || gate.count(write) >= blow.times());
            load.goes_on(RATE as usize / 2);
            hold.release();
        }
        lease.release();
        let new = scene.address(&name);
        until_within(A_TERM, &format!("{blow:?}: the new one is served"), || {
            scene.outside.curl(&format!("http://{new}/")).is_ok_and(|it| it.starts_with("shop-"))
        });
        let what = format!("{blow:?}: it reports again");
        until_within(A_TERM, &what, || {
            let applied = scene.field("loadbalancerhost/a", "{.status.applied}").parse::<u64>();
            let written = witness.saw().addresses.get(&new.parse().expect("an address")).map(|it| it.version);
            written.is_some_and(|it| applied.is_ok_and(|applied| applied >= it))
        });
        let what = format!("{blow:?}: it is told to be served");
        until_within(A_TERM, &what, || ["shop", &name].iter().all(|it| scene.is_served(it)));
        let what = format!("{blow:?}: its Lease is renewed");
        until_within(A_TERM, &what, || gate.done("PUT */leases/seaway-host-a") > 0);
        assert_eq!(published(&scene), ip.to_string(), "{blow:?}");
        gate.heal();
        scene.cluster.kubectl(&["delete", "service", &name]);
        until_within(A_TERM, &format!("{blow:?}: it lets go"), || {
            !witness.saw().addresses.keys().any(|it| it.to_string() == new)
        });
    }

    load.end().was_always_answered();
    let saw = witness.saw();
    assert!(saw.wrong.is_empty(), "{:#?}", saw.wrong);
    assert_eq!(saw.addresses.get(&ip), Some(&as_it_is), "its Address was not even written again");
    assert_eq!(published(&scene), ip.to_string());
}
