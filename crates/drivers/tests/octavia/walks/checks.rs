//! What is looked at on a walk: that nothing goes that a living Service uses, and that in the end all is as it is wanted.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use seaway_model::{
    LbKey, Name, Owner, Unit,
    config::CloudDefaults,
    fact::{Node, ServiceKind},
    load_balancer::Balance,
};
use seaway_openstack::{
    neutron::{FloatingIp, Port, SecurityGroup},
    octavia::{Algorithm, Listener, LoadBalancer, Member, Pool, Provisioning},
    resource::Query,
};
use seaway_testkit::cloud::Recorded;

use super::{CLASS, DUAL, INTERNAL, LONG, Setting, Walk, WalkCounts, config};

/// What a Service asks for.
#[derive(Clone, Debug)]
pub(super) struct DesiredObjects {
    ports: BTreeSet<u16>,
    /// It has a floating IP.
    outside: bool,
    /// It has addresses of both families.
    both: bool,
}

/// Of each Service that wants a load balancer, by uid.
pub(super) type SecretInterest = BTreeMap<Name, DesiredObjects>;

/// What is in the cloud for Services that want it.
#[derive(Default)]
pub(super) struct ObjectsInUse {
    /// By id.
    pub(super) objects: BTreeMap<String, UsedBy>,
    /// With their ids, by the id of their pool.
    pub(super) members: BTreeMap<String, Vec<(String, UsedBy)>>,
}

/// What a Service that lives uses.
#[derive(Clone, Debug)]
pub(super) enum UsedBy {
    Balancer(Name),
    Listener(Name, u16),
    Member(Name, u16, IpAddr),
    Floating(Name),
}

impl UsedBy {
    pub(super) fn is_in(&self, wanted: &SecretInterest, nodes: &BTreeSet<IpAddr>) -> bool {
        let has_port = |uid: &Name, port: &u16| wanted.get(uid).is_some_and(|it| it.ports.contains(port));
        match self {
            UsedBy::Balancer(uid) => wanted.contains_key(uid),
            UsedBy::Listener(uid, port) => has_port(uid, port),
            UsedBy::Member(uid, port, at) => has_port(uid, port) && nodes.contains(at),
            UsedBy::Floating(uid) => wanted.get(uid).is_some_and(|it| it.outside),
        }
    }

    pub(super) fn address(&self) -> Option<IpAddr> {
        match self {
            UsedBy::Member(.., at) => Some(*at),
            _ => None,
        }
    }
}

/// What was asked for then and is asked for now.
pub(super) fn both(then: &SecretInterest, now: &SecretInterest) -> SecretInterest {
    let same = |(uid, then): (&Name, &DesiredObjects)| {
        let now = now.get(uid)?;
        let ports = then.ports.intersection(&now.ports).copied().collect();
        let wanted =
            DesiredObjects { ports, outside: then.outside && now.outside, both: then.both && now.both };
        Some((uid.clone(), wanted))
    };
    then.iter().filter_map(same).collect()
}

/// Those that a request gives to a pool.
pub(super) fn members_in(request: &Recorded) -> BTreeSet<Option<IpAddr>> {
    let members = request.body.as_ref().and_then(|it| it["members"].as_array());
    let address = |it: &serde_json::Value| it["address"].as_str().and_then(|it| it.parse().ok());
    members.expect("members are written as a list").iter().map(address).collect()
}

impl Walk {
    pub(super) fn wanted(&self) -> SecretInterest {
        let all = self.api.services().into_iter();
        all.filter(|it| it.kind == ServiceKind::LoadBalancer && !it.leaving)
            .map(|it| {
                let ports = it.ports.iter().map(|it| it.port).collect();
                let outside = !it.meta.annotations.contains_key(INTERNAL);
                (it.meta.uid.clone(), DesiredObjects { ports, outside, both: it.meta.name.as_str() == DUAL })
            })
            .collect()
    }

    /// Those of Nodes.
    pub(super) fn addresses(&self) -> BTreeSet<IpAddr> {
        self.api.nodes().iter().flat_map(|it| &it.addresses).copied().collect()
    }

    pub(super) async fn used(&self) -> ObjectsInUse {
        let wanted = self.wanted();
        let (balancers, listeners) = (self.scene.balancers().await, self.scene.listeners().await);
        let floating = self.scene.floating().await;
        // One that came back after its deletion has no VIP, and nobody uses it.
        let ports = self.scene.cloud.all::<Port>().list::<Port>(Query::all()).await.unwrap();
        let has_vip = |it: &&LoadBalancer| ports.iter().any(|port| Some(&port.id) == it.vip_port_id.as_ref());
        let mut used = ObjectsInUse::default();
        let there = balancers.iter().filter(|it| it.provisioning_status != Provisioning::PendingDelete);
        for it in there.filter(has_vip) {
            let Some(uid) = wanted.keys().find(|uid| is_of(it, uid)) else { continue };
            used.objects.insert(it.id.to_string(), UsedBy::Balancer(uid.clone()));
            for it in listeners_of(it, &listeners) {
                let port = it.protocol_port;
                used.objects.insert(it.id.to_string(), UsedBy::Listener(uid.clone(), port));
                let Some(pool) = &it.default_pool_id else { continue };
                used.objects.insert(pool.to_string(), UsedBy::Listener(uid.clone(), port));
                let member = |it: Member| (it.id.to_string(), UsedBy::Member(uid.clone(), port, it.address));
                let members: Vec<_> = self.members_of(pool).await.into_iter().map(member).collect();
                used.objects.extend(members.iter().cloned());
                used.members.insert(pool.to_string(), members);
            }
            let leads_here =
                floating.iter().filter(|of| of.port_id.is_some() && of.port_id == it.vip_port_id);
            used.objects.extend(leads_here.map(|of| (of.id.to_string(), UsedBy::Floating(uid.clone()))));
        }
        used
    }

    async fn members_of(&self, pool: &seaway_openstack::resource::Id<Pool>) -> Vec<Member> {
        // (It may be gone by now.)
        self.scene.cloud.within::<Member>(pool).list::<Member>(Query::all()).await.unwrap_or_default()
    }

    pub(super) async fn ends(self) -> WalkCounts {
        self.ends_with(Setting::Usual).await
    }

    /// All that went wrong is mended, and then it is as it is wanted, with this in cloud.conf.
    pub(super) async fn ends_with(mut self, setting: Setting) -> WalkCounts {
        self.happened.push(format!("and at the end {setting:?}"));
        self.scene.fake.heal();
        self.config = config(&self.scene, &self.container, setting);
        for it in self.controllers.iter().flatten() {
            it.configure(&self.config).await;
        }
        self.passes(LONG).await;
        let usual = self.config.clouds[CLASS].clone();
        let wanted = self.wanted();
        let history = &self.happened;
        assert!(self.api.services().iter().all(|it| !it.leaving), "one that is deleted stays: {history:#?}");
        let balancers = self.scene.balancers().await;
        for (uid, wanted) in &wanted {
            self.is_served(uid, wanted, &balancers, &usual).await;
        }
        self.are_opened(&wanted, &usual).await;
        self.is_nothing_left(&wanted, &balancers).await;
        self.seen
    }

    /// What no Service wants is listed, each by its key, and has nothing that is not below it.
    async fn is_nothing_left(&self, wanted: &SecretInterest, balancers: &[LoadBalancer]) {
        let history = &self.happened;
        let leader = self.controllers[self.leader].as_ref().unwrap();
        let orphans: BTreeSet<String> =
            leader.handle.ask(|world| world.orphans().map(key_of).collect()).await.unwrap();
        for it in balancers.iter().filter(|it| !wanted.keys().any(|uid| is_of(it, uid))) {
            let its: Vec<&str> = keys_of(it).collect();
            let is_listed = !its.is_empty() && its.iter().all(|key| orphans.contains(*key));
            assert!(is_listed, "left, and not listed: {it:#?}, listed: {orphans:?}: {history:#?}");
        }
        let is_below =
            |of: &FloatingIp| balancers.iter().any(|it| of.port_id.is_some() && of.port_id == it.vip_port_id);
        let floating = self.scene.floating().await;
        let loose: Vec<_> = floating.iter().filter(|it| !is_below(it)).collect();
        assert!(loose.is_empty(), "floating IPs of nobody: {loose:#?}: {history:#?}");
        let pools = self.scene.pools().await;
        let loose: Vec<_> = pools.iter().filter(|it| it.loadbalancers.is_empty()).collect();
        assert!(loose.is_empty(), "pools of nobody: {loose:#?}: {history:#?}");
        let listeners = self.scene.listeners().await;
        let loose: Vec<_> = listeners.iter().filter(|it| it.loadbalancers.is_empty()).collect();
        assert!(loose.is_empty(), "listeners of nobody: {loose:#?}: {history:#?}");
    }

    /// By one load balancer, or by one for each family.
    async fn is_served(
        &self,
        uid: &Name,
        wanted: &DesiredObjects,
        balancers: &[LoadBalancer],
        usual: &CloudDefaults,
    ) {
        let history = &self.happened;
        let its: Vec<_> = balancers.iter().filter(|it| is_of(it, uid)).collect();
        let (second, first): (Vec<_>, Vec<_>) = its.into_iter().partition(|it| is_second(it));
        let [it] = first[..] else { panic!("{uid} has {} load balancers: {history:#?}", first.len()) };
        let all = [&[it], &second[..]].concat();
        let families: Vec<bool> = all.iter().flat_map(|it| vips(it)).map(|it| it.is_ipv6()).collect();
        let expected: &[bool] = if wanted.both { &[false, true] } else { &[false] };
        assert_eq!(families, expected, "VIPs of {uid}, whether of IPv6: {history:#?}");
        let floating = self.scene.floating().await;
        let leads = floating.iter().filter(|of| of.port_id == it.vip_port_id).count();
        assert_eq!(leads, usize::from(wanted.outside), "floating IPs of {uid}: {history:#?}");
        let (listeners, pools) = (self.scene.listeners().await, self.scene.pools().await);
        for it in all {
            assert_eq!(it.provisioning_status, Provisioning::Active, "{uid}: {history:#?}");
            let here: BTreeSet<u16> = listeners_of(it, &listeners).map(|it| it.protocol_port).collect();
            // What is new is refused where the provider cannot do it.
            let is_refused = it.provider.as_deref() == Some("ovn") && usual.balance.is_some();
            assert_eq!(
                here.len(),
                listeners_of(it, &listeners).count(),
                "two listeners at one port of {uid}: {history:#?}"
            );
            let is_right = if is_refused { here.is_subset(&wanted.ports) } else { here == wanted.ports };
            assert!(is_right, "ports of {uid}: {here:?}, wanted {:?}: {history:#?}", wanted.ports);
            // Amphorae reach members by the first family.
            let reached = if it.provider.as_deref() == Some("ovn") { 2 } else { 1 };
            let families: BTreeSet<bool> = vips(it).take(reached).map(|it| it.is_ipv6()).collect();
            let at = |it: &Node, ip: &IpAddr| (it.meta.name.clone(), ip.is_ipv6());
            let at = |it: &Node| it.addresses.iter().map(|ip| (*ip, at(it, ip))).collect::<Vec<_>>();
            // Each once in each family, at whichever address.
            let nodes: BTreeMap<IpAddr, (Name, bool)> = self.api.nodes().iter().flat_map(at).collect();
            let here = nodes.values().filter(|(_, is_v6)| families.contains(is_v6)).cloned();
            let here: BTreeSet<(Name, bool)> = here.collect();
            let method = match (it.provider.as_deref(), usual.balance) {
                (Some("ovn"), _) => Algorithm::SourceIpPort,
                (_, Some(Balance::LeastConnections)) => Algorithm::LeastConnections,
                _ => Algorithm::RoundRobin,
            };
            for listener in listeners_of(it, &listeners) {
                let pool = pools.iter().find(|it| Some(&it.id) == listener.default_pool_id.as_ref());
                let pool = pool.unwrap_or_else(|| panic!("{} leads nowhere: {history:#?}", listener.name));
                let members = self.members_of(&pool.id).await.into_iter();
                let members: Vec<_> = members.map(|it| nodes.get(&it.address).cloned()).collect();
                let count = members.len();
                let members: BTreeSet<_> = members.into_iter().flatten().collect();
                assert_eq!((&members, count), (&here, here.len()), "members of {}: {history:#?}", pool.name);
                assert_eq!(pool.healthmonitor_id.is_some(), usual.monitor, "{}: {history:#?}", pool.name);
                assert_eq!(pool.lb_algorithm, method, "{}: {history:#?}", pool.name);
            }
            let is_here = |of: &&Pool| of.loadbalancers.iter().any(|at| at.id == it.id);
            let loose: Vec<_> = pools.iter().filter(is_here).filter(|it| it.listeners.is_empty()).collect();
            assert!(loose.is_empty(), "no listener leads to {loose:#?}: {history:#?}");
        }
    }

    /// Nodes let in what load balancers send, where that is asked for.
    async fn are_opened(&self, wanted: &SecretInterest, usual: &CloudDefaults) {
        let history = &self.happened;
        let groups =
            self.scene.cloud.all::<SecurityGroup>().list::<SecurityGroup>(Query::all()).await.unwrap();
        let mut groups = groups.into_iter().filter(|it| it.description.contains("seaway.dev/group="));
        let Some(group) = groups.next() else {
            assert!(!usual.groups || wanted.is_empty(), "no security group: {history:#?}");
            return;
        };
        assert!(groups.next().is_none(), "two security groups: {history:#?}");
        assert!(usual.groups && !wanted.is_empty(), "a security group that no Service uses: {history:#?}");
        let opened: BTreeSet<u16> =
            group.security_group_rules.0.iter().filter_map(|it| it.port_range_min).collect();
        let ports: BTreeSet<u16> =
            wanted.values().flat_map(|it| &it.ports).map(|it| super::node_port(*it)).collect();
        assert_eq!(opened, ports, "what the security group opens: {history:#?}");
    }
}

fn listeners_of<'l>(it: &'l LoadBalancer, all: &'l [Listener]) -> impl Iterator<Item = &'l Listener> {
    all.iter().filter(|of| of.loadbalancers.iter().any(|at| at.id == it.id))
}

fn vips(it: &LoadBalancer) -> impl Iterator<Item = IpAddr> + '_ {
    it.vip_address.into_iter().chain(it.additional_vips.iter().filter_map(|it| it.ip_address))
}

fn keys_of(it: &LoadBalancer) -> impl Iterator<Item = &str> {
    it.tags.iter().filter_map(|tag| tag.strip_prefix("seaway.dev/key="))
}

/// As its tag has it.
fn key_of(unit: &Unit) -> String {
    let uid = |owner: &Owner| match owner {
        Owner::Object { uid, .. } => uid.to_string(),
        Owner::Config(name) => name.to_string(),
    };
    match unit {
        Unit::LoadBalancer(_, LbKey::Of(owner)) => uid(owner),
        Unit::LoadBalancer(_, LbKey::Second(owner, family)) => format!("{}:{}", uid(owner), family.as_str()),
        other => other.to_string(),
    }
}

fn is_of(it: &LoadBalancer, uid: &str) -> bool {
    keys_of(it).map(|it| it.split(':').next()).any(|it| it == Some(uid))
}

/// Of its second family.
fn is_second(it: &LoadBalancer) -> bool {
    it.tags.iter().any(|tag| tag.starts_with("seaway.dev/key=") && tag.ends_with(":IPv6"))
}
