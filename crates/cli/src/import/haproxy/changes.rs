//! Rules that change a request: what later rules compare is not what the client sent.

use std::collections::BTreeSet;

use super::{
    super::proxy::{Condition, PathRule},
    condition::Term,
    sections::Line,
};

#[derive(Debug, Default)]
pub(super) struct RewrittenParts {
    source: bool,
    path: bool,
    method: bool,
    /// In lower case.
    headers: BTreeSet<String>,
}

impl RewrittenParts {
    pub(super) fn note(&mut self, line: &Line) {
        if !matches!(line.word(0), "http-request" | "tcp-request") {
            return;
        }
        let at = if line.word(0) == "tcp-request" { 2 } else { 1 };
        match line.word(at) {
            word if word.starts_with("set-src") || word.starts_with("expect-") => self.source = true,
            "set-path" | "replace-path" | "set-uri" | "replace-uri" | "replace-pathq" | "set-pathq"
            | "set-query" | "normalize-uri" => self.path = true,
            "set-method" => self.method = true,
            "set-header" | "add-header" | "del-header" | "replace-header" | "replace-value" => {
                self.headers.insert(line.word(at + 1).to_ascii_lowercase());
            }
            _ => {}
        }
    }

    /// A condition of what was changed is not known, and is of any request.
    pub(super) fn spoil(&self, term: &mut Term) {
        let mut changed = None;
        if self.source && (term.sources.is_some() || term.not_sources.is_some()) {
            changed = Some("the client address (src), which an earlier rule changes");
        }
        let Condition { hosts, path, method, headers, query } = &mut term.condition;
        let any = PathRule::Prefix("/".to_owned());
        if self.path && (*path != any || !query.is_empty()) {
            changed = Some("the path, which an earlier rule changes");
            *path = any;
            query.clear();
        }
        if self.method && method.take().is_some() {
            changed = Some("the method, which an earlier rule changes");
        }
        let before = headers.len();
        headers.retain(|name, _| !self.headers.contains(name));
        if headers.len() < before {
            changed = Some("a header, which an earlier rule changes");
        }
        if self.headers.contains("host") && !hosts.is_empty() {
            hosts.clear();
            changed = Some("the host, which an earlier rule changes");
        }
        if let Some(what) = changed {
            term.unknown.get_or_insert_with(|| what.to_owned());
        }
    }
}
