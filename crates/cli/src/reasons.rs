//! `seaway reasons`: what a reason means, for who reads it in an event or an alert.

use std::process::ExitCode;

use anyhow::bail;
use seaway_model::reason::{ALL, ReasonHelp};

use crate::output;

pub(crate) fn run(names: &[String]) -> anyhow::Result<ExitCode> {
    let mut lines = Vec::new();
    if names.is_empty() {
        for (what, _, reasons) in ALL {
            lines.push(format!("{what}:\n"));
            lines.extend(reasons.iter().map(|it| format!("{}\n", told(it))));
        }
    }
    for name in names {
        let found: Vec<&ReasonHelp> = (ALL.iter())
            .flat_map(|(_, _, reasons)| *reasons)
            .filter(|it| it.name.eq_ignore_ascii_case(name))
            .collect();
        if found.is_empty() {
            bail!("no reason is called {name:?}; `seaway reasons` lists them all");
        }
        lines.extend(found.into_iter().map(told));
    }
    output::line(lines.join("\n").trim_end());
    Ok(ExitCode::SUCCESS)
}

fn told(reason: &ReasonHelp) -> String {
    let ReasonHelp { name, meaning, remedy } = reason;
    let meaning = meaning.replace('`', "");
    match remedy.is_empty() {
        true => format!("  {name}\n    {meaning}"),
        false => format!("  {name}\n    {meaning}\n    What to do: {remedy}"),
    }
}
