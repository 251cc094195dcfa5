//! Watches through what befalls them.

use std::time::Duration;

use seaway_cluster::{WantedSecrets, WatchTimings};
use seaway_model::{Fact, Kind, ObjectRef, Reason, fact::FactRef};
use seaway_testkit::kubernetes::{Gate, METALLB};

use crate::scene::{BROKEN, Heard, KINDS_OF_OTHERS, PACE, Scene, connect};

fn service(name: &str) -> String {
    format!("apiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{ports: [{{port: 80}}]}}\n")
}

fn reference(scene: &Scene, name: &str) -> FactRef {
    FactRef::Object(ObjectRef::new(Kind::Service, &*scene.namespace, name))
}

#[tokio::test]
async fn what_comes_changes_and_goes_is_told() {
    let Some(scene) = Scene::up("changes") else { return };
    scene.apply_here(&service("early"));
    let mut heard = scene.watch().await;
    heard.until_synced().await;
    let namespace = scene.namespace.clone();
    assert!(heard.service(&namespace, "early").is_some(), "what is there is told before it is all");
    scene.apply_here(&service("late"));
    heard.until("it came", |it| it.service(&namespace, "late").is_some()).await;
    scene.apply_here(&service("late").replace("80", "81"));
    heard
        .until("it changed", |it| it.service(&namespace, "late").is_some_and(|it| it.ports[0].port == 81))
        .await;
    scene.here(&["delete", "service", "early"]);
    heard.until("it went", |it| it.service(&namespace, "early").is_none()).await;
}

#[tokio::test]
async fn a_partition_tells_nothing_as_gone_and_its_end_all_that_changed() {
    let Some(scene) = Scene::up("partition") else { return };
    for name in ["stays", "goes"] {
        scene.apply_here(&service(name));
    }
    let gate = Gate::here(&scene.kubeconfig);
    // A watch that is half open is noticed by its silence alone.
    let pace = WatchTimings { silence: Duration::from_secs(3), answer: Duration::from_secs(1), ..PACE };
    let cluster = connect(gate.kubeconfig(), pace).await;
    let mut heard = Heard::of(&cluster);
    heard.until_synced().await;
    gate.freeze();
    scene.here(&["delete", "service", "goes"]);
    scene.apply_here(&service("comes"));
    let kubernetes = ObjectRef::new(Kind::Config, "", "kubernetes");
    heard.until("the silence is told", |it| it.problems.contains_key(&kubernetes)).await;
    assert_eq!(heard.problems[&kubernetes][0].reason, Reason::Unreachable);
    assert_eq!(heard.problems[&kubernetes].len(), 1, "{}", heard.told_of(&kubernetes));
    assert!(heard.gone.is_empty() && heard.facts.contains_key(&reference(&scene, "goes")));
    gate.thaw();
    let (goes, comes) = (reference(&scene, "goes"), reference(&scene, "comes"));
    heard.until("what went is told", |it| !it.facts.contains_key(&goes)).await;
    heard.until("what came is told", |it| it.facts.contains_key(&comes)).await;
    heard.until("all is well again", |it| it.wrong(&scene).is_empty()).await;
    assert!(heard.facts.contains_key(&reference(&scene, "stays")));
    assert!(!heard.gone.contains(&reference(&scene, "stays")), "not for a moment");
}

#[tokio::test]
async fn a_broken_object_spoils_only_itself_and_what_it_said_goes_on() {
    let Some(scene) = Scene::up("broken") else { return };
    let address = |pool: &str, name: &str, ip: &str| {
        format!(
            "apiVersion: seaway.dev/v1alpha1\nkind: Address\nmetadata: {{name: {name}}}\n\
             spec: {{address: {ip}, pool: {pool}, owners: []}}\n"
        )
    };
    scene.apply(&address("one", "198-51-100-1", "198.51.100.1"));
    // No schema can tell that this name is not this address.
    scene.apply(&address("one", BROKEN, "198.51.100.2"));
    let mut heard = scene.watch().await;
    heard.until_synced().await;
    let broken = ObjectRef::new(Kind::Address, "", BROKEN);
    assert!(heard.told_of(&broken).contains("metadata.name: Invalid value"), "{:?}", heard.problems);
    let good = FactRef::Address("198.51.100.1".parse().expect("an address"));
    assert!(heard.facts.contains_key(&good));
    scene.apply(&address("two", "198-51-100-1", "198.51.100.1"));
    heard
        .until("others go on", |it| matches!(&it.facts[&good], Fact::Address(it) if &*it.pool == "two"))
        .await;
    scene.kubectl(&["delete", "address", BROKEN, "198-51-100-1"]);
    heard.until("its Problem goes with it", |it| !it.problems.contains_key(&broken)).await;
    heard.until("the good one goes", |it| !it.facts.contains_key(&good)).await;
}

#[tokio::test]
async fn only_of_secrets_that_are_wanted_is_told_what_they_hold_and_what_becomes_wanted_is_fetched() {
    let Some(scene) = Scene::up("secrets") else { return };
    let secret = |name: &str, kind: &str, text: &str| {
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}}}\ntype: {kind}\n\
             stringData: {{tls.crt: {text}, tls.key: {text}, ca.crt: {text}}}\n"
        )
    };
    scene.apply_here(&secret("shown", "kubernetes.io/tls", "a"));
    scene.apply_here(&secret("other", "kubernetes.io/tls", "a"));
    scene.apply_here(&secret("authority", "Opaque", "a"));
    let object = |name: &str| ObjectRef::new(Kind::Secret, &*scene.namespace, name);
    let told = |heard: &Heard, name: &str| matches!(heard.facts.get(&FactRef::Object(object(name))), Some(Fact::Secret(it)) if !it.withheld);
    let mut heard = scene.watch().await;
    heard.want(WantedSecrets::These([object("shown")].into()));
    heard.until("one alone is told", |it| told(it, "shown") && !told(it, "other")).await;
    let there = |heard: &Heard, name: &str| heard.facts.contains_key(&FactRef::Object(object(name)));
    assert!(there(&heard, "other"), "the other is there, whatever it holds");
    heard.want(WantedSecrets::These([object("other"), object("authority")].into()));
    heard
        .until("what is wanted is fetched, of whatever type", |it| {
            told(it, "other") && told(it, "authority") && !told(it, "shown")
        })
        .await;
    scene.apply_here(&secret("shown", "kubernetes.io/tls", "b"));
    scene.apply_here(&secret("other", "kubernetes.io/tls", "b"));
    let other = FactRef::Object(object("other"));
    heard
        .until("a renewed one is told", |it| {
            use secrecy::ExposeSecret;
            matches!(&it.facts[&other], Fact::Secret(it) if it.values["tls.crt"].expose_secret() == "b")
        })
        .await;
    assert!(!told(&heard, "shown"), "nobody wants it any more");
    scene.here(&["delete", "secret", "shown"]);
    heard.until("it is gone", |it| !there(it, "shown")).await;
    heard.want(WantedSecrets::These([object("other")].into()));
    heard.until("one of another type is not even there", |it| !there(it, "authority")).await;
}

#[tokio::test]
async fn a_kind_that_comes_later_is_noticed() {
    let Some(scene) = Scene::up("later") else { return };
    let _turn = KINDS_OF_OTHERS.lock().await;
    let _ = scene.try_kubectl(&["delete", "crd", "ipaddresspools.metallb.io", "--wait=true"], "");
    let mut heard = scene.watch().await;
    heard
        .until("a kind that is not there counts as empty", |it| it.synced.contains(&Kind::IPAddressPool))
        .await;
    heard.until_synced().await;
    let wrong = heard.wrong(&scene);
    assert!(wrong.is_empty(), "nobody misses what a cluster does not have: {wrong:?}");
    scene.cluster.define(METALLB);
    scene.apply_here(
        "apiVersion: metallb.io/v1beta1\nkind: IPAddressPool\nmetadata: {name: p}\nspec: {addresses: [192.0.2.0/28]}\n",
    );
    let pool = FactRef::Object(ObjectRef::new(Kind::IPAddressPool, &*scene.namespace, "p"));
    heard.until("it is told once it is there", |it| it.facts.contains_key(&pool)).await;
}

#[tokio::test]
async fn a_node_is_trimmed_so_that_its_heartbeats_are_nothing_new() {
    let Some(scene) = Scene::up("heartbeats") else { return };
    let name = scene.namespace.clone();
    scene.apply(&format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n"));
    let mut heard = scene.watch().await;
    heard.until_synced().await;
    let reference = FactRef::Object(ObjectRef::new(Kind::Node, "", &*name));
    let beat = |at: u32| {
        let condition = format!(
            r#"{{"status":{{"conditions":[{{"type":"Ready","status":"True","lastHeartbeatTime":"2026-01-01T00:00:{at:02}Z"}}]}}}}"#
        );
        scene.kubectl(&["patch", "node", &name, "--subresource=status", "--type=merge", "-p", &condition]);
    };
    beat(0);
    let ready = |it: &Heard| matches!(it.facts.get(&reference), Some(Fact::Node(it)) if it.ready);
    heard.until("it is ready", ready).await;
    let (before, puts) = (heard.facts[&reference].clone(), heard.puts);
    for at in 1..4 {
        beat(at);
    }
    scene.apply_here(&service("after"));
    let after = self::reference(&scene, "after");
    heard
        .until("what came after the heartbeats is told", |it| it.facts.contains_key(&after) && it.puts > puts)
        .await;
    assert_eq!(heard.facts[&reference], before);
    scene.kubectl(&["delete", "node", &name]);
}
