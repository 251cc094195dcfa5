//! What asks for an internal load balancer, as clouds have them, and is served by Seaway's own hosts, which serve all clients that reach
//! them. It is closed, unless something else says which clients may connect.

use seaway_model::{
    Config, ObjectRef, Problem, Reason,
    fact::{HttpRoute, Service, ServiceKind},
};

use crate::{
    access_rules::object,
    annotations::{INTERNAL, ServiceOptions},
    demand::cloud_of,
};

const WHAT: &str = "this annotation is for load balancers of a cloud, and Seaway's hosts serve all clients that reach them: no client \
                    is served until source ranges or an entrance restrict access";
const AT_FRONT_DOOR: &str = "Name an entrance of the front door that only the internal network reaches, seaway.dev/entrance: internal \
                             (docs/http.md), or the networks of the clients in seaway.dev/source-ranges. If all clients may connect, \
                             remove this annotation.";
const AT_ITS_ADDRESS: &str = "Name the networks of the clients in seaway.dev/source-ranges; or, with spec.type: ClusterIP, an entrance \
                              of the front door that only the internal network reaches: seaway.dev/entrance (docs/http.md). If all \
                              clients may connect, remove this annotation. For a load balancer of a cloud, set \
                              spec.loadBalancerClass (docs/octavia.md).";

impl ServiceOptions {
    /// As [`ServiceOptions::read`], of a Service that Seaway's hosts serve.
    pub(crate) fn read_served(&mut self, service: &Service, config: &Config) -> Vec<Problem> {
        let mut problems = self.read_of(&object(service), service);
        problems.extend(self.close_internal(service, config));
        problems
    }

    /// The same of an HTTPRoute.
    pub(crate) fn read_route(&mut self, route: &HttpRoute) -> Vec<Problem> {
        let mut problems = self.read(&route.object(), &route.meta.annotations);
        problems.extend(self.close(route.object(), true).map(|it| it.fix(AT_FRONT_DOOR)));
        problems
    }

    /// In a cluster, annotations of other controllers are theirs.
    pub(crate) fn close_internal(&mut self, service: &Service, config: &Config) -> Option<Problem> {
        let is_balanced = service.kind == ServiceKind::LoadBalancer;
        if is_balanced && cloud_of(service, config).is_some() || !service.source_ranges.is_empty() {
            return None;
        }
        let fix = if is_balanced { AT_ITS_ADDRESS } else { AT_FRONT_DOOR };
        self.close(object(service), config.pools.cluster).map(|it| it.fix(fix))
    }

    /// The same where the configuration is not at hand: our own annotation alone counts, and it counts for each kind of Service.
    pub(crate) fn close_internal_anywhere(&mut self, service: &Service) {
        if service.source_ranges.is_empty() {
            self.close(object(service), true);
        }
    }

    fn close(&mut self, object: ObjectRef, only_ours: bool) -> Option<Problem> {
        let field = self.written.get(INTERNAL)?;
        let is_ours = field.contains(INTERNAL);
        let is_restricted = !self.sources.is_empty() || !self.http.entrances.is_empty();
        if self.cloud.internal != Some(true) || is_restricted || only_ours && !is_ours {
            return None;
        }
        let problem = Problem::new(object, Reason::Unsupported, WHAT).at(field.clone());
        (self.closed, self.clients_unclear) = (true, true);
        Some(problem)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use seaway_model::fact::TargetPort;
    use seaway_testkit::facts;

    use super::*;

    const CLOUDS: &str = "service.beta.kubernetes.io/openstack-internal-load-balancer";

    #[test]
    fn what_is_to_be_internal_and_is_not_lets_no_client_in() {
        for (say, in_folder, in_cluster) in [
            (&[(INTERNAL, "true")][..], true, true),
            (&[(CLOUDS, "true")], true, false),
            (&[(INTERNAL, "false")], false, false),
            (&[(CLOUDS, "false")], false, false),
            (&[(INTERNAL, "true"), ("seaway.dev/source-ranges", "10.0.0.0/8")], false, false),
            (&[(INTERNAL, "true"), ("seaway.dev/entrance", "inside")], false, false),
        ] {
            for (is_cluster, expected) in [(false, in_folder), (true, in_cluster)] {
                for kind in [ServiceKind::LoadBalancer, ServiceKind::ClusterIp] {
                    let mut service = facts::service("shop", &[("main", 80, TargetPort::Number(80))]);
                    service.kind = kind.clone();
                    service.meta.annotations =
                        say.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
                    let mut config = Config::default();
                    config.pools.cluster = is_cluster;
                    let mut wishes = ServiceOptions::of(&config.defaults);
                    let problems = wishes.read_served(&service, &config);
                    assert_eq!(problems.len(), usize::from(expected), "{say:?} {kind:?}: {problems:?}");
                    assert_eq!((wishes.closed, wishes.clients_unclear), (expected, expected), "{say:?}");
                    // The field counts as well.
                    let mut restricted = Service::clone(&service);
                    restricted.source_ranges = vec!["10.0.0.0/8".parse().expect("a network")];
                    let mut wishes = ServiceOptions::of(&config.defaults);
                    assert_eq!(wishes.read_served(&restricted, &config), [], "{say:?}");
                    // It is one Problem, wherever the Service is served.
                    service.kind = ServiceKind::LoadBalancer;
                    let demand = crate::Demand::of_service(&Arc::new(service), &config).expect("it is ours");
                    let mut all = demand.problems.clone();
                    all.extend(crate::unheeded::unheeded(&demand));
                    all.retain(|it| it.field.contains("internal"));
                    assert_eq!(all.len(), 1, "{say:?}: {all:?}");
                }
            }
        }
    }
}
