//! What a cluster left in the cloud, and its removal by hand: nothing of anybody else's goes with it.

use std::process::Command;

use crate::{
    foreign::Foreign,
    scene::{SEAWAY, service},
    stage::{AUTH_URL, Stage, until},
};

const OURS: &str = "loadBalancerClass: seaway.dev/octavia, selector: {app: shop}";

/// Whoever deletes a cluster without it finds load balancers on its network, and cannot delete that (`A(b)`).
#[test]
fn gc_and_purge_remove_what_is_ours_and_nobody_elses() {
    let Some(mut stage) = Stage::set(&["a"]) else { return };
    let foreign = Foreign::made(&stage.land);
    let bare = stage.land.everything();
    stage.land.options = "manage-security-groups=true\n";
    stage.lead(AUTH_URL);
    let cluster = stage.scene.cluster.clone();
    for name in ["first", "second"] {
        cluster.apply(&service(name, OURS));
    }
    // What is to be kept is, until its turn comes.
    cluster.kubectl(&["annotate", "service", "second", "loadbalancer.openstack.org/keep-floatingip=true"]);
    stage.address("first");
    let address = stage.address("second");
    let described = || stage.land.told(&["floatingips"]).into_values().filter_map(kept).collect::<Vec<_>>();
    until("it is said that it is kept", || described() == [address.clone()]);
    let of_port = |stage: &Stage| -> usize {
        let ports = stage.land.told(&["ports"]);
        let groups = ports.values().find(|it| it["name"] == "a").map(|it| it["security_groups"].clone());
        groups.as_ref().and_then(|it| it.as_array()).map_or(0, Vec::len)
    };
    until("the Node is opened", || of_port(&stage) == 2);
    stage.land.at_rest(|all| !all.is_empty());

    assert!(!says(&stage, &["purge", "--yes"]).0, "whoever leads makes all of it again");
    stage.scene.kill("controller");
    // Somebody takes it away by force, while nobody looks.
    cluster.kubectl(&["delete", "service", "first", "--wait=false"]);
    cluster.kubectl(&["patch", "service", "first", "-p", r#"{"metadata": {"finalizers": null}}"#]);

    let there = stage.land.everything();
    let (done, listed) = says(&stage, &["gc"]);
    assert!(done && listed.contains("kube_service_seven_default_first"), "{listed}");
    assert!(!listed.contains("kube_service_seven_default_second"), "{listed}");
    assert!(stage.land.everything().keys().eq(there.keys()), "it only looked");
    let (done, told) = says(&stage, &["gc", "--delete"]);
    assert!(done && told.contains("2 of 2 removed"), "{told}");
    let balancers = |stage: &Stage| names(stage, "loadbalancers");
    assert!(!balancers(&stage).contains(&"kube_service_seven_default_first".to_owned()));
    assert!(balancers(&stage).contains(&"kube_service_seven_default_second".to_owned()));
    foreign.are_as_they_were(&stage.land);
    assert!(says(&stage, &["gc"]).1.contains("there is nothing to remove"));

    until("the Lease has run out", || says(&stage, &["purge", "--yes"]).0);
    let mut left = stage.land.everything();
    left.retain(|key, _| !bare.contains_key(key));
    let left: Vec<_> = left.into_values().filter_map(kept).collect();
    assert_eq!(left, [address], "what was to be kept, and nothing else");
    assert_eq!(of_port(&stage), 1, "the Node's port is as it was");
    assert!(says(&stage, &["purge", "--yes", "--kept"]).0);
    let left = stage.land.everything();
    assert!(left.keys().eq(bare.keys()), "{left:?} {bare:?}");
    foreign.are_as_they_were(&stage.land);
}

/// The address of a floating IP that stays when its Service goes; of other things, what they are.
fn kept(it: serde_json::Value) -> Option<String> {
    let description = it["description"].as_str().unwrap_or_default();
    match it["floating_ip_address"].as_str() {
        Some(address) => description.ends_with(" kept]").then(|| address.to_owned()),
        None => Some(it.to_string()),
    }
}

fn names(stage: &Stage, kind: &str) -> Vec<String> {
    let all = stage.land.told(&[kind]);
    all.values().filter_map(|it| it["name"].as_str().map(str::to_owned)).collect()
}

/// Whether `seaway openstack …` is content, and what it says.
pub(crate) fn says(stage: &Stage, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(SEAWAY);
    command.arg("openstack").args(arguments).arg("--cloud-conf").arg(stage.land.conf.path());
    command.arg("--kubeconfig").arg(stage.scene.cluster.kubeconfig()).args(["--system-namespace", "default"]);
    let done = command.output().expect("it runs");
    let all = [done.stdout, done.stderr].concat();
    (done.status.success(), String::from_utf8_lossy(&all).into_owned())
}
