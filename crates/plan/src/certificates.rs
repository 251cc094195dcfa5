//! Certificates: what Secrets and files hold, looked into once, for whoever names them.
//!
//! ```text
//!     Secret ─► pem ─► x509 ─► Held { certificate, names, from, until } ─┬─► by name, for a listener
//!     Time ──────────────────────► Age ─► Problem at the Secret          └─► hosts that it does not cover
//! ```
//! One that cannot be read takes nothing away: what the Secret held before goes on. Whether a key is that of its
//! certificate is found out by who uses it.

mod asked;
mod authorities;
pub(crate) mod calendar;
pub(crate) mod passwords;
pub(crate) mod pem;
mod quota;
pub(crate) mod read;
#[cfg(test)]
pub(crate) mod tests;
mod view;
pub(crate) mod x509;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use seaway_model::{
    Kind, Name, ObjectRef, Problem, ProblemDetail, Reason, Time,
    config::{FrontDoorTls, TlsSecrets},
    fact::{Secret, TLS_SECRET},
    load_balancer::{Certificate, HostPattern, TlsByName},
};

use self::{
    passwords::ReadUsers,
    quota::CertificateQuota,
    read::{ObjectContent, USERS, UnreadableKey, read},
    x509::ParsedCertificate,
};
pub use self::{
    read::{CertificateDates, dates, identity},
    view::CertificateCounts,
};

/// So long before the end it is told: a robot renews at a third of ninety days.
const SOON: u64 = 30 * 24 * 3600 * 1000;

/// A new certificate begins by its authority's clock, and the time known here may be a minute old: so much early is no Problem.
const CLOCKS_DIFFER: u64 = 2 * 60 * 1000;

#[derive(Debug, Default)]
pub(crate) struct Certificates {
    known: BTreeMap<ObjectRef, Entry>,
    /// Those for the front door to choose from, the older first.
    by_age: BTreeSet<(Option<Time>, ObjectRef)>,
    /// Those that are in use although their Secret is gone.
    vanished: BTreeSet<ObjectRef>,
    now: Option<Time>,
    /// Which Secrets there are is not known, for nobody needed one so far.
    not_asked: bool,
    /// Each that becomes named is asked for by its name, and one that is not there is told as gone.
    asked_by_name: bool,
    /// Named, asked for, and not there.
    absent: BTreeSet<ObjectRef>,
    room: CertificateQuota,
}

#[derive(Debug)]
struct Entry {
    created: Option<Time>,
    held: Option<Arc<ObjectContent>>,
    broken: Option<Problem>,
    age: Expiry,
}

/// The order in which certificates are shown.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CertificatePriority<'o> {
    /// By the configuration.
    Chosen(usize),
    /// By a guest.
    Named(&'o ObjectRef),
    Aged(Option<Time>, &'o ObjectRef),
    Ordered(&'o ObjectRef),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Expiry {
    #[default]
    Fine,
    Early,
    Soon,
    Over,
}

/// What a change came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CertificateChange {
    /// Another certificate under the same names, or another Problem.
    pub(crate) content: bool,
    /// Which names there are, and so who is asked by which.
    pub(crate) names: bool,
}

impl Certificates {
    /// `named`: somebody names it.
    pub(crate) fn put(&mut self, secret: &Secret, named: bool) -> CertificateChange {
        let object = &secret.object;
        self.absent.remove(object);
        if *secret.kind != *TLS_SECRET
            && !secret.withheld
            && !["tls.crt", "ca.crt", USERS].iter().any(|it| secret.values.contains_key(*it))
        {
            return self.remove(object, named);
        }
        self.vanished.remove(object);
        let before = self.known.remove(object);
        let known = |held| Entry { created: secret.created, held, broken: None, age: Expiry::Fine };
        let held_before = before.as_ref().and_then(|it| it.held.clone());
        let is_kept = held_before.is_some();
        let broken = |(key, why): UnreadableKey| broken(object, key, why, is_kept);
        if secret.withheld && !named {
            self.room.give_back(object);
        }
        let mut known = match read(secret, held_before.as_deref()) {
            // Whoever names it goes on with what it held until its content comes. That of one that is left out does not.
            _ if secret.withheld && named && self.room.leaves_out(object) => {
                Entry { broken: Some(self.room.problem(object)), ..known(held_before) }
            }
            _ if secret.withheld => known(held_before.filter(|_| named)),
            Ok(_) if !self.room.take(secret) => {
                Entry { broken: Some(self.room.problem(object)), ..known(held_before) }
            }
            Ok((held, unread)) => Entry { broken: unread.map(broken), ..known(Some(Arc::new(held))) },
            Err(unread) => Entry { broken: Some(broken(unread)), ..known(held_before) },
        };
        known.age = known.age_at(self.now);
        let changed = CertificateChange {
            content: before
                .as_ref()
                .is_none_or(|it| it.held != known.held || it.broken != known.broken || it.age != known.age),
            names: before.as_ref().map(Entry::place) != Some(known.place()),
        };
        if let Some(before) = before {
            self.by_age.remove(&(before.created, object.clone()));
        }
        if *secret.kind == *TLS_SECRET && known.is_pair() && object.kind == Kind::Secret {
            self.by_age.insert((known.created, object.clone()));
        }
        self.known.insert(object.clone(), known);
        changed
    }

    /// One that somebody names stays in use: without it a listener would close, or ask nobody for a certificate. Users do not:
    /// to delete them is how all of them are locked out.
    pub(crate) fn remove(&mut self, object: &ObjectRef, named: bool) -> CertificateChange {
        let is_news = named && self.absent.insert(object.clone());
        let Some(known) = self.known.get_mut(object) else {
            return CertificateChange { content: is_news, names: false };
        };
        let was_offered = self.by_age.remove(&(known.created, object.clone()));
        if named && known.held.as_ref().is_some_and(|it| it.is_certificate()) {
            // Its authorities stay; its users are locked out.
            if let Some(held) = known.held.as_mut().filter(|it| !it.users.users.0.is_empty()) {
                *held = Arc::new(held.without_users());
            }
            known.broken = Some(vanished(object));
            self.vanished.insert(object.clone());
            return CertificateChange { content: true, names: was_offered };
        }
        self.known.remove(object);
        self.vanished.remove(object);
        self.room.give_back(object);
        CertificateChange { content: true, names: true }
    }

    /// In use although their Secret is gone.
    pub(crate) fn vanished(&self) -> impl Iterator<Item = &ObjectRef> {
        self.vanished.iter()
    }

    /// Tells whose age is another now.
    pub(crate) fn set_time(&mut self, now: Time) -> Vec<ObjectRef> {
        self.now = Some(now);
        let mut changed = Vec::new();
        for (object, known) in &mut self.known {
            let age = known.age_at(Some(now));
            if std::mem::replace(&mut known.age, age) != age {
                changed.push(object.clone());
            }
        }
        changed
    }

    pub(crate) fn held(&self, object: &ObjectRef) -> Option<&Arc<Certificate>> {
        Some(&self.known.get(object)?.held.as_ref()?.certificate)
    }

    /// Those that `seaway.dev/basic-auth` names there.
    pub(crate) fn users(&self, object: &ObjectRef) -> Option<&ReadUsers> {
        Some(&self.known.get(object)?.held.as_ref()?.users)
    }

    /// What the front door shows, in order: what the configuration names, what its guests name, and all others if they
    /// are to be there.
    pub(crate) fn at_front_door<'a, U>(
        &'a self,
        settings: &'a FrontDoorTls,
        named: &'a BTreeMap<ObjectRef, U>,
    ) -> Vec<&'a ObjectRef> {
        let is_ordered = |it: &&ObjectRef| it.kind == Kind::Certificate;
        let chosen = settings.certificates.iter().chain(named.keys().filter(|it| !is_ordered(it)));
        let mut seen: BTreeSet<&ObjectRef> = BTreeSet::new();
        let is_pair = |it: &&ObjectRef| self.known.get(*it).is_some_and(Entry::is_pair);
        let mut wanted: Vec<&ObjectRef> = chosen.filter(is_pair).filter(|it| seen.insert(it)).collect();
        // These are thousands, each once, and all of them pairs.
        let all = self.by_age.iter().map(|(_, it)| it).filter(|_| settings.secrets == TlsSecrets::All);
        wanted.extend(all.filter(|it| !seen.contains(it)));
        // What somebody gave comes first.
        wanted.extend(named.keys().filter(is_ordered).filter(is_pair));
        wanted
    }

    /// Where [`Certificates::at_front_door`] would list it, without listing all; nothing, if it would not.
    pub(crate) fn standing<'o>(
        &self,
        settings: &FrontDoorTls,
        object: &'o ObjectRef,
        named: bool,
    ) -> Option<CertificatePriority<'o>> {
        let known = self.known.get(object).filter(|it| it.is_pair())?;
        if let Some(place) = settings.certificates.iter().position(|it| it == object) {
            return Some(CertificatePriority::Chosen(place));
        }
        let is_there = || self.by_age.contains(&(known.created, object.clone()));
        match named {
            true if object.kind == Kind::Certificate => Some(CertificatePriority::Ordered(object)),
            true => Some(CertificatePriority::Named(object)),
            false if settings.secrets == TlsSecrets::All && is_there() => {
                Some(CertificatePriority::Aged(known.created, object))
            }
            false => None,
        }
    }

    fn first_at_front_door<'a, U>(
        &'a self,
        settings: &'a FrontDoorTls,
        named: &'a BTreeMap<ObjectRef, U>,
    ) -> Option<&'a ObjectRef> {
        let is_pair = |it: &&ObjectRef| self.known.get(*it).is_some_and(Entry::is_pair);
        let oldest = || self.by_age.first().map(|(_, object)| object);
        let is_ordered = |it: &&ObjectRef| it.kind == Kind::Certificate;
        let mut chosen = settings.certificates.iter().chain(named.keys().filter(|it| !is_ordered(it)));
        let given = chosen.find(is_pair).or_else(|| oldest().filter(|_| settings.secrets == TlsSecrets::All));
        given.or_else(|| named.keys().filter(is_ordered).find(is_pair))
    }

    /// It is there, and what it holds is on its way, if somebody names it; or whether it is there will be known soon.
    pub(crate) fn is_withheld(&self, object: &ObjectRef) -> bool {
        let withheld = |it: &Entry| it.held.is_none() && it.broken.is_none();
        self.known.get(object).map_or_else(|| self.not_known_yet(object), withheld)
    }

    pub(crate) fn names_of(&self, object: &ObjectRef) -> &[HostPattern] {
        self.known.get(object).map(Entry::names).unwrap_or_default()
    }

    /// What [`Certificates::by_name`] comes to for the front door now that one of its objects is another: `had` are the
    /// names that it had. Only these, and those it has, are looked at.
    pub(crate) fn rename<U>(
        &self,
        tls: &mut TlsByName,
        (object, had): (&ObjectRef, &[HostPattern]),
        settings: &FrontDoorTls,
        named: &BTreeMap<ObjectRef, U>,
    ) {
        let is_shown = self.standing(settings, object, named.contains_key(object)).is_some();
        let has = if is_shown { self.names_of(object) } else { &[] };
        for name in had.iter().chain(has) {
            let known = tls.by_name.get(name).into_iter().flat_map(|it| it.iter());
            let mut objects: Vec<&ObjectRef> = known.filter(|it| *it != object).collect();
            objects.extend(has.contains(name).then_some(object));
            objects.sort_by_cached_key(|it| self.standing(settings, it, named.contains_key(*it)));
            let objects: Arc<[ObjectRef]> = objects.into_iter().cloned().collect();
            match objects.is_empty() {
                true => tls.by_name.remove(name),
                false => tls.by_name.insert(name.clone(), objects),
            };
        }
        let first = self.first_at_front_door(settings, named);
        let names = first.map(|it| self.names_of(it)).unwrap_or_default();
        let sharing = names.first().and_then(|name| tls.by_name.get(name)).map(|it| it.to_vec());
        tls.default = sharing.unwrap_or_else(|| first.into_iter().cloned().collect());
    }

    pub(crate) fn any_at_front_door<'a>(
        &self,
        settings: &FrontDoorTls,
        named: impl Iterator<Item = &'a ObjectRef>,
    ) -> bool {
        let is_pair = |it: &ObjectRef| self.known.get(it).is_some_and(Entry::is_pair);
        settings.secrets == TlsSecrets::All && !self.by_age.is_empty()
            || settings.certificates.iter().any(is_pair)
            || named.into_iter().any(is_pair)
    }

    /// The first of them is the default, with those of its name that have another kind of key.
    pub(crate) fn by_name(&self, objects: &[&ObjectRef]) -> TlsByName {
        let mut by_name: HashMap<&HostPattern, Vec<ObjectRef>> = HashMap::with_capacity(objects.len());
        let mut default = Vec::new();
        let mut first: Option<&HostPattern> = None;
        for object in objects {
            let names = self.known.get(*object).map(Entry::names).unwrap_or_default();
            for name in names {
                by_name.entry(name).or_default().push((*object).clone());
            }
            if default.is_empty() {
                first = names.first();
            }
            if default.is_empty() || first.is_some_and(|name| names.contains(name)) {
                default.push((*object).clone());
            }
        }
        // Sorted once rather than with every insertion.
        let by_name = by_name.into_iter().map(|(name, objects)| (name.clone(), objects.into())).collect();
        TlsByName { default, by_name, ..TlsByName::default() }
    }

    /// Hosts that none of these certificates is for.
    pub(crate) fn uncovered<'h>(
        &self,
        objects: &[ObjectRef],
        hosts: &'h [HostPattern],
    ) -> Vec<&'h HostPattern> {
        let names: Vec<&HostPattern> =
            objects.iter().filter_map(|it| self.known.get(it)).flat_map(Entry::names).collect();
        if names.is_empty() {
            return Vec::new();
        }
        hosts.iter().filter(|host| !names.iter().any(|name| covers(name, host))).collect()
    }

    /// Of objects that were told.
    pub(crate) fn problems_of(&self, object: &ObjectRef) -> Vec<Problem> {
        self.known.get(object).map(|known| known.problems(object)).unwrap_or_default()
    }

    pub(crate) fn problems(&self) -> impl Iterator<Item = Problem> + '_ {
        self.known.iter().flat_map(|(object, known)| known.problems(object))
    }

    /// What somebody is told who names these Secrets at `field`: what is not there, what is wrong with what is.
    pub(crate) fn problems_at(
        &self,
        object: &ObjectRef,
        field: &Name,
        named: &[ObjectRef],
        hosts: &[HostPattern],
    ) -> Vec<Problem> {
        let mut problems: Vec<Problem> = named.iter().flat_map(|it| self.problems_of(it)).collect();
        let missing = |it: &&ObjectRef| !self.known.contains_key(*it) && !self.not_known_yet(it);
        for missing in named.iter().filter(missing) {
            let what = format!("there is no {missing} with a certificate");
            let fix = "Write the Secret, of type kubernetes.io/tls, with tls.crt and tls.key. Until then TLS clients are refused.";
            let problem = Problem::new(object.clone(), Reason::NoSuchSecret, what).at(field.clone());
            problems.push(problem.about(ProblemDetail::Missing(missing.clone())).fix(fix));
        }
        let uncovered = self.uncovered(named, hosts);
        if !uncovered.is_empty() {
            let hosts: Vec<String> = uncovered.iter().map(ToString::to_string).collect();
            let what = format!("the certificate is not for {}", hosts.join(", "));
            let fix =
                "Clients will not trust it: ask for a certificate with that name, or name another Secret.";
            problems
                .push(Problem::new(object.clone(), Reason::CertificateName, what).at(field.clone()).fix(fix));
        }
        problems
    }
}

impl Entry {
    fn is_pair(&self) -> bool {
        self.seen().is_some()
    }

    /// All by which it is found.
    fn place(&self) -> (Option<Time>, bool, &[HostPattern]) {
        (self.created, self.is_pair(), self.names())
    }

    fn seen(&self) -> Option<&ParsedCertificate> {
        self.held.as_ref()?.seen.as_ref()
    }

    fn names(&self) -> &[HostPattern] {
        self.seen().map_or(&[], |it| &it.names)
    }

    fn age_at(&self, now: Option<Time>) -> Expiry {
        match (now, self.seen()) {
            (Some(now), Some(seen)) if seen.until <= now => Expiry::Over,
            (Some(now), Some(seen)) if seen.from.0 > now.0.saturating_add(CLOCKS_DIFFER) => Expiry::Early,
            (Some(now), Some(seen)) if seen.until.0 <= now.0.saturating_add(SOON) => Expiry::Soon,
            _ => Expiry::Fine,
        }
    }

    fn problems(&self, object: &ObjectRef) -> Vec<Problem> {
        let mut problems: Vec<Problem> = self.broken.iter().cloned().collect();
        let Some(seen) = self.seen() else { return problems };
        let (what, fix) = match self.age {
            Expiry::Fine => return problems,
            // It is renewed in time; who renews it says why that fails.
            Expiry::Soon if object.kind == Kind::Certificate => return problems,
            Expiry::Over => (
                format!("the certificate expired on {}", calendar::day(seen.until)),
                "Renew the certificate. Seaway still serves it, but clients refuse it.",
            ),
            Expiry::Soon => (
                format!("the certificate expires on {}", calendar::day(seen.until)),
                "Renew the certificate, or check why automatic renewal failed.",
            ),
            Expiry::Early => (
                format!("the certificate is not valid before {}", calendar::day(seen.from)),
                "Wait, use another certificate, or set this machine's clock.",
            ),
        };
        problems.push(at(Problem::new(object.clone(), Reason::CertificateExpiry, what), "tls.crt").fix(fix));
        problems
    }
}

/// `*.shop.example` is for one label before its end (RFC 9525, section 6.3); it covers the hosts below a wildcard as
/// far as any certificate can.
pub(crate) fn covers(name: &HostPattern, host: &HostPattern) -> bool {
    match (name, host) {
        (HostPattern::Under(name), HostPattern::Exact(host)) => {
            host.split_once('.').is_some_and(|(_, rest)| *rest == **name)
        }
        (name, host) => name == host,
    }
}

fn vanished(object: &ObjectRef) -> Problem {
    let what = if object.kind == Kind::File { "file" } else { "Secret" };
    let message =
        format!("this {what} was deleted or cannot be read any more; its last content stays in use");
    let problem = Problem::new(object.clone(), Reason::NoSuchSecret, message);
    problem.fix(format!(
        "Create the {what} again, or name another one. Its last content stays in use until no object names this {what}."
    ))
}

fn broken(object: &ObjectRef, key: &str, why: String, is_kept: bool) -> Problem {
    let problem = Problem::new(object.clone(), Reason::BadCertificate, why);
    at(problem, key).fix(Certificate::fix(object, key, is_kept))
}

fn at(problem: Problem, key: &str) -> Problem {
    match problem.object.kind {
        Kind::File => {
            let file = problem.object.name.clone();
            problem.in_file(file, 0, 0)
        }
        Kind::Certificate => problem,
        _ => problem.at(format!("data[{key}]")),
    }
}
