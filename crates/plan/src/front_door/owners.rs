//! Who may use which host name of the front door, where tenants share it: those that the configuration lists, else the namespace
//! that claimed the name first.
//!
//! ```text
//!     frontDoor.hostOwners ──► listed names ─┐
//!     recorded: who claimed a name first ────┤
//!     claims, those of the oldest object ────┴─► whose(name): the nearest name or wildcard that has an owner
//!                                                  ├─► rules of others for it are left out, and told
//!                                                  ├─► a guard: what no rule of its owner wants is answered, not led elsewhere
//!                                                  └─► certificates of others are not shown for it
//! ```
//!
//! Paths without a host name have owners in the same way: paths.rs.
//!
//! A wildcard owns the names below it, but for those that were claimed before it. Of a name that is not recorded (in a folder, and
//! in a cluster for the moment until the leader has written it down: recorded.rs) the oldest object counts, not the oldest claim.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use seaway_model::{
    Name, ObjectRef,
    config::{FrontDoor as Settings, HostOwners, UnlistedHosts},
    load_balancer::{Action, HostPattern, Match, Rule, TlsByName},
};

use super::{
    owner,
    paths::{PathOwners, path_of},
    recorded::RecordedOwners,
};
use crate::certificates::{Certificates, covers};

#[derive(Clone, Debug, PartialEq, Eq)]
enum HostOwner {
    Listed(Vec<Name>),
    /// It claimed it before others did.
    Recorded(Name),
    /// Of the oldest object.
    Oldest(Name),
}

#[derive(Debug, Default)]
pub(super) struct HostOwnership {
    are_kept: bool,
    others: UnlistedHosts,
    by_host: HashMap<HostPattern, HostOwner>,
    /// Listed, or claimed by whoever may.
    taken: BTreeSet<HostPattern>,
    /// Of those without a host name.
    paths: PathOwners,
}

impl HostOwnership {
    /// `claims`: namespaces and host names, the oldest first.
    pub(super) fn of<'g>(
        settings: &HostOwners,
        recorded: &RecordedOwners,
        claims: impl Iterator<Item = (&'g Name, &'g HostPattern)>,
    ) -> HostOwnership {
        let mut owners = HostOwnership {
            are_kept: settings.are_enforced(),
            others: settings.others,
            ..HostOwnership::default()
        };
        if !owners.are_kept {
            return owners;
        }
        for (host, namespaces) in &settings.names {
            owners.by_host.insert(host.clone(), HostOwner::Listed(namespaces.clone()));
            owners.taken.insert(host.clone());
        }
        if owners.others == UnlistedHosts::First {
            owners.recall(recorded);
        }
        for (namespace, host) in claims {
            let is_owned = owners.whose(host).is_some();
            if !owners.may(namespace, host) || !is_owned && owners.others == UnlistedHosts::Shared {
                continue;
            }
            if !is_owned {
                owners.by_host.insert(host.clone(), HostOwner::Oldest(namespace.clone()));
            }
            owners.taken.insert(host.clone());
        }
        // What its namespace has claimed until now is not led elsewhere, but by a wildcard of its own.
        if owners.others == UnlistedHosts::First {
            let kept = recorded.hosts().filter(|(namespace, host)| owners.is_alone_in(namespace, host));
            let kept: Vec<HostPattern> = kept.map(|(_, host)| host.clone()).collect();
            owners.taken.extend(kept);
        }
        owners
    }

    /// The configuration comes first.
    fn recall(&mut self, recorded: &RecordedOwners) {
        for (namespace, host) in recorded.hosts() {
            let is_known = matches!(self.by_host.get(host), Some(HostOwner::Recorded(_)));
            if !is_known && !matches!(self.whose(host), Some(HostOwner::Listed(_))) {
                self.by_host.insert(host.clone(), HostOwner::Recorded(namespace.clone()));
            }
        }
    }

    /// It is that namespace's by record, and no wildcard of the same namespace is above it.
    fn is_alone_in(&self, namespace: &Name, host: &HostPattern) -> bool {
        let is_its = |whose: Option<&HostOwner>| matches!(whose, Some(HostOwner::Recorded(it) | HostOwner::Oldest(it)) if it == namespace);
        is_its(self.by_host.get(host)) && !is_its(self.above(host))
    }

    /// Paths without a host name have owners, too.
    pub(super) fn with_paths<'g>(
        self,
        recorded: &RecordedOwners,
        claims: impl Iterator<Item = (&'g Name, &'g Match)>,
    ) -> HostOwnership {
        let paths = match self.others {
            _ if !self.are_kept => return self,
            UnlistedHosts::Shared => return self,
            UnlistedHosts::First => PathOwners::of(recorded.paths(), claims),
            UnlistedHosts::Refused => PathOwners::of(std::iter::empty(), claims),
        };
        HostOwnership { paths, ..self }
    }

    /// Whether a claim is to be remembered as its namespace's: nobody else has it, and the configuration does not say whose it is.
    pub(super) fn is_to_be_recorded(&self, namespace: &Name, host: &HostPattern) -> bool {
        self.others == UnlistedHosts::First
            && matches!(self.whose(host), Some(HostOwner::Recorded(it) | HostOwner::Oldest(it)) if it == namespace)
    }

    /// The same of a path.
    pub(super) fn path_to_be_recorded<'m>(&self, namespace: &Name, asked: &'m Match) -> Option<&'m str> {
        Some(path_of(asked)).filter(|path| self.is_path_to_be_recorded(namespace, path))
    }

    pub(super) fn is_path_to_be_recorded(&self, namespace: &Name, path: &str) -> bool {
        self.others == UnlistedHosts::First && self.paths.owner(path) == Some(namespace)
    }

    pub(super) fn are_kept(&self) -> bool {
        self.are_kept
    }

    /// By the name itself, or the nearest wildcard above it.
    fn whose(&self, host: &HostPattern) -> Option<&HostOwner> {
        self.by_host.get(host).or_else(|| self.above(host))
    }

    fn above(&self, host: &HostPattern) -> Option<&HostOwner> {
        let (HostPattern::Exact(name) | HostPattern::Under(name)) = host;
        let above = std::iter::successors(Some(name.as_str()), |name| Some(name.split_once('.')?.1)).skip(1);
        above.into_iter().find_map(|it| self.by_host.get(&HostPattern::Under(it.into())))
    }

    /// Whether routes and certificates of a namespace may be for that name.
    pub(super) fn may(&self, namespace: &Name, host: &HostPattern) -> bool {
        match self.whose(host) {
            Some(HostOwner::Listed(namespaces)) => namespaces.contains(namespace),
            Some(HostOwner::Recorded(first) | HostOwner::Oldest(first)) => first == namespace,
            None => !self.are_kept || self.others != UnlistedHosts::Refused,
        }
    }

    /// Whether rules of a namespace may be for that, of that host name or of none.
    pub(super) fn may_ask(&self, namespace: &Name, host: Option<&HostPattern>, asked: &Match) -> bool {
        match host {
            Some(host) => self.may(namespace, host),
            None => self.paths.may(namespace, asked),
        }
    }

    /// Why it is somebody else's. Names of other namespaces are not for the users of this one.
    pub(super) fn other_owner_of(
        &self,
        namespace: &Name,
        host: Option<&HostPattern>,
        asked: &Match,
    ) -> Option<String> {
        match host {
            Some(host) => Some(self.told(host)),
            None => self.paths.other_owner_of(namespace, asked),
        }
    }

    fn told(&self, host: &HostPattern) -> String {
        match self.whose(host) {
            Some(HostOwner::Listed(_)) => {
                format!("{host} belongs to another namespace by the configuration (frontDoor.hostOwners)")
            }
            Some(HostOwner::Recorded(_)) => {
                format!("{host} belongs to another namespace, which claimed it first")
            }
            Some(HostOwner::Oldest(_)) => {
                format!("{host} belongs to another namespace, whose object is older")
            }
            None => format!(
                "{host} is not among the host names that the configuration lists (frontDoor.hostOwners)"
            ),
        }
    }

    /// A rule as far as its namespace may have it.
    pub(super) fn allowed(&self, namespace: &Name, rule: &Arc<Rule>) -> Option<Arc<Rule>> {
        let may = |host: &HostPattern| self.may(namespace, host);
        if !self.are_kept {
            return Some(rule.clone());
        }
        if rule.hosts.is_empty() {
            let matches = self.paths.allowed(namespace, rule);
            return match matches.len() == rule.matches.len() {
                true => Some(rule.clone()),
                false if matches.is_empty() => None,
                false => Some(Arc::new(Rule { matches, ..Rule::clone(rule) })),
            };
        }
        if rule.hosts.iter().all(may) {
            return Some(rule.clone());
        }
        let hosts: Vec<HostPattern> = rule.hosts.iter().filter(|it| may(it)).cloned().collect();
        (!hosts.is_empty()).then(|| Arc::new(Rule { hosts, ..Rule::clone(rule) }))
    }

    /// Rules for what no rule of its owner wants: it is not for rules that are for all names, nor for wildcards of others.
    /// Those that are as they were are the very same `Arc`.
    pub(super) fn guards(
        &self,
        settings: &Settings,
        before: &BTreeMap<HostPattern, Arc<Rule>>,
    ) -> BTreeMap<HostPattern, Arc<Rule>> {
        let answer = settings.unmatched.as_ref();
        let body = answer.and_then(|it| it.page.clone()).unwrap_or_default();
        let action = Action::Respond { code: answer.map_or(404, |it| it.code), body };
        let guard = |host: &HostPattern| {
            let known = before.get(host).filter(|it| it.action == action).cloned();
            let made = || {
                Arc::new(Rule {
                    owner: owner(),
                    hosts: vec![host.clone()],
                    matches: vec![Match::default()],
                    sources: Vec::new(),
                    denied: Vec::new(),
                    rates: Vec::new(),
                    auth: Vec::new(),
                    asks: Vec::new(),
                    tls: None,
                    filters: Vec::new(),
                    action: action.clone(),
                    timeout: None,
                    attempt_timeout: None,
                    retries: None,
                })
            };
            (host.clone(), known.unwrap_or_else(made))
        };
        self.taken.iter().map(guard).collect()
    }

    /// Certificates by the names that their namespaces own. Those that the operator chose are for all their names, and alone
    /// for clients that ask for a name that nobody has.
    pub(super) fn certify(
        &self,
        certificates: &Certificates,
        objects: &[&ObjectRef],
        chosen: &[ObjectRef],
        through: impl Iterator<Item = HostPattern>,
    ) -> TlsByName {
        let (by_operator, of_tenants): (Vec<&ObjectRef>, Vec<&ObjectRef>) =
            objects.iter().copied().partition(|it| chosen.contains(it));
        let mut tls = certificates.by_name(&by_operator);
        let mut shown: BTreeMap<HostPattern, Vec<ObjectRef>> = BTreeMap::new();
        let mut wide: Vec<HostPattern> = through.filter(|it| matches!(it, HostPattern::Under(_))).collect();
        for object in of_tenants {
            for name in certificates.names_of(object) {
                for host in self.certified(&object.namespace, name) {
                    shown.entry(host).or_default().push(object.clone());
                }
                wide.extend(matches!(name, HostPattern::Under(_)).then(|| name.clone()));
            }
        }
        for (host, objects) in shown {
            let known = tls.by_name.get(&host).into_iter().flat_map(|it| it.iter());
            let all: Vec<ObjectRef> = known.cloned().chain(objects).collect();
            tls.by_name.insert(host, all.into());
        }
        // Without one of its own, a name is not shown by a wildcard of another.
        let exact = self.taken.iter().filter(|it| matches!(it, HostPattern::Exact(_)) && !wide.is_empty());
        for host in exact {
            if !tls.by_name.contains_key(host) && wide.iter().any(|it| is_above(it, host)) {
                let chosen = by_operator
                    .iter()
                    .filter(|it| certificates.names_of(it).iter().any(|name| covers(name, host)));
                let chosen: Vec<ObjectRef> = chosen.map(|it| (*it).clone()).collect();
                tls.by_name.insert(host.clone(), chosen.into());
            }
        }
        tls
    }

    /// For which names a certificate is shown that is for this one.
    fn certified(&self, namespace: &Name, name: &HostPattern) -> Vec<HostPattern> {
        let mine = |host: &HostPattern| self.whose(host).is_some() && self.may(namespace, host);
        let itself = mine(name).then(|| name.clone());
        let below = self.taken.iter().filter(|host| *host != name && covers(name, host) && mine(host));
        itself.into_iter().chain(below.cloned()).collect()
    }
}

fn is_above(wildcard: &HostPattern, host: &HostPattern) -> bool {
    let (HostPattern::Under(end), HostPattern::Exact(name)) = (wildcard, host) else { return false };
    name.strip_suffix(end.as_str()).is_some_and(|it| it.ends_with('.'))
}
