//! Source ranges compiled for a look-up: one binary search in what is allowed, and one in what is denied.

#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

use std::net::IpAddr;

use ipnet::IpNet;

/// Which clients may connect, or ask. What is denied is so even where it is allowed.
#[derive(Debug, Default)]
pub(crate) struct SourceFilter {
    /// `None`: all that are not denied.
    allowed: Option<Ranges>,
    denied: Ranges,
}

impl SourceFilter {
    /// Nothing allowed in particular is everybody.
    pub(crate) fn new(allowed: &[IpNet], denied: &[IpNet]) -> SourceFilter {
        let allowed = (!allowed.is_empty()).then(|| Ranges::new(allowed));
        SourceFilter { allowed, denied: Ranges::new(denied) }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.allowed.is_none() && self.denied.is_empty()
    }

    /// Without allocating.
    pub(crate) fn admits(&self, ip: IpAddr) -> bool {
        self.allowed.as_ref().is_none_or(|it| it.contains(ip))
            && (self.denied.is_empty() || !self.denied.contains(ip))
    }
}

/// First and last addresses, sorted, no two of which meet. IPv4 and IPv6 apart: `::/0` is no address of IPv4.
#[derive(Debug, Default)]
struct Ranges {
    v4: Box<[(u128, u128)]>,
    v6: Box<[(u128, u128)]>,
}

impl Ranges {
    fn new(nets: &[IpNet]) -> Ranges {
        let (v4, v6): (Vec<&IpNet>, Vec<&IpNet>) = nets.iter().partition(|net| matches!(net, IpNet::V4(_)));
        Ranges { v4: merged(v4), v6: merged(v6) }
    }

    fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    fn contains(&self, ip: IpAddr) -> bool {
        let ranges = if ip.is_ipv4() { &self.v4 } else { &self.v6 };
        let number = number(ip);
        let behind = ranges.partition_point(|(first, _)| *first <= number);
        let range = behind.checked_sub(1).and_then(|at| ranges.get(at));
        range.is_some_and(|(_, last)| number <= *last)
    }
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => u32::from(ip).into(),
        IpAddr::V6(ip) => ip.into(),
    }
}

fn merged(nets: Vec<&IpNet>) -> Box<[(u128, u128)]> {
    let mut ranges: Vec<(u128, u128)> =
        nets.into_iter().map(|net| (number(net.network()), number(net.broadcast()))).collect();
    ranges.sort_unstable();
    let mut merged: Vec<(u128, u128)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match merged.last_mut() {
            Some((_, end)) if first <= *end => *end = last.max(*end),
            _ => merged.push((first, last)),
        }
    }
    merged.into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn nets(all: &[&str]) -> Vec<IpNet> {
        all.iter().map(|it| it.parse().unwrap()).collect()
    }

    #[test]
    fn what_is_denied_is_so_even_where_it_is_allowed() {
        for (allowed, denied, client, admits) in [
            (&[][..], &[][..], "192.0.2.1", true),
            (&["192.0.2.0/24"], &[], "192.0.2.255", true),
            (&["192.0.2.0/24"], &[], "192.0.3.0", false),
            (&["192.0.2.0/24"], &[], "2001:db8::1", false),
            (&["10.0.0.0/8", "10.1.0.0/16"], &[], "10.2.0.0", true),
            (&["10.0.0.0/8"], &["10.1.0.0/16"], "10.1.2.3", false),
            (&["10.0.0.0/8"], &["10.1.0.0/16"], "10.2.2.3", true),
            (&["10.1.0.0/16"], &["10.0.0.0/8"], "10.1.2.3", false),
            (&[], &["10.1.0.0/16", "2001:db8::/32"], "2001:db8::1", false),
            (&[], &["10.1.0.0/16"], "2001:db8::1", true),
            (&["::/0"], &[], "192.0.2.1", false),
            (&["0.0.0.0/0"], &["::/0"], "192.0.2.1", true),
            // As the plan says that nobody may.
            (&["0.0.0.0/32", "::/128"], &[], "192.0.2.1", false),
        ] {
            let filter = SourceFilter::new(&nets(allowed), &nets(denied));
            assert_eq!(filter.admits(client.parse().unwrap()), admits, "{allowed:?} {denied:?} {client}");
            assert_eq!(filter.is_open(), allowed.is_empty() && denied.is_empty());
        }
    }

    fn any_net() -> impl Strategy<Value = IpNet> {
        // Few addresses, so that ranges meet and nest.
        prop_oneof![
            (0_u32..64, 24_u8..=32).prop_map(|(at, length)| {
                IpNet::new(IpAddr::V4((0x0a00_0000 | at).into()), length).unwrap()
            }),
            (0_u128..64, 120_u8..=128)
                .prop_map(|(at, length)| IpNet::new(IpAddr::V6(at.into()), length).unwrap()),
        ]
    }

    proptest! {
        #[test]
        fn it_says_what_asking_each_range_says(
            allowed in prop::collection::vec(any_net(), 0..9),
            denied in prop::collection::vec(any_net(), 0..9),
        ) {
            let filter = SourceFilter::new(&allowed, &denied);
            for at in 0..300_u32 {
                for ip in [IpAddr::V4((0x0a00_0000 + at).into()), IpAddr::V6(u128::from(at).into())] {
                    let within = |nets: &[IpNet]| nets.iter().any(|net| net.contains(&ip));
                    let expected = (allowed.is_empty() || within(&allowed)) && !within(&denied);
                    prop_assert_eq!(filter.admits(ip), expected, "{}", ip);
                }
            }
        }
    }
}
