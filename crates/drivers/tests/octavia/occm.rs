//! What openstack-cloud-controller-manager leaves in a cloud for one Service, by the names and words that it gives.

use std::{collections::BTreeSet, net::IpAddr, time::Duration};

use seaway_openstack::{
    Cloud,
    neutron::{FloatingIp, Network, NewFloatingIp, Subnet},
    octavia::{
        Algorithm, LoadBalancer, MonitorType, NewHealthMonitor, NewListener, NewLoadBalancer, NewMember,
        NewPool, PoolProtocol, Protocol,
    },
    resource::{Edit, Id, Query},
};

#[derive(Clone)]
pub(crate) struct OccmObjects {
    pub(crate) cluster: &'static str,
    pub(crate) namespace: String,
    pub(crate) service: String,
    /// The UID, where the load balancer has a name of long ago.
    pub(crate) legacy: Option<String>,
    /// Ports with their node ports.
    pub(crate) ports: Vec<(u16, u16)>,
    pub(crate) nodes: Vec<(String, IpAddr)>,
    /// `provider-requires-serial-api-calls`: members are called otherwise, and have no subnet.
    pub(crate) serial: bool,
    pub(crate) monitored: bool,
    pub(crate) provider: &'static str,
}

impl OccmObjects {
    pub(crate) fn new(service: &str, ports: &[(u16, u16)], nodes: &[(&str, IpAddr)]) -> OccmObjects {
        OccmObjects {
            cluster: "kubernetes",
            namespace: "default".to_owned(),
            service: service.to_owned(),
            legacy: None,
            ports: ports.to_vec(),
            nodes: nodes.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect(),
            serial: false,
            monitored: false,
            provider: "amphora",
        }
    }

    pub(crate) fn name(&self) -> String {
        match &self.legacy {
            Some(uid) => format!("a{}", uid.replace('-', "")).chars().take(32).collect(),
            None => self.own(),
        }
    }

    /// Of its tags, whatever the load balancer is called.
    pub(crate) fn own(&self) -> String {
        format!("kube_service_{}_{}_{}", self.cluster, self.namespace, self.service)
    }

    fn words(&self) -> String {
        format!(
            "Kubernetes external service {}/{} from cluster {}",
            self.namespace, self.service, self.cluster
        )
    }

    /// With its floating IP, all of it ready.
    pub(crate) async fn make(&self, cloud: &Cloud, subnet: &Id<Subnet>) -> (LoadBalancer, FloatingIp) {
        let listeners =
            self.ports.iter().enumerate().map(|(number, port)| self.listener(number, *port, subnet));
        let new = NewLoadBalancer {
            name: self.name().into(),
            description: self.words().into(),
            tags: BTreeSet::from([self.own()]).into(),
            vip_subnet_id: Some(subnet.clone()).into(),
            provider: Some(self.provider.to_owned()).into(),
            listeners: Edit::To(listeners.collect()),
            ..NewLoadBalancer::new()
        };
        let made = cloud.all::<LoadBalancer>().create(&new).await.expect("a load balancer");
        let balancers = cloud.all::<LoadBalancer>();
        let made = balancers.until_ready(&made.id, Duration::from_secs(60)).await.expect("it becomes ready");
        let query = Query::all().with("router:external", true);
        let outside = cloud.all::<Network>().list::<Network>(query).await.expect("networks").remove(0).id;
        let new = NewFloatingIp {
            port_id: Edit::To(made.vip_port_id.clone()),
            description: format!("Floating IP for {}", self.words()).into(),
            ..NewFloatingIp::new(outside)
        };
        let floating = cloud.all::<FloatingIp>().create(&new).await.expect("a floating IP");
        (made, floating)
    }

    fn listener(&self, number: usize, (port, node_port): (u16, u16), subnet: &Id<Subnet>) -> NewListener {
        let balancer = self.name();
        let numbered = |kind: &str| format!("{kind}_{number}_{balancer}");
        let member = |(name, at): &(String, IpAddr)| match self.serial {
            true => NewMember {
                name: format!("member_{name}_{at}_{node_port}").into(),
                ..NewMember::new(*at, node_port)
            },
            false => NewMember {
                name: name.as_str().into(),
                subnet_id: Some(subnet.clone()).into(),
                ..NewMember::new(*at, node_port)
            },
        };
        let monitor = NewHealthMonitor {
            name: numbered("monitor").into(),
            max_retries_down: Some(3).into(),
            ..NewHealthMonitor::new(MonitorType::Tcp, 5_u64, 3_u64, 1_u64)
        };
        let is_ovn = self.provider == "ovn";
        let algorithm = if is_ovn { Algorithm::SourceIpPort } else { Algorithm::RoundRobin };
        let pool = NewPool {
            name: numbered("pool").into(),
            members: Edit::To(self.nodes.iter().map(member).collect()),
            healthmonitor: if self.monitored { Edit::To(monitor) } else { Edit::Leave },
            ..NewPool::new(PoolProtocol::Tcp, algorithm)
        };
        let listener = NewListener {
            name: numbered("listener").into(),
            tags: BTreeSet::from([self.own()]).into(),
            connection_limit: Some(-1).into(),
            default_pool: Edit::To(pool),
            ..NewListener::new(Protocol::Tcp, port)
        };
        if is_ovn {
            return listener;
        }
        NewListener {
            allowed_cidrs: Some(vec!["0.0.0.0/0".to_owned()]).into(),
            timeout_client_data: Some(50_000).into(),
            timeout_member_connect: Some(5_000).into(),
            timeout_member_data: Some(50_000).into(),
            timeout_tcp_inspect: Some(0).into(),
            ..listener
        }
    }
}
