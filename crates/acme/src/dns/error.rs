//! Why a name server did not do what it was asked for: one line each, with what to look at.

use std::net::SocketAddr;

use super::message::{NO_ZONE_AUTHORITY, NOT_ZONE, NX_RRSET, REFUSED, SERVER_FAILURE, YX_RRSET};

#[derive(Debug, thiserror::Error)]
pub enum DnsError {
    #[error("the name server {server} cannot be reached: {why}")]
    Unreachable { server: SocketAddr, why: String },
    /// What came was not from who knows the key, or was not whole.
    #[error("Seaway rejects an answer of the name server {server}: {why}")]
    Unbelievable { server: SocketAddr, why: String },
    #[error(
        "the name server {server} is not authoritative for {name}: name one that is in frontDoor.acme.dns.server, \
             or a zone of it in frontDoor.acme.dns.zones"
    )]
    NoZone { server: SocketAddr, name: String },
    #[error("{why}")]
    Refused { why: String, is_transient: bool },
    #[error("{0:?} is not a DNS name")]
    Name(String),
    #[error("{0}")]
    Key(String),
}

impl DnsError {
    /// It may go well soon, with nothing changed here.
    pub fn is_transient(&self) -> bool {
        match self {
            DnsError::Unreachable { .. } => true,
            DnsError::Refused { is_transient, .. } => *is_transient,
            _ => false,
        }
    }

    pub(super) fn refused(server: SocketAddr, zone: &str, name: &str, key: &str, code: u16) -> DnsError {
        let why = match code {
            REFUSED => format!(
                "the name server {server} refuses to change {name} in the zone {zone}: its configuration \
                 must allow this to the key {key} (REFUSED)"
            ),
            NO_ZONE_AUTHORITY => {
                format!(
                    "the name server {server} takes no updates of the zone {zone}: this server is not the \
                     primary server of that zone (NOTAUTH)"
                )
            }
            NOT_ZONE => format!("{name} is not in the zone {zone} of the name server {server} (NOTZONE)"),
            YX_RRSET => format!(
                "{name} is an alias (CNAME) at the name server {server}, which is not supported: remove the CNAME record"
            ),
            NX_RRSET => {
                format!(
                    "the name server {server} has no record at {name}, where Seaway expects one (NXRRSET)"
                )
            }
            SERVER_FAILURE => {
                format!(
                    "the name server {server} cannot change the zone {zone}: look into its log (SERVFAIL)"
                )
            }
            code => format!(
                "the name server {server} does not change the zone {zone}: its answer is error {code}"
            ),
        };
        DnsError::Refused { why, is_transient: code == SERVER_FAILURE }
    }

    pub(super) fn not_answered(server: SocketAddr, name: &str, code: u16) -> DnsError {
        let why = match code {
            REFUSED => format!("the name server {server} refuses queries for {name} (REFUSED)"),
            SERVER_FAILURE => format!("the name server {server} cannot answer for {name} (SERVFAIL)"),
            code => {
                format!("the name server {server} does not answer for {name}: its answer is error {code}")
            }
        };
        DnsError::Refused { why, is_transient: code == SERVER_FAILURE }
    }
}
