//! The send window of a connection to a member: how much of it a client may fill while others need it, too.
//!
//! ```text
//!     ├── unconfirmed bytes of this client ──┤── of other clients ──┤──────── free ────────┤
//!     a client that shares the connection sends while it has less than what is free: of N that all send, each gets
//!     one part of N + 1, and those whose bytes the member does not read always leave something to the others
//! ```

use std::rc::Rc;

use seaway_wire::http2::{Connection, Key};

use super::{super::mail::Mail, PIECE};
use crate::memory::ConnectionMemory;

/// A client that is alone leaves this part of the window, so that the next one can begin.
const LEFT_ALONE: i64 = 16;

/// Bytes of a body that may be sent on this stream now.
pub(super) fn sendable(connection: &Connection<Mail>, key: Key) -> usize {
    let most = connection.sendable(key);
    if most == 0 || connection.is_server() || has_enough(connection) {
        return most;
    }
    let Some(client) = connection.with(key).and_then(client_of) else { return most };
    let (mut own, mut is_alone) = (0, true);
    for (mail, unconfirmed, may_send) in connection.claims() {
        if client_of(mail) == Some(client) {
            own += unconfirmed;
        } else {
            is_alone &= !may_send;
        }
    }
    let window = connection.window();
    let share = match is_alone {
        true => window - (window + connection.unconfirmed()) / LEFT_ALONE,
        false => (window - own + 1) / 2,
    };
    most.min(usize::try_from(share).unwrap_or(0))
}

/// Nobody has to care how much others have.
pub(super) fn has_enough(connection: &Connection<Mail>) -> bool {
    connection.unconfirmed() + 2 * PIECE as i64 <= connection.window()
}

/// By the place of its memory.
fn client_of(mail: &Mail) -> Option<*const ConnectionMemory> {
    mail.held.as_ref().map(|held| Rc::as_ptr(held.of()))
}
