//! Our own list of advisories, `advisories.toml`, and what an advisory says.

use std::{fs, io, path::Path};

use cargo_metadata::semver::{Version, VersionReq};
use jiff::civil::Date;

use crate::toml::{self, Table, TomlError};

/// What is known of the packages in our lock files, as of a day.
#[derive(Debug)]
pub struct Database {
    /// Advisories published after this day are not in it.
    pub date: Date,
    pub advisories: Vec<Advisory>,
    pub exceptions: Vec<Exception>,
}

#[derive(Clone, Debug)]
pub struct Advisory {
    pub id: String,
    pub package: String,
    pub kind: Kind,
    pub patched: Vec<VersionReq>,
    pub unaffected: Vec<VersionReq>,
    /// What is wrong, in a line.
    pub summary: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Vulnerability,
    /// Safe code can break memory safety.
    Unsound,
    Unmaintained,
    Notice,
}

/// An advisory that a package of ours matches, and that is accepted.
#[derive(Clone, Debug)]
pub struct Exception {
    pub id: String,
    pub package: String,
    pub date: Date,
    pub reason: String,
}

#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    #[error("cannot read it")]
    Read(#[source] io::Error),
    #[error("it is no TOML")]
    Toml(#[from] TomlError),
    #[error("line {line}: {what}")]
    Entry { line: usize, what: String },
}

impl Advisory {
    /// A version that no range speaks of is affected.
    pub fn affects(&self, version: &Version) -> bool {
        !self.patched.iter().chain(&self.unaffected).any(|it| it.matches(version))
    }
}

impl Kind {
    /// As RustSec says it, in `informational`.
    pub(crate) fn parse(text: Option<&str>) -> Option<Kind> {
        Some(match text {
            None | Some("vulnerability") => Kind::Vulnerability,
            Some("unsound") => Kind::Unsound,
            Some("unmaintained") => Kind::Unmaintained,
            Some("notice") => Kind::Notice,
            Some(_) => return None,
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Kind::Vulnerability => "vulnerability",
            Kind::Unsound => "unsound",
            Kind::Unmaintained => "unmaintained",
            Kind::Notice => "notice",
        }
    }
}

impl Database {
    pub fn read(file: &Path) -> Result<Database, DatabaseError> {
        Database::parse(&fs::read_to_string(file).map_err(DatabaseError::Read)?)
    }

    pub fn parse(text: &str) -> Result<Database, DatabaseError> {
        let tables = toml::parse(text)?;
        let mut database =
            Database { date: date(&tables[0], "date")?, advisories: vec![], exceptions: vec![] };
        for table in &tables[1..] {
            match &*table.name {
                "advisory" => database.advisories.push(advisory(table)?),
                "exception" => database.exceptions.push(exception(table)?),
                other => return Err(wrong(table, format!("there is no table [[{other}]]"))),
            }
        }
        Ok(database)
    }
}

fn advisory(table: &Table) -> Result<Advisory, DatabaseError> {
    known_keys(table, &["id", "package", "kind", "patched", "unaffected", "summary"])?;
    let kind = Kind::parse(table.text("kind")).filter(|_| table.has("kind") == table.text("kind").is_some());
    Ok(Advisory {
        id: text(table, "id")?,
        package: text(table, "package")?,
        kind: kind.ok_or_else(|| {
            wrong(table, "kind is one of vulnerability, unsound, unmaintained, notice".to_owned())
        })?,
        // An advisory without a patched version says so: `patched = []`.
        patched: ranges(table, "patched")?,
        unaffected: if table.has("unaffected") { ranges(table, "unaffected")? } else { Vec::new() },
        summary: text(table, "summary")?,
    })
}

fn exception(table: &Table) -> Result<Exception, DatabaseError> {
    known_keys(table, &["id", "package", "date", "reason"])?;
    Ok(Exception {
        id: text(table, "id")?,
        package: text(table, "package")?,
        date: date(table, "date")?,
        reason: text(table, "reason")?,
    })
}

pub(crate) fn ranges(table: &Table, key: &str) -> Result<Vec<VersionReq>, DatabaseError> {
    let list = table.list(key).ok_or_else(|| wrong(table, format!("{key} is a list of version ranges")))?;
    let parse = |range: &String| {
        VersionReq::parse(range)
            .map_err(|error| wrong(table, format!("{range:?} is no range of versions: {error}")))
    };
    list.iter().map(parse).collect()
}

pub(crate) fn text(table: &Table, key: &str) -> Result<String, DatabaseError> {
    let found = table.text(key).filter(|it| !it.trim().is_empty());
    found.map(str::to_owned).ok_or_else(|| wrong(table, format!("{key} is missing, or is no text")))
}

fn date(table: &Table, key: &str) -> Result<Date, DatabaseError> {
    let found = table.text(key).and_then(|it| it.parse().ok());
    found.ok_or_else(|| wrong(table, format!("{key} is missing, or is no date as \"2026-11-22\"")))
}

fn known_keys(table: &Table, known: &[&str]) -> Result<(), DatabaseError> {
    match table.keys().find(|it| !known.contains(it)) {
        Some(other) => Err(wrong(table, format!("there is no key {other}; there are: {}", known.join(", ")))),
        None => Ok(()),
    }
}

pub(crate) fn wrong(table: &Table, what: String) -> DatabaseError {
    DatabaseError::Entry { line: table.line, what }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(rest: &str) -> Result<Database, DatabaseError> {
        Database::parse(&format!("date = \"2026-10-08\"\n[[advisory]]\n{rest}"))
    }

    #[test]
    fn a_version_is_affected_unless_a_range_says_otherwise() {
        let database =
            one("id = \"X-1\"\npackage = \"h2\"\nsummary = \"s\"\npatched = [\"^0.3.26\", \">= 0.4.4\"]\n\
                            unaffected = [\"< 0.2.0, >= 0.1.0\"]\n")
            .expect("a list");
        let affected = |it: &str| database.advisories[0].affects(&Version::parse(it).expect("a version"));
        let all = ["0.1.5", "0.2.0", "0.3.25", "0.3.26", "0.4.3", "0.4.4", "1.0.0", "0.4.4-rc.1"];
        let found: Vec<&str> = all.into_iter().filter(|it| affected(it)).collect();
        assert_eq!(found, ["0.2.0", "0.3.25", "0.4.3", "0.4.4-rc.1"]);
    }

    #[test]
    fn an_entry_that_is_not_understood_is_refused_with_its_line() {
        let good = "id = \"X-1\"\npackage = \"h2\"\npatched = []\nsummary = \"s\"\n";
        assert!(one(good).is_ok());
        for (bad, says) in [
            (good.replace("patched = []", ""), "line 2: patched is a list of version ranges"),
            (good.replace("[]", "[\"soon\"]"), "line 2: \"soon\" is no range of versions"),
            (good.replace("\"s\"", "\" \""), "line 2: summary is missing"),
            (format!("{good}kind = \"bad\"\n"), "line 2: kind is one of"),
            (format!("{good}kind = 1\n"), "line 2: kind is one of"),
            (format!("{good}ptched = []\n"), "line 2: there is no key ptched"),
            (format!("{good}[[exeption]]\n"), "line 7: there is no table [[exeption]]"),
            (
                format!("{good}[[exception]]\nid = \"X-1\"\npackage = \"h2\"\ndate = \"2026-10-08\"\n"),
                "line 7: reason",
            ),
            (
                format!("{good}[[exception]]\nid = \"X-1\"\npackage = \"h2\"\nreason = \"r\"\n"),
                "line 7: date",
            ),
        ] {
            let error = one(&bad).expect_err(&bad).to_string();
            assert!(error.starts_with(says), "{error}");
        }
        assert!(Database::parse("[[advisory]]\n").is_err(), "a list has a date");
    }
}
