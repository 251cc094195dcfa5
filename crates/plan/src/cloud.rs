//! What a Service asks of a cloud, with what the configuration says where it says nothing.

mod nodes;
mod remarks;

pub(crate) use self::{nodes::cloud_node, remarks::is_told};

use std::collections::{BTreeMap, BTreeSet};

use seaway_model::{
    L4, ListenerId, Name, Problem, Reason,
    config::{CloudDefaults, CloudNetworks, MemberSource},
    fact::FamilyPolicy,
    load_balancer::{
        CheckKind, CloudClientAuth, CloudHeaders, CloudHealthMonitor, CloudHealthMonitorType, CloudOptions,
        CloudTls, CloudTlsOptions, CloudVip, ExplicitOptions, FloatingIpOptions, HealthCheck, Limits,
        NamedLoadBalancer, Protocol, StuckPolicy,
    },
};

use crate::{
    annotations::{CALLED, CHECK, CLIENTS, CONNECTIONS, GIVE_AWAY, NAMED, PerPort, nobody},
    demand::{Demand, DemandPort},
};

const WHICH_CLOUD: &str =
    "Start seaway controller with --cloud-config FILE: the cloud.conf with the credentials for the cloud.";

/// What a Service is told first whose load balancer in a cloud is left as it is.
pub const RELEASED: &str = "no setting chooses the cloud that has its load balancer";
/// The same, of one with a class.
pub const GIVEN_AWAY: &str = "the load balancer in the cloud is left to another controller";

impl Demand {
    /// Whom a cloud leads to: Nodes, unless pods are asked for by name. They stay, whether or not they have pods.
    pub(crate) fn members_from(&self) -> MemberSource {
        match (&self.cloud, self.wishes.members) {
            (Some(_), MemberSource::Auto | MemberSource::Nodes) => MemberSource::EveryNode,
            (_, from) => from,
        }
    }

    /// The health check of members. In a cloud there is none unless the Service or the configuration asks for one.
    pub(crate) fn health_check(&self) -> Option<HealthCheck> {
        let Some((_, usual)) = &self.cloud else { return self.wishes.health.clone() };
        let asked = self.wishes.written.keys().any(|option| option.starts_with("seaway.dev/health-check"));
        match self.wishes.cloud.monitor {
            Some(false) => None,
            _ if asked => self.wishes.health.clone(),
            monitor => {
                monitor.unwrap_or(usual.monitor || self.requests_health_monitor()).then(|| self.terms(usual))
            }
        }
    }

    /// With `externalTrafficPolicy: Local`, Nodes are asked whether they have pods, whatever is usual: without that, what
    /// goes to others is lost. Who wants no probes by name has only Nodes with pods as members.
    pub(crate) fn local_check(&self) -> Option<HealthCheck> {
        let (_, usual) = self.cloud.as_ref()?;
        let port = self.service.health_check_node_port.filter(|_| self.service.local_only)?;
        let by_nodes = self.members_from() == MemberSource::EveryNode;
        let otherwise = self.wishes.cloud.monitor == Some(false) || self.wishes.written.contains_key(CHECK);
        let terms = self.health_check().unwrap_or_else(|| self.terms(usual));
        let kind = CheckKind::Http { path: "/healthz".into(), host: None, status: (200, 200), expect: None };
        (by_nodes && !otherwise).then_some(HealthCheck { kind, port: Some(port), ..terms })
    }

    /// Who says how members are probed wants them probed.
    fn requests_health_monitor(&self) -> bool {
        let CloudHealthMonitor { kind, path, codes, .. } = &self.wishes.cloud.probe;
        let is_any = kind.is_some() || path.is_some() || codes.is_some();
        is_any || self.ports.iter().any(|it| self.wishes.cloud.probe_at.of(&it.port).is_some())
    }

    /// A kind of check that is asked for in our own words counts more.
    fn probe(&self, usual: &CloudDefaults) -> CloudHealthMonitor {
        let own = &self.wishes.cloud.probe;
        if self.wishes.written.keys().any(|it| it.starts_with(CHECK)) {
            return CloudHealthMonitor::default();
        }
        let (path, codes) = (own.path.clone().or_else(|| usual.probe.path.clone()), own.codes.clone());
        let of_http = (own.path.is_some() || own.codes.is_some()).then_some(CloudHealthMonitorType::Http);
        let at = |it: &DemandPort| Some((it.id(), self.wishes.cloud.probe_at.of(&it.port)?));
        CloudHealthMonitor {
            kinds: self.ports.iter().filter_map(at).collect(),
            kind: own.kind.or(usual.probe.kind).or(of_http),
            path,
            codes: codes.or_else(|| usual.probe.codes.clone()),
            is_own: own.kind.is_some() || of_http.is_some(),
        }
    }

    fn terms(&self, usual: &CloudDefaults) -> HealthCheck {
        let mut check = usual.check.clone();
        let terms = &self.wishes.cloud.check;
        check.interval = terms.interval.unwrap_or(check.interval);
        check.timeout = terms.timeout.unwrap_or(check.timeout);
        check.rise = terms.rise.unwrap_or(check.rise);
        check.fall = terms.fall.unwrap_or(check.fall);
        check
    }

    /// Nothing, where no cloud is involved.
    pub(crate) fn outside(&self) -> Option<CloudOptions> {
        let (_, usual) = self.cloud.as_ref()?;
        let wishes = &self.wishes.cloud;
        let nothing = CloudNetworks::default();
        let class = wishes.class.as_ref().and_then(|it| usual.classes.get(it)).unwrap_or(&nothing);
        let internal = usual.internal || wishes.internal.or(class.internal).unwrap_or(false);
        let own = &wishes.place;
        // Of what the outside reaches, the class says where it is; of what is internal, the Service.
        let [first, second] = if internal { [own, class] } else { [class, own] };
        let one = |of: fn(&CloudNetworks) -> &Option<Name>, order: [&CloudNetworks; 3]| {
            order.into_iter().find_map(|it| of(it).clone())
        };
        let subnet = one(|it| &it.subnet, [first, second, &usual.place]);
        let floating = [class, own, &usual.place];
        let port = wishes.port.clone();
        let placed = |it: Option<Name>| it.filter(|_| port.is_none());
        Some(CloudOptions {
            ports: self.ports.iter().map(crate::demand::DemandPort::id).collect(),
            families: self.cloud_families(),
            withheld: self.withheld_family(),
            both: self.service.families.policy == FamilyPolicy::Require && self.withheld_family().is_none(),
            beside: Vec::new(),
            opened: self.is_opened(),
            by_nodes: self.members_from() == MemberSource::EveryNode,
            monitored: self.health_check().is_some(),
            internal,
            internal_by_default: internal && wishes.internal != Some(true),
            // Beside a subnet, too: Octavia refuses one that is not in it.
            network: placed(one(|it| &it.network, [first, second, &usual.place])),
            subnet: placed(subnet),
            member_subnet: one(|it| &it.member_subnet, [own, class, &usual.place])
                .or_else(|| usual.place.subnet.clone()),
            requested: self.wishes.requested.first().copied(),
            requested_field: self.wishes.requested_field.clone(),
            explicit: ExplicitOptions { address: self.wishes.requests_explicitly(), ..wishes.explicit },
            floating: FloatingIpOptions {
                network: one(|it| &it.floating_network, floating),
                subnet: floating.into_iter().find_map(|it| it.floating_subnet.clone()),
                keep: wishes.keep_floating,
            },
            flavor: wishes.flavor.clone().or_else(|| usual.flavor.clone()),
            provider: wishes.provider.clone().or_else(|| Some(usual.provider.clone())),
            zone: wishes.zone.clone().or_else(|| usual.zone.clone()),
            timeouts: wishes.timeouts.or(usual.timeouts),
            tls: self.cloud_tls(usual),
            tls_terms: CloudTlsOptions {
                profile: self.wishes.tls.profile.unwrap_or_default(),
                hsts: self.wishes.tls.hsts.filter(|it| *it > 0),
            },
            to_https: self.to_https(),
            passed_over: BTreeMap::new(),
            applies: wishes.apply,
            metrics: wishes.metrics,
            serial: usual.serial,
            rebuild: wishes.rebuild.unwrap_or(usual.rebuild),
            rebuild_by_default: usual.rebuild && wishes.rebuild.is_none(),
            remake: wishes.remake,
            paused: wishes.paused || self.released,
            released: self.released,
            off: self.is_frozen(),
            preview: false,
            port,
            named: self.named(),
            group: self.group(),
            published: Vec::new(),
            unheld: false,
            most_shared: usual.most_shared,
            join: self.join,
            tags: wishes.tags.and(&usual.tags),
            headers: self.headers(),
            probe: self.probe(usual),
            member_tls: wishes.member_tls.clone(),
            clients: self.clients(),
            vip: CloudVip {
                groups: [own, class, &usual.place]
                    .into_iter()
                    .find_map(|it| it.vip_groups.clone())
                    .unwrap_or_default(),
                qos: one(|it| &it.vip_qos, [own, class, &usual.place]),
            },
            pending: StuckPolicy {
                limit: wishes.pending_limit.or(usual.pending.limit),
                rebuild: wishes.rebuild_pending.unwrap_or(usual.pending.rebuild),
            },
        })
    }

    /// A word is one of its namespace.
    fn group(&self) -> Option<Name> {
        let word = self.wishes.cloud.group.as_ref().filter(|_| self.named().is_none())?;
        Some(format!("{}/{word}", self.service.meta.namespace).into())
    }

    /// The id counts more than what one is called.
    fn named(&self) -> Option<NamedLoadBalancer> {
        let wishes = &self.wishes.cloud;
        let by_id = wishes.named.as_ref().map(|it| (it, NAMED, false));
        let (id, option, by_name) = by_id.or_else(|| wishes.called.as_ref().map(|it| (it, CALLED, true)))?;
        Some(NamedLoadBalancer { id: id.clone(), field: self.wishes.field_of(option), by_name })
    }

    /// What is added to requests beside X-Forwarded-For.
    fn headers(&self) -> BTreeMap<ListenerId, CloudHeaders> {
        let wishes = &self.wishes.cloud;
        let of = |it: &DemandPort| {
            let is_asked = |of: &PerPort<bool>| of.at(&it.port) == Some(true);
            let asked = CloudHeaders {
                proto: is_asked(&wishes.forwarded_proto),
                port: is_asked(&wishes.forwarded_port),
            };
            let is_http = self.protocol(&it.port) == Protocol::Http;
            (is_http && asked != CloudHeaders::default()).then(|| (it.id(), asked))
        };
        self.ports.iter().filter_map(of).collect()
    }

    /// Nothing is created or changed for it: load balancers are switched off, or nobody knows where it may be, whether the
    /// outside may reach it, and which clients may connect.
    pub(crate) fn is_frozen(&self) -> bool {
        let Some((_, usual)) = &self.cloud else { return false };
        let are_clients_unclear = self.service.source_ranges.is_empty() && self.wishes.sources == nobody();
        let is_unclear = self.wishes.cloud.unclear || are_clients_unclear;
        !usual.enabled || is_unclear || self.unknown_class(usual).is_some()
    }

    fn unknown_class(&self, usual: &CloudDefaults) -> Option<&Name> {
        self.wishes.cloud.class.as_ref().filter(|it| !usual.classes.contains_key(*it))
    }

    /// A Service that names Secrets of its own is not asked what the configuration says for all.
    pub(super) fn cloud_tls(&self, usual: &CloudDefaults) -> Option<CloudTls> {
        let (tls, own) = (&self.wishes.tls, &self.wishes.cloud.tls_container);
        let usual_one = usual.tls_container.as_ref().filter(|_| tls.secrets.is_empty() && own.says_nothing());
        let of_others = own.others().or_else(|| usual_one.cloned());
        let is_meant = |it: &DemandPort| tls.ports.is_empty() || tls.ports.iter().any(|named| it.is(named));
        let at = |it: &DemandPort| {
            let reference = own.of(&it.port).or_else(|| of_others.clone().filter(|_| is_meant(it)))?;
            (it.port.protocol == L4::Tcp).then(|| (it.id(), reference))
        };
        let references: BTreeMap<ListenerId, Name> = self.ports.iter().filter_map(at).collect();
        let field = match own.says_nothing() {
            false => self.wishes.field_of(crate::annotations::TLS_CONTAINER),
            true => Name::default(),
        };
        let others = self.wishes.cloud.tls_others.clone();
        let is_any = !own.says_nothing() || of_others.is_some();
        let by_default = own.says_nothing() && !self.wishes.cloud.apply;
        is_any.then_some(CloudTls { references, others, field, looked_up: usual.barbican, by_default })
    }

    /// As the Service says, else as is usual in its cloud.
    pub(crate) fn limits(&self) -> Limits {
        let usual = self.cloud.as_ref().and_then(|(_, usual)| usual.connections);
        let usual = usual.filter(|_| !self.wishes.written.contains_key(CONNECTIONS));
        Limits { connections: usual.or(self.wishes.limits.connections), ..self.wishes.limits }
    }

    /// Those of a Secret are of no use there.
    fn clients(&self) -> CloudClientAuth {
        let (cloud, tls) = (&self.wishes.cloud, &self.wishes.tls);
        CloudClientAuth {
            authority: cloud.client_authority.clone(),
            revoked: cloud.client_revoked.clone(),
            optional: tls.clients_optional,
            by_secret: tls.authorities.is_some(),
            unvouched: self.wishes.written.contains_key(CLIENTS) && !tls.clients_optional,
        }
    }

    /// Ports in plaintext whose clients are to be sent to where TLS ends.
    fn to_https(&self) -> BTreeSet<ListenerId> {
        let ends = |it: &&DemandPort| self.ends_tls_anywhere(it);
        if self.wishes.tls.redirect != Some(true) || !self.ports.iter().any(|it| ends(&it)) {
            return BTreeSet::new();
        }
        let open = self.ports.iter().filter(|it| it.port.protocol == L4::Tcp && !ends(it));
        open.map(DemandPort::id).collect()
    }

    /// By a certificate of a Secret, or of the cloud's own store.
    pub(crate) fn ends_tls_anywhere(&self, wanted: &DemandPort) -> bool {
        self.ends_tls(wanted) || self.cloud_ends_tls(wanted.id())
    }

    /// By a certificate of the cloud's own store.
    pub(crate) fn cloud_ends_tls(&self, at: ListenerId) -> bool {
        let usual = self.cloud.as_ref().map(|(_, usual)| usual);
        usual.and_then(|it| self.cloud_tls(it)).is_some_and(|it| it.references.contains_key(&at))
    }

    /// What it asks of clouds, where that cannot be.
    pub(crate) fn told_of_clouds(&mut self) {
        let Some((_, usual)) = self.cloud.clone() else { return };
        let unknown_class = self.unknown_class(&usual).cloned();
        let mut tell = |reason, field: Name, message: String, fix: String| {
            self.problems.push(Problem::new(self.owner.object(), reason, message).at(field).fix(fix));
        };
        if let Some(class) = unknown_class {
            let there: Vec<&str> = usual.classes.keys().map(Name::as_str).collect();
            let field = self.wishes.field_of(crate::annotations::CLOUD_CLASS);
            let fix = match there.is_empty() {
                true => "The configuration of the cloud has no [LoadBalancerClass].".to_owned(),
                false => format!("There are: {}.", there.join(", ")),
            };
            let message = format!(
                "cloud.conf has no class {class:?}; nothing is created or changed in the cloud until this is corrected"
            );
            tell(Reason::BadAnnotation, field, message, fix);
        }
        if usual.internal && self.wishes.cloud.internal == Some(false) {
            let field = self.wishes.field_of(crate::annotations::INTERNAL);
            let message = "the configuration makes all load balancers internal".to_owned();
            tell(
                Reason::Unsupported,
                field,
                message,
                "Ask the administrator who set internal-lb in the file of --cloud-config.".to_owned(),
            );
        }
        self.problems.extend(self.remarks(&usual));
        self.enabled(&usual);
    }

    fn enabled(&mut self, usual: &CloudDefaults) {
        if self.released && !usual.absent {
            let (why, at, fix) = match &self.service.class {
                None => (
                    RELEASED,
                    "defaultDriver".into(),
                    "To have Seaway serve the Service again, set defaultDriver: octavia. To give the load \
                     balancer to another controller, run: kubectl seaway release.",
                ),
                Some(_) => (
                    GIVEN_AWAY,
                    format!("metadata.annotations[{GIVE_AWAY}]"),
                    "To have Seaway serve the Service again, remove the annotation. To have another \
                     controller serve it, change spec.type to NodePort and back to LoadBalancer, which \
                     removes the class (docs/from-occm-back.md).",
                ),
            };
            let message = format!("{why}: Seaway leaves that load balancer as it is");
            self.problems.push(Problem::new(self.owner.object(), Reason::Released, message).at(at).fix(fix));
        }
        if let Some(why) = &usual.refused {
            let message = format!(
                "the configuration of the cloud is refused: {why}; nothing is created, changed or deleted there \
                 until it is corrected"
            );
            let problem = Problem::new(self.owner.object(), Reason::Unsupported, message);
            self.problems.push(
                problem.fix("Correct the file of --cloud-config, at the line that this message names."),
            );
            return;
        }
        let (message, fix) = match (usual.absent, usual.enabled) {
            (true, _) if self.service.leaving => (
                "deletion is pending: no running controller has --cloud-config, so the load balancer in the \
                 cloud cannot be deleted",
                WHICH_CLOUD,
            ),
            (true, _) => (
                "pending: no running controller has --cloud-config, so no load balancer can be created in \
                 the cloud",
                WHICH_CLOUD,
            ),
            (_, true) => return,
            (_, false) => (
                "load balancers are disabled (enabled=false): existing ones stay as they are, and none is created",
                "Set enabled=true in [LoadBalancer] of the file of --cloud-config.",
            ),
        };
        let problem = Problem::new(self.owner.object(), Reason::Unsupported, message);
        self.problems.push(problem.fix(fix));
    }
}
