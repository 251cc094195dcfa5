//! What others do behind our back: noticed by the next audit, said, and put right.

mod failing;

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::Duration,
};

use seaway_drivers::octavia::{Audited, Note};
use seaway_engine::{Context, Driver, Failure};
use seaway_model::{
    Desired, Kind, LbKey, LoadBalancer, ObjectRef, Owner, Unit,
    load_balancer::{CloudOptions, HealthCheck},
};
use seaway_openstack::{
    neutron::{FloatingIp, FloatingIpChange},
    octavia::{
        Algorithm, HealthMonitor, Listener, ListenerChange, Member, MemberChange, NewPool, Pool,
        PoolProtocol, Provisioning,
    },
    resource::{Edit, Query},
};

use crate::scene::*;

type OwnerEvents = Arc<Mutex<Vec<Note>>>;

/// A Service that is served, and what its owner hears from then on.
struct ServedService {
    scene: Scene,
    wish: LoadBalancer,
    heard: OwnerEvents,
}

impl ServedService {
    async fn begun() -> ServedService {
        ServedService::with(|_| {}).await
    }

    async fn with(change: impl Fn(&mut CloudOptions)) -> ServedService {
        ServedService::at(Scene::set().await, change).await
    }

    async fn at(mut scene: Scene, change: impl Fn(&mut CloudOptions)) -> ServedService {
        let heard = OwnerEvents::default();
        scene.hear(&heard);
        let mut wish = scene.wish(&[80, 443], &[1, 2]);
        change(wish.options.cloud.as_mut().unwrap());
        for pool in wish.pools.values_mut() {
            Arc::make_mut(pool).health = Some(HealthCheck::default());
        }
        scene.reach(&wish).await;
        scene.pass(Duration::from_secs(60));
        let served = ServedService { scene, wish, heard };
        assert!(served.audit().await.again.is_empty(), "nothing happened");
        let creating =
            "Creating: the load balancer of the Service is being created by amphora; this may take minutes";
        assert_eq!(served.told(), creating);
        served
    }

    async fn audit(&self) -> Audited {
        self.scene.driver.audit(&"openstack".into()).await.unwrap()
    }

    /// What was done about it after one audit, and what its owner heard.
    async fn repaired(&self) -> (Vec<String>, String) {
        self.scene.pass(Duration::from_secs(300));
        // Whoever changed it is done with it.
        self.scene.balancers().await;
        let audited = self.audit().await;
        assert_eq!(audited.again, [unit()]);
        let steps = self.scene.reach(&self.wish).await;
        self.scene.pass(Duration::from_secs(300));
        assert!(self.audit().await.again.is_empty(), "it is as it should be");
        assert_eq!(self.scene.reach(&self.wish).await, [""; 0]);
        (steps, self.told())
    }

    fn told(&self) -> String {
        let notes = std::mem::take(&mut *self.heard.lock().unwrap());
        notes.iter().map(|it| format!("{}: {}", it.reason, it.text)).collect::<Vec<_>>().join("\n")
    }

    async fn balancer(&self) -> seaway_openstack::octavia::LoadBalancer {
        self.scene.balancers().await.remove(0)
    }

    async fn observed(&self) -> seaway_drivers::octavia::Observed {
        let desired = Desired::LoadBalancer(Arc::new(self.wish.clone()));
        self.scene.driver.observe(&Context::default(), &unit(), &desired).await.unwrap()
    }

    async fn problems(&self) -> String {
        let observed = self.observed().await;
        let told = self.scene.conclude(&self.wish, &observed);
        told.problems.iter().map(|(_, it)| it.line()).collect::<Vec<_>>().join("\n")
    }
}

#[tokio::test]
async fn lb_removed_out_of_band_is_made_again_where_it_was_with_its_floating_ip() {
    let served = ServedService::begun().await;
    let (was, floating) = (served.balancer().await, served.scene.floating().await.remove(0));
    let all = served.scene.cloud.all::<seaway_openstack::octavia::LoadBalancer>();
    all.delete_cascade(&was.id).await.unwrap();
    let (steps, told) = served.repaired().await;
    assert_eq!(steps.len(), 2, "{steps:?}");
    assert!(told.starts_with("Drift:"), "{told}");
    assert!(told.contains(&format!("load balancer {} was deleted", was.id)), "{told}");
    let is = served.balancer().await;
    assert_ne!(is.id, was.id);
    assert_eq!(is.vip_address, was.vip_address, "members and firewalls know it");
    let now = served.scene.floating().await;
    assert_eq!(now.len(), 1, "no second one");
    assert_eq!((&now[0].id, &now[0].port_id), (&floating.id, &is.vip_port_id));
    served.scene.remove().await;
    assert!(served.scene.balancers().await.is_empty() && served.scene.floating().await.is_empty());
}

#[tokio::test]
async fn a_pool_that_comes_back_after_it_was_seen_to_be_gone_goes_at_the_next_audit() {
    let mut served = ServedService::begun().await;
    let was = served.balancer().await;
    served.wish = served.scene.wish(&[80], &[1]);
    served.scene.reach(&served.wish).await;
    served.scene.pass(Duration::from_secs(300));
    assert!(served.audit().await.again.is_empty());
    served.told();
    let back = NewPool {
        name: format!("pool_1_{}", was.name).into(),
        loadbalancer_id: Edit::To(was.id.clone()),
        ..NewPool::new(PoolProtocol::Tcp, Algorithm::RoundRobin)
    };
    let back = served.scene.cloud.all::<Pool>().create(&back).await.unwrap().id;
    served.scene.pass(Duration::from_secs(60));
    served.scene.balancers().await;
    let (steps, told) = served.repaired().await;
    assert_eq!(steps, [format!("delete pool {back}, which no listener uses")]);
    assert!(told.contains(back.as_str()), "{told}");
    assert_eq!(served.scene.pools().await.len(), 1);
}

#[tokio::test]
async fn lb_removed_out_of_band_and_its_service_after_it_leave_nothing() {
    let mut served = ServedService::begun().await;
    let was = served.balancer().await;
    let all = served.scene.cloud.all::<seaway_openstack::octavia::LoadBalancer>();
    all.delete_cascade(&was.id).await.unwrap();
    served.scene.balancers().await;
    assert_eq!(served.audit().await.again, [unit()]);
    served.scene.remove().await;
    assert!(served.scene.floating().await.is_empty());
    // The same, seen by one that just started.
    served.scene.reach(&served.wish).await;
    let was = served.balancer().await;
    all.delete_cascade(&was.id).await.unwrap();
    served.scene.balancers().await;
    served.scene.restarted();
    served.scene.remove().await;
    assert!(served.scene.floating().await.is_empty(), "its description says whose it is");
}

#[tokio::test]
async fn a_listener_a_pool_and_a_monitor_that_were_deleted_come_back() {
    let served = ServedService::begun().await;
    let cloud = &served.scene.cloud;
    let listener = served.scene.listeners().await.into_iter().find(|it| it.protocol_port == 80).unwrap();
    cloud.all::<Pool>().delete(listener.default_pool_id.as_ref().unwrap()).await.unwrap();
    served.scene.balancers().await;
    cloud.all::<Listener>().delete(&listener.id).await.unwrap();
    let (steps, told) = served.repaired().await;
    assert_eq!(steps.len(), 4, "a listener, its pool, members, monitor: {steps:?}");
    assert!(told.contains("the listener of 80/TCP was deleted"), "{told}");

    let pool = served.scene.pools().await.remove(0);
    cloud.all::<Pool>().delete(&pool.id).await.unwrap();
    let (steps, told) = served.repaired().await;
    assert_eq!(steps.len(), 3, "{steps:?}");
    assert!(
        told.contains("the pool of 443/TCP was deleted") || told.contains("the pool of 80/TCP was deleted"),
        "{told}"
    );

    let monitor = cloud.all::<HealthMonitor>().list::<HealthMonitor>(Query::all()).await.unwrap().remove(0);
    cloud.all::<HealthMonitor>().delete(&monitor.id).await.unwrap();
    let (steps, told) = served.repaired().await;
    assert_eq!(steps.len(), 1, "{steps:?}");
    assert!(told.contains("the health monitor of") && told.contains("was deleted"), "{told}");
}

#[tokio::test]
async fn members_that_were_removed_added_or_weighed_anew_are_as_they_should_be() {
    let served = ServedService::begun().await;
    let pool = served.scene.pools().await.remove(0);
    let members = served.scene.cloud.within::<Member>(&pool.id);
    let first = members.list::<Member>(Query::all()).await.unwrap().remove(0);
    members.delete(&first.id).await.unwrap();
    let (steps, told) = served.repaired().await;
    assert_eq!(steps.len(), 1, "{steps:?}");
    assert!(told.contains(&format!("member {}:{} of", first.address, first.protocol_port)), "{told}");

    let extra = seaway_openstack::octavia::NewMember::new([10, 0, 0, 9], 7u16);
    members.create(&extra).await.unwrap();
    let (steps, told) = served.repaired().await;
    assert_eq!(steps.len(), 1, "{steps:?}");
    assert!(told.contains("member 10.0.0.9:7 of 443/TCP was added by another client"), "{told}");

    let one = members.list::<Member>(Query::all()).await.unwrap().remove(0);
    let change = MemberChange { weight: Some(100).into(), ..MemberChange::default() };
    members.change(&one.id, &change).await.unwrap();
    let (steps, told) = served.repaired().await;
    assert_eq!(steps.len(), 1, "{steps:?}");
    assert!(told.contains("was changed"), "{told}");
    let now = members.list::<Member>(Query::all()).await.unwrap();
    assert!(now.iter().all(|it| it.weight == Some(1)), "{now:?}");
}

#[tokio::test]
async fn settings_that_others_changed_are_put_back() {
    let served = ServedService::begun().await;
    let listener = served.scene.listeners().await.remove(0);
    let change = ListenerChange { connection_limit: Some(7).into(), ..ListenerChange::default() };
    served.scene.cloud.all::<Listener>().change(&listener.id, &change).await.unwrap();
    let (steps, told) = served.repaired().await;
    assert_eq!(steps.len(), 1, "{steps:?}");
    assert!(told.contains("was changed"), "{told}");
    assert!(served.scene.listeners().await.iter().all(|it| it.connection_limit == Some(-1)));
}

#[tokio::test]
async fn a_floating_ip_that_was_detached_leads_there_again_and_one_that_was_deleted_is_another() {
    let served = ServedService::begun().await;
    let all = served.scene.cloud.all::<FloatingIp>();
    let was = served.scene.floating().await.remove(0);
    let away = FloatingIpChange { port_id: None.into(), ..FloatingIpChange::default() };
    all.change(&was.id, &away).await.unwrap();
    let (steps, told) = served.repaired().await;
    assert_eq!(steps, [format!("associate floating IP {} with the VIP", was.id)]);
    assert!(told.contains("is not associated with the load balancer any more"), "{told}");
    let is = served.scene.floating().await;
    assert_eq!(
        (is.len(), &is[0].id, is[0].port_id.is_some()),
        (1, &was.id, true),
        "clients know its address"
    );
    all.delete(&was.id).await.unwrap();
    served.repaired().await;
    assert_eq!(served.scene.floating().await.len(), 1);
}

#[tokio::test]
async fn what_is_below_and_in_error_is_made_again() {
    let served = ServedService::begun().await;
    for kind in ["listener", "pool", "monitor"] {
        let cloud = &served.scene.cloud;
        let id = match kind {
            "listener" => served.scene.listeners().await.remove(0).id.to_string(),
            "pool" => served.scene.pools().await.remove(0).id.to_string(),
            _ => {
                let all = cloud.all::<HealthMonitor>().list::<HealthMonitor>(Query::all()).await;
                all.unwrap().remove(0).id.to_string()
            }
        };
        served.scene.fake.set_provisioning_status(&id, "ERROR");
        let (steps, told) = served.repaired().await;
        assert!(told.contains("is in ERROR"), "{kind}: {told}");
        assert!(steps.len() >= 2, "{kind}: {steps:?}");
    }
}

#[tokio::test]
async fn lb_turning_error_is_never_repaired_no_more_it_is_failed_over() {
    let served = ServedService::at(Scene::of_an_operator().await, |_| {}).await;
    let id = served.balancer().await.id;
    served.scene.fake.set_provisioning_status(id.as_str(), "ERROR");
    let (steps, told) = served.repaired().await;
    assert_eq!(steps, [format!("fail over load balancer {id}")]);
    assert!(told.contains("is in ERROR; Octavia fails it over, at the request of Seaway"), "{told}");
    assert_eq!(served.balancer().await.provisioning_status, Provisioning::Active);
}

#[tokio::test]
async fn where_nobody_may_fail_it_over_its_owner_is_told_whom_to_ask() {
    let served = ServedService::begun().await;
    let id = served.balancer().await.id;
    served.scene.fake.set_provisioning_status(id.as_str(), "ERROR");
    assert_eq!(served.audit().await.again, [unit()]);
    let desired = Desired::LoadBalancer(Arc::new(served.wish.clone()));
    let mut observed = served.observed().await;
    let steps = served.scene.driver.steps(&desired, &observed);
    let failed =
        served.scene.driver.apply(&Context::default(), &unit(), &steps[0], &mut observed).await.unwrap_err();
    assert!(matches!(failed, Failure::Wait { .. }), "{failed}");
    assert!(served.told().contains("cannot be failed over"));
    served.scene.pass(Duration::from_secs(10));
    let problems = served.problems().await;
    assert!(problems.contains("is in ERROR") && problems.contains("rebuild-on-error"), "{problems}");
    // Nor is it asked for again and again.
    served.scene.fake.forget_requests();
    for _ in 0..3 {
        served.scene.pass(Duration::from_secs(300));
        served.audit().await;
        let observed = served.observed().await;
        assert!(served.scene.driver.steps(&desired, &observed).is_empty());
    }
    assert_eq!(served.scene.fake.count("PUT *"), 0);
    // Somebody may have been given the role since; that there is none is told once.
    served.scene.pass(Duration::from_secs(1000));
    let mut observed = served.observed().await;
    let steps = served.scene.driver.steps(&desired, &observed);
    assert_eq!(steps.len(), 1, "{steps:?}");
    assert!(served.scene.driver.apply(&Context::default(), &unit(), &steps[0], &mut observed).await.is_err());
    assert!(!served.told().contains("cannot be failed over"));
    // Somebody with the right to it did.
    served.scene.fake.set_provisioning_status(id.as_str(), "ACTIVE");
    served.scene.pass(Duration::from_secs(300));
    assert_eq!(served.audit().await.again, [unit()]);
    assert_eq!(served.problems().await, "");
}

#[tokio::test]
async fn by_choice_one_in_error_is_rebuilt_with_the_same_vip_and_floating_ip() {
    let served = ServedService::with(|it| it.rebuild = true).await;
    let (was, floating) = (served.balancer().await, served.scene.floating().await.remove(0));
    served.scene.fake.set_provisioning_status(was.id.as_str(), "ERROR");
    assert_eq!(served.audit().await.again, [unit()]);
    let steps = served.scene.reach(&served.wish).await;
    assert_eq!(steps[0], format!("delete load balancer {} with everything in it", was.id), "{steps:?}");
    let (is, led) = (served.balancer().await, served.scene.floating().await);
    assert_ne!(is.id, was.id);
    assert_eq!((is.vip_address, is.provisioning_status), (was.vip_address, Provisioning::Active));
    assert_eq!((led.len(), &led[0].id, &led[0].port_id), (1, &floating.id, &is.vip_port_id));
    let told = served.told();
    assert!(
        told.contains("cannot be failed over") && told.contains("is deleted and created again"),
        "{told}"
    );
}

/// OVN leaves members out of a load balancer that were OFFLINE when something else was written, and asks them no more.
#[tokio::test]
async fn members_that_ovn_asks_no_more_are_written_again_and_those_of_others_are_not() {
    for (provider, enabled, is_written) in
        [("ovn", true, true), ("ovn", false, false), ("amphora", true, false)]
    {
        let scene = Scene::with(provider).await;
        let mut wish = scene.wish(&[80, 443], &[1, 2]);
        wish.pools.values_mut().for_each(|it| Arc::make_mut(it).health = Some(HealthCheck::default()));
        scene.reach(&wish).await;
        let served = ServedService { scene, wish, heard: OwnerEvents::default() };
        let pool = served.scene.pools().await.remove(0);
        let members = served.scene.cloud.within::<Member>(&pool.id);
        let member = members.list::<Member>(Query::all()).await.unwrap().remove(0);
        if !enabled {
            // By an operator, who wants it out of service.
            let disable = MemberChange { admin_state_up: Edit::To(false), ..MemberChange::default() };
            members.change(&member.id, &disable).await.unwrap();
            served.scene.balancers().await;
        }
        // That moves nothing in the lists: the rest is ONLINE.
        served.scene.fake.set_operating_status(member.id.as_str(), "OFFLINE");
        served.scene.pass(Duration::from_secs(300));
        served.audit().await;
        served.scene.fake.forget_requests();
        let at = format!("change member {}:{}", member.address, member.protocol_port);
        let steps = served.scene.reach(&served.wish).await;
        // What an operator took out is looked at, and left as it is.
        let looks = usize::from(provider == "ovn");
        assert_eq!(steps.iter().filter(|it| it.starts_with(&at)).count(), looks, "{steps:?}");
        assert_eq!(steps.len(), looks, "{steps:?}");
        let writes = served.scene.fake.requests().iter().filter(|it| it.method != "GET").count();
        assert_eq!(writes, usize::from(is_written), "{provider}, enabled: {enabled}");
        let now = members.list::<Member>(Query::all()).await.unwrap();
        assert_eq!(now.iter().find(|it| it.id == member.id).unwrap().admin_state_up, enabled);
        if is_written {
            served.scene.fake.set_operating_status(member.id.as_str(), "ONLINE");
        }
        served.scene.pass(Duration::from_secs(300));
        served.audit().await;
        served.scene.fake.forget_requests();
        let steps = served.scene.reach(&served.wish).await;
        assert!(steps.is_empty() || !enabled, "{provider}: {steps:?}");
        assert!(served.scene.fake.requests().iter().all(|it| it.method == "GET"), "{provider}");
    }
}

/// OVN's driver may not find a member among what it has just written: it notes no port to probe it at, and calls it ERROR.
#[tokio::test]
async fn a_new_member_of_ovn_in_error_is_written_once_more_and_no_other_one_is() {
    for provider in ["ovn", "amphora"] {
        let scene = Scene::with(provider).await;
        let probed = |scene: &Scene, all: &[u8]| {
            let mut wish = scene.wish(&[80], all);
            wish.pools.values_mut().for_each(|it| Arc::make_mut(it).health = Some(HealthCheck::default()));
            wish
        };
        scene.reach(&probed(&scene, &[1])).await;
        scene.pass(Duration::from_secs(300));
        let wish = probed(&scene, &[1, 2]);
        scene.reach(&wish).await;
        let served = ServedService { scene, wish, heard: OwnerEvents::default() };
        let pool = served.scene.pools().await.remove(0);
        let members = served.scene.cloud.within::<Member>(&pool.id);
        let all = members.list::<Member>(Query::all()).await.unwrap();
        served.scene.fake.forget_requests();
        for _ in 0..3 {
            for member in &all {
                served.scene.fake.set_operating_status(member.id.as_str(), "ERROR");
            }
            served.scene.pass(Duration::from_secs(300));
            served.audit().await;
            served.scene.reach_telling(&served.wish).await;
        }
        let writes = served.scene.fake.requests().into_iter().filter(|it| it.method != "GET");
        let writes: BTreeSet<String> = writes.map(|it| format!("{} {}", it.method, it.path)).collect();
        // The first was new, too, when the load balancer was made.
        let is_of_ovn = provider == "ovn";
        let written = all.iter().filter(|_| is_of_ovn);
        let written =
            written.map(|it| format!("PUT /load-balancer/v2/lbaas/pools/{}/members/{}", pool.id, it.id));
        assert_eq!(writes, written.collect(), "{provider}");
        let count = served.scene.fake.requests().iter().filter(|it| it.method != "GET").count();
        assert_eq!(count, if is_of_ovn { 2 } else { 0 }, "{provider}: once each");
    }
}

#[tokio::test]
async fn what_is_being_changed_by_ourselves_is_no_drift() {
    let served = ServedService::begun().await;
    let desired = Desired::LoadBalancer(Arc::new(served.scene.wish(&[80, 443], &[1, 2, 3])));
    let mut observed = served.observed().await;
    let steps = served.scene.driver.steps(&desired, &observed);
    served.scene.driver.apply(&Context::default(), &unit(), &steps[0], &mut observed).await.unwrap();
    assert!(served.audit().await.again.is_empty(), "it is under way");
    served.scene.pass(Duration::from_secs(10));
    assert!(served.audit().await.again.is_empty());
    assert_eq!(served.told(), "");
}

/// The bench counts the requests of a thousand.
const MANY: usize = 300;

fn one_of_many(number: usize) -> Unit {
    let Unit::LoadBalancer(place, _) = unit() else { panic!("it is one") };
    let object = ObjectRef::new(Kind::Service, "default", format!("shop-{number}"));
    Unit::LoadBalancer(place, LbKey::Of(Owner::Object { object, uid: format!("uid-{number}").into() }))
}

#[tokio::test]
async fn a_restart_and_an_audit_of_hundreds_take_forty_calls_and_one_tree_each() {
    let mut scene = Scene::crowded().await;
    let mut wish = scene.wish(&[80, 443], &[1, 2]);
    wish.options.cloud.as_mut().unwrap().internal = true;
    let wish = Desired::LoadBalancer(Arc::new(wish));
    let units: Vec<Unit> = (0..MANY).map(one_of_many).collect();
    for unit in &units {
        let mut observed = scene.driver.observe(&Context::default(), unit, &wish).await.unwrap();
        for step in scene.driver.steps(&wish, &observed) {
            scene.driver.apply(&Context::default(), unit, &step, &mut observed).await.unwrap();
        }
    }
    scene.pass(Duration::from_secs(60));
    scene.balancers().await;
    scene.restarted();
    scene.fake.forget_requests();
    for unit in &units {
        let observed = scene.driver.observe(&Context::default(), unit, &wish).await.unwrap();
        assert!(scene.driver.steps(&wish, &observed).is_empty(), "{unit}");
    }
    let trees = scene.fake.count("GET */lbaas/loadbalancers/*/status");
    let all = scene.fake.requests().len();
    assert_eq!(trees, MANY);
    assert!(all - trees <= 40, "{} calls beside the trees", all - trees);
    assert_eq!(scene.fake.requests().iter().filter(|it| it.method != "GET").count(), 0);

    scene.fake.forget_requests();
    scene.pass(Duration::from_secs(300));
    let audited = scene.driver.audit(&"openstack".into()).await.unwrap();
    assert!(audited.again.is_empty() && audited.found.is_empty(), "{:?}", audited.again.first());
    let all = scene.fake.requests().len();
    assert!(all <= 40, "{all} calls");
    scene.fake.forget_requests();
    for unit in &units {
        scene.driver.observe(&Context::default(), unit, &wish).await.unwrap();
    }
    assert_eq!(scene.fake.requests().len(), 0, "what is known is not asked for");

    // A day later, all were read in full, and never many at once.
    let mut most = 0;
    let mut trees = 0;
    for _ in 0..24 {
        scene.pass(Duration::from_secs(3600));
        scene.fake.forget_requests();
        scene.driver.audit(&"openstack".into()).await.unwrap();
        let now = scene.fake.count("GET */lbaas/loadbalancers/*/status");
        (most, trees) = (most.max(now), trees + now);
    }
    assert!((MANY..=2 * MANY).contains(&trees), "{trees}");
    assert!(most <= MANY / 8, "{most} in one hour");
}
