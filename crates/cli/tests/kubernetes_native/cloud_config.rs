//! What a cloud.conf says by now holds for load balancers that are there, as far as they can follow; nothing is lost by it.

use std::fs;

use seaway_openstack::{octavia::HealthMonitor, resource::Query};
use seaway_testkit::{
    cloud::Recorded,
    topology::{until, until_within},
};

use crate::{octavia::in_a_cloud, scene::*};

const HEARTBEAT: &str = "seaway.heartbeat.";
const READY: &str = "{.status.conditions[?(@.type=='seaway.dev/Ready')].status}";
const PROBLEMS: &str = "{.status.conditions[?(@.type=='seaway.dev/Problems')].message}";

#[test]
fn a_changed_cloud_conf_is_followed_and_what_only_a_new_load_balancer_can_have_is_told() {
    let Some((mut scene, project)) = in_a_cloud() else { return };
    scene.nodes = vec![scene.cluster.node("a")];
    let usual = fs::read_to_string(project.conf.path()).expect("is read");
    let say = |keys: &str| {
        let text = usual.replace("[LoadBalancer]\n", &format!("[LoadBalancer]\n{keys}"));
        fs::write(project.conf.path(), text).expect("is written");
    };
    scene.lead("controller");
    scene.cluster.apply(&service("shop", "selector: {app: shop}"));
    until("it is served", || scene.field("service/shop", READY) == "True");
    let (was, address) = (project.balancers().remove(0), scene.address("shop"));
    let monitors = || -> usize {
        let all = project.cloud.all::<HealthMonitor>();
        project.runtime.block_on(all.list::<HealthMonitor>(Query::all())).expect("are listed").len()
    };

    say("create-monitor=true\n");
    until("members are probed", || monitors() == 1);
    say("create-monitor=true\nfloating-network-id=0f2b8f8e-6a55-4f3b-9d9e-3f1c9f8e0a71\nlb-provider=ovn\n");
    until("what cannot be is told", || {
        let told = scene.field("service/shop", PROBLEMS);
        told.contains("provider ovn (it has") && told.contains("network of floating IPs")
    });
    // What is no such file, and what would end everything, changes nothing.
    fs::write(project.conf.path(), "[LoadBalancer\n").expect("is written");
    until("it is told", || scene.log("controller").contains("is not read again"));
    say("enabled=false\n");
    until("it is told", || scene.field("service/shop", PROBLEMS).contains("are disabled"));
    assert_eq!(
        project.fake.count("DELETE */loadbalancers/*") + project.fake.count("DELETE */floatingips/*"),
        0
    );

    scene.end("controller");
    project.fake.forget_requests();
    scene.lead("another");
    until_within(A_TERM, "it leads", || scene.leader().starts_with("another"));
    until("it has looked", || project.fake.count("GET */lbaas/*") > 0);
    until("it is told", || scene.field("service/shop", PROBLEMS).contains("enabled=true"));
    // From its heartbeat on it may write: that tag is all that it writes.
    let is_heartbeat = |it: &Recorded| {
        it.fits("PUT */ports/*/tags") && it.body.as_ref().is_some_and(|it| it.to_string().contains(HEARTBEAT))
    };
    until("its heartbeat is written", || project.fake.requests().iter().any(is_heartbeat));
    let is_write = |it: &&Recorded| {
        ["POST", "PUT", "DELETE"].iter().any(|method| it.fits(&format!("{method} */v2*")))
            && !is_heartbeat(it)
    };
    let requests = project.fake.requests();
    let writes: Vec<&Recorded> = requests.iter().filter(is_write).collect();
    assert!(writes.is_empty(), "{writes:#?}");
    assert_eq!((project.balancers().remove(0).id, scene.address("shop")), (was.id, address));
}
