//! One API server for all tests of this program, each in a namespace of its own; and what a World would know of it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use seaway_cluster::{Access, Cluster, Credentials, Pace, Wanted, Watch};
use seaway_model::{
    Change, Fact, Kind, ObjectRef, Problem,
    fact::{FactRef, Service},
};
use tokio::{sync::mpsc, time::timeout};

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Impatient, where patience would only make a test longer.
pub(crate) const PACE: Pace = Pace {
    first_retry: Duration::from_millis(50),
    longest_retry: Duration::from_millis(400),
    look_for: Duration::from_millis(200),
    silence: Duration::from_secs(90),
    answer: Duration::from_secs(10),
};

pub(crate) struct Scene {
    pub(crate) kubeconfig: PathBuf,
    pub(crate) namespace: String,
}

impl Scene {
    /// With our definitions, and a namespace that is this test's.
    pub(crate) fn up(name: &str) -> Option<Scene> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let kubeconfig: PathBuf = std::env::var_os("SEAWAY_TEST_KUBECONFIG")?.into();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let namespace = format!("{name}-{}-{number}", std::process::id());
        let scene = Scene { kubeconfig, namespace };
        scene.apply(seaway_cluster::crds::definitions());
        scene.apply(seaway_cluster::crds::roles());
        scene.kubectl(&[
            "wait",
            "--for=condition=Established",
            "crd",
            "addresses.seaway.dev",
            "addresspools.seaway.dev",
            "loadbalancerhosts.seaway.dev",
        ]);
        scene.kubectl(&["create", "namespace", &scene.namespace]);
        Some(scene)
    }

    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        self.try_kubectl(arguments, "").unwrap_or_else(|error| panic!("kubectl {arguments:?}: {error}"))
    }

    pub(crate) fn try_kubectl(&self, arguments: &[&str], input: &str) -> Result<String, String> {
        use std::io::Write;
        let program = std::env::var("SEAWAY_TEST_KUBECTL").unwrap_or_else(|_| "kubectl".into());
        let mut child = Command::new(program)
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl starts");
        let mut stdin = child.stdin.take().expect("it was asked for");
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        let output = child.wait_with_output().expect("it is a child");
        let text = |it: &[u8]| String::from_utf8_lossy(it).trim_end().to_owned();
        if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
    }

    pub(crate) fn apply(&self, manifest: &str) {
        self.try_kubectl(&["apply", "--server-side", "--force-conflicts", "-f", "-"], manifest)
            .expect("is applied");
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
        let _ = self.try_kubectl(&["delete", "namespace", &self.namespace, "--wait=false"], "");
    }
}

pub(crate) async fn connect(kubeconfig: &Path, pace: Pace) -> Cluster {
    let credentials = Credentials::Kubeconfig { path: kubeconfig.to_owned(), context: None };
    let access = Access { credentials, namespace: Some("default".into()), pace };
    Cluster::connect(access).await.expect("the kubeconfig is good")
}

/// What a World would know.
pub(crate) struct Heard {
    pub(crate) facts: BTreeMap<FactRef, Fact>,
    pub(crate) problems: BTreeMap<ObjectRef, Vec<Problem>>,
    pub(crate) gone: Vec<FactRef>,
    pub(crate) synced: Vec<Kind>,
    pub(crate) puts: usize,
    changes: mpsc::Receiver<Change>,
    watch: Watch,
}

impl Heard {
    pub(crate) fn of(cluster: &Cluster) -> Heard {
        let (tell, changes) = mpsc::channel(1024);
        Heard {
            facts: BTreeMap::new(),
            problems: BTreeMap::new(),
            gone: Vec::new(),
            synced: Vec::new(),
            puts: 0,
            changes,
            watch: cluster.watch(tell),
        }
    }

    pub(crate) fn want(&self, wanted: Wanted) {
        self.watch.want_secrets(wanted);
    }

    /// Waits until something is known.
    pub(crate) async fn until(&mut self, what: &str, holds: impl Fn(&Heard) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !holds(self) {
            let left = until.saturating_duration_since(Instant::now());
            match timeout(left, self.changes.recv()).await {
                Ok(Some(change)) => self.learn(change),
                _ => panic!("it never came to be that {what}: {:#?}", self.problems),
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

    fn learn(&mut self, change: Change) {
        match change {
            Change::Put(fact) => {
                self.puts += 1;
                self.facts.insert(fact.reference(), fact);
            }
            Change::Gone(reference) => {
                assert!(
                    self.facts.remove(&reference).is_some(),
                    "what was never there is gone: {reference:?}"
                );
                self.gone.push(reference);
            }
            Change::Reported(object, problems) => {
                if problems.is_empty() {
                    assert!(self.problems.remove(&object).is_some(), "nothing is mended twice: {object}");
                } else {
                    self.problems.insert(object, problems);
                }
            }
            Change::Synced(kind) => {
                assert!(!self.synced.contains(&kind), "{kind} is told twice");
                self.synced.push(kind);
            }
            other => panic!("a cluster does not say {other:?}"),
        }
    }

    pub(crate) fn service(&self, namespace: &str, name: &str) -> Option<&Service> {
        let reference = FactRef::Object(ObjectRef::new(Kind::Service, namespace, name));
        match self.facts.get(&reference)? {
            Fact::Service(service) => Some(service),
            _ => None,
        }
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
