//! Whether what came back is what was recorded.

use std::fmt::Write;

use super::script::{Part, Script, Step};

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
