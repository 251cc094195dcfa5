//! Rarer wishes: `externalTrafficPolicy: Local`, timeouts, TLS, limits, metrics, protocols and probes of single ports, both
//! families, a load balancer that is shared. Each is reached from each, whoever looks, and whatever goes wrong, is refused, is
//! done twice, or is changed by somebody else meanwhile. (The common ones: changes.rs, crash.rs.)

mod wanted;

use std::{sync::Arc, time::Duration};

use seaway_engine::{Context, Driver, Failure};
use seaway_model::{Desired, LoadBalancer, Reason, load_balancer::Balance};
use seaway_openstack::{
    octavia::{
        HealthMonitor, Listener, ListenerChange, LoadBalancer as Balancer, LoadBalancerChange, Member,
        MemberChange, Pool, PoolChange,
    },
    resource::{Edit, Query},
};
use seaway_testkit::conformance::converges_in_time;

use self::wanted::{CloudFeature, CloudScenario, shape};
use crate::{crash::*, scene::*};

/// Each after each other, by a process that knows what it did, and by one that begins.
async fn from_each_to_each(place: &mut CloudScenario, all: &[LoadBalancer]) {
    let uid = place.uid;
    for one in all {
        for other in all {
            place.scene.reach_of(uid, one).await;
            place.scene.reach_of(uid, other).await;
            place.scene.restarted();
            assert_eq!(place.scene.reach_of(uid, other).await, [""; 0], "fresh eyes see the same");
        }
    }
    let wanted: Vec<_> = all.iter().map(|it| Desired::LoadBalancer(Arc::new(it.clone()))).collect();
    let scene = &place.scene;
    converges_in_time(&*scene.driver, &place.unit(), &wanted, |time| scene.pass(time)).await;
}

#[tokio::test]
async fn they_are_reached_from_each_other() {
    let mut place = CloudScenario::of(CloudFeature::Limits).await;
    let before = shape(&place.scene).await;
    let mut all = vec![place.plain()];
    for rare in CloudFeature::ALL
        .into_iter()
        .filter(|it| !matches!(it, CloudFeature::Families | CloudFeature::Sharing))
    {
        all.push(place.asked(rare).await);
    }
    from_each_to_each(&mut place, &all).await;
    let left = shape(&place.scene).await;
    assert!(left.iter().all(|it| before.contains(it) || it.contains("by hand")), "{left:#?}");
}

#[tokio::test]
async fn so_they_are_where_there_are_both_families_or_another_service_is_there_too() {
    for of in [CloudFeature::Families, CloudFeature::Sharing] {
        let mut place = CloudScenario::of(of).await;
        let before = shape(&place.scene).await;
        let mut all = vec![place.plain()];
        for rare in
            [of, CloudFeature::Limits, CloudFeature::Timeouts, CloudFeature::Ports, CloudFeature::Probes]
        {
            all.push(place.asked(rare).await);
        }
        from_each_to_each(&mut place, &all).await;
        assert_eq!(shape(&place.scene).await, before, "{of:?}: nothing of it is left, and nothing else went");
    }
}

/// From what to what.
#[derive(Clone, Copy, Debug)]
enum Way {
    Comes,
    Begins,
    Ends,
    Goes,
}

impl Way {
    const ALL: [Way; 4] = [Way::Comes, Way::Begins, Way::Ends, Way::Goes];

    async fn ends(self, place: &CloudScenario) -> (Option<LoadBalancer>, Option<LoadBalancer>) {
        let (plain, asked) = (place.plain(), place.asked(place.of).await);
        match self {
            Way::Comes => (None, Some(asked)),
            Way::Begins => (Some(plain), Some(asked)),
            Way::Ends => (Some(asked), Some(plain)),
            Way::Goes => (Some(asked), None),
        }
    }
}

fn desired(wish: Option<LoadBalancer>) -> Desired {
    wish.map_or(Desired::Absent, |it| Desired::LoadBalancer(Arc::new(it)))
}

/// What is there after all, and which requests changed something.
async fn walk(
    rare: CloudFeature,
    way: Way,
    trouble: Option<(RequestFault, &[Written])>,
) -> (Vec<String>, Vec<Written>) {
    let mut place = CloudScenario::of(rare).await;
    let units = [place.unit()];
    let (from, to) = way.ends(&place).await;
    let before = shape(&place.scene).await;
    if let Some(from) = from {
        strive_for(&place.scene, &units, &desired(Some(from))).await;
    }
    let wanted = desired(to);
    place.scene.fake.forget_requests();
    let work = strive_for(&place.scene, &units, &wanted);
    match trouble {
        Some((trouble, writes)) => strike(&place.scene, trouble, writes, work).await,
        None => work.await,
    }
    let writes = written(&place.scene);
    assert!(trouble.is_none_or(|it| writes.len() >= it.1.len()), "nothing came to be struck");
    place.scene.restarted();
    strive_for(&place.scene, &units, &wanted).await;
    let there = shape(&place.scene).await;
    place.scene.restarted();
    place.scene.fake.forget_requests();
    strive_for(&place.scene, &units, &wanted).await;
    assert_eq!(written(&place.scene), [], "{trouble:?}: fresh eyes see the same");
    strive_for(&place.scene, &units, &Desired::Absent).await;
    assert_eq!(shape(&place.scene).await, before, "{trouble:?}: something is left");
    (there, writes)
}

async fn survives_trouble(rare: CloudFeature) {
    for way in Way::ALL {
        let (clean, writes) = walk(rare, way, None).await;
        assert!(!writes.is_empty(), "{way:?}");
        for at in 0..writes.len() {
            for trouble in TROUBLES {
                let (there, _) = walk(rare, way, Some((trouble, &writes[..=at]))).await;
                assert_eq!(there, clean, "{way:?}: {trouble:?} at {}: {:?}", at + 1, writes[at]);
            }
        }
    }
}

/// Two that saw the same do the same, one right after the other: each step is done twice.
async fn may_be_done_twice(rare: CloudFeature) {
    for way in Way::ALL {
        let (clean, _) = walk(rare, way, None).await;
        let mut place = CloudScenario::of(rare).await;
        let units = [place.unit()];
        let before = shape(&place.scene).await;
        let (from, to) = way.ends(&place).await;
        if let Some(from) = from {
            strive_for(&place.scene, &units, &desired(Some(from))).await;
        }
        let wanted = desired(to);
        for _ in 0..40 {
            let pair = [0, 1].map(|_| driver(&place.scene.cloud, "amphora"));
            let mut steps = Vec::new();
            let mut seen = Vec::new();
            for driver in &pair {
                let Ok(observed) = driver.observe(&Context::default(), &units[0], &wanted).await else {
                    continue;
                };
                steps.push(driver.steps(&wanted, &observed));
                seen.push(observed);
            }
            if seen.iter().all(|it| !it.is_pending()) && steps.iter().all(Vec::is_empty) {
                break;
            }
            for ((driver, steps), mut observed) in pair.iter().zip(&steps).zip(seen) {
                if let Some(step) = steps.first() {
                    _ = driver.apply(&Context::default(), &units[0], step, &mut observed).await;
                }
                place.scene.pass(Duration::from_secs(5));
                place.scene.balancers().await;
            }
        }
        place.scene.restarted();
        strive_for(&place.scene, &units, &wanted).await;
        place.scene.restarted();
        strive_for(&place.scene, &units, &wanted).await;
        let mut there = shape(&place.scene).await;
        // A certificate that two kept at once is there twice until it goes.
        there.dedup_by(|a, b| a == b && (a.starts_with("secret ") || a.starts_with("container ")));
        assert_eq!(there, clean, "{way:?}");
        strive_for(&place.scene, &units, &Desired::Absent).await;
        assert_eq!(shape(&place.scene).await, before, "{way:?}");
    }
}

/// What somebody else does to it.
#[derive(Clone, Copy, Debug)]
enum Foreign {
    RemovesListeners,
    RemovesPools,
    RemovesMonitors,
    RemovesMembers,
    ChangesListeners,
    ChangesPools,
    ChangesMembers,
    Untags,
}

impl Foreign {
    const ALL: [Foreign; 8] = [
        Foreign::RemovesListeners,
        Foreign::RemovesPools,
        Foreign::RemovesMonitors,
        Foreign::RemovesMembers,
        Foreign::ChangesListeners,
        Foreign::ChangesPools,
        Foreign::ChangesMembers,
        Foreign::Untags,
    ];

    /// At the children of this Service, one after the other, as Octavia lets him.
    async fn does(self, place: &CloudScenario) {
        let scene = &place.scene;
        let cloud = &scene.cloud;
        let rests = async || {
            scene.pass(Duration::from_secs(5));
            scene.balancers().await;
        };
        let (listeners, pools) = place.own().await;
        match self {
            Foreign::RemovesListeners => {
                for it in listeners {
                    cloud.all::<Listener>().delete(&it.id).await.unwrap();
                    rests().await;
                }
            }
            Foreign::RemovesPools => {
                for it in pools {
                    cloud.all::<Pool>().delete(&it.id).await.unwrap();
                    rests().await;
                }
            }
            Foreign::RemovesMonitors => {
                for id in pools.into_iter().filter_map(|it| it.healthmonitor_id) {
                    cloud.all::<HealthMonitor>().delete(&id).await.unwrap();
                    rests().await;
                }
            }
            Foreign::RemovesMembers | Foreign::ChangesMembers => {
                for pool in pools {
                    let members = cloud.within::<Member>(&pool.id);
                    let Some(first) = members.list::<Member>(Query::all()).await.unwrap().into_iter().next()
                    else {
                        continue;
                    };
                    if matches!(self, Foreign::RemovesMembers) {
                        members.delete(&first.id).await.unwrap();
                    } else {
                        let change = MemberChange { weight: Edit::To(Some(0)), ..MemberChange::default() };
                        members.change(&first.id, &change).await.unwrap();
                    }
                    rests().await;
                }
            }
            Foreign::ChangesListeners => {
                for it in listeners {
                    let change =
                        ListenerChange { connection_limit: Edit::To(Some(7)), ..ListenerChange::default() };
                    cloud.all::<Listener>().change(&it.id, &change).await.unwrap();
                    rests().await;
                }
            }
            Foreign::ChangesPools => {
                for it in pools {
                    let change = PoolChange {
                        lb_algorithm: Edit::To(seaway_openstack::octavia::Algorithm::LeastConnections),
                        ..PoolChange::default()
                    };
                    cloud.all::<Pool>().change(&it.id, &change).await.unwrap();
                    rests().await;
                }
            }
            Foreign::Untags => {
                // (Whoever takes all tags away makes it another's: adopted.rs.)
                let it = place.balancer().await;
                let tags = it.tags.into_iter().filter(|it| !it.starts_with("kube_service_")).collect();
                let change = LoadBalancerChange { tags: Edit::To(tags), ..LoadBalancerChange::default() };
                cloud.all::<Balancer>().change(&it.id, &change).await.unwrap();
            }
        }
        rests().await;
    }
}

async fn outlives_what_others_change(rare: CloudFeature) {
    for foreign in Foreign::ALL {
        let place = CloudScenario::of(rare).await;
        let wish = place.asked(rare).await;
        place.scene.reach_of(place.uid, &wish).await;
        let clean = shape(&place.scene).await;
        place.scene.pass(Duration::from_secs(60));
        place.audits().await;
        foreign.does(&place).await;
        let is_another = shape(&place.scene).await != clean;
        place.scene.pass(Duration::from_secs(300));
        place.audits().await;
        place.reach_other().await;
        place.scene.reach_of(place.uid, &wish).await;
        assert_eq!(shape(&place.scene).await, clean, "{foreign:?} (that it changed something: {is_another})");
        place.scene.pass(Duration::from_secs(300));
        place.audits().await;
        assert_eq!(place.scene.reach_of(place.uid, &wish).await, [""; 0], "{foreign:?}");
    }
}

/// 9000 asks for a way to balance that Octavia does not have: it is not made, a living one stays as it is, and the others follow.
async fn is_reached_beside_what_is_refused(rare: CloudFeature) {
    for lives in [false, true] {
        let mut place = CloudScenario::of(rare).await;
        let with = |place: &CloudScenario, wish: &LoadBalancer, balance: Balance| {
            place.with_port(wish, 9_000, balance)
        };
        let (plain, asked) = (place.plain(), place.asked(rare).await);
        if lives {
            place.scene.reach_of(place.uid, &with(&place, &plain, Balance::RoundRobin)).await;
        }
        for restarts in [false, true] {
            if restarts {
                place.scene.restarted();
            }
            let wish = with(&place, &asked, Balance::RandomTwo);
            let told = place.scene.reach_telling_of(place.uid, &wish).await;
            let refused: Vec<_> = told.iter().filter(|it| it.reason == Reason::Unsupported).collect();
            assert!(refused.len() == 1 && refused[0].message.contains("9000"), "{told:?}");
            let (listeners, _) = place.own().await;
            assert_eq!(listeners.iter().any(|it| it.protocol_port == 9_000), lives);
        }
        // Without that port it is as if it never had been said.
        place.scene.reach_of(place.uid, &asked).await;
        let there = shape(&place.scene).await;
        let other = CloudScenario::of(rare).await;
        other.scene.reach_of(other.uid, &other.asked(rare).await).await;
        assert_eq!(there, shape(&other.scene).await, "lives: {lives}");
    }
}

macro_rules! all_of_it {
    ($($name:ident: $rare:ident),+ $(,)?) => {$(
        mod $name {
            use super::*;

            #[tokio::test]
            async fn survives_trouble_at_every_request() {
                survives_trouble(CloudFeature::$rare).await;
            }

            #[tokio::test]
            async fn may_be_done_twice() {
                super::may_be_done_twice(CloudFeature::$rare).await;
            }

            #[tokio::test]
            async fn outlives_what_others_change() {
                super::outlives_what_others_change(CloudFeature::$rare).await;
            }

            #[tokio::test]
            async fn is_reached_beside_what_is_refused() {
                super::is_reached_beside_what_is_refused(CloudFeature::$rare).await;
            }
        }
    )+};
}

all_of_it! {
    local: Local,
    timeouts: Timeouts,
    certificates: Certificates,
    references: References,
    limits: Limits,
    metrics: Metrics,
    families: Families,
    ports: Ports,
    probes: Probes,
    sharing: Sharing,
}

/// A wish that is refused as a whole makes nothing, and says why.
#[tokio::test]
async fn what_is_refused_as_a_whole_is_told_and_nothing_is_made() {
    let place = CloudScenario::of(CloudFeature::Limits).await;
    let mut wish = place.with_port(&place.plain(), 9_000, Balance::RandomTwo);
    wish.listeners.retain(|id, _| id.port == 9_000);
    let failed =
        place.scene.driver.observe(&Context::default(), &place.unit(), &desired(Some(wish))).await.err();
    assert!(matches!(failed, Some(Failure::User(_))), "{failed:?}");
    assert!(place.scene.balancers().await.is_empty());
}
