//! Services that share a load balancer: whose a port is, and what is left when one leaves.

use seaway_openstack::octavia::Provisioning;
use seaway_testkit::topology::until;

use crate::{
    leavings::{named, serve},
    octavia::{JOINING, in_a_cloud},
};

#[test]
fn services_share_a_load_balancer_and_who_is_left_keeps_its_address() {
    let Some((mut scene, project)) = in_a_cloud() else { return };
    let foreign = project.foreign("k8sclusterv1-x-api_pool", &[], ("10.0.0.5", 8080));
    let theirs = project.everything();
    scene.configuration = JOINING;
    scene.lead("controller");
    serve(&scene, "shop", 80, "");
    scene.until_served(&["shop"]);
    let at = scene.address("shop");
    let of_shop = |it: &seaway_openstack::octavia::LoadBalancer| it.name.ends_with("_default_shop");
    let made = project.balancers().into_iter().find(of_shop).expect("it is there");
    let floating = project.floating().remove(0).id;

    // Whoever comes later is told whose the port is, and nothing of the first is another.
    serve(&scene, "next", 80, &named(&made.id));
    scene.until_told("next", &["PortConflict", "80/TCP", "default_shop", "Choose another port"]);
    until("an event says it", || scene.warnings("next").len() == 1);
    assert!(scene.warnings("next")[0].starts_with("PortConflict"), "{:?}", scene.warnings("next"));
    assert!(!scene.is_served("next") && scene.problems("shop").is_empty());
    serve(&scene, "next", 443, &named(&made.id));
    scene.until_served(&["next"]);
    until("nothing is wrong any more", || scene.problems("next").is_empty());
    assert_eq!((scene.address("next"), scene.address("shop")), (at.clone(), at.clone()));
    assert_eq!(project.floating().len(), 1);
    // A port that it wants later, too, is told; what it has is served on.
    let both = r#"{"spec": {"ports": [{"name": "a", "port": 443}, {"name": "b", "port": 80}]}}"#;
    scene.cluster.kubectl(&["patch", "service", "next", "--type=merge", "-p", both]);
    scene.until_told("next", &["PortConflict", "80/TCP"]);
    assert_eq!(scene.address("next"), at);

    // The first leaves: what was its is free, and VIP and floating IP are as they were.
    scene.cluster.kubectl(&["delete", "service", "shop"]);
    let left = project.balancers().into_iter().find(|it| it.id == made.id).expect("it is there still");
    assert_eq!((&left.vip_address, &left.name), (&made.vip_address, &made.name));
    assert_eq!(project.floating().iter().map(|it| &it.id).collect::<Vec<_>>(), [&floating]);
    assert_eq!(scene.address("next"), at);
    serve(&scene, "next", 443, &named(&made.id));
    scene.until_served(&["next"]);

    // On one that is somebody else's.
    serve(&scene, "lodger", 7070, &named(&foreign.id));
    scene.until_served(&["lodger"]);
    assert_ne!(project.everything().get(foreign.id.as_str()), theirs.get(foreign.id.as_str()));
    scene.cluster.kubectl(&["delete", "service", "lodger"]);
    // The last takes down what is ours.
    scene.cluster.kubectl(&["delete", "service", "next"]);
    let settled = || project.balancers().iter().all(|it| it.provisioning_status == Provisioning::Active);
    until("the last write is done", settled);
    assert_eq!(project.everything(), theirs, "nothing is left, and of what is theirs nothing is another");
}
