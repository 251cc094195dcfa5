//! Services that OpenStack serves, in a cloud that scripts can break; its API is held against a real one elsewhere.

use std::fs;

use seaway_openstack::{
    Cloud, Credentials, Settings, Source,
    neutron::{FloatingIp, Gateway, Network, NewNetwork, NewRouter, NewSubnet, Router, Subnet},
    octavia::{LoadBalancer, Member, Pool},
    resource::Query,
};
use seaway_testkit::{cloud as fake, topology::until};
use tokio::runtime::Runtime;

use crate::scene::*;

const OCTAVIA: &str = "{defaultDriver: octavia, admin: {listen: [\"127.0.0.1:0\"]}, lease: 2s}";

/// A project with a network that is led outside, and the file that names it.
struct Project {
    cloud: Cloud,
    runtime: Runtime,
    conf: tempfile::NamedTempFile,
    fake: fake::Cloud,
}

impl Project {
    fn begun() -> Project {
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
            let new =
                NewRouter { external_gateway_info: Some(Gateway::to(outside)).into(), ..NewRouter::new() };
            let router = cloud.all::<Router>().create(&new).await.expect("a router").id;
            cloud.all::<Router>().add_interface(&router, &subnet).await.expect("plugged in");
            (cloud, subnet)
        });
        let conf = tempfile::NamedTempFile::new().expect("a file");
        let text = format!(
            "[Global]\nauth-url={}\nusername=demo\npassword=demopw\ntenant-name=demo\ndomain-id=default\n\
             [LoadBalancer]\nsubnet-id={subnet}\n[BlockStorage]\nbs-version=v3\n",
            fake.auth_url()
        );
        fs::write(conf.path(), text).expect("is written");
        Project { cloud, runtime, conf, fake }
    }

    fn balancers(&self) -> Vec<LoadBalancer> {
        self.runtime.block_on(self.cloud.all::<LoadBalancer>().list(Query::all())).expect("is listed")
    }

    fn floating(&self) -> Vec<FloatingIp> {
        self.runtime.block_on(self.cloud.all::<FloatingIp>().list(Query::all())).expect("is listed")
    }

    fn members(&self) -> Vec<Member> {
        self.runtime.block_on(async {
            let pools = self.cloud.all::<Pool>().list::<Pool>(Query::all()).await.expect("are listed");
            let mut all = Vec::new();
            for pool in pools {
                all.extend(
                    self.cloud
                        .within::<Member>(&pool.id)
                        .list::<Member>(Query::all())
                        .await
                        .expect("are listed"),
                );
            }
            all
        })
    }
}

#[test]
fn a_service_gets_a_load_balancer_of_the_cloud_and_leaves_nothing_there() {
    let Some(mut scene) = Scene::bare() else { return };
    let project = Project::begun();
    scene.nodes = vec![scene.cluster.node("a")];
    scene.install();
    scene.configuration = OCTAVIA;
    scene.cloud = Some(project.conf.path().to_owned());
    scene.lead("controller");
    scene.cluster.apply(&deployment("shop", 1));
    scene.cluster.apply(&service("shop", "selector: {app: shop}"));
    let at = scene.address("shop");

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

    // Whoever takes over finds all as it should be.
    project.fake.forget_requests();
    scene.kill("controller");
    scene.lead("another");
    until("another leads", || scene.leader().starts_with("another"));
    until("it has looked", || project.fake.count("GET */lbaas/loadbalancers*") > 0);
    scene.cluster.apply(&service("next", "selector: {app: shop}"));
    scene.address("next");
    assert_eq!(project.fake.count("POST */lbaas/loadbalancers"), 1, "the next one's");
    assert_eq!(project.fake.count("PUT */lbaas/*"), 0);

    // Nobody hears that the first is gone.
    scene.kill("another");
    scene.cluster.kubectl(&["delete", "service", "shop"]);
    scene.lead("third");
    until("what it left behind is found", || project.balancers().len() == 1);
    assert_eq!(project.balancers()[0].name, "kube_service_kubernetes_default_next");
    scene.cluster.kubectl(&["delete", "service", "next"]);
    until("nothing is left", || project.balancers().is_empty() && project.floating().is_empty());
    let log = scene.log("third");
    assert!(log.contains("[BlockStorage] is not used here"), "{log}");
}

#[test]
fn without_a_way_into_the_cloud_a_service_stays_pending_and_says_so() {
    let Some(mut scene) = Scene::bare() else { return };
    let project = Project::begun();
    scene.install();
    scene.configuration = OCTAVIA;
    let conf = fs::read_to_string(project.conf.path()).expect("is read");
    fs::write(project.conf.path(), conf.replace("demopw", "wrong")).expect("is written");
    scene.cloud = Some(project.conf.path().to_owned());
    scene.lead("controller");
    scene.cluster.apply(&service("shop", "selector: {app: shop}"));
    let problems = "{.status.conditions[?(@.type=='seaway.dev/Problems')].message}";
    until("it is told", || scene.field("service/shop", problems).contains("password"));
    assert!(scene.field("service/shop", "{.status.loadBalancer.ingress}").is_empty());
}
