//! Why a claim does not get what it asks for, in sentences.

use std::{collections::BTreeMap, net::IpAddr};

use seaway_model::{
    IpRange, Name, Owner, Problem, Reason,
    config::ReservedPorts,
    fact::{AddressPool, FamilyPolicy},
    load_balancer::Family,
};

use super::{
    claim::{Claim, Grant},
    decide::{AddressesByFamily, Decision, DecisionContext, FamilyPreferences, WaitingFor},
    holdings::DenialReason,
    hosts,
    pools::{HOSTS, gives, ranges, size},
};

impl DecisionContext<'_> {
    /// It asked for either family, and others have its port at the hosts' IPv4 addresses: whoever asks for it there gets theirs.
    pub(super) fn only_at_ipv6(&self, claim: &Claim, pool: &AddressPool, granted: &Grant) -> Option<Problem> {
        let asks_for_either = claim.families.policy == FamilyPolicy::Single
            && claim.families.first.is_none()
            && claim.requested.is_empty()
            && claim.exactly.is_empty();
        // Of ports that it lacks at addresses that it has, its Problems say who has them.
        let is_told = !granted.conflicts.is_empty() || granted.addresses.is_empty();
        if !asks_for_either || is_told || granted.addresses.iter().any(IpAddr::is_ipv4) {
            return None;
        }
        let mut at = self.published_by(claim, pool).filter(IpAddr::is_ipv4);
        let (ip, (id, other)) = at.find_map(|ip| Some((ip, self.holdings.conflicts(ip, claim).next()?)))?;
        let message = format!(
            "port {id} on {ip} is already used by {other}: this Service is served at IPv6 addresses only"
        );
        let problem = Problem::new(claim.owner.object(), Reason::PortConflict, message);
        Some(
            problem
                .fix("Choose another port for one of the two. For IPv6 alone, set spec.ipFamilies: [IPv6]."),
        )
    }

    pub(super) fn refuse(
        &self,
        claim: &Claim,
        wish: &FamilyPreferences,
        kept: &AddressesByFamily,
        candidates: &[&AddressPool],
    ) -> Decision {
        if candidates.is_empty() {
            return Decision::refused(vec![self.no_pool(claim)]);
        }
        let mut decision = Decision::default();
        for ip in &claim.requested {
            if !kept.values().any(|(kept, _)| kept == ip) {
                self.refuse_requested(claim, *ip, candidates, &mut decision);
            }
        }
        let least = wish.0.iter().map(Vec::len).min().unwrap_or(1);
        if decision.problems.is_empty() && !self.has_room(claim, least.saturating_sub(kept.len()).max(1)) {
            decision.problems.push(self.full(claim));
            decision.waits = WaitingFor::for_any(claim);
            return decision;
        }
        if decision.problems.is_empty() {
            let usable: Vec<&AddressPool> =
                candidates.iter().copied().filter(|pool| self.usable(claim, pool, kept)).collect();
            if usable.is_empty() {
                decision.problems.push(on_request_only(claim, candidates));
                return decision;
            }
            let missing = wish.0.iter().flatten().copied().filter(|family| !kept.contains_key(family));
            if let Some(problem) = self.told_of_its_share(claim, missing, &usable) {
                decision.problems.push(problem);
                decision.waits = WaitingFor::Holder;
                return decision;
            }
            self.refuse_families(claim, wish, kept, &usable, &mut decision);
        }
        decision
    }

    fn full(&self, claim: &Claim) -> Problem {
        let has = self.holdings.of_namespace(&claim.namespace);
        let message = format!(
            "namespace {} has {has} addresses, and may have {}",
            claim.namespace,
            self.rules.per_namespace.unwrap_or_default()
        );
        problem(claim, Reason::LimitReached, message).fix(
            "Delete a Service that has one, let Services share one (seaway.dev/share), or have pools.perNamespace raised \
             in the configuration.",
        )
    }

    fn no_pool(&self, claim: &Claim) -> Problem {
        let pools: Vec<String> = self.pools.ordered().map(|pool| pool.object.name.to_string()).collect();
        if self.rules.cluster && pools.is_empty() {
            return no_pool_at_all(claim, self.machine_ports);
        }
        let named = claim.pool.as_ref().map(|name| (name, pools.iter().any(|pool| **pool == **name)));
        let message = match named {
            Some((name, false)) if pools.is_empty() => format!("there is no pool {name}, nor any other"),
            Some((name, false)) => format!("there is no pool {name}; there are {}", pools.join(", ")),
            Some((name, true)) => format!("pool {name} is for other namespaces or Services"),
            None => format!("every pool is for other namespaces or Services ({})", pools.join(", ")),
        };
        problem(claim, Reason::NoPool, message).fix(
            "Add an AddressPool, or change namespaces, namespaceSelectors and serviceSelectors of one so that they match this Service.",
        )
    }

    fn refuse_requested(&self, claim: &Claim, ip: IpAddr, candidates: &[&AddressPool], into: &mut Decision) {
        let field = claim.requested_field.clone();
        let own = self.hosts.whose(ip).filter(|_| !self.holdings.contains(ip));
        let of_hosts: Vec<&&AddressPool> = candidates.iter().filter(|pool| pool.hosts).collect();
        if let Some(host) = own.filter(|_| !of_hosts.is_empty()) {
            if of_hosts.iter().all(|pool| self.published_by(claim, pool).all(|it| it != ip))
                && self.rules.cluster
            {
                let message = format!("{ip} is an address of host {host} that no pool publishes");
                let fix = match self.hosts.is_undeclared(host) {
                    true => format!(
                        "If {host} really has this address, confirm it: {}",
                        hosts::declare(host, &[ip])
                    ),
                    false => "Ask for an address that is in the Node's status, or for none.".to_owned(),
                };
                into.problems.push(problem(claim, Reason::AddressOutsidePools, message).at(field).fix(fix));
            }
            return;
        }
        if !candidates.iter().any(|pool| gives(pool, ip)) {
            let elsewhere = self.pools.ordered().find(|pool| gives(pool, ip));
            let message = match elsewhere {
                Some(pool) if claim.pool.as_ref().is_some_and(|name| *name != pool.object.name) => {
                    format!("{ip} belongs to pool {}, but another pool is requested", pool.object.name)
                }
                Some(pool) => {
                    format!(
                        "{ip} belongs to pool {}, which is for other namespaces or Services",
                        pool.object.name
                    )
                }
                None => format!("no pool has {ip}"),
            };
            let choice: Vec<String> = candidates.iter().map(|pool| describe(pool)).collect();
            into.problems.push(
                problem(claim, Reason::AddressOutsidePools, message)
                    .at(field)
                    .fix(format!("Ask for an address of {}.", choice.join("; "))),
            );
            return;
        }
        let taken = |message: String, fix: &str| {
            problem(claim, Reason::AddressTaken, message).at(claim.requested_field.clone()).fix(fix)
        };
        if let Some(host) = own {
            let message = format!("{ip} is an address of host {host} itself");
            into.problems.push(taken(message, "Ask for another address, or remove this one from the pool."));
            return;
        }
        let Err(bar) = self.holdings.may_join(ip, claim) else { return };
        into.waits = WaitingFor::Holder;
        let named = |holder: &Owner| holder.named_for(&claim.owner, self.rules.cluster);
        let told = match bar {
            DenialReason::Held(holder) => taken(
                format!("{ip} is held by {}", named(&holder)),
                "Ask for another address, or for none; or give both Services the same seaway.dev/share, if their ports differ.",
            ),
            DenialReason::Foreign(holder) => taken(
                match self.rules.cluster {
                    true => format!("{ip} is held by {}", named(&holder)),
                    false => format!("{ip} is held by {holder}, which is of another namespace"),
                },
                "To share an address, both Services must name the other's namespace: seaway.dev/share-across-namespaces.",
            ),
            DenialReason::Local(holder) => taken(
                format!(
                    "{ip} is held by {}, and one of the two has externalTrafficPolicy: Local and another selector",
                    named(&holder)
                ),
                "To share an address, both Services must have externalTrafficPolicy: Cluster or the same selector.",
            ),
            DenialReason::Releasing => taken(
                format!("{ip} is being released and will be free when every host has removed it"),
                "No action needed: wait.",
            ),
            DenialReason::Port(listener, holder) => {
                let message = format!("port {listener} on {ip} is taken by {}", named(&holder));
                problem(claim, Reason::PortConflict, message)
                    .at(field)
                    .fix("Choose another port, or another address.")
            }
        };
        into.problems.push(told);
    }

    /// No pool has a family, or all that have it are full.
    fn refuse_families(
        &self,
        claim: &Claim,
        wish: &FamilyPreferences,
        kept: &AddressesByFamily,
        usable: &[&AddressPool],
        into: &mut Decision,
    ) {
        let mut asked: Vec<Family> = wish.0.concat();
        asked.sort();
        asked.dedup();
        asked.retain(|family| !kept.contains_key(family));
        let require = claim.families.policy == FamilyPolicy::Require;
        let (served, unserved): (Vec<Family>, Vec<Family>) =
            asked.iter().partition(|family| usable.iter().any(|pool| self.has(claim, pool, **family)));
        if !unserved.is_empty() && (require || served.is_empty()) {
            let families: Vec<&str> = unserved.iter().map(|family| word(*family)).collect();
            let left_out = self.why_no_host(usable);
            let (why, more) = left_out.unwrap_or_default();
            let of_hosts = usable.iter().all(|pool| pool.hosts);
            let lacks = if of_hosts { "published by" } else { "configured in" };
            let message =
                format!("no {} addresses are {lacks} {}{why}", families.join(" or "), names(usable));
            let fix = if of_hosts {
                "Such a pool publishes the serving hosts' own addresses: give the hosts such an address, \
                 or add an AddressPool with addresses."
            } else {
                "Add a range of that family to a pool, or ask for the other family in spec.ipFamilies."
            };
            let fix = format!("{more} {fix}");
            into.problems.push(problem(claim, Reason::NoPool, message).fix(fix.trim_start()));
        }
        let full: Vec<Family> =
            served.into_iter().filter(|family| !self.any_left(claim, usable, *family)).collect();
        into.waits = into.waits.or(WaitingFor::for_any(claim));
        if full.is_empty() {
            if into.problems.is_empty() {
                let message = format!(
                    "none of {} has both IPv4 and IPv6, and hosts' addresses cannot be combined with those of \
                     pools",
                    names(usable)
                );
                into.problems.push(problem(claim, Reason::NoPool, message).fix(
                    "Add the missing family to a pool or to the hosts, or ask for one family in spec.ipFamilies.",
                ));
            }
            return;
        }
        let count = |pool: &&AddressPool, family: &Family| {
            let size = size(pool, *family);
            let (name, family_word) = (&pool.object.name, word(*family));
            (size > 0)
                .then(|| format!("all {size} {family_word} addresses of pool {name} are allocated"))
                .map(|told| told + &self.told_of_hosts_in(pool, *family))
        };
        let told: Vec<String> = full
            .iter()
            .flat_map(|family| usable.iter().filter_map(move |pool| count(pool, family)))
            .collect();
        into.problems.push(
            problem(claim, Reason::PoolExhausted, format!("no address is free: {}", told.join(", ")))
                .fix("Widen spec.addresses of a pool, add an AddressPool, or delete Services that are not used any more."),
        );
    }

    /// Addresses of a pool that it does not give, since hosts report them as their own: rightly, or as nobody sees to it.
    fn told_of_hosts_in(&self, pool: &AddressPool, family: Family) -> String {
        let is_in =
            |ip: &IpAddr| Family::of(*ip) == family && gives(pool, *ip) && !self.holdings.contains(*ip);
        let mut counts: BTreeMap<&Name, usize> = BTreeMap::new();
        for (_, host) in self.hosts.reported().filter(|(ip, _)| is_in(ip)) {
            let count = counts.entry(host).or_default();
            *count = count.saturating_add(1);
        }
        let told: Vec<String> =
            counts.iter().map(|(host, count)| format!("host {host} reports {count}")).collect();
        if told.is_empty() {
            String::new()
        } else {
            format!(", less those that are hosts' own ({})", told.join(", "))
        }
    }

    fn has(&self, claim: &Claim, pool: &AddressPool, family: Family) -> bool {
        if pool.hosts {
            return self.published_by(claim, pool).any(|ip| Family::of(ip) == family);
        }
        ranges(pool).any(|range| range.family() == family)
    }

    fn any_left(&self, claim: &Claim, usable: &[&AddressPool], family: Family) -> bool {
        usable.iter().any(|pool| {
            if pool.hosts { self.has(claim, pool, family) } else { self.one(claim, pool, family).is_some() }
        })
    }
}

/// Of a cluster, where nothing is given that nobody wrote down.
fn no_pool_at_all(claim: &Claim, machine: &ReservedPorts) -> Problem {
    let asked = claim.pool.as_ref().map(|name| format!(" {name}, nor any other")).unwrap_or_default();
    let message =
        format!("there is no AddressPool{asked}, or none can be seen: nothing gives this Service an address");
    let name = claim.pool.as_ref().map_or("public", |name| name.as_str());
    problem(claim, Reason::NoPool, message).fix(format!(
        "Apply one, with addresses that are routed to Seaway's hosts: {{apiVersion: seaway.dev/v1alpha1, kind: AddressPool, \
         metadata: {{name: {name}}}, spec: {{addresses: [192.0.2.0/28]}}}}. To publish the hosts' own addresses instead: {}",
        hosts::written(HOSTS, claim, machine)
    ))
}

fn on_request_only(claim: &Claim, candidates: &[&AddressPool]) -> Problem {
    let message = format!("{} gives addresses on request only (autoAssign: false)", names(candidates));
    problem(claim, Reason::NoPool, message).fix("Ask for the pool or for one of its addresses by annotation.")
}

pub(super) fn problem(claim: &Claim, reason: Reason, message: String) -> Problem {
    Problem::new(claim.owner.object(), reason, message)
}

fn names(pools: &[&AddressPool]) -> String {
    let names: Vec<&str> = pools.iter().map(|pool| pool.object.name.as_str()).collect();
    format!("pool{} {}", if names.len() == 1 { "" } else { "s" }, names.join(", "))
}

fn describe(pool: &AddressPool) -> String {
    if pool.hosts {
        return format!("pool {} (the hosts' own)", pool.object.name);
    }
    let ranges: Vec<String> = ranges(pool).map(|range: IpRange| range.to_string()).collect();
    format!("pool {} ({})", pool.object.name, ranges.join(", "))
}

fn word(family: Family) -> &'static str {
    match family {
        Family::V4 => "IPv4",
        Family::V6 => "IPv6",
    }
}
