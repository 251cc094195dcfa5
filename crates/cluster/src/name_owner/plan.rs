//! What NameOwners are to say: computed from what namespaces claim, what is recorded, and since when a name is not claimed.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use seaway_model::{Name, fact::NameOwner, load_balancer::HostPattern};
use tokio::time::Instant;

use crate::moment::later_than;

/// Of one namespace. What is beyond is not recorded, and belongs to the oldest object that claims it.
const NAMES: usize = 20_000;
/// Of the object; an API server takes less than 1.5 MiB.
const BYTES: usize = 512 * 1_024;
/// As the definition says.
const LONGEST_PATH: usize = 1_024;

/// What namespaces claim, and what of it is recorded, as of now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FirstClaims {
    /// That nobody else has.
    pub claimed: BTreeMap<Name, NameOwner>,
    pub recorded: BTreeMap<Name, Arc<NameOwner>>,
    /// What is not claimed here is claimed by nothing: no list is missing.
    pub complete: bool,
}

/// Since when what is recorded is not claimed.
#[derive(Default)]
pub(super) struct UnclaimedRecords(BTreeMap<(Name, ClaimKey), Instant>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ClaimKey {
    Host(HostPattern),
    Path(Name),
}

impl ClaimKey {
    /// With quotes and a comma.
    fn bytes(&self) -> usize {
        let length = match self {
            ClaimKey::Host(HostPattern::Exact(name)) => name.len(),
            ClaimKey::Host(HostPattern::Under(name)) => name.len().saturating_add(2),
            ClaimKey::Path(path) => path.len(),
        };
        length.saturating_add(3)
    }

    fn may_be_recorded(&self) -> bool {
        !matches!(self, ClaimKey::Path(path) if path.len() > LONGEST_PATH)
    }
}

/// What one namespace is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DesiredNameOwner {
    pub(super) owner: NameOwner,
    /// So many more names than fit.
    pub(super) beyond: usize,
}

impl UnclaimedRecords {
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }

    /// Which of all that are not claimed any more end next, and when.
    pub(super) fn next_expiry(&self, keep: Duration) -> Option<Instant> {
        self.0.values().map(|since| later_than(*since, keep)).min()
    }

    /// What is to be recorded of each namespace that claims something, or of which something is recorded.
    pub(super) fn desired_records(
        &mut self,
        says: &FirstClaims,
        keep: Duration,
        now: Instant,
    ) -> BTreeMap<Name, DesiredNameOwner> {
        let namespaces: BTreeSet<&Name> = says.claimed.keys().chain(says.recorded.keys()).collect();
        let mut seen = BTreeSet::new();
        let mut all = BTreeMap::new();
        for namespace in namespaces {
            let claimed = says.claimed.get(namespace).map(all_of).unwrap_or_default();
            let recorded = says.recorded.get(namespace).map(|it| all_of(it)).unwrap_or_default();
            let unclaimed = recorded.difference(&claimed).cloned();
            // As long as something may only not be seen, nothing ends.
            let kept: BTreeSet<ClaimKey> = unclaimed
                .filter(|what| {
                    if !says.complete {
                        return true;
                    }
                    let key = (namespace.clone(), what.clone());
                    let since = *self.0.entry(key.clone()).or_insert(now);
                    seen.insert(key);
                    later_than(since, keep) > now
                })
                .collect();
            all.insert(namespace.clone(), within_bounds(namespace, &claimed, &recorded, kept));
        }
        self.0.retain(|key, _| seen.contains(key));
        all
    }
}

fn all_of(owner: &NameOwner) -> BTreeSet<ClaimKey> {
    let hosts = owner.hosts.iter().cloned().map(ClaimKey::Host);
    hosts.chain(owner.paths.iter().cloned().map(ClaimKey::Path)).collect()
}

/// What is recorded already comes first: a name is not lost to one that comes later.
fn within_bounds(
    namespace: &Name,
    claimed: &BTreeSet<ClaimKey>,
    recorded: &BTreeSet<ClaimKey>,
    kept: BTreeSet<ClaimKey>,
) -> DesiredNameOwner {
    let mut owner = NameOwner { namespace: namespace.clone(), ..NameOwner::default() };
    let (mut names, mut bytes, mut beyond) = (0_usize, 0_usize, 0_usize);
    let old = claimed.intersection(recorded).cloned();
    let new = claimed.difference(recorded).cloned();
    for what in old.chain(kept).chain(new) {
        let with = bytes.saturating_add(what.bytes());
        if names >= NAMES || with > BYTES || !what.may_be_recorded() {
            beyond = beyond.saturating_add(1);
            continue;
        }
        (names, bytes) = (names.saturating_add(1), with);
        match what {
            ClaimKey::Host(host) => owner.hosts.insert(host),
            ClaimKey::Path(path) => owner.paths.insert(path),
        };
    }
    DesiredNameOwner { owner, beyond }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::name_owner::tests::owner;

    const KEEP: Duration = Duration::from_secs(600);

    fn says(claimed: &[&NameOwner], recorded: &[&NameOwner]) -> FirstClaims {
        let claimed = claimed.iter().map(|it| (it.namespace.clone(), (*it).clone()));
        let recorded = recorded.iter().map(|it| (it.namespace.clone(), Arc::new((*it).clone())));
        FirstClaims { claimed: claimed.collect(), recorded: recorded.collect(), complete: true }
    }

    #[test]
    fn a_name_stays_recorded_until_it_has_not_been_claimed_for_a_while() {
        let (mut unclaimed, begin) = (UnclaimedRecords::default(), Instant::now());
        let both = owner("shop", &["a.example", "b.example"], &["/shop"]);
        let one = owner("shop", &["a.example"], &[]);
        let at = |seconds| later_than(begin, Duration::from_secs(seconds));
        let mut wanted =
            |says: &FirstClaims, now| unclaimed.desired_records(says, KEEP, now)["shop"].owner.clone();
        assert_eq!(wanted(&says(&[&both], &[]), at(0)), both, "what is claimed is recorded at once");
        let less = says(&[&one], &[&both]);
        assert_eq!(wanted(&less, at(10)), both);
        assert_eq!(wanted(&less, at(609)), both);
        // Claimed again, it begins anew.
        assert_eq!(wanted(&says(&[&both], &[&both]), at(609)), both);
        assert_eq!(wanted(&less, at(700)), both);
        // A list that is missing ends nothing.
        let unsure = FirstClaims { complete: false, ..less.clone() };
        assert_eq!(wanted(&unsure, at(2_000)), both);
        assert_eq!(wanted(&less, at(2_001)), both);
        assert_eq!(wanted(&less, at(2_601)), one);
        assert_eq!(wanted(&says(&[], &[&one]), at(2_602)), one);
        assert!(wanted(&says(&[], &[&one]), at(3_202)).is_empty());
    }

    #[test]
    fn a_namespace_records_so_many_names_and_keeps_those_that_it_has() {
        let many = |from: usize, to: usize| NameOwner {
            namespace: "evil".into(),
            hosts: (from..to).map(|it| HostPattern::Exact(format!("{it:06}.a").into())).collect(),
            ..NameOwner::default()
        };
        let (old, all) = (many(29_000, 29_010), many(0, 29_010));
        let shop = owner("shop", &["shop.example"], &[]);
        let wanted =
            UnclaimedRecords::default().desired_records(&says(&[&all, &shop], &[&old]), KEEP, Instant::now());
        assert_eq!((wanted["evil"].owner.hosts.len(), wanted["evil"].beyond), (NAMES, 9_010));
        assert!(old.hosts.is_subset(&wanted["evil"].owner.hosts));
        assert_eq!(
            wanted["shop"],
            DesiredNameOwner { owner: shop, beyond: 0 },
            "others have room of their own"
        );

        let long = |it: usize| Name::from(format!("/{it}{}", "x".repeat(1_000)));
        let paths = NameOwner {
            namespace: "evil".into(),
            paths: (0..1_000).map(long).collect(),
            ..NameOwner::default()
        };
        let wanted = UnclaimedRecords::default().desired_records(&says(&[&paths], &[]), KEEP, Instant::now());
        let size = super::super::write(&wanted["evil"].owner, None).to_string().len();
        assert!(size < 600 * 1_024 && wanted["evil"].beyond > 400, "{size} {}", wanted["evil"].beyond);
        let longer = owner("evil", &[], &[&format!("/{}", "x".repeat(1_024))]);
        let wanted =
            UnclaimedRecords::default().desired_records(&says(&[&longer], &[]), KEEP, Instant::now());
        assert_eq!((wanted["evil"].owner.is_empty(), wanted["evil"].beyond), (true, 1));
    }
}
