//! With `manage-security-groups`: one group takes the place of those that OCCM made for each Service, and goes back.

use seaway_openstack::{
    neutron::{Port, PortChange},
    resource::Id,
};
use seaway_testkit::topology::until_within;
use serde_json::Value;

use crate::{
    migration::{Migration, service},
    report::report,
    requests::Target,
    stage::{PATIENCE, Stage},
    tree::beyond_tags,
};

/// Two Nodes that let nobody in but by groups that a controller puts at their ports.
pub(crate) fn closed(stage: &mut Stage) {
    stage.land.closed = true;
    stage.land.options = "manage-security-groups=true\n";
    stage.land.monitors = "";
    ["a", "b"].iter().for_each(|it| stage.join(it));
    for (port, name) in ports(stage) {
        // OCCM looks for the ports of the server that a Node names.
        let change = PortChange { device_id: port.to_string().into(), ..PortChange::default() };
        let changed = stage.land.cloud.all::<Port>();
        stage.land.runtime.block_on(changed.change(&port, &change)).expect("the port is changed");
        let provider = format!(r#"{{"spec": {{"providerID": "openstack:///{port}"}}}}"#);
        stage.scene.cluster.kubectl(&["patch", "node", &name, "-p", &provider]);
    }
}

pub(crate) fn kinds() -> Vec<(&'static str, String)> {
    vec![
        service("web", &[], "ports: [{port: 90, targetPort: 80}]"),
        service("udp", &[], "ports: [{port: 5007, targetPort: 7, protocol: UDP}]"),
        service("local", &[], "externalTrafficPolicy: Local, ports: [{port: 90, targetPort: 80}]"),
        service(
            "ranges",
            &[],
            "loadBalancerSourceRanges: [172.24.4.0/24], ports: [{port: 90, targetPort: 80}]",
        ),
    ]
}

pub(crate) fn targets(all: &Migration) -> Vec<Target> {
    let web = ["web", "local", "ranges"].map(|it| Target::Tcp(all.at(it, 90)));
    [&web[..], &[Target::Udp(all.at("udp", 5007))]].concat()
}

#[test]
fn one_group_replaces_those_of_occm_and_goes_back_without_a_lost_request() {
    let Some(mut all) = Migration::set("groups", closed) else { return };
    all.serve(&kinds());
    let requests = all.send(&targets(&all));
    let before = all.tree();
    let came = all.come_to_seaway();
    let theirs = || {
        let all = all.stage.land.told(&["security-groups"]);
        let is_theirs =
            |it: &&Value| it["description"].as_str().is_some_and(|it| it.ends_with("in cluster seven"));
        all.values().filter(is_theirs).count()
    };
    until_within(2 * PATIENCE, "OCCM's groups are removed", || theirs() == 0);
    let later = all.changes("OCCM's groups are removed, all in all", &before);
    let went = all.back_to_occm();
    let answers = requests.stop();
    report("groups: requests meanwhile", &answers.to_string());

    let ports = ports(&all.stage).len();
    let once = [&["POST security-groups"][..], &vec!["PUT ports"; ports]].concat();
    // An audit that falls into this time removes theirs: see below.
    let theirs_go =
        came.written_beyond(&["POST security-group-rules"]).contains(&"DELETE security-groups".to_owned());
    let twice = [&once[..], &vec!["PUT ports"; ports]].concat();
    assert_eq!(
        came.written_beyond(&["POST security-group-rules", "DELETE security-groups"]),
        if theirs_go { twice } else { once },
        "one group, and one write per port of a Node"
    );
    assert_eq!(
        later.written_beyond(&["DELETE security-groups", "PUT ports"]),
        [""; 0],
        "OCCM's groups go, and nothing else"
    );
    let is_of_groups = |it: &&String| it.split(' ').take(2).any(|word| word.starts_with("security_group"));
    let others: Vec<&String> = beyond_tags(&later.seen).into_iter().filter(|it| !is_of_groups(it)).collect();
    assert_eq!(others, [""; 0], "of load balancers, tags and descriptions alone");
    assert_eq!(later.deletions(), [""; 0]);
    assert_eq!(went.deletions(), [""; 0]);
    assert_eq!(went.gone(), [""; 0], "what Seaway made is left there");
    assert!(answers.failed.is_empty(), "{answers}");
    all.delete_all();
}

fn ports(stage: &Stage) -> Vec<(Id<Port>, String)> {
    let ports = stage.land.told(&["ports"]);
    let of = |it: &Value, field: &str| it[field].as_str().unwrap_or_default().to_owned();
    let its = |it: &&Value| stage.scene.nodes.iter().any(|node| it["name"] == node.name());
    ports.values().filter(its).map(|it| (of(it, "id").parse().expect("an id"), of(it, "name"))).collect()
}
