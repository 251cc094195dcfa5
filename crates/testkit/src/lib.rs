//! To come.

pub mod mutate;
