//! The state of all objects after the changes that a source reported, as a World would have it.

use std::collections::BTreeMap;

use seaway_model::{
    Change, Fact, Kind, Name, ObjectRef, Problem,
    fact::{FactRef, Service},
};

#[derive(Debug, Default)]
pub struct SourceReports {
    pub facts: BTreeMap<FactRef, Fact>,
    pub problems: BTreeMap<ObjectRef, Vec<Problem>>,
    pub gone: Vec<FactRef>,
    /// Hosts that are not heard of any more.
    pub silent: Vec<Name>,
    pub synced: Vec<Kind>,
    /// Objects that somebody else wrote over.
    pub overwritten: Vec<ObjectRef>,
    /// How often something came or changed.
    pub puts: usize,
}

impl SourceReports {
    /// # Panics
    /// At what no source may say: that nothing is gone or mended, that a kind is told twice, what only we decide.
    pub fn learn(&mut self, change: Change) {
        match change {
            Change::Put(fact) => {
                self.puts += 1;
                self.silent.retain(|it| fact.reference() != FactRef::Host(it.clone()));
                self.facts.insert(fact.reference(), fact);
            }
            Change::Gone(reference) | Change::Missing(reference) => {
                let silent = self.silent.len();
                self.silent.retain(|it| reference != FactRef::Host(it.clone()));
                let there = self.facts.remove(&reference).is_some() || self.silent.len() < silent;
                // Of those that were asked for by name it is told that they are not there.
                let is_secret = reference.kind() == Some(Kind::Secret);
                assert!(there || is_secret, "what was never there is gone: {reference:?}");
                self.gone.push(reference);
            }
            Change::Reported(object, problems) if problems.is_empty() => {
                assert!(self.problems.remove(&object).is_some(), "nothing is mended twice: {object}");
            }
            Change::Reported(object, problems) => {
                self.problems.insert(object, problems);
            }
            Change::Synced(kind) => {
                assert!(!self.synced.contains(&kind), "{kind} is told twice");
                self.synced.push(kind);
            }
            Change::HostSilent(host) => {
                let there = self.facts.remove(&FactRef::Host(host.clone())).is_some();
                assert!(there, "what was never there is silent: {host}");
                self.silent.push(host);
            }
            Change::HostUnreported(..) => {}
            Change::SourceRestored => self.synced.clear(),
            Change::NotWatched(kind) => self.synced.retain(|it| *it != kind),
            Change::Overwritten(object) => self.overwritten.push(object),
            other => panic!("no source says {other:?}"),
        }
    }

    pub fn service(&self, namespace: &str, name: &str) -> Option<&Service> {
        let reference = FactRef::Object(ObjectRef::new(Kind::Service, namespace, name));
        match self.facts.get(&reference)? {
            Fact::Service(service) => Some(service),
            _ => None,
        }
    }
}
