//! The kinds of objects that are read, each with its version and its reader.

use seaway_model::{Fact, Kind, ObjectRef};

use super::{
    Broken, Object, announcing, endpoints, group, http_route, pool, secret, service, slice, things, word,
};
use crate::{
    decode::{Faults, Field},
    tree::Node,
};

pub(super) struct Known {
    pub(super) kind: Kind,
    pub(super) name: &'static str,
    pub(super) version: &'static str,
    namespaced: bool,
    /// `None`, or faults reported, if it is not what it should be.
    pub(super) read: fn(&Field<'_>) -> Option<Vec<Fact>>,
}

pub(super) const KNOWN: &[Known] = &[
    Known { kind: Kind::Service, name: "Service", version: "v1", namespaced: true, read: service::read },
    Known {
        kind: Kind::EndpointSlice,
        name: "EndpointSlice",
        version: "discovery.k8s.io/v1",
        namespaced: true,
        read: slice::read,
    },
    Known {
        kind: Kind::Endpoints,
        name: "Endpoints",
        version: "v1",
        namespaced: true,
        read: endpoints::read,
    },
    Known { kind: Kind::Secret, name: "Secret", version: "v1", namespaced: true, read: secret::read },
    Known { kind: Kind::Node, name: "Node", version: "v1", namespaced: false, read: things::node },
    Known {
        kind: Kind::Namespace,
        name: "Namespace",
        version: "v1",
        namespaced: false,
        read: things::namespace,
    },
    Known {
        kind: Kind::HTTPRoute,
        name: "HTTPRoute",
        version: "gateway.networking.k8s.io/v1",
        namespaced: true,
        read: http_route::read,
    },
    Known {
        kind: Kind::AddressPool,
        name: "AddressPool",
        version: "seaway.dev/v1alpha1",
        namespaced: false,
        read: pool::address_pool,
    },
    Known {
        kind: Kind::IPAddressPool,
        name: "IPAddressPool",
        version: "metallb.io/v1beta1",
        namespaced: true,
        read: pool::ip_address_pool,
    },
    Known {
        kind: Kind::L2Advertisement,
        name: "L2Advertisement",
        version: "seaway.dev/v1alpha1",
        namespaced: false,
        read: announcing::l2_advertisement,
    },
    Known {
        kind: Kind::BGPAdvertisement,
        name: "BGPAdvertisement",
        version: "seaway.dev/v1alpha1",
        namespaced: false,
        read: announcing::bgp_advertisement,
    },
    Known {
        kind: Kind::BGPPeer,
        name: "BGPPeer",
        version: "seaway.dev/v1alpha1",
        namespaced: false,
        read: announcing::bgp_peer,
    },
    Known {
        kind: Kind::BFDProfile,
        name: "BFDProfile",
        version: "seaway.dev/v1alpha1",
        namespaced: false,
        read: announcing::bfd_profile,
    },
    Known {
        kind: Kind::Community,
        name: "Community",
        version: "seaway.dev/v1alpha1",
        namespaced: false,
        read: announcing::community,
    },
    Known {
        kind: Kind::MetallbL2Advertisement,
        name: "L2Advertisement",
        version: "metallb.io/v1beta1",
        namespaced: true,
        read: announcing::metallb_l2_advertisement,
    },
    Known {
        kind: Kind::MetallbBGPAdvertisement,
        name: "BGPAdvertisement",
        version: "metallb.io/v1beta1",
        namespaced: true,
        read: announcing::metallb_bgp_advertisement,
    },
    Known {
        kind: Kind::MetallbBGPPeer,
        name: "BGPPeer",
        version: "metallb.io/v1beta2",
        namespaced: true,
        read: announcing::metallb_bgp_peer,
    },
    Known {
        kind: Kind::MetallbBFDProfile,
        name: "BFDProfile",
        version: "metallb.io/v1beta1",
        namespaced: true,
        read: announcing::metallb_bfd_profile,
    },
    Known {
        kind: Kind::MetallbCommunity,
        name: "Community",
        version: "metallb.io/v1beta1",
        namespaced: true,
        read: announcing::metallb_community,
    },
];

impl Known {
    pub(super) fn group(&self) -> &'static str {
        group(self.version)
    }

    pub(super) fn result(
        &self,
        node: &Node,
        facts: Option<Vec<Fact>>,
        faults: Faults,
    ) -> Result<Object, Broken> {
        match (facts, faults.is_empty(), self.reference(node)) {
            (Some(facts), true, Some(reference)) => Ok(Object { reference, facts }),
            (_, _, reference) => Err(Broken { reference, faults: faults.into_sorted() }),
        }
    }

    pub(super) fn reference(&self, node: &Node) -> Option<ObjectRef> {
        let metadata = node.child("metadata")?;
        let namespace = if self.namespaced { word(metadata, "namespace").unwrap_or("default") } else { "" };
        Some(ObjectRef::new(self.kind, namespace, word(metadata, "name")?))
    }
}
