//! The front door, for people: who is there under which paths and host names, and who came too late.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
};

use ipnet::IpNet;
use seaway_model::{
    Name, ObjectRef, Pool, PoolId, Problem,
    config::OpenPolicy,
    fact::Service,
    load_balancer::{Action, Match, RateLimit, Rule},
};

use super::{
    FrontDoor,
    attached_route::{AttachedRoute, RoutePrecedence},
    attached_status::LostClaims,
    claims::RouteClaim,
    not_attached::NotAttachedReason,
    service,
};
use crate::index::{PlanContext, ServiceKey};

/// What `seaway plan` prints.
#[derive(Clone, Debug)]
pub struct FrontDoorView {
    /// Where it is; nowhere, while it has not been given its addresses.
    pub at: Vec<SocketAddr>,
    /// Further ones, by their names.
    pub others: Vec<(Name, Vec<SocketAddr>)>,
    pub entrances: Vec<AttachedRouteView>,
}

/// One guest, as it is reached.
#[derive(Clone, Debug)]
pub struct AttachedRouteView {
    pub object: ObjectRef,
    pub leads: Vec<PathView>,
    pub lost: Vec<LostClaims>,
    pub problems: Vec<Problem>,
}

/// A path of a host, and what it leads to: `shop.example/cart` ─► `default/cart:80`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathView {
    pub at: String,
    pub to: String,
    /// Each with how many answer.
    pub pools: Vec<(PoolId, usize)>,
    /// From where it may be asked; empty means from everywhere.
    pub sources: Vec<IpNet>,
    /// From where it may not, even so.
    pub denied: Vec<IpNet>,
    /// How often each client may ask.
    pub rates: Vec<RateLimit>,
}

impl FrontDoor {
    /// In the order of their rules.
    pub(crate) fn entrances(&self) -> Vec<AttachedRouteView> {
        let guessed = self.guessed_places();
        let entrance = |(rank, guest): (&RoutePrecedence, &AttachedRoute)| {
            let told = self.status_of(&guest.owner);
            if told.is_none() && !guest.is_unread {
                return None;
            }
            let lost = self.lost(rank, guest);
            let refused = guest.claims.keys().filter(|claim| !self.may(rank, claim));
            let refused: BTreeSet<String> = refused.map(ToString::to_string).collect();
            let kept =
                |claim: &String| !refused.contains(claim) && !lost.iter().any(|it| it.claims.contains(claim));
            let by_tls = guest.through.iter().flat_map(|(hosts, to)| {
                let claim = |host| RouteClaim::new(Some(host), &Match::default());
                let entrances = &guest.entrances;
                let at = hosts.iter().flat_map(move |host| {
                    entrances.iter().map(move |it| claim(host).at(it.as_ref()).to_string())
                });
                let members = self.pools.get(to).map_or(0, |pool| pool.members.len());
                at.map(move |at| PathView {
                    at,
                    to: format!("{to} by TLS"),
                    pools: vec![(to.clone(), members)],
                    sources: Vec::new(),
                    denied: Vec::new(),
                    rates: Vec::new(),
                })
            });
            let leads = guest.rules.iter().flat_map(|rule| self.leads(rule, &guest.entrances)).chain(by_tls);
            let its = guessed.get(rank).into_iter().flatten().cloned();
            let leads = leads.filter(|lead| kept(&lead.at)).chain(its).collect();
            Some(AttachedRouteView {
                object: guest.owner.object(),
                leads,
                lost,
                problems: told.map(|it| it.problems).unwrap_or_default(),
            })
        };
        self.guests.iter().filter_map(entrance).collect()
    }

    /// By the guests that were probably meant to have them.
    fn guessed_places(&self) -> BTreeMap<&RoutePrecedence, Vec<PathView>> {
        let mut guessed: BTreeMap<&RoutePrecedence, Vec<PathView>> = BTreeMap::new();
        let all: BTreeSet<&Option<Name>> = self.guests.values().flat_map(|it| &it.entrances).collect();
        for entrance in all {
            for (rank, rule) in self.guessed_at(entrance.as_ref()) {
                guessed.entry(rank).or_default().extend(self.leads(&rule, std::slice::from_ref(entrance)));
            }
        }
        guessed
    }

    fn leads(&self, rule: &Rule, entrances: &[Option<Name>]) -> Vec<PathView> {
        let answering = |id: &PoolId| self.pools.get(id).map_or(0, |pool| pool.members.len());
        let (to, pools) = match &rule.action {
            Action::Forward(pools) => {
                let told: Vec<String> = match pools.as_slice() {
                    [(only, _)] => vec![only.to_string()],
                    several => several.iter().map(|(id, weight)| format!("{id} ({weight})")).collect(),
                };
                (told.join(", "), pools.iter().map(|(id, _)| (id.clone(), answering(id))).collect())
            }
            Action::Redirect(redirect) => (format!("redirect {}", redirect.code), Vec::new()),
            Action::Respond { code, .. } => (format!("answer {code}"), Vec::new()),
        };
        let hosts = rule.hosts.iter().map(Some).chain(rule.hosts.is_empty().then_some(None));
        let claims =
            hosts.flat_map(|host| rule.matches.iter().map(move |asked| RouteClaim::new(host, asked)));
        let claims = claims
            .flat_map(|claim| entrances.iter().map(move |it| claim.clone().at(it.as_ref()).to_string()));
        let lead = |at| PathView {
            at,
            to: to.clone(),
            pools: pools.clone(),
            sources: rule.sources.clone(),
            denied: rule.denied.clone(),
            rates: rule.rates.clone(),
        };
        claims.map(lead).collect()
    }

    /// Pools of one Service.
    pub(crate) fn pools_of(&self, key: &ServiceKey) -> Vec<Arc<Pool>> {
        self.served.get(key).map(|it| it.pools().into_values().collect()).unwrap_or_default()
    }
}

/// Why a Service is not there by itself; nothing, if it is.
pub(crate) fn why_not(service: &Service, given: PlanContext<'_>) -> Option<&'static str> {
    match given.config.front_door.opens {
        OpenPolicy::Never => Some("the configuration turns the front door off"),
        OpenPolicy::WhenNeeded | OpenPolicy::Always => {
            service::why_not(service, given).map(NotAttachedReason::as_str)
        }
    }
}
