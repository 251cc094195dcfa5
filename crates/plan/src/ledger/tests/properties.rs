//! Whatever happens in whatever order.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::ledger::{Grant, pools};

#[derive(Clone, Debug)]
enum Event {
    Pool(AddressPool),
    NoPool(usize),
    Host(Vec<IpAddr>),
    Claim(Box<Claim>),
    Release(usize),
    Released(usize),
    /// Another leader has given it out, and its write came late.
    Written(IpAddr, BTreeSet<usize>),
}

fn any_range() -> impl Strategy<Value = IpRange> {
    (0u8..12, 0u8..6, any::<bool>()).prop_map(|(first, len, v6)| {
        let at = |i: u8| {
            if v6 { ip(&format!("fd00::{i:x}")) } else { ip(&format!("10.0.{}.{}", i / 6, 250 + i % 6)) }
        };
        IpRange::new(at(first), at((first + len).min(11))).unwrap()
    })
}

fn any_pool() -> impl Strategy<Value = AddressPool> {
    let flags =
        (prop::bool::weighted(0.15), prop::bool::weighted(0.8), any::<bool>(), prop::bool::weighted(0.2));
    (0usize..4, prop::collection::vec(any_range(), 0..3), flags, 0u32..3).prop_map(
        |(name, ranges, (hosts, auto_assign, avoid_buggy, closed), priority)| AddressPool {
            ranges,
            hosts,
            auto_assign,
            avoid_buggy,
            priority,
            namespaces: if closed { vec!["closed".into()] } else { Vec::new() },
            ..pool(&format!("p{name}"), &[])
        },
    )
}

fn any_claim() -> impl Strategy<Value = Claim> {
    let policy =
        prop_oneof![Just(FamilyPolicy::Single), Just(FamilyPolicy::Prefer), Just(FamilyPolicy::Require)];
    let family = prop_oneof![Just(None), Just(Some(V4)), Just(Some(V6))];
    let ports = prop::collection::btree_set((1u16..5).prop_map(tcp), 1..3);
    let requested = prop::collection::vec(any_range().prop_map(|range| range.first()), 0..2);
    let sharing = prop::option::weighted(0.6, 0usize..2);
    let named = prop::option::weighted(0.15, 0usize..4);
    let details =
        (prop::bool::weighted(0.2), 0usize..2, prop::bool::weighted(0.1), prop::option::of(0u64..4));
    (0usize..10, policy, family, ports, prop::option::weighted(0.3, requested), sharing, named, details)
        .prop_map(
            |(
                name,
                policy,
                first,
                ports,
                requested,
                sharing,
                named,
                (local_only, app, hosts_only, created),
            )| Claim {
                families: Families { policy, first, second: None },
                ports,
                requested: requested.unwrap_or_default(),
                sharing: sharing.map(|key| format!("k{key}").into()),
                pool: named.map(|name| format!("p{name}").into()),
                local_only,
                selector: Labels::from([("app".into(), format!("a{app}").into())]),
                hosts_only,
                created: created.map(Time),
                ..claim(&format!("s{name}"))
            },
        )
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => any_pool().prop_map(Event::Pool),
        1 => (0usize..4).prop_map(Event::NoPool),
        1 => prop::collection::vec(any_range().prop_map(|range| range.last()), 0..3).prop_map(Event::Host),
        10 => any_claim().prop_map(|claim| Event::Claim(Box::new(claim))),
        3 => (0usize..10).prop_map(Event::Release),
        3 => (0usize..24).prop_map(Event::Released),
        2 => (any_range(), prop::collection::btree_set(0usize..12, 1..3))
            .prop_map(|(range, names)| Event::Written(range.first(), names)),
    ]
}

type Answer = (Option<Grant>, Vec<seaway_model::Problem>);

/// The ledger with what it was told, to compare.
#[derive(Default)]
struct Told {
    ledger: Ledger,
    pools: BTreeMap<ObjectRef, AddressPool>,
    claims: BTreeMap<Owner, Claim>,
    host: Option<HostReport>,
}

impl Told {
    fn tell(&mut self, event: Event) -> LedgerChange {
        match event {
            Event::Pool(pool) => {
                self.pools.insert(pool.object.clone(), pool.clone());
                self.ledger.put_pool(Arc::new(pool))
            }
            Event::NoPool(name) => {
                let object = pool(&format!("p{name}"), &[]).object;
                self.pools.remove(&object);
                self.ledger.remove_pool(&object)
            }
            Event::Host(addresses) => {
                let report = HostReport { addresses, ..report("one", &[]) };
                self.host = Some(report.clone());
                self.ledger.put_host(&report)
            }
            Event::Claim(claim) => {
                self.claims.insert(claim.owner.clone(), (*claim).clone());
                self.ledger.claim(*claim)
            }
            Event::Release(name) => {
                let owner = owner(&format!("s{name}"));
                self.claims.remove(&owner);
                self.ledger.release(&owner)
            }
            Event::Released(n) => match self.ledger.releasing() {
                ips if ips.is_empty() => LedgerChange::default(),
                ips => self.ledger.released(ips[n % ips.len()]),
            },
            Event::Written(ip, names) => {
                let owners: Vec<Owner> = names.iter().map(|it| owner(&format!("s{it}"))).collect();
                // What was decided here of these owners is ours, and so is what is a host's own.
                if self.ledger.knows_any(ip, &owners) || self.ledger.is_of_host(ip) {
                    return LedgerChange::default();
                }
                let address = seaway_model::Address {
                    ip,
                    pool: "p0".into(),
                    sharing: None,
                    owners: owners.clone(),
                    plan_version: 1,
                    ends: None,
                    conflicts: Vec::new(),
                    state: AddressState::Held,
                    version: 0,
                };
                let given = |ledger: &Ledger| ledger.address(ip).map(|it| it.owners).unwrap_or_default();
                let displaced = given(&self.ledger);
                let touched = self.ledger.give_way(&address, |ip| ip.is_ipv6());
                let now = given(&self.ledger);
                // Nobody else has it, unless he shares it with one of those.
                let passes =
                    now.iter().any(|it| owners.contains(it)) || !displaced.iter().any(|it| now.contains(it));
                assert!(passes || !self.ledger.settled, "{ip}: {displaced:?} {now:?}");
                touched
            }
        }
    }

    fn all(&self) -> BTreeMap<Owner, Answer> {
        (0..10)
            .map(|i| owner(&format!("s{i}")))
            .map(|owner| (owner.clone(), self.ledger.grant(&owner)))
            .collect()
    }

    fn objects(&self) -> BTreeMap<IpAddr, seaway_model::Address> {
        self.ledger.addresses().map(|ip| (ip, self.ledger.address(ip).unwrap())).collect()
    }

    /// From storage, with the claims in an order of their own.
    fn restarted(&self, seed: usize) -> Ledger {
        let mut ledger = Ledger::new();
        let mut claims: Vec<Claim> = self.claims.values().cloned().collect();
        if !claims.is_empty() {
            let turn = seed % claims.len();
            claims.rotate_left(turn);
        }
        if seed.is_multiple_of(2) {
            claims.reverse();
        }
        let (before, after) = claims.split_at(claims.len() / 2);
        before.iter().cloned().for_each(|claim| assert!(ledger.claim(claim).is_empty()));
        self.objects().values().for_each(|address| ledger.learn(address));
        self.pools
            .values()
            .for_each(|pool| assert!(ledger.put_pool(Arc::new(pool.clone())).owners.is_empty()));
        self.host.iter().for_each(|host| assert!(ledger.put_host(host).is_empty()));
        after.iter().cloned().for_each(|claim| assert!(ledger.claim(claim).is_empty()));
        ledger.on_synced();
        ledger
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let mut ports: BTreeMap<(IpAddr, ListenerId), Owner> = BTreeMap::new();
        let mut owners: BTreeMap<IpAddr, BTreeSet<Owner>> = BTreeMap::new();
        for (owner, (grant, problems)) in self.all() {
            let Some(claim) = self.claims.get(&owner) else {
                prop_assert!(grant.is_none() && problems.is_empty());
                continue;
            };
            prop_assert!(grant.is_some() || !problems.is_empty(), "{} got nothing and no word why", owner);
            let Some(grant) = grant else { continue };
            for port in &grant.ports {
                prop_assert!(claim.ports.contains(&port.1) && grant.addresses.contains(&port.0));
                prop_assert_eq!(ports.insert(*port, owner.clone()), None, "two owners listen at {:?}", port);
            }
            let families: BTreeSet<Family> = grant.addresses.iter().map(|ip| Family::of(*ip)).collect();
            if claim.families.policy == FamilyPolicy::Single {
                prop_assert!(families.len() <= 1);
            }
            if grant.from_hosts {
                let own =
                    self.host.iter().flat_map(|host| &host.addresses).copied().collect::<BTreeSet<IpAddr>>();
                prop_assert!(grant.addresses.iter().all(|ip| own.contains(ip)));
                continue;
            }
            prop_assert_eq!(families.len(), grant.addresses.len(), "one of each family");
            if claim.families.policy == FamilyPolicy::Require && families.len() == 1 {
                prop_assert!(!problems.is_empty(), "half granted without a word");
            }
            for ip in &grant.addresses {
                let allowed = |pool: &&AddressPool| pools::allows(pool, claim) && pools::gives(pool, *ip);
                let pool = self
                    .pools
                    .values()
                    .filter(allowed)
                    .find(|pool| claim.pool.as_ref().is_none_or(|name| *name == pool.object.name));
                prop_assert!(pool.is_some(), "{} has {} outside of its pools", owner, ip);
                let wanted = claim.requested_in(Family::of(*ip));
                prop_assert!(wanted.is_none_or(|wanted| wanted == *ip));
                owners.entry(*ip).or_default().insert(owner.clone());
            }
        }
        for (ip, address) in self.objects() {
            let holders: Vec<Owner> = owners.remove(&ip).into_iter().flatten().collect();
            prop_assert_eq!(address.state == AddressState::Releasing, holders.is_empty());
            prop_assert_eq!(&address.owners, &holders);
            for (i, a) in holders.iter().enumerate() {
                for b in &holders[i + 1..] {
                    let (a, b) = (&self.claims[a], &self.claims[b]);
                    prop_assert!(
                        a.sharing.is_some() && a.sharing == b.sharing && a.sharing == address.sharing
                    );
                    prop_assert!(!(a.local_only || b.local_only) || a.selector == b.selector);
                }
            }
        }
        prop_assert!(owners.is_empty(), "granted without an Address: {:?}", owners);
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: seaway_testkit::properties::cases(400), ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_ledger_is_sound_and_says_what_it_changed(
        start in prop::collection::vec(any_event(), 0..12),
        events in prop::collection::vec(any_event(), 0..40),
    ) {
        let mut told = Told::default();
        for event in start {
            prop_assert!(told.tell(event).owners.is_empty());
        }
        told.ledger.on_synced();
        told.check()?;
        for event in events {
            let (owners, objects) = (told.all(), told.objects());
            let touched = told.tell(event.clone());
            told.check()?;
            let now = told.all();
            let changed = now.iter().filter(|(owner, it)| owners[*owner] != **it).map(|(owner, _)| owner.clone());
            for owner in changed {
                prop_assert!(touched.owners.contains(&owner), "{} changed untold by {:?}", owner, event);
            }
            let after = told.objects();
            for ip in objects.keys().chain(after.keys()) {
                if objects.get(ip) != after.get(ip) {
                    prop_assert!(touched.addresses.contains(ip), "{} changed untold by {:?}", ip, event);
                }
            }
        }
    }

    #[test]
    fn a_restart_gives_everybody_its_addresses_back_in_whatever_order_it_is_told(
        events in prop::collection::vec(any_event(), 0..50), seed in 0usize..100,
    ) {
        let mut told = Told::default();
        told.ledger.on_synced();
        for event in events {
            told.tell(event);
        }
        let (one, other) = (told.restarted(seed), told.restarted(seed + 1));
        for (owner, (grant, _)) in told.all() {
            if let Some(before) = grant.filter(|grant| !grant.from_hosts) {
                let after = one.grant(&owner).0.map(|grant| grant.addresses).unwrap_or_default();
                for ip in before.addresses {
                    prop_assert!(after.contains(&ip), "{} lost {}", owner, ip);
                }
            }
            prop_assert_eq!(one.grant(&owner), other.grant(&owner), "the order of claims mattered to {}", owner);
        }
    }

    #[test]
    fn nobody_is_moved_and_nothing_is_said_while_nothing_changes(
        events in prop::collection::vec(any_event(), 0..40),
    ) {
        let mut told = Told::default();
        told.ledger.on_synced();
        for event in events {
            told.tell(event);
        }
        let (before, objects) = (told.all(), told.objects());
        let claims: Vec<Claim> = told.claims.values().cloned().collect();
        for claim in claims {
            prop_assert!(told.ledger.claim(claim).is_empty());
        }
        // A host that comes and goes makes everybody be heard again.
        told.ledger.put_host(&report("other", &["192.0.2.200"]));
        told.ledger.remove_host("other");
        prop_assert_eq!(told.objects(), objects);
        for (owner, (grant, _)) in told.all() {
            let ours = |grant: &Option<Grant>| grant.clone().filter(|grant| !grant.from_hosts).map(|grant| grant.addresses);
            prop_assert_eq!(ours(&grant), ours(&before[&owner].0));
        }
    }

    #[test]
    fn whoever_waits_for_an_address_gets_it_when_it_is_free(taken in 1usize..6, waiting in 1usize..6, leaves in 1usize..6) {
        let mut ledger = settled(&[pool("p", &[&format!("10.0.0.1-10.0.0.{taken}")])]);
        for i in 0..taken {
            ledger.ask(claim(&format!("holder{i}")));
        }
        for i in 0..waiting {
            prop_assert_eq!(ledger.ask(claim(&format!("waiter{i}"))), "PoolExhausted");
        }
        let leaves = leaves.min(taken);
        for i in 0..leaves {
            ledger.release_fully(&format!("holder{i}"));
        }
        for i in 0..waiting {
            prop_assert_eq!(ledger.has(&format!("waiter{i}")).len(), usize::from(i < leaves), "the oldest first");
        }
    }

    #[test]
    fn who_follows_has_what_is_written_and_who_takes_over_goes_on_with_it(
        events in prop::collection::vec(any_event(), 0..40),
        at in 0usize..40,
    ) {
        let (mut told, mut follower) = (Told::default(), Ledger::following());
        told.ledger.on_synced();
        for (i, event) in events.into_iter().enumerate() {
            if i == at {
                follower.on_synced();
            }
            let mut heard = Told { ledger: follower, ..Told::default() };
            if !matches!(event, Event::Released(_) | Event::Written(..)) {
                heard.tell(event.clone());
            }
            follower = heard.ledger;
            for ip in told.tell(event).addresses {
                follower.follow(ip, told.ledger.address(ip).as_ref());
            }
        }
        follower.on_synced();
        let ours = |ledger: &Ledger, owner: &Owner| -> BTreeSet<IpAddr> {
            ledger.grant(owner).0.iter().filter(|it| !it.from_hosts).flat_map(|it| it.addresses.clone()).collect()
        };
        for owner in told.claims.keys() {
            prop_assert_eq!(ours(&follower, owner), ours(&told.ledger, owner), "{}", owner);
        }
        let mut next = follower.turned(true, told.objects().into_values());
        next.on_synced();
        for owner in told.claims.keys() {
            let (had, has) = (ours(&told.ledger, owner), ours(&next, owner));
            prop_assert!(had.is_subset(&has), "{} had {:?} and has {:?}", owner, had, has);
        }
    }
}
