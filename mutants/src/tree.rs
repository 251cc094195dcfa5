//! A copy of the checkout, which is changed in its stead. Files that are the same already keep their times, so that little
//! is built again.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    points::{self, Point},
    rewrite,
};

pub(crate) struct Tree {
    pub(crate) folder: PathBuf,
    /// The sources of crates, as they are in the checkout.
    sources: BTreeMap<String, String>,
    /// The crates that have the runtime beside their sources.
    changed: BTreeSet<String>,
}

impl Tree {
    /// What git knows or would take, as it is now.
    pub(crate) fn copy(checkout: &Path, folder: PathBuf) -> Result<Tree, String> {
        let listed = git(checkout, &["ls-files", "-z", "--cached", "--others", "--exclude-standard"])?;
        let files: BTreeSet<&str> = listed.split('\0').filter(|it| !it.is_empty()).collect();
        let mut sources = BTreeMap::new();
        for file in &files {
            let (from, to) = (checkout.join(file), folder.join(file));
            // One that was removed and is still known, or a link to a folder.
            if !from.is_file() {
                continue;
            }
            let bytes = fs::read(&from).map_err(|error| format!("{}: {error}", from.display()))?;
            // Sources are written with their mutants, if they are there already.
            if is_source(file)
                && let Ok(text) = String::from_utf8(bytes.clone())
            {
                sources.insert((*file).to_owned(), text);
                if to.exists() {
                    continue;
                }
            }
            write(&to, &bytes)?;
            if let Ok(it) = fs::metadata(&from) {
                fs::set_permissions(&to, it.permissions())
                    .map_err(|error| format!("{}: {error}", to.display()))?;
            }
        }
        remove_others(&folder, &folder, &files).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(Tree { folder, sources, changed: BTreeSet::new() })
    }

    /// All points of the crates' libraries. Programs have no `crate::` of them.
    pub(crate) fn points(&self) -> Result<Vec<Point>, String> {
        let mut found = Vec::new();
        let mut for_tests = BTreeSet::new();
        for (file, text) in &self.sources {
            let rest = file.splitn(4, '/').nth(3).unwrap_or_default();
            if rest == "main.rs" || rest.starts_with("bin/") || file.starts_with("crates/testkit/") {
                continue;
            }
            let (points, modules) = points::points(file, text)?;
            found.extend(points);
            let stem = file.trim_end_matches(".rs");
            let folder = stem.strip_suffix("/lib").unwrap_or(stem);
            for_tests.extend(modules.into_iter().map(|it| format!("{folder}/{it}")));
        }
        let is_test = |file: &str| {
            let stem = file.trim_end_matches(".rs");
            // Fuzz targets are tests, too: they stand in the library for who runs them.
            stem.split('/').any(|it| it == "tests" || it == "fuzz")
                || for_tests.iter().any(|it| stem == it || stem.starts_with(&format!("{it}/")))
        };
        found.retain(|it| !is_test(&it.file));
        Ok(found)
    }

    /// Writes the sources with the mutants of `points`, whose numbers are at most `count`.
    pub(crate) fn change(&mut self, points: &[Point], count: usize) -> Result<(), String> {
        let mut by_file: BTreeMap<&str, Vec<&Point>> = BTreeMap::new();
        for point in points {
            by_file.entry(&point.file).or_default().push(point);
            self.changed.insert(point.crate_name().to_owned());
        }
        for (file, text) in &self.sources {
            let mut text = match by_file.get(file.as_str()) {
                Some(points) => rewrite::rewritten(text, points),
                None => text.clone(),
            };
            let root = self.changed.iter().any(|it| *file == format!("crates/{it}/src/lib.rs"));
            if root {
                text += "\n#[allow(warnings, clippy::all)]\nmod __mutant;\n";
            }
            write(&self.folder.join(file), text.as_bytes())?;
        }
        for name in &self.changed {
            let file = self.folder.join(format!("crates/{name}/src/__mutant.rs"));
            write(&file, rewrite::runtime(count).as_bytes())?;
        }
        Ok(())
    }

    pub(crate) fn read(&self, file: &str) -> Option<String> {
        fs::read_to_string(self.folder.join(file)).ok()
    }
}

fn is_source(file: &str) -> bool {
    let mut parts = file.split('/');
    parts.next() == Some("crates") && parts.nth(1) == Some("src") && file.ends_with(".rs")
}

pub(crate) fn git(checkout: &Path, arguments: &[&str]) -> Result<String, String> {
    let done = Command::new("git").arg("-C").arg(checkout).args(arguments).output();
    let done = done.map_err(|error| format!("git does not run: {error}"))?;
    if !done.status.success() {
        return Err(format!("git {}: {}", arguments.join(" "), String::from_utf8_lossy(&done.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

fn write(file: &Path, bytes: &[u8]) -> Result<(), String> {
    if fs::read(file).is_ok_and(|it| it == bytes) {
        return Ok(());
    }
    fs::create_dir_all(file.parent().unwrap_or(file))
        .and_then(|()| fs::write(file, bytes))
        .map_err(|error| format!("{}: {error}", file.display()))
}

/// Removes what a former run left and the checkout has no more. What a link leads to is left alone.
fn remove_others(root: &Path, folder: &Path, files: &BTreeSet<&str>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            remove_others(root, &path, files)?;
        } else if let Ok(file) = path.strip_prefix(root)
            && !file.to_str().is_some_and(|it| files.contains(it))
            && !file.ends_with("__mutant.rs")
        {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}
