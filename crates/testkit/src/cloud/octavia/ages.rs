//! Words that came with a later version of the API: an older one has never heard of them.

use serde_json::Value;

use super::{Octavia, forms::BodyError, schema::Kind};
use crate::cloud::exchange::{Refusal, Request};

/// Which attributes came with which version `2.x`, wherever they stand in a body.
const SINCE: [(&str, usize); 11] = [
    ("client_authentication", 8),
    ("client_ca_tls_container_ref", 8),
    ("client_crl_container_ref", 8),
    ("tls_enabled", 8),
    ("tls_container_ref", 8),
    ("ca_tls_container_ref", 8),
    ("crl_container_ref", 8),
    ("tls_versions", 17),
    ("additional_vips", 26),
    ("hsts_max_age", 27),
    ("vip_sg_ids", 29),
];

impl Octavia {
    pub(super) fn refuse_newer_fields(&self, kind: &'static Kind, request: &Request) -> Result<(), Refusal> {
        let body = request.json().unwrap_or_default();
        let body = &body[kind.one];
        match self.unheard(body) {
            Some(word) => Err(BodyError::unknown(vec![word.to_owned()]).at_top(kind, body)),
            None => Ok(()),
        }
    }

    fn unheard(&self, body: &Value) -> Option<&'static str> {
        let below = match body {
            Value::Object(fields) => {
                let later =
                    SINCE.iter().find(|(word, minor)| self.newest < *minor && fields.contains_key(*word));
                if let Some((word, _)) = later {
                    return Some(*word);
                }
                fields.values().collect::<Vec<_>>()
            }
            Value::Array(all) => all.iter().collect(),
            _ => Vec::new(),
        };
        below.into_iter().find_map(|it| self.unheard(it))
    }
}
