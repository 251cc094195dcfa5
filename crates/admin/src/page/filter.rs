//! Which services are shown: thousands of rows help nobody, and would be sent every second.

use std::{cmp::Reverse, ops::AddAssign};

use percent_encoding::percent_decode_str;

use crate::view::{MemberState, PoolView, Rate, ServiceView, View};

/// On the page, unless asked for otherwise.
const SHOWN: usize = 100;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    /// Part of an owner, an address, a port's or a member's name; empty for all.
    pub(crate) sought: String,
    pub(crate) limit: Option<usize>,
    /// The changing part of the page alone.
    pub(crate) live_part: bool,
}

/// What is left of a view, and what was there.
pub(crate) struct FilteredView {
    pub(crate) view: View,
    /// Sums over all services, shown or not.
    pub(crate) sums: ServiceTotals,
    pub(crate) matching: usize,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ServiceTotals {
    pub(crate) services: usize,
    pub(crate) members: usize,
    pub(crate) usable: usize,
    pub(crate) failed_listeners: usize,
    /// Services with no usable member.
    pub(crate) unanswered: usize,
    pub(crate) open: u64,
    pub(crate) refused: u64,
    pub(crate) errors: u64,
    pub(crate) rate: Option<Rate>,
}

impl Filter {
    pub(crate) fn of(query: &str) -> Filter {
        let mut filter = Filter::default();
        for (key, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
            match key {
                "q" => filter.sought = decode(value).trim().to_owned(),
                "limit" => filter.limit = value.parse().ok(),
                "part" => filter.live_part = value == "live",
                _ => {}
            }
        }
        filter
    }

    pub(crate) fn for_page(mut self) -> Filter {
        self.limit.get_or_insert(SHOWN);
        self
    }

    pub(crate) fn apply(&self, mut view: View) -> FilteredView {
        let sums = ServiceTotals::of(&view);
        let sought = self.sought.to_lowercase();
        if !sought.is_empty() {
            view.services.retain(|service| matches(service, &sought));
        }
        let matching = view.services.len();
        if let Some(limit) = self.limit.filter(|&limit| limit < matching) {
            // When not all fit, trouble goes first. It is stable: the rest keeps its order.
            view.services.sort_by_key(|service| Reverse(severity(service)));
            view.services.truncate(limit);
        }
        FilteredView { view, sums, matching }
    }
}

impl ServiceTotals {
    fn of(view: &View) -> ServiceTotals {
        let mut sums = ServiceTotals { services: view.services.len(), ..ServiceTotals::default() };
        for service in &view.services {
            add(&mut sums.unanswered, usize::from(service.pools.iter().any(is_dead)));
            for listener in &service.listeners {
                add(&mut sums.failed_listeners, usize::from(!listener.serving));
                sums.open = sums.open.saturating_add(listener.sessions.current);
                sums.refused = sums.refused.saturating_add(listener.refused.total());
                sums.errors = sums.errors.saturating_add(listener.errors);
                if let Some(rate) = listener.rate {
                    sums.rate.get_or_insert_default().add_assign(rate);
                }
            }
            for pool in &service.pools {
                add(&mut sums.members, pool.members.len());
                add(&mut sums.usable, pool.usable());
                let errors = pool.members.iter().map(|it| it.connect_errors);
                sums.errors = errors.fold(sums.errors, u64::saturating_add);
            }
        }
        sums
    }
}

fn add(sum: &mut usize, more: usize) {
    *sum = sum.saturating_add(more);
}

/// How much to worry, the worst last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Severity {
    None,
    /// It is served, by fewer than it should be.
    Some,
    /// Clients are refused.
    Much,
}

/// Whoever comes to it is refused.
fn is_dead(pool: &PoolView) -> bool {
    pool.usable() == 0 && !pool.panic
}

pub(super) fn severity(service: &ServiceView) -> Severity {
    let hurt = |pool: &PoolView| {
        pool.panic || pool.members.iter().any(|m| matches!(m.state, MemberState::Down | MemberState::Ejected))
    };
    if service.listeners.is_empty()
        || service.listeners.iter().any(|listener| !listener.serving)
        || service.pools.iter().any(is_dead)
    {
        Severity::Much
    } else if service.pools.iter().any(hurt) {
        Severity::Some
    } else {
        Severity::None
    }
}

fn matches(service: &ServiceView, sought: &str) -> bool {
    let has = |text: &str| text.to_lowercase().contains(sought);
    has(&format!("{} {}/{}", service.owner, service.namespace, service.name))
        || service.addresses.iter().any(|address| has(&address.to_string()))
        || service.listeners.iter().any(|l| has(&l.name) || has(&format!("{}:{}", l.address, l.port)))
        || service.pools.iter().flat_map(|pool| &pool.members).any(|m| has(&m.address) || has(&m.name))
}

/// Of a form: `+` is a space, `%2F` a slash. What is no escape stays as it is.
fn decode(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_decoded() {
        let filter = Filter::of("q=default%2Fshop+a%zz%&limit=7&part=live&what");
        assert_eq!(
            filter,
            Filter { sought: "default/shop a%zz%".to_owned(), limit: Some(7), live_part: true }
        );
        assert_eq!(Filter::of("limit=many").for_page().limit, Some(SHOWN));
    }
}
