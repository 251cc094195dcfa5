//! What is wanted, by what is rare about it; and what there is, with all that may differ.

use std::{collections::BTreeMap, sync::Arc};

use seaway_model::{
    LoadBalancer, PoolId, Unit,
    load_balancer::{
        Balance, CloudHeaders, CloudHealthMonitor, CloudHealthMonitorType, CloudTimeouts, CloudTlsOptions,
        HealthCheck, Protocol, ProxyVersion, TlsProfile,
    },
};
use seaway_openstack::{
    neutron::FloatingIp,
    octavia::{HealthMonitor, Listener, LoadBalancer as Balancer, Member, Pool},
    resource::Query,
};

use crate::{
    local,
    scene::*,
    tls::{referred, secured, theirs},
};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum CloudFeature {
    Local,
    Timeouts,
    Certificates,
    References,
    Limits,
    Metrics,
    Families,
    Ports,
    Probes,
    Sharing,
}

impl CloudFeature {
    pub(super) const ALL: [CloudFeature; 10] = [
        CloudFeature::Local,
        CloudFeature::Timeouts,
        CloudFeature::Certificates,
        CloudFeature::References,
        CloudFeature::Limits,
        CloudFeature::Metrics,
        CloudFeature::Families,
        CloudFeature::Ports,
        CloudFeature::Probes,
        CloudFeature::Sharing,
    ];
}

/// A cloud in which a Service may want it.
pub(super) struct CloudScenario {
    pub(super) scene: Scene,
    pub(super) of: CloudFeature,
    /// Of the Service that wants it.
    pub(super) uid: &'static str,
    /// What somebody else put into Barbican.
    reference: String,
}

impl CloudScenario {
    pub(super) async fn of(of: CloudFeature) -> CloudScenario {
        let scene = match of {
            CloudFeature::Families => Scene::of_both(26).await,
            _ => Scene::set().await,
        };
        let reference = match of {
            CloudFeature::Families | CloudFeature::Sharing => String::new(),
            _ => theirs(&scene).await,
        };
        let uid = if of == CloudFeature::Sharing { "uid-2" } else { "uid-1" };
        let place = CloudScenario { scene, of, uid, reference };
        place.reach_other().await;
        place
    }

    /// The Service that it shares with, if there is one.
    pub(super) async fn reach_other(&self) {
        if self.of == CloudFeature::Sharing {
            let first = shared(self.scene.wish_of("uid-1", &[8_080], &[1]));
            self.scene.reach_of("uid-1", &first).await;
        }
    }

    pub(super) fn unit(&self) -> Unit {
        unit_of(&owner_of(self.uid))
    }

    /// Nothing in particular.
    pub(super) fn plain(&self) -> LoadBalancer {
        match self.of {
            CloudFeature::Families => self.scene.wish_of_both(&[80, 443], &[1, 2]),
            CloudFeature::Sharing => shared(self.scene.wish_of(self.uid, &[80, 443], &[1, 2])),
            _ => self.scene.wish_of(self.uid, &[80, 443], &[1, 2]),
        }
    }

    pub(super) async fn asked(&self, rare: CloudFeature) -> LoadBalancer {
        let mut it = self.plain();
        let outside =
            |it: &mut LoadBalancer, change: &dyn Fn(&mut seaway_model::load_balancer::CloudOptions)| {
                change(it.options.cloud.as_mut().unwrap());
            };
        match rare {
            CloudFeature::Local => local::ask(&mut it, true),
            CloudFeature::Timeouts => outside(&mut it, &|it| {
                it.timeouts = CloudTimeouts {
                    client_data: Some(600_000),
                    member_connect: Some(7_000),
                    tcp_inspect: Some(100),
                    ..CloudTimeouts::default()
                };
            }),
            CloudFeature::Certificates => it = secured(it, &["shop"]),
            CloudFeature::References => {
                it = referred(it, &self.reference);
                outside(&mut it, &|it| {
                    it.tls.as_mut().unwrap().references.remove(&tcp(80));
                    it.tls_terms = CloudTlsOptions { profile: TlsProfile::Modern, hsts: Some(3_600) };
                });
            }
            CloudFeature::Limits => {
                it.listeners.values_mut().for_each(|it| Arc::make_mut(it).limits.connections = Some(2_000));
            }
            CloudFeature::Metrics => outside(&mut it, &|it| it.metrics = Some(8_088)),
            // Others of both: a port less, and a member.
            CloudFeature::Families => it = self.scene.wish_of_both(&[443, 8_443], &[2, 3]),
            CloudFeature::Ports => {
                Arc::make_mut(it.listeners.get_mut(&tcp(80)).unwrap()).protocol = Protocol::Http;
                let headers = CloudHeaders { proto: true, port: true };
                outside(&mut it, &|it| it.headers = [(tcp(80), headers)].into());
                let other = it.pools.get_mut(&PoolId("443/TCP".into())).unwrap();
                Arc::make_mut(other).proxy = Some(ProxyVersion::V1);
            }
            CloudFeature::Probes => {
                it.pools.values_mut().for_each(|it| Arc::make_mut(it).health = Some(HealthCheck::default()));
                outside(&mut it, &|it| {
                    let kinds = [(tcp(443), CloudHealthMonitorType::TlsHello)].into();
                    it.probe = CloudHealthMonitor { kinds, ..CloudHealthMonitor::default() };
                });
            }
            // A port more than the others know of.
            CloudFeature::Sharing => it = shared(self.scene.wish_of(self.uid, &[80, 8_443], &[2])),
        }
        it
    }

    /// The same, with one port more.
    pub(super) fn with_port(&self, wish: &LoadBalancer, port: u16, balance: Balance) -> LoadBalancer {
        let mut wish = wish.clone();
        let more = self.scene.wish_of(self.uid, &[port], &[1]);
        wish.listeners.extend(more.listeners);
        for (id, pool) in more.pools {
            let mut pool = pool;
            Arc::make_mut(&mut pool).balance = balance;
            wish.pools.insert(id, pool);
        }
        wish.options.cloud.as_mut().unwrap().ports.push(tcp(port));
        wish
    }

    pub(super) async fn balancer(&self) -> Balancer {
        self.scene.balancers().await.remove(0)
    }

    /// What this Service has there, and nobody else.
    pub(super) async fn own(&self) -> (Vec<Listener>, Vec<Pool>) {
        let mut listeners = self.scene.listeners().await;
        listeners.retain(|it| it.protocol_port != 8_080);
        let mut pools = self.scene.pools().await;
        pools.retain(|it| listeners.iter().any(|of| of.default_pool_id.as_ref() == Some(&it.id)));
        (listeners, pools)
    }

    pub(super) async fn audits(&self) {
        self.scene.driver.audit(&"openstack".into()).await.unwrap();
    }
}

/// Where others of the same word are.
fn shared(mut wish: LoadBalancer) -> LoadBalancer {
    let outside = wish.options.cloud.as_mut().unwrap();
    (outside.group, outside.most_shared) = (Some("default/web".into()), 3);
    wish
}

/// All there is, without ids and times, as lines.
pub(super) async fn shape(scene: &Scene) -> Vec<String> {
    let cloud = &scene.cloud;
    let mut lines = Vec::new();
    for it in scene.balancers().await {
        lines.push(format!(
            "load balancer {} {:?} with {} VIPs more",
            it.name,
            it.tags,
            it.additional_vips.len()
        ));
    }
    let mut listens: BTreeMap<String, String> = BTreeMap::new();
    for it in scene.listeners().await {
        listens.insert(it.id.to_string(), format!("{}/{}", it.protocol_port, it.protocol));
        let times = [
            it.timeout_client_data,
            it.timeout_member_connect,
            it.timeout_member_data,
            it.timeout_tcp_inspect,
        ];
        let shows = it.default_tls_container_ref.is_some();
        lines.push(format!(
            "listener {} {} limit {:?} times {times:?} TLS {shows} {:?} HSTS {:?} and {} headers {:?} from {:?} tags {:?}",
            it.protocol_port,
            it.protocol,
            it.connection_limit,
            it.tls_versions,
            it.hsts_max_age,
            it.sni_container_refs.len(),
            it.insert_headers,
            it.allowed_cidrs,
            it.tags
        ));
    }
    let monitors = cloud.all::<HealthMonitor>().list::<HealthMonitor>(Query::all()).await.unwrap();
    for pool in scene.pools().await {
        let of: Vec<_> = pool.listeners.iter().map(|it| listens.get(&it.id.to_string())).collect();
        let monitor = monitors.iter().find(|it| Some(&it.id) == pool.healthmonitor_id.as_ref());
        let monitor = monitor.map(|it| (it.r#type.to_string(), it.url_path.clone(), it.delay));
        lines.push(format!("pool of {of:?} {} {} {monitor:?}", pool.protocol, pool.lb_algorithm));
        for it in cloud.within::<Member>(&pool.id).list::<Member>(Query::all()).await.unwrap() {
            let (at, port) = (it.address, it.protocol_port);
            // Where nobody asks, it does not matter where it would be asked.
            let asked = it.monitor_port.filter(|_| monitor.is_some());
            lines.push(format!("member {at}:{port} of {of:?} {:?} {asked:?}", it.weight));
        }
    }
    lines.push(format!("{} monitors", monitors.len()));
    for it in cloud.all::<FloatingIp>().list::<FloatingIp>(Query::all()).await.unwrap() {
        lines.push(format!("floating IP of {}, leads: {}", it.description, it.port_id.is_some()));
    }
    lines.extend(scene.secrets().await.iter().map(|it| format!("secret {}", it.name)));
    lines.extend(scene.containers().await.iter().map(|it| format!("container {}", it.name)));
    lines.sort();
    lines
}
