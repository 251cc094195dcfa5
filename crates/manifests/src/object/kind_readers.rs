//! The kinds of objects that are read, each with its version and its reader.

use seaway_model::{Fact, Kind, ObjectRef};

use super::{
    InvalidObject, Object, announcing, cluster_scoped, endpoints, group, http_route, pool, secret, service,
    slice, word,
};
use crate::{
    decode::{Field, ValidationErrors},
    tree::Node,
};

pub(super) struct KindReader {
    pub(super) kind: Kind,
    pub(super) name: &'static str,
    pub(super) version: &'static str,
    namespaced: bool,
    /// `None`, or faults reported, if it is not what it should be.
    pub(super) read: fn(&Field<'_>) -> Option<Vec<Fact>>,
}

pub(super) const KIND_READERS: &[KindReader] = &[
    KindReader { kind: Kind::Service, name: "Service", version: "v1", namespaced: true, read: service::read },
    KindReader {
        kind: Kind::EndpointSlice,
        name: "EndpointSlice",
        version: "discovery.k8s.io/v1",
        namespaced: true,
        read: slice::read,
    },
    KindReader {
        kind: Kind::Endpoints,
        name: "Endpoints",
        version: "v1",
        namespaced: true,
        read: endpoints::read,
    },
    KindReader { kind: Kind::Secret, name: "Secret", version: "v1", namespaced: true, read: secret::read },
    KindReader {
        kind: Kind::Node,
        name: "Node",
        version: "v1",
        namespaced: false,
        read: cluster_scoped::node,
    },
    KindReader {
        kind: Kind::Namespace,
        name: "Namespace",
        version: "v1",
        namespaced: false,
        read: cluster_scoped::namespace,
    },
    KindReader {
        kind: Kind::HTTPRoute,
        name: "HTTPRoute",
        version: "gateway.networking.k8s.io/v1",
        namespaced: true,
        read: http_route::read,
    },
    KindReader {
        kind: Kind::AddressPool,
        name: "AddressPool",
        version: "seaway.dev/v1alpha1",
        namespaced: false,
        read: pool::address_pool,
    },
    KindReader {
        kind: Kind::IPAddressPool,
        name: "IPAddressPool",
        version: "metallb.io/v1beta1",
        namespaced: true,
        read: pool::ip_address_pool,
    },
    KindReader {
        kind: Kind::L2Advertisement,
        name: "L2Advertisement",
        version: "seaway.dev/v1alpha1",
        namespaced: false,
        read: announcing::l2_advertisement,
    },
    KindReader {
        kind: Kind::BGPAdvertisement,
        name: "BGPAdvertisement",
        version: "seaway.dev/v1alpha1",
        namespaced: false,
        read: announcing::bgp_advertisement,
    },
    KindReader {
        kind: Kind::BGPPeer,
        name: "BGPPeer",
        version: "seaway.dev/v1alpha1",
        namespaced: false,
        read: announcing::bgp_peer,
    },
    KindReader {
        kind: Kind::BFDProfile,
        name: "BFDProfile",
        version: "seaway.dev/v1alpha1",
        namespaced: false,
        read: announcing::bfd_profile,
    },
    KindReader {
        kind: Kind::Community,
        name: "Community",
        version: "seaway.dev/v1alpha1",
        namespaced: false,
        read: announcing::community,
    },
    KindReader {
        kind: Kind::MetallbL2Advertisement,
        name: "L2Advertisement",
        version: "metallb.io/v1beta1",
        namespaced: true,
        read: announcing::metallb_l2_advertisement,
    },
    KindReader {
        kind: Kind::MetallbBGPAdvertisement,
        name: "BGPAdvertisement",
        version: "metallb.io/v1beta1",
        namespaced: true,
        read: announcing::metallb_bgp_advertisement,
    },
    KindReader {
        kind: Kind::MetallbBGPPeer,
        name: "BGPPeer",
        version: "metallb.io/v1beta2",
        namespaced: true,
        read: announcing::metallb_bgp_peer,
    },
    KindReader {
        kind: Kind::MetallbBFDProfile,
        name: "BFDProfile",
        version: "metallb.io/v1beta1",
        namespaced: true,
        read: announcing::metallb_bfd_profile,
    },
    KindReader {
        kind: Kind::MetallbCommunity,
        name: "Community",
        version: "metallb.io/v1beta1",
        namespaced: true,
        read: announcing::metallb_community,
    },
];

impl KindReader {
    pub(super) fn group(&self) -> &'static str {
        group(self.version)
    }

    pub(super) fn result(
        &self,
        node: &Node,
        facts: Option<Vec<Fact>>,
        faults: ValidationErrors,
    ) -> Result<Object, InvalidObject> {
        match (facts, faults.is_empty(), self.reference(node)) {
            (Some(facts), true, Some(reference)) => Ok(Object { reference, facts, misplaced: Vec::new() }),
            (_, _, reference) => Err(InvalidObject { reference, errors: faults.into_sorted() }),
        }
    }

    pub(super) fn reference(&self, node: &Node) -> Option<ObjectRef> {
        let metadata = node.child("metadata")?;
        let namespace = if self.namespaced { word(metadata, "namespace").unwrap_or("default") } else { "" };
        Some(ObjectRef::new(self.kind, namespace, word(metadata, "name")?))
    }
}
