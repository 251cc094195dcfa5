//! Annotations that protect: who may connect, which certificate is shown, which authorities are believed.
//!
//! No default may stand in for one that is not understood: nothing listens until it is corrected, and in a cloud nothing is
//! created or changed. A name that is nearly one of these was meant to protect, too, and nothing listens.

use super::{
    AUTHORITIES, BACKEND_AUTHORITIES, BASIC_AUTH, CLIENT_AUTHORITY, CLIENT_RATE, CONNECTIONS, DENIED,
    FORWARD_AUTH, FORWARD_HEADERS, OURS, PASSTHROUGH, PROXY_FROM, RATE, SOURCE_RANGES, TLS, TLS_CONTAINER,
    TLS_OTHERS, Wishes, nobody, rows,
};
use crate::spelling::{distance, nearest};

/// Whether clients have to show a certificate.
pub const CLIENTS: &str = "seaway.dev/client-certificates";

/// Done by our own data plane alone.
const HERE_ALONE: [&str; 3] = [PROXY_FROM, PASSTHROUGH, CLIENT_RATE];

/// Done by our own data plane and by clouds. [`SOURCE_RANGES`] says by itself that nobody may connect.
const ANYWHERE: [&str; 11] = [
    DENIED,
    BASIC_AUTH,
    FORWARD_AUTH,
    FORWARD_HEADERS,
    TLS,
    AUTHORITIES,
    CLIENTS,
    "seaway.dev/backend-tls",
    "seaway.dev/backend-tls-name",
    BACKEND_AUTHORITIES,
    "seaway.dev/backend-tls-verify",
];

/// Which clients are let in, and how often, wherever they ask.
const OF_CLIENTS: [&str; 8] =
    [SOURCE_RANGES, DENIED, CLIENT_RATE, BASIC_AUTH, FORWARD_AUTH, FORWARD_HEADERS, AUTHORITIES, CLIENTS];

/// Done by clouds alone.
const IN_CLOUDS: [&str; 8] = [
    TLS_CONTAINER,
    TLS_OTHERS,
    CLIENT_AUTHORITY,
    "seaway.dev/client-crl-container",
    "seaway.dev/vip-security-groups",
    "seaway.dev/backend-tls-ca-container",
    "seaway.dev/backend-tls-crl-container",
    "seaway.dev/backend-tls-container",
];

/// Our name for it, where a single letter of `seaway.dev` is wrong and the rest is one of ours.
pub(super) fn of_ours(key: &str) -> Option<String> {
    let (domain, name) = key.split_once('/')?;
    let ours = OURS.trim_end_matches('/');
    let meant = format!("{OURS}{name}");
    let is_ours = rows().any(|row| row.names.contains(&meant.as_str()));
    (domain != ours && is_ours && distance(domain, ours) == 1).then_some(meant)
}

impl Wishes {
    /// Closes what an option protects that is not understood. Says what follows; nothing, if its default may be used.
    pub fn close_for(&mut self, option: &str) -> Option<&'static str> {
        let anywhere = ANYWHERE.contains(&option);
        let (here, in_clouds) =
            (anywhere || HERE_ALONE.contains(&option), anywhere || IN_CLOUDS.contains(&option));
        self.closed |= here;
        self.clients_unclear |= here && OF_CLIENTS.contains(&option);
        self.cloud.unclear |= in_clouds;
        match (here, in_clouds) {
            (true, true) => Some(
                "no listener is opened until this is corrected; in a cloud nothing is created or changed",
            ),
            (true, false) => Some("no listener is opened until this is corrected"),
            (false, true) => Some("in a cloud nothing is created or changed until this is corrected"),
            (false, false) => None,
        }
    }

    /// Closes what an unknown name was probably to protect, unless that is said as well. (In a cloud, what is there stays
    /// as it is: such a name was ignored there when it was made.)
    pub(super) fn close_for_misspelt(&mut self, key: &str) -> bool {
        let here = |name: &'static str| name.strip_prefix(OURS);
        let names: Vec<&str> = rows().flat_map(|row| row.names).copied().filter_map(here).collect();
        let Some(meant) = key.strip_prefix(OURS).and_then(|it| nearest(it, &names)) else { return false };
        let is_meant = |row: &&'static super::Row| row.names.iter().any(|it| here(it) == Some(meant));
        let option = rows().find(is_meant).map(super::Row::name);
        let protects = option.is_some_and(|it| {
            let is_one = it == SOURCE_RANGES || ANYWHERE.contains(&it) || HERE_ALONE.contains(&it);
            is_one && !self.written.contains_key(it)
        });
        self.closed |= protects;
        self.clients_unclear |= protects && option.is_some_and(|it| OF_CLIENTS.contains(&it));
        protects
    }

    /// What is asked for and cannot be had for a route, or where TLS is passed on.
    pub(crate) fn protection(&self) -> Option<Protection> {
        let is_said = |option: &&str| self.written.contains_key(*option);
        if self.closed || self.sources == nobody() {
            return Some(Protection::Unclear);
        }
        let mut clients =
            [AUTHORITIES, CLIENTS].into_iter().filter(|it| *it == AUTHORITIES || !self.tls.clients_optional);
        if let Some(option) = clients.find(is_said) {
            return Some(Protection::Clients(option));
        }
        let limits = [(CONNECTIONS, self.limits.connections), (RATE, self.limits.new_per_second)];
        let limit = limits.into_iter().find(|(option, limit)| limit.is_some() && is_said(option));
        limit.map(|(option, _)| Protection::Limits(option))
    }
}

/// By what a Service protects itself, with the option that says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protection {
    /// What it says is not understood.
    Unclear,
    Clients(&'static str),
    Limits(&'static str),
    /// Users with passwords: of a route alone, which cannot have them.
    Users,
}
