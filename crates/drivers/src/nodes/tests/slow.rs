//! Passes of which something fails, or that take their time.

use seaway_testkit::cloud as fake;

use super::{
    passes::{InMemoryNodes, Stage, WriteFault},
    *,
};

fn taints(memory: &InMemoryNodes, name: &str) -> usize {
    memory.node(name).expect("it is there").taints.len()
}

#[tokio::test]
async fn a_node_whose_addresses_cannot_be_written_is_not_initialised() {
    let mut stage = Stage::of(["a", "b"].map(new_node)).await;
    stage.memory.fail("a", Some(WriteFault::Changed));
    let pass = stage.pass().await;
    assert_eq!(pass.problems.len(), 1, "{:?}", pass.problems);
    assert!(pass.problems[0].message.contains("write addresses"), "{:?}", pass.problems);
    assert_eq!((taints(&stage.memory, "a"), taints(&stage.memory, "b")), (2, 1));
    assert_eq!(pass.next, SILENT, "it is not tried again at once, for ever");
    stage.memory.fail("a", None);
    assert_eq!(stage.pass().await.problems, []);
    assert_eq!(taints(&stage.memory, "a"), 1);
}

#[tokio::test]
async fn a_pass_ends_when_what_it_knows_is_old_and_the_next_goes_on_behind_it() {
    let mut stage = Stage::of(["a", "b", "c"].map(new_node)).await;
    *stage.memory.slow.lock().unwrap() = Some((stage.now.clone(), 40_000));
    let pass = stage.pass().await;
    assert_eq!(["a", "b", "c"].map(|it| taints(&stage.memory, it)), [1, 2, 2]);
    assert_eq!(pass.next, AGAIN);
    stage.pass().await;
    assert_eq!(["a", "b", "c"].map(|it| taints(&stage.memory, it)), [1, 1, 2]);
    stage.pass().await;
    assert_eq!(["a", "b", "c"].map(|it| taints(&stage.memory, it)), [1, 1, 1]);
}

#[tokio::test]
async fn a_pass_ends_where_the_api_server_does_not_answer_and_no_node_keeps_the_others_waiting() {
    let mut stage = Stage::of(["a", "b", "c"].map(new_node)).await;
    stage.memory.fail("a", Some(WriteFault::Unreachable));
    let pass = stage.pass().await;
    assert_eq!((pass.problems.len(), pass.next, stage.memory.writes()), (1, SILENT, 0), "{pass:?}");
    stage.pass().await;
    assert_eq!(["a", "b", "c"].map(|it| taints(&stage.memory, it)), [2, 1, 1]);
}

#[tokio::test]
async fn a_flavor_that_cannot_be_read_is_no_label_and_spoils_nothing_else() {
    let mut stage = Stage::of(["a", "b"].map(new_node)).await;
    stage.fake.fail(fake::Fault::on("GET */flavors/*").always().status(403));
    assert_eq!(stage.pass().await.problems, []);
    assert_eq!(stage.fake.count("GET */flavors/*"), 1, "once in a pass");
    for name in ["a", "b"] {
        let labels = stage.memory.node(name).expect("it is there").labels;
        assert!(!labels.contains_key("node.kubernetes.io/instance-type"), "{labels:?}");
        assert_eq!(labels["topology.kubernetes.io/zone"], "nova");
    }
    stage.pass().await;
    assert_eq!(stage.fake.count("GET */flavors/*"), 1, "of Nodes that are initialised it is not needed");
    stage.fake.heal();
    stage.memory.add(new_node("c"));
    stage.boot("c").await;
    assert_eq!(stage.pass().await.problems, []);
    let labels = stage.memory.node("c").expect("it is there").labels;
    assert_eq!(labels["node.kubernetes.io/instance-type"], "m1.small");
}

#[tokio::test]
async fn missing_is_what_nova_itself_says() {
    let mut stage = Stage::of(["a", "b"].map(new_node)).await;
    let id = |stage: &Stage, name: &str| stage.servers[name].to_string();
    stage.lose("a").await;
    let (gone, there) = (id(&stage, "a"), id(&stage, "b"));
    assert_eq!(read::ask(&stage.cloud, &gone).await, ServerLookup::Missing);
    assert!(matches!(read::ask(&stage.cloud, &there).await, ServerLookup::Exists(_)));
    for body in [json!({"message": "no route"}), json!({}), json!(null), json!("not found")] {
        stage.fake.fail(fake::Fault::on("GET */servers/*").always().reply(404, body.clone()));
        assert_eq!(read::ask(&stage.cloud, &there).await, ServerLookup::Unknown, "{body}");
        stage.fake.heal();
    }
    stage
        .fake
        .fail(fake::Fault::on("GET */servers/*").always().html(404, "<html><title>nginx</title></html>"));
    assert_eq!(read::ask(&stage.cloud, &there).await, ServerLookup::Unknown);
}

#[test]
fn who_may_not_ask_is_told_the_role_and_nothing_else_is() {
    let fix = |error: &RequestError, role| unanswered("x", error, role).problems[0].fix.to_string();
    assert!(fix(&RequestError::forbidden("no"), LEASE_ROLE).contains("ClusterRole seaway-cloud:"));
    assert!(fix(&RequestError::forbidden("no"), NODES_ROLE).contains("ClusterRole seaway-cloud-nodes:"));
    assert!(!fix(&RequestError::unreachable("no"), LEASE_ROLE).contains("kubectl"));
}

#[test]
fn a_catalog_has_several_regions_or_one() {
    use seaway_openstack::identity::{Catalog, Endpoint, Entry};
    let of = |regions: &[Option<&str>]| {
        let endpoint = |it: &Option<&str>| Endpoint { region: it.map(str::to_owned), ..Endpoint::default() };
        let endpoints = regions.iter().map(endpoint).collect();
        has_several_regions(&Catalog::new(vec![Entry { endpoints, ..Entry::default() }]))
    };
    for (regions, several) in
        [(&[][..], false), (&[Some("A"), None, Some("A")], false), (&[Some("A"), None, Some("B")], true)]
    {
        assert_eq!(of(regions), several, "{regions:?}");
    }
}
