//! What the status of a Service says of its addresses, and whose words these are.
//!
//! Nobody writes a status by hand, so what cannot be read there is nobody's fault.

use std::net::IpAddr;

use seaway_model::{L4, outcome::ServingSocket};

use super::finalizers::MANAGER;
use crate::decode::{Field, lenient_ip};

pub(super) fn published(root: &Field<'_>) -> Vec<IpAddr> {
    of_ingress(root, |ip, _| ip)
}

/// The ports of its addresses that have no error.
pub(super) fn published_ports(root: &Field<'_>) -> Vec<ServingSocket> {
    of_ingress(root, |ip, item| {
        let ports = item.child("ports");
        let has = ports.items().filter_map(move |port| {
            let protocol = match port.child("protocol").name()? {
                "TCP" => L4::Tcp,
                "UDP" => L4::Udp,
                "SCTP" => L4::Sctp,
                _ => return None,
            };
            let (number, error) = (port.child("port"), port.child("error"));
            let number = number.integer().and_then(|it| u16::try_from(it).ok()).filter(|it| *it != 0)?;
            (!error.is_set()).then_some(ServingSocket { ip, protocol, port: number })
        });
        has.collect::<Vec<_>>()
    })
    .concat()
}

fn of_ingress<T>(root: &Field<'_>, read: impl Fn(IpAddr, &Field<'_>) -> T) -> Vec<T> {
    let status = root.child("status");
    let load_balancer = status.child("loadBalancer");
    let ingress = load_balancer.child("ingress");
    ingress.items().filter_map(|item| Some(read(lenient_ip(item.child("ip").name()?)?, &item))).collect()
}

/// Whether the addresses of its status are Seaway's words.
pub(super) fn published_by_us(root: &Field<'_>) -> bool {
    let metadata = root.child("metadata");
    metadata.child("managedFields").items().any(|entry| {
        let fields = entry.child("fieldsV1");
        let status = fields.child("f:status");
        let load_balancer = status.child("f:loadBalancer");
        entry.child("manager").name() == Some(MANAGER) && load_balancer.child("f:ingress").is_set()
    })
}

#[cfg(test)]
mod tests {
    use seaway_model::Fact;

    use super::*;
    use crate::object::tests::facts;

    #[test]
    fn whose_words_the_published_addresses_are_is_told_by_who_wrote_them() {
        let by = |manager: &str, fields: &str| {
            let text = format!(
                "apiVersion: v1\nkind: Service\nmetadata:\n  name: a\n  managedFields: [{{manager: {manager}, fieldsV1: {fields}}}]\n\
                 spec: {{ports: [{{port: 80}}]}}"
            );
            match facts(&text).remove(0) {
                Fact::Service(it) => it.published_by_us,
                other => panic!("{other:?}"),
            }
        };
        let addresses = "{'f:status': {'f:loadBalancer': {'f:ingress': {}}}}";
        assert!(by(MANAGER, addresses));
        assert!(!by("metallb", addresses));
        assert!(!by(MANAGER, "{'f:status': {'f:conditions': {}}}"));
    }

    #[test]
    fn ports_without_an_error_are_those_that_it_has() {
        let read = |ingress: &str| {
            let text = format!(
                "apiVersion: v1\nkind: Service\nmetadata: {{name: a}}\nspec: {{ports: [{{port: 80}}]}}\n\
                 status: {{loadBalancer: {{ingress: [{ingress}]}}}}"
            );
            match facts(&text).remove(0) {
                Fact::Service(it) => it.published_ports.iter().map(ToString::to_string).collect::<Vec<_>>(),
                other => panic!("{other:?}"),
            }
        };
        let ports = "[{port: 80, protocol: TCP}, {port: 53, protocol: UDP}, \
                     {port: 443, protocol: TCP, error: seaway.dev/PortConflict}]";
        assert_eq!(
            read(&format!("{{ip: 192.0.2.1, ports: {ports}}}")),
            ["192.0.2.1:80/TCP", "192.0.2.1:53/UDP"]
        );
        for nothing in [
            "{ip: 192.0.2.1}",
            "{hostname: a.example, ports: [{port: 80, protocol: TCP}]}",
            "{ip: 192.0.2.1, ports: [{port: 0, protocol: TCP}, {port: 80}, {port: 80, protocol: QUIC}, {port: 65616, protocol: TCP}]}",
        ] {
            assert!(read(nothing).is_empty(), "{nothing}");
        }
    }
}
