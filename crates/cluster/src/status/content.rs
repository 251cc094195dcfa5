//! What a Service should say of itself, folded from its Status and from what it says; pure.

#[cfg(test)]
mod tests;

use std::{collections::BTreeSet, fmt, net::IpAddr};

use seaway_engine::{Effect, Effects};
use seaway_model::{
    AnnouncedCondition, Name, ObjectRef, Problem, Reason, Status,
    announced::{AnnouncedReason, ConditionStatus},
    outcome::{PortStatus, PublishedAs},
};
use serde_json::{Value, json};

use crate::{
    inspect::ServiceInspection,
    object_cache::{Condition, Ingress, Port, PublishedService},
};

/// Of our conditions.
pub(crate) const PREFIX: &str = "seaway.dev/";
const READY: &str = "seaway.dev/Ready";
const PROBLEMS: &str = "seaway.dev/Problems";
const ANNOUNCED: &str = "seaway.dev/Announced";
/// With `VIP`, the API's default, kube-proxy on every node takes the address over before our socket sees it.
const PROXY: &str = "Proxy";
const VIP: &str = "VIP";
/// A condition's message may have 32768.
const LONGEST: usize = 16 << 10;

/// Addresses and conditions, without the moments since when they are so.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusContent {
    /// Nothing: they are somebody else's.
    ingress: Option<Vec<Ingress>>,
    conditions: Vec<Condition>,
}

/// What an event says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventText {
    pub(super) warning: bool,
    pub(super) reason: Name,
    pub(super) text: String,
}

impl fmt::Display for StatusContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ips: Vec<&str> = self.ingress.iter().flatten().map(|it| it.at.as_str()).collect();
        write!(f, "addresses [{}]", ips.join(", "))?;
        for it in &self.conditions {
            write!(f, ", {} {}", it.kind.trim_start_matches(PREFIX), it.reason)?;
        }
        Ok(())
    }
}

impl fmt::Display for EventText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.text)
    }
}

/// What a Service is told where somebody else writes its addresses.
pub(crate) fn rival_problem(object: ObjectRef, published: &PublishedService) -> Option<Problem> {
    let other = published.rival()?;
    let message = format!(
        "{other} also writes the status of this Service; Seaway leaves the status to that controller"
    );
    let problem = Problem::new(object, Reason::OtherController, message);
    Some(problem.fix(
        "Give the Service a loadBalancerClass that only one of the two serves; or, if the other controller \
         is gone, remove what it wrote: kubectl patch service NAME --subresource=status --type=merge -p \
         '{\"status\":{\"loadBalancer\":null}}'.",
    ))
}

/// What was written says nothing of `ipMode`: the API server dropped what it does not know.
pub(super) fn lacks_ip_mode(status: &Status, published: &PublishedService) -> bool {
    let lost = |it: &Ingress| it.mode.is_none() && it.is_address();
    status.shown == PublishedAs::Proxy
        && published.ours
        && published.rival().is_none()
        && published.ingress.iter().any(lost)
}

impl Effects for StatusContent {
    /// Published addresses are what names in DNS are made of; an empty list withdraws them.
    fn effect(&self) -> Effect {
        match &self.ingress {
            _ if self.conditions.is_empty() => Effect::DELETES,
            Some(ingress) if ingress.is_empty() => Effect::DELETES,
            Some(_) => Effect::EXPOSES,
            None => Effect::CHANGES,
        }
    }
}

impl StatusContent {
    pub(super) fn of(status: &Status, published: &PublishedService) -> StatusContent {
        if status.left {
            let is_left = published.ours && published.rival().is_none();
            return StatusContent {
                ingress: is_left.then(|| published.ingress.clone()),
                conditions: Vec::new(),
            };
        }
        let served = |ip: &&IpAddr| status.serving.iter().any(|it| it.ip == **ip);
        let said = |it: &Ingress| published.ours && published.says(&it.at);
        let told = status.addresses.iter().map(|ip| (ip, shown(status, *ip)));
        let mut ingress: Vec<Ingress> =
            told.filter(|(ip, it)| served(ip) || said(it)).map(|(_, it)| it).collect();
        ingress.dedup();
        if status.addresses.is_empty() && published.ours {
            // Nobody has asked yet what it answers on.
            ingress.extend(published.ingress.iter().filter(|it| is_shown(&status.shown, it)).cloned());
        }
        if ingress.is_empty() && status.takes_over && published.is_followed() {
            // To write nothing would leave them to the other for good.
            ingress.clone_from(&published.ingress);
        }
        let mut conditions = vec![ready_or_as_before(status, published)];
        // As [`StatusContent::is_said_by`] compares them: their kinds the other way round.
        conditions.extend(problems(&status.problems));
        conditions.extend(status.announced.as_ref().map(announced));
        let is_left = published.rival().is_some() || published.is_anothers() && !status.takes_over;
        StatusContent { ingress: (!is_left).then_some(ingress), conditions }
    }

    /// Nothing of ours.
    pub(super) fn none(published: &PublishedService) -> StatusContent {
        StatusContent { ingress: published.rival().is_none().then(Vec::new), conditions: Vec::new() }
    }

    /// Nothing would be another if it were written.
    pub(super) fn is_published(&self, published: &PublishedService) -> bool {
        // What we never wrote is not ours to clear.
        if self.conditions.is_empty() && !published.ours {
            return true;
        }
        let same = |(wanted, said): (&Condition, &Condition)| {
            (&wanted.kind, wanted.status, &wanted.reason, &wanted.message)
                == (&said.kind, said.status, &said.reason, &said.message)
        };
        let mut said: Vec<&Condition> = published.conditions.iter().collect();
        said.sort_by(|a, b| b.kind.cmp(&a.kind));
        self.conditions.len() == said.len()
            && self.conditions.iter().zip(said).all(same)
            && self.ingress.as_ref().is_none_or(|wanted| {
                // A mode that is not there was dropped, and would be again.
                let same = |(wanted, said): (&Ingress, &Ingress)| {
                    said.is(&wanted.at)
                        && (said.mode.is_none() || said.mode == wanted.mode)
                        && said.ports == wanted.ports
                };
                wanted.len() == published.ingress.len() && wanted.iter().zip(&published.ingress).all(same)
            })
    }

    /// One for each thing that is another: addresses that came and went, that nothing announces them, Problems that came.
    pub(super) fn events(&self, published: &PublishedService) -> Vec<EventText> {
        let mut notes = Vec::new();
        let mut tell = |warning, reason: &str, text: String| {
            notes.push(EventText { warning, reason: reason.into(), text });
        };
        if let Some(wanted) = &self.ingress {
            let came = wanted.iter().filter(|it| !published.says(&it.at));
            let came: Vec<&str> = came.map(|it| it.at.as_str()).collect();
            let went = published.ingress.iter().filter(|it| !wanted.iter().any(|new| it.is(&new.at)));
            let went: Vec<&str> = went.map(|it| it.at.as_str()).collect();
            if !came.is_empty() {
                tell(false, "AddressPublished", format!("reachable at {}", came.join(", ")));
            }
            if !went.is_empty() {
                tell(false, "AddressWithdrawn", format!("no longer reachable at {}", went.join(", ")));
            }
        }
        let unannounced = |conditions: &[Condition]| {
            let of = conditions.iter().find(|it| *it.kind == *ANNOUNCED);
            // Who wrote `announce: none` needs no advice.
            of.filter(|it| {
                it.status == ConditionStatus::False && *it.reason != *AnnouncedReason::Disabled.as_str()
            })
            .map(|it| (it.reason.clone(), it.message.clone()))
        };
        if let (Some((reason, message)), None) =
            (unannounced(&self.conditions), unannounced(&published.conditions))
        {
            tell(true, &reason, message.to_string());
        }
        let told: BTreeSet<&str> = lines(&published.conditions).collect();
        for line in lines(&self.conditions).filter(|line| !told.contains(line)) {
            let (reason, text) = line.split_once(": ").unwrap_or(("Failed", line));
            tell(true, reason, text.to_owned());
        }
        notes
    }

    /// What is applied. A condition that says the same as before says it since then.
    #[allow(clippy::indexing_slicing, reason = "an object that was made here: a key that it lacks is added")]
    pub(super) fn body(&self, object: &ObjectRef, uid: &str, before: &PublishedService, now: &str) -> Value {
        let conditions: Vec<Value> = (self.conditions.iter())
            .map(|it| {
                let same =
                    before.conditions.iter().find(|old| old.kind == it.kind && old.status == it.status);
                json!({
                    "type": it.kind,
                    "status": it.status.as_str(),
                    "reason": it.reason,
                    "message": it.message,
                    "lastTransitionTime": same.map_or(now, |old| &*old.since),
                })
            })
            .collect();
        let mut status = json!({});
        if let Some(ingress) = self.ingress.as_ref().filter(|it| !it.is_empty()) {
            let ingress: Vec<Value> = ingress.iter().map(Ingress::body).collect();
            status["loadBalancer"] = json!({ "ingress": ingress });
        }
        if !conditions.is_empty() {
            status["conditions"] = conditions.into();
        }
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "name": object.name, "namespace": object.namespace, "uid": uid },
            "status": status,
        })
    }
}

impl PublishedService {
    /// For people.
    pub(crate) fn inspection(&self, namespace: Name, name: Name) -> ServiceInspection {
        let said = |kind: &str| self.conditions.iter().find(|it| *it.kind == *kind);
        let (ready, announced) = (said(READY), said(ANNOUNCED));
        ServiceInspection {
            namespace,
            name,
            ingress: self.ingress.iter().map(|it| it.at.clone()).collect(),
            ready: ready.map(|it| (it.status.is_true(), it.reason.clone(), it.message.clone())),
            announced: announced.map(|it| (it.status, it.reason.clone(), it.message.clone())),
            problems: lines(&self.conditions).map(str::to_owned).collect(),
        }
    }

    /// Another controller gave it addresses, and we said nothing of it yet.
    fn is_anothers(&self) -> bool {
        !self.ours && self.other.is_some() && !self.ingress.is_empty()
    }

    /// What it says is what another controller wrote first.
    fn is_followed(&self) -> bool {
        self.is_anothers() || self.shared
    }

    fn says(&self, at: &str) -> bool {
        self.ingress.iter().any(|it| it.is(at))
    }
}

impl Ingress {
    /// However an address is written.
    fn is(&self, at: &str) -> bool {
        let ip = |text: &str| text.parse::<IpAddr>().ok();
        *self.at == *at || ip(&self.at).is_some() && ip(&self.at) == ip(at)
    }

    fn is_address(&self) -> bool {
        self.at.parse::<IpAddr>().is_ok()
    }

    #[allow(clippy::indexing_slicing, reason = "an object that was made here: a key that it lacks is added")]
    fn body(&self) -> Value {
        let mut body = match (&self.mode, self.is_address()) {
            (Some(mode), true) => json!({ "ip": self.at, "ipMode": mode }),
            (None, true) => json!({ "ip": self.at }),
            (_, false) => json!({ "hostname": self.at }),
        };
        if !self.ports.is_empty() {
            body["ports"] = self.ports.iter().map(Port::body).collect();
        }
        body
    }
}

impl Port {
    fn of(it: &PortStatus) -> Port {
        Port {
            port: it.at.port.into(),
            protocol: it.at.protocol.as_str().into(),
            // Whoever is not Kubernetes itself writes its domain before the word.
            error: it.lacks.map(|why| format!("{PREFIX}{why}").into()),
        }
    }

    fn body(&self) -> Value {
        match &self.error {
            Some(error) => json!({ "port": self.port, "protocol": self.protocol, "error": error }),
            None => json!({ "port": self.port, "protocol": self.protocol }),
        }
    }
}

fn shown(status: &Status, ip: IpAddr) -> Ingress {
    let (at, mode) = match &status.shown {
        PublishedAs::Proxy => (ip.to_string(), Some(PROXY)),
        PublishedAs::Vip => (ip.to_string(), Some(VIP)),
        PublishedAs::Name(name) => (name.to_string(), None),
        // Names have no colons.
        PublishedAs::Suffixed(_) if ip.is_ipv6() => (ip.to_string(), Some(PROXY)),
        PublishedAs::Suffixed(suffix) => (format!("{ip}.{suffix}"), None),
    };
    let shown = Ingress { at: at.into(), mode: mode.map(Into::into), ports: Vec::new() };
    // One name stands for several addresses.
    let ports = status.ports.iter().filter(|it| it.at.ip == ip && shown.is_address());
    Ingress { ports: ports.map(Port::of).collect(), ..shown }
}

/// Whether it can have been told so.
fn is_shown(how: &PublishedAs, it: &Ingress) -> bool {
    match how {
        PublishedAs::Proxy | PublishedAs::Vip => false,
        PublishedAs::Name(name) => it.at == *name,
        PublishedAs::Suffixed(suffix) => it.at.strip_suffix(&**suffix).is_some_and(|ip| ip.ends_with('.')),
    }
}

fn lines(conditions: &[Condition]) -> impl Iterator<Item = &str> {
    conditions.iter().filter(|it| *it.kind == *PROBLEMS).flat_map(|it| it.message.lines())
}

/// Why a Service is not ready that something is being made for.
pub const PENDING: &str = "Pending";

fn ready(status: &Status) -> Condition {
    let (reason, message) = if status.ready {
        // Not how many members: each that comes or goes would be a write.
        ("Served", "served".to_owned())
    } else if let Some(waits) = &status.waits {
        (PENDING, waits.to_string())
    } else if status.addresses.is_empty() {
        ("NoAddress", "the Service has no address".to_owned())
    } else if status.serving.is_empty() {
        ("NotServed", "no host serves the Service".to_owned())
    } else {
        let serving: Vec<String> = status.serving.iter().map(ToString::to_string).collect();
        ("PartlyServed", format!("served only at {}", serving.join(", ")))
    };
    Condition {
        kind: READY.into(),
        status: status.ready.into(),
        reason: reason.into(),
        message: message.into(),
        since: Name::default(),
    }
}

/// After a start, a cloud that does not answer is no reason to take back that a Service is served.
fn ready_or_as_before(status: &Status, published: &PublishedService) -> Condition {
    let said = published.conditions.iter().find(|it| *it.kind == *READY && it.status.is_true());
    match said.filter(|_| status.unreported && published.ours && !status.ready) {
        Some(said) => said.clone(),
        None => ready(status),
    }
}

fn announced(announced: &AnnouncedCondition) -> Condition {
    Condition {
        kind: ANNOUNCED.into(),
        status: announced.status,
        reason: announced.reason.as_str().into(),
        message: announced.message.as_str().into(),
        since: Name::default(),
    }
}

/// One line for each; there only where there is any.
fn problems(problems: &[Problem]) -> Option<Condition> {
    let first = problems.first()?;
    let mut message = String::new();
    for problem in problems {
        let line = format!("{}: {}", problem.reason, problem.line());
        if message.len().saturating_add(line.len()) > LONGEST {
            break;
        }
        if !message.is_empty() {
            message.push('\n');
        }
        message.push_str(&line);
    }
    Some(Condition {
        kind: PROBLEMS.into(),
        status: ConditionStatus::True,
        reason: first.reason.as_str().into(),
        message: message.into(),
        since: Name::default(),
    })
}
