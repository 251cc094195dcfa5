//! Services that OpenStack serves, in a cloud that scripts can break; its API is held against a real one elsewhere.

use std::{fs, process::Command};

use seaway_openstack::{
    Call, Class, Cloud, Credentials, Service, Settings, Source,
    neutron::{FloatingIp, Gateway, Network, NewNetwork, NewRouter, NewSubnet, Router, Subnet},
    octavia::{LoadBalancer, Member, Pool},
    resource::{Id, Query},
};
use seaway_testkit::{cloud as fake, topology::until};
use serde_json::json;
use tokio::runtime::Runtime;

use crate::scene::*;

/// A controller that stands still for seconds leads on, and no event of its is lost: who ends one ends its term, too.
pub(crate) const OCTAVIA: &str = "{defaultDriver: octavia, admin: {listen: [\"127.0.0.1:0\"]}, lease: 15s}";

/// The same, and Services may share load balancers that are somebody else's.
pub(crate) const JOINING: &str = "{defaultDriver: octavia, admin: {listen: [\"127.0.0.1:0\"]}, lease: 15s, \
                                  tenants: {joinLoadBalancers: any}}";

/// As the first, and orphans go.
pub(crate) const DELETING: &str = "{defaultDriver: octavia, admin: {listen: [\"127.0.0.1:0\"]}, lease: 15s, \
                                   cloud: {orphans: delete}}";

/// A project with a network that is led outside, and the file that names it.
pub(crate) struct Project {
    pub(crate) cloud: Cloud,
    pub(crate) runtime: Runtime,
    pub(crate) conf: tempfile::NamedTempFile,
    /// Where nodes are.
    pub(crate) subnet: Id<Subnet>,
    pub(crate) fake: fake::Cloud,
}

impl Project {
    pub(crate) fn begun() -> Project {
        let fake = fake::Cloud::start();
        let runtime = Runtime::new().expect("a runtime");
        let source = Source::Given(Credentials::password(&fake.auth_url(), "demo", "demopw", "demo"));
        let (cloud, subnet) = runtime.block_on(async {
            let cloud = Cloud::connect(source, Settings::default()).await.expect("signed in");
            let query = Query::all().with("router:external", true);
            let outside = cloud.all::<Network>().list::<Network>(query).await.expect("networks").remove(0).id;
            let new = NewNetwork { name: "nodes".into(), ..NewNetwork::new() };
            let network = cloud.all::<Network>().create(&new).await.expect("a network").id;
            let new = NewSubnet { cidr: Some("10.0.0.0/8".to_owned()).into(), ..NewSubnet::new(network, 4) };
            let subnet = cloud.all::<Subnet>().create(&new).await.expect("a subnet").id;
            let new = NewRouter {
                external_gateway_info: Some(Gateway::of_network(outside)).into(),
                ..NewRouter::new()
            };
            let router = cloud.all::<Router>().create(&new).await.expect("a router").id;
            let path = format!("/routers/{router}/add_router_interface");
            let call =
                Call::put(Service::Network, "add router interface", path, json!({ "subnet_id": subnet }));
            cloud.call(call).await.expect("plugged in");
            (cloud, subnet)
        });
        let conf = tempfile::NamedTempFile::new().expect("a file");
        let text = format!(
            "[Global]\nauth-url={}\nusername=demo\npassword=demopw\ntenant-name=demo\ndomain-id=default\n\
             [LoadBalancer]\nsubnet-id={subnet}\n[BlockStorage]\nbs-version=v3\n",
            fake.auth_url()
        );
        fs::write(conf.path(), text).expect("is written");
        Project { cloud, runtime, conf, subnet, fake }
    }

    /// Says something else in the file, from now on.
    pub(crate) fn reword(&self, said: &str, now: &str) {
        let text = fs::read_to_string(self.conf.path()).expect("is read");
        assert!(text.contains(said), "{said} is nowhere in\n{text}");
        fs::write(self.conf.path(), text.replace(said, now)).expect("is written");
    }

    pub(crate) fn balancers(&self) -> Vec<LoadBalancer> {
        self.runtime.block_on(self.cloud.all::<LoadBalancer>().list(Query::all())).expect("is listed")
    }

    pub(crate) fn floating(&self) -> Vec<FloatingIp> {
        self.runtime.block_on(self.cloud.all::<FloatingIp>().list(Query::all())).expect("is listed")
    }

    pub(crate) fn members(&self) -> Vec<Member> {
        self.runtime.block_on(async {
            let pools = self.cloud.all::<Pool>().list::<Pool>(Query::all()).await.expect("are listed");
            let mut all = Vec::new();
            for pool in pools {
                match self.cloud.within::<Member>(&pool.id).list::<Member>(Query::all()).await {
                    Ok(members) => all.extend(members),
                    // It went in the meantime.
                    Err(e) if e.class() == &Class::NotFound => {}
                    Err(e) => panic!("members are listed: {e}"),
                }
            }
            all
        })
    }
}

/// A cluster whose controllers are to work in a cloud, with Seaway's definitions and roles, and no Nodes yet. None where
/// there is no Kubernetes.
pub(crate) fn in_a_cloud() -> Option<(Scene, Project)> {
    let mut scene = Scene::bare()?;
    let project = Project::begun();
    scene.install();
    scene.configuration = OCTAVIA;
    scene.cloud = Some(project.conf.path().to_owned());
    Some((scene, project))
}

/// What would be done in the cloud now.
fn plan(scene: &Scene, project: &Project) -> String {
    let config = tempfile::Builder::new().suffix(".yaml").tempfile().expect("a file");
    fs::write(config.path(), scene.configuration).expect("is written");
    let mut command = Command::new(SEAWAY);
    command.args(["plan", "--cloud", "--cloud-config"]).arg(project.conf.path());
    command.arg("--kubeconfig").arg(scene.cluster.kubeconfig()).arg("--config").arg(config.path());
    let done = command.output().expect("it runs");
    let errors = String::from_utf8_lossy(&done.stderr).into_owned();
    // 1: something would be changed.
    assert!(matches!(done.status.code(), Some(0 | 1)), "{errors}");
    format!("{}{errors}", String::from_utf8_lossy(&done.stdout))
}

#[test]
fn a_service_gets_a_load_balancer_of_the_cloud_and_leaves_nothing_there() {
    let Some((mut scene, project)) = in_a_cloud() else { return };
    scene.nodes = vec![scene.cluster.node("a")];
    scene.cluster.apply(&deployment("shop", 1));
    scene.cluster.apply(&service("shop", "selector: {app: shop}"));
    let planned = plan(&scene, &project);
    let whole = "create load balancer kube_service_kubernetes_default_shop\n";
    assert!(planned.contains(whole) && planned.contains("associate a floating IP with the VIP"), "{planned}");
    assert_eq!(project.fake.count("POST */lbaas/*") + project.fake.count("POST */floatingips"), 0);
    scene.lead("controller");
    let at = scene.address("shop");
    scene.until_served(&["shop"]);
    assert!(plan(&scene, &project).starts_with("Nothing would be changed."), "{}", plan(&scene, &project));

    let made = project.balancers();
    assert_eq!(made.len(), 1);
    assert_eq!(made[0].name, "kube_service_kubernetes_default_shop");
    let uid = scene.field("namespace/kube-system", "{.metadata.uid}");
    assert!(made[0].tags.contains(&format!("seaway.dev/cluster={uid}")), "{:?}", made[0].tags);
    let floating = project.floating();
    assert_eq!(floating[0].floating_ip_address.map(|it| it.to_string()), Some(at));
    assert!(scene.field("addresses", "{.items}").is_empty() || scene.field("addresses", "{.items}") == "[]");
    let port = scene.field("service/shop", "{.spec.ports[0].nodePort}");
    let node = scene.field("node/a", "{.status.addresses[0].address}");
    let members: Vec<String> =
        project.members().iter().map(|it| format!("{}:{}", it.address, it.protocol_port)).collect();
    assert_eq!(members, [format!("{node}:{port}")]);

    let mut curl = Command::new("curl");
    let counted = curl.args(["-sS", &format!("{}metrics", scene.page("controller"))]).output().expect("curl");
    let metrics = String::from_utf8_lossy(&counted.stdout);
    let created = r#"{service="load-balancer",operation="create load balancer",outcome="ok"} 1"#;
    assert!(metrics.contains(&format!("seaway_openstack_calls_total{created}\n")), "{metrics}");

    // Whoever takes over finds all as it should be.
    project.fake.forget_requests();
    scene.end("controller");
    scene.lead("another");
    until("another leads", || scene.leader().starts_with("another"));
    until("it has looked", || project.fake.count("GET */lbaas/loadbalancers*") > 0);
    scene.cluster.apply(&service("next", "selector: {app: shop}"));
    scene.address("next");
    assert_eq!(project.fake.count("POST */lbaas/loadbalancers"), 1, "the next one's");
    assert_eq!(project.fake.count("PUT */lbaas/*"), 0);

    // Nobody hears that the first is to go: it waits for its load balancer.
    scene.end("another");
    scene.cluster.kubectl(&["delete", "service", "shop", "--wait=false"]);
    assert!(!scene.field("service/shop", "{.metadata.deletionTimestamp}").is_empty());
    scene.lead("third");
    until("it is gone", || scene.is_gone("service/shop"));
    assert_eq!(project.balancers().len(), 1, "and not before its load balancer");
    assert_eq!(project.balancers()[0].name, "kube_service_kubernetes_default_next");

    // Somebody takes the next one away by force.
    scene.end("third");
    let nobody = r#"{"metadata": {"finalizers": null}}"#;
    scene.cluster.kubectl(&["patch", "service", "next", "--type=merge", "-p", nobody]);
    scene.cluster.kubectl(&["delete", "service", "next"]);
    scene.configuration = DELETING;
    scene.lead("fourth");
    until("what it left behind is found", || project.balancers().is_empty() && project.floating().is_empty());
    let log = scene.log("fourth");
    assert!(log.contains("[BlockStorage] is not used here"), "{log}");
}

#[test]
fn without_a_way_into_the_cloud_a_service_stays_pending_and_says_so() {
    let Some((mut scene, project)) = in_a_cloud() else { return };
    project.reword("demopw", "wrong");
    scene.lead("controller");
    scene.cluster.apply(&service("shop", "selector: {app: shop}"));
    let problems = "{.status.conditions[?(@.type=='seaway.dev/Problems')].message}";
    until("it is told", || scene.field("service/shop", problems).contains("password"));
    assert!(scene.field("service/shop", "{.status.loadBalancer.ingress}").is_empty());
}
