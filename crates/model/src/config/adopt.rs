//! Which load balancers of another controller are adopted, and how fast.

use crate::{
    fact::{Labels, Meta},
    name::Name,
};

/// Which Services are adopted that Seaway does not serve yet. The default adopts all of clouds at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdoptionConfig {
    /// Of load balancers of clouds.
    pub mode: AdoptMode,
    /// Of Services that our own data plane would serve. Where nothing is configured, none is adopted.
    pub native: AdoptMode,
    pub only: AdoptionSelector,
    /// So many adoptions begin in a minute; `None`: no limit.
    pub per_minute: Option<u32>,
    /// No adoption begins while so many adopted Services have Problems; `None`: no limit.
    pub stop_after: Option<u32>,
    /// Load balancers are adopted and made although another cloud controller manager serves Services.
    pub beside_occm: bool,
}

impl Default for AdoptionConfig {
    fn default() -> AdoptionConfig {
        AdoptionConfig {
            mode: AdoptMode::All,
            native: AdoptMode::Observe,
            only: AdoptionSelector::default(),
            per_minute: None,
            stop_after: None,
            beside_occm: false,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AdoptMode {
    /// Nothing is written; what would be done is reported.
    Observe,
    /// Only Services with an annotation are adopted.
    Ask,
    #[default]
    All,
}

impl AdoptMode {
    /// As in seaway.yaml.
    pub fn as_str(self) -> &'static str {
        match self {
            AdoptMode::Observe => "observe",
            AdoptMode::Ask => "ask",
            AdoptMode::All => "all",
        }
    }
}

/// Services that may be adopted. Each list that is given narrows the choice; without any, all may.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdoptionSelector {
    pub namespaces: Vec<Name>,
    /// All of them.
    pub labels: Labels,
    /// Namespace and name.
    pub names: Vec<(Name, Name)>,
}

impl AdoptionConfig {
    /// Every Service may be adopted at once: none has to wait.
    pub fn is_open(&self) -> bool {
        self.mode == AdoptMode::All
            && self.only == AdoptionSelector::default()
            && self.per_minute.is_none()
            && self.stop_after.is_none()
    }
}

impl AdoptionSelector {
    pub fn matches(&self, service: &Meta) -> bool {
        let named =
            |(namespace, name): &(Name, Name)| (namespace, name) == (&service.namespace, &service.name);
        (self.namespaces.is_empty() || self.namespaces.contains(&service.namespace))
            && (self.names.is_empty() || self.names.iter().any(named))
            && self.labels.iter().all(|(key, value)| service.labels.get(key) == Some(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_list_of_a_canary_narrows_the_choice() {
        let labels = Labels::from([("tier".into(), "test".into())]);
        let service =
            Meta { namespace: "shop".into(), name: "web".into(), labels: labels.clone(), ..Meta::default() };
        let other = Meta { namespace: "bank".into(), name: "web".into(), ..Meta::default() };
        assert!(AdoptionSelector::default().matches(&service) && AdoptionSelector::default().matches(&other));
        for canary in [
            AdoptionSelector { namespaces: vec!["shop".into()], ..AdoptionSelector::default() },
            AdoptionSelector { labels, ..AdoptionSelector::default() },
            AdoptionSelector { names: vec![("shop".into(), "web".into())], ..AdoptionSelector::default() },
        ] {
            assert!(canary.matches(&service) && !canary.matches(&other), "{canary:?}");
            let narrower = AdoptionSelector { namespaces: vec!["bank".into()], ..canary };
            assert!(!narrower.matches(&service), "{narrower:?}");
        }
    }
}
