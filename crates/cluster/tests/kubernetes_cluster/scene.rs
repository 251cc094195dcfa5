//! One API server for all tests of this program, each in a namespace of its own; and what a World would know of it.

use std::{
    ops::Deref,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use seaway_cluster::{
    Cluster, ClusterAccess, CredentialSource, ExpiredHostPolicy, WantedSecrets, Watch, WatchTimings,
};
use seaway_model::{Change, Kind, ObjectRef, Problem};
use seaway_testkit::{kubernetes, source_reports::SourceReports};
use tokio::{
    sync::{Mutex as Turns, mpsc},
    time::timeout,
};

pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Impatient, where patience would only make a test longer.
pub(crate) const PACE: WatchTimings = WatchTimings {
    first_retry: Duration::from_millis(50),
    longest_retry: Duration::from_millis(400),
    look_for: Duration::from_millis(200),
    silence: Duration::from_secs(90),
    answer: Duration::from_secs(10),
    pulse: Duration::from_millis(200),
    quarantine: Duration::from_secs(3_600),
    slices: Duration::from_millis(200),
    gather: Duration::from_millis(200),
};

/// Whoever adds kinds of others to the cluster that all share, or takes them away, holds this.
pub(crate) static KINDS_OF_OTHERS: Turns<()> = Turns::const_new(());

/// An Address that one of the tests breaks, for all who look.
pub(crate) const BROKEN: &str = "198-51-100-9";

pub(crate) struct Scene {
    pub(crate) cluster: Arc<kubernetes::Cluster>,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) namespace: String,
}

/// Up until this program ends, unless a test fails in it.
static SHARED: Mutex<Option<Arc<kubernetes::Cluster>>> = Mutex::new(None);

fn shared() -> Option<Arc<kubernetes::Cluster>> {
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if shared.is_none() {
        let cluster = Arc::new(kubernetes::Cluster::up(&kubernetes::Options::default())?);
        cluster.define(seaway_cluster::crds::definitions());
        cluster.apply(seaway_cluster::crds::roles());
        *shared = Some(cluster);
    }
    shared.clone()
}

impl Scene {
    /// With our definitions, and a namespace that is this test's.
    pub(crate) fn up(name: &str) -> Option<Scene> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let cluster = shared()?;
        let namespace = format!("{name}-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        cluster.kubectl(&["create", "namespace", &namespace]);
        Some(Scene { kubeconfig: cluster.kubeconfig().to_owned(), cluster, namespace })
    }

    /// A cluster of this test's own, which knows nothing of us yet.
    pub(crate) fn alone() -> Option<Scene> {
        let cluster = Arc::new(kubernetes::Cluster::up(&kubernetes::Options::default())?);
        Some(Scene { kubeconfig: cluster.kubeconfig().to_owned(), cluster, namespace: "default".to_owned() })
    }

    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        self.cluster.kubectl(arguments)
    }

    pub(crate) fn try_kubectl(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        self.cluster.try_kubectl(arguments, input)
    }

    pub(crate) fn apply(&self, manifest: &str) {
        self.cluster.apply(manifest);
    }

    /// In this test's namespace.
    pub(crate) fn here(&self, arguments: &[&str]) -> String {
        let all: Vec<&str> = ["-n", &self.namespace].into_iter().chain(arguments.iter().copied()).collect();
        self.kubectl(&all)
    }

    pub(crate) fn apply_here(&self, manifest: &str) {
        self.try_kubectl(&["apply", "-n", &self.namespace, "-f", "-"], manifest).expect("is applied");
    }

    pub(crate) async fn connect(&self) -> Cluster {
        connect(&self.kubeconfig, PACE).await
    }

    pub(crate) async fn watch(&self) -> Heard {
        Heard::of(&self.connect().await)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.cluster.spoil();
            // Tests that have begun go on in it.
            let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
            drop(shared.take_if(|it| Arc::ptr_eq(it, &self.cluster)));
        }
    }
}

/// Why watches of this thread ended is printed, if the test fails.
pub(crate) fn logged() -> tracing::subscriber::DefaultGuard {
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter("seaway_cluster=info,seaway_cluster::watch::reflector=debug")
        .with_ansi(false)
        .with_test_writer()
        .finish();
    tracing::subscriber::set_default(subscriber)
}

pub(crate) async fn connect(kubeconfig: &Path, pace: WatchTimings) -> Cluster {
    let credentials = CredentialSource::Kubeconfig { path: kubeconfig.to_owned(), context: None };
    // Tests have namespaces of their own, all at once: pools of all are read.
    let namespace = Some("default".into());
    let access = ClusterAccess { credentials, namespace, metallb: "".into(), copies: None, pace };
    Cluster::connect(access).await.expect("the kubeconfig is good")
}

/// What a World would know.
pub(crate) struct Heard {
    told: SourceReports,
    changes: mpsc::Receiver<Change>,
    watch: Watch,
}

impl Deref for Heard {
    type Target = SourceReports;

    fn deref(&self) -> &SourceReports {
        &self.told
    }
}

impl Heard {
    pub(crate) fn of(cluster: &Cluster) -> Heard {
        let (tell, changes) = mpsc::channel(1024);
        Heard {
            told: SourceReports::default(),
            changes,
            watch: cluster.watch(tell, ExpiredHostPolicy::Watched),
        }
    }

    pub(crate) fn want(&self, wanted: WantedSecrets) {
        self.watch.secret_interest().set_wanted(wanted);
    }

    /// Waits until something is known.
    pub(crate) async fn until(&mut self, what: &str, holds: impl Fn(&Heard) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !holds(self) {
            let left = until.saturating_duration_since(Instant::now());
            match timeout(left, self.changes.recv()).await {
                Ok(Some(change)) => self.told.learn(change),
                _ => panic!("it never came to be that {what}: {:#?}", self.problems),
            }
        }
    }

    /// Listens until something else is done.
    pub(crate) async fn during<T>(&mut self, other: impl Future<Output = T>) -> T {
        let mut other = std::pin::pin!(other);
        loop {
            tokio::select! {
                done = &mut other => return done,
                Some(change) = self.changes.recv() => self.told.learn(change),
            }
        }
    }

    pub(crate) async fn until_synced(&mut self) {
        self.until("all kinds are told", |it| {
            [
                Kind::Service,
                Kind::EndpointSlice,
                Kind::Node,
                Kind::Namespace,
                Kind::Address,
                Kind::AddressPool,
            ]
            .iter()
            .all(|kind| it.synced.contains(kind))
        })
        .await;
    }

    /// What is wrong, but for what other tests break meanwhile.
    pub(crate) fn wrong(&self, scene: &Scene) -> Vec<(&ObjectRef, &Vec<Problem>)> {
        let of_others = |it: &ObjectRef| match it.namespace.as_str() {
            "" => it.kind == Kind::Address && it.name.as_str() == BROKEN,
            other => other != scene.namespace,
        };
        self.problems.iter().filter(|(it, _)| !of_others(it)).collect()
    }

    pub(crate) fn told_of(&self, object: &ObjectRef) -> String {
        let problems = self.problems.get(object).into_iter().flatten();
        problems.map(|it| format!("{it} → {}\n", it.fix)).collect()
    }
}

/// Waits for something that is no Change.
pub(crate) async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < until, "it never came to be that {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
