//! Who sees every change of an Address, and may be the host that serves them all at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    net::IpAddr,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use kube::Client;
use seaway_cluster::{Cluster, ClusterAccess, CredentialSource, ExpiredHostPolicy};
use seaway_model::{Address, Change, Fact, fact::FactRef};
use seaway_testkit::kubernetes::client;
use serde_json::{Value, json};
use tokio::{
    runtime::Runtime,
    sync::{mpsc, oneshot},
};

use crate::scene::A_TERM;

pub(crate) const SERVICES: &str = "/api/v1/namespaces/default/services";
const ADDRESSES: &str = "/apis/seaway.dev/v1alpha1/addresses";
const HOSTS: &str = "/apis/seaway.dev/v1alpha1/loadbalancerhosts";

/// What people see: of each address its state and owners, of each Service what it is told.
pub(crate) type ObservedState = (BTreeMap<String, String>, BTreeMap<String, String>);

/// As above, as tests write it.
pub(crate) fn seen(addresses: &[(&str, &str)], services: &[(&str, &str)]) -> ObservedState {
    let all = |them: &[(&str, &str)]| {
        them.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    (all(addresses), all(services))
}

/// Looks until it is what it should be.
#[track_caller]
pub(crate) fn until_it_is<T: PartialEq + Debug>(what: &str, wanted: &T, mut look: impl FnMut() -> T) {
    let deadline = Instant::now() + A_TERM;
    loop {
        let seen = look();
        if seen == *wanted {
            return;
        }
        assert!(Instant::now() < deadline, "{what}: it is {seen:#?} instead of {wanted:#?}");
        thread::park_timeout(Duration::from_millis(5));
    }
}

/// Asks as an administrator, without a process for each question.
pub(crate) struct ApiClient {
    runtime: Runtime,
    client: Client,
}

impl ApiClient {
    pub(crate) fn to(kubeconfig: &Path) -> ApiClient {
        let runtime = Runtime::new().expect("a runtime");
        let client = runtime.block_on(client(kubeconfig));
        ApiClient { runtime, client }
    }

    pub(crate) fn ask(&self, method: &str, path: &str, body: Option<Value>) -> Result<Value, kube::Error> {
        self.runtime.block_on(ask(&self.client, method, path, body))
    }

    /// As it is now.
    pub(crate) fn seen(&self) -> ObservedState {
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        let of = |it: &Value, each: &dyn Fn(&Value) -> String| {
            let all = it.as_array().into_iter().flatten().map(each);
            all.collect::<Vec<_>>().join(" ")
        };
        let addresses = self.list(ADDRESSES);
        let addresses = addresses.iter().map(|it| {
            let spec = &it["spec"];
            let owners = of(&spec["owners"], &|it| text(&it["name"]));
            (text(&spec["address"]), format!("{} {owners}", spec["state"].as_str().unwrap_or("Held")))
        });
        let services = self.list(SERVICES);
        let services = services.iter().filter(|it| it["spec"]["type"] == "LoadBalancer").map(|it| {
            let status = &it["status"];
            let ips = of(&status["loadBalancer"]["ingress"], &|it| text(&it["ip"]));
            let told =
                of(&status["conditions"], &|it| format!("{}={}", text(&it["reason"]), text(&it["status"])));
            (text(&it["metadata"]["name"]), format!("{ips} {told}"))
        });
        (addresses.collect(), services.collect())
    }

    /// What tells the Addresses of these from those that had their names before.
    pub(crate) fn identities(&self, of: &[&str]) -> BTreeSet<String> {
        let all = self.list(ADDRESSES);
        let wanted =
            all.iter().filter(|it| it["spec"]["address"].as_str().is_some_and(|ip| of.contains(&ip)));
        wanted.map(|it| it["metadata"]["uid"].to_string()).collect()
    }

    fn list(&self, path: &str) -> Vec<Value> {
        let mut listed = self.ask("GET", path, None).unwrap_or_default();
        serde_json::from_value(listed["items"].take()).unwrap_or_default()
    }
}

async fn ask(client: &Client, method: &str, path: &str, body: Option<Value>) -> Result<Value, kube::Error> {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = http::Request::builder().method(method).uri(path).header("content-type", kind);
    let body = body.map(|it| it.to_string().into_bytes()).unwrap_or_default();
    client.request(request.body(body).expect("tests know their paths")).await
}

/// Watches until it is dropped.
pub(crate) struct Witness {
    saw: Arc<Mutex<Observations>>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default, Clone)]
pub(crate) struct Observations {
    pub(crate) addresses: BTreeMap<IpAddr, Arc<Address>>,
    /// What must never be, at whatever moment it was.
    pub(crate) wrong: Vec<String>,
    pub(crate) changes: usize,
}

impl Witness {
    /// `host`: says by this name that it serves whatever was written.
    pub(crate) fn of(kubeconfig: &Path, host: Option<&'static str>) -> Witness {
        let (saw, kubeconfig) = (Arc::<Mutex<Observations>>::default(), kubeconfig.to_owned());
        let (end, ended) = oneshot::channel();
        let tells = saw.clone();
        let thread = thread::spawn(move || {
            Runtime::new().expect("a runtime").block_on(async {
                tokio::select! {
                    _ = ended => {}
                    () = witness(&kubeconfig, host, &tells) => {}
                }
            });
        });
        Witness { saw, end: Some(end), thread: Some(thread) }
    }

    pub(crate) fn saw(&self) -> Observations {
        self.saw.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn witness(kubeconfig: &Path, host: Option<&str>, saw: &Mutex<Observations>) {
    let credentials = CredentialSource::Kubeconfig { path: kubeconfig.to_owned(), context: None };
    let cluster = Cluster::connect(ClusterAccess { credentials, ..ClusterAccess::default() })
        .await
        .expect("a kubeconfig");
    let client = client(kubeconfig).await;
    if let Some(host) = host {
        let object = json!({
            "apiVersion": "seaway.dev/v1alpha1", "kind": "LoadBalancerHost", "metadata": { "name": host },
        });
        ask(&client, "POST", HOSTS, Some(object)).await.expect("a host is made");
    }
    // Whoever reads a watch slowly is sent away by the API server, lists again, and has not seen what was between.
    let (tell, mut changes) = mpsc::channel(10_000);
    let _watch = cluster.watch(tell, ExpiredHostPolicy::Ignored);
    while let Some(change) = changes.recv().await {
        let version = {
            let mut saw = saw.lock().unwrap_or_else(PoisonError::into_inner);
            let first = saw.see(change);
            let more = std::iter::from_fn(|| changes.try_recv().ok());
            more.map(|change| saw.see(change)).fold(first, Option::max)
        };
        if let (Some(host), Some(version)) = (host, version) {
            let status = json!({ "status": { "planVersion": 1, "applied": version.to_string() } });
            let path = format!("{HOSTS}/{host}/status");
            ask(&client, "PATCH", &path, Some(status)).await.expect("it says how far it is");
        }
    }
}

impl Observations {
    /// The version of an Address that was written.
    fn see(&mut self, change: Change) -> Option<u64> {
        match change {
            Change::Put(Fact::Address(now)) => {
                self.changes += 1;
                let owners: BTreeSet<_> = now.owners.iter().collect();
                if owners.len() > 1 && now.sharing.is_none() {
                    self.wrong.push(format!("{} has several owners: {owners:?}", now.ip));
                }
                if let Some(before) = self.addresses.insert(now.ip, now.clone()) {
                    let handed_on = !before.owners.is_empty() && !owners.is_empty();
                    if handed_on && !before.owners.iter().any(|it| owners.contains(it)) {
                        self.wrong.push(format!("{} was {:?}'s and is {owners:?}'s", now.ip, before.owners));
                    }
                }
                Some(now.version)
            }
            Change::Gone(FactRef::Address(ip)) => {
                self.changes += 1;
                self.addresses.remove(&ip);
                None
            }
            _ => None,
        }
    }
}
