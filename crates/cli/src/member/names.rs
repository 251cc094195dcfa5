//! Tells who records owners of names what namespaces claim, whenever that may be another.

use std::time::{Duration, Instant};

use seaway_cluster::{
    Cluster, DnsEndpoints, FirstClaims, Leadership, NameOwnerTimings, NameOwnerWriter, api_server,
};
use seaway_drivers::dns::DnsNames;
use seaway_engine::Handle;
use seaway_plan::World;
use seaway_watchdog::WatchedPart;
use tokio::time::sleep;

const AFTER: Duration = Duration::from_millis(50);
const AT_LAST: Duration = Duration::from_secs(1);

pub(super) fn keep(
    cluster: &Cluster,
    leading: Leadership,
    handle: Handle,
) -> (WatchedPart, impl Future<Output = ()> + use<>) {
    let keeper = NameOwnerWriter::start(cluster, leading, NameOwnerTimings::default(), handle.changes());
    let part = keeper.part();
    let claims = async move {
        let mut moved = handle.moved();
        loop {
            moved.mark_unchanged();
            let begin = Instant::now();
            match handle.ask(claims).await {
                Some(claims) => keeper.set_claims(claims),
                None => return,
            }
            let pause = (begin.elapsed() * 4).clamp(AFTER, AT_LAST);
            if moved.changed().await.is_err() {
                return;
            }
            sleep(pause).await;
        }
    };
    (part, claims)
}

pub(super) fn in_dns(cluster: &Cluster) -> DnsNames {
    DnsNames::default().with_endpoints(DnsEndpoints::new(cluster.clone()))
}

fn claims(world: &World) -> Option<FirstClaims> {
    let seaway_plan::FirstClaims { claimed, recorded } = world.first_claims()?;
    // A kind that may not be listed may claim more.
    let complete = world.sees_all_that_names(&api_server());
    Some(FirstClaims { claimed, recorded, complete })
}
