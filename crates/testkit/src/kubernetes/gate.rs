use std::{
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream};
use http_body_util::{BodyExt, StreamBody, combinators::UnsyncBoxBody};
use hyper::{
    Request, Response,
    body::{Bytes, Frame, Incoming},
    header::{CONNECTION, HOST},
};
use kube::{Client, client::Body};
use tokio::{sync::watch, time::sleep};

use super::{Cluster, client};
use crate::{
    faults::Fault,
    gate::{Answer, GateState},
    server::{ConnectionLost, Server, accept, bind, converse, whole},
};

/// Of an answer that is slow: so many bytes at once, and so long after those before.
const PIECE: (usize, Duration) = (64, Duration::from_millis(1));

/// A way to the API server on which a test scripts what goes wrong, counts what goes through, and which it may freeze or slow
/// down.
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
    between: GateState,
    line: watch::Sender<LinkState>,
}

#[derive(Clone, Copy, Debug, Default)]
struct LinkState {
    frozen: bool,
    /// How often all that was connected became half open.
    stalls: usize,
    slow: bool,
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

    /// How many of them were answered with success.
    pub fn done(&self, pattern: &str) -> usize {
        self.shared.between.done(pattern)
    }

    /// What is connected stays so, and never hears anything again; who comes is not answered.
    pub fn freeze(&self) {
        self.shared.line.send_modify(|it| it.frozen = true);
    }

    /// What was connected is dead; new connections go through.
    pub fn thaw(&self) {
        self.shared.line.send_modify(|it| it.frozen = false);
    }

    /// What is connected stays so, and never hears anything again; new connections go through. A firewall that has forgotten a
    /// connection does so.
    pub fn stall(&self) {
        self.shared.line.send_modify(|it| it.stalls += 1);
    }

    /// Whatever is answered from now on comes a few bytes at a time.
    pub fn slow_down(&self) {
        self.shared.line.send_modify(|it| it.slow = true);
    }
}

async fn serve(listener: std::net::TcpListener, beyond: PathBuf, shared: Arc<Shared>) {
    let client = client(&beyond).await;
    accept(listener, |stream| {
        let (shared, client) = (shared.clone(), client.clone());
        async move {
            let mut line = shared.line.subscribe();
            let stalls = line.borrow().stalls;
            let talk = converse(stream, move |request| respond(request, shared.clone(), client.clone()));
            let mut talk = std::pin::pin!(talk);
            let caught = tokio::select! {
                biased;
                Ok(_) = line.wait_for(|it| it.frozen || it.stalls != stalls) => true,
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

type Passed = Response<UnsyncBoxBody<Bytes, kube::Error>>;

async fn respond(
    request: Request<Incoming>,
    shared: Arc<Shared>,
    client: Client,
) -> Result<Passed, ConnectionLost> {
    let (mut head, body) = request.into_parts();
    let (method, path) = (head.method.to_string(), head.uri.path().to_owned());
    head.headers.remove(HOST);
    head.headers.remove(CONNECTION);
    let request = Request::from_parts(head, Body::from(whole(body).await?.to_vec()));
    let passed = async move { client.send(request).await.map_err(|_| ConnectionLost) };
    let answer = shared.between.respond(&method, &path, passed, own_words).await?;
    let slow = shared.line.borrow().slow;
    Ok(if slow { slowly(answer) } else { answer.map(Body::boxed_unsync) })
}

fn slowly(answer: Answer) -> Passed {
    let (head, body) = answer.into_parts();
    let (size, pause) = PIECE;
    let pieces = body.into_data_stream().flat_map(move |chunk| {
        let pieces = match chunk {
            Ok(bytes) => bytes.chunks(size).map(|it| Ok(Frame::data(bytes.slice_ref(it)))).collect(),
            Err(error) => vec![Err(error)],
        };
        stream::iter(pieces).then(move |it| async move {
            sleep(pause).await;
            it
        })
    });
    Response::from_parts(head, StreamBody::new(pieces).boxed_unsync())
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
