//! The annotations in which the cloud provider's controller says what a Service has in its cloud.
//!
//! ```text
//!     load-balancer-address   written where the status tells a host name; one that is there is kept true
//!     load-balancer-id        never written where there is none; one that names what is gone says what serves instead
//! ```
//! That controller fails on an id that is gone: the Service could not go back to it.

use std::net::IpAddr;

use seaway_model::{
    Status,
    outcome::{PublishedAs, ReplacedLoadBalancer},
};
use serde_json::{Value, json};

use crate::object_cache::PublishedService;

pub(crate) const ADDRESS: &str = "loadbalancer.openstack.org/load-balancer-address";

pub(crate) const BALANCER: &str = "loadbalancer.openstack.org/load-balancer-id";

/// What it is to say, if it says something else.
pub(super) fn missing_address(status: &Status, published: &PublishedService) -> Option<IpAddr> {
    let hidden = matches!(status.shown, PublishedAs::Name(_) | PublishedAs::Suffixed(_));
    let served = |ip: &&IpAddr| status.serving.iter().any(|it| it.ip == **ip);
    let at = status.addresses.iter().find(served).filter(|_| hidden || published.address.is_some())?;
    let said = published.address.as_ref().and_then(|it| it.parse::<IpAddr>().ok());
    (said != Some(*at) && published.rival().is_none()).then_some(*at)
}

pub(super) fn body(uid: &str, at: IpAddr) -> Value {
    json!({ "metadata": { "uid": uid, "annotations": { ADDRESS: at.to_string() } } })
}

/// What serves the Service, if the annotation names what is gone.
pub(super) fn outdated_balancer<'s>(
    status: &'s Status,
    published: &PublishedService,
) -> Option<&'s ReplacedLoadBalancer> {
    status.replaced.as_ref().filter(|it| published.balancer.as_ref() == Some(&it.gone))
}

/// Refused if the Service was changed since: it may name another one by now.
pub(super) fn body_of_balancer(uid: &str, published: &PublishedService, by: &str) -> Value {
    let version = &*published.version.0;
    json!({ "metadata": { "uid": uid, "resourceVersion": version, "annotations": { BALANCER: by } } })
}

#[cfg(test)]
mod tests {
    use seaway_model::{L4, outcome::ServingSocket};

    use super::*;
    use crate::object_cache::Version;

    #[test]
    fn an_address_is_annotated_where_a_name_hides_it_or_another_was_annotated() {
        let at: IpAddr = [192, 0, 2, 1].into();
        let serving = vec![ServingSocket { ip: at, protocol: L4::Tcp, port: 80 }];
        let status =
            |shown: PublishedAs| Status { addresses: vec![at], serving: serving.clone(), shown, ..nobody() };
        let said = |address: Option<&str>| PublishedService {
            address: address.map(Into::into),
            ours: true,
            ..PublishedService::default()
        };
        let hidden = [PublishedAs::Name("shop.example".into()), PublishedAs::Suffixed("nip.io".into())];
        for shown in hidden {
            assert_eq!(missing_address(&status(shown.clone()), &said(None)), Some(at));
            assert_eq!(missing_address(&status(shown.clone()), &said(Some("192.0.2.1"))), None);
            let unserved = Status { serving: Vec::new(), ..status(shown) };
            assert_eq!(missing_address(&unserved, &said(None)), None);
        }
        assert_eq!(missing_address(&status(PublishedAs::Vip), &said(None)), None, "its status says it");
        assert_eq!(
            missing_address(&status(PublishedAs::Vip), &said(Some("192.0.2.9"))),
            Some(at),
            "it is true no more"
        );
        let lost = PublishedService { other: Some("another".into()), ..said(None) };
        assert_eq!(missing_address(&status(PublishedAs::Name("shop.example".into())), &lost), None);
    }

    #[test]
    fn an_id_is_annotated_again_only_where_the_one_that_is_there_is_gone() {
        let replaced = || Some(ReplacedLoadBalancer { gone: "old".into(), by: "new".into() });
        let said = |id: Option<&str>| PublishedService {
            balancer: id.map(Into::into),
            ..PublishedService::default()
        };
        for (id, replaced, expected) in [
            (Some("old"), replaced(), Some("new")),
            (Some("new"), replaced(), None),
            (Some("another"), replaced(), None),
            // It is not written where there is none: tags tell whose a load balancer is.
            (None, replaced(), None),
            // What serves it is not known.
            (Some("old"), None, None),
        ] {
            let status = Status { replaced, ..nobody() };
            let told = outdated_balancer(&status, &said(id)).map(|it| &*it.by);
            assert_eq!(told, expected, "{id:?}");
        }
        let body = body_of_balancer(
            "u",
            &PublishedService { version: Version("7".into()), ..said(Some("old")) },
            "new",
        );
        assert_eq!(body["metadata"]["annotations"], json!({ BALANCER: "new" }));
        assert_eq!(body["metadata"]["resourceVersion"], "7", "whoever changed it meanwhile is heard first");
    }

    fn nobody() -> Status {
        Status {
            owner: seaway_model::Owner::Config("nobody".into()),
            addresses: Vec::new(),
            ready: true,
            serving: Vec::new(),
            members: 0,
            problems: Vec::new(),
            pool: None,
            announced: None,
            shown: PublishedAs::default(),
            waits: None,
            takes_over: true,
            unreported: false,
            replaced: None,
            ports: Vec::new(),
            left: false,
        }
    }
}
