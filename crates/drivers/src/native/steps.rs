//! What must change in the data plane: pure.

use std::{collections::BTreeMap, fmt, net::IpAddr, sync::Arc};

use seaway_engine::{Effect, Effects};
use seaway_model::{
    Listener, ListenerId, LoadBalancer, ObjectRef, Pool, PoolId, load_balancer::Certificate, merge_join,
};
use seaway_proxy::RunningLoadBalancer;

/// One write. The order of steps is: pools and certificates first, so that a listener never leads nowhere; then what
/// opens; then what closes; pools and certificates that nobody uses any more at last.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    PutPool(Arc<Pool>),
    PutCertificate(ObjectRef, Arc<Certificate>),
    Open(IpAddr, Arc<Listener>),
    Retune(IpAddr, Arc<Listener>),
    Close(IpAddr, ListenerId),
    RemovePool(PoolId),
    RemoveCertificate(ObjectRef),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::PutPool(pool) => write!(f, "pool {} gets {} members", pool.id, pool.members.len()),
            Step::PutCertificate(name, _) => write!(f, "use the certificate of {name}"),
            Step::RemoveCertificate(name) => write!(f, "remove the certificate of {name}"),
            Step::Open(ip, listener) => write!(f, "open {} on {ip} for {}", listener.id(), listener.name),
            Step::Retune(ip, listener) => write!(f, "change the settings of {} on {ip}", listener.id()),
            Step::Close(ip, id) => write!(f, "close {id} on {ip}"),
            Step::RemovePool(id) => write!(f, "remove pool {id}"),
        }
    }
}

impl Effects for Step {
    fn effect(&self) -> Effect {
        match self {
            // Another listener may let in more clients.
            Step::Open(..) | Step::Retune(..) => Effect::EXPOSES,
            Step::Close(..) | Step::RemovePool(_) | Step::RemoveCertificate(_) => Effect::DELETES,
            Step::PutPool(_) | Step::PutCertificate(..) => Effect::CHANGES,
        }
    }
}

/// From what runs to what is wanted; nothing, if they are alike.
pub fn steps(wanted: Option<&LoadBalancer>, running: &RunningLoadBalancer) -> Vec<Step> {
    let empty = LoadBalancer::default();
    let wanted = wanted.unwrap_or(&empty);
    let mut steps = Vec::new();
    for (id, pool) in &wanted.pools {
        if running.pools.get(id).is_none_or(|it| !same(it, pool)) {
            steps.push(Step::PutPool(pool.clone()));
        }
    }
    let mut unwanted = Vec::new();
    for (name, wanted, running) in merge_join(&wanted.certificates, &running.certificates) {
        match (wanted, running) {
            (Some(it), Some(running)) if same(running, it) => {}
            (Some(it), _) => steps.push(Step::PutCertificate(name.clone(), it.clone())),
            (None, _) => unwanted.push(Step::RemoveCertificate(name.clone())),
        }
    }
    let sockets = sockets(wanted);
    for ((ip, id), listener) in &sockets {
        match running.sockets.get(&(*ip, *id)) {
            None => steps.push(Step::Open(*ip, (*listener).clone())),
            // What is understood and what is only passed on are served by different hands.
            Some(it) if it.needs_parsing() != listener.needs_parsing() => {
                steps.push(Step::Close(*ip, *id));
                steps.push(Step::Open(*ip, (*listener).clone()));
            }
            Some(it) if !same(it, listener) => steps.push(Step::Retune(*ip, (*listener).clone())),
            Some(_) => {}
        }
    }
    for key in running.sockets.keys().filter(|key| !sockets.contains_key(key)) {
        steps.push(Step::Close(key.0, key.1));
    }
    for id in running.pools.keys().filter(|id| !wanted.pools.contains_key(id)) {
        steps.push(Step::RemovePool(id.clone()));
    }
    steps.extend(unwanted);
    steps
}

/// Each listener on each address.
fn sockets(wanted: &LoadBalancer) -> BTreeMap<(IpAddr, ListenerId), &Arc<Listener>> {
    let ips = wanted.binds.iter().filter_map(|bind| bind.ip());
    ips.flat_map(|ip| wanted.listeners.iter().map(move |(id, listener)| ((ip, *id), listener))).collect()
}

fn same<T: PartialEq>(a: &Arc<T>, b: &Arc<T>) -> bool {
    Arc::ptr_eq(a, b) || a == b
}
