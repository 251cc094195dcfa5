//! The other controller's security groups, one for each Service: those of Services that were taken over go, crash or not.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc, time::Duration};

use seaway_drivers::octavia::{
    belongings::{belongings, orphans},
    groups::{Groups, later},
};
use seaway_engine::{Context, Driver, Failure};
use seaway_model::{
    Desired, L4, LoadBalancer, NodeSecurityGroup, Owner, Unit,
    group::{CloudNode, NodeAccess, SourceNetwork},
    load_balancer::{Family, NamedLoadBalancer},
    unit::RemovedOwner,
};
use seaway_openstack::{
    neutron::{FixedIp, NewPort, NewSecurityGroup, Port, SecurityGroup, Subnet},
    resource::{Id, Query},
};
use seaway_testkit::cloud::Fault;

use crate::{occm::OccmObjects, scene::*};

const FOUND: Duration = Duration::from_secs(301);

struct OccmGroupScene {
    scene: Scene,
    wish: LoadBalancer,
    group: NodeSecurityGroup,
}

fn class() -> Unit {
    Unit::SecurityGroup { cloud: "openstack".into(), class: "seaway.dev/octavia".into() }
}

impl OccmGroupScene {
    /// As the other controller leaves it: a load balancer, and its group at both Nodes.
    async fn left() -> OccmGroupScene {
        let scene = Scene::set().await;
        let node = |last: u8| IpAddr::from([10, 0, 0, last]);
        let made = OccmObjects::new("nginxservice", &[(80, 30_080)], &[("one", node(11)), ("two", node(12))]);
        let (balancer, _) = made.make(&scene.cloud, &scene.subnet).await;
        let mut wish = scene.wish(&[80], &[11, 12]);
        let field = "metadata.annotations[loadbalancer.openstack.org/load-balancer-id]".into();
        wish.options.cloud.as_mut().unwrap().named =
            Some(NamedLoadBalancer { id: balancer.id.as_str().into(), field, by_name: false });
        let group = NodeSecurityGroup::default();
        let mut town = OccmGroupScene { scene, wish, group };
        let theirs = town.theirs(&owner()).await;
        for number in [11, 12] {
            let node = town.node(number, vec![theirs.clone()]).await;
            town.group.nodes.push(node);
        }
        town.open(owner());
        town
    }

    fn open(&mut self, owner: Owner) {
        let openings = NodeAccess {
            ports: [(L4::Tcp, 30_080)].into(),
            families: vec![Family::V4],
            provider: Some("amphora".into()),
            from: SourceNetwork::Subnet(self.scene.subnet.as_str().into()),
            ..NodeAccess::default()
        };
        self.group.openings.insert(owner, Arc::new(openings));
    }

    async fn theirs(&self, owner: &Owner) -> Id<SecurityGroup> {
        let Owner::Object { object, uid } = owner else { panic!("it is a Service") };
        let name = format!("lb-sg-{uid}-{}-{}", object.namespace, object.name);
        let words = format!(
            "Security Group for {}/{} Service LoadBalancer in cluster kubernetes",
            object.namespace, object.name
        );
        self.named(&name, &words).await
    }

    async fn named(&self, name: &str, words: &str) -> Id<SecurityGroup> {
        let new =
            NewSecurityGroup { name: name.into(), description: words.into(), ..NewSecurityGroup::new() };
        self.scene.cloud.all::<SecurityGroup>().create(&new).await.unwrap().id
    }

    async fn node(&self, number: u8, groups: Vec<Id<SecurityGroup>>) -> CloudNode {
        let subnet: Subnet = self.scene.cloud.all().read(&self.scene.subnet).await.unwrap();
        let server = format!("00000000-0000-4000-8000-0000000000{number:02}");
        let at = IpAddr::from([10, 0, 0, number]);
        let new = NewPort {
            fixed_ips: vec![FixedIp { ip_address: Some(at), ..FixedIp::on(self.scene.subnet.clone()) }]
                .into(),
            device_id: server.as_str().into(),
            device_owner: "compute:nova".into(),
            security_groups: groups.into(),
            ..NewPort::new(subnet.network_id)
        };
        self.scene.cloud.all::<Port>().create(&new).await.unwrap();
        let provider_id = Some(format!("openstack:///{server}").into());
        CloudNode { name: format!("node-{number}").into(), addresses: vec![at], provider_id }
    }

    fn groups(&self) -> Groups {
        Groups::new(self.scene.driver.clone())
    }

    /// As an engine would, for so long; whatever fails is tried again.
    async fn strive(&self, desired: &Desired) {
        let groups = self.groups();
        let mut rested = 0;
        while rested < 2 {
            let worked = async {
                let mut there = groups.observe(&Context::default(), &class(), desired).await?;
                let steps = groups.steps(desired, &there);
                for step in &steps {
                    groups.apply(&Context::default(), &class(), step, &mut there).await?;
                }
                Ok::<bool, Failure>(steps.is_empty())
            };
            rested = if worked.await.unwrap_or(false) { rested + 1 } else { 0 };
            self.scene.pass(FOUND);
        }
    }

    async fn settle(&self) {
        self.strive(&Desired::SecurityGroup(Arc::new(self.group.clone()))).await;
    }

    /// Of ours and theirs.
    async fn there(&self) -> BTreeSet<String> {
        let all = self.scene.cloud.all::<SecurityGroup>().list::<SecurityGroup>(Query::all()).await.unwrap();
        all.into_iter().map(|it| it.name).filter(|it| it.starts_with("lb-sg-")).collect()
    }

    /// Which groups Nodes' ports have.
    async fn at_nodes(&self) -> Vec<BTreeSet<String>> {
        let groups =
            self.scene.cloud.all::<SecurityGroup>().list::<SecurityGroup>(Query::all()).await.unwrap();
        let query = Query::all().with("device_owner", "compute:nova");
        let ports = self.scene.cloud.all::<Port>().list::<Port>(query).await.unwrap();
        let name = |id: &Id<SecurityGroup>| groups.iter().find(|it| it.id == *id).unwrap().name.clone();
        ports.iter().map(|it| it.security_groups.iter().map(name).collect()).collect()
    }
}

const OURS: &str = "lb-sg-kubernetes-seaway.dev-octavia";
const THEIRS: &str = "lb-sg-uid-1-default-nginxservice";

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|it| (*it).to_owned()).collect()
}

#[tokio::test]
async fn a_group_of_theirs_goes_once_its_service_was_taken_over_and_ours_is_at_all_nodes() {
    let mut town = OccmGroupScene::left().await;
    // Of a Service that is not taken over, of another cluster, and one of a name alone.
    let other = owner_of("uid-2");
    town.open(other.clone());
    town.theirs(&other).await;
    town.named("lb-sg-uid-3-default-third", "mine").await;
    town.named(THEIRS, "Security Group for default/nginxservice Service LoadBalancer in cluster another")
        .await;
    let planned = async |town: &OccmGroupScene| {
        let desired = Desired::SecurityGroup(Arc::new(town.group.clone()));
        let there = town.groups().observe(&Context::default(), &class(), &desired).await.unwrap();
        let now = town.groups().steps(&desired, &there);
        let owners: BTreeSet<Owner> =
            later(&desired, &there, &now).into_iter().map(|(_, it)| it.clone()).collect();
        (owners, now)
    };
    let (owners, now) = planned(&town).await;
    assert_eq!(owners, BTreeSet::from([owner(), other.clone()]), "a dry run says that they go: {now:?}");
    town.settle().await;
    assert_eq!(town.at_nodes().await, vec![set(&[OURS, THEIRS]); 2], "nothing was taken over yet");
    town.scene.reach(&town.wish).await;
    town.scene.pass(FOUND);
    let (owners, now) = planned(&town).await;
    assert_eq!(owners, BTreeSet::from([other.clone()]), "what goes now is a step: {now:?}");
    let frozen = town.group.openings.get_mut(&other).unwrap();
    Arc::make_mut(frozen).frozen = true;
    assert_eq!(planned(&town).await.0, BTreeSet::new(), "a Service that is paused keeps its own");
    Arc::make_mut(town.group.openings.get_mut(&other).unwrap()).frozen = false;
    town.settle().await;
    assert_eq!(town.at_nodes().await, vec![set(&[OURS]); 2]);
    let left = set(&[OURS, "lb-sg-uid-2-default-uid-2", "lb-sg-uid-3-default-third", THEIRS]);
    assert_eq!(town.there().await, left, "one of its name has another cluster's words");
}

#[tokio::test]
async fn a_service_that_is_deleted_after_its_adoption_and_before_ours_is_at_all_nodes_takes_theirs_along() {
    for restarted in [false, true] {
        let mut town = OccmGroupScene::left().await;
        // Beside it, one that stays.
        town.theirs(&owner_of("uid-2")).await;
        town.scene.reach(&town.wish).await;
        assert_eq!(town.at_nodes().await, vec![set(&[THEIRS]); 2], "not replaced yet");
        if restarted {
            town.scene.restarted();
        }
        let nodes = town.group.nodes.iter().flat_map(|it| it.addresses.iter().copied()).collect();
        let load_balancer = Arc::new(town.wish.clone());
        let former = RemovedOwner { load_balancer, nodes, by_another: true };
        town.scene.reach_unit(&unit(), &Desired::Removed(Arc::new(former))).await;
        assert!(town.scene.balancers().await.is_empty() && town.scene.floating().await.is_empty());
        assert_eq!(town.at_nodes().await, vec![set(&[]); 2]);
        assert_eq!(town.there().await, set(&["lb-sg-uid-2-default-uid-2"]));
    }
}

#[tokio::test]
async fn where_groups_are_not_ours_to_manage_theirs_stay_and_gc_lists_them_with_their_load_balancer() {
    let town = OccmGroupScene::left().await;
    town.scene.reach(&town.wish).await;
    town.strive(&Desired::Absent).await;
    assert_eq!(town.there().await, set(&[THEIRS]));
    let all = belongings(&town.scene.cloud, "6c1d", &|_| {}).await.unwrap();
    let is_theirs = |it: &seaway_drivers::octavia::belongings::Belonging| it.name == THEIRS;
    assert!(all.iter().any(is_theirs), "{all:?}");
    let live = [("uid-1".to_owned(), "default".to_owned(), "nginxservice".to_owned())];
    assert!(!orphans(all.clone(), &live).iter().any(is_theirs));
    assert!(orphans(all, &[]).iter().any(is_theirs));
    let others = belongings(&town.scene.cloud, "another", &|_| {}).await.unwrap();
    assert!(others.is_empty(), "{others:?}");
}

#[tokio::test]
async fn trouble_at_any_request_leaves_no_group_of_theirs_and_no_node_closed() {
    for lost in [false, true] {
        for nth in 1.. {
            let mut town = OccmGroupScene::left().await;
            town.scene.reach(&town.wish).await;
            town.scene.fake.forget_requests();
            let mut struck = false;
            for method in ["PUT", "POST", "DELETE"] {
                let on = Fault::on(&format!("{method} /network/*")).nth(nth);
                town.scene.fake.fail(if lost { on.lose_reply() } else { on.status(500) });
            }
            town.settle().await;
            for method in ["PUT", "POST", "DELETE"] {
                struck |= town.scene.fake.count(&format!("{method} /network/*")) >= nth;
            }
            town.scene.fake.heal();
            town.scene.restarted();
            town.scene.reach(&town.wish).await;
            town.settle().await;
            assert_eq!(town.at_nodes().await, vec![set(&[OURS]); 2], "{nth}");
            assert_eq!(town.there().await, set(&[OURS]), "{nth}");
            if !struck {
                break;
            }
        }
    }
}
