//! The nouns of Seaway: what a cluster, a folder or a cloud says ([`fact`]), what should exist because of it
//! ([`load_balancer`], [`unit`]), and what came of it ([`outcome`], [`problem`]).
//!
//! ```text
//!     facts ──► plan ──► Units with something Desired ──► steps ──► Outcome ──► Status
//!     fact.rs            unit.rs, load_balancer.rs                  outcome.rs
//! ```
//!
//! Every type here is plain data: parsed once at an edge, so that a bad state cannot be written down, and compared
//! by value. The crate knows no I/O, no clock, no Kubernetes client and no driver; [`Time`] is handed in.

pub mod acme;
pub mod address;
pub mod announced;
pub mod bgp;
pub mod config;
pub mod dns;
pub mod fact;
pub mod group;
pub mod latency;
pub mod layer2;
pub mod load_balancer;
mod member_weights;
mod merge_join;
pub mod name;
pub mod outcome;
pub mod problem;
pub mod reason;
pub mod unit;

pub use address::{Address, AddressState, IpRange};
pub use announced::{AnnounceMode, AnnouncedCondition};
pub use config::Config;
pub use fact::{Fact, OtherControllerSigns};
pub use group::NodeSecurityGroup;
pub use load_balancer::{L4, Listener, ListenerId, LoadBalancer, Member, Pool, PoolId};
pub use member_weights::{MemberWeights, WeightOverride, WeightTarget};
pub use merge_join::merge_join;
pub use name::{Kind, Name, ObjectRef, Owner, Time};
pub use outcome::{Change, Deletion, Outcome, Status, UnreportedHostState};
pub use problem::{Problem, ProblemDetail};
pub use reason::Reason;
pub use unit::{Desired, LbKey, Place, Unit, WorkItem};
