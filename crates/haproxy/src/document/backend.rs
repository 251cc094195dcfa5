//! Backends: what is done to requests, and the members that they go to.

use std::{net::SocketAddr, time::Duration};

use ipnet::IpNet;
use seaway_model::Name;

use crate::words::{Key, Label, PlainPath, Text};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// What it is for; empty for a spare one. Its name in HAProxy may be that of a spare backend that was taken.
    pub serves: Name,
    /// The same, for the reader.
    pub about: Text,
    /// Different ones need a reload.
    pub settings: Settings,
    /// Members in numbered places. That `s3` is another member needs no reload; one more slot does, where the version
    /// cannot add a server with what the settings ask.
    pub slots: Vec<Slot>,
}

impl Backend {
    pub fn is_spare(&self) -> bool {
        self.serves.is_empty()
    }
}

/// `s1`, `s2`, …; free without an address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    pub name: Label,
    pub member: Option<SlotMember>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotMember {
    pub at: SocketAddr,
    /// At most 256; 0 gets nothing new.
    pub weight: u16,
    pub state: SlotState,
    /// Only a server that is added can be a backup one, or have a name of its own for TLS: others need a reload.
    pub backup: bool,
    /// What its certificate is for, where TLS is spoken with it.
    pub tls_name: Option<Label>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SlotState {
    Ready,
    /// Keeps what it has, and gets nothing new.
    Drain,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    pub is_http: bool,
    pub balance: Balance,
    pub check: Option<Check>,
    pub stick: Option<Stickiness>,
    pub timeouts: ServerTimeouts,
    pub retries: Option<u8>,
    pub reuse: ConnectionReuse,
    /// Bytes of a request's body.
    pub body: Option<u64>,
    /// Media types; none: those that are text.
    pub compression: Option<Vec<Key>>,
    /// For each server alike.
    pub server: ServerSettings,
    /// In this order.
    pub rules: Vec<HttpRule>,
    /// What is answered, in place of members.
    pub answer: Option<ImmediateResponse>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    #[default]
    RoundRobin,
    LeastConnections,
    RandomTwo,
    Source,
    First,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    pub interval: Duration,
    pub timeout: Duration,
    pub rise: u8,
    pub fall: u8,
    pub port: Option<u16>,
    pub http: Option<HttpCheck>,
    /// So many errors in a row of clients' own traffic mark a member down.
    pub observe: Option<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpCheck {
    pub path: Text,
    pub host: Option<Text>,
    pub status: (u16, u16),
    pub expect: Option<Text>,
}

/// How a client keeps its server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stickiness {
    ClientIp(Duration),
    /// Ours, which members never see; or theirs, which gets our mark.
    Cookie {
        name: Label,
        insert: bool,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerTimeouts {
    pub connect: Duration,
    pub answer: Duration,
    pub half_closed: Duration,
    /// A tunnel without a byte.
    pub idle: Duration,
    /// For a member that has room.
    pub queue: Option<Duration>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConnectionReuse {
    #[default]
    Safe,
    Always,
    Never,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerSettings {
    pub http2: bool,
    pub tls: Option<ServerTls>,
    /// The version of the PROXY protocol.
    pub proxy: Option<u8>,
    pub connections: Option<u32>,
    pub slow_start: Option<Duration>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerTls {
    /// A file of [`super::Document::authorities`].
    Authorities(Label),
    SystemRoots,
    Unverified,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpRule {
    /// 403 for others.
    AllowFrom(Vec<IpNet>),
    /// 403 for these.
    DenyFrom(Vec<IpNet>),
    SetHeader(MessageDirection, Label, Text),
    AddHeader(MessageDirection, Label, Text),
    RemoveHeader(MessageDirection, Label),
    /// What begins the path by whole segments, the longest first, and what stands there then.
    ReplacePrefix(Vec<PlainPath>, PlainPath),
    SetPath(PlainPath),
    SetHost(Label),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageDirection {
    Request,
    Response,
}

/// A response that HAProxy gives without a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImmediateResponse {
    /// What is not said stays as the request has it.
    Redirect { scheme: Option<Scheme>, host: Option<Label>, port: Option<u16>, code: u16 },
    /// A body of [`super::Document::pages`], or the usual words.
    Return { code: u16, page: Option<Label> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheme {
    Http,
    Https,
}
