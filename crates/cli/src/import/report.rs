//! What became of each directive: nothing that was written is passed over in silence.

use std::{collections::BTreeMap, fmt, rc::Rc};

/// Where a directive stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct DirectiveLocation {
    pub(super) file: Rc<str>,
    pub(super) line: u32,
    /// Of several in one line.
    pub(super) nth: u32,
}

impl fmt::Display for DirectiveLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    /// It is in the output.
    Translated,
    /// Seaway does this by itself, or does not need it.
    NoEffect,
    /// It is in the output, and does not mean the same in every case.
    Differs,
    /// It is not in the output.
    LeftOut,
    /// It protects, and is not in the output: what it protects is closed.
    Closed,
}

#[derive(Clone, Debug)]
struct Entry {
    directive: String,
    verdict: Verdict,
    why: String,
}

/// By place. A place may have several remarks.
#[derive(Debug, Default)]
pub(super) struct Report {
    known: BTreeMap<DirectiveLocation, String>,
    entries: BTreeMap<DirectiveLocation, Vec<Entry>>,
}

/// A line of a report is for people: a long directive is cut.
const LONGEST: usize = 100;

impl Report {
    /// A directive that has to come to something.
    pub(super) fn expect(&mut self, place: &DirectiveLocation, directive: &str) {
        self.known.entry(place.clone()).or_insert_with(|| cut(directive));
    }

    pub(super) fn translated(&mut self, place: &DirectiveLocation) {
        self.add(place, Verdict::Translated, "");
    }

    pub(super) fn no_effect(&mut self, place: &DirectiveLocation, why: &str) {
        self.add(place, Verdict::NoEffect, why);
    }

    pub(super) fn differs(&mut self, place: &DirectiveLocation, why: &str) {
        self.add(place, Verdict::Differs, why);
    }

    pub(super) fn left_out(&mut self, place: &DirectiveLocation, why: &str) {
        self.add(place, Verdict::LeftOut, why);
    }

    pub(super) fn closed(&mut self, place: &DirectiveLocation, why: &str) {
        self.add(place, Verdict::Closed, why);
    }

    fn add(&mut self, place: &DirectiveLocation, verdict: Verdict, why: &str) {
        let directive = self.known.get(place).cloned().unwrap_or_default();
        let entries = self.entries.entry(place.clone()).or_default();
        if !entries.iter().any(|it| it.verdict == verdict && it.why == why) {
            entries.push(Entry { directive, verdict, why: why.to_owned() });
        }
    }

    /// What no part of the importer has looked at is left out, and is said to be.
    pub(super) fn finish(&mut self) {
        let unread: Vec<DirectiveLocation> =
            self.known.keys().filter(|it| !self.entries.contains_key(it)).cloned().collect();
        for place in unread {
            self.left_out(&place, "Seaway does not read this directive in this block");
        }
        // What is said of it says that it was read, and that it has an effect.
        for entries in self.entries.values_mut().filter(|it| it.len() > 1) {
            entries.retain(|it| it.verdict != Verdict::Translated);
            let has_effect = entries.iter().any(|it| it.verdict != Verdict::NoEffect);
            entries.retain(|it| !has_effect || it.verdict != Verdict::NoEffect);
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.known.keys().all(|it| self.entries.contains_key(it))
    }

    /// Whether all that was written is in the output.
    pub(super) fn is_whole(&self) -> bool {
        self.all().all(|(_, it)| !matches!(it.verdict, Verdict::LeftOut | Verdict::Closed))
    }

    fn all(&self) -> impl Iterator<Item = (&DirectiveLocation, &Entry)> {
        self.entries.iter().flat_map(|(place, entries)| entries.iter().map(move |it| (place, it)))
    }

    /// For people, in the order of the input: first what is not translated. `quiet`: that alone.
    pub(super) fn lines(&self, quiet: bool) -> Vec<String> {
        let mut lines = Vec::new();
        let mut sections = vec![
            (
                "Not translated, and closed (the routes answer 403; to open one, remove its annotation seaway.dev/source-ranges: 255.255.255.255/32):",
                Verdict::Closed,
            ),
            ("Not translated:", Verdict::LeftOut),
        ];
        if !quiet {
            sections.push(("Translated, but works differently:", Verdict::Differs));
            sections.push(("Not needed:", Verdict::NoEffect));
        }
        for (title, verdict) in sections {
            let mut of = self.all().filter(|(_, it)| it.verdict == verdict).peekable();
            if of.peek().is_some() {
                lines.push(title.to_owned());
                lines.extend(of.map(|(place, it)| format!("  {place}: {}: {}", it.directive, it.why)));
                // A file that is included twice says the same twice.
                lines.dedup();
            }
        }
        let count = |verdict| self.all().filter(|(_, it)| it.verdict == verdict).count();
        lines.push(format!(
            "{} translated ({} behave differently); {} not needed; {} not translated ({} of these answer 403)",
            count(Verdict::Translated) + count(Verdict::Differs),
            count(Verdict::Differs),
            count(Verdict::NoEffect),
            count(Verdict::LeftOut) + count(Verdict::Closed),
            count(Verdict::Closed),
        ));
        lines
    }

    /// Lines of the input that something is said of, for tests.
    #[cfg(test)]
    pub(super) fn accounted(&self) -> std::collections::BTreeSet<(String, u32)> {
        self.entries.keys().map(|it| (it.file.to_string(), it.line)).collect()
    }

    /// What is said of a line, for tests.
    #[cfg(test)]
    pub(super) fn verdicts(&self, file: &str, line: u32) -> Vec<Verdict> {
        let is_there = |at: &DirectiveLocation| at.line == line && &*at.file == file;
        self.all().filter(|(at, _)| is_there(at)).map(|(_, it)| it.verdict).collect()
    }

    #[cfg(test)]
    pub(super) fn why(&self, line: u32) -> Vec<(Verdict, String)> {
        self.all().filter(|(at, _)| at.line == line).map(|(_, it)| (it.verdict, it.why.clone())).collect()
    }
}

fn cut(directive: &str) -> String {
    let line = directive.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
        None => line,
    }
}
