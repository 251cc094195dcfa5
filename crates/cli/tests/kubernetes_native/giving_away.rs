//! A Service with a class, given to another controller by `kubectl seaway release`: nothing of it is lost on the way.

use std::collections::BTreeSet;

use seaway_openstack::{neutron::SecurityGroup, resource::Query};
use seaway_testkit::topology::until;

use crate::{
    looking::Plugin,
    octavia::{DELETING, Project, in_a_cloud},
    scene::*,
};

const SHOP: &str = "loadBalancerClass: seaway.dev/octavia, selector: {app: shop}";
const CLEANUP: &str = "seaway.dev/load-balancer-cleanup";
const FINALIZERS: &str = "{.metadata.finalizers}";
const NAMED: &str = r"{.metadata.annotations.loadbalancer\.openstack\.org/load-balancer-id}";

impl Project {
    /// Node ports that Nodes let in.
    fn let_in(&self) -> BTreeSet<u16> {
        let groups = self.runtime.block_on(self.cloud.all::<SecurityGroup>().list(Query::all()));
        let groups: Vec<SecurityGroup> = groups.expect("are listed");
        let ours = groups.iter().filter(|it| it.name.starts_with("lb-sg-"));
        ours.flat_map(|it| it.security_group_rules.0.iter().filter_map(|it| it.port_range_min)).collect()
    }

    /// What says that something is Seaway's.
    fn marks(&self) -> Vec<String> {
        let is_mark = |it: &String| it.contains("seaway.dev/cluster=") || it.contains("seaway.dev/key=");
        let tags = self.balancers().into_iter().flat_map(|it| it.tags);
        let words = self.floating().into_iter().map(|it| it.description);
        tags.chain(words).filter(is_mark).collect()
    }
}

#[test]
fn what_a_service_with_a_class_gives_away_stays_when_it_is_deleted_or_another_takes_it_over() {
    let Some((mut scene, project)) = in_a_cloud() else { return };
    project.reword("[BlockStorage]", "manage-security-groups=true\n[BlockStorage]");
    scene.nodes = vec![scene.cluster.node("a")];
    project.port_of("a", &scene.field("node/a", "{.status.addresses[0].address}"));
    scene.lead("controller");
    let both = ["shop", "gone"];
    scene.cluster.apply(&service("shop", &format!("externalTrafficPolicy: Local, {SHOP}")));
    scene.cluster.apply(&service("gone", SHOP));
    scene.until_served(&both);
    let addresses = both.map(|name| scene.address(name));
    let ports = both.map(|it| scene.field(&format!("service/{it}"), "{.spec.ports[0].nodePort}"));
    let ports: BTreeSet<u16> = ports.iter().map(|it| it.parse().expect("a port")).collect();
    until("Nodes let in what is for them", || ports.is_subset(&project.let_in()));
    let ids = |project: &Project| -> BTreeSet<String> {
        let balancers = project.balancers().into_iter().map(|it| it.id.to_string());
        balancers.chain(project.floating().into_iter().map(|it| it.id.to_string())).collect()
    };
    let had = ids(&project);
    let (plugin, admin) = (Plugin::new(), scene.cluster.kubeconfig().to_owned());
    let run = |words: &str| {
        let done = plugin.try_run(&admin, words);
        let text = |it: &[u8]| String::from_utf8_lossy(it).into_owned();
        (done.status.success(), format!("{}{}", text(&done.stdout), text(&done.stderr)))
    };
    let held = |name: &str| scene.field(&format!("service/{name}"), FINALIZERS).contains(CLEANUP);
    project.fake.forget_requests();

    // It says beforehand what that means, and writes nothing.
    let conf = format!("--cloud-config {}", project.conf.path().display());
    for (words, asked) in [
        ("release shop".to_owned(), "--cloud-config FILE"),
        ("release shop --yes".to_owned(), "--cloud-config FILE"),
        (format!("release shop {conf}"), "To write it, add --yes"),
    ] {
        let (done, told) = run(&words);
        assert!(!done && told.contains(asked) && told.contains("cannot be changed"), "{words}: {told}");
        assert!(told.contains("serves no Service with a class") && told.contains("NodePort"), "{told}");
    }
    let (done, told) = run(&format!("release --all {conf} --yes"));
    assert!(done && told.contains("kubectl seaway release default/shop"), "{told}");
    let annotation =
        |name: &str| scene.field(&format!("service/{name}"), r"{.metadata.annotations.seaway\.dev/released}");
    assert!(both.iter().all(|it| held(it) && annotation(it).is_empty()));
    assert_eq!(project.fake.count("PUT */lbaas/*") + project.fake.count("DELETE *"), 0);

    let mut patches = Vec::new();
    for name in both {
        let (done, told) = run(&format!("release {name} {conf} --yes"));
        assert!(done && told.contains(&format!("default/{name}: released")), "{told}");
        assert!(told.contains("cannot be changed"), "also where it is written: {told}");
        let said = told.lines().filter_map(|it| it.split_once(&format!("patch service {name} -p '")));
        patches.push(said.map(|(_, it)| it.trim_end_matches('\'').to_owned()).collect::<Vec<_>>());
        assert_eq!((annotation(name).as_str(), held(name)), ("true", false));
    }
    assert_eq!(project.marks(), [""; 0]);
    // Who leads leaves it as it is: it has no finalizer, its tags do not come back, and Nodes let in what is for it.
    let problems = "{.status.conditions[?(@.type=='seaway.dev/Problems')].message}";
    until("it says so", || {
        both.iter().all(|it| {
            scene.field(&format!("service/{it}"), problems).contains("is left to another controller")
        })
    });
    let settles = |scene: &Scene, project: &Project, name: &str| {
        project.fake.forget_requests();
        scene.cluster.apply(&service(name, SHOP));
        scene.until_served(&[name]);
        let deleted = ["lbaas", "floatingips"].map(|it| project.fake.count(&format!("DELETE */{it}/*")));
        assert_eq!(deleted, [0, 0], "{:?}", project.fake.requests());
    };
    settles(&scene, &project, "after");
    assert!(both.iter().all(|it| !held(it)) && had.is_subset(&ids(&project)));
    assert!(ports.is_subset(&project.let_in()), "{:?}", project.let_in());
    assert_eq!(both.map(|name| scene.address(name)), addresses);

    // One is deleted, which nothing waits for. The other's class goes with its type; its node port and its uid stay.
    scene.cluster.kubectl(&["delete", "service", "gone"]);
    let stay = ["{.metadata.uid}", "{.spec.ports[0].nodePort}", "{.spec.healthCheckNodePort}"];
    let was = stay.map(|it| scene.field("service/shop", it));
    let [away, back] = &patches[0][..] else { panic!("two commands: {patches:?}") };
    let cluster = scene.cluster.clone();
    let change = |patch: &str| _ = cluster.kubectl(&["patch", "service", "shop", "-p", patch]);
    change(away);
    settles(&scene, &project, "later");
    for cleared in ["{.spec.loadBalancerClass}", "{.status.loadBalancer.ingress}"] {
        assert_eq!(scene.field("service/shop", cleared), "", "{cleared}");
    }
    assert!(had.is_subset(&ids(&project)), "{:?}", project.balancers());
    // Who comes next, and has orphans deleted, deletes neither.
    scene.end("controller");
    scene.configuration = "{admin: {listen: [\"127.0.0.1:0\"]}, lease: 15s, cloud: {orphans: delete}}";
    scene.lead("next");
    settles(&scene, &project, "last");
    change(back);
    settles(&scene, &project, "very-last");
    assert!(had.is_subset(&ids(&project)), "{:?}", project.balancers());
    assert_eq!(stay.map(|it| scene.field("service/shop", it)), was);

    // What another controller finds: no class, no finalizer of ours, and the id of its load balancer. (It is Seaway again here.)
    let its = project.balancers().into_iter().find(|it| it.name.ends_with("_shop")).expect("it is there").id;
    assert_eq!(scene.field("service/shop", NAMED), its.to_string());
    assert!(scene.field("service/shop", FINALIZERS).is_empty());
    scene.end("next");
    scene.configuration = DELETING;
    scene.lead("again");
    scene.until_served(&["shop"]);
    assert_eq!(scene.address("shop"), addresses[0]);
    assert!(had.is_subset(&ids(&project)), "{:?}", project.balancers());
}
