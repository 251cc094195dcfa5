//! OpenStack as a client sees it: signing in, finding its services, and asking them, one request at a time.
//!
//! ```text
//!     clouds.yaml, cloud.conf, OS_… ─► credentials ─► identity ─► Session: token, catalog
//!                                        (reloaded)     (one sign-in for all callers)
//!                                                              │
//!     Call ──► Cloud::call ──► limits ──► http ──► service     │ 401, or about to expire: once, then again
//!                  ▲             retries, metrics, dry run ◄───┘
//!                  └── Reply, or Error: class, fault, retry, request id
//! ```
//! One `Error` for what all services say in their own ways; one place that retries; secrets that no log shows.
//!
//! Above calls are objects: `resource` lists, reads, makes, changes and deletes all kinds in one way, and waits for them
//! where that is wanted (a driver parks instead); `octavia`, `neutron`, `nova` and `barbican` are tables of their fields.
//! LBaaS v1 and v2 are paths of `Service::Network` and come with their driver.
//!
//! It knows no Kubernetes, no plan and no driver.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

pub mod barbican;
pub mod call;
pub mod clock;
pub mod cloud;
pub mod credentials;
pub mod error;
pub mod fuzz;
pub mod http;
pub mod identity;
pub mod neutron;
pub mod nova;
pub mod octavia;
pub mod quota;
#[cfg(test)]
mod recorded;
pub mod resource;
pub mod survey;

pub use call::{Accept, Call, Method, Microversion, Reply, Service};
pub use clock::{Clock, RealClock};
pub use cloud::{Cloud, Fence, Settings, Timing, Versions};
pub use credentials::{Credentials, Environment, LoadedCredentials, Source};
pub use error::{Class, Error, Responsibility, Retry};
pub use http::{Backoff, Limits, Metrics};
pub use identity::Session;
