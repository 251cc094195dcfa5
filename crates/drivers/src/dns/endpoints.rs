//! Names that external-dns publishes: what DNSEndpoint objects say of a name, in the words of markers, so that all is decided as
//! for a name server.

use seaway_acme::dns::UpdateOutcome;
use seaway_cluster::{DnsEndpoint, DnsEndpointError, DnsEndpoints};
use seaway_model::dns::DnsName;

use super::{
    DnsFailure,
    marker::Marker,
    steps::{Observed, Precondition, Step},
};

pub(super) async fn observe(objects: &DnsEndpoints, it: &DnsName) -> Result<Observed, DnsFailure> {
    Ok(observed(it, &objects.of_name(&it.installation, &it.name).await?))
}

/// The object of the Service that has the name says so first: between the two writes, no object lacks it.
pub(super) async fn change(
    objects: &DnsEndpoints,
    it: &DnsName,
    step: &Step,
) -> Result<UpdateOutcome, DnsFailure> {
    let writes = EndpointWrites::of(it, step);
    let done = async {
        if let Some((before, now)) = &writes.put {
            objects.put(&it.installation, &it.owner, &it.name, before.as_ref(), now).await?;
        }
        for before in &writes.remove {
            objects.remove(&it.installation, before, &it.name).await?;
        }
        Ok::<(), DnsEndpointError>(())
    };
    match done.await {
        Ok(()) => Ok(UpdateOutcome::Done),
        Err(DnsEndpointError::Changed(_)) => Ok(UpdateOutcome::NotAsPresupposed),
        Err(error) => Err(error.into()),
    }
}

fn observed(it: &DnsName, found: &[DnsEndpoint]) -> Observed {
    let marker = |endpoint: &DnsEndpoint| Marker {
        service: endpoint.service.to_string(),
        ttl: endpoint.ttl,
        host: None,
        ..Marker::of(it, endpoint.addresses.clone())
    };
    let mut texts: Vec<String> = found.iter().map(|it| marker(it).to_string()).collect();
    texts.sort();
    let addresses = found.iter().flat_map(|it| &it.addresses).copied().collect();
    Observed { texts, addresses, others: None }
}

/// A step, as what objects are to say.
#[derive(Debug, PartialEq, Eq)]
struct EndpointWrites {
    put: Option<(Option<DnsEndpoint>, DnsEndpoint)>,
    remove: Vec<DnsEndpoint>,
}

impl EndpointWrites {
    fn of(it: &DnsName, step: &Step) -> EndpointWrites {
        let read = |text: &String| {
            let marker = Marker::read(text)?;
            let Marker { service, ttl, addresses, .. } = marker;
            Some(DnsEndpoint { service: service.into(), ttl, addresses })
        };
        let before: Vec<DnsEndpoint> = match &step.presupposes {
            Precondition::Unused => Vec::new(),
            Precondition::Markers(texts) => texts.iter().filter_map(read).collect(),
        };
        let is_its_own = |endpoint: &DnsEndpoint| *endpoint.service == it.service();
        let now = step.adds_marker.as_ref().and_then(read).filter(is_its_own);
        let put = now.map(|now| (before.into_iter().find(is_its_own), now));
        let gone = step.removes_markers.iter().filter_map(read);
        let remove = gone.filter(|gone| put.is_none() || !is_its_own(gone)).collect();
        EndpointWrites { put, remove }
    }
}

impl From<DnsEndpointError> for DnsFailure {
    fn from(error: DnsEndpointError) -> DnsFailure {
        let fix = match &error {
            DnsEndpointError::NotInstalled => {
                "Install external-dns with its definition DNSEndpoint and --source=crd, or write another provider for the zone \
                 into dns.zones (docs/dns-names.md)."
            }
            DnsEndpointError::Forbidden(_) => {
                "As an administrator: kubectl apply -f deploy/kubernetes/components/dns-endpoints/dns-endpoints.yaml"
            }
            DnsEndpointError::Foreign(_) => {
                "Seaway keeps the names of a Service in an object of this name: rename or delete that object, or rename the Service."
            }
            DnsEndpointError::Changed(_) | DnsEndpointError::Failed(_) => {
                return DnsFailure::passing(error.to_string());
            }
        };
        DnsFailure { why: error.to_string(), fix }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, net::IpAddr, sync::Arc};

    use seaway_model::{
        Kind, ObjectRef, Owner,
        dns::{DnsProvider, DnsZone},
    };

    use super::{super::steps, *};

    fn ips(all: &[&str]) -> BTreeSet<IpAddr> {
        all.iter().map(|it| it.parse().expect("an address")).collect()
    }

    fn wanted(service: &str, addresses: &[&str]) -> DnsName {
        let by = DnsProvider::Endpoints;
        let zone = DnsZone { name: "shop.example".into(), by, ttl: 60, namespaces: Vec::new() };
        let object = ObjectRef::new(Kind::Service, "default", service);
        DnsName {
            name: "www.shop.example".into(),
            zone: Arc::new(zone),
            installation: "prod".into(),
            host: None,
            owner: Owner::Object { object, uid: "u".into() },
            ttl: 60,
            addresses: ips(addresses),
            keeps: ips(&["192.0.2.1"]),
            withdraws: false,
            rivals: BTreeSet::new(),
        }
    }

    fn says(service: &str, ttl: u32, addresses: &[&str]) -> DnsEndpoint {
        DnsEndpoint { service: service.into(), ttl, addresses: ips(addresses) }
    }

    fn check(
        it: &DnsName,
        is_wanted: bool,
        found: &[DnsEndpoint],
        put: Option<(Option<DnsEndpoint>, DnsEndpoint)>,
        remove: &[DnsEndpoint],
    ) {
        let seen = observed(it, found);
        let steps = steps::steps(it, is_wanted, &seen);
        let writes: Vec<EndpointWrites> = steps.iter().map(|step| EndpointWrites::of(it, step)).collect();
        let expected = EndpointWrites { put, remove: remove.to_vec() };
        match expected.put.is_none() && expected.remove.is_empty() {
            true => assert_eq!(writes, [], "{found:?}"),
            false => assert_eq!(writes, [expected], "{found:?}"),
        }
        // After it, nothing is left to do.
        let seen = steps.iter().fold(seen, |seen, step| steps::after(step, &seen));
        assert_eq!(steps::steps(it, is_wanted, &seen), [], "{found:?}");
    }

    #[test]
    fn an_object_says_what_is_wanted_and_one_of_a_former_owner_says_it_no_more() {
        let it = wanted("shop", &["192.0.2.1", "2001:db8::1"]);
        let now = says("default/shop", 60, &["192.0.2.1", "2001:db8::1"]);
        check(&it, true, &[], Some((None, now.clone())), &[]);
        check(&it, true, std::slice::from_ref(&now), None, &[]);
        // What somebody wrote into our object is written over.
        for wrong in [says("default/shop", 60, &["203.0.113.9"]), says("default/shop", 1, &["192.0.2.1"])] {
            check(&it, true, std::slice::from_ref(&wrong), Some((Some(wrong.clone()), now.clone())), &[]);
        }
        let former = says("b/old", 60, &["192.0.2.9"]);
        check(&it, true, &[former.clone(), now.clone()], None, std::slice::from_ref(&former));
        check(
            &it,
            true,
            std::slice::from_ref(&former),
            Some((None, now.clone())),
            std::slice::from_ref(&former),
        );
        check(&it, false, &[former.clone(), now.clone()], None, &[former, now.clone()]);
        // That no address answers takes none out that the Service still has.
        let none = DnsName { addresses: ips(&[]), ..it };
        let kept = says("default/shop", 60, &["192.0.2.1"]);
        check(&none, true, std::slice::from_ref(&now), Some((Some(now.clone()), kept)), &[]);
        check(&none, true, &[], None, &[]);
    }

    #[test]
    fn a_rival_that_has_the_name_keeps_it() {
        let it = DnsName { rivals: ["b/old".into()].into(), ..wanted("shop", &["192.0.2.1"]) };
        let rival = says("b/old", 60, &["192.0.2.9"]);
        check(&it, true, std::slice::from_ref(&rival), None, &[]);
        let seen = observed(&it, &[rival]);
        assert_eq!(steps::holder(&it, &seen), Some("b/old".into()));
    }
}
