//! What must change on `lo`: pure.

use std::{collections::BTreeSet, fmt, net::IpAddr};

use seaway_engine::{Effect, Effects};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Before the first IPv4 address: this host must not answer for it.
    SettleArp,
    Add(IpAddr),
    Remove(IpAddr),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::SettleArp => f.write_str("set arp_ignore=1 and arp_announce=2"),
            Step::Add(ip) => write!(f, "add {ip} to lo"),
            Step::Remove(ip) => write!(f, "remove {ip} from lo"),
        }
    }
}

impl Effects for Step {
    fn effect(&self) -> Effect {
        match self {
            Step::SettleArp => Effect::CHANGES,
            Step::Add(_) => Effect::EXPOSES,
            Step::Remove(_) => Effect::DELETES,
        }
    }
}

/// From what is ours to what is wanted. What is local without us is left as it is.
pub fn steps(
    wanted: &BTreeSet<IpAddr>,
    ours: &BTreeSet<IpAddr>,
    is_local: impl Fn(IpAddr) -> bool,
    arp_unmet: bool,
) -> Vec<Step> {
    let missing: Vec<IpAddr> =
        wanted.iter().copied().filter(|ip| !ours.contains(ip) && !is_local(*ip)).collect();
    let speaks_arp = missing.iter().chain(ours.intersection(wanted)).any(IpAddr::is_ipv4);
    let mut steps = Vec::new();
    if arp_unmet && speaks_arp {
        steps.push(Step::SettleArp);
    }
    steps.extend(missing.into_iter().map(Step::Add));
    steps.extend(ours.difference(wanted).copied().map(Step::Remove));
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ips(list: &[&str]) -> BTreeSet<IpAddr> {
        list.iter().map(|it| it.parse().expect("an address")).collect()
    }

    fn check(wanted: &[&str], ours: &[&str], local: &[&str], unmet: bool, expected: &[&str]) {
        let local = ips(local);
        let found = steps(&ips(wanted), &ips(ours), |ip| local.contains(&ip), unmet);
        let found: Vec<String> = found.iter().map(Step::to_string).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn only_what_is_missing_is_added_and_only_ours_is_removed() {
        check(
            &["192.0.2.1", "192.0.2.2"],
            &["192.0.2.2", "192.0.2.3"],
            &["192.0.2.2", "192.0.2.3", "192.0.2.9"],
            false,
            &["add 192.0.2.1 to lo", "remove 192.0.2.3 from lo"],
        );
    }

    #[test]
    fn what_is_local_already_needs_nothing() {
        check(&["127.0.0.1", "192.0.2.9"], &[], &["127.0.0.1", "192.0.2.9"], true, &[]);
    }

    #[test]
    fn arp_is_silenced_before_the_first_ipv4_address_and_never_for_ipv6_alone() {
        check(
            &["192.0.2.1"],
            &[],
            &[],
            true,
            &["set arp_ignore=1 and arp_announce=2", "add 192.0.2.1 to lo"],
        );
        check(&["2001:db8::1"], &[], &[], true, &["add 2001:db8::1 to lo"]);
        check(&["192.0.2.1"], &["192.0.2.1"], &["192.0.2.1"], true, &["set arp_ignore=1 and arp_announce=2"]);
    }

    #[test]
    fn asking_again_yields_nothing() {
        check(&["192.0.2.1"], &["192.0.2.1"], &["192.0.2.1"], false, &[]);
    }
}
