//! What only the configuration of the cloud takes away stays at what serves, until its Service asks for it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use seaway_model::{ListenerId, LoadBalancer, Member, PoolId};
use seaway_openstack::{
    octavia::{self, Protocol},
    resource::Query,
};

use crate::{
    partial::reach,
    scene::*,
    tls::{referred, theirs},
};

/// Each member is a Node, called after the last byte of its address.
fn of_nodes(mut wish: LoadBalancer) -> LoadBalancer {
    wish.options.cloud.as_mut().unwrap().by_nodes = true;
    for pool in wish.pools.values_mut() {
        let name =
            |it: &mut Member| it.node = Some(it.at.ip().to_string().rsplit('.').next().unwrap().into());
        Arc::make_mut(pool).members.iter_mut().for_each(name);
    }
    wish
}

/// Without these members, that only the file leaves out.
fn passing_over(mut wish: LoadBalancer, left_out: &[u8]) -> LoadBalancer {
    let is_left_out =
        |it: &Member| left_out.iter().any(|last| it.at.ip().to_string().ends_with(&format!(".{last}")));
    let mut passed_over = BTreeMap::new();
    for id in wish.listeners.keys() {
        let pool = wish.pools.get_mut(&PoolId(format!("{}/TCP", id.port).into()));
        let pool = Arc::make_mut(pool.unwrap());
        let (out, stay): (Vec<_>, Vec<_>) = pool.members.drain(..).partition(is_left_out);
        pool.members = stay;
        passed_over.insert(*id, out);
    }
    wish.options.cloud.as_mut().unwrap().passed_over = passed_over;
    wish
}

async fn members(scene: &Scene) -> BTreeSet<(u16, String)> {
    let mut all = BTreeSet::new();
    for pool in scene.pools().await {
        let its = scene.cloud.within::<octavia::Member>(&pool.id);
        let its = its.list::<octavia::Member>(Query::all()).await.unwrap();
        all.extend(its.into_iter().map(|it| (it.protocol_port - 30_000, it.address.to_string())));
    }
    all
}

fn at(port: u16, last: &[u8]) -> BTreeSet<(u16, String)> {
    last.iter().map(|it| (port, format!("10.0.0.{it}"))).collect()
}

#[tokio::test]
async fn nodes_that_only_the_file_leaves_out_stay_and_new_pools_do_not_get_them() {
    let mut scene = Scene::set().await;
    reach(&scene, &of_nodes(scene.wish(&[80], &[1, 2]))).await;
    for restarts in [false, true] {
        if restarts {
            scene.restarted();
        }
        let wish = passing_over(of_nodes(scene.wish(&[80], &[1, 2])), &[1]);
        assert_eq!(reach(&scene, &wish).await, [""; 0]);
        let told = scene.reach_telling(&wish).await;
        let said: Vec<_> = told.iter().filter(|it| it.message.contains("10.0.0.1")).collect();
        assert!(said.len() == 1 && said[0].fix.contains("seaway.dev/apply-configuration"), "{told:?}");
    }
    // Another Node comes, another port comes.
    let wish = passing_over(of_nodes(scene.wish(&[80, 443], &[1, 2, 3])), &[1]);
    reach(&scene, &wish).await;
    assert_eq!(members(&scene).await, &at(80, &[1, 2, 3]) | &at(443, &[2, 3]));
    // The Node is gone: so is the member, though nothing else is left to serve but what the file wants.
    reach(&scene, &of_nodes(scene.wish(&[80, 443], &[2, 3]))).await;
    assert_eq!(members(&scene).await, &at(80, &[2, 3]) | &at(443, &[2, 3]));
    // All are left out: none goes.
    let wish = passing_over(of_nodes(scene.wish(&[80], &[2, 3])), &[2, 3]);
    reach(&scene, &wish).await;
    assert_eq!(members(&scene).await, at(80, &[2, 3]));
}

#[tokio::test]
async fn a_node_stays_a_member_at_the_address_that_it_has() {
    let mut scene = Scene::set().await;
    let two = |scene: &Scene, first: u8, other: u8| {
        let mut wish = of_nodes(scene.wish(&[80], &[first, 5, other]));
        let pool = wish.pools.values_mut().next().unwrap();
        let its = Arc::make_mut(pool).members.iter_mut().filter(|it| !it.at.ip().to_string().ends_with(".5"));
        its.for_each(|it| it.node = Some("a".into()));
        passing_over(wish, &[other])
    };
    reach(&scene, &two(&scene, 1, 2)).await;
    assert_eq!(members(&scene).await, at(80, &[1, 5]));
    for restarts in [false, true] {
        if restarts {
            scene.restarted();
        }
        // The file prefers the other one by now.
        assert_eq!(reach(&scene, &two(&scene, 2, 1)).await, [""; 0]);
    }
    // The Node lost it.
    let mut wish = two(&scene, 2, 1);
    wish.options.cloud.as_mut().unwrap().passed_over.clear();
    reach(&scene, &wish).await;
    assert_eq!(members(&scene).await, at(80, &[2, 5]));
}

fn by_default(wish: LoadBalancer, reference: &str, ports: &[u16]) -> LoadBalancer {
    let mut wish = referred(wish, reference);
    let tls = wish.options.cloud.as_mut().unwrap().tls.as_mut().unwrap();
    tls.by_default = true;
    tls.references.retain(|id: &ListenerId, _| ports.contains(&id.port));
    wish
}

async fn protocols(scene: &Scene) -> Vec<(u16, Protocol)> {
    let mut all: Vec<_> =
        scene.listeners().await.into_iter().map(|it| (it.protocol_port, it.protocol)).collect();
    all.sort_by_key(|(port, _)| *port);
    all
}

#[tokio::test]
async fn a_certificate_for_all_that_comes_to_the_file_or_goes_replaces_no_listener() {
    let mut scene = Scene::set().await;
    let reference = theirs(&scene).await;
    reach(&scene, &scene.wish(&[80], &[1])).await;
    for restarts in [false, true] {
        if restarts {
            scene.restarted();
        }
        let wish = by_default(scene.wish(&[80], &[1]), &reference, &[80]);
        assert_eq!(reach(&scene, &wish).await, [""; 0]);
        let told = scene.reach_telling(&wish).await;
        assert!(told.iter().any(|it| it.message.contains("80/TCP still serve without TLS")), "{told:?}");
    }
    // A new port has it, and keeps it when the file has it no more.
    reach(&scene, &by_default(scene.wish(&[80, 443], &[1]), &reference, &[80, 443])).await;
    let both = [(80, Protocol::Tcp), (443, Protocol::TerminatedHttps)];
    assert_eq!(protocols(&scene).await, both);
    for restarts in [false, true] {
        if restarts {
            scene.restarted();
        }
        assert_eq!(reach(&scene, &scene.wish(&[80, 443], &[1])).await, [""; 0]);
        assert_eq!(protocols(&scene).await, both);
        let told = scene.reach_telling(&scene.wish(&[80, 443], &[1])).await;
        assert!(told.iter().any(|it| it.message.contains("443/TCP keep the certificate")), "{told:?}");
    }
    // Its Service asks for it.
    let mut wish = scene.wish(&[80, 443], &[1]);
    wish.options.cloud.as_mut().unwrap().applies = true;
    reach(&scene, &wish).await;
    assert_eq!(protocols(&scene).await, [(80, Protocol::Tcp), (443, Protocol::Tcp)]);
    let mut wish = by_default(scene.wish(&[80, 443], &[1]), &reference, &[80, 443]);
    let outside = wish.options.cloud.as_mut().unwrap();
    (outside.applies, outside.tls.as_mut().unwrap().by_default) = (true, false);
    reach(&scene, &wish).await;
    assert!(protocols(&scene).await.iter().all(|(_, it)| *it == Protocol::TerminatedHttps));
}
