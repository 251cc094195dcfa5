//! Names, descriptions and tags of all that is written, as a golden file: another version of Seaway knows by them what is its
//! own, and the other controller what it made. Who changes one leaves what is there without an owner.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use seaway_drivers::octavia::sole::SoleWriter;
use seaway_engine::{HeartbeatRecord, OwnersFuture};
use seaway_model::{
    Desired, LoadBalancer,
    load_balancer::{CloudOptions, CloudTags, HealthCheck},
};
use seaway_openstack::neutron::FloatingIp;
use seaway_testkit::golden;
use serde_json::Value;

use crate::{groups::GroupScene, scene::*, tls::secured};

/// What is written there so far, one line for each name, description and tag.
#[derive(Default)]
struct Written(Vec<String>);

impl Written {
    fn note(&mut self, case: &str, scene: &Scene) {
        let mut lines = BTreeSet::new();
        for it in scene.fake.requests() {
            let is_done = it.status.is_some_and(|it| it < 300);
            let (true, Some(body)) = (is_done && it.method != "GET" && !it.path.contains("/auth/"), &it.body)
            else {
                continue;
            };
            let at = it.path.split('/').filter(|part| !part.is_empty() && masked(part) == *part);
            let at = at.skip_while(|it| !it.starts_with('v')).skip(1).collect::<Vec<_>>().join("/");
            words(body, "", "", &mut |path, text| {
                lines.insert(format!("{case}: {} {at}{path} {}\n", it.method, masked(text)));
            });
        }
        assert!(!lines.is_empty(), "{case}: nothing is written");
        self.0.extend(lines);
        scene.fake.forget_requests();
    }
}

/// All that says whose something is, with where it stands.
fn words(value: &Value, path: &str, key: &str, note: &mut impl FnMut(&str, &str)) {
    match value {
        Value::Object(all) => all.iter().for_each(|(key, it)| words(it, &format!("{path}.{key}"), key, note)),
        Value::Array(all) => all.iter().for_each(|it| words(it, &format!("{path}[]"), key, note)),
        Value::String(text) if ["name", "description", "tags"].contains(&key) => note(path, text),
        _ => {}
    }
}

/// Without what is another in each run: ids, and digests of certificates.
fn masked(text: &str) -> String {
    let is_part = |it: char| it.is_ascii_hexdigit() || it == '-';
    let mut masked = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|it| is_part(it) != is_part(first)).unwrap_or(rest.len());
        let (part, after) = rest.split_at(end);
        let is_random = is_part(first) && part.len() >= 16 && part.contains(|it: char| it.is_ascii_digit());
        masked.push_str(if is_random { "…" } else { part });
        rest = after;
    }
    masked
}

fn with(mut wish: LoadBalancer, change: impl FnOnce(&mut CloudOptions)) -> LoadBalancer {
    change(wish.options.cloud.as_mut().unwrap());
    wish
}

fn checked(mut wish: LoadBalancer) -> LoadBalancer {
    wish.pools.values_mut().for_each(|it| Arc::make_mut(it).health = Some(HealthCheck::default()));
    wish
}

/// Keeps none over a restart.
#[derive(Default)]
struct Recorded(Mutex<Vec<String>>);

impl HeartbeatRecord for Recorded {
    fn heartbeats(&self) -> OwnersFuture<'_, Vec<String>> {
        Box::pin(std::future::ready(Ok(self.0.lock().unwrap().clone())))
    }

    fn record(&self, heartbeats: Vec<String>) -> OwnersFuture<'_, ()> {
        *self.0.lock().unwrap() = heartbeats;
        Box::pin(std::future::ready(Ok(())))
    }
}

#[tokio::test]
async fn names_descriptions_and_tags_are_those_that_are_known_by() {
    let mut written = Written::default();

    let scene = Scene::set().await;
    scene.fake.forget_requests();
    let wish = with(checked(secured(scene.wish(&[80, 443], &[1, 2]), &["shop"])), |it| {
        let tag = |it: &str| [it.into()].into();
        it.tags = CloudTags {
            balancer: tag("of-balancer"),
            listener: tag("of-listener"),
            pool: tag("of-pool"),
            floating: tag("of-floating"),
        };
    });
    scene.reach(&wish).await;
    written.note("a whole Service", &scene);

    scene.reach(&with(wish.clone(), |it| it.floating.keep = true)).await;
    written.note("its floating IP is to stay", &scene);

    let alone = Arc::new(SoleWriter::default());
    alone.begin("term", true);
    driver(&scene.cloud, "amphora").alone(alone).beat(&Recorded::default()).await;
    written.note("a heartbeat", &scene);

    let scene = Scene::set().await;
    scene.reach(&checked(scene.wish(&[80], &[1]))).await;
    scene.fake.forget_requests();
    scene.reach(&checked(scene.wish(&[80, 443], &[1]))).await;
    written.note("one port more", &scene);
    let network = scene.floating().await.remove(0).floating_network_id;
    let new = seaway_openstack::neutron::NewFloatingIp::new(network);
    let other = scene.cloud.all::<FloatingIp>().create(&new).await.unwrap().floating_ip_address;
    scene.fake.forget_requests();
    scene.reach(&with(scene.wish(&[80, 443], &[1]), |it| it.requested = other)).await;
    written.note("another floating IP", &scene);

    let scene = Scene::set().await;
    scene.fake.forget_requests();
    for (uid, port) in [("uid-1", 80), ("uid-2", 443)] {
        let wish = with(scene.wish_of(uid, &[port], &[1]), |it| {
            (it.group, it.most_shared) = (Some("default/web".into()), 3);
        });
        scene.reach_of(uid, &wish).await;
    }
    written.note("two Services share one", &scene);
    scene.remove_of("uid-1").await;
    written.note("the first of them leaves", &scene);

    let scene = Scene::of_both(25).await;
    scene.fake.forget_requests();
    let wish = Desired::LoadBalancer(Arc::new(scene.wish_of_both(&[80], &[1])));
    scene.reach_unit(&unit(), &wish).await;
    scene.reach_unit(&second_unit(), &wish).await;
    written.note("two families", &scene);

    let scene = Scene::with("ovn").await;
    scene.fake.forget_requests();
    scene.reach(&checked(scene.wish(&[80], &[1]))).await;
    written.note("by ovn", &scene);

    let town = GroupScene::set().await;
    let node = town.node(11).await;
    town.scene.fake.forget_requests();
    town.reach(&town.wish(&[("shop", &[30_080])], &[node])).await;
    written.note("a security group", &town.scene);

    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/written.txt");
    golden::same(file, &written.0.concat());
}
