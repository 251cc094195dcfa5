//! What a host does beside serving.

use anyhow::{Context, Result, bail};
use seaway_admin::BoundSockets;
use seaway_cluster::StatusPage;
use seaway_files::pem::PemWatch;
use seaway_model::{Change, Kind, Name, ObjectRef, Problem, Reason};
use seaway_node::Host;
use tokio::sync::{mpsc, watch};

use crate::{
    args::{Pod, ProcessArgs},
    run::start_proxy,
    settings::{Settings, data_plane::DataPlane, doubts::log_addresses},
};

/// With HAProxy, the sockets are HAProxy's, and Seaway cannot pass them on: the next process would wait for what never comes.
pub(super) fn require_native_for_handover(arguments: &ProcessArgs, settings: &Settings) -> Result<()> {
    if arguments.handover.is_some() && settings.data_plane != DataPlane::Native {
        bail!(
            "--handover passes sockets of Seaway itself, and with dataPlane.driver haproxy HAProxy has them: leave out --handover, in a DaemonSet also set updateStrategy.rollingUpdate to {{maxSurge: 0, maxUnavailable: 1}}; or set dataPlane.driver: native"
        )
    }
    Ok(())
}

/// What serves here, by the driver that the configuration names.
pub(super) fn host(settings: &Settings) -> Result<Host> {
    let (name, ports) = (settings.host.clone(), settings.config.tenants.reserved_ports.clone());
    let haproxy = settings.data_plane.start_haproxy(&name).map(|it| it.reserving(ports.clone()));
    log_addresses(settings);
    let host = Host::in_cluster(name, start_proxy(settings)?, settings.addresses.clone(), ports);
    Ok(match haproxy {
        Some(haproxy) => host.with_haproxy(haproxy),
        None => host,
    })
}

/// Reads those of files, and tells of every change from then on.
pub(super) async fn certificates(settings: &Settings, tell: &mpsc::Sender<Change>) -> Result<PemWatch> {
    let later = tell.clone();
    let sink = move |changes: Vec<Change>| {
        for change in changes {
            // The engine may have ended; then nobody needs to know.
            let _ = later.blocking_send(change);
        }
    };
    let watching = PemWatch::start(&settings.pems, sink);
    let (pems, first) = watching.context("certificates in files cannot be watched")?;
    for change in first {
        tell.send(change).await.context("the engine ended")?;
    }
    Ok(pems)
}

/// Where this pod's status page is read by whoever asks the API server.
pub(super) fn page(pod: &Pod, bound: &BoundSockets) -> Option<StatusPage> {
    let (at, name, namespace) = (pod.pod_address?, pod.pod_name.as_ref()?, pod.pod_namespace.as_ref()?);
    let addresses = bound.wanted_addresses();
    let port = addresses.iter().find(|it| it.ip() == at).or(addresses.first())?.port();
    Some(StatusPage { namespace: namespace.as_str().into(), pod: name.as_str().into(), port })
}

/// Tells of another process that says it is this host, for as long as it does.
pub(super) async fn mind(
    host: Name,
    mut rival: watch::Receiver<Option<Name>>,
    changes: mpsc::Sender<Change>,
) {
    let object = ObjectRef::new(Kind::LoadBalancerHost, "", host.clone());
    while rival.changed().await.is_ok() {
        let met = rival.borrow_and_update().clone();
        let problems = met.map(|rival| {
            let message = format!("another process uses the name of this host, {host}: {rival}");
            Problem::new(object.clone(), Reason::OtherController, message)
                .fix("Stop one of the two processes, or give one of them another name with --host NAME.")
        });
        let told = Change::Reported(object.clone(), problems.into_iter().collect());
        if changes.send(told).await.is_err() {
            return;
        }
    }
}
