//! What this proxy allows its peers by SETTINGS frames of HTTP/2: streams and windows, for clients and for members.
//!
//! Each value follows from the memory that a connection may hold.

use seaway_wire::http2::LocalSettings;

/// Of a client. What is held for each stream without a byte of a body, and of a connection what its streams share, has
/// to fit into what one connection may hold.
pub(in super::super) const MOST_STREAMS: u32 = 256;
const LEAST_STREAMS: u32 = 32;
/// What a waiting stream holds with the fields that browsers send: so many as are announced are not refused.
const PER_STREAM: usize = 8 << 10;
/// Of a member: enough for a small message of gRPC. What is larger gets more as its client takes it (`h2_stream.rs`).
pub(in super::super) const FIRST_WINDOW: u32 = 2 << 10;
/// What members of all clients may have under way is no more than a fast line needs.
const SHARED_WINDOW: u32 = 4 << 20;

/// What a client may send and open whose connection may hold so much.
pub(in super::super) fn for_client(head: usize, most: usize) -> LocalSettings {
    let window = |share: usize| u32::try_from(share).unwrap_or(u32::MAX).min(64 << 20);
    LocalSettings {
        head,
        streams: ((most / PER_STREAM) as u32).clamp(LEAST_STREAMS, MOST_STREAMS),
        stream_window: window(most / 4),
        connection_window: window((most / 16).saturating_mul(5)),
        is_shared: false,
    }
}

/// What a member may send: its streams are of clients that do not know each other.
pub(in super::super) fn for_member(head: usize) -> LocalSettings {
    LocalSettings {
        head,
        streams: 0,
        stream_window: FIRST_WINDOW,
        connection_window: SHARED_WINDOW,
        is_shared: true,
    }
}
