//! Finalizers of Services that a cloud serves, with a class and without one.

use std::collections::BTreeSet;

use seaway_cluster::{Cluster, FinalizerDriver};
use seaway_engine::{Context, Driver};
use seaway_model::{Desired, Kind, ObjectRef, Owner, Problem, Unit};
use seaway_testkit::conformance::passes;

use crate::{
    policies::{POLICIES, SYSTEM, by_token, connect, installed, manifest},
    scene::{Heard, Scene, eventually},
};

const COMMON: &str = "service.kubernetes.io/load-balancer-cleanup";
const OWN: &str = "seaway.dev/load-balancer-cleanup";
const CLASS: &str = "seaway.dev/octavia";

struct Held {
    scene: Scene,
    heard: Heard,
    driver: FinalizerDriver,
}

impl Held {
    async fn up(scene: Scene, cluster: Cluster) -> Held {
        let heard = Heard::of(&cluster);
        Held { scene, heard, driver: FinalizerDriver::new(cluster) }
    }

    fn make(&self, name: &str, class: Option<&str>) {
        let class = class.map(|it| format!("loadBalancerClass: {it}, ")).unwrap_or_default();
        self.scene.apply_here(&format!(
            "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\n\
             spec: {{type: LoadBalancer, {class}selector: {{app: a}}, ports: [{{port: 80}}]}}\n"
        ));
    }

    /// As a manager of fields.
    fn holds(&self, name: &str, manager: &str) {
        let body = format!(r#"{{"metadata": {{"finalizers": ["{COMMON}"]}}}}"#);
        let manager = format!("--field-manager={manager}");
        self.scene.here(&["patch", "service", name, &manager, "--type=merge", "-p", &body]);
    }

    async fn unit(&mut self, name: &str) -> Unit {
        let namespace = self.scene.namespace.clone();
        let version = self.field(name, ".metadata.resourceVersion");
        self.heard.until("the Service is told", |it| it.service(&namespace, name).is_some()).await;
        let object = ObjectRef::new(Kind::Service, namespace.as_str(), name);
        let unit =
            Unit::Finalizer(Owner::Object { object, uid: self.field(name, ".metadata.uid").as_str().into() });
        // What is written here is what the driver goes by.
        let seen = async |driver: &FinalizerDriver| {
            let observed =
                driver.observe(&Context::default(), &unit, &Desired::Finalizer).await.expect("is observed");
            format!("{observed:?}").contains(&format!("{version:?}")).then_some(())
        };
        let driver = &self.driver;
        eventually("the watch has told it", async || seen(driver).await).await;
        unit
    }

    /// How many steps it took, and what is wrong.
    async fn work(&mut self, name: &str, desired: &Desired) -> (usize, Vec<Problem>) {
        let unit = self.unit(name).await;
        let mut observed =
            self.driver.observe(&Context::default(), &unit, desired).await.expect("is observed");
        let steps = self.driver.steps(desired, &observed);
        for step in &steps {
            self.driver.apply(&Context::default(), &unit, step, &mut observed).await.expect("is written");
        }
        let told = self.driver.conclude(&unit, desired, &observed).problems;
        (steps.len(), told.into_iter().map(|(_, it)| it).collect())
    }

    fn field(&self, name: &str, path: &str) -> String {
        self.scene.here(&["get", "service", name, "-o", &format!("jsonpath={{{path}}}")])
    }

    #[track_caller]
    fn has(&self, name: &str, finalizers: &[&str]) {
        let told = self.field(name, ".metadata.finalizers[*]");
        let told: BTreeSet<&str> = told.split_whitespace().collect();
        assert_eq!(told, finalizers.iter().copied().collect(), "{name}");
    }
}

#[tokio::test]
async fn a_service_with_a_class_is_held_by_our_own_finalizer_which_no_other_controller_takes_away() {
    let Some(scene) = Scene::up("holds") else { return };
    let cluster = scene.connect().await;
    let mut held = Held::up(scene, cluster).await;
    for (name, class) in [("plain", None), ("classed", Some(CLASS))] {
        held.make(name, class);
        let unit = held.unit(name).await;
        passes(&held.driver, &unit, &[Desired::Finalizer, Desired::Absent]).await;
        held.has(name, &[]);
        assert_eq!(held.work(name, &Desired::Finalizer).await.0, 1);
        assert_eq!(held.work(name, &Desired::Finalizer).await.0, 0);
        held.has(name, &[if class.is_some() { OWN } else { COMMON }]);
    }
    // Of a version that knew the common one alone, and of another controller, which has something to take away by it.
    for (name, manager, finalizers) in [("old", "seaway", vec![OWN]), ("theirs", "occm", vec![COMMON, OWN])] {
        held.make(name, Some(CLASS));
        held.holds(name, manager);
        assert_eq!(held.work(name, &Desired::Finalizer).await.0, 1);
        held.has(name, &finalizers);
        assert_eq!(held.work(name, &Desired::Finalizer).await.0, 0);
    }
    // Where it is being deleted by then, the common one holds it as before: none can be added.
    held.make("going", Some(CLASS));
    held.holds("going", "seaway");
    held.scene.here(&["delete", "service", "going", "--wait=false"]);
    assert_eq!(held.work("going", &Desired::Finalizer).await, (0, Vec::new()));
    held.has("going", &[COMMON]);
    held.scene.here(&["delete", "service", "old", "--wait=false"]);
    held.has("old", &[OWN]);
    for name in ["going", "old"] {
        assert_eq!(held.work(name, &Desired::Absent).await, (1, Vec::new()));
        let left = held.scene.here(&["get", "service", name, "--ignore-not-found"]);
        assert_eq!(left, "", "{name}");
    }
    for name in ["plain", "classed", "theirs"] {
        assert_eq!(held.work(name, &Desired::Absent).await.0, 1);
        held.has(name, &[]);
    }
}

/// Policies are older than the controller: what they let be written is written.
#[tokio::test]
async fn a_policy_that_does_not_know_our_finalizer_lets_the_common_one_hold_a_service() {
    let Some(scene) = installed() else { return };
    let before = manifest(POLICIES).replace(&format!(", '{OWN}']"), "]");
    assert_ne!(before, manifest(POLICIES));
    scene.apply(&before);
    let folder = tempfile::tempdir().expect("a folder");
    let cluster = connect(&by_token(&scene, folder.path(), "seaway-controller", &[])).await;
    let mut held = Held::up(scene, cluster).await;
    eventually("the policy counts", async || {
        let name = "probe";
        held.make(name, Some(CLASS));
        let body = format!(r#"{{"metadata": {{"finalizers": ["{OWN}"]}}}}"#);
        let as_controller = format!("--as=system:serviceaccount:{SYSTEM}:seaway-controller");
        let patch =
            ["-n", "default", "patch", "service", name, "--dry-run=server", &as_controller, "-p", &body];
        held.scene.try_kubectl(&patch, "").err().filter(|it| it.contains("two finalizers")).map(drop)
    })
    .await;
    held.make("classed", Some(CLASS));
    let (steps, told) = held.work("classed", &Desired::Finalizer).await;
    assert_eq!((steps, told), (1, Vec::new()));
    held.has("classed", &[COMMON]);
}
