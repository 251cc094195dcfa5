//! What must hold for any bytes whatever (`fuzz/README.md`).

#![allow(clippy::arithmetic_side_effects, clippy::expect_used, reason = "what is wrong ends the fuzz target")]

use seaway_model::L4;

use crate::diag::{Listener, tables};
use crate::netlink::message::{Message, Messages};
use crate::watch::event;

/// Netlink messages are read without a panic and without an endless loop.
pub fn netlink(bytes: &[u8]) {
    let mut messages = 0;
    for message in Messages::unasked(bytes) {
        messages += 1;
        assert!(messages <= bytes.len(), "more messages than bytes");
        if let Ok(Message::Data { kind, payload, .. }) = message {
            let _ = event(kind, payload);
            let _ = Listener::read(L4::Tcp, payload);
        }
    }
}

/// The kernel's socket tables are read without a panic, a socket a line at most.
pub fn tables(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let found = tables::read(L4::Tcp, u32::MAX, &text);
    assert!(found.len() <= text.lines().count());
}
