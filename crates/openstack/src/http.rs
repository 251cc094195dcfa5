//! Requests and replies: one attempt, then as many as are safe and fit the time.
//!
//! ```text
//!     exchange ─► limits ─► transport (one attempt) ─► Answer, or Trouble
//!        ▲                                                │
//!        └──── backoff: 429, 503, lost, refused ◄─────────┘
//! ```
//! It does not know tokens, and an answer of status 404 is an answer.

mod attempt_error;
mod backoff;
mod exchange;
pub(crate) mod fuzz;
mod limits;
mod metrics;
mod retry_after;
mod transport;

pub(crate) use attempt_error::AttemptError;
pub use backoff::Backoff;
pub(crate) use backoff::RandomSource;
pub(crate) use exchange::{Exchange, ExchangeOptions, TimeBudget};
pub use limits::Limits;
pub(crate) use limits::RequestLimiter;
pub use metrics::Metrics;
pub(crate) use transport::{Body, HttpReply, HttpRequest, Transport};
