//! Secret. Its values are never repeated: not in a fault, not in a log.

use std::{collections::BTreeMap, sync::Arc};

use seaway_model::{
    Fact, Kind, Name, ObjectRef,
    fact::{Secret, TLS_SECRET},
};
use seaway_plan::base64;
use secrecy::SecretString;

use super::{
    formats,
    meta::{self, NameRules, check_rule},
};
use crate::decode::Field;

const NAMING: NameRules =
    NameRules { kind: Kind::Secret, namespaced: true, rule: formats::dns1123_subdomain };

/// An OCSP answer, in DER.
const STAPLE: &str = "tls.ocsp-staple";

pub(super) fn read(root: &Field<'_>) -> Option<Vec<Fact>> {
    let meta = meta::read(root, &NAMING);
    let kind = root.child("type").name().unwrap_or("Opaque");
    let (data, plain) = (root.child("data").redacted(), root.child("stringData").redacted());
    let mut values: BTreeMap<Name, SecretString> = BTreeMap::new();
    let mut staple = None;
    for (key, field) in data.entries() {
        check_rule(&field, key, formats::config_key);
        let Some(text) = field.text() else { continue };
        match base64::bytes_of(text) {
            Some(bytes) if key == STAPLE => staple = Some(bytes.into()),
            // Certificates, keys and passwords are text; what is not (a Java key store) is nothing to us.
            Some(bytes) => values.extend(String::from_utf8(bytes).ok().map(|text| (key.into(), text.into()))),
            None => field.error("Invalid value: must be base64 (plain text goes into `stringData`)"),
        }
    }
    for (key, field) in plain.entries() {
        check_rule(&field, key, formats::config_key);
        values.extend(field.text().map(|text| (key.into(), text.to_owned().into())));
    }
    if kind == TLS_SECRET {
        let mut others = data.entries().chain(plain.entries()).map(|(key, _)| key).collect::<Vec<_>>();
        others.retain(|it| !it.starts_with("tls.") && *it != "ca.crt");
        let why = match others.as_slice() {
            [] => String::new(),
            others => format!("this type has tls.crt and tls.key, and here are {}", others.join(", ")),
        };
        for key in ["tls.crt", "tls.key"] {
            // One that is there and is no base64 is a fault already.
            if !values.contains_key(key) && !data.key(key).is_set() {
                data.key(key).required(&why);
            }
        }
    }
    let meta = meta?;
    let object = ObjectRef::new(Kind::Secret, meta.namespace, meta.name);
    let secret = Secret { object, created: meta.created, kind: kind.into(), values, staple, withheld: false };
    Some(vec![Fact::Secret(Arc::new(secret))])
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;
    use crate::object::tests::{facts, faults};

    #[test]
    fn plain_text_wins_and_values_are_never_repeated() {
        let head = "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n";
        let facts = facts(&format!("{head}data: {{a: YQ==, b: YQ==, c: /w==}}\nstringData: {{b: text}}\n"));
        let Fact::Secret(secret) = &facts[0] else { panic!("not a secret") };
        let values: Vec<_> =
            secret.values.iter().map(|(key, it)| (key.as_str(), it.expose_secret())).collect();
        assert_eq!(values, [("a", "a"), ("b", "text")]);
        assert_eq!(
            faults(&format!("{head}data: {{a: hunter2!}}\nstringData: {{b: 12345}}\n")),
            [
                "4 data[a]: Invalid value: must be base64 (plain text goes into `stringData`)",
                "5 stringData[b]: Invalid value: must be a string, in quotes",
            ]
        );
        assert_eq!(
            faults(&format!("{head}type: kubernetes.io/tls\n")),
            ["1 data[tls.crt]: Required value", "1 data[tls.key]: Required value"]
        );
    }
}
