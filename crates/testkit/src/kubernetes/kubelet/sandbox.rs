use std::{cell::RefCell, collections::BTreeSet, rc::Rc, sync::Arc};

use k8s_openapi::api::core::v1::Pod;

use crate::{kubernetes::node::NodeContext, topology::Namespace};

/// The side of the node has these on each cable: pods know no other neighbour.
const GATEWAY: &str = "169.254.1.1";
const GATEWAY_V6: &str = "fe80::1";

/// Which numbers of pods are taken on a node.
#[derive(Debug, Default)]
pub(super) struct Addresses(RefCell<BTreeSet<u16>>);

/// The network of a pod. With it go its processes.
#[derive(Debug)]
pub(super) struct Sandbox {
    pub(super) addresses: Vec<String>,
    /// None for who shares that of its node.
    own: Option<(Namespace, u16, Rc<Addresses>)>,
    place: Arc<NodeContext>,
}

impl Sandbox {
    pub(super) fn make(place: &Arc<NodeContext>, addresses: &Rc<Addresses>, pod: &Pod) -> Sandbox {
        if pod.spec.as_ref().and_then(|it| it.host_network) == Some(true) {
            return Sandbox { addresses: place.addresses.clone(), own: None, place: place.clone() };
        }
        let number = addresses.take();
        let both = place.pod_addresses(number);
        let namespace = Namespace::create("pod");
        let cable = cable(number);
        place.namespace.cable(&cable, &namespace, "eth0");
        for (gateway, of_all, own) in [(GATEWAY, "32", &both[0]), (GATEWAY_V6, "64", &both[1])] {
            place.namespace.address(&cable, &format!("{gateway}/{of_all}"));
            namespace.address("eth0", &format!("{own}/{}", if own.contains(':') { 128 } else { 32 }));
            let family = if own.contains(':') { "-6" } else { "-4" };
            place.namespace.ip(&[family, "route", "add", own, "dev", &cable]);
            namespace.ip(&[family, "route", "add", gateway, "dev", "eth0"]);
            namespace.ip(&[family, "route", "add", "default", "via", gateway, "dev", "eth0"]);
        }
        Sandbox {
            addresses: both.to_vec(),
            own: Some((namespace, number, addresses.clone())),
            place: place.clone(),
        }
    }

    pub(super) fn namespace(&self) -> &Namespace {
        self.own.as_ref().map_or(&self.place.namespace, |(namespace, ..)| namespace)
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        if let Some((namespace, number, addresses)) = self.own.take() {
            // Its processes end while their peers can still hear of it.
            drop(namespace);
            // The kernel removes the cable of a removed namespace later, and the next pod may have this number at once.
            self.place.namespace.unplug(&cable(number));
            addresses.0.borrow_mut().remove(&number);
        }
    }
}

/// Its end on the node.
fn cable(number: u16) -> String {
    format!("pod{number}")
}

impl Addresses {
    fn take(&self) -> u16 {
        let mut taken = self.0.borrow_mut();
        let free = (2..255).find(|it| !taken.contains(it)).expect("a Node says that it takes 250 pods");
        taken.insert(free);
        free
    }
}
