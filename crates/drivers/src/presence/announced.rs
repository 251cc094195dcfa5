//! What this host says of addresses that it announces. What was withdrawn a moment ago is still reported: the plan keeps sockets
//! open while this host reports that it announces an address.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    time::{Duration, Instant},
};

use ipnet::IpNet;
use seaway_model::{Name, bgp::BgpReport, layer2::Layer2State};

/// Another host answers for an address that was withdrawn, and clients learn where it is now, before sockets here close.
pub const AFTER_WITHDRAWAL: Duration = Duration::from_millis(500);
/// Routers tell each other, and change their tables, before sockets here close.
pub const AFTER_WITHDRAWAL_OF_ROUTES: Duration = Duration::from_secs(2);

#[derive(Default)]
pub(super) struct AnnouncementState {
    pub(super) layer2: BTreeMap<IpAddr, Layer2State>,
    pub(super) bgp: BgpReport,
    /// What was announced until then, and is not offered any more.
    withdrawn: BTreeMap<IpAddr, (Layer2State, Instant)>,
    withdrawn_routes: BTreeMap<IpNet, (BTreeSet<Name>, Instant)>,
}

impl AnnouncementState {
    /// Whether that is news.
    pub(super) fn note_layer2(&mut self, states: BTreeMap<IpAddr, Layer2State>) -> bool {
        self.forget();
        let is_news = self.layer2 != states;
        let before = std::mem::replace(&mut self.layer2, states);
        let ended =
            before.into_iter().filter(|(ip, it)| it.what.is_announcing() && !self.layer2.contains_key(ip));
        let now = Instant::now();
        self.withdrawn.extend(ended.map(|(ip, it)| (ip, (it, now))));
        is_news
    }

    /// Whether that is news.
    pub(super) fn note_bgp(&mut self, report: BgpReport) -> bool {
        self.forget();
        let is_news = self.bgp != report;
        let before = std::mem::replace(&mut self.bgp, report);
        let ended = before.routes.into_iter().filter(|(prefix, _)| !self.bgp.routes.contains_key(prefix));
        let now = Instant::now();
        self.withdrawn_routes.extend(ended.map(|(prefix, peers)| (prefix, (peers, now))));
        is_news
    }

    /// What is reported now is to be reported again, [`AFTER_WITHDRAWAL`] later.
    pub(super) fn has_withdrawn(&mut self) -> bool {
        self.forget();
        !self.withdrawn.is_empty() || !self.withdrawn_routes.is_empty()
    }

    pub(super) fn reported_layer2(&mut self) -> BTreeMap<IpAddr, Layer2State> {
        self.forget();
        let withdrawn = self.withdrawn.iter().map(|(ip, (it, _))| (*ip, it.clone()));
        let mut reported: BTreeMap<IpAddr, Layer2State> = withdrawn.collect();
        reported.extend(self.layer2.clone());
        reported
    }

    pub(super) fn reported_bgp(&mut self) -> BgpReport {
        self.forget();
        let mut reported = self.bgp.clone();
        for (prefix, (peers, _)) in &self.withdrawn_routes {
            reported.routes.entry(*prefix).or_insert_with(|| peers.clone());
        }
        reported
    }

    fn forget(&mut self) {
        self.withdrawn.retain(|_, (_, at)| at.elapsed() < AFTER_WITHDRAWAL);
        self.withdrawn_routes.retain(|_, (_, at)| at.elapsed() < AFTER_WITHDRAWAL_OF_ROUTES);
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use seaway_model::{Time, layer2::Layer2Progress};

    use super::*;

    fn until_it_is_over(announced: &mut AnnouncementState) {
        let deadline = Instant::now() + 100 * AFTER_WITHDRAWAL;
        while announced.has_withdrawn() {
            assert!(Instant::now() < deadline, "it ends");
            thread::yield_now();
        }
    }

    #[test]
    fn an_address_that_was_withdrawn_is_reported_until_clients_know_where_it_is_now() {
        let mut announced = AnnouncementState::default();
        let ip: IpAddr = "192.0.2.1".parse().expect("an address");
        let state = |what| {
            let (interface, detail) = (Name::default(), Name::default());
            BTreeMap::from([(ip, Layer2State { what, interface, since: Time::default(), detail })])
        };
        let is_announced = |announced: &mut AnnouncementState| {
            announced.reported_layer2().get(&ip).is_some_and(|it| it.what.is_announcing())
        };
        announced.note_layer2(state(Layer2Progress::Announcing));
        assert!(is_announced(&mut announced) && !announced.has_withdrawn());
        // Offered, and not announced: another host has it, or none can. That is said at once.
        announced.note_layer2(state(Layer2Progress::Standby));
        assert!(!is_announced(&mut announced) && !announced.has_withdrawn());
        announced.note_layer2(state(Layer2Progress::Announcing));
        announced.note_layer2(BTreeMap::new());
        assert!(announced.layer2.is_empty() && is_announced(&mut announced) && announced.has_withdrawn());
        until_it_is_over(&mut announced);
        assert!(!is_announced(&mut announced));
    }

    #[test]
    fn a_route_that_was_withdrawn_is_reported_until_routers_know() {
        let mut announced = AnnouncementState::default();
        let prefix: IpNet = "192.0.2.1/32".parse().expect("a network");
        let routes = BTreeMap::from([(prefix, BTreeSet::from(["tor".into()]))]);
        let report = BgpReport { routes: routes.clone(), ..BgpReport::default() };
        assert!(announced.note_bgp(report.clone()) && !announced.note_bgp(report));
        assert!(announced.note_bgp(BgpReport::default()));
        assert_eq!(announced.reported_bgp().routes, routes);
        until_it_is_over(&mut announced);
        assert!(announced.reported_bgp().is_empty());
    }
}
