//! Where services are, as Keystone says it; and which of that is for us.

use std::collections::BTreeSet;

use crate::{
    call::Service,
    credentials::{Credentials, Interface},
    error::{Class, Error},
};

/// What a token came with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog(Vec<Entry>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// `load-balancer`, or what an operator called it before there was an authority on that.
    pub kind: String,
    pub name: String,
    pub endpoints: Vec<Endpoint>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    pub interface: String,
    pub url: String,
    pub region: Option<String>,
    pub region_id: Option<String>,
}

/// An address that was chosen, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAddress {
    /// Without a slash at its end.
    pub url: String,
    /// `the catalog`, or where the override is written.
    pub from: String,
}

impl Catalog {
    pub fn new(entries: Vec<Entry>) -> Catalog {
        Catalog(entries)
    }

    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    /// The first that fits type, interface and region, unless the credentials name an address themselves.
    pub fn find(&self, service: Service, credentials: &Credentials) -> Result<ServiceAddress, Error> {
        if let Some(own) = credentials.overrides.get(&service) {
            return Ok(ServiceAddress { url: trimmed(&own.value), from: own.place.to_string() });
        }
        let endpoints = self.endpoints(service)?;
        let interface = credentials.interface;
        let ours: Vec<&Endpoint> = endpoints
            .iter()
            .copied()
            .filter(|it| Interface::parse(&it.interface) == Some(interface))
            .collect();
        if ours.is_empty() {
            let there: BTreeSet<&str> = endpoints.iter().map(|it| it.interface.as_str()).collect();
            return Err(Error::new(
                Class::NoService,
                format!("the catalog has no {interface} endpoint of the service {service}"),
            )
            .with_fix(format!(
                "set `interface` (cloud.conf: `os-endpoint-type`) to one of: {}",
                listed(there)
            )));
        }
        let found = match &credentials.region {
            None => ours.first().copied(),
            Some(region) => ours.iter().copied().find(|it| it.is_in(&region.value)),
        };
        match (found, &credentials.region) {
            (Some(endpoint), _) => {
                Ok(ServiceAddress { url: trimmed(&endpoint.url), from: "the catalog".to_owned() })
            }
            (None, region) => {
                let there: BTreeSet<&str> = ours.iter().filter_map(|it| it.region()).collect();
                let (wanted, place) = region.as_ref().map_or(("", ""), |it| (&it.value, &it.place.0));
                Err(Error::new(Class::NoRegion, format!("the cloud has no {service} in region {wanted:?}"))
                    .with_fix(format!("set the region ({place}) to one of: {}", listed(there))))
            }
        }
    }

    fn endpoints(&self, service: Service) -> Result<Vec<&Endpoint>, Error> {
        let of = |name: &str| {
            let name = bare(name);
            let named = self.0.iter().filter(move |entry| bare(&entry.kind) == name);
            named.flat_map(|entry| &entry.endpoints).collect::<Vec<_>>()
        };
        let found = [service.as_str(), service.project()].into_iter().map(of).find(|it| !it.is_empty());
        found.ok_or_else(|| {
            let there = listed(self.0.iter().map(|entry| entry.kind.as_str()).collect());
            Error::new(Class::NoService, format!("this cloud has no {} ({service})", service.project()))
                .with_fix(format!(
                    "ask its operators; if it exists, set `{}_endpoint_override`; the catalog has: {there}",
                    service.as_str().replace('-', "_"),
                ))
        })
    }
}

impl Endpoint {
    fn is_in(&self, region: &str) -> bool {
        [&self.region, &self.region_id].into_iter().flatten().any(|it| it == region)
    }

    fn region(&self) -> Option<&str> {
        self.region.as_deref().or(self.region_id.as_deref())
    }
}

/// The root that paths are below: what a catalog says, with the version if it leaves that out.
pub(crate) fn versioned(url: &str, service: Service) -> String {
    let url = trimmed(url);
    if is_versioned(&url) {
        return url;
    }
    let version = match service {
        Service::Identity => "v3",
        Service::Network => "v2.0",
        Service::LoadBalancer => "v2",
        Service::Compute => "v2.1",
        Service::KeyManager => "v1",
    };
    format!("{url}/{version}")
}

/// Without version, and without the project that Nova once wanted behind it: where versions are listed.
pub(crate) fn unversioned(url: &str) -> String {
    let url = trimmed(url);
    let mut parts: Vec<&str> = url.split('/').collect();
    match parts.as_slice() {
        [.., version] if is_version(version) => parts.truncate(parts.len().saturating_sub(1)),
        [.., version, _] if is_version(version) => parts.truncate(parts.len().saturating_sub(2)),
        _ => {}
    }
    parts.join("/")
}

fn is_versioned(url: &str) -> bool {
    url.rsplit('/').take(2).any(is_version)
}

/// `v2`, `v2.1`.
fn is_version(part: &str) -> bool {
    part.strip_prefix('v').is_some_and(|number| {
        number.starts_with(|c: char| c.is_ascii_digit())
            && number.chars().all(|c| c.is_ascii_digit() || c == '.')
    })
}

/// Without spaces around it, and without slashes at its end.
pub(super) fn trimmed(url: &str) -> String {
    url.trim_start().trim_end_matches(|c: char| c == '/' || c.is_whitespace()).to_owned()
}

/// `load_balancer`, `load-balancer` and `loadbalancer` have all been seen.
fn bare(kind: &str) -> String {
    kind.chars().filter(|c| !matches!(c, '-' | '_')).flat_map(char::to_lowercase).collect()
}

fn listed(names: BTreeSet<&str>) -> String {
    if names.is_empty() { "nothing".to_owned() } else { names.into_iter().collect::<Vec<_>>().join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::{Located, SourceLocation};

    fn endpoint(interface: &str, url: &str, region: &str, id: Option<&str>) -> Endpoint {
        Endpoint {
            interface: interface.into(),
            url: url.into(),
            region: Some(region.into()),
            region_id: id.map(Into::into),
        }
    }

    fn catalog() -> Catalog {
        let entry = |kind: &str, endpoints| Entry { kind: kind.into(), name: String::new(), endpoints };
        Catalog::new(vec![
            entry(
                "network",
                vec![
                    endpoint("internal", "http://n-int/", "RegionOne", None),
                    endpoint("public", "http://n-one//", "RegionOne", None),
                    endpoint("public", "http://n-two", "Two", Some("two-id")),
                ],
            ),
            entry("load_balancer", vec![endpoint("publicURL", "http://lb/load-balancer", "RegionOne", None)]),
            entry("nova", vec![endpoint("public", "http://c/v2.1/abc", "RegionOne", None)]),
        ])
    }

    fn find(service: Service, adjust: impl FnOnce(&mut Credentials)) -> Result<String, String> {
        let mut credentials = Credentials::password("http://k", "u", "p", "p").with_region("RegionOne");
        adjust(&mut credentials);
        catalog().find(service, &credentials).map(|it| it.url).map_err(|error| error.to_string())
    }

    #[test]
    fn an_endpoint_is_found_by_type_alias_interface_and_region() {
        assert_eq!(find(Service::Network, |_| {}), Ok("http://n-one".into()));
        assert_eq!(
            find(Service::Network, |it| it.interface = Interface::Internal),
            Ok("http://n-int".into())
        );
        assert_eq!(find(Service::Network, |it| it.region = None), Ok("http://n-one".into()));
        for region in ["Two", "two-id"] {
            let own = Located { value: region.to_owned(), place: SourceLocation(String::new()) };
            assert_eq!(find(Service::Network, |it| it.region = Some(own)), Ok("http://n-two".into()));
        }
        assert_eq!(find(Service::LoadBalancer, |_| {}), Ok("http://lb/load-balancer".into()));
        assert_eq!(find(Service::Compute, |_| {}), Ok("http://c/v2.1/abc".into()));
    }

    #[test]
    fn what_is_missing_is_told_with_what_is_there() {
        let place = SourceLocation("clouds.yaml:9".into());
        let own = Located { value: "Three".to_owned(), place };
        assert_eq!(
            find(Service::Network, |it| it.region = Some(own)).unwrap_err(),
            "the cloud has no network in region \"Three\"; set the region (clouds.yaml:9) to one of: RegionOne, Two"
        );
        assert_eq!(
            find(Service::Compute, |it| it.interface = Interface::Admin).unwrap_err(),
            "the catalog has no admin endpoint of the service compute; set `interface` (cloud.conf: \
             `os-endpoint-type`) to one of: public"
        );
        let missing = find(Service::KeyManager, |_| {}).unwrap_err();
        assert!(missing.starts_with("this cloud has no Barbican (key-manager); "), "{missing}");
        assert!(missing.ends_with("the catalog has: load_balancer, network, nova"), "{missing}");
    }

    #[test]
    fn an_override_beats_the_catalog() {
        let own =
            Located { value: "http://own:9876/".to_owned(), place: SourceLocation("clouds.yaml:3".into()) };
        let overridden = find(Service::KeyManager, |it| drop(it.overrides.insert(Service::KeyManager, own)));
        assert_eq!(overridden, Ok("http://own:9876".into()));
    }

    #[test]
    fn a_version_is_added_where_it_is_left_out_and_taken_away_to_list_them() {
        for (url, service, root, list) in [
            ("http://h:9696/", Service::Network, "http://h:9696/v2.0", "http://h:9696"),
            (
                "http://h/networking/v2.0/",
                Service::Network,
                "http://h/networking/v2.0",
                "http://h/networking",
            ),
            (
                "http://h/load-balancer",
                Service::LoadBalancer,
                "http://h/load-balancer/v2",
                "http://h/load-balancer",
            ),
            ("http://h:8774/v2.1/abc", Service::Compute, "http://h:8774/v2.1/abc", "http://h:8774"),
            ("http://h/vault", Service::KeyManager, "http://h/vault/v1", "http://h/vault"),
            ("http://v2.example", Service::Compute, "http://v2.example/v2.1", "http://v2.example"),
        ] {
            assert_eq!(versioned(url, service), root, "{url}");
            assert_eq!(unversioned(url), list, "{url}");
        }
    }
}
