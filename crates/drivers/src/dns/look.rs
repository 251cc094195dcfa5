//! What a name server has at a name and at its marker.

use std::{collections::BTreeSet, net::IpAddr};

use seaway_acme::dns::{DnsError, DnsServer, Prerequisite, RecordData, RecordType, UpdateOutcome};
use seaway_model::dns::{DnsName, marker_name};

use super::{marker::Marker, steps::Observed};

/// By what external-dns says that a name is its own.
const EXTERNAL_DNS: &str = "heritage=external-dns";

pub(super) async fn observe(server: &DnsServer, it: &DnsName) -> Result<Observed, DnsError> {
    let found = server.records(&marker_name(&it.name), RecordType::Txt).await?;
    let mut texts: Vec<String> = found.data.into_iter().filter_map(text).collect();
    texts.sort();
    if !texts.iter().any(|it| Marker::read(it).is_some()) {
        // It may be what a wildcard answers: updates see what is really there.
        let none = [
            Prerequisite::NameUnused(it.name.to_string()),
            Prerequisite::NoRecords(marker_name(&it.name), RecordType::Txt),
        ];
        return Ok(match server.change(&it.zone.name, &it.name, &none, &[]).await? {
            UpdateOutcome::Done => Observed::default(),
            UpdateOutcome::NotAsPresupposed => {
                Observed { others: Some(others(server, it).await?), ..Observed::default() }
            }
        });
    }
    let mut observed = Observed { texts, ..Observed::default() };
    let known: BTreeSet<IpAddr> =
        observed.texts.iter().filter_map(|it| Marker::read(it)).flat_map(|it| it.addresses).collect();
    for kind in [RecordType::A, RecordType::Aaaa] {
        let found = server.records(&it.name, kind).await?;
        if let Some(alias) = found.alias {
            observed.others = Some(format!("an alias (CNAME) for {alias}"));
        }
        let addresses: BTreeSet<IpAddr> = found.data.into_iter().filter_map(address).collect();
        if !addresses.is_subset(&known) || observed.others.is_some() {
            let some = [Prerequisite::SomeRecords(it.name.to_string(), kind)];
            if server.change(&it.zone.name, &it.name, &some, &[]).await? == UpdateOutcome::NotAsPresupposed {
                // A wildcard has answered.
                let is_alias = observed.others.is_some() && is_used(server, it).await?;
                observed.others = observed.others.filter(|_| is_alias);
                continue;
            }
        }
        observed.addresses.extend(addresses);
    }
    Ok(observed)
}

async fn is_used(server: &DnsServer, it: &DnsName) -> Result<bool, DnsError> {
    let cname = [Prerequisite::SomeRecords(it.name.to_string(), RecordType::Cname)];
    Ok(server.change(&it.zone.name, &it.name, &cname, &[]).await? == UpdateOutcome::Done)
}

/// What is at a name that is not ours, for people.
async fn others(server: &DnsServer, it: &DnsName) -> Result<String, DnsError> {
    let name = &it.name;
    let mut all = Vec::new();
    for kind in [
        RecordType::A,
        RecordType::Aaaa,
        RecordType::Cname,
        RecordType::Mx,
        RecordType::Ns,
        RecordType::Srv,
        RecordType::Txt,
    ] {
        let found = server.records(name, kind).await?;
        let shown: Vec<String> = found.data.iter().take(4).map(shown).collect();
        match found.alias {
            Some(alias) if all.is_empty() => all.push(format!("an alias (CNAME) for {alias}")),
            None if !shown.is_empty() => all.push(format!("{} {}", kind.as_str(), shown.join(", "))),
            None if found.count > 0 && (kind != RecordType::Cname || all.is_empty()) => {
                all.push(format!("{} records", kind.as_str()))
            }
            _ => {}
        }
    }
    let mut shown = if all.is_empty() { "records".to_owned() } else { all.join("; ") };
    for at in [name.to_string(), format!("a-{name}"), format!("aaaa-{name}"), format!("cname-{name}")] {
        let Ok(found) = server.records(&at, RecordType::Txt).await else { continue };
        if found.data.into_iter().filter_map(text).any(|it| it.contains(EXTERNAL_DNS)) {
            shown.push_str(&format!(" (external-dns wrote it, says the TXT record at {at})"));
            break;
        }
    }
    Ok(shown)
}

fn text(data: RecordData) -> Option<String> {
    match data {
        RecordData::Text(text) => Some(text),
        RecordData::Address(_) => None,
    }
}

fn address(data: RecordData) -> Option<IpAddr> {
    match data {
        RecordData::Address(ip) => Some(ip),
        RecordData::Text(_) => None,
    }
}

fn shown(data: &RecordData) -> String {
    match data {
        RecordData::Address(ip) => ip.to_string(),
        RecordData::Text(text) => format!("{:?}", text.chars().take(80).collect::<String>()),
    }
}
