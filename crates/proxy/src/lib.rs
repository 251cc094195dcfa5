//! To come.

pub mod health;
