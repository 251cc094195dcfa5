//! Writes down what a cloud said.

use std::fmt::Write;

use super::{
    compare::steps,
    script::{Part, Script, Step},
};

pub(crate) fn written(script: &Script) -> String {
    let mut text = String::new();
    for part in &script.parts {
        match part {
            Part::Words(words) => text += words,
            Part::Step(step) => {
                let lines =
                    step.sent.iter().map(|it| (">", it)).chain(step.recorded.iter().map(|it| ("<", it)));
                for (mark, line) in lines {
                    _ = writeln!(text, "{}", format!("{mark} {line}").trim_end());
                }
            }
        }
    }
    text
}

/// Ways that the cloud took before stay in the file besides those that it took now.
pub(crate) fn keep_ways(recorded: &Script, played: &mut Script) {
    let before: Vec<&Step> = steps(recorded).collect();
    let now =
        played.parts.iter_mut().filter_map(|it| if let Part::Step(step) = it { Some(step) } else { None });
    for (before, now) in before.into_iter().zip(now) {
        if let (Some(_), Some(old), Some(new)) =
            (&now.until, before.recorded.first(), now.recorded.first_mut())
            && before.sent == now.sent
        {
            *new = both(old, new);
        }
    }
}

/// A way of which both are shortened ones, if they lead to the same end; else the new one.
fn both(old: &str, new: &str) -> String {
    let mut way: Vec<&str> = old.split(' ').collect();
    let now: Vec<&str> = new.split(' ').collect();
    if way.last() != now.last() {
        return new.to_owned();
    }
    let mut at = 0;
    for state in now {
        at = match way[at..].iter().position(|it| *it == state) {
            Some(further) => at + further + 1,
            None => {
                way.insert(at, state);
                at + 1
            }
        };
    }
    way.join(" ")
}
