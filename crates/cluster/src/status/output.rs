//! What a Service should say of itself, folded from its Status and from what it says; pure.

use std::{collections::BTreeSet, fmt, net::IpAddr};

use seaway_model::{Name, ObjectRef, Problem, Reason, Status, outcome::Shown};
use serde_json::{Value, json};

use crate::{
    look::ServiceSight,
    seen::{Condition, Ingress, Published},
};

/// Of our conditions.
pub(crate) const PREFIX: &str = "seaway.dev/";
const READY: &str = "seaway.dev/Ready";
const PROBLEMS: &str = "seaway.dev/Problems";
/// With `VIP`, the API's default, kube-proxy on every node takes the address over before our socket sees it.
const PROXY: &str = "Proxy";
const VIP: &str = "VIP";
/// A condition's message may have 32768.
const LONGEST: usize = 16 << 10;

/// Addresses and conditions, without the moments since when they are so.
#[derive(Clone, Debug, PartialEq)]
pub struct Output {
    /// Nothing: they are somebody else's.
    ingress: Option<Vec<Ingress>>,
    conditions: Vec<Condition>,
}

/// What an event says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    pub(super) warning: bool,
    pub(super) reason: Name,
    pub(super) text: String,
}

impl fmt::Display for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ips: Vec<&str> = self.ingress.iter().flatten().map(|it| it.at.as_str()).collect();
        write!(f, "addresses [{}]", ips.join(", "))?;
        for it in &self.conditions {
            write!(f, ", {} {}", it.kind.trim_start_matches(PREFIX), it.reason)?;
        }
        Ok(())
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.text)
    }
}

/// What a Service is told where somebody else writes its addresses.
pub(crate) fn rivalry(object: ObjectRef, published: &Published) -> Option<Problem> {
    let other = published.rival()?;
    let message = format!("{other} writes the status of this Service, too; it is left to it");
    let problem = Problem::new(object, Reason::OtherController, message);
    Some(problem.fix(
        "Give the Service a loadBalancerClass that only one of the two serves; or, if the other is gone, take what it \
         wrote away: kubectl patch service NAME --subresource=status --type=merge -p '{\"status\":{\"loadBalancer\":null}}'.",
    ))
}

/// What was written says nothing of `ipMode`: the API server dropped what it does not know.
pub(super) fn lacks_the_mode(status: &Status, published: &Published) -> bool {
    let lost = |it: &Ingress| it.mode.is_none() && it.is_address();
    status.shown == Shown::Proxy
        && published.ours
        && published.rival().is_none()
        && published.ingress.iter().any(lost)
}

impl Output {
    pub(super) fn of(status: &Status, published: &Published) -> Output {
        let served = |ip: &&IpAddr| status.serving.iter().any(|it| it.ip == **ip);
        let said = |it: &Ingress| published.ours && published.says(&it.at);
        let told = status.addresses.iter().map(|ip| (ip, shown(&status.shown, *ip)));
        let mut ingress: Vec<Ingress> =
            told.filter(|(ip, it)| served(ip) || said(it)).map(|(_, it)| it).collect();
        ingress.dedup();
        if status.addresses.is_empty() && published.ours {
            // Nobody has asked yet what it answers on.
            ingress.extend(published.ingress.iter().filter(|it| is_shown(&status.shown, it)).cloned());
        }
        let mut conditions = vec![ready(status)];
        conditions.extend(problems(&status.problems));
        let is_left = published.rival().is_some() || published.is_anothers() && !status.takes_over;
        Output { ingress: (!is_left).then_some(ingress), conditions }
    }

    /// Nothing of ours.
    pub(super) fn none(published: &Published) -> Output {
        Output { ingress: published.rival().is_none().then(Vec::new), conditions: Vec::new() }
    }

    /// Nothing would be another if it were written.
    pub(super) fn is_said_by(&self, published: &Published) -> bool {
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
                    said.is(&wanted.at) && (said.mode.is_none() || said.mode == wanted.mode)
                };
                wanted.len() == published.ingress.len() && wanted.iter().zip(&published.ingress).all(same)
            })
    }

    /// One for each thing that is another: addresses that came and went, Problems that came.
    pub(super) fn notes(&self, published: &Published) -> Vec<Note> {
        let mut notes = Vec::new();
        let mut tell = |warning, reason: &str, text: String| {
            notes.push(Note { warning, reason: reason.into(), text });
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
        let told: BTreeSet<&str> = lines(&published.conditions).collect();
        for line in lines(&self.conditions).filter(|line| !told.contains(line)) {
            let (reason, text) = line.split_once(": ").unwrap_or(("Failed", line));
            tell(true, reason, text.to_owned());
        }
        notes
    }

    /// What is applied. A condition that says the same as before says it since then.
    pub(super) fn body(&self, object: &ObjectRef, uid: &str, before: &Published, now: &str) -> Value {
        let conditions: Vec<Value> = (self.conditions.iter())
            .map(|it| {
                let same =
                    before.conditions.iter().find(|old| old.kind == it.kind && old.status == it.status);
                json!({
                    "type": it.kind,
                    "status": if it.status { "True" } else { "False" },
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

impl Published {
    /// For people.
    pub(crate) fn sight(&self, namespace: Name, name: Name) -> ServiceSight {
        let ready = self.conditions.iter().find(|it| *it.kind == *READY);
        ServiceSight {
            namespace,
            name,
            addresses: self.ingress.iter().map(|it| it.at.clone()).collect(),
            ready: ready.map(|it| (it.status, it.reason.clone(), it.message.clone())),
            problems: lines(&self.conditions).map(str::to_owned).collect(),
        }
    }

    /// Another controller gave it addresses, and we said nothing of it yet.
    fn is_anothers(&self) -> bool {
        !self.ours && self.other.is_some() && !self.ingress.is_empty()
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

    fn body(&self) -> Value {
        match (&self.mode, self.is_address()) {
            (Some(mode), true) => json!({ "ip": self.at, "ipMode": mode }),
            (None, true) => json!({ "ip": self.at }),
            (_, false) => json!({ "hostname": self.at }),
        }
    }
}

fn shown(how: &Shown, ip: IpAddr) -> Ingress {
    let (at, mode) = match how {
        Shown::Proxy => (ip.to_string(), Some(PROXY)),
        Shown::Vip => (ip.to_string(), Some(VIP)),
        Shown::Name(name) => (name.to_string(), None),
        // Names have no colons.
        Shown::Suffixed(_) if ip.is_ipv6() => (ip.to_string(), Some(PROXY)),
        Shown::Suffixed(suffix) => (format!("{ip}.{suffix}"), None),
    };
    Ingress { at: at.into(), mode: mode.map(Into::into) }
}

/// Whether it can have been told so.
fn is_shown(how: &Shown, it: &Ingress) -> bool {
    match how {
        Shown::Proxy | Shown::Vip => false,
        Shown::Name(name) => it.at == *name,
        Shown::Suffixed(suffix) => it.at.strip_suffix(&**suffix).is_some_and(|ip| ip.ends_with('.')),
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
        ("NoAddress", "it has no address".to_owned())
    } else if status.serving.is_empty() {
        ("NotServed", "no host serves it".to_owned())
    } else {
        let serving: Vec<String> = status.serving.iter().map(ToString::to_string).collect();
        ("PartlyServed", format!("served at {} alone", serving.join(", ")))
    };
    Condition {
        kind: READY.into(),
        status: status.ready,
        reason: reason.into(),
        message: message.into(),
        since: Name::default(),
    }
}

/// One line for each; there only where there is any.
fn problems(problems: &[Problem]) -> Option<Condition> {
    let first = problems.first()?;
    let mut message = String::new();
    for problem in problems {
        let line = format!("{}: {}", problem.reason, problem.line());
        if message.len() + line.len() > LONGEST {
            break;
        }
        if !message.is_empty() {
            message.push('\n');
        }
        message.push_str(&line);
    }
    Some(Condition {
        kind: PROBLEMS.into(),
        status: true,
        reason: first.reason.as_str().into(),
        message: message.into(),
        since: Name::default(),
    })
}

#[cfg(test)]
mod tests {
    use seaway_model::{Kind, L4, Owner, outcome::Serving};

    use super::*;
    use crate::seen::Version;

    fn object() -> ObjectRef {
        ObjectRef::new(Kind::Service, "default", "shop")
    }

    fn status(addresses: &[&str], serving: &[&str], problems: &[&str]) -> Status {
        let ip = |text: &&str| text.parse().expect("an address");
        Status {
            owner: Owner::Object { object: object(), uid: "u".into() },
            addresses: addresses.iter().map(ip).collect(),
            serving: serving.iter().map(|it| Serving { ip: ip(it), protocol: L4::Tcp, port: 80 }).collect(),
            members: 2,
            ready: addresses.len() == serving.len() && !addresses.is_empty(),
            problems: problems
                .iter()
                .map(|it| Problem::new(object(), Reason::NoEndpoints, *it).fix("mend\nit"))
                .collect(),
            pool: None,
            shown: Shown::default(),
            waits: None,
            takes_over: true,
        }
    }

    /// As it reads once `output` was written.
    fn written(output: &Output, before: &Published) -> Published {
        let body = output.body(&object(), "u", before, "now");
        let node = serde_json::json!({
            "metadata": {
                "name": "shop", "namespace": "default", "uid": "u", "resourceVersion": "2",
                "managedFields": [{"manager": "seaway", "fieldsV1": {"f:status": {}}}],
            },
            "status": body["status"],
        });
        crate::decode::published(&crate::decode::tests::told(&node.to_string()))
    }

    #[test]
    fn an_address_is_published_once_it_is_served_and_stays_when_hosts_vanish() {
        let nothing = Published { uid: "u".into(), ..Published::default() };
        let waiting = Output::of(&status(&["192.0.2.1"], &[], &[]), &nothing);
        assert_eq!(waiting.ingress, Some(vec![]));
        let said = written(&waiting, &nothing);
        assert!(waiting.is_said_by(&said));
        let served = Output::of(&status(&["192.0.2.1"], &["192.0.2.1"], &[]), &said);
        assert!(!served.is_said_by(&said));
        let notes: Vec<String> = served.notes(&said).iter().map(ToString::to_string).collect();
        assert_eq!(notes, ["AddressPublished: reachable at 192.0.2.1"]);
        let said = written(&served, &said);
        assert_eq!(said.ingress, [Ingress { at: "192.0.2.1".into(), mode: Some("Proxy".into()) }]);
        assert!(served.is_said_by(&said) && served.notes(&said).is_empty());
        let vanished = Output::of(&status(&["192.0.2.1"], &[], &[]), &said);
        assert_eq!(vanished.ingress.map(|it| it[0].at.clone()), Some("192.0.2.1".into()));
        assert_eq!((vanished.conditions[0].status, &*vanished.conditions[0].reason), (false, "NotServed"));
        let gone = Output::none(&said);
        assert!(!gone.is_said_by(&said));
        assert_eq!(gone.notes(&said).len(), 1);
        assert!(gone.is_said_by(&written(&gone, &said)));
    }

    #[test]
    fn members_that_come_and_go_are_no_reason_to_write() {
        let nothing = Published { uid: "u".into(), ..Published::default() };
        let mut served = status(&["192.0.2.1"], &["192.0.2.1"], &[]);
        let said = written(&Output::of(&served, &nothing), &nothing);
        served.members += 1;
        assert!(Output::of(&served, &said).is_said_by(&said));
    }

    #[test]
    fn each_problem_is_told_once_and_not_again_after_a_restart() {
        let nothing = Published { uid: "u".into(), ..Published::default() };
        let one = Output::of(&status(&[], &[], &["first"]), &nothing);
        assert_eq!(
            one.notes(&nothing).iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["NoEndpoints: Service default/shop: first mend it"]
        );
        let said = written(&one, &nothing);
        assert!(one.is_said_by(&said), "{said:?}");
        let two = Output::of(&status(&[], &[], &["first", "second"]), &said);
        assert_eq!(two.notes(&said).len(), 1);
        let none = Output::of(&status(&[], &[], &[]), &written(&two, &said));
        assert_eq!(none.conditions.len(), 1);
        assert_eq!(none.notes(&written(&two, &said)), []);
    }

    #[test]
    fn what_others_wrote_first_is_taken_over_and_what_they_write_after_us_is_left_to_them() {
        let metallb = Published {
            address: None,
            uid: "u".into(),
            version: Version("1".into()),
            ingress: vec![Ingress { at: "192.0.2.1".into(), mode: Some("VIP".into()) }],
            conditions: Vec::new(),
            ours: false,
            held: false,
            other: Some("metallb".into()),
        };
        let wanted = status(&["192.0.2.1"], &["192.0.2.1"], &[]);
        let taken = Output::of(&wanted, &metallb);
        assert!(!taken.is_said_by(&metallb), "a VIP is made a Proxy");
        assert_eq!(taken.ingress.as_ref().map(Vec::len), Some(1));
        assert!(Output::none(&metallb).is_said_by(&metallb), "what we never wrote is not ours to clear");
        let asked = Status { takes_over: false, ..wanted.clone() };
        assert_eq!(Output::of(&asked, &metallb).ingress, None, "not without a word");
        let fought = Published { ours: true, ..metallb };
        assert_eq!(fought.rival().map(|it| &**it), Some("metallb"));
        assert_eq!(Output::of(&wanted, &fought).ingress, None);
    }

    #[test]
    fn a_cluster_that_knows_no_mode_is_not_written_to_for_ever_and_is_told() {
        let nothing = Published { uid: "u".into(), ..Published::default() };
        let wanted = Output::of(&status(&["192.0.2.1"], &["192.0.2.1"], &[]), &nothing);
        let mut said = written(&wanted, &nothing);
        assert!(!lacks_the_mode(&status(&[], &[], &[]), &said));
        // As an API server before 1.29 reads back what it was sent.
        said.ingress[0].mode = None;
        assert!(lacks_the_mode(&status(&[], &[], &[]), &said));
        assert!(wanted.is_said_by(&said), "it would be dropped again");
        let others = Published { ours: false, ..said };
        assert!(
            !lacks_the_mode(&status(&[], &[], &[]), &others),
            "what somebody else wrote is no complaint of ours"
        );
    }

    #[test]
    fn an_address_is_told_as_the_service_wants_it_and_stays_so_while_nobody_has_asked() {
        let nothing = Published { uid: "u".into(), ..Published::default() };
        let suffix = || Shown::Suffixed("nip.io".into());
        for (how, told) in [
            (Shown::Proxy, r#"[{"ip":"192.0.2.1","ipMode":"Proxy"}]"#),
            (Shown::Vip, r#"[{"ip":"192.0.2.1","ipMode":"VIP"}]"#),
            (Shown::Name("shop.example".into()), r#"[{"hostname":"shop.example"}]"#),
            (suffix(), r#"[{"hostname":"192.0.2.1.nip.io"}]"#),
        ] {
            let mut wanted = status(&["192.0.2.1"], &["192.0.2.1"], &[]);
            wanted.shown = how.clone();
            let output = Output::of(&wanted, &nothing);
            let body = output.body(&object(), "u", &nothing, "now");
            assert_eq!(body["status"]["loadBalancer"]["ingress"].to_string(), told);
            let said = written(&output, &nothing);
            assert!(output.is_said_by(&said), "{how:?}");
            if !matches!(how, Shown::Proxy | Shown::Vip) {
                let restarted = Status { addresses: Vec::new(), serving: Vec::new(), ..wanted.clone() };
                let kept = Output::of(&restarted, &said).ingress;
                assert_eq!(kept.map(|it| it.len()), Some(1), "{how:?}");
            }
            // And from one to another.
            let other = Status { shown: Shown::Name("other.example".into()), ..wanted };
            assert!(!Output::of(&other, &said).is_said_by(&said));
        }
        let mut vip = status(&["192.0.2.1"], &["192.0.2.1"], &[]);
        vip.shown = Shown::Vip;
        let mut said = written(&Output::of(&vip, &nothing), &nothing);
        said.ingress[0].mode = None;
        assert!(!lacks_the_mode(&vip, &said), "it is the API's default");
    }

    #[test]
    fn a_condition_that_stays_keeps_its_moment() {
        let nothing = Published { uid: "u".into(), ..Published::default() };
        let first = Output::of(&status(&["192.0.2.1"], &[], &[]), &nothing);
        let said = written(&first, &nothing);
        let body = first.body(&object(), "u", &said, "later");
        assert_eq!(body["status"]["conditions"][0]["lastTransitionTime"], "now");
        let served = Output::of(&status(&["192.0.2.1"], &["192.0.2.1"], &[]), &said);
        let body = served.body(&object(), "u", &said, "later");
        assert_eq!(body["status"]["conditions"][0]["lastTransitionTime"], "later");
    }
}
