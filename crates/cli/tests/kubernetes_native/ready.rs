//! Nobody waits for ever, and nothing of ours stays as others left it.

use std::time::Duration;

use seaway_testkit::topology::{until, until_within};

use crate::scene::{Scene, deployment, service};

const A_MINUTE: Duration = Duration::from_secs(60);

/// A cluster as kubeadm makes it, with a control plane that is excluded, and pools of Nodes' addresses and of one family.
#[test]
fn kubectl_wait_ends_where_a_node_is_excluded_or_has_no_local_pod_and_for_who_prefers_two_families() {
    let Some(scene) = Scene::up(2) else { return };
    let cluster = &scene.cluster;
    let labels =
        ["node-role.kubernetes.io/control-plane", "node.kubernetes.io/exclude-from-external-load-balancers"];
    labels.iter().for_each(|it| _ = cluster.kubectl(&["label", "node", "a", &format!("{it}=")]));
    let four = r#"{"spec":{"addresses":["203.0.113.0/28"]}}"#;
    cluster.kubectl(&["patch", "addresspool", "public", "--type=merge", "-p", four]);
    cluster.apply(
        "apiVersion: seaway.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: nodes}\nspec: {hosts: true, autoAssign: false}\n",
    );
    let on_b = deployment("shop", 1).replace("      containers:\n", "      nodeName: b\n      containers:\n");
    cluster.apply(&on_b);
    cluster.kubectl(&["rollout", "status", "deployment/shop", "--timeout", "180s"]);
    let wait = |of: &str, for_so_long: &str| {
        let service = format!("service/{of}");
        let wait = ["wait", "--for=condition=seaway.dev/Ready", &service, "--timeout", for_so_long];
        cluster.try_kubectl(&wait, "")
    };
    let is_ready = |name: &str| {
        let told = wait(name, "120s").unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(told.contains("condition met"), "{name}: {told}");
    };
    let prefers = "selector: {app: shop}, ipFamilyPolicy: PreferDualStack";
    let of_nodes = |name: &str, port: u16, more: &str| {
        let named = format!("name: {name}, annotations: {{seaway.dev/address-pool: nodes}}");
        let text = service(name, &format!("selector: {{app: shop}}, {more}"));
        let text = text.replace(&format!("name: {name}"), &named);
        text.replace("port: 80", &format!("port: {port}, targetPort: 80"))
    };
    cluster.apply(&service("four", prefers));
    cluster.apply(&of_nodes("excluded", 81, "ipFamilyPolicy: PreferDualStack"));
    ["four", "excluded"].into_iter().for_each(is_ready);
    labels.iter().for_each(|it| _ = cluster.kubectl(&["label", "node", "a", &format!("{it}-")]));
    cluster.apply(&of_nodes("local", 82, "externalTrafficPolicy: Local"));
    let of_a = scene.nodes[0].addresses()[0].clone();
    is_ready("local");
    let published = scene.field("service/local", "{.status.loadBalancer.ingress[*].ip}");
    assert!(!published.split(' ').any(|it| it == of_a), "{of_a} has no pod: {published}");
    // Who requires what no pool has waits, and is told why.
    cluster.apply(&service("strict", "selector: {app: shop}, ipFamilyPolicy: RequireDualStack"));
    until("it is told why", || {
        let path = "{.status.conditions[?(@.type==\"seaway.dev/Problems\")].message}";
        scene.field("service/strict", path).contains("IPv6")
    });
    wait("strict", "1s").expect_err("it has no address of IPv6");
}

#[test]
fn what_others_change_of_ours_is_set_back_within_a_minute_and_the_service_answers_on() {
    let Some(scene) = Scene::up(1) else { return };
    scene.cluster.apply(&deployment("shop", 1));
    scene.cluster.apply(&service("shop", "selector: {app: shop}"));
    scene.cluster.kubectl(&["rollout", "status", "deployment/shop", "--timeout", "180s"]);
    let shop = scene.answering("shop").ip().to_string();
    let ready =
        || scene.field("service/shop", "{.status.conditions[?(@.type==\"seaway.dev/Ready\")].status}");
    until("it is ready", || ready() == "True");
    let answers = || scene.outside.curl(&format!("http://{shop}/")).is_ok_and(|it| it.starts_with("shop-"));
    let node = scene.nodes[0].namespace();

    let object = format!("address/{}", shop.replace('.', "-"));
    let owner = || scene.field(&object, "{.spec.owners[*].name}");
    let uid = scene.field(&object, "{.metadata.uid}");
    scene.cluster.kubectl(&["delete", &object]);
    until_within(A_MINUTE, "its Address is written again", || {
        assert!(answers(), "it answers all the while");
        owner() == "shop" && scene.field(&object, "{.metadata.uid}") != uid
    });

    let says = r#"{"status":{"conditions":[]}}"#;
    scene.cluster.kubectl(&["patch", "service", "shop", "--subresource=status", "--type=merge", "-p", says]);
    until_within(A_MINUTE, "its condition is written again", || ready() == "True");

    let host = scene.nodes[0].name().to_owned();
    let applied = || scene.field(&format!("loadbalancerhost/{host}"), "{.status.applied}");
    until("the host has said how far it is", || !applied().is_empty());
    scene.cluster.kubectl(&["delete", "loadbalancerhost", &host]);
    until_within(A_MINUTE, "the host is written again", || !applied().is_empty());

    node.ip(&["address", "delete", &format!("{shop}/32"), "dev", "lo"]);
    until_within(A_MINUTE, "the host has its address again", answers);
    let removed = node.command("nft").args(["delete", "table", "inet", "seaway-addresses"]).status();
    assert!(removed.expect("nft runs").success());
    let guards = || {
        let listed = node.command("nft").args(["list", "table", "inet", "seaway-addresses"]).output();
        String::from_utf8_lossy(&listed.expect("nft runs").stdout).contains(&shop)
    };
    until_within(A_MINUTE, "its other ports are closed again", guards);
    assert!(answers());
}
