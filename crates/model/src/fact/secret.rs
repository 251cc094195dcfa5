//! Secrets, as far as they are used: certificates with their keys.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize, Serializer};

use crate::name::{Name, ObjectRef, Time};

/// A Secret's values are never printed and never compared in logs. Files with a certificate and its key are told as one,
/// under the names that a Secret of type `kubernetes.io/tls` has.
///
/// Serialized, they are in the clear: only for what is as private as they are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Secret {
    pub object: ObjectRef,
    /// Absent counts as oldest.
    pub created: Option<Time>,
    pub kind: Name,
    #[serde(serialize_with = "in_the_clear")]
    pub values: BTreeMap<Name, SecretString>,
    /// `tls.ocsp-staple`, which is no text, and no secret either.
    pub staple: Option<Box<[u8]>>,
    /// It is there; what it holds was not kept, since nobody named it.
    pub withheld: bool,
}

/// The `type` of Secrets with a certificate and its key.
pub const TLS_SECRET: &str = "kubernetes.io/tls";

impl Secret {
    pub fn withheld(object: ObjectRef) -> Secret {
        let kind = TLS_SECRET.into();
        Secret { object, created: None, kind, values: BTreeMap::new(), staple: None, withheld: true }
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Secret) -> bool {
        self.object == other.object
            && self.created == other.created
            && self.kind == other.kind
            && self.staple == other.staple
            && self.withheld == other.withheld
            && self.values.len() == other.values.len()
            && self
                .values
                .iter()
                .zip(&other.values)
                .all(|((ka, a), (kb, b))| ka == kb && a.expose_secret() == b.expose_secret())
    }
}

impl Eq for Secret {}

fn in_the_clear<S: Serializer>(values: &BTreeMap<Name, SecretString>, to: S) -> Result<S::Ok, S::Error> {
    to.collect_map(values.iter().map(|(key, value)| (key, value.expose_secret())))
}
