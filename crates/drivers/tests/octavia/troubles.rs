//! What cannot be, for now or until somebody mends it: told once, with who can mend it, and asked for seldom.

use std::sync::Arc;

use seaway_engine::{Context, Driver};
use seaway_model::{Desired, Unit};
use seaway_openstack::neutron::{Network, NewNetwork, NewSubnet, Subnet};
use seaway_testkit::cloud::Fault;
use serde_json::json;

use crate::{living::*, scene::*};

const NOBODY: &str = "0f2b8f8e-6a55-4f3b-9d9e-3f1c9f8e0a71";
#[tokio::test]
async fn what_only_its_user_can_mend_is_told_once_and_done_once_it_is_mended() {
    for (what, limits, words) in [
        ("load balancers", Some(("load_balancer", 0)), "load balancer"),
        ("listeners", Some(("listener", 0)), "listener"),
        ("floating IPs", Some(("floatingip", 0)), "floating"),
        ("ports", None, "['port']"),
        ("the role", None, "policy"),
    ] {
        let scene = Scene::set().await;
        let admin = scene.admin().await;
        let project = scene.fake.project_id("demo").unwrap();
        let set = async |limit: i64| {
            let Some((kind, _)) = limits else { return };
            let limits = [(kind.to_owned(), limit)].into();
            match kind {
                "floatingip" => admin.network_quotas(&project).change(&limits).await.unwrap(),
                _ => admin.load_balancer_quotas(&project).change(&limits).await.unwrap(),
            }
        };
        set(0).await;
        if limits.is_none() {
            // As Octavia passes on what Neutron said of the VIP, and as it says itself.
            let (status, why) = match what {
                "ports" => (409, "Quota exceeded for resources: ['port']."),
                _ => (403, "Policy does not allow this request to be performed."),
            };
            let no = json!({ "faultcode": "Client", "faultstring": why });
            scene.fake.fail(Fault::on("POST */lbaas/loadbalancers").always().reply(status, no));
        }
        let wish = scene.wish(&[80], &[1]);
        let wishes = [(unit(), Desired::LoadBalancer(Arc::new(wish.clone())))];
        let seen = live(&scene, &wishes, TEN_MINUTES).await;
        assert_eq!(seen.told.len(), 1, "{what}: {:?}", seen.told);
        let told = seen.told.first().unwrap().to_lowercase();
        assert!(told.contains(words) && has_fix(&told), "{what}: {told}");
        assert!(seen.requests <= 100, "{what}: {} requests in ten minutes", seen.requests);
        set(100).await;
        scene.fake.heal();
        let seen = live(&scene, &wishes, TEN_MINUTES).await;
        assert_eq!((seen.told.len(), seen.at_rest), (0, 1), "{what}: {:?}", seen.told);
        scene.remove().await;
        assert!(scene.balancers().await.is_empty() && scene.floating().await.is_empty(), "{what}");
    }
}

/// Lists of all kinds are asked for at once: which of them is refused first is chance.
#[tokio::test]
async fn a_role_that_is_missing_for_all_is_told_once_whatever_is_refused_first() {
    for first in ["loadbalancers", "listeners", "healthmonitors"] {
        let scene = Scene::set().await;
        scene.fake.fail(Fault::on(&format!("GET */lbaas/{first}")).status(403));
        scene.fake.fail(Fault::on("GET */lbaas/pools").nth(2).always().status(403));
        let wishes = [(unit(), Desired::LoadBalancer(Arc::new(scene.wish(&[80], &[1]))))];
        let seen = live(&scene, &wishes, TEN_MINUTES).await;
        assert_eq!(seen.told.len(), 1, "{first}: {:?}", seen.told);
        let told = seen.told.first().unwrap();
        assert!(told.contains("Give the user of cloud.conf a role"), "{told}");
    }
}

#[tokio::test]
async fn a_network_that_is_not_there_and_a_subnet_that_is_full_are_told() {
    let scene = Scene::set().await;
    let network = NewNetwork { name: "lonely".into(), ..NewNetwork::new() };
    let network = scene.cloud.all::<Network>().create(&network).await.unwrap().id;
    let tiny = NewSubnet { cidr: Some("192.168.7.0/30".to_owned()).into(), ..NewSubnet::new(network, 4) };
    let tiny = scene.cloud.all::<Subnet>().create(&tiny).await.unwrap().id;
    let plain = scene.wish(&[80], &[1]);
    let with = |change: &dyn Fn(&mut seaway_model::load_balancer::CloudOptions)| {
        let mut wish = plain.clone();
        change(wish.options.cloud.as_mut().unwrap());
        wish
    };
    let full = with(&|it| (it.subnet, it.internal) = (Some(tiny.as_str().into()), true));
    let filling: Vec<(Unit, Desired)> = (0..4).map(|it| of(it, &full)).collect();
    live(&scene, &filling, TEN_MINUTES).await;
    let elsewhere = with(&|it| it.subnet = Some(tiny.as_str().into()));
    for (what, number, wish, words) in [
        ("no such subnet", 10, with(&|it| it.subnet = Some(NOBODY.into())), "ubnet"),
        ("no such floating network", 11, with(&|it| it.floating.network = Some(NOBODY.into())), NOBODY),
        ("a subnet that is full", 12, full.clone(), "ddress"),
        ("no router leads there", 13, elsewhere, ""),
    ] {
        let wishes = [of(number, &wish)];
        let seen = live(&scene, &wishes, TEN_MINUTES).await;
        assert_eq!(seen.told.len(), 1, "{what}: {:?}", seen.told);
        let told = seen.told.first().unwrap();
        assert!(told.contains(words) && has_fix(told), "{what}: {told}");
        assert!(seen.requests <= 100, "{what}: {} requests in ten minutes", seen.requests);
    }
}

#[tokio::test]
async fn a_token_that_ends_is_renewed_and_a_password_that_is_wrong_is_told() {
    let scene = Scene::set().await;
    let wishes: Vec<(Unit, Desired)> = (0..10).map(|it| of(it, &scene.wish(&[80], &[1]))).collect();
    scene.fake.revoke_tokens();
    let seen = live(&scene, &wishes, TEN_MINUTES).await;
    assert_eq!((seen.told.len(), seen.at_rest, seen.sign_ins), (0, 10, 1), "{:?}", seen.told);

    scene.fake.set_password("demo", "another");
    scene.fake.revoke_tokens();
    let wishes: Vec<(Unit, Desired)> = (0..10).map(|it| of(it, &scene.wish(&[81], &[1]))).collect();
    let seen = live(&scene, &wishes, TEN_MINUTES).await;
    assert_eq!(seen.told.len(), 1, "{:?}", seen.told);
    assert!(has_fix(seen.told.first().unwrap()), "{:?}", seen.told);
    assert!(seen.sign_ins <= 40, "{} sign-ins of ten Services in ten minutes lock an account", seen.sign_ins);
    scene.fake.set_password("demo", "demopw");
    let seen = live(&scene, &wishes, TEN_MINUTES).await;
    assert_eq!(seen.at_rest, 10, "{:?}", seen.told);
}

#[tokio::test]
async fn a_service_that_is_away_for_ten_minutes_is_asked_by_one_for_all() {
    for (what, fault, name) in [
        ("Octavia is away", Fault::on("* /load-balancer/*").always().lose_request(), "Octavia"),
        ("Octavia is too busy", Fault::on("* /load-balancer/*").always().status(503), "Octavia"),
        ("Neutron breaks", Fault::on("POST */floatingips").always().status(500), "Neutron"),
    ] {
        let mut scene = Scene::set().await;
        let wish = scene.wish(&[80], &[1]);
        let wishes: Vec<(Unit, Desired)> = (0..20).map(|it| of(it, &wish)).collect();
        // It has the versions of the API by now.
        scene.driver.observe(&Context::default(), &wishes[0].0, &wishes[0].1).await.unwrap();
        scene.fake.fail(fault);
        let seen = live(&scene, &wishes, TEN_MINUTES).await;
        assert_eq!(seen.told.len(), 1, "{what}: {:?}", seen.told);
        let told = seen.told.first().unwrap();
        assert!(told.contains(name) && has_fix(told), "{what}: {told}");
        assert_eq!(seen.at_rest, 0, "{what}");
        assert!(seen.requests <= 500, "{what}: {} requests of twenty Services in ten minutes", seen.requests);
        scene.fake.heal();
        let seen = live(&scene, &wishes, TEN_MINUTES).await;
        assert_eq!(seen.at_rest, 20, "{what}: {:?}", seen.told);
        assert_eq!((scene.balancers().await.len(), scene.floating().await.len()), (20, 20), "{what}");
        let gone: Vec<_> = wishes.into_iter().map(|(unit, _)| (unit, Desired::Absent)).collect();
        scene.restarted();
        live(&scene, &gone, TEN_MINUTES).await;
        assert_eq!((scene.balancers().await.len(), scene.floating().await.len()), (0, 0), "{what}");
    }
}
