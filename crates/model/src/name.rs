//! Names of things: objects, owners, moments.

use std::{borrow::Borrow, fmt, ops::Deref, sync::Arc};

use serde::{Deserialize, Serialize};

/// A cheap, shared, immutable text: the name of an object, a label, a host name.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Name(Arc<str>);

impl Name {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for Name {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Name {
        Name(text.into())
    }
}

impl From<String> for Name {
    fn from(text: String) -> Name {
        Name(text.into())
    }
}

impl Default for Name {
    fn default() -> Name {
        Name("".into())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

/// The kinds of objects that Seaway reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Kind {
    Service,
    EndpointSlice,
    Endpoints,
    Node,
    Namespace,
    Secret,
    AddressPool,
    IPAddressPool,
    L2Advertisement,
    BGPAdvertisement,
    BGPPeer,
    BFDProfile,
    Community,
    /// MetalLB's, which is called the same in its own group; as all that follow here.
    #[serde(rename = "metallb.io/L2Advertisement")]
    MetallbL2Advertisement,
    #[serde(rename = "metallb.io/BGPAdvertisement")]
    MetallbBGPAdvertisement,
    #[serde(rename = "metallb.io/BGPPeer")]
    MetallbBGPPeer,
    #[serde(rename = "metallb.io/BFDProfile")]
    MetallbBFDProfile,
    #[serde(rename = "metallb.io/Community")]
    MetallbCommunity,
    Address,
    LoadBalancerHost,
    NameOwner,
    HTTPRoute,
    Event,
    /// The process's own configuration file.
    Config,
    /// A file of the folder of manifests, where no object can be made out of it.
    Manifest,
    /// A file that the configuration names.
    File,
    /// A certificate that the front door orders itself, by its host name.
    Certificate,
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Service => "Service",
            Kind::EndpointSlice => "EndpointSlice",
            Kind::Endpoints => "Endpoints",
            Kind::Node => "Node",
            Kind::Namespace => "Namespace",
            Kind::Secret => "Secret",
            Kind::AddressPool => "AddressPool",
            Kind::IPAddressPool => "IPAddressPool",
            Kind::L2Advertisement | Kind::MetallbL2Advertisement => "L2Advertisement",
            Kind::BGPAdvertisement | Kind::MetallbBGPAdvertisement => "BGPAdvertisement",
            Kind::BGPPeer | Kind::MetallbBGPPeer => "BGPPeer",
            Kind::BFDProfile | Kind::MetallbBFDProfile => "BFDProfile",
            Kind::Community | Kind::MetallbCommunity => "Community",
            Kind::Address => "Address",
            Kind::LoadBalancerHost => "LoadBalancerHost",
            Kind::NameOwner => "NameOwner",
            Kind::HTTPRoute => "HTTPRoute",
            Kind::Event => "Event",
            Kind::Config => "Config",
            Kind::Manifest => "Manifest",
            Kind::File => "File",
            Kind::Certificate => "Certificate",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Which object is meant. `namespace` is empty for cluster-scoped kinds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectRef {
    pub kind: Kind,
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub namespace: Name,
    pub name: Name,
}

impl ObjectRef {
    pub fn new(kind: Kind, namespace: impl Into<Name>, name: impl Into<Name>) -> ObjectRef {
        ObjectRef { kind, namespace: namespace.into(), name: name.into() }
    }

    /// What Problems with copies of certificates for hosts are reported of.
    pub fn certificate_copies_config() -> ObjectRef {
        ObjectRef::new(Kind::Config, "", "certificateCopies")
    }

    /// What this object is called in a Problem of another one. In a cluster, whoever may read the objects of one namespace
    /// learns no name of another namespace's. A folder has one owner, who reads all; so has the configuration.
    pub fn named_for(&self, reader: &ObjectRef, is_cluster: bool) -> String {
        let is_known = self.namespace.is_empty()
            || reader.namespace.is_empty()
            || self.namespace == reader.namespace
            || !is_cluster;
        match self.kind {
            _ if is_known => self.to_string(),
            Kind::EndpointSlice | Kind::HTTPRoute => format!("an {} of another namespace", self.kind),
            _ => format!("a {} of another namespace", self.kind),
        }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{} {}", self.kind, self.name)
        } else {
            write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
        }
    }
}

/// Who asks for something. An object that was deleted and made again under its name is another owner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Owner {
    Object {
        object: ObjectRef,
        uid: Name,
    },
    /// An entry of the configuration: `tcpServices[0]`, later the front door.
    Config(Name),
}

impl Owner {
    /// The object (or the configuration) that a Problem of this owner belongs to.
    pub fn object(&self) -> ObjectRef {
        match self {
            Owner::Object { object, .. } => object.clone(),
            Owner::Config(key) => ObjectRef::new(Kind::Config, "", key.clone()),
        }
    }

    /// As [`ObjectRef::named_for`], of an owner.
    pub fn named_for(&self, reader: &Owner, is_cluster: bool) -> String {
        match self {
            Owner::Object { object, .. } => object.named_for(&reader.object(), is_cluster),
            Owner::Config(_) => self.to_string(),
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Owner::Object { object, .. } => object.fmt(f),
            Owner::Config(key) => write!(f, "configuration {key}"),
        }
    }
}

/// A moment, in milliseconds since 1970. Pure crates are told it and never ask a clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub u64);
