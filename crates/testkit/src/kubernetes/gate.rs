use std::{
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    sync::Arc,
};

use hyper::{
    Request,
    body::Incoming,
    header::{CONNECTION, HOST},
};
use kube::{Client, client::Body};
use tokio::sync::watch;

use super::{Cluster, client};
use crate::{
    faults::Fault,
    gate::{Answer, Between},
    server::{Lost, Server, accept, bind, converse, whole},
};

/// A way to the API server on which a test scripts what goes wrong, counts what goes through, and which it may freeze.
///
/// Whoever goes this way needs no credentials: beyond it is whoever the gate was made for. Watches go through as streams.
#[derive(Debug)]
pub struct Gate {
    kubeconfig: PathBuf,
    shared: Arc<Shared>,
    _server: Server,
}

#[derive(Debug, Default)]
struct Shared {
    between: Between,
    frozen: watch::Sender<bool>,
}

impl Gate {
    /// For whoever is in the network in which the cluster was made. `beyond`: a kubeconfig of who goes on from here.
    #[track_caller]
    pub fn here(beyond: &Path) -> Gate {
        Gate::new(bind(Ipv4Addr::LOCALHOST.into()), beyond)
    }

    /// For whoever is on a node or in another namespace of the cluster.
    #[track_caller]
    pub fn inside(cluster: &Cluster, beyond: &Path) -> Gate {
        let at: IpAddr = super::plane::ADDRESSES[0].parse().expect("an address");
        // A socket stays in the network in which it was made.
        Gate::new(cluster.control().run(|| bind(at)), beyond)
    }

    #[track_caller]
    fn new(listening: std::io::Result<(std::net::TcpListener, std::net::SocketAddr)>, beyond: &Path) -> Gate {
        let (listener, at) = listening.expect("a free port");
        let kubeconfig = beyond.with_file_name(format!("kubeconfig-gate-{}", at.port()));
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: gate\n\
             contexts: [{{name: gate, context: {{cluster: gate, user: gate}}}}]\n\
             clusters: [{{name: gate, cluster: {{server: 'http://{at}'}}}}]\nusers: [{{name: gate, user: {{}}}}]\n"
        );
        std::fs::write(&kubeconfig, text).expect("a temporary folder is written to");
        let shared = Arc::<Shared>::default();
        let (serves, beyond) = (shared.clone(), beyond.to_owned());
        let server = Server::start("gate", move || serve(listener, beyond, serves)).expect("a thread");
        Gate { kubeconfig, shared, _server: server }
    }

    /// That leads through it.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Scripts what goes wrong. A path is as in `"PATCH */services/*/status"`.
    pub fn fail(&self, fault: Fault) {
        self.shared.between.fail(fault);
    }

    /// Forgets all that was scripted; what is held is still held.
    pub fn heal(&self) {
        self.shared.between.heal();
    }

    /// Method and path of every request so far, in the order in which they came.
    pub fn requests(&self) -> Vec<(String, String)> {
        self.shared.between.requests()
    }

    /// Those that would change something, but for Leases.
    pub fn writes(&self) -> Vec<(String, String)> {
        let mut all = self.requests();
        all.retain(|(method, path)| method != "GET" && !path.contains("/leases"));
        all
    }

    /// Counts anew.
    pub fn forget_requests(&self) {
        self.shared.between.forget_requests();
    }

    /// How many fit a pattern like `"GET */services"`.
    pub fn count(&self, pattern: &str) -> usize {
        self.shared.between.count(pattern)
    }

    /// What is connected stays so, and never hears anything again; who comes is not answered.
    pub fn freeze(&self) {
        self.shared.frozen.send_replace(true);
    }

    /// What was connected is dead; new connections go through.
    pub fn thaw(&self) {
        self.shared.frozen.send_replace(false);
    }
}

async fn serve(listener: std::net::TcpListener, beyond: PathBuf, shared: Arc<Shared>) {
    let client = client(&beyond).await;
    accept(listener, |stream| {
        let (shared, client) = (shared.clone(), client.clone());
        async move {
            let mut frozen = shared.frozen.subscribe();
            let talk = converse(stream, move |request| respond(request, shared.clone(), client.clone()));
            let mut talk = std::pin::pin!(talk);
            let caught = tokio::select! {
                biased;
                Ok(_) = frozen.wait_for(|it| *it) => true,
                () = &mut talk => false,
            };
            if caught {
                // While it is kept, not even the end of the connection is heard.
                std::future::pending().await
            }
        }
    })
    .await;
}

async fn respond(request: Request<Incoming>, shared: Arc<Shared>, client: Client) -> Result<Answer, Lost> {
    let (mut head, body) = request.into_parts();
    let (method, path) = (head.method.to_string(), head.uri.path().to_owned());
    head.headers.remove(HOST);
    head.headers.remove(CONNECTION);
    let request = Request::from_parts(head, Body::from(whole(body).await?.to_vec()));
    let passed = async move { client.send(request).await.map_err(|_| Lost) };
    shared.between.respond(&method, &path, passed, own_words).await
}

/// As an API server refuses.
fn own_words(status: u16) -> String {
    let reason = match status {
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        429 => "TooManyRequests",
        _ => "InternalError",
    };
    serde_json::json!({
        "apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure",
        "reason": reason, "message": "Scripted by a test.", "code": status,
    })
    .to_string()
}
