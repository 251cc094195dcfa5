//! What tests share: facts to tell a World, a suite that every driver passes, a mutator for parsers.
//!
//! ```text
//!   balancing    what is served, at its plainest
//!   facts        Services, slices, pools, as sources tell them
//!   told         what a source has told, as a World would know it
//!   conformance  applying steps yields what is desired; asking again yields none   (feature `conformance`)
//!   cloud        an OpenStack to talk to, with a clock that tests drive and faults that they script   (feature `cloud`)
//!   topology     namespaces, cables, who answers in them, and the OpenStack of `rig/openstack`      (feature `topology`)
//!   traffic      clients that ask at fixed times by all protocols, members that say who they are    (feature `traffic`)
//!   kubernetes   a Kubernetes of `rig/kubernetes`, with a client for it                             (feature `kubernetes`)
//!   gate         a way to it, or to a real OpenStack, on which that happens                         (feature `kubernetes`)
//!   faults       what a test may have happen to a request of HTTP, before the cloud and before Kubernetes
//!   golden       forms that leave the process, as files that tests compare
//!   mutate       seeds and seeded mutations for the fuzz targets
//!   properties   how many cases a property is tried with
//!   stopwatch    how long something took, however busy the machine is
//!   skip         a test that this machine cannot run, and what became of a rig
//! ```
//!
//! Used by tests only; nothing that ships depends on it.

pub mod balancing;
#[cfg(feature = "cloud")]
pub mod cloud;
#[cfg(feature = "conformance")]
pub mod conformance;
pub mod facts;
#[cfg(any(feature = "cloud", feature = "kubernetes"))]
pub mod faults;
#[cfg(feature = "kubernetes")]
pub mod gate;
pub mod golden;
#[cfg(feature = "kubernetes")]
pub mod kubernetes;
pub mod mutate;
pub mod properties;
#[cfg(any(feature = "cloud", feature = "kubernetes"))]
mod server;
mod skip;
pub mod source_reports;
pub mod stopwatch;
#[cfg(feature = "topology")]
pub mod topology;
#[cfg(feature = "traffic")]
pub mod traffic;

pub use skip::{rig, skip};
