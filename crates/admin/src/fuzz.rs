//! Targets for fuzzing: plain functions over bytes that panic when an invariant does not hold (`fuzz/README.md`).

pub use crate::page::fuzz::filter;
