//! Which users know their passwords.
//!
//! A hash of a password costs much to compute, and whoever may ask can have it computed. So:
//!
//! ```text
//!   request ─► fingerprint (keyed) ─► known? ─► let in, or 401                         on the worker, about a microsecond
//!                                        └► queue, bounded ─► one thread, at low priority ─► known, and the tasks are woken
//! ```
//!
//! * No worker computes one. One thread does, at a lower priority than workers: attempts take a processor that is free.
//! * The queue is bounded: for each client, namespace and Service, so that neither one client nor the attempts at some Services keep
//!   the users of others out. Namespaces take turns, then their Services. What does not fit is answered by 503.
//! * What was verified is remembered by a fingerprint with a key of this process: of namespace, name, password and the line of the
//!   Secret that they were compared with. So a changed line counts at once. Wrong passwords are remembered apart from right ones,
//!   and each namespace's apart from others', so that no number of attempts, and no other namespace, has right ones forgotten.
//! * A name that is not there takes as long as one that is.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

mod bcrypt;
mod fair_queue;
mod pi;
mod queue;
mod recent;
mod sha_crypt;

use std::{
    net::IpAddr,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU8, Ordering::SeqCst},
    },
};

use aws_lc_rs::{constant_time::verify_slices_are_equal, digest, rand};
use seaway_model::{
    Name,
    load_balancer::{BasicAuth, PasswordHash},
};
use secrecy::{ExposeSecret, SecretSlice, zeroize::Zeroize as _};

use self::queue::Queue;
use crate::{
    running::WaiterId,
    worker::{Mailbox, WorkerCommand},
};

/// Of the whole process.
#[derive(Default)]
pub(crate) struct Passwords {
    /// None can be drawn: then nobody is let in.
    key: OnceLock<Option<FingerprintKey>>,
    queue: Arc<Queue>,
}

/// What is to be verified.
pub(crate) struct PasswordAttempt<'a> {
    pub(crate) auth: &'a BasicAuth,
    pub(crate) name: &'a [u8],
    pub(crate) password: &'a [u8],
    pub(crate) client: IpAddr,
}

#[derive(Clone)]
pub(crate) enum Verdict {
    Right,
    Wrong,
    /// It is not known yet: the task is woken when it is.
    Later(Arc<Verification>),
    /// Too many are waiting.
    Busy,
}

/// A task of a worker that waits.
pub(crate) struct Waiter {
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) task: u32,
}

/// A password on its way to the thread that hashes it.
pub(crate) struct Verification {
    fingerprint: u128,
    namespace: Name,
    client: IpAddr,
    hash: PasswordHash,
    /// The hash is that of the user who was named.
    counts: bool,
    password: SecretSlice<u8>,
    state: AtomicU8,
    waiters: Mutex<Vec<Waiter>>,
}

const RIGHT: u8 = 1;
const WRONG: u8 = 2;

impl Passwords {
    pub(crate) fn verify(&self, attempt: &PasswordAttempt<'_>, waiter: impl FnOnce() -> Waiter) -> Verdict {
        let Some(users) = &attempt.auth.users else { return Verdict::Busy };
        let own = users.0.get(attempt.name);
        // Somebody's, so that it takes as long.
        let Some(hash) = own.or_else(|| users.0.values().next()) else { return Verdict::Wrong };
        let Some(key) = self.key.get_or_init(draw_key) else { return Verdict::Busy };
        let fingerprint = fingerprint(key, attempt, hash, own.is_some());
        if let Some(is_right) = self.queue.cached_result(&attempt.auth.of.namespace, fingerprint) {
            return if is_right { Verdict::Right } else { Verdict::Wrong };
        }
        let verification = || Verification {
            fingerprint,
            namespace: attempt.auth.of.namespace.clone(),
            client: network(attempt.client),
            hash: hash.clone(),
            counts: own.is_some(),
            password: attempt.password.to_vec().into(),
            state: AtomicU8::new(0),
            waiters: Mutex::default(),
        };
        let (client, cost) = (network(attempt.client), fair_queue::cost(hash));
        self.queue.submit(fingerprint, &attempt.auth.of, client, cost, verification, waiter)
    }
}

impl Drop for Passwords {
    fn drop(&mut self) {
        self.queue.close();
    }
}

impl Verification {
    /// `None`: it is still on its way.
    pub(crate) fn result(&self) -> Option<bool> {
        match self.state.load(SeqCst) {
            RIGHT => Some(true),
            WRONG => Some(false),
            _ => None,
        }
    }

    fn is_right(&self) -> bool {
        let is_equal = matches(&self.hash, self.password.expose_secret());
        self.counts && is_equal
    }

    fn awaited_by(&self, waiter: Waiter) {
        self.waiters.lock().unwrap_or_else(PoisonError::into_inner).push(waiter);
    }

    fn finish(&self, is_right: bool) {
        self.state.store(if is_right { RIGHT } else { WRONG }, SeqCst);
        let waiters = std::mem::take(&mut *self.waiters.lock().unwrap_or_else(PoisonError::into_inner));
        for waiter in waiters {
            waiter.mailbox.post([WorkerCommand::WakeWaiter(WaiterId::Task(waiter.task))]);
        }
    }
}

/// Whether this is the password of which that is the hash.
fn matches(hash: &PasswordHash, password: &[u8]) -> bool {
    match hash {
        PasswordHash::Bcrypt { cost, salt, hash } => {
            verify_slices_are_equal(&bcrypt::hash(*cost, salt, password), hash).is_ok()
        }
        PasswordHash::Sha256Crypt { rounds, salt, hash } => {
            let made = sha_crypt::hash(&digest::SHA256, *rounds, salt, password);
            verify_slices_are_equal(made.as_ref(), hash).is_ok()
        }
        PasswordHash::Sha512Crypt { rounds, salt, hash } => {
            let made = sha_crypt::hash(&digest::SHA512, *rounds, salt, password);
            verify_slices_are_equal(made.as_ref(), hash).is_ok()
        }
    }
}

type FingerprintKey = [u8; 32];

fn draw_key() -> Option<FingerprintKey> {
    let mut key = FingerprintKey::default();
    rand::fill(&mut key).ok()?;
    Some(key)
}

/// Nobody who does not know the key can tell which two attempts have the same. Each request computes it, so it is one SHA-256, of the key
/// and of the parts, each behind its length. Half of the digest is left out, so that nothing can be appended: an HMAC's second hash is not
/// needed.
fn fingerprint(
    key: &FingerprintKey,
    attempt: &PasswordAttempt<'_>,
    hash: &PasswordHash,
    is_own: bool,
) -> u128 {
    let (kind, cost, salt, made): (u8, u32, &[u8], &[u8]) = match hash {
        PasswordHash::Bcrypt { cost, salt, hash } => (0, u32::from(*cost), salt, hash),
        PasswordHash::Sha256Crypt { rounds, salt, hash } => (1, *rounds, salt, hash),
        PasswordHash::Sha512Crypt { rounds, salt, hash } => (2, *rounds, salt, hash),
    };
    let (kind, cost) = ([kind, u8::from(is_own)], cost.to_le_bytes());
    let namespace = attempt.auth.of.namespace.as_bytes();
    let parts: [&[u8]; 7] = [&kind, &cost, namespace, salt, made, attempt.name, attempt.password];
    // Of a size that is not outgrown, so that no copy of a password is left.
    let length = parts.iter().map(|part| part.len().saturating_add(size_of::<u64>())).sum::<usize>();
    let mut text = Vec::with_capacity(key.len().saturating_add(length));
    text.extend_from_slice(key);
    for part in parts {
        text.extend_from_slice(&(part.len() as u64).to_le_bytes());
        text.extend_from_slice(part);
    }
    let digest = digest::digest(&digest::SHA256, &text);
    // What is beyond its length was never written.
    text.as_mut_slice().zeroize();
    digest.as_ref().iter().take(16).fold(0, |all, byte| all << 8 | u128::from(*byte))
}

/// One client of IPv6 has a /64 at least.
fn network(client: IpAddr) -> IpAddr {
    match client {
        IpAddr::V6(ip) => IpAddr::V6((u128::from(ip) >> 64 << 64).into()),
        ip => ip,
    }
}

#[cfg(test)]
mod tests;
