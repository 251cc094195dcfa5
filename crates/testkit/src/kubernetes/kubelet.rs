//! Stands in for a node's kubelet, container runtime and network: a thread in the namespace of the node.
//!
//! ```text
//!   API server ── watch ── pods of this node ── one task each ── namespace, programs, probes ── status
//!        └── lease every second, status of the node every ten
//! ```

mod account;
mod heart;
mod logs;
mod pod;
mod probes;
mod program;
mod root;
mod sandbox;
mod volumes;
mod walls;

use std::{collections::HashMap, pin::pin, rc::Rc, sync::Arc, thread::JoinHandle};

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    runtime::{WatchStreamExt, watcher, watcher::Event},
};
use tokio::{
    sync::{oneshot, watch},
    task::LocalSet,
};

use super::{access::client, node::NodeContext};

/// Runs until it is dropped, and all pods with it.
#[derive(Debug)]
pub(super) struct Kubelet {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Kubelet {
    pub(super) fn start(place: Arc<NodeContext>) -> Kubelet {
        let (end, ended) = oneshot::channel();
        let thread = std::thread::spawn(move || {
            let of = place.clone();
            // Threads and sockets that come of it are of the namespace, too.
            place.namespace.run(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                let pods = LocalSet::new();
                pods.block_on(&runtime.expect("a runtime"), async {
                    tokio::select! {
                        _ = ended => {}
                        () = work(of) => {}
                    }
                });
                // With it go the pods, and their namespaces.
                drop(pods);
            });
        });
        Kubelet { end: Some(end), thread: Some(thread) }
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            // What it says of a panic was said already.
            let _ = thread.join();
        }
    }
}

async fn work(place: Arc<NodeContext>) {
    let client = client(&place.kubeconfig).await;
    let _proxy = program::kube_proxy(&place);
    let logs = logs::Logs::serve(&place);
    heart::register(&place, &client, logs.port).await;
    tokio::join!(heart::beat(&place, &client, logs.port), run_pods(&place, &client));
}

async fn run_pods(place: &Arc<NodeContext>, client: &Client) {
    let pods: Api<Pod> = Api::all(client.clone());
    let here = watcher::Config::default().fields(&format!("spec.nodeName={}", place.name));
    let mut events = pin!(watcher(pods, here).default_backoff());
    let addresses = Rc::new(sandbox::Addresses::default());
    let mut told: HashMap<String, watch::Sender<Pod>> = HashMap::new();
    let mut listed = Vec::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => listed.clear(),
            Ok(Event::InitApply(pod)) => {
                listed.extend(pod.metadata.uid.clone());
                tell(place, client, &addresses, &mut told, pod);
            }
            Ok(Event::InitDone) => told.retain(|uid, _| listed.contains(uid)),
            Ok(Event::Apply(pod)) => tell(place, client, &addresses, &mut told, pod),
            Ok(Event::Delete(pod)) => drop(pod.metadata.uid.and_then(|uid| told.remove(&uid))),
            // The API server is away: it is asked again.
            Err(_) => {}
        }
    }
}

/// A pod that is new begins to live; another one hears how it is wanted now.
fn tell(
    place: &Arc<NodeContext>,
    client: &Client,
    addresses: &Rc<sandbox::Addresses>,
    told: &mut HashMap<String, watch::Sender<Pod>>,
    pod: Pod,
) {
    let Some(uid) = pod.metadata.uid.clone() else { return };
    match told.get(&uid) {
        // One whose life has ended hears nothing any more.
        Some(sender) => drop(sender.send(pod)),
        None => {
            let (sender, receiver) = watch::channel(pod);
            told.insert(uid, sender);
            tokio::task::spawn_local(pod::live(place.clone(), client.clone(), addresses.clone(), receiver));
        }
    }
}
