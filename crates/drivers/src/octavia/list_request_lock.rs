//! One list for all who need it at once. Who asks for it waits for it; who finds that another is asking waits a second,
//! then does something else first: a slow list delays one worker and not all.

use std::time::Duration;

use seaway_engine::Failure;
use tokio::{
    sync::{Mutex, MutexGuard},
    time::timeout,
};

/// A list takes a fraction of this.
pub(super) const PATIENCE: Duration = Duration::from_secs(1);

/// Whose turn it is to ask for a list.
#[derive(Default)]
pub(super) struct Turns(Mutex<()>);

/// Another has been asking for longer than one waits.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Late;

impl Turns {
    /// Held while the list is asked for. Look again at what is kept then: another may have asked meanwhile.
    pub(super) async fn take(&self) -> Result<MutexGuard<'_, ()>, Late> {
        timeout(PATIENCE, self.0.lock()).await.map_err(|_| Late)
    }
}

impl From<Late> for Failure {
    fn from(Late: Late) -> Failure {
        Failure::wait(
            "waiting for a slow list request to OpenStack that another load balancer has in flight"
                .to_owned(),
            PATIENCE,
        )
    }
}
