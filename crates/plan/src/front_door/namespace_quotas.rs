//! Quotas of the front door for each namespace. What is beyond its limit is left out, the youngest objects first, so that
//! one namespace makes neither requests of others slow nor memory short.
//!
//! Counted are matches (for each of their host names) and regular expressions. An object is served whole or not at all.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use seaway_model::{
    Name, Problem, Reason,
    config::TenantLimits,
    load_balancer::{Match, PathMatch, TextMatch},
};

use super::attached_route::{AttachedRoute, RoutePrecedence};

#[derive(Debug, Default)]
pub(super) struct NamespaceQuotas {
    limits: TenantLimits,
    by_namespace: HashMap<Name, NamespaceUsage>,
}

#[derive(Debug, Default)]
struct NamespaceUsage {
    guests: BTreeMap<RoutePrecedence, RouteCost>,
    all: RouteCost,
    beyond: BTreeSet<RoutePrecedence>,
}

/// What of a guest counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RouteCost {
    rules: usize,
    expressions: usize,
    /// Something protects it. Left out, a broader rule of its namespace would serve its requests without that.
    is_guarded: bool,
}

impl RouteCost {
    pub(super) fn of(guest: &AttachedRoute) -> RouteCost {
        let rules = guest.rules.iter();
        let each = rules.map(|rule| RouteCost {
            rules: rule.matches.len().max(1).saturating_mul(rule.hosts.len().max(1)),
            expressions: rule.matches.iter().map(expressions).sum(),
            is_guarded: rule.is_guarded(),
        });
        each.fold(RouteCost::default(), RouteCost::plus)
    }

    fn plus(self, other: RouteCost) -> RouteCost {
        RouteCost {
            rules: self.rules.saturating_add(other.rules),
            expressions: self.expressions.saturating_add(other.expressions),
            is_guarded: self.is_guarded || other.is_guarded,
        }
    }

    fn minus(self, other: RouteCost) -> RouteCost {
        RouteCost {
            rules: self.rules.saturating_sub(other.rules),
            expressions: self.expressions.saturating_sub(other.expressions),
            is_guarded: self.is_guarded,
        }
    }

    fn is_within(self, limits: TenantLimits) -> bool {
        let fits = |count: usize, most: Option<u32>| most.is_none_or(|most| count <= most as usize);
        fits(self.rules, limits.rules) && fits(self.expressions, limits.expressions)
    }
}

/// How many regular expressions it has.
pub(super) fn expressions(asked: &Match) -> usize {
    let texts = asked.headers.iter().chain(&asked.query).map(|(_, text)| matches!(text, TextMatch::Regex(_)));
    let path = matches!(asked.path, Some(PathMatch::Regex(_)));
    texts.chain([path]).filter(|is_expression| *is_expression).count()
}

impl NamespaceQuotas {
    /// Other limits; nobody is told here, as after other changes of the configuration.
    pub(super) fn set_limits(&mut self, limits: TenantLimits) {
        self.limits = limits;
        self.by_namespace.values_mut().for_each(|share| share.beyond = share.left_out(limits));
    }

    /// A guest comes, changes or goes (`None`). Says which guests are left out, or served, other than before.
    pub(super) fn set(
        &mut self,
        rank: &RoutePrecedence,
        weight: Option<RouteCost>,
    ) -> BTreeSet<RoutePrecedence> {
        let share = self.by_namespace.entry(rank.namespace().clone()).or_default();
        let before = match weight {
            Some(weight) => share.guests.insert(rank.clone(), weight),
            None => share.guests.remove(rank),
        };
        share.all = share.all.plus(weight.unwrap_or_default()).minus(before.unwrap_or_default());
        let beyond = match share.all.is_within(self.limits) {
            true => BTreeSet::new(),
            false => share.left_out(self.limits),
        };
        let changed = share.beyond.symmetric_difference(&beyond).cloned().collect();
        share.beyond = beyond;
        if share.guests.is_empty() {
            self.by_namespace.remove(rank.namespace());
        }
        changed
    }

    /// Whether it is left out.
    pub(super) fn is_beyond(&self, rank: &RoutePrecedence) -> bool {
        self.by_namespace.get(rank.namespace()).is_some_and(|share| share.beyond.contains(rank))
    }

    /// How many rules a namespace may have beside those that count.
    pub(super) fn room(&self, namespace: &Name) -> usize {
        let used = self.by_namespace.get(namespace).map_or(0, |share| share.all.rules);
        self.limits.rules.map_or(usize::MAX, |most| (most as usize).saturating_sub(used))
    }

    /// What the owner of a guest that is left out is told.
    pub(super) fn problem(&self, rank: &RoutePrecedence, guest: &AttachedRoute) -> Option<Problem> {
        if !self.is_beyond(rank) {
            return None;
        }
        let all = self.by_namespace.get(rank.namespace())?.all;
        let limit = |count: usize, most: Option<u32>, what: &str| {
            let most = most.filter(|most| count > *most as usize)?;
            Some(format!("{count} {what} (the limit is {most})"))
        };
        let over = [
            limit(all.rules, self.limits.rules, "rules"),
            limit(all.expressions, self.limits.expressions, "regular expressions"),
        ];
        let over: Vec<String> = over.into_iter().flatten().collect();
        let message = format!(
            "namespace {} has {} at the front door: no requests are sent to this object",
            rank.namespace(),
            over.join(" and ")
        );
        let problem = Problem::new(guest.owner.object(), Reason::LimitReached, message);
        Some(problem.fix(
            "Remove rules of this namespace, or have tenants.limits raised in the configuration. Objects with \
             protection are served first, then the oldest.",
        ))
    }
}

impl NamespaceUsage {
    /// What is protected comes first, then the oldest; one that is too large does not keep out a smaller one behind it.
    fn left_out(&self, limits: TenantLimits) -> BTreeSet<RoutePrecedence> {
        let mut all = RouteCost::default();
        let mut beyond = BTreeSet::new();
        let (guarded, open): (Vec<_>, Vec<_>) = self.guests.iter().partition(|(_, it)| it.is_guarded);
        for (rank, weight) in guarded.into_iter().chain(open) {
            let with = all.plus(*weight);
            if with.is_within(limits) {
                all = with;
            } else {
                beyond.insert(rank.clone());
            }
        }
        beyond
    }
}
