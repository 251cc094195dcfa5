//! That what the rig does by HTTP, to save processes, is what kubectl does.

use seaway_testkit::kubernetes::Cluster;

use super::up;

/// One of each sort that tests apply: with fields of the API server's own, a map, lists with keys, and flow style.
const FIRST: &str = "
# a comment
apiVersion: v1
kind: Service
metadata: {name: shop, annotations: {example.com/a: one, example.com/b: two}, labels: {tier: gold}}
spec:
  selector: {app: shop}
  ports: [{name: http, port: 80}, {name: dns, port: 53, protocol: UDP}]
---
apiVersion: v1
kind: Secret
metadata: {name: password}
stringData: {word: open}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 0, selector: {matchLabels: {app: web}},
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: web}]}}}}
";
/// An annotation and a port less, one more, and a field that was not there.
const SECOND: &str = "
apiVersion: v1
kind: Service
metadata: {name: shop, annotations: {example.com/a: three}}
spec:
  selector: {app: shop}
  sessionAffinity: ClientIP
  ports: [{name: http, port: 80, targetPort: 8080}, {name: https, port: 443}]
";
const OBJECTS: [&str; 6] = [
    "service/shop",
    "secret/password",
    "deployment/web",
    "serviceaccount/robot",
    "rolebinding/reads",
    "service/gone",
];
/// What tells two objects of the same words apart, and what controllers write when it suits them.
const OWN: [&str; 11] = [
    // Written by the controller of Deployments, some time later.
    "deployment.kubernetes.io/revision",
    "namespace",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "managedFields",
    "clusterIP",
    "clusterIPs",
    "kubectl.kubernetes.io/last-applied-configuration",
    "observedGeneration",
    "status",
];

type How = fn(&Cluster, &[&str], &str) -> Result<String, String>;

fn both(namespace: &str, how: How, cluster: &Cluster) -> Vec<String> {
    let told = |arguments: &[&str], input: &str| {
        let done = how(cluster, &[arguments, &["-n", namespace]].concat(), input);
        done.unwrap_or_else(|error| panic!("{arguments:?}: {error}"))
    };
    told(&["apply", "-f", "-"], FIRST);
    told(&["apply", "-f", "-"], SECOND);
    told(&["create", "serviceaccount", "robot"], "");
    told(&["create", "rolebinding", "reads", "--clusterrole=view", "--user=ada"], "");
    told(&["annotate", "service", "shop", "example.com/c=four", "example.com/none-"], "");
    told(&["annotate", "service", "shop", "--overwrite", "example.com/a=five"], "");
    told(&["label", "service", "shop", "tier=silver"], "");
    told(&["patch", "service", "shop", "-p", r#"{"spec": {"ports": [{"port": 443, "name": "tls"}]}}"#], "");
    let json = r#"[{"op": "add", "path": "/metadata/labels/more", "value": "x"}]"#;
    told(&["patch", "service", "shop", "--type=json", "-p", json], "");
    told(&["patch", "deployment", "web", "--type", "merge", "-p", r#"{"spec": {"paused": true}}"#], "");
    let status = r#"{"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}}"#;
    told(
        &["apply", "-f", "-"],
        "{apiVersion: v1, kind: Service, metadata: {name: gone}, spec: {ports: [{port: 1}]}}",
    );
    told(&["patch", "service/shop", "--subresource=status", "--type=merge", "-p", r#"{"status": {}}"#], "");
    assert!(
        how(cluster, &["patch", "service", "none", "-n", namespace, "--type=merge", "-p", status], "")
            .is_err()
    );
    told(&["delete", "service", "gone"], "");
    told(&["delete", "service/gone", "--ignore-not-found"], "");
    let mut shown = Vec::new();
    for path in [
        "{range .items[*]}{.metadata.name} {.spec.ports[*].port}{\"\\n\"}{end}",
        "{.items[*].metadata.name}{.items[*].spec.none}",
        "{.items[?(@.kind==\"Service\")].metadata.labels}",
    ] {
        shown.push(told(&["get", "services", "-o", &format!("jsonpath={path}")], ""));
    }
    shown.push(told(
        &["get", "services", "-l", "tier=silver", "-o", "jsonpath={.items[*].metadata.name}"],
        "",
    ));
    shown.push(told(&["get", "services", "-o", "name"], ""));
    shown.push(told(&["get", "rolebinding", "reads", "-o", "name"], ""));
    let of = "--field-selector=metadata.name=shop";
    shown.push(told(&["get", "services", of, "-o", "jsonpath={.items[*].metadata.name}"], ""));
    for (refused, word) in [
        (&["get", "service", "gone", "-o", "jsonpath={.metadata.name}"][..], "NotFound"),
        (&["delete", "service", "gone"], "NotFound"),
        (&["create", "serviceaccount", "robot"], "\"robot\" already exists"),
        (&["annotate", "service", "shop", "example.com/a=six"], "overwrite"),
        (&["get", "nothings", "-o", "jsonpath={.items}"], "resource type \"nothings\""),
    ] {
        let error = how(cluster, &[refused, &["-n", namespace]].concat(), "").expect_err(word);
        assert!(error.contains(word), "{refused:?}: {error}");
    }
    for (manifest, word) in [
        ("{apiVersion: v1, kind: Service, metadata: {name: bad}, spec: {prots: []}}", "spec.prots"),
        ("{apiVersion: example.com/v1, kind: Shop, metadata: {name: bad}}", "no matches for kind \"Shop\""),
    ] {
        let error = how(cluster, &["apply", "-n", namespace, "-f", "-"], manifest).expect_err(word);
        assert!(error.contains(word), "{manifest}: {error}");
    }
    shown
}

/// Without what is another one for each object.
fn stripped(value: &mut serde_json::Value) {
    match value {
        serde_json::Value::Object(fields) => {
            fields.retain(|name, _| !OWN.contains(&name.as_str()));
            fields.values_mut().for_each(stripped);
            fields.retain(|_, it| *it != serde_json::json!({}));
        }
        serde_json::Value::Array(items) => items.iter_mut().for_each(stripped),
        _ => {}
    }
}

#[test]
fn what_is_done_by_http_is_what_kubectl_does() {
    let Some(cluster) = up() else { return };
    cluster.kubectl(&["create", "namespace", "http"]);
    cluster.kubectl_process(&["create", "namespace", "process"], "").expect("it is made");
    let by_http = both("http", |cluster, arguments, input| cluster.try_kubectl(arguments, input), &cluster);
    let by_process =
        both("process", |cluster, arguments, input| cluster.kubectl_process(arguments, input), &cluster);
    assert_eq!(by_http, by_process);
    for object in OBJECTS {
        let [http, process] = ["http", "process"].map(|namespace| {
            let got = cluster.kubectl_process(&["get", object, "-n", namespace, "-o", "json"], "");
            got.map(|it| {
                let mut object = serde_json::from_str(&it).expect("it is JSON");
                stripped(&mut object);
                object
            })
        });
        match object {
            "service/gone" => assert!(http.is_err() && process.is_err()),
            _ => assert_eq!(http.expect(object), process.expect(object), "{object}"),
        }
    }
    // A field that an older manifest had goes with it.
    let port = "{.spec.ports[*].name}";
    let kept = cluster.kubectl(&["get", "service", "shop", "-n", "http", "-o", &format!("jsonpath={port}")]);
    assert!(!kept.contains("dns"), "{kept}");
}
