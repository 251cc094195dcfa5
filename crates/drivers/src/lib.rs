//! What turns Units into reality, one folder per kind of place.
//!
//! ```text
//!   native    one load balancer on this host: pools and listeners of our own data plane
//!   haproxy   all load balancers of this host, by one HAProxy
//!   presence  the addresses of our pools on this host's `lo`
//!   octavia   load balancers of OpenStack, with the floating IPs that lead to them
//!   nodes     what OpenStack says of Nodes: beside the engine, for they are no Units
//!   routes    what leads to the pods of Nodes in OpenStack: beside the engine, too
//!   acme      certificates that the front door orders from a certificate authority
//!   dns       the names of Services in DNS, with the addresses that answer
//!   names     the answers to DNS names, looked up again by their TTL
//! ```
//!
//! Each has `observe` (what is there), `steps` (pure: what must change) and `apply` (one step). The drivers that
//! write Addresses and statuses live where these are stored (`files`, later `cluster`). Nothing here plans.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

pub mod acme;
pub mod dns;
pub mod fuzz;
pub mod haproxy;
pub mod names;
pub mod native;
pub mod nodes;
pub mod octavia;
mod on_host;
pub mod presence;
pub mod routes;

pub use on_host::HostPlacement;
