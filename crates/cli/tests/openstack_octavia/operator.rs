//! Who runs the cloud.

use std::collections::BTreeSet;

use seaway_openstack::{Call, Cloud, Credentials, Method, Service, Settings, Source};
use tokio::runtime::Runtime;

use crate::stage::{AUTH_URL, CloudSetup};

/// May do all, and says what the project of a test may.
pub(crate) struct Operator {
    runtime: Runtime,
    cloud: Cloud,
    project: String,
    /// Those of the project's user that let it have load balancers, in Keystone: the first is enough for an Octavia of
    /// today, older ones ask for the second.
    roles: [String; 2],
    /// The one that lets it fail them over: in an Octavia of today, no role of its own is enough.
    admin: String,
}

impl Operator {
    pub(crate) fn of(land: &CloudSetup) -> Operator {
        let source = Source::Given(Credentials::password(AUTH_URL, "admin", "adminpw", "admin"));
        let runtime = Runtime::new().expect("a runtime");
        let session = land.cloud.session();
        let project = session.project.as_ref().expect("a project").id.clone();
        let cloud = runtime.block_on(Cloud::connect(source, Settings::default())).expect("signed in");
        let [first, second, admin] = ["member", "load-balancer_member", "admin"].map(|name| {
            let named = Call::get(Service::Identity, "roles", "/roles").query("name", name);
            let told = runtime.block_on(cloud.call(named)).expect("roles").body;
            let role = told["roles"][0]["id"].as_str().expect("an id");
            format!("/projects/{project}/users/{}/roles/{role}", session.user.id)
        });
        Operator { runtime, cloud, project, roles: [first, second], admin }
    }

    pub(crate) fn lets_it_balance(&self, may: bool) {
        for path in &self.roles {
            let call = match may {
                true => Call::new(Service::Identity, Method::PUT, "give", path),
                false => Call::delete(Service::Identity, "take", path),
            };
            self.runtime.block_on(self.cloud.call(call)).expect("is done");
        }
    }

    pub(crate) fn lets_it_fail_over(&self) {
        let call = Call::new(Service::Identity, Method::PUT, "give", &self.admin);
        self.runtime.block_on(self.cloud.call(call)).expect("is done");
    }

    /// The machines below a load balancer of `amphora`.
    pub(crate) fn amphorae(&self, load_balancer: &str) -> BTreeSet<String> {
        let call = Call::get(Service::LoadBalancer, "amphorae", "/octavia/amphorae");
        let call = call.query("loadbalancer_id", load_balancer).query("status", "ALLOCATED");
        let told = self.runtime.block_on(self.cloud.call(call)).expect("a list").body;
        let all = told["amphorae"].as_array().into_iter().flatten();
        all.filter_map(|it| it["id"].as_str().map(str::to_owned)).collect()
    }

    pub(crate) fn limits(&self, what: &str, most: i64) {
        let limits = [(what.to_owned(), most)].into();
        let quotas = self.cloud.load_balancer_quotas(&self.project);
        self.runtime.block_on(quotas.change(&limits)).expect("is done");
    }

    /// No more of that kind in Neutron than there are, or as many as anybody likes.
    pub(crate) fn stops(&self, what: &str, is_full: bool) {
        let quotas = self.cloud.network_quotas(&self.project);
        let most = match is_full {
            true => {
                let used = self.runtime.block_on(quotas.details()).expect("what is used")[what].used;
                i64::try_from(used).expect("few")
            }
            false => -1,
        };
        let limits = [(what.to_owned(), most)].into();
        self.runtime.block_on(quotas.change(&limits)).expect("is done");
    }
}
