//! Kubernetes objects, read: what an API server does between `kubectl apply` and a watch.
//!
//! ```text
//!     YAML, JSON of a file ─► tree ─► decode ─► object ─► Fact
//!     JSON of a watch ───────► Node      │  faults
//!                                        └────────► Fault: field, place, an API server's words
//! ```
//! One reader serves the folder (`files`) and the cluster (`cluster`), so that the same manifest is the same fact, and
//! the same mistake the same fault, wherever it comes from. Configuration files are read by it, too.
//!
//! The crate does not know where a tree came from nor who is told what it says: no files, no sockets, no clock.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

pub mod decode;
mod hints;
pub mod object;
mod other_languages;

pub use hints::hint;
pub use object::{FINALIZER, MANAGER, OWN_FINALIZER};
pub use other_languages::{merge_conflict, other_language};
pub use seaway_tree as tree;
