//! What tests share: facts to tell a World, a suite that every driver passes, a mutator for parsers.
//!
//! ```text
//!   facts        Services, slices, pools, as sources tell them
//!   conformance  applying steps yields what is desired; asking again yields none   (feature `conformance`)
//!   mutate       seeds and seeded mutations for the fuzz targets
//! ```
//!
//! Used by tests only; nothing that ships depends on it.

#[cfg(feature = "conformance")]
pub mod conformance;
pub mod facts;
pub mod mutate;
