//! What differs between two lists of rules: which went, which came, and what numbers they have.

use std::{collections::HashMap, iter, sync::Arc};

use seaway_model::load_balancer::{HostPattern, Rule};

use super::NumberedRule;

#[derive(Debug, Default)]
pub(super) struct RuleChanges {
    /// The new list.
    pub(super) rules: Vec<NumberedRule>,
    pub(super) free: Vec<u32>,
    /// By number: where it is in the new list.
    pub(super) places: Vec<u32>,
    gone: Vec<NumberedRule>,
    fresh: Vec<NumberedRule>,
}

/// What becomes of the paths of one host.
#[derive(Debug, Default)]
pub(super) struct HostChange<'a> {
    pub(super) gone: Vec<&'a NumberedRule>,
    pub(super) fresh: Vec<&'a NumberedRule>,
}

impl RuleChanges {
    pub(super) fn between(before: &[NumberedRule], free: &[u32], rules: &[Arc<Rule>]) -> RuleChanges {
        let same = |(known, now): &(&NumberedRule, &Arc<Rule>)| Arc::ptr_eq(&known.rule, now);
        let head = before.iter().zip(rules).take_while(same).count();
        let ((ahead, old), (_, new)) = (before.split_at(head), rules.split_at(head));
        let tail = old.iter().rev().zip(new.iter().rev()).take_while(same).count();
        let (old, behind) = old.split_at(old.len().saturating_sub(tail));
        let (new, _) = new.split_at(new.len().saturating_sub(tail));

        let mut gone = Vec::new();
        let mut known: HashMap<*const Rule, (usize, &NumberedRule)> = HashMap::with_capacity(old.len());
        for (place, it) in old.iter().enumerate() {
            let twin = known.insert(Arc::as_ptr(&it.rule), (place, it));
            gone.extend(twin.map(|(_, it)| it.clone()));
        }
        // One that stays, but behind another that was behind it, is as good as new: the order decides.
        let mut latest = 0;
        let mut staying: Vec<Option<u32>> = Vec::with_capacity(new.len());
        for rule in new {
            staying.push(match known.remove(&Arc::as_ptr(rule)) {
                Some((place, it)) if place >= latest => {
                    latest = place;
                    Some(it.number)
                }
                Some((_, it)) => {
                    gone.push(it.clone());
                    None
                }
                None => None,
            });
        }
        gone.extend(known.into_values().map(|(_, it)| it.clone()));

        let first_new = before.len().saturating_add(free.len()) as u32;
        let mut free: Vec<u32> = free.iter().copied().chain(gone.iter().map(|it| it.number)).collect();
        let mut unused = first_new..;
        let mut fresh = Vec::new();
        let mut all = Vec::with_capacity(rules.len());
        all.extend_from_slice(ahead);
        for (rule, number) in new.iter().zip(staying) {
            let numbered = |number| NumberedRule { rule: rule.clone(), number };
            all.push(number.map_or_else(
                || {
                    let it = numbered(free.pop().or_else(|| unused.next()).unwrap_or(u32::MAX));
                    fresh.push(it.clone());
                    it
                },
                numbered,
            ));
        }
        all.extend_from_slice(behind);
        let mut places = vec![0; all.len().saturating_add(free.len())];
        for (now, it) in (0..).zip(&all) {
            if let Some(place) = places.get_mut(it.number as usize) {
                *place = now;
            }
        }
        RuleChanges { rules: all, free, places, gone, fresh }
    }

    pub(super) fn by_host(&self) -> HashMap<Option<&HostPattern>, HostChange<'_>> {
        let mut by_host: HashMap<Option<&HostPattern>, HostChange<'_>> = HashMap::new();
        for it in &self.gone {
            hosts(&it.rule).for_each(|host| by_host.entry(host).or_default().gone.push(it));
        }
        for it in &self.fresh {
            hosts(&it.rule).for_each(|host| by_host.entry(host).or_default().fresh.push(it));
        }
        by_host
    }
}

/// Nothing stands for all hosts.
fn hosts(rule: &Rule) -> impl Iterator<Item = Option<&HostPattern>> {
    rule.hosts.iter().map(Some).chain(iter::repeat_n(None, usize::from(rule.hosts.is_empty())))
}
