//! What befalls the stream of a watch between it and a real API server: its past is forgotten, nothing is said, the connection
//! is half open, bytes come slowly. What a scripted server can say of these is in `tests/scripted/watches.rs`.

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Service;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, ListParams, WatchEvent, WatchParams},
    core::GroupVersionKind,
};
use seaway_cluster::{WatchTimings, crds};
use seaway_model::{Fact, Kind, ObjectRef, Reason, fact::FactRef};
use seaway_testkit::{
    faults::{Fault, RequestHold},
    kubernetes::{Gate, client},
};

use crate::scene::{Heard, PACE, Scene, connect, eventually, logged};

const SERVICES: &str = "GET /api/v1/services";

const POOL: &str = "apiVersion: seaway.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: quiet}\nspec: {addresses: [192.0.2.64/28]}\n";

fn service(name: &str, port: u16) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{ports: [{{port: {port}}}]}}\n"
    )
}

fn reference(scene: &Scene, name: &str) -> FactRef {
    FactRef::Object(ObjectRef::new(Kind::Service, &*scene.namespace, name))
}

fn kubernetes() -> ObjectRef {
    ObjectRef::new(Kind::Config, "", "kubernetes")
}

/// What the API server says to whoever would go on at that version.
async fn says_at(client: &Client, version: &str) -> String {
    let path = format!("/api/v1/services?watch=true&timeoutSeconds=1&resourceVersion={version}");
    let request = http::Request::get(path).body(Vec::new()).expect("a request");
    match client.request_text(request).await {
        Ok(text) => text,
        Err(error) => format!("{error:?}"),
    }
}

#[tokio::test]
async fn what_is_compacted_away_is_listed_again_and_what_stayed_is_never_gone() {
    let Some(scene) = Scene::alone() else { return };
    scene.cluster.define(crds::definitions());
    for name in ["stays", "goes"] {
        scene.apply_here(&service(name, 80));
    }
    let gate = Gate::here(&scene.kubeconfig);
    let cluster = connect(gate.kubeconfig(), WatchTimings { answer: Duration::from_secs(120), ..PACE }).await;
    let mut heard = Heard::of(&cluster);
    heard.until_synced().await;
    let direct = client(&scene.kubeconfig).await;
    let listed = Api::<Service>::all(direct).list(&ListParams::default()).await.expect("are listed");
    let version = listed.metadata.resource_version.expect("a list has one");

    // Its watch ends, and it does not get through before the past is forgotten.
    let hold = RequestHold::new();
    gate.fail(Fault::on(SERVICES).always().hold(&hold));
    scene.cluster.kill_api();
    heard.during(hold.reached(1)).await;
    scene.cluster.start_api();
    scene.here(&["delete", "service", "goes"]);
    scene.apply_here(&service("comes", 80));
    scene.cluster.forget_the_past();
    let told = says_at(&client(&scene.kubeconfig).await, &version).await;
    assert!(told.contains("410") && told.contains("too old"), "it is forgotten: {told}");

    let (goes, comes, stays) =
        (reference(&scene, "goes"), reference(&scene, "comes"), reference(&scene, "stays"));
    assert!(heard.facts.contains_key(&goes) && !heard.facts.contains_key(&comes), "nothing got through");
    gate.forget_requests();
    hold.release();
    heard.until("what came is told", |it| it.facts.contains_key(&comes)).await;
    heard.until("what went is told", |it| !it.facts.contains_key(&goes)).await;
    heard.until("all is well again", |it| it.wrong(&scene).is_empty()).await;
    assert!(heard.facts.contains_key(&stays) && !heard.gone.contains(&stays), "not for a moment");
    // Whether the store is older, the watch that is refused, the list, and the next watch: nobody storms it.
    scene.apply_here(&service("later", 80));
    let later = reference(&scene, "later");
    heard.until("it is watched again", |it| it.facts.contains_key(&later)).await;
    assert!((3..=12).contains(&gate.count(SERVICES)), "{:?}", gate.requests());
}

#[tokio::test]
async fn a_watch_of_what_never_changes_lives_on_bookmarks() {
    let _logged = logged();
    let Some(scene) = Scene::alone() else { return };
    scene.cluster.define(crds::definitions());
    let gate = Gate::here(&scene.kubeconfig);
    // Longer than an API server waits with a bookmark: nothing else comes sooner.
    let pace = WatchTimings { silence: Duration::from_secs(90), ..PACE };
    let mut heard = Heard::of(&connect(gate.kubeconfig(), pace).await);
    heard.until_synced().await;
    let pools = "GET /apis/seaway.dev/v1alpha1/addresspools";
    // A list, and a watch that the API server has begun.
    heard.during(eventually("it is watched", async || (gate.done(pools) >= 2).then_some(()))).await;

    // Another watch beside it, which hears the same.
    let kind = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("seaway.dev", "v1alpha1", "AddressPool"),
        "addresspools",
    );
    let beside: Api<DynamicObject> = Api::all_with(client(&scene.kubeconfig).await, &kind);
    let listed = heard.during(beside.list(&ListParams::default())).await.expect("is listed");
    let version = listed.metadata.resource_version.expect("a list has one");
    let stream = heard.during(beside.watch(&WatchParams::default(), &version)).await.expect("is watched");
    // An API server sends a watch bookmarks only of versions after the one it began at, and etcd may say how far it is every
    // ten minutes only: both watches begin before the pool, so that both get bookmarks.
    scene.cluster.apply(POOL);
    let pool = FactRef::Object(ObjectRef::new(Kind::AddressPool, "", "quiet"));
    heard.until("the pool is watched", |it| it.facts.contains_key(&pool)).await;
    let before = gate.count(pools);

    // Until the first bookmark after the time in which the watch of Seaway would have been given up without one.
    let bookmarks = async {
        let mut stream = pin!(stream);
        let began = Instant::now();
        while began.elapsed() <= pace.silence {
            let event = stream.next().await.expect("it goes on").expect("an event");
            let is_the_pool =
                matches!(&event, WatchEvent::Added(it) if it.metadata.name.as_deref() == Some("quiet"));
            assert!(is_the_pool || matches!(event, WatchEvent::Bookmark(_)), "nothing changes: {event:?}");
        }
    };
    heard.during(bookmarks).await;
    assert_eq!(gate.count(pools), before, "it is the watch of before: {}", heard.told_of(&kubernetes()));
    assert!(!heard.problems.contains_key(&kubernetes()), "{}", heard.told_of(&kubernetes()));
}

#[tokio::test]
async fn connections_that_are_half_open_are_given_up_and_nothing_is_gone_by_that() {
    let Some(scene) = Scene::up("half-open") else { return };
    for name in ["stays", "goes"] {
        scene.apply_here(&service(name, 80));
    }
    let gate = Gate::here(&scene.kubeconfig);
    let pace = WatchTimings { silence: Duration::from_secs(3), answer: Duration::from_secs(2), ..PACE };
    let mut heard = Heard::of(&connect(gate.kubeconfig(), pace).await);
    heard.until_synced().await;
    let (goes, comes, stays) =
        (reference(&scene, "goes"), reference(&scene, "comes"), reference(&scene, "stays"));
    for round in 0..2 {
        gate.stall();
        scene.here(&["delete", "service", "goes"]);
        scene.apply_here(&service("comes", 80));
        heard.until("what went is told", |it| !it.facts.contains_key(&goes)).await;
        heard.until("what came is told", |it| it.facts.contains_key(&comes)).await;
        assert!(
            heard.facts.contains_key(&stays) && !heard.gone.contains(&stays),
            "{round}: not for a moment"
        );
        scene.apply_here(&service("goes", 80));
        scene.here(&["delete", "service", "comes"]);
        heard
            .until("it is watched again", |it| it.facts.contains_key(&goes) && !it.facts.contains_key(&comes))
            .await;
    }
}

#[tokio::test]
async fn what_comes_slowly_comes_whole() {
    let Some(scene) = Scene::up("slow") else { return };
    scene.apply_here(&service("early", 80));
    let gate = Gate::here(&scene.kubeconfig);
    gate.slow_down();
    let mut heard = Heard::of(&connect(gate.kubeconfig(), PACE).await);
    heard.until_synced().await;
    let early = reference(&scene, "early");
    assert!(heard.facts.contains_key(&early), "all of a list comes before it counts");
    // Faster than they go through.
    for port in 1..=60 {
        scene.apply_here(&service("changes", port));
    }
    let changes = reference(&scene, "changes");
    let is_last =
        |it: &Heard| matches!(it.facts.get(&changes), Some(Fact::Service(it)) if it.ports[0].port == 60);
    heard.until("the last change arrives", is_last).await;
    let unreachable = |it: &Heard| {
        it.problems.get(&kubernetes()).is_some_and(|it| it.iter().any(|it| it.reason == Reason::Unreachable))
    };
    assert!(!unreachable(&heard), "{}", heard.told_of(&kubernetes()));
    scene.here(&["delete", "service", "early"]);
    heard.until("the deletion arrives", |it| !it.facts.contains_key(&early)).await;
}
