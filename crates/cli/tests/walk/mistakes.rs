//! `check` finds every kind of mistake, each with file, line and column.

use crate::harness::{Folder, path, run, stdout};

/// File, text, where the mistake is (the key of a value), and what is said of it.
const MISTAKES: &[(&str, &str, &str, &str)] = &[
    ("syntax.yaml", "apiVersion: v1\nkind: [Service\n", "syntax.yaml:", ""),
    ("tab.yaml", "apiVersion: v1\nkind: Service\nmetadata:\n\tname: a\n", "tab.yaml:4:", ""),
    ("json.json", "{\"apiVersion\": \"v1\",\n \"kind\": ]}", "json.json:2:", ""),
    ("not-utf8.yaml", "\u{0}", "not-utf8.yaml:", ""),
    (
        "kind.yaml",
        "apiVersion: v1\nkind: Servise\nmetadata: {name: a}\n",
        "kind.yaml:2:7",
        "did you mean \"Service\"?",
    ),
    ("scalar.yaml", "just text\n", "scalar.yaml:1:1", ""),
    (
        "name.yaml",
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: Under_score\nspec: {ports: [{port: 80}]}\n",
        "name.yaml:4:3",
        "metadata.name",
    ),
    (
        "port.yaml",
        "apiVersion: v1\nkind: Service\nmetadata: {name: b}\nspec:\n  ports:\n  - port: 0\n",
        "port.yaml:6:5",
        "must be between 1 and 65535",
    ),
    (
        "type.yaml",
        "apiVersion: v1\nkind: Service\nmetadata: {name: c}\nspec:\n  type: LoadBalanser\n  ports: [{port: 80}]\n",
        "type.yaml:5:3",
        "Unsupported value",
    ),
    (
        "number.yaml",
        "apiVersion: v1\nkind: Service\nmetadata: {name: d}\nspec:\n  ports:\n  - {port: \"80\"}\n",
        "number.yaml:6:6",
        "integer",
    ),
    (
        "annotation.yaml",
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: e\n  annotations:\n    seaway.dev/balanse: round-robin\nspec: {type: LoadBalancer, ports: [{port: 81}]}\n",
        "annotation.yaml:6:",
        "Did you mean seaway.dev/balance?",
    ),
    (
        "value.yaml",
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: f\n  annotations:\n    seaway.dev/drain: soon\nspec: {type: LoadBalancer, ports: [{port: 82}]}\n",
        "value.yaml:6:",
        "soon",
    ),
    (
        "range.yaml",
        "apiVersion: v1\nkind: Service\nmetadata: {name: g}\nspec:\n  type: LoadBalancer\n  loadBalancerSourceRanges: [10.0.0.0/33]\n  ports: [{port: 83}]\n",
        "range.yaml:6:30",
        "10.0.0.0/33",
    ),
    (
        "slice.yaml",
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: a-1, labels: {kubernetes.io/service-name: a}}\naddressType: IPv4\nendpoints:\n- addresses: [\"::1\"]\n",
        "slice.yaml:6:15",
        "valid IPv4 address",
    ),
    (
        "orphan.yaml",
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: a-2}\naddressType: IPv4\n",
        "orphan.yaml:3:",
        "kubernetes.io/service-name",
    ),
    (
        "pool.yaml",
        "apiVersion: seaway.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: p}\nspec:\n  addresses:\n  - 192.0.2.20-192.0.2.10\n",
        "pool.yaml:6:5",
        "192.0.2.20",
    ),
    (
        "class.yaml",
        "apiVersion: v1\nkind: Service\nmetadata: {name: h}\nspec:\n  loadBalancerClass: a.example/b\n  ports: [{port: 84}]\n",
        "class.yaml:5:",
        "may only be used when",
    ),
    (
        "nobody.yaml",
        "apiVersion: v1\nkind: Service\nmetadata: {name: i}\nspec:\n  type: LoadBalancer\n  selector: {app: i}\n  ports:\n  - port: 85\n",
        "nobody.yaml:8:5",
        "kind: EndpointSlice",
    ),
    (
        "second.yaml",
        "apiVersion: v1\nkind: Service\nmetadata: {name: j}\nspec: {ports: [{port: 86}]}\n---\napiVersion: v1\nkind: Service\nmetadata: {name: k}\nspec: {ports: [{port: 0}]}\n",
        "second.yaml:9:",
        "port",
    ),
    (
        "twice.yaml",
        "apiVersion: v1\nkind: Service\nmetadata: {name: j}\nspec: {ports: [{port: 86}]}\n",
        "twice.yaml:",
        "written twice",
    ),
    (
        "lost.yaml",
        "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: j-1, labels: {kubernetes.io/service-name: jj}}\naddressType: IPv4\nendpoints: [{addresses: [192.0.2.1]}]\nports: [{port: 1}]\n",
        "lost.yaml:3:",
        "there is no Service default/jj: its endpoints are not used",
    ),
    (
        "half.yaml",
        "apiVersion: v1\nkind: Service\nmetadata: {name: half}\nspec:\n  type: LoadBalancer\n  ports:\n  - {port: 87, name: http}\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: half-1, labels: {kubernetes.io/service-name: half}}\naddressType: IPv4\nendpoints: [{addresses: [192.0.2.1]}]\nports: [{name: http, port: 8080}]\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: half-2\n  labels: {kubernetes.io/service-name: half}\naddressType: IPv4\nendpoints: [{addresses: [192.0.2.2]}]\nports: [{name: htpp, port: 8080}]\n",
        "half.yaml:23:",
        "EndpointSlice half-2 has no port of this Service: its endpoints are not used",
    ),
    (
        "unnamed.yaml",
        "apiVersion: v1\nkind: Service\nmetadata: {name: unnamed}\nspec:\n  type: LoadBalancer\n  ports:\n  - {port: 89, name: http, targetPort: 8080}\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: unnamed-1, labels: {kubernetes.io/service-name: unnamed}}\naddressType: IPv4\nendpoints: [{addresses: [192.0.2.1]}]\nports: [{port: 8080}]\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: unnamed-2\n  labels: {kubernetes.io/service-name: unnamed}\naddressType: IPv4\nendpoints: [{addresses: [192.0.2.2]}]\nports: [{port: 9090}]\n",
        "unnamed.yaml:23:",
        "EndpointSlice unnamed-2 has no port of this Service: its endpoints are not used",
    ),
    (
        "weight.yaml",
        "apiVersion: v1\nkind: Service\nmetadata: {name: heavy}\nspec:\n  type: LoadBalancer\n  ports:\n  - {port: 88}\n---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: heavy-1\n  labels: {kubernetes.io/service-name: heavy}\n  annotations: {seaway.dev/wieght: \"2\"}\naddressType: IPv4\nendpoints: [{addresses: [192.0.2.1]}]\nports: [{port: 88}]\n",
        "weight.yaml:14:",
        "Did you mean seaway.dev/weight?",
    ),
    (
        "secret.yaml",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\ndata:\n  key: '%%%'\n",
        "secret.yaml:5:3",
        "",
    ),
];

#[test]
fn every_kind_of_mistake_is_told_with_its_place() {
    let folder = Folder::new();
    for (name, text, ..) in MISTAKES {
        folder.write(name, text);
    }
    std::fs::write(folder.manifests().join("not-utf8.yaml"), b"a: b\nc: \xff\n").expect("written");
    std::os::unix::fs::symlink("nowhere", folder.manifests().join("dangling.yaml")).expect("a link");
    let output = run(&["check", path(&folder.manifests())]);
    assert_eq!(output.status.code(), Some(1));
    let told = stdout(&output);
    let mut missing = Vec::new();
    for (_, _, place, words) in MISTAKES.iter().chain(&[("", "", "dangling.yaml", "")]) {
        // A Problem begins in the first column; what to do about it is below it, further in.
        let mut problems = told.split('\n').fold(Vec::<String>::new(), |mut all, line| {
            match all.last_mut() {
                Some(last) if line.starts_with(' ') => last.push_str(line),
                _ => all.push(line.to_owned()),
            }
            all
        });
        problems.retain(|it| it.contains(place) && it.contains(words));
        if problems.is_empty() {
            missing.push(format!("{place} … {words}"));
        }
    }
    assert!(missing.is_empty(), "not told: {missing:#?}\ntold:\n{told}");
}

#[test]
fn the_same_mistakes_do_not_keep_the_rest_from_being_served() {
    let backend = crate::backends::Backend::start("a");
    let good = crate::manifests::Service::tcp("good", 8080).to(backend.at);
    let mut setup = crate::harness::Setup::new().write("good.yaml", &good.text());
    for (name, text, ..) in MISTAKES.iter().filter(|it| it.0 != "pool.yaml") {
        setup = setup.write(name, text);
    }
    let seaway = setup.start();
    assert!(crate::backends::Talk::open(seaway.at(8080)).is_ok());
    let log = seaway.log();
    let once = |words: &str| log.lines().filter(|line| line.contains(words)).count();
    // What was wrong at the start is in the log, and once.
    assert_eq!((once("kind.yaml:2:7"), once("port.yaml:6:5")), (1, 1), "{log}");
}

#[test]
fn check_says_the_same_as_json() {
    let folder = Folder::new();
    folder.write(
        "port.yaml",
        "apiVersion: v1\nkind: Service\nmetadata: {name: b}\nspec:\n  ports:\n  - port: 0\n",
    );
    let output = run(&["check", path(&folder.manifests()), "-o", "json"]);
    assert_eq!(output.status.code(), Some(1));
    let told: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("it is JSON");
    let place = &told[0]["place"];
    assert_eq!((place["line"].as_u64(), place["column"].as_u64()), (Some(6), Some(5)), "{told}");
    assert!(place["file"].as_str().is_some_and(|it| it.ends_with("port.yaml")), "{told}");
}
