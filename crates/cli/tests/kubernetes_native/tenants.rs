//! What somebody with rights in one namespace tries against the machines, and what comes of it.

use seaway_testkit::topology::{Web, until};

use crate::scene::{Scene, deployment, service};

/// What a namespace `evil` writes: a Service whose members it lists itself.
fn listing(name: &str, slice: &str) -> String {
    format!(
        "{}---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: {name}-1, labels: {{kubernetes.io/service-name: {name}}}}}
{slice}
",
        service(name, "")
    )
}

#[test]
fn a_tenant_reaches_no_machine_by_its_services() {
    let Some(scene) = Scene::up(1) else { return };
    let node = scene.nodes[0].namespace();
    // In the place of sshd and another; the kubelet is there.
    let _machine = [22, 8_443].map(|port| node.run(|| Web::start_at("the machine", ("::", port))));
    let own = scene.nodes[0].addresses()[0].clone();
    let ports = |number: u16| format!("ports: [{{port: {number}, protocol: TCP}}]");
    let all = [
        deployment("shop", 1),
        service("shop", "selector: {app: shop}"),
        // At the machine's port of sshd, which keeps it.
        service("git", "selector: {app: shop}").replacen("port: 80", "port: 22, targetPort: 80", 1),
        listing(
            "kubelet",
            &format!(
                "addressType: IPv4\nendpoints: [{{addresses: [{own}], nodeName: a}}]\n{}",
                ports(10_250)
            ),
        ),
        listing(
            "machine",
            &format!("addressType: IPv4\nendpoints: [{{addresses: [{own}]}}]\n{}", ports(8_443)),
        ),
        listing(
            "named",
            &format!("addressType: FQDN\nendpoints: [{{addresses: [localhost.example]}}]\n{}", ports(22)),
        ),
        service("typo", "selector: {app: shop}").replacen(
            "name: typo",
            "name: typo, annotations: {seaway.dev/client-authorities: My_CA}",
            1,
        ),
    ];
    scene.cluster.apply(&all.join("---"));
    scene.cluster.kubectl(&["rollout", "status", "deployment/shop", "--timeout", "180s"]);
    let shop = scene.answering("shop").ip();
    // The address is the shop's, and the machine has ports where it listens for all addresses.
    let asks = |ip: &str, port: u16| scene.outside.curl(&format!("http://{ip}:{port}/"));
    assert_eq!(asks(&own, 22).as_deref(), Ok("the machine"));
    assert!(asks(&shop.to_string(), 22).is_err(), "the machine does not answer at the address of a Service");
    let git = scene.address("git");
    until("a Service at the port of sshd is served", || {
        asks(&git, 22).is_ok_and(|it| it.starts_with("shop-"))
    });
    assert_eq!(asks(&own, 22).as_deref(), Ok("the machine"), "and sshd as well");
    let told = |name: &str| {
        let path = "{.status.conditions[?(@.type==\"seaway.dev/Problems\")].message}";
        scene.field(&format!("service/{name}"), path)
    };
    for (name, why) in [
        ("kubelet", "is a port that is reserved for Node a itself"),
        ("machine", "does not have its nodeName"),
        ("named", "the name localhost.example is not looked up"),
        ("typo", "no listener is opened"),
    ] {
        until(&format!("{name} is told why"), || told(name).contains(why));
    }
    for name in ["kubelet", "machine", "named"] {
        let answer = asks(&scene.address(name), 80);
        assert!(!answer.as_deref().unwrap_or_default().contains("the machine"), "{name}: {answer:?}");
    }
    let answers = || asks(&shop.to_string(), 80).is_ok_and(|it| it.starts_with("shop-"));
    assert!((0..50).all(|_| answers()), "the shop is served all the while");
}
