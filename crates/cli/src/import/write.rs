//! A `Proxy` as files: manifests, and a seaway.yaml beside their folder.

mod routes;
mod services;
mod settings;
mod spelling;
mod tidy;
mod yaml;

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

pub(super) use self::{
    spelling::{LONG, REST, any_case, escaped},
    yaml::printable,
};
use super::{proxy::Proxy, report::Report};
use crate::init;

/// As `seaway init` has it: beside the folder, where it is not read as a manifest.
const CONFIG: &str = "seaway.yaml";
/// Of the folder where none is named.
const MANIFESTS: &str = "manifests";

/// What is to be written.
#[derive(Debug, Default)]
pub(super) struct Folder {
    /// By name, within the folder.
    pub(super) manifests: Vec<(String, String)>,
    pub(super) config: Option<String>,
}

pub(super) fn folder(mut proxy: Proxy, report: &mut Report) -> Folder {
    tidy::tidy(&mut proxy, report);
    let placed = services::placed(&proxy);
    let mut manifests = services::files(&proxy, &placed);
    let routes = routes::text(&proxy, &placed, report);
    if !routes.is_empty() {
        manifests.push(("routes.yaml".to_owned(), routes));
    }
    manifests.extend(std::mem::take(&mut proxy.objects));
    Folder { config: settings::text(&proxy), manifests }
}

impl Folder {
    /// All files in one text.
    pub(super) fn printed(&self) -> String {
        let config = self.config.iter().map(|text| (CONFIG.to_owned(), text));
        let manifests = self.manifests.iter().map(|(name, text)| (format!("{MANIFESTS}/{name}"), text));
        let texts: Vec<String> =
            config.chain(manifests).map(|(name, text)| format!("# file: {name}\n{text}")).collect();
        if texts.is_empty() {
            return "# Nothing could be translated.".to_owned();
        }
        texts.join("---\n")
    }

    /// Says what it wrote, and what to type next. Where one file is there already, none is written.
    pub(super) fn write(&self, dir: &Path) -> Result<String> {
        let mut done = String::new();
        let config = dir.parent().unwrap_or(Path::new("")).join(CONFIG);
        let named = self.manifests.iter().map(|(name, text)| (dir.join(name), text));
        let files: Vec<(PathBuf, &String)> =
            named.chain(self.config.iter().map(|text| (config.clone(), text))).collect();
        if let Some((taken, _)) = files.iter().find(|(path, _)| path.symlink_metadata().is_ok()) {
            bail!(
                "{} exists already and is not overwritten; nothing is written: name a folder that does not exist yet",
                taken.display()
            );
        }
        let has_secrets = files.iter().any(|(_, text)| is_secret(text));
        make(dir, has_secrets).with_context(|| format!("the folder {} cannot be made", dir.display()))?;
        for (path, text) in &files {
            match is_secret(text) {
                true => init::create_secret(path, text)?,
                false => init::create(path, text)?,
            }
            done.push_str(&format!("wrote {}\n", path.display()));
        }
        if self.manifests.is_empty() {
            done.push_str(
                "No manifest is written, because nothing to serve could be translated: see the report.",
            );
            return Ok(done);
        }
        let with = match self.config {
            Some(_) => format!(" --config {}", config.display()),
            None => String::new(),
        };
        let dir = dir.display();
        done.push_str(&format!(
            "\nCheck it, see what would be served, and serve it:\n    seaway check {dir}{with}\n    seaway plan {dir}{with}\n    seaway run {dir}{with}"
        ));
        Ok(done)
    }
}

/// Whether a manifest has a Secret. Objects are written with their fields at the beginning of lines.
fn is_secret(text: &str) -> bool {
    text.lines().any(|it| it.trim_start_matches(['"', '\'']).starts_with("kind") && it.contains("Secret"))
}

/// The folder, which others may look into only where it has no Secret.
fn make(dir: &Path, has_secrets: bool) -> io::Result<()> {
    if !has_secrets || dir.is_dir() {
        return fs::create_dir_all(dir);
    }
    if let Some(parent) = dir.parent() {
        fs::create_dir_all(parent)?;
    }
    DirBuilder::new().mode(0o700).create(dir)
}
