//! Who runs the cloud.

use seaway_openstack::{Call, Cloud, Credentials, Method, Service, Settings, Source};
use tokio::runtime::Runtime;

use crate::stage::{AUTH_URL, Land};

/// May do all, and says what the project of a test may.
pub(crate) struct Operator {
    runtime: Runtime,
    cloud: Cloud,
    project: String,
    /// Those of the project's user that let it have load balancers, in Keystone: the first is enough for an Octavia of
    /// today, older ones ask for the second.
    roles: Vec<String>,
}

impl Operator {
    pub(crate) fn of(land: &Land) -> Operator {
        let source = Source::Given(Credentials::password(AUTH_URL, "admin", "adminpw", "admin"));
        let runtime = Runtime::new().expect("a runtime");
        let session = land.cloud.session();
        let project = session.project.as_ref().expect("a project").id.clone();
        let (cloud, roles) = runtime.block_on(async {
            let cloud = Cloud::connect(source, Settings::default()).await.expect("signed in");
            let mut roles = Vec::new();
            for name in ["member", "load-balancer_member"] {
                let named = Call::get(Service::Identity, "roles", "/roles").query("name", name);
                let told = cloud.call(named).await.expect("roles").body;
                let role = told["roles"][0]["id"].as_str().expect("an id");
                roles.push(format!("/projects/{project}/users/{}/roles/{role}", session.user.id));
            }
            (cloud, roles)
        });
        Operator { runtime, cloud, project, roles }
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
