//! What must hold for whatever Keystone, or who pretends to be it, answers a sign-in (`fuzz/README.md`).

use serde_json::Value;

use super::{
    catalog::{trimmed, unversioned, versioned},
    v2, v3,
};
use crate::{
    call::Service,
    credentials::{AuthMethod, Credentials, Interface, Located, Scope, SourceLocation},
    error::Class,
};

const SERVICES: [Service; 5] =
    [Service::Identity, Service::Network, Service::LoadBalancer, Service::Compute, Service::KeyManager];

/// What is found in a catalog is in it, for the interface and the region that were asked for; what is not found is told with a
/// way out. A version is added to a URL once.
pub fn catalog(bytes: &[u8]) {
    let Ok(body) = serde_json::from_slice::<Value>(bytes) else { return };
    let place = || SourceLocation("clouds.yaml:3".into());
    let token = Some("token".into());
    for grant in [v3::grant(&body, token), v2::grant(&body)].into_iter().flatten() {
        for (service, region) in SERVICES.into_iter().flat_map(|it| [(it, None), (it, Some("RegionOne"))]) {
            let mut asked = Credentials::new("http://k/v3", AuthMethod::Token("token".into()), Scope::Unsaid);
            asked.region = region.map(|it| Located { value: it.to_owned(), place: place() });
            let all = grant.catalog.entries().iter().flat_map(|it| &it.endpoints);
            let mut fitting = all.filter(|it| Interface::parse(&it.interface) == Some(Interface::Public));
            match grant.catalog.find(service, &asked) {
                Ok(found) => {
                    let is_it = fitting.any(|it| {
                        let of_region = [&it.region, &it.region_id].into_iter().flatten();
                        trimmed(&it.url) == found.url
                            && region.is_none_or(|region| of_region.into_iter().any(|it| it == region))
                    });
                    assert!(is_it, "{} is not in the catalog, in region {region:?}", found.url);
                    urls(&found.url, service);
                }
                Err(error) => {
                    assert!(matches!(error.class(), Class::NoService | Class::NoRegion), "{error}");
                    assert!(error.fix().is_some(), "{error}");
                }
            }
        }
    }
}

fn urls(url: &str, service: Service) {
    let whole = versioned(url, service);
    assert_eq!(versioned(&whole, service), whole);
    assert!(whole == url || unversioned(&whole) == url, "{url:?} became {whole:?}");
}
