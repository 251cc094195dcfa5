//! What of the objects cannot be followed.

use std::collections::BTreeSet;

use seaway_model::{
    Kind, Name, ObjectRef, Problem, ProblemDetail, Reason,
    fact::{
        AddressPool, AdvertisementScope, AnnouncementObject, BgpAdvertisement, BgpPeer, Labels,
        unsupported_announcement_problem,
    },
};

use super::{
    AnnouncingObjects, Protocol, UnknownCommunity, asks_by_itself, is_about, is_barred, names_pool,
    routes::{aggregate, is_within},
};

impl AnnouncingObjects {
    /// `hosts`: the labels of each that is known.
    pub(crate) fn problems(
        &self,
        pools: &[&AddressPool],
        hosts: &[Labels],
        is_cluster: bool,
    ) -> Vec<Problem> {
        let ours: Vec<&AddressPool> =
            pools.iter().copied().filter(|it| it.object.kind == Kind::AddressPool).collect();
        let mut all = Vec::new();
        for (object, it) in self.layer2() {
            all.extend(scope_problems(object, &it.scope, &ours));
        }
        for (object, it) in self.bgp() {
            all.extend(scope_problems(object, &it.scope, &ours));
            all.extend(self.unknown_peers(object, it));
            all.extend(self.unknown_community(object, it));
            all.extend(outside_of_pools(object, it, &ours));
            all.extend(self.contradictions(object, it, &ours));
        }
        let displaced = self.displaced(hosts);
        for (it, peer) in self.peers() {
            all.extend(self.peer_problems(it, peer, displaced.get(&it.object), is_cluster));
        }
        all.extend(self.unread_problems(Protocol::Bgp));
        all.extend(self.unread_problems(Protocol::Layer2));
        all.extend(self.pools_without_peers(&ours));
        let of_metallb = self.objects.keys().filter(|it| it.kind.is_of_metallb());
        all.extend(of_metallb.cloned().map(unsupported_announcement_problem));
        all
    }

    fn unknown_peers(&self, object: &ObjectRef, it: &BgpAdvertisement) -> Vec<Problem> {
        let known: BTreeSet<&Name> = self.peers().map(|(it, _)| &it.object.name).collect();
        let unknown = it.peers.iter().enumerate().filter(|(_, name)| !known.contains(name));
        unknown
            .map(|(at, name)| {
                Problem::new(object.clone(), Reason::NotFound, format!("BGPPeer {name} does not exist"))
                    .at(format!("spec.peers[{at}]"))
                    .fix("Create the BGPPeer, or correct the name.")
            })
            .collect()
    }

    fn unknown_community(&self, object: &ObjectRef, it: &BgpAdvertisement) -> Option<Problem> {
        let UnknownCommunity(name) = self.communities(&it.communities).err()?;
        let message = format!(
            "no Community has the name {name:?}, or two have it with two values; it announces nothing"
        );
        let problem = Problem::new(object.clone(), Reason::NotFound, message).at("spec.communities");
        Some(problem.fix("Create a Community that has the name once, or write the value (e.g. 64512:100)."))
    }

    /// Two for one pool and one peer that say two things. With selectors, they may be about different Services or hosts.
    fn contradictions(
        &self,
        object: &ObjectRef,
        it: &BgpAdvertisement,
        pools: &[&AddressPool],
    ) -> Vec<Problem> {
        let is_whole = |it: &BgpAdvertisement| {
            it.scope.service_selectors.is_empty() && it.scope.host_selectors.is_empty() && !it.scope.unclear
        };
        let share_peer = |other: &BgpAdvertisement| {
            it.peers.is_empty()
                || other.peers.is_empty()
                || it.peers.iter().any(|name| other.peers.contains(name))
        };
        let shared = |other: &BgpAdvertisement| {
            pools.iter().find(|pool| {
                let by_itself = asks_by_itself(pool, Protocol::Bgp);
                is_about(&it.scope, pool, by_itself) && is_about(&other.scope, pool, by_itself)
            })
        };
        let mut problems = Vec::new();
        // The later of both, by name, says so.
        for (earlier, other) in self.bgp().filter(|(earlier, _)| *earlier < object) {
            if !is_whole(it) || !is_whole(other) || !share_peer(other) {
                continue;
            }
            let lengths = |it: &BgpAdvertisement| (it.aggregation_v4, it.aggregation_v6);
            if lengths(it) != lengths(other) {
                continue;
            }
            let Some(pool) = shared(other) else { continue };
            for (field, a, b, taken) in [
                ("localPref", it.local_pref, other.local_pref, "lower"),
                ("med", it.med, other.med, "higher"),
            ] {
                let (Some(a), Some(b)) = (a, b) else { continue };
                if a == b {
                    continue;
                }
                let message = format!(
                    "{a} differs from {earlier} ({b}), for routes of the same AddressPool {} to the same peers; the {taken} is used",
                    pool.object.name
                );
                let problem = Problem::new(object.clone(), Reason::Invalid, message);
                problems.push(
                    problem
                        .at(format!("spec.{field}"))
                        .fix("Write the same into both, or name different pools or peers."),
                );
            }
        }
        problems
    }

    fn peer_problems(
        &self,
        it: &AnnouncementObject,
        peer: &BgpPeer,
        displaced_by: Option<&ObjectRef>,
        is_cluster: bool,
    ) -> Vec<Problem> {
        let mut all = Vec::new();
        let object = || it.object.clone();
        if let Some(name) = peer.bfd.as_ref().filter(|name| self.profile(name).is_none()) {
            let message = format!("BFDProfile {name} does not exist; the session continues without BFD");
            let problem = Problem::new(object(), Reason::NotFound, message).at("spec.bfdProfile");
            all.push(problem.fix("Create the BFDProfile, or correct the name."));
        }
        if let Some(other) = displaced_by {
            let message = format!(
                "{other} is for the same peer address, on a host that both select; the older of the two has \
                 the session"
            );
            let problem = Problem::new(object(), Reason::Duplicate, message).at("spec");
            all.push(
                problem.fix(
                    "Remove one of the two, or change hostSelectors so that they select no common host.",
                ),
            );
        }
        if let Some(secret) = peer.password.as_ref().filter(|_| !is_cluster) {
            let password = self.password(secret, false);
            let what = match () {
                () if password.value.is_none() => Some("; Seaway starts no session"),
                () if self.lost.contains(&password.secret) => {
                    Some("; sessions use the last password until a restart")
                }
                () => None,
            };
            if let Some(what) = what {
                let message = format!("{} does not exist, or has no key password{what}", password.secret);
                let problem = Problem::new(object(), Reason::NoSuchSecret, message)
                    .about(ProblemDetail::Missing(password.secret.clone()))
                    .at("spec.passwordSecret");
                all.push(
                    problem
                        .fix("Write a Secret of that name with stringData: {password: …} into the folder."),
                );
            }
        }
        all
    }

    fn unread_problems(&self, protocol: Protocol) -> Vec<Problem> {
        if !self.has_unread(protocol) {
            return Vec::new();
        }
        let (kind, way) = match protocol {
            Protocol::Layer2 => (Kind::L2Advertisement, "by ARP or NDP"),
            Protocol::Bgp => (Kind::BGPAdvertisement, "by BGP"),
        };
        let unread = self.faulty.iter().filter(|it| it.kind == kind && !self.objects.contains_key(*it));
        unread
            .map(|it| {
                let message = format!(
                    "this {kind} cannot be read, and it may be meant to limit an AddressPool: pools that no \
                     other {kind} selects are not announced {way}"
                );
                Problem::new(it.clone(), Reason::Invalid, message).fix("Correct it, or delete it.")
            })
            .collect()
    }

    fn pools_without_peers(&self, pools: &[&AddressPool]) -> Vec<Problem> {
        if self.peers().next().is_some() {
            return Vec::new();
        }
        let asking = pools.iter().filter(|it| it.announce == Some(seaway_model::AnnounceMode::Bgp));
        asking
            .map(|it| {
                let message = "the addresses of this pool are to be announced by BGP, but no BGPPeer exists";
                Problem::new(it.object.clone(), Reason::NotFound, message)
                    .at("spec.announce")
                    .fix("Create a BGPPeer: docs/bgp.md has an example.")
            })
            .collect()
    }
}

fn scope_problems(object: &ObjectRef, scope: &AdvertisementScope, pools: &[&AddressPool]) -> Vec<Problem> {
    let mut all = Vec::new();
    if scope.unclear {
        let message = "a part of this object is invalid, so the object announces nothing";
        let problem = Problem::new(object.clone(), Reason::Invalid, message).at("spec");
        all.push(problem.fix("Correct the fields that the other Problems of the object name."));
    }
    for (at, name) in scope.pools.iter().enumerate() {
        let field = format!("spec.addressPools[{at}]");
        let Some(pool) = pools.iter().find(|it| it.object.name == *name) else {
            let problem =
                Problem::new(object.clone(), Reason::NotFound, format!("AddressPool {name} does not exist"));
            all.push(problem.at(field).fix("Create the AddressPool, or correct the name."));
            continue;
        };
        if !is_barred(pool) {
            continue;
        }
        let (message, fix) = match pool.announce {
            Some(announce) => (
                format!(
                    "AddressPool {name} says announce: {}; the advertisement is not for it",
                    announce.as_str()
                ),
                "Change spec.announce of the pool, or take its name out of the advertisement.",
            ),
            None => (
                format!("AddressPool {name} has the hosts' own addresses, for which hosts answer anyway"),
                "Take its name out of the advertisement.",
            ),
        };
        all.push(Problem::new(object.clone(), Reason::Unsupported, message).at(field).fix(fix));
    }
    if !scope.pool_selectors.is_empty()
        && scope.pools.is_empty()
        && !pools.iter().any(|it| names_pool(scope, it))
    {
        let problem =
            Problem::new(object.clone(), Reason::NotFound, "this object selects no AddressPool by labels");
        all.push(
            problem.at("spec.addressPoolSelectors").fix("Give a pool such labels, or correct the selectors."),
        );
    }
    all
}

/// An aggregate that is larger than the pool would claim addresses of others.
fn outside_of_pools(object: &ObjectRef, it: &BgpAdvertisement, pools: &[&AddressPool]) -> Vec<Problem> {
    let about = pools.iter().filter(|pool| is_about(&it.scope, pool, asks_by_itself(pool, Protocol::Bgp)));
    let mut all = Vec::new();
    for pool in about {
        for range in &pool.ranges {
            let (length, field) = match range.first().is_ipv4() {
                true => (it.aggregation_v4, "spec.aggregationLength"),
                false => (it.aggregation_v6, "spec.aggregationLengthV6"),
            };
            let Some(length) = length else { continue };
            let ends = [range.first(), range.last()].into_iter().filter_map(|ip| aggregate(ip, length));
            let Some(outside) = ends.into_iter().find(|it| !is_within(it, pool)) else { continue };
            let message = format!(
                "{outside} contains addresses outside of AddressPool {} ({range}); no address of the pool in it is announced",
                pool.object.name
            );
            let problem = Problem::new(object.clone(), Reason::Invalid, message).at(field);
            all.push(problem.fix("Choose a greater length, or give the pool whole networks of this length."));
        }
    }
    all
}
