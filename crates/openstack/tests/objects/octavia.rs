use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use seaway_openstack::{
    Class, Cloud, Error,
    neutron::Subnet,
    octavia::{
        Action, Algorithm, CompareType, HealthMonitor, HealthMonitorChange, L7Policy, L7PolicyChange, L7Rule,
        L7RuleChange, Listener, ListenerChange, LoadBalancer, LoadBalancerChange, Member, MemberChange,
        MonitorType, NewHealthMonitor, NewL7Policy, NewL7Rule, NewListener, NewLoadBalancer, NewMember,
        NewPool, Operating, Persistence, PersistenceType, Pool, PoolChange, PoolProtocol, Protocol, Provider,
        RuleType,
    },
    resource::{Collection, Id, Query, To},
};

use super::{PATIENCE, network};

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn tags(all: &[&str]) -> BTreeSet<String> {
    all.iter().map(|it| (*it).to_owned()).collect()
}

/// A load balancer whose children are written one after the other; each write waits for it.
struct Balancer {
    all: Collection<LoadBalancer>,
    id: Id<LoadBalancer>,
}

impl Balancer {
    async fn create(cloud: &Cloud, name: &str, provider: &str, subnet: &Id<Subnet>) -> Balancer {
        let all = cloud.all::<LoadBalancer>();
        let new = NewLoadBalancer {
            name: name.into(),
            tags: tags(&["walk", name]).into(),
            provider: Some(provider.to_owned()).into(),
            vip_subnet_id: Some(subnet.clone()).into(),
            ..NewLoadBalancer::new()
        };
        let made = all.create(&new).await.expect("a load balancer");
        let balancer = Balancer { all, id: made.id };
        balancer.settled().await;
        balancer
    }

    async fn settled(&self) -> LoadBalancer {
        self.all.until_ready(&self.id, PATIENCE).await.expect("it becomes ACTIVE")
    }

    async fn gone(self) {
        self.all.delete_cascade(&self.id).await.expect("deleted");
        self.all.until_gone(&self.id, PATIENCE).await.expect("it goes");
        self.all.delete_cascade(&self.id).await.expect("what is gone is deleted");
    }
}

/// Every kind is made, read, changed and deleted; what is null is told as null.
pub(crate) async fn one_by_one(cloud: &Cloud) {
    let (_, subnet) = network(cloud, "walk", "10.31.0.0/24").await;
    let balancer = Balancer::create(cloud, "one-by-one", "amphora", &subnet).await;
    let listener = listener(cloud, &balancer).await;
    let pool = pool(cloud, &balancer, &listener).await;
    members(cloud, &balancer, &pool).await;
    monitor(cloud, &balancer, &pool).await;
    policy(cloud, &balancer, &listener, &pool).await;
    whole(cloud, &balancer, &listener, &pool).await;
    balancer.gone().await;
    assert_eq!(cloud.all::<Listener>().find::<Listener>(&listener).await.expect("an answer"), None);
}

async fn listener(cloud: &Cloud, balancer: &Balancer) -> Id<Listener> {
    let listeners = cloud.all::<Listener>();
    let new = NewListener {
        name: "web".into(),
        loadbalancer_id: balancer.id.clone().into(),
        allowed_cidrs: Some(vec!["10.0.0.0/8".to_owned()]).into(),
        insert_headers: BTreeMap::from([("X-Forwarded-For".to_owned(), "true".to_owned())]).into(),
        ..NewListener::new(Protocol::Http, 80u16)
    };
    let listener = listeners.create(&new).await.expect("a listener");
    assert_eq!(listener.allowed_cidrs.as_deref(), Some(&["10.0.0.0/8".to_owned()][..]));
    let wanted = NewListener { allowed_cidrs: To(None), timeout_client_data: To(Some(60_000)), ..new };
    let change = ListenerChange::between(&listener, &wanted);
    assert_eq!(serde_json::to_value(&change).expect("a body").as_object().map(|it| it.len()), Some(2));
    balancer.settled().await;
    listeners.change(&listener.id, &change).await.expect("changed");
    balancer.settled().await;
    let listener = listeners.read::<Listener>(&listener.id).await.expect("it is there");
    assert_eq!((listener.allowed_cidrs.as_ref(), listener.timeout_client_data), (None, Some(60_000)));
    assert!(ListenerChange::between(&listener, &wanted).is_empty(), "{listener:?}");
    listener.id
}

async fn pool(cloud: &Cloud, balancer: &Balancer, listener: &Id<Listener>) -> Id<Pool> {
    let pools = cloud.all::<Pool>();
    let cookie = Persistence {
        kind: PersistenceType::AppCookie,
        cookie_name: Some("sid".to_owned()),
        ..Persistence::default()
    };
    let new = NewPool {
        name: "web".into(),
        listener_id: listener.clone().into(),
        session_persistence: Some(cookie.clone()).into(),
        ..NewPool::new(PoolProtocol::Http, Algorithm::RoundRobin)
    };
    let pool = pools.create(&new).await.expect("a pool");
    assert_eq!(pool.session_persistence, Some(cookie));
    balancer.settled().await;
    let change = PoolChange {
        session_persistence: To(None),
        lb_algorithm: To(Algorithm::SourceIp),
        ..Default::default()
    };
    pools.change(&pool.id, &change).await.expect("changed");
    balancer.settled().await;
    let pool = pools.read::<Pool>(&pool.id).await.expect("it is there");
    assert_eq!((pool.session_persistence, pool.lb_algorithm), (None, Algorithm::SourceIp));
    // Taken off, and given back.
    for led_to in [None, Some(pool.id.clone())] {
        let change = ListenerChange { default_pool_id: To(led_to.clone()), ..Default::default() };
        cloud.all::<Listener>().change(listener, &change).await.expect("changed");
        balancer.settled().await;
        let read = cloud.all::<Listener>().read::<Listener>(listener).await.expect("it is there");
        assert_eq!(read.default_pool_id, led_to);
    }
    pool.id
}

async fn members(cloud: &Cloud, balancer: &Balancer, pool: &Id<Pool>) {
    let members = cloud.within::<Member>(pool);
    let first =
        NewMember { name: "a".into(), weight: Some(5).into(), ..NewMember::new(ip("10.31.0.11"), 8080u16) };
    let first = members.create(&first).await.expect("a member");
    balancer.settled().await;
    let drained = MemberChange { weight: To(Some(0)), ..Default::default() };
    members.change(&first.id, &drained).await.expect("changed");
    balancer.settled().await;
    let first = members.read::<Member>(&first.id).await.expect("it is there");
    assert_eq!((first.weight, first.name.as_str()), (Some(0), "a"));

    let second = NewMember { name: "b".into(), ..NewMember::new(ip("10.31.0.12"), 8080u16) };
    members.replace(&[NewMember::like(&first), second]).await.expect("replaced");
    balancer.settled().await;
    let both = members.list::<Member>(Query::all()).await.expect("members");
    let kept = both.iter().find(|it| it.id == first.id).expect("the first one stays");
    assert_eq!((kept.weight, kept.name.as_str(), both.len()), (Some(0), "a", 2));

    members.add(&[NewMember::new(ip("10.31.0.13"), 8080u16)]).await.expect("added");
    balancer.settled().await;
    assert_eq!(members.list::<Member>(Query::all()).await.expect("members").len(), 3);
    members.delete(&first.id).await.expect("deleted");
    balancer.settled().await;
    assert_eq!(members.find::<Member>(&first.id).await.expect("an answer"), None);
}

async fn monitor(cloud: &Cloud, balancer: &Balancer, pool: &Id<Pool>) {
    let monitors = cloud.all::<HealthMonitor>();
    let new = NewHealthMonitor {
        pool_id: pool.clone().into(),
        url_path: Some("/health".to_owned()).into(),
        ..NewHealthMonitor::new(MonitorType::Http, 5u64, 3u64, 2u64)
    };
    let monitor = monitors.create(&new).await.expect("a monitor");
    balancer.settled().await;
    let second = monitors.create(&new).await.expect_err("a pool has one");
    assert_eq!(second.class(), &Class::Duplicate, "{second}");
    let change = HealthMonitorChange { delay: To(7), ..Default::default() };
    monitors.change(&monitor.id, &change).await.expect("changed");
    balancer.settled().await;
    let monitor = monitors.read::<HealthMonitor>(&monitor.id).await.expect("it is there");
    assert_eq!((monitor.delay, monitor.timeout, monitor.url_path.as_deref()), (7, 3, Some("/health")));
    let pool = cloud.all::<Pool>().read::<Pool>(pool).await.expect("it is there");
    assert_eq!(pool.healthmonitor_id, Some(monitor.id));
}

async fn policy(cloud: &Cloud, balancer: &Balancer, listener: &Id<Listener>, pool: &Id<Pool>) {
    let policies = cloud.all::<L7Policy>();
    let new = NewL7Policy {
        name: "api".into(),
        listener_id: Some(listener.clone()).into(),
        redirect_pool_id: Some(pool.clone()).into(),
        ..NewL7Policy::new(Action::RedirectToPool)
    };
    let policy = policies.create(&new).await.expect("a policy");
    balancer.settled().await;
    let rules = cloud.within::<L7Rule>(&policy.id);
    let rule = NewL7Rule::new(RuleType::Path, CompareType::StartsWith, "/api");
    let rule = rules.create(&rule).await.expect("a rule");
    balancer.settled().await;
    let change = L7RuleChange { invert: To(Some(true)), ..Default::default() };
    rules.change(&rule.id, &change).await.expect("changed");
    balancer.settled().await;
    let read = rules.read::<L7Rule>(&rule.id).await.expect("it is there");
    assert_eq!((read.invert, read.value.as_str()), (Some(true), "/api"));
    let change = L7PolicyChange {
        action: To(Action::RedirectToUrl),
        redirect_url: To(Some("https://example.org/".to_owned())),
        ..Default::default()
    };
    policies.change(&policy.id, &change).await.expect("changed");
    balancer.settled().await;
    let read = policies.read::<L7Policy>(&policy.id).await.expect("it is there");
    assert_eq!((read.action, read.rules.len(), read.redirect_pool_id), (Action::RedirectToUrl, 1, None));
    rules.delete(&rule.id).await.expect("deleted");
    balancer.settled().await;
    policies.delete(&policy.id).await.expect("deleted");
    balancer.settled().await;
}

/// The load balancer itself: tags, its tree, what has flowed, and that it keeps what it has.
async fn whole(cloud: &Cloud, balancer: &Balancer, listener: &Id<Listener>, pool: &Id<Pool>) {
    let change = LoadBalancerChange {
        description: "walked over".into(),
        tags: tags(&["new"]).into(),
        ..Default::default()
    };
    balancer.all.change(&balancer.id, &change).await.expect("changed");
    let read = balancer.settled().await;
    assert_eq!(
        (read.description.as_str(), &read.tags, read.listeners.len()),
        ("walked over", &tags(&["new"]), 1)
    );
    let tree = balancer.all.tree(&balancer.id).await.expect("a tree");
    assert_eq!((&tree.listeners[0].id, &tree.listeners[0].pools[0].id), (listener, pool));
    let below = &tree.listeners[0].pools[0];
    assert_eq!(
        (below.members.len(), below.health_monitor.as_ref().map(|it| &it.kind)),
        (2, Some(&MonitorType::Http))
    );
    let flowed = balancer.all.statistics(&balancer.id).await.expect("figures");
    assert_eq!(flowed.request_errors, 0);
    cloud.all::<Listener>().statistics(listener).await.expect("figures");
    let children = balancer.all.delete(&balancer.id).await.expect_err("it has children");
    assert_eq!(children.class(), &Class::InUse, "{children}");
    let failover = balancer.all.failover(&balancer.id).await.expect_err("operators may");
    assert_eq!(failover.class(), &Class::Forbidden, "{failover}");
}

/// One right after the other, until the one before is not done yet: a provider is at times the faster one.
async fn until_refused(listeners: &Collection<Listener>, on: impl Fn(Protocol, u16) -> NewListener) -> Error {
    for port in 81..=120 {
        if let Err(refused) = listeners.create(&on(Protocol::Tcp, port)).await {
            return refused;
        }
    }
    panic!("forty listeners in a row, and none had to wait");
}

/// What is refused, told apart.
pub(crate) async fn refusals(cloud: &Cloud) {
    let providers = cloud.all::<Provider>().list::<Provider>(Query::all()).await.expect("providers");
    assert!(providers.iter().any(|it| it.id.as_str() == "ovn"), "{providers:?}");
    let (_, subnet) = network(cloud, "refusals", "10.32.0.0/24").await;
    let balancer = Balancer::create(cloud, "refusals", "ovn", &subnet).await;
    let listeners = cloud.all::<Listener>();
    let on = |protocol, port: u16| NewListener {
        loadbalancer_id: balancer.id.clone().into(),
        ..NewListener::new(protocol, port)
    };
    let refused = listeners.create(&on(Protocol::Http, 80)).await.expect_err("ovn has no HTTP");
    assert_eq!(refused.class(), &Class::Unsupported, "{refused}");
    let made = listeners.create(&on(Protocol::Tcp, 80)).await.expect("a listener");
    assert_eq!(until_refused(&listeners, on).await.class(), &Class::Immutable, "one write at a time");
    balancer.settled().await;
    let refused = listeners.create(&on(Protocol::Tcp, 80)).await.expect_err("the port is taken");
    assert_eq!(refused.class(), &Class::Duplicate, "{refused}");
    let refused = listeners.create(&on(Protocol::Other("MAGIC".into()), 82)).await.expect_err("no such word");
    assert_eq!(refused.class(), &Class::Invalid, "{refused}");
    let read = listeners.until_ready(&made.id, PATIENCE).await.expect("it becomes ACTIVE");
    assert!(matches!(read.operating_status, Operating::Online | Operating::Offline), "{read:?}");
    balancer.gone().await;
}
