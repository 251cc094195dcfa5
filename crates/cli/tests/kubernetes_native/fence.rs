//! A write in the cloud is sent again only by who may write there still: one that waits for its next attempt may outlast that.

use std::process::Command;

use seaway_openstack::neutron::Port;
use seaway_testkit::{cloud::Fault, topology::until};
use serde_json::{Value, json};

use crate::{
    octavia::{Project, in_a_cloud},
    scene::*,
    witness::ApiClient,
};

/// That another has the Lease is noticed within a second.
const HASTY: &str = "{defaultDriver: octavia, admin: {listen: [\"127.0.0.1:0\"]}, lease: 3s}";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/seaway-controller";
const CREATE: &str = "POST */lbaas/loadbalancers";
/// Until the next attempt, in seconds: the lead changes meanwhile, and changes back.
const BUSY: &str = "20";
/// What the controller of a copy of this cluster writes at the port of a load balancer.
const OF_A_COPY: &str = "seaway.heartbeat.0therone.7";

/// A controller whose load balancer for the Service `next` a busy cloud did not create yet: it is about to ask again.
struct RefusedController {
    scene: Scene,
    project: Project,
    questions: ApiClient,
}

impl RefusedController {
    /// None where there is no Kubernetes.
    fn up() -> Option<RefusedController> {
        let (mut scene, project) = in_a_cloud()?;
        scene.configuration = HASTY;
        scene.lead("controller");
        scene.cluster.apply(&service("served", "selector: {app: shop}"));
        scene.until_served(&["served"]);
        project.fake.fail(Fault::on(CREATE).always().status(503).header("retry-after", BUSY));
        project.fake.forget_requests();
        scene.cluster.apply(&service("next", "selector: {app: shop}"));
        until("the cloud refuses it for now", || project.fake.count(CREATE) > 0);
        let questions = ApiClient::to(scene.cluster.kubeconfig());
        Some(RefusedController { scene, project, questions })
    }

    fn lease(&self, method: &str, body: Option<Value>) {
        self.questions.ask(method, LEASE, body).expect("there is a Lease");
    }

    /// Another holds its Lease, for longer than this test takes.
    fn depose(&self) {
        let spec = json!({ "holderIdentity": "another", "leaseDurationSeconds": 3_600 });
        self.lease("PATCH", Some(json!({ "spec": spec })));
        until("it is deposed", || self.log().contains("lost leadership: another process is the leader"));
    }

    /// Its Lease is nobody's: it leads again.
    fn reinstate(&self) {
        self.lease("DELETE", None);
        until("it leads again", || self.scene.leader().starts_with("controller"));
    }

    fn log(&self) -> String {
        self.scene.log("controller")
    }

    /// The call ends, and was sent once.
    #[track_caller]
    fn until_it_is_given_up(&self) {
        let page = format!("{}metrics", self.scene.page("controller"));
        until("it is not sent again", || {
            assert_eq!(self.project.fake.count(CREATE), 1, "it was sent again: {}", self.log());
            let metrics = Command::new("curl").args(["-sS", &page]).output().expect("curl").stdout;
            let given_up = r#"operation="create load balancer",outcome="fenced"} 1"#;
            String::from_utf8_lossy(&metrics).contains(given_up)
        });
    }

    /// The controller of a copy of this cluster is at work in the same cloud.
    fn copy(&self) {
        let port = self.project.balancers().remove(0).vip_port_id.expect("it has a port");
        let uid = self.scene.field("namespace/kube-system", "{.metadata.uid}");
        let tags = [format!("seaway.writer.{uid}"), OF_A_COPY.to_owned()].into();
        let ports = self.project.cloud.all::<Port>();
        self.project.runtime.block_on(ports.replace_tags(&port, &tags)).expect("is tagged");
    }

    fn writes(&self) -> Vec<String> {
        let all = self.project.fake.requests().into_iter();
        let writes = all.filter(|it| it.method != "GET" && !it.fits("POST */auth/tokens"));
        writes.map(|it| format!("{} {}", it.method, it.path)).collect()
    }
}

#[test]
fn a_write_that_a_busy_cloud_refused_is_not_sent_again_by_a_controller_that_was_deposed_meanwhile() {
    let Some(refused) = RefusedController::up() else { return };
    refused.depose();
    refused.until_it_is_given_up();
}

#[test]
fn a_controller_that_finds_a_copy_of_its_cluster_at_work_sends_nothing_again_and_writes_nothing_more() {
    let Some(refused) = RefusedController::up() else { return };
    refused.depose();
    refused.copy();
    refused.reinstate();
    until("it finds the copy", || refused.log().contains("another controller writes there in the name of"));
    refused.until_it_is_given_up();

    refused.project.fake.forget_requests();
    refused.scene.cluster.kubectl(&["delete", "service", "served", "--wait=false"]);
    refused.scene.cluster.apply(&service("last", "selector: {app: shop}"));
    let waits = |name: &str| {
        let told = format!("waiting unit=\"load balancer Service default/{name} on ");
        let log = refused.log();
        let mut lines = log.lines().filter(|it| it.contains(&told));
        lines.any(|it| it.contains("why=\"another controller writes in the name of this cluster"))
    };
    until("its work waits", || waits("served") && waits("last"));
    assert_eq!(refused.writes(), [""; 0]);
}
