//! What fails: a load balancer while it is made, and members, by themselves or because somebody changed how they are probed.

use std::{sync::Arc, time::Duration};

use seaway_engine::{Context, Driver};
use seaway_model::Desired;
use seaway_openstack::{
    octavia::{Member, MemberChange, Provisioning},
    resource::Query,
};
use seaway_testkit::cloud::ChangeDuration;

use super::ServedService;
use crate::scene::*;

#[tokio::test]
async fn one_that_turns_error_while_it_is_made_is_made_again_and_later_each_time() {
    for restarts in [false, true] {
        turns_error_while_it_is_made(restarts).await;
    }
}

async fn turns_error_while_it_is_made(restarts: bool) {
    let mut scene = Scene::set().await;
    for _ in 0..3 {
        scene.fake.fail_next("loadbalancer");
    }
    let began = scene.fake.now();
    let wish = scene.wish(&[80], &[1]);
    if restarts {
        // The process ends while Octavia is making it, and the next one sees it turn ERROR.
        scene.fake.pace(ChangeDuration::Never);
        let desired = Desired::LoadBalancer(Arc::new(wish.clone()));
        let mut observed = scene.driver.observe(&Context::default(), &unit(), &desired).await.unwrap();
        let create = scene.driver.steps(&desired, &observed).remove(0);
        scene.driver.apply(&Context::default(), &unit(), &create, &mut observed).await.unwrap();
        scene.restarted();
        scene.driver.observe(&Context::default(), &unit(), &desired).await.unwrap();
        let made = scene.balancers().await.remove(0);
        assert_eq!(made.provisioning_status, Provisioning::PendingCreate);
        scene.fake.set_provisioning_status(made.id.as_str(), "ERROR");
        scene.fake.pace(ChangeDuration::default());
    }
    let steps = scene.reach(&wish).await;
    let creates = steps.iter().filter(|it| it.starts_with("create load balancer")).count();
    assert_eq!(creates, 4, "restarts: {restarts}: {steps:?}");
    assert!(!steps.iter().any(|it| it.starts_with("fail over load balancer")), "{steps:?}");
    let took = scene.fake.now().duration_since(began).unwrap();
    assert!(took >= Duration::from_secs(5 + 10 + 20), "{took:?}");
    assert_eq!(scene.balancers().await.len(), 1);
    assert_eq!(scene.floating().await.len(), 1, "one floating IP leads to the last of them");
}

#[tokio::test]
async fn members_that_fail_their_probes_are_named_once_and_nothing_is_written() {
    let served = ServedService::begun().await;
    let pool = served.scene.pools().await.remove(0);
    let member = served.scene.cloud.within::<Member>(&pool.id);
    let member = member.list::<Member>(Query::all()).await.unwrap().remove(0);
    served.scene.fake.set_operating_status(member.id.as_str(), "ERROR");
    served.scene.fake.set_operating_status(served.balancer().await.id.as_str(), "DEGRADED");
    served.scene.fake.forget_requests();
    assert_eq!(served.audit().await.again, [unit()]);
    let problems = served.problems().await;
    assert!(
        problems.contains("1 of 2 members of port") && problems.contains(&member.address.to_string()),
        "{problems}"
    );
    let observed = served.observed().await;
    let desired = Desired::LoadBalancer(Arc::new(served.wish.clone()));
    assert!(served.scene.driver.steps(&desired, &observed).is_empty());
    served.scene.pass(Duration::from_secs(300));
    assert!(served.audit().await.again.is_empty(), "it is known");
    // It moves again without a trace in the lists.
    served.scene.fake.set_operating_status(member.id.as_str(), "ONLINE");
    served.scene.pass(Duration::from_secs(300));
    assert_eq!(served.audit().await.again, [unit()]);
    assert_eq!(served.problems().await, "");
    let writes = served.scene.fake.requests().iter().filter(|it| it.method != "GET").count();
    assert_eq!(writes, 0);
}

/// Members that fail are why a load balancer moved; that somebody changed where they are probed is seen all the same.
#[tokio::test]
async fn members_that_fail_since_another_port_of_theirs_is_probed_are_written_again() {
    let served = ServedService::begun().await;
    let pools = served.scene.pools().await;
    let members = served.scene.cloud.within::<Member>(&pools[0].id);
    let one = members.list::<Member>(Query::all()).await.unwrap().remove(0);
    let elsewhere = MemberChange { monitor_port: Some(9).into(), ..MemberChange::default() };
    members.change(&one.id, &elsewhere).await.unwrap();
    served.scene.balancers().await;
    served.scene.fake.set_operating_status(one.id.as_str(), "ERROR");
    for id in [pools[0].id.to_string(), served.balancer().await.id.to_string()] {
        served.scene.fake.set_operating_status(&id, "DEGRADED");
    }
    served.scene.fake.forget_requests();
    let (steps, told) = served.repaired().await;
    assert!(steps.len() == 1 && steps[0].contains("members"), "{steps:?}");
    assert!(told.contains(&format!("member {}:{} of", one.address, one.protocol_port)), "{told}");
    assert!(told.contains("was changed"), "{told}");
    let now = members.list::<Member>(Query::all()).await.unwrap();
    assert!(now.iter().all(|it| it.monitor_port.is_none()), "{now:?}");
    let other = format!("GET */pools/{}/members", pools[1].id);
    assert_eq!(served.scene.fake.count(&other), 0, "nobody fails there");
}
