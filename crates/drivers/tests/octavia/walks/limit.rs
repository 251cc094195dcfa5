//! Listeners, security groups and whole load balancers that no Service asked to delete: some in an hour, and the rest waits.

use std::{collections::BTreeSet, time::Duration};

use seaway_model::{Reason, config::CloudDefaults, fact::Service};
use seaway_openstack::{
    neutron::{NewSubnet, Router, SecurityGroup, Subnet},
    octavia::{Member, Provisioning},
    resource::{Id, Query},
};
use seaway_testkit::cloud::{ChangeDuration, Fault};

use super::{Event, NAMES, PORTS, SeededRandom, Walk, nodes};
use crate::scene::{Scene, interface};

/// Who follows a leader that was killed knows by then that no other controller writes.
const A_WHILE: Duration = Duration::from_secs(300);
const HOUR: Duration = Duration::from_secs(3_600);

async fn furnished() -> Walk {
    let mut walk = Walk::begin(SeededRandom(1)).await;
    for name in NAMES {
        walk.happens(Event::Create(name, PORTS.to_vec())).await;
    }
    walk.passes(A_WHILE).await;
    assert_eq!(walk.scene.listeners().await.len(), 9);
    walk
}

impl Walk {
    async fn all_have_one_port(&mut self) {
        for name in NAMES {
            // (Those that are not there stay so.)
            self.happens(Event::Ports(name, vec![80])).await;
        }
    }

    /// What is told of the limit.
    async fn limited(&self) -> Vec<String> {
        let leader = self.controllers[self.leader].as_ref().unwrap();
        let all = leader.handle.ask(|world| world.problems()).await.unwrap();
        all.into_iter().filter(|it| it.reason == Reason::DeletionLimit).map(|it| it.message).collect()
    }

    async fn configures(&mut self, change: impl FnOnce(&mut CloudDefaults)) {
        let mut defaults = CloudDefaults::clone(&self.config.clouds[super::CLASS]);
        change(&mut defaults);
        self.config.clouds.insert(super::CLASS.into(), std::sync::Arc::new(defaults));
        for it in self.controllers.iter().flatten() {
            it.configure(&self.config).await;
        }
    }

    async fn groups(&self) -> usize {
        let all = self.scene.cloud.all::<SecurityGroup>().list::<SecurityGroup>(Query::all()).await.unwrap();
        all.iter().filter(|it| it.description.contains("seaway.dev/group=")).count()
    }
}

#[tokio::test(start_paused = true)]
async fn listeners_of_ports_that_nobody_was_seen_to_take_away_go_a_few_in_an_hour() {
    let mut walk = furnished().await;
    // A copy of the cluster knows less than that, or a restored etcd does.
    walk.controllers = [None, None];
    walk.all_have_one_port().await;
    walk.restart_both().await;
    walk.happens(Event::Nodes(vec![11, 12, 13])).await;
    walk.passes(Duration::from_secs(900)).await;
    assert_eq!(walk.scene.listeners().await.len(), 6, "three of six went");
    let told = walk.limited().await;
    assert_eq!(told.len(), 3, "{told:?}");
    let is_one = |it: &String| {
        it.starts_with("the listener ")
            && it.contains("/TCP is not deleted now: within the last hour, Seaway deleted 3 objects")
    };
    assert!(told.iter().all(is_one), "{told:?}");
    // Whatever waits, what is served follows.
    for pool in walk.scene.pools().await {
        let Some(listener) = pool.listeners.first() else { panic!("{pool:?} leads nowhere") };
        let listener = walk.scene.listeners().await.into_iter().find(|it| it.id == listener.id).unwrap();
        let members = walk.scene.cloud.within::<Member>(&pool.id);
        let members = members.list::<Member>(Query::all()).await.unwrap().len();
        assert!(listener.protocol_port != 80 || members == 3, "{members} at {}", listener.protocol_port);
    }
    walk.passes(HOUR).await;
    assert_eq!(walk.scene.listeners().await.len(), 3, "and the others in the next one");
    assert_eq!(walk.limited().await, [""; 0]);
    walk.ends().await;
}

#[tokio::test(start_paused = true)]
async fn ports_that_were_seen_to_be_taken_away_go_at_once_also_after_a_restart() {
    for dies in [false, true] {
        let mut walk = furnished().await;
        let fault = || Fault::on("DELETE */lbaas/*").always().status(500);
        if dies {
            walk.scene.fake.fail(fault());
        }
        walk.all_have_one_port().await;
        walk.passes(Duration::from_secs(20)).await;
        if dies {
            assert_eq!(walk.scene.listeners().await.len(), 9);
            walk.scene.fake.heal();
            walk.restart_both().await;
        }
        walk.passes(A_WHILE).await;
        assert_eq!(walk.scene.listeners().await.len(), 3, "dies: {dies}");
        assert_eq!(walk.limited().await, [""; 0]);
        walk.ends().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_group_that_a_setting_takes_away_waits_as_well_and_one_of_deleted_services_does_not() {
    for deleted in [false, true] {
        let mut walk = furnished().await;
        walk.configures(|it| it.groups = true).await;
        walk.passes(A_WHILE).await;
        assert_eq!(walk.groups().await, 1);
        walk.controllers = [None, None];
        walk.all_have_one_port().await;
        walk.restart_both().await;
        walk.passes(A_WHILE).await;
        assert_eq!(walk.scene.listeners().await.len(), 6, "the limit is reached");
        match deleted {
            true => {
                for name in NAMES {
                    walk.happens(Event::Delete(name)).await;
                }
                walk.passes(A_WHILE).await;
                assert_eq!((walk.groups().await, walk.scene.balancers().await.len()), (0, 0));
                assert!(walk.api.services().is_empty());
            }
            false => {
                walk.configures(|it| it.groups = false).await;
                walk.passes(A_WHILE).await;
                assert_eq!(walk.groups().await, 1);
                let told = walk.limited().await;
                assert!(
                    told.iter()
                        .any(|it| it.starts_with("the security group of the Nodes is not deleted now")),
                    "{told:?}"
                );
                walk.passes(HOUR).await;
                assert_eq!(walk.groups().await, 0, "as the hour passes");
            }
        }
        walk.ends().await;
    }
}

#[tokio::test(start_paused = true)]
async fn members_are_not_counted() {
    let mut walk = furnished().await;
    walk.happens(Event::Nodes(vec![13])).await;
    walk.passes(A_WHILE).await;
    assert_eq!(walk.limited().await, [""; 0]);
    assert_eq!(walk.api.nodes(), nodes(&[13]));
    walk.ends().await;
}

/// As many listeners went as may go in an hour; `change`: what Services say by then, which nobody saw them say.
async fn spent(change: impl Fn(&mut Service)) -> Walk {
    let mut walk = furnished().await;
    walk.controllers = [None, None];
    walk.all_have_one_port().await;
    walk.restart_both().await;
    walk.passes(A_WHILE).await;
    assert_eq!((walk.scene.listeners().await.len(), walk.limited().await.len()), (6, 3));
    walk.controllers = [None, None];
    NAMES.iter().for_each(|name| walk.edit(name, &change));
    walk.restart_both().await;
    walk.passes(A_WHILE).await;
    walk
}

#[tokio::test(start_paused = true)]
async fn a_floating_ip_that_nobody_was_seen_to_give_up_is_counted() {
    let internal = |it: &mut Service| super::annotate(it, super::INTERNAL, Some("true"));
    let walk = spent(internal).await;
    let told = walk.limited().await;
    let waits = told.iter().filter(|it| it.starts_with("the floating IP 172."));
    assert_eq!((walk.scene.floating().await.len(), waits.count()), (3, 3), "{told:?}");
    walk.passes(2 * HOUR + A_WHILE).await;
    assert_eq!(walk.limited().await, [""; 0]);
    walk.ends().await;
    // Who was seen to give it up waits for nothing.
    let walk = spent(|_| {}).await;
    NAMES.iter().for_each(|name| walk.edit(name, internal));
    walk.passes(A_WHILE).await;
    assert_eq!(walk.scene.floating().await, []);
    walk.ends().await;
}

#[tokio::test(start_paused = true)]
async fn a_rebuild_that_a_setting_asks_for_is_counted() {
    const REBUILD: &str = "seaway.dev/rebuild-on-change";
    const SUBNET: &str = "loadbalancer.openstack.org/subnet-id";
    for itself in [false, true] {
        let mut walk = spent(|it| _ = it.meta.annotations.insert(REBUILD.into(), "true".into())).await;
        let ids = async |walk: &Walk| -> BTreeSet<_> {
            walk.scene.balancers().await.into_iter().map(|it| it.id).collect()
        };
        let (before, other) = (ids(&walk).await, other_subnet(&walk.scene).await);
        match itself {
            true => NAMES.iter().for_each(|name| {
                walk.edit(name, |it| _ = it.meta.annotations.insert(SUBNET.into(), other.as_str().into()));
            }),
            false => walk.configures(|it| it.place.subnet = Some(other.as_str().into())).await,
        }
        walk.passes(A_WHILE).await;
        let (now, told) = (ids(&walk).await, walk.limited().await);
        let waits = told.iter().filter(|it| it.starts_with("the current load balancer")).count();
        match itself {
            true => assert!(now.is_disjoint(&before) && now.len() == 3 && waits == 0, "{told:?}"),
            false => assert!(now == before && waits == 3, "{told:?}"),
        }
        walk.ends().await;
    }
}

/// An outage of Octavia sets many to ERROR that forward traffic all the same.
#[tokio::test(start_paused = true)]
async fn a_rebuild_of_what_is_in_error_is_counted_unless_the_service_asks_for_it() {
    const REBUILD: &str = "seaway.dev/rebuild-on-error";
    const FIVE: [&str; 5] = ["shop", "mail", "wiki", "blog", "chat"];
    for itself in [false, true] {
        let mut walk = Walk::begin(SeededRandom(1)).await;
        for name in FIVE {
            walk.happens(Event::Create(name, vec![80])).await;
        }
        walk.passes(A_WHILE).await;
        match itself {
            true => FIVE.iter().for_each(|name| {
                walk.edit(name, |it| _ = it.meta.annotations.insert(REBUILD.into(), "true".into()));
            }),
            false => walk.configures(|it| it.rebuild = true).await,
        }
        // What a Service asked for within the hour would not be counted anyway.
        walk.passes(HOUR + A_WHILE).await;
        let ids = async |walk: &Walk| -> BTreeSet<_> {
            walk.scene.balancers().await.into_iter().map(|it| it.id).collect()
        };
        let before = ids(&walk).await;
        assert_eq!(before.len(), 5);
        before.iter().for_each(|id| walk.scene.fake.set_provisioning_status(id.as_str(), "ERROR"));
        walk.passes(Duration::from_secs(900)).await;
        let stay = if itself { 0 } else { 2 };
        let told = walk.limited().await;
        assert_eq!(ids(&walk).await.intersection(&before).count(), stay, "{told:?}");
        let waits = told.iter().filter(|it| it.starts_with("the current load balancer")).count();
        assert_eq!(waits, stay, "{told:?}");
        walk.passes(HOUR).await;
        assert!(ids(&walk).await.is_disjoint(&before), "the others in the next hour");
        assert_eq!(walk.limited().await, [""; 0]);
        walk.ends().await;
    }
}

/// Beside the one that is usual.
async fn other_subnet(scene: &Scene) -> Id<Subnet> {
    let network = scene.cloud.all::<Subnet>().read::<Subnet>(&scene.subnet).await.unwrap().network_id;
    let subnet = NewSubnet { cidr: Some("10.0.1.0/24".to_owned()).into(), ..NewSubnet::new(network, 4) };
    let subnet = scene.cloud.all::<Subnet>().create(&subnet).await.unwrap().id;
    let routers = scene.cloud.all::<Router>();
    let router = routers.list::<Router>(Query::all()).await.unwrap().remove(0).id;
    interface("add", &scene.cloud, &router, &subnet).await;
    subnet
}

/// A load balancer of `wiki` that is never ready, and another beside it that serves. `spent`: no more may go in this hour.
async fn one_beside_a_stuck_one(spent: bool) -> (Walk, String) {
    let mut walk = Walk::begin(SeededRandom(1)).await;
    for name in ["shop", "mail"] {
        walk.happens(Event::Create(name, PORTS.to_vec())).await;
    }
    walk.configures(|it| (it.pending.rebuild, it.pending.limit) = (true, Some(Duration::from_secs(300))))
        .await;
    walk.passes(A_WHILE).await;
    if spent {
        walk.controllers = [None, None];
        walk.all_have_one_port().await;
        walk.restart_both().await;
        walk.passes(A_WHILE).await;
        assert_eq!((walk.scene.listeners().await.len(), walk.limited().await.len()), (3, 1));
    }
    walk.scene.fake.pace(ChangeDuration::Never);
    walk.happens(Event::Create("wiki", vec![80])).await;
    walk.passes(Duration::from_secs(20)).await;
    let others: Vec<_> = walk.scene.balancers().await;
    let stuck = others.into_iter().find(|it| it.provisioning_status == Provisioning::PendingCreate).unwrap();
    walk.scene.fake.pace(ChangeDuration::Time(Duration::from_millis(700)));
    walk.passes(Duration::from_secs(600)).await;
    assert_eq!(walk.scene.balancers().await.len(), 4, "another was made beside it");
    (walk, stuck.id.to_string())
}

/// The Service chose that another is made: what never served is not counted, by who knows that it never did.
#[tokio::test(start_paused = true)]
async fn one_that_was_given_up_goes_though_the_limit_is_reached_and_waits_if_nobody_knows_what_it_was() {
    for dies in [false, true] {
        let (mut walk, stuck) = one_beside_a_stuck_one(true).await;
        if dies {
            walk.restart_both().await;
            walk.passes(A_WHILE).await;
        }
        walk.scene.fake.set_provisioning_status(&stuck, "ACTIVE");
        walk.passes(Duration::from_secs(700)).await;
        let is_there = walk.scene.balancers().await.iter().any(|it| it.id.as_str() == stuck);
        let told = walk.limited().await;
        let waits = told
            .iter()
            .any(|it| it.starts_with(&format!("the second load balancer {stuck} is not deleted now")));
        assert_eq!((is_there, waits), (dies, dies), "{told:?}");
        walk.passes(HOUR).await;
        assert_eq!(walk.scene.balancers().await.len(), 3);
        walk.ends().await;
    }
}

#[tokio::test(start_paused = true)]
async fn its_service_may_be_deleted_meanwhile_and_goes_once_octavia_lets_both_go() {
    for dies in [false, true] {
        let (mut walk, stuck) = one_beside_a_stuck_one(false).await;
        walk.happens(Event::Delete("wiki")).await;
        if dies {
            walk.restart_both().await;
        }
        walk.passes(A_WHILE).await;
        assert!(walk.api.service("wiki").is_some(), "dies: {dies}: it is held while something is there");
        let left: Vec<_> = walk.scene.balancers().await.into_iter().map(|it| it.id.to_string()).collect();
        assert!(left.len() == 3 && left.contains(&stuck), "dies: {dies}: the other is gone: {left:?}");
        walk.scene.fake.set_provisioning_status(&stuck, "ERROR");
        walk.passes(Duration::from_secs(700)).await;
        assert_eq!(walk.scene.balancers().await.len(), 2, "dies: {dies}");
        assert!(walk.api.service("wiki").is_none());
        walk.ends().await;
    }
}
