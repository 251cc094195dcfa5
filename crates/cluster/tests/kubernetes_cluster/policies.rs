//! What roles cannot say, said by the policies of `deploy/kubernetes/components/policies`: on a real API server, with real tokens.

use std::{
    fs,
    path::{Path, PathBuf},
};

use k8s_openapi::api::{coordination::v1::Lease, core::v1::Service};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams},
    core::GroupVersionKind,
};
use seaway_cluster::{
    Cluster, ClusterAccess, CredentialSource, HostStatusWriter, LeaderElection, LeaseTimings, ProgramInfo,
};
use seaway_model::fact::HostStatus;
use seaway_testkit::kubernetes::client;
use serde_json::{Value, json};

use crate::scene::{PACE, Scene, eventually};

/// Of the manifests.
pub(crate) const POLICIES: &str = "components/policies/policies.yaml";

pub(crate) const SYSTEM: &str = "seaway-system";

pub(crate) fn manifest(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/kubernetes");
    fs::read_to_string(folder.join(name)).expect("is there")
}

/// With all that our manifests make; without Nodes no pod of it runs.
pub(crate) fn installed() -> Option<Scene> {
    let scene = Scene::alone()?;
    scene.cluster.define(seaway_cluster::crds::definitions());
    for name in [
        "base/roles.yaml",
        "base/controller.yaml",
        "openstack/binding.yaml",
        "components/hosts/node.yaml",
        POLICIES,
    ] {
        scene.apply(&manifest(name));
    }
    Some(scene)
}

/// A kubeconfig with a token of that account, bound to what is named, as a pod's is to its Node.
pub(crate) fn by_token(scene: &Scene, folder: &Path, account: &str, bound: &[&str]) -> PathBuf {
    let token = scene.kubectl(&[&["create", "token", account, "-n", SYSTEM], bound].concat());
    let good = fs::read_to_string(&scene.kubeconfig).expect("a kubeconfig");
    let is_of_user = |line: &&str| !line.trim_start().starts_with("client-");
    let without: String = good.lines().filter(is_of_user).map(|it| format!("{it}\n")).collect();
    let with = without.replace("  user:\n", &format!("  user:\n    token: {}\n", token.trim()));
    assert_ne!(with, without, "{without}");
    let path = folder.join(format!("{account}{}.yaml", bound.join("")));
    fs::write(&path, with).expect("is written");
    path
}

pub(crate) async fn connect(kubeconfig: &Path) -> Cluster {
    let credentials = CredentialSource::Kubeconfig { path: kubeconfig.to_owned(), context: None };
    let access =
        ClusterAccess { credentials, namespace: Some(SYSTEM.into()), pace: PACE, ..ClusterAccess::default() };
    Cluster::connect(access).await.expect("the kubeconfig is good")
}

fn hosts(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("seaway.dev", "v1alpha1", "LoadBalancerHost");
    Api::all_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, "loadbalancerhosts"))
}

fn host(name: &str) -> DynamicObject {
    let object =
        json!({"apiVersion": "seaway.dev/v1alpha1", "kind": "LoadBalancerHost", "metadata": {"name": name}});
    serde_json::from_value(object).expect("is an object")
}

fn lease(name: &str) -> Lease {
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": {"holderIdentity": "x"}}))
        .expect("is a Lease")
}

/// What the API server says to who may not.
#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(answer: Result<T, kube::Error>) -> String {
    match answer {
        Err(kube::Error::Api(status)) if status.code == 403 => status.message.clone(),
        other => panic!("it is not refused: {other:?}"),
    }
}

/// All that a host writes, of this name: each answer.
async fn write_all(client: &Client, name: &str) -> [Result<(), kube::Error>; 4] {
    let new = PostParams::default();
    let leases: Api<Lease> = Api::namespaced(client.clone(), SYSTEM);
    let status =
        json!({"apiVersion": "seaway.dev/v1alpha1", "kind": "LoadBalancerHost", "status": {"applied": "1"}});
    let mut renewed = lease(&format!("seaway-host-{name}"));
    renewed.metadata.resource_version = leases
        .get(renewed.metadata.name.as_deref().unwrap_or_default())
        .await
        .ok()
        .and_then(|it| it.metadata.resource_version);
    [
        hosts(client).create(&new, &host(name)).await.map(drop),
        hosts(client)
            .patch_status(name, &PatchParams::apply("test").force(), &Patch::Apply(&status))
            .await
            .map(drop),
        leases.create(&new, &lease(&format!("seaway-host-{name}"))).await.map(drop),
        leases.replace(&format!("seaway-host-{name}"), &new, &renewed).await.map(drop),
    ]
}

#[tokio::test]
async fn a_host_s_token_writes_what_is_that_host_s_alone() {
    let Some(scene) = installed() else { return };
    for node in ["a", "b"] {
        scene.apply(&format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {node}}}\n"));
    }
    let folder = tempfile::tempdir().expect("a folder");
    let admin = client(&scene.kubeconfig).await;
    let of_a = by_token(
        &scene,
        folder.path(),
        "seaway-node",
        &["--bound-object-kind=Node", "--bound-object-name=a"],
    );
    let a = client(&of_a).await;
    // A policy that was made just now counts a moment later.
    eventually("policies count", async || {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let answer = hosts(&a).create(&dry, &host("b")).await;
        answer.err().filter(|it| it.to_string().contains("may not write")).map(drop)
    })
    .await;

    // What is there already is refused as well.
    for name in ["b", "leader"] {
        hosts(&admin).create(&PostParams::default(), &host(name)).await.expect("an administrator may");
    }
    let leases: Api<Lease> = Api::namespaced(admin.clone(), SYSTEM);
    for name in ["seaway-host-b", seaway_cluster::LEADER] {
        leases.create(&PostParams::default(), &lease(name)).await.expect("an administrator may");
    }
    for answer in write_all(&a, "b").await {
        let why = refused(answer);
        assert!(why.contains("the host a may not write"), "{why}");
    }
    let theirs: Api<Lease> = Api::namespaced(a.clone(), SYSTEM);
    let mut leading = leases.get(seaway_cluster::LEADER).await.expect("is there");
    leading.spec.get_or_insert_default().holder_identity = Some("a".to_owned());
    let why = refused(theirs.replace(seaway_cluster::LEADER, &PostParams::default(), &leading).await);
    assert!(why.contains("may not write leases/seaway-controller"), "{why}");
    refused(hosts(&a).delete("b", &Default::default()).await);

    // Its own, as it writes them: made, changed, given back.
    let own = connect(&of_a).await;
    let life = LeaderElection::start_host_lease(&own, "a", LeaseTimings::HOST);
    life.leadership().changed_from(false).await;
    let reports = HostStatusWriter::start(&own, "a", ProgramInfo::default());
    reports.publish(HostStatus { applied: 7, ..HostStatus::default() });
    eventually("the host says how far it is", async || {
        let told = hosts(&admin).get("a").await.ok()?;
        (told.data["status"]["applied"] == "7").then_some(())
    })
    .await;
    life.resign().await;

    // A token of nobody's Node is nobody's.
    let nobody = client(&by_token(&scene, folder.path(), "seaway-node", &[])).await;
    for name in ["a", "b"] {
        for answer in write_all(&nobody, name).await {
            let why = refused(answer);
            assert!(why.contains("names no Node"), "{why}");
        }
    }

    // A host outside of the cluster is called as its user is.
    scene.kubectl(&["create", "clusterrolebinding", "edge-1", "--clusterrole=seaway-node", "--user=edge-1"]);
    scene.kubectl(&[
        "create",
        "rolebinding",
        "edge-1",
        "--clusterrole=seaway-leases",
        "--user=edge-1",
        "-n",
        SYSTEM,
    ]);
    let edge = client(&scene.cluster.kubeconfig_of("edge-1", &[])).await;
    eventually("its rights count", async || {
        hosts(&edge).create(&PostParams::default(), &host("edge-1")).await.ok()
    })
    .await;
    for answer in write_all(&edge, "a").await {
        let why = refused(answer);
        assert!(why.contains("the host edge-1 may not write"), "{why}");
    }
    let [_, status, made, renewed] = write_all(&edge, "edge-1").await;
    status.expect("its status is its own");
    made.expect("its Lease is its own");
    assert!(!matches!(renewed, Err(kube::Error::Api(status)) if status.code == 403));

    // Which addresses are its own, people say.
    let mut says = host("edge-1");
    says.data = json!({"spec": {"addresses": ["192.0.2.7"]}});
    let why = refused(hosts(&edge).create(&PostParams::default(), &says).await);
    assert!(why.contains("the host edge-1 may not write its spec"), "{why}");
    let declare = |ip: &str| Patch::Merge(json!({"spec": {"addresses": [ip]}}));
    let wrong = hosts(&admin).patch("edge-1", &PatchParams::default(), &declare("192.0.2")).await;
    assert!(wrong.is_err_and(|it| it.to_string().contains("must be an IP address")));
    hosts(&admin).patch("edge-1", &PatchParams::default(), &declare("192.0.2.7")).await.expect("people may");

    // People who may, may: kubectl seaway drain, and taking a host away.
    let drained = Patch::Merge(json!({"spec": {"drain": true}}));
    hosts(&admin).patch("b", &PatchParams::default(), &drained).await.expect("an administrator may");
    hosts(&admin).delete("b", &Default::default()).await.expect("an administrator may");
}

#[tokio::test]
async fn a_controller_s_token_changes_of_a_service_its_finalizer_and_one_annotation_alone() {
    let Some(scene) = installed() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let controller = client(&by_token(&scene, folder.path(), "seaway-controller", &[])).await;
    scene.apply_here(
        "apiVersion: v1\nkind: Service\nmetadata: {name: shop, labels: {a: b}, annotations: {theirs: x}, \
         finalizers: [example.com/theirs]}\nspec: {type: LoadBalancer, selector: {app: shop}, ports: [{port: 80}]}\n",
    );
    let services: Api<Service> = Api::namespaced(controller, &scene.namespace);
    let patch =
        async |body: Value| services.patch("shop", &PatchParams::default(), &Patch::Strategic(body)).await;
    let steal = || json!({"spec": {"selector": {"app": "evil"}}});
    eventually("policies count", async || {
        // What is changed before they do would be no change afterwards.
        let dry = PatchParams { dry_run: true, ..PatchParams::default() };
        let answer = services.patch("shop", &dry, &Patch::Strategic(steal())).await;
        answer.err().filter(|it| it.to_string().contains("its status, its finalizers")).map(drop)
    })
    .await;
    let common = "service.kubernetes.io/load-balancer-cleanup";
    let own = "seaway.dev/load-balancer-cleanup";
    let address = "loadbalancer.openstack.org/load-balancer-address";
    for (body, why) in [
        (steal(), "its status, its finalizers"),
        (json!({"spec": {"externalIPs": ["192.0.2.1"]}}), "its status, its finalizers"),
        (json!({"spec": {"type": "NodePort"}}), "its status, its finalizers"),
        (json!({"metadata": {"labels": {"a": "c"}}}), "its status, its finalizers"),
        (json!({"metadata": {"annotations": {"theirs": "y"}}}), "one annotation alone"),
        (json!({"metadata": {"annotations": {"theirs": null}}}), "one annotation alone"),
        (
            json!({"metadata": {"annotations": {"seaway.dev/source-ranges": "0.0.0.0/0"}}}),
            "one annotation alone",
        ),
        (json!({"metadata": {"finalizers": ["example.com/more"]}}), "two finalizers alone"),
        (
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/theirs"]}}),
            "two finalizers alone",
        ),
    ] {
        let told = refused(patch(body.clone()).await);
        assert!(told.contains(why), "{body}: {told}");
    }
    for body in [
        json!({"metadata": {"finalizers": [common]}}),
        json!({"metadata": {"finalizers": [own], "$deleteFromPrimitiveList/finalizers": [common]}}),
        json!({"metadata": {"annotations": {address: "192.0.2.7"}}}),
        json!({"metadata": {"annotations": {address: "192.0.2.8"}}}),
        json!({"metadata": {"annotations": {address: null}}}),
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": [common, own]}}),
        json!({"status": {"loadBalancer": {}}}),
    ] {
        patch(body.clone()).await.unwrap_or_else(|error| panic!("{body}: {error}"));
    }
    // The other way to the same object.
    for (body, why) in [
        (
            json!({"metadata": {"annotations": {"seaway.dev/source-ranges": "0.0.0.0/0"}}}),
            "one annotation alone",
        ),
        (json!({"metadata": {"finalizers": ["example.com/more"]}}), "two finalizers alone"),
        (json!({"metadata": {"labels": {"a": "c"}}}), "its status, its finalizers"),
        (
            json!({"metadata": {"ownerReferences": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "7e8c7d5e-3b6e-4c55-8f0a-0d7f1a2b3c4d"}
            ]}}),
            "its status, its finalizers",
        ),
    ] {
        let answer =
            services.patch_status("shop", &PatchParams::default(), &Patch::Merge(body.clone())).await;
        let told = refused(answer);
        assert!(told.contains(why), "{body}: {told}");
    }
    let body = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.9"}]}}});
    services
        .patch_status("shop", &PatchParams::default(), &Patch::Merge(body))
        .await
        .expect("its status is ours");

    // Others change it as before; and what is left of it goes.
    scene.here(&["label", "service", "shop", "a=c", "--overwrite"]);
    scene.here(&["patch", "service", "shop", "--type=merge", "-p", r#"{"metadata": {"finalizers": null}}"#]);
    scene.here(&["delete", "service", "shop"]);
}
