//! What a claim gets as things stand: reads everything, changes nothing.
//!
//! ```text
//!     claim ─► wish (families, best first) ─► what it has, if still allowed ─► what is missing, pool by pool
//!                                                                          └► or why not (refuse.rs)
//! ```

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use seaway_model::{
    ListenerId, Name, Owner, Problem, Reason, Time,
    config::{AddressPoolRules, ReservedPorts},
    fact::{AddressPool, FamilyPolicy},
    load_balancer::Family,
};

use super::{
    address_ranges::succ,
    claim::{Claim, Grant},
    holdings::{DenialReason, Holdings},
    hosts::{Hosts, PartialGrant},
    keep::{ExclusionDeadlines, RetentionReason},
    pools::{Pools, buggy, gives, ranges},
};
use crate::address_map::AddressMap;

/// How many shared addresses are tried before a free one is preferred: where thousands share one key and all want
/// the same port, walking over all of them for each would never end.
const SHARED_TRIED: usize = 32;

#[derive(Clone, Copy)]
pub(super) struct DecisionContext<'a> {
    pub(super) pools: &'a Pools,
    pub(super) holdings: &'a Holdings,
    pub(super) hosts: &'a Hosts,
    pub(super) rules: AddressPoolRules,
    pub(super) machine_ports: &'a ReservedPorts,
    pub(super) now: Option<Time>,
    /// When addresses of this owner end that its pools exclude.
    pub(super) ends: &'a ExclusionDeadlines,
    /// Hosts' own addresses that owners had before this process began.
    pub(super) remembered: &'a BTreeMap<Owner, Vec<IpAddr>>,
    /// Who answered where before this process began, until all were heard.
    pub(super) answered: &'a BTreeMap<(IpAddr, ListenerId), Owner>,
    /// Addresses that another controller published.
    pub(super) reserved: &'a AddressMap<Owner>,
    /// What is written is being given back to those who had it.
    pub(super) settling: bool,
}

#[derive(Debug, Default)]
pub(super) struct Decision {
    pub(super) grant: Option<Grant>,
    pub(super) problems: Vec<Problem>,
    /// Our addresses, each with its pool; none where the grant is from hosts.
    pub(super) places: Vec<(IpAddr, Name)>,
    pub(super) waits: WaitingFor,
    /// Of `places`, those that are excluded.
    pub(super) ends: ExclusionDeadlines,
}

/// What could give an owner more than it has, beside a change of its claim, of pools and of hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum WaitingFor {
    #[default]
    Nothing,
    /// Any address that becomes free.
    Free,
    /// Somebody in particular giving something up.
    Holder,
}

/// The families that would do, best first.
pub(super) struct FamilyPreferences(pub(super) Vec<Vec<Family>>);

/// Addresses by family, each with its pool.
pub(super) type AddressesByFamily = BTreeMap<Family, (IpAddr, Name)>;

impl DecisionContext<'_> {
    pub(super) fn decide(&self, claim: &Claim, had: Option<&Grant>) -> Decision {
        let mut wish = match FamilyPreferences::of(claim) {
            Ok(wish) => wish,
            Err(problem) => return Decision::refused(vec![problem]),
        };
        if claim.hosts_only {
            return self.on_hosts(claim, had, wish);
        }
        let candidates = self.pools.candidates(claim, self.rules);
        let before = had.is_none().then(|| self.remembered(claim, &candidates)).flatten();
        let had = had.or(before.as_ref());
        if let Some(had) = had.filter(|had| had.from_hosts) {
            let pool = candidates.iter().find(|pool| pool.hosts && pool.object.name == had.pool);
            if let Some(pool) = pool {
                wish.prefer(had.addresses.iter().copied());
                let granted = self.publish_hosts(claim, pool, &wish, PartialGrant::Allowed, &had.addresses);
                if let Some(granted) = granted {
                    return granted;
                }
            }
            if let Some(kept) = self.keep_hosts(claim, had, &wish, pool.is_some()) {
                return kept;
            }
        }
        let ours = had.filter(|had| !had.from_hosts).map_or(&[][..], |had| &had.addresses[..]);
        let kept = self.kept(claim, ours, &candidates, &wish);
        wish.prefer(kept.values().map(|(ip, _)| *ip));
        let served =
            wish.0.iter().find_map(|families| self.serve(claim, families, &wish, &kept, &candidates));
        if let Some(granted) = served {
            return granted;
        }
        if !kept.is_empty() {
            // A family that cannot be had is no reason to take away the address that serves.
            let families: Vec<Family> = wish.0.first().cloned().unwrap_or_default();
            let mut granted = self.granted(claim, &families, kept.clone(), true);
            let refused = self.refuse(claim, &wish, &kept, &candidates);
            granted.problems.extend(refused.problems);
            granted.waits = granted.waits.or(refused.waits);
            return granted;
        }
        let partly = candidates.iter().filter(|pool| self.usable(claim, pool, &kept)).find_map(|pool| {
            pool.hosts.then(|| self.publish_hosts(claim, pool, &wish, PartialGrant::Allowed, &[])).flatten()
        });
        partly.unwrap_or_else(|| self.refuse(claim, &wish, &kept, &candidates))
    }

    /// What it has and may keep. A port that others have at a shared address is no reason to move away from it.
    fn kept(
        &self,
        claim: &Claim,
        ours: &[IpAddr],
        candidates: &[&AddressPool],
        wish: &FamilyPreferences,
    ) -> AddressesByFamily {
        let mut kept = AddressesByFamily::new();
        let had = ours.iter().map(|ip| (*ip, true));
        // What was withdrawn from it comes back only if a pool gives it.
        let formerly = self.holdings.formerly(&claim.owner).map(|ip| (ip, self.settling));
        for (ip, has) in had.chain(formerly) {
            let family = Family::of(ip);
            let as_asked = claim.requested_in(family).is_none_or(|requested| requested == ip);
            if kept.contains_key(&family) || !as_asked || !wish.wants(family) {
                continue;
            }
            if !matches!(self.holdings.may_join(ip, claim), Ok(()) | Err(DenialReason::Port(..))) {
                continue;
            }
            let same = |pool: &&&AddressPool| self.holdings.pool(ip) == Some(&pool.object.name);
            let giving = || candidates.iter().filter(|pool| gives(pool, ip));
            if let Some(pool) = giving().find(same).or_else(|| giving().next()) {
                kept.insert(family, (ip, pool.object.name.clone()));
            } else if has && self.stays(claim, ip).is_some() {
                kept.insert(family, (ip, self.holdings.pool(ip).cloned().unwrap_or_default()));
            }
        }
        kept
    }

    /// All of these families: what is kept, and what is missing from one pool, or else from several.
    fn serve(
        &self,
        claim: &Claim,
        families: &[Family],
        wish: &FamilyPreferences,
        kept: &AddressesByFamily,
        candidates: &[&AddressPool],
    ) -> Option<Decision> {
        let mut places = kept.clone();
        places.retain(|family, _| families.contains(family));
        let missing: Vec<Family> = families.iter().copied().filter(|f| !places.contains_key(f)).collect();
        let lacking = wish.most() > families.len();
        if missing.is_empty() {
            return Some(self.granted(claim, families, places, lacking));
        }
        let mut pools: Vec<&AddressPool> =
            candidates.iter().copied().filter(|pool| self.usable(claim, pool, kept)).collect();
        // The pool of what is kept comes first.
        pools.sort_by_key(|pool| !kept.values().any(|(_, name)| *name == pool.object.name));
        let from = |pool: &AddressPool, family: Family| {
            self.one(claim, pool, family).map(|ip| (family, (ip, pool.object.name.clone())))
        };
        for pool in &pools {
            if pool.hosts {
                // Hosts' own addresses and pools' do not go together.
                let only = FamilyPreferences(vec![families.to_vec()]);
                let whole = || self.publish_hosts(claim, pool, &only, PartialGrant::Refused, &[]);
                if let Some(granted) = kept.is_empty().then(whole).flatten() {
                    return Some(granted);
                }
            } else if let Some(found) =
                missing.iter().map(|family| from(pool, *family)).collect::<Option<Vec<_>>>()
            {
                places.extend(found);
                let fits = self.are_within_limit(claim, &places);
                return fits.then(|| self.granted(claim, families, places, lacking));
            }
        }
        let any = |family: &Family| pools.iter().find_map(|pool| from(pool, *family));
        places.extend(missing.iter().map(any).collect::<Option<Vec<_>>>()?);
        self.are_within_limit(claim, &places).then(|| self.granted(claim, families, places, lacking))
    }

    /// One address of one pool, if it has one for this claim.
    pub(super) fn one(&self, claim: &Claim, pool: &AddressPool, family: Family) -> Option<IpAddr> {
        let open = |ip: &IpAddr| gives(pool, *ip) && self.may_take(*ip, claim);
        let may_have = |ip: &IpAddr| {
            // To share an address takes nothing from a pool.
            let takes = || self.is_new(claim, *ip) && !self.holdings.contains(*ip);
            self.is_within_limit(claim, *ip)
                && !(takes() && self.has_its_share(claim, pool, family).is_some())
        };
        if let Some(requested) = claim.requested_in(family) {
            return Some(requested).filter(|ip| open(ip) && may_have(ip));
        }
        let published =
            self.reserved.of(&claim.owner).iter().copied().find(|ip| Family::of(*ip) == family && open(ip));
        let shared = || claim.sharing.iter().flat_map(|key| self.holdings.shared_by(key, family));
        let may_share = |ip: &IpAddr| open(ip) && may_have(ip);
        published
            .or_else(|| shared().take(SHARED_TRIED).find(may_share))
            .or_else(|| self.first_free(pool, family).filter(may_have))
            .or_else(|| shared().skip(SHARED_TRIED).find(may_share))
    }

    /// Whether its namespace may have this address, beside those that it has.
    fn is_within_limit(&self, claim: &Claim, ip: IpAddr) -> bool {
        !self.is_new(claim, ip) || self.has_room(claim, 1)
    }

    fn are_within_limit(&self, claim: &Claim, places: &AddressesByFamily) -> bool {
        let new = places.values().filter(|(ip, _)| self.is_new(claim, *ip)).count();
        new == 0 || self.has_room(claim, new)
    }

    /// What another controller published for the owner is not a new one.
    fn is_new(&self, claim: &Claim, ip: IpAddr) -> bool {
        !self.holdings.is_of_namespace(ip, &claim.namespace) && !self.reserved.of(&claim.owner).contains(&ip)
    }

    /// Whether its namespace may have so many more addresses.
    pub(super) fn has_room(&self, claim: &Claim, more: usize) -> bool {
        let most = self.rules.per_namespace;
        most.is_none_or(|most| {
            self.holdings.of_namespace(&claim.namespace).saturating_add(more) <= most as usize
        })
    }

    fn may_take(&self, ip: IpAddr, claim: &Claim) -> bool {
        let hosts_own = !self.holdings.contains(ip) && self.hosts.whose(ip).is_some();
        !hosts_own
            && self.reserved.owners(ip).is_none_or(|it| it.contains(&claim.owner))
            && self.holdings.may_join(ip, claim).is_ok()
    }

    fn first_free(&self, pool: &AddressPool, family: Family) -> Option<IpAddr> {
        ranges(pool).filter(|range| range.family() == family).find_map(|range| {
            let mut from = range.first();
            loop {
                let free = self.holdings.first_free(from, range.last())?;
                let is_taken = self.hosts.whose(free).is_some() || self.reserved.owners(free).is_some();
                if !(is_taken || pool.avoid_buggy && buggy(free)) {
                    return Some(free);
                }
                from = succ(free).filter(|next| *next <= range.last())?;
            }
        })
    }

    /// A pool without `autoAssign` gives to those who name it, or an address of it, or have one.
    pub(super) fn usable(&self, claim: &Claim, pool: &AddressPool, kept: &AddressesByFamily) -> bool {
        pool.auto_assign
            || claim.pool.is_some()
            || claim.requested.iter().any(|ip| gives(pool, *ip) || pool.hosts)
            || kept.values().any(|(_, name)| *name == pool.object.name)
    }

    fn granted(&self, claim: &Claim, order: &[Family], places: AddressesByFamily, lacking: bool) -> Decision {
        let places: Vec<(IpAddr, Name)> =
            order.iter().filter_map(|family| places.get(family)).cloned().collect();
        let addresses = places.iter().map(|(ip, _)| *ip).collect();
        let pool = places.first().map(|(_, pool)| pool.clone()).unwrap_or_default();
        let mut granted = self.grant_ports(claim, addresses, pool, false);
        for (ip, _) in &places {
            let Some(stays) = self.stayed(claim, *ip) else { continue };
            granted.problems.push(stays.problem(claim, *ip));
            if let RetentionReason::Until(_, end) = stays {
                granted.ends.insert(*ip, end);
            }
        }
        granted.places = places;
        granted.waits = if lacking { granted.waits.or(WaitingFor::for_any(claim)) } else { granted.waits };
        granted
    }

    /// The claim's ports at these addresses, as far as nobody else has them.
    pub(super) fn grant_ports(
        &self,
        claim: &Claim,
        addresses: Vec<IpAddr>,
        pool: Name,
        from_hosts: bool,
    ) -> Decision {
        let conflicts: Vec<(IpAddr, ListenerId, Owner)> = addresses
            .iter()
            .flat_map(|ip| self.holdings.conflicts(*ip, claim).map(|(port, who)| (*ip, port, who.clone())))
            .chain(addresses.iter().filter(|_| from_hosts).flat_map(|ip| self.of_the_machines(claim, *ip)))
            .collect();
        let lost: BTreeSet<(IpAddr, ListenerId)> =
            conflicts.iter().map(|(ip, port, _)| (*ip, *port)).collect();
        let refused = if from_hosts { BTreeSet::new() } else { self.refused_of_pool(claim, &pool) };
        let open = || claim.ports.iter().filter(|it| !refused.contains(it));
        let asked = || addresses.iter().flat_map(|ip| open().map(|listener| (*ip, *listener)));
        let may = |(ip, listener): &(IpAddr, ListenerId)| {
            !lost.contains(&(*ip, *listener)) && !self.holdings.is_denied(*ip, &claim.owner, *listener)
        };
        let ports: Vec<(IpAddr, ListenerId)> = asked().filter(may).collect();
        let waits = if ports.len() == asked().count() { WaitingFor::Nothing } else { WaitingFor::Holder };
        let grant = Some(Grant { addresses, pool, from_hosts, ports, conflicts, refused });
        Decision { grant, waits, ..Decision::default() }
    }
}

impl FamilyPreferences {
    fn of(claim: &Claim) -> Result<FamilyPreferences, Problem> {
        use Family::{V4, V6};
        let families = claim.families;
        let first =
            families.first.or_else(|| claim.requested.first().map(|ip| Family::of(*ip))).unwrap_or(V4);
        let second = families.second.filter(|second| *second != first).unwrap_or(first.other());
        let mut wish = match (families.policy, families.first) {
            (FamilyPolicy::Single, Some(only)) => vec![vec![only]],
            (FamilyPolicy::Single, None) => vec![vec![V4], vec![V6]],
            (FamilyPolicy::Prefer, _) => vec![vec![first, second], vec![first], vec![second]],
            (FamilyPolicy::Require, _) => vec![vec![first, second]],
        };
        let requested: BTreeSet<Family> = claim.requested.iter().map(|ip| Family::of(*ip)).collect();
        wish.retain(|families| requested.iter().all(|family| families.contains(family)));
        if !wish.is_empty() && requested.len() == claim.requested.len() {
            return Ok(FamilyPreferences(wish));
        }
        let asked: Vec<String> = claim.requested.iter().map(IpAddr::to_string).collect();
        let message = format!("{} are too many: one address for each of its families", asked.join(", "));
        Err(Problem::new(claim.owner.object(), Reason::Invalid, message)
            .at(claim.requested_field.clone())
            .fix("Ask for one address of each family that spec.ipFamilies names."))
    }

    pub(super) fn wants(&self, family: Family) -> bool {
        self.0.iter().any(|families| families.contains(&family))
    }

    fn most(&self) -> usize {
        self.0.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// What loses none of these comes before what does.
    pub(super) fn prefer(&mut self, kept: impl Iterator<Item = IpAddr>) {
        let kept: BTreeSet<Family> = kept.map(Family::of).collect();
        self.0.sort_by_key(|families| kept.iter().filter(|family| !families.contains(family)).count());
    }
}

impl Decision {
    pub(super) fn refused(problems: Vec<Problem>) -> Decision {
        Decision { problems, ..Decision::default() }
    }
}

impl WaitingFor {
    /// Who may share is helped by a port as well as by an address.
    pub(super) fn for_any(claim: &Claim) -> WaitingFor {
        if claim.sharing.is_some() { WaitingFor::Holder } else { WaitingFor::Free }
    }

    /// Who waits for somebody in particular is heard at every change.
    pub(super) fn or(self, other: WaitingFor) -> WaitingFor {
        match (self, other) {
            (WaitingFor::Holder, _) | (_, WaitingFor::Holder) => WaitingFor::Holder,
            (WaitingFor::Free, _) | (_, WaitingFor::Free) => WaitingFor::Free,
            _ => WaitingFor::Nothing,
        }
    }
}
