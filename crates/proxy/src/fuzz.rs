//! Targets for fuzzing: plain functions over bytes that panic when an invariant does not hold (`fuzz/README.md`).

pub use crate::{
    health::fuzz::call,
    http::fuzz::{cookies, cors, forwarded, grpc, rules, trace_parent},
    takeover::fuzz::takeover,
};
