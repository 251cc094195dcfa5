//! Certificates and authorities that HAProxy cannot read: one of them would keep it from reading its whole configuration, so they are
//! left out, and told.

use std::{collections::BTreeMap, sync::Arc};

use seaway_haproxy::{Exclusions, authorities};
use seaway_model::{Listener, Name, ObjectRef, Owner, Problem, load_balancer::Certificate};

use super::Parts;
use crate::native::bad_certificate;

/// Which certificates HAProxy would refuse, and with them its whole configuration. Each is looked at once.
#[derive(Default)]
pub(super) struct Certificates {
    known: BTreeMap<ObjectRef, (Arc<Certificate>, Option<Problem>)>,
    /// Of authorities: whether each certificate in the text can be read.
    authorities: BTreeMap<Name, bool>,
}

impl Certificates {
    pub(super) fn check(&mut self, all: &Parts) -> (Exclusions, Vec<(Owner, Problem)>) {
        let before = std::mem::take(&mut self.known);
        let mut problems = Vec::new();
        for load_balancer in all.values() {
            for (object, certificate) in load_balancer.certificates.iter() {
                // Of authorities alone: HAProxy reads them from another file.
                if certificate.chain.is_empty() {
                    continue;
                }
                let problem = match before.get(object).or_else(|| self.known.get(object)) {
                    Some((known, problem)) if Arc::ptr_eq(known, certificate) => problem.clone(),
                    known => {
                        let is_kept = known.is_some_and(|(_, problem)| problem.is_none());
                        let error = seaway_proxy::look_at(certificate).err();
                        error.map(|error| bad_certificate(object, &error, is_kept))
                    }
                };
                if let Some(problem) = &problem {
                    let names = |it: &&Arc<Listener>| {
                        it.tls.as_ref().is_some_and(|tls| tls.objects().into_iter().any(|it| it == object))
                    };
                    let named = load_balancer.listeners.values().filter(names);
                    problems.extend(named.map(|it| (it.owner.clone(), problem.clone())));
                }
                self.known.insert(object.clone(), (certificate.clone(), problem));
            }
        }
        let before = std::mem::take(&mut self.authorities);
        for text in all.values().flat_map(|it| authorities(it)) {
            if !self.authorities.contains_key(text) {
                let look = || seaway_proxy::look_at_authorities(text).is_ok();
                self.authorities.insert(text.clone(), before.get(text).copied().unwrap_or_else(look));
            }
        }
        let certificates = self.known.iter().filter(|(_, it)| it.1.is_some()).map(|it| it.0.clone());
        let authorities = self.authorities.iter().filter(|(_, it)| !**it).map(|it| it.0.clone());
        // Who believes such authorities is told by who makes the document.
        let (certificates, authorities) = (certificates.collect(), authorities.collect());
        (Exclusions { certificates, authorities, ports: None }, problems)
    }
}
