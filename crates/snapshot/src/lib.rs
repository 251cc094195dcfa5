//! Pools compiled for speed: what the data plane asks on every new connection, without a choice left to compute twice.
//!
//! ```text
//!     model::Pool ──compile──► CompiledPool { members, weights, Maglev table (built when first hashed) }
//!                                    │
//!     Client (hash), Cursor, Conditions ──pick──► index of a member, or nobody
//! ```
//! The crate is pure. It does not know sockets, clocks, randomness or who is healthy: a [`Cursor`] carries the seed
//! and the turn, [`Conditions`] answer for health, load and warmth at the moment of the pick. Tables for HTTP come
//! with the part that speaks it.

mod hash;
mod maglev;
mod pick;
mod pool;

pub use hash::{client_hash, mix};
pub use maglev::Maglev;
pub use pick::{Conditions, Cursor, Standing};
pub use pool::CompiledPool;
