//! Who holds which address, and which port of it.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    net::IpAddr,
    sync::Arc,
};

use seaway_model::{
    Address, AddressState, IpRange, ListenerId, Name, Owner, address::PLAN_VERSION, load_balancer::Family,
};

use super::{
    address_ranges::AddressRanges,
    claim::{Claim, SharingNamespaces},
};

#[derive(Debug, Default)]
pub(super) struct Holdings {
    held: BTreeMap<IpAddr, Holding>,
    /// Those of them that have no owner: asked for after every outcome.
    releasing: BTreeSet<IpAddr>,
    taken: AddressRanges,
    by_sharing: BTreeMap<Name, BTreeSet<IpAddr>>,
    /// Addresses that an owner may come back to.
    formerly: BTreeMap<Owner, BTreeSet<IpAddr>>,
    /// Of our addresses and of hosts'.
    ports: BTreeMap<(IpAddr, ListenerId), Owner>,
    /// Ports that are written as another owner's: at a start, until everybody was heard who had the address.
    denied: BTreeSet<(IpAddr, Owner, ListenerId)>,
    /// How many addresses a namespace has, alone or with others.
    by_namespace: HashMap<Name, usize>,
}

/// An address that is not free. Without owners it is being released.
#[derive(Debug, Default)]
struct Holding {
    pool: Name,
    sharing: Option<Name>,
    owners: BTreeMap<Owner, Arc<Claim>>,
    /// How many of the owners are `local_only`: where none is, joining looks at nobody's selector.
    local: usize,
    /// How many of the owners are of each: nearly always one namespace, however many owners.
    parties: BTreeMap<SharingNamespaces, usize>,
    /// Who had it last, or who had it before a restart and has not been heard again.
    former: BTreeSet<Owner>,
}

/// Why an owner may not have an address.
#[derive(Debug)]
pub(super) enum DenialReason {
    /// No common sharing key.
    Held(Owner),
    /// A common key, but another namespace.
    Foreign(Owner),
    /// A common key, but traffic that must stay local to different pods.
    Local(Owner),
    Releasing,
    Port(ListenerId, Owner),
}

impl Holdings {
    pub(super) fn contains(&self, ip: IpAddr) -> bool {
        self.held.contains_key(&ip)
    }

    pub(super) fn pool(&self, ip: IpAddr) -> Option<&Name> {
        self.held.get(&ip).map(|holding| &holding.pool)
    }

    /// Whether nobody else has it, and whether anybody has.
    pub(super) fn company(&self, ip: IpAddr, owner: &Owner) -> (bool, bool) {
        let Some(holding) = self.held.get(&ip) else { return (true, false) };
        (holding.owners.keys().all(|it| it == owner), !holding.owners.is_empty())
    }

    /// How many addresses a namespace has.
    pub(super) fn of_namespace(&self, namespace: &Name) -> usize {
        self.by_namespace.get(namespace).copied().unwrap_or_default()
    }

    /// Whether a namespace has this one, alone or with others.
    pub(super) fn is_of_namespace(&self, ip: IpAddr, namespace: &Name) -> bool {
        self.held.get(&ip).is_some_and(|holding| holding.has(namespace))
    }

    pub(super) fn first_free(&self, from: IpAddr, to: IpAddr) -> Option<IpAddr> {
        self.taken.first_free(from, to)
    }

    /// How many addresses of a range have owners, and how many are not free.
    pub(super) fn count(&self, range: IpRange) -> (u128, u128) {
        self.held.range(range.first()..=range.last()).fold(
            (0_u128, 0_u128),
            |(owned, taken), (_, holding)| {
                (owned.saturating_add((!holding.owners.is_empty()).into()), taken.saturating_add(1))
            },
        )
    }

    /// How many addresses of a range are not free, without a look at each.
    pub(super) fn not_free(&self, range: IpRange) -> u128 {
        self.taken.count(range.first(), range.last())
    }

    /// Of each address of a range, the namespaces that have it.
    pub(super) fn namespaces_within(&self, range: IpRange) -> impl Iterator<Item = &Name> {
        let held = self.held.range(range.first()..=range.last());
        held.flat_map(|(_, it)| it.parties.keys().map(|party| &party.namespace).collect::<BTreeSet<_>>())
    }

    pub(super) fn address(&self, ip: IpAddr) -> Option<Address> {
        self.held.get(&ip).map(|holding| Address {
            ip,
            pool: holding.pool.clone(),
            sharing: holding.sharing.clone(),
            owners: holding.owners.keys().cloned().collect(),
            plan_version: PLAN_VERSION,
            ends: None,
            conflicts: Vec::new(),
            state: if holding.owners.is_empty() { AddressState::Releasing } else { AddressState::Held },
            version: 0,
        })
    }

    pub(super) fn owners(&self, ip: IpAddr) -> impl Iterator<Item = &Owner> + '_ {
        self.held.get(&ip).into_iter().flat_map(|holding| holding.owners.keys())
    }

    /// Whether one of these has it, or had it last.
    pub(super) fn knows_any(&self, ip: IpAddr, owners: &[Owner]) -> bool {
        let knows = |it: &Holding| {
            owners.iter().any(|owner| it.owners.contains_key(owner) || it.former.contains(owner))
        };
        self.held.get(&ip).is_some_and(knows)
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.held.keys().copied()
    }

    pub(super) fn releasing(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.releasing.iter().copied()
    }

    pub(super) fn is_releasing(&self, ip: IpAddr) -> bool {
        self.releasing.contains(&ip)
    }

    /// Addresses that may be shared by this key, lowest first.
    pub(super) fn shared_by(&self, key: &Name, family: Family) -> impl Iterator<Item = IpAddr> + '_ {
        self.by_sharing.get(key).into_iter().flatten().copied().filter(move |ip| Family::of(*ip) == family)
    }

    pub(super) fn formerly(&self, owner: &Owner) -> impl Iterator<Item = IpAddr> + '_ {
        self.formerly.get(owner).into_iter().flatten().copied()
    }

    /// The claim's ports at an address that others have.
    pub(super) fn conflicts<'a>(
        &'a self,
        ip: IpAddr,
        claim: &'a Claim,
    ) -> impl Iterator<Item = (ListenerId, &'a Owner)> {
        claim.ports.iter().filter_map(move |listener| {
            let holder = self.ports.get(&(ip, *listener)).filter(|holder| **holder != claim.owner)?;
            Some((*listener, holder))
        })
    }

    pub(super) fn holder(&self, ip: IpAddr, listener: ListenerId) -> Option<&Owner> {
        self.ports.get(&(ip, listener))
    }

    /// Who has one of these ports at an address of this family.
    pub(super) fn holders_of<'a>(
        &'a self,
        family: Family,
        ports: &'a BTreeSet<ListenerId>,
    ) -> impl Iterator<Item = (IpAddr, ListenerId, &'a Owner)> {
        let is_asked =
            move |(ip, port): &(IpAddr, ListenerId)| Family::of(*ip) == family && ports.contains(port);
        self.ports.iter().filter(move |(at, _)| is_asked(at)).map(|((ip, port), owner)| (*ip, *port, owner))
    }

    /// Whether the port is written as another owner's.
    pub(super) fn is_denied(&self, ip: IpAddr, owner: &Owner, listener: ListenerId) -> bool {
        !self.denied.is_empty() && self.denied.contains(&(ip, owner.clone(), listener))
    }

    pub(super) fn deny(&mut self, ip: IpAddr, owner: Owner, listener: ListenerId) {
        self.denied.insert((ip, owner, listener));
    }

    pub(super) fn deny_no_more(&mut self, denied: &[(IpAddr, Owner, ListenerId)]) {
        for it in denied {
            self.denied.remove(it);
        }
    }

    /// Everybody was heard who had an address: ports that nobody came back to are anybody's.
    pub(super) fn deny_nobody(&mut self) -> BTreeSet<Owner> {
        std::mem::take(&mut self.denied).into_iter().map(|(_, owner, _)| owner).collect()
    }

    /// MetalLB's rule of sharing, but within one namespace unless both say otherwise: one key, distinct ports, and either nobody insists on local traffic or both lead
    /// to the same pods. An address being released is only for whom it was taken from.
    pub(super) fn may_join(&self, ip: IpAddr, claim: &Claim) -> Result<(), DenialReason> {
        let Some(holding) = self.held.get(&ip) else { return Ok(()) };
        let returns = holding.former.contains(&claim.owner);
        let alone = holding.owners.keys().all(|owner| *owner == claim.owner);
        if holding.owners.is_empty() || !holding.former.is_empty() {
            // While former owners are still to be heard after a restart, nobody else squeezes in.
            if !returns && !holding.owners.contains_key(&claim.owner) {
                return Err(DenialReason::Releasing);
            }
        }
        if !alone {
            self.may_share(holding, claim)?;
        }
        match self.conflicts(ip, claim).next() {
            Some((listener, holder)) => Err(DenialReason::Port(listener, holder.clone())),
            None => Ok(()),
        }
    }

    fn may_share(&self, holding: &Holding, claim: &Claim) -> Result<(), DenialReason> {
        let mut others =
            holding.owners.iter().filter(|(owner, _)| **owner != claim.owner).map(|(_, other)| other);
        if claim.sharing.is_none() || claim.sharing != holding.sharing {
            return others.next().map_or(Ok(()), |other| Err(DenialReason::Held(other.owner.clone())));
        }
        let party = claim.party();
        if let Some(foreign) = holding.parties.keys().find(|it| !it.gets_along_with(&party)) {
            let mut whose = others.filter(|other| other.party() == *foreign);
            // It may be what it said of itself before.
            return whose.next().map_or(Ok(()), |other| Err(DenialReason::Foreign(other.owner.clone())));
        }
        let own = holding.owners.get(&claim.owner).is_some_and(|own| own.local_only);
        let other_locals = holding.local.saturating_sub(own.into());
        if !claim.local_only && other_locals == 0 {
            return Ok(());
        }
        let differs = |other: &&Arc<Claim>| {
            let same = claim.selector == other.selector && claim.namespace == other.namespace;
            claim.selector.is_empty() || !same
        };
        // One who insists on local traffic has made sure that all the others select the same pods: any speaks for all.
        let asked = if other_locals > 0 { 1 } else { usize::MAX };
        match others.take(asked).find(differs) {
            Some(other) => Err(DenialReason::Local(other.owner.clone())),
            None => Ok(()),
        }
    }

    /// Gives the address to the owner, or renews what is known of it. True if the Address is another now.
    pub(super) fn join(&mut self, ip: IpAddr, pool: &Name, claim: &Arc<Claim>) -> bool {
        self.taken.insert(ip);
        self.releasing.remove(&ip);
        let holding = self.held.entry(ip).or_default();
        let mut changed = holding.pool != *pool || holding.sharing != claim.sharing;
        holding.pool = pool.clone();
        if !holding.has(&claim.namespace) {
            increment(self.by_namespace.entry(claim.namespace.clone()).or_default());
        }
        match holding.owners.insert(claim.owner.clone(), claim.clone()) {
            Some(earlier) => holding.part(&earlier),
            None => changed = true,
        }
        holding.local = holding.local.saturating_add(claim.local_only.into());
        increment(holding.parties.entry(claim.party()).or_default());
        if holding.former.remove(&claim.owner) {
            unlink(&mut self.formerly, &claim.owner, ip);
        }
        self.share(ip, claim.sharing.clone());
        changed
    }

    /// The last one to leave makes it Releasing.
    pub(super) fn leave(&mut self, ip: IpAddr, owner: &Owner) {
        let Some(holding) = self.held.get_mut(&ip) else { return };
        let Some(claim) = holding.owners.remove(owner) else { return };
        holding.part(&claim);
        if !holding.has(&claim.namespace)
            && let Some(count) = self.by_namespace.get_mut(&claim.namespace)
        {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.by_namespace.remove(&claim.namespace);
            }
        }
        if holding.owners.is_empty() {
            self.releasing.insert(ip);
            holding.former.insert(owner.clone());
            self.formerly.entry(owner.clone()).or_default().insert(ip);
            self.share(ip, None);
        } else if holding.owners.len() == 1
            && let Some(named) = holding.owners.values().find_map(|last| last.pool.clone())
        {
            // An owner that is alone there now, and names a pool, has the address from that one.
            holding.pool = named;
        }
    }

    /// The owner has left it, and does not come back to it.
    pub(super) fn disown(&mut self, ip: IpAddr, owner: &Owner) {
        if let Some(holding) = self.held.get_mut(&ip)
            && holding.former.remove(owner)
        {
            unlink(&mut self.formerly, owner, ip);
        }
    }

    /// As it was before a restart; those who have it are still to be heard.
    pub(super) fn recall(&mut self, address: &Address) {
        let owners = if address.state == AddressState::Held { &address.owners[..] } else { &[] };
        self.taken.insert(address.ip);
        self.releasing.insert(address.ip);
        for owner in owners {
            self.formerly.entry(owner.clone()).or_default().insert(address.ip);
        }
        let denied = address.conflicts.iter().map(|(owner, port)| (address.ip, owner.clone(), *port));
        self.denied.extend(denied);
        let former = owners.iter().cloned().collect();
        self.held.insert(address.ip, Holding { pool: address.pool.clone(), former, ..Holding::default() });
    }

    /// Everybody was heard: who did not come back to an address that others came back to has lost it.
    pub(super) fn forget_absent(&mut self, ip: IpAddr) {
        let Some(holding) = self.held.get_mut(&ip).filter(|holding| !holding.owners.is_empty()) else {
            return;
        };
        for owner in std::mem::take(&mut holding.former) {
            unlink(&mut self.formerly, &owner, ip);
        }
    }

    /// Releasing ► free. False if it is not being released.
    pub(super) fn free(&mut self, ip: IpAddr) -> bool {
        if self.held.get(&ip).is_none_or(|holding| !holding.owners.is_empty()) {
            return false;
        }
        self.taken.remove(ip);
        self.releasing.remove(&ip);
        if !self.denied.is_empty() {
            self.denied.retain(|(at, _, _)| *at != ip);
        }
        for owner in self.held.remove(&ip).into_iter().flat_map(|holding| holding.former) {
            unlink(&mut self.formerly, &owner, ip);
        }
        true
    }

    pub(super) fn take_port(&mut self, ip: IpAddr, listener: ListenerId, owner: &Owner) {
        self.ports.insert((ip, listener), owner.clone());
    }

    pub(super) fn drop_port(&mut self, ip: IpAddr, listener: ListenerId) {
        self.ports.remove(&(ip, listener));
    }

    fn share(&mut self, ip: IpAddr, key: Option<Name>) {
        let Some(holding) = self.held.get_mut(&ip) else { return };
        if holding.sharing == key {
            return;
        }
        if let Some(old) = std::mem::replace(&mut holding.sharing, key.clone()) {
            unlink(&mut self.by_sharing, &old, ip);
        }
        if let Some(key) = key {
            self.by_sharing.entry(key).or_default().insert(ip);
        }
    }
}

impl Holding {
    fn has(&self, namespace: &Name) -> bool {
        self.parties.keys().any(|party| party.namespace == *namespace)
    }

    fn part(&mut self, claim: &Claim) {
        // By too few, a Service might share its address with one whose local traffic goes elsewhere.
        debug_assert!(self.local >= usize::from(claim.local_only), "each claim was counted when it came");
        self.local = self.local.saturating_sub(claim.local_only.into());
        let party = claim.party();
        if let Some(count) = self.parties.get_mut(&party) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.parties.remove(&party);
            }
        }
    }
}

fn increment(count: &mut usize) {
    *count = count.saturating_add(1);
}

fn unlink<K: Ord>(index: &mut BTreeMap<K, BTreeSet<IpAddr>>, key: &K, ip: IpAddr) {
    if let Some(ips) = index.get_mut(key) {
        ips.remove(&ip);
        if ips.is_empty() {
            index.remove(key);
        }
    }
}
