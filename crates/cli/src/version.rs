//! What this binary is.

pub(crate) const LONG: &str = concat!(env!("CARGO_PKG_VERSION"), " (", env!("SEAWAY_COMMIT"), ")");
