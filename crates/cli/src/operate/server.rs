//! The socket in the state folder by which the same user changes a running process.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use seaway_engine::Handle;
use seaway_node::Host;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{UnixListener, UnixStream},
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::timeout,
};
use tracing::warn;

use super::{Reply, Request, SOCKET, Weights};

/// A request is a line.
const LONGEST: u64 = 64 << 10;
const TO_ASK: Duration = Duration::from_secs(5);
/// The data plane takes a pool over within milliseconds.
const TO_APPLY: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Of a reload, which reads files.
const TO_ANSWER: Duration = Duration::from_secs(60);

/// Asks whoever holds the configuration to read it again, and what came of that.
pub(crate) type ReloadSender = mpsc::Sender<oneshot::Sender<Result<(), String>>>;

/// Open until it is dropped.
pub(crate) struct ControlSocket {
    path: PathBuf,
    task: JoinHandle<()>,
}

/// What requests are carried out with.
pub(crate) struct ControlContext {
    pub(crate) weights: Arc<Weights>,
    pub(crate) handle: Handle,
    pub(crate) host: Arc<Host>,
    pub(crate) reload: ReloadSender,
    /// One after the other, each until it is in effect: what the next one sees is what this one made.
    pub(crate) turn: tokio::sync::Mutex<()>,
}

impl ControlSocket {
    /// The state folder is ours alone while this process runs, and so is what is left there of one that was killed.
    pub(crate) fn open(state: &Path, reach: ControlContext) -> io::Result<ControlSocket> {
        let path = state.join(SOCKET);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        let task = tokio::spawn(serve(listener, Arc::new(reach)));
        Ok(ControlSocket { path, task })
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        self.task.abort();
        // The next process removes it as well.
        let _ = fs::remove_file(&self.path);
    }
}

async fn serve(listener: UnixListener, reach: Arc<ControlContext>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(answer(stream, reach.clone()));
            }
            Err(error) => {
                warn!(%error, "requests of commands such as `seaway drain` and `seaway weight` cannot be \
                               accepted");
                tokio::time::sleep(TO_ASK).await;
            }
        }
    }
}

async fn answer(mut stream: UnixStream, reach: Arc<ControlContext>) {
    let own = nix::unistd::geteuid().as_raw();
    let may = stream.peer_cred().is_ok_and(|it| it.uid() == own || it.uid() == 0);
    if !may {
        return;
    }
    let mut line = String::new();
    let (read, _) = stream.split();
    let mut read = BufReader::new(read.take(LONGEST));
    let reply = match timeout(TO_ASK, read.read_line(&mut line)).await {
        Ok(Ok(_)) => match serde_json::from_str(&line) {
            Ok(request) => {
                // Once begun it is done whole, whoever waits for it.
                let done = tokio::spawn(async move { reach.carry_out(request).await });
                match timeout(TO_ANSWER, done).await {
                    Ok(done) => done.unwrap_or_else(|error| Err(format!("the request failed: {error}"))),
                    Err(_) => Err(format!("the process did not answer within {} s", TO_ANSWER.as_secs())),
                }
            }
            Err(error) => {
                Err(format!("the request cannot be read: {error}; the client may have another version"))
            }
        },
        // Who says nothing is answered nothing.
        _ => return,
    };
    let reply = reply.unwrap_or_else(|why| Reply { error: Some(why), ..Reply::default() });
    let text = serde_json::to_string(&reply).unwrap_or_default();
    // Who asked may be gone.
    let _ = timeout(TO_ASK, stream.write_all(format!("{text}\n").as_bytes())).await;
}

impl ControlContext {
    async fn carry_out(&self, request: Request) -> Result<Reply, String> {
        let ended = || "the process is ending".to_owned();
        let _turn = self.turn.lock().await;
        let (change, mut reply) = match request {
            Request::Weights => {
                let weights = seaway_model::MemberWeights::clone(&self.weights.now());
                return Ok(Reply { weights, ..Reply::default() });
            }
            Request::Reload => {
                let (tell, told) = oneshot::channel();
                self.reload.send(tell).await.map_err(|_| ended())?;
                told.await.map_err(|_| ended())??;
                let lines =
                    vec!["the configuration was read again; manifests are always followed".to_owned()];
                return Ok(Reply { lines, ..Reply::default() });
            }
            Request::Set { what, service, weight, force } => {
                let views = self.views().await.ok_or_else(ended)?;
                self.weights.set(&views, (&what, service.as_deref()), weight, force)?
            }
            Request::TakeBack { what, service } => {
                let views = self.views().await.ok_or_else(ended)?;
                self.weights.take_back(&views, what.as_deref(), service.as_deref())?
            }
        };
        self.handle.changes().send(change).await.map_err(|_| ended())?;
        if timeout(TO_APPLY, self.applied()).await.is_err() {
            reply.lines.push(format!(
                "the change is saved, but the data plane did not apply it within {} s: see the log",
                TO_APPLY.as_secs()
            ));
        }
        Ok(reply)
    }

    /// Until the data plane has the weights that were stored.
    async fn applied(&self) {
        let stored = self.weights.now();
        loop {
            let told = self.handle.ask(|world| (world.operator_weights(), world.overview())).await;
            let Some((planned_with, plan)) = told else { return };
            if planned_with == stored && is_in_effect(&plan, &self.host) {
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    async fn views(&self) -> Option<Vec<seaway_admin::view::ServiceView>> {
        let plan = self.handle.ask(|world| world.overview()).await?;
        Some(seaway_node::service_views(&plan, Some(&self.host)))
    }
}

/// Whether members that are served have the weights that are planned.
fn is_in_effect(plan: &[seaway_plan::Overview], host: &Host) -> bool {
    let served = seaway_node::service_views(plan, Some(host));
    plan.iter().zip(&served).all(|(planned, served)| {
        served.pools.iter().all(|pool| {
            let planned = planned.load_balancer.pools.iter().find(|(id, _)| *id.0 == *pool.id);
            planned.is_none_or(|(_, planned)| {
                let weight = |at: &str| planned.members.iter().find(|it| it.at.to_string() == at);
                pool.members.iter().all(|it| weight(&it.address).is_none_or(|its| its.weight == it.weight))
            })
        })
    })
}
