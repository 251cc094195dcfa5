use super::*;
use crate::{
    Class,
    survey::{Abilities, ExternalSubnet, Identity, NamedRef, ProviderInfo, ServiceInfo, SpokenVersions},
};

/// A cloud that lacks nothing.
fn good() -> Survey {
    let project = NamedRef { id: "p".to_owned(), name: "shop".to_owned() };
    let roles = vec!["member".to_owned(), "load-balancer_member".to_owned()];
    let subnet = ExternalSubnet {
        id: "s".parse().expect("an id"),
        name: "v4".to_owned(),
        ip_version: 4,
        cidr: "192.0.2.0/24".to_owned(),
    };
    let network = ExternalNetwork {
        id: "n".parse().expect("an id"),
        name: "public".to_owned(),
        shared: false,
        subnets: FetchResult::Value(vec![subnet]),
    };
    let provider = ProviderInfo {
        name: "ovn".to_owned(),
        description: String::new(),
        can: Abilities::of("ovn", None),
        flavor_capabilities: None,
    };
    Survey {
        identity: Identity { user: "alice".to_owned(), project: Some(project), roles, ..Identity::default() },
        services: Service::ALL.map(found).into(),
        providers: FetchResult::Value(vec![provider]),
        flavors: FetchResult::Value(vec![]),
        availability_zones: FetchResult::Value(vec![]),
        external_networks: FetchResult::Value(vec![network]),
        load_balancers_listed: FetchResult::Value(()),
        quotas: vec![quota("load balancers", 10, 1)],
    }
}

fn found(service: Service) -> ServiceInfo {
    let endpoint = FetchResult::Value(format!("http://cloud/{service}"));
    ServiceInfo { service, endpoint, versions: FetchResult::Value(SpokenVersions::default()) }
}

fn quota(what: &'static str, limit: i64, used: u64) -> Quota {
    Quota { what, limit: FetchResult::Value(limit), used: FetchResult::Value(used) }
}

fn refused(class: Class) -> Error {
    Error::new(class, "no").with_fix("do this")
}

fn without(survey: &mut Survey, service: Service) {
    for found in survey.services.iter_mut().filter(|it| it.service == service) {
        found.endpoint = FetchResult::Failed(refused(Class::NoService));
        found.versions = FetchResult::Failed(refused(Class::NoService));
    }
}

fn subnets(survey: &mut Survey, change: fn(&mut Vec<ExternalSubnet>)) {
    if let FetchResult::Value(networks) = &mut survey.external_networks
        && let FetchResult::Value(subnets) = &mut networks[0].subnets
    {
        change(subnets);
    }
}

#[test]
fn nothing_is_missing_where_all_is_there() {
    assert_eq!(findings(&good()), []);
}

#[test]
fn what_is_missing_is_told_with_what_to_type() {
    use Severity::{Missing, Warning};
    type Spoil = fn(&mut Survey);
    let cases: [(Spoil, Severity, &str, &str); 13] = [
        (|it| it.identity.project = None, Missing, "no project", "OS_PROJECT_NAME"),
        (|it| without(it, Service::LoadBalancer), Missing, "Octavia", "install Octavia"),
        (|it| without(it, Service::Network), Missing, "Neutron", "network_endpoint_override"),
        (|it| without(it, Service::KeyManager), Warning, "Barbican", "certificates"),
        (
            |it| it.load_balancers_listed = FetchResult::Failed(refused(Class::Forbidden)),
            Missing,
            "alice may not list load balancers",
            "openstack role add --user alice --project shop load-balancer_member",
        ),
        (|it| it.identity.roles = vec!["reader".to_owned()], Missing, "roles: reader", "role add"),
        (|it| it.providers = FetchResult::Value(vec![]), Missing, "no provider", "enabled_provider_drivers"),
        (
            |it| it.external_networks = FetchResult::Value(vec![]),
            Missing,
            "no external network",
            "internal-lb",
        ),
        (
            |it| subnets(it, |subnets| subnets[0].ip_version = 6),
            Missing,
            "no IPv4 subnet",
            "openstack subnet create",
        ),
        (
            |it| it.external_networks = FetchResult::Failed(refused(Class::Broken)),
            Missing,
            "external networks cannot be listed",
            "do this",
        ),
        (|it| it.quotas = vec![quota("ports", 5, 5)], Missing, "all 5 ports", "quota set"),
        (|it| it.quotas = vec![quota("ports", 10, 9)], Warning, "9 of 10 ports", "quota set"),
        (
            |it| it.services[1].versions = FetchResult::Failed(refused(Class::Unreachable)),
            Missing,
            "does not answer",
            "do this",
        ),
    ];
    for (spoil, weight, what, fix) in cases {
        let mut survey = good();
        spoil(&mut survey);
        let findings = findings(&survey);
        let [finding] = &*findings else { panic!("{what}: {findings:?}") };
        assert_eq!(finding.weight, weight, "{finding:?}");
        assert!(finding.what.contains(what) && finding.fix.contains(fix), "{finding:?}");
    }
}

#[test]
fn a_region_that_is_not_there_is_one_trouble() {
    let mut survey = good();
    survey.identity.region = Some("West".to_owned());
    for found in &mut survey.services[1..] {
        found.endpoint = FetchResult::Failed(refused(Class::NoRegion));
    }
    for quota in &mut survey.quotas {
        quota.limit = FetchResult::Failed(refused(Class::NoRegion));
    }
    let findings = findings(&survey);
    let [finding] = &*findings else { panic!("{findings:?}") };
    assert_eq!(finding.weight, Severity::Missing);
    assert_eq!(finding.what, "the region West has no network, load-balancer, compute, key-manager");
}

#[test]
fn a_service_that_tells_no_quota_is_one_trouble() {
    let unread = |what| Quota {
        what,
        limit: FetchResult::Failed(refused(Class::Broken)),
        used: FetchResult::Value(1),
    };
    let survey = Survey { quotas: vec![unread("pools"), unread("members")], ..good() };
    let findings = findings(&survey);
    assert_eq!(findings.len(), 1, "{findings:?}");
    assert!(findings[0].what.contains("pools, members") && findings[0].fix == "do this", "{findings:?}");
}

#[test]
fn a_quota_without_a_limit_is_never_used_up_and_one_for_the_surroundings_may_be() {
    for quota in [quota("ports", -1, 1_000_000), quota("networks", 1, 1), quota("pools", 100, 80)] {
        let survey = Survey { quotas: vec![quota], ..good() };
        assert_eq!(findings(&survey), []);
    }
}
