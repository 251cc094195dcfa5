//! POSTs whose reply, or request, was lost on the way.

use std::time::Duration;

use seaway_openstack::{
    Class, Retry,
    barbican::{NewSecret, Secret},
    neutron::{
        Direction, EtherType, FloatingIp, Network, NewFloatingIp, NewNetwork, NewPort, NewSecurityGroup,
        NewSecurityGroupRule, Port, PortChange, SecurityGroup, SecurityGroupRule,
    },
    octavia::{
        Algorithm, HealthMonitor, Listener, LoadBalancer, Member, MonitorType, NewHealthMonitor, NewListener,
        NewLoadBalancer, NewMember, NewPool, Pool, PoolProtocol, Protocol,
    },
    resource::{Collection, Creatable, IdOnly, Query},
};
use seaway_testkit::cloud::Fault;
use serde_json::json;

use super::{stage::Stage, walks};

/// How many there are, whatever they are called.
async fn count<R: Creatable>(of: &Collection<R>) -> usize {
    of.list::<IdOnly<R>>(Query::all()).await.expect("a list").len()
}

#[tokio::test]
async fn what_was_made_though_nobody_was_told_is_found_and_not_made_again() {
    let stage = Stage::set().await;
    let new = stage.new_balancer("web").await;
    stage.fake.fail(Fault::on("POST */lbaas/loadbalancers").lose_reply());
    let made = stage.balancers().create(&new).await.expect("it is found");
    assert_eq!(made.name, "web");
    assert_eq!(stage.fake.count("POST */lbaas/loadbalancers"), 1);
    assert_eq!(count(&stage.balancers()).await, 1);
}

#[tokio::test]
async fn what_was_not_made_is_made_once_and_only_after_several_looks() {
    let stage = Stage::set().await;
    let new = stage.new_balancer("web").await;
    stage.fake.fail(Fault::on("POST */lbaas/loadbalancers").lose_request());
    stage.balancers().create(&new).await.expect("it is made");
    assert_eq!(stage.fake.count("POST */lbaas/loadbalancers"), 2);
    assert_eq!(stage.fake.count("GET */lbaas/loadbalancers"), 3);
    let slept: Duration = stage.clock.slept().iter().sum();
    assert!(slept >= Duration::from_secs(5), "a service may still be at work: {slept:?}");
    assert_eq!(count(&stage.balancers()).await, 1);
}

#[tokio::test]
async fn a_cloud_that_loses_everything_is_not_asked_for_ever() {
    let stage = Stage::set().await;
    let new = stage.new_balancer("web").await;
    stage.fake.fail(Fault::on("POST */lbaas/loadbalancers").always().lose_request());
    let error = stage.balancers().create(&new).await.expect_err("nothing is made");
    assert_eq!(error.class(), &Class::Lost, "{error}");
    assert_eq!(stage.fake.count("POST */lbaas/loadbalancers"), 3);
}

#[tokio::test]
async fn nothing_is_taken_for_ours_that_others_may_have_made() {
    let stage = Stage::set().await;
    let unnamed = NewLoadBalancer { name: "".into(), ..stage.new_balancer("").await };
    stage.fake.fail(Fault::on("POST */lbaas/loadbalancers").lose_reply());
    let error = stage.balancers().create(&unnamed).await.expect_err("nobody can tell");
    assert_eq!(error.class(), &Class::Lost, "{error}");
    assert_eq!(stage.fake.count("POST */lbaas/loadbalancers"), 1);
}

#[tokio::test]
async fn several_that_are_alike_are_for_a_human() {
    let stage = Stage::set().await;
    let new = stage.new_balancer("web").await;
    stage.balancers().create(&new).await.expect("one by somebody");
    stage.fake.fail(Fault::on("POST */lbaas/loadbalancers").lose_reply());
    let error = stage.balancers().create(&new).await.expect_err("which is ours?");
    assert_eq!(error.class(), &Class::Ambiguous, "{error}");
    assert!(error.to_string().contains("2 objects match the load balancer"), "{error}");
    assert_eq!(stage.fake.count("POST */lbaas/loadbalancers"), 2);
}

#[tokio::test]
async fn one_that_differs_in_its_tags_is_not_ours() {
    let stage = Stage::set().await;
    let new = stage.new_balancer("web").await;
    let tagged = NewLoadBalancer {
        tags: ["theirs".to_owned()].into_iter().collect::<std::collections::BTreeSet<_>>().into(),
        ..new.clone()
    };
    stage.balancers().create(&tagged).await.expect("one by somebody");
    let ours = NewLoadBalancer {
        tags: ["ours".to_owned()].into_iter().collect::<std::collections::BTreeSet<_>>().into(),
        ..new
    };
    stage.fake.fail(Fault::on("POST */lbaas/loadbalancers").lose_request());
    let made = stage.balancers().create(&ours).await.expect("it is made");
    assert!(made.tags.contains("ours"), "{made:?}");
    assert_eq!(count(&stage.balancers()).await, 2);
}

/// A replica that lags behind shows nothing to those who look; the service itself knows better.
#[tokio::test]
async fn what_a_lagging_list_did_not_show_is_found_when_it_stands_in_the_way() {
    let stage = Stage::set().await;
    let balancer = stage.balancers().create(&stage.new_balancer("web").await).await.expect("a load balancer");
    stage.balancers().until_ready(&balancer.id, walks::PATIENCE).await.expect("ready");
    let new =
        NewListener { loadbalancer_id: balancer.id.clone().into(), ..NewListener::new(Protocol::Tcp, 80u16) };
    stage.fake.fail(Fault::on("POST */lbaas/listeners").lose_reply());
    stage.fake.fail(Fault::on("GET */lbaas/listeners").times(3).stale());
    let made = stage.cloud.all::<Listener>().create(&new).await.expect("it is found after all");
    assert_eq!(made.protocol_port, 80);
    assert_eq!(stage.fake.count("POST */lbaas/listeners"), 2);
    assert_eq!(count(&stage.cloud.all::<Listener>()).await, 1);
}

#[tokio::test]
async fn who_cannot_look_does_not_repeat() {
    let stage = Stage::set().await;
    let new = stage.new_balancer("web").await;
    stage.fake.fail(Fault::on("POST */lbaas/loadbalancers").lose_reply());
    stage.fake.fail(Fault::on("GET */lbaas/loadbalancers").always().status(403));
    let error = stage.balancers().create(&new).await.expect_err("nobody can tell");
    assert_eq!(error.class(), &Class::Lost, "{error}");
    assert!(std::error::Error::source(&error).is_some(), "why it could not look: {error}");
    assert_eq!(stage.fake.count("POST */lbaas/loadbalancers"), 1);
}

/// Or the caller would be told to make another.
#[tokio::test]
async fn what_was_made_and_then_not_understood_is_never_to_be_made_again() {
    let stage = Stage::set().await;
    let balancer = stage.new_balancer("web").await;
    let secret = NewSecret { name: "pin".into(), ..NewSecret::new() };
    for (status, class) in [(500, "broken"), (503, "busy"), (404, "not there")] {
        stage.fake.fail(Fault::on("GET */secrets/*").always().status(status));
        let error = stage.cloud.all::<Secret>().create(&secret).await.expect_err("it cannot be read");
        assert_eq!((error.class(), error.retry()), (&Class::Lost, Retry::AfterLooking), "{class}: {error}");
        stage.fake.heal();
    }
    assert_eq!(stage.fake.count("POST */secrets"), 3);
    let told = json!({"loadbalancer": {"id": "b7", "vip_address": "10.0.0"}});
    for (told, line) in [
        (told, "the load balancer b7 was created, but Seaway cannot read the response to its creation"),
        (json!({"loadbalancer": 7}), "the load balancer with an unknown id was created"),
        (json!([]), "the load balancer with an unknown id was created"),
    ] {
        stage.fake.fail(Fault::on("POST */loadbalancers").reply(201, told));
        let error = stage.balancers().create(&balancer).await.expect_err("not understood");
        assert_eq!(error.class(), &Class::Lost, "{error}");
        assert!(error.to_string().contains(line), "{error}");
    }
}

#[tokio::test]
async fn what_does_more_when_done_twice_is_asked_once() {
    let stage = Stage::set().await;
    let balancer = stage.balancers().create(&stage.new_balancer("web").await).await.expect("made");
    stage.fake.fail(Fault::on("PUT */failover").always().lose_reply());
    let error = stage.balancers().failover(&balancer.id).await.expect_err("nobody knows");
    assert_eq!((error.class(), stage.fake.count("PUT */failover")), (&Class::Lost, 1));

    let port = NewPort {
        name: "p".into(),
        ..NewPort::new(walks::network(&stage.cloud, "n", "10.9.0.0/24").await.0)
    };
    let port = stage.cloud.all::<Port>().create(&port).await.expect("made");
    stage.fake.fail(Fault::on("PUT */ports/*").lose_reply());
    let change = PortChange { name: "q".into(), ..PortChange::default() };
    let revision = port.revision_number.expect("Neutron has them");
    let error = stage.cloud.all::<Port>().change_if(revision, &port.id, &change).await.expect_err("lost");
    assert_eq!((error.class(), stage.fake.count("PUT */ports/*")), (&Class::Lost, 1));
}

/// Each kind is known by something.
#[tokio::test]
async fn every_kind_is_found_by_its_own_marks() {
    let stage = Stage::set().await;
    let cloud = &stage.cloud;
    let outside = walks::outside(cloud).await;
    let (network, _) = walks::network(cloud, "marks", "10.41.0.0/24").await;
    once(&stage, "*/networks", cloud.all::<Network>(), &NewNetwork { name: "n".into(), ..NewNetwork::new() })
        .await;
    once(&stage, "*/ports", cloud.all::<Port>(), &NewPort { name: "p".into(), ..NewPort::new(network) })
        .await;
    let new = NewFloatingIp { description: "f".into(), ..NewFloatingIp::new(outside) };
    once(&stage, "*/floatingips", cloud.all::<FloatingIp>(), &new).await;
    let new = NewSecurityGroup { name: "g".into(), ..NewSecurityGroup::new() };
    let group = once(&stage, "*/security-groups", cloud.all::<SecurityGroup>(), &new).await;
    let new = NewSecurityGroupRule {
        protocol: Some("tcp".to_owned()).into(),
        port_range_min: Some(1).into(),
        port_range_max: Some(2).into(),
        ..NewSecurityGroupRule::new(group.id, Direction::Ingress, EtherType::V4)
    };
    once(&stage, "*/security-group-rules", cloud.all::<SecurityGroupRule>(), &new).await;

    let balancers = cloud.all::<LoadBalancer>();
    let balancer =
        once(&stage, "*/loadbalancers", cloud.all::<LoadBalancer>(), &stage.new_balancer("b").await).await.id;
    balancers.until_ready(&balancer, walks::PATIENCE).await.expect("ready");
    let new = NewPool {
        name: "p".into(),
        loadbalancer_id: balancer.clone().into(),
        ..NewPool::new(PoolProtocol::Tcp, Algorithm::SourceIpPort)
    };
    let pool = once(&stage, "*/pools", cloud.all::<Pool>(), &new).await.id;
    balancers.until_ready(&balancer, walks::PATIENCE).await.expect("ready");
    let new = NewMember::new("10.40.0.9".parse::<std::net::IpAddr>().expect("an address"), 80u16);
    once(&stage, "*/members", cloud.within::<Member>(&pool), &new).await;
    balancers.until_ready(&balancer, walks::PATIENCE).await.expect("ready");
    let new = NewHealthMonitor {
        pool_id: pool.into(),
        ..NewHealthMonitor::new(MonitorType::Tcp, 5u64, 3u64, 2u64)
    };
    once(&stage, "*/healthmonitors", cloud.all::<HealthMonitor>(), &new).await;
}

/// Makes it while its reply is lost: it is there, and it was asked for once.
async fn once<R: Creatable>(stage: &Stage, path: &str, of: Collection<R>, new: &R::New) -> R {
    let before = count(&of).await;
    let pattern = format!("POST {path}");
    let asked = stage.fake.count(&pattern);
    stage.fake.fail(Fault::on(&pattern).lose_reply());
    let made = of.create(new).await.unwrap_or_else(|error| panic!("{path}: {error}"));
    assert_eq!(stage.fake.count(&pattern), asked + 1, "{path}");
    assert_eq!(count(&of).await, before + 1, "{path}");
    made
}
