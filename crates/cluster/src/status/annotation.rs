//! The address of a Service whose status tells a host name: as the annotation in which the cloud provider's controller says
//! it, for whoever has to know it all the same. One that is there already is kept true.

use std::net::IpAddr;

use seaway_model::{Status, outcome::Shown};
use serde_json::{Value, json};

use crate::seen::Published;

pub(crate) const ADDRESS: &str = "loadbalancer.openstack.org/load-balancer-address";

/// What it is to say, if it says something else.
pub(super) fn lacking(status: &Status, published: &Published) -> Option<IpAddr> {
    let hidden = matches!(status.shown, Shown::Name(_) | Shown::Suffixed(_));
    let served = |ip: &&IpAddr| status.serving.iter().any(|it| it.ip == **ip);
    let at = status.addresses.iter().find(served).filter(|_| hidden || published.address.is_some())?;
    let said = published.address.as_ref().and_then(|it| it.parse::<IpAddr>().ok());
    (said != Some(*at) && published.rival().is_none()).then_some(*at)
}

pub(super) fn body(uid: &str, at: IpAddr) -> Value {
    json!({ "metadata": { "uid": uid, "annotations": { ADDRESS: at.to_string() } } })
}

#[cfg(test)]
mod tests {
    use seaway_model::{L4, outcome::Serving};

    use super::*;

    #[test]
    fn an_address_is_annotated_where_a_name_hides_it_or_another_was_annotated() {
        let at: IpAddr = [192, 0, 2, 1].into();
        let serving = vec![Serving { ip: at, protocol: L4::Tcp, port: 80 }];
        let status =
            |shown: Shown| Status { addresses: vec![at], serving: serving.clone(), shown, ..nobody() };
        let said = |address: Option<&str>| Published {
            address: address.map(Into::into),
            ours: true,
            ..Published::default()
        };
        let hidden = [Shown::Name("shop.example".into()), Shown::Suffixed("nip.io".into())];
        for shown in hidden {
            assert_eq!(lacking(&status(shown.clone()), &said(None)), Some(at));
            assert_eq!(lacking(&status(shown.clone()), &said(Some("192.0.2.1"))), None);
            let unserved = Status { serving: Vec::new(), ..status(shown) };
            assert_eq!(lacking(&unserved, &said(None)), None);
        }
        assert_eq!(lacking(&status(Shown::Vip), &said(None)), None, "its status says it");
        assert_eq!(lacking(&status(Shown::Vip), &said(Some("192.0.2.9"))), Some(at), "it is true no more");
        let lost = Published { other: Some("another".into()), ..said(None) };
        assert_eq!(lacking(&status(Shown::Name("shop.example".into())), &lost), None);
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
            shown: Shown::default(),
            waits: None,
            takes_over: true,
            unreported: false,
            left: false,
        }
    }
}
