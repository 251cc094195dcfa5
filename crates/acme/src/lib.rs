//! ACME (RFC 8555): an account at a certificate authority, orders, and what proves that a host name is ours.
//!
//! ```text
//!   Directory ─► Account (key, nonces) ─► Order ─► Authorization ─► Challenge (HTTP-01, TLS-ALPN-01, DNS-01)
//!                                           └────► finalize (a request made by `request`) ─► certificate chain
//!     └► RenewalInfo (RFC 9773): when a certificate is to be renewed
//! ```
//!
//! It speaks the protocol and nothing else: when to order, what to keep and who answers challenges is up to its user.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

mod account;
mod der;
mod directory;
pub mod dns;
mod error;
mod key;
mod order;
mod renewal;
mod request;
mod validation;

pub use account::{Account, Contact, ExternalAccount};
pub use directory::Directory;
pub use error::AcmeError;
pub use key::Key;
pub use order::{Authorization, Challenge, Order, Status};
pub use renewal::{RenewalInfo, certificate_id};
pub use request::request;
pub use validation::validation_certificate;

/// For `fuzz/` alone.
#[doc(hidden)]
pub mod fuzz {
    pub fn dns(bytes: &[u8]) {
        crate::dns::fuzz(bytes);
    }
}
