//! What stands in the way is named, with what to do about it, and nothing is lost by it.

use std::process::Command;

use seaway_testkit::topology::until;
use serde_json::{Value, json};

use crate::scene::{POOL, SEAWAY, Scene, service};

const MEND: &str = "seaway crds | kubectl apply -f -";

fn has_address(scene: &Scene, service: &str) -> bool {
    let path = "{.items[*].spec.owners[*].name}";
    scene.field("addresses", path).split_whitespace().any(|it| it == service)
}

fn problems(scene: &Scene, service: &str) -> String {
    let path = "{.status.conditions[?(@.type==\"seaway.dev/Problems\")].message}";
    scene.field(&format!("service/{service}"), path)
}

#[test]
fn what_a_cluster_lacks_is_named_with_its_mend_and_then_found() {
    let Some(mut scene) = Scene::bare() else { return };
    let wrong = Command::new(SEAWAY).args(["controller", "--kubeconfig", "/nowhere"]).output();
    let wrong = wrong.expect("seaway runs");
    let told = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(!wrong.status.success() && told.contains("--kubeconfig FILE"), "{told}");

    // Neither definitions, nor the namespace for its Lease.
    let admin = scene.cluster.kubeconfig().to_owned();
    scene.lead_as("early", &admin, "seaway-system");
    until("definitions are missed", || {
        scene.log("early").lines().any(|it| it.contains("addresses.seaway.dev") && it.contains(MEND))
    });
    let namespace = "kubectl create namespace seaway-system";
    until("a namespace is missed", || scene.log("early").contains(namespace));
    scene.cluster.apply(&service("shop", "selector: {app: shop}"));
    scene.cluster.kubectl(&["create", "namespace", "seaway-system"]);
    scene.install();
    until("it works without being started anew", || has_address(&scene, "shop"));
    assert_eq!(scene.log("early").matches(namespace).count(), 1, "it is said once");
    scene.kill("early");

    for (verb, resource) in [
        ("update", "leases"),
        ("create", "leases"),
        ("create", "addresses"),
        ("patch", "services/status"),
        ("patch", "addresspools/status"),
        ("create", "events"),
    ] {
        let name = format!("no-{verb}-{}", resource.replace('/', "-"));
        for role in ["seaway-reader", "seaway-certificates", &name] {
            let (binding, role) = (format!("{name}-{role}"), format!("--clusterrole={role}"));
            scene.cluster.kubectl(&[
                "create",
                "clusterrolebinding",
                &binding,
                &role,
                &format!("--user={name}"),
            ]);
        }
        allow(&scene, &name, Some((verb, resource)));
        let kubeconfig = scene.cluster.kubeconfig_of(&name, &[]);
        scene.lead_as(&name, &kubeconfig, "default");
        // Something to be given and told.
        scene.cluster.apply(&service(&name.replace("no-", "for-"), "selector: {app: shop}"));
        if (verb, resource) == ("update", "leases") {
            // Who creates it holds it; to give it back, or renew it, is another matter.
            until("it leads", || scene.leader().starts_with(&name));
        }
        let (plain, _) = resource.split_once('/').unwrap_or((resource, ""));
        until(&format!("{name} is named"), || {
            scene.log(&name).lines().any(|it| {
                it.contains(&format!("cannot {verb} resource")) && it.contains(plain) && it.contains(MEND)
            })
        });
        allow(&scene, &name, None);
        let service = format!("service/{}", name.replace("no-", "for-"));
        until("what was to be done is done", || {
            has_address(&scene, &name.replace("no-", "for-"))
                && scene.field(&service, "{.status.conditions[*].type}").contains("seaway.dev/Ready")
        });
        scene.kill(&name);
        scene.cluster.kubectl(&["delete", "lease", "seaway-controller"]);
    }
    assert!(has_address(&scene, "shop"), "nobody lost anything");
}

/// A role of that name: what controllers may, but for this.
fn allow(scene: &Scene, name: &str, but: Option<(&str, &str)>) {
    let [mut role, leases, reader] =
        ["seaway-controller", "seaway-leader", "seaway-lease-reader"].map(|it| {
            let role = scene.cluster.kubectl(&["get", "clusterrole", it, "-o", "json"]);
            serde_json::from_str::<Value>(&role).expect("is JSON")
        });
    role["metadata"] = json!({ "name": name });
    for more in [leases, reader] {
        let rules = role["rules"].as_array_mut().expect("a role has rules");
        rules.extend(more["rules"].as_array().cloned().unwrap_or_default());
    }
    for rule in role["rules"].as_array_mut().into_iter().flatten() {
        let of = |it: &Value, word: &str| it.as_array().is_some_and(|it| it.contains(&json!(word)));
        if let Some((verb, resource)) = but
            && of(&rule["resources"], resource)
            && let Some(verbs) = rule["verbs"].as_array_mut()
        {
            verbs.retain(|it| it != verb);
            if verbs.is_empty() {
                verbs.push("get".into());
            }
        }
    }
    scene.cluster.apply(&role.to_string());
}

fn annotated(name: &str, annotation: &str) -> String {
    let named = format!("name: {name}");
    service(name, "selector: {app: shop}").replace(&named, &format!("{named}, annotations: {{{annotation}}}"))
}

#[test]
fn what_cannot_be_given_is_told_where_it_was_asked_for() {
    let Some(scene) = Scene::up(0) else { return };
    scene.cluster.apply(
        &POOL.replace("public", "tiny").replace("203.0.113.0/28, 2001:db8:113::/124", "198.51.100.1/32"),
    );
    let event = |service: &str, reason: &str| {
        let of = format!("reason={reason},regarding.name={service}");
        scene
            .cluster
            .kubectl(&["get", "events.events.k8s.io", "--field-selector", &of, "-o", "name"])
            .lines()
            .count()
    };

    // One address, and two who ask for it.
    for name in ["first", "late"] {
        scene.cluster.apply(&annotated(name, "seaway.dev/address-pool: tiny"));
        until("it is known", || has_address(&scene, name) || !problems(&scene, name).is_empty());
    }
    until("the pool is full", || {
        ["Widen spec.addresses of a pool", "all 1 IPv4 addresses of pool tiny are allocated"]
            .iter()
            .all(|it| problems(&scene, "late").contains(it))
    });
    until("it is an event", || event("late", "PoolExhausted") == 1);
    // It was promised before it is written.
    until("the first has it", || has_address(&scene, "first"));
    scene.cluster.kubectl(&["delete", "service", "first"]);
    until("who waited has it", || {
        has_address(&scene, "late") && !problems(&scene, "late").contains("no address is free")
    });

    for name in ["owner", "thief"] {
        scene.cluster.apply(&annotated(name, "seaway.dev/address: 203.0.113.9"));
        until("it is known", || has_address(&scene, name) || !problems(&scene, name).is_empty());
    }
    until("it is somebody else's", || {
        let told = problems(&scene, "thief");
        told.contains("203.0.113.9 is held by")
            && told.contains("owner")
            && told.contains("Ask for another address")
    });
    assert_eq!(scene.field("address/203-0-113-9", "{.spec.owners[*].name}"), "owner");
}
