//! Access rules of a Service: networks, rate limits, passwords, forward authentication, client certificates. They come from its own
//! annotations and from the routes that lead to it.

use std::sync::Arc;

use ipnet::IpNet;
use seaway_model::{
    Kind, Name, ObjectRef,
    fact::Service,
    load_balancer::{BasicAuth, ForwardAuth, RateLimit, RuleTls, TlsProfile},
};

use crate::{
    annotations::{Protection, ServiceOptions, nobody},
    basic_auth, forward_auth,
    index::PlanContext,
};

/// Which clients a Service lets in, however they come to it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AccessRules {
    /// Empty means all.
    pub(crate) sources: Vec<IpNet>,
    pub(crate) denied: Vec<IpNet>,
    /// How often each may ask: all of these hold.
    pub(crate) rates: Vec<RateLimit>,
    /// Who has to say a password: all of these are asked for.
    pub(crate) auth: Vec<Arc<BasicAuth>>,
    /// Who has to agree: all of these.
    pub(crate) asks: Vec<Arc<ForwardAuth>>,
    /// What is asked of the connections of its clients.
    pub(crate) tls: Option<RuleTls>,
    /// Its clients have to show a certificate, and it does not say who vouches for them.
    pub(crate) lacks_authorities: bool,
    /// At which entrances of the front door alone; empty: it does not say.
    pub(crate) entrances: Vec<Name>,
}

impl AccessRules {
    /// What a Service says for whoever leads to it; nobody, if that is not understood. Its Problems are told where it is read.
    pub(crate) fn of_service(service: &Service, given: PlanContext<'_>) -> AccessRules {
        let mut wishes = ServiceOptions::of(&given.config.defaults);
        wishes.read_served(service, given.config);
        AccessRules::of(service, &wishes, given)
    }

    pub(crate) fn of(service: &Service, wishes: &ServiceOptions, given: PlanContext<'_>) -> AccessRules {
        let sources = match service.unclear_sources || wishes.clients_unclear {
            true => nobody(),
            false => source_ranges(service, wishes).to_vec(),
        };
        let rates = wishes.http.limits_of(&object(service));
        let tls = wishes.tls.of_rules(&service.meta.namespace);
        let is_asked = matches!(wishes.protection(), Some(Protection::Clients(_)));
        let lacks_authorities = is_asked && wishes.tls.authorities.is_none();
        let auth = basic_auth::of(service, wishes, given.certificates).into_iter().collect();
        let asks = forward_auth::of(service, wishes).into_iter().collect();
        let entrances = wishes.http.entrances.clone();
        AccessRules {
            sources,
            denied: wishes.denied.clone(),
            rates,
            auth,
            asks,
            tls,
            lacks_authorities,
            entrances,
        }
    }

    /// Whether all clients are let in, as often as they ask.
    pub(crate) fn is_open(&self) -> bool {
        let is_asked = !self.auth.is_empty() || !self.asks.is_empty() || self.tls.is_some();
        self.sources.is_empty() && self.denied.is_empty() && self.rates.is_empty() && !is_asked
    }

    /// Who is let in by both.
    pub(crate) fn narrow(&mut self, by: &AccessRules) {
        self.sources = match (self.sources.is_empty(), by.sources.is_empty()) {
            (_, true) => std::mem::take(&mut self.sources),
            (true, false) => by.sources.clone(),
            (false, false) => within_both(&self.sources, &by.sources),
        };
        if self.denied != by.denied {
            self.denied.extend(&by.denied);
            self.denied.sort();
            self.denied.dedup();
        }
        for limit in &by.rates {
            if !self.rates.contains(limit) {
                self.rates.push(limit.clone());
            }
        }
        for auth in &by.auth {
            if !self.auth.contains(auth) {
                self.auth.push(auth.clone());
            }
        }
        if let Some(by) = &by.tls {
            let own = self.tls.get_or_insert_with(RuleTls::default);
            match (&mut own.clients, &by.clients) {
                (Some(own), Some(by)) => own.required |= by.required,
                (None, Some(by)) => own.clients = Some(by.clone()),
                (_, None) => {}
            }
            let modern = Some(TlsProfile::Modern);
            own.profile = modern.filter(|_| own.profile == modern || by.profile == modern);
            own.hsts = own.hsts.or(by.hsts);
        }
        for asked in &by.asks {
            if !self.asks.contains(asked) {
                self.asks.push(asked.clone());
            }
        }
    }
}

pub(crate) fn object(service: &Service) -> ObjectRef {
    ObjectRef::new(Kind::Service, service.meta.namespace.clone(), service.meta.name.clone())
}

/// Two networks meet only if one is within the other. Where none meet, that is nobody.
fn within_both(one: &[IpNet], other: &[IpNet]) -> Vec<IpNet> {
    let sorted = |nets: &[IpNet]| IpNet::aggregate(&nets.to_vec()).into_iter().peekable();
    let (mut one, mut other) = (sorted(one), sorted(other));
    let mut both = Vec::new();
    while let (Some(a), Some(b)) = (one.peek().copied(), other.peek().copied()) {
        if a.contains(&b) {
            both.push(b);
            other.next();
        } else if b.contains(&a) {
            both.push(a);
            one.next();
        } else if a < b {
            one.next();
        } else {
            other.next();
        }
    }
    if both.is_empty() { nobody() } else { both }
}

/// The networks that may connect, wherever the Service is served; empty means all. The field alone counts where it is there, as in
/// Kubernetes: what an annotation says cannot open what the Service closes.
pub(crate) fn source_ranges<'s>(service: &'s Service, wishes: &'s ServiceOptions) -> &'s [IpNet] {
    if service.source_ranges.is_empty() { &wishes.sources } else { &service.source_ranges }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(all: &[&str]) -> Vec<IpNet> {
        all.iter().map(|it| it.parse().expect("a network")).collect()
    }

    #[test]
    fn who_is_let_in_by_both_is_let_in_by_each() {
        let none = ["0.0.0.0/32", "::/128"];
        for (one, other, both) in [
            (&[][..], &[][..], &[][..]),
            (&["10.0.0.0/8"], &[], &["10.0.0.0/8"]),
            (&[], &["10.0.0.0/8"], &["10.0.0.0/8"]),
            (&["10.0.0.0/8"], &["10.0.0.0/8"], &["10.0.0.0/8"]),
            (&["10.0.0.0/8"], &["10.2.0.0/16", "10.1.0.0/16"], &["10.1.0.0/16", "10.2.0.0/16"]),
            (
                &["10.1.0.0/16", "192.0.2.0/24"],
                &["10.0.0.0/8", "192.0.2.7/32"],
                &["10.1.0.0/16", "192.0.2.7/32"],
            ),
            (&["10.0.0.0/8"], &["192.0.2.0/24"], &none),
            (&["10.0.0.0/8"], &["2001:db8::/32"], &none),
            (&["0.0.0.0/0", "2001:db8::/32"], &["::/0", "192.0.2.0/24"], &["192.0.2.0/24", "2001:db8::/32"]),
            (&["10.0.0.0/9", "10.128.0.0/9"], &["10.0.0.0/8"], &["10.0.0.0/8"]),
            (&none, &["10.0.0.0/8"], &none),
        ] {
            let of = |sources| AccessRules { sources: nets(sources), ..AccessRules::default() };
            for (one, other) in [(one, other), (other, one)] {
                let mut all = of(one);
                all.narrow(&of(other));
                assert_eq!(all, of(both), "{one:?} {other:?}");
            }
        }
        let denying = |denied| AccessRules { denied: nets(denied), ..AccessRules::default() };
        let mut all = denying(&["10.0.0.0/8"]);
        all.narrow(&denying(&["192.0.2.7/32", "10.0.0.0/8"]));
        assert_eq!(all, denying(&["10.0.0.0/8", "192.0.2.7/32"]), "what either denies");
    }
}
