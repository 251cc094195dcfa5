//! What a source has told so far, as a World would know it.

use std::collections::BTreeMap;

use seaway_model::{
    Change, Fact, Kind, ObjectRef, Problem,
    fact::{FactRef, Service},
};

#[derive(Debug, Default)]
pub struct Told {
    pub facts: BTreeMap<FactRef, Fact>,
    pub problems: BTreeMap<ObjectRef, Vec<Problem>>,
    pub gone: Vec<FactRef>,
    pub synced: Vec<Kind>,
    /// Objects that somebody else wrote over.
    pub overwritten: Vec<ObjectRef>,
    /// How often something came or changed.
    pub puts: usize,
}

impl Told {
    /// # Panics
    /// At what no source may say: that nothing is gone or mended, that a kind is told twice, what only we decide.
    pub fn learn(&mut self, change: Change) {
        match change {
            Change::Put(fact) => {
                self.puts += 1;
                self.facts.insert(fact.reference(), fact);
            }
            Change::Gone(reference) | Change::Missing(reference) => {
                let there = self.facts.remove(&reference).is_some();
                assert!(there, "what was never there is gone: {reference:?}");
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
