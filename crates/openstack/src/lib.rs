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
//! It knows no Kubernetes, no plan and no driver, and it does not wait for load balancers to become ACTIVE: that is
//! told by the reply, and whoever asked parks.

pub mod call;
pub mod clock;
pub mod cloud;
pub mod credentials;
pub mod error;
pub mod http;
pub mod identity;

pub use call::{Accept, Call, Method, Microversion, Reply, Service};
pub use clock::{Clock, RealClock};
pub use cloud::{Cloud, Settings};
pub use credentials::{Credentials, Source};
pub use error::{Class, Error, Fault, Retry};
