//! What a service says of itself at its root.

use std::time::Duration;

use serde_json::Value;

use crate::{
    call::{Microversion, Service},
    identity::catalog::{unversioned, versioned},
};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// `v2.0`, `v2.1`, … of those that may be used.
    pub ids: Vec<String>,
    /// The dialects that may be asked for, of a service that has microversions.
    pub micro: Option<(Microversion, Microversion)>,
}

/// A service is upgraded under our feet.
pub(super) const LASTING: Duration = Duration::from_secs(3600);

/// Where they may be listed: at the root, or where a proxy hides that, below the version itself.
pub(super) const PLACES: [fn(&str, Service) -> String; 2] = [
    |url, _| format!("{}/", unversioned(url)),
    |url, service| format!("{}/", versioned(&unversioned(url), service)),
];

impl Versions {
    /// Whether an API of this version is there: Octavia lists each of `v2.0` … `v2.27`, Nova a range.
    pub fn supports(&self, major: u32, minor: u32) -> bool {
        let wanted = Microversion { major, minor };
        self.ids.iter().any(|id| Microversion::parse(id) == Some(wanted))
            || self.micro.is_some_and(|(least, most)| least <= wanted && wanted <= most)
    }

    /// Of `{"versions": [..]}`, `{"versions": {"values": [..]}}` or `{"version": {..}}`. None if it is none of them.
    pub(super) fn read(body: &Value) -> Option<Versions> {
        let listed = body.pointer("/versions/values").or_else(|| body.get("versions"));
        let listed: Vec<&Value> = match (listed.and_then(Value::as_array), body.get("version")) {
            (Some(listed), _) => listed.iter().collect(),
            (None, Some(one)) => vec![one],
            (None, None) => return None,
        };
        let text = |version: &Value, key: &str| version.get(key)?.as_str().map(str::to_owned);
        let mut found = Versions::default();
        for version in listed {
            let Some(id) = text(version, "id") else { continue };
            if text(version, "status").is_some_and(|status| status.eq_ignore_ascii_case("deprecated")) {
                continue;
            }
            let least = text(version, "min_version").and_then(|text| Microversion::parse(&text));
            let most = ["version", "max_version"]
                .iter()
                .find_map(|key| text(version, key).and_then(|text| Microversion::parse(&text)));
            if let (Some(least), Some(most)) = (least, most) {
                found.micro = found.micro.max(Some((least, most)));
            }
            found.ids.push(id);
        }
        (!found.ids.is_empty()).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_services_way_of_listing_versions_is_read() {
        let octavia = json!({"versions": [
            {"id": "v1", "status": "DEPRECATED"}, {"id": "v2.0", "status": "SUPPORTED"},
            {"id": "v2.26", "status": "CURRENT"}]});
        let octavia = Versions::read(&octavia).expect("versions");
        assert_eq!(octavia.ids, ["v2.0", "v2.26"]);
        assert!(octavia.supports(2, 26) && !octavia.supports(2, 27));

        let nova =
            json!({"version": {"id": "v2.1", "status": "CURRENT", "version": "2.96", "min_version": "2.1"}});
        let nova = Versions::read(&nova).expect("versions");
        assert!(nova.supports(2, 1) && nova.supports(2, 96) && !nova.supports(2, 97));

        let barbican = json!({"versions": {"values": [{"id": "v1", "status": "stable"}]}});
        assert_eq!(Versions::read(&barbican).expect("versions").ids, ["v1"]);
        for strange in [json!(null), json!({"versions": 7}), json!({"versions": [{}]}), json!([])] {
            assert_eq!(Versions::read(&strange), None, "{strange}");
        }
    }

    #[test]
    fn versions_are_looked_for_at_the_root_and_below_the_version() {
        assert_eq!(
            PLACES.map(|place| place("http://h:8774/v2.1/abc", Service::Compute)),
            ["http://h:8774/", "http://h:8774/v2.1/"]
        );
    }
}
