//! Where a pod shows its pages, and those that cannot be shown, for another process has their port.

use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use seaway_admin::{BoundSockets, ClosedListener};
use seaway_model::{Change, Kind, ObjectRef, Problem, Reason};
use tokio::sync::{mpsc, watch};
use tracing::warn;

use super::Part;
use crate::args::Pod;

/// A host whose pod is told its address shows its status page there, for `kubectl seaway` tells counters by it (`pods/proxy`).
/// Of a controller nobody reads anything so: it has no password, and whoever reaches the pod would read names and members of
/// all namespaces.
pub(super) fn in_pod(mut bound: BoundSockets, pod: &Pod, part: Part) -> Result<BoundSockets> {
    if let Some(at) = pod.pod_address.filter(|_| part == Part::Node) {
        bound = bound.with_read_only_listener(at)?;
    }
    if let Some(port) = pod.probe_port {
        // The kubelet of a pod that has the machine's network comes by loopback, that of another to the pod's address.
        for at in [Some(Ipv4Addr::LOCALHOST.into()), pod.pod_address].into_iter().flatten() {
            bound = bound.with_probe_listener((at, port).into())?;
        }
    }
    if let Some(path) = &pod.probe_socket {
        let opened = bound.with_probe_socket(path);
        bound = opened.with_context(|| format!("--probe-socket {}: it cannot be opened", path.display()))?;
    }
    Ok(bound)
}

/// Tells where it is not listened, for as long as that is so, and once this process serves: before, the one that does has them.
pub(super) async fn tell(
    mut closed: watch::Receiver<Vec<ClosedListener>>,
    mut owns: watch::Receiver<bool>,
    changes: mpsc::Sender<Change>,
) {
    if owns.wait_for(|it| *it).await.is_err() {
        return;
    }
    let mut told = false;
    loop {
        let now = closed.borrow_and_update().clone();
        if told || !now.is_empty() {
            told = !now.is_empty();
            let problems: Vec<Problem> = now.iter().map(problem).collect();
            problems.iter().for_each(|it| warn!("{it}"));
            if changes.send(Change::Reported(object(), problems)).await.is_err() {
                return;
            }
        }
        if closed.changed().await.is_err() {
            return;
        }
    }
}

fn object() -> ObjectRef {
    ObjectRef::new(Kind::Config, "", "admin")
}

fn problem(closed: &ClosedListener) -> Problem {
    let ClosedListener { address, why, probes, metrics } = closed;
    let (what, fix) = match probes {
        true => (
            "probes are not answered",
            "Stop that process, or name another port: --probe-port PORT, and the same in the probes of the pod.",
        ),
        false if *metrics => (
            "metrics are not served",
            "Stop that process, or name another port in the configuration: admin: {metrics: {listen: [\"[::]:PORT\"]}}. \
             Services are still served.",
        ),
        false => (
            "the status page is not shown",
            "Stop that process, or name another port in the configuration: admin: {listen: [\"127.0.0.1:PORT\"]}. \
             Services are still served.",
        ),
    };
    Problem::new(object(), Reason::PortInUse, format!("{what} at {address}: {why}")).fix(fix)
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};

    use seaway_admin::Binding;

    use super::*;

    #[tokio::test]
    async fn a_controllers_status_page_is_on_loopback_alone_and_the_kubelet_reaches_its_probes() {
        let [loopback, address] = ["127.0.0.1", "127.0.0.2"].map(|it| it.parse::<IpAddr>().unwrap());
        let pod = Pod { pod_address: Some(address), probe_port: Some(0), ..Pod::default() };
        for (part, shown_at) in [(Part::Controller, vec![loopback]), (Part::Node, vec![loopback, address])] {
            let bound = BoundSockets::bind(&Binding::Exactly(vec![(loopback, 0).into()])).unwrap();
            let bound = in_pod(bound, &pod, part).unwrap();
            let addresses = |of: Vec<SocketAddr>| of.into_iter().map(|it| it.ip()).collect::<Vec<_>>();
            assert_eq!(addresses(bound.addresses()), shown_at, "{part:?}");
            assert_eq!(addresses(bound.probe_addresses()), [loopback, address], "{part:?}");
        }
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_a_problem_until_it_is_free() {
        let at = "127.0.0.1:1936".parse().unwrap();
        let why = "another process listens there".to_owned();
        let taken = ClosedListener { address: at, why, probes: false, metrics: false };
        let (say, heard) = watch::channel(vec![taken]);
        let (changes, mut told) = mpsc::channel(4);
        let telling = tokio::spawn(tell(heard, watch::channel(true).1, changes));
        let Some(Change::Reported(object, problems)) = told.recv().await else { panic!("it is told") };
        assert_eq!(object.to_string(), "Config admin");
        assert!(problems[0].message.contains("127.0.0.1:1936: another process"), "{}", problems[0]);
        say.send_replace(Vec::new());
        let Some(Change::Reported(_, problems)) = told.recv().await else { panic!("it is taken back") };
        assert_eq!(problems, []);
        drop(say);
        telling.await.unwrap();
    }
}
