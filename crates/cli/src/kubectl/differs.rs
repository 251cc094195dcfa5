//! What the cloud provider's controller would do otherwise with a Service of ours, said before it is released. Pure.

use std::collections::BTreeSet;

use seaway_drivers::octavia::belongings::{Belonging, CloudObject, primary};
use seaway_model::fact::Service;

pub(super) const ID: &str = "loadbalancer.openstack.org/load-balancer-id";
const TLS: &str = "seaway.dev/tls";
const REFERENCE: &str = "loadbalancer.openstack.org/default-tls-container-ref";
const MONITOR: &str = "loadbalancer.openstack.org/enable-health-monitor";

/// The id that is to be written, if the annotation does not say it.
pub(super) fn id_to_write<'t>(service: &Service, there: &'t [Belonging]) -> Option<&'t str> {
    let id = primary(there, &service.meta.uid)?;
    (said(service, ID) != Some(id.as_str())).then(|| id.as_str())
}

/// A line each; `there`: what the cloud has, where it was asked.
pub(super) fn differences(service: &Service, there: Option<&[Belonging]>) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(there) = there {
        lines.extend(of_id(service, there));
        lines.extend(of_second(service, there));
    }
    lines.extend(of_tls(service, there.unwrap_or_default()));
    if service.local_only && said(service, MONITOR) != Some("true") {
        lines.push(format!(
            "externalTrafficPolicy is Local: with create-monitor=false, its default, the other controller deletes the health \
             monitor, and connections go to Nodes without pods, too. To keep it: {MONITOR}=true"
        ));
    }
    let is_ours = |it: &&str| it.starts_with("seaway.dev/") && *it != TLS;
    let ignored: Vec<&str> = service.meta.annotations.keys().map(|it| &**it).filter(is_ours).collect();
    if !ignored.is_empty() {
        lines.push(format!("the other controller ignores {}", ignored.join(", ")));
    }
    lines
}

fn of_id(service: &Service, there: &[Belonging]) -> Option<String> {
    match (id_to_write(service, there), said(service, ID)) {
        (Some(id), None) => Some(format!("{ID} would be written: {id}")),
        (Some(id), Some(wrong)) => Some(format!(
            "{ID} would be corrected: {id} instead of {wrong}, which the other controller would fail on"
        )),
        (None, Some(id)) if primary(there, &service.meta.uid).is_none() => Some(format!(
            "{ID} says {id}, but the cloud has nothing of Seaway for this Service: the other controller \
             fails if the cloud has no load balancer {id}. Remove the annotation in that case"
        )),
        (None, _) => None,
    }
}

fn of_second(service: &Service, there: &[Belonging]) -> Option<String> {
    let is_its = |it: &&Belonging| {
        matches!(it.thing, CloudObject::LoadBalancer(_))
            && it.service.as_deref() == Some(service.meta.uid.as_str())
    };
    let its: BTreeSet<_> = there.iter().filter(is_its).filter_map(|it| it.on.as_ref()).collect();
    (its.len() > 1).then(|| {
        "the Service has two load balancers, one for each IP family, and the other controller would use \
         only one of them: first, while Seaway serves the Service, set one family in spec.ipFamilies"
            .to_owned()
    })
}

fn of_tls(service: &Service, there: &[Belonging]) -> Option<String> {
    let is_from_secret = said(service, TLS).is_some() && said(service, REFERENCE).is_none();
    let kept = there.iter().find_map(|it| match &it.thing {
        CloudObject::Container(id) if it.service.as_deref() == Some(service.meta.uid.as_str()) => Some(id),
        _ => None,
    });
    let reference =
        kept.map_or("a Barbican container".to_owned(), |id| format!("the Barbican container {id}"));
    is_from_secret.then(|| {
        format!(
            "the certificate of the Service is in a Secret ({TLS}), which the other controller does not \
             read: it would ask for a TCP listener at a port that has a TLS listener, and Octavia answers \
             409 at each attempt. First write the annotation {REFERENCE} with the reference of {reference}"
        )
    })
}

fn said<'s>(service: &'s Service, name: &str) -> Option<&'s str> {
    service.meta.annotations.get(name).map(|it| &**it)
}

#[cfg(test)]
mod tests {
    use seaway_openstack::resource::Id;
    use seaway_testkit::facts::shop;

    use super::*;

    fn with(annotations: &[(&str, &str)]) -> Service {
        let mut service = shop();
        service.meta.annotations =
            annotations.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        service
    }

    fn named<T>(id: &str) -> Id<T> {
        id.parse().expect("an id")
    }

    fn has(thing: CloudObject, on: &str, marks: &[&str]) -> Belonging {
        Belonging {
            thing,
            name: "a".to_owned(),
            service: Some(shop().meta.uid.to_string()),
            marks: marks.iter().map(|it| (*it).to_owned()).collect(),
            kept: false,
            used: true,
            on: Some(named(on)),
            left: false,
        }
    }

    fn balancer(id: &str, family: &str) -> Belonging {
        has(
            CloudObject::LoadBalancer(named(id)),
            id,
            &[&format!("seaway.dev/key={}{family}", shop().meta.uid)],
        )
    }

    #[test]
    fn the_id_is_written_or_corrected_where_the_cloud_says_it() {
        let there = [balancer("8c1f", ""), balancer("9d20", ":IPv6")];
        let id = |annotations: &[_], there: &[Belonging]| {
            id_to_write(&with(annotations), there).map(str::to_owned)
        };
        assert_eq!(id(&[], &there), Some("8c1f".to_owned()), "the second is not the one");
        assert_eq!(id(&[(ID, "dead")], &there), Some("8c1f".to_owned()));
        assert_eq!(id(&[(ID, "8c1f")], &there), None);
        assert_eq!(id(&[(ID, "dead")], &[]), None, "nothing of ours: it may be right");
        assert_eq!(id(&[], &[balancer("8c1f", ""), balancer("9d20", "")]), None, "which is it?");
        let told = differences(&with(&[(ID, "dead")]), Some(&there));
        assert!(told[0].contains("corrected: 8c1f instead of dead"), "{told:?}");
        assert!(told[1].contains("two load balancers"), "{told:?}");
        let told = differences(&with(&[(ID, "dead")]), Some(&[]));
        assert!(told[0].contains("Remove the annotation"), "{told:?}");
    }

    #[test]
    fn what_the_other_controller_would_do_otherwise_is_said() {
        assert_eq!(differences(&with(&[]), None), [""; 0]);
        let told = differences(&with(&[(TLS, "shop-tls"), ("seaway.dev/pause", "true")]), None);
        assert!(told[0].contains("answers 409") && told[0].contains("a Barbican container"), "{told:?}");
        assert_eq!(told[1], "the other controller ignores seaway.dev/pause");
        let there = [has(CloudObject::Container(named("c0")), "8c1f", &[])];
        assert!(
            differences(&with(&[(TLS, "shop-tls")]), Some(&there))[0].contains("the Barbican container c0")
        );
        assert_eq!(differences(&with(&[(TLS, "shop-tls"), (REFERENCE, "https://x")]), None), [""; 0]);
        let local = |monitor: &[_]| differences(&Service { local_only: true, ..with(monitor) }, None);
        assert!(local(&[])[0].contains("create-monitor=false"));
        assert!(local(&[(MONITOR, "false")])[0].contains("create-monitor=false"));
        assert_eq!(local(&[(MONITOR, "true")]), [""; 0]);
    }
}
