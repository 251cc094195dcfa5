//! Which subnets a floating IP may come from, in the words of the cloud provider's controller.

use regex::Regex;
use seaway_model::config::FloatingSubnet;
use seaway_openstack::neutron::Subnet;

type IsMeant = Box<dyn Fn(&Subnet) -> bool>;

/// Those that are meant, of those that there are; or why nobody can tell.
pub fn chosen<'s>(wish: &FloatingSubnet, subnets: &'s [Subnet]) -> Result<Vec<&'s Subnet>, String> {
    let is_meant: IsMeant = match wish {
        FloatingSubnet::Id(id) => {
            let id = id.clone();
            Box::new(move |it| it.id.as_str() == id.as_str())
        }
        FloatingSubnet::Named(pattern) => named(pattern)?,
        FloatingSubnet::Tagged(tags) => tagged(tags),
        FloatingSubnet::NamedAndTagged { name, tags } => {
            let (named, tagged) = (named(name)?, tagged(tags));
            Box::new(move |it| named(it) && tagged(it))
        }
    };
    Ok(subnets.iter().filter(|it| is_meant(it)).collect())
}

/// A pattern is one of whole names: what it finds first is all of the name, as the other controller compares.
fn named(pattern: &str) -> Result<IsMeant, String> {
    let (not, pattern) = negated(pattern);
    let regex = match pattern.strip_prefix('~') {
        Some(regex) => Regex::new(regex),
        None => Regex::new(&of_shell(pattern)),
    };
    let regex = regex.map_err(|error| format!("{pattern:?} is not a valid pattern of names: {error}"))?;
    Ok(Box::new(move |it| {
        let is_whole = regex.find(&it.name).is_some_and(|found| found.len() == it.name.len());
        is_whole != not
    }))
}

fn tagged(tags: &str) -> IsMeant {
    let (not, tags) = negated(tags);
    let (all, tags) = tags.strip_prefix('&').map_or((false, tags), |rest| (true, rest));
    let tags: Vec<String> = tags.split(',').map(|it| it.trim().to_owned()).collect();
    Box::new(move |it| {
        let mut has = tags.iter().map(|tag| it.tags.contains(tag));
        let matches = if all { has.all(|has| has) } else { has.any(|has| has) };
        matches != not
    })
}

fn negated(text: &str) -> (bool, &str) {
    text.strip_prefix('!').map_or((false, text), |rest| (true, rest))
}

/// `public-*`, `public-[ab]`, `public-?`, `public-{a,b}`.
fn of_shell(pattern: &str) -> String {
    let mut regex = String::from("^");
    let (mut within, mut depth) = (false, 0_usize);
    for c in pattern.chars() {
        match c {
            '*' if !within => regex.push_str(".*"),
            '?' if !within => regex.push('.'),
            '[' if !within => {
                within = true;
                regex.push('[');
            }
            ']' if within => {
                within = false;
                regex.push(']');
            }
            '{' if !within => {
                depth = depth.saturating_add(1);
                regex.push_str("(?:");
            }
            '}' if !within && depth > 0 => {
                depth = depth.saturating_sub(1);
                regex.push(')');
            }
            ',' if !within && depth > 0 => regex.push('|'),
            '^' | '-' if within => regex.push(c),
            _ => regex.push_str(&regex::escape(c.encode_utf8(&mut [0; 4]))),
        }
    }
    regex.push('$');
    regex
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use seaway_openstack::resource::{Fields, View};

    use super::*;

    fn subnet(name: &str, tags: &[&str]) -> Subnet {
        let tags: BTreeSet<&str> = tags.iter().copied().collect();
        let object = serde_json::json!({
            "id": format!("id-of-{name}"), "name": name, "tags": tags, "network_id": "net", "ip_version": 4,
        });
        Subnet::read(Fields::of(object).expect("an object")).expect("a subnet")
    }

    #[test]
    fn subnets_are_chosen_by_id_name_and_tags() {
        let all = [subnet("public-a", &["x", "y"]), subnet("public-b", &["x"]), subnet("private", &[])];
        let id = |text: &str| FloatingSubnet::Id(text.into());
        let named = |text: &str| FloatingSubnet::Named(text.into());
        let tagged = |text: &str| FloatingSubnet::Tagged(text.into());
        let both =
            |name: &str, tags: &str| FloatingSubnet::NamedAndTagged { name: name.into(), tags: tags.into() };
        for (wish, expected) in [
            (id("id-of-private"), &["private"][..]),
            (id("private"), &[]),
            (named("public-*"), &["public-a", "public-b"]),
            (named("public-?"), &["public-a", "public-b"]),
            (named("public-[b-z]"), &["public-b"]),
            (named("public"), &[]),
            (named("public-{a,c}"), &["public-a"]),
            (named("p{ublic-{a,b},rivate}"), &["public-a", "public-b", "private"]),
            (named("~^p.*a"), &["public-a"]),
            (named("~public-[0-9a-z]"), &["public-a", "public-b"]),
            (named("~public"), &[]),
            (named("!public-*"), &["private"]),
            (named("!~a$"), &["public-a", "public-b", "private"]),
            (named("!~.*a"), &["public-b", "private"]),
            (tagged("y,z"), &["public-a"]),
            (tagged("&x,y"), &["public-a"]),
            (tagged("!x"), &["private"]),
            (tagged("!&x,y"), &["public-b", "private"]),
            (both("public-*", "y"), &["public-a"]),
            (both("!public-a", "x"), &["public-b"]),
            (both("private", "x"), &[]),
        ] {
            let names: Vec<&str> =
                chosen(&wish, &all).expect("a pattern").iter().map(|it| it.name.as_str()).collect();
            assert_eq!(names, expected, "{wish:?}");
        }
        assert!(chosen(&named("~("), &all).is_err());
    }
}
