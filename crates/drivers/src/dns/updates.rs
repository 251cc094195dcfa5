//! Records by dynamic updates (RFC 2136): what is asked of a name server for a step.

use std::net::IpAddr;

use seaway_acme::dns::{
    DnsError, DnsServer, Prerequisite, RecordChange, RecordData, RecordType, UpdateOutcome,
};
use seaway_model::{
    acme::DnsKey,
    dns::{DnsName, marker_name},
};

use super::steps::{Precondition, Step};
use crate::acme::read_mounted_secret;

pub(super) fn server(
    it: &DnsName,
    server: std::net::SocketAddr,
    key: &DnsKey,
) -> Result<DnsServer, DnsError> {
    let field = format!("dns.zones ({}): key.secretFile", it.zone.name);
    Ok(DnsServer::new(server, crate::acme::tsig_key(&field, key, read_mounted_secret(&key.secret_file))?))
}

pub(super) async fn change(server: &DnsServer, it: &DnsName, step: &Step) -> Result<UpdateOutcome, DnsError> {
    let (presupposed, changes) = request(step);
    server.change(&it.zone.name, &it.name, &presupposed, &changes).await
}

fn request(step: &Step) -> (Vec<Prerequisite>, Vec<RecordChange>) {
    let (name, marker) = (step.name.clone(), marker_name(&step.name));
    let presupposed = match &step.presupposes {
        Precondition::Unused => vec![
            Prerequisite::NameUnused(name.clone()),
            Prerequisite::NoRecords(marker.clone(), RecordType::Txt),
        ],
        Precondition::Markers(texts) => {
            let mut all = vec![Prerequisite::Texts(marker.clone(), texts.clone())];
            if !step.adds.is_empty() {
                // The server would drop an address beside an alias in silence (RFC 2136, section 3.4.2.2).
                all.push(Prerequisite::NoRecords(name.clone(), RecordType::Cname));
            }
            all
        }
    };
    let text = |it: &String| RecordData::Text(it.clone());
    let (old, new) = (step.removes_markers.iter().map(text), step.adds_marker.iter().map(text));
    let mut changes: Vec<RecordChange> = Vec::new();
    changes.extend(old.map(|data| RecordChange::Remove { name: marker.clone(), data }));
    changes.extend(new.map(|data| RecordChange::Add { name: marker.clone(), data, ttl: step.ttl }));
    let address = |it: &IpAddr| RecordData::Address(*it);
    changes.extend(
        step.removes.iter().map(address).map(|data| RecordChange::Remove { name: name.clone(), data }),
    );
    let added = step.adds.iter().map(address);
    changes.extend(added.map(|data| RecordChange::Add { name: name.clone(), data, ttl: step.ttl }));
    (presupposed, changes)
}
