//! Floating IPs: reused, asked for, kept.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use seaway_engine::{Context, Driver, Failure};
use seaway_model::{Desired, LoadBalancer};
use seaway_openstack::{
    neutron::{
        FloatingIp, FloatingIpChange, Network, NetworkChange, NewFloatingIp, NewNetwork, NewSubnet, Subnet,
    },
    octavia::LoadBalancer as Balancer,
    resource::Edit,
};

use seaway_testkit::cloud::{Fault, RequestHold};

use crate::scene::*;

/// As an engine would, whatever fails; the last failure.
async fn strive(scene: &Scene, wish: &LoadBalancer) -> Option<Failure> {
    let desired = Desired::LoadBalancer(Arc::new(wish.clone()));
    let mut failed = None;
    for _ in 0..10 {
        failed = None;
        let mut observed = scene.driver.observe(&Context::default(), &unit(), &desired).await.unwrap();
        for step in scene.driver.steps(&desired, &observed) {
            if let Err(failure) = scene.driver.apply(&Context::default(), &unit(), &step, &mut observed).await
            {
                failed = Some(failure);
                break;
            }
        }
        scene.pass(Duration::from_secs(10));
    }
    failed
}

async fn members(scene: &Scene) -> usize {
    scene.pools().await.iter().map(|it| it.members.len()).sum()
}

#[tokio::test]
async fn one_that_cannot_be_had_leaves_the_old_one_serving_and_members_follow() {
    for case in ["in use elsewhere", "forbidden", "no quota", "lost while it is associated"] {
        let scene = Scene::set().await;
        let mut wish = scene.wish(&[80], &[1]);
        scene.reach(&wish).await;
        let old = scene.floating().await.remove(0);
        let network = old.floating_network_id.clone();
        let mut requested = "203.0.113.77".parse().unwrap();
        match case {
            "in use elsewhere" => {
                scene.reach_of("uid-2", &scene.wish_of("uid-2", &[80], &[1])).await;
                let others = scene.floating().await.into_iter().find(|it| it.id != old.id).unwrap();
                requested = others.floating_ip_address.unwrap();
            }
            "forbidden" => scene.fake.fail(Fault::on("POST */floatingips").always().status(403)),
            "no quota" => {
                let project = scene.fake.project_id("demo").unwrap();
                let limits = [("floatingip".to_owned(), 1)].into();
                scene.admin().await.network_quotas(&project).change(&limits).await.unwrap();
            }
            _ => {
                let new = NewFloatingIp::new(network);
                let new = scene.cloud.all::<FloatingIp>().create(&new).await.unwrap();
                requested = new.floating_ip_address.unwrap();
                // The old one is detached by the first of these, and associated again by the third.
                for nth in [2, 5, 8, 11, 14, 17, 20, 23, 26, 29] {
                    scene.fake.fail(Fault::on("PUT */floatingips/*").nth(nth).status(409));
                }
                scene.fake.forget_requests();
            }
        }
        let outside = wish.options.cloud.as_mut().unwrap();
        outside.requested = Some(requested);
        let pool = wish.pools.values_mut().next().unwrap();
        *pool = scene.wish(&[80], &[1, 2]).pools.into_values().next().unwrap();
        assert!(strive(&scene, &wish).await.is_some(), "{case}: somebody is told");
        let now = scene.floating().await.into_iter().find(|it| it.id == old.id).expect(case);
        assert_eq!(now.port_id, old.port_id, "{case}: it leads there as before");
        assert_eq!(members(&scene).await, 2 + usize::from(case == "in use elsewhere"), "{case}");
    }
}

#[tokio::test]
async fn without_any_floating_ip_members_follow_all_the_same() {
    let scene = Scene::set().await;
    scene.fake.fail(Fault::on("POST */floatingips").always().status(403));
    assert!(strive(&scene, &scene.wish(&[80], &[1])).await.is_some());
    assert!(strive(&scene, &scene.wish(&[80, 443], &[1, 2])).await.is_some());
    assert_eq!((scene.listeners().await.len(), members(&scene).await), (2, 4));
    scene.fake.heal();
    scene.reach(&scene.wish(&[80, 443], &[1, 2])).await;
    assert_eq!(scene.floating().await.len(), 1);
}

/// As the other controller does it, under the same reason.
#[tokio::test]
async fn where_no_network_is_external_the_vip_is_the_address() {
    let mut scene = Scene::set().await;
    let heard = Arc::new(Mutex::new(Vec::new()));
    scene.hear(&heard);
    let admin = scene.admin().await;
    for network in admin.all::<Network>().list::<Network>(Default::default()).await.unwrap() {
        if network.external == Some(true) {
            let change = NetworkChange { external: Edit::To(Some(false)), ..NetworkChange::default() };
            admin.all::<Network>().change(&network.id, &change).await.unwrap();
        }
    }
    let wish = scene.wish(&[80], &[1]);
    let served = scene.served("uid-1", &wish).await;
    let vip = scene.balancers().await.remove(0).vip_address.unwrap();
    assert_eq!(served, [(vip, 80)]);
    assert_eq!(scene.reach(&scene.wish(&[80], &[1, 2])).await, ["set the 2 members of the pool of 80/TCP"]);
    let forced = heard.lock().unwrap().iter().filter(|it| it.reason == "LoadBalancerForcedInternal").count();
    assert_eq!(forced, 1, "once");
    assert!(scene.floating().await.is_empty());
    scene.remove().await;
    assert!(scene.balancers().await.is_empty());
}

#[tokio::test]
async fn one_that_was_allocated_before_a_crash_is_the_one_that_is_used_after_it() {
    let mut scene = Scene::set().await;
    let mut wish = scene.wish(&[80], &[1]);
    scene.reach(&wish).await;
    let old = scene.floating().await.remove(0).id;
    let another = NewNetwork { name: "another".into(), external: Some(true).into(), ..NewNetwork::new() };
    let admin = scene.admin().await;
    let another = admin.all::<Network>().create(&another).await.unwrap().id;
    let subnet =
        NewSubnet { cidr: Some("198.51.100.0/24".to_owned()).into(), ..NewSubnet::new(another.clone(), 4) };
    admin.all::<Subnet>().create(&subnet).await.unwrap();
    let outside = wish.options.cloud.as_mut().unwrap();
    (outside.floating.network, outside.remake) = (Some(another.as_str().into()), true);
    let desired = Desired::LoadBalancer(Arc::new(wish.clone()));
    let mut observed = scene.driver.observe(&Context::default(), &unit(), &desired).await.unwrap();
    let steps = scene.driver.steps(&desired, &observed);
    assert_eq!(steps[0].to_string(), "allocate a floating IP");
    scene.driver.apply(&Context::default(), &unit(), &steps[0], &mut observed).await.unwrap();
    scene.restarted();
    let observed = scene.driver.observe(&Context::default(), &unit(), &desired).await.unwrap();
    let steps: Vec<String> =
        scene.driver.steps(&desired, &observed).iter().map(ToString::to_string).collect();
    assert_eq!(
        steps,
        [
            format!("associate the new floating IP with the VIP instead of {old}"),
            format!("delete floating IP {old}"),
        ]
    );
}

#[tokio::test]
async fn one_that_somebody_else_made_is_used_and_stays() {
    let scene = Scene::set().await;
    let wish = scene.wish(&[80], &[1]);
    scene.reach(&wish).await;
    let ours = scene.floating().await.remove(0);
    let new = NewFloatingIp {
        description: "by hand".into(),
        ..NewFloatingIp::new(ours.floating_network_id.clone())
    };
    let theirs = scene.cloud.all::<FloatingIp>().create(&new).await.unwrap();
    let mut wish = wish;
    wish.options.cloud.as_mut().unwrap().requested = theirs.floating_ip_address;
    let steps = scene.reach(&wish).await;
    assert_eq!(
        steps,
        [
            "allocate a floating IP".to_owned(),
            format!("associate the new floating IP with the VIP instead of {}", ours.id),
            format!("delete floating IP {}", ours.id),
        ],
        "an address that is asked for later is taken, too"
    );
    let all = scene.floating().await;
    assert_eq!(all.len(), 1);
    assert_eq!((&all[0].id, all[0].port_id.is_some()), (&theirs.id, true));
    scene.remove().await;
    let all = scene.floating().await;
    assert_eq!(all.len(), 1, "it is not ours to delete");
    assert_eq!((all[0].description.as_str(), &all[0].port_id), ("by hand", &None));
}

/// Nobody has looked since: the next audit would have told.
#[tokio::test]
async fn one_that_was_led_elsewhere_meanwhile_stays_there() {
    let scene = Scene::set().await;
    let mut other = scene.wish_of("uid-2", &[443], &[1]);
    other.options.cloud.as_mut().unwrap().internal = true;
    scene.reach_of("uid-2", &other).await;
    let elsewhere = scene.balancers().await.remove(0).vip_port_id;
    let mut wish = scene.wish(&[80], &[1]);
    scene.reach(&wish).await;
    wish.options.cloud.as_mut().unwrap().floating.keep = true;
    scene.reach(&wish).await;
    let id = scene.floating().await.remove(0).id;
    let led = FloatingIpChange { port_id: Edit::To(elsewhere.clone()), ..FloatingIpChange::default() };
    scene.cloud.all::<FloatingIp>().change(&id, &led).await.unwrap();
    scene.remove().await;
    assert_eq!(scene.floating().await.remove(0).port_id, elsewhere);
    assert_eq!(scene.balancers().await.len(), 1);
}

/// It has our mark, and serves another now.
#[tokio::test]
async fn one_of_ours_that_was_led_elsewhere_meanwhile_is_not_deleted() {
    let scene = Scene::set().await;
    let mut other = scene.wish_of("uid-2", &[443], &[1]);
    other.options.cloud.as_mut().unwrap().internal = true;
    scene.reach_of("uid-2", &other).await;
    let elsewhere = scene.balancers().await.remove(0).vip_port_id;
    scene.reach(&scene.wish(&[80], &[1])).await;
    let id = scene.floating().await.remove(0).id;
    let led = FloatingIpChange { port_id: Edit::To(elsewhere.clone()), ..FloatingIpChange::default() };
    scene.cloud.all::<FloatingIp>().change(&id, &led).await.unwrap();
    scene.remove().await;
    let left = scene.floating().await;
    assert_eq!((left.len(), &left[0].port_id), (1, &elsewhere));
    assert_eq!(scene.balancers().await.len(), 1);
}

#[tokio::test]
async fn who_becomes_internal_lets_its_own_go() {
    let scene = Scene::set().await;
    let mut wish = scene.wish(&[80], &[1]);
    scene.reach(&wish).await;
    assert_eq!(scene.floating().await.len(), 1);
    wish.options.cloud.as_mut().unwrap().internal = true;
    scene.reach(&wish).await;
    assert!(scene.floating().await.is_empty());
    assert_eq!(scene.balancers().await.len(), 1, "the load balancer stays");
}

#[tokio::test]
async fn a_configuration_that_becomes_internal_lets_none_go() {
    let mut scene = Scene::set().await;
    let outside = scene.wish(&[80], &[1]);
    scene.reach(&outside).await;
    let at = scene.served("uid-1", &outside).await;
    let before = scene.floating().await;
    let mut inside = outside.clone();
    let options = inside.options.cloud.as_mut().unwrap();
    (options.internal, options.internal_by_default) = (true, true);
    for _ in 0..2 {
        let told = scene.reach_telling(&inside).await;
        assert!(told.iter().any(|it| it.message.contains("stays") && !it.fix.is_empty()), "{told:?}");
        assert_eq!(scene.floating().await, before);
        assert_eq!(scene.served("uid-1", &inside).await, at, "it is published as before");
        scene.restarted();
    }
    // What is new has none.
    scene
        .reach_of("uid-2", &{
            let mut new = scene.wish_of("uid-2", &[443], &[1]);
            let options = new.options.cloud.as_mut().unwrap();
            (options.internal, options.internal_by_default) = (true, true);
            new
        })
        .await;
    assert_eq!(scene.floating().await.len(), 1);
    // Who asks for it gives it up.
    inside.options.cloud.as_mut().unwrap().internal_by_default = false;
    scene.reach(&inside).await;
    assert!(scene.floating().await.is_empty());
}

#[tokio::test]
async fn one_that_is_to_be_kept_outlives_its_service() {
    let mut scene = Scene::set().await;
    let mut wish = scene.wish(&[80], &[1]);
    scene.reach(&wish).await;
    let id = scene.floating().await.remove(0).id;
    let keep = |wish: &mut LoadBalancer, keep| {
        wish.options.cloud.as_mut().unwrap().floating.keep = keep;
    };
    for kept in [true, false, true] {
        keep(&mut wish, kept);
        assert_eq!(scene.reach(&wish).await, [format!("set the description of floating IP {id}")]);
        scene.restarted();
        assert_eq!(scene.reach(&wish).await, [""; 0]);
    }
    scene.restarted();
    assert_eq!(scene.remove().await[0], format!("detach floating IP {id}"), "nobody is left to ask");
    assert_eq!(scene.floating().await.remove(0).port_id, None);
}

/// Neutron makes a floating IP ACTIVE after it answered that it is associated, so the revision of that answer is an old one.
#[tokio::test]
async fn one_that_became_active_since_it_was_made_is_deleted_without_a_refusal() {
    let mut scene = Scene::set().await;
    let wish = scene.wish(&[80], &[1]);
    for was_read_since in [false, true] {
        scene.reach(&wish).await;
        if was_read_since {
            scene.restarted();
            scene.reach(&wish).await;
        }
        scene.fake.forget_requests();
        scene.remove().await;
        let requests = scene.fake.requests();
        let refused = requests.iter().filter(|it| it.status == Some(412)).count();
        let reads = requests.iter().filter(|it| it.fits("GET */floatingips/*")).count();
        assert_eq!((refused, reads), (0, usize::from(!was_read_since)), "read since: {was_read_since}");
        assert!(scene.floating().await.is_empty());
    }
}

#[tokio::test]
async fn one_that_became_active_is_read_while_its_load_balancer_is() {
    let scene = Scene::set().await;
    scene.reach(&scene.wish(&[80], &[1])).await;
    let holds = ["GET */lbaas/loadbalancers/*", "GET */floatingips/*"].map(|pattern| {
        let hold = RequestHold::new();
        scene.fake.fail(Fault::on(pattern).always().hold(&hold));
        hold
    });
    let looks = tokio::spawn({
        let driver = scene.driver.clone();
        async move { driver.observe(&Context::default(), &unit(), &Desired::Absent).await.map(drop) }
    });
    for hold in &holds {
        tokio::time::timeout(Duration::from_secs(60), hold.reached(1))
            .await
            .expect("neither waits for the other");
    }
    holds.iter().for_each(RequestHold::release);
    looks.await.unwrap().unwrap();
}

/// The other controller loses sight of it: it looks for the load balancer first.
#[tokio::test]
async fn a_load_balancer_that_was_taken_from_behind_leaves_no_floating_ip() {
    let mut scene = Scene::set().await;
    let wish = scene.wish(&[80], &[1]);
    for is_wanted in [true, false] {
        scene.reach(&wish).await;
        let (ours, there) = (scene.balancers().await.remove(0), scene.floating().await.remove(0));
        scene.cloud.all::<Balancer>().delete_cascade(&ours.id).await.unwrap();
        scene.restarted();
        if is_wanted {
            let steps = scene.reach(&wish).await;
            assert_eq!(
                steps[1..],
                [format!("associate floating IP {} with the VIP", there.id)],
                "the address stays"
            );
        } else {
            assert_eq!(scene.remove().await, [format!("delete floating IP {}", there.id)]);
        }
    }
    assert!(scene.floating().await.is_empty());
}

/// Whoever dies between the two writes nothing that another could not read.
#[tokio::test]
async fn one_whose_place_another_took_goes_after_a_restart_and_with_its_service() {
    for end in ["restart", "audit", "deleted"] {
        let mut scene = Scene::set().await;
        let mut wish = scene.wish(&[80], &[1]);
        scene.reach(&wish).await;
        let old = scene.floating().await.remove(0);
        let new = NewFloatingIp::new(old.floating_network_id.clone());
        let new = scene.cloud.all::<FloatingIp>().create(&new).await.unwrap();
        wish.options.cloud.as_mut().unwrap().requested = new.floating_ip_address;
        scene.fake.fail(Fault::on("DELETE */floatingips/*").always().status(403));
        assert!(strive(&scene, &wish).await.is_some(), "{end}");
        scene.fake.heal();
        assert_eq!(scene.floating().await.len(), 2, "{end}: it is still there");
        scene.restarted();
        match end {
            "deleted" => _ = scene.remove().await,
            "audit" => {
                // What was read by itself does not tell it.
                scene.fake.fail(Fault::on("DELETE */floatingips/*").always().status(403));
                assert!(strive(&scene, &wish).await.is_some());
                scene.fake.heal();
                scene.pass(Duration::from_secs(600));
                scene.driver.audit(&"openstack".into()).await.unwrap();
                scene.reach(&wish).await;
            }
            _ => _ = scene.reach(&wish).await,
        }
        let left: Vec<_> = scene.floating().await.into_iter().map(|it| it.id).collect();
        // The one that was asked for is its maker's.
        assert_eq!(left, [new.id], "{end}");
    }
}

/// Neutron answers 404 to who lacks a role, and lists no port; or lists the port all the same.
#[tokio::test]
async fn a_port_that_is_only_hidden_is_no_reason_to_make_its_load_balancer_again() {
    for is_listed in [false, true] {
        let mut scene = Scene::set().await;
        let wish = scene.wish(&[80], &[1]);
        scene.reach(&wish).await;
        let before = scene.balancers().await.remove(0);
        let port = before.vip_port_id.clone().unwrap();
        let floating = scene.floating().await.remove(0).id;
        scene.cloud.all::<FloatingIp>().delete(&floating).await.unwrap();
        scene.restarted();
        let why = format!("Port {port} could not be found.");
        let no =
            serde_json::json!({ "NeutronError": { "type": "PortNotFound", "message": why, "detail": "" } });
        scene.fake.fail(Fault::on("POST */floatingips").always().reply(404, no.clone()));
        scene.fake.fail(Fault::on("GET */ports/*").always().reply(404, no));
        if !is_listed {
            let none = serde_json::json!({ "ports": [] });
            scene.fake.fail(Fault::on("GET */ports").always().reply(200, none));
        }
        assert!(strive(&scene, &wish).await.is_some(), "no floating IP can be had");
        let asked = scene.fake.requests().iter().any(|it| it.fits("GET */ports"));
        assert!(asked, "the ports are listed");
        scene.fake.heal();
        assert_eq!(strive(&scene, &wish).await.map(|_| ()), None, "and then it can");
        let after: Vec<_> = scene.balancers().await.into_iter().map(|it| it.id).collect();
        assert_eq!(after, [before.id], "is listed: {is_listed}");
        assert_eq!(scene.floating().await.len(), 1);
    }
}
