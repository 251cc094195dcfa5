//! What `check` and `show` are made of: one trouble hides nothing else, and calls are few.

use seaway_openstack::{
    Cloud, Credentials, Service, Settings, Source,
    octavia::{Algorithm, NewListener, NewLoadBalancer, NewMember, NewPool, PoolProtocol, Protocol},
    survey::{LoadBalancerFilter, Severity, findings, read_load_balancers, survey},
};
use seaway_testkit::cloud::Fault;

use super::{stage::Stage, walks::PATIENCE};

#[tokio::test]
async fn nothing_is_missing_in_a_cloud_that_has_all() {
    let stage = Stage::set().await;
    let survey = survey(&stage.cloud, &|_| {}).await;
    let missing: Vec<_> = findings(&survey).into_iter().filter(|it| it.weight == Severity::Missing).collect();
    assert_eq!(missing, []);
    assert_eq!(survey.identity.user, "demo");
    let providers = survey.providers.value().expect("providers");
    assert!(providers.iter().any(|it| it.name == "amphora" && it.can.known), "{providers:?}");
    let told = |what| survey.quotas.iter().find(|it| it.what == what).and_then(|it| it.used.value());
    assert_eq!(told("load balancers"), Some(&0));
}

#[tokio::test]
async fn one_service_that_fails_hides_no_other() {
    for (pattern, service) in [
        ("* */load-balancer*", Service::LoadBalancer),
        ("* */network/*", Service::Network),
        ("* */compute*", Service::Compute),
    ] {
        let stage = Stage::set().await;
        stage.fake.fail(Fault::on(pattern).always().status(500));
        let survey = survey(&stage.cloud, &|_| {}).await;
        for found in &survey.services {
            assert_eq!(found.versions.value().is_some(), found.service != service, "{service}: {found:?}");
        }
        let findings = findings(&survey);
        let named = findings.iter().filter(|it| it.what.contains(service.project())).count();
        assert!(named >= 1, "{service}: {findings:?}");
        assert_eq!(survey.external_networks.value().is_some(), service != Service::Network);
        assert_eq!(survey.providers.value().is_some(), service != Service::LoadBalancer);
    }
}

#[tokio::test]
async fn a_cloud_without_octavia_and_a_user_without_its_role_are_told_so() {
    let stage = Stage::set().await;
    stage.fake.add_project("poor", "poorpw", &["reader"]);
    let poor = Credentials::password(&stage.fake.auth_url(), "poor", "poorpw", "poor");
    let missing = missing(poor).await;
    assert!(
        missing.iter().any(|it| it.contains("openstack role add --user poor --project poor")),
        "{missing:?}"
    );

    stage.fake.without("load-balancer");
    let demo = Credentials::password(&stage.fake.auth_url(), "demo", "demopw", "demo");
    let missing = self::missing(demo).await;
    assert!(missing.iter().any(|it| it.contains("install Octavia")), "{missing:?}");
    assert_eq!(missing.len(), 1, "what is not there at all is one trouble: {missing:?}");
}

async fn missing(credentials: Credentials) -> Vec<String> {
    let cloud = Cloud::connect(Source::Given(credentials), Settings::default()).await.expect("signed in");
    let findings = findings(&survey(&cloud, &|_| {}).await).into_iter();
    findings.filter(|it| it.weight == Severity::Missing).map(|it| it.fix).collect()
}

#[tokio::test]
async fn a_forest_takes_one_list_per_kind_and_one_tree_per_load_balancer() {
    let stage = Stage::set().await;
    let new = stage.new_balancer("").await;
    for name in ["a", "b", "c"] {
        let pool = NewPool {
            name: "p".into(),
            members: vec![NewMember::new(
                "10.40.0.9".parse::<std::net::IpAddr>().expect("an address"),
                80u16,
            )]
            .into(),
            ..NewPool::new(PoolProtocol::Tcp, Algorithm::SourceIpPort)
        };
        let listener = NewListener {
            name: "l".into(),
            default_pool: pool.into(),
            ..NewListener::new(Protocol::Tcp, 80u16)
        };
        let new = NewLoadBalancer { name: name.into(), listeners: vec![listener].into(), ..new.clone() };
        let made = stage.balancers().create(&new).await.expect("made");
        stage.balancers().until_ready(&made.id, PATIENCE).await.expect("ready");
    }
    stage.fake.forget_requests();
    let wanted = LoadBalancerFilter { members: true, ..LoadBalancerFilter::default() };
    let grown = read_load_balancers(&stage.cloud, &wanted, &|_| {}).await.expect("a forest");
    assert_eq!(stage.fake.requests().len(), 6 + 3);
    let names: Vec<&str> = grown.load_balancers.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["a", "b", "c"]);
    for it in &grown.load_balancers {
        let pool = it.listeners[0].pool.as_ref().expect("a pool");
        assert_eq!((pool.member_count, pool.members.as_ref().map(Vec::len)), (1, Some(1)));
        assert_eq!(it.pools.len(), 0, "the listener has it");
    }

    stage.fake.forget_requests();
    let wanted = LoadBalancerFilter { named: Some("b".to_owned()), ..LoadBalancerFilter::default() };
    let grown = read_load_balancers(&stage.cloud, &wanted, &|_| {}).await.expect("a tree");
    assert_eq!((grown.load_balancers.len(), stage.fake.requests().len()), (1, 6));
    let only = format!("loadbalancer_id={}", grown.load_balancers[0].id);
    let asked = stage.fake.requests().into_iter().filter(|it| it.query.contains(&only)).count();
    assert_eq!(asked, 2, "listeners and pools of the others are not asked for");
    let wanted = LoadBalancerFilter {
        named: Some(grown.load_balancers[0].id.to_string()),
        ..LoadBalancerFilter::default()
    };
    let by_id = read_load_balancers(&stage.cloud, &wanted, &|_| {}).await.expect("a tree");
    assert_eq!(by_id.load_balancers[0].name, "b");

    stage.fake.fail(Fault::on("GET */lbaas/pools").always().status(500));
    let grown = read_load_balancers(&stage.cloud, &LoadBalancerFilter::default(), &|_| {})
        .await
        .expect("what is left");
    assert_eq!((grown.load_balancers.len(), grown.failed.len()), (3, 1));
}
