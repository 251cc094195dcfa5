//! What `plan --cloud` prints, for people and for programs, and how it exits. Pure.

use std::{collections::BTreeMap, process::ExitCode};

use serde_json::{Value, json};

use super::{
    PlannedObject,
    diff::{Diff, FieldChange},
};
use crate::output;

/// A new load balancer has hundreds of fields; programs see all of them.
const FIELDS: usize = 12;
/// Of a value, so many characters are shown to people.
const LONGEST: usize = 100;

/// Something would be changed.
const CHANGES: u8 = 1;
/// There are Problems, or it is not known what would be changed.
pub(super) const PROBLEMS: u8 = 2;

pub(super) fn exit(prospects: &[PlannedObject]) -> ExitCode {
    let has_problems = prospects.iter().any(|it| !it.problems.is_empty());
    let has_steps = prospects.iter().any(|it| !it.steps.is_empty());
    ExitCode::from(code(has_problems, has_steps))
}

fn code(has_problems: bool, has_steps: bool) -> u8 {
    match (has_problems, has_steps) {
        (true, _) => PROBLEMS,
        (false, true) => CHANGES,
        (false, false) => 0,
    }
}

pub(super) fn table(prospects: &[PlannedObject]) -> String {
    let rows: Vec<Vec<String>> = prospects.iter().flat_map(rows_of).collect();
    match rows.is_empty() {
        true => "Nothing would be changed.".to_owned(),
        false => output::table(&["FOR", "STEP"], &rows).trim_end().to_owned(),
    }
}

fn rows_of(prospect: &PlannedObject) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for step in &prospect.steps {
        rows.push(vec![prospect.whose.clone(), step.text.clone()]);
        let changes = step.changes.iter().take(FIELDS);
        rows.extend(changes.map(|it| vec![String::new(), format!("    {}", line(it))]));
        if let Some(more) = step.changes.len().checked_sub(FIELDS).filter(|it| *it > 0) {
            rows.push(vec![String::new(), format!("    and {more} more fields (-o json shows all)")]);
        }
    }
    rows.extend(prospect.later.iter().map(|it| vec![prospect.whose.clone(), it.clone()]));
    rows
}

fn line(change: &FieldChange) -> String {
    format!("{}: {} → {}", change.field, value(&change.from), value(&change.to))
}

fn value(value: &Value) -> String {
    let text = match value {
        Value::Null => return "none".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    match text.char_indices().nth(LONGEST) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// One line: `5 steps for 3 objects (change: 4, create: 1), 1 Problem; nothing was done`.
pub(super) fn summary(prospects: &[PlannedObject]) -> String {
    let steps: usize = prospects.iter().map(|it| it.steps.len()).sum();
    let problems: usize = prospects.iter().map(|it| it.problems.len()).sum();
    let counted = count(prospects.iter().flat_map(|it| &it.steps), |it| it.action.as_str());
    let counted: Vec<String> = counted.iter().map(|(action, many)| format!("{action}: {many}")).collect();
    let counted = if counted.is_empty() { String::new() } else { format!(" ({})", counted.join(", ")) };
    let [steps, objects, problems] = [(steps, "step"), (prospects.len(), "object"), (problems, "Problem")]
        .map(|(number, of)| if number == 1 { format!("1 {of}") } else { format!("{number} {of}s") });
    format!("{steps} for {objects}{counted}, {problems}; nothing was done")
}

pub(super) fn as_json(prospects: &[PlannedObject]) -> Value {
    let steps = || prospects.iter().flat_map(|it| &it.steps);
    let kinds: BTreeMap<&str, BTreeMap<&str, usize>> = count(steps(), |it| it.kind)
        .into_keys()
        .map(|kind| (kind, count(steps().filter(|it| it.kind == kind), |it| it.action.as_str())))
        .collect();
    json!({
        "summary": {
            "objects": prospects.len(),
            "steps": steps().count(),
            "problems": prospects.iter().map(|it| it.problems.len()).sum::<usize>(),
            "actions": count(steps(), |it| it.action.as_str()),
            "kinds": kinds,
        },
        "objects": prospects.iter().map(of_prospect).collect::<Vec<_>>(),
    })
}

fn of_prospect(prospect: &PlannedObject) -> Value {
    let object = prospect.object.as_ref();
    json!({
        "for": prospect.whose,
        "namespace": object.map(|it| &it.namespace),
        "name": object.map(|it| &it.name),
        "steps": prospect.steps.iter().map(of_step).collect::<Vec<_>>(),
        "later": prospect.later,
        "problems": prospect.problems,
    })
}

fn of_step(step: &Diff) -> Value {
    let change = |it: &FieldChange| json!({ "field": it.field, "from": it.from, "to": it.to });
    json!({
        "text": step.text,
        "kind": step.kind,
        "object": step.object,
        "action": step.action.as_str(),
        "changes": step.changes.iter().map(change).collect::<Vec<_>>(),
    })
}

fn count<'s>(
    steps: impl Iterator<Item = &'s Diff>,
    of: fn(&Diff) -> &'static str,
) -> BTreeMap<&'static str, usize> {
    let mut counted = BTreeMap::new();
    for step in steps {
        *counted.entry(of(step)).or_default() += 1;
    }
    counted
}

#[cfg(test)]
mod tests {
    use seaway_model::{Kind, ObjectRef};

    use super::*;
    use crate::args::plan::Action;

    fn prospect(steps: Vec<Diff>, problems: &[&str]) -> PlannedObject {
        let object = ObjectRef::new(Kind::Service, "default", "shop");
        let problems = problems.iter().map(|it| (*it).to_owned()).collect();
        PlannedObject { whose: object.to_string(), object: Some(object), steps, later: Vec::new(), problems }
    }

    fn step(kind: &'static str, action: Action, changes: Vec<FieldChange>) -> Diff {
        Diff {
            text: format!("{} the {kind}", action.as_str()),
            kind,
            object: "80/TCP".into(),
            action,
            changes,
        }
    }

    fn limit() -> Vec<FieldChange> {
        vec![FieldChange::new("connection_limit", json!(-1), json!(100))]
    }

    #[test]
    fn the_exit_code_tells_nothing_changes_and_problems_apart() {
        assert_eq!(
            [code(false, false), code(false, true), code(true, false), code(true, true)],
            [0, 1, 2, 2]
        );
    }

    #[test]
    fn text_says_of_each_field_what_it_was_and_what_it_becomes() {
        let steps = vec![step("listener", Action::Change, limit()), step("pool", Action::Delete, Vec::new())];
        let text = table(&[prospect(steps, &[])]);
        assert_eq!(
            text,
            "FOR                   STEP\n\
             Service default/shop  change the listener\n\
             \u{20}                         connection_limit: -1 → 100\n\
             Service default/shop  delete the pool"
        );
        assert_eq!(table(&[prospect(Vec::new(), &["a Problem"])]), "Nothing would be changed.");
        let new = |at: usize| FieldChange::new(format!("tags[{at}]"), Value::Null, json!("x".repeat(500)));
        let text = table(&[prospect(vec![step("pool", Action::Create, (0..20).map(new).collect())], &[])]);
        assert!(text.contains("tags[0]: none → xxx") && text.contains("and 8 more fields"), "{text}");
        assert!(text.lines().all(|it| it.chars().count() < 160), "{text}");
    }

    #[test]
    fn what_is_deleted_later_is_said_and_is_no_change_now() {
        let later = "later: delete security group 7".to_owned();
        let all = [PlannedObject { later: vec![later.clone()], ..prospect(Vec::new(), &[]) }];
        assert_eq!(table(&all), format!("FOR                   STEP\nService default/shop  {later}"));
        assert_eq!(as_json(&all)["objects"][0]["later"], json!([later]));
        assert_eq!(as_json(&all)["summary"]["steps"], json!(0));
    }

    #[test]
    fn programs_get_each_step_with_its_fields_and_a_summary() {
        let steps = vec![
            step("listener", Action::Change, limit()),
            step("listener", Action::Create, Vec::new()),
            step("pool", Action::Change, Vec::new()),
        ];
        let all = [prospect(steps, &["one"])];
        let json = as_json(&all);
        assert_eq!(
            json["summary"],
            json!({
                "objects": 1, "steps": 3, "problems": 1, "actions": {"change": 2, "create": 1},
                "kinds": {"listener": {"change": 1, "create": 1}, "pool": {"change": 1}},
            })
        );
        let first = &json["objects"][0];
        assert_eq!((&first["namespace"], &first["name"]), (&json!("default"), &json!("shop")));
        assert_eq!(
            first["steps"][0],
            json!({
                "text": "change the listener", "kind": "listener", "object": "80/TCP", "action": "change",
                "changes": [{"field": "connection_limit", "from": -1, "to": 100}],
            })
        );
        assert_eq!(summary(&all), "3 steps for 1 object (change: 2, create: 1), 1 Problem; nothing was done");
    }
}
