//! The minute that a load balancer takes, and what is told where there will never be one.

use seaway_testkit::{
    cloud::ChangeDuration,
    topology::{until, until_within},
};

use crate::{
    hears::A_WHILE,
    looking::Plugin,
    octavia::{OCTAVIA, in_a_cloud},
    scene::*,
};

const BY_CLASS: &str = "{admin: {listen: [\"127.0.0.1:0\"]}, lease: 15s}";
const ASKS: &str = "loadBalancerClass: seaway.dev/octavia, selector: {app: shop}";

#[test]
fn while_its_load_balancer_is_made_a_service_says_how_far_it_is_and_without_a_cloud_why_there_is_none() {
    let Some((mut scene, project)) = in_a_cloud() else { return };
    scene.configuration = BY_CLASS;
    project.fake.pace(ChangeDuration::Never);
    scene.lead("controller");
    scene.cluster.apply(&service("shop", ASKS));
    let plugin = Plugin::new();
    let admin = scene.cluster.kubeconfig().to_owned();
    let status = || plugin.run(&admin, "status").0;
    until("its condition says it", || scene.condition("shop", "Ready").2.contains("PENDING_CREATE since 20"));
    let (ready, reason, _) = scene.condition("shop", "Ready");
    assert_eq!((&*ready, &*reason), ("False", "Pending"));
    let made = || scene.events("shop").iter().filter(|it| it.starts_with("Creating: ")).count();
    until("an event says it", || made() == 1);
    let (table, id) = (status(), project.balancers().remove(0).id);
    let row = table.lines().find(|it| it.starts_with("default/shop")).expect("it is one of ours");
    assert!(
        row.contains("seaway.dev/octavia") && row.contains(&format!("{id} is PENDING_CREATE since 20")),
        "{table}"
    );
    assert!(scene.field("service/shop", "{.status.loadBalancer.ingress}").is_empty());
    assert!(plugin.run(&admin, "explain service shop").0.contains("PENDING_CREATE"));

    project.fake.pace(ChangeDuration::Looks(1));
    project.fake.settle(&project.fake.project_id("demo").expect("it is there"));
    scene.until_served(&["shop"]);
    let at = scene.address("shop");
    until("an event says where", || {
        scene.events("shop").contains(&format!("AddressPublished: reachable at {at}"))
    });
    assert_eq!((made(), scene.warnings("shop")), (1, Vec::new()));
    let table = status();
    let row = table.lines().find(|it| it.starts_with("default/shop")).expect("it is one of ours");
    assert!(row.contains(&at) && row.contains("yes") && !row.contains("PENDING"), "{table}");

    // Where its status tells a name, an annotation tells what is behind it.
    let annotation = r"{.metadata.annotations.loadbalancer\.openstack\.org/load-balancer-address}";
    let name = "loadbalancer.openstack.org/hostname";
    assert!(scene.field("service/shop", annotation).is_empty());
    scene.cluster.kubectl(&["annotate", "service", "shop", &format!("{name}=shop.example")]);
    until("the name is told", || {
        scene.field("service/shop", "{.status.loadBalancer.ingress[0].hostname}") == "shop.example"
    });
    until("its address is, too", || scene.field("service/shop", annotation) == at);
    scene.cluster.kubectl(&["annotate", "service", "shop", &format!("{name}-")]);
    assert_eq!(scene.address("shop"), at);

    // Whoever leads next was told of no cloud.
    scene.end("controller");
    scene.cloud = None;
    scene.lead("clueless");
    until("it leads", || scene.leader().starts_with("clueless"));
    scene.cluster.apply(&service("next", ASKS));
    scene.cluster.apply(&service("near", "loadBalancerClass: seaway.dev/native, selector: {app: shop}"));
    for name in ["next", "shop"] {
        scene.until_told(name, &["can be created", "--cloud-config"]);
        until("an event says it", || scene.warnings(name).len() == 1);
    }
    let native = || scene.field("addresses", "{.items[*].spec.owners[*].name}");
    until("others are served as ever", || native() == "near");
    assert_eq!(scene.address("shop"), at, "it is served on");
    assert!(
        scene.field("service/next", "{.metadata.finalizers}").is_empty(),
        "nothing is there to be held for"
    );
    scene.cluster.kubectl(&["delete", "service", "next"]);
    scene.cluster.kubectl(&["delete", "service", "shop", "--wait=false"]);
    scene.until_told("shop", &["deletion is pending"]);
    assert_eq!(project.balancers().len(), 1);

    // In the file they may be switched off.
    scene.end("clueless");
    scene.cloud = Some(project.conf.path().to_owned());
    project.reword("[LoadBalancer]", "[LoadBalancer]\nenabled=false");
    scene.configuration = OCTAVIA;
    project.fake.forget_requests();
    scene.lead("another");
    let gone = || project.balancers().is_empty() && project.floating().is_empty();
    until_within(A_WHILE, "what was deleted goes all the same", || gone() && scene.is_gone("service/shop"));
    scene.cluster.apply(&service("last", "selector: {app: shop}"));
    scene.until_told("last", &["are disabled", "enabled=true"]);
    until("an event says it", || scene.warnings("last").len() == 1);
    assert_eq!(project.fake.count("POST */lbaas/*") + project.fake.count("POST */floatingips"), 0);
    scene.cluster.kubectl(&["delete", "service", "last"]);
}
