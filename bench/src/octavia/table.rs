//! Figures beside what they must reach.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::{ApiUsage, Size};
use crate::report::{self, machine};

pub struct Table {
    pub version: String,
    pub size: Size,
    pub rows: Vec<Row>,
}

#[derive(Clone, Debug, serde::Serialize)]
pub struct Row {
    case: &'static str,
    what: &'static str,
    theirs: Option<f64>,
    ours: f64,
    /// Lists that all that is pending shares; they are not in the figure, nor in the target.
    polls: Option<usize>,
    must: f64,
}

impl Row {
    pub fn of(case: &'static str, what: &'static str, ours: f64, must: f64) -> Self {
        Self { case, what, theirs: None, ours, polls: None, must }
    }

    pub fn calls(case: &'static str, spent: &ApiUsage, must: f64) -> Self {
        Self::of(case, "calls", spent.calls as f64, must).polling(spent)
    }

    pub fn polling(self, spent: &ApiUsage) -> Self {
        Self { polls: Some(spent.polls), ..self }
    }

    pub fn beside(self, theirs: f64) -> Self {
        Self { theirs: Some(theirs), ..self }
    }

    fn is_met(&self) -> bool {
        self.ours <= self.must
    }

    fn line(&self) -> String {
        let Self { case, what, theirs, ours, polls, must } = self;
        let polls_of = polls.map_or(0.0, |it| it as f64);
        let ratio = theirs.map_or(String::new(), |it| format!("{:.3}", (ours + polls_of) / it));
        let [theirs, polls] = [*theirs, polls.map(|it| it as f64)].map(|it| it.map_or(String::new(), number));
        let met = if self.is_met() { "met" } else { "**not met**" };
        format!(
            "| {case} | {what} | {theirs} | {} | {polls} | {} | {ratio} | {met} |",
            number(*ours),
            number(*must)
        )
    }
}

impl Table {
    pub fn is_good(&self) -> bool {
        self.rows.iter().all(Row::is_met)
    }

    pub fn markdown(&self) -> Result<String> {
        let Size { nodes, services, is_trial, .. } = self.size;
        let mut text = format!("{}. {}.\n\n", self.version, machine()?.join(", "));
        if is_trial {
            text += "**A trial: these figures are no measurement.**\n\n";
        }
        _ = writeln!(
            text,
            "{nodes} Nodes, {} Services of 2 ports, security groups and monitors on, a second for each change. Calls are without \
             heartbeats.\n\n\
             | case | figure | OCCM | Seaway | polls | must reach | ratio | |\n|---|---|--:|--:|--:|--:|--:|---|",
            services + 4
        );
        for row in &self.rows {
            _ = writeln!(text, "{}", row.line());
        }
        Ok(text)
    }

    /// That nothing went wrong is said as in other reports.
    pub fn json(&self) -> Result<String> {
        let told = serde_json::json!({ "version": self.version, "rows": self.rows, "errors": 0 });
        serde_json::to_string_pretty(&told).context("a table is always JSON")
    }

    /// Replaces what stands between its markers, which the page must have.
    pub fn write_into(&self, path: &Path) -> Result<()> {
        let old = fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let new = report::replaced(&old, BEGIN, END, &self.markdown()?)
            .with_context(|| format!("{} has no {BEGIN} and {END}", path.display()))?;
        fs::write(path, new).with_context(|| path.display().to_string())
    }
}

const BEGIN: &str = "<!-- begin: written by bench/run octavia --out, of a cluster -->";
const END: &str = "<!-- end: written by bench/run octavia --out, of a cluster -->";

fn number(it: f64) -> String {
    match it {
        whole if whole.fract() == 0.0 => format!("{whole:.0}"),
        small if small < 1.0 => format!("{small:.3}"),
        other => format!("{other:.1}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polls_are_in_the_ratio_and_not_in_the_target() {
        let spent = ApiUsage { calls: 12, polls: 11, ..ApiUsage::default() };
        let row = Row::calls("create", &spent, 12.0).beside(230.0);
        assert_eq!(row.line(), "| create | calls | 230 | 12 | 11 | 12 | 0.100 | met |");
        assert!(Row::of("create", "calls", 13.0, 12.0).line().ends_with("| **not met** |"));
    }
}
