//! What one peer has of us, and what it lacks.

use std::collections::BTreeMap;

use ipnet::IpNet;

use super::message::{
    Attributes, Family, RouteEncoding,
    update::{announce, end_of_rib, withdraw},
};
use seaway_model::bgp::{PeerFamilies, Route};

/// Written in one go: about what a socket takes.
const PART: usize = 64 * 1024;
/// Looked at for one part.
const PREFIXES: usize = 4096;

#[derive(Debug)]
pub(crate) struct AdjRibOut {
    wanted: BTreeMap<IpNet, Attributes>,
    /// None where it has to be said again.
    sent: BTreeMap<IpNet, Option<Attributes>>,
    session: Option<(RouteEncoding, PeerFamilies)>,
    /// Its end was not said yet.
    is_first: bool,
    has_news: bool,
    /// All of these is to be said again.
    again: PeerFamilies,
    /// One that has more communities than fit.
    left_out: Option<IpNet>,
    /// Another number whenever the peer has other prefixes.
    version: u64,
}

const NONE: PeerFamilies = PeerFamilies { v4: false, v6: false };

impl AdjRibOut {
    pub(crate) fn new() -> AdjRibOut {
        AdjRibOut {
            wanted: BTreeMap::new(),
            sent: BTreeMap::new(),
            session: None,
            is_first: false,
            has_news: false,
            again: NONE,
            left_out: None,
            version: 0,
        }
    }

    /// Replaces what was wanted. Those that cannot be announced are left out.
    pub(crate) fn set_desired(&mut self, routes: &[Route], is_leaving: bool) {
        let fits = |it: &Route| Attributes::of(it, is_leaving).is_some();
        self.left_out = routes.iter().find(|it| !fits(it)).map(|it| it.prefix);
        let attributes = |it: &Route| Some((it.prefix.trunc(), Attributes::of(it, is_leaving)?));
        let wanted: BTreeMap<_, _> = routes.iter().filter_map(attributes).collect();
        if wanted != self.wanted {
            self.wanted = wanted;
            self.has_news = true;
        }
    }

    /// A session begins, in which these families were agreed on.
    pub(crate) fn begin(&mut self, manner: RouteEncoding, families: PeerFamilies) {
        self.sent.clear();
        self.version = self.version.wrapping_add(1);
        self.session = Some((manner, families));
        (self.is_first, self.has_news, self.again) = (true, true, NONE);
    }

    pub(crate) fn end(&mut self) {
        self.sent.clear();
        self.version = self.version.wrapping_add(1);
        self.session = None;
    }

    /// All of a family is said again: once, however often it is asked for before.
    pub(crate) fn refresh(&mut self, family: Family) {
        family.add_to(&mut self.again);
        self.has_news = true;
    }

    /// The next hops changed.
    pub(crate) fn set_next_hops(&mut self, next_hops: RouteEncoding) {
        let Some((manner, _)) = &mut self.session else { return };
        if *manner != next_hops {
            *manner = next_hops;
            Family::ALL.into_iter().for_each(|it| self.refresh(it));
        }
    }

    /// Prefixes that the peer has of us.
    pub(crate) fn sent(&self) -> u32 {
        u32::try_from(self.sent.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn prefixes(&self) -> impl Iterator<Item = IpNet> {
        self.sent.keys().copied()
    }

    pub(crate) fn left_out(&self) -> Option<IpNet> {
        self.left_out
    }

    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// A family of which something is wanted, and cannot be said in this session; and whether it is for a next hop.
    pub(crate) fn unsaid(&self) -> Option<(Family, bool)> {
        let (manner, families) = self.session.as_ref()?;
        let mut lacking = Family::ALL.into_iter().filter(|it| !self.can(*it));
        let family = lacking.find(|family| self.wanted.keys().any(|it| Family::of(it) == *family))?;
        Some((family, family.is_in(*families) && manner.next_hop(family).is_none()))
    }

    fn can(&self, family: Family) -> bool {
        let can = |(manner, families): &(RouteEncoding, PeerFamilies)| {
            family.is_in(*families) && manner.next_hop(family).is_some()
        };
        self.session.as_ref().is_some_and(can)
    }

    /// The next messages, about as much as a socket takes; none once the peer has all that is wanted.
    pub(crate) fn write(&mut self, out: &mut Vec<u8>) {
        let Some((manner, families)) = self.session.filter(|_| self.has_news) else { return };
        self.version = self.version.wrapping_add(1);
        let again = std::mem::replace(&mut self.again, NONE);
        for family in Family::all(again) {
            self.sent.iter_mut().filter(|it| Family::of(it.0) == family).for_each(|it| *it.1 = None);
        }
        for family in Family::ALL {
            let is_gone = |it: &IpNet| Family::of(it) == family && !self.wanted.contains_key(it);
            let can = self.can(family);
            let gone = self.sent.keys().filter(|it| is_gone(it) || !can && Family::of(it) == family);
            let gone: Vec<IpNet> = gone.take(PREFIXES).copied().collect();
            withdraw(&gone, family, out);
            for prefix in &gone {
                self.sent.remove(prefix);
            }
            if out.len() >= PART || gone.len() >= PREFIXES {
                return;
            }
        }
        let lacks = |prefix: &IpNet, it: &Attributes| match self.sent.get(prefix) {
            Some(Some(sent)) => sent != it,
            _ => self.can(Family::of(prefix)),
        };
        let lacking = self.wanted.iter().filter(|(prefix, it)| lacks(prefix, it)).take(PREFIXES);
        let mut groups: BTreeMap<(Family, &Attributes), Vec<IpNet>> = BTreeMap::new();
        for (prefix, attributes) in lacking {
            groups.entry((Family::of(prefix), attributes)).or_default().push(*prefix);
        }
        let is_all = groups.is_empty();
        for ((family, attributes), prefixes) in groups {
            announce(&prefixes, family, attributes, &manner, out);
            let said = prefixes.into_iter().map(|it| (it, Some(attributes.clone())));
            self.sent.extend(said);
            if out.len() >= PART {
                return;
            }
        }
        if is_all {
            self.has_news = false;
            if std::mem::take(&mut self.is_first) {
                Family::all(families).for_each(|it| end_of_rib(it, out));
            }
        }
    }
}
