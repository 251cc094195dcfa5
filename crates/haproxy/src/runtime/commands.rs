//! What HAProxy can be told while it runs, as values; each prints itself as it is sent, but for keys.

use std::{fmt, net::SocketAddr};

use super::reply::ExpectedReply;
use crate::{
    document::{CrtEntry, Pem},
    words::{Key, Label},
};

/// All of a command with its payload has to fit in HAProxy's buffer, 16 KiB unless `tune.bufsize` says otherwise.
pub const MOST_PAYLOAD: usize = 15_000;
/// Of a map that is replaced, so much at a time.
const CHUNK: usize = 8_000;

pub(super) const NEW_VERSION: &str = "New version created: ";

#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    SetAddress(ServerName, SocketAddr),
    SetWeight(ServerName, u16),
    SetState(ServerName, ServerState),
    /// Up, until its checks say otherwise: what was found of the member before is not this one's.
    ForgetChecks(ServerName),
    AddServer(ServerName, Box<NewServer>),
    AddKey {
        map: String,
        key: Key,
        value: Key,
    },
    SetKey {
        map: String,
        key: Key,
        value: Key,
    },
    RemoveKey {
        map: String,
        key: Key,
    },
    /// All of a map at once: no request sees a part of it.
    ReplaceMap {
        map: String,
        entries: Vec<(Key, Key)>,
    },
    /// A new certificate and its key, or others in place of those of before.
    SetCertificate {
        file: String,
        pem: Pem,
        is_new: bool,
    },
    RemoveCertificate {
        file: String,
    },
    AddToList {
        list: String,
        entry: CrtListEntry,
    },
    RemoveFromList {
        list: String,
        entry: CrtListEntry,
    },
}

/// A server of a backend.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerName {
    pub backend: Label,
    pub name: Label,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServerState {
    Ready,
    Drain,
    Maintenance,
}

/// A server that was in no file, and is in maintenance at first. Nothing of `default-server` is its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewServer {
    pub at: SocketAddr,
    pub weight: u16,
    /// `check`, `maxconn`, …, as a line of the file has them.
    pub words: String,
    pub is_checked: bool,
    pub backup: bool,
}

/// A line of a crt-list, with the paths that HAProxy knows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CrtListEntry {
    pub file: String,
    pub entry: CrtEntry,
    /// What stands in brackets behind the file; empty where nothing does.
    pub terms: String,
}

/// One command as it is sent, and what its reply has to look like.
#[derive(Clone, PartialEq)]
pub struct CommandText {
    pub text: String,
    /// Without an empty line in it, which would end it.
    pub payload: Option<String>,
    pub expected: ExpectedReply,
}

impl CommandText {
    pub fn new(text: impl Into<String>, expected: ExpectedReply) -> CommandText {
        CommandText { text: text.into(), payload: None, expected }
    }

    fn with(text: impl Into<String>, payload: String, expected: ExpectedReply) -> CommandText {
        CommandText { text: text.into(), payload: Some(payload), expected }
    }

    /// As bytes for a socket. `None` where it would be more than one command: a text with a line's end or a `;`.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        if self.text.contains(['\n', '\r', ';', '\0']) {
            return None;
        }
        let Some(payload) = &self.payload else { return Some(format!("{}\n", self.text).into_bytes()) };
        let payload = payload.trim_end();
        let is_one = payload.len() <= MOST_PAYLOAD
            && !payload.is_empty()
            && payload.lines().all(|it| !it.trim().is_empty());
        is_one.then(|| format!("{} <<\n{payload}\n\n", self.text).into_bytes())
    }
}

/// Without its payload, which may be a key.
impl fmt::Debug for CommandText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.text, if self.payload.is_some() { " << …" } else { "" })
    }
}

impl Command {
    /// What is sent in this order, each after the reply to the one before. Of a map that is replaced, what makes the new
    /// version; the rest is [`Command::version`], once it has a number.
    pub fn lines(&self) -> Vec<CommandText> {
        use ExpectedReply::{Address, Number, Says, Silence, SilenceOr};
        let one = |text: String, expected| vec![CommandText::new(text, expected)];
        match self {
            Command::SetAddress(server, at) => {
                one(format!("set server {server} addr {} port {}", at.ip(), at.port()), Address)
            }
            Command::SetWeight(server, weight) => {
                one(format!("set server {server} weight {weight}"), Silence)
            }
            Command::SetState(server, state) => one(format!("set server {server} state {state}"), Silence),
            Command::ForgetChecks(server) => one(format!("set server {server} health up"), Silence),
            Command::AddServer(server, new) => {
                let words = if new.words.is_empty() { String::new() } else { format!(" {}", new.words) };
                let add = format!("add server {server} {} weight {}{words}", new.at, new.weight);
                let mut lines = one(add, Says("New server registered."));
                if new.is_checked {
                    lines.push(CommandText::new(format!("enable health {server}"), Silence));
                }
                lines
            }
            Command::AddKey { map, key, value } => one(format!("add map {map} {key} {value}"), Silence),
            Command::SetKey { map, key, value } => one(format!("set map {map} {key} {value}"), Silence),
            Command::RemoveKey { map, key } => {
                one(format!("del map {map} {key}"), SilenceOr("Key not found."))
            }
            Command::ReplaceMap { map, .. } => one(format!("prepare map {map}"), Number(NEW_VERSION)),
            Command::SetCertificate { file, pem, is_new } => {
                let mut lines = Vec::new();
                if *is_new {
                    lines.push(CommandText::new(
                        format!("new ssl cert {file}"),
                        Says("New empty certificate store"),
                    ));
                }
                let pem = without_empty_lines(pem.expose());
                lines.push(CommandText::with(format!("set ssl cert {file}"), pem, Says("Transaction ")));
                lines.push(CommandText::new(format!("commit ssl cert {file}"), Says("Success!")));
                lines
            }
            Command::RemoveCertificate { file } => one(format!("del ssl cert {file}"), Says("deleted!")),
            Command::AddToList { list, entry } => {
                vec![CommandText::with(
                    format!("add ssl crt-list {list}"),
                    entry.to_string(),
                    Says("Success!"),
                )]
            }
            Command::RemoveFromList { list, .. } => {
                one(format!("show ssl crt-list -n {list}"), ExpectedReply::Table)
            }
        }
    }

    /// What fills the version of a map that was prepared, and puts it in place of the one before.
    pub fn version(map: &str, entries: &[(Key, Key)], version: u64) -> Vec<CommandText> {
        let mut lines = Vec::new();
        let mut chunk = String::new();
        let add = |chunk: &mut String| {
            CommandText::with(
                format!("add map @{version} {map}"),
                std::mem::take(chunk),
                ExpectedReply::Silence,
            )
        };
        for (key, value) in entries {
            chunk.push_str(&format!("{key} {value}\n"));
            if chunk.len() >= CHUNK {
                lines.push(add(&mut chunk));
            }
        }
        if !chunk.is_empty() {
            lines.push(add(&mut chunk));
        }
        lines.push(CommandText::new(format!("commit map @{version} {map}"), ExpectedReply::Silence));
        lines
    }
}

/// OpenSSL needs none between two blocks.
fn without_empty_lines(pem: &str) -> String {
    pem.lines().filter(|it| !it.trim().is_empty()).flat_map(|it| [it.trim_end(), "\n"]).collect()
}

/// Whether HAProxy's buffer has room for it.
pub fn fits(pem: &Pem) -> bool {
    pem.expose().len() <= MOST_PAYLOAD
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Command::ReplaceMap { map, entries } => {
                write!(f, "replace map {map} ({} entries)", entries.len())
            }
            Command::SetCertificate { file, .. } => write!(f, "set ssl cert {file}"),
            Command::AddToList { list, entry } => write!(f, "add ssl crt-list {list} << {entry}"),
            Command::RemoveFromList { list, entry } => write!(f, "del ssl crt-list {list} {}", entry.file),
            other => {
                let texts: Vec<String> = other.lines().into_iter().map(|it| it.text).collect();
                f.write_str(&texts.join("; "))
            }
        }
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.backend, self.name)
    }
}

impl fmt::Display for ServerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ServerState::Ready => "ready",
            ServerState::Drain => "drain",
            ServerState::Maintenance => "maint",
        })
    }
}

impl fmt::Display for CrtListEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if !self.terms.is_empty() {
            write!(f, " [{}]", self.terms)?;
        }
        self.entry.names.iter().try_for_each(|it| write!(f, " {it}"))
    }
}
