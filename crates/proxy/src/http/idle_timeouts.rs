//! Idle timeouts of tunnels and of streams of HTTP/2, where no response is waited for.

use std::time::Duration;

use seaway_model::load_balancer::{PoolHttpOptions, Timeouts};

/// Of a tunnel, in milliseconds; and of a stream of HTTP/2 as long as both of its sides are open.
#[derive(Clone, Copy)]
pub(super) struct IdleTimeouts {
    pub(super) idle: u64,
    pub(super) half_closed: u64,
}

impl IdleTimeouts {
    /// Where the listener alone says it.
    pub(super) fn usual(listener: &Timeouts) -> IdleTimeouts {
        IdleTimeouts { idle: millis(listener.idle), half_closed: millis(listener.half_closed) }
    }

    /// As the pool says, or else its listener, which many may share.
    pub(super) fn of(pool: &PoolHttpOptions, listener: &Timeouts) -> IdleTimeouts {
        let (idle, half_closed) = (pool.idle, pool.half_closed);
        let (idle, half_closed) =
            (idle.unwrap_or(listener.idle), half_closed.unwrap_or(listener.half_closed));
        IdleTimeouts::usual(&Timeouts { idle, half_closed, ..*listener })
    }
}

pub(super) fn millis(time: Duration) -> u64 {
    time.as_millis() as u64
}
