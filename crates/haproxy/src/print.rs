//! A document as the files that HAProxy reads. In them stands nothing but what is written here and texts of
//! [`crate::words`], so that no value of anybody ends its line or its word.

mod backend;
mod frontend;

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use ipnet::IpNet;
use secrecy::SecretString;

use crate::{
    document::{Document, FileKind, TlsOptions},
    words::{Folder, Text},
};

/// What the first line of each configuration of ours begins with: a file without it is somebody else's.
pub const MARK: &str = "# Written by Seaway";

/// Whether a file that is there may be replaced.
pub fn is_ours(text: &str) -> bool {
    text.starts_with(MARK)
}

/// What HAProxy is started with, and all other files by their whole paths. Keys are among them: only those of
/// [`FileKind::Certificates`] are secret.
#[derive(Debug)]
pub struct RenderedFiles {
    pub configuration: String,
    pub others: BTreeMap<String, (FileKind, SecretString)>,
}

pub fn files(document: &Document) -> RenderedFiles {
    let folder = &document.global.folder;
    let mut others = BTreeMap::new();
    let mut put = |place: FileKind, name, text: String| {
        others.insert(place.path(folder, name), (place, SecretString::from(text)));
    };
    for (name, map) in &document.maps {
        put(
            FileKind::Maps,
            name,
            map.entries.iter().map(|(key, value)| format!("{key} {value}\n")).collect(),
        );
    }
    for (name, list) in &document.crt_lists {
        let entries = list.entries.iter().map(|entry| {
            let path = FileKind::Certificates.path(folder, &entry.certificate);
            let mut line = format!("{path} [{}]", tls_terms(&entry.tls, folder));
            for name in &entry.names {
                let _ = write!(line, " {name}");
            }
            line.push('\n');
            line
        });
        put(FileKind::CrtLists, name, entries.collect());
    }
    for (name, pem) in &document.certificates {
        put(FileKind::Certificates, name, pem.expose().to_owned());
    }
    for (name, text) in &document.authorities {
        put(FileKind::Authorities, name, text.to_string());
    }
    for (name, text) in &document.pages {
        put(FileKind::Pages, name, text.to_string());
    }
    RenderedFiles { configuration: configuration(document), others }
}

fn configuration(document: &Document) -> String {
    let mut page = ConfigWriter::default();
    page.text.push_str(MARK);
    page.text.push_str(&format!(
        " for HAProxy {} and later. Changes here are lost: it is written again from Services and routes.\n",
        document.version
    ));
    page.text.push_str("# What each name is for stands above it. Hosts and paths are in the maps, certificates in the crt-lists.\n");
    global(document, &mut page);
    for (name, frontend) in &document.frontends {
        frontend::frontend(name, frontend, document, &mut page);
    }
    for (name, backend) in &document.backends {
        backend::backend(name, backend, document, &mut page);
    }
    page.text
}

fn global(document: &Document, page: &mut ConfigWriter) {
    let global = &document.global;
    page.section("", "global");
    // HAProxy would share ports with other programs that share theirs, such as another HAProxy, and each would get some of
    // the connections.
    page.line("noreuseport");
    page.line(format_args!("stats socket {} mode 600 level admin expose-fd listeners", global.socket()));
    page.line(format_args!("hard-stop-after {}", milliseconds(global.hard_stop)));
    // After a reload, connections that clients keep end with a response. Closed at once, they would lose requests under way.
    page.line("close-spread-time 10s");
    page.line(format_args!("server-state-file {}", global.state()));
    if let Some(threads) = global.threads {
        page.line(format_args!("nbthread {threads}"));
    }
    if let Some(connections) = global.connections {
        page.line(format_args!("maxconn {connections}"));
    }
    // Mozilla's "intermediate".
    page.line("ssl-default-bind-options ssl-min-ver TLSv1.2 no-tls-tickets");
    page.line(
        "ssl-default-bind-ciphers ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305",
    );
    page.line("ssl-default-bind-ciphersuites TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256");
    page.line("tune.ssl.default-dh-param 2048");
    page.section("", "defaults");
    page.line("log global");
    page.line("option dontlognull");
    page.line("option redispatch");
    // What checks found, so that a reload forgets nothing of it.
    page.line("load-server-state-from-file global");
    page.line("timeout connect 5s");
    page.line("timeout client 50s");
    page.line("timeout server 50s");
}

/// Lines in sections.
#[derive(Default)]
struct ConfigWriter {
    text: String,
}

impl ConfigWriter {
    fn section(&mut self, about: &str, head: impl std::fmt::Display) {
        self.text.push('\n');
        if !about.is_empty() {
            let _ = writeln!(self.text, "# {about}");
        }
        let _ = writeln!(self.text, "{head}");
    }

    fn line(&mut self, line: impl std::fmt::Display) {
        let _ = writeln!(self.text, "    {line}");
    }
}

/// In quotes, where HAProxy reads a plain text.
fn quoted(text: &Text) -> String {
    format!("'{text}'")
}

/// In quotes, where HAProxy reads a log format.
fn formatted(text: &Text) -> String {
    format!("'{}'", text.as_str().replace('%', "%%"))
}

fn milliseconds(time: Duration) -> String {
    let count = time.as_millis().clamp(1, 2_000_000_000);
    if count.is_multiple_of(1000) { format!("{}s", count / 1000) } else { format!("{count}ms") }
}

/// So many words of a list stand in a line: HAProxy takes 64.
const WORDS: usize = 50;

/// A condition of this name: the client has an address in the list. Lines of one name are one condition.
fn ranges(name: impl std::fmt::Display, list: &[IpNet], page: &mut ConfigWriter) {
    for some in list.chunks(WORDS) {
        let words: Vec<String> = some.iter().map(IpNet::to_string).collect();
        page.line(format_args!("acl {name} src {}", words.join(" ")));
    }
}

pub(crate) fn tls_terms(terms: &TlsOptions, folder: &Folder) -> String {
    let mut words = format!("ssl-min-ver {}", if terms.modern { "TLSv1.3" } else { "TLSv1.2" });
    if let Some((authorities, required)) = &terms.clients {
        let path = FileKind::Authorities.path(folder, authorities);
        let verify = if *required { "required" } else { "optional" };
        let _ = write!(words, " ca-file {path} verify {verify}");
    }
    words
}
