//! Tags that a user asks for, beside those that tell whose an object is. Pure.
//!
//! Each one that is written here has a second one beside it that says so, and goes when it is not asked for any more. One that
//! was there before, or that another put there, has none, and stays.

use std::collections::BTreeSet;

use seaway_model::{LoadBalancer as Wish, Name, Owner, Problem, Reason, load_balancer::CloudTags};
use seaway_openstack::{neutron::FloatingIp, resource::Edit};

use super::{
    adopted,
    names::KEY,
    shares,
    steps::{Observed, Step},
    vip,
    wanted::{Wanted, WantedFloating},
};

/// Before a tag that was written because a user asked for it.
const WRITTEN: &str = "seaway.dev/tag=";

/// Adds what is asked for to what is made.
pub(super) fn ask(wanted: &mut Wanted, asked: &CloudTags, group: Option<&Name>) {
    let group = group.map(|word| shares::tag(word).into());
    add(&mut wanted.balancer.tags, &asked.balancer.iter().cloned().chain(group).collect());
    for it in wanted.listeners.values_mut() {
        add(&mut it.listener.tags, &asked.listener);
        add(&mut it.pool.tags, &asked.pool);
    }
    wanted.metrics.iter_mut().for_each(|(_, it)| add(&mut it.tags, &asked.listener));
    wanted.floating.iter_mut().for_each(|it| it.tags.clone_from(&asked.floating));
}

fn add(to: &mut Edit<BTreeSet<String>>, asked: &BTreeSet<Name>) {
    if asked.is_empty() {
        return;
    }
    if to.is_left() {
        *to = Edit::To(BTreeSet::new());
    }
    if let Edit::To(tags) = to {
        tags.extend(asked.iter().flat_map(|tag| [tag.to_string(), marker(tag)]));
    }
}

/// Those that are not there because a user asked for them.
pub(super) fn own(tags: &BTreeSet<String>) -> BTreeSet<String> {
    let written = written(tags);
    let is_own =
        |tag: &&String| !tag.starts_with(WRITTEN) && !written.contains(tag.as_str()) && !vip::is_mark(tag);
    tags.iter().filter(is_own).cloned().collect()
}

/// What is there, with what is asked for and without what was written and is not asked for any more. `wish`: as it would be made.
pub(super) fn merged(there: &BTreeSet<String>, wish: &Edit<BTreeSet<String>>) -> BTreeSet<String> {
    let nothing = BTreeSet::new();
    let wish = match wish {
        Edit::To(tags) => tags,
        Edit::Leave => &nothing,
    };
    with(there, &written(wish))
}

fn with(there: &BTreeSet<String>, asked: &BTreeSet<&str>) -> BTreeSet<String> {
    let mut tags = there.clone();
    for tag in written(there).into_iter().filter(|it| !asked.contains(it)) {
        tags.remove(tag);
        tags.remove(&marker(tag));
    }
    for tag in asked.iter().filter(|it| !there.contains(**it)) {
        tags.extend([(*tag).to_owned(), marker(tag)]);
    }
    tags
}

/// Of a listener or a pool: its other tags stay as `change` has them. Whose a listener is, is written with them: who reads it
/// later takes what is tagged and has no key for another's.
pub(super) fn keep(
    change: &mut Edit<BTreeSet<String>>,
    wish: &Edit<BTreeSet<String>>,
    there: &BTreeSet<String>,
) {
    let before = match &*change {
        Edit::To(tags) => tags.clone(),
        Edit::Leave => there.clone(),
    };
    let mut tags = merged(&before, wish);
    if tags == before {
        return;
    }
    if let Edit::To(wish) = wish {
        adopted::mark(&mut tags, wish, there);
    }
    *change = Edit::To(tags);
}

/// What is to be done about the floating IP that leads there, or will once those steps are done. One that was not made for this
/// load balancer stays as it is.
pub(super) fn of_floating(
    wish: &WantedFloating,
    there: Option<&FloatingIp>,
    is_another: bool,
) -> Option<Step> {
    let is_due = match there.filter(|_| !is_another) {
        Some(there) => is_ours(wish, there) && floating(wish, there) != there.tags,
        None => !wish.tags.is_empty(),
    };
    is_due.then(|| Step::TagFloating(Box::new(wish.clone())))
}

pub(super) fn is_ours(wish: &WantedFloating, there: &FloatingIp) -> bool {
    there.description == wish.description || wish.formerly.contains(&there.description)
}

/// Its tags as they should be.
pub(super) fn floating(wish: &WantedFloating, there: &FloatingIp) -> BTreeSet<String> {
    with(&there.tags, &wish.tags.iter().map(Name::as_str).collect())
}

/// Where tags are asked for that are not written.
pub(super) fn told(wish: &Wish, observed: &Observed) -> Vec<(Owner, Problem)> {
    let Some(outside) = &wish.options.cloud else { return Vec::new() };
    let mut messages = Vec::new();
    if let (true, Some(balancer), false) =
        (observed.shared.guest, &observed.balancer, outside.tags.balancer.is_empty())
    {
        messages.push(format!(
            "load balancer {} belongs to another Service: the requested tags are not set there",
            balancer.it.id
        ));
    }
    let is_made_here = |it: &FloatingIp| it.description.contains(KEY);
    if let (Some(there), false) = (&observed.floating, outside.tags.floating.is_empty())
        && (observed.shared.guest || !is_made_here(there))
    {
        messages.push(format!(
            "floating IP {} was not created for this Service: the requested tags are not set there",
            there.id
        ));
    }
    let owner = wish.listeners.values().map(|it| &it.owner).min();
    let problem = |owner: &Owner, message: String| {
        let problem = Problem::new(owner.object(), Reason::Unsupported, message);
        (owner.clone(), problem.fix("Set the tags with the openstack client, or remove the annotation."))
    };
    owner.into_iter().flat_map(|owner| messages.iter().cloned().map(move |it| problem(owner, it))).collect()
}

fn written(tags: &BTreeSet<String>) -> BTreeSet<&str> {
    tags.iter().filter_map(|it| it.strip_prefix(WRITTEN)).collect()
}

fn marker(tag: &str) -> String {
    format!("{WRITTEN}{tag}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(tags: &[&str]) -> BTreeSet<String> {
        tags.iter().map(|it| (*it).to_owned()).collect()
    }

    #[test]
    fn what_was_written_goes_when_it_is_not_asked_for_and_what_another_put_there_stays() {
        let there = set(&["seaway.dev/key=u", "by hand", "a", "seaway.dev/tag=a"]);
        for (asked, expected) in [
            (&["a"][..], &["seaway.dev/key=u", "by hand", "a", "seaway.dev/tag=a"][..]),
            (&[], &["seaway.dev/key=u", "by hand"]),
            (&["b"], &["seaway.dev/key=u", "by hand", "b", "seaway.dev/tag=b"]),
            // It was there before anybody asked.
            (&["a", "by hand"], &["seaway.dev/key=u", "by hand", "a", "seaway.dev/tag=a"]),
        ] {
            let mut wish = Edit::To(set(&["seaway.dev/key=u"]));
            add(&mut wish, &asked.iter().map(|it| Name::from(*it)).collect());
            let now = merged(&there, &wish);
            assert_eq!(now, set(expected), "{asked:?}");
            assert_eq!(merged(&now, &wish), now, "twice is once");
        }
        assert_eq!(own(&there), set(&["seaway.dev/key=u", "by hand"]));
        // Somebody took it away.
        let wish = Edit::To(set(&["a", "seaway.dev/tag=a"]));
        assert_eq!(merged(&set(&["seaway.dev/tag=a"]), &wish), set(&["a", "seaway.dev/tag=a"]));
    }
}
