//! A Service's part of a load balancer that others are on taken away, without its controller: by the driver itself, as if
//! its Service were deleted.

use seaway_engine::{Failure, Gate, work_once};
use seaway_model::{Desired, LbKey, Unit, unit::Place};
use seaway_openstack::{Class, Cloud, Error, octavia::LoadBalancer, resource::Id};

use super::{
    Joining, OCTAVIA, Octavia,
    belongings::{LOOK, PATIENCE},
    names::Cluster,
    shared::called,
};

pub(super) async fn leave(
    cloud: &Cloud,
    uid: &str,
    cascades: bool,
    id: &Id<LoadBalancer>,
    key: &LbKey,
) -> Result<(), Error> {
    let Some(it) = cloud.all::<LoadBalancer>().find::<LoadBalancer>(id).await? else { return Ok(()) };
    let cluster = Cluster { uid: uid.into(), name: called(&it, key) };
    let joined = cloud.clone();
    let join = move || -> Joining {
        let joined = (joined.clone(), cluster.clone());
        Box::pin(async move { Ok(joined) })
    };
    let driver = Octavia::new(Box::new(join), "".into(), || true).cascading(cascades);
    let unit =
        Unit::LoadBalancer(Place::Cloud { name: "openstack".into(), driver: OCTAVIA.into() }, key.clone());
    let since = cloud.clock().now();
    loop {
        match work_once(&driver, &unit, &Desired::Absent, &Gate::of_operator()).await {
            Ok(Some(it)) if it.report.again.is_some() => {}
            Ok(_) => return Ok(()),
            Err(Failure::Wait { .. }) => {}
            Err(failure) => return Err(Error::new(Class::Conflict, failure.to_string())),
        }
        if cloud.clock().now().saturating_duration_since(since) > PATIENCE {
            return Err(Error::new(Class::Timeout, "the object still exists"));
        }
        cloud.clock().sleep(LOOK).await;
    }
}
