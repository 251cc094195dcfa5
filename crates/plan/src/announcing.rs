//! Objects that say how addresses are announced, as far as they are ours: which advertisements are about a pool, with whom a host has
//! sessions, and what of the objects cannot be followed.
//!
//! ```text
//!     AddressPool.announce ─┐
//!     L2Advertisement ──────┼──► offered by ARP and NDP: which addresses, on which interfaces (world/layer2.rs)
//!     BGPAdvertisement ─────┼──► routes (routes.rs) ──┐
//!     BGPPeer, BFDProfile ──┴──► sessions (peers.rs) ─┴──► DesiredBgp (world/bgp.rs)
//! ```
//! MetalLB's objects are read by the same code, and not acted on.

mod peers;
mod problems;
mod routes;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use seaway_model::{
    AnnounceMode, Kind, Name, ObjectRef,
    bgp::Bfd,
    fact::{
        AddressPool, AdvertisementScope, AnnouncementObject, AnnouncementSpec, BgpAdvertisement, BgpPeer,
        CommunityRef, CommunityValue, L2Advertisement, Labels, Secret, Selector,
    },
};
use secrecy::SecretString;

pub(crate) use self::routes::{HostRoutes, ServedAddress};

/// What a Secret calls a password of a session.
const PASSWORD: &str = "password";
/// What every Kubernetes Node has, and so do hosts that are no Node.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// RFC 1997, 7611, 7999 and 8326, as IANA calls them.
const WELL_KNOWN: [(&str, u32); 6] = [
    ("no-export", 0xffff_ff01),
    ("no-advertise", 0xffff_ff02),
    ("no-export-subconfed", 0xffff_ff03),
    ("blackhole", 0xffff_029a),
    ("accept-own", 0xffff_0001),
    ("graceful-shutdown", 0xffff_0000),
];

#[derive(Debug, Default)]
pub(crate) struct AnnouncingObjects {
    objects: BTreeMap<ObjectRef, Arc<AnnouncementObject>>,
    /// Pools that are not there any more: a pool that cannot be seen withdraws nothing.
    gone: BTreeMap<Name, Arc<AddressPool>>,
    /// Of a folder; in a cluster, hosts read them.
    passwords: BTreeMap<ObjectRef, SecretString>,
    /// Of those, which are not there any more: a session that is there goes on with the last one.
    lost: BTreeSet<ObjectRef>,
    /// Kinds that may not be listed.
    refused: BTreeSet<Kind>,
    /// Advertisements with something wrong; those of them that no good state is known of restrict what cannot be told.
    faulty: BTreeSet<ObjectRef>,
}

/// By what an address may be announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Layer2,
    Bgp,
}

/// A word of a BGPAdvertisement that no Community has, or two have with two values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnknownCommunity(pub(crate) Name);

pub(crate) type Communities = (Arc<[u32]>, Arc<[[u32; 3]]>);

impl AnnouncingObjects {
    /// Whether that is news.
    pub(crate) fn put(&mut self, it: &Arc<AnnouncementObject>) -> bool {
        let before = self.objects.insert(it.object.clone(), it.clone());
        self.forget_lost_secrets();
        before.is_none_or(|before| before != *it)
    }

    pub(crate) fn remove(&mut self, object: &ObjectRef) -> bool {
        let before = self.objects.remove(object);
        self.forget_lost_secrets();
        before.is_some()
    }

    pub(crate) fn note_pool(&mut self, pool: &Arc<AddressPool>) {
        if pool.object.kind == Kind::AddressPool {
            self.gone.remove(&pool.object.name);
        }
    }

    pub(crate) fn note_gone_pool(&mut self, pool: &AddressPool) {
        if pool.object.kind == Kind::AddressPool {
            self.gone.insert(pool.object.name.clone(), Arc::new(pool.clone()));
        }
    }

    pub(crate) fn gone_pool(&self, name: &str) -> Option<&AddressPool> {
        self.gone.get(name).map(|it| &**it)
    }

    pub(crate) fn put_secret(&mut self, secret: &Secret) {
        match secret.values.get(PASSWORD) {
            Some(value) => {
                self.lost.remove(&secret.object);
                self.passwords.insert(secret.object.clone(), value.clone());
            }
            None => self.remove_secret(&secret.object),
        }
    }

    /// A Secret that is deleted to be made again would end sessions that are protected by what it said.
    pub(crate) fn remove_secret(&mut self, object: &ObjectRef) {
        match self.names_secret(object) && self.passwords.contains_key(object) {
            true => drop(self.lost.insert(object.clone())),
            false => drop(self.passwords.remove(object)),
        }
    }

    /// No peer names them any more.
    fn forget_lost_secrets(&mut self) {
        let forgotten: Vec<ObjectRef> =
            self.lost.iter().filter(|it| !self.names_secret(it)).cloned().collect();
        for it in &forgotten {
            self.lost.remove(it);
            self.passwords.remove(it);
        }
    }

    /// Whether its value is a part of a session of a folder.
    pub(crate) fn names_secret(&self, object: &ObjectRef) -> bool {
        self.peers().filter_map(|(_, it)| it.password.as_ref()).any(|it| peers::in_folder(it) == *object)
    }

    /// Whether that is news.
    pub(crate) fn note_faults(&mut self, object: &ObjectRef, is_faulty: bool) -> bool {
        if !matches!(object.kind, Kind::L2Advertisement | Kind::BGPAdvertisement) {
            return false;
        }
        match is_faulty {
            true => self.faulty.insert(object.clone()),
            false => self.faulty.remove(object),
        }
    }

    /// What it says of which pools is not known: none is announced in this way that no other advertisement is about.
    pub(crate) fn has_unread(&self, protocol: Protocol) -> bool {
        let kind = match protocol {
            Protocol::Layer2 => Kind::L2Advertisement,
            Protocol::Bgp => Kind::BGPAdvertisement,
        };
        self.faulty.iter().any(|it| it.kind == kind && !self.objects.contains_key(it))
    }

    pub(crate) fn note_refused(&mut self, kind: Kind) {
        if kind.is_announcing() {
            self.refused.insert(kind);
        }
    }

    pub(crate) fn note_listed(&mut self, kind: Kind) {
        self.refused.remove(&kind);
    }

    /// All kinds are listed again.
    pub(crate) fn begin_again(&mut self) {
        self.refused.clear();
    }

    /// A role of an older version permits none of them: then none was written for this one.
    pub(crate) fn are_all_refused(&self) -> bool {
        Kind::ANNOUNCING.iter().filter(|it| !it.is_of_metallb()).all(|it| self.refused.contains(it))
    }

    /// Those that count: ours.
    fn counted(&self) -> impl Iterator<Item = &Arc<AnnouncementObject>> {
        self.objects.values().filter(|it| !it.object.kind.is_of_metallb())
    }

    pub(crate) fn layer2(&self) -> impl Iterator<Item = (&ObjectRef, &L2Advertisement)> {
        self.counted().filter_map(|it| match &it.says {
            AnnouncementSpec::L2Advertisement(says) => Some((&it.object, says)),
            _ => None,
        })
    }

    pub(crate) fn bgp(&self) -> impl Iterator<Item = (&ObjectRef, &BgpAdvertisement)> {
        self.counted().filter_map(|it| match &it.says {
            AnnouncementSpec::BgpAdvertisement(says) => Some((&it.object, says)),
            _ => None,
        })
    }

    pub(crate) fn peers(&self) -> impl Iterator<Item = (&AnnouncementObject, &BgpPeer)> {
        self.counted().filter_map(|it| match &it.says {
            AnnouncementSpec::BgpPeer(says) => Some((&**it, says)),
            _ => None,
        })
    }

    fn profile(&self, name: &Name) -> Option<Bfd> {
        match &self.objects.get(&ObjectRef::new(Kind::BFDProfile, "", name.clone()))?.says {
            AnnouncementSpec::BfdProfile(profile) => Some(*profile),
            _ => None,
        }
    }

    /// By their values; a name that is not known, or not known for sure, is an error: it may be what limits a route.
    fn communities(&self, words: &[CommunityRef]) -> Result<Communities, UnknownCommunity> {
        let (mut standard, mut large) = (BTreeSet::new(), BTreeSet::new());
        for word in words {
            let value = match word {
                CommunityRef::Value(value) => *value,
                CommunityRef::Name(name) => self.community(name).ok_or(UnknownCommunity(name.clone()))?,
            };
            match value {
                CommunityValue::Standard(it) => drop(standard.insert(it)),
                CommunityValue::Large(it) => drop(large.insert(it)),
            }
        }
        Ok((standard.into_iter().collect(), large.into_iter().collect()))
    }

    fn community(&self, name: &Name) -> Option<CommunityValue> {
        let values = self.counted().filter_map(|it| match &it.says {
            AnnouncementSpec::Community(values) => values.get(name).copied(),
            _ => None,
        });
        let values: BTreeSet<CommunityValue> = values.collect();
        let known = || WELL_KNOWN.iter().find(|(known, _)| *known == name.as_str());
        match values.len() {
            0 => known().map(|(_, value)| CommunityValue::Standard(*value)),
            1 => values.first().copied(),
            _ => None,
        }
    }

    /// Whether addresses of the pool are announced so at all.
    pub(crate) fn asks(&self, pool: &AddressPool, protocol: Protocol) -> bool {
        let mut scopes: Box<dyn Iterator<Item = &AdvertisementScope>> = match protocol {
            Protocol::Layer2 => Box::new(self.layer2().map(|(_, it)| &it.scope)),
            Protocol::Bgp => Box::new(self.bgp().map(|(_, it)| &it.scope)),
        };
        asks_by_itself(pool, protocol) || scopes.any(|it| names_pool(it, pool))
    }

    /// On which interfaces this host may announce it by ARP and NDP: nothing, if it may not; an empty set for all.
    pub(crate) fn interfaces(
        &self,
        pool: &AddressPool,
        host: &Labels,
        services: &[&Labels],
    ) -> Option<BTreeSet<Name>> {
        let by_itself = asks_by_itself(pool, Protocol::Layer2);
        let about: Vec<&L2Advertisement> =
            self.layer2().map(|(_, it)| it).filter(|it| is_about(&it.scope, pool, by_itself)).collect();
        if about.is_empty() {
            return (by_itself && !self.has_unread(Protocol::Layer2)).then(BTreeSet::new);
        }
        let mut here = about.into_iter().filter(|it| allows(&it.scope, host, services)).peekable();
        here.peek()?;
        let lists: Vec<&[Name]> = here.map(|it| &*it.interfaces).collect();
        let is_any = lists.iter().any(|it| it.is_empty());
        Some(if is_any { BTreeSet::new() } else { lists.concat().into_iter().collect() })
    }
}

/// Without an advertisement.
pub(crate) fn asks_by_itself(pool: &AddressPool, protocol: Protocol) -> bool {
    match pool.announce {
        Some(AnnounceMode::Auto) => true,
        Some(AnnounceMode::Layer2) => protocol == Protocol::Layer2,
        Some(AnnounceMode::Bgp) => protocol == Protocol::Bgp,
        Some(AnnounceMode::Static | AnnounceMode::None) | None => false,
    }
}

/// The pool says that nothing of ours announces it, which no advertisement overrides.
fn is_barred(pool: &AddressPool) -> bool {
    pool.hosts || matches!(pool.announce, Some(AnnounceMode::Static | AnnounceMode::None))
}

/// By its name or its labels.
fn names_pool(scope: &AdvertisementScope, pool: &AddressPool) -> bool {
    let named = scope.pools.contains(&pool.object.name) || matches_any(&scope.pool_selectors, &pool.labels);
    named && pool.object.kind == Kind::AddressPool && !is_barred(pool)
}

/// `by_itself`: the pool asks for this anyway. An advertisement that names no pool is about all of those.
fn is_about(scope: &AdvertisementScope, pool: &AddressPool, by_itself: bool) -> bool {
    let names_none = scope.pools.is_empty() && scope.pool_selectors.is_empty();
    names_none && by_itself || names_pool(scope, pool)
}

fn allows(scope: &AdvertisementScope, host: &Labels, services: &[&Labels]) -> bool {
    let any =
        |selectors: &[Selector], labels: &Labels| selectors.is_empty() || matches_any(selectors, labels);
    !scope.unclear
        && any(&scope.host_selectors, host)
        && services.iter().any(|it| any(&scope.service_selectors, it))
}

fn matches_any(selectors: &[Selector], labels: &Labels) -> bool {
    selectors.iter().any(|it| it.matches(labels))
}

/// By what a host is selected: also by its name, though it is no Node.
pub(crate) fn host_labels(host: &Name, labels: Option<&Labels>) -> Labels {
    let mut labels = labels.cloned().unwrap_or_default();
    labels.entry(HOSTNAME.into()).or_insert_with(|| host.clone());
    labels
}
