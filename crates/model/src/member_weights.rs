//! Weights of members that an operator set while the process runs. They come before those of manifests until they are taken back.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use crate::name::{Name, Time};

/// What an operator said of one member, of all members of a Service, or of one member of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightOverride {
    #[serde(flatten)]
    pub of: WeightTarget,
    pub weight: u32,
    pub since: Time,
}

/// Whose weight it is. One of the two is named at least.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WeightTarget {
    /// Namespace and name; none: of all Services that have the member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<(Name, Name)>,
    /// None: all members of the Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<SocketAddr>,
}

/// All that is set now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberWeights(pub Vec<WeightOverride>);

impl MemberWeights {
    /// The one that says most precisely what it is of; nothing, where the manifests say it.
    pub fn of(&self, namespace: &Name, name: &Name, member: SocketAddr) -> Option<u32> {
        let is_of = |of: &WeightTarget| {
            of.service.as_ref().is_none_or(|(space, it)| space == namespace && it == name)
                && of.member.is_none_or(|at| at == member)
        };
        let precise = |of: &WeightTarget| (of.member.is_some(), of.service.is_some());
        let fitting = self.0.iter().filter(|it| is_of(&it.of));
        fitting.max_by_key(|it| precise(&it.of)).map(|it| it.weight)
    }

    /// In place of what was set for the same.
    pub fn set(&mut self, set: WeightOverride) {
        self.0.retain(|it| it.of != set.of);
        self.0.push(set);
    }

    /// Whether anything was set for it.
    pub fn clear(&mut self, of: &WeightTarget) -> bool {
        let before = self.0.len();
        self.0.retain(|it| it.of != *of);
        self.0.len() != before
    }
}

impl std::fmt::Display for WeightTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.member, &self.service) {
            (Some(member), None) => member.fmt(f),
            (Some(member), Some((namespace, name))) => write!(f, "{member} of {namespace}/{name}"),
            (None, Some((namespace, name))) => write!(f, "all members of {namespace}/{name}"),
            (None, None) => f.write_str("all members"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(service: Option<&str>, member: Option<&str>) -> WeightTarget {
        WeightTarget {
            service: service.map(|it| ("default".into(), it.into())),
            member: member.map(|it| it.parse().expect("an address")),
        }
    }

    #[test]
    fn the_most_precise_word_counts() {
        let mut weights = MemberWeights::default();
        let asked = |weights: &MemberWeights, service: &str, member: &str| {
            weights.of(&"default".into(), &service.into(), member.parse().expect("an address"))
        };
        assert_eq!(asked(&weights, "web", "10.0.0.1:80"), None);
        for (of, weight) in [
            (of(Some("web"), None), 1),
            (of(None, Some("10.0.0.1:80")), 2),
            (of(Some("web"), Some("10.0.0.1:80")), 3),
        ] {
            weights.set(WeightOverride { of, weight, since: Time(1) });
        }
        assert_eq!(asked(&weights, "web", "10.0.0.1:80"), Some(3));
        assert_eq!(asked(&weights, "web", "10.0.0.2:80"), Some(1));
        assert_eq!(asked(&weights, "api", "10.0.0.1:80"), Some(2));
        assert_eq!(asked(&weights, "api", "10.0.0.1:81"), None);
        weights.set(WeightOverride { of: of(None, Some("10.0.0.1:80")), weight: 9, since: Time(2) });
        assert_eq!((weights.0.len(), asked(&weights, "api", "10.0.0.1:80")), (3, Some(9)));
        assert!(weights.clear(&of(None, Some("10.0.0.1:80"))));
        assert!(!weights.clear(&of(None, Some("10.0.0.1:80"))));
        assert_eq!(asked(&weights, "api", "10.0.0.1:80"), None);
    }
}
