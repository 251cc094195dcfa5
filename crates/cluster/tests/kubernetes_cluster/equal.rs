//! The same manifests through a folder's reader and through an API server: equal facts, and the same mistakes refused
//! for the same fields.

use std::{collections::BTreeSet, sync::Arc};

use kube::{
    Api,
    api::PostParams,
    core::{ApiResource, DynamicObject, GroupVersionKind},
};
use seaway_cluster::WantedSecrets;
use seaway_manifests::{object, tree};
use seaway_model::{
    Fact, Name,
    fact::{AddressPool, AnnouncementObject, Families, HttpRoute, Meta, Namespace, Node, Secret, Service},
};
use seaway_testkit::kubernetes;

use crate::scene::{Heard, KINDS_OF_OTHERS, Scene};

const GOOD: &str = include_str!("../corpus/good.yaml");
const BROKEN: &str = include_str!("../corpus/broken.yaml");
/// Two kinds that come with others' installations.
const FOREIGN: &str = include_str!("../corpus/definitions.yaml");

/// The documents of a corpus, with the namespace of a test in place of `HERE`.
fn documents(text: &str, namespace: &str) -> Vec<String> {
    let text = text.replace("HERE", namespace);
    let documents = text.split("\n---\n").map(str::trim).filter(|it| !it.is_empty());
    documents.map(str::to_owned).collect()
}

fn read(document: &str) -> object::ParsedObject {
    let roots = tree::parse(document).expect("is YAML");
    let mut readings: Vec<_> = roots.iter().flat_map(object::read).collect();
    assert_eq!(readings.len(), 1, "{document}");
    readings.remove(0)
}

#[tokio::test]
async fn the_same_manifests_give_equal_facts() {
    let Some(scene) = Scene::up("equal") else { return };
    let _turn = KINDS_OF_OTHERS.lock().await;
    scene.cluster.define(FOREIGN);
    let mut wanted = Vec::new();
    for document in documents(GOOD, &scene.namespace) {
        let read = read(&document).result.unwrap_or_else(|broken| panic!("{document}: {:?}", broken.errors));
        wanted.extend(read.facts);
        scene.apply(&document);
    }
    let mut heard = scene.watch().await;
    heard.want(WantedSecrets::Every);
    for fact in wanted {
        let reference = fact.reference();
        let whole = |it: &Fact| !matches!(it, Fact::Secret(it) if it.withheld);
        heard.until("all are told", |it: &Heard| it.facts.get(&reference).is_some_and(whole)).await;
        assert_eq!(comparable(&heard.facts[&reference]), comparable(&fact));
    }
    assert!(heard.wrong(&scene).is_empty(), "{:?}", heard.problems);
    let announcing = "l2advertisements.seaway.dev,bgpadvertisements.seaway.dev,bgppeers.seaway.dev,bfdprofiles.seaway.dev,communities.seaway.dev";
    for gone in [
        &["delete", "node", "corpus-node"][..],
        &["delete", "addresspool", "corpus-pool", "corpus-hosts"],
        &["delete", announcing, "--all"],
    ] {
        scene.kubectl(gone);
    }
}

/// Without what an API server chooses: uids, times, node ports, ClusterIPs, families.
fn comparable(fact: &Fact) -> Fact {
    let meta = |it: &Meta| Meta { uid: Name::default(), created: None, ..it.clone() };
    match fact {
        Fact::Service(it) => {
            let mut it = Service {
                meta: meta(&it.meta),
                families: Families { first: None, second: None, ..it.families },
                cluster_ips: Vec::new(),
                health_check_node_port: None,
                ..Service::clone(it)
            };
            it.ports.iter_mut().for_each(|port| port.node_port = None);
            Fact::Service(Arc::new(it))
        }
        Fact::Node(it) => Fact::Node(Arc::new(Node { meta: meta(&it.meta), ..Node::clone(it) })),
        Fact::Namespace(it) => Fact::Namespace(Arc::new(Namespace::clone(it))),
        Fact::AddressPool(it) => {
            Fact::AddressPool(Arc::new(AddressPool { created: None, ..AddressPool::clone(it) }))
        }
        Fact::Announcing(it) => {
            Fact::Announcing(Arc::new(AnnouncementObject { created: None, ..AnnouncementObject::clone(it) }))
        }
        Fact::HttpRoute(it) => {
            Fact::HttpRoute(Arc::new(HttpRoute { meta: meta(&it.meta), ..HttpRoute::clone(it) }))
        }
        Fact::Secret(it) => Fact::Secret(Arc::new(Secret { created: None, ..Secret::clone(it) })),
        other => other.clone(),
    }
}

#[tokio::test]
async fn the_same_mistakes_are_refused_for_the_same_fields() {
    let Some(scene) = Scene::up("refused") else { return };
    let client = kubernetes::client(&scene.kubeconfig).await;
    let mut differ = Vec::new();
    for document in documents(BROKEN, &scene.namespace) {
        let broken = read(&document).result.expect_err("a folder refuses it");
        let ours: BTreeSet<String> = broken.errors.iter().map(|it| plain(&it.field)).collect();
        match refused(&client, &document, &scene.namespace).await {
            Some((theirs, _)) if theirs == ours => {}
            // What cannot be decoded is refused before anything is looked at: the message alone says what it is about.
            Some((theirs, why)) if theirs.is_empty() && ours.iter().any(|it| is_named(it, &why)) => {}
            theirs => differ.push(format!("{document}\n  folder: {ours:?}\n  API server: {theirs:?}")),
        }
    }
    assert!(differ.is_empty(), "{}", differ.join("\n\n"));
}

/// Whether a message of a decoder is about a field: by its name, without the place in a list.
fn is_named(field: &str, message: &str) -> bool {
    let last = field.rsplit('.').next().unwrap_or_default();
    let name = last.split('[').next().unwrap_or_default();
    !name.is_empty() && message.contains(name)
}

/// The fields for which the API server refuses it, and its words; no fields, if it cannot be decoded at all.
async fn refused(
    client: &kube::Client,
    document: &str,
    namespace: &str,
) -> Option<(BTreeSet<String>, String)> {
    let roots = tree::parse(document).expect("is YAML");
    let object: DynamicObject = serde_json::from_value(json(&roots[0])).expect("is an object");
    let types = object.types.clone().expect("says what it is");
    let kind = GroupVersionKind::try_from(&types).expect("a version");
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = match object.metadata.namespace {
        Some(_) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let Err(error) = api.create(&dry, &object).await else { return None };
    let kube::Error::Api(status) = error else { panic!("{error}") };
    assert!(matches!(status.code, 400 | 422), "{}", status.message);
    let why = status.message.clone();
    let causes = status.details.into_iter().flat_map(|it| it.causes);
    let fields = causes.map(|it| plain(&it.field)).filter(|it| !it.is_empty() && it != "<nil>");
    Some((fields.filter(|it| !CONSEQUENCES.contains(&&**it)).collect(), why))
}

/// Of another field that is wrong, and told beside it.
const CONSEQUENCES: [&str; 2] = ["spec.ports[0].targetPort", "endpoints[0].addresses"];

/// Where an API server spells a field in its own way: what it filled in before it looked, a capital, a map as a whole.
fn plain(field: &str) -> String {
    let field = field.replace("clusterIPs[0]", "clusterIP").replace("stringData", "data");
    let field = field.replace("LoadBalancerSourceRanges", "loadBalancerSourceRanges");
    for map in ["metadata.labels", "spec.selector"] {
        if field.starts_with(map) {
            return map.to_owned();
        }
    }
    field
}

fn json(node: &tree::Node) -> serde_json::Value {
    use tree::Value;
    match &node.value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(it) => (*it).into(),
        Value::Int(it) => (*it).into(),
        Value::Float(it) => (*it).into(),
        Value::Text(it) => it.as_str().into(),
        Value::List(items) => items.iter().map(json).collect(),
        Value::Map(entries) => entries.iter().map(|it| (it.key.clone(), json(&it.value))).collect(),
    }
}
