//! The mutants that no test needs to notice, each with its reason: `survivors.txt`.

use std::collections::BTreeMap;

/// A name on a line of its own, and below it the reason, indented. `#` begins a comment.
pub(crate) fn read(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut explained: BTreeMap<String, String> = BTreeMap::new();
    let mut last: Option<&str> = None;
    for (number, line) in (1..).zip(text.lines()) {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        if line.starts_with(' ') {
            let reason = last.and_then(|it| explained.get_mut(it));
            let reason = reason.ok_or_else(|| format!("line {number}: a reason stands below its mutant"))?;
            *reason = format!("{reason} {}", line.trim()).trim().to_owned();
        } else {
            if explained.insert(line.to_owned(), String::new()).is_some() {
                return Err(format!("line {number}: the mutant is listed twice"));
            }
            last = Some(line);
        }
    }
    match explained.iter().find(|(_, reason)| reason.is_empty()) {
        Some((name, _)) => Err(format!("no reason is given for {name}")),
        None => Ok(explained),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mutant_has_a_reason() {
        let read = |text: &str| read(text).map(|it| it.into_iter().collect::<Vec<_>>());
        let row = ("a.rs: f: a < b → a <= b".to_owned(), "equivalent: both are the same at b".to_owned());
        assert_eq!(
            read("# Comment\n\na.rs: f: a < b → a <= b\n    equivalent: both are\n    the same at b\n"),
            Ok(vec![row])
        );
        assert_eq!(read("a.rs: f: x → y\n"), Err("no reason is given for a.rs: f: x → y".to_owned()));
        assert_eq!(read("    why\n"), Err("line 1: a reason stands below its mutant".to_owned()));
        assert_eq!(read("a\n  b\na\n  b\n"), Err("line 3: the mutant is listed twice".to_owned()));
    }
}
