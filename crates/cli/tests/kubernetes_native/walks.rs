use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::TcpStream,
};

use seaway_testkit::topology::until;

use crate::scene::Scene;

/// As people write it (the walk of Kubernetes on OpenStack by Ansible).
const NGINX: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: nginx}
spec:
  replicas: 2
  selector: {matchLabels: {app: nginx}}
  template:
    metadata: {labels: {app: nginx}}
    spec:
      containers:
      - name: nginx
        image: nginx
        ports: [{containerPort: 80}]
        readinessProbe: {httpGet: {path: /, port: 80}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: nginx}
spec:
  type: LoadBalancer
  selector: {app: nginx}
  ports: [{name: http, port: 80, targetPort: 80}]
";

#[test]
fn a_service_gets_an_address_that_the_outside_reaches_and_gives_it_back() {
    let Some(scene) = Scene::up(2) else { return };
    // As people do it, not as tests save time.
    scene.cluster.kubectl_process(&["apply", "-f", "-"], NGINX).expect("is applied");
    let ip = scene.address("nginx");
    assert!(ip.starts_with("203.0.113."), "{ip}");
    assert_eq!(scene.field("service/nginx", "{.status.loadBalancer.ingress[0].ipMode}"), "Proxy");
    until("a pod answers outside", || {
        scene.outside.curl(&format!("http://{ip}/")).is_ok_and(|it| it.starts_with("nginx-"))
    });
    let listed = scene.cluster.kubectl(&["get", "services"]);
    assert!(listed.contains(&ip), "{listed}");
    let address = format!("address/{}", ip.replace('.', "-"));
    assert!(scene.field(&address, "{.spec.owners}").contains("nginx"));

    scene.cluster.kubectl_process(&["delete", "service", "nginx"], "").expect("is deleted");
    until("its address is free", || scene.is_gone(&address));
    for node in &scene.nodes {
        until("it is nowhere any more", || !node.namespace().ip(&["address", "show", "lo"]).contains(&ip));
    }
}

/// The TCP example of the old bank: a database that clients of TCP reach.
const MYSQL: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: mysql}
spec:
  replicas: 1
  selector: {matchLabels: {app: mysql}}
  template:
    metadata: {labels: {app: mysql}}
    spec:
      containers:
      - name: mysql
        image: mysql
        ports: [{containerPort: 3306}]
        readinessProbe: {tcpSocket: {port: 3306}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: mysql}
spec:
  type: LoadBalancer
  selector: {app: mysql}
  ports: [{name: mysql, port: 3306}]
";

#[test]
fn a_service_follows_its_pods_and_the_names_of_its_ports() {
    let Some(scene) = Scene::up(2) else { return };
    scene.cluster.apply(NGINX);
    let ip = scene.address("nginx");
    let answered = |url: &str| scene.outside.curl(url).unwrap_or_default();
    let url = format!("http://{ip}/");
    until("a pod answers", || answered(&url).starts_with("nginx-"));
    let answering = || -> BTreeSet<String> {
        let told = (0..12).map(|_| answered(&url).split_whitespace().next().unwrap_or_default().to_owned());
        told.collect()
    };
    scene.cluster.kubectl(&["scale", "deployment/nginx", "--replicas", "4"]);
    until("four pods answer", || answering().len() == 4);
    scene.cluster.kubectl(&["scale", "deployment/nginx", "--replicas", "1"]);
    until("one pod answers, and nothing else", || {
        let names = answering();
        names.len() == 1 && !names.contains("")
    });
    let renamed = r#"{"spec":{"ports":[{"name":"web","port":80,"targetPort":80},{"name":"other","port":8080,"targetPort":80}]}}"#;
    scene.cluster.kubectl(&["patch", "service", "nginx", "--type", "merge", "-p", renamed]);
    until("the new port answers", || answered(&format!("http://{ip}:8080/")).starts_with("nginx-"));
    // Each port has a pool of its own, and one of them gets its pods first.
    until("the old one still does", || answered(&url).starts_with("nginx-"));
    assert_eq!(scene.address("nginx"), ip);
}

#[test]
fn a_database_is_reached_by_tcp() {
    let Some(scene) = Scene::up(1) else { return };
    scene.cluster.apply(MYSQL);
    let at = format!("{}:3306", scene.address("mysql"));
    until("it answers", || {
        scene.outside.run(|| {
            let Ok(mut stream) = TcpStream::connect(&at) else { return false };
            let mut answer = [0; 1];
            stream.write_all(b"hello\n").is_ok() && matches!(stream.read(&mut answer), Ok(1))
        })
    });
}
