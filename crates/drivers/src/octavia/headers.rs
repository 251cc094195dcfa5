//! What listeners of HTTP add to requests, beside X-Forwarded-For. Pure.

use seaway_model::load_balancer::CloudOptions;
use seaway_openstack::{octavia::Protocol, resource::Edit};

use super::wanted::Wanted;

/// Octavia tells members so what the client speaks, and to which port.
const PROTO: &str = "X-Forwarded-Proto";
const PORT: &str = "X-Forwarded-Port";

pub(super) fn ask(wanted: &mut Wanted, outside: &CloudOptions) {
    for (id, it) in &mut wanted.listeners {
        let Some(asked) = outside.headers.get(id) else { continue };
        if !matches!(it.listener.protocol, Protocol::Http | Protocol::TerminatedHttps) {
            continue;
        }
        if let Edit::To(headers) = &mut it.listener.insert_headers {
            let names =
                [(asked.proto, PROTO), (asked.port, PORT)].into_iter().filter(|(is_asked, _)| *is_asked);
            headers.extend(names.map(|(_, name)| (name.to_owned(), "true".to_owned())));
        }
    }
}
