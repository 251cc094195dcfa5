//! Security groups: one for all, at each Node once.

use std::{collections::BTreeSet, sync::Arc};

use seaway_drivers::octavia::groups::Groups;
use seaway_engine::{Context, Driver, Failure, Report};
use seaway_model::{
    Desired, Kind, L4, Name, NodeSecurityGroup, ObjectRef, Owner, Unit,
    group::{CloudNode, NodeAccess, SourceNetwork},
    load_balancer::Family,
};
use seaway_openstack::{
    neutron::{
        Direction, EtherType, FixedIp, NewPort, NewSecurityGroup, NewSecurityGroupRule, Port, PortChange,
        SecurityGroup, SecurityGroupRule, Subnet,
    },
    resource::{Edit, Id, Query},
};
use seaway_testkit::{
    cloud::Fault,
    conformance::{comes_to_rest, passes},
};

use crate::scene::{Scene, driver};

pub(crate) struct GroupScene {
    pub(crate) scene: Scene,
    driver: Groups,
}

impl GroupScene {
    pub(crate) async fn set() -> GroupScene {
        let scene = Scene::set().await;
        let driver = Groups::new(Arc::new(driver(&scene.cloud, "amphora")));
        GroupScene { scene, driver }
    }

    fn restarted(&mut self) {
        self.driver = Groups::new(Arc::new(driver(&self.scene.cloud, "amphora")));
    }

    /// A machine of this number, and the Node on it: `10.0.0.11` is that of number 11.
    pub(crate) async fn node(&self, number: u8) -> CloudNode {
        let server = format!("00000000-0000-4000-8000-0000000000{number:02}");
        self.port(number, &server).await;
        CloudNode { provider_id: Some(format!("openstack:///{server}").into()), ..nameless(number) }
    }

    async fn port(&self, number: u8, server: &str) -> Port {
        let subnet: Subnet = self.scene.cloud.all().read(&self.scene.subnet).await.unwrap();
        let at =
            FixedIp { ip_address: Some([10, 0, 0, number].into()), ..FixedIp::on(self.scene.subnet.clone()) };
        let new = NewPort {
            fixed_ips: vec![at].into(),
            device_id: server.into(),
            device_owner: "compute:nova".into(),
            ..NewPort::new(subnet.network_id)
        };
        self.scene.cloud.all::<Port>().create(&new).await.unwrap()
    }

    pub(crate) fn wish(&self, services: &[(&str, &[u16])], nodes: &[CloudNode]) -> NodeSecurityGroup {
        let openings = services.iter().map(|(name, ports)| {
            let openings = NodeAccess {
                ports: ports.iter().map(|it| (L4::Tcp, *it)).collect(),
                families: vec![Family::V4],
                provider: Some("amphora".into()),
                from: SourceNetwork::Subnet(self.scene.subnet.as_str().into()),
                ..NodeAccess::default()
            };
            (owner(name), Arc::new(openings))
        });
        NodeSecurityGroup {
            openings: openings.collect(),
            nodes: nodes.to_vec(),
            ..NodeSecurityGroup::default()
        }
    }

    pub(crate) async fn reach(&self, wish: &NodeSecurityGroup) -> Vec<String> {
        self.rest(&wanted(wish)).await
    }

    async fn rest(&self, desired: &Desired) -> Vec<String> {
        comes_to_rest(&self.driver, &unit(), desired, |time| {
            self.scene.fake.advance(time);
            self.scene.clock.advance(time);
        })
        .await
    }

    /// What comes of it, where that is not all well.
    async fn told(&self, wish: &NodeSecurityGroup) -> Report {
        let desired = wanted(wish);
        let mut there = self.driver.observe(&Context::default(), &unit(), &desired).await.unwrap();
        for step in self.driver.steps(&desired, &there) {
            self.driver.apply(&Context::default(), &unit(), &step, &mut there).await.unwrap();
        }
        let left: Vec<String> = self.driver.steps(&desired, &there).iter().map(ToString::to_string).collect();
        assert_eq!(left, [""; 0]);
        self.driver.conclude(&unit(), &desired, &there)
    }

    async fn ours(&self) -> Vec<SecurityGroup> {
        let all = self.scene.cloud.all::<SecurityGroup>().list::<SecurityGroup>(Query::all()).await.unwrap();
        all.into_iter().filter(|it| it.name.starts_with("lb-sg-")).collect()
    }

    /// `30080/tcp 10.0.0.0/24`
    pub(crate) async fn rules(&self) -> BTreeSet<String> {
        let group = self.ours().await.remove(0);
        let rules = group.security_group_rules.0.into_iter().filter(|it| it.direction == Direction::Ingress);
        rules
            .map(|it| {
                let (port, protocol) = (it.port_range_min.unwrap(), it.protocol.unwrap());
                format!("{port}/{protocol} {}", it.remote_ip_prefix.unwrap_or("everybody".to_owned()))
            })
            .collect()
    }

    async fn groups_of(&self, number: u8) -> Vec<Id<SecurityGroup>> {
        self.port_at(number).await.security_groups
    }

    async fn port_at(&self, number: u8) -> Port {
        let query = Query::all().with("fixed_ips", format!("ip_address=10.0.0.{number}"));
        self.scene.cloud.all::<Port>().list::<Port>(query).await.unwrap().remove(0)
    }

    async fn has_ours(&self, number: u8) -> bool {
        let ours: Vec<_> = self.ours().await.into_iter().map(|it| it.id).collect();
        self.groups_of(number).await.iter().any(|it| ours.contains(it))
    }

    async fn group(&self, name: &str) -> Id<SecurityGroup> {
        let new = NewSecurityGroup { name: name.into(), ..NewSecurityGroup::new() };
        self.scene.cloud.all::<SecurityGroup>().create(&new).await.unwrap().id
    }

    async fn regroup(&self, number: u8, groups: Vec<Id<SecurityGroup>>) {
        let port = self.port_at(number).await.id;
        let change = PortChange { security_groups: groups.into(), ..PortChange::default() };
        self.scene.cloud.all::<Port>().change(&port, &change).await.unwrap();
    }
}

fn nameless(number: u8) -> CloudNode {
    CloudNode {
        name: format!("node-{number}").into(),
        addresses: vec![[10, 0, 0, number].into()],
        provider_id: None,
    }
}

fn owner(name: &str) -> Owner {
    Owner::Object { object: ObjectRef::new(Kind::Service, "default", name), uid: name.into() }
}

fn unit() -> Unit {
    Unit::SecurityGroup { cloud: "openstack".into(), class: "seaway.dev/octavia".into() }
}

fn wanted(group: &NodeSecurityGroup) -> Desired {
    Desired::SecurityGroup(Arc::new(group.clone()))
}

#[tokio::test]
async fn one_group_serves_all_services_and_is_at_each_node_once() {
    let mut town = GroupScene::set().await;
    let nodes = [town.node(11).await, town.node(12).await];
    let wish = town.wish(&[("shop", &[30_080, 30_443]), ("mail", &[30_025])], &nodes);
    town.scene.fake.forget_requests();
    town.reach(&wish).await;
    let count = |pattern: &str| town.scene.fake.count(pattern);
    assert_eq!((count("POST */security-groups"), count("POST */security-group-rules")), (1, 3));
    assert_eq!(count("PUT */ports/*"), 2, "a Node once, and not for each Service");
    let group = town.ours().await.remove(0);
    assert_eq!(group.name, "lb-sg-kubernetes-seaway.dev-octavia");
    assert!(group.description.ends_with("[seaway.dev/cluster=6c1d seaway.dev/group=seaway.dev/octavia]"));
    let rules = ["30025/tcp 10.0.0.0/24", "30080/tcp 10.0.0.0/24", "30443/tcp 10.0.0.0/24"];
    assert_eq!(town.rules().await, BTreeSet::from(rules.map(str::to_owned)));
    assert!(town.groups_of(11).await.len() == 2, "beside the one that it had");
    town.scene.fake.forget_requests();
    assert_eq!(town.reach(&wish).await, [""; 0]);
    assert_eq!(town.scene.fake.requests().len(), 0, "what we made is known");
    town.restarted();
    assert_eq!(town.reach(&wish).await, [""; 0]);
    let restarted = town.scene.fake.requests().len();
    assert!(restarted <= 8, "after a restart all Nodes are looked at together: {restarted}");
}

#[tokio::test]
async fn another_node_is_one_look_and_one_write_however_many_services_there_are() {
    let town = GroupScene::set().await;
    let mut nodes = vec![town.node(11).await];
    let names: Vec<String> = (0..50).map(|it| format!("service-{it}")).collect();
    let ports: Vec<[u16; 1]> = (0..50).map(|it| [30_000 + it]).collect();
    let services: Vec<(&str, &[u16])> =
        names.iter().zip(&ports).map(|(name, ports)| (name.as_str(), &ports[..])).collect();
    town.reach(&town.wish(&services, &nodes)).await;
    nodes.push(town.node(12).await);
    town.scene.fake.forget_requests();
    assert_eq!(
        town.reach(&town.wish(&services, &nodes)).await,
        ["attach the security group to the port of Node node-12"]
    );
    assert_eq!(town.scene.fake.requests().len(), 2);
}

#[tokio::test]
async fn one_port_more_is_one_rule_and_one_less_is_one_rule_less() {
    let town = GroupScene::set().await;
    let nodes = [town.node(11).await];
    town.reach(&town.wish(&[("shop", &[30_080])], &nodes)).await;
    let more = town.reach(&town.wish(&[("shop", &[30_080, 30_081])], &nodes)).await;
    assert_eq!(more, ["allow 30081/TCP from 10.0.0.0/24 to Nodes"]);
    let less = town.reach(&town.wish(&[("shop", &[30_081])], &nodes)).await;
    assert_eq!(less, ["stop allowing 30080/TCP from 10.0.0.0/24 to Nodes"]);
}

#[tokio::test]
async fn what_is_open_for_a_service_whose_wish_is_unclear_stays_and_nothing_more_is_opened() {
    let town = GroupScene::set().await;
    let nodes = [town.node(11).await];
    let frozen = |mut wish: NodeSecurityGroup| {
        Arc::make_mut(wish.openings.get_mut(&owner("shop")).unwrap()).frozen = true;
        wish
    };
    assert_eq!(town.reach(&frozen(town.wish(&[("shop", &[30_080])], &nodes))).await, [""; 0]);
    town.reach(&town.wish(&[("shop", &[30_080]), ("mail", &[30_025])], &nodes)).await;
    let less = town.reach(&frozen(town.wish(&[("shop", &[30_080, 30_081])], &nodes))).await;
    assert_eq!(less, [""; 0], "alone, it changes nothing");
    let unclear = frozen(town.wish(&[("shop", &[30_080, 30_081]), ("mail", &[30_026])], &nodes));
    town.reach(&unclear).await;
    let rules = ["30026/tcp 10.0.0.0/24", "30080/tcp 10.0.0.0/24"];
    assert_eq!(town.rules().await, BTreeSet::from(rules.map(str::to_owned)));
}

/// cloud-provider-openstack 2699: with OVN, all rules of the group were deleted, Neutron's own for what leaves, too.
#[tokio::test]
async fn ovn_leaves_the_rules_of_others_where_they_are() {
    let town = GroupScene::set().await;
    let nodes = [town.node(11).await];
    let mut wish = town.wish(&[("shop", &[30_080])], &nodes);
    for openings in wish.openings.values_mut() {
        Arc::make_mut(openings).provider = Some("ovn".into());
    }
    town.reach(&wish).await;
    assert_eq!(town.rules().await, BTreeSet::from(["30080/tcp everybody".to_owned()]));
    let group = town.ours().await.remove(0).id;
    let new = NewSecurityGroupRule {
        protocol: Edit::To(Some("tcp".to_owned())),
        port_range_min: Edit::To(Some(22)),
        port_range_max: Edit::To(Some(22)),
        ..NewSecurityGroupRule::new(group, Direction::Ingress, EtherType::V4)
    };
    town.scene.cloud.all::<SecurityGroupRule>().create(&new).await.unwrap();
    for openings in wish.openings.values_mut() {
        Arc::make_mut(openings).sources = vec!["192.0.2.0/24".parse().unwrap()];
    }
    town.scene.clock.advance(std::time::Duration::from_secs(400));
    town.reach(&wish).await;
    let both = ["22/tcp everybody", "30080/tcp 192.0.2.0/24"];
    assert_eq!(town.rules().await, BTreeSet::from(both.map(str::to_owned)));
    let rules = town.ours().await.remove(0).security_group_rules.0;
    assert_eq!(rules.iter().filter(|it| it.direction == Direction::Egress).count(), 2, "all may leave");
}

/// cloud-provider-openstack 2630: two who change the groups of one port at a time lost one of the changes.
#[tokio::test]
async fn a_change_of_somebody_else_in_between_is_not_lost() {
    let town = GroupScene::set().await;
    let nodes = [town.node(11).await];
    let desired = wanted(&town.wish(&[("shop", &[30_080])], &nodes));
    let mut there = town.driver.observe(&Context::default(), &unit(), &desired).await.unwrap();
    let steps = town.driver.steps(&desired, &there);
    let theirs = town.group("theirs").await;
    town.regroup(11, vec![theirs.clone()]).await;
    for step in &steps {
        town.driver.apply(&Context::default(), &unit(), step, &mut there).await.unwrap();
    }
    let groups = town.groups_of(11).await;
    assert!(groups.contains(&theirs) && town.has_ours(11).await && groups.len() == 2, "{groups:?}");
    let refused = town.scene.fake.requests().iter().filter(|it| it.status == Some(412)).count();
    assert_eq!(refused, 1, "who is late is told so");
    // And the other way round: they add one while ours goes.
    let desired = wanted(&town.wish(&[("shop", &[30_080])], &[]));
    let mut there = town.driver.observe(&Context::default(), &unit(), &desired).await.unwrap();
    let steps = town.driver.steps(&desired, &there);
    let more = town.group("more").await;
    let mut both = groups;
    both.push(more.clone());
    town.regroup(11, both).await;
    for step in &steps {
        town.driver.apply(&Context::default(), &unit(), step, &mut there).await.unwrap();
    }
    let groups: BTreeSet<_> = town.groups_of(11).await.into_iter().collect();
    assert_eq!(groups, BTreeSet::from([theirs, more]));
}

/// cloud-provider-openstack 2609.
#[tokio::test]
async fn a_foreign_provider_id_breaks_only_itself() {
    let town = GroupScene::set().await;
    let foreign = CloudNode { provider_id: Some("metal:///rack-7".into()), ..nameless(70) };
    let nodes = [foreign, town.node(11).await];
    town.reach(&town.wish(&[("shop", &[30_080])], &nodes)).await;
    assert!(town.has_ours(11).await);
}

#[tokio::test]
async fn a_node_without_provider_id_is_found_by_its_address_and_never_by_its_name() {
    let town = GroupScene::set().await;
    let known = town.node(11).await;
    town.port(12, "somebody").await;
    let named = town.port(13, "else").await;
    let change = PortChange { name: "node-14".into(), ..PortChange::default() };
    town.scene.cloud.all::<Port>().change(&named.id, &change).await.unwrap();
    let wish = town.wish(&[("shop", &[30_080])], &[known, nameless(12), nameless(14)]);
    let told = town.told(&wish).await;
    assert!(town.has_ours(11).await && town.has_ours(12).await && !town.has_ours(13).await);
    assert_eq!(told.problems.len(), 1, "{:?}", told.problems);
    assert!(told.problems[0].1.message.contains("node-14"), "{:?}", told.problems);
    // It comes up later.
    town.port(14, "late").await;
    assert_eq!(town.reach(&wish).await, ["attach the security group to the port of Node node-14"]);
}

#[tokio::test]
async fn a_port_that_lets_everybody_in_is_left_alone() {
    let town = GroupScene::set().await;
    let node = town.node(11).await;
    let port = town.port_at(11).await.id;
    let open = PortChange {
        security_groups: Vec::new().into(),
        port_security_enabled: Edit::To(Some(false)),
        ..PortChange::default()
    };
    town.scene.cloud.all::<Port>().change(&port, &open).await.unwrap();
    town.reach(&town.wish(&[("shop", &[30_080])], &[node])).await;
    assert!(town.groups_of(11).await.is_empty());
}

#[tokio::test]
async fn who_leaves_gives_the_group_back_and_keeps_all_others() {
    let mut town = GroupScene::set().await;
    let nodes = [town.node(11).await, town.node(12).await];
    let theirs = town.group("theirs").await;
    let mut groups = town.groups_of(12).await;
    groups.push(theirs.clone());
    town.regroup(12, groups.clone()).await;
    town.reach(&town.wish(&[("shop", &[30_080])], &nodes)).await;
    assert_eq!(town.groups_of(12).await.len(), 3);
    town.restarted();
    // One that only the file leaves out is a member still.
    let mut wish = town.wish(&[("shop", &[30_080])], &nodes[..1]);
    wish.passed_over.clone_from(&nodes[1].addresses);
    assert_eq!(town.reach(&wish).await, [""; 0]);
    town.reach(&town.wish(&[("shop", &[30_080])], &nodes[..1])).await;
    assert_eq!(town.groups_of(12).await, groups);
    assert!(town.has_ours(11).await);
    // A machine may go with its Node, too.
    let port = town.port_at(11).await.id;
    town.scene.cloud.all::<Port>().delete(&port).await.unwrap();
    town.rest(&Desired::Absent).await;
    assert!(town.ours().await.is_empty());
}

#[tokio::test]
async fn every_wish_is_reached_from_every_other_and_nothing_is_left() {
    let town = GroupScene::set().await;
    let nodes = [town.node(11).await, town.node(12).await];
    let one = town.wish(&[("shop", &[30_080])], &nodes[..1]);
    let two = town.wish(&[("shop", &[30_080]), ("mail", &[30_025])], &nodes);
    let other = town.wish(&[("mail", &[30_026])], &nodes[1..]);
    let mut anywhere = two.clone();
    for openings in anywhere.openings.values_mut() {
        Arc::make_mut(openings).from = SourceNetwork::Nodes;
    }
    let wanted: Vec<Desired> = [&one, &two, &other, &anywhere, &one].map(wanted).into();
    passes(&town.driver, &unit(), &wanted).await;
    assert!(town.ours().await.is_empty(), "nothing is left");
    assert!(town.groups_of(11).await.len() == 1 && town.groups_of(12).await.len() == 1);
}

/// What somebody else called as we would, or what is another cluster's, is not ours.
#[tokio::test]
async fn a_group_of_our_name_is_not_ours() {
    let town = GroupScene::set().await;
    let theirs = town.group("lb-sg-kubernetes-seaway.dev-octavia").await;
    let node = town.node(11).await;
    town.reach(&town.wish(&[("shop", &[30_080])], &[node])).await;
    assert_eq!(town.ours().await.len(), 2);
    assert!(!town.groups_of(11).await.contains(&theirs));
    town.rest(&Desired::Absent).await;
    assert_eq!(town.ours().await.remove(0).id, theirs);
}

/// occm.md, defects found: "Crash at any request of delete leaves the SG".
#[tokio::test]
async fn a_crash_at_any_request_leaves_nothing_behind() {
    let lose: [fn(seaway_testkit::cloud::RequestMatcher) -> Fault; 3] =
        [|it| it.lose_request(), |it| it.lose_reply(), |it| it.status(500)];
    for how in lose {
        for pattern in ["POST */security-groups", "POST */security-group-rules", "PUT */ports/*"] {
            for number in 1..=2 {
                crash(Fault::on(pattern).nth(number), how).await;
            }
        }
        for pattern in ["DELETE */security-groups/*", "DELETE */security-group-rules/*"] {
            crash(Fault::on(pattern), how).await;
        }
    }
}

async fn crash(
    at: seaway_testkit::cloud::RequestMatcher,
    how: fn(seaway_testkit::cloud::RequestMatcher) -> Fault,
) {
    let mut town = GroupScene::set().await;
    let nodes = [town.node(11).await, town.node(12).await];
    let wishes = [
        wanted(&town.wish(&[("shop", &[30_080]), ("mail", &[30_025])], &nodes)),
        wanted(&town.wish(&[("shop", &[30_081])], &nodes[..1])),
        Desired::Absent,
    ];
    town.scene.fake.fail(how(at));
    for desired in &wishes {
        let mut looks = 0;
        while !town.tries(desired).await {
            looks += 1;
            assert!(looks < 20, "it never comes to rest");
            town.restarted();
        }
        match desired {
            Desired::Absent => assert!(town.ours().await.is_empty()),
            _ => assert_eq!(town.ours().await.len(), 1, "and not two"),
        }
    }
    assert!(town.groups_of(11).await.len() == 1 && town.groups_of(12).await.len() == 1);
}

impl GroupScene {
    /// Whether all was well and nothing was to be done.
    async fn tries(&self, desired: &Desired) -> bool {
        let Ok(mut there) = self.driver.observe(&Context::default(), &unit(), desired).await else {
            return false;
        };
        let steps = self.driver.steps(desired, &there);
        for step in &steps {
            if self.driver.apply(&Context::default(), &unit(), step, &mut there).await.is_err() {
                return false;
            }
        }
        steps.is_empty()
    }
}

#[tokio::test]
async fn rules_that_are_too_many_are_told_and_the_rest_goes_on() {
    let town = GroupScene::set().await;
    let nodes = [town.node(11).await];
    let wish = town.wish(&[("shop", &[30_080, 30_081, 30_082])], &nodes);
    let reply = serde_json::json!({"NeutronError": {
        "type": "OverQuota", "message": "Quota exceeded for resources: ['security_group_rule'].", "detail": "",
    }});
    town.scene.fake.fail(Fault::on("POST */security-group-rules").nth(2).always().reply(409, reply));
    let told = town.told(&wish).await;
    assert!(town.has_ours(11).await, "who is open is opened");
    assert_eq!(town.rules().await.len(), 1);
    assert_eq!(told.problems.len(), 1, "{:?}", told.problems);
    let problem = &told.problems[0].1;
    assert!(problem.message.contains("Quota exceeded"), "{problem:?}");
    assert!(problem.fix.contains("openstack quota set"), "{problem:?}");
    let tried = town.scene.fake.count("POST */security-group-rules");
    assert_eq!(tried, 2, "the first that is too many tells it for the rest");
    town.scene.fake.heal();
    town.reach(&wish).await;
    assert_eq!(town.rules().await.len(), 3);
}

#[tokio::test]
async fn where_nobody_knows_what_comes_from_it_is_told_and_nothing_is_closed() {
    let town = GroupScene::set().await;
    let nodes = [town.node(11).await];
    let mut wish = town.wish(&[("shop", &[30_080]), ("mail", &[30_025])], &nodes);
    town.reach(&wish).await;
    let mail = wish.openings.get_mut(&owner("mail")).unwrap();
    Arc::make_mut(mail).from = SourceNetwork::Subnet("00000000-0000-4000-8000-00000000dead".into());
    let told = town.told(&wish).await;
    assert_eq!(town.rules().await.len(), 2);
    assert_eq!(told.problems.len(), 1, "{:?}", told.problems);
    assert_eq!(told.problems[0].0, owner("mail"));
}

#[tokio::test]
async fn what_is_left_of_a_group_is_found_by_its_words() {
    let town = GroupScene::set().await;
    let (cloud, class) = (Name::from("openstack"), Name::from("seaway.dev/octavia"));
    assert_eq!(town.driver.survey(&cloud, &class).await.unwrap(), None);
    let node = town.node(11).await;
    town.reach(&town.wish(&[("shop", &[30_080])], &[node])).await;
    assert_eq!(town.driver.survey(&cloud, &class).await.unwrap(), Some(unit()));
    let forbidden = Fault::on("GET */security-groups").always().status(403);
    town.scene.fake.fail(forbidden);
    let failed = town.driver.survey(&cloud, &class).await.unwrap_err();
    assert!(matches!(failed, Failure::Retry { .. }), "{failed}");
}

/// A request that was repeated because its answer was lost is done twice.
#[tokio::test]
async fn a_duplicate_of_the_group_goes_and_the_older_one_serves_on() {
    let mut town = GroupScene::set().await;
    let node = town.node(11).await;
    let wish = town.wish(&[("shop", &[30_080])], &[node]);
    town.reach(&wish).await;
    let used = town.ours().await.remove(0);
    town.scene.pass(std::time::Duration::from_secs(60));
    let twin = NewSecurityGroup {
        name: used.name.as_str().into(),
        description: used.description.as_str().into(),
        ..NewSecurityGroup::new()
    };
    let twin = town.scene.cloud.all::<SecurityGroup>().create(&twin).await.unwrap().id;
    town.restarted();
    assert_eq!(town.reach(&wish).await, [format!("delete security group {twin}")]);
    let left: Vec<_> = town.ours().await.into_iter().map(|it| it.id).collect();
    assert_eq!(left, [used.id]);
    assert!(town.has_ours(11).await && town.rules().await.len() == 1);
}
