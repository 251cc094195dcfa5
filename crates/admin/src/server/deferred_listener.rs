//! Sockets that somebody else has: they are opened when he has gone, and what is served does not depend on them.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{net::TcpListener, sync::watch, time};

use super::{BindError, SocketAccess, listen};

const TRY_AGAIN: Duration = Duration::from_secs(10);

/// Where it is to be listened.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeferredListener {
    pub(super) address: SocketAddr,
    pub(super) only_v6: bool,
    pub(super) grants: SocketAccess,
}

/// Where it is not listened though it should be, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClosedListener {
    pub address: SocketAddr,
    pub why: String,
    /// For probes alone, not the status page.
    pub probes: bool,
    /// For metrics by TLS alone.
    pub metrics: bool,
}

impl DeferredListener {
    pub(super) fn open(&self) -> Result<TcpListener, BindError> {
        listen(self.address, self.only_v6)
    }

    pub(super) fn closed(&self, error: &BindError) -> ClosedListener {
        let why = match error {
            BindError::InUse(_) => "another process listens there".to_owned(),
            BindError::Io { source, .. } => source.to_string(),
        };
        ClosedListener {
            address: self.address,
            why,
            probes: self.grants == SocketAccess::Probes,
            metrics: self.grants == SocketAccess::Metrics,
        }
    }

    /// Returns when it could be opened.
    pub(super) async fn open_later(self, closed: Arc<watch::Sender<Vec<ClosedListener>>>) -> TcpListener {
        loop {
            time::sleep(TRY_AGAIN).await;
            if let Ok(listener) = self.open() {
                tracing::info!(address = %self.address, "status page listens: the address became free");
                closed.send_modify(|it| it.retain(|closed| closed.address != self.address));
                return listener;
            }
        }
    }
}
