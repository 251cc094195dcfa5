//! `seaway import`: the configuration of another load balancer as manifests and a seaway.yaml.
//!
//! ```text
//!   nginx.conf, haproxy.cfg, Ingress ─► read ─► Proxy (proxy.rs) ─► write ─► manifests, seaway.yaml
//!                                        │                           │
//!                                        └────► Report (report.rs) ◄─┘     each directive: translated, or why not
//! ```
//! Each source knows its own language alone and makes a `Proxy` of it; `write` knows Seaway's manifests alone. What protects and
//! cannot be translated closes its route: requests get 403 there, not another route.

mod expression;
mod haproxy;
mod ingress;
mod nginx;
mod proxy;
mod report;
mod service_loadbalancer;
mod write;

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    process::ExitCode,
    rc::Rc,
};

use anyhow::{Context, Result, bail};

use self::{proxy::Proxy, report::Report, write::Folder};
use crate::{
    args::{Import, ImportFile, ImportSource},
    output,
};

/// All files of one configuration together, those that it includes too.
const LARGEST: u64 = 4 << 20;

/// What was read, and what became of each directive.
pub(crate) struct ImportResult {
    proxy: Proxy,
    report: Report,
}

pub(crate) fn run(arguments: &Import) -> Result<ExitCode> {
    let (imported, arguments) = match &arguments.source {
        ImportSource::ServiceLoadbalancer(arguments) => return service_loadbalancer::run(arguments),
        ImportSource::Nginx(arguments) => (nginx::read(&arguments.file)?, arguments),
        ImportSource::Haproxy(arguments) => (haproxy::read(&arguments.file)?, arguments),
        ImportSource::Ingress(arguments) => (ingress::read(&arguments.file)?, arguments),
    };
    finish(imported, arguments)
}

fn finish(imported: ImportResult, arguments: &ImportFile) -> Result<ExitCode> {
    let (folder, report) = written(imported);
    match &arguments.into {
        Some(dir) => output::line(&folder.write(dir)?),
        None => output::line(folder.printed().trim_end()),
    }
    report.lines(arguments.quiet).iter().for_each(|it| output::error(it));
    Ok(if report.is_whole() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Any text is a configuration of each language, or is refused; every directive comes to something, and what is written are
/// documents of YAML.
pub fn fuzz(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let text = Text { name: "fuzz".into(), text: text.to_owned() };
    // Nothing is beside it.
    let nowhere = Path::new("/nonexistent/fuzz");
    let all =
        [nginx::read_text(nowhere, &text, 0), haproxy::read_text(nowhere, &text), ingress::read_text(&text)];
    for imported in all.into_iter().flatten() {
        let (folder, report) = written(imported);
        assert!(report.is_complete(), "a directive is passed over");
        for (name, text) in &folder.manifests {
            assert!(seaway_manifests::tree::parse(text).is_ok(), "{name} is no YAML:\n{text}");
        }
        if let Some(text) = &folder.config {
            assert!(crate::settings::parse(text, nowhere).is_ok(), "the configuration is refused:\n{text}");
        }
    }
}

fn written(imported: ImportResult) -> (Folder, Report) {
    let ImportResult { proxy, mut report } = imported;
    let folder = write::folder(proxy, &mut report);
    report.finish();
    (folder, report)
}

/// A text and the name that its places have.
#[derive(Clone, Debug)]
struct Text {
    name: Rc<str>,
    text: String,
}

/// Reads a file of at most so many bytes. One that is not UTF-8 is read as far as it is.
fn text_of(file: &Path, room: &mut u64) -> Result<Text> {
    let named = || file.display().to_string();
    let mut bytes = Vec::new();
    let opened = File::open(file).with_context(named)?;
    opened.take(room.saturating_add(1)).read_to_end(&mut bytes).with_context(named)?;
    let length = bytes.len() as u64;
    if length > *room {
        bail!(
            "{}: a configuration may have at most {LARGEST} bytes, with all files that it includes",
            named()
        );
    }
    *room -= length;
    Ok(Text { name: named().into(), text: String::from_utf8_lossy(&bytes).into_owned() })
}

/// A file that a configuration names: relative to the folder of the configuration, and absolute where that is known.
fn beside(file: &Path, named: &str) -> PathBuf {
    let folder = file.parent().filter(|it| !it.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    folder.join(named)
}

#[cfg(test)]
mod tests;
