//! One load balancer with a VIP of each family.

use serde_json::json;

use crate::{
    scene::{deployment, service},
    stage::{AUTH_URL, Stage, until},
};

const BOTH: &str = "loadBalancerClass: seaway.dev/octavia, selector: {app: shop}, ipFamilyPolicy: RequireDualStack, \
     ipFamilies: [IPv4, IPv6]";

#[test]
fn a_service_of_two_families_is_served_at_two_vips_by_members_of_each() {
    let Some(mut stage) = Stage::set(&[]) else { return };
    let six = stage.land.add_ipv6();
    stage.join("a");
    stage.lead(AUTH_URL);
    let (client, _) = stage.land.machine("client");
    let before = stage.land.everything();
    let cluster = stage.scene.cluster.clone();
    cluster.apply(&deployment("shop", 1));
    cluster.apply(&service("shop", BOTH));
    let floating = stage.address("shop");

    let told = || stage.scene.field("service/shop", "{.status.loadBalancer.ingress[*].ip}");
    until("both are told", || told().split(' ').count() == 2);
    let mut new = stage.land.told(&["loadbalancers", "members"]);
    new.retain(|key, _| !before.contains_key(key));
    let balancer = new.values().find(|it| it["vip_address"].is_string()).expect("a load balancer");
    let second = &balancer["additional_vips"][0];
    assert_eq!(second["subnet_id"], six.as_str());
    assert_eq!(
        json!(told()),
        json!(format!("{floating} {}", second["ip_address"].as_str().unwrap_or_default()))
    );
    let mut members: Vec<&str> = new.values().filter_map(|it| it["address"].as_str()).collect();
    members.sort_by_key(|it| it.contains(':'));
    assert_eq!(members, stage.scene.nodes[0].addresses());

    stage.answers(&format!("http://{floating}/"), "shop");
    let inside = format!("http://[{}]/", second["ip_address"].as_str().unwrap_or_default());
    let answered = || client.curl(&inside).is_ok_and(|it| it.starts_with("shop-"));
    until("who is inside is answered by IPv6, too", answered);

    cluster.kubectl(&["delete", "service", "shop", "--wait=false"]);
    until("nothing is left", || stage.land.has_only(&before));
}
