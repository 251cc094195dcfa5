//! What a Service asks of HTTP, where nobody speaks it for it: to pass over that in silence would look like a promise.

use seaway_model::{Problem, Reason, load_balancer::Protocol};

use crate::{annotations::of_clouds, demand::Demand};

/// Annotations that are about requests and answers.
const OF_HTTP: [&str; 7] = [
    "seaway.dev/sticky-cookie",
    "seaway.dev/sticky-cookie-mode",
    "seaway.dev/max-body-size",
    "seaway.dev/timeout-answer",
    "seaway.dev/reuse-connections",
    "seaway.dev/timeout-keep-alive",
    "seaway.dev/passive-ejection-errors",
];

pub(crate) fn unheeded(demand: &Demand) -> Vec<Problem> {
    let mut problems = Vec::new();
    if demand.cloud.is_none() {
        let written = of_clouds().filter_map(|option| demand.wishes.written.get(option));
        problems.extend(written.map(|field| {
            let message = "it is about load balancers of a cloud, and this Service is served by our hosts";
            let problem = Problem::new(demand.owner.object(), Reason::Unsupported, message);
            problem.at(field.clone()).fix("Say another spec.loadBalancerClass, or remove it.")
        }));
    }
    problems.extend(of_http(demand));
    problems
}

fn of_http(demand: &Demand) -> Vec<Problem> {
    let http = &demand.wishes.http;
    let elsewhere = http.front_door == Some(true) || !http.hosts.is_empty() || !http.paths.is_empty();
    let spoken = demand.ports.iter().any(|it| demand.protocol(&it.port) == Protocol::Http);
    // What the configuration serves beside the Service's own ports is not what its annotations are about.
    if elsewhere || spoken || demand.hosts_only {
        return Vec::new();
    }
    let written = OF_HTTP.iter().filter_map(|option| demand.wishes.written.get(option));
    let told = written.map(|field| {
        Problem::new(
            demand.owner.object(),
            Reason::Unsupported,
            "it is about HTTP, which this Service does not speak at its own address",
        )
        .at(field.clone())
        .fix("Say seaway.dev/protocol: http, or seaway.dev/front-door: \"true\"; or remove it.")
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use seaway_model::{Config, fact::TargetPort};
    use seaway_testkit::facts;

    use super::*;

    #[test]
    fn what_is_asked_of_http_is_heeded_or_told() {
        for (say, expected) in [
            (&[("seaway.dev/sticky-cookie", "true")][..], 1),
            (&[("serviceloadbalancer/lb.cookie-sticky-session", "true")], 1),
            (&[("seaway.dev/max-body-size", "1Mi"), ("seaway.dev/timeout-answer", "5s")], 2),
            (&[("seaway.dev/reuse-connections", "strict")], 1),
            (&[("seaway.dev/sticky-cookie", "true"), ("seaway.dev/protocol", "http")], 0),
            (&[("seaway.dev/sticky-cookie", "true"), ("seaway.dev/front-door", "true")], 0),
            (&[("seaway.dev/sticky-cookie", "true"), ("seaway.dev/host", "a.example")], 0),
            (&[("seaway.dev/timeout-connect", "5s")], 0),
        ] {
            let mut service = facts::service("shop", &[("main", 80, TargetPort::Number(80))]);
            service.meta.annotations =
                say.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            let demand = Demand::of_service(&Arc::new(service), &Config::default()).expect("it is ours");
            let told = unheeded(&demand);
            assert_eq!(told.len(), expected, "{say:?}: {told:?}");
        }
    }
}
