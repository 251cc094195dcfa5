//! What somebody mended is noticed by one, and done for all at once; nobody asks more meanwhile.

use std::{sync::Arc, time::Duration};

use seaway_drivers::octavia::{Joining, Octavia, groups::Groups};
use seaway_engine::{Context, Driver};
use seaway_model::{
    Desired, L4, NodeSecurityGroup, Unit,
    group::{CloudNode, NodeAccess, SourceNetwork},
    load_balancer::Family,
};
use seaway_openstack::{Class, Error};
use seaway_testkit::cloud::Fault;
use serde_json::json;

use crate::{living::*, scene::*};

/// Between two tries of one for all, and a look at whoever waits.
const PROBE: Duration = Duration::from_secs(62);
const MANY: u16 = 100;

fn many(scene: &Scene) -> Vec<(Unit, Desired)> {
    let mut wish = scene.wish(&[80], &[1]);
    wish.options.cloud.as_mut().unwrap().internal = true;
    (0..MANY).map(|it| of(it, &wish)).collect()
}

fn hands(driver: &Octavia) -> Drivers<'_> {
    Drivers { balancers: driver, groups: None }
}

/// All are made within that time and a little more.
async fn all_follow(life: &mut UnitScheduler<'_>, within: Duration) {
    let seen = life.goes_on(TEN_MINUTES).await;
    assert_eq!(seen.at_rest, usize::from(MANY), "{:?}", seen.told);
    assert!(seen.rested <= within + Duration::from_secs(10), "{:?} until all were made", seen.rested);
}

#[tokio::test]
async fn a_role_that_is_given_is_noticed_by_one_and_all_others_follow() {
    let scene = Scene::crowded().await;
    let wishes = many(&scene);
    let no = json!({ "faultcode": "Client", "faultstring": "Policy does not allow this request to be performed." });
    scene.fake.fail(Fault::on("POST */lbaas/loadbalancers").always().reply(403, no));
    let mut life = UnitScheduler::new(&scene, hands(&scene.driver), &wishes);
    let seen = life.goes_on(TEN_MINUTES).await;
    assert_eq!((seen.told.len(), seen.at_rest), (1, 0), "{:?}", seen.told);
    assert!(seen.requests <= 1_300, "{} requests of {MANY} Services in ten minutes", seen.requests);
    scene.fake.heal();
    all_follow(&mut life, PROBE).await;
}

#[tokio::test]
async fn a_quota_that_is_raised_is_noticed_by_one_and_all_others_follow() {
    let scene = Scene::crowded().await;
    let wishes = many(&scene);
    let (admin, project) = (scene.admin().await, scene.fake.project_id("demo").unwrap());
    let set = async |limit: i64| {
        let limits = [("load_balancer".to_owned(), limit)].into();
        admin.load_balancer_quotas(&project).change(&limits).await.unwrap();
    };
    set(0).await;
    let mut life = UnitScheduler::new(&scene, hands(&scene.driver), &wishes);
    let seen = life.goes_on(TEN_MINUTES).await;
    assert_eq!(seen.at_rest, 0);
    assert!(seen.requests <= 700, "{} requests of {MANY} Services in ten minutes", seen.requests);
    set(40).await;
    let seen = life.goes_on(TEN_MINUTES).await;
    assert_eq!(scene.balancers().await.len(), 40, "as many as there is room for");
    assert!(seen.requests <= 2_500, "{} requests of {MANY} Services in ten minutes", seen.requests);
    set(-1).await;
    all_follow(&mut life, PROBE).await;
}

#[tokio::test]
async fn a_password_that_was_mended_in_the_file_is_tried_at_once_and_all_follow() {
    let scene = Scene::crowded().await;
    let wishes = many(&scene);
    // Until then, nobody is let in.
    let (open, opened) = tokio::sync::watch::channel(false);
    let cloud = scene.cloud.clone();
    let join = move || -> Joining {
        let (cloud, opened) = (cloud.clone(), *opened.borrow());
        Box::pin(async move {
            let no =
                || Error::new(Class::Credentials, "Keystone refuses them").with_fix("Say the right password");
            if opened { Ok((cloud, cluster("6c1d"))) } else { Err(no()) }
        })
    };
    let driver = Octavia::new(Box::new(join), "amphora".into(), || true).timed(scene.clock.clone());
    let mut life = UnitScheduler::new(&scene, hands(&driver), &wishes);
    let seen = life.goes_on(TEN_MINUTES).await;
    assert_eq!((seen.told.len(), seen.at_rest, seen.requests), (1, 0, 0), "{:?}", seen.told);
    open.send(true).unwrap();
    driver.mended();
    all_follow(&mut life, Duration::ZERO).await;
}

#[tokio::test]
async fn before_anybody_was_let_in_a_keystone_that_is_away_is_asked_by_one_for_all() {
    let scene = Scene::crowded().await;
    let wishes = many(&scene);
    let tries = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = tries.clone();
    let join = move || -> Joining {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Box::pin(async { Err(Error::new(Class::Unreachable, "connection refused")) })
    };
    let driver = Octavia::new(Box::new(join), "amphora".into(), || true).timed(scene.clock.clone());
    let seen = UnitScheduler::new(&scene, hands(&driver), &wishes).goes_on(TEN_MINUTES).await;
    assert_eq!((seen.told.len(), seen.at_rest), (1, 0), "{:?}", seen.told);
    assert!(seen.told.first().unwrap().contains("Keystone"), "{:?}", seen.told);
    let tries = tries.load(std::sync::atomic::Ordering::Relaxed);
    assert!(tries <= 20, "{tries} sign-ins of {MANY} Services in ten minutes");
}

#[tokio::test]
async fn while_a_cloud_is_away_for_ten_minutes_groups_and_audits_ask_no_more_than_one() {
    let scene = Scene::crowded().await;
    let mut wishes = many(&scene);
    let driver = Arc::new(driver(&scene.cloud, "amphora"));
    let groups = Groups::new(driver.clone());
    for (number, class) in ["one", "two", "three"].into_iter().enumerate() {
        let openings = NodeAccess {
            ports: [(L4::Tcp, 30_080)].into(),
            families: vec![Family::V4],
            provider: Some("amphora".into()),
            from: SourceNetwork::Subnet(scene.subnet.as_str().into()),
            ..NodeAccess::default()
        };
        let node = CloudNode {
            name: "one".into(),
            addresses: vec!["10.0.0.11".parse().unwrap()],
            provider_id: None,
        };
        let openings = [(owner_of(&format!("uid-{number}")), Arc::new(openings))].into();
        let unit = Unit::SecurityGroup { cloud: "openstack".into(), class: class.into() };
        wishes.push((
            unit,
            Desired::SecurityGroup(Arc::new(NodeSecurityGroup {
                openings,
                nodes: vec![node],
                ..NodeSecurityGroup::default()
            })),
        ));
    }
    driver.observe(&Context::default(), &wishes[0].0, &wishes[0].1).await.unwrap();
    scene.fake.fail(Fault::on("* /load-balancer/*").always().lose_request());
    scene.fake.fail(Fault::on("* /network/*").always().lose_request());
    let hands = Drivers { balancers: &driver, groups: Some(&groups) };
    let mut life = UnitScheduler::new(&scene, hands, &wishes);
    let mut requests = 0;
    for _ in 0..60 {
        requests += life.goes_on(Duration::from_secs(10)).await.requests;
        let audited = driver.audit(&"openstack".into()).await;
        assert!(audited.is_err());
        assert!(groups.survey(&"openstack".into(), &"one".into()).await.is_err());
        requests += scene.fake.requests().len();
    }
    assert!(requests <= 500, "{requests} requests in ten minutes");
    scene.fake.heal();
    let seen = life.goes_on(TEN_MINUTES).await;
    assert_eq!(scene.balancers().await.len(), usize::from(MANY), "{:?}", seen.told);
    assert!(seen.rested <= PROBE * 2, "{:?} until all were made", seen.rested);
}
