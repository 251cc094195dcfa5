//! Annotations that protect: who may connect, which certificate is shown, which authorities are believed.
//!
//! No default may stand in for one that is not understood: nothing listens until it is corrected, and in a cloud nothing is
//! created or changed. A name that is nearly one of these was meant to protect, too, and nothing listens.

use seaway_model::{Problem, fact::Labels};

use super::{
    AUTHORITIES, BACKEND_AUTHORITIES, BASIC_AUTH, CLIENT_AUTHORITY, CLIENT_RATE, CONNECTIONS, DENIED,
    ENTRANCE, FORWARD_AUTH, FORWARD_HEADERS, FRONT_DOOR, HOST, INTERNAL, OURS, PASSTHROUGH, PATH, PROXY_FROM,
    RATE, Row, SOURCE_RANGES, ServiceOptions, TLS, TLS_CONTAINER, TLS_OTHERS, asks,
    meant::{meant, name_of},
    nobody, rows,
};
use crate::spelling::distance;

/// Whether clients have to show a certificate.
pub const CLIENTS: &str = "seaway.dev/client-certificates";

/// Done by our own data plane alone.
const HERE_ALONE: [&str; 5] = [PROXY_FROM, PASSTHROUGH, CLIENT_RATE, ENTRANCE, RATE];

/// Done by our own data plane and by clouds. [`SOURCE_RANGES`] says by itself that nobody may connect.
const ANYWHERE: [&str; 12] = [
    DENIED,
    CONNECTIONS,
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
pub(super) const OF_CLIENTS: [&str; 9] = [
    SOURCE_RANGES,
    DENIED,
    CLIENT_RATE,
    BASIC_AUTH,
    FORWARD_AUTH,
    FORWARD_HEADERS,
    AUTHORITIES,
    CLIENTS,
    ENTRANCE,
];

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

/// Which place a Service has at the front door, or whether it has one.
const PLACES: [&str; 3] = [HOST, PATH, FRONT_DOOR];
pub(super) const NO_PLACE: &str = "the front door does not serve the Service until this is corrected";

/// Whether an annotation of that name protects: a Service that means to have it is not to be served without.
pub fn protects(name: &str) -> bool {
    let is_one = |it: &&str| *it == SOURCE_RANGES || ANYWHERE.contains(it) || HERE_ALONE.contains(it);
    rows().filter(|row| row.names.contains(&name)).map(Row::name).any(|it| is_one(&it))
}

/// The same of those alone that say which clients are let in.
pub fn lets_clients_in(name: &str) -> bool {
    OF_CLIENTS.contains(&name)
}

/// Our name for a key whose prefix is nearly ours: a single letter of it is wrong, or what stands behind it is no slash.
pub(super) fn of_ours(key: &str) -> Option<String> {
    let ours = OURS.trim_end_matches('/');
    let is_ours = match key.split_once('/') {
        Some((domain, _)) => domain != ours && distance(domain, ours) == 1,
        None => key.starts_with(ours),
    };
    let name = name_of(key).filter(|it| is_ours && meant(it).ours.is_some())?;
    Some(format!("{OURS}{name}"))
}

/// Whether these may say where at the front door their Service is.
pub(crate) fn may_name_place(annotations: &Labels) -> bool {
    let is_place = |key: &str| {
        let row = rows().find(|row| row.names.contains(&key));
        row.is_some_and(|row| [HOST, PATH].contains(&row.name()))
    };
    annotations.keys().any(|key| key.starts_with(OURS) || of_ours(key).is_some() || is_place(key))
}

/// Whether a Problem is about the place of its Service at the front door, which is not understood.
pub(crate) fn leaves_front_door(problem: &Problem) -> bool {
    problem.message.ends_with(NO_PLACE)
}

impl ServiceOptions {
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
    pub(super) fn close_for_misspelt(&mut self, key: &str, value: &str) -> Option<&'static str> {
        let meant = meant(key.strip_prefix(OURS)?);
        if let Some(option) = meant.ours.filter(|it| !self.written.contains_key(it))
            && self.leave_front_door_for(option)
        {
            return Some(NO_PLACE);
        }
        let option = meant.protection().filter(|it| !self.written.contains_key(it))?;
        if [INTERNAL, ENTRANCE].contains(&option) && !asks(option, value) {
            return None;
        }
        self.closed = true;
        self.clients_unclear |= option == INTERNAL || OF_CLIENTS.contains(&option);
        Some("no listener is opened until this is corrected")
    }

    /// Where it is to be at the front door is not understood: it is nowhere there, rather than at all hosts.
    pub(super) fn leave_front_door_for(&mut self, option: &str) -> bool {
        let is_place = PLACES.contains(&option);
        self.http.place_unclear |= is_place;
        is_place
    }

    /// Whether a route that says this lets fewer in than the Services it leads to.
    pub(crate) fn guards(&self) -> bool {
        self.restricts_clients() || !self.http.entrances.is_empty() || self.protection().is_some()
    }

    /// Whether it lets fewer clients in where it is served. (Limits of all clients together keep no single one out.)
    pub(crate) fn restricts_clients(&self) -> bool {
        let is_open = self.sources.is_empty() && self.denied.is_empty() && self.http.rate.is_none();
        !is_open
            || self.clients_unclear
            || self.http.asks_who_it_is()
            || !matches!(self.protection(), None | Some(Protection::Limits(_)))
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
