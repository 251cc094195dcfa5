//! Names of Services as DNSEndpoint objects, on a real API server.

use std::{collections::BTreeSet, path::Path, sync::Arc, time::Duration};

use seaway_cluster::{Cluster, ClusterAccess, CredentialSource, DnsEndpoints, WatchTimings};
use seaway_drivers::dns::DnsNames;
use seaway_engine::{Context, Driver, Failure};
use seaway_model::{
    Desired, Kind, Name, ObjectRef, Owner, Unit,
    dns::{DnsName, DnsProvider, DnsZone},
};
use seaway_testkit::{conformance, facts::ip, kubernetes, topology::until};

const WWW: &str = "www.shop.example";

/// As external-dns defines it, as far as an object of ours has it.
const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: dnsendpoints.externaldns.k8s.io
  annotations: {api-approved.kubernetes.io: 'https://github.com/kubernetes-sigs/external-dns/pull/2007'}
spec:
  group: externaldns.k8s.io
  scope: Namespaced
  names: {kind: DNSEndpoint, listKind: DNSEndpointList, plural: dnsendpoints, singular: dnsendpoint}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              endpoints:
                type: array
                items:
                  type: object
                  required: [dnsName, recordType]
                  properties:
                    dnsName: {type: string}
                    recordType: {type: string, enum: [A, AAAA, CNAME, TXT]}
                    recordTTL: {type: integer, format: int64, minimum: 0}
                    setIdentifier: {type: string}
                    targets: {type: array, items: {type: string}}
                    labels: {type: object, additionalProperties: {type: string}}
          status: {type: object, properties: {observedGeneration: {type: integer, format: int64}}}
";

struct Scene {
    cluster: kubernetes::Cluster,
}

impl Scene {
    fn new() -> Option<Scene> {
        let scene = Scene { cluster: kubernetes::Cluster::up(&kubernetes::Options::default())? };
        scene.cluster.define(DEFINITION);
        for name in ["shop", "blog"] {
            scene.service(name);
        }
        Some(scene)
    }

    fn service(&self, name: &str) {
        let spec = "{type: ClusterIP, ports: [{port: 80}]}";
        let text = format!("apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {spec}\n");
        self.cluster.apply(&text);
    }

    async fn driver(&self) -> DnsNames {
        driver(self.cluster.kubeconfig()).await
    }

    /// Of this Service, as it is now.
    fn name(&self, name: &str, service: &str, addresses: &[&str]) -> DnsName {
        let uid = self.get("service", service, "{.metadata.uid}");
        let zone = DnsZone {
            name: "shop.example".into(),
            by: DnsProvider::Endpoints,
            ttl: 60,
            namespaces: Vec::new(),
        };
        DnsName {
            name: name.into(),
            zone: Arc::new(zone),
            installation: "prod".into(),
            host: None,
            owner: Owner::Object {
                object: ObjectRef::new(Kind::Service, "default", service),
                uid: uid.as_str().into(),
            },
            ttl: 60,
            addresses: addresses.iter().map(|it| it.parse().expect("an address")).collect(),
            keeps: ["192.0.2.1", "192.0.2.2"].map(ip).into(),
            withdraws: false,
            rivals: BTreeSet::new(),
        }
    }

    fn wanted(&self, name: &str, service: &str, addresses: &[&str]) -> Desired {
        Desired::DnsName(Arc::new(self.name(name, service, addresses)))
    }

    fn get(&self, kind: &str, name: &str, path: &str) -> String {
        let path = format!("jsonpath={path}");
        self.cluster.kubectl(&["get", kind, name, "--ignore-not-found", "-o", &path])
    }

    /// `name type targets` of all that a Service's object says.
    fn says(&self, service: &str) -> Vec<String> {
        let path = "{range .spec.endpoints[*]}{.dnsName} {.recordType} {.recordTTL} {.targets}{\"\\n\"}{end}";
        let mut all: Vec<String> = self
            .get("dnsendpoint", &format!("seaway-{service}"), path)
            .lines()
            .map(|it| it.replace(['[', ']', '"'], "").replace(',', " "))
            .collect();
        all.sort();
        all
    }
}

async fn driver(kubeconfig: &Path) -> DnsNames {
    let credentials = CredentialSource::Kubeconfig { path: kubeconfig.to_owned(), context: None };
    let pace = WatchTimings { answer: Duration::from_secs(10), ..WatchTimings::default() };
    let access = ClusterAccess { credentials, pace, ..ClusterAccess::default() };
    let cluster = Cluster::connect(access).await.expect("the kubeconfig is good");
    DnsNames::default().with_endpoints(DnsEndpoints::new(cluster))
}

fn unit(name: &str) -> Unit {
    Unit::DnsName(name.into())
}

/// Works on it once, as the engine does.
async fn work(driver: &DnsNames, name: &str, desired: &Desired) -> Result<Vec<String>, Failure> {
    let unit = unit(name);
    let mut observed = driver.observe(&Context::default(), &unit, desired).await?;
    let steps = driver.steps(desired, &observed);
    for step in &steps {
        driver.apply(&Context::default(), &unit, step, &mut observed).await?;
    }
    assert_eq!(driver.conclude(&unit, desired, &observed).problems, []);
    Ok(steps.iter().map(ToString::to_string).collect())
}

async fn done(driver: &DnsNames, name: &str, desired: &Desired) {
    work(driver, name, desired).await.expect("it works");
}

fn told(result: Result<Vec<String>, Failure>) -> (String, String) {
    match result.expect_err("it fails") {
        Failure::Retry { problems, .. } => (problems[0].1.message.clone(), problems[0].1.fix.to_string()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_converge_in_an_object_for_each_service() {
    let Some(scene) = Scene::new() else { return };
    let wanted = [
        scene.wanted(WWW, "shop", &["192.0.2.1", "2001:db8::1"]),
        scene.wanted(WWW, "shop", &["192.0.2.2", "192.0.2.1"]),
        scene.wanted(WWW, "shop", &[]),
        scene.wanted(WWW, "blog", &["192.0.2.7"]),
    ];
    conformance::passes(&scene.driver().await, &unit(WWW), &wanted).await;
    assert_eq!(scene.cluster.kubectl(&["get", "dnsendpoints", "-A", "-o", "name"]), "");

    let driver = scene.driver().await;
    done(&driver, WWW, &wanted[0]).await;
    let object = |path: &str| scene.get("dnsendpoint", "seaway-shop", path);
    assert_eq!(
        object("{.metadata.labels}").replace(' ', ""),
        "{\"app.kubernetes.io/managed-by\":\"seaway\",\"seaway.dev/dns-owner\":\"prod\"}"
    );
    assert_eq!(object("{.metadata.ownerReferences[0].uid}"), scene.get("service", "shop", "{.metadata.uid}"));
    assert_eq!(
        scene.says("shop"),
        ["www.shop.example A 60 192.0.2.1", "www.shop.example AAAA 60 2001:db8::1"]
    );
    // Ten names at once are one object, and each goes by itself.
    let names: Vec<String> = (0..10).map(|it| format!("n{it}.shop.example")).collect();
    let driver = Arc::new(driver);
    let mut tasks = tokio::task::JoinSet::new();
    for name in names.clone() {
        let (driver, desired) = (driver.clone(), scene.wanted(&name, "shop", &["192.0.2.1"]));
        tasks.spawn(async move {
            while let Err(failure) = work(&driver, &name, &desired).await {
                assert!(matches!(failure, Failure::Retry { .. }), "{failure:?}");
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("no panic");
    }
    assert_eq!(scene.says("shop").len(), 12);
    for name in &names {
        done(&driver, name, &Desired::Absent).await;
    }
    assert_eq!(scene.says("shop").len(), 2);
    // Another process that leads finds all as it is, and writes nothing.
    let next = scene.driver().await;
    assert_eq!(work(&next, WWW, &wanted[0]).await.expect("it works"), [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_others_are_never_touched_and_what_others_wrote_into_ours_is_corrected() {
    let Some(scene) = Scene::new() else { return };
    let theirs = "
apiVersion: externaldns.k8s.io/v1alpha1
kind: DNSEndpoint
metadata: {name: seaway-shop}
spec: {endpoints: [{dnsName: www.shop.example, recordType: A, targets: [203.0.113.9]}]}
";
    scene.cluster.apply(theirs);
    let driver = scene.driver().await;
    let wanted = scene.wanted(WWW, "shop", &["192.0.2.1"]);
    let (message, _) = told(work(&driver, WWW, &wanted).await);
    assert!(message.contains("a DNSEndpoint default/seaway-shop that Seaway did not make"), "{message}");
    done(&driver, WWW, &Desired::Absent).await;
    assert_eq!(scene.get("dnsendpoint", "seaway-shop", "{.spec.endpoints[0].targets[0]}"), "203.0.113.9");
    // Nor is one of another installation in this cluster.
    let labels = ["app.kubernetes.io/managed-by=seaway", "seaway.dev/dns-owner=test"];
    scene.cluster.kubectl(&[&["label", "dnsendpoint", "seaway-shop"], &labels[..]].concat());
    told(work(&driver, WWW, &wanted).await);
    assert_eq!(scene.get("dnsendpoint", "seaway-shop", "{.spec.endpoints[0].targets[0]}"), "203.0.113.9");

    scene.cluster.kubectl(&["delete", "dnsendpoint", "seaway-shop"]);
    done(&driver, WWW, &wanted).await;
    let patch = "[{\"op\": \"replace\", \"path\": \"/spec/endpoints/0/targets\", \"value\": [\"203.0.113.9\"]}, \
                 {\"op\": \"add\", \"path\": \"/metadata/annotations\", \"value\": {\"a\": \"b\"}}]";
    scene.cluster.kubectl(&["patch", "dnsendpoint", "seaway-shop", "--type=json", "-p", patch]);
    // One who did not see that finds out before it writes.
    let changed = scene.wanted(WWW, "shop", &["192.0.2.2"]);
    let late = work(&driver, WWW, &changed).await;
    assert!(matches!(late, Err(Failure::Retry { .. })), "{late:?}");
    done(&driver, WWW, &changed).await;
    assert_eq!(scene.says("shop"), ["www.shop.example A 60 192.0.2.2"]);
    assert_eq!(scene.get("dnsendpoint", "seaway-shop", "{.metadata.annotations.a}"), "b");

    // A rival that has it keeps it, also for a process that was just started.
    let rival = DnsName { rivals: ["default/shop".into()].into(), ..scene.name(WWW, "blog", &["192.0.2.7"]) };
    let (next, rival) = (scene.driver().await, Desired::DnsName(Arc::new(rival)));
    let observed = next.observe(&Context::default(), &unit(WWW), &rival).await.expect("it works");
    assert!(next.steps(&rival, &observed).is_empty());
    assert_eq!(next.conclude(&unit(WWW), &rival, &observed).pending, Some(Name::from("default/shop")));
    // Once that one gives it up, its object goes.
    done(&next, WWW, &scene.wanted(WWW, "blog", &["192.0.2.7"])).await;
    assert_eq!(scene.says("blog"), ["www.shop.example A 60 192.0.2.7"]);
    assert_eq!(scene.get("dnsendpoint", "seaway-shop", "{.metadata.name}"), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_definition_and_a_missing_role_are_told_and_the_role_of_the_manifests_is_enough() {
    let Some(cluster) = kubernetes::Cluster::up(&kubernetes::Options::default()) else { return };
    let scene = Scene { cluster };
    scene.service("shop");
    let wanted = scene.wanted(WWW, "shop", &["192.0.2.1"]);
    let (message, fix) = told(work(&scene.driver().await, WWW, &wanted).await);
    assert!(message.contains("does not have DNSEndpoint"), "{message}");
    assert!(fix.starts_with("Install external-dns"), "{fix}");

    scene.cluster.define(DEFINITION);
    let kubeconfig = scene.cluster.kubeconfig_of("writer", &[]);
    let (message, fix) = told(work(&driver(&kubeconfig).await, WWW, &wanted).await);
    assert!(message.contains("cannot list resource \"dnsendpoints\""), "{message}");
    assert!(fix.contains("components/dns-endpoints"), "{fix}");

    let component = include_str!("../../../deploy/kubernetes/components/dns-endpoints/dns-endpoints.yaml");
    let (role, _) = component.split_once("\n---\n").expect("a role and its binding");
    scene.cluster.apply(role);
    scene.cluster.kubectl(&[
        "create",
        "clusterrolebinding",
        "writer",
        "--clusterrole=seaway-dns-endpoints",
        "--user=writer",
    ]);
    until("it may", || {
        let may = ["auth", "can-i", "delete", "dnsendpoints.externaldns.k8s.io", "--as", "writer"];
        scene.cluster.try_kubectl(&may, "").is_ok_and(|it| it.trim() == "yes")
    });
    let driver = driver(&kubeconfig).await;
    done(&driver, WWW, &wanted).await;
    done(&driver, WWW, &scene.wanted(WWW, "shop", &["192.0.2.2"])).await;
    done(&driver, WWW, &Desired::Absent).await;
    assert_eq!(scene.get("dnsendpoint", "seaway-shop", "{.metadata.name}"), "");
}
