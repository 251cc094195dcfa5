//! Requests that a cloud did not answer or refused, and when each is tried again.
//!
//! A service that does not answer is asked by one for all, and more seldom each time: a thousand load balancers that wait
//! for it are no reason to ask it a thousand times.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use seaway_engine::Failure;
use seaway_model::{Owner, Problem, Reason, Unit};
use seaway_openstack::{Class, Error, Retry, Service};

use super::moment::later;

const FIRST: Duration = Duration::from_secs(2);
const LONGEST: Duration = Duration::from_secs(60);

#[derive(Default)]
pub(super) struct ServiceBackoffs(Mutex<HashMap<Service, Last>>);

/// What came of the last try.
struct Last {
    what: &'static str,
    times: u32,
    until: Instant,
    /// Asks for all.
    asks: Option<Who>,
}

/// Who wants something of the cloud, and who hears of it when that cannot be.
#[derive(Clone, Debug)]
pub(super) struct Requester<'a> {
    who: Who,
    owners: Vec<Owner>,
    /// Nothing, if it may be any.
    needs: Option<&'a [Service]>,
}

/// Nothing, where it is asked for all: the audit.
type Who = Option<Unit>;

impl<'a> Requester<'a> {
    pub(super) fn of(unit: &Unit) -> Requester<'a> {
        let owner = match unit {
            Unit::LoadBalancer(_, key) => key.owner().cloned(),
            _ => None,
        };
        Requester { who: Some(unit.clone()), owners: owner.into_iter().collect(), needs: None }
    }

    pub(super) fn audit() -> Requester<'a> {
        Requester { who: None, owners: Vec::new(), needs: None }
    }

    pub(super) fn for_all(unit: &Unit, owners: Vec<Owner>, needs: &'a [Service]) -> Requester<'a> {
        Requester { who: Some(unit.clone()), owners, needs: Some(needs) }
    }

    /// Whatever it needs.
    pub(super) fn of_any(&self) -> Requester<'static> {
        Requester { needs: None, who: self.who.clone(), owners: self.owners.clone() }
    }

    pub(super) fn unit(&self) -> Option<&Unit> {
        self.who.as_ref()
    }
}

impl ServiceBackoffs {
    /// Why nothing is asked now, if that is so. Whoever comes first when it is time again, asks for all.
    pub(super) fn still(&self, now: Instant, asker: &Requester<'_>) -> Option<Failure> {
        let mut still = None;
        let needed = |it: &Service| asker.needs.is_none_or(|needs| needs.contains(it));
        for (service, last) in self.all().iter_mut().filter(|(it, _)| needed(it)) {
            if now >= last.until {
                (last.until, last.asks) = (later(now, pause(last.times)), Some(asker.who.clone()));
            }
            if last.asks.as_ref() != Some(&asker.who) {
                still = Some(told(*service, last.what, last.until.saturating_duration_since(now), asker));
            }
        }
        still
    }

    /// What an error tells of its service; nothing, where only this one request was at fault.
    pub(super) fn note(&self, error: &Error, now: Instant, asker: &Requester<'_>) -> Option<Failure> {
        let service = error.service().unwrap_or(Service::Identity);
        let what = match error.class() {
            Class::Unreachable | Class::CutShort => "cannot be reached",
            Class::Timeout => "does not answer in time",
            Class::Busy => "is too busy",
            Class::Broken => "fails on requests",
            // What nobody knows the outcome of: whoever looks next will see.
            Class::Lost if error.status().is_some() => "fails on requests",
            Class::Lost => "cannot be reached",
            _ => return None,
        };
        let asked = match error.retry() {
            Retry::After(after) => after,
            _ => Duration::ZERO,
        };
        let mut all = self.all();
        let last = all.entry(service).or_insert(Last { what, times: 0, until: now, asks: None });
        if now < last.until && last.asks.as_ref() != Some(&asker.who) {
            // It was under way while another learned the same.
            return Some(told(service, last.what, last.until.saturating_duration_since(now), asker));
        }
        let after = pause(last.times).max(asked);
        *last = Last { what, times: last.times.saturating_add(1), until: later(now, after), asks: None };
        tracing::warn!(unit = ?asker.who, why = %error, retry = ?after, "a service of the cloud is not available");
        Some(told(service, what, after, asker))
    }

    /// It did what it was asked for, and so did whoever lets us in.
    pub(super) fn is_back(&self, service: Service) {
        self.all().retain(|it, _| *it != service && *it != Service::Identity);
    }

    /// All that it asked for was done.
    pub(super) fn is_well(&self, asker: &Requester<'_>) {
        self.all().retain(|_, last| last.asks.as_ref() != Some(&asker.who));
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Service, Last>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn pause(times: u32) -> Duration {
    FIRST.saturating_mul(2_u32.saturating_pow(times)).min(LONGEST)
}

/// In the same words as long as it is the same, so that it is told once.
fn told(service: Service, what: &str, after: Duration, asker: &Requester<'_>) -> Failure {
    let why = format!("{} {what}", service.project());
    if asker.owners.is_empty() {
        return Failure::wait(why, after);
    }
    let message = format!("{why}; existing load balancers stay as they are, and the request is retried");
    let fix =
        "No action needed: Seaway tries again within a minute. If it persists, contact the cloud's operator.";
    let problem = |owner: &Owner| {
        let problem = Problem::new(owner.object(), Reason::Unreachable, message.clone());
        (owner.clone(), problem.fix(fix))
    };
    Failure::Retry { problems: asker.owners.iter().map(problem).collect(), why, after: Some(after) }
}

/// Who can mend it, and when it is tried again.
pub(super) fn failure(error: &Error, asker: &Requester<'_>) -> Failure {
    match error.retry() {
        Retry::After(after) => Failure::wait(error.to_string(), after),
        Retry::WhenChanged if !asker.owners.is_empty() => {
            // With the id of the request it would be another problem at each try; that is for the log.
            tracing::info!(unit = ?asker.who, why = %error, "the request must be corrected");
            let problem = |owner: &Owner| {
                let problem = Problem::new(owner.object(), Reason::Failed, trouble(error));
                (owner.clone(), problem.fix(mending(error)))
            };
            Failure::User(asker.owners.iter().map(problem).collect())
        }
        _ => Failure::retry(error.to_string()),
    }
}

/// The same as long as it is the same: of several lists that are asked for at once, any may be the first to be refused.
fn trouble(error: &Error) -> String {
    let told = error.summary();
    let is_look = *error.class() == Class::Forbidden && told.starts_with("list ");
    if is_look {
        format!("the cloud does not permit Seaway to list objects: {}", error.message())
    } else {
        told
    }
}

fn mending(error: &Error) -> String {
    let usual = match error.class() {
        Class::Quota { .. } => "Ask the cloud's operators for a larger quota, or delete what is not needed.",
        Class::Forbidden => {
            return "Give the user of cloud.conf a role that may do it: member, or load-balancer_member \
                    where Octavia requires it. (openstack role assignment list --names shows its roles.)"
                .to_owned();
        }
        Class::NoAddressLeft => "Name another subnet or network, or free addresses of this one.",
        Class::Unauthorized | Class::Credentials => "Correct [Global] of cloud.conf.",
        _ => "Check that every object that annotations of the Service or cloud.conf name exists.",
    };
    error.fix().map_or_else(|| usual.to_owned(), sentence)
}

/// Of what was the second half of one.
fn sentence(half: &str) -> String {
    let mut letters = half.chars();
    let end = if half.is_empty() || half.ends_with(['.', '!', '?']) { "" } else { "." };
    letters.next().map_or_else(String::new, |it| format!("{}{}{end}", it.to_uppercase(), letters.as_str()))
}
