//! What must hold for whatever comes through the socket of a hand-over (`fuzz/README.md`).

#![allow(clippy::indexing_slicing, clippy::expect_used, reason = "what is wrong ends the fuzz target")]

use super::message::Message;

/// A packet is a message or is refused; a message is told again as it was, and no part of it is another message.
pub fn takeover(bytes: &[u8]) {
    let Ok(message) = serde_json::from_slice::<Message>(bytes) else { return };
    let told = serde_json::to_vec(&message).expect("a message is JSON");
    let again: Message = serde_json::from_slice(&told).expect("what we say can be heard");
    assert_eq!(format!("{again:?}"), format!("{message:?}"));
    for cut in (0..told.len()).step_by(5) {
        assert!(serde_json::from_slice::<Message>(&told[..cut]).is_err(), "{cut} bytes of it are a message");
    }
}
