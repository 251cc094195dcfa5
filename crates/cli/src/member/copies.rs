//! Tells who keeps copies of certificates what is named, whenever that may be another.

use std::time::{Duration, Instant};

use seaway_cluster::{Cluster, CopyTimings, CopyWriter, Leadership, NamedCertificates, api_server};
use seaway_engine::Handle;
use seaway_model::Name;
use seaway_plan::World;
use seaway_watchdog::WatchedPart;
use tokio::time::sleep;

const AFTER: Duration = Duration::from_millis(50);
const AT_LAST: Duration = Duration::from_secs(1);

pub(super) fn keep(
    cluster: &Cluster,
    leading: Leadership,
    namespace: Name,
    handle: Handle,
) -> (WatchedPart, impl Future<Output = ()> + use<>) {
    let keeper =
        CopyWriter::start(cluster, leading, namespace.clone(), CopyTimings::default(), handle.changes());
    let part = keeper.part();
    let names = async move {
        let mut moved = handle.moved();
        loop {
            moved.mark_unchanged();
            let begin = Instant::now();
            let namespace = namespace.clone();
            match handle.ask(move |world| named(world, &namespace)).await {
                Some(Some(named)) => keeper.set_wanted(named),
                // Before all is known, nothing is known to be unnamed.
                Some(None) => {}
                None => return,
            }
            let pause = (begin.elapsed() * 4).clamp(AFTER, AT_LAST);
            if moved.changed().await.is_err() {
                return;
            }
            sleep(pause).await;
        }
    };
    (part, names)
}

fn named(world: &World, namespace: &Name) -> Option<NamedCertificates> {
    let certificates = world.named_certificates()?;
    // A kind that may not be listed may name more.
    let complete = world.sees_all_that_names(&api_server());
    Some(NamedCertificates {
        certificates,
        namespace: world.knows_namespace(namespace),
        complete,
        limit: world.config().tenants.limits.certificate_bytes,
        configured: world.configured_secrets(),
    })
}
