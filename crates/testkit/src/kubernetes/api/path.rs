//! The part of kubectl's JSONPath that tests use: fields, elements, and elements by a field of theirs.

use serde_json::Value;

/// Text, with paths in braces.
#[derive(Debug)]
pub(in crate::kubernetes) struct Template(Vec<Piece>);

#[derive(Debug, PartialEq)]
enum Piece {
    Text(String),
    Path(Vec<Step>),
    /// `{range PATH}…{end}`
    Each(Vec<Step>, Vec<Piece>),
}

#[derive(Debug, PartialEq)]
enum Step {
    Field(String),
    Element(usize),
    All,
    /// Elements whose field is this text.
    Where(String, String),
}

impl Template {
    pub(in crate::kubernetes) fn parse(template: &str) -> Option<Template> {
        let (mut pieces, mut rest, mut outer) = (Vec::new(), template, None);
        while !rest.is_empty() {
            let (before, after) = rest.split_once('{').unwrap_or((rest, ""));
            if !before.is_empty() {
                pieces.push(Piece::Text(before.to_owned()));
            }
            if before.len() == rest.len() {
                break;
            }
            let (inside, after) = after.split_once('}')?;
            if let Some(path) = inside.strip_prefix("range ") {
                // One within another is left to kubectl.
                if outer.is_some() {
                    return None;
                }
                outer = Some((steps(path.trim())?, std::mem::take(&mut pieces)));
            } else if inside == "end" {
                let (path, before) = outer.take()?;
                let each = std::mem::replace(&mut pieces, before);
                pieces.push(Piece::Each(path, each));
            } else if let Some(text) = inside.strip_prefix('"').and_then(|it| it.strip_suffix('"')) {
                let text = text.replace("\\n", "\n").replace("\\t", "\t");
                if text.contains(['\\', '"']) {
                    return None;
                }
                pieces.push(Piece::Text(text));
            } else {
                pieces.push(Piece::Path(steps(inside)?));
            }
            rest = after;
        }
        // One without braces is something else to kubectl.
        let has_path = pieces.iter().any(|it| !matches!(it, Piece::Text(_)));
        (has_path && outer.is_none()).then_some(Template(pieces))
    }

    /// What it makes of an object. Fields that are not there are nothing.
    pub(in crate::kubernetes) fn of(&self, object: &Value) -> String {
        said(&self.0, object)
    }
}

fn said(pieces: &[Piece], object: &Value) -> String {
    let shown = pieces.iter().map(|piece| match piece {
        Piece::Text(text) => text.clone(),
        Piece::Path(steps) => found(steps, object).into_iter().map(shown).collect::<Vec<_>>().join(" "),
        Piece::Each(steps, each) => found(steps, object).into_iter().map(|it| said(each, it)).collect(),
    });
    shown.collect()
}

fn found<'a>(steps: &[Step], object: &'a Value) -> Vec<&'a Value> {
    steps.iter().fold(vec![object], |found, step| found.into_iter().flat_map(|it| step.of(it)).collect())
}

impl Step {
    fn of<'a>(&self, value: &'a Value) -> Vec<&'a Value> {
        match (self, value) {
            (Step::Field(name), _) => value.get(name).into_iter().collect(),
            (Step::Element(at), _) => value.get(at).into_iter().collect(),
            (Step::All, Value::Array(all)) => all.iter().collect(),
            (Step::All, Value::Object(all)) => all.values().collect(),
            (Step::Where(field, is), Value::Array(all)) => {
                all.iter().filter(|it| it[field] == **is).collect()
            }
            _ => Vec::new(),
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn steps(path: &str) -> Option<Vec<Step>> {
    let (mut steps, mut rest) = (Vec::new(), path);
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('.') {
            let (name, after) = name(after);
            // Two dots look everywhere.
            if name.is_empty() {
                return None;
            }
            steps.push(Step::Field(name));
            rest = after;
        } else {
            let (inside, after) = rest.strip_prefix('[')?.split_once(']')?;
            steps.push(element(inside)?);
            rest = after;
        }
    }
    (!steps.is_empty()).then_some(steps)
}

/// Up to the next dot or bracket that no backslash is before.
fn name(text: &str) -> (String, &str) {
    let (mut name, mut escaped) = (String::new(), false);
    for (at, letter) in text.char_indices() {
        match letter {
            '\\' if !escaped => escaped = true,
            '.' | '[' if !escaped => return (name, &text[at..]),
            _ => {
                name.push(letter);
                escaped = false;
            }
        }
    }
    (name, "")
}

fn element(inside: &str) -> Option<Step> {
    if inside == "*" {
        return Some(Step::All);
    }
    if let Some(condition) = inside.strip_prefix("?(@.").and_then(|it| it.strip_suffix(')')) {
        let (field, is) = condition.split_once("==")?;
        let is = is.trim();
        let quote = is.chars().next().filter(|it| matches!(it, '"' | '\''))?;
        let is = is.strip_prefix(quote)?.strip_suffix(quote)?;
        let field = field.trim();
        return (!field.contains(['.', '['])).then(|| Step::Where(field.to_owned(), is.to_owned()));
    }
    inside.parse().ok().map(Step::Element)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Template;

    #[test]
    fn paths_give_what_kubectl_prints() {
        let object = json!({
            "metadata": {"name": "a", "annotations": {"seaway.dev/pool": "public"}},
            "status": {"ready": true, "count": 3, "none": {}, "conditions": [
                {"type": "Ready", "status": "True"}, {"type": "seaway.dev/Problems", "status": "False"},
            ]},
        });
        for (path, wanted) in [
            ("{.metadata.name}", "a"),
            ("{.metadata.name} {.status.count}", "a 3"),
            ("{.metadata.annotations.seaway\\.dev/pool}", "public"),
            ("{.status.conditions[*].status}", "True False"),
            ("{.status.conditions[1].type}", "seaway.dev/Problems"),
            ("{.status.conditions[7].type}", ""),
            ("{.status.conditions[?(@.type==\"seaway.dev/Problems\")].status}", "False"),
            ("{.status.conditions[?(@.type=='Ready')].status}", "True"),
            ("{.status.none}", "{}"),
            (
                "{range .status.conditions[*]}{.type}={.status}{\"\\n\"}{end}!",
                "Ready=True\nseaway.dev/Problems=False\n!",
            ),
            ("{.status.ready}{.status.absent.more}", "true"),
            ("{.status.conditions[0]}", "{\"status\":\"True\",\"type\":\"Ready\"}"),
        ] {
            assert_eq!(Template::parse(path).map(|it| it.of(&object)).as_deref(), Some(wanted), "{path}");
        }
    }

    #[test]
    fn what_is_more_than_that_is_left_to_kubectl() {
        for path in [
            "{range .items[*]}{range .ports[*]}{.port}{end}{end}",
            "{range .items[*]}{.metadata.name}",
            "{.metadata.name}{end}",
            "{.items[0:2]}",
            "{..name}",
            ".metadata.name",
            "{.items[?(@.a.b==\"c\")]}",
            "{.items[?(@.ready==false)].name}",
            "{\"\\n\"}",
            "{\"\\x41\"}{.metadata.name}",
        ] {
            assert!(Template::parse(path).is_none(), "{path}");
        }
    }
}
