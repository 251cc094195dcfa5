//! Session tickets: what a client keeps so that it need not shake hands in full again. Their keys are in memory alone,
//! the same for all workers, and change by themselves.

use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use rustls::{crypto::aws_lc_rs::Ticketer, server::ProducesTickets};

use crate::sys;

/// Milliseconds until there are new keys; those before go on to be understood for as long. Who has the keys can read
/// what was said in TLS 1.2 before.
const LIFETIME: u64 = 3600 * 1000;

#[derive(Debug)]
pub(crate) struct Tickets {
    clock: fn() -> u64,
    keys: ArcSwap<Keys>,
    /// Only one makes new ones.
    changing: Mutex<()>,
}

#[derive(Debug)]
struct Keys {
    now: Arc<dyn ProducesTickets>,
    before: Option<Arc<dyn ProducesTickets>>,
    until: u64,
}

impl Tickets {
    /// `None`: there is no randomness to be had, and every handshake is a full one.
    pub(crate) fn new() -> Option<Arc<Tickets>> {
        Tickets::by(sys::millis)
    }

    fn by(clock: fn() -> u64) -> Option<Arc<Tickets>> {
        let now = Ticketer::new()
            .inspect_err(|error| tracing::warn!(%error, "clients cannot resume TLS sessions"))
            .ok()?;
        let keys = ArcSwap::from_pointee(Keys { now, before: None, until: clock().saturating_add(LIFETIME) });
        Some(Arc::new(Tickets { clock, keys, changing: Mutex::default() }))
    }

    fn keys(&self) -> arc_swap::Guard<Arc<Keys>> {
        let keys = self.keys.load();
        if (self.clock)() < keys.until {
            return keys;
        }
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let (keys, now) = (self.keys.load(), (self.clock)());
        if now >= keys.until
            && let Ok(new) = Ticketer::new()
        {
            // Nobody used them for a whole life: nobody has a ticket of theirs that is still good.
            let before = (now < keys.until.saturating_add(LIFETIME)).then(|| keys.now.clone());
            self.keys.store(Arc::new(Keys { now: new, before, until: now.saturating_add(LIFETIME) }));
        }
        self.keys.load()
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    /// In seconds.
    fn lifetime(&self) -> u32 {
        (LIFETIME / 1000) as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.keys().now.encrypt(plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        let keys = self.keys();
        keys.now.decrypt(cipher).or_else(|| keys.before.as_ref()?.decrypt(cipher))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static NOW: Cell<u64> = const { Cell::new(0) };
    }

    #[test]
    fn a_ticket_outlives_one_change_of_keys_and_no_second() {
        let tickets = Tickets::by(|| NOW.get()).unwrap();
        let first = tickets.encrypt(b"secret").unwrap();
        assert!(!first.windows(6).any(|it| it == b"secret"));
        for (now, understood) in
            [(LIFETIME - 1, true), (LIFETIME, true), (2 * LIFETIME - 1, true), (2 * LIFETIME, false)]
        {
            NOW.set(now);
            assert_eq!(tickets.decrypt(&first).as_deref(), understood.then_some(&b"secret"[..]), "{now}");
        }
        let second = tickets.encrypt(b"other").unwrap();
        NOW.set(9 * LIFETIME);
        assert_eq!(tickets.decrypt(&second), None, "nobody came for long");
    }
}
