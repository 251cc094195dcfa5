//! Fields of objects, as `kubectl get OBJECT -o jsonpath=PATH` prints them, without a process for each look.

mod path;

use std::{collections::HashMap, path::PathBuf, sync::mpsc, thread::JoinHandle, time::Duration};

use hyper::{Request, header::ACCEPT};
use kube::{Client, core::Status};
use serde_json::Value;
use tokio::time::timeout;

use self::path::Template;
use super::{
    access::client,
    plane::{KINDS, array, text},
};

/// An API server that hangs is a failed look.
const PATIENCE: Duration = Duration::from_secs(10);

/// A thread that asks. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Reader {
    questions: Option<mpsc::Sender<Question>>,
    thread: Option<JoinHandle<()>>,
}

/// Nothing where the API server says that it is not there.
type Answer = Result<Option<Value>, String>;

struct Question {
    object: String,
    reply: mpsc::Sender<Answer>,
}

impl Reader {
    pub(super) fn start(kubeconfig: PathBuf) -> Reader {
        let (questions, asked) = mpsc::channel::<Question>();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime");
            let mut objects =
                Objects { client: runtime.block_on(client(&kubeconfig)), kinds: HashMap::new() };
            for Question { object, reply } in asked {
                let answer = runtime.block_on(async { timeout(PATIENCE, objects.read(&object)).await });
                // Whoever asked waits for it.
                let _ = reply.send(answer.unwrap_or_else(|_| Err("no answer".to_owned())));
            }
        });
        Reader { questions: Some(questions), thread: Some(thread) }
    }

    /// `KIND/NAME`, or all of a `KIND`, in `default` where it is in a namespace.
    pub(super) fn object(&self, object: &str) -> Answer {
        let (reply, answer) = mpsc::channel();
        let question = Question { object: object.to_owned(), reply };
        self.questions.as_ref().and_then(|it| it.send(question).ok()).ok_or("it has ended")?;
        answer.recv().map_err(|_| "it has ended".to_owned())?
    }

    /// Nothing, if the path has more in it than is read here.
    pub(super) fn field(&self, object: &str, path: &str) -> Option<Result<String, String>> {
        let template = Template::parse(path)?;
        let read = self.object(object).and_then(|it| it.ok_or_else(|| format!("there is no {object}")));
        Some(read.map(|it| template.of(&it)))
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        drop(self.questions.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Objects {
    client: Client,
    /// Paths of collections by all names that a kind has.
    kinds: HashMap<String, String>,
}

impl Objects {
    async fn read(&mut self, object: &str) -> Answer {
        let (kind, name) = object.split_once('/').unwrap_or((object, ""));
        if !self.kinds.contains_key(kind) {
            self.kinds = kinds(&self.client).await.map_err(|it| it.to_string())?;
        }
        let folder = self.kinds.get(kind).ok_or_else(|| format!("there is no kind {kind:?}"))?;
        let path = if name.is_empty() { folder.clone() } else { format!("{folder}/{name}") };
        let request = Request::get(path).body(Vec::new()).expect("a request");
        match self.client.request(request).await {
            Ok(object) => Ok(Some(object)),
            // Of a kind that is not there no name is said.
            Err(kube::Error::Api(status)) if status.code == 404 && is_of(&status, name) => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }
}

fn is_of(status: &Status, name: &str) -> bool {
    status.details.as_ref().is_some_and(|it| it.name == name && !name.is_empty())
}

async fn kinds(client: &Client) -> Result<HashMap<String, String>, kube::Error> {
    let mut kinds = HashMap::new();
    for root in ["/api", "/apis"] {
        let request = Request::get(root).header(ACCEPT, KINDS).body(Vec::new()).expect("a request");
        let groups: Value = client.request(request).await?;
        for group in array(&groups, "items") {
            let name = text(&group["metadata"]["name"]);
            for version in array(group, "versions") {
                let folder = format!("{root}/{name}/{}", text(&version["version"])).replace("//", "/");
                for resource in array(version, "resources") {
                    let plural = text(&resource["resource"]);
                    let names = [plural.clone(), text(&resource["singularResource"])];
                    let short = array(resource, "shortNames").iter().map(text);
                    let place = if resource["scope"] == "Namespaced" { "/namespaces/default" } else { "" };
                    let path = format!("{folder}{place}/{plural}");
                    for name in names.into_iter().chain(short) {
                        // The first group and version that has it, as with kubectl.
                        kinds.entry(name).or_insert_with(|| path.clone());
                    }
                }
            }
        }
    }
    Ok(kinds)
}
