//! Pools compiled for speed: what the data plane asks on every new connection, without a choice left to compute twice.
//!
//! ```text
//!     model::Pool ──compile──► CompiledPool { members, weights, Maglev table (built when first hashed) }
//!                                    │
//!     Client (hash), Cursor, Conditions ──pick──► index of a member, or nobody
//!
//!     model::Rule, … ──compile──► Routes { hosts, paths, candidates in the order of Gateway API }
//!                                    │
//!     RequestParts (host, path, method, headers, query) ──find──► a rule, or none
//! ```
//! The crate is pure. It does not know sockets, clocks, randomness or who is healthy: a [`Cursor`] carries the seed
//! and the turn, [`MemberStatusSource`] answer for health, load and warmth at the moment of the pick.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

pub mod fuzz;
mod hash;
mod maglev;
mod member_cookies;
mod pick;
mod pool;
mod routes;

pub use hash::{client_hash, mix};
pub use maglev::Maglev;
pub use member_cookies::MemberCookie;
pub use pick::{Cursor, MemberAvailability, MemberStatusSource};
pub use pool::CompiledPool;
pub use routes::{RequestParts, RouteMatch, Routes};
