//! Seaway as pods of the cluster that it serves, as its own manifests make them.

use std::{fs, path::Path};

use seaway_testkit::{
    kubernetes::Node,
    topology::{CapabilitySets, until, until_within},
};

use crate::{
    kustomize::{Own, deploy},
    scene::{A_TERM, POOL, Scene, deployment, service},
};

pub(crate) const SYSTEM: &str = "seaway-system";

pub(crate) fn in_system(scene: &Scene, arguments: &[&str]) -> String {
    scene.cluster.try_kubectl(&[arguments, &["-n", SYSTEM]].concat(), "").unwrap_or_default()
}

/// The process that serves on a node.
fn serving(node: &Node) -> Option<u32> {
    let mut all = node.namespace().processes().into_iter();
    all.find(|(_, line)| line.contains(" node --config")).map(|(id, _)| id)
}

/// Whether a process may write there, as far as mounts say.
fn is_read_only(process: u32, at: &str) -> bool {
    let mounts = fs::read_to_string(format!("/proc/{process}/mountinfo")).unwrap_or_default();
    // What was mounted last is seen.
    let of = mounts.lines().rfind(|line| line.split(' ').nth(4) == Some(at));
    of.and_then(|line| line.split(' ').nth(5)).is_some_and(|it| it.split(',').any(|it| it == "ro"))
}

#[test]
fn our_manifests_make_a_cluster_serve_from_pods_that_may_do_little() {
    let Some(mut scene) = Scene::bare() else { return };
    scene.nodes = ["a", "b"].into_iter().map(|name| scene.cluster.node(name)).collect();
    // Without certificates, for nobody names any.
    let own = Own::of("bare-metal", &["policies", "network-policy"], "");
    scene.cluster.kubectl(&["apply", "-k", &own.path()]);
    scene.cluster.apply(POOL);
    for (pool, way) in ["203.0.113.0/28", "2001:db8:113::/124"].into_iter().zip(scene.nodes[0].addresses()) {
        scene.outside.route(pool, way);
    }
    let all = || in_system(&scene, &["get", "pods", "-o", "wide"]);
    until_within(A_TERM, "the hosts are ready", || {
        let ready = "{.status.numberReady} {.status.desiredNumberScheduled}";
        in_system(&scene, &["get", "daemonset/seaway-node", "-o", &format!("jsonpath={ready}")]) == "2 2"
    });
    until_within(A_TERM, "the controllers are ready", || {
        in_system(&scene, &["get", "deployment/seaway-controller", "-o", "jsonpath={.status.readyReplicas}"])
            == "2"
    });
    let on = ["get", "pods", "-l", "app.kubernetes.io/component=controller", "-o"];
    let nodes = in_system(&scene, &[&on[..], &["jsonpath={.items[*].spec.nodeName}"]].concat());
    assert!(["a b", "b a"].contains(&&*nodes), "{}", all());
    // Their status pages have no password.
    let pods = in_system(&scene, &[&on[..], &["jsonpath={.items[*].status.podIP}"]].concat());
    for pod in pods.split(' ') {
        let at = |port: u16, path: &str| {
            let host = if pod.contains(':') { format!("[{pod}]") } else { pod.to_owned() };
            scene.nodes[0].namespace().curl(&format!("http://{host}:{port}{path}"))
        };
        assert!(at(19_361, "/live").is_ok(), "{pod} answers probes");
        assert!(at(19_361, "/state").is_err() && at(1_936, "/state").is_err(), "{pod} tells nothing else");
    }
    let leader =
        || in_system(&scene, &["get", "lease/seaway-controller", "-o", "jsonpath={.spec.holderIdentity}"]);
    until_within(A_TERM, "somebody leads", || !leader().is_empty());
    let leader = leader();
    assert!(leader.starts_with("seaway-controller-"), "{leader}: a pod leads, where its own Leases are");

    for node in &scene.nodes {
        let process =
            serving(node).unwrap_or_else(|| panic!("{}\n{:?}", all(), node.namespace().processes()));
        let rights = CapabilitySets::of(process);
        assert!(rights.len() > 3, "{rights:?}");
        for rights in rights {
            let expected = CapabilitySets {
                inheritable: 0,
                permitted: CapabilitySets::NETWORK,
                effective: CapabilitySets::NETWORK,
                bounding: CapabilitySets::NETWORK,
                ambient: 0,
                no_new: true,
            };
            assert_eq!(rights, expected);
        }
        for at in ["/", "/proc/sys", "/etc/seaway"] {
            assert!(is_read_only(process, at), "{at}");
        }
        // Whoever serves could not have made them.
        let settings = node.namespace().command("cat").arg("/proc/sys/net/ipv4/conf/all/arp_ignore").output();
        assert_eq!(settings.expect("is read").stdout, b"1\n");
    }

    for (account, what, namespace, may) in [
        ("seaway-node", "leases", SYSTEM, true),
        ("seaway-controller", "leases/seaway-controller", SYSTEM, true),
        // Those of hosts.
        ("seaway-controller", "leases", SYSTEM, false),
        // Where whoever writes decides which Nodes live, and who leads the cluster's own controllers.
        ("seaway-node", "leases", "kube-node-lease", false),
        ("seaway-controller", "leases", "kube-system", false),
    ] {
        let who = format!("--as=system:serviceaccount:{SYSTEM}:{account}");
        // It fails where the answer is no.
        let told = scene.cluster.try_kubectl(&["auth", "can-i", "update", what, &who, "-n", namespace], "");
        assert_eq!(told.is_ok(), may, "{account}, {what} in {namespace}: {told:?}");
    }

    scene.cluster.apply(&deployment("shop", 2));
    scene.cluster.apply(&service("shop", "selector: {app: shop}"));
    let at = scene.answering("shop");
    let kept = "/run/seaway-node/snapshot";
    let snapshot = |node: &Node| {
        let process = serving(node)?;
        fs::read_to_string(format!("/proc/{process}/root{kept}")).ok()
    };
    until("what is known is kept where the next pod finds it", || {
        snapshot(&scene.nodes[0]).is_some_and(|it| it.contains(&at.ip().to_string()))
    });
    assert!(!Path::new(kept).exists(), "each Node has a folder of its own here");
}

/// The cloud itself is out of reach for pods here: what is seen is that they start, lead, and are let in by the API server.
#[test]
fn our_manifest_for_openstack_makes_controllers_that_know_their_cloud_and_may_do_what_they_need() {
    let Some(mut scene) = Scene::bare() else { return };
    scene.nodes = ["a", "b"].into_iter().map(|name| scene.cluster.node(name)).collect();
    scene.cluster.kubectl(&["apply", "-k", &deploy().join("openstack").to_string_lossy()]);
    let secret = fs::read_to_string(deploy().join("openstack/openstack-secret.yaml"));
    scene.cluster.apply(&secret.expect("is there"));
    let ready = [
        "get",
        "deployment/seaway-controller",
        "-o",
        "jsonpath={.status.readyReplicas} {.status.conditions}",
    ];
    until_within(A_TERM, "the controllers are ready", || in_system(&scene, &ready).starts_with("2 "));
    let leader =
        || in_system(&scene, &["get", "lease/seaway-controller", "-o", "jsonpath={.spec.holderIdentity}"]);
    until_within(A_TERM, "a pod leads", || leader().starts_with("seaway-controller-"));

    // It writes finalizers only of Services of a cloud that it was told of; the Secret's address leads nowhere.
    scene.cluster.apply(&service("shop", "loadBalancerClass: seaway.dev/octavia, selector: {app: shop}"));
    scene.cluster.apply(&service("other", "selector: {app: shop}"));
    until("it is held", || {
        scene.field("service/shop", "{.metadata.finalizers}").contains("load-balancer-cleanup")
    });
    let problems = "{.status.conditions[?(@.type=='seaway.dev/Problems')].message}";
    until("it is told why it has no load balancer", || !scene.field("service/shop", problems).is_empty());
    let told = scene.field("service/shop", problems);
    assert!(!told.contains("no running controller has --cloud-config"), "{told}");
    assert!(scene.field("service/other", "{.metadata.finalizers}").is_empty(), "it has no class");

    let who = format!("--as=system:serviceaccount:{SYSTEM}:seaway-controller");
    for (verb, what, may) in [
        ("update", "configmaps/seaway-deletions", true),
        ("create", "configmaps", true),
        ("update", "configmaps/seaway", false),
        ("get", "secrets/seaway-cloud", false),
        ("update", "leases/seaway-controller", true),
        ("patch", "services", true),
    ] {
        let told = scene.cluster.try_kubectl(&["auth", "can-i", verb, what, &who, "-n", SYSTEM], "");
        assert_eq!(told.is_ok(), may, "{verb} {what}: {told:?}");
    }
    // Its load balancer is not known to be gone, and never will be.
    scene.cluster.kubectl(&["delete", "service", "shop", "--wait=false"]);
    let free = r#"{"metadata": {"finalizers": null}}"#;
    scene.cluster.kubectl(&["patch", "service", "shop", "--type=merge", "-p", free]);
}
