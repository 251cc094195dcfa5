//! `seaway openstack gc` and `purge`: what goes is this cluster's, and nothing else is another afterwards.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    fs,
    process::{Child, Command, Output, Stdio},
};

use seaway_openstack::{
    barbican::{Container, NewSecret, Secret},
    neutron::{
        FixedIp, FloatingIp, Network, NewFloatingIp, NewPort, NewSecurityGroup, Port, SecurityGroup, Subnet,
    },
    octavia::{
        Algorithm, HealthMonitor, Listener, LoadBalancer, NewListener, NewLoadBalancer, NewMember, NewPool,
        Pool, PoolProtocol, Protocol, Provisioning,
    },
    resource::{Edit, Id, Query},
};
use seaway_testkit::{
    cloud::{Fault, RequestHold},
    topology::until,
};

use crate::{
    hears::A_WHILE,
    octavia::{JOINING, Project, in_a_cloud},
    scene::*,
};

/// Another cluster's that is called as ours is.
const OTHER: &str = "5e1f0c9e-7a1b-4c62-9a39-6d9d3f5f2b11";

impl Project {
    /// Every object, as its API tells it.
    pub(crate) fn everything(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        let mut note = |id: &str, it: &dyn Debug| all.insert(id.to_owned(), format!("{it:?}"));
        self.runtime.block_on(async {
            macro_rules! each {
                ($($kind:ty),+) => {$(
                    for it in self.cloud.all::<$kind>().list::<$kind>(Query::all()).await.expect("is listed") {
                        note(it.id.as_str(), &it);
                    }
                )+};
            }
            each!(LoadBalancer, Listener, Pool, HealthMonitor, FloatingIp, SecurityGroup, Secret, Container);
            for port in self.cloud.all::<Port>().list::<Port>(Query::all()).await.expect("is listed") {
                // Each write counts there, also one that was taken back.
                let id = port.id.to_string();
                note(&id, &Port { revision_number: None, updated_at: None, ..port });
            }
        });
        for it in self.members() {
            note(it.id.as_str(), &it);
        }
        all
    }

    /// Somebody else's, with all that belongs to one.
    pub(crate) fn foreign(&self, name: &str, tags: &[&str], member: (&str, u16)) -> LoadBalancer {
        let member = NewMember::new(member.0.parse::<std::net::IpAddr>().expect("an address"), member.1);
        let pool = NewPool {
            name: name.into(),
            members: Edit::To(vec![member]),
            ..NewPool::new(PoolProtocol::Http, Algorithm::RoundRobin)
        };
        let listener =
            NewListener { default_pool: Edit::To(pool), ..NewListener::new(Protocol::Http, 80_u16) };
        let new = NewLoadBalancer {
            name: name.into(),
            tags: tags.iter().map(|it| (*it).to_owned()).collect::<BTreeSet<_>>().into(),
            vip_subnet_id: Some(self.subnet.clone()).into(),
            provider: Some("amphora".to_owned()).into(),
            listeners: Edit::To(vec![listener]),
            ..NewLoadBalancer::new()
        };
        self.runtime.block_on(async {
            let all = self.cloud.all::<LoadBalancer>();
            let made = all.create(&new).await.expect("is made");
            all.until_ready(&made.id, A_WHILE).await.expect("becomes ready")
        })
    }

    /// What a Service `shop` of another cluster of our name has.
    fn of_another_cluster(&self) {
        let mark = format!("[seaway.dev/cluster={OTHER} seaway.dev/key=other]");
        let tags = [&*format!("seaway.dev/cluster={OTHER}"), "seaway.dev/key=other", SHOP];
        let theirs = self.foreign(SHOP, &tags, ("10.0.0.9", 31_080));
        self.runtime.block_on(async {
            let query = Query::all().with("router:external", true);
            let outside =
                self.cloud.all::<Network>().list::<Network>(query).await.expect("networks").remove(0);
            let new = NewFloatingIp {
                port_id: Edit::To(theirs.vip_port_id.clone()),
                description: format!("Floating IP {mark}").into(),
                ..NewFloatingIp::new(outside.id)
            };
            self.cloud.all::<FloatingIp>().create(&new).await.expect("is made");
            let new = NewSecurityGroup {
                name: "lb-sg-kubernetes-seaway.dev/octavia".into(),
                description: format!("Security Group {mark}").into(),
                ..NewSecurityGroup::new()
            };
            self.cloud.all::<SecurityGroup>().create(&new).await.expect("is made");
            let name = format!("seaway.dev/cluster={OTHER} seaway.dev/key=other key").into();
            let new = NewSecret { name, ..NewSecret::new() };
            self.cloud.all::<Secret>().create(&new).await.expect("is made");
        });
    }

    pub(crate) fn port_of(&self, node: &str, address: &str) {
        self.runtime.block_on(async {
            let subnet = self.cloud.all::<Subnet>().read::<Subnet>(&self.subnet).await.expect("is there");
            let at = FixedIp {
                ip_address: Some(address.parse().expect("an address")),
                ..FixedIp::on(self.subnet.clone())
            };
            let new =
                NewPort { name: node.into(), fixed_ips: vec![at].into(), ..NewPort::new(subnet.network_id) };
            self.cloud.all::<Port>().create(&new).await.expect("is made");
        });
    }

    fn writes(&self) -> usize {
        let all = self.fake.requests();
        all.iter().filter(|it| it.method != "GET" && !it.fits("POST */auth/tokens")).count()
    }

    fn listening(&self) -> Vec<u16> {
        let all = self.runtime.block_on(self.cloud.all::<Listener>().list::<Listener>(Query::all()));
        let mut ports: Vec<u16> =
            all.expect("is listed").iter().map(|it| it.protocol_port).filter(|it| *it != 80).collect();
        ports.sort_unstable();
        ports
    }
}

const SHOP: &str = "kube_service_kubernetes_default_shop";

/// `seaway openstack …` of this cluster.
pub(crate) struct Seaway<'s>(pub(crate) &'s Scene, pub(crate) &'s Project);

impl Seaway<'_> {
    fn command(&self, words: &str) -> Command {
        let mut command = Command::new(SEAWAY);
        command.arg("openstack").args(words.split(' '));
        command.args(["--system-namespace", "default", "--cloud-conf"]).arg(self.1.conf.path());
        command.arg("--kubeconfig").arg(self.0.cluster.kubeconfig());
        command
    }

    /// What it prints: rows of things, and lines for people.
    fn try_run(&self, words: &str) -> (bool, String, String) {
        let Output { status, stdout, stderr } = self.command(words).output().expect("seaway runs");
        let text = |it: Vec<u8>| String::from_utf8_lossy(&it).into_owned();
        (status.success(), text(stdout), text(stderr))
    }

    pub(crate) fn run(&self, words: &str) -> (String, String) {
        let (success, told, noted) = self.try_run(words);
        assert!(success, "{words}: {told}{noted}");
        (told, noted)
    }

    fn start(&self, words: &str) -> Child {
        let mut command = self.command(words);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("seaway runs")
    }
}

fn listed(told: &str) -> Vec<&str> {
    let mut all: Vec<&str> =
        told.lines().skip(1).map(|line| line.split("  ").next().unwrap_or_default()).collect();
    all.sort_unstable();
    all
}

/// On this port, with these annotations.
pub(crate) fn serve(scene: &Scene, name: &str, port: u16, annotations: &str) {
    scene.cluster.apply(&format!(
        "
apiVersion: v1
kind: Service
metadata: {{name: {name}, annotations: {{{annotations}}}}}
spec: {{type: LoadBalancer, ports: [{{port: {port}}}], selector: {{app: shop}}}}
"
    ));
}

pub(crate) fn named(id: &Id<LoadBalancer>) -> String {
    format!("loadbalancer.openstack.org/load-balancer-id: {id}")
}

/// Nobody has time to see to it.
fn delete_by_force(scene: &Scene, name: &str) {
    let nobody = r#"{"metadata": {"finalizers": null}}"#;
    scene.cluster.kubectl(&["patch", "service", name, "--type=merge", "-p", nobody]);
    scene.cluster.kubectl(&["delete", "service", name]);
}

fn keep_certificate(scene: &Scene, name: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let made = rcgen::generate_simple_self_signed(vec!["shop.example".to_owned()]).expect("is made");
    let [chain, key] = ["chain", "key"].map(|it| folder.path().join(it));
    fs::write(&chain, made.cert.pem()).expect("is written");
    fs::write(&key, made.signing_key.serialize_pem()).expect("is written");
    let [chain, key] = [("cert", chain), ("key", key)].map(|(it, at)| format!("--{it}={}", at.display()));
    scene.cluster.kubectl(&["create", "secret", "tls", name, &chain, &key]);
}

#[test]
fn gc_removes_what_services_left_and_a_purge_all_of_the_cluster_and_nothing_else() {
    let Some((mut scene, project)) = in_a_cloud() else { return };
    project.reword("[BlockStorage]", "manage-security-groups=true\nmax-shared-lb=4\n[BlockStorage]");
    scene.nodes = vec![scene.cluster.node("a")];
    project.port_of("a", &scene.field("node/a", "{.status.addresses[0].address}"));
    let api = project.foreign("k8sclusterv1-x-api_pool", &[], ("10.0.0.5", 8080));
    project.foreign("k8sclusterv1-x-etcd_pool", &[], ("10.0.0.5", 2379));
    project.of_another_cluster();
    let theirs = project.everything();

    scene.cluster.apply(&deployment("shop", 1));
    keep_certificate(&scene, "shop-tls");
    scene.configuration = JOINING;
    scene.lead("controller");
    serve(&scene, "shop", 443, "seaway.dev/tls: shop-tls");
    serve(&scene, "gone", 1443, "");
    scene.until_served(&["shop", "gone"]);
    let all = project.balancers();
    let uid = scene.field("service/shop", "{.metadata.uid}");
    let shop = all.iter().find(|it| it.tags.contains(&format!("seaway.dev/key={uid}"))).expect("it is there");
    serve(&scene, "aside", 8080, &named(&shop.id));
    serve(&scene, "lost", 9090, &named(&shop.id));
    serve(&scene, "lodger", 7070, &named(&api.id));
    scene.until_served(&["aside", "lost", "lodger"]);
    assert_eq!(project.listening(), [443, 1443, 7070, 8080, 9090]);
    let all = project.everything();
    let kept = |it: &&String| it.starts_with("Container") || it.starts_with("Secret") && !it.contains(OTHER);
    assert!(all.values().filter(kept).count() >= 2, "its certificate is there: {all:#?}");
    assert!(all.values().any(|it| it.contains("k8sclusterv1-x-api_pool") && it.contains("guests-of")));

    // Two are deleted while nobody leads.
    let settled = || project.balancers().iter().all(|it| it.provisioning_status == Provisioning::Active);
    until("the last write is done", settled);
    scene.end("controller");
    delete_by_force(&scene, "gone");
    delete_by_force(&scene, "lost");
    let before = project.everything();
    let seaway = Seaway(&scene, &project);
    project.fake.forget_requests();
    let (told, noted) = seaway.run("gc");
    assert_eq!(
        listed(&told),
        ["floating IP", "load balancer", "part of shared load balancer"],
        "{told}{noted}"
    );
    assert!(told.contains("kube_service_kubernetes_default_gone") && noted.contains("--delete"), "{noted}");
    assert_eq!((project.writes(), &project.everything()), (0, &before));
    seaway.run("gc --delete");
    assert_eq!(project.listening(), [443, 7070, 8080], "of what is there still");
    let after = project.everything();
    let went: Vec<&String> = before.keys().filter(|id| !after.contains_key(*id)).collect();
    let is_gones = |it: &str| {
        let of = ["default_gone", "default_lost", "default/gone"].iter().any(|of| it.contains(of));
        of || it.starts_with("Member") || it.starts_with("Port")
    };
    assert!(
        went.iter().all(|id| is_gones(&before[*id])),
        "{:#?}",
        went.iter().map(|id| &before[*id]).collect::<Vec<_>>()
    );
    assert!(!after.values().any(|it| it.contains("default_gone") || it.contains("default_lost")));
    assert!(seaway.run("gc --delete").1.contains("nothing to remove"));

    // Who leads would make it again.
    scene.lead("another");
    until("another leads", || scene.leader().starts_with("another"));
    let seaway = Seaway(&scene, &project);
    project.fake.forget_requests();
    let (done, _, why) = seaway.try_run("purge --yes");
    assert!(!done && why.contains("another is the leader in this cluster"), "{why}");
    // The controller that leads takes back what Nodes let in for Services that are gone.
    let mut deleted = project.fake.requests();
    deleted.retain(|it| it.method == "DELETE" && !it.path.contains("/security-group-rules/"));
    assert!(deleted.is_empty(), "{deleted:?}");
    scene.end("another");
    let seaway = Seaway(&scene, &project);
    project.fake.forget_requests();
    let (told, noted) = seaway.run("purge");
    let mut things = vec!["container", "floating IP", "load balancer", "part of shared load balancer"];
    things.extend(["secret"; 2]);
    things.push("security group");
    assert_eq!(listed(&told), things, "{told}");
    assert!(noted.contains("--yes"), "{noted}");
    assert_eq!(project.writes(), 0);

    // It is killed in the middle, and may be run again.
    let hold = RequestHold::new();
    project.fake.fail(Fault::on("DELETE */floatingips/*").hold(&hold));
    let mut purge = seaway.start("purge --yes");
    assert!(hold.reached_within(1, A_WHILE), "it comes to that");
    purge.kill().expect("it runs");
    purge.wait().expect("it is a child");
    hold.release();
    let (_, noted) = seaway.run("purge --yes");
    assert!(!noted.contains("not removed"), "{noted}");
    until("the last write is done", settled);
    let left = project.everything();
    for (id, it) in &theirs {
        assert_eq!(left.get(id), Some(it), "it is somebody else's");
    }
    assert_eq!(left.len(), theirs.len(), "{left:#?}");
    assert!(seaway.run("purge --yes").1.contains("nothing to remove"));
}
