//! What may happen on a walk, and which of it happens.

use super::{NAMES, PORTS};

/// The same numbers for the same seed.
pub(super) struct SeededRandom(pub(super) u64);

impl SeededRandom {
    pub(super) fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut it = self.0;
        it = (it ^ (it >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        it = (it ^ (it >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((it ^ (it >> 31)) % sides as u64).unwrap_or_default()
    }

    pub(super) fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.roll(of.len())]
    }

    /// One of them at least.
    pub(super) fn some<T: Copy>(&mut self, of: &[T]) -> Vec<T> {
        let picked = 1 + self.roll((1 << of.len()) - 1);
        of.iter().enumerate().filter(|(at, _)| picked & (1 << at) != 0).map(|(_, it)| *it).collect()
    }
}

/// What happens next.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Create(&'static str, Vec<u16>),
    Delete(&'static str),
    Ports(&'static str, Vec<u16>),
    NoLoadBalancer(&'static str),
    LoadBalancer(&'static str),
    Internal(&'static str, bool),
    /// It names the class of cloud.conf, or none.
    Class(&'static str, bool),
    Nodes(Vec<u8>),
    Setting(Setting),
    Killed,
    AnotherLeads,
    /// A copy of the cluster that was restored from a backup, with these Services.
    Clone(Vec<&'static str>),
    Trouble(&'static str, RequestFault),
    Foreign(Foreign),
    /// From now on what has a monitor comes back after it was deleted.
    Revivals,
    Time,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Setting {
    Usual,
    /// `defaultDriver` is not set any more.
    NotByDefault,
    /// `--cloud-config` is missing.
    NoCloud,
    /// cloud.conf says `enabled=false`.
    Disabled,
    Monitors,
    InternalOnly,
    /// `manage-security-groups=true`
    Groups,
    /// `lb-method=LEAST_CONNECTIONS`
    Method,
    /// The section `[LoadBalancerClass "edge"]` is missing.
    NoClass,
    /// `ipv6-support-disabled=true`
    NoIpv6,
    /// `lb-provider=ovn`
    Ovn,
    /// `node-selector=role=edge`, which some Nodes have.
    Selector,
    /// `address-sort-order`: Nodes have two addresses of IPv4.
    Order,
    /// `default-tls-container-ref`
    Tls,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum RequestFault {
    LostRequest,
    LostReply,
    Refused,
    Conflict,
}

/// What another does to what is ours.
#[derive(Clone, Copy, Debug)]
pub(super) enum Foreign {
    RemovesMember,
    RemovesListener,
    RemovesMonitor,
    ChangesMethod,
    Renames,
    DetachesFloating,
}

impl Event {
    pub(super) fn random(dice: &mut SeededRandom) -> Event {
        let name = dice.one(&NAMES);
        let writes = [
            "POST */lbaas/loadbalancers",
            "POST */lbaas/*",
            "PUT */lbaas/*",
            "DELETE */lbaas/*",
            "POST */floatingips",
            "PUT */floatingips/*",
            "DELETE */floatingips/*",
        ];
        let settings = [
            Setting::Usual,
            Setting::Usual,
            Setting::NotByDefault,
            Setting::NoCloud,
            Setting::Disabled,
            Setting::Monitors,
            Setting::InternalOnly,
            Setting::Groups,
            Setting::Method,
            Setting::NoClass,
            Setting::NoIpv6,
            Setting::Ovn,
            Setting::Selector,
            Setting::Order,
            Setting::Tls,
        ];
        match dice.roll(23) {
            0..=3 => Event::Create(name, dice.some(&PORTS)),
            4 => Event::Delete(name),
            5 | 6 => Event::Ports(name, dice.some(&PORTS)),
            7 => Event::NoLoadBalancer(name),
            8 => Event::LoadBalancer(name),
            9 => Event::Internal(name, dice.roll(2) == 0),
            10 => Event::Nodes(dice.some(&[11, 12, 13])),
            11 | 12 => Event::Setting(dice.one(&settings)),
            13 => Event::Killed,
            14 => Event::AnotherLeads,
            15 => Event::Clone(dice.some(&NAMES)),
            16 | 17 => {
                let kinds = [
                    RequestFault::LostRequest,
                    RequestFault::LostReply,
                    RequestFault::Refused,
                    RequestFault::Conflict,
                ];
                Event::Trouble(dice.one(&writes), dice.one(&kinds))
            }
            18 => Event::Foreign(dice.one(&[
                Foreign::RemovesMember,
                Foreign::RemovesListener,
                Foreign::RemovesMonitor,
                Foreign::ChangesMethod,
                Foreign::Renames,
                Foreign::DetachesFloating,
            ])),
            19 => Event::Revivals,
            20 => Event::Class(name, dice.roll(2) == 0),
            21 => Event::Setting(dice.one(&settings)),
            _ => Event::Time,
        }
    }
}

/// Walks that once went wrong, without what did not matter.
pub(super) fn found() -> Vec<Vec<Event>> {
    // The floating IP of a living Service was deleted.
    let internal = vec![
        Event::Create("wiki", vec![80]),
        Event::Time,
        Event::Time,
        Event::Setting(Setting::InternalOnly),
        Event::Time,
    ];
    // OVN refused every write of members that had some of its second family.
    let members = vec![
        Event::Setting(Setting::Ovn),
        Event::Create("wiki", vec![8443]),
        Event::Time,
        Event::Foreign(Foreign::RemovesMember),
        Event::Time,
    ];
    // A listener that somebody deleted came back beside its successor, and stayed.
    let twin = vec![
        Event::Setting(Setting::Monitors),
        Event::Create("wiki", vec![443]),
        Event::Time,
        Event::Revivals,
        Event::Foreign(Foreign::RemovesListener),
        Event::Time,
    ];
    vec![internal, members, twin]
}
