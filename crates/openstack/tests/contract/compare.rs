//! Whether what came back is what was recorded.

use std::fmt::Write;

use super::script::{Part, Script, Step};

/// Known differences: fields that agents of the real cloud write later than what they belong to, and why that is known.
const LATE: [(&str, &str); 4] = [
    ("operating_status", "a provider's agent reports it after the change has ended"),
    (
        "provisioning_status",
        "`ovn` reports the end of a change more than once, and of a child later than of its load balancer",
    ),
    ("status", "an agent binds a port, or starts a server, after the change has ended"),
    ("updated_at", "it is written with the states above"),
];
/// Known difference of what a change answers.
pub(crate) const ENDED: &str = "provisioning_status is ACTIVE already: `ovn` may end a change before its answer is read from the database";

/// Known differences: states that pass by on the way to another, though they lead elsewhere.
const PASSING: [(&str, &str, &str); 1] =
    [("ACTIVE", "404", "what `ovn` deletes shows as ACTIVE for a moment")];

/// What differs, for a reader; nothing, if nothing does.
pub(crate) fn differences(recorded: &Script, played: &Script) -> String {
    let mut text = String::new();
    let (before, now) = (steps(recorded).count(), steps(played).count());
    if before != now {
        _ = writeln!(text, "\n{}: {before} steps were recorded, and {now} were played", recorded.name);
    }
    for (before, now) in steps(recorded).zip(steps(played)) {
        if agree(before, now) {
            continue;
        }
        _ = writeln!(text, "\n{}:", recorded.name);
        for line in &now.sent {
            _ = writeln!(text, "  > {line}");
        }
        for line in &before.recorded {
            let mark = if now.recorded.contains(line) { " " } else { "-" };
            _ = writeln!(text, "{mark} < {line}");
        }
        for line in now.recorded.iter().filter(|it| !before.recorded.contains(it)) {
            _ = writeln!(text, "+ < {line}");
        }
    }
    text
}

pub(crate) fn steps(script: &Script) -> impl Iterator<Item = &Step> {
    script.parts.iter().filter_map(|it| if let Part::Step(step) = it { Some(&**step) } else { None })
}

fn agree(before: &Step, now: &Step) -> bool {
    if before.until.is_none() {
        return before.recorded == now.recorded;
    }
    let (Some(before), Some(now)) = (before.recorded.first(), now.recorded.first()) else { return false };
    let before: Vec<&str> = before.split(' ').collect();
    let now: Vec<&str> = now.split(' ').collect();
    let mut rest = before.iter();
    before.last() == now.last() && now.iter().all(|state| rest.any(|it| it == state))
}

/// Why a state is known to pass by on the way to that which is wanted, if it is.
pub(crate) fn passing(state: &str, wanted: &str) -> Option<&'static str> {
    PASSING.iter().find(|(passes, to, _)| (*passes, *to) == (state, wanted)).map(|(.., why)| *why)
}

/// Whether an answer differs in this alone, that what was pending in the recorded one has ended.
pub(crate) fn has_ended(recorded: &[String], told: &[String]) -> bool {
    const FIELD: &str = "provisioning_status";
    let (recorded, told) = (bare(recorded), bare(told));
    let is_so = |(was, is): (&str, &str)| was == is || was.starts_with("\"PENDING_") && is == "\"ACTIVE\"";
    let (before, now) = (values(&recorded, FIELD), values(&told, FIELD));
    recorded != told
        && without(&recorded, FIELD) == without(&told, FIELD)
        && before.len() == now.len()
        && before.into_iter().zip(now).all(is_so)
}

fn bare(lines: &[String]) -> String {
    lines.iter().flat_map(|line| line.chars()).filter(|it| !it.is_whitespace()).collect()
}

/// Which field alone differs, and why that is known, if it is one that comes late. Where it stands in the text does not count.
pub(crate) fn late(recorded: &[String], told: &[String]) -> Option<String> {
    let (recorded, told) = (bare(recorded), bare(told));
    if recorded.is_empty() || recorded == told {
        return None;
    }
    let (mut before, mut now, mut known) = (recorded, told, Vec::new());
    for (field, why) in LATE {
        let (other_before, other_now) = (without(&before, field), without(&now, field));
        if values(&before, field) != values(&now, field) {
            let (was, is) = (values(&before, field).join(" "), values(&now, field).join(" "));
            known.push(format!("{field} is {is}, and {was} is waited for: {why}"));
        }
        (before, now) = (other_before, other_now);
    }
    (before == now).then(|| known.join("; "))
}

/// The values of a field, in a text without blanks: `"field":VALUE`, or `/place/field:VALUE` where only a place is told.
fn values<'t>(text: &'t str, field: &str) -> Vec<&'t str> {
    places(text, field).into_iter().map(|(from, to)| &text[from..to]).collect()
}

fn without(text: &str, field: &str) -> String {
    let mut rest = text.to_owned();
    for (from, to) in places(text, field).into_iter().rev() {
        rest.replace_range(from..to, "");
    }
    rest
}

fn places(text: &str, field: &str) -> Vec<(usize, usize)> {
    let names = [format!("\"{field}\":"), format!("/{field}:")];
    let mut places: Vec<(usize, usize)> = names
        .iter()
        .flat_map(|name| text.match_indices(name.as_str()).map(|(at, _)| at + name.len()))
        .filter_map(|from| {
            let rest = &text[from..];
            let end = match rest.strip_prefix('"') {
                Some(word) => word.find('"')? + 2,
                None => rest.starts_with("null").then_some(4)?,
            };
            Some((from, from + end))
        })
        .collect();
    places.sort_unstable();
    places
}

#[cfg(test)]
mod tests {
    use super::{has_ended, late};

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(str::to_owned).collect()
    }

    #[test]
    fn an_answer_may_tell_the_end_of_what_was_pending_and_nothing_else() {
        let of =
            |state: &str| lines(&format!("200\n{{\"name\": \"a\", \"provisioning_status\": \"{state}\"}}"));
        assert!(has_ended(&of("PENDING_UPDATE"), &of("ACTIVE")));
        assert!(!has_ended(&of("PENDING_UPDATE"), &of("ERROR")));
        assert!(!has_ended(&of("ACTIVE"), &of("PENDING_UPDATE")));
        assert!(!has_ended(&of("ACTIVE"), &of("ACTIVE")), "it is the same");
        assert!(!has_ended(&of("PENDING_UPDATE"), &lines("409 Immutable")));
    }

    #[test]
    fn only_a_state_that_comes_late_is_looked_at_again() {
        let before = lines("200\n{\n  \"name\": \"a\", \"operating_status\": \"ONLINE\"\n}");
        let now = lines("200\n{\"name\": \"a\", \"operating_status\": \"OFFLINE\"}");
        let told = late(&before, &now).expect("it is known");
        assert!(
            told.starts_with("operating_status is \"OFFLINE\", and \"ONLINE\" is waited for: "),
            "{told}"
        );
        let place = late(
            &lines("200\n/pool/operating_status: \"ONLINE\""),
            &lines("200\n/pool/operating_status: \"OFFLINE\""),
        );
        assert!(place.is_some());
        for other in [
            "200\n{\"name\": \"b\", \"operating_status\": \"OFFLINE\"}",
            "404 NotFound\n{\"name\": \"a\", \"operating_status\": \"OFFLINE\"}",
            "200\n{\"name\": \"a\"}",
            "200\n{\"name\": \"a\", \"operating_status\": \"ONLINE\"}",
        ] {
            assert_eq!(late(&before, &lines(other)), None, "{other}");
        }
        assert_eq!(late(&[], &now), None, "nothing was recorded");
    }
}
