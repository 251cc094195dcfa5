//! What a word of an operator means: a member by its address or its name, or a Service.

use std::{collections::BTreeSet, net::SocketAddr};

use seaway_admin::view::{MemberView, PoolView, ServiceView};
use seaway_model::{Name, WeightTarget};

/// Pools of a running process, with the Service that each is of.
pub(super) struct Pools<'v>(Vec<(String, &'v PoolView)>);

/// As many are listed where a word means none.
const SHOWN: usize = 8;

impl<'v> Pools<'v> {
    pub(super) fn of(views: &'v [ServiceView]) -> Pools<'v> {
        let pools =
            views.iter().flat_map(|view| view.pools.iter().map(move |pool| (owner(view, pool), pool)));
        Pools(pools.collect())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &'v PoolView)> {
        self.0.iter().map(|(service, pool)| (service.as_str(), *pool))
    }

    fn members(&self, service: Option<&str>) -> impl Iterator<Item = (&str, &'v MemberView)> {
        let pools = self.iter().filter(move |(of, _)| service.is_none_or(|it| it == *of));
        pools.flat_map(|(of, pool)| pool.members.iter().map(move |it| (of, it)))
    }

    /// Whose weight it is, or why that is not clear.
    pub(super) fn find(&self, what: &str, service: Option<&str>) -> Result<WeightTarget, String> {
        let service = service.map(|it| self.service(it).ok_or_else(|| self.no_service(it))).transpose()?;
        let within = service.as_deref();
        let of_member = |member| WeightTarget { service: within.and_then(split), member: Some(member) };
        if let Ok(at) = what.parse::<SocketAddr>() {
            let has = self.members(within).any(|(_, it)| it.address == at.to_string());
            return if has { Ok(of_member(at)) } else { Err(self.no_member(what, within)) };
        }
        let named: BTreeSet<SocketAddr> = self
            .members(within)
            .filter(|(_, it)| it.name == what)
            .filter_map(|(_, it)| it.address.parse().ok())
            .collect();
        let of_service = self.service(what).filter(|_| within.is_none());
        match (of_service, named.first(), named.len()) {
            (Some(it), None, _) => Ok(WeightTarget { service: split(&it), member: None }),
            (None, Some(at), 1) => Ok(of_member(*at)),
            (Some(it), Some(at), _) => {
                Err(format!("{what} is a Service and a member: write {it}, or the member's address, {at}"))
            }
            (None, Some(_), _) => {
                let all: Vec<String> = named.iter().map(ToString::to_string).collect();
                Err(format!(
                    "several members are called {what}: write the address of one: {}",
                    all.join(", ")
                ))
            }
            (None, None, _) if what.contains('/') => Err(self.no_service(what)),
            (None, None, _) => Err(self.no_member(what, within)),
        }
    }

    /// `default/shop`, however it was written.
    fn service(&self, text: &str) -> Option<String> {
        let whole = if text.contains('/') { text.to_owned() } else { format!("default/{text}") };
        self.0.iter().any(|(of, _)| *of == whole).then_some(whole)
    }

    fn no_service(&self, text: &str) -> String {
        let all: BTreeSet<&str> = self.0.iter().map(|(of, _)| of.as_str()).collect();
        format!("no Service {text} is served; there {}", listed(all, "is", "are"))
    }

    fn no_member(&self, text: &str, service: Option<&str>) -> String {
        let shown = |it: &MemberView| match it.name.is_empty() {
            true => it.address.clone(),
            false => format!("{} ({})", it.address, it.name),
        };
        let all: BTreeSet<String> = self.members(service).map(|(_, it)| shown(it)).collect();
        let of = service.map(|it| format!(" of {it}")).unwrap_or_default();
        let all = listed(all.iter().map(String::as_str).collect(), "is", "are");
        format!("no member{of} and no Service is called {text}; there {all}")
    }

    /// Pools that would have nobody for new clients, and have somebody now: each of these members gets this weight.
    pub(super) fn pools_without_usable_members(&self, of: &WeightTarget) -> Vec<String> {
        let is_usable = |it: &&MemberView| it.state.is_usable() && it.weight > 0;
        let concerned = |service: &str, it: &MemberView| {
            of.member.is_none_or(|at| it.address == at.to_string())
                && of
                    .service
                    .as_ref()
                    .is_none_or(|(namespace, name)| service == format!("{namespace}/{name}"))
        };
        let empty = |(service, pool): &(&str, &PoolView)| {
            let (left, lost): (Vec<&MemberView>, Vec<&MemberView>) =
                pool.members.iter().filter(is_usable).partition(|it| !concerned(service, it));
            left.is_empty() && !lost.is_empty()
        };
        let names: BTreeSet<&str> = self.iter().filter(empty).map(|(service, _)| service).collect();
        names.into_iter().map(str::to_owned).collect()
    }

    /// Addresses of members that it is about.
    pub(super) fn addresses(&self, of: &WeightTarget) -> Vec<String> {
        let service = of.service.as_ref().map(|(namespace, name)| format!("{namespace}/{name}"));
        let all = self.members(service.as_deref()).map(|(_, it)| it.address.clone());
        let all: BTreeSet<String> =
            all.filter(|it| of.member.is_none_or(|at| *it == at.to_string())).collect();
        all.into_iter().collect()
    }
}

/// Pools of the front door are called by their Services: `default/shop:80`.
pub(super) fn owner(view: &ServiceView, pool: &PoolView) -> String {
    match view.namespace.is_empty() {
        true => pool.id.split(':').next().unwrap_or_default().to_owned(),
        false => format!("{}/{}", view.namespace, view.name),
    }
}

fn split(service: &str) -> Option<(Name, Name)> {
    let (namespace, name) = service.split_once('/')?;
    Some((namespace.into(), name.into()))
}

fn listed(all: BTreeSet<&str>, one: &str, many: &str) -> String {
    let verb = if all.len() == 1 { one } else { many };
    let more = all.len().saturating_sub(SHOWN);
    let shown: Vec<&str> = all.into_iter().take(SHOWN).collect();
    match (shown.is_empty(), more) {
        (true, _) => "are none".to_owned(),
        (false, 0) => format!("{verb} {}", shown.join(", ")),
        (false, more) => format!("{verb} {}, and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use seaway_admin::view::{CheckView, MemberState, Sessions};
    use seaway_model::{L4, load_balancer::Balance};

    use super::*;

    fn member(address: &str, name: &str, state: MemberState, weight: u32) -> MemberView {
        MemberView {
            address: address.into(),
            name: name.into(),
            backup: false,
            state,
            weight,
            sessions: Sessions::default(),
            bytes: Default::default(),
            connect_errors: 0,
            retries: 0,
            resets: 0,
            timeouts: 0,
            latency: None,
            measured: Default::default(),
            check: CheckView::default(),
            last_change: None,
            last_error: String::new(),
            http: None,
            rate: None,
        }
    }

    fn pool(id: &str, members: Vec<MemberView>) -> PoolView {
        PoolView {
            id: id.into(),
            service: "default/shop".into(),
            urls: Vec::new(),
            protocol: L4::Tcp,
            balance: Balance::RoundRobin,
            panic: false,
            no_member: 0,
            latency: None,
            latencies: None,
            members,
        }
    }

    fn views() -> Vec<ServiceView> {
        let up = |address: &str, name: &str| member(address, name, MemberState::Up, 1);
        let of = |namespace: &str, name: &str, pools| ServiceView {
            namespace: namespace.into(),
            name: name.into(),
            pools,
            ..ServiceView::default()
        };
        vec![
            of(
                "default",
                "shop",
                vec![pool("80/TCP", vec![up("10.0.0.1:80", "alice"), up("10.0.0.2:80", "bob")])],
            ),
            of("infra", "dns", vec![pool("53/UDP", vec![up("10.0.0.1:53", "alice")])]),
            of(
                "",
                "frontDoor",
                vec![pool(
                    "default/web:80",
                    vec![
                        up("10.0.0.1:80", "alice"),
                        member("10.0.0.3:80", "shop", MemberState::Down, 1),
                        member("10.0.0.4:80", "", MemberState::Up, 0),
                    ],
                )],
            ),
        ]
    }

    fn found(what: &str, service: Option<&str>) -> String {
        let views = views();
        Pools::of(&views).find(what, service).map_or_else(|why| why, |it| it.to_string())
    }

    #[test]
    fn a_word_is_a_member_or_a_service_or_an_error_that_names_those_that_are() {
        for (what, service, expected) in [
            ("10.0.0.2:80", None, "10.0.0.2:80"),
            ("10.0.0.1:80", Some("web"), "10.0.0.1:80 of default/web"),
            ("bob", None, "10.0.0.2:80"),
            ("infra/dns", None, "all members of infra/dns"),
            ("web", None, "all members of default/web"),
            ("alice", Some("infra/dns"), "10.0.0.1:53 of infra/dns"),
            (
                "alice",
                None,
                "several members are called alice: write the address of one: 10.0.0.1:53, 10.0.0.1:80",
            ),
            (
                "shop",
                None,
                "shop is a Service and a member: write default/shop, or the member's address, 10.0.0.3:80",
            ),
            (
                "default/nobody",
                None,
                "no Service default/nobody is served; there are default/shop, default/web, infra/dns",
            ),
            (
                "10.0.0.9:80",
                Some("shop"),
                "no member of default/shop and no Service is called 10.0.0.9:80; there are 10.0.0.1:80 (alice), 10.0.0.2:80 (bob)",
            ),
        ] {
            assert_eq!(found(what, service), expected, "{what}");
        }
        assert!(found("carol", None).starts_with("no member and no Service is called carol; there are "));
    }

    #[test]
    fn who_is_the_last_is_known() {
        let views = views();
        let pools = Pools::of(&views);
        let without = |what: &str, service| {
            pools.pools_without_usable_members(&pools.find(what, service).expect("it is clear"))
        };
        assert_eq!(without("bob", None), [""; 0]);
        assert_eq!(without("10.0.0.1:80", None), ["default/web"], "the others are down, or have no weight");
        assert_eq!(without("10.0.0.1:80", Some("shop")), [""; 0]);
        assert_eq!(without("default/shop", None), ["default/shop"]);
        assert_eq!(without("10.0.0.3:80", None), [""; 0], "it serves nobody now");
        assert_eq!(
            pools.addresses(&pools.find("default/shop", None).expect("clear")),
            ["10.0.0.1:80", "10.0.0.2:80"]
        );
    }
}
