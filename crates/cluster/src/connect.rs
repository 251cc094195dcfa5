//! Who we are to the API server, and how it is asked.

use std::{
    future::Future,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client, Config, Resource,
    config::{KubeConfigOptions, Kubeconfig},
    core::DynamicResourceScope,
};
use seaway_model::{Kind, Name};
use sha2::{Digest as _, Sha256};
use tokio::{sync::watch, time::timeout};
use tracing::{debug, warn};

mod counted;
mod keepalive;
mod kubeconfig;

pub use self::kubeconfig::KubeconfigFault;
use crate::{
    api_error::{ApiError, Cause},
    counts::ApiServerMetrics,
    kinds::{WatchTimings, WatchedKind},
    object_cache::ObjectCache,
    raw_object::RawObject,
};

/// How the API server is reached.
#[derive(Clone, Debug)]
pub struct ClusterAccess {
    pub credentials: CredentialSource,
    /// Where our Leases are; else the pod's own namespace, or `seaway-system`.
    pub namespace: Option<Name>,
    /// MetalLB's own: IPAddressPools of others are not read, as MetalLB does not read them.
    pub metallb: Name,
    /// Certificates are read as copies in this namespace, and no other Secrets are watched. For hosts.
    pub copies: Option<Name>,
    pub pace: WatchTimings,
}

impl ClusterAccess {
    pub const METALLB: &str = "metallb-system";
}

impl Default for ClusterAccess {
    fn default() -> ClusterAccess {
        ClusterAccess {
            credentials: CredentialSource::default(),
            namespace: None,
            metallb: ClusterAccess::METALLB.into(),
            copies: None,
            pace: WatchTimings::default(),
        }
    }
}

/// Tokens in files are read again each minute, exec plugins asked again when what they gave expires; a kubeconfig is
/// read again when the API server no longer knows us.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CredentialSource {
    /// As kubectl finds them: `$KUBECONFIG`, `~/.kube/config`; else those of the pod.
    #[default]
    Detected,
    Kubeconfig {
        path: PathBuf,
        context: Option<String>,
    },
    /// As kubectl finds them, in another context.
    Context(String),
    /// Those of the pod's ServiceAccount.
    InCluster,
}

/// Why there is no way to the API server that could be tried.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error("the kubeconfig {} cannot be used: correct it, or name another with --kubeconfig FILE", path.display())]
    Kubeconfig {
        path: PathBuf,
        #[source]
        source: KubeconfigFault,
    },
    #[error("the kubeconfig cannot be used: correct it, or name another with --kubeconfig FILE")]
    Detected(#[source] KubeconfigFault),
    #[error("the context {context} of the kubeconfig cannot be used: see kubectl config get-contexts")]
    Context {
        context: String,
        #[source]
        source: KubeconfigFault,
    },
    #[error(
        "this process does not run in a pod, or the pod has no ServiceAccount: name a kubeconfig with --kubeconfig FILE"
    )]
    InCluster(#[source] kube::config::InClusterError),
    #[error(
        "there is neither a kubeconfig nor the ServiceAccount of a pod: name a kubeconfig with --kubeconfig FILE"
    )]
    NotFound(#[source] kube::config::InClusterError),
    #[error("the credentials cannot be used")]
    Unusable(#[source] Box<kube::Error>),
}

/// A cluster, by its API server. Cheap to clone.
#[derive(Clone)]
pub struct Cluster(Arc<Inner>);

struct Inner {
    access: ClusterAccess,
    server: Name,
    authority: Name,
    namespace: Name,
    client: Mutex<Client>,
    renewed: Mutex<Instant>,
    /// Whoever still waits for something on connections of before need not wait any more.
    anew: watch::Sender<()>,
    seen: ObjectCache,
    counts: Arc<ApiServerMetrics>,
}

/// A kubeconfig is not read more often than this.
const RENEW: Duration = Duration::from_secs(10);
const NAMESPACE: &str = "seaway-system";
pub(crate) use seaway_manifests::MANAGER;

impl Cluster {
    /// Reads the credentials; sends no request yet.
    pub async fn connect(access: ClusterAccess) -> Result<Cluster, AccessError> {
        let counts = Arc::<ApiServerMetrics>::default();
        let ConnectionConfig { client, server, authority, own } = find(&access, &counts).await?;
        let namespace = access.namespace.clone().or(own).unwrap_or_else(|| NAMESPACE.into());
        Ok(Cluster(Arc::new(Inner {
            access,
            server,
            authority,
            namespace,
            client: Mutex::new(client),
            renewed: Mutex::new(Instant::now()),
            anew: watch::Sender::new(()),
            seen: ObjectCache::default(),
            counts,
        })))
    }

    /// What tells this cluster from every other: the UID of its namespace `kube-system`.
    pub async fn identity(&self) -> Result<Name, RequestError> {
        let api: Api<Namespace> = Api::all(self.client());
        let namespace = self.within_deadline(api.get("kube-system")).await.map_err(RequestError)?;
        Ok(namespace.metadata.uid.unwrap_or_default().into())
    }

    /// The API server's URL, as it was found at first.
    pub fn server_url(&self) -> &Name {
        &self.0.server
    }

    /// A digest of the authorities that the API server's certificate may be of: what tells clusters with the same URL apart, without an
    /// API server. Empty where only those of the machine are trusted.
    pub fn authority(&self) -> &Name {
        &self.0.authority
    }

    /// Where our Leases are.
    pub fn namespace(&self) -> &Name {
        &self.0.namespace
    }

    pub(crate) fn pace(&self) -> WatchTimings {
        self.0.access.pace
    }

    /// Where copies of certificates are read, instead of Secrets.
    pub(crate) fn copies_namespace(&self) -> Option<&Name> {
        self.0.access.copies.as_ref()
    }

    /// What is asked of the API server, and heard of it.
    pub fn counts(&self) -> &Arc<ApiServerMetrics> {
        &self.0.counts
    }

    pub(crate) fn cache(&self) -> &ObjectCache {
        &self.0.seen
    }

    pub(crate) fn client(&self) -> Client {
        lock(&self.0.client).clone()
    }

    /// The client for a kind, in all namespaces that are read.
    pub(crate) fn api(&self, watched: &WatchedKind) -> Api<RawObject> {
        match (watched.kind, self.copies_namespace()) {
            (kind, _) if kind.is_of_metallb() => self.namespaced_api(watched, &self.0.access.metallb),
            (Kind::Secret, Some(copies)) => self.namespaced_api(watched, copies),
            _ => Api::all_with(self.client(), &watched.resource()),
        }
    }

    pub(crate) fn namespaced_api(&self, watched: &WatchedKind, namespace: &str) -> Api<RawObject> {
        namespaced(self.client(), watched, namespace)
    }

    /// Awaits a request to the API server for at most `pace().answer`, and turns errors into an [`ApiError`].
    pub(crate) async fn within_deadline<T>(
        &self,
        question: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, ApiError> {
        let patience = self.pace().answer;
        let answer = tokio::select! {
            answer = timeout(patience, question) => match answer {
                Ok(answer) => answer.map_err(|error| ApiError::of(&error)),
                Err(_) => Err(ApiError::Unreachable(Cause::Connection, format!("timed out after {patience:?}"))),
            },
            () = self.requests_restarted() => return Err(ApiError::Unreachable(Cause::Connection, "the connection to \
                                                                                         the API server \
                                                                                         was closed".to_owned())),
        };
        // Connections that are kept for the next question may be as dead as this one.
        if let Err(ApiError::Unauthorized(_) | ApiError::Unreachable(..)) = &answer {
            self.reload_credentials().await;
        }
        answer
    }

    /// Closes all connections, and reads the credentials again: their files may have other contents by now.
    pub(crate) async fn reload_credentials(&self) {
        {
            let mut renewed = lock(&self.0.renewed);
            if renewed.elapsed() < RENEW.min(self.pace().longest_retry) {
                return;
            }
            *renewed = Instant::now();
        }
        self.reconnect().await;
    }

    /// Ends all requests and watches that began before, and opens a new connection: the API server answers again, but their
    /// connections may be dead.
    pub(crate) async fn restart_requests(&self) {
        self.reconnect().await;
        self.0.anew.send_replace(());
    }

    /// Returns at the next [`restart_requests`](Cluster::restart_requests): whoever waits for an answer has to ask again.
    pub(crate) fn requests_restarted(&self) -> impl Future<Output = ()> + use<> {
        let mut anew = self.0.anew.subscribe();
        async move {
            if anew.changed().await.is_err() {
                std::future::pending().await
            }
        }
    }

    /// As [`reload_credentials`](Cluster::reload_credentials) does, however long ago the last time was.
    pub(crate) async fn reconnect(&self) {
        match find(&self.0.access, &self.0.counts).await {
            Ok(found) => {
                *lock(&self.0.client) = found.client;
                debug!("the credentials were read again");
            }
            Err(error) => warn!("the credentials cannot be read again: {}", seaway_engine::chain(&error)),
        }
    }
}

fn namespaced<K>(client: Client, watched: &WatchedKind, namespace: &str) -> Api<K>
where
    K: Resource<DynamicType = kube::core::ApiResource, Scope = DynamicResourceScope>,
{
    match namespace {
        "" => Api::all_with(client, &watched.resource()),
        namespace => Api::namespaced_with(client, namespace, &watched.resource()),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct ConnectionConfig {
    client: Client,
    server: Name,
    authority: Name,
    /// The namespace of the pod that we are.
    own: Option<Name>,
}

async fn find(
    access: &ClusterAccess,
    counts: &Arc<ApiServerMetrics>,
) -> Result<ConnectionConfig, AccessError> {
    let mut own = None;
    let mut config = match &access.credentials {
        CredentialSource::Detected => {
            let config = detect().await?;
            let pod = Config::incluster().ok().filter(|pod| pod.cluster_url == config.cluster_url);
            own = pod.map(|it| Name::from(it.default_namespace));
            config
        }
        CredentialSource::InCluster => {
            let config = Config::incluster().map_err(AccessError::InCluster)?;
            own = Some(Name::from(&*config.default_namespace));
            config
        }
        CredentialSource::Context(context) => {
            let fail = |source| AccessError::Context { context: context.clone(), source };
            let file = kubeconfig::find().map_err(fail)?;
            configured(file, Some(context)).await.map_err(fail)?
        }
        CredentialSource::Kubeconfig { path, context } => {
            let fail = |source| AccessError::Kubeconfig { path: path.clone(), source };
            let file = kubeconfig::read(path).map_err(fail)?;
            configured(file, context.as_ref()).await.map_err(fail)?
        }
    };
    config.connect_timeout = Some(access.pace.answer);
    config.write_timeout = Some(access.pace.answer);
    // A watch that is silent ends by itself before; this ends what else may hang.
    config.read_timeout = Some(access.pace.silence.saturating_add(access.pace.answer));
    // What fails is tried again by who knows what it is for.
    config.default_retry = false;
    let server = config.cluster_url.to_string().into();
    let authority = digest(config.root_cert.as_deref().unwrap_or_default());
    let client =
        keepalive::client(config, counts.clone()).map_err(|error| AccessError::Unusable(Box::new(error)))?;
    Ok(ConnectionConfig { client, server, authority, own })
}

fn digest(certificates: &[Vec<u8>]) -> Name {
    if certificates.is_empty() {
        return Name::default();
    }
    let digest = certificates.iter().fold(Sha256::new(), |digest, it| digest.chain_update(it)).finalize();
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect::<String>().into()
}

/// As kubectl does: without a kubeconfig, or with an empty one, those of the pod. One that cannot be read is a mistake, not a reason to
/// ask another cluster.
async fn detect() -> Result<Config, AccessError> {
    let found = match kubeconfig::find() {
        Ok(file) if !kubeconfig::is_empty(&file) => {
            return configured(file, None).await.map_err(AccessError::Detected);
        }
        Ok(_) => None,
        Err(fault) if fault.is_absence() => Some(fault),
        Err(fault) => return Err(AccessError::Detected(fault)),
    };
    if let Some(fault) = found {
        debug!(%fault, "no kubeconfig");
    }
    Config::incluster().map_err(AccessError::NotFound)
}

async fn configured(file: Kubeconfig, context: Option<&String>) -> Result<Config, KubeconfigFault> {
    let options = KubeConfigOptions { context: context.cloned(), ..KubeConfigOptions::default() };
    Ok(Config::from_custom_kubeconfig(file, &options).await?)
}

/// Why a request to the API server failed.
#[derive(Debug, thiserror::Error)]
#[error("{}", .0.why())]
pub struct RequestError(pub(crate) ApiError);

impl RequestError {
    /// As of an API server that does not answer.
    pub fn unreachable(why: &str) -> RequestError {
        RequestError(ApiError::Unreachable(Cause::Connection, why.to_owned()))
    }

    /// As of one whose roles do not let us.
    pub fn forbidden(why: &str) -> RequestError {
        RequestError(ApiError::Forbidden(why.to_owned()))
    }

    /// No other request is answered either.
    pub fn is_unreachable(&self) -> bool {
        matches!(self.0, ApiError::Unreachable(..))
    }

    /// A role is missing.
    pub fn is_forbidden(&self) -> bool {
        matches!(self.0, ApiError::Forbidden(_))
    }

    /// There is no such object.
    pub fn is_not_found(&self) -> bool {
        matches!(self.0, ApiError::NotFound)
    }
}
