//! What a copy of the cluster, or who follows a killed leader, does to the security group: a rule, or the group at a Node's port,
//! goes at once only where its Service, or its Node, was seen to go or to change.

use std::{collections::BTreeSet, time::Duration};

use seaway_model::{Problem, Reason};
use seaway_openstack::{
    neutron::{FixedIp, NewPort, Port, SecurityGroup, Subnet},
    resource::Query,
};
use seaway_testkit::cloud::Fault;

use super::{CLASS, Controller, Event, SeededRandom, Setting, Walk};

const MINUTE: Duration = Duration::from_secs(60);
const TAGS: &str = "PUT */ports/*/tags";

impl Walk {
    /// A Service at port 80, on Nodes with these last numbers in their addresses, each at a port of its own.
    async fn opened(numbers: &[u8]) -> Walk {
        let mut walk = Walk::begin(SeededRandom(1)).await;
        let subnet: Subnet = walk.scene.cloud.all().read(&walk.scene.subnet).await.unwrap();
        for number in numbers {
            let ip = Some([10, 0, 0, *number].into());
            let new = NewPort {
                fixed_ips: vec![FixedIp { ip_address: ip, ..FixedIp::on(subnet.id.clone()) }].into(),
                device_id: format!("machine-{number}").into(),
                device_owner: "compute:nova".into(),
                ..NewPort::new(subnet.network_id.clone())
            };
            walk.scene.cloud.all::<Port>().create(&new).await.unwrap();
        }
        walk.happens(Event::Setting(Setting::Groups)).await;
        walk
    }

    async fn group(&self) -> SecurityGroup {
        let all = self.scene.cloud.all::<SecurityGroup>().list::<SecurityGroup>(Query::all()).await.unwrap();
        all.into_iter().find(|it| it.description.contains("seaway.dev/group=")).expect("there is one")
    }

    /// Node ports, and how many ports of Nodes have the group.
    async fn open(&self) -> (BTreeSet<u16>, usize) {
        let group = self.group().await;
        let query = Query::all().with("security_groups", &group.id);
        let holders = self.scene.cloud.all::<Port>().list::<Port>(query).await.unwrap().len();
        (group.security_group_rules.0.iter().filter_map(|it| it.port_range_min).collect(), holders)
    }

    async fn about_rules(&self, controller: &Controller) -> Vec<Problem> {
        let all = controller.handle.ask(|world| world.problems()).await.unwrap();
        all.into_iter()
            .filter(|it| it.reason == Reason::OtherController && it.object.name.as_str() == CLASS)
            .collect()
    }

    fn leader(&self) -> &Controller {
        self.controllers[self.leader].as_ref().unwrap()
    }
}

fn ports<const N: usize>(ports: [u16; N]) -> BTreeSet<u16> {
    ports.map(super::node_port).into()
}

#[tokio::test(start_paused = true)]
async fn a_copy_of_a_state_of_this_minute_closes_nothing_to_what_it_does_not_know() {
    let mut walk = Walk::opened(&[11, 12, 13]).await;
    walk.happens(Event::Create("shop", vec![80])).await;
    walk.passes(5 * MINUTE + Duration::from_secs(10)).await;
    let copy = walk.api.fresh_copy(|_| true);
    walk.happens(Event::Ports("shop", vec![80, 443])).await;
    walk.happens(Event::Nodes(vec![11, 12, 13])).await;
    walk.happens(Event::Create("mail", vec![8443])).await;
    walk.passes(Duration::from_secs(20)).await;
    assert_eq!(walk.open().await, (ports([80, 443, 8443]), 3));
    walk.scene.fake.forget_requests();
    let beside = Controller::start(&walk.scene.fake.auth_url(), &copy, &walk.config, true);
    walk.passes(Duration::from_secs(15)).await;
    assert!(beside.sole.may_write(), "it has not seen the original yet");
    assert_eq!(walk.open().await, (ports([80, 443, 8443]), 3));
    walk.passes(10 * MINUTE).await;
    assert!(!beside.sole.may_write());
    let closed =
        walk.scene.fake.requests().into_iter().filter(|it| it.fits("DELETE */security-group-rules/*"));
    assert_eq!(closed.count(), 0);
    assert_eq!(walk.open().await, (ports([80, 443, 8443]), 3));
    drop(beside);
    // The original closes what is given up, at once.
    walk.happens(Event::Delete("mail")).await;
    walk.happens(Event::Ports("shop", vec![80])).await;
    walk.happens(Event::Nodes(vec![11, 12])).await;
    walk.passes(Duration::from_secs(30)).await;
    assert_eq!(walk.open().await, (ports([80]), 2));
    walk.ends().await;
}

#[tokio::test(start_paused = true)]
async fn who_follows_a_killed_leader_closes_at_once_what_it_sees_given_up_and_the_rest_three_minutes_later() {
    let mut walk = Walk::opened(&[11, 12, 13]).await;
    walk.happens(Event::Create("shop", vec![80, 443])).await;
    walk.happens(Event::Create("mail", vec![8443])).await;
    walk.passes(5 * MINUTE).await;
    walk.controllers = [None, None];
    walk.happens(Event::Ports("shop", vec![80])).await;
    walk.happens(Event::Nodes(vec![12, 13])).await;
    walk.restart_both().await;
    walk.passes(Duration::from_secs(40)).await;
    assert_eq!(walk.open().await, (ports([80, 443, 8443]), 3), "one that came is opened");
    walk.happens(Event::Delete("mail")).await;
    walk.passes(Duration::from_secs(20)).await;
    assert_eq!(walk.open().await, (ports([80, 443]), 3), "what is deleted now closes now");
    walk.passes(4 * MINUTE).await;
    assert_eq!(walk.open().await, (ports([80]), 2));
    walk.ends().await;
}

#[tokio::test(start_paused = true)]
async fn where_a_copy_is_not_noticed_it_closes_nothing_before_an_operator_approves_it() {
    let mut walk = Walk::opened(&[11, 12, 13]).await;
    walk.scene.fake.fail(Fault::on(TAGS).always().status(403));
    walk.happens(Event::Create("shop", vec![80])).await;
    walk.passes(2 * MINUTE).await;
    let copy = walk.api.copy(|_| true);
    walk.happens(Event::Ports("shop", vec![80, 443])).await;
    walk.happens(Event::Nodes(vec![11, 12, 13])).await;
    walk.passes(2 * MINUTE).await;
    let beside = Controller::start(&walk.scene.fake.auth_url(), &copy, &walk.config, true);
    walk.passes(Duration::from_secs(4_000)).await;
    assert_eq!(walk.open().await, (ports([80, 443]), 3));
    let told = walk.about_rules(&beside).await;
    assert!(
        told.len() == 1 && told[0].message.contains("the rule for 30443/TCP from 10.0.0.0/24"),
        "{told:?}"
    );
    assert!(told[0].fix.contains(&format!("seaway.dev/approved-deletions=/{CLASS} until TIME")), "{told:?}");
    drop(beside);
    // Without it, what is seen to be given up closes as ever; the rest waits for an approval.
    walk.happens(Event::Nodes(vec![11, 12])).await;
    walk.passes(2 * MINUTE).await;
    assert_eq!(walk.open().await, (ports([80, 443]), 2));
    walk.controllers = [None, None];
    walk.happens(Event::Ports("shop", vec![80])).await;
    walk.restart_both().await;
    walk.passes(Duration::from_secs(1_000)).await;
    assert_eq!(walk.open().await, (ports([80, 443]), 2));
    assert_eq!(walk.about_rules(walk.leader()).await.len(), 1);
    walk.api.approve("shop");
    walk.api.approve(CLASS);
    walk.passes(2 * MINUTE).await;
    assert_eq!(walk.open().await, (ports([80]), 2));
    assert_eq!(walk.about_rules(walk.leader()).await, []);
    walk.ends().await;
}
