//! haproxy.cfg: frontends and backends.
//!
//! ```text
//!   text ─► sections.rs ─► frontend.rs ─► rules in their order (rules.rs, actions.rs, condition.rs) ─► order.rs ─► Routes (headers.rs)
//!                       └► backend.rs, checks.rs ─► Backends      tcp.rs ─► listeners      words.rs: what needs no reading
//! ```

mod actions;
mod backend;
mod bind;
mod changes;
mod checks;
mod condition;
mod frontend;
mod headers;
mod order;
mod rules;
mod sections;
mod tcp;
mod words;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use self::{
    condition::Acls,
    sections::{Line, Section},
};
use super::{ImportResult, LARGEST, Text, beside, proxy::Proxy, report::Report, text_of};

pub(super) fn read(file: &Path) -> Result<ImportResult> {
    let mut room = LARGEST;
    let text = text_of(file, &mut room)?;
    read_text(file, &text)
}

pub(super) fn read_text(file: &Path, text: &Text) -> Result<ImportResult> {
    let sections = sections::parse(text)?;
    defaults_are_there(&sections)?;
    let mut context = Context {
        file: file.to_owned(),
        base: None,
        report: Report::default(),
        proxy: Proxy::default(),
        sections: &sections,
    };
    for section in &sections {
        context.report.expect(&section.place, &section.written());
        for line in &section.lines {
            context.report.expect(&line.place, &line.written());
        }
    }
    words::report_unread(&sections, &mut context);
    frontend::read(&mut context)?;
    Ok(ImportResult { proxy: context.proxy, report: context.report })
}

/// HAProxy refuses a `from` that leads to nothing, or to two sections, as well.
fn defaults_are_there(sections: &[Section]) -> Result<()> {
    for section in sections {
        let Some(name) = section.from() else { continue };
        let named = sections
            .iter()
            .take_while(|it| it.place != section.place)
            .filter(|it| it.kind == "defaults" && it.name == name);
        match named.count() {
            1 => {}
            0 => bail!("{}: from {name}: no defaults before it have this name", section.place),
            _ => bail!("{}: from {name}: several defaults have this name", section.place),
        }
    }
    Ok(())
}

/// What is known while a configuration is read.
struct Context<'s> {
    file: PathBuf,
    /// `crt-base`
    base: Option<PathBuf>,
    report: Report,
    proxy: Proxy,
    sections: &'s [Section],
}

impl<'s> Context<'s> {
    /// Where a certificate is.
    fn certificate(&self, named: &str) -> PathBuf {
        match &self.base {
            Some(base) => base.join(named),
            None => beside(&self.file, named),
        }
    }

    fn path(&self, named: &str) -> PathBuf {
        beside(&self.file, named)
    }

    /// A section by name that has servers.
    fn backend(&self, name: &str) -> Option<&'s Section> {
        self.sections.iter().find(|it| it.name == name && matches!(&*it.kind, "backend" | "listen"))
    }

    /// Defaults that a section has: those that it names, or the last ones before it, and those that they name in turn. The
    /// nearest come first.
    fn defaults(&self, section: &'s Section) -> Vec<&'s Section> {
        let mut all: Vec<&Section> = Vec::new();
        let mut of = section;
        loop {
            let before =
                self.sections.iter().take_while(|it| it.place != of.place).filter(|it| it.kind == "defaults");
            let next = match of.from() {
                Some(name) => before.filter(|it| it.name == name).last(),
                // Defaults without `from` begin with nothing.
                None if of.kind == "defaults" => None,
                None => before.last(),
            };
            // Each stands before the one that names it, so this ends.
            let Some(next) = next else { return all };
            all.push(next);
            of = next;
        }
    }

    /// A section, and then its defaults, the nearest first.
    fn lineage(&self, section: &'s Section) -> Vec<&'s Section> {
        std::iter::once(section).chain(self.defaults(section)).collect()
    }

    /// Lines with this word, of the section or else of its nearest defaults that have any.
    fn lines(&self, section: &'s Section, word: &str) -> Vec<&'s Line> {
        let of =
            |it: &'s Section| -> Vec<&'s Line> { it.lines.iter().filter(|it| it.word(0) == word).collect() };
        self.lineage(section).into_iter().map(of).find(|it| !it.is_empty()).unwrap_or_default()
    }

    /// All lines of rules: those of the defaults come before its own.
    fn rules(&self, section: &'s Section) -> impl Iterator<Item = &'s Line> + use<'s> {
        self.lineage(section).into_iter().rev().flat_map(|it| &it.lines)
    }

    /// The ACLs that lines of a section may name.
    fn acls(&self, section: &'s Section) -> Acls<'s> {
        condition::acls(self.lineage(section).into_iter().rev())
    }

    /// A `timeout`, in milliseconds.
    fn timeout(&self, section: &'s Section, name: &str) -> Option<u64> {
        let of =
            |it: &'s Section| it.lines.iter().rev().find(|it| it.word(0) == "timeout" && it.word(1) == name);
        let line = self.lineage(section).into_iter().find_map(of)?;
        duration(line.word(2)).filter(|it| *it > 0)
    }

    fn is_http(&self, section: &'s Section) -> bool {
        self.lines(section, "mode").last().is_some_and(|it| it.word(1) == "http")
    }
}

/// `5s`, `5000` (milliseconds), `1m`.
fn duration(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|it: char| it.is_ascii_alphabetic());
    let number: u64 = digits.parse().ok()?;
    let factor = match text.get(digits.len()..)? {
        "" | "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        "us" => return Some(number / 1_000),
        _ => return None,
    };
    Some(number.saturating_mul(factor))
}

/// As annotations and keys have it.
fn time(millis: u64) -> String {
    match millis {
        it if it % 1_000 != 0 => format!("{it}ms"),
        it if it % 3_600_000 == 0 => format!("{}h", it / 3_600_000),
        it if it % 60_000 == 0 => format!("{}m", it / 60_000),
        it => format!("{}s", it / 1_000),
    }
}

#[cfg(test)]
mod tests;
