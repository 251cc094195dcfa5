//! What kube-proxy and CNI translate as tenants write it: external addresses, ports of pods, node ports. kube-proxy is the real
//! one of each Node; for the ports of pods, rules as the plugin `portmap` writes them stand in.

use seaway_testkit::topology::{Namespace, until};

use crate::{cluster::Shared, scene::service};

const POLICIES: &str = include_str!("../../../../deploy/kubernetes/components/policies/policies.yaml");
/// Nobody's address, by which is seen that kube-proxy takes the traffic of external addresses.
const NOBODY_S: &str = "198.51.100.77";
/// What a Service of the shop listens at, and a node port of the hostile namespace.
const NODE_PORT: u16 = 30_080;

/// What keeps Services from naming addresses of pools; those of hosts and controllers are for accounts of pods.
pub(crate) fn policies() -> String {
    let all = POLICIES.split("\n---\n").filter(|it| it.contains("seaway-external-ips"));
    all.collect::<Vec<_>>().join("\n---\n")
}

pub(crate) fn tries(shared: &Shared) {
    let shop = shared.shop.ip().to_string();
    let external = format!(r#"{{"spec": {{"externalIPs": ["{shop}", "{NOBODY_S}"]}}}}"#);
    let names_it = |more: &[&str]| {
        let patch = ["-n", "evil", "patch", "service", "external", "--type", "merge", "-p", &external];
        shared.attempt(&[&patch[..], more].concat(), "")
    };
    let high = format!("port: {NODE_PORT}, targetPort: 80");
    shared.admin("shop", &service("high", "selector: {app: shop}").replace("port: 80", &high));
    let node_port = format!("port: 80, nodePort: {NODE_PORT}");
    let all = [
        service("external", "selector: {app: evil}").replace("LoadBalancer", "ClusterIP"),
        service("node-port", "selector: {app: evil}")
            .replace("LoadBalancer", "NodePort")
            .replace("port: 80", &node_port),
    ];
    shared.applies(&all.join("---"));
    let why = format!("{shop} is an address of the AddressPool public");
    until("policies count", || names_it(&["--dry-run=server"]).is_err_and(|it| it.contains(&why)));
    let error = names_it(&[]).expect_err("nobody takes an address of a pool");
    assert!(error.contains(&why), "{error}");

    // Where nobody applied the policies, rules of others are there and are not asked. kube-proxy refuses external addresses of
    // Services without endpoints, so these are known to it before.
    let (cluster_ip, pod) = (field(shared, "service/external", "{.spec.clusterIP}"), pod(shared));
    for (_, node, _) in ways(shared) {
        let url = format!("http://{cluster_ip}/");
        until("kube-proxy knows its pods", || node.curl(&url).is_ok_and(|it| it.starts_with("evil-")));
    }
    let bindings = "validatingadmissionpolicybinding/seaway-external-ips";
    shared.scene.cluster.kubectl(&["delete", bindings]);
    until("the policy counts no more", || names_it(&["--dry-run=server"]).is_ok());
    names_it(&[]).expect("nothing is in its way");
    for (from, node, own) in ways(shared) {
        hosts_port(node, &pod);
        from.route(NOBODY_S, own);
        for at in [NOBODY_S.to_owned(), own.to_owned(), format!("{own}:{NODE_PORT}")] {
            let is_evil = || from.curl(&format!("http://{at}/")).is_ok_and(|it| it.starts_with("evil-"));
            until(&format!("others translate {at}"), is_evil);
        }
        let rules = || {
            let listed = node.command("nft").args(["list", "table", "ip", "kube-proxy"]).output();
            String::from_utf8_lossy(&listed.expect("nft runs").stdout).into_owned()
        };
        until("kube-proxy translates the shop's address", || rules().contains(&format!("{shop} . tcp . 80")));
    }
}

/// All of it leads to the shop, from everywhere.
pub(crate) fn hold(shared: &Shared) {
    let shop = shared.shop.ip().to_string();
    let high = format!("{}:{NODE_PORT}", shared.scene_address("shop", "high"));
    for (from, node, own) in ways(shared) {
        until("a Service at a node port is served", || {
            from.curl(&format!("http://{high}/")).is_ok_and(|it| it.starts_with("shop-"))
        });
        for (who, at) in [from, node].into_iter().flat_map(|who| [(who, &shop), (who, &high)]) {
            for _ in 0..5 {
                let answer = who.curl(&format!("http://{at}/"));
                assert!(answer.as_ref().is_ok_and(|it| it.starts_with("shop-")), "{at} by {own}: {answer:?}");
            }
        }
    }
}

/// Who asks, the Node through which he does, and its address.
fn ways(shared: &Shared) -> [(&Namespace, &Namespace, &str); 2] {
    let [a, b] = [0, 1].map(|at| &shared.scene.nodes[at]);
    [(&shared.scene.outside, a), (&shared.beside, b)]
        .map(|(from, node)| (from, node.namespace(), node.addresses()[0].as_str()))
}

fn field(shared: &Shared, object: &str, path: &str) -> String {
    shared.scene.cluster.kubectl(&["-n", "evil", "get", object, "-o", &format!("jsonpath={path}")])
}

fn pod(shared: &Shared) -> String {
    let path = "jsonpath={.items[0].status.podIP}";
    shared.scene.cluster.kubectl(&["-n", "evil", "get", "pods", "-l", "app=evil", "-o", path])
}

fn hosts_port(node: &Namespace, pod: &str) {
    let hooks = ["prerouting", "output"].map(|hook| {
        format!(
            "add chain ip portmap {hook} {{ type nat hook {hook} priority -100; }}; \
             add rule ip portmap {hook} fib daddr type local tcp dport 80 dnat to {pod}:80; "
        )
    });
    // The pod may be at another Node, and answers by this one.
    let back = format!(
        "add chain ip portmap back {{ type nat hook postrouting priority srcnat; }}; \
         add rule ip portmap back ip daddr {pod} tcp dport 80 masquerade"
    );
    let rules = format!("add table ip portmap; {}{back}", hooks.concat());
    assert!(node.command("nft").arg(&rules).status().expect("nft runs").success(), "{rules}");
}
