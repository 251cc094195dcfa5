//! What our objects in a cloud are called, and what says whose they are.
//!
//! Names are those of openstack-cloud-controller-manager, so that either finds what the other made; they are given at
//! birth and never changed. Whose an object is, tags alone say.

use std::collections::BTreeSet;

use seaway_model::{Kind, LbKey, Name, ObjectRef, Owner};

/// A cluster that has load balancers in a cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// That of `kube-system`: two clusters of one name are still two.
    pub uid: Name,
    pub name: Name,
}

/// Longer ones are refused by the API.
const LONGEST: usize = 255;

impl Cluster {
    /// All that is this cluster's has it.
    pub fn tag(&self) -> String {
        format!("seaway.dev/cluster={}", self.uid)
    }

    /// The one load balancer of a key has it.
    pub fn tag_of(&self, key: &LbKey) -> String {
        let key = match key {
            LbKey::Of(Owner::Object { uid, .. }) => uid.to_string(),
            LbKey::Of(Owner::Config(entry)) => format!("config/{entry}"),
            LbKey::Shared(uid) => uid.to_string(),
            LbKey::Port(owner, port) => format!("{}:{port}", uid_of(owner)),
            LbKey::Whole => "whole".to_owned(),
        };
        cut(format!("seaway.dev/key={key}"))
    }

    pub fn balancer(&self, owner: &Owner) -> String {
        let object = owner.object();
        cut(match object.kind {
            Kind::Service => format!("kube_service_{}_{}_{}", self.name, object.namespace, object.name),
            _ => format!("seaway_{}_{}", self.name, object.name),
        })
    }

    pub fn description(&self, owner: &Owner) -> String {
        cut(format!("Kubernetes external service {} from cluster {}", of(owner), self.name))
    }

    /// Whose a load balancer of this cluster is, told by what was written on it at birth. Nothing, if that is not whole:
    /// who guesses deletes.
    pub fn key_of(&self, tags: &BTreeSet<String>, description: &str) -> Option<LbKey> {
        if !tags.contains(&self.tag()) {
            return None;
        }
        let uid = tags.iter().find_map(|it| it.strip_prefix("seaway.dev/key="))?;
        let (whose, _) =
            description.strip_prefix("Kubernetes external service ")?.split_once(" from cluster ")?;
        let (namespace, name) = whose.split_once('/')?;
        let object = ObjectRef::new(Kind::Service, namespace, name);
        let key = LbKey::Of(Owner::Object { object, uid: uid.into() });
        tags.contains(&self.tag_of(&key)).then_some(key)
    }

    /// Its first words are those by which the other controller knows its own.
    pub fn floating(&self, owner: &Owner, key: &LbKey) -> String {
        let whose = format!("[{} {}]", self.tag(), self.tag_of(key));
        let text =
            format!("Floating IP for Kubernetes external service {} from cluster {}", of(owner), self.name);
        format!("{} {whose}", shortened(text, LONGEST - whose.len() - 1))
    }

    /// Whether such a description says that it is this cluster's, and this key's.
    pub fn made(&self, description: &str, key: &LbKey) -> bool {
        description.ends_with(&format!("[{} {}]", self.tag(), self.tag_of(key)))
    }
}

/// `listener_0_kube_service_…`; the same for pools and monitors.
pub fn numbered(kind: &str, number: usize, balancer: &str) -> String {
    cut(format!("{kind}_{number}_{balancer}"))
}

/// The number in such a name.
pub fn number_in(name: &str, kind: &str) -> Option<usize> {
    name.strip_prefix(kind)?.strip_prefix('_')?.split_once('_')?.0.parse().ok()
}

fn uid_of(owner: &Owner) -> &Name {
    match owner {
        Owner::Object { uid, .. } => uid,
        Owner::Config(key) => key,
    }
}

fn of(owner: &Owner) -> String {
    let object = owner.object();
    match object.kind {
        Kind::Service => format!("{}/{}", object.namespace, object.name),
        _ => owner.to_string(),
    }
}

fn cut(text: String) -> String {
    shortened(text, LONGEST)
}

fn shortened(mut text: String, most: usize) -> String {
    if text.len() > most {
        let end = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster() -> Cluster {
        Cluster { uid: "8f14-e45f".into(), name: "kubernetes".into() }
    }

    fn service(name: &str) -> Owner {
        Owner::Object { object: ObjectRef::new(Kind::Service, "default", name), uid: "u-1".into() }
    }

    #[test]
    fn names_are_those_that_the_other_controller_gives() {
        let owner = service("nginxservice");
        let name = cluster().balancer(&owner);
        assert_eq!(name, "kube_service_kubernetes_default_nginxservice");
        assert_eq!(numbered("listener", 0, &name), "listener_0_kube_service_kubernetes_default_nginxservice");
        assert_eq!(
            cluster().description(&owner),
            "Kubernetes external service default/nginxservice from cluster kubernetes"
        );
    }

    #[test]
    fn a_name_that_is_too_long_is_cut_where_the_other_controller_cuts_it() {
        let owner = service(&"x".repeat(300));
        let name = cluster().balancer(&owner);
        assert_eq!(name.len(), 255);
        assert_eq!(numbered("pool", 3, &name).len(), 255);
        let floating = cluster().floating(&owner, &LbKey::Of(owner.clone()));
        assert_eq!(floating.len(), 255);
        assert!(floating.starts_with("Floating IP for Kubernetes external service default/xxx"));
        assert!(cluster().made(&floating, &LbKey::Of(owner)), "cut, it still says whose it is");
    }

    #[test]
    fn two_clusters_of_one_name_do_not_know_each_others() {
        let (ours, theirs) = (cluster(), Cluster { uid: "other".into(), ..cluster() });
        let owner = service("shop");
        let key = LbKey::Of(owner.clone());
        let description = theirs.floating(&owner, &key);
        assert!(theirs.made(&description, &key) && !ours.made(&description, &key));
    }

    #[test]
    fn whose_it_is_is_read_from_what_was_written_on_it() {
        let owner = service("shop");
        let key = LbKey::Of(owner.clone());
        let tags = BTreeSet::from([cluster().tag(), cluster().tag_of(&key), "else".to_owned()]);
        let description = cluster().description(&owner);
        assert_eq!(cluster().key_of(&tags, &description), Some(key));
        let renamed = Cluster { name: "another".into(), ..cluster() };
        assert!(renamed.key_of(&tags, &description).is_some(), "it is the same cluster");
        let other = Cluster { uid: "other".into(), ..cluster() };
        assert_eq!(other.key_of(&tags, &description), None);
        assert_eq!(cluster().key_of(&tags, "Kubernetes external service default/sh"), None);
        assert_eq!(cluster().key_of(&BTreeSet::from([cluster().tag()]), &description), None);
    }

    #[test]
    fn numbers_are_read_out_of_names() {
        for (name, kind, number) in [
            ("listener_0_kube_service_a", "listener", Some(0)),
            ("listener_12_x", "listener", Some(12)),
            ("pool_1_x", "listener", None),
            ("listener_x", "listener", None),
            ("listener_-1_x", "listener", None),
        ] {
            assert_eq!(number_in(name, kind), number, "{name}");
        }
    }
}
