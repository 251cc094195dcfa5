//! Nodes that die.

use seaway_testkit::topology::until;

use crate::{
    load::Load,
    scene::{Scene, deployment, service},
};

#[test]
fn a_dead_node_takes_nothing_with_it_but_what_was_on_its_way_there() {
    let Some(mut scene) = Scene::strict(2) else { return };
    scene.cluster.apply(&deployment("shop", 4));
    scene.cluster.apply(&service("shop", "selector: {app: shop}"));
    let at = scene.answering("shop");
    scene.cluster.kubectl(&["rollout", "status", "deployment/shop", "--timeout", "180s"]);
    let told = |scene: &Scene| scene.field("service/shop", "{.status.loadBalancer.ingress[*].ip}");
    let ready = |scene: &Scene| {
        let of = |field| format!("{{.status.conditions[?(@.type==\"seaway.dev/Ready\")].{field}}}");
        [of("status"), of("reason")].map(|path| scene.field("service/shop", &path)).join(" ")
    };
    let [survivor, dead] = [0, 1].map(|at| scene.nodes[at].name().to_owned());
    let lost = |scene: &Scene, host: &str| {
        // As if the term of its Lease were over.
        let given_back = ["--type=merge", "-p", r#"{"spec":{"holderIdentity":null}}"#];
        scene
            .cluster
            .kubectl(&[&["patch", "lease", &format!("seaway-host-{host}")], &given_back[..]].concat());
        until("its death is noticed", || {
            scene
                .log("controller")
                .lines()
                .any(|it| it.contains("is dead") && it.ends_with(&format!("host={host}")))
        });
    };
    let load = Load::start(&scene.outside, at, 50);
    load.goes_on("the pods of both nodes answer", 50);

    // Who asks a pod over there is not heard of any more for a while: until now all were.
    load.heard().was_always_answered();
    scene.nodes[1].kill();
    scene.kill(&dead);
    lost(&scene, &dead);
    until("its pods are asked no more", || {
        let before = load.heard();
        load.goes_on("the other node goes on serving", 50);
        load.heard().failures.len() == before.failures.len()
    });
    assert_eq!((told(&scene), &*ready(&scene)), (at.ip().to_string(), "True Served"));
    until("the Node is not Ready", || {
        let path = "{.status.conditions[?(@.type==\"Ready\")].status}";
        scene.field(&format!("node/{dead}"), path) == "Unknown"
    });
    let before = load.heard().failures.len();
    load.goes_on("it is served all the while", 50);
    let heard = load.end();
    assert_eq!(heard.failures.len(), before, "{:#?}", heard.failures);
    // Each of the four clients waited once or twice for one that was gone.
    assert!(before <= 12, "{before} of {}: {:#?}", heard.answered(), heard.failures);

    // Nobody serves it any more, and it still is its address.
    scene.kill(&survivor);
    lost(&scene, &survivor);
    until("it is said", || ready(&scene) == "False NotServed");
    assert_eq!(told(&scene), at.ip().to_string());
    scene.serve(0);
    until("it is served again", || ready(&scene) == "True Served");
    assert_eq!(scene.answering("shop"), at);
}
