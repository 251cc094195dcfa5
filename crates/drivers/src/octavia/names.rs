//! What our objects in a cloud are called, and what says whose they are.
//!
//! Names are those of openstack-cloud-controller-manager, so that either finds what the other made; they are given at
//! birth and never changed. Whose an object is, tags alone say.

use std::collections::BTreeSet;

use seaway_model::{Kind, LbKey, Name, ObjectRef, Owner, load_balancer::Family};

/// A cluster that has load balancers in a cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// That of `kube-system`: two clusters of one name are still two.
    pub uid: Name,
    pub name: Name,
}

/// All tags begin so that tell which cluster it is of.
pub(super) const CLUSTER: &str = "seaway.dev/cluster=";
/// All tags begin so that tell which load balancer it is.
pub(super) const KEY: &str = "seaway.dev/key=";
const FAMILIES: [Family; 2] = [Family::V4, Family::V6];
const REPLACED: &str = " replaced";
/// Longer ones are refused by the API.
pub(super) const LONGEST: usize = 255;
/// What load balancers of Services are called by, and what the other controller counts sharers by.
pub(super) const THEIR_NAMES: &str = "kube_service_";

impl Cluster {
    /// All that is this cluster's has it.
    pub fn tag(&self) -> String {
        format!("{CLUSTER}{}", self.uid)
    }

    /// The one load balancer of a key has it.
    pub fn tag_of(&self, key: &LbKey) -> String {
        cut_to_longest(format!("{KEY}{}", key_text(key)))
    }

    /// Its name: that of its owner's, with the family where it is the second.
    pub fn name_of(&self, key: &LbKey, owner: &Owner) -> String {
        let end = end_of_second(key);
        format!("{}{end}", shortened(self.balancer(owner), LONGEST.saturating_sub(end.len())))
    }

    pub fn balancer(&self, owner: &Owner) -> String {
        let object = owner.object();
        cut_to_longest(match object.kind {
            Kind::Service => format!("kube_service_{}_{}_{}", self.name, object.namespace, object.name),
            _ => format!("seaway_{}_{}", self.name, object.name),
        })
    }

    /// Whose namespace such a name of a Service has; nothing where it is another cluster's, or was cut.
    pub(super) fn namespace_in<'n>(&self, name: &'n str) -> Option<&'n str> {
        let whose = name.strip_prefix(THEIR_NAMES)?.strip_prefix(&*self.name)?.strip_prefix('_')?;
        let (namespace, service) = whose.split_once('_').filter(|_| name.len() < LONGEST)?;
        let is_one = match service.split_once('_') {
            Some((_, end)) => FAMILIES.iter().any(|it| it.as_str().eq_ignore_ascii_case(end)),
            None => !service.is_empty(),
        };
        is_one.then_some(namespace)
    }

    /// Whether an object of such a name may be called by it where a Service is told of it: by names, the users of one
    /// namespace would learn of another's Services.
    pub(super) fn may_tell(&self, name: &str, owner: &Owner) -> bool {
        let namespace = owner.object().namespace;
        !name.contains(THEIR_NAMES) || self.namespace_in(name).is_some_and(|it| *it == *namespace)
    }

    pub fn description(&self, owner: &Owner) -> String {
        cut_to_longest(format!("Kubernetes external service {} from cluster {}", of(owner), self.name))
    }

    /// Whose a load balancer of this cluster is, told by what was written on it at birth. Nothing, if that is not whole:
    /// who guesses deletes.
    pub fn key_of(&self, tags: &BTreeSet<String>, description: &str) -> Option<LbKey> {
        if !tags.contains(&self.tag()) {
            return None;
        }
        let key = tags.iter().find_map(|it| it.strip_prefix(KEY))?;
        let (uid, family) = match key.split_once(':') {
            Some((uid, family)) => (uid, Some(FAMILIES.into_iter().find(|it| it.as_str() == family)?)),
            None => (key, None),
        };
        let (whose, _) =
            description.strip_prefix("Kubernetes external service ")?.split_once(" from cluster ")?;
        let (namespace, name) = whose.split_once('/')?;
        let object = ObjectRef::new(Kind::Service, namespace, name);
        let owner = Owner::Object { object, uid: uid.into() };
        let key = match family {
            Some(family) => LbKey::Second(owner, family),
            None => LbKey::Of(owner),
        };
        tags.contains(&self.tag_of(&key)).then_some(key)
    }

    /// All that the other controller writes on one that it makes.
    pub fn words_of_floating(&self, owner: &Owner) -> String {
        cut_to_longest(format!(
            "Floating IP for Kubernetes external service {} from cluster {}",
            of(owner),
            self.name
        ))
    }

    /// Its first words are those by which the other controller knows its own.
    /// `kept`: it stays when its load balancer goes.
    pub fn floating(&self, owner: &Owner, key: &LbKey, kept: bool) -> String {
        let kept = if kept { " kept" } else { "" };
        let whose = format!("{}{kept}]", self.mark(key).trim_end_matches(']'));
        format!(
            "{} {whose}",
            shortened(self.words_of_floating(owner), LONGEST.saturating_sub(whose.len()).saturating_sub(1))
        )
    }

    /// Whether such a description says that it is this cluster's and this key's, and goes with it.
    pub fn made(&self, description: &str, key: &LbKey) -> bool {
        description.ends_with(&self.mark(key))
    }

    /// What descriptions end with of what goes with its load balancer, and has no tags from birth.
    pub fn mark(&self, key: &LbKey) -> String {
        format!("[{} {}]", self.tag(), self.tag_of(key))
    }

    /// As `mark`, of a floating IP whose place another took.
    pub(super) fn mark_of_replaced(&self, key: &LbKey) -> String {
        format!("{}{REPLACED}]", self.mark(key).trim_end_matches(']'))
    }

    /// The mark of this cluster that a description ends with. Of several marks the last counts: it is one cluster's.
    pub fn whose<'d>(&self, description: &'d str) -> Option<&'d str> {
        let mark = &description[description.rfind(&format!("[{CLUSTER}"))?..];
        let after = mark.strip_prefix('[')?.strip_prefix(&self.tag())?;
        // The uid of one cluster may begin with that of another.
        (mark.ends_with(']') && after.starts_with([' ', ']'])).then_some(mark)
    }
}

/// What tags tell of it: the UID of its owner, and what tells it from others of the same.
pub(super) fn key_text(key: &LbKey) -> String {
    match key {
        LbKey::Of(Owner::Object { uid, .. }) => uid.to_string(),
        LbKey::Of(Owner::Config(entry)) => format!("config/{entry}"),
        LbKey::Second(owner, family) => format!("{}:{}", uid_of(owner), family.as_str()),
        LbKey::Shared(uid) => uid.to_string(),
        LbKey::Port(owner, port) => format!("{}:{port}", uid_of(owner)),
        LbKey::Whole => "whole".to_owned(),
    }
}

/// What the name of a second one ends with. No name of a Service has a `_`: it is nobody else's.
pub(super) fn end_of_second(key: &LbKey) -> String {
    key.second_family().map(|it| format!("_{}", it.as_str().to_lowercase())).unwrap_or_default()
}

/// What is written on a floating IP whose place another takes, and that is to be deleted after that: whoever is killed before
/// it is deleted, another reads so.
pub(super) fn replaced(description: &str) -> Option<String> {
    let (words, mark) = description.split_at(description.rfind('[')?);
    let mark = format!("{}{REPLACED}]", mark.strip_suffix(']')?);
    Some(format!(
        "{} {mark}",
        shortened(words.trim_end().to_owned(), LONGEST.checked_sub(mark.len().saturating_add(1))?)
    ))
}

/// The UID in that.
pub(super) fn uid_in(key_text: &str) -> &str {
    key_text.split(':').next().unwrap_or(key_text)
}

/// `kube_service_…` of `listener_0_kube_service_…`.
pub(super) fn after_number(name: &str) -> &str {
    name.splitn(3, '_').nth(2).unwrap_or(name)
}

/// `listener_0_kube_service_…`; the same for pools and monitors.
pub fn numbered(kind: &str, number: usize, balancer: &str) -> String {
    cut_to_longest(format!("{kind}_{number}_{balancer}"))
}

/// The number in such a name.
pub fn number_in(name: &str, kind: &str) -> Option<usize> {
    name.strip_prefix(kind)?.strip_prefix('_')?.split_once('_')?.0.parse().ok()
}

/// The numbers in the names of listeners: a new listener gets one that no other has.
pub(super) struct ListenerNumbers(BTreeSet<usize>);

impl ListenerNumbers {
    pub(super) fn of<'n>(names: impl Iterator<Item = &'n String>) -> ListenerNumbers {
        ListenerNumbers(names.filter_map(|it| number_in(it, "listener")).collect())
    }

    pub(super) fn free(&mut self, wish: usize) -> usize {
        let free =
            if self.0.contains(&wish) { (0..).find(|it| !self.0.contains(it)).unwrap_or(wish) } else { wish };
        self.0.insert(free);
        free
    }
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

pub(super) fn cut_to_longest(text: String) -> String {
    shortened(text, LONGEST)
}

pub(super) fn shortened(mut text: String, most: usize) -> String {
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
    fn the_namespace_is_read_from_a_name_of_this_cluster_alone() {
        for (name, namespace) in [
            ("kube_service_kubernetes_shop_web", Some("shop")),
            ("kube_service_kubernetes_shop_web_ipv6", Some("shop")),
            ("kube_service_kubernetes_shop_web_else", None),
            ("kube_service_kubernetes_shop", None),
            ("kube_service_kubernetes_a_shop_web", None),
            ("kube_service_kubernetes2_shop_web", None),
            ("kubernetes_shop_web", None),
        ] {
            assert_eq!(cluster().namespace_in(name), namespace, "{name}");
        }
        let cut = cluster().balancer(&service(&"x".repeat(300)));
        assert_eq!(cluster().namespace_in(&cut), None);
    }

    #[test]
    fn names_of_other_namespaces_are_not_told() {
        for (name, is_told) in [
            ("kube_service_kubernetes_default_web", true),
            ("listener_0_kube_service_kubernetes_default_web", false),
            ("kube_service_kubernetes_shop_web", false),
            ("kube_service_production_default_web", false),
            ("by-hand", true),
        ] {
            assert_eq!(cluster().may_tell(name, &service("nginxservice")), is_told, "{name}");
        }
    }

    #[test]
    fn a_name_that_is_too_long_is_cut_where_the_other_controller_cuts_it() {
        let owner = service(&"x".repeat(300));
        let name = cluster().balancer(&owner);
        assert_eq!(name.len(), 255);
        assert_eq!(numbered("pool", 3, &name).len(), 255);
        let floating = cluster().floating(&owner, &LbKey::Of(owner.clone()), false);
        assert_eq!(floating.len(), 255);
        assert!(floating.starts_with("Floating IP for Kubernetes external service default/xxx"));
        assert!(cluster().made(&floating, &LbKey::Of(owner)), "cut, it still says whose it is");
    }

    #[test]
    fn two_clusters_of_one_name_do_not_know_each_others() {
        let (ours, theirs) = (cluster(), Cluster { uid: "other".into(), ..cluster() });
        let owner = service("shop");
        let key = LbKey::Of(owner.clone());
        let description = theirs.floating(&owner, &key, false);
        assert!(theirs.made(&description, &key) && !ours.made(&description, &key));
    }

    #[test]
    fn one_whose_place_another_took_says_so_and_is_nobody_elses() {
        for name in ["shop".to_owned(), "x".repeat(300)] {
            let owner = service(&name);
            let key = LbKey::Of(owner.clone());
            let now = replaced(&cluster().floating(&owner, &key, false)).expect("it has a mark");
            assert!(now.len() <= LONGEST && now.starts_with("Floating IP for Kubernetes external service"));
            assert_eq!(cluster().whose(&now), Some(cluster().mark_of_replaced(&key).as_str()));
            assert!(!cluster().made(&now, &key), "it leads there no more");
        }
        assert_eq!(replaced("of somebody"), None);
    }

    #[test]
    fn whose_it_is_is_read_from_what_was_written_on_it() {
        let owner = service("shop");
        let key = LbKey::Of(owner.clone());
        let tags = BTreeSet::from([cluster().tag(), cluster().tag_of(&key), "else".to_owned()]);
        let description = cluster().description(&owner);
        assert_eq!(cluster().key_of(&tags, &description), Some(key.clone()));
        let second = LbKey::Second(owner.clone(), Family::V6);
        let tags_of_second = BTreeSet::from([cluster().tag(), cluster().tag_of(&second)]);
        assert_eq!(cluster().key_of(&tags_of_second, &description), Some(second.clone()));
        assert!(!cluster().made(&cluster().floating(&owner, &second, false), &key), "each its own");
        let long = service(&"x".repeat(300));
        let name = cluster().name_of(&LbKey::Second(long.clone(), Family::V6), &long);
        assert!(name.len() == 255 && name.ends_with("_ipv6"), "cut, it is still another's");
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
