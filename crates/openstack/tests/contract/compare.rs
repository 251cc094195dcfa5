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

/// Known differences of the fake: the script, the place, and why states of that way are not seen there. One that does not differ
/// is a fault as well.
const JUMPS: [(&str, &str, &str); 2] = [
    (
        "nova_server",
        "GET compute /servers/{server}/os-interface/{second}",
        "it detaches an interface at once",
    ),
    (
        "octavia_pool",
        "GET load-balancer /lbaas/pools/{pool}",
        "a change ends with the first request after it",
    ),
];

/// Which of the states on a way whoever looks sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PollFrequency {
    /// As seldom as requests are answered: some of them, and the last.
    Seldom,
    /// As often as there is something new: each of them.
    Always,
}

/// What differs, for a reader; nothing, if nothing does. Steps that only one of them has are told whole.
pub(crate) fn differences(recorded: &Script, played: &Script, looks: PollFrequency) -> String {
    let mut text = String::new();
    let (mut before, mut now) = (steps(recorded), steps(played));
    let mut jumps =
        JUMPS.iter().filter(|(of, ..)| *of == recorded.name && looks == PollFrequency::Always).peekable();
    loop {
        let (sent, was, is) = match (before.next(), now.next()) {
            (Some(before), Some(now)) if agree(before, now, looks) => continue,
            (Some(before), Some(now))
                if before.until.is_some()
                    && agree(before, now, PollFrequency::Seldom)
                    && jumps.next_if(|(_, place, _)| before.sent.iter().any(|it| it == place)).is_some() =>
            {
                continue;
            }
            (Some(before), Some(now)) => (&now.sent, &before.recorded[..], &now.recorded[..]),
            (Some(before), None) => (&before.sent, &before.recorded[..], &[][..]),
            (None, Some(now)) => (&now.sent, &[][..], &now.recorded[..]),
            (None, None) => break,
        };
        _ = writeln!(text, "\n{}:", recorded.name);
        for line in sent {
            _ = writeln!(text, "  > {line}");
        }
        for line in was {
            let mark = if is.contains(line) { " " } else { "-" };
            _ = writeln!(text, "{mark} < {line}");
        }
        for line in is.iter().filter(|it| !was.contains(it)) {
            _ = writeln!(text, "+ < {line}");
        }
    }
    for (script, place, why) in jumps {
        _ = writeln!(text, "\n{script}: {place}: it is known to differ ({why}), and does not");
    }
    text
}

pub(crate) fn steps(script: &Script) -> impl Iterator<Item = &Step> {
    script.parts.iter().filter_map(|it| if let Part::Step(step) = it { Some(&**step) } else { None })
}

fn agree(before: &Step, now: &Step, looks: PollFrequency) -> bool {
    if before.sent != now.sent {
        return false;
    }
    if before.until.is_none() {
        return before.recorded == now.recorded;
    }
    let ([before], [now]) = (&before.recorded[..], &now.recorded[..]) else { return false };
    let (before, now): (Vec<&str>, Vec<&str>) = (before.split(' ').collect(), now.split(' ').collect());
    let wanted = before.last().copied().unwrap_or_default();
    if now.last() != Some(&wanted) {
        return false;
    }
    if looks == PollFrequency::Always {
        let stays = |state: &&&str| passing(state.trim_end_matches('?'), wanted).is_none();
        return before.iter().filter(stays).eq(now.iter().filter(stays));
    }
    let mut rest = before.iter();
    now.iter().all(|state| rest.any(|it| it == state))
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
    use super::{JUMPS, PollFrequency, differences, has_ended, late};
    use crate::script::Script;

    const CREATED: &str = "> POST network /ports\n> {}\n< 201\n< {\"port\": 1}\n";
    const WATCHED: &str = "> GET network /ports/1\n> until /status ACTIVE\n< DOWN? BUILD? ACTIVE\n";
    const GONE: &str = "> GET network /ports/1\n> until gone\n< PENDING_DELETE? ACTIVE? 404\n";

    fn script(text: &[&str]) -> Script {
        Script::parse("ports", &text.concat()).expect("a script")
    }

    fn differ(recorded: &[&str], played: &[&str]) -> String {
        differences(&script(recorded), &script(played), PollFrequency::Seldom)
    }

    #[test]
    fn what_is_as_recorded_does_not_differ() {
        let all = [CREATED, "# words\n", WATCHED, GONE];
        assert_eq!(differ(&all, &[CREATED, WATCHED, "# others\n", GONE]), "");
    }

    #[test]
    fn steps_that_only_one_of_them_has_are_told_wherever_they_are() {
        let last = "> DELETE network /ports/1\n< 204\n";
        let missing = differ(&[CREATED, last], &[CREATED]);
        assert!(missing.contains("  > DELETE network /ports/1\n- < 204\n"), "{missing}");
        let more = differ(&[CREATED], &[CREATED, last]);
        assert!(more.contains("  > DELETE network /ports/1\n+ < 204\n"), "{more}");
        // What comes after a difference is compared all the same.
        let other = differ(&[CREATED, last], &[&CREATED.replace("201", "202"), &last.replace("204", "409")]);
        assert!(other.contains("- < 201\n") && other.contains("+ < 202\n"), "{other}");
        assert!(other.contains("- < 204\n") && other.contains("+ < 409\n"), "{other}");
        let between = differ(&[CREATED, WATCHED, last], &[CREATED, last]);
        assert!(between.contains("> until") || between.contains("DELETE"), "{between}");
    }

    #[test]
    fn a_line_that_is_missing_or_more_is_a_difference() {
        let short = CREATED.replace("< {\"port\": 1}\n", "");
        assert!(differ(&[CREATED], &[&short]).contains("- < {\"port\": 1}"));
        assert!(differ(&[&short], &[CREATED]).contains("+ < {\"port\": 1}"));
    }

    #[test]
    fn whoever_looks_seldom_may_miss_states_but_sees_no_others_nor_another_order_nor_another_end() {
        let way = |states: &str| WATCHED.replace("DOWN? BUILD? ACTIVE", states);
        for fine in ["ACTIVE", "DOWN? ACTIVE", "BUILD? ACTIVE"] {
            assert_eq!(differ(&[WATCHED], &[&way(fine)]), "", "{fine}");
        }
        for wrong in ["BUILD? DOWN? ACTIVE", "ERROR? ACTIVE", "DOWN? BUILD? ERROR", "DOWN?"] {
            assert!(!differ(&[WATCHED], &[&way(wrong)]).is_empty(), "{wrong}");
        }
    }

    #[test]
    fn a_cloud_that_does_nothing_by_chance_goes_through_every_state_but_those_known_to_pass_by() {
        let always = |recorded: &str, played: &str| {
            differences(&script(&[recorded]), &script(&[played]), PollFrequency::Always)
        };
        assert_eq!(always(WATCHED, WATCHED), "");
        assert!(!always(WATCHED, &WATCHED.replace("DOWN? BUILD? ", "")).is_empty(), "it jumps to the end");
        assert_eq!(always(GONE, &GONE.replace("ACTIVE? ", "")), "", "it is known, and why");
        assert_eq!(always(GONE, GONE), "");
    }

    #[test]
    fn what_the_fake_is_known_to_miss_may_differ_in_that_alone_and_is_named_once_it_does_not() {
        let (name, place, why) = JUMPS[0];
        let of = |states: &str| {
            let text = format!("> {place}\n> until status 404\n< {states}\n");
            Script::parse(name, &text).expect("a script")
        };
        let (whole, jump) = (of("200? 404"), of("404"));
        assert_eq!(differences(&whole, &jump, PollFrequency::Always), "");
        assert!(!differences(&whole, &of("500? 404"), PollFrequency::Always).is_empty());
        assert!(differences(&whole, &whole, PollFrequency::Always).contains(why));
    }

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
