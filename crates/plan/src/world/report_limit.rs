//! How much a host reports: an object that is larger than what etcd takes is refused, and then its last report would count
//! for ever.
//!
//! A host that has many exceptions names those with the lowest versions, and says that it has applied only what was written
//! before the first that it does not name. Whoever reads that, of whatever version of Seaway, believes of all that is newer
//! what it believes while a host is on its way there: it is not served, and may still be held.

use std::net::IpAddr;

use seaway_model::fact::HostStatus;

/// The report with no more than `most` in either list. `version` is 0 for what has no Address: of that, nothing else than
/// the list itself says that it is there, so it stays in it.
pub(super) fn limited(mut said: HostStatus, most: usize, version: impl Fn(IpAddr) -> u64) -> HostStatus {
    let all = said.not_served.len().saturating_add(said.held.len());
    let not_served = first_unlisted(said.not_served.iter().map(|it| version(it.address)), most);
    let held = first_unlisted(said.held.iter().map(|ip| version(*ip)), most);
    if let Some(first) = not_served {
        said.not_served.retain(|it| version(it.address) < first);
    }
    if let Some(first) = held {
        said.held.retain(|ip| version(*ip) < first);
    }
    if let Some(first) = not_served.into_iter().chain(held).min() {
        said.applied = said.applied.min(first.saturating_sub(1));
    }
    said.unlisted = all.saturating_sub(said.not_served.len()).saturating_sub(said.held.len());
    said
}

/// The lowest version that is too much.
fn first_unlisted(versions: impl Iterator<Item = u64>, most: usize) -> Option<u64> {
    let mut versions: Vec<u64> = versions.collect();
    if versions.len() <= most {
        return None;
    }
    versions.sort_unstable();
    versions.get(most..)?.iter().copied().find(|it| *it > 0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use seaway_model::{Reason, fact::UnservedAddress};

    use super::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Here {
        Served,
        NotServed,
        Gone,
        StillHeld,
    }

    fn ip(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    fn any_state() -> impl Strategy<Value = Here> {
        prop_oneof![Just(Here::Served), Just(Here::NotServed), Just(Here::Gone), Just(Here::StillHeld)]
    }

    proptest! {
        /// What of all addresses, in any order of versions, is served or held here, is the same or less to who reads the
        /// report.
        #[test]
        fn nothing_is_believed_to_be_served_or_gone_because_it_was_not_listed(
            states in prop::collection::vec(any_state(), 0..40),
            order in Just((2..42).collect::<Vec<u64>>()).prop_shuffle(),
            applied in 1_u64..45,
            most in 0_usize..10,
        ) {
            let versions: BTreeMap<IpAddr, u64> = (0..).map(ip).zip(order).collect();
            let version = |ip: IpAddr| versions[&ip];
            let such = |here: Here| (0..).map(ip).zip(&states).filter(move |(ip, it)| **it == here && version(*ip) <= applied);
            let not_served = |(address, _)| UnservedAddress { address, reason: Reason::PortInUse, message: "".into() };
            let all = HostStatus {
                applied,
                held: such(Here::StillHeld).map(|it| it.0).collect(),
                not_served: such(Here::NotServed).map(not_served).collect(),
                ..HostStatus::default()
            };
            let said = limited(all.clone(), most, version);
            prop_assert!(said.held.len() <= most && said.not_served.len() <= most);
            let listed = said.held.len() + said.not_served.len();
            prop_assert_eq!(listed + said.unlisted, all.held.len() + all.not_served.len());
            prop_assert_eq!(said.unlisted == 0, said == all);
            for (at, here) in (0..).map(ip).zip(&states) {
                let told = version(at) <= said.applied;
                let is_listed = said.not_served.iter().any(|it| it.address == at);
                let believed_served = told && !is_listed;
                prop_assert!(*here != Here::NotServed || !believed_served, "{at} is not served");
                let believed_gone = told && !said.held.contains(&at);
                prop_assert!(*here != Here::StillHeld || !believed_gone, "{at} is still held");
            }
        }
    }

    #[test]
    fn of_sixty_thousand_those_written_first_are_listed_in_their_order() {
        let ip = |at: u32| IpAddr::from((0x0a00_0000 + at).to_be_bytes());
        // The last one was written first.
        let version = |ip: IpAddr| match ip {
            IpAddr::V4(ip) => 0x0b00_0000 - u64::from(ip.to_bits()),
            IpAddr::V6(_) => 0,
        };
        let (message, most) = (seaway_model::Name::default(), HostStatus::MAX_LISTED);
        let not_served =
            |at| UnservedAddress { address: ip(at), reason: Reason::PortInUse, message: message.clone() };
        let all = HostStatus {
            applied: 0x0c00_0000,
            not_served: (0..60_000).map(not_served).collect(),
            ..HostStatus::default()
        };
        let said = limited(all, most, version);
        assert_eq!((said.not_served.len(), said.unlisted), (most, 60_000 - most));
        let listed = said.not_served.iter().map(|it| it.address);
        assert!(listed.eq((60_000 - most as u32..60_000).map(ip)));
        assert_eq!(
            said.applied + 1,
            version(ip(60_000 - most as u32 - 1)),
            "just before the first that is not"
        );
    }

    #[test]
    fn what_has_no_address_any_more_is_always_listed() {
        let held: Vec<IpAddr> = (0..6).map(ip).collect();
        // Of 0 to 2 there is none.
        let version = |at: IpAddr| if at < ip(3) { 0 } else { 100 };
        let said = limited(HostStatus { applied: 200, held, ..HostStatus::default() }, 2, version);
        assert_eq!((said.held, said.applied, said.unlisted), ((0..3).map(ip).collect(), 99, 3));
    }
}
