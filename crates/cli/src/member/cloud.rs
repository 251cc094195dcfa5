//! Load balancers of a cloud beside our own: what `--cloud-config` says, and who makes them.

use std::{path::Path, sync::Arc, time::Duration};

use anyhow::{Context, Result};
use seaway_cluster::{Cluster, Leading};
use seaway_drivers::octavia::{self, InCloud, Joining, Octavia, conf};
use seaway_model::{Change, Name, config::CloudDefaults};
use seaway_openstack::{Class, Cloud, Error, Settings, Source, credentials::CloudConf};
use tokio::{sync::mpsc, time::sleep};
use tracing::debug;

/// `spec.loadBalancerClass` of Services that want one.
pub(super) const CLASS: &str = "seaway.dev/octavia";
const CLOUD: &str = "openstack";
/// What was left behind is looked for this often.
const SWEEP: Duration = Duration::from_secs(300);
/// After a look that failed.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// What the file says of load balancers, and a line for each thing in it that means nothing here. Who we are in the cloud
/// is read when it is joined, and again whenever it changes.
pub(super) fn read(file: &Path) -> Result<(CloudDefaults, Vec<String>)> {
    let conf = CloudConf::read(file).with_context(|| format!("{} is needed", file.display()))?;
    let (defaults, mut told) = conf::read(&conf);
    told.extend(conf.unknown());
    Ok((defaults, told))
}

/// Who makes load balancers in the cloud of this file, once that lets us in.
pub(super) fn driver(
    file: &Path,
    cluster: &Cluster,
    name: &str,
    defaults: &CloudDefaults,
    leading: Leading,
) -> (Arc<Octavia>, InCloud) {
    let (source, cluster, name) = (Source::cloud_conf(file), cluster.clone(), Name::from(name));
    let join = move || -> Joining {
        let (source, cluster, name) = (source.clone(), cluster.clone(), name.clone());
        Box::pin(async move {
            let uid = cluster.identity().await.map_err(|error| {
                let text = format!("what tells this cluster from others is not known: {error}");
                Error::new(Class::Unreachable, text)
            })?;
            let cloud = Cloud::connect(source, Settings::default()).await?;
            Ok((cloud, octavia::Cluster { uid, name }))
        })
    };
    let driver = Octavia::new(Box::new(join), defaults.provider.clone(), move || leading.is_now());
    (Arc::new(driver), InCloud { cloud: CLOUD.into(), class: CLASS.into() })
}

/// Looks for what Services left behind that were deleted while nobody led: at the start of each lead, and now and then.
pub(super) async fn sweep(driver: Arc<Octavia>, mut leading: Leading, changes: mpsc::Sender<Change>) {
    loop {
        if !leading.is_now() {
            leading.changed_from(false).await;
        }
        let pause = match driver.survey(&CLOUD.into()).await {
            Ok(found) => {
                for unit in found {
                    if changes.send(Change::Found(unit)).await.is_err() {
                        return;
                    }
                }
                SWEEP
            }
            Err(error) => {
                debug!(%error, "what was left behind in the cloud is not known");
                LOOK_AGAIN
            }
        };
        tokio::select! {
            () = leading.changed_from(true) => {}
            () = sleep(pause) => {}
        }
    }
}
