//! Names of Services in DNS, from the annotation to a real BIND, in a cluster.

use seaway_testkit::topology::{NameServer, NameServerKind, TSIG_SECRET, until};

use crate::{
    draining::ECHO,
    scene::{A_TERM, Scene, service},
};

const WWW: &str = "www.shop.example";
const MARKER: &str = "_seaway.www.shop.example";

fn named(name: &str, at: &str) -> String {
    let annotations =
        format!("{{name: {name}, annotations: {{seaway.dev/dns-names: {WWW}, seaway.dev/address: {at}}}}}");
    service(name, "selector: {app: echo}")
        .replace(&format!("{{name: {name}}}"), &annotations)
        .replace("{port: 80}", "{port: 80, targetPort: 7}")
}

/// The address of a Service is in DNS while hosts serve it, over a change of who leads, and goes with the Service.
#[test]
fn a_name_of_a_service_is_in_dns_while_it_is_served_and_outlives_the_leader() {
    let Some(server) = NameServer::start(NameServerKind::Bind, "taken A 203.0.113.99") else { return };
    let Some(mut scene) = Scene::bare() else { return };
    let key = server.key_file("tsig.key", TSIG_SECRET);
    let configuration = format!(
        "{{defaultDriver: native, admin: {{listen: [\"127.0.0.1:0\"]}}, dns: {{owner: rig, ttl: 5s, zones: [{{zone: shop.example, \
         server: '{}', key: {{name: seaway, secretFile: {}}}}}]}}}}",
        server.at(),
        key.display()
    );
    scene.configuration = configuration.leak();
    scene.nodes = ["a"].into_iter().map(|name| scene.cluster.node(name)).collect();
    scene.install();
    scene.lead("controller");
    scene.serve(0);
    scene.cluster.apply(ECHO);
    scene.cluster.apply(&named("first", "203.0.113.7"));
    let addresses = || server.all(WWW, "A");
    let marker = |service: &str, at: &str| {
        format!("\"heritage=seaway owner=rig service=default/{service} ttl=5 addresses={at}\"")
    };
    until("its address is in DNS", || addresses() == ["203.0.113.7"]);
    assert_eq!(server.all(MARKER, "TXT"), [marker("first", "203.0.113.7")]);

    // Another one that asks for the name does not get it, and is told.
    scene.cluster.apply(&named("second", "203.0.113.8"));
    until("the second one is told", || {
        scene.events("second").iter().any(|it| it.contains("is not published in DNS for this Service"))
    });
    assert_eq!(addresses(), ["203.0.113.7"]);

    // The next leader knows it by its marker alone, and writes nothing that is there.
    let serial = server.all("shop.example", "SOA");
    scene.end("controller");
    scene.lead("next");
    seaway_testkit::topology::until_within(A_TERM, "the next one leads", || {
        scene.leader().starts_with("next")
    });
    scene.cluster.kubectl(&[
        "annotate",
        "service",
        "second",
        "seaway.dev/dns-names=two.shop.example",
        "--overwrite",
    ]);
    until("it publishes", || server.all("two.shop.example", "A") == ["203.0.113.8"]);
    assert_eq!(addresses(), ["203.0.113.7"]);
    assert_eq!(server.all(MARKER, "TXT"), [marker("first", "203.0.113.7")]);
    assert_ne!(server.all("shop.example", "SOA"), serial, "the other name was written");

    // It follows the address, and goes with the Service; what others wrote stays.
    scene.cluster.kubectl(&["annotate", "service", "first", "seaway.dev/address=203.0.113.9", "--overwrite"]);
    until("it follows", || addresses() == ["203.0.113.9"]);
    scene.cluster.kubectl(&[
        "annotate",
        "service",
        "second",
        "seaway.dev/dns-names=taken.shop.example",
        "--overwrite",
    ]);
    until("a name that was given up is gone", || server.all("two.shop.example", "A").is_empty());
    scene.cluster.kubectl(&["delete", "service", "first", "second"]);
    until("all of ours is gone", || addresses().is_empty() && server.all(MARKER, "TXT").is_empty());
    assert_eq!(server.all("taken.shop.example", "A"), ["203.0.113.99"]);
}
