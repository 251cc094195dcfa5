//! Whose names are, kept up: what a change of guests, or of what is recorded, makes of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use seaway_model::{
    Name, Owner,
    fact::NameOwner,
    load_balancer::{HostPattern, Match},
};

use super::{
    FrontDoor, FrontDoorChange,
    attached_route::{AttachedRoute, RoutePrecedence},
    claims::RouteClaim,
    owners::HostOwnership,
    paths::path_of,
    recorded::ClaimedNames,
};

impl FrontDoor {
    /// Whose each host name is.
    pub(super) fn host_names(&self) -> &HostOwnership {
        self.owners.get_or_init(|| {
            let claims = self.guests.iter();
            let claims = claims.flat_map(|(rank, guest)| guest.hosts().map(|host| (rank.namespace(), host)));
            let everywhere = self.guests.iter();
            let everywhere = everywhere
                .flat_map(|(rank, guest)| guest.everywhere().map(|asked| (rank.namespace(), asked)));
            HostOwnership::of(&self.host_owners, &self.recorded, claims)
                .with_paths(&self.recorded, everywhere)
        })
    }

    /// Forgets whose names are, if a guest that changes may be a reason that they are somebody else's.
    pub(super) fn owned_before(
        &mut self,
        before: Option<&RoutePrecedence>,
        seated: Option<&(RoutePrecedence, AttachedRoute)>,
    ) -> Option<HostOwnership> {
        let left = before.and_then(|rank| Some((rank, self.guests.get(rank)?)));
        let claimed =
            |it: Option<(&RoutePrecedence, &AttachedRoute)>| -> (BTreeSet<HostPattern>, BTreeSet<Match>) {
                let hosts = it.iter().flat_map(|(_, guest)| guest.hosts().cloned()).collect();
                (hosts, it.iter().flat_map(|(_, guest)| guest.everywhere().cloned()).collect())
            };
        let (old, new) = (claimed(left), claimed(seated.map(|(rank, guest)| (rank, guest))));
        let is_nothing = old.0.is_empty() && old.1.is_empty();
        let is_same = old == new && (is_nothing || before == seated.map(|(rank, _)| rank));
        if is_same || !self.host_owners.are_enforced() {
            return None;
        }
        self.host_names();
        self.owners.take()
    }

    /// Guests that may use more or fewer host names than before.
    pub(super) fn owned_otherwise(&self, before: &HostOwnership) -> Vec<Owner> {
        let now = self.host_names();
        let differs = |rank: &RoutePrecedence, guest: &AttachedRoute| {
            let namespace = rank.namespace();
            let may = |owners: &HostOwnership, claim: &RouteClaim| {
                owners.may_ask(namespace, claim.host(), claim.request_match())
            };
            guest.hosts().any(|host| before.may(namespace, host) != now.may(namespace, host))
                || guest.claims.keys().any(|claim| may(before, claim) != may(now, claim))
        };
        let guests = self.guests.iter().filter(|(rank, guest)| differs(rank, guest));
        guests.map(|(_, guest)| guest.owner.clone()).collect()
    }

    /// What a namespace claimed first is written down, written down otherwise, or no more.
    pub(crate) fn record(&mut self, namespace: &Name, now: Option<Arc<NameOwner>>) -> FrontDoorChange {
        let mut effects = FrontDoorChange::default();
        if self.recorded.of(namespace) == now.as_ref() {
            return effects;
        }
        self.host_names();
        let before = self.owners.take().unwrap_or_default();
        let claimed = self.claimed();
        self.recorded.set(namespace, now, &claimed);
        if self.host_owners.are_enforced() {
            effects.told.extend(self.owned_otherwise(&before));
            // Why a name is another's may have another reason now.
            let refused = |(rank, guest): &(&RoutePrecedence, &AttachedRoute)| {
                guest.claims.keys().any(|it| !self.may(rank, it))
            };
            let refused = self.guests.iter().filter(refused).map(|(_, guest)| guest.owner.clone());
            effects.told.extend(refused.collect::<Vec<_>>());
            effects.shape = true;
            self.forget_certificates();
        }
        effects
    }

    /// What each namespace claims, whether or not it may have it.
    fn claimed(&self) -> ClaimedNames {
        let mut claimed = ClaimedNames::default();
        for (rank, guest) in &self.guests {
            guest.hosts().for_each(|host| claimed.host(rank.namespace(), host));
            guest.everywhere().for_each(|asked| claimed.path(rank.namespace(), path_of(asked)));
        }
        claimed
    }

    /// What was lost is a namespace's only for as long as that claims it.
    pub(super) fn forget_unclaimed(&mut self) {
        if self.recorded.has_lost() {
            let claimed = self.claimed();
            self.recorded.forget_unclaimed(&claimed);
        }
    }

    /// The store was set back to a backup: what was recorded until now is remembered.
    pub(crate) fn set_back(&mut self) {
        self.recorded.set_back();
    }

    /// All was told.
    pub(crate) fn on_synced(&mut self) {
        self.recorded.on_synced();
    }

    /// What is recorded, and what is to be: claims that nobody else has, and what a store that was set back does not know of.
    pub(crate) fn first_claims(&self) -> FirstClaims {
        let (owners, mut claimed) = (self.host_names(), ClaimedNames::default());
        for before in self.recorded.before() {
            let namespace = &before.namespace;
            let hosts = before.hosts.iter().filter(|host| owners.is_to_be_recorded(namespace, host));
            hosts.for_each(|host| claimed.host(namespace, host));
            let paths = before.paths.iter().filter(|path| owners.is_path_to_be_recorded(namespace, path));
            paths.for_each(|path| claimed.path(namespace, path));
        }
        for (rank, guest) in &self.guests {
            let namespace = rank.namespace();
            let its = guest.hosts().filter(|host| owners.is_to_be_recorded(namespace, host));
            its.for_each(|host| claimed.host(namespace, host));
            let its = guest.everywhere().filter_map(|it| owners.path_to_be_recorded(namespace, it));
            its.for_each(|path| claimed.path(namespace, path));
        }
        FirstClaims { claimed: claimed.into_owners(), recorded: self.recorded.all().clone() }
    }
}

/// What namespaces claim that nobody claimed before, and what of it is written down.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirstClaims {
    pub claimed: BTreeMap<Name, NameOwner>,
    pub recorded: BTreeMap<Name, Arc<NameOwner>>,
}
