//! Routing of replies for `seaway.dev/transparent`. Members that see their clients' addresses are used only while their replies are
//! routed back to this host.

use std::{
    io::ErrorKind,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use seaway_announce::{Error, UNDIVERT, divert};
use seaway_engine::chain;
use seaway_model::{Owner, Pool, Problem, Reason};

/// Somebody may have cleaned up what he did not know.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// Whether answers to clients' addresses come to our sockets, and since when that is known.
#[derive(Default)]
pub struct ReplyPath(Mutex<Option<(Instant, Result<(), ReplyPathProblem>)>>);

/// Why they do not.
#[derive(Clone, Debug)]
pub struct ReplyPathProblem {
    reason: Reason,
    message: String,
    fix: &'static str,
}

impl ReplyPath {
    /// Makes it so, where it is not known to be.
    pub(super) fn route_replies_back(&self) -> Result<(), ReplyPathProblem> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some((since, Ok(()))) if since.elapsed() < LOOK_AGAIN => Ok(()),
            _ => {
                let led = divert().map_err(|error| ReplyPathProblem::by(&error));
                *known = Some((Instant::now(), led.clone()));
                led
            }
        }
    }

    /// What is left on this machine once nobody leads them back any more, with the commands that remove it; nothing, if no
    /// Service asked for it.
    pub fn leftovers(&self) -> Option<String> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let led = matches!(&*known, Some((_, Ok(()))));
        led.then(|| {
            format!(
                "seaway.dev/transparent used an nftables table and routing rules, which stay for the next start and affect \
                 no other traffic. To remove them, as root: {UNDIVERT}"
            )
        })
    }

    /// The pool as it can be served: better that members see this host than that nobody is answered.
    pub(super) fn servable(&self, pool: &Arc<Pool>) -> Arc<Pool> {
        match pool.transparent && self.route_replies_back().is_err() {
            true => Arc::new(Pool { transparent: false, ..Pool::clone(pool) }),
            false => pool.clone(),
        }
    }
}

impl ReplyPathProblem {
    fn by(error: &Error) -> ReplyPathProblem {
        match error {
            Error::Failed { doing, source } if source.kind() == ErrorKind::PermissionDenied => {
                ReplyPathProblem {
                    reason: Reason::NotPermitted,
                    message: format!(
                        "{doing} needs the Linux capability NET_ADMIN; members see the address of this host instead of the client's"
                    ),
                    fix: "As root: setcap cap_net_admin,cap_net_bind_service+ep seaway, or AmbientCapabilities= in its unit.",
                }
            }
            _ => ReplyPathProblem {
                reason: Reason::Failed,
                message: format!(
                    "{}; members see the address of this host instead of the client's",
                    chain(error)
                ),
                fix: "Load the kernel modules nf_tables and nft_socket (modprobe nft_socket).",
            },
        }
    }

    pub(super) fn problem(&self, owner: &Owner) -> Problem {
        Problem::new(owner.object(), self.reason, self.message.clone()).fix(self.fix)
    }
}
