//! Used addresses as ranges without a gap. The next free address is found without walking over the used ones.

use std::{collections::BTreeMap, net::IpAddr};

/// First ► last of each run; runs never touch.
#[derive(Debug, Default)]
pub(super) struct AddressRanges(BTreeMap<IpAddr, IpAddr>);

impl AddressRanges {
    pub(super) fn insert(&mut self, ip: IpAddr) {
        if self.around(ip).is_some() {
            return;
        }
        let (mut first, mut last) = (ip, ip);
        if let Some((before, _)) = pred(ip).and_then(|neighbour| self.around(neighbour)) {
            first = before;
        }
        if let Some(end) = succ(ip).and_then(|neighbour| self.0.remove(&neighbour)) {
            last = end;
        }
        self.0.insert(first, last);
    }

    pub(super) fn remove(&mut self, ip: IpAddr) {
        let Some((first, last)) = self.around(ip) else { return };
        self.0.remove(&first);
        if first < ip
            && let Some(end) = pred(ip)
        {
            self.0.insert(first, end);
        }
        if ip < last
            && let Some(start) = succ(ip)
        {
            self.0.insert(start, last);
        }
    }

    /// The lowest free address from `from` up to `to`.
    pub(super) fn first_free(&self, from: IpAddr, to: IpAddr) -> Option<IpAddr> {
        let free = match self.around(from) {
            Some((_, last)) => succ(last)?,
            None => from,
        };
        (free <= to).then_some(free)
    }

    /// How many taken addresses there are from `from` up to `to`.
    pub(super) fn count(&self, from: IpAddr, to: IpAddr) -> u128 {
        let first = self.around(from).map_or(from, |(first, _)| first);
        let runs = self.0.range(first..=to.max(first));
        let count = runs.map(|(first, last)| {
            let (first, last) = (number((*first).max(from)), number((*last).min(to)));
            last.checked_sub(first).map_or(0, |more| more.saturating_add(1))
        });
        count.fold(0, u128::saturating_add)
    }

    fn around(&self, ip: IpAddr) -> Option<(IpAddr, IpAddr)> {
        let (first, last) = self.0.range(..=ip).next_back()?;
        (ip <= *last).then_some((*first, *last))
    }
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => ip.to_bits().into(),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}

/// The address after it, in its family.
pub(super) fn succ(ip: IpAddr) -> Option<IpAddr> {
    match ip {
        IpAddr::V4(ip) => ip.to_bits().checked_add(1).map(|bits| IpAddr::V4(bits.into())),
        IpAddr::V6(ip) => ip.to_bits().checked_add(1).map(|bits| IpAddr::V6(bits.into())),
    }
}

fn pred(ip: IpAddr) -> Option<IpAddr> {
    match ip {
        IpAddr::V4(ip) => ip.to_bits().checked_sub(1).map(|bits| IpAddr::V4(bits.into())),
        IpAddr::V6(ip) => ip.to_bits().checked_sub(1).map(|bits| IpAddr::V6(bits.into())),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn runs_agree_with_a_plain_set(moves in prop::collection::vec((any::<bool>(), 0u8..24), 0..80), v6: bool) {
            let at = |i: u8| -> IpAddr {
                // The very ends of both families are where a neighbour does not exist.
                if v6 { (u128::MAX - u128::from(i)).to_be_bytes().into() } else { (u32::MAX - u32::from(i)).to_be_bytes().into() }
            };
            let (mut runs, mut set) = (AddressRanges::default(), BTreeSet::new());
            for (insert, i) in moves {
                if insert { runs.insert(at(i)); set.insert(at(i)); } else { runs.remove(at(i)); set.remove(&at(i)); }
                for from in 0..26 {
                    let expected = (0..=from).rev().map(at).find(|ip| !set.contains(ip));
                    prop_assert_eq!(runs.first_free(at(from), at(0)), expected);
                    let within = (0..=from).map(at).filter(|ip| set.contains(ip)).count();
                    prop_assert_eq!(runs.count(at(from), at(0)), within as u128);
                    let lowest = (from..24).map(at).filter(|ip| set.contains(ip)).count();
                    prop_assert_eq!(runs.count(at(23), at(from)), lowest as u128);
                }
                let touching = runs.0.values().filter_map(|last| succ(*last)).any(|next| runs.0.contains_key(&next));
                prop_assert!(!touching, "runs touch: {:?}", runs);
            }
        }
    }
}
