//! A real Kubernetes of a test's own.

mod access;

pub use access::{client, nodes_ready};
