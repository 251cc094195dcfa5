//! UDP.
mod flows;
