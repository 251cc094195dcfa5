//! The rows about clients: who may connect, beside source ranges.

use super::Row;
use crate::quantity::{list, network};

/// Which clients may not connect.
pub const DENIED: &str = "seaway.dev/denied-source-ranges";

pub(super) const ROWS: &[Row] = &[Row {
    names: &[DENIED],
    help: "networks that may not connect, even where seaway.dev/source-ranges allows them: 192.0.2.7,2001:db8:7::/48",
    set: |wishes, text| {
        wishes.denied = list(text, network)?;
        if wishes.denied.is_empty() { Err("it names no network".into()) } else { Ok(()) }
    },
}];
