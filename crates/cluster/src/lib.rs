//! Kubernetes: watches in; the drivers that write Addresses, statuses, events and leases out.
//!
//! ```text
//!     API server ─ list, watch ─► RawObject ─► manifests ─► Fact ─► Change ─► World
//!         ▲                         │                                     │
//!         │                         └─► ObjectCache: what drivers compare with   │ Units
//!         │                               │                               ▼
//!         └── Address, status, Event ◄────┴───── Addresses, Statuses ◄── engine
//!         └── finalizer ◄─────────────────────── Holds ◄─────────────────┤
//!         └── copies of certificates ◄────────── CopyWriter ◄────────────┤
//!         └── DNSEndpoint ◄───────────────────── DnsEndpoints ◄────────── driver of names in DNS
//!         └── NameOwner ◄─────────────────────── NameOwnerWriter ◄───────┤
//!         └── Node ◄──────────────────────────── NodeStore ◄────────────── controllers of Nodes in a cloud
//!         └── LoadBalancerHostSlice ◄─────────── slice_writer ◄── LoadBalancerHosts, as they are watched
//!         └── Lease, LoadBalancerHost ◄───────── Leadership, HostStatusWriter
//! ```
//! The sister of `files`: the same objects become the same facts by the same code. What is read is trimmed at this edge
//! and not kept. Our own objects ([`crds`]) and all that an administrator must allow are here, too.
//!
//! The crate does not know what any of it is for: it plans nothing, allocates nothing, serves nothing; it compares no
//! clocks of different machines; and it never takes silence for an answer.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

mod address;
mod address_driver;
mod api_error;
mod connect;
mod copies;
mod counts;
pub mod crds;
mod decode;
mod dns_endpoints;
mod finalizer_driver;
mod forget;
pub mod fuzz;
mod host;
mod inspect;
mod kinds;
mod layer2_key;
mod lease;
mod metallb;
mod moment;
mod name_owner;
mod nodes;
mod object_cache;
mod other_signs;
mod owners;
mod passwords;
mod pools;
mod raw_object;
mod records;
mod requests;
mod reviews;
mod route_records;
mod status;
mod watch;
mod writer;

pub use address_driver::{AddressDriver, AddressStep};
pub use api_error::api_server;
pub use connect::{AccessError, Cluster, ClusterAccess, CredentialSource, KubeconfigFault, RequestError};
pub use copies::{CopyTimings, CopyWriter, NamedCertificates};
pub use counts::{ApiServerMetrics, CallCounts, WatchCounts};
pub use dns_endpoints::{DnsEndpoint, DnsEndpointError, DnsEndpoints};
pub use finalizer_driver::{FinalizerDriver, FinalizerStep};
pub use host::{HostInspection, HostStatusWriter, ProgramInfo, StatusPage};
pub use inspect::{HostLiveness, Inspection, InspectionError, ServiceInspection};
pub use kinds::{WatchTimings, kinds, required_kinds};
pub use layer2_key::make_layer2_key;
pub use lease::{LEADER, LeaderElection, Leadership, LeaseTimings};
pub use name_owner::{FirstClaims, NameOwnerTimings, NameOwnerWriter};
pub use nodes::{
    CLOUD_NODE, CLOUD_NODE_LIFECYCLE, CLOUD_ROUTE, NodeAddress, NodeChange, NodeEvent, NodeObject, NodePatch,
    NodeStore, NodeWrite,
};
pub use passwords::{PasswordReader, PasswordsBySecret, WantedPasswords};
pub use pools::{AddressCounts, PoolStatus, PoolStatusWriter};
pub use records::{LeaderRecords, MAX_LINES, MAX_RELEASED, RECORDS, RecordStore};
pub use reviews::{ReviewOutcome, TokenReviewer};
pub use route_records::{ROUTE_RECORDS, ReadRecord, RecordedPair, RecordedRoute, RouteRecord, RouteStore};
pub use status::{EventRecorder, PENDING, StatusDriver, StatusStep};
pub use watch::{ExpiredHostPolicy, SecretInterest, WantedSecrets, Watch, selector_of_host};
