//! An API server that learns of us late, is paused, killed and started again.

use seaway_model::{Fact, Kind, ObjectRef, Reason, fact::FactRef};

use crate::scene::{Heard, PACE, Scene, connect};

const ADDRESS: &str = "apiVersion: seaway.dev/v1alpha1\nkind: Address\nmetadata: {name: 192-0-2-41}\n\
                       spec: {address: 192.0.2.41, pool: public, owners: []}\n";

fn service(name: &str) -> String {
    format!("apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{ports: [{{port: 80}}]}}\n")
}

fn has(heard: &Heard, name: &str) -> bool {
    heard.service("default", name).is_some()
}

#[tokio::test]
async fn nothing_is_planned_without_our_definitions_and_nothing_is_lost_over_restarts_of_the_api_server() {
    let Some(scene) = Scene::alone() else { return };
    let kubernetes = ObjectRef::new(Kind::Config, "", "kubernetes");
    let pace = seaway_cluster::WatchTimings { answer: std::time::Duration::from_secs(3), ..PACE };
    let mut heard = Heard::of(&connect(&scene.kubeconfig, pace).await);
    let missing = "does not have Address (addresses.seaway.dev, seaway.dev/v1alpha1)";
    heard.until("it is told what is missing", |it| it.told_of(&kubernetes).contains(missing)).await;
    assert!(heard.told_of(&kubernetes).contains("seaway crds | kubectl apply -f -"));
    heard
        .until("all else is told", |it| it.synced.contains(&Kind::Service) && it.synced.contains(&Kind::Node))
        .await;
    assert!(!heard.synced.contains(&Kind::Address), "a ledger that is not there is no empty one");
    // An older version of it is as good as none.
    let older = seaway_cluster::crds::definitions().replace("v1alpha1", "v1alpha0");
    scene.cluster.define(&older);
    heard.until("it is still told", |it| it.told_of(&kubernetes).contains("or of another version")).await;
    let ours = [
        "addresses.seaway.dev",
        "addresspools.seaway.dev",
        "bfdprofiles.seaway.dev",
        "bgpadvertisements.seaway.dev",
        "bgppeers.seaway.dev",
        "communities.seaway.dev",
        "l2advertisements.seaway.dev",
        "loadbalancerhosts.seaway.dev",
        "loadbalancerhostslices.seaway.dev",
        "nameowners.seaway.dev",
    ];
    scene.kubectl(&[&["delete", "crd"], &ours[..]].concat());
    scene.cluster.define(seaway_cluster::crds::definitions());
    heard.until_synced().await;
    heard.until("nothing is missing any more", |it| it.problems.is_empty()).await;

    scene.apply(ADDRESS);
    scene.apply(&service("stays"));
    let address = FactRef::Address("192.0.2.41".parse().expect("an address"));
    heard.until("what is there is told", |it| has(it, "stays") && it.facts.contains_key(&address)).await;

    scene.cluster.pause_api();
    heard
        .until("a server that hangs is told", |it| {
            // Watches hang on; what is asked for again and again does not.
            it.problems.contains_key(&kubernetes) || !it.gone.is_empty()
        })
        .await;
    scene.cluster.resume_api();
    heard.until("it goes on", |it| it.problems.is_empty()).await;

    scene.cluster.kill_api();
    heard.until("a server that is away is told", |it| it.problems.contains_key(&kubernetes)).await;
    assert_eq!(heard.problems[&kubernetes][0].reason, Reason::Unreachable);
    scene.cluster.start_api();
    scene.apply(&service("comes"));
    heard.until("what came after it is told", |it| has(it, "comes")).await;
    heard.until("all is well", |it| it.problems.is_empty()).await;
    assert!(heard.gone.is_empty(), "not for a moment was anything gone: {:?}", heard.gone);
    assert!(matches!(&heard.facts[&address], Fact::Address(it) if &*it.pool == "public"));
    scene.kubectl(&["delete", "service", "stays"]);
    heard.until("what goes later is told", |it| !has(it, "stays")).await;
}
