//! What listeners and pools may say about TLS, and whether their certificates are there.

use serde_json::{Value, json};

use super::invalid;
use crate::cloud::{
    exchange::Refusal,
    python::python_str,
    state::State,
    store::{Fields, Row, text},
};

/// The rig's defaults: OWASP's suite B.
const CIPHERS: &str = "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256:ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305:DHE-RSA-AES128-GCM-SHA256:DHE-RSA-AES256-GCM-SHA384:DHE-RSA-CHACHA20-POLY1305";
const VERSIONS: [&str; 5] = ["SSLv3", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"];

pub(super) fn check_new(state: &State, fields: &mut Fields) -> Result<(), Refusal> {
    let protocol = text(fields, "protocol").to_owned();
    let terminates = protocol == "TERMINATED_HTTPS";
    let refs = refs(fields);
    if !refs.is_empty() && !terminates && protocol != "PROMETHEUS" {
        return Err(not_allowed(&protocol));
    }
    if terminates && refs.is_empty() {
        return Err(invalid(format!(
            "An SNI or default certificate container reference must be provided for {protocol} protocol listeners."
        )));
    }
    check_clients(fields, text(fields, "client_ca_tls_container_ref"))?;
    check_refs(state, &refs)?;
    check_refs(state, &refs_of_clients(fields))?;
    check_versions(fields)?;
    if terminates {
        fill(fields);
    }
    Ok(())
}

pub(super) fn check_change(state: &State, listener: &Row, changes: &Fields) -> Result<(), Refusal> {
    let protocol = listener.text("protocol");
    let refs = refs(changes);
    if !refs.is_empty() && !["TERMINATED_HTTPS", "PROMETHEUS"].contains(&protocol) {
        return Err(not_allowed(protocol));
    }
    let authority = text(changes, "client_ca_tls_container_ref");
    let authority =
        if authority.is_empty() { listener.text("client_ca_tls_container_ref") } else { authority };
    check_clients(changes, authority)?;
    check_refs(state, &refs)?;
    check_refs(state, &refs_of_clients(changes))?;
    check_versions(changes)
}

/// Those that a pool names are there, and a list of revoked certificates is of an authority. `authority`: the one that it has.
pub(super) fn check_pool_refs(state: &State, fields: &Fields, authority: &str) -> Result<(), Refusal> {
    let named = |name: &str| Some(text(fields, name).to_owned()).filter(|it| !it.is_empty());
    let loses = fields.get("ca_tls_container_ref").is_some_and(Value::is_null);
    let has_authority = named("ca_tls_container_ref").is_some() || !loses && !authority.is_empty();
    if named("crl_container_ref").is_some() && !has_authority {
        return Err(invalid("A CA reference is required to specify a certificate revocation list."));
    }
    let refs = ["tls_container_ref", "ca_tls_container_ref", "crl_container_ref"];
    check_refs(state, &refs.into_iter().filter_map(named).collect::<Vec<_>>())
}

pub(super) fn check_pool(fields: &mut Fields) -> Result<(), Refusal> {
    if fields.get("tls_enabled") != Some(&json!(true)) {
        return Ok(());
    }
    check_versions(fields)?;
    fill(fields);
    Ok(())
}

fn fill(fields: &mut Fields) {
    let presets = [
        ("tls_ciphers", json!(CIPHERS)),
        ("tls_versions", json!(["TLSv1.2", "TLSv1.3"])),
        ("alpn_protocols", json!(["h2", "http/1.1", "http/1.0"])),
    ];
    for (name, preset) in presets {
        if fields.get(name).is_none_or(Value::is_null) {
            fields.insert(name.to_owned(), preset);
        }
    }
}

fn check_clients(fields: &Fields, authority: &str) -> Result<(), Refusal> {
    let wanted = text(fields, "client_authentication");
    if !["", "NONE"].contains(&wanted) && authority.is_empty() {
        return Err(invalid(format!(
            "Client authentication setting {wanted} requires a client CA container reference."
        )));
    }
    Ok(())
}

fn check_versions(fields: &Fields) -> Result<(), Refusal> {
    let versions = fields.get("tls_versions").and_then(Value::as_array).into_iter().flatten();
    let wrong: Vec<&str> = versions.filter_map(Value::as_str).filter(|it| !VERSIONS.contains(it)).collect();
    if wrong.is_empty() {
        Ok(())
    } else {
        Err(invalid(format!("Invalid TLS versions: {}", wrong.join(", "))))
    }
}

fn check_refs(state: &State, refs: &[String]) -> Result<(), Refusal> {
    let lost: Vec<Value> =
        refs.iter().filter(|it| !state.barbican.has(&state.base, it)).map(|it| json!(it)).collect();
    if lost.is_empty() {
        return Ok(());
    }
    Err(Refusal::new(400, format!("Could not retrieve certificate: {}", python_str(&lost.into()))))
}

fn refs(fields: &Fields) -> Vec<String> {
    let sni = fields.get("sni_container_refs").and_then(Value::as_array).into_iter().flatten();
    let all = sni.filter_map(Value::as_str).chain([text(fields, "default_tls_container_ref")]);
    all.filter(|it| !it.is_empty()).map(str::to_owned).collect()
}

fn refs_of_clients(fields: &Fields) -> Vec<String> {
    let refs = ["client_ca_tls_container_ref", "client_crl_container_ref"].map(|it| text(fields, it));
    refs.into_iter().filter(|it| !it.is_empty()).map(str::to_owned).collect()
}

fn not_allowed(protocol: &str) -> Refusal {
    invalid(format!("Certificate container references are not allowed on {protocol} protocol listeners."))
}
