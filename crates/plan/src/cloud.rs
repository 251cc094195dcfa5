//! What a Service asks of a cloud, with what the configuration says where it says nothing.

use seaway_model::{
    Name, Problem, Reason,
    config::{CloudDefaults, CloudPlace, MembersFrom},
    load_balancer::{Floating, HealthCheck, Outside},
};

use crate::demand::Demand;

impl Demand {
    /// Whom a cloud leads to: Nodes, unless pods are asked for by name. They stay, whether or not they have pods.
    pub(crate) fn members_from(&self) -> MembersFrom {
        match (&self.cloud, self.wishes.members) {
            (Some(_), MembersFrom::Auto | MembersFrom::Nodes) => MembersFrom::EveryNode,
            (_, from) => from,
        }
    }

    /// In a cloud, nobody probes unless that is asked for.
    pub(crate) fn check(&self) -> Option<HealthCheck> {
        let Some((_, usual)) = &self.cloud else { return self.wishes.health.clone() };
        let asked = self.wishes.written.keys().any(|option| option.starts_with("seaway.dev/health-check"));
        match self.wishes.cloud.monitor {
            Some(false) => None,
            _ if asked => self.wishes.health.clone(),
            monitor => monitor.unwrap_or(usual.monitor).then(|| {
                let mut check = usual.check.clone();
                let terms = &self.wishes.cloud.check;
                check.interval = terms.interval.unwrap_or(check.interval);
                check.timeout = terms.timeout.unwrap_or(check.timeout);
                check.rise = terms.rise.unwrap_or(check.rise);
                check.fall = terms.fall.unwrap_or(check.fall);
                check
            }),
        }
    }

    /// Nothing, where no cloud is involved.
    pub(crate) fn outside(&self) -> Option<Outside> {
        let (_, usual) = self.cloud.as_ref()?;
        let wishes = &self.wishes.cloud;
        let internal = usual.internal || wishes.internal.unwrap_or(usual.internal);
        let nothing = CloudPlace::default();
        let class = wishes.class.as_ref().and_then(|it| usual.classes.get(it)).unwrap_or(&nothing);
        let own = &wishes.place;
        // Of what the outside reaches, the class says where it is; of what is internal, the Service.
        let [first, second] = if internal { [own, class] } else { [class, own] };
        let one = |of: fn(&CloudPlace) -> &Option<Name>, order: [&CloudPlace; 3]| {
            order.into_iter().find_map(|it| of(it).clone())
        };
        let subnet = one(|it| &it.subnet, [first, second, &usual.place]);
        let floating = [class, own, &usual.place];
        let port = wishes.port.clone();
        let placed = |it: Option<Name>| it.filter(|_| port.is_none());
        Some(Outside {
            ports: self.ports.iter().map(crate::demand::DemandPort::id).collect(),
            internal,
            network: placed(
                one(|it| &it.network, [first, second, &usual.place]).filter(|_| subnet.is_none()),
            ),
            subnet: placed(subnet),
            member_subnet: one(|it| &it.member_subnet, [own, class, &usual.place])
                .or_else(|| usual.place.subnet.clone()),
            requested: self.wishes.requested.first().copied(),
            floating: Floating {
                network: one(|it| &it.floating_network, floating),
                subnet: floating.into_iter().find_map(|it| it.floating_subnet.clone()),
                keep: wishes.keep_floating,
            },
            flavor: wishes.flavor.clone().or_else(|| usual.flavor.clone()),
            provider: wishes.provider.clone().or_else(|| Some(usual.provider.clone())),
            zone: wishes.zone.clone().or_else(|| usual.zone.clone()),
            timeouts: wishes.timeouts,
            port,
        })
    }

    /// What it asks of clouds, where that cannot be.
    pub(crate) fn told_of_clouds(&mut self) {
        let Some((_, usual)) = self.cloud.clone() else { return };
        let mut tell = |reason, field: Name, message: String, fix: String| {
            self.problems.push(Problem::new(self.owner.object(), reason, message).at(field).fix(fix));
        };
        if let Some(class) = self.wishes.cloud.class.as_ref().filter(|it| !usual.classes.contains_key(*it)) {
            let there: Vec<&str> = usual.classes.keys().map(Name::as_str).collect();
            let field = self.wishes.field_of(crate::annotations::CLOUD_CLASS);
            let fix = match there.is_empty() {
                true => "The configuration of the cloud has no [LoadBalancerClass].".to_owned(),
                false => format!("There are: {}.", there.join(", ")),
            };
            tell(Reason::BadAnnotation, field, format!("there is no class {class:?}"), fix);
        }
        if usual.internal && self.wishes.cloud.internal == Some(false) {
            let field = self.wishes.field_of(crate::annotations::INTERNAL);
            let message = "the configuration makes all load balancers internal".to_owned();
            tell(Reason::Unsupported, field, message, "Ask whoever wrote internal-lb there.".to_owned());
        }
        self.enabled(&usual);
    }

    fn enabled(&mut self, usual: &CloudDefaults) {
        if !usual.enabled {
            let message = "load balancers of this cloud are switched off; it stays pending";
            let problem = Problem::new(self.owner.object(), Reason::Unsupported, message);
            self.problems.push(problem.fix("Say enabled=true in [LoadBalancer]."));
        }
    }
}
