//! All that `ovn` cannot, and Octavia's own provider can: a real Octavia takes each request that is made for it, and tells
//! of it what is read as nothing to do. Nobody is inside of its machines here, so nothing is forwarded.

use std::collections::BTreeMap;

use seaway_openstack::{
    barbican::{Container, Secret},
    resource::Query,
};
use seaway_testkit::{faults::Fault, gate::CloudGate};
use serde_json::{Value, json};

use crate::{
    certificates::{certificate, kept_by_hand},
    stage::{CloudSetup, Stage, until},
};

/// Keystone, Octavia, Neutron and Barbican.
const PORTS: [u16; 4] = [5000, 9876, 9696, 9311];

/// Spoken to by HTTP, and all that can be said of that.
const HTTP: &str = r#"
apiVersion: v1
kind: Service
metadata:
  name: http
  annotations:
    seaway.dev/provider: amphora
    seaway.dev/metrics-port: "9100"
    seaway.dev/health-check: http
    seaway.dev/health-check-path: /ready
    seaway.dev/health-check-host: shop.example
    loadbalancer.openstack.org/x-forwarded-for: "true"
    loadbalancer.openstack.org/lb-method: LEAST_CONNECTIONS
    loadbalancer.openstack.org/connection-limit: "500"
    loadbalancer.openstack.org/timeout-client-data: "60000"
    loadbalancer.openstack.org/timeout-member-connect: "6000"
    loadbalancer.openstack.org/timeout-member-data: "61000"
    loadbalancer.openstack.org/timeout-tcp-inspect: "10"
spec:
  type: LoadBalancer
  loadBalancerClass: seaway.dev/octavia
  loadBalancerSourceRanges: [172.24.4.0/24, 192.0.2.0/24]
  sessionAffinity: ClientIP
  selector: {app: shop}
  ports: [{name: web, port: 80}, {name: other, port: 81}]
"#;

/// One port of each transport; Nodes are asked by HTTP whether they have pods.
const MANY: &str = r#"
apiVersion: v1
kind: Service
metadata:
  name: many
  annotations: {seaway.dev/provider: amphora, seaway.dev/proxy-protocol: v1}
spec:
  type: LoadBalancer
  loadBalancerClass: seaway.dev/octavia
  externalTrafficPolicy: Local
  selector: {app: shop}
  ports:
  - {name: tcp, port: 80}
  - {name: udp, port: 53, protocol: UDP}
  - {name: sctp, port: 3868, protocol: SCTP}
"#;

/// With a certificate of Barbican.
fn secure(reference: &str) -> String {
    format!(
        "
apiVersion: v1
kind: Service
metadata: {{name: secure, annotations: {{loadbalancer.openstack.org/default-tls-container-ref: \"{reference}\"}}}}
spec: {{type: LoadBalancer, loadBalancerClass: seaway.dev/octavia, selector: {{app: shop}}, ports: [{{port: 443}}]}}
"
    )
}

#[test]
fn a_real_octavia_takes_all_that_ovn_cannot() {
    let Some(mut stage) = Stage::set(&["a"]) else { return };
    let gate = CloudGate::before(&PORTS);
    stage.lead(&gate.auth_url());
    let before = stage.land.everything();
    let cluster = stage.scene.cluster.clone();
    let theirs = kept_by_hand(&stage.land);

    // What `ovn` cannot is told before anything is touched.
    cluster.apply(&secure(&gate.through(&theirs)));
    let annotate = |service: &str, annotation: &str| {
        cluster.kubectl(&["annotate", "--overwrite", "service", service, annotation]);
    };
    let problems = "{.status.conditions[?(@.type=='seaway.dev/Problems')].message}";
    let told = || stage.scene.field("service/secure", problems);
    until("it is told", || told().contains("this provider of load balancers cannot end TLS"));
    assert_eq!(gate.count("POST */lbaas/*") + gate.count("POST */floatingips"), 0);

    annotate("secure", "seaway.dev/provider=amphora");
    cluster.apply(HTTP);
    cluster.apply(MANY);
    for name in ["http", "many", "secure"] {
        stage.address(name);
    }
    let all = ObjectsBelow::by(&stage);
    // What a busy Octavia did not take is asked for again.
    assert_eq!(gate.done("POST */lbaas/*"), 3, "each is one request");
    all.http();
    all.many("PROXY");
    assert_eq!(all.of("listeners", "0", "secure")["protocol"], "TERMINATED_HTTPS");
    assert_eq!(all.of("listeners", "0", "secure")["default_tls_container_ref"], theirs.as_str());
    assert_eq!(all.of("pools", "0", "secure")["protocol"], "HTTP");

    // On live ones: another header, other times and sources, a certificate of the cluster's instead.
    annotate("many", "seaway.dev/proxy-protocol=v2");
    annotate("http", "loadbalancer.openstack.org/timeout-client-data=62000");
    cluster.kubectl(&["patch", "service", "http", "-p", r#"{"spec": {"loadBalancerSourceRanges": null}}"#]);
    // Two secrets and a container: of each, one answer does not come.
    lose(&gate, &["POST */v1/secrets", "POST */v1/containers"]);
    apply_certificate(&stage, "shop");
    // At once: in between it would have no certificate at all.
    let other = ["loadbalancer.openstack.org/default-tls-container-ref-", "seaway.dev/tls=shop-tls"];
    cluster.kubectl(&[&["annotate", "service", "secure"], &other[..]].concat());
    until("all of it has changed", || {
        let all = ObjectsBelow::by(&stage);
        let http = all.listeners_of("http");
        let is_slow = |it: &&&Value| it["timeout_client_data"] == 62_000;
        let shown = &all.of("listeners", "0", "secure")["default_tls_container_ref"];
        all.is("pools", "0", "many", "protocol", "PROXYV2")
            && all.below_many() == [3, 3, 3]
            && http.iter().filter(|it| it["protocol"] == "HTTP").filter(is_slow).count() == 2
            && http.len() == 3
            && http.iter().all(|it| it["allowed_cidrs"].is_null())
            && shown.is_string()
            && *shown != theirs.as_str()
            && kept(&stage.land) == (2, 4)
    });
    ObjectsBelow::by(&stage).many("PROXYV2");
    let first = ObjectsBelow::by(&stage).of("listeners", "0", "secure")["default_tls_container_ref"].clone();
    assert_eq!(kept(&stage.land), (2, 4), "theirs stays, and ours is there");

    // A renewed one is shown, and the old one goes.
    lose(&gate, &["DELETE */v1/secrets/*", "DELETE */v1/containers/*"]);
    apply_certificate(&stage, "renewed");
    until("it is shown", || {
        let shown =
            ObjectsBelow::by(&stage).of("listeners", "0", "secure")["default_tls_container_ref"].clone();
        shown.is_string() && shown != first
    });
    until("the old one is gone", || kept(&stage.land) == (2, 4));
    let lost =
        [("POST", "secrets"), ("POST", "containers"), ("DELETE", "secrets/*"), ("DELETE", "containers/*")];
    for (method, path) in lost {
        assert!(gate.count(&format!("{method} */v1/{path}")) > 0, "{method} {path}");
    }

    // Whoever takes over finds nothing to do.
    let writes = || ["POST", "PUT", "DELETE"].map(|it| gate.done(&format!("{it} */lbaas/*"))).iter().sum();
    stage.land.at_rest(|_| true);
    let so_far: usize = writes();
    stage.scene.kill("controller");
    stage.lead_anew();
    annotate("many", "seaway.dev/max-connections=7");
    until("it is at work", || {
        let all = ObjectsBelow::by(&stage);
        let listeners = all.listeners_of("many");
        listeners.len() == 3 && listeners.iter().all(|it| it["connection_limit"] == 7)
    });
    // Its last request may be answered a moment after what it asked for is there.
    until("all of it is answered", || writes() >= so_far + 3);
    assert_eq!(writes() - so_far, 3, "one for each listener of the one that was changed");

    for name in ["http", "many", "secure"] {
        cluster.kubectl(&["delete", "service", name, "--wait=false"]);
    }
    until("nothing is left", || stage.land.has_only(&before));
    until("only what is theirs is left", || kept(&stage.land) == (1, 2));
}

/// The first of each from now on is done, and its answer is lost.
fn lose(gate: &CloudGate, requests: &[&str]) {
    requests.iter().for_each(|it| gate.fail(Fault::on(it).lose_reply()));
}

/// What there is below load balancers, by name.
struct ObjectsBelow(BTreeMap<String, Value>);

impl ObjectsBelow {
    fn by(stage: &Stage) -> ObjectsBelow {
        ObjectsBelow(stage.land.told(&["listeners", "pools", "healthmonitors", "members"]))
    }

    /// `listener_0_…` of that Service, or null.
    fn of(&self, kind: &str, number: &str, service: &str) -> &Value {
        let is = |name: &str| {
            name.ends_with(&format!("_default_{service}")) && name.split('_').nth(1) == Some(number)
        };
        let mut all = self.0.iter().filter(|(key, _)| key.starts_with(kind)).map(|it| it.1);
        all.find(|it| it["name"].as_str().is_some_and(is)).unwrap_or(&Value::Null)
    }

    fn is(&self, kind: &str, number: &str, service: &str, field: &str, value: &str) -> bool {
        self.of(kind, number, service)[field] == value
    }

    fn listeners_of(&self, service: &str) -> Vec<&Value> {
        let its =
            |it: &&Value| it["name"].as_str().is_some_and(|it| it.ends_with(&format!("_default_{service}")));
        self.0.iter().filter(|(key, _)| key.starts_with("listeners")).map(|it| it.1).filter(its).collect()
    }

    /// How many pools and monitors `many` has, and members; while one pool takes another's place, both are there.
    fn below_many(&self) -> [usize; 3] {
        let named = |kind: &str| {
            let all = self.0.iter().filter(|(key, _)| key.starts_with(kind));
            all.filter(|(_, it)| it["name"].as_str().is_some_and(|it| it.ends_with("_default_many"))).count()
        };
        let members = self.0.iter().filter(|(key, _)| key.starts_with("members")).map(|it| it.1);
        // No other Service's are asked at its healthCheckNodePort.
        [named("pools"), named("healthmonitors"), members.filter(|it| it["monitor_port"].is_u64()).count()]
    }

    fn http(&self) {
        for number in ["0", "1"] {
            let listener = self.of("listeners", number, "http");
            assert_eq!(listener["protocol"], "HTTP", "{listener}");
            assert_eq!(listener["insert_headers"], json!({"X-Forwarded-For": "true"}));
            assert_eq!(listener["connection_limit"], 500);
            assert_eq!(listener["allowed_cidrs"], json!(["172.24.4.0/24", "192.0.2.0/24"]));
            let times = ["client_data", "member_connect", "member_data", "tcp_inspect"];
            let times = times.map(|it| listener[format!("timeout_{it}")].as_u64());
            assert_eq!(times, [Some(60_000), Some(6_000), Some(61_000), Some(10)]);
            let pool = self.of("pools", number, "http");
            assert_eq!(
                (&pool["protocol"], &pool["lb_algorithm"]),
                (&json!("HTTP"), &json!("LEAST_CONNECTIONS"))
            );
            assert_eq!(pool["session_persistence"]["type"], "SOURCE_IP");
            let monitor = self.of("healthmonitors", number, "http");
            assert_eq!((&monitor["type"], &monitor["url_path"]), (&json!("HTTP"), &json!("/ready")));
            assert_eq!(monitor["domain_name"], "shop.example");
        }
        let metrics: Vec<_> =
            self.listeners_of("http").into_iter().filter(|it| it["protocol"] == "PROMETHEUS").collect();
        assert_eq!(metrics.len(), 1);
        assert_eq!(metrics[0]["protocol_port"], 9100);
    }

    fn many(&self, tcp: &str) {
        for (number, listener, pool) in [("0", "TCP", tcp), ("1", "UDP", "UDP"), ("2", "SCTP", "SCTP")] {
            assert_eq!(self.of("listeners", number, "many")["protocol"], listener);
            assert_eq!(self.of("pools", number, "many")["protocol"], pool);
            let monitor = self.of("healthmonitors", number, "many");
            assert_eq!(
                (&monitor["type"], &monitor["url_path"]),
                (&json!("HTTP"), &json!("/healthz")),
                "{listener}"
            );
        }
        assert_eq!(self.below_many(), [3, 3, 3]);
    }
}

/// A Secret of the cluster, with a certificate that nobody had before.
fn apply_certificate(stage: &Stage, name: &str) {
    let (certificate, key) = certificate(name);
    let data = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "shop-tls"}, "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": certificate, "tls.key": key},
    });
    stage.scene.cluster.apply(&data.to_string());
}

/// How many containers and secrets there are.
fn kept(land: &CloudSetup) -> (usize, usize) {
    land.runtime.block_on(async {
        let containers = land.cloud.all::<Container>().list::<Container>(Query::all()).await.expect("a list");
        let secrets = land.cloud.all::<Secret>().list::<Secret>(Query::all()).await.expect("a list");
        (containers.len(), secrets.len())
    })
}
