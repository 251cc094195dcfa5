//! What a Service says of itself, and has been told.

use std::time::Duration;

use seaway_testkit::topology::until_within;

use crate::scene::Scene;

/// For what takes several calls, each of which is waited for.
pub(crate) const A_WHILE: Duration = Duration::from_secs(150);

impl Scene {
    /// `Reason: message` of each event that Seaway wrote, in no order. Kubernetes writes some about the same Service:
    /// what repairs the API server's table of cluster IPs warns of an IP that it has not heard of yet.
    pub(crate) fn events(&self, service: &str) -> Vec<String> {
        self.events_that(service, "")
    }

    pub(crate) fn warnings(&self, service: &str) -> Vec<String> {
        let mut told = self.events_that(service, ",type=Warning");
        told.retain(|it| !is_of_pods(it));
        told
    }

    fn events_that(&self, service: &str, are: &str) -> Vec<String> {
        let ours = "reportingComponent=seaway.dev/controller";
        let of = format!("involvedObject.kind=Service,involvedObject.name={service},{ours}{are}");
        let path = r#"jsonpath={range .items[*]}{.reason}: {.message}{"\n"}{end}"#;
        let listed = self.cluster.kubectl(&["get", "events", "--field-selector", &of, "-o", path]);
        listed.lines().map(str::to_owned).collect()
    }

    /// Status, reason and message of a condition of ours.
    pub(crate) fn condition(&self, service: &str, kind: &str) -> (String, String, String) {
        let told = |part: &str| {
            let path = format!("{{.status.conditions[?(@.type=='seaway.dev/{kind}')].{part}}}");
            self.field(&format!("service/{service}"), &path)
        };
        (told("status"), told("reason"), told("message"))
    }

    pub(crate) fn problems(&self, service: &str) -> String {
        let told = self.condition(service, "Problems").2;
        told.lines().filter(|it| !is_of_pods(it)).collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn is_served(&self, service: &str) -> bool {
        self.condition(service, "Ready").0 == "True"
    }

    pub(crate) fn until_served(&self, services: &[&str]) {
        for service in services {
            until_within(A_WHILE, &format!("{service} is served"), || self.is_served(service));
        }
    }

    pub(crate) fn until_told(&self, service: &str, words: &[&str]) {
        until_within(A_WHILE, &format!("{service} is told of {words:?}"), || {
            let told = self.problems(service).to_lowercase();
            words.iter().all(|it| told.contains(&it.to_lowercase()))
        });
    }
}

/// A cloud leads to nodes, so that tests of it need no pods.
fn is_of_pods(told: &str) -> bool {
    told.starts_with("NoEndpoints: ")
}
