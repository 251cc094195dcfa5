//! A full RustSec database: a folder as its repository has it, `crates/PACKAGE/RUSTSEC-YEAR-NUMBER.md`, each file a
//! block of TOML and a text. Only files of packages that are asked for are read.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    database::{Advisory, DatabaseError, Kind, ranges, text, wrong},
    toml,
};

#[derive(Debug, thiserror::Error)]
pub enum RustSecError {
    #[error("{0} is no RustSec database: it has no folder crates/")]
    NoDatabase(PathBuf),
    #[error("cannot read {0}")]
    Read(PathBuf, #[source] io::Error),
    #[error("{0} is not understood")]
    Advisory(PathBuf, #[source] DatabaseError),
}

/// The advisories on these packages, without those that were withdrawn or are about other systems than Linux.
pub fn read<'a>(
    folder: &Path,
    packages: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<Advisory>, RustSecError> {
    let crates = folder.join("crates");
    if fs::read_dir(&crates).is_ok_and(|mut it| it.next().is_some()) {
        let mut found = Vec::new();
        for package in packages {
            for file in files(&crates.join(package))? {
                let text =
                    fs::read_to_string(&file).map_err(|error| RustSecError::Read(file.clone(), error))?;
                found.extend(parse(&text).map_err(|error| RustSecError::Advisory(file, error))?);
            }
        }
        Ok(found)
    } else {
        Err(RustSecError::NoDatabase(folder.to_owned()))
    }
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, RustSecError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.and_then(|it| it.collect::<Result<Vec<_>, _>>()),
    };
    let entries = entries.map_err(|error| RustSecError::Read(folder.to_owned(), error))?;
    let mut files: Vec<PathBuf> = entries.into_iter().map(|it| it.path()).collect();
    files.retain(|it| it.extension().is_some_and(|it| it == "md" || it == "toml"));
    files.sort();
    Ok(files)
}

/// `None` for one that is not about us: withdrawn, or on another system.
fn parse(file: &str) -> Result<Option<Advisory>, DatabaseError> {
    // A file of an old database is TOML as a whole, and its title stands there.
    let block = file.split_once("```toml\n").and_then(|(_, rest)| rest.split_once("\n```"));
    let (block, after) = block.unwrap_or((file, ""));
    let tables = toml::parse(block)?;
    let find = |name: &str| tables.iter().find(|it| it.name == name);
    let advisory = find("advisory").ok_or_else(|| wrong(&tables[0], "there is no [advisory]".to_owned()))?;
    let versions = find("versions").ok_or_else(|| wrong(advisory, "there is no [versions]".to_owned()))?;
    let elsewhere = |key: &str, ours: &[&str]| {
        let named = find("affected").and_then(|it| it.list(key));
        named.is_some_and(|it| !it.is_empty() && !it.iter().any(|it| ours.contains(&&**it)))
    };
    if advisory.has("withdrawn") || elsewhere("os", &["linux"]) || elsewhere("arch", &["x86_64", "aarch64"]) {
        return Ok(None);
    }
    let kind = Kind::parse(advisory.text("informational"));
    let title = after.lines().find_map(|it| it.strip_prefix("# ")).or(advisory.text("title"));
    Ok(Some(Advisory {
        id: text(advisory, "id")?,
        package: text(advisory, "package")?,
        kind: kind.ok_or_else(|| wrong(advisory, "informational is of an unknown kind".to_owned()))?,
        patched: ranges(versions, "patched")?,
        unaffected: if versions.has("unaffected") { ranges(versions, "unaffected")? } else { Vec::new() },
        summary: title.unwrap_or("no title").trim().to_owned(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = r#"```toml
[advisory]
id = "RUSTSEC-2030-0001"
package = "boat"
date = "2030-01-02"
categories = ["denial-of-service"]

[affected]
os = ["linux", "windows"]
functions = { "boat::sail" = ["< 2.1.0"] }

[versions]
patched = [
    ">= 2.1.0", # and nothing older
]
unaffected = ["< 1.0.0"]
```

# A boat sinks in fresh water

More of it.
"#;

    #[test]
    fn an_advisory_is_its_block_of_toml_and_its_first_heading() {
        let found = parse(SAMPLE).expect("understood").expect("about us");
        assert_eq!(
            (&*found.id, &*found.package, found.kind),
            ("RUSTSEC-2030-0001", "boat", Kind::Vulnerability)
        );
        assert_eq!(found.summary, "A boat sinks in fresh water");
        let affected = |it: &str| found.affects(&it.parse().expect("a version"));
        assert_eq!(["0.9.9", "1.0.0", "2.0.9", "2.1.0"].map(affected), [false, true, true, false]);
    }

    #[test]
    fn what_was_withdrawn_and_what_is_about_other_systems_is_left_out() {
        for (from, to, ours) in [
            ("date =", "withdrawn = \"2030-02-01\"\ndate =", false),
            ("\"linux\", ", "", false),
            ("os = [\"linux\", \"windows\"]", "arch = [\"x86\"]", false),
            ("os = [\"linux\", \"windows\"]", "arch = [\"x86\", \"aarch64\"]", true),
            ("date =", "informational = \"unmaintained\"\ndate =", true),
        ] {
            assert_eq!(parse(&SAMPLE.replace(from, to)).expect(to).is_some(), ours, "{to}");
        }
    }

    #[test]
    fn an_old_file_that_is_toml_as_a_whole_is_read() {
        let old = "[advisory]\nid = \"RUSTSEC-2016-0001\"\npackage = \"boat\"\ntitle = \"It leaks\"\n\
                   description = \"\"\"\nWater # comes\n\"\"\"\n[versions]\npatched = []\n";
        let found = parse(old).expect("understood").expect("about us");
        assert_eq!(
            (found.summary.as_str(), found.affects(&"9.0.0".parse().expect("one"))),
            ("It leaks", true)
        );
    }

    #[test]
    fn a_file_of_a_package_of_ours_that_is_not_understood_is_an_error_that_names_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let place = |package: &str, name: &str, text: &str| {
            let folder = folder.path().join("crates").join(package);
            fs::create_dir_all(&folder).expect("made");
            fs::write(folder.join(name), text).expect("written");
        };
        assert!(matches!(read(folder.path(), ["boat"]), Err(RustSecError::NoDatabase(_))));
        place("boat", "RUSTSEC-2030-0001.md", SAMPLE);
        place("boat", "notes.txt", "no advisory");
        place("other", "RUSTSEC-2030-0002.md", "nobody reads this");
        assert_eq!(read(folder.path(), ["boat", "unknown"]).expect("read").len(), 1);
        for broken in ["patched", "[versions]", "id =", "[advisory]"] {
            place("boat", "RUSTSEC-2030-0003.md", &SAMPLE.replacen(broken, "x", 1));
            let error = read(folder.path(), ["boat"]).expect_err(broken).to_string();
            assert!(error.contains("boat/RUSTSEC-2030-0003.md"), "{broken}: {error}");
        }
    }
}
