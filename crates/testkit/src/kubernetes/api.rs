//! The API server, asked by HTTP: what would be a process of kubectl for each look and each change costs a twentieth of that.

mod kinds;
mod path;

use std::{
    future::Future,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, mpsc},
    time::Duration,
};

use hyper::{Method, Request, header::CONTENT_TYPE};
use kube::{Client, core::Status};
use serde_json::Value;
use tokio::{
    runtime::{Builder, Runtime},
    time::timeout,
};

use self::kinds::Kinds;
pub(super) use self::{kinds::Kind, path::Template};
use super::access::client;

/// An API server that hangs is a failed look.
const PATIENCE: Duration = Duration::from_secs(10);
/// A change may wait for a webhook, and for a busy machine.
const PATIENCE_OF_CHANGES: Duration = Duration::from_secs(60);
pub(super) const DEFAULT: &str = "default";

/// A thread that asks, as an administrator. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Api {
    runtime: Option<Runtime>,
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    kinds: Mutex<Kinds>,
}

/// A request below the folder of a kind.
#[derive(Clone, Debug, Default)]
pub(super) struct ApiRequest {
    pub(super) method: Method,
    pub(super) namespace: String,
    /// Nothing for all of a kind.
    pub(super) name: String,
    /// `/status`, or nothing.
    pub(super) below: String,
    pub(super) query: String,
    pub(super) content: &'static str,
    pub(super) body: String,
}

/// Who names a kind: a person, or a manifest by its `apiVersion` and `kind`.
#[derive(Clone, Debug)]
pub(super) enum KindRef {
    Word(String),
    Manifest(String, String),
}

#[derive(Debug)]
pub(super) enum ApiError {
    /// The API server says no.
    Refused(Box<Status>),
    NoKind(KindRef),
    Failed(String),
}

impl Api {
    pub(super) fn start(kubeconfig: PathBuf) -> Api {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        // Its caller may be within a runtime.
        let (reply, made) = mpsc::channel();
        runtime.spawn(async move {
            let _ = reply.send(client(&kubeconfig).await);
        });
        let client = made.recv().expect("a client is made");
        Api { runtime: Some(runtime), shared: Arc::new(Shared { client, kinds: Mutex::default() }) }
    }

    /// `KIND/NAME`, or all of a `KIND`, in `default` where it is in a namespace; nothing where the API server says that it is
    /// not there.
    pub(super) fn object(&self, object: &str) -> Result<Option<Value>, String> {
        let (kind, name) = object.split_once('/').unwrap_or((object, ""));
        let ask = ApiRequest { name: name.to_owned(), ..ApiRequest::in_namespace(DEFAULT) };
        match self.ask(KindRef::Word(kind.to_owned()), ask) {
            Ok((_, object)) => Ok(Some(object)),
            Err(fault) if fault.is_gone() => Ok(None),
            Err(fault) => Err(fault.to_string()),
        }
    }

    /// Nothing, if the path has more in it than is read here.
    pub(super) fn field(&self, object: &str, path: &str) -> Option<Result<String, String>> {
        let template = Template::parse(path)?;
        let read = self.object(object).and_then(|it| it.ok_or_else(|| format!("there is no {object}")));
        Some(read.map(|it| template.of(&it)))
    }

    pub(super) fn ask(&self, kind: KindRef, ask: ApiRequest) -> Result<(Kind, Value), ApiError> {
        let patience = if ask.method == Method::GET { PATIENCE } else { PATIENCE_OF_CHANGES };
        let shared = self.shared.clone();
        let asked = self.wait(async move {
            timeout(patience, shared.ask(&kind, &ask)).await.unwrap_or_else(|_| no_answer())
        });
        asked.unwrap_or_else(no_answer)
    }

    fn wait<T: Send + 'static>(&self, job: impl Future<Output = T> + Send + 'static) -> Option<T> {
        let (reply, answer) = mpsc::channel();
        self.runtime.as_ref()?.spawn(async move {
            // Its caller waits for it.
            let _ = reply.send(job.await);
        });
        answer.recv().ok()
    }
}

fn no_answer<T>() -> Result<T, ApiError> {
    Err(ApiError::Failed("no answer".to_owned()))
}

impl Drop for Api {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Whoever drops it may be within another one, where nothing may block.
            runtime.shutdown_background();
        }
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl ApiRequest {
    pub(super) fn in_namespace(namespace: &str) -> ApiRequest {
        ApiRequest { namespace: namespace.to_owned(), ..ApiRequest::default() }
    }
}

impl Shared {
    async fn ask(&self, named: &KindRef, ask: &ApiRequest) -> Result<(Kind, Value), ApiError> {
        let kind = self.kind(named).await?;
        let (kind, mut answer) = match self.send(&kind, ask).await {
            // A definition that was made again may have another version.
            Err(ApiError::Refused(status)) if status.code == 404 && !names_anything(&status) => {
                let kind = self.kind_now(named).await?;
                let answer = self.send(&kind, ask).await?;
                (kind, answer)
            }
            answer => (kind, answer?),
        };
        kind.complete(&mut answer);
        Ok((kind, answer))
    }

    async fn kind(&self, named: &KindRef) -> Result<Kind, ApiError> {
        let known = self.kinds.lock().unwrap_or_else(PoisonError::into_inner).find(named);
        match known {
            Some(kind) => Ok(kind),
            None => self.kind_now(named).await,
        }
    }

    async fn kind_now(&self, named: &KindRef) -> Result<Kind, ApiError> {
        let now = Kinds::read(&self.client).await.map_err(fault)?;
        let mut kinds = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        *kinds = now;
        kinds.find(named).ok_or_else(|| ApiError::NoKind(named.clone()))
    }

    async fn send(&self, kind: &Kind, ask: &ApiRequest) -> Result<Value, ApiError> {
        let mut path = kind.folder(&ask.namespace);
        if !ask.name.is_empty() {
            path += &format!("/{}{}", ask.name, ask.below);
        }
        if !ask.query.is_empty() {
            path += &format!("?{}", ask.query);
        }
        let mut request = Request::builder().method(&ask.method).uri(path);
        if !ask.content.is_empty() {
            request = request.header(CONTENT_TYPE, ask.content);
        }
        let request = request.body(ask.body.clone().into_bytes());
        let request = request.map_err(|it| ApiError::Failed(it.to_string()))?;
        self.client.request(request).await.map_err(fault)
    }
}

fn fault(error: kube::Error) -> ApiError {
    match error {
        kube::Error::Api(status) => ApiError::Refused(status),
        error => ApiError::Failed(error.to_string()),
    }
}

/// Of a kind that is not there no name is said.
fn names_anything(status: &Status) -> bool {
    status.details.as_ref().is_some_and(|it| !it.name.is_empty())
}

impl ApiError {
    /// The object is not there, though its kind is.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self, ApiError::Refused(status) if status.code == 404 && names_anything(status))
    }
}

/// In the words of kubectl.
impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ApiError::Refused(status) => {
                write!(f, "Error from server ({}): {}", status.reason, status.message)
            }
            ApiError::NoKind(KindRef::Word(word)) => {
                write!(f, "error: the server doesn't have a resource type \"{word}\"")
            }
            ApiError::NoKind(KindRef::Manifest(version, kind)) => {
                write!(f, "no matches for kind \"{kind}\" in version \"{version}\"")
            }
            ApiError::Failed(why) => f.write_str(why),
        }
    }
}
