//! Whole views, which cost the planner's time: strangers share one a second, however often they ask.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use futures::future::{BoxFuture, FutureExt, Shared};

use super::{ViewDetail, ViewSource};
use crate::view::View;

/// Strangers are told what was so no longer ago than this.
const STALE: Duration = Duration::from_secs(1);
/// Those who began a look may all be gone: nobody goes on with one that is older.
const LEFT: Duration = Duration::from_secs(5);

pub(super) struct ViewCache {
    source: ViewSource,
    shared: Mutex<Option<PendingView>>,
}

struct PendingView {
    at: Instant,
    look: Shared<BoxFuture<'static, CachedView>>,
}

#[derive(Clone)]
pub(super) struct CachedView {
    pub(super) at: Instant,
    pub(super) view: Arc<View>,
}

impl ViewCache {
    pub(super) fn new(source: ViewSource) -> ViewCache {
        ViewCache { source, shared: Mutex::default() }
    }

    pub(super) async fn readiness_view(&self) -> Arc<View> {
        (self.source)(ViewDetail::Readiness).await
    }

    /// As it is now.
    pub(super) async fn full_view(&self) -> CachedView {
        cached((self.source)(ViewDetail::Whole)).await
    }

    /// As somebody saw it a moment ago, or is about to see it.
    pub(super) async fn recent_full_view(&self) -> CachedView {
        let look = {
            // A look is begun under this lock, and waited for without it.
            let mut shared = self.shared.lock().unwrap_or_else(PoisonError::into_inner);
            match shared.as_ref().filter(|it| it.is_of_late()) {
                Some(begun) => begun.look.clone(),
                None => {
                    let look = cached((self.source)(ViewDetail::Whole)).boxed().shared();
                    *shared = Some(PendingView { at: Instant::now(), look: look.clone() });
                    look
                }
            }
        };
        look.await
    }
}

impl PendingView {
    fn is_of_late(&self) -> bool {
        match self.look.peek() {
            Some(seen) => seen.at.elapsed() < STALE,
            None => self.at.elapsed() < LEFT,
        }
    }
}

async fn cached(looking: super::ViewFuture) -> CachedView {
    let view = looking.await;
    CachedView { at: Instant::now(), view }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;
    use tokio::task::yield_now;

    use super::*;

    #[tokio::test]
    async fn strangers_who_ask_at_once_share_a_look_and_this_machine_has_its_own() {
        let looked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&looked);
        let views = ViewCache::new(Arc::new(move |_| {
            let counted = Arc::clone(&counted);
            Box::pin(async move {
                yield_now().await;
                counted.fetch_add(1, Ordering::Relaxed);
                Arc::new(View::default())
            })
        }));
        join_all((0..100).map(|_| views.recent_full_view())).await;
        views.recent_full_view().await;
        assert_eq!(looked.load(Ordering::Relaxed), 1);
        views.full_view().await;
        assert_eq!(looked.load(Ordering::Relaxed), 2);
    }
}
