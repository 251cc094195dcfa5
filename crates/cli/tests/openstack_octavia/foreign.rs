//! Load balancers of somebody else in the same project, such as Magnum made for the API and for etcd of its clusters.

use std::{collections::BTreeMap, net::Ipv4Addr};

use seaway_openstack::octavia::{
    Algorithm, LoadBalancer, NewListener, NewLoadBalancer, NewMember, NewPool, PoolProtocol, Protocol,
};
use serde_json::Value;

use crate::stage::{BALANCERS, CloudSetup};

/// As they were once their cloud was through with them: each object, whole.
pub(crate) struct Foreign(BTreeMap<String, Value>);

impl Foreign {
    pub(crate) fn made(land: &CloudSetup) -> Foreign {
        let before = land.told(&BALANCERS);
        let balancers = land.cloud.all::<LoadBalancer>();
        for (of, port) in [("api", 8080), ("etcd", 2379)] {
            let new = balancer(land, of, port);
            land.runtime.block_on(balancers.create(&new)).expect("a load balancer");
        }
        let is_theirs = |it: &String| !before.contains_key(it);
        let mut theirs = land.at_rest(|all| all.keys().filter(|it| is_theirs(it)).count() == 8);
        theirs.retain(|it, _| is_theirs(it));
        Foreign(theirs)
    }

    /// Nothing of them was written, not even with what was there.
    #[track_caller]
    pub(crate) fn are_as_they_were(&self, land: &CloudSetup) {
        let mut now = land.told(&BALANCERS);
        now.retain(|key, _| self.0.contains_key(key));
        assert_eq!(now, self.0);
    }
}

/// Not by HTTP as Magnum's are, which `ovn` does not know, and with no monitor, which would write down what it sees.
fn balancer(land: &CloudSetup, of: &str, port: u16) -> NewLoadBalancer {
    let pool = NewPool {
        name: format!("k8sclusterv1-ydp3hynxnsgc-{of}_pool").into(),
        members: vec![NewMember::new(Ipv4Addr::new(10, 0, 0, 5), port)].into(),
        ..NewPool::new(PoolProtocol::Tcp, Algorithm::SourceIpPort)
    };
    let name = format!("{of}_pool.vip");
    let listener = NewListener {
        name: name.as_str().into(),
        default_pool: pool.into(),
        ..NewListener::new(Protocol::Tcp, port)
    };
    NewLoadBalancer {
        name: name.into(),
        provider: Some("ovn".to_owned()).into(),
        vip_subnet_id: Some(land.subnet.clone()).into(),
        listeners: vec![listener].into(),
        ..NewLoadBalancer::new()
    }
}
