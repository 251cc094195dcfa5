//! Records in zones that a name server takes dynamic updates of (RFC 2136), signed by TSIG: those that prove a host name by DNS-01,
//! and addresses of host names.
//!
//! ```text
//!   zone_of (SOA) ─► add (a TXT, and no CNAME there) ─► shows (the server answers with it) ─► remove (that TXT alone)
//!   records (of one name and type) ─► update (if all is so that it presupposes)
//! ```
//!
//! Each request goes by UDP, then by TCP. An answer that the key has not signed is none.

mod error;
mod exchange;
mod message;
mod tsig;
mod update;

use std::net::SocketAddr;

pub use self::{
    error::DnsError,
    tsig::{TsigAlgorithm, TsigKey},
    update::{Prerequisite, RecordChange, RecordData, RecordType, Records, UpdateOutcome},
};
use self::{
    exchange::exchange,
    message::{CNAME, Reply, Request, SOA, TXT, WireName},
};

/// A server and the key that it knows. It has no secret in its debug text.
#[derive(Debug)]
pub struct DnsServer {
    at: SocketAddr,
    key: TsigKey,
}

impl DnsServer {
    pub fn new(at: SocketAddr, key: TsigKey) -> DnsServer {
        DnsServer { at, key }
    }

    /// The zone that this server is authoritative for, and that the name is in.
    pub async fn zone_of(&self, name: &str) -> Result<String, DnsError> {
        let asked = wire(name)?;
        let reply = self.ask(&asked, SOA).await?;
        let soa = reply.answers.iter().chain(&reply.authority).find(|it| it.kind == SOA);
        match soa.filter(|it| reply.is_authoritative && asked.is_within(&it.name)) {
            Some(soa) => Ok(soa.name.to_string()),
            None => Err(DnsError::NoZone { server: self.at, name: name.into() }),
        }
    }

    /// Adds that value beside all others, unless the name is an alias.
    pub async fn add(&self, zone: &str, name: &str, value: &str) -> Result<(), DnsError> {
        self.update(zone, name, Request::add(&wire(zone)?, &wire(name)?, value)?).await
    }

    /// Removes that value, and nothing else. It is no error if it is not there.
    pub async fn remove(&self, zone: &str, name: &str, value: &str) -> Result<(), DnsError> {
        self.update(zone, name, Request::remove(&wire(zone)?, &wire(name)?, value)?).await
    }

    /// Whether the server itself answers with that value.
    pub async fn shows(&self, name: &str, value: &str) -> Result<bool, DnsError> {
        let asked = wire(name)?;
        Ok(has(&self.ask(&asked, TXT).await?, &asked, value))
    }

    /// What the server answers, which may be by a wildcard of the zone.
    pub async fn records(&self, name: &str, kind: RecordType) -> Result<Records, DnsError> {
        let asked = update::wire(name)?;
        let reply = self.ask(&asked, kind.number()).await?;
        let own = || reply.answers.iter().filter(|it| it.name == asked);
        let of_kind = || own().filter(|it| it.kind == kind.number());
        Ok(Records {
            data: of_kind().filter_map(message::Record::value).collect(),
            count: of_kind().count(),
            alias: own()
                .filter(|_| kind != RecordType::Cname)
                .find_map(|it| it.alias.as_ref().map(ToString::to_string)),
        })
    }

    /// Changes all of that, or nothing. With no change, it tells whether all is so.
    pub async fn change(
        &self,
        zone: &str,
        name: &str,
        prerequisites: &[Prerequisite],
        changes: &[RecordChange],
    ) -> Result<UpdateOutcome, DnsError> {
        let request = Request::update(&wire(zone)?, prerequisites, changes)?;
        match exchange(self.at, &request, Some(&self.key)).await?.code {
            message::NO_ERROR => Ok(UpdateOutcome::Done),
            message::NX_DOMAIN | message::YX_DOMAIN | message::YX_RRSET | message::NX_RRSET => {
                Ok(UpdateOutcome::NotAsPresupposed)
            }
            code => Err(DnsError::refused(self.at, zone, name, self.key.name(), code)),
        }
    }

    async fn update(&self, zone: &str, name: &str, request: Request) -> Result<(), DnsError> {
        let reply = exchange(self.at, &request, Some(&self.key)).await?;
        match reply.code {
            0 => Ok(()),
            code => Err(DnsError::refused(self.at, zone, name, self.key.name(), code)),
        }
    }

    async fn ask(&self, name: &WireName, kind: u16) -> Result<Reply, DnsError> {
        ask(self.at, name, kind, Some(&self.key)).await
    }
}

/// Whether that server, which need not know the key, answers with the value for what it is authoritative for.
pub async fn shows(at: SocketAddr, name: &str, value: &str) -> Result<bool, DnsError> {
    let asked = wire(name)?;
    Ok(has(&ask(at, &asked, TXT, None).await?, &asked, value))
}

async fn ask(at: SocketAddr, name: &WireName, kind: u16, key: Option<&TsigKey>) -> Result<Reply, DnsError> {
    let reply = exchange(at, &Request::query(name, kind)?, key).await?;
    match reply.code {
        // A name that is not there is an answer, too.
        message::NO_ERROR | message::NX_DOMAIN => Ok(reply),
        code => Err(DnsError::not_answered(at, &name.to_string(), code)),
    }
}

fn has(reply: &Reply, name: &WireName, value: &str) -> bool {
    reply.is_authoritative
        && reply.answers.iter().any(|it| it.kind == TXT && it.name == *name && it.has_text(value))
}

fn wire(name: &str) -> Result<WireName, DnsError> {
    WireName::parse(name).ok_or_else(|| DnsError::Name(name.into()))
}

/// For `fuzz/`: whatever a server answers is read within bounds, and what is written reads back equal.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    if let Ok(reply) = Reply::read(bytes) {
        let records = reply.answers.len().saturating_add(reply.authority.len());
        // A record has a name, and ten bytes at least.
        assert!(records.saturating_mul(11) <= bytes.len());
        for record in reply.answers.iter().chain(&reply.authority) {
            assert!(record.data.len() <= bytes.len());
            let text = record.name.to_string();
            assert!(WireName::parse(&text).is_none_or(|it| it == record.name), "{text}");
        }
        if let Some(tsig) = &reply.tsig {
            assert!(tsig.begins_at < bytes.len() && tsig.mac.len() <= bytes.len());
        }
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let Some(name) = WireName::parse(text) else { return };
    let read = Request::query(&name, CNAME).ok().and_then(|it| Reply::read(it.bytes()).ok());
    assert!(read.is_some_and(|it| it.question == Some((name, CNAME))));
}
