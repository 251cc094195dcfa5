//! Why a Service is not at the front door.

use super::client_certificates::CannotAsk;
use crate::{annotations::Protection, guarded::GuardSource};

/// Why a Service is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotAttachedReason {
    AsItAsks,
    WithItsOwnAddress,
    Unasked,
    /// It has what protects it, and a listener that it shares with others cannot have that.
    Protected(Protection),
    /// Its clients have to show a certificate that cannot be asked for.
    Uncertifiable(CannotAsk),
    /// It says from where clients may connect, and TLS is passed on before anybody asks.
    SourcesWithPassthrough,
    /// The same of users, who are not asked then, and of requests, which are not counted.
    UsersWithPassthrough,
    WithoutHttp,
    /// Something protects it elsewhere, and would not where its name leads.
    Guarded(GuardSource),
    /// What is to protect it elsewhere cannot be used.
    UnusedRoute,
}

impl NotAttachedReason {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            NotAttachedReason::AsItAsks => "seaway.dev/front-door keeps the Service out",
            NotAttachedReason::WithItsOwnAddress => {
                "the Service has an address of its own; with seaway.dev/front-door: \"true\", the front \
                 door serves it, too"
            }
            NotAttachedReason::Unasked => {
                "the front door serves only Services that have seaway.dev/front-door: \"true\""
            }
            NotAttachedReason::Uncertifiable(why) => why.as_str(),
            NotAttachedReason::Protected(Protection::Clients(_)) => {
                "the front door cannot require client certificates where it passes TLS through"
            }
            NotAttachedReason::Protected(Protection::Unclear | Protection::Users | Protection::Limits(_)) => {
                "an annotation that restricts access to the Service is not understood: the front door answers 503 for it until that is corrected"
            }
            NotAttachedReason::SourcesWithPassthrough => {
                "the front door does not pass TLS through to a Service with source ranges"
            }
            NotAttachedReason::UsersWithPassthrough => {
                "the front door cannot require a password, query an authentication Service, or count requests where it passes TLS through"
            }
            NotAttachedReason::WithoutHttp => "no port of the Service speaks HTTP",
            NotAttachedReason::Guarded(GuardSource::ByRoute) => {
                "an HTTPRoute restricts access to this Service, and serving it at the path of its name would bypass the \
                 route; seaway.dev/front-door: \"true\" serves it there"
            }
            NotAttachedReason::Guarded(GuardSource::AtItsHost) => {
                "another object of the namespace restricts access to a part of this Service's host names, and serving it at the \
                 path of its name would bypass that; seaway.dev/front-door: \"true\" serves it there"
            }
            NotAttachedReason::UnusedRoute => {
                "a manifest that cannot be used may be an HTTPRoute that restricts access to this Service, and serving the \
                 Service at the path of its name would bypass that; seaway.dev/front-door: \"true\" serves it there"
            }
            NotAttachedReason::Guarded(GuardSource::AsksForOthers) => {
                "the Service answers seaway.dev/forward-auth of another Service, so clients do not reach it; \
     seaway.dev/front-door: \"true\" serves it to clients, too"
            }
        }
    }
}
