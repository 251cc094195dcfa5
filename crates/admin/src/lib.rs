//! What an operator sees of a running Seaway, and the few levers: status page, `/state`, HAProxy's CSV, metrics,
//! liveness and readiness, logging, signals, and the notes to systemd.
//!
//! ```text
//!                   ViewSource: a View  (plain data; the caller folds it from its data plane and its Problems)
//!                          │
//!     browser, curl ──► server ──► routes ─┬─ page      /            one HTML, told anew every second
//!     Prometheus                           ├─ state     /state       the View with rates
//!     haproxy_exporter                     ├─ csv       /;csv        HAProxy's columns
//!                                          ├─ metrics   /metrics     bounded series
//!                                          ├─ readiness /live /ready
//!                                          └─ logging   /log         read and set the level
//!
//!     Prometheus ──► guarded: /metrics by TLS, for those with a token that may
//!
//!     kernel ──► signals ──► Stop, StopNow, Reload          notify ──► systemd
//! ```
//!
//! Nothing runs while nobody looks: rates come from the totals of successive looks ([`rates`]).
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use seaway_admin::{Binding, BoundSockets, Signal, Signals, View, immediate_source, logging, notify::Notifier};
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let log = logging::start(logging::Format::Human, "info")?;
//! let mut signals = Signals::listen()?;
//! let admin = BoundSockets::bind(&Binding::Loopback)?.serve(immediate_source(|| Arc::new(View::default())), log);
//! Notifier::from_env().ready("serving");
//! while signals.next().await == Signal::Reload {}
//! Notifier::from_env().stopping("draining");
//! admin.stop().await;
//! # Ok(())
//! # }
//! ```
//!
//! It does not know the data plane, the plan, or where the numbers come from; it never changes what is served.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

pub mod fuzz;
pub mod logging;
pub mod notify;
pub mod rates;
pub mod server;
pub mod signals;
pub mod view;

mod csv;
mod history;
mod metrics;
mod page;
mod process;

pub use metrics::{MetricsSource, SeriesLimits, api_server_metrics, node_controller_metrics};
pub use server::metrics_guard::{
    Authorization, AuthorizationFuture, Authorizer, CertificateError, MetricsGuard,
};
pub use server::{
    Admin, BindError, Binding, BoundSockets, ClosedListener, ViewDetail, ViewFuture, ViewSource,
    immediate_source,
};
pub use signals::{Signal, Signals};
pub use view::View;
