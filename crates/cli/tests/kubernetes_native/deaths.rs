//! Nodes that die.

use std::time::{Duration, Instant};

use seaway_testkit::{
    topology::{until, until_within},
    traffic::{Clients, Kind, NO_ANSWER, Target},
};

use crate::{
    rolling::{DATAGRAMS, datagrams},
    scene::{A_TERM, Scene, deployment, service},
};

/// Each on a new connection.
const RATE: u32 = 500;
/// Three checks, two seconds apart, of which the last has a second for its answer; and time for a busy machine. Three connections
/// in a row that nobody accepts within five seconds say the same.
const NOTICED: Duration = Duration::from_secs(10);
/// From a Node that is not ready to hosts that send nothing there, on a busy machine.
const TOLD: Duration = Duration::from_secs(5);

#[test]
fn a_dead_node_takes_nothing_with_it_but_what_was_on_its_way_there_until_that_is_noticed() {
    let Some(mut scene) = Scene::strict(2) else { return };
    scene.cluster.apply(&deployment("shop", 4));
    scene.cluster.apply(&service("shop", "selector: {app: shop}"));
    scene.cluster.apply(&datagrams("dns"));
    let (at, mut dns) = (scene.answering("shop"), scene.answering("shop"));
    dns.set_ip(scene.address("dns").parse().expect("an address"));
    for deployment in ["deployment/shop", "deployment/dns"] {
        scene.cluster.kubectl(&["rollout", "status", deployment, "--timeout", "180s"]);
    }
    let told = |scene: &Scene| scene.field("service/shop", "{.status.loadBalancer.ingress[*].ip}");
    let ready = |scene: &Scene| {
        let of = |field| format!("{{.status.conditions[?(@.type==\"seaway.dev/Ready\")].{field}}}");
        [of("status"), of("reason")].map(|path| scene.field("service/shop", &path)).join(" ")
    };
    let [survivor, dead] = [0, 1].map(|at| scene.nodes[at].name().to_owned());
    let is_noticed = |scene: &Scene, host: &str| {
        until_within(A_TERM, "the term of its Lease is over", || {
            scene
                .log("controller")
                .lines()
                .any(|it| it.contains("its Lease has expired") && it.contains(&format!("host={host}")))
        });
    };
    let clients = scene.outside.run(Clients::here);
    let load = clients.load(vec![
        Target::new("shop", Kind::Http, at).times(RATE),
        Target::new("datagrams", Kind::Udp, dns).times(DATAGRAMS),
    ]);
    let began = Instant::now();
    load.goes_on(DATAGRAMS as usize);

    // Some are under way; none has failed.
    let heard = load.results();
    assert_eq!(heard.failures().count(), 0, "before anything died:\n{heard}");
    let killed = began.elapsed();
    scene.nodes[1].kill();
    scene.kill(&dead);
    is_noticed(&scene, &dead);
    assert_eq!((told(&scene), &*ready(&scene)), (at.ip().to_string(), "True Served"));
    until("the Node is not Ready", || {
        let path = "{.status.conditions[?(@.type==\"Ready\")].status}";
        scene.field(&format!("node/{dead}"), path) == "Unknown"
    });
    let not_ready = began.elapsed();
    load.goes_on(DATAGRAMS as usize);
    let heard = load.end();
    eprintln!("killed after {killed:?}, the Node is not ready after {not_ready:?}\n{heard}");
    assert_eq!(heard.due(), heard.answered() + heard.failures().count(), "{heard}");
    // A check of a datagram's member hears nothing of a dead Node, until the kernel knows that nobody has its address: that takes
    // as long as its neighbour entry lasts. When the Node is not ready, nothing is sent there.
    let noticed = [("shop", RATE, NOTICED), ("datagrams", DATAGRAMS, not_ready - killed + TOLD)];
    for (name, rate, noticed) in noticed {
        let tally = &heard.0[name];
        // Half of the pods were there: of those who asked meanwhile, half are lost, and each of them waited in vain.
        let most = noticed.as_secs_f64() * f64::from(rate) / 2.0 * 1.1;
        let lost = tally.failures.len();
        assert!(
            lost as f64 <= most,
            "{lost} of {name} are lost, more than {most}, half of those who ask until it is noticed:\n{heard}"
        );
        let (first, last) = (killed.saturating_sub(NO_ANSWER), killed + noticed);
        for failure in &tally.failures {
            assert!(failure.due >= first, "before anything died: {failure:?}");
            assert!(failure.due <= last, "long after it should have been noticed: {failure:?}");
        }
    }

    // Nobody serves it any more, and it still is its address.
    scene.kill(&survivor);
    is_noticed(&scene, &survivor);
    until("it is said", || ready(&scene) == "False NotServed");
    assert_eq!(told(&scene), at.ip().to_string());
    scene.serve(0);
    until("it is served again", || ready(&scene) == "True Served");
    assert_eq!(scene.answering("shop"), at);
}
